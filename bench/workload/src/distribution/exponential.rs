//! Exponential: popularity decreases exponentially with the distance from the newest key.
//!
//! Law: the distance from the newest key has the density
//! gamma e^(-gamma x), gamma = -ln(1 - percentile/100)/width, so that
//! `percentile` per cent of the draws lie within `width` of the newest key.
//! A draw is -ln(u)/gamma, rounded down. Example: percentile 95 and
//! 0.8571428571 of 1,000 records give gamma = 0.003495 and a mean distance of
//! 286 keys; u = 0.5 is a distance of 198.
//!
//! As in YCSB's `ExponentialGenerator`, which rounds to 32 bits; here 64.

use super::error::DistributionError;
use crate::random::Random;

/// The exponential distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Exponential {
    gamma: f64,
}

impl Exponential {
    /// Returns the distribution of which `percentile` per cent, above 0 and below 100, lie
    /// below `width`, which is above 0.
    pub fn new(percentile: f64, width: f64) -> Result<Self, DistributionError> {
        let gamma = -libm::log(1.0 - percentile / 100.0) / width;
        if !(percentile > 0.0 && percentile < 100.0) {
            return Err(DistributionError::Percentile(percentile));
        }
        // A width is also invalid if it makes the rate zero, infinite or subnormal.
        if !(width > 0.0 && gamma.is_normal()) {
            return Err(DistributionError::Width(width));
        }
        Ok(Exponential { gamma })
    }

    /// Draws a distance, 0 or above; infinite if the uniform draw is 0. O(1).
    #[inline]
    pub fn draw<R: Random + ?Sized>(&self, rng: &mut R) -> f64 {
        -libm::log(rng.next_f64()) / self.gamma
    }

    /// Returns the rate of the law.
    pub fn gamma(&self) -> f64 {
        self.gamma
    }

    /// Returns the mean distance.
    pub fn mean(&self) -> f64 {
        1.0 / self.gamma
    }
}
