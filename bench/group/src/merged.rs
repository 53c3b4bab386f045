//! The sum of what the clients of a group saw: interval by interval while it
//! runs, and as a whole.

use crate::{
    part::ClientPart,
    wire::{IntervalWire, RecordWire, WireError, add},
};
use serval_coordination::{
    clock::{DRIFT, Offset},
    message::ClientFacts,
};
use serval_lag::analysis::{self, Part, PartClock, Setting};
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
use serval_runner::{ClientExecution, EndedBy, Interval, Progress, RunRecord};
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
    /// Clients that only read sampled keys; their reads are not part of the work.
    consumes: Vec<bool>,
    length: Duration,
}

impl Intervals {
    /// Of as many clients; says which of them only read sampled keys. Their intervals are so long as a
    /// rule.
    pub(crate) fn new(consumes: Vec<bool>, length: Duration) -> Intervals {
        let clients = consumes.len();
        Intervals {
            waiting: (0..clients).map(|_| VecDeque::new()).collect(),
            gone: vec![false; clients],
            units: vec![(0, 0); clients],
            missed: 0,
            rates: vec![Vec::new(); clients],
            consumes,
            length,
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

    /// Takes what lies in a window, and adds it up; `None` if no client that works has anything there.
    fn take_window(&mut self, window: &IntervalWindow) -> Option<Interval> {
        let mut sum: Option<Interval> = None;
        let mut rates = Vec::with_capacity(self.rates.len());
        for (client, waiting) in self.waiting.iter_mut().enumerate() {
            let (mut operations, mut length) = (0u64, Duration::ZERO);
            while let Some((interval, units, failed)) =
                waiting.pop_front_if(|(interval, ..)| window.has(interval))
            {
                operations += interval.pairs.values().map(|pair| pair.service.count()).sum::<u64>();
                length += interval.length;
                if self.consumes[client] {
                    continue;
                }
                self.units[client] = (units, failed);
                match &mut sum {
                    None => sum = Some(interval),
                    Some(sum) => {
                        let last = end(sum).max(end(&interval));
                        sum.start = sum.start.min(interval.start);
                        sum.length = last.saturating_sub(sum.start);
                        add(&mut sum.pairs, &interval.pairs);
                        sum.lateness.merge(&interval.lateness);
                        sum.due = both(sum.due, interval.due);
                    }
                }
            }
            rates.push(operations as f64 / length.as_secs_f64().max(1e-9));
        }
        if sum.is_some() {
            self.rates.iter_mut().zip(rates).for_each(|(all, rate)| all.push(rate));
        }
        sum
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

    /// The next time of which there is a sum: from the earliest interval that waits to where all begin
    /// another. A client that stood still has made one long interval of several.
    fn window(&self) -> Option<IntervalWindow> {
        let fronts = || self.waiting.iter().filter_map(|waiting| waiting.front().map(|(front, ..)| front));
        let first = fronts().min_by_key(|front| front.start)?;
        let half = self.length.min(first.length) / 2;
        let mut window = IntervalWindow { end: end(first), half, warm_up: first.warm_up };
        loop {
            let inside = self.waiting.iter().flatten().map(|(interval, ..)| interval);
            let last = inside.filter(|interval| window.has(interval)).map(end).max()?;
            if last <= window.end {
                return Some(window);
            }
            window.end = last;
        }
    }

    /// The sum of the next interval, once all that are there have sent theirs.
    pub(crate) fn next(&mut self) -> Option<(Interval, Progress)> {
        if self.waiting.iter().zip(&self.gone).any(|(waiting, gone)| !gone && waiting.is_empty()) {
            return None;
        }
        let sum = loop {
            let window = self.window()?;
            let told = |waiting: &VecDeque<(Interval, u64, u64)>| {
                waiting.back().is_some_and(|(last, ..)| window.is_over(last))
            };
            if !self.waiting.iter().zip(&self.gone).all(|(waiting, gone)| *gone || told(waiting)) {
                return None;
            }
            // What consumers alone did is in no series.
            if let Some(sum) = self.take_window(&window) {
                break sum;
            }
        };
        let (units, failed) =
            self.units.iter().fold((0, 0), |(a, b), (units, failed)| (a + units, b + failed));
        let progress = Progress { elapsed: sum.start + sum.length, warming_up: sum.warm_up, units, failed };
        Some((sum, progress))
    }
}

/// The sum of the known values; `None` if none is known.
fn both(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(|a, b| a + b)
}

fn end(interval: &Interval) -> Duration {
    interval.start + interval.length
}

/// A span of time whose intervals are added up.
#[derive(Debug)]
struct IntervalWindow {
    end: Duration,
    /// Half of an interval: by so much ends of one differ from client to client at most.
    half: Duration,
    warm_up: bool,
}

impl IntervalWindow {
    fn has(&self, interval: &Interval) -> bool {
        interval.warm_up == self.warm_up && interval.start + self.half < self.end
    }

    /// Whether what comes after this interval lies beyond.
    fn is_over(&self, interval: &Interval) -> bool {
        end(interval) + self.half >= self.end || self.warm_up && !interval.warm_up
    }
}

/// What a client left, or why there is nothing.
#[derive(Debug, Default)]
pub(crate) struct ClientOutcome {
    pub(crate) record: Option<RecordWire>,
    pub(crate) lost: Option<String>,
    /// Whether it was to write in this phase.
    pub(crate) writes: bool,
    /// What its values carry, if it writes sampled keys and has said so.
    pub(crate) writer: Option<u64>,
}

fn latency<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Option<Latency> {
    let mut sum = Histogram::new();
    histograms.for_each(|histogram| sum.merge(histogram));
    (!sum.is_empty()).then(|| Latency::of(&sum, &PERCENTILES))
}

/// What the coordinator saw of the clients.
#[derive(Debug)]
pub(crate) struct CoordinatorView<'a> {
    /// Operations/s of each in each interval.
    pub(crate) rates: &'a [Vec<f64>],
    /// What each had to do.
    pub(crate) parts: &'a [Option<ClientPart>],
    /// The start skew, and the error of the clocks that it was seen by, ns.
    pub(crate) skew: Option<(u64, u64)>,
    /// Offsets of each one's clock at instants of it.
    pub(crate) clocks: &'a [Vec<(u64, Offset)>],
    /// How keys were sampled, if they were.
    pub(crate) setting: Setting,
}

/// What all noted of sampled keys, by the coordinator's clock.
fn lag(
    left: &mut [ClientOutcome],
    seen: &CoordinatorView<'_>,
) -> Result<Option<(LagResult, Vec<LagKey>)>, WireError> {
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
            if left.writes {
                parts.push(Part::lost(left.writer.unwrap_or(0), clock));
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
        execution: ClientExecution::Threads(0),
        lost: None,
        due: None,
        slack: Duration::ZERO,
    }
}

/// The record of the group, of those of its clients. `fatal`: whether a client that was
/// lost ends what they do together.
pub(crate) fn record(
    started: SystemTime,
    facts: &[ClientFacts],
    mut left: Vec<ClientOutcome>,
    seen: &CoordinatorView<'_>,
    fatal: bool,
) -> Result<Ran, WireError> {
    let mut sum = empty(started);
    let lag = lag(&mut left, seen)?.map(|(result, keys)| LagFound { result, keys });
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
            client.lost = client.lost.take().or_else(|| part.lost.clone());
            row(part, &mut client)?;
            if !part_of_work.consumes {
                *executions.entry(&part.execution).or_default() += 1;
                let ended_by = sum.ended_by;
                merge(&mut sum, part)?;
                // The others go on without one that is lost.
                if part.lost.is_some() && !fatal {
                    sum.ended_by = ended_by;
                }
            }
        }
        clients.push(client);
    }
    let nobody = clients.iter().all(|client| client.lost.is_some());
    let executions: Vec<String> = executions
        .into_iter()
        .map(|(how, count)| match count {
            1 => format!("1 process with {how}"),
            count => format!("{count} processes with {how} each"),
        })
        .collect();
    let group = GroupResult {
        clients,
        start_skew_ns: seen.skew.map(|(skew, _)| skew),
        clock_error_ns: seen.skew.map(|(_, error)| error),
        troubles: Vec::new(),
    };
    let lost = ((fatal || nobody) && !lost.is_empty()).then(|| RunLost::Clients(lost.join("; ")));
    if lost.is_some() {
        sum.ended_by = EndedBy::Failed;
    }
    Ok(Ran { record: sum, execution: executions.join(", "), lost, group: Some(group), lag })
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

#[cfg(test)]
mod tests {
    use super::*;
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
        handed_over(&RecordWire::of(&record, None))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// However long clients' intervals are, and whoever stood still when: each sample is in one sum, sums
        /// follow each other, and what is in one was done in its time.
        #[test]
        fn intervals_of_different_lengths_are_added_where_they_lie(
            lengths in prop::collection::vec(prop::collection::vec(1u64..6, 1..12), CLIENTS),
            order in Just((0..CLIENTS * 12).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            const QUARTER: Duration = Duration::from_millis(250);
            // In seconds, each but the first a multiple, and ends that are late by up to a quarter.
            let mut made: Vec<VecDeque<Interval>> = lengths.iter().enumerate().map(|(client, lengths)| {
                let mut start = Duration::ZERO;
                let interval = |(nth, seconds): (usize, &u64)| {
                    let late = QUARTER * ((client + nth) % 2) as u32;
                    let whole = Duration::from_secs(lengths[..=nth].iter().sum());
                    let length = whole + late - start;
                    let pairs = counted([(client, nth, true, true, 1000, 0); 1].iter().cycle().take(*seconds as usize));
                    let made = Interval {
                        start, length, warm_up: false, pairs, paced: false, due: None, lateness: Histogram::new(),
                    };
                    start = whole + late;
                    made
                };
                lengths.iter().enumerate().map(interval).collect()
            }).collect();
            let mut intervals = Intervals::new(vec![false; CLIENTS], Duration::from_secs(1));
            let mut sums = Vec::new();
            for client in order.into_iter().map(|nth| nth % CLIENTS) {
                match made[client].pop_front() {
                    Some(interval) => {
                        intervals.take(client, &handed_over(&IntervalWire::of(&interval, (0, 0), None))).unwrap();
                    }
                    None => intervals.gone(client),
                }
                sums.extend(std::iter::from_fn(|| intervals.next()));
            }
            (0..CLIENTS).for_each(|client| intervals.gone(client));
            sums.extend(std::iter::from_fn(|| intervals.next()));
            let count = |interval: &Interval| interval.pairs.values().map(|pair| pair.service.count()).sum::<u64>();
            let all: u64 = sums.iter().map(|(sum, _)| count(sum)).sum();
            prop_assert_eq!(all, lengths.iter().flatten().sum::<u64>());
            let tolerance = 2 * QUARTER;
            for pair in sums.windows(2) {
                prop_assert!(end(&pair[0].0) <= pair[1].0.start + tolerance, "{:?}", (end(&pair[0].0), pair[1].0.start));
            }
            for (sum, _) in &sums {
                // A sample a second and client.
                let most = CLIENTS as f64 * (sum.length + tolerance).as_secs_f64();
                prop_assert!(count(sum) as f64 <= most, "{} in {:?}", count(sum), sum.length);
            }
            prop_assert!(intervals.rates.iter().all(|rates| rates.len() == sums.len()));
        }

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
            let left = (0..CLIENTS).map(|client| ClientOutcome { record: Some(record_of(&samples, client)), ..ClientOutcome::default() });
            let facts = vec![
                ClientFacts { host: "h".into(), process: 1, version: String::new(), processors: 1, stores: vec![] };
                CLIENTS
            ];
            let parts = ClientPart::even(CLIENTS);
            let seen = CoordinatorView { rates: &[], parts: &parts, skew: None, clocks: &[], setting: Setting::default() };
            let sum = record(SystemTime::UNIX_EPOCH, &facts, left.collect(), &seen, true).unwrap().record;
            // Not compared by an assertion that would print a hundred thousand cells.
            prop_assert!(sum.totals.measured == all, "the whole");
            prop_assert!(sum.totals.lateness == late(samples.iter()), "its lateness");
            prop_assert_eq!(sum.totals.units, samples.len() as u64);

            // Each client's intervals in their order, clients in any.
            let mut intervals = Intervals::new(vec![false; CLIENTS], Duration::from_secs(1));
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
