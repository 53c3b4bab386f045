//! What a client has sent: the tests of what round trips cost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts that only grow.
#[derive(Debug, Default)]
pub struct Counters {
    requests: AtomicU64,
}

/// The counts of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests that were sent.
    pub requests: u64,
}

impl Counters {
    pub(crate) fn sent(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// What they are now.
    pub fn counts(&self) -> Counts {
        Counts { requests: self.requests.load(Relaxed) }
    }
}
