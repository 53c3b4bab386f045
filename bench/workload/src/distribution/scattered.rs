//! Zipf's law over keys, with the popular keys scattered over the range.
//!
//! Law: a [rank](ExactZipf) k has probability 1/(k^s zeta(N, s)); its key is
//! `min` + [`Bijection`](k - 1). Every key has exactly one rank, so the law
//! holds over the keys for any number of them: with N = 1000 and s = 0.99 the
//! hottest key gets 1/zeta(1000, 0.99) = 12.9 % of the draws.
//!
//! The range is fixed and includes the keys that a run inserts. A key keeps its
//! rank, so the relative popularity of keys does not change while others are
//! inserted.

use super::{
    bijection::Bijection,
    error::{DistributionError, items},
    exact::ExactZipf,
};
use crate::random::Random;

/// Zipf's law over a range of keys, scattered over the range.
#[derive(Debug, Clone, PartialEq)]
pub struct ScatteredZipf {
    min: u64,
    zipf: ExactZipf,
    bijection: Bijection,
}

impl ScatteredZipf {
    /// Returns the law over the keys `min` to `max`, inclusive, at most 2^52 of them,
    /// with an `exponent` above 0. Equal `seed`s have the same popular keys: clients
    /// of one store must share it. O(1).
    pub fn new(min: u64, max: u64, exponent: f64, seed: u64) -> Result<Self, DistributionError> {
        let items = items(min, max)?;
        Ok(ScatteredZipf {
            min,
            zipf: ExactZipf::new(items, exponent)?,
            bijection: Bijection::new(items, seed)?,
        })
    }

    /// Draws a key. Expected O(1).
    #[inline]
    pub fn draw<R: Random + ?Sized>(&self, rng: &mut R) -> u64 {
        self.min + self.bijection.apply(self.zipf.draw(rng))
    }

    /// Returns the key of a `rank`, from 0 for the most popular.
    pub fn key(&self, rank: u64) -> u64 {
        self.min + self.bijection.apply(rank)
    }

    /// Returns the rank of a `key` of the range.
    pub fn rank(&self, key: u64) -> u64 {
        self.bijection.invert(key - self.min)
    }

    /// Returns the distribution of the ranks.
    pub fn zipf(&self) -> &ExactZipf {
        &self.zipf
    }

    /// Returns the smallest key.
    pub fn min(&self) -> u64 {
        self.min
    }
}
