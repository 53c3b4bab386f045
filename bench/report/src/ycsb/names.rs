//! The names of YCSB's measurements, and the order in which it prints them.

use crate::ycsb::{
    IntervalMode, Metrics, Options, StartBasis,
    java::{map_order, name_order},
};
use serval_model::{Metric, Status, java};
use std::collections::BTreeMap;

/// A measurement in one of YCSB's maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedMeasurement {
    /// Its key in the map, without `Intended-`.
    pub(super) name: String,
    /// The metrics and statuses whose times it holds.
    pub(super) sources: Vec<(Metric, Status)>,
    /// Its `Return=` lines.
    pub(super) returns: Vec<(Status, u64)>,
}

/// Number of times by metric and status.
pub(super) fn counts(metrics: &Metrics) -> impl Iterator<Item = ((Metric, Status), u64)> + '_ {
    metrics.iter().map(|(key, pair)| (*key, pair.service.count()))
}

/// Whether all statuses share one measurement.
fn is_whole(metric: Metric) -> bool {
    matches!(metric, Metric::READ_MODIFY_WRITE | Metric::SCAN_PER_RECORD | Metric::CLEANUP | Metric::VERIFY)
}

/// Whether there are `Return=` lines.
fn has_returns(metric: Metric) -> bool {
    !matches!(metric, Metric::READ_MODIFY_WRITE | Metric::SCAN_PER_RECORD | Metric::CLEANUP)
}

/// Whether YCSB has times from the intended start.
fn has_response(metric: Metric) -> bool {
    !matches!(metric, Metric::VERIFY | Metric::SCAN_PER_RECORD)
}

/// The order in which YCSB first records metrics in a run, as far as it is fixed: composed operations
/// come after their parts, CLEANUP is last.
fn rank(metric: Metric) -> usize {
    match metric {
        Metric::CLEANUP => Metric::COUNT + 2,
        Metric::SCAN_PER_RECORD => Metric::COUNT + 1,
        Metric::READ_MODIFY_WRITE => Metric::COUNT,
        other => other.index(),
    }
}

/// The measurements of one of YCSB's maps, in its iteration order.
pub(super) fn in_order(
    options: &Options<'_>,
    side: StartBasis,
    counts: impl Iterator<Item = ((Metric, Status), u64)>,
) -> Vec<NamedMeasurement> {
    let mut by_rank: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    by_rank.sort_by_key(|((metric, status), _)| (rank(*metric), *status));
    let mut entries: Vec<NamedMeasurement> = Vec::new();
    for ((metric, status), count) in by_rank {
        let operation = metric.name(options.custom);
        if side == StartBasis::Service || has_response(metric) {
            entry(&mut entries, name_of(options, metric, status)).sources.push((metric, status));
        }
        let counted_here = side == StartBasis::Service || options.interval == IntervalMode::Intended;
        if has_returns(metric) && counted_here {
            entry(&mut entries, operation.to_owned()).returns.push((status, count));
        }
    }
    for entry in &mut entries {
        entry.returns = map_order(std::mem::take(&mut entry.returns), |(status, _)| status_hash(*status));
    }
    let order = name_order(entries.iter().map(|e| e.name.as_str()).collect());
    let places: BTreeMap<String, usize> =
        order.into_iter().enumerate().map(|(i, name)| (name.to_owned(), i)).collect();
    entries.sort_by_key(|e| places.get(&e.name).copied());
    entries
}

/// The entry of a name; inserts it if there is none.
fn entry(entries: &mut Vec<NamedMeasurement>, name: String) -> &mut NamedMeasurement {
    let at = entries.iter().position(|e| e.name == name).unwrap_or_else(|| {
        entries.push(NamedMeasurement { name, sources: Vec::new(), returns: Vec::new() });
        entries.len() - 1
    });
    &mut entries[at]
}

/// The name of the measurement of an operation with a status.
fn name_of(options: &Options<'_>, metric: Metric, status: Status) -> String {
    let operation = metric.name(options.custom);
    if status.is_ok() || is_whole(metric) {
        operation.to_owned()
    } else if options.report_each_error || options.tracked_errors.iter().any(|e| e == status.name()) {
        format!("{operation}-{}", status.name())
    } else {
        format!("{operation}-FAILED")
    }
}

/// YCSB's description of a status, which goes into its hash code.
fn description(status: Status) -> &'static str {
    match status {
        Status::Ok => "The operation completed successfully.",
        Status::BatchedOk => "The operation has been batched by the binding to be executed later.",
        Status::Error => "The operation failed.",
        Status::NotFound => "The requested record was not found.",
        Status::NotImplemented => "The operation is not implemented for the current binding.",
        Status::UnexpectedState => "The operation reported success, but the result was not as expected.",
        Status::BadRequest => "The request was not valid.",
        Status::Forbidden => "The operation is forbidden.",
        Status::ServiceUnavailable => "Dependant service for the current binding is not available.",
    }
}

/// `hashCode` of YCSB's status.
fn status_hash(status: Status) -> i32 {
    let with_description = 31i32.wrapping_add(java::string_hash(description(status)));
    with_description.wrapping_mul(31).wrapping_add(java::string_hash(status.name()))
}
