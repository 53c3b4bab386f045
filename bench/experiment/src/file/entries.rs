//! Content of an experiment file of a sweep or search.

use super::{group::GroupEntry, heading::Heading, lines::PropertyLine, points::LoadPoint};
use crate::promise::Promise;
use serval_model::properties::Origin;
use serval_runner::pacing::Arrivals;
use std::{path::PathBuf, time::Duration};

/// State of the records before each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatePolicy {
    /// Inserted records stay; inserts continue after the last key.
    Continue,
    /// All records are removed and loaded again.
    Reload,
    /// A snapshot of the loaded state is restored.
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

/// Order of the points of a repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointOrder {
    /// Shuffled anew for each repeat.
    Shuffled,
    /// As listed in the file.
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

/// Settings of all runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// Number of clients; `None` to search for the number that saturates the store.
    pub clients: Option<u64>,
    /// Spacing of intended starts.
    pub arrivals: Arrivals,
    /// Measured time of a run.
    pub time: Duration,
    /// Shortest warm-up.
    pub warm_up: Duration,
    /// Longest warm-up until steady; zero for exactly `warm_up`.
    pub warm_up_max: Duration,
    /// Runs of each point.
    pub repeats: u64,
    /// State of the records before each run.
    pub state: StatePolicy,
    /// Order of points.
    pub order: PointOrder,
    /// Seed; `None` to draw one.
    pub seed: Option<u64>,
    /// Whether the experiment loads the records; if not, they exist already.
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
    /// Checks settings against each other. The error has a key and the problem.
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

/// Objective of an experiment for each curve.
#[derive(Debug, Clone, PartialEq)]
pub enum CurveObjective {
    /// Measure times at these offered loads.
    Sweep(Vec<LoadPoint>),
    /// Find the highest rate that keeps the SLO.
    Max(Promise),
}

/// A store of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreEntry {
    /// Name of the store in the experiment.
    pub name: String,
    /// Name or YCSB class of the store.
    pub binding: String,
    /// Processes whose costs are measured.
    pub watch: Vec<String>,
    /// Command that saves the loaded records.
    pub save: Option<String>,
    /// Command that restores the saved records.
    pub restore: Option<String>,
    /// Properties of the store.
    pub properties: Vec<PropertyLine>,
    /// Place of the entry in the file.
    pub origin: Option<Origin>,
}

/// A workload of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadEntry {
    /// Name of the workload; empty for the only one.
    pub name: String,
    /// Path of the workload's file, from the working directory.
    pub file: Option<PathBuf>,
    /// Position on the axis.
    pub at: Option<f64>,
    /// Properties of the workload.
    pub properties: Vec<PropertyLine>,
    /// Place of the entry in the file.
    pub origin: Option<Origin>,
}

/// An experiment file, read but not yet checked against stores and workloads.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentFile {
    /// Title and description.
    pub heading: Heading,
    /// Label of the axis on which workloads have positions.
    pub axis: Option<String>,
    /// Settings of all runs.
    pub run: RunSettings,
    /// Objective for each curve.
    pub question: CurveObjective,
    /// The group of client processes that perform every run together.
    pub group: Option<GroupEntry>,
    /// Properties of all curves.
    pub properties: Vec<PropertyLine>,
    /// The stores.
    pub stores: Vec<StoreEntry>,
    /// The workloads.
    pub workloads: Vec<WorkloadEntry>,
}
