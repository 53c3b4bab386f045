//! Looking on while an experiment goes: what a dashboard, plain lines or
//! metrics for others are made of.

use serval_result::{
    document::ResultDocument,
    experiment::{ExperimentDocument, RunEntry, RunKind},
};
use serval_runner::Observer;
use std::time::Duration;

/// A step of an experiment that takes its time.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentStep {
    /// The curve that it is for, by its place in the document's list.
    pub curve: usize,
    /// What the run is for.
    pub kind: RunKind,
    /// In words: `load`, `40 %, repeat 2 of 3`, `search: 16 clients`.
    pub what: String,
    /// Offered load, operations/s, if there is one.
    pub target: Option<f64>,
    /// Clients.
    pub clients: usize,
    /// Longest warm-up.
    pub warm_up_max: Duration,
    /// Measured time; `None` for a load, which is as long as it is.
    pub time: Option<Duration>,
    /// Names of the workload's own metrics.
    pub metrics: Vec<String>,
    /// Units of a load.
    pub units: Option<u64>,
    /// Runs of the plan that are done, and how many there are; searches and
    /// loads are not among them.
    pub done: u64,
    /// All of them.
    pub planned: u64,
    /// How long the rest will take, as far as is known.
    pub remaining: Duration,
}

impl ExperimentStep {
    /// Whether `what` has the number of clients in it: in a search for the saturation.
    pub fn names_clients(&self) -> bool {
        self.kind == RunKind::Search && self.target.is_none()
    }
}

/// Observer of an experiment. Called on the thread that conducts it, which is never a
/// client's. Events of the present run come through [`Observer`].
pub trait Watcher: Observer {
    /// The experiment begins, or goes on; also after each run, with what has
    /// become known.
    fn experiment(&mut self, document: &ExperimentDocument) {
        let _ = document;
    }
    /// A step begins.
    fn step(&mut self, step: &ExperimentStep) {
        let _ = step;
    }
    /// A run has ended.
    fn ended(&mut self, entry: &RunEntry, result: &ResultDocument) {
        let _ = (entry, result);
    }
    /// Something to tell, in a sentence.
    fn note(&mut self, words: &str) {
        let _ = words;
    }
}

impl Watcher for () {}
