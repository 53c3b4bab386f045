//! YCSB's older measurement types: a histogram with 1 ms buckets, and averages over time. Recorded
//! only if `measurementtype` asks for them.

use crate::times::Times;
use serval_model::{Metric, Status};
use std::collections::BTreeMap;

/// The older measurement type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LegacyKind {
    /// `measurementtype=histogram`: this many buckets of 1 ms.
    Buckets(usize),
    /// `measurementtype=timeseries`: averages over units of time.
    TimeSeries {
        /// Length of a unit, ms, above zero.
        granularity_ms: u64,
    },
}

/// One of the two times of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeKind {
    /// From the actual start.
    Service,
    /// From the intended start.
    Response,
}

/// Measurements of one metric and status. Times are in whole microseconds, rounded down as in YCSB.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LegacySeries {
    /// Number of times in each bucket of 1 ms. The last bucket counts all longer times.
    pub buckets: Vec<u64>,
    /// Number of times.
    pub count: u64,
    /// Sum of the times.
    pub sum_us: u64,
    /// Sum of the squares of the times.
    pub sum_squares: f64,
    /// Smallest time.
    pub min_us: u64,
    /// Largest time.
    pub max_us: u64,
    /// Sum and number of times, by the start of their unit, ms.
    pub units: BTreeMap<u64, (u64, u64)>,
}

impl LegacySeries {
    fn record(&mut self, kind: LegacyKind, us: u64, end_ns: u64) {
        self.min_us = if self.count == 0 { us } else { self.min_us.min(us) };
        self.max_us = self.max_us.max(us);
        self.count += 1;
        self.sum_us += us;
        self.sum_squares += us as f64 * us as f64;
        match kind {
            LegacyKind::Buckets(buckets) => {
                self.buckets.resize(buckets + 1, 0);
                self.buckets[((us / 1000) as usize).min(buckets)] += 1;
            }
            LegacyKind::TimeSeries { granularity_ms } => {
                let unit = end_ns / 1_000_000 / granularity_ms * granularity_ms;
                let (sum, count) = self.units.entry(unit).or_default();
                *sum += us;
                *count += 1;
            }
        }
    }

    /// Adds the counts of another series.
    pub fn merge(&mut self, other: &LegacySeries) {
        if other.count == 0 {
            return;
        }
        self.min_us = if self.count == 0 { other.min_us } else { self.min_us.min(other.min_us) };
        self.max_us = self.max_us.max(other.max_us);
        self.count += other.count;
        self.sum_us += other.sum_us;
        self.sum_squares += other.sum_squares;
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        for (unit, (sum, count)) in &other.units {
            let mine = self.units.entry(*unit).or_default();
            mine.0 += sum;
            mine.1 += count;
        }
    }
}

/// Measurements of an older type, of one thread.
#[derive(Debug, Clone, PartialEq)]
pub struct LegacyMeasurements {
    kind: LegacyKind,
    series: BTreeMap<(Metric, Status, TimeKind), LegacySeries>,
}

impl LegacyMeasurements {
    /// Creates an empty set of measurements.
    pub fn new(kind: LegacyKind) -> Self {
        LegacyMeasurements { kind, series: BTreeMap::new() }
    }

    /// Returns the type.
    pub fn kind(&self) -> LegacyKind {
        self.kind
    }

    pub(crate) fn record(&mut self, metric: Metric, status: Status, times: Times, end_ns: u64) {
        for (time, ns) in [(TimeKind::Service, times.service), (TimeKind::Response, times.response)] {
            let series = self.series.entry((metric, status, time)).or_default();
            series.record(self.kind, ns / 1000, end_ns);
        }
    }

    /// Returns the measurements by metric, status and time.
    pub fn series(&self) -> impl Iterator<Item = (Metric, Status, TimeKind, &LegacySeries)> {
        self.series.iter().map(|((metric, status, time), series)| (*metric, *status, *time, series))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(us: u64) -> Times {
        Times { service: us * 1000 + 999, response: us * 1000 }
    }

    #[test]
    fn buckets_of_a_millisecond_with_overflow() {
        let mut legacy = LegacyMeasurements::new(LegacyKind::Buckets(2));
        for us in [0, 999, 1000, 1999, 2000, 50_000] {
            legacy.record(Metric::READ, Status::Ok, times(us), 0);
        }
        let (.., series) = legacy.series().next().unwrap();
        assert_eq!(series.buckets, [2, 2, 2]);
        assert_eq!((series.count, series.min_us, series.max_us, series.sum_us), (6, 0, 50_000, 55_998));
    }

    #[test]
    fn averages_by_unit_merge() {
        let kind = LegacyKind::TimeSeries { granularity_ms: 500 };
        let (mut a, mut b) = (LegacyMeasurements::new(kind), LegacyMeasurements::new(kind));
        a.record(Metric::READ, Status::Ok, times(10), 499_999_999);
        a.record(Metric::READ, Status::Ok, times(20), 500_000_000);
        b.record(Metric::READ, Status::Ok, times(40), 700_000_000);
        let mut sum = a.series().next().unwrap().3.clone();
        sum.merge(b.series().next().unwrap().3);
        assert_eq!(sum.units.into_iter().collect::<Vec<_>>(), [(0, (10, 1)), (500, (60, 2))]);
    }
}
