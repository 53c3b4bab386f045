//! The result document of a run.

use crate::{
    costs::Costs,
    plan::Plan,
    secrets::shown,
    session::{Ran, RunLost, merged},
};
use serval_measure::{
    histogram::Histogram,
    recorder::{Messages, Pair, Totals},
};
use serval_model::{Metric, Status, properties::PropertySource};
use serval_result::{
    document::{
        BufferedResult, Censored, IntervalSummary, Latency, MessageCount, MetricResult, Overall,
        PacingResult, PropertyFact, ResultDocument, RunFacts, SCHEMA_VERSION, TimesResult,
    },
    note::Note,
};
use serval_runner::{AbortCause, clock::nanoseconds};
use std::{collections::BTreeMap, time::SystemTime};

/// Percentiles of every result, in addition to the requested ones.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// Formats an instant by RFC 3339 in UTC, to the millisecond.
pub fn timestamp(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map(|t| format!("{t:.3}")).unwrap_or_default()
}

fn metric_results(
    plan: &Plan,
    totals: &Totals,
    messages: &Messages,
    percentiles: &[f64],
) -> Vec<MetricResult> {
    let custom = plan.workload.metrics();
    let custom: Vec<&str> = custom.iter().map(String::as_str).collect();
    let mut metrics: BTreeMap<Metric, BTreeMap<Status, &Pair>> = BTreeMap::new();
    for ((metric, status), pair) in &totals.measured {
        metrics.entry(*metric).or_default().insert(*status, pair);
    }
    let results = metrics.into_iter().map(|(metric, statuses)| {
        let times = |pair: &Pair| TimesResult::of(pair, totals.paced, percentiles);
        let ok: Vec<&Pair> = statuses.iter().filter(|(s, _)| s.is_ok()).map(|(_, pair)| *pair).collect();
        let failed = statuses.iter().filter(|(status, _)| !status.is_ok());
        MetricResult {
            name: metric.name(&custom).to_owned(),
            statuses: statuses.iter().map(|(s, pair)| (s.name().to_owned(), pair.service.count())).collect(),
            ok: (!ok.is_empty()).then(|| times(&merged(ok.iter().copied()))),
            failed: failed.map(|(status, pair)| (status.name().to_owned(), times(pair))).collect(),
            messages: messages
                .iter()
                .filter(|((of, _, _), _)| *of == metric)
                .map(|((_, status, message), count)| MessageCount {
                    status: status.name().to_owned(),
                    message: message.to_string(),
                    count: *count,
                })
                .collect(),
        }
    });
    results.collect()
}

fn ages(histogram: &Histogram, percentiles: &[f64]) -> Option<Latency> {
    (!histogram.is_empty()).then(|| Latency::of(histogram, percentiles))
}

/// Returns the warnings of the workload, of wrappers and of a lost run.
fn notes(plan: &Plan, lost: Option<&RunLost>) -> Vec<Note> {
    let text = |text: String| Note::Text { text };
    let mut notes: Vec<Note> = plan.workload.warnings().into_iter().map(text).collect();
    notes.extend(plan.between.warning().map(text));
    notes.extend(lost.map(|lost| match lost.clone() {
        RunLost::Run(AbortCause::Store(error)) => Note::StoreLost { message: error.to_string() },
        RunLost::Run(AbortCause::Workload(message)) => Note::WorkloadEnded { message },
        RunLost::Clients(message) => Note::ClientsLost { message },
    }));
    notes
}

/// Makes the result document of a run.
pub(crate) fn document(
    plan: &Plan,
    ran: &Ran,
    store_facts: Vec<(String, String)>,
    costs: Costs,
    series: Vec<IntervalSummary>,
    command_line: Vec<String>,
) -> ResultDocument {
    let mut percentiles = PERCENTILES.to_vec();
    percentiles.extend(&plan.output.percentiles);
    let record = &ran.record;
    let totals = &record.totals;
    let duration_s = record.duration.as_secs_f64();
    let overall = Overall {
        duration_s,
        warm_up_s: record.warm_up.as_secs_f64(),
        operations: totals.units,
        failed: totals.units_failed,
        throughput: if duration_s > 0.0 { totals.units as f64 / duration_s } else { 0.0 },
        ended_by: record.ended_by.into(),
        client_cpu_s: record.cpu.as_secs_f64(),
    };
    let catalog = crate::properties::catalog();
    let properties = plan.properties.iter().map(|(name, setting)| {
        let ignored = catalog.find(name).is_some_and(|property| property.source == PropertySource::Ignored);
        let value = shown(name, &setting.value);
        let origin =
            if ignored { format!("{} (no effect)", setting.origin) } else { setting.origin.to_string() };
        (name.to_owned(), PropertyFact { value, origin })
    });
    let pacing = plan.options.rate.as_ref().map(|rate| PacingResult {
        schedule: rate.to_string(),
        target: record.due.unwrap_or(0.0) / duration_s.max(f64::MIN_POSITIVE),
        arrivals: plan.options.arrivals.name().to_owned(),
        slack_ns: nanoseconds(record.slack),
        lateness: Latency::of(&totals.lateness, &percentiles),
    });
    let costs = costs.results(plan, record);
    let mut own = notes(plan, ran.lost.as_ref());
    own.extend(costs.notes);
    let mut document = ResultDocument {
        schema_version: SCHEMA_VERSION,
        run: RunFacts {
            serval_version: env!("CARGO_PKG_VERSION").to_owned(),
            label: plan.label.clone(),
            phase: plan.phase_name().to_owned(),
            command_line,
            started: timestamp(record.started),
            store: plan.store.name.to_owned(),
            store_facts: store_facts.into_iter().collect(),
            workload: plan.workload_name.clone(),
            seed: plan.options.seed,
            clients: record.clients as u64,
            execution: ran.execution.clone(),
            properties: properties.collect(),
        },
        environment: crate::environment::environment(),
        warnings: Vec::new(),
        notes: own,
        metrics: metric_results(plan, totals, &record.messages, &percentiles),
        censored: Censored {
            in_flight: record.in_flight.count(),
            not_started: record.not_started.count(),
            in_flight_age: ages(&record.in_flight, &percentiles),
            not_started_age: ages(&record.not_started, &percentiles),
        },
        overall,
        buffered: BufferedResult::of(&totals.buffered),
        pacing,
        steadiness: record.steadiness.clone(),
        // A load is not stationary: the store grows.
        stationarity: record.stationarity.clone().filter(|_| plan.phase_name() == "run"),
        client: match &ran.group {
            Some(group) if !group.clients.is_empty() => group.load(),
            _ => costs.client,
        },
        processes: costs.processes,
        group: ran.group.clone(),
        lag: ran.lag.as_ref().map(|lag| lag.result.clone()),
        series,
    };
    document.notes = serval_report::notes::notes(&document);
    document.warnings = serval_report::notes::lines(&document.notes);
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_rfc_3339() {
        assert_eq!(
            timestamp(SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1500)),
            "1970-01-01T00:00:01.500Z"
        );
    }
}
