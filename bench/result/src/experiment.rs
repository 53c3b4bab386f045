//! The experiment document: the runs, the purpose of each, and the findings
//! for each curve. The runs' results are files of their own, in folders beside
//! it.
//!
//! Serval rewrites `experiment.json` after every run, so that an interrupted
//! experiment can be resumed and a report can be made at any time. Its version
//! is independent of the result document's and follows the same rule: under
//! one version no field changes its name or unit.

pub use crate::flags::Flag;

use crate::{
    document::{Environment, ResultDocument},
    flags::flags,
    note::Note,
    word::Word,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Version of the experiment document's schema.
pub const EXPERIMENT_VERSION: u32 = 1;

/// An experiment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExperimentDocument {
    /// Version of this schema: 1.
    pub experiment_version: u32,
    /// Serval's version.
    pub serval_version: String,
    /// Its title.
    pub title: String,
    /// Purpose as text; may be empty.
    #[serde(default)]
    pub about: String,
    /// The published figure or table that it repeats; may be empty.
    #[serde(default)]
    pub figure: String,
    /// Finding of the publication; may be empty.
    #[serde(default)]
    pub saw: String,
    /// `sweep`, `max` or `phases`.
    pub kind: Word<ExperimentKind>,
    /// Start, RFC 3339.
    pub started: String,
    /// The command line that started it.
    pub command_line: Vec<String>,
    /// The experiment file in force, TOML. Running it repeats the experiment.
    pub plan: String,
    /// The seed from which the seeds of all runs are derived.
    pub seed: u64,
    /// The quantity in which curves differ besides the store, if they are
    /// points of one axis: `records a range`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<String>,
    /// Machine that the client ran on.
    pub environment: Environment,
    /// The curves, in the order of the plan.
    pub curves: Vec<Curve>,
    /// The runs that have ended, in order of time.
    pub runs: Vec<RunEntry>,
    /// The phases that have ended, in order of time; empty in experiments of other kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseEntry>,
    /// Runs in the plan, without searches, whose number is not known in
    /// advance. For an experiment of phases, its number of phases.
    pub runs_planned: u64,
    /// Whether all planned runs are done.
    pub complete: bool,
    /// Seconds spent by activity: `loading`, `searching`, `warming up`,
    /// `measuring`, `restoring`, `other`.
    #[serde(default)]
    pub time_s: BTreeMap<String, f64>,
    /// Warnings for readers of the numbers: the text of `notes`.
    pub warnings: Vec<String>,
    /// The warnings as codes with arguments, in the same order; absent in experiments of older
    /// versions.
    #[serde(default)]
    pub notes: Vec<Note>,
}

/// Kind of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentKind {
    /// A sweep over offered loads.
    #[default]
    Sweep,
    /// A search for the highest rate that meets an SLO.
    Max,
    /// A sequence of phases.
    Phases,
    /// A single run in a report of several; never in a file.
    Run,
}

impl fmt::Display for ExperimentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExperimentKind::Sweep => "sweep",
            ExperimentKind::Max => "max",
            ExperimentKind::Phases => "phases",
            ExperimentKind::Run => "run",
        })
    }
}

/// One workload on one store: a line of the figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Curve {
    /// Its name: the store's name in the plan, with the workload's if there are
    /// several.
    pub name: String,
    /// The store's name in the plan.
    pub store: String,
    /// The store's binding.
    pub binding: String,
    /// The workload's name in the plan.
    pub workload: String,
    /// Its coordinate on the experiment's axis, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// The store's saturation, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Saturation>,
    /// Result of a search for the highest rate that meets an SLO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<Highest>,
}

/// Saturation of a store: more clients do not raise the throughput.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Saturation {
    /// Throughput at saturation, operations/s.
    pub throughput: f64,
    /// Number of clients that reached it in a closed loop.
    pub clients: u64,
    /// Whether the search raised the number of clients until the throughput no
    /// longer rose; false if the number was given or limited.
    pub found: bool,
}

/// The highest rate that meets an SLO.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Highest {
    /// The SLO as written in the plan.
    pub promise: String,
    /// The highest rate that meets it, operations/s.
    pub rate: f64,
    /// Lower end of the rate's confidence interval, operations/s.
    pub low: f64,
    /// Upper end; the largest double if it is unknown.
    pub high: f64,
    /// Level of the interval: 0.95.
    pub confidence: f64,
    /// Remarks as text: that no run violated the SLO, for example.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The runs of the search, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<PromiseTrial>,
}

/// Verdict of one run on the SLO.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromiseTrial {
    /// The run's folder, which identifies it.
    pub folder: String,
    /// Whether the run met every condition.
    pub kept: bool,
    /// Values and limits by condition.
    pub values: Vec<PromiseValue>,
}

/// Value of one condition of an SLO in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromiseValue {
    /// The quantity that must stay below the limit: `read.p99`.
    pub quantity: String,
    /// Its value: ns, or a share from 0 to 1; absent if no operation ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The limit, in the same unit.
    pub limit: f64,
    /// Whether value and limit are times, ns; otherwise they are shares.
    pub is_time: bool,
}

/// Purpose of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RunKind {
    /// Loads the records.
    Load,
    /// Belongs to the search for the saturation or the highest rate.
    Search,
    /// Measures a point of the curve.
    Point,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunEntry {
    /// Index of the curve, from 0.
    pub curve: usize,
    /// Purpose of the run.
    pub kind: RunKind,
    /// Index of the point on the curve, from 0; 0 for other kinds.
    pub point: usize,
    /// Number of the repeat, from 0.
    pub repeat: u32,
    /// Offered load, operations/s; absent for a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// The offered load as a share of the curve's saturation, if the plan states it as one: 0.5 is
    /// half. Absent for rates and in experiments of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Number of clients.
    pub clients: u64,
    /// Its folder, below the experiment's: `runs/0007-redis-60%-2`. It contains
    /// `result.json` and `histograms.hlog`.
    pub folder: String,
    /// Start, RFC 3339.
    pub started: String,
    /// Throughput, operations/s.
    pub throughput: f64,
    /// Rate of failed operations, operations/s.
    #[serde(default)]
    pub failed_per_s: f64,
    /// Measured time, s.
    pub duration_s: f64,
    /// Warm-up before it, s.
    pub warm_up_s: f64,
    /// Time from the first step for this run to the last, s.
    pub whole_s: f64,
    /// Records in the store before it, if the number is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_before: Option<u64>,
    /// Its flags.
    pub flags: Vec<Flag>,
}

impl RunEntry {
    /// Returns the entry of a run with this result, as a closed-loop run of the first curve and
    /// point.
    pub fn of(document: &ResultDocument, kind: RunKind, folder: String) -> RunEntry {
        let overall = &document.overall;
        RunEntry {
            curve: 0,
            kind,
            point: 0,
            repeat: 0,
            target: None,
            share: None,
            clients: document.run.clients,
            folder,
            started: document.run.started.clone(),
            throughput: overall.throughput,
            failed_per_s: overall.failed_per_s(),
            duration_s: overall.duration_s,
            warm_up_s: overall.warm_up_s,
            whole_s: overall.duration_s + overall.warm_up_s,
            records_before: None,
            flags: flags(document),
        }
    }
}

/// A phase that has ended. Times are seconds since the first phase began, by the conductor's
/// clock: one axis for all phases.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseEntry {
    /// Its name.
    pub name: String,
    /// `load`, `run`, `pause`, `presplit`, `command` or `wait`.
    pub kind: String,
    /// The clients that took part, by their numbers from 1; empty for all, and for a run without
    /// a group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<u64>,
    /// Start, RFC 3339.
    pub started: String,
    /// Start, s; set-up, of connections for example, comes after it.
    pub start_s: f64,
    /// End, s.
    pub end_s: f64,
    /// Start of its result's intervals, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series_start_s: Option<f64>,
    /// Folder of its result, below the experiment's, for loads and runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Why it ended early, if it did. Its numbers then cover the part that was done. Resuming the
    /// experiment repeats the phase and replaces this entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// Operations that it measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Number of these that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// Throughput, operations/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<f64>,
    /// The command, for phases that run a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Number of polls, for a wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// Last lines of the program's output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
    /// Flags of a load or run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
    /// Warnings for readers of the numbers: the text of `notes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The warnings as codes with arguments, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// The JSON Schema of [`ExperimentDocument`], pretty-printed. The tests compare it with the type.
pub fn json_schema() -> &'static str {
    include_str!("../../../docs/experiment.schema.json")
}
