//! Where clients write down what they see.

use crate::{
    histogram::{Histogram, HistogramReader, HistogramWriter},
    legacy::{Legacy, LegacyKind},
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

/// Different messages of a metric and status kept apart for one thread; a store
/// that puts keys into its messages must not fill memory, nor hide what ends
/// otherwise. Later ones count as [`OTHER_MESSAGES`].
pub const MESSAGES_MAX: usize = 64;

/// What messages beyond [`MESSAGES_MAX`] count as.
pub const OTHER_MESSAGES: &str = "(other messages)";

/// A store's words for failures, with the number of times it used them.
pub type Messages = BTreeMap<(Metric, Status, Box<str>), u64>;

/// Histograms of both times, to write.
#[derive(Debug, Default)]
struct PairWriter {
    service: HistogramWriter,
    response: HistogramWriter,
}

/// The same histograms, to read.
#[derive(Debug)]
struct PairReader {
    service: HistogramReader,
    response: HistogramReader,
    /// Inserts in these operations, if they are batches; written by the handle only.
    batched: AtomicU64,
}

/// What one thread has recorded, during warm-up and after it, for any thread to read. Its
/// [`RecorderHandle`] writes it.
#[derive(Debug)]
pub struct Recorder {
    warm_up: Box<[OnceLock<PairReader>]>,
    measured: Box<[OnceLock<PairReader>]>,
    messages: Mutex<Messages>,
    legacy: Option<Mutex<Legacy>>,
    /// Whether there are intended starts, and so response times of their own.
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

/// Which recordings are wanted beyond the histograms that are always kept.
#[derive(Debug, Clone, Default)]
pub struct RecorderOptions {
    /// Whether operations have intended starts.
    pub paced: bool,
    /// Measurement types that YCSB had before HdrHistogram.
    pub legacy: Option<LegacyKind>,
    /// Where every single time goes, if asked for.
    pub raw: Option<RawLog>,
}

fn slots<T: Default>() -> Box<[T]> {
    (0..SLOTS).map(|_| T::default()).collect()
}

fn slot(metric: Metric, status: Status) -> usize {
    metric.index() * STATUSES + status as usize
}

impl Recorder {
    /// A recorder and the handle that writes it.
    pub fn new(options: &RecorderOptions) -> (Arc<Recorder>, RecorderHandle) {
        let lateness = HistogramWriter::new();
        let recorder = Arc::new(Recorder {
            warm_up: slots(),
            measured: slots(),
            messages: Mutex::default(),
            legacy: options.legacy.map(|kind| Mutex::new(Legacy::new(kind))),
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
            recorder: Arc::clone(&recorder),
            raw,
        };
        (recorder, handle)
    }

    /// Operations (a workload's units) finished since warm-up, and how many
    /// of them failed.
    pub fn units(&self) -> (u64, u64) {
        (self.units.load(Relaxed), self.units_failed.load(Relaxed))
    }

    /// What has ended so far: operations of the store in the warm-up, units after
    /// it; and the sum of the operations' service times in ns, which wraps. Cheap
    /// enough to ask many times a second.
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

    /// Adds everything measured so far to `totals`.
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

    /// The store's messages with how often each came.
    pub fn messages(&self) -> Messages {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the older measurement types have kept.
    pub fn legacy(&self) -> Option<Legacy> {
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
    recorder: Arc<Recorder>,
    raw: Option<RefCell<RawWriter>>,
}

/// When and for whom something was timed, beside the times themselves.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Whether it ended in the warm-up, which results leave out.
    pub warm_up: bool,
    /// The client.
    pub client: u32,
    /// The end, in ns since the run's start.
    pub end_ns: u64,
}

impl RecorderHandle {
    /// Counts an operation's times under its metric and status.
    #[inline]
    pub fn record(&self, metric: Metric, outcome: &Outcome, times: Times, at: Moment) {
        let slots = if at.warm_up {
            self.warmed(metric, times.service);
            &self.warm_up
        } else {
            &self.measured
        };
        let slot = slot(metric, outcome.status);
        let pair = slots[slot].get_or_init(|| self.open(slot, at.warm_up));
        pair.service.record(times.service);
        if self.paced {
            pair.response.record(times.response);
        }
        if !outcome.is_ok() && !at.warm_up {
            self.record_failure(metric, outcome);
        }
        if (self.raw.is_some() || self.recorder.legacy.is_some()) && !at.warm_up {
            self.record_more(metric, outcome.status, times, at);
        }
    }

    /// Histograms for a metric and status, which readers see from now on.
    #[cold]
    fn open(&self, slot: usize, warm_up: bool) -> PairWriter {
        let Recorder { warm_up: of_warm_up, measured, .. } = &*self.recorder;
        let pair = PairWriter::default();
        let readers = PairReader {
            service: pair.service.reader(),
            response: pair.response.reader(),
            batched: AtomicU64::new(0),
        };
        let opened = if warm_up { of_warm_up } else { measured }[slot].set(readers);
        debug_assert!(opened.is_ok(), "only the handle opens histograms, and each one once");
        pair
    }

    /// As [`record`](Self::record), of a batch of that many inserts.
    pub fn record_batch(&self, inserts: u64, outcome: &Outcome, times: Times, at: Moment) {
        self.record(Metric::INSERT_BATCH, outcome, times, at);
        let slots = if at.warm_up { &self.recorder.warm_up } else { &self.recorder.measured };
        if let Some(pair) = slots[slot(Metric::INSERT_BATCH, outcome.status)].get() {
            pair.batched.store(pair.batched.load(Relaxed).saturating_add(inserts), Relaxed);
        }
    }

    /// Counts a unit of the workload: a transaction in YCSB's words.
    #[inline]
    pub fn unit(&self, units: u64, ok: bool) {
        let add = |cell: &AtomicU64| cell.store(cell.load(Relaxed) + units, Relaxed);
        add(&self.recorder.units);
        if !ok {
            add(&self.recorder.units_failed);
        }
    }

    /// Counts a flush, and the writes that were sent in it.
    pub fn flush(&self, flush: &Flush, at: Moment) {
        let times = Times { service: flush.took_ns, response: flush.took_ns };
        self.record(Metric::FLUSH, &flush.outcome, times, at);
        if !at.warm_up {
            let add = |cell: &AtomicU64, by: u64| cell.store(cell.load(Relaxed).saturating_add(by), Relaxed);
            add(&self.recorder.flushed, flush.writes);
            add(&self.recorder.flushed_lost, flush.lost);
        }
    }

    /// Counts how late an operation started after its intended start, and
    /// whether that was the client's own fault: it was free, and too late.
    #[inline]
    pub fn late(&self, ns: u64, overslept: bool) {
        self.lateness.record(ns);
        if overslept {
            let count = &self.recorder.overslept;
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Counts an operation of the warm-up once more, in sums that are looked at
    /// often. What is measured does not pay for it.
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
    fn record_more(&self, metric: Metric, status: Status, times: Times, at: Moment) {
        if let Some(legacy) = &self.recorder.legacy {
            legacy.lock().unwrap_or_else(PoisonError::into_inner).record(metric, status, times, at.end_ns);
        }
        if let Some(raw) = &self.raw {
            raw.borrow_mut().push(RawSample { metric, status, client: at.client, end_ns: at.end_ns, times });
        }
    }
}

/// Service and response times of one kind of operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pair {
    /// Service times.
    pub service: Histogram,
    /// Response times; empty when nothing was paced, for they are then the
    /// service times.
    pub response: Histogram,
    /// Inserts in these operations, if they are batches.
    pub batched: u64,
}

impl Pair {
    /// Adds another's counts.
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

/// Writes that went through buffers, after the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Buffered {
    /// Sent, whatever became of them.
    pub sent: u64,
    /// Of these, how many were not done, or at most so many.
    pub lost: u64,
    /// Acknowledged and never sent: their client was given up, or its store was
    /// lost.
    pub unsent: u64,
}

impl Buffered {
    /// Writes that were acknowledged and not done.
    pub fn not_done(&self) -> u64 {
        self.lost.saturating_add(self.unsent)
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Buffered) {
        self.sent = self.sent.saturating_add(other.sent);
        self.lost = self.lost.saturating_add(other.lost);
        self.unsent = self.unsent.saturating_add(other.unsent);
    }
}

/// What all threads have seen, merged.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// During the warm-up.
    pub warm_up: BTreeMap<(Metric, Status), Pair>,
    /// After it.
    pub measured: BTreeMap<(Metric, Status), Pair>,
    /// How late operations started after their intended starts.
    pub lateness: Histogram,
    /// Of these, how many started too late though a client was free for them
    /// when they were due.
    pub overslept: u64,
    /// Units finished after the warm-up.
    pub units: u64,
    /// Units that failed after the warm-up.
    pub units_failed: u64,
    /// Writes that went through buffers after the warm-up.
    pub buffered: Buffered,
    /// Whether there were intended starts.
    pub paced: bool,
}

impl Totals {
    /// The sum over all recorders, now.
    pub fn of(recorders: &[Arc<Recorder>]) -> Totals {
        let mut totals = Totals::default();
        recorders.iter().for_each(|recorder| recorder.add_to(&mut totals));
        totals
    }

    /// What has come since `earlier`, of the warm-up or of what is measured.
    /// All that is measured is in exactly one of the intervals between
    /// successive totals.
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

    const AT: Moment = Moment { warm_up: false, client: 0, end_ns: 5 };

    fn times(ns: u64) -> Times {
        Times { service: ns, response: ns + 1000 }
    }

    #[test]
    fn warm_up_is_kept_apart_and_statuses_too() {
        let (recorder, handle) = Recorder::new(&RecorderOptions { paced: true, ..Default::default() });
        handle.record(Metric::READ, &Outcome::OK, times(10), Moment { warm_up: true, ..AT });
        handle.record(Metric::READ, &Outcome::OK, times(20), AT);
        handle.record(Metric::READ, &Outcome::NOT_FOUND, times(30), AT);
        let totals = Totals::of(&[recorder]);
        assert_eq!(totals.warm_up.len(), 1);
        let ok = &totals.measured[&(Metric::READ, Status::Ok)];
        assert_eq!((ok.service.max(), ok.response.max()), (20, 1020));
        assert_eq!(totals.measured[&(Metric::READ, Status::NotFound)].service.count(), 1);
    }

    #[test]
    fn batches_say_how_many_inserts_they_have() {
        let (recorder, handle) = Recorder::new(&RecorderOptions::default());
        let recorders = [recorder];
        handle.record_batch(9, &Outcome::OK, times(10), Moment { warm_up: true, ..AT });
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
        handle.flush(&flush(Outcome::OK, 100, 0), Moment { warm_up: true, ..AT });
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
    fn without_pacing_there_are_no_response_times_of_their_own() {
        let (recorder, handle) = Recorder::new(&RecorderOptions::default());
        handle.record(Metric::READ, &Outcome::OK, times(10), AT);
        let totals = Totals::of(&[recorder]);
        assert!(totals.measured[&(Metric::READ, Status::Ok)].response.is_empty());
    }

    #[test]
    fn intervals_add_up_to_the_whole() {
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
        // Others are told all the same.
        let gone = Outcome::failed(Status::ServiceUnavailable, "gone");
        handle.record(Metric::READ, &gone, times(1), AT);
        handle.record(Metric::INSERT, &Outcome::error("no room"), times(1), AT);
        let messages = recorder.messages();
        assert_eq!(messages[&(Metric::READ, Status::ServiceUnavailable, "gone".into())], 1);
        assert_eq!(messages[&(Metric::INSERT, Status::Error, "no room".into())], 1);
    }
}
