//! Outcome of buffered writes.

use crate::outcome::Outcome;

/// A flush: buffered writes, acknowledged earlier and now sent together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flush {
    /// Its outcome: OK if all writes were done, otherwise the first failure.
    pub outcome: Outcome,
    /// Its duration, ns.
    pub took_ns: u64,
    /// Time since its end, ns, when the client reports it.
    pub ago_ns: u64,
    /// Number of writes sent.
    pub writes: u64,
    /// Number of these that failed; an upper bound if the store does not report
    /// single writes.
    pub lost: u64,
}
