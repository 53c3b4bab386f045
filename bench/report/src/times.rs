//! The times of a result's operations, in words.

use crate::units::{known, time};
use serval_result::document::{Latency, ResultDocument, TimesResult};

/// A row of the table of times: an operation, or its failures with one status.
pub(crate) struct Row<'a> {
    pub(crate) operation: &'a str,
    pub(crate) status: Option<&'a str>,
    pub(crate) count: u64,
    pub(crate) failed: Option<u64>,
    pub(crate) times: Option<&'a TimesResult>,
}

/// The rows of a document: each operation, followed by its failures by status.
pub(crate) fn rows(document: &ResultDocument) -> impl Iterator<Item = Row<'_>> {
    document.metrics.iter().flat_map(|metric| {
        let operation = metric.name.as_str();
        let (count, failed, times) = (metric.count(), Some(metric.failed()), metric.ok.as_ref());
        let failures = metric.failed.iter().map(move |(status, times)| Row {
            operation,
            status: Some(status),
            count: times.service.count,
            failed: None,
            times: Some(times),
        });
        std::iter::once(Row { operation, status: None, count, failed, times }).chain(failures)
    })
}

/// All percentiles that a document has, in ascending order.
pub(crate) fn percentiles(document: &ResultDocument) -> Vec<f64> {
    let times = rows(document).filter_map(|row| row.times);
    let mut all: Vec<f64> =
        times.flat_map(|times| times.response.percentiles.iter().map(|p| p.percentile)).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// Mean, percentiles and maximum of times, in words.
pub(crate) fn times_in_words<'a>(
    latency: Option<&'a Latency>,
    percentiles: &'a [f64],
) -> impl Iterator<Item = String> + 'a {
    let latency = latency.filter(|latency| latency.count > 0);
    let middle = percentiles.iter().map(move |p| quantile(latency, *p));
    let mean = known(latency.map(|l| l.mean_ns), time);
    std::iter::once(mean).chain(middle).chain([known(latency.map(|l| l.max_ns as f64), time)])
}

/// A percentile of times, in words.
pub(crate) fn quantile(latency: Option<&Latency>, percentile: f64) -> String {
    known(latency.and_then(|latency| latency.percentile(percentile)), |ns| time(ns as f64))
}
