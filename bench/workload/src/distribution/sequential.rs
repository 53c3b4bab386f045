//! Sequential: each key of a range in turn, repeatedly.
//!
//! Law: draw number i of all clients together, from 0, is `min` + i mod N, as in
//! YCSB's `SequentialGenerator`. Example: the range 3 to 5 gives 3, 4, 5, 3.

use super::error::{DistributionError, items};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A sequence that clones share: the clients of a run share one.
#[derive(Debug, Clone)]
pub struct Sequential {
    min: u64,
    items: u64,
    next: Arc<AtomicU64>,
}

impl Sequential {
    /// Returns the sequence over `min` to `max`, inclusive.
    pub fn new(min: u64, max: u64) -> Result<Self, DistributionError> {
        Ok(Sequential { min, items: items(min, max)?, next: Arc::default() })
    }

    /// Returns the next key. O(1). This is the only distribution whose clients write
    /// shared memory.
    #[inline]
    pub fn draw(&self) -> u64 {
        // Relaxed: only the count is shared, without an order relative to other data.
        self.min + self.next.fetch_add(1, Relaxed) % self.items
    }

    /// Returns the smallest key.
    pub fn min(&self) -> u64 {
        self.min
    }
}
