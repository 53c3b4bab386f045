//! Zipf's law by the formula of Gray, Sundaresan, Englert, Baclawski and
//! Weinberger ("Quickly Generating Billion-Record Synthetic Databases",
//! SIGMOD 1994), equal to YCSB's `ZipfianGenerator` to the last bit.
//!
//! Law: item i of n, from 0, has probability 1/((i+1)^theta zeta(n, theta)),
//! exactly for items 0 and 1, nearly for the others. Symbols:
//!
//! * theta: the exponent, 0 <= theta < 1; 0 is uniform
//! * zetan = zeta(n, theta)
//! * alpha = 1/(1 - theta)
//! * eta = (1 - (2/n)^(1-theta)) / (1 - zeta(2, theta)/zetan)
//!
//! A uniform draw u gives item 0 if u zetan < 1, item 1 if u zetan < 1 +
//! 0.5^theta, else item floor(n (eta u - eta + 1)^alpha). Example: n = 1000,
//! theta = 0.99 have zetan = 7.729, alpha = 100, eta = 0.0748; u = 0.1 gives
//! item 0, u = 0.19 item 1, and u = 0.5 item floor(1000 x 0.9626^100) = 22.

use super::{
    error::{DistributionError, items},
    zeta::{DIRECT_TERMS, direct, zeta},
};
use crate::random::Random;

/// Largest growth, in items, that is added term by term; beyond it, a [`zeta`] is cheaper.
const SMALL_GROWTH: u64 = 32;

/// Zipf's law over a range of numbers; the smallest is the most popular.
///
/// YCSB's constructor draws one item and discards it; this one draws nothing.
/// To get YCSB's sequence of items, call [`Zipfian::next`] once beforehand
/// ([`Zipfian::CONSTRUCTOR_DRAWS`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Zipfian {
    base: u64,
    items: u64,
    theta: f64,
    alpha: f64,
    zetan: f64,
    eta: f64,
    /// Numerator of eta, from the number of items at construction.
    eta_items: f64,
    zeta2: f64,
    below_second: f64,
    count: u64,
}

/// Largest relative difference of powers on different machines: 45 times the distance of adjacent doubles, where
/// libraries promise about one.
const POWER_DIFFERENCE: f64 = 1e-14;

impl Zipfian {
    /// YCSB's exponent.
    pub const THETA: f64 = 0.99;

    /// Number of items that YCSB's constructor draws and discards.
    pub const CONSTRUCTOR_DRAWS: u32 = 1;

    /// Makes a distribution over the numbers `min` to `max`, both included, with exponent `theta` in [0, 1). Takes at
    /// most some milliseconds for any range.
    pub fn new(min: u64, max: u64, theta: f64) -> Result<Self, DistributionError> {
        let items = items(min, max)?;
        check_theta(theta)?;
        Ok(Zipfian::build(min, items, theta, zeta(items, theta)))
    }

    /// Makes a distribution like [`Zipfian::new`] with a given `zetan`, which may be inexact.
    pub fn with_zeta(min: u64, max: u64, theta: f64, zetan: f64) -> Result<Self, DistributionError> {
        let items = items(min, max)?;
        check_theta(theta)?;
        Ok(Zipfian::build(min, items, theta, zetan))
    }

    /// Makes a distribution over the numbers 0 to `n` - 1. `n` may be 0, to grow later.
    pub fn of(n: u64, theta: f64) -> Result<Self, DistributionError> {
        check_theta(theta)?;
        Ok(Zipfian::build(0, n, theta, zeta(n, theta)))
    }

    fn build(base: u64, items: u64, theta: f64, zetan: f64) -> Self {
        let mut zipfian = Zipfian {
            base,
            items,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zetan,
            eta: 0.0,
            eta_items: 1.0 - libm::pow(2.0 / items as f64, 1.0 - theta),
            zeta2: zeta(2, theta),
            below_second: 1.0 + libm::pow(0.5, theta),
            count: items,
        };
        zipfian.eta = zipfian.eta();
        zipfian
    }

    /// Returns eta for the number of items at construction, even if it has grown since, as in YCSB.
    fn eta(&self) -> f64 {
        self.eta_items / (1.0 - self.zeta2 / self.zetan)
    }

    /// Draws a number of the range. O(1).
    #[inline]
    pub fn next<R: Random + ?Sized>(&mut self, rng: &mut R) -> u64 {
        self.next_of(rng, self.items)
    }

    /// Draws one of the first `n` numbers of the range: YCSB's `nextLong(itemcount)`.
    ///
    /// If `n` grows, zetan grows with it: in YCSB's order of addition for up
    /// to [`DIRECT_TERMS`] items and for small steps, otherwise by [`zeta`].
    /// If it shrinks, nothing is recomputed, as in YCSB. Eta keeps the number
    /// of items at construction, as in YCSB: a range that grows manifold is no
    /// longer Zipfian.
    ///
    /// One difference: where YCSB leaves the range, this returns its last
    /// number. YCSB leaves it by rounding, once in about 2^53 draws, and if a
    /// range of 1 or 2 items at construction has grown.
    #[inline]
    pub fn next_of<R: Random + ?Sized>(&mut self, rng: &mut R, n: u64) -> u64 {
        if n > self.count {
            self.grow(n);
        }
        let u = rng.next_f64();
        let uz = u * self.zetan;
        if uz < 1.0 {
            return self.base;
        }
        if uz < self.below_second {
            return self.base + 1;
        }
        let x = self.eta * u - self.eta + 1.0;
        // The machine's own power is three times as fast. It may differ in the last bits, which matters only if the
        // result is that close to a whole number.
        let fast = n as f64 * x.powf(self.alpha);
        let item = if (fast - fast.round()).abs() > fast * POWER_DIFFERENCE {
            fast as u64
        } else {
            (n as f64 * libm::pow(x, self.alpha)) as u64
        };
        self.base + item.min(n.saturating_sub(1))
    }

    #[cold]
    fn grow(&mut self, n: u64) {
        self.zetan = if n <= DIRECT_TERMS || n - self.count <= SMALL_GROWTH {
            direct(self.count, n, self.theta, self.zetan)
        } else {
            zeta(n, self.theta)
        };
        self.count = n;
        self.eta = self.eta();
    }

    /// Returns the normalising sum of the present number of items.
    pub fn zetan(&self) -> f64 {
        self.zetan
    }

    /// Returns 1/(1 - theta).
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Returns eta, the constant of the formula.
    pub fn eta_constant(&self) -> f64 {
        self.eta
    }

    /// Returns the mean of [`Zipfian::next`] before any growth. It is the mean
    /// of the formula, not of Zipf's law: the probability of item k or above,
    /// k >= 2, is (1 - (k/n)^(1-theta))/eta, and the mean is the sum of these
    /// for all k. Takes as long as the constructor.
    pub fn mean(&self) -> f64 {
        let (n, base) = (self.items, self.base as f64);
        let above_first = 1.0 - 1.0 / self.zetan;
        match n {
            0 | 1 => base,
            2 => base + above_first,
            _ => {
                let powers = zeta(n - 1, self.theta - 1.0) - 1.0;
                let tails = (n - 2) as f64 - libm::pow(n as f64, self.theta - 1.0) * powers;
                base + above_first + tails / self.eta
            }
        }
    }
}

fn check_theta(theta: f64) -> Result<(), DistributionError> {
    if (0.0..1.0).contains(&theta) {
        return Ok(());
    }
    let allowed = "at least 0 and below 1 (the exact Zipf distribution takes any)";
    Err(DistributionError::Exponent { value: theta, allowed })
}
