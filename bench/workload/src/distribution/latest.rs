//! YCSB's `SkewedLatestGenerator`: the newest keys are the most popular.
//!
//! Law: key = newest - x, x [`Zipfian`] over `newest` items
//! from 0. Example: newest = 1000 and x = 22 give key 978.
//!
//! Three properties are YCSB's, for compatibility. Key 0 is never drawn if
//! there are others: there are newest + 1 keys, but newest items. Eta stays
//! that of the first number of items, so the law no longer holds when the keys
//! grow manifold in a run. Items are nearly, not exactly, Zipfian. A run that
//! starts with 1,000 keys and ends with 1,000,000 no longer favours the latest
//! keys: start with a loaded store.
//!
//! One property differs: with 2 or 3 keys at the start and some inserted, YCSB
//! draws keys at or below 0, which do not exist. This generator draws key 1.

use super::{error::DistributionError, zipfian::Zipfian};
use crate::random::Random;

/// The latest distribution. Each client has its own, which follows the newest key
/// at a cost of a few nanoseconds per new key and some microseconds for a jump.
#[derive(Debug, Clone, PartialEq)]
pub struct SkewedLatest {
    zipfian: Zipfian,
}

impl SkewedLatest {
    /// Number of items that YCSB's constructor draws and discards: one in its Zipfian
    /// generator, and one of its own.
    pub const CONSTRUCTOR_DRAWS: u32 = 2;

    /// Returns the distribution for `newest` as the last acknowledged key, with an exponent
    /// `theta` in [0, 1). Takes at most some milliseconds, for any `newest`.
    pub fn new(newest: u64, theta: f64) -> Result<Self, DistributionError> {
        Ok(SkewedLatest { zipfian: Zipfian::of(newest, theta)? })
    }

    /// Draws a key, at most `newest`, the last acknowledged key at this moment.
    /// O(1), and O(growth) up to 2^16 keys.
    #[inline]
    pub fn draw<R: Random + ?Sized>(&mut self, rng: &mut R, newest: u64) -> u64 {
        // The subtraction saturates because an empty range after a shrink still
        // yields its second item.
        newest.saturating_sub(self.zipfian.next_of(rng, newest))
    }
}
