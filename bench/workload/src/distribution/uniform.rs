//! Uniform: each number of a range has probability 1/N.
//!
//! Without bias, where YCSB's `UniformLongGenerator` takes an absolute value
//! modulo N: the difference is below N/2^63 and cannot be measured.
//! Example: the range 5 to 14 gives each of its ten numbers a tenth of the
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
    /// Over `min` to `max`, both included.
    pub fn new(min: u64, max: u64) -> Result<Self, DistributionError> {
        Ok(Uniform { min, items: items(min, max)? })
    }

    /// A number. O(1).
    #[inline]
    pub fn draw<R: Random + ?Sized>(&self, rng: &mut R) -> u64 {
        self.min + rng.below(self.items)
    }

    /// The smallest number.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        self.min as f64 + (self.items - 1) as f64 / 2.0
    }
}
