//! One run from connecting to the last outcome: its options, its observer and its record.

use crate::{
    client_pool::ClientPool,
    clock::{Clock, SystemClock, nanoseconds},
    conductor::RunConductor,
    pacing::{Arrivals, rate::RateSchedule},
    run_barrier::RunBarrier,
};
use serval_measure::{
    histogram::Histogram,
    legacy::Legacy,
    recorder::{Messages, Pair, Recorder, RecorderOptions, Totals},
};
use serval_model::{Execution, Metric, Share, Status, Store, StoreError};
pub use serval_result::document::EndedBy;
use serval_result::load::{Stationarity, Steadiness};
use serval_workload::Workload;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

/// Offered load above which an event loop gathers operations by default, operations/s. Below this
/// rate, one wake-up per operation costs less than half a core.
pub const GATHER_RATE: f64 = 25_000.0;

/// Longest time for which the loop then holds an operation that is due.
pub const GATHER_SLACK: Duration = Duration::from_micros(175);

/// Warm-up until steady state, by the test in `docs/warm-up.md`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steady {
    /// Longest warm-up. A run that is not in steady state by then is measured and flagged.
    pub max: Duration,
    /// Tolerated change of throughput or mean service time between the halves of the measured
    /// part, as a share above zero.
    pub tolerance: f64,
}

impl Steady {
    /// The usual tolerance: 5 %.
    pub const TOLERANCE: f64 = 0.05;
}

/// Holds a run whose clients have connected until it may begin: in a group, at an instant that all
/// processes agreed on.
#[derive(Clone)]
pub struct Gate(Arc<dyn Fn() -> Option<u64> + Send + Sync>);

impl Gate {
    /// Creates a gate. `wait` returns the instant at which the run begins, ns of
    /// [`now`](crate::clock::now), or `None` if the run does not begin.
    pub fn new(wait: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Gate {
        Gate(Arc::new(wait))
    }

    pub(crate) fn wait(&self) -> Option<u64> {
        (self.0)()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

/// Progress of a run at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// The instant, ns since the start.
    pub at: u64,
    /// Operations (units) that have ended since the start.
    pub operations: u64,
    /// Sum of their service times, ns. Wraps at 2^64.
    pub service_ns: u64,
}

/// Decides when the measured part of a run begins that warms up until steady state. No process of
/// a group can decide alone.
#[derive(Clone)]
pub struct Judge(Arc<dyn Fn(Sample) -> Option<u64> + Send + Sync>);

impl Judge {
    /// Creates a judge. `judge` is called every 50 ms of the warm-up. It returns the instant at
    /// which the measured part begins, ns of [`now`](crate::clock::now), once that is known. Until
    /// then the longest warm-up applies.
    pub fn new(judge: impl Fn(Sample) -> Option<u64> + Send + Sync + 'static) -> Judge {
        Judge(Arc::new(judge))
    }

    pub(crate) fn judge(&self, sample: Sample) -> Option<u64> {
        (self.0)(sample)
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge")
    }
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Number of clients, above zero. Each has at most one operation in flight.
    pub clients: usize,
    /// Number of event loops for asynchronous stores; `None` for a number that leaves half of the
    /// machine to a store on it.
    pub event_loops: Option<usize>,
    /// Length of the warm-up; the shortest, if it lasts until steady state.
    pub warm_up: Duration,
    /// Warm-up until steady state; `None` for exactly [`warm_up`](Self::warm_up). Needs a constant
    /// offered load, or none.
    pub steady: Option<Steady>,
    /// Length of the measured part; `None` for no limit.
    pub time: Option<Duration>,
    /// Number of units to do after the warm-up; `None` for no limit.
    pub units: Option<u64>,
    /// Offered load; `None` for as fast as the store answers.
    pub rate: Option<RateSchedule>,
    /// How intended starts are spaced.
    pub arrivals: Arrivals,
    /// Time for which operations that are due may be held, to be sent together; `None` for
    /// [`GATHER_SLACK`] above [`GATHER_RATE`] per loop, and zero below.
    pub slack: Option<Duration>,
    /// Time to wait at the end for operations in flight.
    pub grace: Duration,
    /// Length of the intervals of the series.
    pub interval: Duration,
    /// This process's part of the offered load.
    pub share: Share,
    /// Seed of all random choices.
    pub seed: u64,
    /// What to record beyond histograms.
    pub recorder: RecorderOptions,
    /// Holds the run until it may begin. Not used in virtual time.
    pub gate: Option<Gate>,
    /// Decides when the run is in steady state; `None` for the process itself.
    pub judge: Option<Judge>,
    /// Whether to call [`Store::finish`] at the end. `false` if another run uses the same open
    /// store concurrently.
    pub finishes: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            clients: 1,
            event_loops: None,
            warm_up: Duration::ZERO,
            steady: None,
            time: None,
            units: None,
            rate: None,
            arrivals: Arrivals::Client,
            slack: None,
            grace: Duration::from_secs(2),
            interval: Duration::from_secs(1),
            share: Share::WHOLE,
            seed: 0,
            recorder: RecorderOptions::default(),
            gate: None,
            judge: None,
            finishes: true,
        }
    }
}

impl RunOptions {
    /// Returns the longest time that the warm-up may take.
    pub fn warm_up_max(&self) -> Duration {
        self.steady.map_or(self.warm_up, |steady| steady.max.max(self.warm_up))
    }
}

/// Ends a run from another thread, for example that of a signal handler.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<Mutex<(bool, Option<Arc<RunBarrier>>)>>);

impl Control {
    /// Asks the present or next run to end and to report.
    pub fn interrupt(&self) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 = true;
        if let Some(barrier) = &inner.1 {
            barrier.interrupt();
        }
    }

    /// Returns whether [`interrupt`](Self::interrupt) was called.
    pub fn interrupted(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn attach(&self, barrier: &Arc<RunBarrier>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.0 {
            barrier.interrupt();
        }
        inner.1 = Some(Arc::clone(barrier));
    }
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Time since the start, including the warm-up.
    pub elapsed: Duration,
    /// Whether the run is in its warm-up.
    pub warming_up: bool,
    /// Units finished after the warm-up.
    pub units: u64,
    /// Number of these that failed.
    pub failed: u64,
}

/// One interval of the series.
#[derive(Debug)]
pub struct Interval {
    /// Time from the start of the run to the start of the interval.
    pub start: Duration,
    /// Length.
    pub length: Duration,
    /// Whether the interval lies in the warm-up.
    pub warm_up: bool,
    /// Times by metric and status.
    pub pairs: BTreeMap<(Metric, Status), Pair>,
    /// Whether response times differ from service times.
    pub paced: bool,
    /// Operations due, if there is an offered load.
    pub due: Option<f64>,
    /// Lateness of operations that started after the warm-up.
    pub lateness: Histogram,
}

/// Observes a run. Called on the conductor's thread, never on a client's.
pub trait Observer {
    /// Called when `clients` of `of` clients have connected.
    fn connected(&mut self, clients: usize, of: usize) {
        let _ = (clients, of);
    }
    /// Something is amiss with what was asked for, and the run begins all the same.
    fn warn(&mut self, warning: &str) {
        let _ = warning;
    }
    /// Called when the clients have been started.
    fn started(&mut self, at: SystemTime) {
        let _ = at;
    }
    /// Called when the measured part begins: when the conductor wakes for it, a fraction of a
    /// millisecond late; without a warm-up, just before the start.
    fn measuring(&mut self) {}
    /// Called when the measured part has ended. No client sends operations any more, except for
    /// those that hang. Connections are still open and threads still exist.
    fn measured(&mut self) {}
    /// Called ten times a second.
    fn progress(&mut self, progress: &Progress) {
        let _ = progress;
    }
    /// Called at the end of each interval.
    fn interval(&mut self, interval: &Interval) {
        let _ = interval;
    }
}

impl Observer for () {}

/// Record of a run.
#[derive(Debug)]
pub struct RunRecord {
    /// Date at which the clients were started.
    pub started: SystemTime,
    /// Instants at which the first and the last client began, ns of [`now`](crate::clock::now).
    pub began: Option<(u64, u64)>,
    /// Time from the end of the warm-up to the end of the last operation, or to the end of the run
    /// if that is later.
    pub duration: Duration,
    /// Actual length of the warm-up.
    pub warm_up: Duration,
    /// How a warm-up until steady state ended, if it ended.
    pub steadiness: Option<Steadiness>,
    /// Whether throughput and service time changed in the measured part; `None` if that cannot be
    /// decided.
    pub stationarity: Option<Stationarity>,
    /// Why the run ended.
    pub ended_by: EndedBy,
    /// Everything that was recorded.
    pub totals: Totals,
    /// Messages of the store about failures.
    pub messages: Messages,
    /// YCSB's older measurement types, if asked for: one per thread or event loop.
    pub legacy: Vec<Legacy>,
    /// Ages of operations still in flight when the wait for them ended, ns.
    pub in_flight: Histogram,
    /// Ages of operations that were due and not started at the end, ns.
    pub not_started: Histogram,
    /// CPU time of the client process in the measured part.
    pub cpu: Duration,
    /// Sum over the clients of their measured time, each until its last outcome.
    pub client_time: Duration,
    /// Number of clients: fewer than asked for if there were fewer units.
    pub clients: usize,
    /// What the clients ran on.
    pub execution: ClientExecution,
    /// Why the run could not continue, if it could not.
    pub lost: Option<Lost>,
    /// Operations that the schedule asked for in the measured part.
    pub due: Option<f64>,
    /// Time for which operations that were due were held, to be sent together.
    pub slack: Duration,
}

/// What the clients of a run ran on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientExecution {
    /// A thread each.
    Threads(usize),
    /// Event loops that they shared.
    EventLoops(usize),
    /// One thread, on which time is simulated.
    VirtualTime,
}

impl fmt::Display for ClientExecution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, kind) = match self {
            ClientExecution::Threads(count) => (count, "thread"),
            ClientExecution::EventLoops(count) => (count, "event loop"),
            ClientExecution::VirtualTime => return f.write_str("virtual time"),
        };
        write!(f, "{count} {kind}{}", if *count == 1 { "" } else { "s" })
    }
}

/// Why a run could not continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The store is lost.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The workload cannot continue, with its message.
    #[error("{0}")]
    Workload(String),
}

/// Why a run has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The store could not be reached or used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Interrupted before the first operation.
    #[error("interrupted before the first operation")]
    Interrupted,
    /// A changing offered load has no steady state.
    #[error(
        "warming up until steady needs a constant target: with target.schedule, set warmup and leave warmup.max out"
    )]
    ChangingRate,
    /// The binding of a store or a workload has a defect.
    #[error(
        "client {0} panicked; its message is above. This is a defect of the store's binding or the workload"
    )]
    Panicked(usize),
}

fn loops(options: &RunOptions) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // Half of the cores, and at least eight clients per loop: a loop with fewer clients sends and
    // receives operations one by one.
    let default = (cores / 2).min(options.clients.div_ceil(8)).max(1);
    options.event_loops.unwrap_or(default).clamp(1, options.clients)
}

/// A run that is ready to begin, in real or virtual time.
pub(crate) struct Prepared<S> {
    pub(crate) options: RunOptions,
    pub(crate) barrier: Arc<RunBarrier>,
    pub(crate) pool: Arc<ClientPool<S>>,
    slack: Duration,
}

impl<S: Store> Prepared<S> {
    /// Checks the options. `slack` returns the time for which operations that are due are held.
    pub(crate) fn new(
        store: &Arc<S>,
        workload: &Arc<dyn Workload>,
        options: &RunOptions,
        control: &Control,
        slack: impl FnOnce(&RunOptions) -> Duration,
    ) -> Result<Self, RunError> {
        if options.steady.is_some() && options.rate.as_ref().is_some_and(|rate| !rate.is_constant()) {
            return Err(RunError::ChangingRate);
        }
        let units = workload.units().or(options.units);
        let mut options = options.clone();
        options.clients =
            options.clients.clamp(1, units.unwrap_or(u64::MAX).clamp(1, usize::MAX as u64) as usize);
        // Response times differ from service times with intended starts, or if the store reports
        // service times itself.
        options.recorder.paced = options.rate.is_some() || store.times_itself();
        let slack = slack(&options);
        let barrier = Arc::new(RunBarrier::new(options.clients));
        control.attach(&barrier);
        let pool = Arc::new(ClientPool {
            barrier: Arc::clone(&barrier),
            store: Arc::clone(store),
            workload: Arc::clone(workload),
            table: workload.schema().table,
            clients: options.clients,
            units,
            seed: options.seed,
            recorder: options.recorder.clone(),
            slack: nanoseconds(slack),
        });
        Ok(Prepared { options, barrier, pool, slack })
    }

    pub(crate) fn conductor<'a, C: Clock>(
        &'a self,
        clock: C,
        recorders: Vec<Arc<Recorder>>,
        observer: &'a mut dyn Observer,
    ) -> RunConductor<'a, C> {
        let Prepared { options, barrier, pool, slack } = self;
        RunConductor { clock, barrier, options, units: pool.units, slack: *slack, recorders, observer }
    }

    /// Completes the record with what is known only after the run.
    pub(crate) fn complete(
        self,
        mut record: RunRecord,
        store: &S,
        execution: ClientExecution,
    ) -> Result<RunRecord, RunError> {
        record.lost = record.lost.map(|lost| match lost {
            Lost::Store(error) => Lost::Store(store.explain(error)),
            lost => lost,
        });
        record.slack = self.slack;
        record.execution = execution;
        if self.options.finishes {
            record.totals.buffered.unsent += store.unsent();
            store.finish()?;
        }
        Ok(record)
    }
}

/// Runs a workload on a store. Returns when all units are done, the time is over, or `control`
/// interrupts the run. A store that hangs delays the return by the grace at most.
pub fn run<S: Store>(
    store: &Arc<S>,
    workload: &Arc<dyn Workload>,
    options: &RunOptions,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<RunRecord, RunError> {
    let threads = store.execution() == Execution::Threads;
    let loops_of = |options: &RunOptions| loops(options).min(store.event_loops_max().max(1));
    let prepared =
        Prepared::new(store, workload, options, control, |options| match (&options.rate, options.slack) {
            (None, _) => Duration::ZERO,
            _ if threads => Duration::ZERO,
            (_, Some(slack)) => slack,
            (Some(rate), None)
                if options.share.of_rate(rate.rate_max()) >= GATHER_RATE * loops_of(options) as f64 =>
            {
                GATHER_SLACK
            }
            _ => Duration::ZERO,
        })?;
    let Prepared { barrier, pool, options, .. } = &prepared;
    let loops = loops_of(options);
    let recorders = if threads { pool.on_threads() } else { pool.on_event_loops(loops) };
    let recorders = match recorders {
        Ok(recorders) => recorders,
        Err(error) => {
            barrier.cancel();
            return Err(error.into());
        }
    };
    let execution =
        if threads { ClientExecution::Threads(options.clients) } else { ClientExecution::EventLoops(loops) };
    let record = prepared.conductor(SystemClock, recorders, observer).conduct(workload.verifies())?;
    prepared.complete(record, store, execution)
}
