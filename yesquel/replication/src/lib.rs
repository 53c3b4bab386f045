//! One replica of a group: the `raft` crate without its clock, its random numbers and its bytes.
//!
//! A [`Replica`] is a state machine without I/O. Its owner gives it [ticks](Replica::tick),
//! [messages](Replica::receive), [proposals](Replica::propose) and
//! [finished writes](Replica::written), and carries out the [`ReadyWork`] that it returns: what to
//! write, what to send before and after the write, which entries are committed.
//!
//! * Messages and entries have [bytes of their own](message), and every message is
//!   [checked](check) before the crate sees it: the crate ends the process on many inputs.
//! * Elections start at times that follow from a seed; the crate's own timeouts never fire.
//! * A replica that has lost acknowledged entries does not vote until a leader
//!   readmits it.
//!
//! `docs/yesquel/cluster/replication.md` has the design and the measurements.

pub mod check;
mod membership;
pub mod message;
mod readmit;
mod reads;
mod recovery;
mod replica;
mod replica_log;
mod work;

pub use membership::{Membership, MembershipChange};
pub use recovery::{CheckpointHead, RecoveredLog};
pub use replica::{ProposeError, ReceiveError, Replica, ReplicaOptions, ReplicaRole, ReplicaStatus};
pub use replica_log::ReplicaLog;
pub use work::{CommittedEntry, EntryId, OutgoingMessage, ReadyWork};

use thiserror::Error;

/// The log of a replica contradicts itself.
#[derive(Debug, Error)]
pub enum ReplicationError {
    /// Bytes of a record or a checkpoint are malformed.
    #[error(transparent)]
    Malformed(#[from] yesquel_wire::Malformed),
    /// Indexes or terms do not continue what precedes them.
    #[error("the log of replica {replica} is inconsistent: {what}")]
    Inconsistent {
        /// The replica.
        replica: u64,
        /// The fault.
        what: &'static str,
    },
    /// The crate refuses the recovered state.
    #[error("replica {replica} cannot start: {error}")]
    Start {
        /// The replica.
        replica: u64,
        /// The crate's reason.
        error: raft::Error,
    },
}
