//! What a replica asks its owner to do.

use crate::membership::Membership;

/// An entry, by its term and index. A reply waits for this, not for an index alone: after a cut the
/// index is given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Term of the leader that made the entry.
    pub term: u64,
    /// Index in the group's log.
    pub index: u64,
}

/// A message to another replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// The receiver.
    pub to: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// An entry that no leader can cut any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedEntry {
    /// Its term and index.
    pub id: EntryId,
    /// What was proposed; empty for the group's own entries.
    pub data: Vec<u8>,
}

/// The work that results from ticks, messages and proposals, in the order in which its owner does it.
#[derive(Debug, Default)]
pub struct ReadyWork {
    /// Number for [`Replica::written`](crate::Replica::written).
    pub number: u64,
    /// Whether this replica has lost the lead: replies that wait are answered so, before the rest.
    pub is_deposed: bool,
    /// Reads that cannot be answered here any more.
    pub failed_reads: Vec<u64>,
    /// Messages that do not wait for the write.
    pub messages: Vec<OutgoingMessage>,
    /// A checkpoint of the leader, which replaces log and state: its head and its data. It is
    /// durable before the record is written.
    pub restored: Option<(Vec<u8>, Vec<u8>)>,
    /// The first index that the record cuts. Entries from there on were never committed.
    pub cut: Option<u64>,
    /// The record to append to the log; empty: none.
    pub record: Vec<u8>,
    /// Indexes of the record's entries.
    pub entries: Option<(u64, u64)>,
    /// Whether the record holds a term or a vote, which is synced under every durability.
    pub holds_vote: bool,
    /// Messages that wait until this and all earlier records are written.
    pub messages_after: Vec<OutgoingMessage>,
    /// Entries committed, in order.
    pub committed: Vec<CommittedEntry>,
    /// The membership that the last of them made, with its index.
    pub membership: Option<(u64, Membership)>,
    /// Reads that the state after this may answer, each with an index that it must have.
    pub reads: Vec<(u64, u64)>,
    /// Whether a leader has readmitted this replica: it is recorded durably, and holds for later
    /// starts of this machine until it loses power.
    pub is_readmitted: bool,
}
