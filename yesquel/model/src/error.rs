//! What a server may refuse.

use crate::{NodeId, Timestamp, TooFarAhead, TxnId};
use thiserror::Error;

/// What another transaction did that this one did not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Conflict {
    /// It wrote a cell.
    #[error("a key in node {node} was written after the transaction began")]
    Cell {
        /// Where.
        node: NodeId,
    },
    /// It deleted a range.
    #[error("keys in node {node} were deleted after the transaction began")]
    Range {
        /// Where.
        node: NodeId,
    },
    /// It relies on what this one would change.
    #[error("another transaction relies on a key in node {node} that this one would change")]
    Guard {
        /// Where.
        node: NodeId,
    },
    /// It set an attribute, or made or dropped the node.
    #[error("node {node} was changed after the transaction began")]
    Node {
        /// Which.
        node: NodeId,
    },
    /// It has prepared such an operation and is not decided.
    #[error("transaction {by} is about to change node {node}")]
    Prepared {
        /// Where.
        node: NodeId,
        /// Whose.
        by: TxnId,
    },
}

/// Why a server does not do what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Another transaction was first: roll back and begin again.
    #[error("{0}: begin again")]
    Conflict(#[from] Conflict),
    /// The key is not, or not any more, the node's, or the node is not there:
    /// ask its parent for the one whose it is.
    #[error("node {0} does not hold the key")]
    Moved(NodeId),
    /// What the snapshot saw is gone.
    #[error("the snapshot {snapshot} is older than {oldest}, the oldest that is kept: begin again")]
    SnapshotTooOld {
        /// What was asked for.
        snapshot: Timestamp,
        /// What may be asked for.
        oldest: Timestamp,
    },
    /// The client's clock, or one that it has spoken to, is ahead.
    #[error(transparent)]
    TooFarAhead(#[from] TooFarAhead),
    /// Somebody asked how the transaction ended before it had voted here, so
    /// it has ended: no.
    #[error("transaction {0} was given up by recovery: begin again")]
    GivenUp(TxnId),
    /// Memory is spent; deletes are taken, and reads go on.
    #[error(
        "the server's memory budget is spent: delete something and try again in a few seconds, or give it more (--memory)"
    )]
    OutOfMemory,
    /// Another one holds a lease.
    #[error("somebody else writes there alone, for {ms} ms more at most: wait, and begin again")]
    Leased {
        /// For how long it lasts, unless it is released or taken again.
        ms: u64,
    },
    /// There are as many leases as a server keeps.
    #[error("the server keeps no more leases: release some")]
    TooManyLeases,
    /// The server's disk has failed: it answers what is on it, and takes
    /// nothing new.
    #[error("the server's disk has failed or is full: it takes no writes until it is started anew")]
    DiskFailed,
    /// The disk failed while what this would tell of was on its way there:
    /// nobody knows whether it is on it.
    #[error("the server's disk has failed or is full while it was written")]
    DiskLost,
    /// The key that was to be absent is there.
    #[error("the key is there already, in node {0}")]
    Exists(NodeId),
    /// The key that was to be there is not.
    #[error("there is no such key in node {0}")]
    Missing(NodeId),
    /// The node is too large, and whoever would write into it is to split it: a
    /// server that does not split its nodes itself says so (research).
    #[error("node {0} is full, and its server leaves splits to its clients")]
    Full(NodeId),
    /// A question that makes no sense of a node, such as for a value in an
    /// inner one.
    #[error("the request does not fit node {0}")]
    Unfit(NodeId),
}
