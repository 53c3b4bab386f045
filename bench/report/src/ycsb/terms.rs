//! Converts Serval's measurements to YCSB's.
//!
//! YCSB does not measure batches. A binding that batches answers an insert with `BATCHED_OK` at once,
//! and sends the batch with its last insert. So a batch of k inserts becomes k - 1 inserts of no time
//! with `BATCHED_OK`, and one with the time and status of the batch. Metrics that YCSB does not have
//! are left out.

use crate::ycsb::{Legacy, Metrics};
use serval_measure::{legacy::LegacySeries, raw::RawSample, times::Times};
use serval_model::{Metric, Status};
use std::{borrow::Cow, collections::BTreeMap};

/// YCSB's metric for one of Serval's; `None` if it has none.
fn metric(metric: Metric) -> Option<Metric> {
    match metric {
        Metric::INSERT_BATCH => Some(Metric::INSERT),
        Metric::DRIVER_HOP | Metric::FLUSH => None,
        other => Some(other),
    }
}

/// Converts times by metric and status.
pub fn metrics(measured: &Metrics) -> Metrics {
    let mut terms = Metrics::new();
    for ((own, status), pair) in measured {
        let Some(metric) = metric(*own) else { continue };
        terms.entry((metric, *status)).or_default().merge(pair);
        let waited = waited(measured, *own, *status);
        if waited > 0 {
            let sum = terms.entry((metric, Status::BatchedOk)).or_default();
            sum.service.record_n(0, waited);
            if !pair.response.is_empty() {
                sum.response.record_n(0, waited);
            }
        }
    }
    terms
}

/// Number of inserts that waited in batches with this status.
fn waited(measured: &Metrics, metric: Metric, status: Status) -> u64 {
    let pair = measured.get(&(metric, status)).filter(|_| metric == Metric::INSERT_BATCH);
    pair.map_or(0, |pair| pair.batched.saturating_sub(pair.service.count()))
}

/// Converts series of the older measurement types.
pub fn legacy(legacy: Legacy, measured: &Metrics) -> Legacy {
    let mut terms = Legacy::new();
    for ((own, status, time), series) in legacy {
        let Some(metric) = metric(own) else { continue };
        let waited = waited(measured, own, status);
        if waited > 0 {
            terms.entry((metric, Status::BatchedOk, time)).or_default().merge(&waiting(&series, waited));
        }
        terms.entry((metric, status, time)).or_default().merge(&series);
    }
    terms
}

/// The series of inserts of no time that waited in the batches of a series.
fn waiting(batches: &LegacySeries, waited: u64) -> LegacySeries {
    let mut buckets = vec![0; batches.buckets.len()];
    if let Some(first) = buckets.first_mut() {
        *first = waited;
    }
    let mut parts = Parts::new(waited, batches.count);
    let units = batches.units.iter().map(|(unit, (_, count))| (*unit, (0, parts.next(*count))));
    LegacySeries { buckets, count: waited, units: units.collect(), ..LegacySeries::default() }
}

/// Converts single times.
pub fn raw<'a>(samples: &'a [RawSample], measured: &Metrics) -> Cow<'a, [RawSample]> {
    if !samples.iter().any(|sample| sample.metric == Metric::INSERT_BATCH) {
        return Cow::Borrowed(samples);
    }
    let mut parts: BTreeMap<Status, Parts> = BTreeMap::new();
    let mut terms = Vec::with_capacity(samples.len());
    for sample in samples {
        let Some(metric) = metric(sample.metric) else { continue };
        if sample.metric == Metric::INSERT_BATCH {
            let parts = parts.entry(sample.status).or_insert_with(|| {
                let batches = measured.get(&(sample.metric, sample.status));
                let batches = batches.map_or(0, |pair| pair.service.count());
                Parts::new(waited(measured, sample.metric, sample.status), batches)
            });
            let times = Times { service: 0, response: 0 };
            let waiting = RawSample { metric, status: Status::BatchedOk, times, ..*sample };
            terms.extend((0..parts.next(1)).map(|_| waiting));
        }
        terms.push(RawSample { metric, ..*sample });
    }
    Cow::Owned(terms)
}

/// Divides inserts among batches as evenly as possible.
struct Parts {
    inserts: u64,
    batches: u64,
    batches_passed: u64,
}

impl Parts {
    fn new(inserts: u64, batches: u64) -> Parts {
        Parts { inserts, batches, batches_passed: 0 }
    }

    /// Returns the number of inserts in the next batches.
    fn next(&mut self, batches: u64) -> u64 {
        let until = |batches: u64| {
            let share = u128::from(self.inserts) * u128::from(batches) / u128::from(self.batches.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let passed = self.batches_passed.saturating_add(batches).min(self.batches);
        let part = until(passed) - until(self.batches_passed);
        self.batches_passed = passed;
        part
    }
}
