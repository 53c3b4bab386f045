//! SearchCounts of search steps, by which tests judge the cache.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use yesquel_model::ShardedCounter;

/// Monotonic counters of searches.
#[derive(Debug, Default)]
pub struct SearchCounters {
    searches: ShardedCounter,
    root_fetches: AtomicU64,
    inner_fetches: AtomicU64,
    back_steps: AtomicU64,
    forward_steps: AtomicU64,
    passed: AtomicU64,
}

/// Values of [`SearchCounters`] at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SearchCounts {
    /// Searches for the leaf of a key.
    pub searches: u64,
    /// Roots fetched by searches.
    pub root_fetches: u64,
    /// Other inner nodes fetched by searches.
    pub inner_fetches: u64,
    /// Back steps: the node reached did not own the key.
    pub back_steps: u64,
    /// Forward steps: a node named the one that owns the key now.
    pub forward_steps: u64,
    /// Stored keys and cells that cursors skipped because their transaction has deleted them.
    pub passed: u64,
}

impl SearchCounters {
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

    /// Returns the present values.
    pub fn counts(&self) -> SearchCounts {
        let load = |count: &AtomicU64| count.load(Relaxed);
        SearchCounts {
            searches: self.searches.count(),
            root_fetches: load(&self.root_fetches),
            inner_fetches: load(&self.inner_fetches),
            back_steps: load(&self.back_steps),
            forward_steps: load(&self.forward_steps),
            passed: load(&self.passed),
        }
    }
}
