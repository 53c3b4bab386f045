//! Records of the log: what has changed, so that it can be done again without
//! a clock and without a message.

use yesquel_model::{NodeId, Timestamp, TxnId};
use yesquel_wire::{Decision, Malformed, Operations, Participants, Reader, Staged, Writer};

/// The transaction of what is in a checkpoint: nobody will ask about it.
pub(crate) const NOBODY: TxnId = TxnId { client: 0, number: 0 };

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// A transaction of this server alone.
    Commit {
        /// Which.
        txn: TxnId,
        /// When.
        at: Timestamp,
        /// What was staged of it.
        staged: Option<Staged>,
        /// What it did, after what was staged.
        operations: Operations<'a>,
    },
    /// A vote for yes.
    Prepare {
        /// Which transaction.
        txn: TxnId,
        /// Not before this it commits.
        at: Timestamp,
        /// Everyone who takes part.
        participants: Participants<'a>,
        /// What was staged of it.
        staged: Option<Staged>,
        /// What it does here, after what was staged.
        operations: Operations<'a>,
    },
    /// A part of a transaction.
    Stage {
        /// Under which name.
        name: TxnId,
        /// Which part, counted from zero.
        part: u64,
        /// What it does.
        operations: Operations<'a>,
    },
    /// The parts of a transaction are not kept any more.
    Unstage {
        /// Under which name.
        name: TxnId,
    },
    /// How a transaction of several servers ended, a vote for no that nobody
    /// had asked for among them.
    Decide {
        /// Which.
        txn: TxnId,
        /// How.
        decision: Decision,
    },
    /// Nobody will ask how it ended any more.
    Forget {
        /// Which.
        txn: TxnId,
    },
    /// No timestamp above this one has been given out; whatever an earlier one
    /// says.
    Ceiling(Timestamp),
    /// No number of a counter from this one on has been given out.
    Counter {
        /// Whose counter.
        node: NodeId,
        /// The next number.
        next: u64,
    },
}

const COMMIT: u8 = 1;
const PREPARE: u8 = 2;
const COMMITTED: u8 = 3;
const ABORTED: u8 = 4;
const FORGET: u8 = 5;
const CEILING: u8 = 6;
const COUNTER: u8 = 7;
const STAGE: u8 = 8;
const UNSTAGE: u8 = 9;

impl<'a> Record<'a> {
    /// From when on somebody may read what the first of some records did, of
    /// which each ends where it says.
    pub fn first_seen(log: &[u8], ends: &[usize]) -> Option<Timestamp> {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let records = starts.zip(ends).filter_map(|(start, end)| log.get(start..*end));
        records.filter_map(|record| Record::decode(record).ok()?.seen_from()).min()
    }

    /// From when on somebody may read what it did, if it did anything.
    pub fn seen_from(&self) -> Option<Timestamp> {
        match self {
            Record::Commit { at, .. } | Record::Decide { decision: Decision::Commit(at), .. } => Some(*at),
            _ => None,
        }
    }

    /// Appends it to a buffer.
    pub fn write(&self, buffer: &mut Vec<u8>) {
        let mut writer = Writer(buffer);
        match self {
            Record::Commit { txn, at, staged, operations } => {
                writer.byte(COMMIT).txn(*txn).timestamp(*at);
                Staged::write(*staged, &mut writer);
                writer.bytes(operations.bytes());
            }
            Record::Prepare { txn, at, participants, staged, operations } => {
                writer.byte(PREPARE).txn(*txn).timestamp(*at).bytes(participants.bytes());
                Staged::write(*staged, &mut writer);
                writer.bytes(operations.bytes());
            }
            Record::Stage { name, part, operations } => {
                writer.byte(STAGE).txn(*name).number(*part).bytes(operations.bytes());
            }
            Record::Unstage { name } => {
                writer.byte(UNSTAGE).txn(*name);
            }
            Record::Decide { txn, decision: Decision::Commit(at) } => {
                writer.byte(COMMITTED).txn(*txn).timestamp(*at);
            }
            Record::Decide { txn, decision: Decision::Abort } => {
                writer.byte(ABORTED).txn(*txn);
            }
            Record::Forget { txn } => {
                writer.byte(FORGET).txn(*txn);
            }
            Record::Ceiling(at) => {
                writer.byte(CEILING).timestamp(*at);
            }
            Record::Counter { node, next } => {
                writer.byte(COUNTER).node(*node).number(*next);
            }
        }
    }

    /// The record that some bytes are.
    pub fn decode(bytes: &'a [u8]) -> Result<Record<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let before = reader;
        let record = match reader.byte()? {
            COMMIT => Record::Commit {
                txn: reader.txn()?,
                at: reader.timestamp()?,
                staged: Staged::read(&mut reader)?,
                operations: Operations::decode(reader.bytes()?)?,
            },
            PREPARE => Record::Prepare {
                txn: reader.txn()?,
                at: reader.timestamp()?,
                participants: Participants::decode(reader.bytes()?)?,
                staged: Staged::read(&mut reader)?,
                operations: Operations::decode(reader.bytes()?)?,
            },
            STAGE => Record::Stage {
                name: reader.txn()?,
                part: reader.number()?,
                operations: Operations::decode(reader.bytes()?)?,
            },
            UNSTAGE => Record::Unstage { name: reader.txn()? },
            COMMITTED => {
                Record::Decide { txn: reader.txn()?, decision: Decision::Commit(reader.timestamp()?) }
            }
            ABORTED => Record::Decide { txn: reader.txn()?, decision: Decision::Abort },
            FORGET => Record::Forget { txn: reader.txn()? },
            CEILING => Record::Ceiling(reader.timestamp()?),
            COUNTER => Record::Counter { node: reader.node()?, next: reader.number()? },
            _ => return Err(before.malformed("a record that is not known")),
        };
        reader.finish()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel_model::ServerId;

    #[test]
    fn every_record_comes_back() {
        let (txn, at) = (TxnId { client: 3, number: 4 }, Timestamp(5));
        let participants = Participants::encode(&[ServerId(1)]);
        let participants = Participants::decode(&participants).unwrap();
        for record in [
            Record::Commit { txn, at, staged: None, operations: Operations::NONE },
            Record::Prepare {
                txn,
                at,
                participants,
                staged: Some(Staged { number: 9, parts: 2 }),
                operations: Operations::NONE,
            },
            Record::Stage { name: txn, part: 1, operations: Operations::NONE },
            Record::Unstage { name: txn },
            Record::Decide { txn, decision: Decision::Commit(at) },
            Record::Decide { txn, decision: Decision::Abort },
            Record::Forget { txn },
            Record::Ceiling(at),
            Record::Counter { node: NodeId::default(), next: 700 },
        ] {
            let mut bytes = Vec::new();
            record.write(&mut bytes);
            assert_eq!(Record::decode(&bytes), Ok(record));
            for length in 0..bytes.len() {
                assert!(Record::decode(&bytes[..length]).is_err());
            }
        }
    }
}
