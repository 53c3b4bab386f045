//! A pseudorandom permutation of the numbers below N, for any N, in constant
//! memory: which key has which rank.
//!
//! Law: a Feistel network over pairs (l, r) with l < a and r < b, where
//! a = ceil(sqrt N) and b = ceil(N/a), applied again until the result is
//! below N (cycle walking; J. Black and P. Rogaway, "Ciphers with Arbitrary
//! Finite Domains", CT-RSA 2002). x stands for the pair x mod a, x div a.
//! Rounds alternate l := l + F(r) mod a and r := r + F(l) mod b, F being a
//! keyed mixing of 64 bits whose upper half decides. Every round can be
//! undone, so each is a bijection, and so is walking the cycle.
//!
//! a b - N < a, so less than one walk in sqrt N takes a second step, and each
//! ends: it comes back to its start, which is below N, at the latest.
//!
//! Example: N = 10 has a = 4, b = 3. 9 is the pair (1, 2). Suppose the rounds
//! make it (3, 2) = 11: not below 10, so once more; (0, 1) = 4 is the answer.

use super::error::DistributionError;
use crate::random::split_mix;

pub use super::exact::MAX_ITEMS;

/// Rounds over l and r, so two of the network each, by the number of numbers.
///
/// With ideal round functions, the chance that two numbers go to two given
/// places is off by about b^(1 - turns) of itself. This keeps it below 10^-3
/// from about ten numbers on, and below 10^-4 for long ranges, whose draws are
/// the ones that should be fast.
const fn turns(items: u64) -> usize {
    match items {
        0..0x100 => MOST_TURNS,
        0x100..0x1_0000 => 5,
        _ => 3,
    }
}

const MOST_TURNS: usize = 10;

/// A bijection of [0, N) that looks random and is the same for the same N
/// and seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bijection {
    items: u64,
    a: u64,
    b: u64,
    /// About 2^64/a: dividing by a is a multiplication and a correction.
    reciprocal: u64,
    turns: usize,
    keys: [[u64; 2]; MOST_TURNS],
}

impl Bijection {
    /// Of the numbers below `items`, 1 to [`MAX_ITEMS`]. O(1).
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
            turns: turns(items),
            keys: std::array::from_fn(|_| [split_mix(&mut state), split_mix(&mut state)]),
        })
    }

    /// The number of numbers.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Where `x`, which is below N, goes. Expected O(1), some 10 ns.
    #[inline]
    pub fn apply(&self, mut x: u64) -> u64 {
        debug_assert!(x < self.items, "{x} is not below {}", self.items);
        loop {
            let (mut l, mut r) = self.split(x);
            for keys in &self.keys[..self.turns] {
                l = add(l, mix(r, keys[0], self.a), self.a);
                r = add(r, mix(l, keys[1], self.b), self.b);
            }
            x = r * self.a + l;
            if x < self.items {
                return x;
            }
        }
    }

    /// What goes to `y`, which is below N: the inverse of
    /// [`apply`](Bijection::apply).
    pub fn invert(&self, mut y: u64) -> u64 {
        debug_assert!(y < self.items, "{y} is not below {}", self.items);
        loop {
            let (mut l, mut r) = self.split(y);
            for keys in self.keys[..self.turns].iter().rev() {
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
        // x < 2^54 and the reciprocal is short by less than 2, so the
        // quotient is right or 1 too small.
        let quotient = high(x, self.reciprocal);
        let rest = x - quotient * self.a;
        if rest >= self.a { (rest - self.a, quotient + 1) } else { (rest, quotient) }
    }
}

/// The upper half of a product: `x` scaled from [0, 2^64) to [0, `n`) when
/// `x` is random.
#[inline]
fn high(x: u64, n: u64) -> u64 {
    ((u128::from(x) * u128::from(n)) >> 64) as u64
}

/// The round function: a number below `n`, biased by less than n/2^64.
#[inline]
fn mix(value: u64, key: u64, n: u64) -> u64 {
    // A multiplication carries upwards only; the shift brings the well mixed
    // upper half down for the second, whose upper half is taken.
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
