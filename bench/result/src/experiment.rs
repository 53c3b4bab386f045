//! The document of an experiment: which runs there are, what each was for,
//! and what was found of each curve. The runs' own results are files of their
//! own, in folders beside it.
//!
//! Serval writes it as `experiment.json` and writes it anew after every run,
//! so that an interrupted experiment can go on and a report can be made at any
//! time. Its version is counted apart from that of results, by the same rule:
//! a field is never renamed or given another unit under the same version.

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
    /// What it is called.
    pub title: String,
    /// What it is for, in words; may be empty.
    #[serde(default)]
    pub about: String,
    /// The published figure or table that it stands for; may be empty.
    #[serde(default)]
    pub figure: String,
    /// What the publication saw; may be empty.
    #[serde(default)]
    pub saw: String,
    /// `sweep`, `max` or `phases`.
    pub kind: Word<ExperimentKind>,
    /// When it began, RFC 3339.
    pub started: String,
    /// The command line that began it.
    pub command_line: Vec<String>,
    /// The experiment file in force, TOML: what runs it again.
    pub plan: String,
    /// The seed that those of all runs come from.
    pub seed: u64,
    /// What curves differ in beside the store, if they stand for points of
    /// one axis: `records a range`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<String>,
    /// On what machine the client ran.
    pub environment: Environment,
    /// The curves, in the order of the plan.
    pub curves: Vec<Curve>,
    /// The runs that have ended, in order of time.
    pub runs: Vec<RunEntry>,
    /// The phases that have ended, in order of time; empty in experiments of other kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseEntry>,
    /// Runs that the plan has in all, searches left out: their number is not
    /// known before. In an experiment of phases, its phases.
    pub runs_planned: u64,
    /// Whether all of them have been done.
    pub complete: bool,
    /// Where the time went, s, by name: `loading`, `searching`, `warming up`,
    /// `measuring`, `restoring`, `other`.
    #[serde(default)]
    pub time_s: BTreeMap<String, f64>,
    /// Things a reader must know before quoting a number: the notes in words.
    pub warnings: Vec<String>,
    /// The same for programs, in the same order; absent in experiments of older versions.
    #[serde(default)]
    pub notes: Vec<Note>,
}

/// What an experiment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentKind {
    /// Points of offered load.
    #[default]
    Sweep,
    /// A search for the highest rate under a promise.
    Max,
    /// Phases, one after the other.
    Phases,
    /// A single run, as reports of several have it; no file says so.
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
    /// What it is called: the store's name in the plan, and the workload's if
    /// there are several.
    pub name: String,
    /// The store's name in the plan.
    pub store: String,
    /// The store.
    pub binding: String,
    /// The workload's name in the plan.
    pub workload: String,
    /// Its place on the experiment's axis, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// Where the store saturates, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Saturation>,
    /// What a search for the highest rate under a promise found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<Highest>,
}

/// Where a store saturates: more clients do not get more done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Saturation {
    /// Operations/s.
    pub throughput: f64,
    /// Clients that reached it, as fast as the store answers.
    pub clients: u64,
    /// Whether the number of clients was raised until nothing was gained, and
    /// not given or at its limit.
    pub found: bool,
}

/// The highest rate that keeps a promise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Highest {
    /// The promise, as it was given.
    pub promise: String,
    /// The highest rate that keeps it, operations/s.
    pub rate: f64,
    /// A confidence interval of it, operations/s.
    pub low: f64,
    /// The upper end; the largest double where it is not known.
    pub high: f64,
    /// Its level: 0.95.
    pub confidence: f64,
    /// What must be known of it, in words: that the promise was never broken,
    /// for example.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The runs that it was found by, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<PromiseTrial>,
}

/// How one run stood to the promise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromiseTrial {
    /// The run's folder, which tells it from others.
    pub folder: String,
    /// Whether every condition was kept.
    pub kept: bool,
    /// What was promised and what came of it, by condition.
    pub values: Vec<PromiseValue>,
}

/// How one condition of a promise was kept in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromiseValue {
    /// What is promised to stay below the limit: `read.p99`.
    pub quantity: String,
    /// What it was: ns, or a share from 0 to 1; absent if nothing ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The limit, in the same unit.
    pub limit: f64,
    /// Whether both are times, ns; else they are shares.
    pub is_time: bool,
}

/// What a run was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RunKind {
    /// Loading the records.
    Load,
    /// Looking for the saturation, or the highest rate.
    Search,
    /// A point of the curve.
    Point,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunEntry {
    /// The curve's place in the list, from 0.
    pub curve: usize,
    /// What it was for.
    pub kind: RunKind,
    /// The point's place on the curve, from 0; 0 for other kinds.
    pub point: usize,
    /// Which of the point's repeats, from 0.
    pub repeat: u32,
    /// Offered load, operations/s; absent for as fast as the store answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// What share of the curve's saturation that load is, if it was asked for so: 0.5 is half;
    /// absent for rates and in experiments of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Clients.
    pub clients: u64,
    /// Its folder, below the experiment's: `runs/0007-redis-60%-2`. It has
    /// `result.json` and `histograms.hlog`.
    pub folder: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// Operations/s.
    pub throughput: f64,
    /// Of these, failed.
    #[serde(default)]
    pub failed_per_s: f64,
    /// Measured seconds.
    pub duration_s: f64,
    /// Seconds of warm-up before.
    pub warm_up_s: f64,
    /// Seconds from the first step for this run to the last.
    pub whole_s: f64,
    /// Records that were there before it, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_before: Option<u64>,
    /// What to know of it.
    pub flags: Vec<Flag>,
}

impl RunEntry {
    /// A run with this result, of the first curve and point, as fast as the store
    /// answers.
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

/// A phase that has ended. Times are seconds since the first phase began, by the clock of
/// the process that conducts: one axis for all phases.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseEntry {
    /// What it is called.
    pub name: String,
    /// `load`, `run`, `pause`, `presplit`, `command` or `wait`.
    pub kind: String,
    /// The clients that took part, by their numbers from 1; empty for all, or for this process
    /// alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<u64>,
    /// When it began, RFC 3339.
    pub started: String,
    /// When it began, s; what is made ready (connections, for example) is in it.
    pub start_s: f64,
    /// When it had ended, s.
    pub end_s: f64,
    /// Where the intervals of its result begin to count, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series_start_s: Option<f64>,
    /// The folder of its result, below the experiment's, for loads and runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Why it ended before its time, if it did: its numbers are of the part that was done. Whoever goes on
    /// with the experiment makes it again, and this entry goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// Operations that it measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Of these, how many failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// Operations/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<f64>,
    /// What was run, for phases that are a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// How often it was asked, for a wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// The last lines that it printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
    /// What to know of a load or run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
    /// What is to be known of it before quoting a number: the notes in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The same for programs, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// The JSON Schema of [`ExperimentDocument`], pretty-printed. The tests compare it with the type.
pub fn json_schema() -> &'static str {
    include_str!("../../../docs/experiment.schema.json")
}
