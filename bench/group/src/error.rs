//! Errors of groups.

use serval_coordination::coordinator::LeadError;
use std::time::Duration;

/// Error of forming or using a group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The coordinator cannot lead the group.
    #[error(transparent)]
    Lead(#[from] LeadError),
    /// Some clients did not join.
    #[error(
        "only {joined} of {wanted} clients joined within {within:?} (coordination.wait): start more with \
         'serval agent --join {cluster}'"
    )]
    TooFew {
        /// Number of clients that joined.
        joined: usize,
        /// Number of clients wanted.
        wanted: usize,
        /// Time waited for them.
        within: Duration,
        /// ZooKeeper's address.
        cluster: String,
    },
    /// The group broke up.
    #[error("{0}")]
    Broken(String),
    /// The user interrupted it.
    #[error("interrupted before all clients had joined")]
    Interrupted,
}
