//! What an experiment file of a sweep or search asks for.

use super::{group::GroupEntry, heading::Heading, lines::PropertyLine, points::LoadPoint};
use crate::promise::Promise;
use serval_model::properties::Origin;
use serval_runner::pacing::Arrivals;
use std::{path::PathBuf, time::Duration};

/// The state of the records before each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatePolicy {
    /// Inserted records stay; inserts continue after the last key.
    Continue,
    /// They are removed and loaded again.
    Reload,
    /// The loaded state is put back.
    Snapshot,
}

impl StatePolicy {
    /// Names in files and on the command line.
    pub const NAMES: [(&'static str, StatePolicy); 3] = [
        ("continue", StatePolicy::Continue),
        ("reload", StatePolicy::Reload),
        ("snapshot", StatePolicy::Snapshot),
    ];
}

/// In which order points are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointOrder {
    /// Anew in every repeat.
    Shuffled,
    /// As the file has them.
    Rising,
}

impl PointOrder {
    /// Names in files and on the command line.
    pub const NAMES: [(&'static str, PointOrder); 2] =
        [("shuffled", PointOrder::Shuffled), ("rising", PointOrder::Rising)];
}

/// Names of arrivals in files and on the command line.
pub const ARRIVALS: [(&str, Arrivals); 3] =
    [("poisson", Arrivals::Poisson), ("uniform", Arrivals::Uniform), ("client", Arrivals::Client)];

/// How every run is made.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// Clients; `None` to find out how many saturate the store.
    pub clients: Option<u64>,
    /// How intended starts are spaced.
    pub arrivals: Arrivals,
    /// Measured time of a run.
    pub time: Duration,
    /// Warm-up at least.
    pub warm_up: Duration,
    /// Warm-up at most, until steady; zero for exactly `warm_up`.
    pub warm_up_max: Duration,
    /// Runs of each point.
    pub repeats: u64,
    /// The records between runs.
    pub state: StatePolicy,
    /// The order of points.
    pub order: PointOrder,
    /// The seed; `None` to draw one.
    pub seed: Option<u64>,
    /// Whether the records must be loaded; else they are there.
    pub load: bool,
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            clients: None,
            arrivals: Arrivals::Poisson,
            time: Duration::from_secs(30),
            warm_up: Duration::from_secs(2),
            warm_up_max: Duration::from_secs(60),
            repeats: 3,
            state: StatePolicy::Continue,
            order: PointOrder::Shuffled,
            seed: None,
            load: true,
        }
    }
}

impl RunSettings {
    /// What is wrong with settings that are each right alone: the key, and
    /// the problem.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.time < Duration::from_millis(10) {
            return Err(("time", "must be 10 ms or more".into()));
        }
        if !self.warm_up_max.is_zero() && self.warm_up_max < self.warm_up {
            return Err(("warmup_max", "is less than warmup".into()));
        }
        Ok(())
    }
}

/// The question about each curve.
#[derive(Debug, Clone, PartialEq)]
pub enum CurveObjective {
    /// Times at these offered loads.
    Sweep(Vec<LoadPoint>),
    /// The highest rate that keeps a promise.
    Max(Promise),
}

/// A store of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreEntry {
    /// What it is called.
    pub name: String,
    /// The store's name or YCSB class.
    pub binding: String,
    /// Processes whose costs are measured.
    pub watch: Vec<String>,
    /// A command that is run once the records are loaded.
    pub save: Option<String>,
    /// A command that brings them back.
    pub restore: Option<String>,
    /// Its properties.
    pub properties: Vec<PropertyLine>,
    /// Its place in the file.
    pub origin: Option<Origin>,
}

/// A workload of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadEntry {
    /// What it is called; empty for the only one.
    pub name: String,
    /// Its file, as it is found from here.
    pub file: Option<PathBuf>,
    /// Its place on the axis.
    pub at: Option<f64>,
    /// Its properties.
    pub properties: Vec<PropertyLine>,
    /// Its place in the file.
    pub origin: Option<Origin>,
}

/// An experiment file, read but not yet checked against stores and workloads.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentFile {
    /// Title and description.
    pub heading: Heading,
    /// What workloads' places stand for.
    pub axis: Option<String>,
    /// How every run is made.
    pub run: RunSettings,
    /// The question.
    pub question: CurveObjective,
    /// The client processes that make every run together, if several do.
    pub group: Option<GroupEntry>,
    /// Properties of all curves.
    pub properties: Vec<PropertyLine>,
    /// The stores.
    pub stores: Vec<StoreEntry>,
    /// The workloads.
    pub workloads: Vec<WorkloadEntry>,
}
