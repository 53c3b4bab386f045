//! The timestamps of a client, as numbers since 1970.
//!
//! Law: timestamp number t is `base` + t `step`. In random order the numbers are
//! taken by ranges of N: within a range every timestamp occurs once, in an order
//! that differs between clients. YCSB stops with an exception after the first
//! range, which has N = floor(recordcount / series) + 1; in Serval the next range
//! follows.
//!
//! Units: milliseconds if `timestampunits` is MILLISECONDS, otherwise seconds;
//! an interval of MINUTES, HOURS or DAYS is converted to seconds.
//!
//! Example: base 1000, interval 2 MINUTES: 1000, 1120, 1240.

use crate::distribution::Bijection;

/// Order in which timestamps are written.
#[derive(Debug, Clone)]
pub(super) struct Timestamps {
    base: i64,
    step: i64,
    shuffle: Option<Shuffle>,
}

#[derive(Debug, Clone)]
struct Shuffle {
    /// Length of a range, N.
    range: u64,
    seed: u64,
    /// The range of the present order.
    current: u64,
    order: Option<Bijection>,
}

impl Timestamps {
    /// Returns timestamps in rising order.
    pub(super) fn rising(base: i64, step: i64) -> Self {
        Timestamps { base, step, shuffle: None }
    }

    /// Returns timestamps in shuffled ranges of length `range`.
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
                // Properties with ranges too long to shuffle were refused.
                range * shuffle.range + shuffle.order.as_ref().map_or(within, |order| order.apply(within))
            }
        };
        self.offset(number)
    }

    /// Returns the timestamp `intervals` after the base.
    pub(super) fn offset(&self, intervals: u64) -> i64 {
        // A run may continue until timestamps overflow, as in Java.
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
        // Earlier numbers give the same timestamps again.
        assert_eq!((shuffled.at(3), shuffled.at(45)), (drawn[3], drawn[45]));
        assert_eq!(Timestamps::rising(1000, 120).at(2), 1240);
    }
}
