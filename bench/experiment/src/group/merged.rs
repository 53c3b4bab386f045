//! The sum of what the clients of a group saw: interval by interval while it
//! runs, and as a whole.

use super::wire::{IntervalWire, LagWire, RecordWire, WireError, add};
use serval_coordination::{
    clock::{DRIFT, Offset},
    message::ClientFacts,
};
use serval_lag::analysis::{self, Part, PartClock, Setting};
use serval_measure::{
    document::Latency,
    group::{GroupClient, GroupResult},
    histogram::Histogram,
    lag::{LagKey, LagResult},
    recorder::{Messages, Totals},
};
use serval_runner::{EndedBy, Interval, Lost, Progress, RunRecord};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, SystemTime},
};

/// Intervals of a client that wait for those of others, at most: an hour of seconds. A
/// client that is so far behind is lost long before.
const WAITING_MAX: usize = 3600;

/// Percentiles of a client.
const PERCENTILES: [f64; 4] = [50.0, 95.0, 99.0, 99.9];

/// Intervals of all clients, and the sums of those that are complete.
#[derive(Debug)]
pub(crate) struct Intervals {
    waiting: Vec<VecDeque<(Interval, u64, u64)>>,
    gone: Vec<bool>,
    /// Units of each client by its last interval, and failures.
    units: Vec<(u64, u64)>,
    /// Intervals that could not be kept until those of others had come.
    pub(crate) missed: u64,
    /// Operations/s of each client in each interval.
    pub(crate) rates: Vec<Vec<f64>>,
    /// Those whose reads are not part of the work.
    consumes: Vec<bool>,
}

impl Intervals {
    /// Of as many clients; says which of them only read sampled keys.
    pub(crate) fn new(consumes: Vec<bool>) -> Intervals {
        let clients = consumes.len();
        Intervals {
            waiting: (0..clients).map(|_| VecDeque::new()).collect(),
            gone: vec![false; clients],
            units: vec![(0, 0); clients],
            missed: 0,
            rates: vec![Vec::new(); clients],
            consumes,
        }
    }

    /// A client's next interval.
    pub(crate) fn take(&mut self, client: usize, wire: &IntervalWire) -> Result<(), WireError> {
        let interval = wire.interval()?;
        match self.waiting.get_mut(client) {
            Some(waiting) if waiting.len() < WAITING_MAX => {
                waiting.push_back((interval, wire.units, wire.failed));
            }
            _ => self.missed += 1,
        }
        Ok(())
    }

    /// A client that sends no more: it has ended, or is lost.
    pub(crate) fn gone(&mut self, client: usize) {
        if let Some(gone) = self.gone.get_mut(client) {
            *gone = true;
        }
    }

    /// Whether it sends no more.
    pub(crate) fn is_gone(&self, client: usize) -> bool {
        self.gone.get(client).is_none_or(|gone| *gone)
    }

    /// The sum of the next interval, once all that are there have sent theirs.
    pub(crate) fn next(&mut self) -> Option<(Interval, Progress)> {
        let complete =
            self.waiting.iter().zip(&self.gone).all(|(waiting, gone)| *gone || !waiting.is_empty());
        if !complete || self.waiting.iter().all(VecDeque::is_empty) {
            return None;
        }
        let mut sum: Option<Interval> = None;
        for (client, waiting) in self.waiting.iter_mut().enumerate() {
            let Some((interval, units, failed)) = waiting.pop_front() else {
                self.rates[client].push(0.0);
                continue;
            };
            let operations: u64 = interval.pairs.values().map(|pair| pair.service.count()).sum();
            self.rates[client].push(operations as f64 / interval.length.as_secs_f64().max(1e-9));
            if self.consumes[client] {
                continue;
            }
            self.units[client] = (units, failed);
            match &mut sum {
                None => sum = Some(interval),
                Some(sum) => {
                    sum.start = sum.start.min(interval.start);
                    sum.length = sum.length.max(interval.length);
                    add(&mut sum.pairs, &interval.pairs);
                    sum.lateness.merge(&interval.lateness);
                    sum.due = match (sum.due, interval.due) {
                        (Some(a), Some(b)) => Some(a + b),
                        (a, b) => a.or(b),
                    };
                }
            }
        }
        let sum = sum?;
        let (units, failed) =
            self.units.iter().fold((0, 0), |(a, b), (units, failed)| (a + units, b + failed));
        let progress = Progress { elapsed: sum.start + sum.length, warming_up: sum.warm_up, units, failed };
        Some((sum, progress))
    }
}

/// What a client left, or why there is nothing.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) record: Option<RecordWire>,
    pub(crate) lost: Option<String>,
    /// What its values carry, if it writes sampled keys.
    pub(crate) writer: Option<u64>,
}

fn latency<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Option<Latency> {
    let mut sum = Histogram::new();
    histograms.for_each(|histogram| sum.merge(histogram));
    (!sum.is_empty()).then(|| Latency::of(&sum, &PERCENTILES))
}

/// What the coordinator saw of the clients.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    /// Operations/s of each in each interval.
    pub(crate) rates: &'a [Vec<f64>],
    /// What each had to do.
    pub(crate) parts: &'a [Option<super::Part>],
    /// The start skew, and the error of the clocks that it was seen by, ns.
    pub(crate) skew: Option<(u64, u64)>,
    /// Offsets of each one's clock at instants of it.
    pub(crate) clocks: &'a [Vec<(u64, Offset)>],
    /// How keys were sampled, if they were.
    pub(crate) setting: Setting,
}

/// What all noted of sampled keys, by the coordinator's clock.
fn lag(left: &mut [Left], seen: &Seen<'_>) -> Result<Option<(LagResult, Vec<LagKey>)>, WireError> {
    let mut setting = seen.setting.clone();
    let mut parts = Vec::new();
    for (number, left) in left.iter_mut().enumerate() {
        let offsets = seen.clocks.get(number).map(Vec::as_slice).unwrap_or_default();
        let offset = |(at, offset): &(u64, Offset)| analysis::Offset {
            at: *at,
            ahead: offset.ahead,
            error: offset.error,
            drift: DRIFT,
        };
        let clock = PartClock::Known(offsets.iter().map(offset).collect());
        let Some(record) = left.record.as_mut() else {
            // Its notes are lost with it; what it put into the queue is not.
            parts.extend(left.writer.map(|writer| Part::lost(writer, clock)));
            continue;
        };
        let Some(LagWire { mut journal, consumers, queue }) = record.lag.take() else { continue };
        if !journal.is_sound() {
            return Err(WireError::Unknown("a key that it does not name".to_owned()));
        }
        setting.consumers += consumers;
        setting.queue = queue;
        // A group's queue is its own: what is there early is of its own producers.
        journal.counts.from_before = 0;
        parts.push(Part { journal, clock, lost: false });
    }
    Ok(parts.iter().any(|part| !part.lost).then(|| analysis::analyse(&parts, setting)))
}

/// One to which nothing was added yet.
fn empty(started: SystemTime) -> RunRecord {
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
        execution: String::new(),
        lost: None,
        due: None,
        slack: Duration::ZERO,
        group: None,
        lag: None,
        lag_keys: Vec::new(),
    }
}

/// The record of the group, of those of its clients. `fatal`: whether a client that was
/// lost ends what they do together.
pub(crate) fn record(
    started: SystemTime,
    facts: &[ClientFacts],
    mut left: Vec<Left>,
    seen: &Seen<'_>,
    fatal: bool,
) -> Result<RunRecord, WireError> {
    let mut sum = empty(started);
    if let Some((found, keys)) = lag(&mut left, seen)? {
        (sum.lag, sum.lag_keys) = (Some(found), keys);
    }
    let (mut clients, mut lost) = (Vec::new(), Vec::new());
    let mut executions = BTreeMap::<&str, usize>::new();
    for (number, (facts, left)) in facts.iter().zip(&left).enumerate() {
        // Those that take no part are left out.
        let Some(Some(part_of_work)) = seen.parts.get(number) else { continue };
        let share = part_of_work.label();
        let mut client = GroupClient {
            host: facts.host.clone(),
            process: facts.process,
            share: share.clone(),
            rates: seen.rates.get(number).cloned().unwrap_or_default(),
            lost: left.lost.clone(),
            ..GroupClient::default()
        };
        lost.extend(left.lost.iter().map(|why| format!("client {share}, {}, {why}", facts.name())));
        if let Some(part) = &left.record {
            lost.extend(part.lost.iter().map(|why| format!("client {share}, {}: {why}", facts.name())));
            row(part, &mut client)?;
            if !part_of_work.consumes {
                *executions.entry(&part.execution).or_default() += 1;
                merge(&mut sum, part)?;
            }
        }
        clients.push(client);
    }
    let executions: Vec<String> =
        executions.into_iter().map(|(how, count)| format!("{count} processes with {how} each")).collect();
    sum.execution = executions.join(", ");
    sum.group = Some(GroupResult {
        clients,
        start_skew_ns: seen.skew.map(|(skew, _)| skew),
        clock_error_ns: seen.skew.map(|(_, error)| error),
        troubles: Vec::new(),
    });
    if fatal && !lost.is_empty() {
        sum.lost = Some(Lost::Clients(lost.join("; ")));
        sum.ended_by = EndedBy::Failed;
    }
    Ok(sum)
}

/// What counts more of the ways in which clients ended.
fn worse(a: EndedBy, b: EndedBy) -> EndedBy {
    let rank = |ended| match ended {
        EndedBy::Count => 0,
        EndedBy::Stopped => 1,
        EndedBy::Time => 2,
        EndedBy::Interrupted => 3,
        EndedBy::Failed => 4,
    };
    if rank(b) > rank(a) { b } else { a }
}

/// What a client did, for its row.
fn row(part: &RecordWire, client: &mut GroupClient) -> Result<(), WireError> {
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

/// Adds what a client did to what all did.
fn merge(sum: &mut RunRecord, part: &RecordWire) -> Result<(), WireError> {
    let duration = Duration::from_nanos(part.duration_ns);
    let totals = part.totals()?;
    let (in_flight, not_started) = part.unfinished()?;
    sum.duration = sum.duration.max(duration);
    sum.warm_up = sum.warm_up.max(Duration::from_nanos(part.warm_up_ns));
    sum.ended_by = worse(sum.ended_by, part.ended_by()?);
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
    sum.due = match (sum.due, part.due) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    sum.slack = sum.slack.max(Duration::from_nanos(part.slack_ns));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Part;
    use proptest::prelude::*;
    use serval_measure::recorder::Pair;
    use serval_model::{Metric, Status};

    const CLIENTS: usize = 4;
    const INTERVALS: usize = 5;

    /// An operation: who did it, in which interval, what it was, how it ended, and its service
    /// time and lateness, ns.
    type Sample = (usize, usize, bool, bool, u64, u64);

    fn count(pairs: &mut BTreeMap<(Metric, Status), Pair>, sample: &Sample) {
        let &(_, _, reads, ok, service, late) = sample;
        let metric = if reads { Metric::READ } else { Metric::UPDATE };
        let pair = pairs.entry((metric, if ok { Status::Ok } else { Status::Error })).or_default();
        pair.service.record(service);
        pair.response.record(service + late);
    }

    fn counted<'a>(samples: impl Iterator<Item = &'a Sample>) -> BTreeMap<(Metric, Status), Pair> {
        let mut pairs = BTreeMap::new();
        samples.for_each(|sample| count(&mut pairs, sample));
        pairs
    }

    fn late<'a>(samples: impl Iterator<Item = &'a Sample>) -> Histogram {
        let mut all = Histogram::new();
        samples.for_each(|sample| all.record(sample.5));
        all
    }

    /// What a client hands over, through the bytes in which it does.
    fn handed_over<W: serde::Serialize + serde::de::DeserializeOwned>(wire: &W) -> W {
        serde_json::from_slice(&serde_json::to_vec(wire).unwrap()).unwrap()
    }

    fn record_of(samples: &[Sample], client: usize) -> RecordWire {
        let own = || samples.iter().filter(|sample| sample.0 == client);
        let mut record = empty(SystemTime::UNIX_EPOCH);
        record.totals.measured = counted(own());
        record.totals.lateness = late(own());
        record.totals.units = own().count() as u64;
        record.totals.units_failed = own().filter(|sample| !sample.3).count() as u64;
        record.totals.paced = true;
        handed_over(&RecordWire::of(&record, None, Vec::new()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// However samples lie among clients and intervals, and in whatever order intervals come:
        /// the sum's histograms are those of all samples, and so are its percentiles.
        #[test]
        fn sums_are_the_histograms_of_all_samples(
            samples in prop::collection::vec(
                (0..CLIENTS, 0..INTERVALS, any::<bool>(), any::<bool>(), 0..20_000_000_000u64, 0..5_000_000u64),
                1..400,
            ),
            order in Just((0..CLIENTS * INTERVALS).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let all = counted(samples.iter());
            let left = (0..CLIENTS).map(|client| Left { record: Some(record_of(&samples, client)), ..Left::default() });
            let facts = vec![
                ClientFacts { host: "h".into(), process: 1, version: String::new(), processors: 1, stores: vec![] };
                CLIENTS
            ];
            let parts = Part::even(CLIENTS);
            let seen = Seen { rates: &[], parts: &parts, skew: None, clocks: &[], setting: Setting::default() };
            let sum = record(SystemTime::UNIX_EPOCH, &facts, left.collect(), &seen, true).unwrap();
            // Not compared by an assertion that would print a hundred thousand cells.
            prop_assert!(sum.totals.measured == all, "the whole");
            prop_assert!(sum.totals.lateness == late(samples.iter()), "its lateness");
            prop_assert_eq!(sum.totals.units, samples.len() as u64);

            // Each client's intervals in their order, clients in any.
            let mut intervals = Intervals::new(vec![false; CLIENTS]);
            let (mut next, mut sums) = ([0; CLIENTS], Vec::new());
            for client in order.into_iter().map(|nth| nth % CLIENTS) {
                let nth = next[client];
                next[client] += 1;
                let own = || samples.iter().filter(|sample| (sample.0, sample.1) == (client, nth));
                let interval = Interval {
                    start: Duration::from_secs(nth as u64),
                    length: Duration::from_secs(1),
                    warm_up: false,
                    pairs: counted(own()),
                    paced: true,
                    due: None,
                    lateness: late(own()),
                };
                intervals.take(client, &handed_over(&IntervalWire::of(&interval, (0, 0), None))).unwrap();
                sums.extend(std::iter::from_fn(|| intervals.next()));
            }
            prop_assert_eq!(sums.len(), INTERVALS);
            for (nth, (sum, _)) in sums.iter().enumerate() {
                let own = || samples.iter().filter(|sample| sample.1 == nth);
                prop_assert!(sum.pairs == counted(own()), "interval {}", nth);
                prop_assert!(sum.lateness == late(own()), "lateness of interval {}", nth);
            }
        }
    }
}
