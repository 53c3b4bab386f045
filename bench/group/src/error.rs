//! Errors of groups.

use serval_coordination::coordinator::LeadError;
use std::time::Duration;

/// Reason why there is no group, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// This process cannot lead the group.
    #[error(transparent)]
    Lead(#[from] LeadError),
    /// Not all clients joined in time.
    #[error(
        "only {joined} of {wanted} clients joined within {within:?} (coordination.wait): start more with \
         'serval agent --join {cluster}'"
    )]
    TooFew {
        /// Number of clients that joined.
        joined: usize,
        /// Number of clients of the group.
        wanted: usize,
        /// Time limit for joining.
        within: Duration,
        /// ZooKeeper's address.
        cluster: String,
    },
    /// The group broke up.
    #[error("{0}")]
    Broken(String),
    /// The user interrupted the gathering of the group.
    #[error("interrupted before all clients had joined")]
    Interrupted,
}
