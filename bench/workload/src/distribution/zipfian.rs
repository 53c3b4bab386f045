//! Zipf's law by the formula of Gray, Sundaresan, Englert, Baclawski and
//! Weinberger ("Quickly Generating Billion-Record Synthetic Databases",
//! SIGMOD 1994), equal to YCSB's `ZipfianGenerator` to the last bit.
//!
//! Law: item i of n, from 0, has probability 1/((i+1)^theta zeta(n, theta)),
//! exactly for items 0 and 1 and approximately for the others. Symbols:
//!
//! * theta: the exponent, 0 <= theta < 1; 0 is uniform
//! * zetan = zeta(n, theta)
//! * alpha = 1/(1 - theta)
//! * eta = (1 - (2/n)^(1-theta)) / (1 - zeta(2, theta)/zetan)
//!
//! A uniform draw u gives item 0 if u zetan < 1, item 1 if u zetan < 1 +
//! 0.5^theta, else item floor(n (eta u - eta + 1)^alpha). Example: n = 1000 and
//! theta = 0.99 give zetan = 7.729, alpha = 100, eta = 0.0748; u = 0.1 gives
//! item 0, u = 0.19 item 1, and u = 0.5 item floor(1000 x 0.9626^100) = 22.

use super::{
    error::{DistributionError, items},
    zeta::{DIRECT_TERMS, direct, zeta},
};
use crate::random::Random;

/// Growth up to this many items is added term by term, at the cost of a
/// [`zeta`] of a long sum.
const SMALL_GROWTH: u64 = 32;

/// Zipf's law over a range of numbers; the smallest is the most popular.
///
/// YCSB's constructor draws one item and discards it. This constructor has no
/// source of draws: to repeat YCSB's sequence of items, call [`Zipfian::next`]
/// once beforehand ([`Zipfian::CONSTRUCTOR_DRAWS`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Zipfian {
    base: u64,
    items: u64,
    theta: f64,
    alpha: f64,
    zetan: f64,
    eta: f64,
    /// The factor of eta that depends on the number of items at construction.
    eta_items: f64,
    zeta2: f64,
    below_second: f64,
    count: u64,
}

/// Assumed relative difference of powers between machines: 45 times the distance
/// of neighbouring doubles, where libraries promise about one.
const POWER_DIFFERENCE: f64 = 1e-14;

impl Zipfian {
    /// YCSB's exponent.
    pub const THETA: f64 = 0.99;

    /// Number of items that YCSB's constructor draws and discards.
    pub const CONSTRUCTOR_DRAWS: u32 = 1;

    /// Returns the law over the numbers `min` to `max`, inclusive, with an exponent `theta`
    /// in [0, 1). Takes at most some milliseconds for any range.
    pub fn new(min: u64, max: u64, theta: f64) -> Result<Self, DistributionError> {
        let items = items(min, max)?;
        check_theta(theta)?;
        Ok(Zipfian::build(min, items, theta, zeta(items, theta)))
    }

    /// Like [`Zipfian::new`], with a given `zetan`, which need not be exact.
    pub fn with_zeta(min: u64, max: u64, theta: f64, zetan: f64) -> Result<Self, DistributionError> {
        let items = items(min, max)?;
        check_theta(theta)?;
        Ok(Zipfian::build(min, items, theta, zetan))
    }

    /// Returns the law over the `n` numbers from 0; `n` may be 0, to grow later.
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

    /// Uses the number of items at construction, even after growth, as YCSB does.
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
    /// If `n` grows, zetan grows with it: in YCSB's order of addition for up to
    /// [`DIRECT_TERMS`] items and for small steps, otherwise by [`zeta`]. If it
    /// shrinks nothing is recomputed, as in YCSB. Eta keeps the number of items at
    /// construction, as in YCSB: a range that outgrows it manifold is no longer
    /// Zipfian.
    ///
    /// One behaviour differs: where YCSB leaves the range, this returns the range's
    /// last number. YCSB leaves it by rounding, once in about 2^53 draws, and after
    /// growth of a range of 1 or 2 items at construction.
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
        // The machine's own power is three times as fast. It may differ in the last
        // bits, which matters only this close to an integer.
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

    /// Returns the normalizing sum over the present items.
    pub fn zetan(&self) -> f64 {
        self.zetan
    }

    /// Returns 1/(1 - theta).
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Returns eta.
    pub fn eta_constant(&self) -> f64 {
        self.eta
    }

    /// Returns the mean of [`Zipfian::next`] before any growth. This is the mean of
    /// the formula, not of Zipf's law: an item of at least k, k >= 2, has
    /// probability (1 - (k/n)^(1-theta))/eta, and the mean is the sum of these over
    /// all k. Takes as long as construction.
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
