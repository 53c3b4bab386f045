//! The record of a group: the sum of its clients' records.

use crate::{
    part::ClientPart,
    wire::{RecordWire, WireError, add, both},
};
use serval_coordination::{
    clock::{ClockOffset, DRIFT},
    message::ClientFacts,
};
use serval_lag::analysis::{self, LagSettings, PartClock, ProcessJournal};
use serval_measure::{
    histogram::Histogram,
    recorder::{Messages, Totals},
};
use serval_plan::{
    lag::LagNotes,
    session::{LagFound, Ran, RunLost},
};
use serval_result::{
    document::Latency,
    group::{GroupClient, GroupResult},
    lag::{LagKey, LagResult},
};
use serval_runner::{ClientExecution, EndedBy, RunRecord};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

/// Percentiles of a client.
const PERCENTILES: [f64; 4] = [50.0, 95.0, 99.0, 99.9];

/// Outcome of a client in a phase: its record, or the reason for which there is none.
#[derive(Debug, Default)]
pub(crate) struct ClientOutcome {
    pub(crate) record: Option<RecordWire>,
    pub(crate) lost: Option<String>,
    /// Whether the client writes in this phase.
    pub(crate) writes: bool,
    /// Number of the client as a writer, if it stamps sampled keys and has reported it.
    pub(crate) writer: Option<u64>,
}

fn latency<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Option<Latency> {
    let mut sum = Histogram::new();
    histograms.for_each(|histogram| sum.merge(histogram));
    (!sum.is_empty()).then(|| Latency::of(&sum, &PERCENTILES))
}

/// The coordinator's observations of the clients.
#[derive(Debug)]
pub(crate) struct CoordinatorView<'a> {
    /// Operations/s of each client in each interval.
    pub(crate) rates: &'a [Vec<f64>],
    /// Each client's part of the plan.
    pub(crate) parts: &'a [Option<ClientPart>],
    /// The start skew, and the error of the clocks that measured it, ns.
    pub(crate) skew: Option<(u64, u64)>,
    /// Offsets of each client's clock at instants of that clock.
    pub(crate) clocks: &'a [Vec<(u64, ClockOffset)>],
    /// Settings of the sampling of keys.
    pub(crate) setting: LagSettings,
}

/// Analyses the journals of all clients by the coordinator's clock.
fn lag(
    outcomes: &mut [ClientOutcome],
    view: &CoordinatorView<'_>,
) -> Result<Option<(LagResult, Vec<LagKey>)>, WireError> {
    let mut setting = view.setting.clone();
    let mut parts = Vec::new();
    for (number, outcome) in outcomes.iter_mut().enumerate() {
        let offsets = view.clocks.get(number).map(Vec::as_slice).unwrap_or_default();
        let offset = |(at, offset): &(u64, ClockOffset)| analysis::OffsetSample {
            at: *at,
            ahead: offset.ahead,
            error: offset.error,
            drift: DRIFT,
        };
        let clock = PartClock::Known(offsets.iter().map(offset).collect());
        let Some(record) = outcome.record.as_mut() else {
            // The client's journal is lost; the items that it put into the queue are not.
            if outcome.writes {
                parts.push(ProcessJournal::lost(outcome.writer.unwrap_or(0), clock));
            }
            continue;
        };
        let Some(LagNotes { mut journal, consumers, queue }) = record.lag.take() else { continue };
        if !journal.is_sound() {
            return Err(WireError::Unknown("a key that it does not name".to_owned()));
        }
        setting.consumers += consumers;
        setting.queue = queue;
        // A group's queue is its own: early items come from its own producers.
        journal.counts.from_before = 0;
        parts.push(ProcessJournal { journal, clock, lost: false });
    }
    Ok(parts.iter().any(|part| !part.lost).then(|| analysis::analyse(&parts, setting)))
}

/// Returns a record to which [`merge`] adds those of clients.
pub(crate) fn empty(started: SystemTime) -> RunRecord {
    RunRecord {
        started,
        began: None,
        duration: Duration::ZERO,
        warm_up: Duration::ZERO,
        steadiness: None,
        stationarity: None,
        ended_by: EndedBy::Count,
        totals: Totals::default(),
        messages: Messages::new(),
        legacy: Vec::new(),
        in_flight: Histogram::new(),
        not_started: Histogram::new(),
        cpu: Duration::ZERO,
        client_time: Duration::ZERO,
        clients: 0,
        execution: ClientExecution::Threads(0),
        lost: None,
        due: None,
        slack: Duration::ZERO,
    }
}

/// Returns the record of the group from those of its clients. `fatal`: whether a lost client ends the run.
pub(crate) fn record(
    started: SystemTime,
    facts: &[ClientFacts],
    mut outcomes: Vec<ClientOutcome>,
    view: &CoordinatorView<'_>,
    fatal: bool,
) -> Result<Ran, WireError> {
    let mut sum = empty(started);
    let lag = lag(&mut outcomes, view)?.map(|(result, keys)| LagFound { result, keys });
    let (mut clients, mut lost) = (Vec::new(), Vec::new());
    let mut executions = BTreeMap::<&str, usize>::new();
    for (number, (facts, outcome)) in facts.iter().zip(&outcomes).enumerate() {
        // Clients without a part have no row.
        let Some(Some(part_of_work)) = view.parts.get(number) else { continue };
        let share = part_of_work.label();
        let mut client = GroupClient {
            host: facts.host.clone(),
            process: facts.process,
            share: share.clone(),
            rates: view.rates.get(number).cloned().unwrap_or_default(),
            lost: outcome.lost.clone(),
            ..GroupClient::default()
        };
        lost.extend(outcome.lost.iter().map(|why| format!("client {share}, {}, {why}", facts.name())));
        if let Some(part) = &outcome.record {
            lost.extend(part.lost.iter().map(|why| format!("client {share}, {}: {why}", facts.name())));
            client.lost = client.lost.take().or_else(|| part.lost.clone());
            fill_row(part, &mut client)?;
            if !part_of_work.consumes {
                *executions.entry(&part.execution).or_default() += 1;
                let ended_by = sum.ended_by;
                merge(&mut sum, part)?;
                // The other clients continue without a lost one.
                if part.lost.is_some() && !fatal {
                    sum.ended_by = ended_by;
                }
            }
        }
        clients.push(client);
    }
    let all_lost = clients.iter().all(|client| client.lost.is_some());
    let executions: Vec<String> = executions
        .into_iter()
        .map(|(how, count)| match count {
            1 => format!("1 process with {how}"),
            count => format!("{count} processes with {how} each"),
        })
        .collect();
    let group = GroupResult {
        clients,
        start_skew_ns: view.skew.map(|(skew, _)| skew),
        clock_error_ns: view.skew.map(|(_, error)| error),
        troubles: Vec::new(),
    };
    let lost = ((fatal || all_lost) && !lost.is_empty()).then(|| RunLost::Clients(lost.join("; ")));
    if lost.is_some() {
        sum.ended_by = EndedBy::Failed;
    }
    Ok(Ran { record: sum, execution: executions.join(", "), lost, group: Some(group), lag })
}

/// Fills a client's row from its record.
fn fill_row(part: &RecordWire, client: &mut GroupClient) -> Result<(), WireError> {
    let duration = Duration::from_nanos(part.duration_ns);
    let totals = part.totals()?;
    let ok = totals.measured.iter().filter(|((metric, status), _)| status.is_ok() && metric.is_operation());
    let times = ok.map(|(_, pair)| if totals.paced { &pair.response } else { &pair.service });
    client.clients = part.clients as u64;
    client.operations = part.units;
    client.failed = part.units_failed;
    client.throughput = part.units as f64 / duration.as_secs_f64().max(1e-9);
    client.response = latency(times);
    client.lateness = latency([&totals.lateness].into_iter());
    client.load = part.load.clone();
    client.warnings = part.warnings.clone();
    Ok(())
}

/// Adds a client's record to the group's.
fn merge(sum: &mut RunRecord, part: &RecordWire) -> Result<(), WireError> {
    let duration = Duration::from_nanos(part.duration_ns);
    let totals = part.totals()?;
    let (in_flight, not_started) = part.unfinished()?;
    sum.duration = sum.duration.max(duration);
    sum.warm_up = sum.warm_up.max(Duration::from_nanos(part.warm_up_ns));
    sum.ended_by = sum.ended_by.max(part.ended_by);
    add(&mut sum.totals.warm_up, &totals.warm_up);
    add(&mut sum.totals.measured, &totals.measured);
    sum.totals.lateness.merge(&totals.lateness);
    sum.totals.overslept += totals.overslept;
    sum.totals.units += totals.units;
    sum.totals.units_failed += totals.units_failed;
    sum.totals.buffered.merge(&totals.buffered);
    sum.totals.paced |= totals.paced;
    for (key, count) in part.messages()? {
        *sum.messages.entry(key).or_default() += count;
    }
    sum.in_flight.merge(&in_flight);
    sum.not_started.merge(&not_started);
    sum.cpu += Duration::from_nanos(part.cpu_ns);
    sum.client_time += Duration::from_nanos(part.client_time_ns);
    sum.clients += part.clients;
    sum.due = both(sum.due, part.due);
    sum.slack = sum.slack.max(Duration::from_nanos(part.slack_ns));
    Ok(())
}
