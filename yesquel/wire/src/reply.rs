//! Replies of a server.

use crate::{
    Answer, AnswerWriter, Answers, ByteReader, ByteWriter, Correction, Decision, Malformed, Participants,
    answer::answer,
    destination::{LOCATED, NOT_LEADER, WRONG_GROUP},
};
use yesquel_model::{Conflict, NodeId, Refusal, Timestamp, TooFarAhead};

/// A server's vote on a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote<'a> {
    /// Yes: the operations can be applied.
    Yes {
        /// Lower bound of the commit time.
        at: Timestamp,
        /// All participants.
        participants: Participants<'a>,
    },
    /// No, irrevocably.
    No,
    /// The outcome is known.
    Decided(Decision),
    /// Not yet: the transaction waits there for others, and its client is alive.
    Waiting,
    /// The server has neither a vote nor the outcome, and takes no vote any more. Only clients get
    /// this answer.
    Forgotten,
}

/// Outcome of a transaction at one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// The outcome.
    Decided(Decision),
    /// The server has forgotten it.
    Forgotten,
}

/// What the group of a cell knows about the use of a long value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueUse {
    /// A version of the cell refers to it.
    Used,
    /// No snapshot from this time on sees a version that refers to it.
    Unused {
        /// The time.
        since: Timestamp,
    },
    /// A transaction that is not decided may refer to it, or create it.
    Undecided,
}

/// A server's reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Reply to `Read`.
    Answers {
        /// The snapshot that was read.
        snapshot: Timestamp,
        /// The answers, in the order of the questions.
        answers: Answers<'a>,
    },
    /// Reply to any request: it is refused.
    Refused {
        /// Index of the refused operation, if one is to blame.
        operation: Option<u64>,
        /// The reason.
        refusal: Refusal,
    },
    /// Reply to `Commit`: the commit time.
    Committed(Timestamp),
    /// Reply to `Prepare`: yes, with the lower bound of the commit time.
    Voted(Timestamp),
    /// Reply to `Decide`: the decision is durable. Reply to `DropValue`: the time is noted durably,
    /// or there is no such value.
    Done,
    /// Reply to `Resolve`, and to `Prepare` if the outcome is known.
    Vote(Vote<'a>),
    /// Reply to `Outcome`, and to a `Decide` that contradicts the outcome.
    Outcome(TransactionOutcome),
    /// Reply to `Commit` and `Prepare`: the server takes no vote for the transaction any more, and
    /// its outcome, if it has one, is forgotten. The server's clock.
    Forgotten(Timestamp),
    /// Reply to `Ended`: one flag for each transaction.
    Ended(&'a [u8]),
    /// Reply to `ValueUse`, and to `DropValue` while the value is being created.
    ValueUse(ValueUse),
    /// Reply to `Take`: the first of the numbers.
    Taken(u64),
    /// Reply to `Lease`: no other client commits within it after this time.
    Leased(Timestamp),
    /// Reply to `Present`: the clock.
    Present(Timestamp),
    /// Reply to `Inspect` and `Directory`: JSON of a type in [`status`](crate::status).
    Report(&'a [u8]),
    /// Reply to any request: it was not examined.
    Corrected(Correction<'a>),
}

const ANSWERS: u8 = 1;
const REFUSED: u8 = 2;
const COMMITTED: u8 = 3;
const VOTED: u8 = 4;
const DONE: u8 = 5;
const VOTE_YES: u8 = 6;
const VOTE_NO: u8 = 7;
const DECIDED_COMMIT: u8 = 8;
const DECIDED_ABORT: u8 = 9;
const OUTCOME_COMMIT: u8 = 10;
const OUTCOME_ABORT: u8 = 11;
const FORGOTTEN: u8 = 12;
const TAKEN: u8 = 13;
const REPORT: u8 = 14;
const LEASED: u8 = 15;
const VOTE_WAITING: u8 = 16;
const VOTE_FORGOTTEN: u8 = 17;
const COVERED: u8 = 18;
const ENDED: u8 = 19;
// 20 to 22 are corrections.
const VALUE_USED: u8 = 23;
const VALUE_UNUSED: u8 = 24;
const VALUE_UNDECIDED: u8 = 25;
const PRESENT: u8 = 26;

impl<'a> Reply<'a> {
    /// Appends a reply to `Read`, whose answers `answer` writes.
    pub fn write_answers(buffer: &mut Vec<u8>, snapshot: Timestamp, answer: impl FnOnce(AnswerWriter<'_>)) {
        ByteWriter(buffer).byte(ANSWERS).timestamp(snapshot);
        answer(AnswerWriter(ByteWriter(buffer)));
    }

    /// Decodes a reply with one lookup in a single pass; `None` for other replies.
    pub fn lookup(bytes: &'a [u8]) -> Option<(Timestamp, Answer<'a>)> {
        let mut reader = ByteReader::new(bytes);
        if reader.byte() != Ok(ANSWERS) {
            return None;
        }
        let (snapshot, answer) = (reader.timestamp().ok()?, answer(&mut reader).ok()?);
        let fits = reader.is_done()
            && matches!(answer, Answer::Absent | Answer::Value(_) | Answer::Large(_) | Answer::Moved(_));
        fits.then_some((snapshot, answer))
    }

    /// Appends the reply to a message.
    pub fn write(&self, buffer: &mut Vec<u8>) {
        let mut writer = ByteWriter(buffer);
        match self {
            Reply::Answers { snapshot, answers } => {
                writer.byte(ANSWERS).timestamp(*snapshot).0.extend_from_slice(answers.bytes());
            }
            Reply::Refused { operation, refusal } => {
                writer.byte(REFUSED).number(operation.map_or(0, |number| number + 1));
                write_refusal(&mut writer, refusal);
            }
            Reply::Committed(at) => {
                writer.byte(COMMITTED).timestamp(*at);
            }
            Reply::Voted(at) => {
                writer.byte(VOTED).timestamp(*at);
            }
            Reply::Done => {
                writer.byte(DONE);
            }
            Reply::Vote(Vote::Yes { at, participants }) => {
                writer.byte(VOTE_YES).timestamp(*at).bytes(participants.bytes());
            }
            Reply::Vote(Vote::No) => {
                writer.byte(VOTE_NO);
            }
            Reply::Vote(Vote::Decided(Decision::Commit(at))) => {
                writer.byte(DECIDED_COMMIT).timestamp(*at);
            }
            Reply::Vote(Vote::Decided(Decision::Abort)) => {
                writer.byte(DECIDED_ABORT);
            }
            Reply::Outcome(TransactionOutcome::Decided(Decision::Commit(at))) => {
                writer.byte(OUTCOME_COMMIT).timestamp(*at);
            }
            Reply::Outcome(TransactionOutcome::Decided(Decision::Abort)) => {
                writer.byte(OUTCOME_ABORT);
            }
            Reply::Outcome(TransactionOutcome::Forgotten) => {
                writer.byte(FORGOTTEN);
            }
            Reply::Vote(Vote::Waiting) => {
                writer.byte(VOTE_WAITING);
            }
            Reply::Vote(Vote::Forgotten) => {
                writer.byte(VOTE_FORGOTTEN);
            }
            Reply::Forgotten(clock) => {
                writer.byte(COVERED).timestamp(*clock);
            }
            Reply::Ended(flags) => {
                writer.byte(ENDED).bytes(flags);
            }
            Reply::ValueUse(ValueUse::Used) => {
                writer.byte(VALUE_USED);
            }
            Reply::ValueUse(ValueUse::Unused { since }) => {
                writer.byte(VALUE_UNUSED).timestamp(*since);
            }
            Reply::ValueUse(ValueUse::Undecided) => {
                writer.byte(VALUE_UNDECIDED);
            }
            Reply::Leased(at) => {
                writer.byte(LEASED).timestamp(*at);
            }
            Reply::Present(at) => {
                writer.byte(PRESENT).timestamp(*at);
            }
            Reply::Taken(first) => {
                writer.byte(TAKEN).number(*first);
            }
            Reply::Report(json) => {
                writer.byte(REPORT).bytes(json);
            }
            Reply::Corrected(correction) => correction.write(&mut writer),
        }
    }

    /// Decodes a reply.
    pub fn decode(bytes: &'a [u8]) -> Result<Reply<'a>, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let before = reader;
        let reply = match reader.byte()? {
            ANSWERS => {
                let snapshot = reader.timestamp()?;
                return Ok(Reply::Answers { snapshot, answers: Answers::decode(reader.rest())? });
            }
            REFUSED => Reply::Refused {
                operation: reader.number()?.checked_sub(1),
                refusal: read_refusal(&mut reader)?,
            },
            COMMITTED => Reply::Committed(reader.timestamp()?),
            VOTED => Reply::Voted(reader.timestamp()?),
            DONE => Reply::Done,
            VOTE_YES => Reply::Vote(Vote::Yes {
                at: reader.timestamp()?,
                participants: Participants::decode(reader.bytes()?)?,
            }),
            VOTE_NO => Reply::Vote(Vote::No),
            DECIDED_COMMIT => Reply::Vote(Vote::Decided(Decision::Commit(reader.timestamp()?))),
            DECIDED_ABORT => Reply::Vote(Vote::Decided(Decision::Abort)),
            OUTCOME_COMMIT => {
                Reply::Outcome(TransactionOutcome::Decided(Decision::Commit(reader.timestamp()?)))
            }
            OUTCOME_ABORT => Reply::Outcome(TransactionOutcome::Decided(Decision::Abort)),
            FORGOTTEN => Reply::Outcome(TransactionOutcome::Forgotten),
            VOTE_WAITING => Reply::Vote(Vote::Waiting),
            VOTE_FORGOTTEN => Reply::Vote(Vote::Forgotten),
            COVERED => Reply::Forgotten(reader.timestamp()?),
            ENDED => {
                let (before, flags) = (reader, reader.bytes()?);
                if flags.iter().any(|flag| *flag > 1) {
                    return Err(before.malformed("a flag that is neither 0 nor 1"));
                }
                Reply::Ended(flags)
            }
            VALUE_USED => Reply::ValueUse(ValueUse::Used),
            VALUE_UNUSED => Reply::ValueUse(ValueUse::Unused { since: reader.timestamp()? }),
            VALUE_UNDECIDED => Reply::ValueUse(ValueUse::Undecided),
            TAKEN => Reply::Taken(reader.number()?),
            LEASED => Reply::Leased(reader.timestamp()?),
            PRESENT => Reply::Present(reader.timestamp()?),
            REPORT => Reply::Report(reader.bytes()?),
            tag @ (WRONG_GROUP | LOCATED | NOT_LEADER) => {
                Reply::Corrected(Correction::read(tag, &mut reader)?)
            }
            _ => return Err(before.malformed("an unknown reply")),
        };
        reader.finish()?;
        Ok(reply)
    }
}

const CONFLICT_CELL: u8 = 1;
const CONFLICT_RANGE: u8 = 2;
const CONFLICT_GUARD: u8 = 3;
const CONFLICT_NODE: u8 = 4;
const CONFLICT_PREPARED: u8 = 5;
const REFUSED_MOVED: u8 = 6;
const REFUSED_TOO_OLD: u8 = 7;
const REFUSED_AHEAD: u8 = 8;
const REFUSED_GIVEN_UP: u8 = 9;
const REFUSED_MEMORY: u8 = 10;
const REFUSED_UNFIT: u8 = 11;
const REFUSED_EXISTS: u8 = 12;
const REFUSED_MISSING: u8 = 13;
const REFUSED_DISK: u8 = 14;
const REFUSED_LEASED: u8 = 15;
const REFUSED_LEASES: u8 = 16;
const REFUSED_LOST: u8 = 17;
const REFUSED_NOT_PREPARED: u8 = 18;
const REFUSED_FULL: u8 = 32;
const REFUSED_CLOCK: u8 = 33;
const REFUSED_DISK_FULL: u8 = 34;

fn write_refusal(writer: &mut ByteWriter<'_>, refusal: &Refusal) {
    let of_node = |writer: &mut ByteWriter<'_>, tag: u8, node: NodeId| {
        writer.byte(tag).node(node);
    };
    let of_times = |writer: &mut ByteWriter<'_>, tag: u8, first: Timestamp, second: Timestamp| {
        writer.byte(tag).timestamp(first).timestamp(second);
    };
    match *refusal {
        Refusal::Conflict(Conflict::Cell { node }) => of_node(writer, CONFLICT_CELL, node),
        Refusal::Conflict(Conflict::Range { node }) => of_node(writer, CONFLICT_RANGE, node),
        Refusal::Conflict(Conflict::Guard { node }) => of_node(writer, CONFLICT_GUARD, node),
        Refusal::Conflict(Conflict::Node { node }) => of_node(writer, CONFLICT_NODE, node),
        Refusal::Conflict(Conflict::Prepared { node, by }) => {
            of_node(writer, CONFLICT_PREPARED, node);
            writer.txn(by);
        }
        Refusal::Moved(node) => of_node(writer, REFUSED_MOVED, node),
        Refusal::SnapshotTooOld { snapshot, oldest } => of_times(writer, REFUSED_TOO_OLD, snapshot, oldest),
        Refusal::TooFarAhead(TooFarAhead { given, ours }) => of_times(writer, REFUSED_AHEAD, given, ours),
        Refusal::GivenUp(txn) => {
            writer.byte(REFUSED_GIVEN_UP).txn(txn);
        }
        Refusal::NotPrepared(txn) => {
            writer.byte(REFUSED_NOT_PREPARED).txn(txn);
        }
        Refusal::OutOfMemory => {
            writer.byte(REFUSED_MEMORY);
        }
        Refusal::Leased { ms } => {
            writer.byte(REFUSED_LEASED).number(ms);
        }
        Refusal::DiskLost => {
            writer.byte(REFUSED_LOST);
        }
        Refusal::TooManyLeases => {
            writer.byte(REFUSED_LEASES);
        }
        Refusal::DiskFailed => {
            writer.byte(REFUSED_DISK);
        }
        Refusal::DiskFull => {
            writer.byte(REFUSED_DISK_FULL);
        }
        Refusal::Unfit(node) => of_node(writer, REFUSED_UNFIT, node),
        Refusal::Exists(node) => of_node(writer, REFUSED_EXISTS, node),
        Refusal::Missing(node) => of_node(writer, REFUSED_MISSING, node),
        Refusal::Full(node) => of_node(writer, REFUSED_FULL, node),
        Refusal::ClockDiffers { ahead_ms } => {
            writer.byte(REFUSED_CLOCK).fixed(ahead_ms.cast_unsigned());
        }
    }
}

fn read_refusal(reader: &mut ByteReader<'_>) -> Result<Refusal, Malformed> {
    let before = *reader;
    Ok(match reader.byte()? {
        CONFLICT_CELL => Refusal::Conflict(Conflict::Cell { node: reader.node()? }),
        CONFLICT_RANGE => Refusal::Conflict(Conflict::Range { node: reader.node()? }),
        CONFLICT_GUARD => Refusal::Conflict(Conflict::Guard { node: reader.node()? }),
        CONFLICT_NODE => Refusal::Conflict(Conflict::Node { node: reader.node()? }),
        CONFLICT_PREPARED => {
            Refusal::Conflict(Conflict::Prepared { node: reader.node()?, by: reader.txn()? })
        }
        REFUSED_MOVED => Refusal::Moved(reader.node()?),
        REFUSED_TOO_OLD => {
            Refusal::SnapshotTooOld { snapshot: reader.timestamp()?, oldest: reader.timestamp()? }
        }
        REFUSED_AHEAD => {
            Refusal::TooFarAhead(TooFarAhead { given: reader.timestamp()?, ours: reader.timestamp()? })
        }
        REFUSED_GIVEN_UP => Refusal::GivenUp(reader.txn()?),
        REFUSED_NOT_PREPARED => Refusal::NotPrepared(reader.txn()?),
        REFUSED_MEMORY => Refusal::OutOfMemory,
        REFUSED_DISK => Refusal::DiskFailed,
        REFUSED_DISK_FULL => Refusal::DiskFull,
        REFUSED_LEASED => Refusal::Leased { ms: reader.number()? },
        REFUSED_LOST => Refusal::DiskLost,
        REFUSED_LEASES => Refusal::TooManyLeases,
        REFUSED_UNFIT => Refusal::Unfit(reader.node()?),
        REFUSED_EXISTS => Refusal::Exists(reader.node()?),
        REFUSED_MISSING => Refusal::Missing(reader.node()?),
        REFUSED_FULL => Refusal::Full(reader.node()?),
        REFUSED_CLOCK => Refusal::ClockDiffers { ahead_ms: reader.fixed()?.cast_signed() },
        _ => return Err(before.malformed("an unknown refusal")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CellValue, GroupLocation, MovedTo, NodeKind};
    use yesquel_model::{GroupEpoch, KeyRange, ServerId, TreeId, TxnId};

    #[test]
    fn replies_round_trip() {
        let node = NodeId::root(TreeId::new(9).unwrap(), ServerId(3));
        let (txn, at) = (TxnId { client: 8, number: 1 }, Timestamp(77));
        let participants = Participants::encode(&[ServerId(1), ServerId(2)]);
        let participants = Participants::decode(&participants).unwrap();
        let refusals = [
            Conflict::Cell { node }.into(),
            Conflict::Range { node }.into(),
            Conflict::Guard { node }.into(),
            Conflict::Node { node }.into(),
            Conflict::Prepared { node, by: txn }.into(),
            Refusal::Moved(node),
            Refusal::SnapshotTooOld { snapshot: at, oldest: Timestamp(78) },
            TooFarAhead { given: at, ours: Timestamp(1) }.into(),
            Refusal::GivenUp(txn),
            Refusal::NotPrepared(txn),
            Refusal::OutOfMemory,
            Refusal::DiskFailed,
            Refusal::DiskFull,
            Refusal::Leased { ms: 300 },
            Refusal::TooManyLeases,
            Refusal::DiskLost,
            Refusal::Unfit(node),
            Refusal::Exists(node),
            Refusal::Missing(node),
            Refusal::Full(node),
        ];
        let refused = refusals.into_iter().zip([None, Some(0), Some(300)].into_iter().cycle());
        let epoch = GroupEpoch { era: 1, index: 700 };
        let location = GroupLocation { group: ServerId(3), epoch, address: "a:7411" };
        let others = [
            Reply::Committed(at),
            Reply::Voted(at),
            Reply::Done,
            Reply::Vote(Vote::Yes { at, participants }),
            Reply::Vote(Vote::No),
            Reply::Vote(Vote::Decided(Decision::Commit(at))),
            Reply::Vote(Vote::Decided(Decision::Abort)),
            Reply::Outcome(TransactionOutcome::Decided(Decision::Commit(at))),
            Reply::Outcome(TransactionOutcome::Decided(Decision::Abort)),
            Reply::Outcome(TransactionOutcome::Forgotten),
            Reply::Vote(Vote::Waiting),
            Reply::Vote(Vote::Forgotten),
            Reply::Forgotten(at),
            Reply::Ended(&[0, 1, 1]),
            Reply::ValueUse(ValueUse::Used),
            Reply::ValueUse(ValueUse::Unused { since: at }),
            Reply::ValueUse(ValueUse::Undecided),
            Reply::Taken(u64::MAX),
            Reply::Leased(Timestamp(7)),
            Reply::Present(Timestamp(8)),
            Reply::Report(b"{}"),
            Reply::Corrected(Correction::WrongGroup(None)),
            Reply::Corrected(Correction::WrongGroup(Some(location))),
            Reply::Corrected(Correction::NotLeader { term: 300, leader: "b:7411" }),
            Reply::Corrected(Correction::NotLeader { term: 0, leader: "" }),
        ];
        for reply in &others {
            let mut bytes = Vec::new();
            reply.write(&mut bytes);
            let correction = match reply {
                Reply::Corrected(correction) => Some(*correction),
                _ => None,
            };
            assert_eq!(Correction::of(&bytes), correction);
        }
        let refused = refused.map(|(refusal, operation)| Reply::Refused { operation, refusal });
        for reply in refused.chain(others) {
            let mut bytes = Vec::new();
            reply.write(&mut bytes);
            assert_eq!(Reply::decode(&bytes), Ok(reply));
            for length in 0..bytes.len() {
                assert!(Reply::decode(&bytes[..length]).is_err());
            }
            bytes.push(0);
            assert!(Reply::decode(&bytes).is_err());
        }
    }

    #[test]
    fn answers_round_trip_in_order() {
        let mut cells = Vec::new();
        AnswerWriter::cell(&mut cells, b"a", CellValue::Bytes(b"1"));
        AnswerWriter::cell(&mut cells, b"b", CellValue::Length(5000));
        let fence = KeyRange::new(*b"a", *b"z");
        let mut bytes = Vec::new();
        Reply::write_answers(&mut bytes, Timestamp(3), |mut writer| {
            writer.value(b"v");
            writer.absent();
            writer.cells(NodeKind::Inner, &fence, true, &cells);
            writer.moved(None);
            writer.moved(Some((&fence, NodeId::default())));
        });
        let reply = Reply::decode(&bytes).unwrap();
        let Reply::Answers { snapshot: Timestamp(3), answers } = reply else { panic!("{reply:?}") };
        let all: Vec<_> = answers.iter().collect();
        let [
            Answer::Value(b"v"),
            Answer::Absent,
            Answer::Cells(found),
            Answer::Moved(None),
            Answer::Moved(Some(to)),
        ] = &all[..]
        else {
            panic!("{all:?}")
        };
        assert_eq!(*to, MovedTo { range: fence.clone(), to: NodeId::default() });
        assert_eq!((found.kind, &found.fence, found.more), (NodeKind::Inner, &fence, true));
        let found: Vec<_> = found.iter().collect();
        assert_eq!(found, [(&b"a"[..], CellValue::Bytes(b"1")), (b"b", CellValue::Length(5000))]);
        let mut again = Vec::new();
        reply.write(&mut again);
        assert_eq!(again, bytes);
    }
}
