//! Division of work among client processes.

use std::{fmt, ops::Range, str::FromStr};

/// Most shares: far more than the client machines of any benchmark, and few
/// enough that products with numbers of operations do not overflow.
pub const SHARES_MAX: u64 = 100_000;

/// The share of one process: number `index`, from 0, of `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Share {
    index: u64,
    count: u64,
}

impl Default for Share {
    fn default() -> Self {
        Share::WHOLE
    }
}

impl fmt::Display for Share {
    /// Formats the share with its number from 1: the first of four is `1/4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('/')
            .and_then(|(part, of)| Some((part.trim().parse::<u64>().ok()?, of.trim().parse::<u64>().ok()?)));
        let share = parts
            .filter(|(_, count)| *count <= SHARES_MAX)
            .and_then(|(part, count)| Share::new(part.checked_sub(1)?, count));
        share.ok_or_else(|| {
            format!("must be a share such as 1/4, the first of four (of at most {SHARES_MAX})")
        })
    }
}

impl Share {
    /// All of the work.
    pub const WHOLE: Share = Share { index: 0, count: 1 };

    /// Returns share number `index` of `count`; `None` unless `index < count`.
    pub fn new(index: u64, count: u64) -> Option<Share> {
        (index < count).then_some(Share { index, count })
    }

    /// Returns its number, from 0.
    pub fn index(self) -> u64 {
        self.index
    }

    /// Returns the number of shares.
    pub fn count(self) -> u64 {
        self.count
    }

    /// Returns its part of `n` numbered items. Parts are contiguous, and their
    /// sizes differ by at most one.
    pub fn range(self, n: u64) -> Range<u64> {
        self.bound(n, self.index)..self.bound(n, self.index + 1)
    }

    /// Returns the size of its part of `n` items.
    pub fn of(self, n: u64) -> u64 {
        let range = self.range(n);
        range.end - range.start
    }

    /// Returns its part of a rate, or of another quantity that need not be whole.
    pub fn of_rate(self, rate: f64) -> f64 {
        rate / self.count as f64
    }

    /// Returns the global number of its item number `own`, from 0, if the shares
    /// take items in turn.
    #[inline]
    pub fn dealt(self, own: u64) -> u64 {
        own.saturating_mul(self.count).saturating_add(self.index)
    }

    /// Returns the seed of its random choices, derived from the group's seed.
    pub fn seed(self, seed: u64) -> u64 {
        if self.count == 1 {
            return seed;
        }
        // The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), limited
        // to the 53 bits that every JSON reader represents exactly.
        let mut z = seed ^ (self.index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> 11
    }

    fn bound(self, n: u64, index: u64) -> u64 {
        (u128::from(n) * u128::from(index) / u128::from(self.count)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_share_number_must_be_below_the_count() {
        assert_eq!(Share::new(3, 3), None);
        assert_eq!(Share::new(0, 0), None);
        assert_eq!(Share::new(0, 1), Some(Share::WHOLE));
    }

    #[test]
    fn share_numbers_in_text_start_at_1() {
        assert_eq!("2 / 4".parse(), Ok(Share { index: 1, count: 4 }));
        assert_eq!("2/4".parse::<Share>().map(|share| share.to_string()), Ok("2/4".to_owned()));
        for wrong in ["", "0/4", "5/4", "1", "-1/4", "1/0", "1/100001"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_have_distinct_seeds_and_a_single_share_keeps_the_groups() {
        let seeds: HashSet<u64> = (0..10_000).filter_map(|i| Some(Share::new(i, 10_000)?.seed(42))).collect();
        assert_eq!(seeds.len(), 10_000);
        assert_eq!(Share::WHOLE.seed(42), 42);
    }

    proptest! {
        #[test]
        fn shares_cover_every_item_once(n in any::<u64>(), count in 1u64..500) {
            let parts: Vec<Range<u64>> = (0..count).filter_map(|i| Some(Share::new(i, count)?.range(n))).collect();
            prop_assert_eq!(parts[0].start, 0);
            prop_assert_eq!(parts[parts.len() - 1].end, n);
            prop_assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            let sizes: Vec<u64> = parts.iter().map(|part| part.end - part.start).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }
}
