//! The record of a run, and its observer.

use serval_measure::{
    histogram::Histogram,
    legacy::LegacyMeasurements,
    recorder::{Messages, Pair, Totals},
};
use serval_model::{Metric, Status, StoreError};
pub use serval_result::document::EndedBy;
use serval_result::load::{Stationarity, Steadiness};
use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

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
///
/// An observer around others passes the events that it does not handle itself to them, by
/// [`pass_on`](Observer::pass_on).
pub trait Observer {
    /// Calls `event` with each observer to which events are passed on.
    fn pass_on(&mut self, event: &mut dyn FnMut(&mut dyn Observer)) {
        let _ = event;
    }
    /// Called when `clients` of `of` clients have connected.
    fn connected(&mut self, clients: usize, of: usize) {
        self.pass_on(&mut |inner| inner.connected(clients, of));
    }
    /// Called with a warning about the options. The run starts nevertheless.
    fn warn(&mut self, warning: &str) {
        self.pass_on(&mut |inner| inner.warn(warning));
    }
    /// Called when the clients have been started.
    fn started(&mut self, at: SystemTime) {
        self.pass_on(&mut |inner| inner.started(at));
    }
    /// Called when the measured part begins: when the conductor wakes for it, a fraction of a
    /// millisecond late; without a warm-up, just before the start.
    fn measuring(&mut self) {
        self.pass_on(&mut |inner| inner.measuring());
    }
    /// Called when the measured part has ended. No client sends operations any more, except for
    /// those that hang. Connections are still open and threads still exist.
    fn measured(&mut self) {
        self.pass_on(&mut |inner| inner.measured());
    }
    /// Called ten times a second.
    fn progress(&mut self, progress: &Progress) {
        self.pass_on(&mut |inner| inner.progress(progress));
    }
    /// Called at the end of each interval.
    fn interval(&mut self, interval: &Interval) {
        self.pass_on(&mut |inner| inner.interval(interval));
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
    pub legacy: Vec<LegacyMeasurements>,
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
    /// Event loops or threads of the clients.
    pub execution: ClientExecution,
    /// Why the run could not continue, if it could not.
    pub lost: Option<AbortCause>,
    /// Operations that the schedule asked for in the measured part.
    pub due: Option<f64>,
    /// Time for which operations that were due were held, to be sent together.
    pub slack: Duration,
}

/// Event loops or threads of a run's clients.
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
pub enum AbortCause {
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
