//! Uniform: each number of a range has probability 1/N.
//!
//! Draws are unbiased. YCSB's `UniformLongGenerator` takes an absolute value
//! modulo N: the difference is below N/2^63 and cannot be measured.
//! Example: in the range 5 to 14 each of the ten numbers gets a tenth of the
//! draws.

use super::error::{DistributionError, items};
use crate::random::Random;

/// The uniform distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uniform {
    min: u64,
    items: u64,
}

impl Uniform {
    /// Returns the distribution over `min` to `max`, inclusive.
    pub fn new(min: u64, max: u64) -> Result<Self, DistributionError> {
        Ok(Uniform { min, items: items(min, max)? })
    }

    /// Draws a number. O(1).
    #[inline]
    pub fn draw<R: Random + ?Sized>(&self, rng: &mut R) -> u64 {
        self.min + rng.below(self.items)
    }

    /// Returns the smallest number.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Returns the mean.
    pub fn mean(&self) -> f64 {
        self.min as f64 + (self.items - 1) as f64 / 2.0
    }
}
