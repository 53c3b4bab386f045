//! What searches have cost: the tests of what caching is worth.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use yesquel_model::ShardedCounter;

/// Counts that only grow.
#[derive(Debug, Default)]
pub struct Counters {
    searches: ShardedCounter,
    root_fetches: AtomicU64,
    inner_fetches: AtomicU64,
    back_steps: AtomicU64,
    forward_steps: AtomicU64,
    passed: AtomicU64,
}

/// The counts of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Searches for the leaf of a key.
    pub searches: u64,
    /// Times that a root was fetched for one.
    pub root_fetches: u64,
    /// Times that another inner node was.
    pub inner_fetches: u64,
    /// Steps back after a node that was not the key's.
    pub back_steps: u64,
    /// Steps to a node that another one has named.
    pub forward_steps: u64,
    /// Keys and cells that cursors came by and that are not there for their
    /// transaction, which has deleted them.
    pub passed: u64,
}

impl Counters {
    pub(crate) fn searched(&self) {
        self.searches.add();
    }

    pub(crate) fn fetched(&self, is_root: bool) {
        let count = if is_root { &self.root_fetches } else { &self.inner_fetches };
        count.fetch_add(1, Relaxed);
    }

    pub(crate) fn stepped_back(&self) {
        self.back_steps.fetch_add(1, Relaxed);
    }

    pub(crate) fn followed(&self) {
        self.forward_steps.fetch_add(1, Relaxed);
    }

    pub(crate) fn passed(&self, keys: usize) {
        if keys > 0 {
            self.passed.fetch_add(keys as u64, Relaxed);
        }
    }

    /// What they are now.
    pub fn counts(&self) -> Counts {
        let load = |count: &AtomicU64| count.load(Relaxed);
        Counts {
            searches: self.searches.count(),
            root_fetches: load(&self.root_fetches),
            inner_fetches: load(&self.inner_fetches),
            back_steps: load(&self.back_steps),
            forward_steps: load(&self.forward_steps),
            passed: load(&self.passed),
        }
    }
}
