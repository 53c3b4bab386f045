//! The timestamps of a client, as numbers since 1970.
//!
//! Law: in rising order, timestamp number t is `base` + t `step`. In random
//! order, the numbers are permuted within ranges of N, by an order of the
//! client's own. YCSB stops with an exception after the first range, with
//! N = floor(recordcount / series) + 1; here the next range follows.
//!
//! Units: milliseconds if `timestampunits` is MILLISECONDS, otherwise seconds;
//! an interval of MINUTES, HOURS or DAYS is converted to seconds.
//!
//! Example: base 1000, interval 2 MINUTES: 1000, 1120, 1240.

use crate::distribution::Bijection;

/// Timestamps in the order in which they are written.
#[derive(Debug, Clone)]
pub(super) struct Timestamps {
    base: i64,
    step: i64,
    shuffle: Option<Shuffle>,
}

#[derive(Debug, Clone)]
struct Shuffle {
    /// N, the size of a range.
    range: u64,
    seed: u64,
    /// Number of the range that `order` permutes.
    current: u64,
    order: Option<Bijection>,
}

impl Timestamps {
    /// Makes timestamps in rising order.
    pub(super) fn rising(base: i64, step: i64) -> Self {
        Timestamps { base, step, shuffle: None }
    }

    /// Makes timestamps that are shuffled within ranges of `range`.
    pub(super) fn shuffled(base: i64, step: i64, range: u64, seed: u64) -> Self {
        let order = Bijection::new(range, seed).ok();
        Timestamps { base, step, shuffle: Some(Shuffle { range: range.max(1), seed, current: 0, order }) }
    }

    /// Returns timestamp number `tick`.
    pub(super) fn at(&mut self, tick: u64) -> i64 {
        let number = match &mut self.shuffle {
            None => tick,
            Some(shuffle) => {
                let range = tick / shuffle.range;
                if range != shuffle.current {
                    shuffle.current = range;
                    shuffle.order = Bijection::new(shuffle.range, shuffle.seed.wrapping_add(range)).ok();
                }
                let within = tick % shuffle.range;
                // Opening the workload has refused ranges that are too long to shuffle.
                range * shuffle.range + shuffle.order.as_ref().map_or(within, |order| order.apply(within))
            }
        };
        self.offset(number)
    }

    /// Returns the timestamp `intervals` steps after the base.
    pub(super) fn offset(&self, intervals: u64) -> i64 {
        // Timestamps of a very long run overflow as in Java.
        self.base.wrapping_add(self.step.wrapping_mul(intervals as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffled_ranges_hold_every_timestamp_once() {
        let mut shuffled = Timestamps::shuffled(1000, 60, 20, 7);
        let drawn: Vec<i64> = (0..60).map(|tick| shuffled.at(tick)).collect();
        for (range, part) in drawn.chunks(20).enumerate() {
            let mut sorted = part.to_vec();
            sorted.sort_unstable();
            let in_turn: Vec<i64> = (0..20).map(|i| 1000 + 60 * (20 * range as i64 + i)).collect();
            assert_eq!(sorted, in_turn);
            assert_ne!(part, in_turn);
        }
        // Earlier timestamps can be computed again.
        assert_eq!((shuffled.at(3), shuffled.at(45)), (drawn[3], drawn[45]));
        assert_eq!(Timestamps::rising(1000, 120).at(2), 1240);
    }
}
