//! Counts of response times, so that those of several processes or measurements can be merged
//! before a percentile is computed: percentiles cannot be averaged.

use std::collections::BTreeMap;

/// Number of occurrences of each response time, by its microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latencies {
    counts: BTreeMap<u64, u64>,
}

impl Latencies {
    /// Reads a list of pairs: a response time, and its number of occurrences.
    pub(crate) fn of(value: &serde_json::Value) -> Option<Latencies> {
        let pair = |pair: &serde_json::Value| match pair.as_array()?.as_slice() {
            [time, count] => Some((time.as_u64()?, count.as_u64()?)),
            _ => None,
        };
        let counts: Option<BTreeMap<u64, u64>> = value.as_array()?.iter().map(pair).collect();
        counts.map(|counts| Latencies { counts })
    }

    /// Counts a response time.
    pub(crate) fn record(&mut self, time_us: u64) {
        *self.counts.entry(time_us).or_default() += 1;
    }

    /// Returns the number of response times.
    pub(crate) fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Adds other counts.
    pub(crate) fn add(&mut self, others: &Latencies) {
        for (time, count) in &others.counts {
            *self.counts.entry(*time).or_default() += count;
        }
    }

    /// Returns the smallest time that at least this share of all does not exceed, us; NaN if there
    /// are none.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let wanted = ((share * self.count() as f64).ceil() as u64).max(1);
        let mut passed = 0;
        for (time, count) in &self.counts {
            passed += count;
            if passed >= wanted {
                return *time as f64;
            }
        }
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_percentile_is_that_of_the_merged_counts() {
        // 98 of 100 take 10 us in one process; all 100 take 20 us in the other.
        let mut all = Latencies::of(&json!([[10, 98], [900, 2]])).unwrap();
        assert_eq!((all.quantile(0.5), all.quantile(0.98), all.quantile(0.99)), (10.0, 10.0, 900.0));
        all.add(&Latencies::of(&json!([[20, 100]])).unwrap());
        assert_eq!((all.quantile(0.49), all.quantile(0.5)), (10.0, 20.0));
        // The two slow ones are the last of 200. The mean of both 99th percentiles would be 460.
        assert_eq!((all.quantile(0.99), all.quantile(1.0)), (20.0, 900.0));
    }

    #[test]
    fn without_counts_the_percentile_is_nan() {
        assert!(Latencies::of(&json!([])).unwrap().quantile(0.99).is_nan());
        for wrong in [json!(1), json!([1]), json!([[1]]), json!([[1, "a"]]), json!([[1, 2, 3]])] {
            assert_eq!(Latencies::of(&wrong), None);
        }
    }
}
