//! Notes derived from the numbers of a result, most severe first.

use crate::{
    document::{EndedBy, ResultDocument},
    flags::{self, Offered},
    group::GroupResult,
    lag::LagResult,
    latency::Latency,
    load::{Stationarity, Steadiness},
    metric::MetricResult,
    note::{ClientName, GroupNote, LagNote, Note},
};
use std::cmp::Reverse;

/// Most messages in the note of an operation.
const MESSAGES_MAX: usize = 3;

/// Share of the 99th percentile of response times above which lateness is
/// reported.
const LATENESS_MATTERS: f64 = 0.1;

/// Lateness that is not reported: the cost of a timer and a context switch on
/// a healthy machine.
const LATENESS_USUAL_NS: u64 = 200_000;

/// Drift above which a warm-up is reported as not steady. Below it, noise
/// hides whether the run is steady.
const DRIFT_SEEN: f64 = 0.02;

/// Start skew plus clock error above which they are reported, ns.
const SKEW_NS: u64 = 2_000_000;

/// Returns the notes of a result.
pub fn derived(document: &ResultDocument) -> Vec<Note> {
    let mut notes = Vec::new();
    let overall = &document.overall;
    // First, since such numbers say little about the store.
    notes.extend(document.client_bounds().iter().map(|reason| Note::ClientBound { reason: reason.clone() }));
    notes.extend(document.group.iter().flat_map(of_group).map(Note::Group));
    notes.extend(match overall.ended_by.known() {
        Some(EndedBy::Interrupted) => Some(Note::Interrupted),
        Some(EndedBy::Failed) => Some(Note::Failed),
        _ => None,
    });
    notes.extend(document.steadiness.as_ref().and_then(|steadiness| unsteady(steadiness, overall.warm_up_s)));
    notes.extend(document.stationarity.iter().flat_map(of_stationarity));
    notes.extend(unfinished(document));
    if let Some(buffered) = document.buffered.as_ref().filter(|buffered| buffered.not_done() > 0) {
        let (sent, lost, unsent) = (buffered.sent, buffered.lost, buffered.unsent);
        notes.push(Note::BufferedWritesNotDone { sent, lost, unsent });
    }
    let of_lag = document.lag.iter().flat_map(|lag| of_lag(lag, document.buffered.is_some()));
    notes.extend(of_lag.map(Note::Lag));
    notes.extend(document.metrics.iter().filter_map(failures));
    if let Some(offered) = Offered::of(document).filter(Offered::is_missed) {
        notes.push(Note::TargetMissed { target: offered.target, throughput: offered.throughput });
    }
    notes.extend(late(document));
    if document.environment.debug {
        notes.push(Note::DebugBuild);
    }
    if overall.operations == 0 {
        notes.push(Note::NoOperations);
    } else if flags::has_few_samples(document) {
        notes.push(Note::FewOperations { operations: overall.operations });
    }
    notes
}

fn of_group(group: &GroupResult) -> Vec<GroupNote> {
    let mut notes = Vec::new();
    let named = || {
        group.clients.iter().map(|client| {
            let (share, host) = (client.share.clone(), client.host.clone());
            (ClientName { share, host, process: client.process }, client)
        })
    };
    notes.extend(named().filter_map(|(name, client)| {
        let why = client.lost.clone()?;
        Some(GroupNote::ClientLost { client: name, why, operations: client.operations })
    }));
    let clock_error_ns = group.clock_error_ns.unwrap_or(0);
    let apart_ns = group.start_skew_ns.unwrap_or(0).saturating_add(clock_error_ns);
    if apart_ns > SKEW_NS {
        notes.push(GroupNote::StartApart { apart_ns, clock_error_ns });
    }
    notes.extend(group.troubles.iter().map(|trouble| GroupNote::Trouble { trouble: trouble.clone() }));
    notes.extend(named().flat_map(|(name, client)| {
        let said = client.warnings.iter();
        said.map(move |text| GroupNote::ClientWarning { client: name.clone(), text: text.clone() })
    }));
    notes
}

/// Returns the note of an unsteady run.
fn unsteady(steadiness: &Steadiness, warm_up_s: f64) -> Option<Note> {
    let Steadiness { steady, throughput_drift, service_drift, window_s, .. } = *steadiness;
    if steady {
        return None;
    }
    Some(if throughput_drift.abs().max(service_drift.abs()) < DRIFT_SEEN {
        Note::SteadinessUnknown { warm_up_s }
    } else {
        Note::NotSteady { warm_up_s, window_s, throughput_drift, service_drift }
    })
}

/// Returns the notes of stalls and changes.
fn of_stationarity(stationarity: &Stationarity) -> impl Iterator<Item = Note> {
    let Stationarity { judged_s, throughput, service, stalls } = stationarity.clone();
    let stalled = stalls.map(|stalls| Note::Stalled { stalls, judged_s });
    let changes = throughput.is_some() || service.is_some();
    let changed = changes.then_some(Note::Changed { throughput, service, judged_s });
    stalled.into_iter().chain(changed)
}

fn unfinished(document: &ResultDocument) -> Option<Note> {
    let censored = &document.censored;
    let (in_flight, not_started) = (censored.in_flight, censored.not_started);
    let ages = [&censored.in_flight_age, &censored.not_started_age];
    let oldest_ns = ages.into_iter().flatten().map(|age| age.max_ns).max();
    let operations = document.overall.operations;
    (censored.unfinished() > 0).then_some(Note::Unfinished { in_flight, not_started, oldest_ns, operations })
}

fn of_lag(lag: &LagResult, buffered: bool) -> Vec<LagNote> {
    let (writes, keys) = (&lag.writes, &lag.keys);
    let all = [
        (
            writes.not_carried,
            LagNote::NotCarried { not_carried: writes.not_carried, carried: writes.carried },
        ),
        (keys.censored, LagNote::NotFound { keys: keys.censored, buffered }),
        (keys.not_taken, LagNote::NotTaken { keys: keys.not_taken }),
        (keys.undecided, LagNote::Undecided { keys: keys.undecided }),
        (writes.not_noted, LagNote::NotNoted { operations: writes.not_noted }),
        (writes.too_short, LagNote::TooShort { writes: writes.too_short }),
        (writes.from_before, LagNote::FromBefore { keys: writes.from_before }),
        (writes.foreign, LagNote::Foreign { entries: writes.foreign }),
        (lag.reads_failed, LagNote::ReadsFailed { failed: lag.reads_failed, reads: lag.reads }),
    ];
    all.into_iter().filter_map(|(number, note)| (number > 0).then_some(note)).collect()
}

fn failures(metric: &MetricResult) -> Option<Note> {
    let failed = metric.failures();
    if failed.is_empty() {
        return None;
    }
    let mut messages = metric.messages.clone();
    messages.sort_by_key(|message| Reverse(message.count));
    let more_messages = messages.len().saturating_sub(MESSAGES_MAX) as u64;
    messages.truncate(MESSAGES_MAX);
    let (operation, count) = (metric.name.clone(), metric.count());
    Some(Note::OperationsFailed { operation, count, failed, messages, more_messages })
}

fn late(document: &ResultDocument) -> Option<Note> {
    let pacing = document.pacing.as_ref()?;
    let p99_ns = pacing.lateness.percentile(99.0)?;
    let of_metric = |metric: &MetricResult| metric.ok.as_ref()?.response.percentile(99.0);
    let response = document.metrics.iter().filter_map(of_metric).max()?;
    if p99_ns < LATENESS_USUAL_NS || (p99_ns as f64) < response as f64 * LATENESS_MATTERS {
        return None;
    }
    let Latency { max_ns, .. } = pacing.lateness;
    let slack_ns = (p99_ns <= pacing.slack_ns.saturating_mul(2)).then_some(pacing.slack_ns);
    Some(Note::StartedLate { p99_ns, max_ns, slack_ns })
}
