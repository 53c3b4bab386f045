//! Recorders of operations: histograms, counts and messages, one recorder per thread.

use crate::{
    histogram::{Histogram, HistogramReader, HistogramWriter},
    legacy::{LegacyKind, LegacyMeasurements},
    raw::{RawLog, RawSample, RawWriter},
    times::Times,
};
use serval_model::{Flush, Metric, Outcome, Status};
use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

const STATUSES: usize = Status::ALL.len();
const SLOTS: usize = Metric::COUNT * STATUSES;

/// Largest number of different messages of a metric and status, for one thread. A store may put
/// keys into its messages, which must neither fill memory nor hide other failures. Further
/// messages count as [`OTHER_MESSAGES`].
pub const MESSAGES_MAX: usize = 64;

/// Stands for the messages beyond [`MESSAGES_MAX`].
pub const OTHER_MESSAGES: &str = "(other messages)";

/// Messages of a store about failures, with their numbers.
pub type Messages = BTreeMap<(Metric, Status, Box<str>), u64>;

/// Writers of the histograms of both times.
#[derive(Debug, Default)]
struct PairWriter {
    service: HistogramWriter,
    response: HistogramWriter,
}

/// Readers of the same histograms.
#[derive(Debug)]
struct PairReader {
    service: HistogramReader,
    response: HistogramReader,
    /// Inserts in these operations, if they are batches; written by the handle only.
    batched: AtomicU64,
}

/// Measurements of one thread, in the warm-up and after it. Its [`RecorderHandle`] writes it, any
/// thread may read it.
#[derive(Debug)]
pub struct Recorder {
    warm_up: Box<[OnceLock<PairReader>]>,
    measured: Box<[OnceLock<PairReader>]>,
    messages: Mutex<Messages>,
    legacy: Option<Mutex<LegacyMeasurements>>,
    /// Whether response times differ from service times.
    paced: bool,
    lateness: HistogramReader,
    overslept: AtomicU64,
    units: AtomicU64,
    units_failed: AtomicU64,
    flushed: AtomicU64,
    flushed_lost: AtomicU64,
    warmed: AtomicU64,
    warmed_ns: AtomicU64,
}

/// Measurements beyond histograms.
#[derive(Debug, Clone, Default)]
pub struct RecorderOptions {
    /// Whether operations have intended starts.
    pub paced: bool,
    /// One of YCSB's measurement types from before HdrHistogram.
    pub legacy: Option<LegacyKind>,
    /// Log of every single time.
    pub raw: Option<RawLog>,
}

fn slots<T: Default>() -> Box<[T]> {
    (0..SLOTS).map(|_| T::default()).collect()
}

fn slot(metric: Metric, status: Status) -> usize {
    metric.index() * STATUSES + status as usize
}

impl Recorder {
    /// Creates a recorder and the handle that writes it.
    pub fn new(options: &RecorderOptions) -> (Arc<Recorder>, RecorderHandle) {
        let lateness = HistogramWriter::new();
        let recorder = Arc::new(Recorder {
            warm_up: slots(),
            measured: slots(),
            messages: Mutex::default(),
            legacy: options.legacy.map(|kind| Mutex::new(LegacyMeasurements::new(kind))),
            paced: options.paced,
            lateness: lateness.reader(),
            overslept: AtomicU64::new(0),
            units: AtomicU64::new(0),
            units_failed: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            flushed_lost: AtomicU64::new(0),
            warmed: AtomicU64::new(0),
            warmed_ns: AtomicU64::new(0),
        });
        let raw = options.raw.as_ref().map(|log| RefCell::new(log.writer()));
        let handle = RecorderHandle {
            warm_up: slots(),
            measured: slots(),
            lateness,
            paced: options.paced,
            records_more: options.raw.is_some() || options.legacy.is_some(),
            recorder: Arc::clone(&recorder),
            raw,
        };
        (recorder, handle)
    }

    /// Returns the number of units (operations of the workload) finished after the warm-up, and the
    /// number of these that failed.
    pub fn units(&self) -> (u64, u64) {
        (self.units.load(Relaxed), self.units_failed.load(Relaxed))
    }

    /// Returns the number of operations that have ended (operations of the store in the warm-up,
    /// units after it), and the sum of the operations' service times in ns, which wraps. Cheap
    /// enough for many calls a second.
    pub fn ended(&self) -> (u64, u64) {
        let operations = Metric::all().filter(|metric| metric.is_operation());
        let slots = operations.flat_map(|metric| {
            let first = metric.index() * STATUSES;
            &self.measured[first..first + STATUSES]
        });
        let measured = slots.filter_map(|slot| Some(slot.get()?.service.sum()));
        let ns = measured.fold(self.warmed_ns.load(Relaxed), u64::wrapping_add);
        (self.warmed.load(Relaxed) + self.units.load(Relaxed), ns)
    }

    /// Adds everything recorded so far to `totals`.
    pub fn add_to(&self, totals: &mut Totals) {
        let add = |slots: &[OnceLock<PairReader>], sum: &mut BTreeMap<(Metric, Status), Pair>| {
            for (index, pair) in slots.iter().enumerate() {
                let (Some(pair), Some(metric)) = (pair.get(), Metric::from_index(index / STATUSES)) else {
                    continue;
                };
                let sum = sum.entry((metric, Status::ALL[index % STATUSES])).or_default();
                pair.service.add_to(&mut sum.service);
                if self.paced {
                    pair.response.add_to(&mut sum.response);
                }
                sum.batched = sum.batched.saturating_add(pair.batched.load(Relaxed));
            }
        };
        add(&self.warm_up, &mut totals.warm_up);
        add(&self.measured, &mut totals.measured);
        self.lateness.add_to(&mut totals.lateness);
        totals.overslept += self.overslept.load(Relaxed);
        let (units, failed) = self.units();
        totals.units += units;
        totals.units_failed += failed;
        totals.buffered.sent += self.flushed.load(Relaxed);
        totals.buffered.lost += self.flushed_lost.load(Relaxed);
        totals.paced |= self.paced;
    }

    /// Returns the messages of the store with their numbers.
    pub fn messages(&self) -> Messages {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the measurements of YCSB's older types.
    pub fn legacy(&self) -> Option<LegacyMeasurements> {
        Some(self.legacy.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// The only writer of a [`Recorder`]. Stays on its thread: its histograms' writers are not `Sync`.
#[derive(Debug)]
pub struct RecorderHandle {
    warm_up: Box<[OnceCell<PairWriter>]>,
    measured: Box<[OnceCell<PairWriter>]>,
    lateness: HistogramWriter,
    paced: bool,
    /// Whether there is a raw log or an older measurement type.
    records_more: bool,
    recorder: Arc<Recorder>,
    raw: Option<RefCell<RawWriter>>,
}

/// Origin of a sample: the client, the end, and the part of the run.
#[derive(Debug, Clone, Copy)]
pub struct SampleOrigin {
    /// Whether it ended in the warm-up, which results omit.
    pub warm_up: bool,
    /// The client, from 0.
    pub client: u32,
    /// The end, ns since the start of the run.
    pub end_ns: u64,
}

impl RecorderHandle {
    /// Records the times of an operation under its metric and status.
    #[inline]
    pub fn record(&self, metric: Metric, outcome: &Outcome, times: Times, at: SampleOrigin) {
        let slots = if at.warm_up {
            self.warmed(metric, times.service);
            &self.warm_up
        } else {
            &self.measured
        };
        let slot = slot(metric, outcome.status);
        let pair = match slots[slot].get() {
            Some(pair) => pair,
            None => self.open(slot, at.warm_up),
        };
        pair.service.record(times.service);
        if self.paced {
            pair.response.record(times.response);
        }
        if !outcome.is_ok() && !at.warm_up {
            self.record_failure(metric, outcome);
        }
        if self.records_more && !at.warm_up {
            self.record_more(metric, outcome.status, times, at);
        }
    }

    /// Creates the histograms of a metric and status, and publishes them to readers.
    #[cold]
    fn open(&self, slot: usize, warm_up: bool) -> &PairWriter {
        let (writers, readers) = match warm_up {
            true => (&self.warm_up, &self.recorder.warm_up),
            false => (&self.measured, &self.recorder.measured),
        };
        let pair = writers[slot].get_or_init(PairWriter::default);
        readers[slot].get_or_init(|| PairReader {
            service: pair.service.reader(),
            response: pair.response.reader(),
            batched: AtomicU64::new(0),
        });
        pair
    }

    /// As [`record`](Self::record), for a batch with a number of inserts.
    pub fn record_batch(&self, inserts: u64, outcome: &Outcome, times: Times, origin: SampleOrigin) {
        self.record(Metric::INSERT_BATCH, outcome, times, origin);
        let slots = if origin.warm_up { &self.recorder.warm_up } else { &self.recorder.measured };
        if let Some(pair) = slots[slot(Metric::INSERT_BATCH, outcome.status)].get() {
            pair.batched.store(pair.batched.load(Relaxed).saturating_add(inserts), Relaxed);
        }
    }

    /// Counts `units` units of the workload (transactions in YCSB's terms).
    #[inline]
    pub fn unit(&self, units: u64, ok: bool) {
        let add = |cell: &AtomicU64| cell.store(cell.load(Relaxed) + units, Relaxed);
        add(&self.recorder.units);
        if !ok {
            add(&self.recorder.units_failed);
        }
    }

    /// Records a flush, and counts its writes.
    pub fn flush(&self, flush: &Flush, at: SampleOrigin) {
        let times = Times { service: flush.took_ns, response: flush.took_ns };
        self.record(Metric::FLUSH, &flush.outcome, times, at);
        if !at.warm_up {
            let add = |cell: &AtomicU64, by: u64| cell.store(cell.load(Relaxed).saturating_add(by), Relaxed);
            add(&self.recorder.flushed, flush.writes);
            add(&self.recorder.flushed_lost, flush.lost);
        }
    }

    /// Records the lateness of an operation, and whether its client overslept: it was idle, and
    /// late.
    #[inline]
    pub fn late(&self, ns: u64, overslept: bool) {
        self.lateness.record(ns);
        if overslept {
            let count = &self.recorder.overslept;
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Counts an operation of the warm-up in sums that are read often. Operations of the measured
    /// part do not pay for this.
    fn warmed(&self, metric: Metric, ns: u64) {
        if metric.is_operation() {
            let add = |cell: &AtomicU64, by: u64| cell.store(cell.load(Relaxed).wrapping_add(by), Relaxed);
            add(&self.recorder.warmed, 1);
            add(&self.recorder.warmed_ns, ns);
        }
    }

    #[cold]
    fn record_failure(&self, metric: Metric, outcome: &Outcome) {
        let Some(message) = &outcome.message else { return };
        let mut messages = self.recorder.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (metric, outcome.status, message.clone());
        let alike = (metric, outcome.status, Box::default())..;
        let alike = messages.range(alike).take_while(|((m, s, _), _)| (*m, *s) == (metric, outcome.status));
        if !messages.contains_key(&key) && alike.count() >= MESSAGES_MAX {
            *messages.entry((metric, outcome.status, OTHER_MESSAGES.into())).or_default() += 1;
        } else {
            *messages.entry(key).or_default() += 1;
        }
    }

    #[cold]
    fn record_more(&self, metric: Metric, status: Status, times: Times, at: SampleOrigin) {
        if let Some(legacy) = &self.recorder.legacy {
            legacy.lock().unwrap_or_else(PoisonError::into_inner).record(metric, status, times, at.end_ns);
        }
        if let Some(raw) = &self.raw {
            raw.borrow_mut().push(RawSample { metric, status, client: at.client, end_ns: at.end_ns, times });
        }
    }
}

/// Histograms of the service and response times of one metric and status.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pair {
    /// Service times.
    pub service: Histogram,
    /// Response times; empty if they equal the service times.
    pub response: Histogram,
    /// Inserts in these operations, if they are batches.
    pub batched: u64,
}

impl Pair {
    /// Adds the counts of another pair.
    pub fn merge(&mut self, other: &Pair) {
        self.service.merge(&other.service);
        self.response.merge(&other.response);
        self.batched = self.batched.saturating_add(other.batched);
    }

    fn since(&self, earlier: Option<&Pair>) -> Pair {
        match earlier {
            None => self.clone(),
            Some(earlier) => Pair {
                service: self.service.since(&earlier.service),
                response: self.response.since(&earlier.response),
                batched: self.batched.saturating_sub(earlier.batched),
            },
        }
    }
}

/// Writes that went through write buffers after the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Buffered {
    /// Writes sent, whether they succeeded or not.
    pub sent: u64,
    /// Upper bound on the number of these that were not done.
    pub lost: u64,
    /// Writes acknowledged and never sent: their client was abandoned, or its store was lost.
    pub unsent: u64,
}

impl Buffered {
    /// Returns the number of writes that were acknowledged and not done.
    pub fn not_done(&self) -> u64 {
        self.lost.saturating_add(self.unsent)
    }

    /// Adds other counts.
    pub fn merge(&mut self, other: &Buffered) {
        self.sent = self.sent.saturating_add(other.sent);
        self.lost = self.lost.saturating_add(other.lost);
        self.unsent = self.unsent.saturating_add(other.unsent);
    }
}

/// Merged content of all recorders.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Times in the warm-up.
    pub warm_up: BTreeMap<(Metric, Status), Pair>,
    /// Times after the warm-up.
    pub measured: BTreeMap<(Metric, Status), Pair>,
    /// Lateness of operations.
    pub lateness: Histogram,
    /// Number of operations that started late although their client was idle when they were due.
    pub overslept: u64,
    /// Units finished after the warm-up.
    pub units: u64,
    /// Units that failed after the warm-up.
    pub units_failed: u64,
    /// Writes that went through write buffers after the warm-up.
    pub buffered: Buffered,
    /// Whether response times differ from service times.
    pub paced: bool,
}

impl Totals {
    /// Returns the sum over all recorders at this moment.
    pub fn of(recorders: &[Arc<Recorder>]) -> Totals {
        let mut totals = Totals::default();
        recorders.iter().for_each(|recorder| recorder.add_to(&mut totals));
        totals
    }

    /// Returns what was recorded since `earlier`, in the warm-up or after it. Every operation is in
    /// exactly one of the intervals between successive totals.
    pub fn since(&self, earlier: &Totals, warm_up: bool) -> BTreeMap<(Metric, Status), Pair> {
        let (now, before) =
            if warm_up { (&self.warm_up, &earlier.warm_up) } else { (&self.measured, &earlier.measured) };
        now.iter()
            .map(|(key, pair)| (*key, pair.since(before.get(key))))
            .filter(|(_, pair)| !pair.service.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: SampleOrigin = SampleOrigin { warm_up: false, client: 0, end_ns: 5 };

    fn times(ns: u64) -> Times {
        Times { service: ns, response: ns + 1000 }
    }

    #[test]
    fn warm_up_and_statuses_are_recorded_separately() {
        let (recorder, handle) = Recorder::new(&RecorderOptions { paced: true, ..Default::default() });
        handle.record(Metric::READ, &Outcome::OK, times(10), SampleOrigin { warm_up: true, ..AT });
        handle.record(Metric::READ, &Outcome::OK, times(20), AT);
        handle.record(Metric::READ, &Outcome::NOT_FOUND, times(30), AT);
        let totals = Totals::of(&[recorder]);
        assert_eq!(totals.warm_up.len(), 1);
        let ok = &totals.measured[&(Metric::READ, Status::Ok)];
        assert_eq!((ok.service.max(), ok.response.max()), (20, 1020));
        assert_eq!(totals.measured[&(Metric::READ, Status::NotFound)].service.count(), 1);
    }

    #[test]
    fn batches_count_their_inserts() {
        let (recorder, handle) = Recorder::new(&RecorderOptions::default());
        let recorders = [recorder];
        handle.record_batch(9, &Outcome::OK, times(10), SampleOrigin { warm_up: true, ..AT });
        handle.record_batch(10, &Outcome::OK, times(10), AT);
        let before = Totals::of(&recorders);
        handle.record_batch(3, &Outcome::OK, times(20), AT);
        handle.record_batch(1, &Outcome::error("full"), times(30), AT);
        let totals = Totals::of(&recorders);
        let of = |pairs: &BTreeMap<(Metric, Status), Pair>, status| {
            let pair = &pairs[&(Metric::INSERT_BATCH, status)];
            (pair.service.count(), pair.batched)
        };
        assert_eq!(of(&totals.warm_up, Status::Ok), (1, 9));
        assert_eq!(of(&totals.measured, Status::Ok), (2, 13));
        assert_eq!(of(&totals.measured, Status::Error), (1, 1));
        assert_eq!(of(&totals.since(&before, false), Status::Ok), (1, 3));
    }

    #[test]
    fn a_flush_is_timed_and_its_writes_are_counted_after_the_warm_up() {
        let (recorder, handle) = Recorder::new(&RecorderOptions::default());
        let flush = |outcome, writes, lost| Flush { outcome, took_ns: 70, ago_ns: 0, writes, lost };
        handle.flush(&flush(Outcome::OK, 100, 0), SampleOrigin { warm_up: true, ..AT });
        handle.flush(&flush(Outcome::OK, 10, 0), AT);
        handle.flush(&flush(Outcome::error("full"), 9, 4), AT);
        let messages = recorder.messages();
        let totals = Totals::of(&[recorder]);
        assert_eq!(totals.measured[&(Metric::FLUSH, Status::Ok)].service.max(), 70);
        assert_eq!(totals.measured[&(Metric::FLUSH, Status::Error)].service.count(), 1);
        assert_eq!(totals.buffered, Buffered { sent: 19, lost: 4, unsent: 0 });
        assert_eq!(messages[&(Metric::FLUSH, Status::Error, "full".into())], 1);
    }

    #[test]
    fn without_pacing_response_times_are_service_times() {
        let (recorder, handle) = Recorder::new(&RecorderOptions::default());
        handle.record(Metric::READ, &Outcome::OK, times(10), AT);
        let totals = Totals::of(&[recorder]);
        assert!(totals.measured[&(Metric::READ, Status::Ok)].response.is_empty());
    }

    #[test]
    fn intervals_sum_to_the_total() {
        let (recorder, handle) = Recorder::new(&RecorderOptions::default());
        let recorders = [recorder];
        let mut before = Totals::default();
        let mut sum = 0;
        for round in 0..5u64 {
            (0..=round).for_each(|i| handle.record(Metric::SCAN, &Outcome::OK, times(i * 100), AT));
            let now = Totals::of(&recorders);
            let interval = now.since(&before, false);
            assert_eq!(interval[&(Metric::SCAN, Status::Ok)].service.count(), round + 1);
            sum += round + 1;
            before = now;
        }
        assert_eq!(before.measured[&(Metric::SCAN, Status::Ok)].service.count(), sum);
        assert!(Totals::of(&recorders).since(&before, false).is_empty());
    }

    #[test]
    fn messages_are_counted_and_bounded() {
        let (recorder, handle) = Recorder::new(&RecorderOptions::default());
        for i in 0..MESSAGES_MAX + 10 {
            handle.record(Metric::READ, &Outcome::error(format!("no key {i}")), times(1), AT);
        }
        handle.record(Metric::READ, &Outcome::error("no key 0"), times(1), AT);
        let messages = recorder.messages();
        assert_eq!(messages.len(), MESSAGES_MAX + 1);
        assert_eq!(messages[&(Metric::READ, Status::Error, "no key 0".into())], 2);
        assert_eq!(messages[&(Metric::READ, Status::Error, OTHER_MESSAGES.into())], 10);
        // Messages of other statuses and metrics are kept.
        let gone = Outcome::failed(Status::ServiceUnavailable, "gone");
        handle.record(Metric::READ, &gone, times(1), AT);
        handle.record(Metric::INSERT, &Outcome::error("no room"), times(1), AT);
        let messages = recorder.messages();
        assert_eq!(messages[&(Metric::READ, Status::ServiceUnavailable, "gone".into())], 1);
        assert_eq!(messages[&(Metric::INSERT, Status::Error, "no room".into())], 1);
    }
}
