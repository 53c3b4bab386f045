//! Refusals of a server, and conflicts between transactions.

use crate::{NodeId, Timestamp, TooFarAhead, TxnId};
use thiserror::Error;

/// A change by another transaction that this one did not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Conflict {
    /// A cell was written.
    #[error("a key in node {node} was written after the transaction began")]
    Cell {
        /// The node.
        node: NodeId,
    },
    /// A range was deleted.
    #[error("keys in node {node} were deleted after the transaction began")]
    Range {
        /// The node.
        node: NodeId,
    },
    /// The other transaction guards a key that this one would change.
    #[error("another transaction guards a key in node {node} that this one would change")]
    Guard {
        /// The node.
        node: NodeId,
    },
    /// An attribute was set, or the node was created or dropped.
    #[error("node {node} was changed after the transaction began")]
    Node {
        /// The node.
        node: NodeId,
    },
    /// The other transaction has prepared a conflicting operation and is undecided.
    #[error("transaction {by} is about to change node {node}")]
    Prepared {
        /// The node.
        node: NodeId,
        /// The other transaction.
        by: TxnId,
    },
}

/// Why a server refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Another transaction committed first: roll back and begin again.
    #[error("{0}: begin again")]
    Conflict(#[from] Conflict),
    /// The node does not hold the key (any more), or does not exist: ask its parent for the node
    /// that does.
    #[error("node {0} does not hold the key")]
    Moved(NodeId),
    /// The versions that the snapshot needs have been collected.
    #[error("the snapshot {snapshot} is older than {oldest}, the oldest that is kept: begin again")]
    SnapshotTooOld {
        /// The requested snapshot.
        snapshot: Timestamp,
        /// Oldest readable snapshot.
        oldest: Timestamp,
    },
    /// The clock of the client, or of a server that it has called, is too far ahead.
    #[error(transparent)]
    TooFarAhead(#[from] TooFarAhead),
    /// Recovery asked for the vote before the transaction had voted here, which aborts it.
    #[error("transaction {0} was aborted by recovery: begin again")]
    GivenUp(TxnId),
    /// A decision to commit for a transaction that has neither voted nor ended here: it would be
    /// half a transaction.
    #[error("transaction {0} is to commit, but was not prepared")]
    NotPrepared(TxnId),
    /// The memory budget is spent. Deletes and reads go on.
    #[error(
        "the server's memory budget is spent: delete something and try again in a few seconds, or give it more (--memory)"
    )]
    OutOfMemory,
    /// Another client holds a lease on the keys.
    #[error("another client holds a write lease there for at most {ms} ms more: wait, and begin again")]
    Leased {
        /// Milliseconds until the lease ends, unless it is released or renewed.
        ms: u64,
    },
    /// The server holds the maximum number of leases.
    #[error("the server holds the maximum number of leases: release some")]
    TooManyLeases,
    /// The server's disk has failed: it serves reads of durable data and takes no writes.
    #[error("the server's disk has failed: it takes no writes until it is restarted")]
    DiskFailed,
    /// The server's disk is full: it serves reads of durable data, and takes writes when there is
    /// space again. Nothing was changed.
    #[error("the server's disk is full: it takes no writes until there is space")]
    DiskFull,
    /// The disk failed while the records that the reply depends on were being written: they may or
    /// may not be durable.
    #[error("the server's disk failed or filled up while it was written")]
    DiskLost,
    /// The clock of the server's machine differs from those of the other servers.
    #[error(
        "the server serves nothing: its clock is {} ms {} the other servers' clocks; set it",
        ahead_ms.unsigned_abs(),
        if *ahead_ms < 0 { "behind" } else { "ahead of" }
    )]
    ClockDiffers {
        /// How far it is ahead, in milliseconds; negative: behind.
        ahead_ms: i64,
    },
    /// The key exists, but the operation expects it to be absent.
    #[error("the key exists already, in node {0}")]
    Exists(NodeId),
    /// The key is absent, but the operation expects it to exist.
    #[error("there is no such key in node {0}")]
    Missing(NodeId),
    /// The node is full, and its server leaves splits to clients (for research).
    #[error("node {0} is full, and its server leaves splits to its clients")]
    Full(NodeId),
    /// The request does not fit the node, such as a lookup of a value in an inner node.
    #[error("the request does not fit node {0}")]
    Unfit(NodeId),
}
