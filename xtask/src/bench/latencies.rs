//! Response times as they were counted, so that those of several processes, or
//! of several measurements, can be put together before a percentile is taken:
//! the mean or the largest of percentiles is none.

use std::collections::BTreeMap;

/// How often each response time was seen, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latencies {
    counts: BTreeMap<u64, u64>,
}

impl Latencies {
    /// Of a list of pairs: a time, and how often it was seen.
    pub(crate) fn of(value: &serde_json::Value) -> Option<Latencies> {
        let pair = |pair: &serde_json::Value| match pair.as_array()?.as_slice() {
            [time, count] => Some((time.as_u64()?, count.as_u64()?)),
            _ => None,
        };
        let counts: Option<BTreeMap<u64, u64>> = value.as_array()?.iter().map(pair).collect();
        counts.map(|counts| Latencies { counts })
    }

    /// Puts others to these.
    pub(crate) fn add(&mut self, others: &Latencies) {
        for (time, count) in &others.counts {
            *self.counts.entry(*time).or_default() += count;
        }
    }

    /// The smallest time that at least this share of all does not exceed, in
    /// microseconds; of none it is no number.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let all: u64 = self.counts.values().sum();
        let wanted = ((share * all as f64).ceil() as u64).max(1);
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
    fn percentiles_are_of_all_together() {
        // 98 of 100 take 10 us in one process, all 100 take 20 us in the other.
        let mut all = Latencies::of(&json!([[10, 98], [900, 2]])).unwrap();
        assert_eq!((all.quantile(0.5), all.quantile(0.98), all.quantile(0.99)), (10.0, 10.0, 900.0));
        all.add(&Latencies::of(&json!([[20, 100]])).unwrap());
        assert_eq!((all.quantile(0.49), all.quantile(0.5)), (10.0, 20.0));
        // The two slow ones are the last of 200, and the mean of both 99th
        // percentiles would have been 460.
        assert_eq!((all.quantile(0.99), all.quantile(1.0)), (20.0, 900.0));
    }

    #[test]
    fn of_nothing_there_is_no_percentile() {
        assert!(Latencies::of(&json!([])).unwrap().quantile(0.99).is_nan());
        for wrong in [json!(1), json!([1]), json!([[1]]), json!([[1, "a"]]), json!([[1, 2, 3]])] {
            assert_eq!(Latencies::of(&wrong), None);
        }
    }
}
