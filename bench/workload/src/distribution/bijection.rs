//! A pseudorandom permutation of the numbers below N, for any N, in constant memory. It maps ranks to keys.
//!
//! Law: a Feistel network over pairs (l, r) with l < a and r < b, where
//! a = ceil(sqrt N) and b = ceil(N/a), applied again until the result is
//! below N (cycle walking; J. Black and P. Rogaway, "Ciphers with Arbitrary
//! Finite Domains", CT-RSA 2002). The number x represents the pair (x mod a,
//! x div a). Rounds alternate l := l + F(r) mod a and r := r + F(l) mod b,
//! where F takes the upper half of a keyed 64-bit mix. Every round is
//! invertible, so each is a bijection, and so is cycle walking.
//!
//! a b - N < a, so fewer than one walk in sqrt N need a second step, and each
//! walk ends: at the latest it returns to its start, which is below N.
//!
//! Example: N = 10 has a = 4, b = 3. The number 9 is the pair (1, 2). Suppose
//! the rounds map it to (3, 2) = 11. That is not below 10, so the rounds are
//! applied again; (0, 1) = 4 is the result.

use super::error::DistributionError;
use crate::random::split_mix;

pub use super::exact::MAX_ITEMS;

/// Returns the number of double rounds, over l and r, for a range.
///
/// With ideal round functions, the relative error of the probability that two numbers map to two given
/// numbers is about b^(1 - rounds). These counts keep it below 10^-3 from about ten numbers on, and
/// below 10^-4 for long ranges, whose draws must be fast.
const fn double_rounds(items: u64) -> usize {
    match items {
        0..0x100 => DOUBLE_ROUNDS_MAX,
        0x100..0x1_0000 => 5,
        _ => 3,
    }
}

const DOUBLE_ROUNDS_MAX: usize = 10;

/// A pseudorandom bijection of [0, N), determined by N and a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bijection {
    items: u64,
    a: u64,
    b: u64,
    /// About 2^64/a: dividing by a is a multiplication and a correction.
    reciprocal: u64,
    double_rounds: usize,
    keys: [[u64; 2]; DOUBLE_ROUNDS_MAX],
}

impl Bijection {
    /// Makes a bijection of the numbers below `items`, which is 1 to [`MAX_ITEMS`]. O(1).
    pub fn new(items: u64, seed: u64) -> Result<Self, DistributionError> {
        if items == 0 {
            return Err(DistributionError::EmptyRange { min: 1, max: 0 });
        }
        if items > MAX_ITEMS {
            return Err(DistributionError::LongRange { min: 0, max: items - 1, limit: MAX_ITEMS });
        }
        let root = items.isqrt();
        let a = root + u64::from(root * root < items);
        let mut state = seed;
        Ok(Bijection {
            items,
            a,
            b: items.div_ceil(a),
            reciprocal: u64::MAX / a,
            double_rounds: double_rounds(items),
            keys: std::array::from_fn(|_| [split_mix(&mut state), split_mix(&mut state)]),
        })
    }

    /// Returns N, the number of items.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the image of `x`, which is below N. Expected O(1), some 10 ns.
    #[inline]
    pub fn apply(&self, mut x: u64) -> u64 {
        debug_assert!(x < self.items, "{x} is not below {}", self.items);
        loop {
            let (mut l, mut r) = self.split(x);
            for keys in &self.keys[..self.double_rounds] {
                l = add(l, mix(r, keys[0], self.a), self.a);
                r = add(r, mix(l, keys[1], self.b), self.b);
            }
            x = r * self.a + l;
            if x < self.items {
                return x;
            }
        }
    }

    /// Returns the number whose image is `y`: the inverse of [`apply`](Bijection::apply).
    pub fn invert(&self, mut y: u64) -> u64 {
        debug_assert!(y < self.items, "{y} is not below {}", self.items);
        loop {
            let (mut l, mut r) = self.split(y);
            for keys in self.keys[..self.double_rounds].iter().rev() {
                r = subtract(r, mix(l, keys[1], self.b), self.b);
                l = subtract(l, mix(r, keys[0], self.a), self.a);
            }
            y = r * self.a + l;
            if y < self.items {
                return y;
            }
        }
    }

    #[inline]
    fn split(&self, x: u64) -> (u64, u64) {
        // x < 2^54 and the reciprocal is too small by less than 2, so the quotient is exact or 1 too small.
        let quotient = high(x, self.reciprocal);
        let rest = x - quotient * self.a;
        if rest >= self.a { (rest - self.a, quotient + 1) } else { (rest, quotient) }
    }
}

/// Returns the upper half of a product. It scales a random `x` from [0, 2^64) to [0, `n`).
#[inline]
fn high(x: u64, n: u64) -> u64 {
    ((u128::from(x) * u128::from(n)) >> 64) as u64
}

/// Round function: returns a number below `n`, biased by less than n/2^64.
#[inline]
fn mix(value: u64, key: u64, n: u64) -> u64 {
    // A multiplication carries upwards only. The shift moves the well mixed upper half down for the second
    // multiplication, whose upper half is the result.
    let z = (value ^ key).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    high((z ^ (z >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb), n)
}

#[inline]
fn add(x: u64, y: u64, n: u64) -> u64 {
    let sum = x + y;
    if sum >= n { sum - n } else { sum }
}

#[inline]
fn subtract(x: u64, y: u64, n: u64) -> u64 {
    if x >= y { x - y } else { x + n - y }
}
