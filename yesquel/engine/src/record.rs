//! Log records: state changes that can be applied again without a clock and without messages.

use crate::node_record::NodeItems;
use yesquel_model::{GroupEpoch, NodeId, Timestamp, TreeId, TxnId};
use yesquel_wire::{
    ByteReader, ByteWriter, Decision, LargeValue, Malformed, Operations, Participants, SettledReport, Staged,
};

/// Transaction id of the operations in checkpoints of earlier versions, which no client asks about.
pub(crate) const NO_TXN: TxnId = TxnId { client: 0, number: 0 };

/// A log record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogRecord<'a> {
    /// A committed transaction of this server alone.
    Commit {
        /// The transaction.
        txn: TxnId,
        /// Its birth.
        birth: Timestamp,
        /// The commit time.
        at: Timestamp,
        /// Its staged parts.
        staged: Option<Staged>,
        /// Its operations, after the staged ones.
        operations: Operations<'a>,
    },
    /// A vote for yes.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// Its birth.
        birth: Timestamp,
        /// Its client asks the participants one after the other.
        waits: bool,
        /// Lower bound of the commit time.
        at: Timestamp,
        /// All participants.
        participants: Participants<'a>,
        /// Its staged parts.
        staged: Option<Staged>,
        /// Its operations at this server, after the staged ones.
        operations: Operations<'a>,
    },
    /// A staged part of a transaction.
    Stage {
        /// Name of the staged parts.
        name: TxnId,
        /// Number of the part, counted from zero.
        part: u64,
        /// Its operations.
        operations: Operations<'a>,
    },
    /// Staged parts were dropped.
    Unstage {
        /// Their name.
        name: TxnId,
    },
    /// Outcome of a transaction of several servers.
    Decide {
        /// The transaction.
        txn: TxnId,
        /// Its birth.
        birth: Timestamp,
        /// All participants.
        participants: Participants<'a>,
        /// The outcome.
        decision: Decision,
    },
    /// A vote for no that recovery forced: the transaction is aborted.
    Refuse {
        /// The transaction.
        txn: TxnId,
        /// Its birth.
        birth: Timestamp,
        /// All participants.
        participants: Participants<'a>,
    },
    /// A transaction of this server alone will not commit any more.
    GiveUp {
        /// The transaction.
        txn: TxnId,
        /// Its birth.
        birth: Timestamp,
    },
    /// Transactions of a client need not be remembered.
    Settled {
        /// The client.
        client: u64,
        /// Which ones.
        report: SettledReport,
    },
    /// No transaction that was born below this may vote or commit any more.
    Horizon(Timestamp),
    /// The configuration of the group.
    Group {
        /// Its epoch.
        epoch: GroupEpoch,
    },
    /// No participant will ask for the outcome any more.
    Forget {
        /// The transaction.
        txn: TxnId,
    },
    /// No timestamp above this one has been given out; replaces earlier ceilings.
    Ceiling(Timestamp),
    /// No number of a counter from this one on has been given out.
    Counter {
        /// The node that the counter belongs to.
        node: NodeId,
        /// The next number.
        next: u64,
    },
    /// Snapshots below `low` are no longer readable, nor are those between it and `next`; replaces
    /// earlier marks.
    LowWater {
        /// The oldest readable snapshot.
        low: Timestamp,
        /// The next readable one.
        next: Timestamp,
    },
    /// Whether replies wait until the records that they depend on are on disk, from here on. Without
    /// such a record they do.
    Synced(bool),
    /// No snapshot from a time on sees a long value of this group, at the group of its cell.
    DropValue {
        /// Its first node.
        value: NodeId,
        /// Number of its nodes.
        nodes: u64,
        /// The time.
        since: Timestamp,
    },
    /// The group of a long value's nodes knows that no snapshot sees the value.
    ValueDropped {
        /// Its first node.
        value: NodeId,
    },
    /// A part of a node's state. Only checkpoints have these, and the next three.
    Node {
        /// The node.
        node: NodeId,
        /// Its parts, after those of earlier records.
        items: NodeItems<'a>,
    },
    /// Operations of a prepared transaction at nodes that their cells have left.
    Departed {
        /// The transaction.
        txn: TxnId,
        /// When the cells moved: a commit before this time also applies here.
        until: Timestamp,
        /// The operations.
        operations: Operations<'a>,
    },
    /// A tree was dropped, while snapshots that see it are readable.
    TreeDropped {
        /// The tree.
        tree: TreeId,
        /// The time.
        at: Timestamp,
    },
    /// A long value at another group that no readable snapshot sees. That group does not know this
    /// yet.
    ValueOrphaned {
        /// Its first node.
        value: NodeId,
        /// Number of its nodes.
        nodes: u64,
        /// The time from which on no snapshot sees it.
        since: Timestamp,
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
/// Kinds with births and participants. Kinds 1 to 4 are of earlier versions, and 1 also of commits
/// that are their own birth.
const COMMIT_BORN: u8 = 10;
const PREPARE_BORN: u8 = 11;
const COMMITTED_BORN: u8 = 12;
const ABORTED_BORN: u8 = 13;
const REFUSE: u8 = 14;
const GIVE_UP: u8 = 15;
const SETTLED: u8 = 16;
const HORIZON: u8 = 17;
const GROUP: u8 = 18;
const SYNCED: u8 = 20;
const DROP_VALUE: u8 = 21;
const VALUE_DROPPED: u8 = 22;
const LOW_WATER: u8 = 32;
const NODE: u8 = 33;
const DEPARTED: u8 = 34;
const TREE_DROPPED: u8 = 35;
const VALUE_ORPHANED: u8 = 36;

impl<'a> LogRecord<'a> {
    /// First timestamp at which a read may see an effect of some records; `ends` has the end of
    /// each.
    pub fn first_seen(log: &[u8], ends: &[usize]) -> Option<Timestamp> {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let records = starts.zip(ends).filter_map(|(start, end)| log.get(start..*end));
        records.filter_map(|record| LogRecord::decode(record).ok()?.seen_from()).min()
    }

    /// First timestamp at which a read may see its effect, if it has one.
    pub fn seen_from(&self) -> Option<Timestamp> {
        match self {
            LogRecord::Commit { at, .. } | LogRecord::Decide { decision: Decision::Commit(at), .. } => {
                Some(*at)
            }
            _ => None,
        }
    }

    /// Appends the record to a buffer.
    pub fn write(&self, buffer: &mut Vec<u8>) {
        let mut writer = ByteWriter(buffer);
        match self {
            LogRecord::Commit { txn, birth, at, staged, operations } => {
                match birth == at {
                    true => writer.byte(COMMIT).txn(*txn).timestamp(*at),
                    false => writer.byte(COMMIT_BORN).txn(*txn).timestamp(*birth).timestamp(*at),
                };
                Staged::write(*staged, &mut writer);
                writer.bytes(operations.bytes());
            }
            LogRecord::Prepare { txn, birth, waits, at, participants, staged, operations } => {
                writer.byte(PREPARE_BORN).txn(*txn).timestamp(*birth).flag(*waits);
                writer.timestamp(*at).bytes(participants.bytes());
                Staged::write(*staged, &mut writer);
                writer.bytes(operations.bytes());
            }
            LogRecord::Stage { name, part, operations } => {
                writer.byte(STAGE).txn(*name).number(*part).bytes(operations.bytes());
            }
            LogRecord::Unstage { name } => {
                writer.byte(UNSTAGE).txn(*name);
            }
            LogRecord::Decide { txn, birth, participants, decision: Decision::Commit(at) } => {
                writer.byte(COMMITTED_BORN).txn(*txn).timestamp(*birth);
                writer.bytes(participants.bytes()).timestamp(*at);
            }
            LogRecord::Decide { txn, birth, participants, decision: Decision::Abort } => {
                writer.byte(ABORTED_BORN).txn(*txn).timestamp(*birth).bytes(participants.bytes());
            }
            LogRecord::Refuse { txn, birth, participants } => {
                writer.byte(REFUSE).txn(*txn).timestamp(*birth).bytes(participants.bytes());
            }
            LogRecord::GiveUp { txn, birth } => {
                writer.byte(GIVE_UP).txn(*txn).timestamp(*birth);
            }
            LogRecord::Settled { client, report } => {
                writer.byte(SETTLED).number(*client);
                report.write(&mut writer);
            }
            LogRecord::Horizon(horizon) => {
                writer.byte(HORIZON).timestamp(*horizon);
            }
            LogRecord::Group { epoch } => {
                writer.byte(GROUP).epoch(*epoch);
            }
            LogRecord::Forget { txn } => {
                writer.byte(FORGET).txn(*txn);
            }
            LogRecord::Ceiling(at) => {
                writer.byte(CEILING).timestamp(*at);
            }
            LogRecord::Counter { node, next } => {
                writer.byte(COUNTER).node(*node).number(*next);
            }
            LogRecord::LowWater { low, next } => {
                writer.byte(LOW_WATER).timestamp(*low).timestamp(*next);
            }
            LogRecord::Synced(is_synced) => {
                writer.byte(SYNCED).flag(*is_synced);
            }
            LogRecord::DropValue { value, nodes, since } => {
                writer.byte(DROP_VALUE).node(*value).number(*nodes).timestamp(*since);
            }
            LogRecord::ValueDropped { value } => {
                writer.byte(VALUE_DROPPED).node(*value);
            }
            LogRecord::ValueOrphaned { value, nodes, since } => {
                writer.byte(VALUE_ORPHANED).node(*value).number(*nodes).timestamp(*since);
            }
            LogRecord::Node { node, items } => {
                writer.byte(NODE).node(*node).bytes(items.bytes());
            }
            LogRecord::Departed { txn, until, operations } => {
                writer.byte(DEPARTED).txn(*txn).timestamp(*until).bytes(operations.bytes());
            }
            LogRecord::TreeDropped { tree, at } => {
                writer.byte(TREE_DROPPED).number(tree.number()).timestamp(*at);
            }
        }
    }

    /// Decodes a record.
    pub fn decode(bytes: &'a [u8]) -> Result<LogRecord<'a>, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let before = reader;
        let record = match reader.byte()? {
            tag @ (COMMIT | COMMIT_BORN) => {
                let (txn, birth) = (reader.txn()?, reader.timestamp()?);
                LogRecord::Commit {
                    txn,
                    birth,
                    at: if tag == COMMIT { birth } else { reader.timestamp()? },
                    staged: Staged::read(&mut reader)?,
                    operations: Operations::decode(reader.bytes()?)?,
                }
            }
            tag @ (PREPARE | PREPARE_BORN) => {
                let (txn, birth) = (reader.txn()?, reader.timestamp()?);
                let (waits, at) = match tag {
                    PREPARE => (false, birth),
                    _ => (reader.flag()?, reader.timestamp()?),
                };
                LogRecord::Prepare {
                    txn,
                    birth,
                    waits,
                    at,
                    participants: Participants::decode(reader.bytes()?)?,
                    staged: Staged::read(&mut reader)?,
                    operations: Operations::decode(reader.bytes()?)?,
                }
            }
            STAGE => LogRecord::Stage {
                name: reader.txn()?,
                part: reader.number()?,
                operations: Operations::decode(reader.bytes()?)?,
            },
            UNSTAGE => LogRecord::Unstage { name: reader.txn()? },
            // The records of earlier versions have no births and no participants. That of the vote
            // has them.
            COMMITTED => {
                let (txn, at) = (reader.txn()?, reader.timestamp()?);
                let (participants, decision) = (Participants::NONE, Decision::Commit(at));
                LogRecord::Decide { txn, birth: at, participants, decision }
            }
            ABORTED => {
                let (birth, participants) = (Timestamp::ZERO, Participants::NONE);
                LogRecord::Decide { txn: reader.txn()?, birth, participants, decision: Decision::Abort }
            }
            tag @ (COMMITTED_BORN | ABORTED_BORN) => LogRecord::Decide {
                txn: reader.txn()?,
                birth: reader.timestamp()?,
                participants: Participants::decode(reader.bytes()?)?,
                decision: match tag {
                    COMMITTED_BORN => Decision::Commit(reader.timestamp()?),
                    _ => Decision::Abort,
                },
            },
            REFUSE => LogRecord::Refuse {
                txn: reader.txn()?,
                birth: reader.timestamp()?,
                participants: Participants::decode(reader.bytes()?)?,
            },
            GIVE_UP => LogRecord::GiveUp { txn: reader.txn()?, birth: reader.timestamp()? },
            SETTLED => {
                LogRecord::Settled { client: reader.number()?, report: SettledReport::read(&mut reader)? }
            }
            HORIZON => LogRecord::Horizon(reader.timestamp()?),
            GROUP => LogRecord::Group { epoch: reader.epoch()? },
            FORGET => LogRecord::Forget { txn: reader.txn()? },
            CEILING => LogRecord::Ceiling(reader.timestamp()?),
            COUNTER => LogRecord::Counter { node: reader.node()?, next: reader.number()? },
            LOW_WATER => LogRecord::LowWater { low: reader.timestamp()?, next: reader.timestamp()? },
            SYNCED => LogRecord::Synced(reader.flag()?),
            DROP_VALUE => LogRecord::DropValue {
                value: reader.node()?,
                nodes: LargeValue::read_nodes(&mut reader)?,
                since: reader.timestamp()?,
            },
            VALUE_DROPPED => LogRecord::ValueDropped { value: reader.node()? },
            VALUE_ORPHANED => LogRecord::ValueOrphaned {
                value: reader.node()?,
                nodes: LargeValue::read_nodes(&mut reader)?,
                since: reader.timestamp()?,
            },
            NODE => LogRecord::Node { node: reader.node()?, items: NodeItems::decode(reader.bytes()?)? },
            DEPARTED => LogRecord::Departed {
                txn: reader.txn()?,
                until: reader.timestamp()?,
                operations: Operations::decode(reader.bytes()?)?,
            },
            TREE_DROPPED => {
                let tree = TreeId::new(reader.number()?);
                let tree = tree.ok_or_else(|| before.malformed("a tree beyond 48 bits"))?;
                LogRecord::TreeDropped { tree, at: reader.timestamp()? }
            }
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
    fn records_round_trip() {
        let (txn, birth, at) = (TxnId { client: 3, number: 4 }, Timestamp(2), Timestamp(5));
        let participants = Participants::encode(&[ServerId(1)]);
        let participants = Participants::decode(&participants).unwrap();
        let staged = Some(Staged { number: 9, parts: 2 });
        let operations = Operations::NONE;
        let decision = Decision::Commit(at);
        for record in [
            LogRecord::Commit { txn, birth, at, staged: None, operations },
            LogRecord::Commit { txn, birth: at, at, staged, operations },
            LogRecord::Prepare { txn, birth, waits: true, at, participants, staged, operations },
            LogRecord::Stage { name: txn, part: 1, operations: Operations::NONE },
            LogRecord::Unstage { name: txn },
            LogRecord::Decide { txn, birth, participants, decision },
            LogRecord::Decide { txn, birth, participants, decision: Decision::Abort },
            LogRecord::Refuse { txn, birth, participants },
            LogRecord::GiveUp { txn, birth },
            LogRecord::Settled {
                client: 3,
                report: SettledReport { number: 9, birth, exceptions: vec![4, 7] },
            },
            LogRecord::Horizon(at),
            LogRecord::Group { epoch: GroupEpoch { era: 3, index: u64::MAX } },
            LogRecord::Forget { txn },
            LogRecord::Ceiling(at),
            LogRecord::Counter { node: NodeId::default(), next: 700 },
            LogRecord::LowWater { low: at, next: Timestamp(9) },
            LogRecord::Synced(false),
            LogRecord::DropValue { value: NodeId::default(), nodes: 2, since: at },
            LogRecord::ValueDropped { value: NodeId::default() },
            LogRecord::ValueOrphaned { value: NodeId::default(), nodes: 2_048, since: at },
            LogRecord::Node { node: NodeId::default(), items: NodeItems::written(&[]) },
            LogRecord::Departed { txn, until: at, operations: Operations::NONE },
            LogRecord::TreeDropped { tree: TreeId::default(), at },
        ] {
            let mut bytes = Vec::new();
            record.write(&mut bytes);
            assert_eq!(LogRecord::decode(&bytes), Ok(record));
            for length in 0..bytes.len() {
                assert!(LogRecord::decode(&bytes[..length]).is_err());
            }
        }
    }

    /// The records of version 2, byte for byte.
    #[test]
    fn records_of_earlier_versions_are_decoded() {
        let (txn, at) = (TxnId { client: 3, number: 4 }, Timestamp(5));
        let participants = Participants::encode(&[ServerId(1)]);
        let head = |tag: u8, at: Option<Timestamp>| {
            let mut bytes = Vec::new();
            ByteWriter(&mut bytes).byte(tag).txn(txn);
            if let Some(at) = at {
                ByteWriter(&mut bytes).timestamp(at);
            }
            bytes
        };
        let decoded = |bytes: &[u8], record: LogRecord<'_>| assert_eq!(LogRecord::decode(bytes), Ok(record));
        let (staged, operations) = (None, Operations::NONE);
        let none = Participants::NONE;
        let mut bytes = head(1, Some(at));
        ByteWriter(&mut bytes).number(0).bytes(&[]);
        decoded(&bytes, LogRecord::Commit { txn, birth: at, at, staged, operations });
        let mut bytes = head(2, Some(at));
        ByteWriter(&mut bytes).bytes(&participants).number(0).bytes(&[]);
        let participants = Participants::decode(&participants).unwrap();
        let (birth, waits) = (at, false);
        decoded(&bytes, LogRecord::Prepare { txn, birth, waits, at, participants, staged, operations });
        let decision = Decision::Commit(at);
        let record = LogRecord::Decide { txn, birth, participants: none, decision };
        decoded(&head(3, Some(at)), record);
        let (birth, decision) = (Timestamp::ZERO, Decision::Abort);
        decoded(&head(4, None), LogRecord::Decide { txn, birth, participants: none, decision });
    }
}
