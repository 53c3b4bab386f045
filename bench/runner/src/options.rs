//! The options of a run.

use crate::pacing::{Arrivals, rate::RateSchedule};
use serval_measure::recorder::RecorderOptions;
use serval_model::Share;
use std::{fmt, sync::Arc, time::Duration};

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
pub struct WarmUpJudge(Arc<dyn Fn(Sample) -> Option<u64> + Send + Sync>);

impl WarmUpJudge {
    /// Creates a judge. `judge` is called every 50 ms of the warm-up. It returns the instant at
    /// which the measured part begins, ns of [`now`](crate::clock::now), once that is known. Until
    /// then the longest warm-up applies.
    pub fn new(judge: impl Fn(Sample) -> Option<u64> + Send + Sync + 'static) -> WarmUpJudge {
        WarmUpJudge(Arc::new(judge))
    }

    pub(crate) fn judge(&self, sample: Sample) -> Option<u64> {
        (self.0)(sample)
    }
}

impl fmt::Debug for WarmUpJudge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WarmUpJudge")
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
    /// Measurements beyond histograms.
    pub recorder: RecorderOptions,
    /// Holds the run until it may begin. Not used in virtual time.
    pub gate: Option<Gate>,
    /// Decides when the run is in steady state; `None` for the process itself.
    pub judge: Option<WarmUpJudge>,
    /// Whether to call [`Store::finish`](serval_model::Store::finish) at the end. `false` if another
    /// run uses the same open store concurrently.
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
