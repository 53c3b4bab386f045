//! What a server tells of itself. It travels as JSON, so that versions may
//! differ: what one does not know is left out, what the other does not say is
//! zero.

use serde::{Deserialize, Serialize};

/// A server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Its number.
    pub server: u16,
    /// Its release.
    pub version: String,
    /// Milliseconds since it was started.
    pub uptime_ms: u64,
    /// The highest timestamp that it has given or seen.
    pub clock: u64,
    /// When what was written is on disk: `sync`, `interval MS`, `none`, or
    /// `memory`.
    pub durability: String,
    /// Memory.
    pub memory: MemoryStatus,
    /// The log.
    pub log: LogStatus,
    /// Transactions.
    pub transactions: TransactionStatus,
    /// Snapshots.
    pub snapshots: SnapshotStatus,
    /// Connections by sockets.
    pub connections: ConnectionStatus,
    /// What was asked since the start.
    pub requests: RequestStatus,
    /// Its trees, by number.
    pub trees: Vec<TreeStatus>,
    /// Nodes by cells: each with the most cells that are counted in it.
    pub nodes_by_cells: Vec<Bucket>,
    /// Nodes by accesses in the last second, likewise.
    pub nodes_by_load: Vec<Bucket>,
    /// The nodes with the most accesses in the last second, the first the
    /// most.
    pub busiest: Vec<NodeStatus>,
}

/// Memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryStatus {
    /// Bytes that nodes take, and what is under way.
    pub bytes: u64,
    /// The most that they may; none: no limit.
    pub bytes_max: Option<u64>,
    /// Of the bytes, those of nodes that only a checkpoint has.
    pub copies: u64,
    /// Requests that were refused for want of it.
    pub refused: u64,
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogStatus {
    /// Records since the beginning of the data folder.
    pub lsn: u64,
    /// Of them, those that are on disk.
    pub synced_lsn: u64,
    /// Bytes of its files, zeros that were written ahead among them.
    pub bytes: u64,
    /// The last checkpoint, if there is one.
    pub checkpoint: Option<CheckpointStatus>,
    /// Why it takes no more, if so.
    pub failed: Option<String>,
}

/// A checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckpointStatus {
    /// The last record of the log that is in it.
    pub lsn: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Milliseconds since it was finished.
    pub age_ms: u64,
}

/// Transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TransactionStatus {
    /// Those that have voted yes and are not decided.
    pub undecided: u64,
    /// Requests that wait for one.
    pub waiting: u64,
    /// Clients whose commits are remembered.
    pub clients: u64,
    /// Leases that are held.
    pub leases: u64,
}

/// Snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotStatus {
    /// The oldest that may be read, as a timestamp.
    pub oldest: u64,
    /// How old it is.
    pub oldest_age_ms: u64,
    /// Connections that hold one.
    pub holders: u64,
    /// Those that were held and let go of for want of memory.
    pub cancelled: u64,
}

/// Connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionStatus {
    /// Open now.
    pub open: u64,
    /// Taken since the start.
    pub accepted: u64,
    /// Not served, or closed for what they did.
    pub refused: u64,
    /// Times that one was read no further, for it had not taken its replies.
    pub paused: u64,
    /// The most bytes of replies that ever waited for one.
    pub queued_most: u64,
    /// Bytes of messages that have come in part.
    pub unfinished: u64,
}

/// What was asked since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestStatus {
    /// Requests that read.
    pub reads: u64,
    /// What they asked.
    pub questions: u64,
    /// Transactions of this server alone that were committed.
    pub commits: u64,
    /// Votes for yes.
    pub prepares: u64,
    /// Refusals because another transaction was first.
    pub conflicts: u64,
    /// Refusals because a key had moved.
    pub moved: u64,
    /// Times that a request waited for the end of a transaction that had voted.
    pub waits: u64,
}

/// A tree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeStatus {
    /// Its number.
    pub tree: u64,
    /// Its leaves here.
    pub leaves: u64,
    /// Its inner nodes here.
    pub inner: u64,
    /// Its nodes of long values here.
    pub values: u64,
    /// Cells of its leaves.
    pub cells: u64,
    /// Bytes of their keys and values, long ones too.
    pub bytes: u64,
    /// Bytes of memory of all its nodes.
    pub memory: u64,
    /// Accesses in the last second.
    pub load: u64,
}

/// How many there are of some size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bucket {
    /// The largest that is counted here.
    pub up_to: u64,
    /// How many.
    pub count: u64,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Its id.
    pub node: String,
    /// Its id as a number, in hexadecimal.
    pub id: String,
    /// Whether it is a leaf.
    pub leaf: bool,
    /// The least key that is its, in hexadecimal.
    pub low: String,
    /// The least key that is beyond it; none: it has no end.
    pub high: Option<String>,
    /// Cells that are not deleted.
    pub cells: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Accesses in the last second.
    pub load: u64,
    /// Of an inner node, its children, by [`id`](Self::id).
    pub children: Vec<String>,
}

/// The nodes of a tree at one server, or some of them: those that one answer
/// tells of are of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeNodes {
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// Whether there are more than are told: those after the last one's
    /// [`id`](NodeStatus::id).
    pub more: bool,
}
