//! YCSB's `SkewedLatestGenerator`: the newest keys are the most popular.
//!
//! Law: key = newest - x, x [`Zipfian`] over `newest` items
//! from 0. Example: newest = 1000 and x = 22 give key 978.
//!
//! Three properties of YCSB's generator limit the law. Key 0 is never drawn if
//! there are others (there are newest + 1 keys, but newest items). Eta remains
//! that of the initial number of items, so the law does not hold if the keys
//! grow manifold in a run. And the items are only nearly Zipfian. A run that
//! starts with 1,000 keys and ends with 1,000,000 no longer favours the
//! latest: start with a loaded store.
//!
//! One difference: with 2 or 3 initial keys and some inserts, YCSB draws keys
//! at or below 0, which do not exist; here key 1 is drawn.

use super::{error::DistributionError, zipfian::Zipfian};
use crate::random::Random;

/// The latest distribution. Each client has one, which follows the newest key: a new key costs a few nanoseconds, a
/// jump some microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct SkewedLatest {
    zipfian: Zipfian,
}

impl SkewedLatest {
    /// Number of items that YCSB's constructors draw and discard: one of its zipfian, one of its own.
    pub const CONSTRUCTOR_DRAWS: u32 = 2;

    /// Makes a distribution whose last acknowledged key is `newest`, with exponent `theta` in [0, 1). Takes at most
    /// some milliseconds.
    pub fn new(newest: u64, theta: f64) -> Result<Self, DistributionError> {
        Ok(SkewedLatest { zipfian: Zipfian::of(newest, theta)? })
    }

    /// Draws a key of at most `newest`, the last acknowledged key. O(1), and O(growth) up to 2^16 keys.
    #[inline]
    pub fn draw<R: Random + ?Sized>(&mut self, rng: &mut R, newest: u64) -> u64 {
        // Saturates, because an item of a range that has shrunk to zero may exceed `newest`.
        newest.saturating_sub(self.zipfian.next_of(rng, newest))
    }
}
