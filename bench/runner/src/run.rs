//! One run from connecting to the last outcome: what is asked for, and what
//! comes of it.

use crate::{
    clock::{Clock, SystemClock, nanoseconds},
    conductor::Conductor,
    crew::Crew,
    pacing::{Arrivals, rate::RateSchedule},
    stage::Stage,
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

/// Offered load above which an event loop gathers operations by default,
/// operations/s: below it a wake-up each costs less than half a core.
pub const GATHER_RATE: f64 = 25_000.0;

/// For how long it then holds an operation that is due, at most.
pub const GATHER_SLACK: Duration = Duration::from_micros(175);

/// Warming up until steady, by the test in `docs/warm-up.md`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steady {
    /// The longest warm-up. What is not steady by then is measured all the
    /// same, and said to be so.
    pub max: Duration,
    /// Change of throughput or mean service time that is allowed between the
    /// halves of the measured part, as a share above zero.
    pub tolerance: f64,
}

impl Steady {
    /// The usual tolerance: 5 %.
    pub const TOLERANCE: f64 = 0.05;
}

/// Holds a run whose clients have all connected until it may begin: with others, at an
/// instant that all have agreed on.
#[derive(Clone)]
pub struct Gate(Arc<dyn Fn() -> Option<u64> + Send + Sync>);

impl Gate {
    /// `wait` returns the instant at which the run begins, ns of
    /// [`now`](crate::clock::now), or `None` if it shall not begin.
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

/// What had ended at an instant of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Look {
    /// The instant, ns from the start.
    pub at: u64,
    /// Operations (units) that have ended since then.
    pub operations: u64,
    /// The sum of their service times, ns; past 2^64 it begins at 0 again.
    pub service_ns: u64,
}

/// Says when the measured part of a run begins that warms up until steady: of several that
/// run together, none knows by itself.
#[derive(Clone)]
pub struct Judge(Arc<dyn Fn(Look) -> Option<u64> + Send + Sync>);

impl Judge {
    /// `look` is told every 50 ms of the warm-up what has ended, and returns the instant at which the measured
    /// part begins, ns of [`now`](crate::clock::now), once that is known. Until then the longest warm-up holds.
    pub fn new(look: impl Fn(Look) -> Option<u64> + Send + Sync + 'static) -> Judge {
        Judge(Arc::new(look))
    }

    pub(crate) fn look(&self, look: Look) -> Option<u64> {
        (self.0)(look)
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge")
    }
}

/// What to run, beside store and workload.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Clients, each with one operation in flight at most. Above zero.
    pub clients: usize,
    /// Event loops for stores that use them; `None` for a number that leaves
    /// half of the machine to a store beside the client.
    pub event_loops: Option<usize>,
    /// Time before what is measured, the least if it is to last until steady.
    pub warm_up: Duration,
    /// Whether the warm-up goes on until the run is steady; `None` for exactly
    /// [`warm_up`](Self::warm_up). Needs a constant rate, or none.
    pub steady: Option<Steady>,
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
    /// The part of the offered load that is this process's.
    pub share: Share,
    /// The seed of all random choices.
    pub seed: u64,
    /// What is written down beyond histograms.
    pub recorder: RecorderOptions,
    /// What holds it until it may begin. Not in virtual time.
    pub gate: Option<Gate>,
    /// Who says when it is steady; `None` for itself.
    pub judge: Option<Judge>,
    /// Whether the store is told at the end that all is over ([`Store::finish`]): not by a run beside
    /// another on the same open store.
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
    /// The longest time that the warm-up may take.
    pub fn warm_up_max(&self) -> Duration {
        self.steady.map_or(self.warm_up, |steady| steady.max.max(self.warm_up))
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

    pub(crate) fn attach(&self, stage: &Arc<Stage>) {
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
    /// Something is amiss with what was asked for, and the run begins all the same.
    fn warn(&mut self, warning: &str) {
        let _ = warning;
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

/// What a run found.
#[derive(Debug)]
pub struct RunRecord {
    /// When the clients were let go.
    pub started: SystemTime,
    /// When the first of its clients began, and the last, ns of
    /// [`now`](crate::clock::now).
    pub began: Option<(u64, u64)>,
    /// From the end of warm-up to the end of the last operation, or of the
    /// run's time if that is later.
    pub duration: Duration,
    /// The time before, as long as it was.
    pub warm_up: Duration,
    /// How the warm-up ended, if it was to last until steady and it ended.
    pub steadiness: Option<Steadiness>,
    /// Whether it stayed what it was while it was measured; absent where that
    /// cannot be told.
    pub stationarity: Option<Stationarity>,
    /// Why it ended.
    pub ended_by: EndedBy,
    /// Everything that was written down.
    pub totals: Totals,
    /// What the store said to failures.
    pub messages: Messages,
    /// Older measurement types, a thread or event loop each, if they were asked
    /// for.
    pub legacy: Vec<Legacy>,
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
    /// What the clients ran on.
    pub execution: ClientExecution,
    /// Why the run could not go on, if it could not.
    pub lost: Option<Lost>,
    /// Operations that the schedule asked for in the measured time.
    pub due: Option<f64>,
    /// How long operations due were held to be sent together.
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
    /// Steadiness cannot be told from a load that changes.
    #[error(
        "warming up until steady needs a constant target: with target.schedule, set warmup and leave warmup.max out"
    )]
    ChangingRate,
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

/// A run that is ready to begin, in real time or virtual.
pub(crate) struct Prepared<S> {
    pub(crate) options: RunOptions,
    pub(crate) stage: Arc<Stage>,
    pub(crate) crew: Arc<Crew<S>>,
    slack: Duration,
}

impl<S: Store> Prepared<S> {
    /// Looks at the options. `slack` says how long operations that are due are
    /// held.
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
        // Response times of their own: with intended starts, or when the store
        // tells service times of its own.
        options.recorder.paced = options.rate.is_some() || store.times_itself();
        let slack = slack(&options);
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
            slack: nanoseconds(slack),
        });
        Ok(Prepared { options, stage, crew, slack })
    }

    pub(crate) fn conductor<'a, C: Clock>(
        &'a self,
        clock: C,
        recorders: Vec<Arc<Recorder>>,
        observer: &'a mut dyn Observer,
    ) -> Conductor<'a, C> {
        let Prepared { options, stage, crew, slack } = self;
        Conductor { clock, stage, options, units: crew.units, slack: *slack, recorders, observer }
    }

    /// What can only be said when nothing runs any more.
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

/// Runs a workload on a store. Returns when all is done, the time is over, or
/// `control` says so; a store that hangs delays that by the grace at most.
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
    let Prepared { stage, crew, options, .. } = &prepared;
    let loops = loops_of(options);
    let recorders = if threads { crew.on_threads() } else { crew.on_event_loops(loops) };
    let recorders = match recorders {
        Ok(recorders) => recorders,
        Err(error) => {
            stage.cancel();
            return Err(error.into());
        }
    };
    let execution =
        if threads { ClientExecution::Threads(options.clients) } else { ClientExecution::EventLoops(loops) };
    let record = prepared.conductor(SystemClock, recorders, observer).conduct(workload.verifies())?;
    prepared.complete(record, store, execution)
}
