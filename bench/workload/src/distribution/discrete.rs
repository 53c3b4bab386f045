//! A choice among a few alternatives by weight, such as the next operation.
//!
//! Law: alternative i has probability w(i)/sum of w. A uniform draw u walks
//! along the weights: while u >= w(i)/sum, that share is subtracted and the walk
//! continues with the next alternative, as in YCSB's `DiscreteGenerator`.
//! Example: weights 95 and 5 are 0.95 and 0.05; u = 0.97 leaves 0.02, which is
//! below 0.05: alternative 1.
//!
//! Rounding may carry u past the last alternative, which stops YCSB with
//! "oops. should not get here.". This generator then chooses the last
//! alternative with a positive weight.

use super::error::DistributionError;
use crate::random::Random;
use std::sync::Arc;

/// A weighted choice. Clones share the weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Discrete {
    /// Normalized shares, up to the last one above 0.
    shares: Arc<[f64]>,
}

impl Discrete {
    /// Returns a choice of alternatives 0, 1, ... with these `weights`, which are 0 or
    /// above. At least one must be above 0.
    pub fn new(weights: &[f64]) -> Result<Self, DistributionError> {
        if let Some((index, &value)) =
            weights.iter().enumerate().find(|(_, weight)| !(**weight >= 0.0 && weight.is_finite()))
        {
            return Err(DistributionError::Weight { index, value });
        }
        let used = weights.iter().rposition(|&weight| weight > 0.0).ok_or(DistributionError::NoWeight)? + 1;
        let sum: f64 = weights.iter().sum();
        if !sum.is_finite() {
            return Err(DistributionError::Weight { index: 0, value: sum });
        }
        Ok(Discrete { shares: weights[..used].iter().map(|weight| weight / sum).collect() })
    }

    /// Returns the index of an alternative. O(number of alternatives), one uniform draw.
    #[inline]
    pub fn draw<R: Random + ?Sized>(&self, rng: &mut R) -> usize {
        let mut rest = rng.next_f64();
        for (index, share) in self.shares.iter().enumerate() {
            if rest < *share {
                return index;
            }
            rest -= share;
        }
        self.shares.len() - 1
    }
}
