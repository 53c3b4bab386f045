//! Requests to a server.

use crate::{
    ByteReader, ByteWriter, LargeValue, Malformed, Operations, Participants, PeerReport, Question, Questions,
    TransactionList,
    greeting::{Role, may_send_for},
};
use yesquel_model::{KeyRange, NodeId, Timestamp, TreeId, TxnId};

/// Outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// All participants voted yes; the commit time.
    Commit(Timestamp),
    /// It was aborted.
    Abort,
}

/// Bit of a transaction's lease number: its commit also releases the leases of the holder, so that
/// the next holder's turn begins with it.
pub const ENDS_LEASE: u64 = 1 << 63;

/// A request to a server. `seen` is the highest timestamp that the client knows, and the server's
/// clock advances past it; `snapshot` is the transaction's snapshot, `None` until a server has set
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// Reads nodes.
    Read {
        /// The snapshot; `None`: the server sets it to the present.
        snapshot: Option<Timestamp>,
        /// The client's highest timestamp.
        seen: Timestamp,
        /// What to read.
        questions: Questions<'a>,
    },
    /// Commits a transaction of this server alone.
    Commit {
        /// The transaction.
        txn: TxnId,
        /// When the client began to commit it.
        birth: Timestamp,
        /// Its snapshot; `None`: it has read nothing.
        snapshot: Option<Timestamp>,
        /// The client's highest timestamp.
        seen: Timestamp,
        /// Number of the lease under which it writes, perhaps with [`ENDS_LEASE`]; zero: none.
        lease: u64,
        /// Its staged parts.
        staged: Option<Staged>,
        /// Its operations, after the staged ones.
        operations: Operations<'a>,
    },
    /// Phase one of two-phase commit: asks for a vote.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// When the client began to commit it.
        birth: Timestamp,
        /// The client asks one group after the other, in their order: the request waits for
        /// prepared transactions instead of being refused.
        waits: bool,
        /// Its snapshot; `None`: it has read nothing.
        snapshot: Option<Timestamp>,
        /// The client's highest timestamp.
        seen: Timestamp,
        /// All participants.
        participants: Participants<'a>,
        /// Number of the lease under which it writes, perhaps with [`ENDS_LEASE`]; zero: none.
        lease: u64,
        /// Its staged parts at this server.
        staged: Option<Staged>,
        /// Its operations at this server, after the staged ones.
        operations: Operations<'a>,
    },
    /// Stages a part of a transaction that is too long for one message. The server keeps it for a
    /// minute, or until the transaction ends.
    Stage {
        /// Name of the staged parts, which no transaction of the client uses.
        name: TxnId,
        /// Number of the part, counted from zero.
        part: u64,
        /// Its operations.
        operations: Operations<'a>,
    },
    /// Drops staged parts.
    Unstage {
        /// Their name.
        name: TxnId,
    },
    /// Phase two of two-phase commit: tells the outcome.
    Decide {
        /// The transaction.
        txn: TxnId,
        /// Its birth.
        birth: Timestamp,
        /// All participants.
        participants: Participants<'a>,
        /// Its outcome.
        decision: Decision,
    },
    /// Asks for a server's vote; if it has not voted, it votes no now.
    Resolve {
        /// The transaction.
        txn: TxnId,
        /// Its birth.
        birth: Timestamp,
        /// All participants.
        participants: Participants<'a>,
        /// The asker is a participant that has voted yes, and not the client.
        is_voter: bool,
    },
    /// Asks for the outcome of a transaction of this server alone; if it has not ended, it is
    /// aborted now.
    Outcome {
        /// The transaction.
        txn: TxnId,
        /// Its birth.
        birth: Timestamp,
    },
    /// Asks whether transactions of one client have ended, durably, or cannot be voted for any
    /// more. Those without a vote are aborted now.
    Ended {
        /// The client.
        client: u64,
        /// Its transactions.
        transactions: TransactionList<'a>,
    },
    /// Tells the group of a long value's nodes that no snapshot from a time on sees the value, at the
    /// group of its cell.
    DropValue {
        /// The first node.
        value: NodeId,
        /// Number of nodes.
        nodes: u64,
        /// The time.
        since: Timestamp,
    },
    /// Asks the group of a cell whether a version of the cell refers to a long value.
    ValueUse {
        /// The root of the cell's tree.
        root: NodeId,
        /// The cell's key.
        key: &'a [u8],
        /// The value's first node.
        value: NodeId,
    },
    /// Takes unique numbers from a counter.
    Take {
        /// The node that the counter belongs to.
        node: NodeId,
        /// How many numbers.
        count: u64,
        /// All numbers are above this one.
        above: u64,
    },
    /// Takes a lease: for some time no other client writes or guards keys of some ranges, at this
    /// server. All of them are granted at once.
    Lease {
        /// Name of the lease; transactions of its client state its number.
        holder: TxnId,
        /// The ranges, of any trees.
        ranges: Vec<(TreeId, KeyRange)>,
        /// Duration in milliseconds.
        ms: u64,
        /// Milliseconds that the request may wait for its turn; zero: it is refused at once.
        wait_ms: u64,
        /// The client's highest timestamp.
        seen: Timestamp,
    },
    /// Releases leases, and refuses the lease requests that still wait.
    Release {
        /// The name they were taken under.
        holder: TxnId,
    },
    /// Asks for the server's status, or for the first nodes of a tree.
    Inspect {
        /// The tree.
        tree: Option<TreeId>,
    },
    /// Asks for the nodes of a tree after this one.
    InspectAfter {
        /// The last node of the previous reply.
        node: NodeId,
    },
    /// Asks for the groups of the cluster, as the machine knows them.
    Directory,
    /// Asks for the group's clock, once the transactions have ended that have voted before and have
    /// participants that are not asked.
    Present {
        /// The groups that the client asks at the same time.
        asked: Participants<'a>,
        /// The client's highest timestamp.
        seen: Timestamp,
        /// Votes above this time are not waited for; `None`: those after the request's arrival.
        votes_until: Option<Timestamp>,
    },
    /// A machine asks to join the cluster.
    Join {
        /// JSON of a [`JoinRequest`](crate::machines::JoinRequest).
        request: &'a [u8],
    },
    /// An operator changes the machines of the cluster.
    Manage {
        /// JSON of a [`MachineCommand`](crate::machines::MachineCommand).
        command: &'a [u8],
    },
}

/// The staged parts of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Staged {
    /// Number of their name, of the transaction's client.
    pub number: u64,
    /// How many parts.
    pub parts: u64,
}

impl Staged {
    /// Appends it to a message; zero parts encode `None`.
    pub fn write(staged: Option<Staged>, writer: &mut ByteWriter<'_>) {
        writer.number(staged.map_or(0, |staged| staged.parts));
        if let Some(staged) = staged {
            writer.number(staged.number);
        }
    }

    /// Decodes it.
    pub fn read(reader: &mut ByteReader<'_>) -> Result<Option<Staged>, Malformed> {
        let parts = reader.number()?;
        if parts == 0 { Ok(None) } else { Ok(Some(Staged { number: reader.number()?, parts })) }
    }
}

/// A [`Read`](Request::Read) of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup<'a> {
    /// The snapshot; `None`: the server sets it to the present.
    pub snapshot: Option<Timestamp>,
    /// The client's highest timestamp.
    pub seen: Timestamp,
    /// The node.
    pub node: NodeId,
    /// The key.
    pub key: &'a [u8],
}

/// Bytes of a lookup message before its key, for a key so short that all lengths take one byte.
const LOOKUP_HEAD: usize = 1 + 8 + 8 + 1 + Question::LOOKUP_HEAD;
const SHORT_KEY: usize = 0x7f - Question::LOOKUP_HEAD;

const READ: u8 = 1;
const COMMIT: u8 = 2;
const PREPARE: u8 = 3;
const COMMITTED: u8 = 4;
const ABORTED: u8 = 5;
const RESOLVE: u8 = 6;
// 7 was `Forget`.
const OUTCOME: u8 = 8;
const TAKE: u8 = 9;
const INSPECT: u8 = 10;
const INSPECT_TREE: u8 = 11;
const STAGE: u8 = 12;
const UNSTAGE: u8 = 13;
const LEASE: u8 = 14;
const RELEASE: u8 = 15;
const INSPECT_AFTER: u8 = 16;
const ENDED: u8 = 17;
const DIRECTORY: u8 = 18;
const DROP_VALUE: u8 = 19;
const VALUE_USE: u8 = 20;
const JOIN: u8 = 21;
const MANAGE: u8 = 22;
const PRESENT: u8 = 23;

/// Bytes of the JSON in `Join` and `Manage`.
pub const MANAGEMENT_BYTES_MAX: usize = 4096;

/// Reads the JSON of `Join` or `Manage`.
fn management<'a>(reader: &mut ByteReader<'a>) -> Result<&'a [u8], Malformed> {
    let before = *reader;
    let json = reader.bytes()?;
    if json.len() > MANAGEMENT_BYTES_MAX {
        Err(before.malformed("a command over the limit"))
    } else {
        Ok(json)
    }
}

/// Decodes a snapshot; zero is none.
fn snapshot(reader: &mut ByteReader<'_>) -> Result<Option<Timestamp>, Malformed> {
    Ok(Some(reader.timestamp()?).filter(|snapshot| *snapshot != Timestamp::ZERO))
}

/// Decodes a commit time.
fn decided_at(reader: &mut ByteReader<'_>) -> Result<Timestamp, Malformed> {
    let before = *reader;
    let at = reader.timestamp()?;
    if at > Timestamp::DECIDED_MAX { Err(before.malformed("a time beyond the clock")) } else { Ok(at) }
}

fn tree(reader: &mut ByteReader<'_>) -> Result<TreeId, Malformed> {
    let before = *reader;
    TreeId::new(reader.number()?).ok_or(before.malformed("a tree beyond 48 bits"))
}

impl<'a> Request<'a> {
    /// Appends the request to a message.
    pub fn write(&self, writer: &mut ByteWriter<'_>) {
        match self {
            Request::Read { snapshot, seen, questions } => {
                writer.byte(READ).timestamp(snapshot.unwrap_or_default()).timestamp(*seen);
                writer.bytes(questions.bytes());
            }
            Request::Commit { txn, birth, snapshot, seen, lease, staged, operations } => {
                writer.byte(COMMIT).txn(*txn).timestamp(*birth);
                writer.timestamp(snapshot.unwrap_or_default()).timestamp(*seen).number(*lease);
                Staged::write(*staged, writer);
                writer.bytes(operations.bytes());
            }
            Request::Prepare {
                txn,
                birth,
                waits,
                snapshot,
                seen,
                participants,
                lease,
                staged,
                operations,
            } => {
                writer.byte(PREPARE).txn(*txn).timestamp(*birth).flag(*waits);
                writer.timestamp(snapshot.unwrap_or_default()).timestamp(*seen);
                writer.bytes(participants.bytes()).number(*lease);
                Staged::write(*staged, writer);
                writer.bytes(operations.bytes());
            }
            Request::Stage { name, part, operations } => {
                writer.byte(STAGE).txn(*name).number(*part).bytes(operations.bytes());
            }
            Request::Unstage { name } => {
                writer.byte(UNSTAGE).txn(*name);
            }
            Request::Decide { txn, birth, participants, decision: Decision::Commit(at) } => {
                writer.byte(COMMITTED).txn(*txn).timestamp(*birth).bytes(participants.bytes()).timestamp(*at);
            }
            Request::Decide { txn, birth, participants, decision: Decision::Abort } => {
                writer.byte(ABORTED).txn(*txn).timestamp(*birth).bytes(participants.bytes());
            }
            Request::Resolve { txn, birth, participants, is_voter } => {
                writer.byte(RESOLVE).txn(*txn).timestamp(*birth);
                writer.bytes(participants.bytes()).flag(*is_voter);
            }
            Request::Outcome { txn, birth } => {
                writer.byte(OUTCOME).txn(*txn).timestamp(*birth);
            }
            Request::Ended { client, transactions } => {
                writer.byte(ENDED).number(*client).bytes(transactions.bytes());
            }
            Request::DropValue { value, nodes, since } => {
                writer.byte(DROP_VALUE).node(*value).number(*nodes).timestamp(*since);
            }
            Request::ValueUse { root, key, value } => {
                writer.byte(VALUE_USE).node(*root).bytes(key).node(*value);
            }
            Request::Take { node, count, above } => {
                writer.byte(TAKE).node(*node).number(*count).number(*above);
            }
            Request::Lease { holder, ranges, ms, wait_ms, seen } => {
                writer.byte(LEASE).txn(*holder).number(ranges.len() as u64);
                for (tree, range) in ranges {
                    writer.number(tree.number()).range(range);
                }
                writer.number(*ms).number(*wait_ms).timestamp(*seen);
            }
            Request::Release { holder } => {
                writer.byte(RELEASE).txn(*holder);
            }
            Request::Inspect { tree: None } => {
                writer.byte(INSPECT);
            }
            Request::Inspect { tree: Some(tree) } => {
                writer.byte(INSPECT_TREE).number(tree.number());
            }
            Request::InspectAfter { node } => {
                writer.byte(INSPECT_AFTER).node(*node);
            }
            Request::Directory => {
                writer.byte(DIRECTORY);
            }
            Request::Present { asked, seen, votes_until } => {
                writer.byte(PRESENT).bytes(asked.bytes());
                writer.timestamp(*seen).timestamp(votes_until.unwrap_or_default());
            }
            Request::Join { request } => {
                writer.byte(JOIN).bytes(request);
            }
            Request::Manage { command } => {
                writer.byte(MANAGE).bytes(command);
            }
        }
    }

    /// Appends a [`Read`](Request::Read) of some questions to a message.
    pub fn write_read(
        writer: &mut ByteWriter<'_>,
        snapshot: Option<Timestamp>,
        seen: Timestamp,
        questions: impl IntoIterator<Item = Question<'a>>,
    ) {
        Request::write_questions(writer, snapshot, seen, |writer| {
            questions.into_iter().for_each(|question| question.write(writer));
        });
    }

    /// Appends a [`Read`](Request::Read) whose questions `write` writes.
    pub fn write_questions(
        writer: &mut ByteWriter<'_>,
        snapshot: Option<Timestamp>,
        seen: Timestamp,
        write: impl FnOnce(&mut ByteWriter<'_>),
    ) {
        writer.byte(READ).timestamp(snapshot.unwrap_or_default()).timestamp(seen);
        writer.within(write);
    }

    /// Appends a [`Read`](Request::Read) of one lookup to a message.
    pub fn write_lookup(writer: &mut ByteWriter<'_>, lookup: &Lookup<'_>) {
        let Lookup { snapshot, seen, node, key } = *lookup;
        if key.len() > SHORT_KEY {
            let question = Question::Lookup { node, key };
            return Request::write_read(writer, snapshot, seen, [question]);
        }
        // In one piece: both lengths take one byte.
        let mut head = [READ; LOOKUP_HEAD];
        head[1..9].copy_from_slice(&snapshot.unwrap_or_default().0.to_le_bytes());
        head[9..17].copy_from_slice(&seen.0.to_le_bytes());
        head[17] = (LOOKUP_HEAD - 18 + key.len()) as u8;
        Question::put_lookup(&mut head[18..], node, key.len() as u8);
        writer.0.extend_from_slice(&head);
        writer.0.extend_from_slice(key);
    }

    /// Decodes a read of one lookup in a single pass; `None` for other requests.
    pub fn lookup(bytes: &'a [u8]) -> Option<Lookup<'a>> {
        let mut reader = ByteReader::new(bytes);
        if reader.byte() != Ok(READ) {
            return None;
        }
        let (snapshot, seen) = (snapshot(&mut reader).ok()?, reader.timestamp().ok()?);
        let (node, key) = Question::lookup(reader.bytes().ok()?)?;
        reader.is_done().then_some(Lookup { snapshot, seen, node, key })
    }

    /// Decodes a [`Read`](Request::Read); `None` for other requests.
    pub fn read(bytes: &'a [u8]) -> Option<Request<'a>> {
        if bytes.first() == Some(&READ) { Request::decode(bytes).ok() } else { None }
    }

    /// Whether a connection may send a request of these bytes: a client names its own transactions
    /// only, and only servers may ask in the name of a participant, for ends, about long values, or
    /// report. Operators change the machines, and a machine that joins may only ask for that.
    pub fn is_permitted(bytes: &[u8], role: Role, client: u64) -> bool {
        let mut reader = ByteReader::new(bytes);
        match (role, reader.byte()) {
            (Role::Peer, _) => true,
            (Role::Joiner, tag) => tag == Ok(JOIN),
            (Role::Operator, Ok(MANAGE)) => true,
            (_, Ok(tag @ (COMMIT..=RESOLVE | OUTCOME | STAGE..=RELEASE))) => {
                let is_own = |txn: TxnId| may_send_for(client, txn.client);
                let is_voter =
                    || matches!(Request::decode(bytes), Ok(Request::Resolve { is_voter: true, .. }));
                // What is malformed is refused as such.
                reader.txn().map_or(true, is_own) && !(tag == RESOLVE && is_voter())
            }
            (_, Ok(ENDED | DROP_VALUE | VALUE_USE | JOIN | MANAGE)) => false,
            _ => !PeerReport::is_report(bytes),
        }
    }

    /// Whether a message looks like `Join` or `Manage`; it may still be malformed.
    pub fn manages(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(JOIN | MANAGE)))
    }

    /// Whether a message looks like `Inspect`, `InspectAfter` or `Directory`; it may still be malformed.
    pub fn inspects(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(INSPECT | INSPECT_TREE | INSPECT_AFTER | DIRECTORY)))
    }

    /// Decodes a request.
    pub fn decode(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let before = reader;
        let request = match reader.byte()? {
            READ => Request::Read {
                snapshot: snapshot(&mut reader)?,
                seen: reader.timestamp()?,
                questions: Questions::decode(reader.bytes()?)?,
            },
            COMMIT => Request::Commit {
                txn: reader.txn()?,
                birth: reader.timestamp()?,
                snapshot: snapshot(&mut reader)?,
                seen: reader.timestamp()?,
                lease: reader.number()?,
                staged: Staged::read(&mut reader)?,
                operations: Operations::decode(reader.bytes()?)?,
            },
            PREPARE => Request::Prepare {
                txn: reader.txn()?,
                birth: reader.timestamp()?,
                waits: reader.flag()?,
                snapshot: snapshot(&mut reader)?,
                seen: reader.timestamp()?,
                participants: Participants::decode(reader.bytes()?)?,
                lease: reader.number()?,
                staged: Staged::read(&mut reader)?,
                operations: Operations::decode(reader.bytes()?)?,
            },
            STAGE => Request::Stage {
                name: reader.txn()?,
                part: reader.number()?,
                operations: Operations::decode(reader.bytes()?)?,
            },
            UNSTAGE => Request::Unstage { name: reader.txn()? },
            tag @ (COMMITTED | ABORTED) => Request::Decide {
                txn: reader.txn()?,
                birth: reader.timestamp()?,
                participants: Participants::decode(reader.bytes()?)?,
                decision: match tag {
                    COMMITTED => Decision::Commit(decided_at(&mut reader)?),
                    _ => Decision::Abort,
                },
            },
            RESOLVE => Request::Resolve {
                txn: reader.txn()?,
                birth: reader.timestamp()?,
                participants: Participants::decode(reader.bytes()?)?,
                is_voter: reader.flag()?,
            },
            OUTCOME => Request::Outcome { txn: reader.txn()?, birth: reader.timestamp()? },
            ENDED => Request::Ended {
                client: reader.number()?,
                transactions: TransactionList::decode(reader.bytes()?)?,
            },
            DROP_VALUE => Request::DropValue {
                value: reader.node()?,
                nodes: LargeValue::read_nodes(&mut reader)?,
                since: reader.timestamp()?,
            },
            VALUE_USE => {
                Request::ValueUse { root: reader.node()?, key: reader.key()?, value: reader.node()? }
            }
            TAKE => Request::Take { node: reader.node()?, count: reader.number()?, above: reader.number()? },
            INSPECT => Request::Inspect { tree: None },
            INSPECT_TREE => Request::Inspect { tree: Some(tree(&mut reader)?) },
            INSPECT_AFTER => Request::InspectAfter { node: reader.node()? },
            DIRECTORY => Request::Directory,
            PRESENT => Request::Present {
                asked: Participants::decode(reader.bytes()?)?,
                seen: reader.timestamp()?,
                votes_until: snapshot(&mut reader)?,
            },
            JOIN => Request::Join { request: management(&mut reader)? },
            MANAGE => Request::Manage { command: management(&mut reader)? },
            LEASE => Request::Lease {
                holder: reader.txn()?,
                // Each range takes some of the bytes that are left.
                ranges: (0..reader.number()?)
                    .map(|_| Ok((tree(&mut reader)?, reader.range()?)))
                    .collect::<Result<_, Malformed>>()?,
                ms: reader.number()?,
                wait_ms: reader.number()?,
                seen: reader.timestamp()?,
            },
            RELEASE => Request::Release { holder: reader.txn()? },
            _ => return Err(before.malformed("an unknown request")),
        };
        reader.finish()?;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Scan, TransactionList};
    use yesquel_model::{KeyRange, ServerId, TreeId, limits};

    #[test]
    fn requests_round_trip() {
        let node = NodeId::root(TreeId::new(1).unwrap(), ServerId(2));
        let txn = TxnId { client: u64::MAX, number: 300 };
        let scan = Scan {
            range: KeyRange::from(*b"k"),
            direction: Direction::Down,
            cells_max: 3,
            bytes_max: 1 << 20,
            value_bytes_max: 0,
            near: Some((*b"key").into()),
        };
        let mut questions = Vec::new();
        let all = [
            Question::Lookup { node, key: b"k" },
            Question::Scan { node, scan: scan.into() },
            Question::Attribute { node, id: 9 },
        ];
        all.iter().for_each(|question| question.write(&mut ByteWriter(&mut questions)));
        let questions = Questions::decode(&questions).unwrap();
        assert_eq!(questions.iter().collect::<Vec<_>>(), all);
        let participants = Participants::encode(&[ServerId(1), ServerId(700)]);
        let participants = Participants::decode(&participants).unwrap();
        assert_eq!(participants.iter().collect::<Vec<_>>(), [ServerId(1), ServerId(700)]);
        let (seen, operations, birth) = (Timestamp(5), Operations::NONE, Timestamp(4));
        let mut transactions = Vec::new();
        TransactionList::push(&mut transactions, 7, birth, &[ServerId(1), ServerId(2)]);
        TransactionList::push(&mut transactions, 300, seen, &[]);
        let transactions = TransactionList::decode(&transactions).unwrap();
        assert_eq!(transactions.iter().map(|(number, ..)| number).collect::<Vec<_>>(), [7, 300]);
        let mut written = Vec::new();
        Request::write_read(&mut ByteWriter(&mut written), Some(seen), seen, all.iter().cloned());
        assert_eq!(Request::decode(&written), Ok(Request::Read { snapshot: Some(seen), seen, questions }));
        for request in [
            Request::Read { snapshot: None, seen, questions },
            Request::Read { snapshot: Some(seen), seen, questions },
            Request::Commit { txn, birth, snapshot: None, seen, lease: 0, staged: None, operations },
            Request::Prepare {
                txn,
                birth,
                waits: true,
                snapshot: Some(seen),
                seen,
                participants,
                lease: 9,
                staged: Some(Staged { number: 1, parts: 300 }),
                operations,
            },
            Request::Stage { name: txn, part: 7, operations },
            Request::Unstage { name: txn },
            Request::Decide { txn, birth, participants, decision: Decision::Commit(seen) },
            Request::Decide { txn, birth, participants, decision: Decision::Abort },
            Request::Resolve { txn, birth, participants, is_voter: true },
            Request::Outcome { txn, birth },
            Request::Ended { client: 9, transactions },
            Request::Lease {
                holder: txn,
                ranges: vec![(node.tree, KeyRange::from(*b"k")), (node.tree, KeyRange::all())],
                ms: 300,
                wait_ms: 20,
                seen,
            },
            Request::Release { holder: txn },
            Request::DropValue { value: node, nodes: 2_048, since: seen },
            Request::ValueUse { root: node, key: b"k", value: node },
            Request::Take { node, count: 100, above: u64::MAX },
            Request::Inspect { tree: None },
            Request::Inspect { tree: Some(TreeId::MAX) },
            Request::InspectAfter { node },
            Request::Directory,
            Request::Present { asked: participants, seen, votes_until: None },
            Request::Present { asked: Participants::NONE, seen, votes_until: Some(birth) },
            Request::Join { request: b"{}" },
            Request::Manage { command: &[b' '; MANAGEMENT_BYTES_MAX] },
        ] {
            let mut bytes = Vec::new();
            request.write(&mut ByteWriter(&mut bytes));
            assert_eq!(Request::decode(&bytes), Ok(request));
            for length in 0..bytes.len() {
                assert!(Request::decode(&bytes[..length]).is_err());
            }
            bytes.push(0);
            assert!(Request::decode(&bytes).is_err());
        }
    }

    #[test]
    fn a_long_command_is_malformed() {
        let mut bytes = Vec::new();
        Request::Manage { command: &[b' '; MANAGEMENT_BYTES_MAX + 1] }.write(&mut ByteWriter(&mut bytes));
        assert_eq!(Request::decode(&bytes).unwrap_err().what, "a command over the limit");
    }

    /// Checks that the short way to decode a lookup agrees with the long one.
    fn check_lookup(bytes: &[u8]) {
        let lookup = match Request::decode(bytes) {
            Ok(Request::Read { snapshot, seen, questions }) if questions.len() == 1 => {
                match questions.iter().next() {
                    Some(Question::Lookup { node, key }) => Some(Lookup { snapshot, seen, node, key }),
                    _ => None,
                }
            }
            _ => None,
        };
        assert_eq!(Request::lookup(bytes), lookup);
    }

    #[test]
    fn a_single_lookup_has_a_fast_path() {
        let node = NodeId::root(TreeId::MAX, ServerId(2));
        let long = [7; limits::KEY_BYTES_MAX + 1];
        let [short, longer] = [SHORT_KEY, SHORT_KEY + 1].map(|length| &long[..length]);
        let keys = [b"", &b"k"[..], short, longer, &long[1..], &long];
        for (key, snapshot) in keys.iter().flat_map(|key| [(key, None), (key, Some(Timestamp(9)))]) {
            let lookup = Question::Lookup { node, key };
            for questions in [&[lookup.clone()][..], &[lookup.clone(), lookup], &[]] {
                let mut bytes = Vec::new();
                Request::write_read(
                    &mut ByteWriter(&mut bytes),
                    snapshot,
                    Timestamp(5),
                    questions.iter().cloned(),
                );
                if let [Question::Lookup { node, key }] = *questions {
                    let (lookup, mut again) =
                        (Lookup { snapshot, seen: Timestamp(5), node, key }, Vec::new());
                    Request::write_lookup(&mut ByteWriter(&mut again), &lookup);
                    assert_eq!(again, bytes);
                }
                let is_one = questions.len() == 1 && key.len() <= limits::KEY_BYTES_MAX;
                assert_eq!(Request::lookup(&bytes).is_some(), is_one);
                check_lookup(&bytes);
                for place in 0..bytes.len().min(100) {
                    check_lookup(&bytes[..place]);
                    let mut other = bytes.clone();
                    other[place] ^= 1;
                    check_lookup(&other);
                }
                bytes.push(0);
                check_lookup(&bytes);
            }
        }
    }

    /// A clock could not advance beyond such a time.
    #[test]
    fn a_decision_at_the_end_of_time_is_refused() {
        let decode = |at: u64| {
            let (txn, mut bytes) = (TxnId { client: 1, number: 2 }, Vec::new());
            let decision = Decision::Commit(Timestamp(at));
            let (birth, participants) = (Timestamp(1), Participants::NONE);
            let request = Request::Decide { txn, birth, participants, decision };
            request.write(&mut ByteWriter(&mut bytes));
            Request::decode(&bytes).map(drop)
        };
        let last = Timestamp::DECIDED_MAX.0;
        assert_eq!(decode(last), Ok(()));
        for at in [last + 1, u64::MAX] {
            assert_eq!(decode(at).unwrap_err().what, "a time beyond the clock");
        }
    }
}
