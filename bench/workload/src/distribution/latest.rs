//! YCSB's `SkewedLatestGenerator`: the newest keys are the most popular.
//!
//! Law: key = newest - x, x [`Zipfian`] over `newest` items
//! from 0. Example: newest = 1000 and x = 22 give key 978.
//!
//! Three properties are YCSB's and limit the law: key 0 is never
//! drawn while there are others (there are newest + 1 keys, but newest items);
//! eta stays that of the first number of items, so that the law is lost when
//! the keys grow manifold in a run; and the items are nearly, not exactly,
//! Zipfian. A run that begins with 1,000 keys and ends with 1,000,000 no
//! longer favours the latest: begin with a loaded store.
//!
//! One thing differs: with 2 or 3 keys to begin with and some inserted, YCSB
//! draws keys at or below 0, which do not exist; here it is key 1.

use super::{error::DistributionError, zipfian::Zipfian};
use crate::random::Random;

/// The latest distribution. One a client: it follows the newest key on its
/// own, at a few nanoseconds a new key and some microseconds for a jump.
#[derive(Debug, Clone, PartialEq)]
pub struct SkewedLatest {
    zipfian: Zipfian,
}

impl SkewedLatest {
    /// Items that YCSB's constructor draws and discards: its zipfian's one,
    /// and one of its own.
    pub const CONSTRUCTOR_DRAWS: u32 = 2;

    /// While `newest` is the last acknowledged key, with exponent `theta` in
    /// [0, 1). At most some milliseconds, for any `newest`.
    pub fn new(newest: u64, theta: f64) -> Result<Self, DistributionError> {
        Ok(SkewedLatest { zipfian: Zipfian::of(newest, theta)? })
    }

    /// A key, at most `newest`, the last acknowledged key at this moment.
    /// O(1), and O(growth) up to 2^16 keys.
    #[inline]
    pub fn draw<R: Random + ?Sized>(&mut self, rng: &mut R, newest: u64) -> u64 {
        // The second item of a range of none, when it shrank, is the reason
        // why the subtraction saturates.
        newest.saturating_sub(self.zipfian.next_of(rng, newest))
    }
}
