//! Hotspot: the keys at the start of the range are hot.
//!
//! Law: of the N keys from `min`, the first H = floor(hot fraction x N) are
//! hot. With the hot share as probability a draw is uniform over the hot keys,
//! otherwise over the others. Example: keys 0 to 999, fraction 0.2, share 0.8:
//! keys 0 to 199 get 0.4 % each, the others 0.025 % each.
//!
//! YCSB's `HotspotIntegerGenerator` divides by zero when it draws from an empty
//! part (fraction 0 with share 0.8); this generator then draws from the other
//! part. YCSB stores H in 32 bits, this generator in 64.

use super::error::{DistributionError, fraction, items};
use crate::random::Random;

/// The hotspot distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Hotspot {
    min: u64,
    hot: u64,
    cold: u64,
    hot_share: f64,
}

impl Hotspot {
    /// Returns the distribution over the keys `min` to `max`, inclusive. `hot_fraction` of
    /// the keys get `hot_share` of the draws; both are in [0, 1].
    pub fn new(min: u64, max: u64, hot_fraction: f64, hot_share: f64) -> Result<Self, DistributionError> {
        let items = items(min, max)?;
        let hot_fraction = fraction("fraction of hot keys", hot_fraction)?;
        let hot_share = fraction("share of operations on hot keys", hot_share)?;
        let hot = ((items as f64 * hot_fraction) as u64).min(items);
        Ok(Hotspot { min, hot, cold: items - hot, hot_share })
    }

    /// Draws a key: one draw for the part, one within it. O(1).
    #[inline]
    pub fn draw<R: Random + ?Sized>(&self, rng: &mut R) -> u64 {
        let hit = rng.next_f64() < self.hot_share;
        if (hit && self.hot > 0) || self.cold == 0 {
            self.min + rng.below(self.hot)
        } else {
            self.min + self.hot + rng.below(self.cold)
        }
    }

    /// Returns the smallest key.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Returns the smallest key with a positive probability.
    pub(crate) fn lowest(&self) -> u64 {
        if self.hot == 0 || (self.hot_share == 0.0 && self.cold > 0) { self.min + self.hot } else { self.min }
    }
}
