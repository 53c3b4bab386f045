//! Why there is no group.

use serval_coordination::coordinator::LeadError;
use std::time::Duration;

/// Why there is no group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// It cannot be led.
    #[error(transparent)]
    Lead(#[from] LeadError),
    /// Not all came.
    #[error(
        "only {joined} of {wanted} clients came within {within:?} (coordination.wait): start more with \
         'serval agent --join {cluster}'"
    )]
    TooFew {
        /// How many did.
        joined: usize,
        /// How many were wanted.
        wanted: usize,
        /// How long they were waited for.
        within: Duration,
        /// ZooKeeper's address.
        cluster: String,
    },
    /// It broke up.
    #[error("{0}")]
    Broken(String),
    /// It was interrupted.
    #[error("interrupted before all clients had come")]
    Interrupted,
}
