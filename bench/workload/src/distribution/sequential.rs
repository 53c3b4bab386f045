//! Sequential: each key of a range in turn, and again from the start.
//!
//! Law: draw number i of all clients together, from 0, is `min` + i mod N, as
//! YCSB's `SequentialGenerator`. Example: the range 3 to 5 gives 3, 4, 5, 3.

use super::error::{DistributionError, items};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A sequence that clones share: the clients of a run draw from one.
#[derive(Debug, Clone)]
pub struct Sequential {
    min: u64,
    items: u64,
    next: Arc<AtomicU64>,
}

impl Sequential {
    /// Over `min` to `max`, both included.
    pub fn new(min: u64, max: u64) -> Result<Self, DistributionError> {
        Ok(Sequential { min, items: items(min, max)?, next: Arc::default() })
    }

    /// The next key. O(1); the one distribution whose clients write to memory
    /// they share.
    #[inline]
    pub fn draw(&self) -> u64 {
        // Only the count is shared, so no order is needed with anything else.
        self.min + self.next.fetch_add(1, Relaxed) % self.items
    }

    /// The smallest key.
    pub fn min(&self) -> u64 {
        self.min
    }
}
