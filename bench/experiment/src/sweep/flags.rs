//! What a reader must know of a run, from its result.

use serval_measure::{document::ResultDocument, experiment::Flag};

/// Operations below which tail percentiles say little.
const SAMPLES_MIN: u64 = 1000;

/// The flags of a result.
pub(crate) fn flags(document: &ResultDocument) -> Vec<Flag> {
    let mut flags = Vec::new();
    let overall = &document.overall;
    let mut raise = |flag, raised: bool| {
        if raised {
            flags.push(flag);
        }
    };
    raise(Flag::Unsteady, document.steadiness.as_ref().is_some_and(|steadiness| !steadiness.steady));
    let stationarity = document.stationarity.as_ref();
    let changed = stationarity.is_some_and(|told| told.throughput.is_some() || told.service.is_some());
    raise(Flag::Changed, changed);
    raise(Flag::Stalled, stationarity.is_some_and(|told| told.stalls.is_some()));
    raise(Flag::Overloaded, serval_report::notes::target_missed(document).is_some());
    raise(
        Flag::ClientBound,
        document.client.as_ref().is_some_and(|client| !client.bound_by_client.is_empty()),
    );
    raise(Flag::Failures, document.failed() > 0 || document.censored.in_flight > 0);
    raise(Flag::FewSamples, overall.operations < SAMPLES_MIN);
    raise(Flag::Interrupted, matches!(overall.ended_by.as_str(), "interrupted" | "failed"));
    flags
}
