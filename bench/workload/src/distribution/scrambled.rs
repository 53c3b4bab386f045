//! YCSB's `ScrambledZipfianGenerator`: popular keys scattered by a hash.
//!
//! Law: x is Zipfian over 10^10 + 1 items with exponent theta; the key is
//! `min + fnv64(x) mod (max - min + 1)`. Example: x = 0 has the hash
//! 6284781860667377211, so over the keys 0 to 999 the most popular is 211.
//!
//! This is not Zipf's law over the keys. The hottest of 10^10 items is drawn
//! 3.8 % of the time for any number of keys, where Zipf's law gives 12.9 % for
//! 1,000 keys. Hashes modulo the number of keys collide, so more than a third
//! of N keys gets none of the N most popular items. Serval has it because
//! published results use it; [`ScatteredZipf`](super::ScatteredZipf) is Zipf's
//! law.

use super::{
    error::{DistributionError, items},
    zipfian::Zipfian,
};
use crate::{hash::fnv64, random::Random};

/// YCSB's Zipfian request distribution.
///
/// YCSB's constructor discards one draw: see [`Zipfian::CONSTRUCTOR_DRAWS`].
#[derive(Debug, Clone, PartialEq)]
pub struct ScrambledZipfian {
    zipfian: Zipfian,
    min: u64,
    items: u64,
}

impl ScrambledZipfian {
    /// The largest item drawn before hashing; there are 10^10 + 1 items.
    pub const MAX_ITEM: u64 = 10_000_000_000;

    /// YCSB's value of zeta(10^10, 0.99). The module [`zeta`](mod@super::zeta) has its error.
    pub const ZETAN: f64 = 26.469_028_201_783_02;

    /// Returns the distribution over the keys `min` to `max`, inclusive. With the exponent
    /// [`Zipfian::THETA`] it equals YCSB's to the last bit. Other exponents in
    /// [0, 1) take no longer.
    pub fn new(min: u64, max: u64, theta: f64) -> Result<Self, DistributionError> {
        let items = items(min, max)?;
        let zipfian = if theta == Zipfian::THETA {
            Zipfian::with_zeta(0, Self::MAX_ITEM, theta, Self::ZETAN)?
        } else {
            Zipfian::new(0, Self::MAX_ITEM, theta)?
        };
        Ok(ScrambledZipfian { zipfian, min, items })
    }

    /// Draws a key. O(1).
    #[inline]
    pub fn draw<R: Random + ?Sized>(&mut self, rng: &mut R) -> u64 {
        self.min + fnv64(self.zipfian.next(rng)) % self.items
    }

    /// Returns the smallest key.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Returns the distribution of items before hashing.
    pub fn zipfian(&self) -> &Zipfian {
        &self.zipfian
    }
}
