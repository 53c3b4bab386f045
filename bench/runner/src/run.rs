//! One run from connecting to the last outcome: the conductor.

use crate::{
    client::Course,
    clock,
    crew::Crew,
    pacing::{Arrivals, Schedule, rate::RateSchedule},
    slot::Seen,
    stage::Stage,
};
use serval_measure::{
    histogram::Histogram,
    recorder::{Pair, Recorder, RecorderOptions, Totals},
};
use serval_model::{Execution, Metric, Status, Store, StoreError};
use serval_workload::Workload;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, SystemTime},
};

/// Offered load above which an event loop gathers operations by default,
/// operations/s: below it a wake-up each costs less than half a core.
pub const GATHER_RATE: f64 = 25_000.0;

/// For how long it then holds an operation that is due, at most.
pub const GATHER_SLACK: Duration = Duration::from_micros(175);

/// Time that waking up may take: what was due this long before the end is
/// still started.
const WAKE_UP_NS: u64 = 1_000_000;

/// Longest wait for event loops to close at the end, which takes them no time
/// unless a store holds its loop.
const LOOPS_END_MAX: Duration = Duration::from_secs(1);

/// Lateness of which a free client is not guilty: what a timer and a switch of
/// processes may take, ns.
const LATE_NS: u64 = 1_000_000;

/// How long after the end clients that have no outcome yet are waited for before
/// the others may close.
const CLOSE_AFTER_NS: u64 = 100_000_000;

/// How often progress is looked at.
const TICK: Duration = Duration::from_millis(100);

/// What to run, beside store and workload.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Clients, each with one operation in flight at most. Above zero.
    pub clients: usize,
    /// Event loops for stores that use them; `None` for a number that leaves
    /// half of the machine to a store beside the client.
    pub event_loops: Option<usize>,
    /// Time before what is measured.
    pub warm_up: Duration,
    /// Time that is measured; `None` without bound.
    pub time: Option<Duration>,
    /// Units to do after warm-up; `None` without bound.
    pub units: Option<u64>,
    /// Offered load; `None` for as fast as the store answers.
    pub rate: Option<RateSchedule>,
    /// How intended starts are spaced.
    pub arrivals: Arrivals,
    /// How long operations due may be held to be sent together; `None` for
    /// [`GATHER_SLACK`] above [`GATHER_RATE`] a loop, and nothing below.
    pub slack: Option<Duration>,
    /// Time given to operations in flight at the end.
    pub grace: Duration,
    /// Length of the intervals of the series.
    pub interval: Duration,
    /// The seed of all random choices.
    pub seed: u64,
    /// What is written down beyond histograms.
    pub recorder: RecorderOptions,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            clients: 1,
            event_loops: None,
            warm_up: Duration::ZERO,
            time: None,
            units: None,
            rate: None,
            arrivals: Arrivals::Client,
            slack: None,
            grace: Duration::from_secs(2),
            interval: Duration::from_secs(1),
            seed: 0,
            recorder: RecorderOptions::default(),
        }
    }
}

/// Ends a run from outside: from a signal handler's thread, say.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<Mutex<(bool, Option<Arc<Stage>>)>>);

impl Control {
    /// Asks the run, now or when it begins, to end cleanly and report.
    pub fn interrupt(&self) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 = true;
        if let Some(stage) = &inner.1 {
            stage.interrupt();
        }
    }

    /// Whether an end was asked for.
    pub fn interrupted(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn attach(&self, stage: &Arc<Stage>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.0 {
            stage.interrupt();
        }
        inner.1 = Some(Arc::clone(stage));
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Since the start, warm-up included.
    pub elapsed: Duration,
    /// Whether what happens now is left out of the results.
    pub warming_up: bool,
    /// Units finished since the warm-up.
    pub units: u64,
    /// Of these, how many failed.
    pub failed: u64,
}

/// What happened in one interval of the series.
#[derive(Debug)]
pub struct Interval {
    /// Its start, since the run's start.
    pub start: Duration,
    /// Its length.
    pub length: Duration,
    /// Whether it lies in the warm-up.
    pub warm_up: bool,
    /// Times by metric and status.
    pub pairs: BTreeMap<(Metric, Status), Pair>,
    /// Whether response times differ from service times.
    pub paced: bool,
    /// Operations due, if there is an offered load.
    pub due: Option<f64>,
    /// Actual after intended starts, after the warm-up.
    pub lateness: Histogram,
}

/// Looks on while a run goes. Called on the conductor's thread, never on a
/// client's.
pub trait Observer {
    /// So many of all clients have connected.
    fn connected(&mut self, clients: usize, of: usize) {
        let _ = (clients, of);
    }
    /// The clients have been let go.
    fn started(&mut self, at: SystemTime) {
        let _ = at;
    }
    /// The measured part begins: what is timed from here on counts. Called as
    /// soon as the conductor wakes for it, a fraction of a millisecond late;
    /// without a warm-up just before the start.
    fn measuring(&mut self) {}
    /// The measured part has ended. Clients operate no more, but for those that
    /// hang, and have not closed yet; their threads are still there.
    fn measured(&mut self) {}
    /// Ten times a second.
    fn progress(&mut self, progress: &Progress) {
        let _ = progress;
    }
    /// At the end of each interval.
    fn interval(&mut self, interval: &Interval) {
        let _ = interval;
    }
}

impl Observer for () {}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// All units were done, or the schedule was over.
    Count,
    /// The time was over.
    Time,
    /// Somebody asked.
    Interrupted,
    /// The store was lost, the workload failed, or clients stopped for failures.
    Failed,
    /// The clients had no more to do, before their number of units was done
    /// or the time was over: a script's `stop()`.
    Stopped,
}

impl EndedBy {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            EndedBy::Count => "count",
            EndedBy::Time => "time",
            EndedBy::Interrupted => "interrupted",
            EndedBy::Failed => "failed",
            EndedBy::Stopped => "stopped",
        }
    }
}

/// What a run found.
#[derive(Debug)]
pub struct RunRecord {
    /// When the clients were let go.
    pub started: SystemTime,
    /// From the end of warm-up to the end of the last operation, or of the
    /// run's time if that is later.
    pub duration: Duration,
    /// The time before.
    pub warm_up: Duration,
    /// Why it ended.
    pub ended_by: EndedBy,
    /// Everything that was written down.
    pub totals: Totals,
    /// The recorders themselves, for messages and older measurement types.
    pub recorders: Vec<Arc<Recorder>>,
    /// Ages of operations still in flight when waiting for them ended, ns.
    pub in_flight: Histogram,
    /// Ages at the end of operations that were due and not started, ns.
    pub not_started: Histogram,
    /// CPU time of the client process in the measured time.
    pub cpu: Duration,
    /// The measured time of all clients, each until its last outcome.
    pub client_time: Duration,
    /// Clients that took part: fewer than asked for when there was less to do.
    pub clients: usize,
    /// Where the clients ran, in words.
    pub execution: String,
    /// Why the run could not go on, if it could not.
    pub lost: Option<Lost>,
    /// Operations that the schedule asked for in the measured time.
    pub due: Option<f64>,
    /// How long operations due were held to be sent together.
    pub slack: Duration,
}

/// Why a run could not go on in the middle of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The store is lost.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The workload cannot go on, in its own words.
    #[error("{0}")]
    Workload(String),
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The store could not be reached or used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Interrupted before the first operation.
    #[error("interrupted before the first operation")]
    Interrupted,
    /// A defect in a store or workload.
    #[error(
        "client {0} panicked; its message is above. This is a defect of the store's binding or the workload"
    )]
    Panicked(usize),
}

fn loops(options: &RunOptions) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // Half the cores, and at least eight clients a loop: a loop with fewer
    // sends and receives them one by one.
    let default = (cores / 2).min(options.clients.div_ceil(8)).max(1);
    options.event_loops.unwrap_or(default).clamp(1, options.clients)
}

/// Runs a workload on a store. Returns when all is done, the time is over, or
/// `control` says so; a store that hangs delays that by the grace at most.
pub fn run<S: Store>(
    store: &Arc<S>,
    workload: &Arc<dyn Workload>,
    options: &RunOptions,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<RunRecord, RunError> {
    let units = workload.units().or(options.units);
    let mut options = options.clone();
    options.clients =
        options.clients.clamp(1, units.unwrap_or(u64::MAX).clamp(1, usize::MAX as u64) as usize);
    // Response times of their own: with intended starts, or when the store
    // tells service times of its own.
    options.recorder.paced = options.rate.is_some() || store.times_itself();
    let threads = store.execution() == Execution::Threads;
    let loops = loops(&options).min(store.event_loops_max().max(1));
    let slack = match (&options.rate, options.slack) {
        (None, _) => Duration::ZERO,
        _ if threads => Duration::ZERO,
        (_, Some(slack)) => slack,
        (Some(rate), None) if rate.rate_max() >= GATHER_RATE * loops as f64 => GATHER_SLACK,
        _ => Duration::ZERO,
    };
    let stage = Arc::new(Stage::new(options.clients));
    control.attach(&stage);
    let crew = Arc::new(Crew {
        stage: Arc::clone(&stage),
        store: Arc::clone(store),
        workload: Arc::clone(workload),
        table: workload.schema().table,
        clients: options.clients,
        units,
        seed: options.seed,
        recorder: options.recorder.clone(),
        slack: slack.as_nanos() as u64,
    });
    let recorders = if threads { crew.on_threads() } else { crew.on_event_loops(loops) };
    let recorders = match recorders {
        Ok(recorders) => recorders,
        Err(error) => {
            stage.cancel();
            return Err(error.into());
        }
    };
    drop(crew);
    let conductor = Conductor { stage: &stage, options: &options, units, slack, recorders, observer };
    let mut record = conductor.conduct(workload.verifies())?;
    record.lost = record.lost.map(|lost| match lost {
        Lost::Store(error) => Lost::Store(store.explain(error)),
        lost => lost,
    });
    record.slack = slack;
    record.execution = if threads { plural(options.clients, "thread") } else { plural(loops, "event loop") };
    store.finish()?;
    Ok(record)
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

struct Conductor<'a> {
    stage: &'a Arc<Stage>,
    options: &'a RunOptions,
    /// Units of the whole run, if they are bounded.
    units: Option<u64>,
    slack: Duration,
    recorders: Vec<Arc<Recorder>>,
    observer: &'a mut dyn Observer,
}

/// The series as it grows.
struct Series {
    since: u64,
    before: Totals,
}

impl Conductor<'_> {
    fn conduct(mut self, verifies: bool) -> Result<RunRecord, RunError> {
        self.wait_for_connections()?;
        let options = self.options;
        let warm_up = options.warm_up.as_nanos() as u64;
        let schedule = options.rate.as_ref().map(|rate| {
            let rate = rate.after_warm_up(options.warm_up.as_secs_f64());
            Schedule::new(rate, options.arrivals, options.clients, options.seed ^ SCHEDULE_STREAM)
        });
        // While the clients still wait, so that what looks on takes none of their time.
        if warm_up == 0 {
            self.observer.measuring();
        }
        let started = SystemTime::now();
        // Long enough for every client to be awake when the first is due.
        let start = clock::now() + 1_000_000;
        let measure_from = start + warm_up;
        // A schedule that ends bounds the run as a time does: a store that
        // hangs must not hold it for ever.
        let scheduled = options.rate.as_ref().and_then(RateSchedule::length_s).map(Duration::from_secs_f64);
        let time = options.time.into_iter().chain(scheduled).min();
        let end_at = match time {
            Some(time) => measure_from.saturating_add(time.as_nanos().min(u128::from(u64::MAX)) as u64),
            None => u64::MAX,
        };
        let allowance = self.slack.as_nanos() as u64 + WAKE_UP_NS;
        let stage = Arc::clone(self.stage);
        let course = stage.go(Course {
            start,
            measure_from,
            end_at: AtomicU64::new(end_at),
            schedule,
            allowance,
            late_from: LATE_NS.max(2 * self.slack.as_nanos() as u64),
            verifies,
            gave_up: AtomicBool::new(false),
        });
        self.observer.started(started);
        let (ended_by, cpu) = self.watch(course);
        if let Some(client) = stage.tally().panicked {
            return Err(RunError::Panicked(client));
        }
        let totals = Totals::of(&self.recorders);
        let (in_flight, not_started, lateness) = self.unfinished(course);
        // A schedule that is over with nothing left was done, not cut off.
        let by_schedule = scheduled.is_some_and(|length| options.time.is_none_or(|time| length <= time));
        let all_done = in_flight.is_empty() && not_started.is_empty();
        let ended_by =
            if ended_by == EndedBy::Time && by_schedule && all_done { EndedBy::Count } else { ended_by };
        let end_at = course.end_at.load(Relaxed);
        let last_end = stage.slots.iter().map(|slot| slot.last_end()).max().unwrap_or(0);
        let ended = if ended_by == EndedBy::Count { last_end } else { last_end.max(end_at) };
        let ended = ended.max(measure_from);
        let mut totals = totals;
        totals.lateness.merge(&lateness);
        Ok(RunRecord {
            started,
            duration: Duration::from_nanos(ended - measure_from),
            warm_up: options.warm_up.min(Duration::from_nanos(ended.saturating_sub(start))),
            ended_by,
            totals,
            recorders: self.recorders,
            in_flight,
            not_started,
            cpu,
            client_time: stage
                .slots
                .iter()
                .map(|slot| Duration::from_nanos(slot.last_end().saturating_sub(measure_from)))
                .sum(),
            clients: options.clients,
            execution: String::new(),
            lost: stage.tally().lost.take(),
            due: course.schedule.as_ref().map(|s| s.due_between(measure_from - start, ended - start)),
            slack: Duration::ZERO,
        })
    }

    fn wait_for_connections(&mut self) -> Result<(), RunError> {
        let mut seen = usize::MAX;
        let mut tally = self.stage.tally();
        loop {
            if let Some(failure) = tally.failure.take() {
                drop(tally);
                self.stage.cancel();
                return Err(failure.into());
            }
            if tally.interrupted || tally.panicked.is_some() {
                let panicked = tally.panicked;
                drop(tally);
                self.stage.cancel();
                return Err(panicked.map_or(RunError::Interrupted, RunError::Panicked));
            }
            let connected = tally.connected;
            if connected != seen {
                seen = connected;
                drop(tally);
                self.observer.connected(connected, self.options.clients);
                tally = self.stage.tally();
                continue;
            }
            if connected == self.options.clients {
                return Ok(());
            }
            tally = self.stage.wait(tally, TICK);
        }
    }

    /// Looks on until all clients have finished or were given up. Returns why
    /// the run ended and the CPU time of the measured part.
    fn watch(&mut self, course: &Course) -> (EndedBy, Duration) {
        let interval = self.options.interval.as_nanos().max(1) as u64;
        let grace = self.options.grace.as_nanos() as u64;
        let mut series = Series { since: course.start, before: Totals::default() };
        let mut cpu_before = None;
        if course.measure_from <= course.start {
            cpu_before = Some(clock::process_cpu());
        }
        let mut ended_by = EndedBy::Count;
        let mut stopped = false;
        let mut next_tick = course.start;
        let mut closing = false;
        loop {
            let now = clock::now();
            if cpu_before.is_none() && now >= course.measure_from {
                cpu_before = Some(clock::process_cpu());
                self.observer.measuring();
            }
            let mut boundary = series.since + interval;
            if series.since < course.measure_from {
                boundary = boundary.min(course.measure_from);
            }
            if now >= boundary {
                self.interval(&mut series, course, now);
                continue;
            }
            if now >= next_tick {
                self.progress(course, now);
                next_tick = now + TICK.as_nanos() as u64;
            }
            let (interrupted, lost, done, all) = {
                let tally = self.stage.tally();
                let done = tally.done == self.options.clients;
                let all = tally.finished == self.options.clients || tally.panicked.is_some();
                (tally.interrupted, tally.lost.is_some(), done, all)
            };
            if !closing && (done || now >= course.end_at.load(Relaxed).saturating_add(CLOSE_AFTER_NS)) {
                closing = true;
                self.observer.measured();
                self.stage.close();
            }
            if lost && ended_by != EndedBy::Failed {
                ended_by = EndedBy::Failed;
                course.end_at.fetch_min(now, Relaxed);
            }
            if all {
                // Clients see the end of the time for themselves, and may all
                // have left by now.
                if ended_by == EndedBy::Count && self.unfinished_units(course) {
                    let in_time = clock::now() < course.end_at.load(Relaxed);
                    ended_by = match (in_time, course.gave_up.load(Relaxed)) {
                        (false, _) => EndedBy::Time,
                        (true, true) => EndedBy::Failed,
                        (true, false) => EndedBy::Stopped,
                    };
                    if in_time {
                        // It lasted until the last of them left, and no longer.
                        course.end_at.fetch_min(clock::now(), Relaxed);
                    }
                }
                break;
            }
            if interrupted && ended_by != EndedBy::Interrupted && !lost {
                ended_by = EndedBy::Interrupted;
                course.end_at.fetch_min(now, Relaxed);
            }
            let end_at = course.end_at.load(Relaxed);
            if now >= end_at && !stopped {
                stopped = true;
                if ended_by == EndedBy::Count {
                    ended_by = EndedBy::Time;
                }
                self.stage.stop();
            }
            if now >= end_at.saturating_add(grace) {
                break;
            }
            let mut wake = boundary.min(next_tick);
            wake = wake.min(if stopped { end_at.saturating_add(grace) } else { end_at });
            if cpu_before.is_none() {
                wake = wake.min(course.measure_from);
            }
            let tally = self.stage.tally();
            if tally.finished < self.options.clients
                && (closing || tally.done < self.options.clients)
                && tally.interrupted == interrupted
                && tally.lost.is_some() == lost
            {
                drop(self.stage.wait(tally, Duration::from_nanos(wake.saturating_sub(now))));
            }
        }
        let now = clock::now();
        let cpu = clock::process_cpu().saturating_sub(cpu_before.unwrap_or_default());
        if !closing {
            self.observer.measured();
            self.stage.close();
        }
        self.stage.stop();
        self.stage.abandon();
        self.stage.wait_for_loops(LOOPS_END_MAX);
        self.interval(&mut series, course, now);
        self.progress(course, now);
        (ended_by, cpu)
    }

    /// Whether clients that have left did so for the time, or for failures,
    /// and not because all was done.
    fn unfinished_units(&self, course: &Course) -> bool {
        let done: u64 = self.recorders.iter().map(|recorder| recorder.units().0).sum();
        match self.units {
            Some(units) => done < units,
            // Nothing but the time, or the schedule, ends such a run. The last
            // of a schedule may be done before it is over.
            None => course.schedule.is_none() || clock::now() >= course.end_at.load(Relaxed),
        }
    }

    fn interval(&mut self, series: &mut Series, course: &Course, now: u64) {
        let totals = Totals::of(&self.recorders);
        // The conductor comes a little late to the end of the warm-up. What
        // has been measured by then belongs to the first interval after it.
        let warm_up = series.since < course.measure_from;
        let interval = Interval {
            start: Duration::from_nanos(series.since - course.start),
            length: Duration::from_nanos(now.saturating_sub(series.since)),
            warm_up,
            pairs: totals.since(&series.before, warm_up),
            paced: totals.paced,
            due: course.schedule.as_ref().map(|schedule| {
                // Nothing is due after the end.
                let until = now.min(course.end_at.load(Relaxed)).max(series.since);
                schedule.due_between(series.since - course.start, until - course.start)
            }),
            lateness: totals.lateness.since(&series.before.lateness),
        };
        series.since = now;
        series.before.lateness = totals.lateness;
        if warm_up {
            series.before.warm_up = totals.warm_up;
        } else {
            series.before.measured = totals.measured;
        }
        self.observer.interval(&interval);
    }

    fn progress(&mut self, course: &Course, now: u64) {
        let (units, failed) =
            self.recorders.iter().map(|r| r.units()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        self.observer.progress(&Progress {
            elapsed: Duration::from_nanos(now.saturating_sub(course.start)),
            warming_up: now < course.measure_from,
            units,
            failed,
        });
    }

    /// Ages of what is in flight and of what was due and never started, and
    /// the lateness that the latter has reached.
    fn unfinished(&self, course: &Course) -> (Histogram, Histogram, Histogram) {
        let now = clock::now();
        let end_at = course.end_at.load(Relaxed);
        let (mut in_flight, mut not_started, mut late) = <(Histogram, Histogram, Histogram)>::default();
        let done: u64 = self.recorders.iter().map(|recorder| recorder.units().0).sum();
        // A schedule knows no end; what is beyond the units asked for was
        // never to be done.
        let mut left = self.units.map_or(u64::MAX, |units| units.saturating_sub(done));
        let begun = self.stage.slots.iter().filter(|slot| matches!(slot.seen(), Seen::InFlight(_)));
        left = left.saturating_sub(begun.count() as u64);
        let mut waiting = |intended: u64, n: u64| {
            let n = n.min(left);
            if intended < end_at && n > 0 {
                left -= n;
                not_started.record_n(end_at - intended, n);
                late.record_n(end_at - intended, n);
            }
        };
        for slot in &self.stage.slots {
            match slot.seen() {
                Seen::InFlight(intended) => in_flight.record(now.saturating_sub(intended)),
                Seen::Waiting(intended) => waiting(intended, 1),
                Seen::Idle => {}
            }
        }
        if let Some(schedule) = &course.schedule
            && end_at != u64::MAX
        {
            schedule.take_rest(end_at - course.start, |intended, n| waiting(course.start + intended, n));
        }
        (in_flight, not_started, late)
    }
}

/// Sets the schedule's random stream apart from the clients'.
const SCHEDULE_STREAM: u64 = 0x5ced_u64 << 32;
