//! What became of writes that a client's buffer held.

use crate::outcome::Outcome;

/// Writes that were acknowledged when they came into a buffer, sent together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flush {
    /// How that ended: OK if all of them were done, or else the first failure.
    pub outcome: Outcome,
    /// How long it took, ns.
    pub took_ns: u64,
    /// How long ago it ended, ns, when it is told of.
    pub ago_ns: u64,
    /// Writes that were sent.
    pub writes: u64,
    /// Of these, how many were not done, or at most so many where the store does
    /// not say which.
    pub lost: u64,
}
