//! Zipf's law for any exponent and number of items, by rejection-inversion
//! (W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", ACM TOMACS 6(3), 1996).
//!
//! Law: rank k of N, from 1, has probability h(k)/zeta(N, s), h(x) = x^-s.
//! Symbols: s > 0 the exponent, N the number of items, H the integral of h.
//!
//! A bar of width 1 and height h(k) around each k is covered by the area
//! under h from k - 1/2 to k + 1/2 (h is convex). So a uniform u between
//! H(3/2) - h(1) and H(N + 1/2) is inverted to x = H^-1(u), k is the integer
//! nearest to x, and it is accepted if u lies in the part H(k + 1/2) - h(k)
//! to H(k + 1/2), whose length is h(k). Rejection is rare: at most 0.3 redraws
//! per draw. A bound that holds for all k (`shortcut`) avoids evaluating H and h
//! for nearly all draws.
//!
//! Example: s = 1, N = 1000: H(x) = ln x, u is in (ln 1.5 - 1, ln 1000.5).
//! u = 3 gives x = 20.09 and k = 20; H(20.5) - h(20) = 2.970 <= 3: rank 20, which is 19 when counted from 0.
//!
//! Exactness: a draw has 53 random bits, and x is rounded. Ranks whose
//! probability is below 2^-53 are not all reachable, and at N = 2^52 a rank in
//! the far tail is blurred over some tens of its neighbours. No test can detect
//! either.

use super::{
    error::DistributionError,
    zeta::{expm1_quotient, zeta},
};
use crate::random::Random;

/// The largest number of items: up to here an `f64` represents every rank and
/// its half exactly.
pub const MAX_ITEMS: u64 = 1 << 52;

/// From this rank on every x is accepted. A rejection would have the negligible
/// probability s (s+1)/(24 k^2). Near 2^52 an `f64` no longer distinguishes k
/// from its half, and rounding would decide the comparison.
const CERTAIN: u64 = 1 << 30;

/// Zipf's law over ranks; the first rank is the most popular.
#[derive(Debug, Clone, PartialEq)]
pub struct ExactZipf {
    items: u64,
    exponent: f64,
    /// 1 - s.
    complement: f64,
    /// H(3/2) - h(1), the lower end of u.
    low: f64,
    /// H(N + 1/2), the upper end of u.
    high: f64,
    /// Every x at most this far from its k is accepted.
    shortcut: f64,
}

impl ExactZipf {
    /// Returns the law over `items` ranks, 1 to [`MAX_ITEMS`], with an `exponent` above 0. O(1).
    pub fn new(items: u64, exponent: f64) -> Result<Self, DistributionError> {
        let max = items.wrapping_sub(1);
        if items == 0 {
            return Err(DistributionError::EmptyRange { min: 1, max: 0 });
        }
        if items > MAX_ITEMS {
            return Err(DistributionError::LongRange { min: 0, max, limit: MAX_ITEMS });
        }
        if !(exponent > 0.0 && exponent.is_finite()) {
            return Err(DistributionError::Exponent { value: exponent, allowed: "a number above 0" });
        }
        let mut zipf =
            ExactZipf { items, exponent, complement: 1.0 - exponent, low: 0.0, high: 0.0, shortcut: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(items as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        Ok(zipf)
    }

    /// Draws a rank, from 0 for the most popular. Expected O(1).
    #[inline]
    pub fn draw<R: Random + ?Sized>(&self, rng: &mut R) -> u64 {
        loop {
            let u = self.high + rng.next_f64() * (self.low - self.high);
            let x = self.inverse(u);
            let rank = ((x + 0.5) as u64).clamp(1, self.items);
            let k = rank as f64;
            if k - x <= self.shortcut || rank >= CERTAIN || u >= self.integral(k + 0.5) - self.density(k) {
                return rank - 1;
            }
        }
    }

    /// Returns h(x) = x^-s.
    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }

    /// Returns H(x) = (x^(1-s) - 1)/(1 - s), or ln x for s = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        log * expm1_quotient(self.complement * log)
    }

    /// Returns the x with H(x) = `u`.
    #[inline]
    fn inverse(&self, u: f64) -> f64 {
        // Rounding could carry t below -1, where H has no inverse.
        let t = (u * self.complement).max(-1.0);
        libm::exp(u * log1p_quotient(t))
    }

    /// Returns the number of ranks.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the probability of a `rank`, from 0. Computes a [`zeta`], which takes
    /// up to some milliseconds: for reports and tests.
    pub fn probability(&self, rank: u64) -> f64 {
        libm::pow((rank + 1) as f64, -self.exponent) / zeta(self.items, self.exponent)
    }
}

/// Returns `ln(1 + x)/x`; 1 at 0.
#[inline]
fn log1p_quotient(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        libm::log1p(x) / x
    } else {
        // The series; the remaining terms are below 10^-16.
        1.0 - x / 2.0
    }
}
