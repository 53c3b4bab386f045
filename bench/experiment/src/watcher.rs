//! Events of a running experiment, for dashboards, status lines and metrics.

use serval_result::{
    document::ResultDocument,
    experiment::{ExperimentDocument, RunEntry, RunKind},
};
use serval_runner::Observer;
use std::time::Duration;

/// A load, run or removal of records in an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentStep {
    /// Index of the curve in the document.
    pub curve: usize,
    /// Purpose of the run.
    pub kind: RunKind,
    /// Description: `load`, `40 %, repeat 2 of 3`, `search: 16 clients`.
    pub what: String,
    /// Offered load, operations/s; `None` without a target.
    pub target: Option<f64>,
    /// Number of clients.
    pub clients: usize,
    /// Longest warm-up.
    pub warm_up_max: Duration,
    /// Measured time; `None` for a load, whose time is not known beforehand.
    pub time: Option<Duration>,
    /// Names of the workload's own metrics.
    pub metrics: Vec<String>,
    /// Number of units of a load.
    pub units: Option<u64>,
    /// Number of planned runs that are done, without searches and loads.
    pub done: u64,
    /// Number of planned runs, without searches and loads.
    pub planned: u64,
    /// Estimated time of the remaining runs.
    pub remaining: Duration,
}

impl ExperimentStep {
    /// Returns whether `what` contains the number of clients, as in a search for the saturation.
    pub fn names_clients(&self) -> bool {
        self.kind == RunKind::Search && self.target.is_none()
    }
}

/// Observer of an experiment. Its methods are called on the thread that conducts the experiment, never on a client's
/// thread. Events of the present run arrive through [`Observer`].
pub trait Watcher: Observer {
    /// Receives the document: at the start, on resumption and after each run.
    fn experiment(&mut self, document: &ExperimentDocument) {
        let _ = document;
    }
    /// Receives a step that begins.
    fn step(&mut self, step: &ExperimentStep) {
        let _ = step;
    }
    /// Receives a run that has ended, with its result.
    fn ended(&mut self, entry: &RunEntry, result: &ResultDocument) {
        let _ = (entry, result);
    }
    /// Receives a message for the user, one sentence.
    fn note(&mut self, words: &str) {
        let _ = words;
    }
}

impl Watcher for () {}
