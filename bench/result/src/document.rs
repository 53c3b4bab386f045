//! The result document: what a run found, what was run, and where.
//!
//! Serval writes it as `result.json`. Its schema is made from these types
//! (`serval schema`) and carries a version: a field is never renamed or
//! given another unit under the same version. Times are in nanoseconds,
//! which the names say.

pub use crate::{
    latency::{Censored, Latency, Percentile, TimesResult},
    metric::{MessageCount, MetricResult},
    series::{IntervalMetric, IntervalPacing, IntervalSummary, IntervalTimes, levels, parse_levels},
};

use crate::{
    group::GroupResult,
    lag::LagResult,
    load::{ClientLoad, ProcessLoad, Stationarity, Steadiness},
    note::Note,
    word::Word,
};
use serde::{Deserialize, Serialize};
use serval_measure::recorder::Buffered;
use std::{collections::BTreeMap, fmt};

/// Version of the document's schema.
pub const SCHEMA_VERSION: u32 = 1;

/// A run's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResultDocument {
    /// Version of this schema: 1.
    pub schema_version: u32,
    /// What was run.
    pub run: RunFacts,
    /// On what machine the client ran.
    pub environment: Environment,
    /// Things a reader must know before quoting a number: the notes in words.
    pub warnings: Vec<String>,
    /// The same for programs, in the same order; absent in results of older versions.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// The numbers as a whole.
    pub overall: Overall,
    /// The numbers by operation. Response times lead.
    pub metrics: Vec<MetricResult>,
    /// Operations that had not ended when the run did.
    pub censored: Censored,
    /// Writes that went through buffers, acknowledged before they were sent;
    /// absent where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffered: Option<BufferedResult>,
    /// How the client kept to its schedule; absent when nothing was paced.
    pub pacing: Option<PacingResult>,
    /// How the warm-up ended, if it was to last until the run is steady.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steadiness: Option<Steadiness>,
    /// Whether the run stayed what it was while it was measured; absent where
    /// that could not be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stationarity: Option<Stationarity>,
    /// What the client used in the measured time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientLoad>,
    /// What watched processes of the store used in the measured time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessLoad>,
    /// The client processes, where several made this result together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupResult>,
    /// How stale reads were, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<LagResult>,
    /// Summary of every interval, in order of time, warm-up included.
    pub series: Vec<IntervalSummary>,
}

/// What was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunFacts {
    /// Serval's version.
    pub serval_version: String,
    /// The label that the user gave, or nothing.
    pub label: String,
    /// `load` or `run`.
    pub phase: String,
    /// The command line.
    pub command_line: Vec<String>,
    /// When the phase began, RFC 3339.
    pub started: String,
    /// The store's name.
    pub store: String,
    /// What the store says of itself: version, address, settings.
    pub store_facts: BTreeMap<String, String>,
    /// The workload's class, as YCSB names it.
    pub workload: String,
    /// The seed of all random choices.
    pub seed: u64,
    /// Clients, each with one operation in flight at most.
    pub clients: u64,
    /// `threads` or `event loops`, and how many.
    pub execution: String,
    /// Every property in force that was given, with its value and origin.
    pub properties: BTreeMap<String, PropertyFact>,
}

/// A property that was given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PropertyFact {
    /// Its text.
    pub value: String,
    /// The file and line, or flag, that set it.
    pub origin: String,
}

/// The machine and system that the client ran on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Environment {
    /// The processor's name.
    pub cpu: String,
    /// Processors that the client may use.
    pub cores: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Operating system and kernel.
    pub kernel: String,
    /// The host's name.
    pub host: String,
    /// The processor architecture and build profile of the client.
    pub build: String,
    /// Whether the client was built without optimization.
    #[serde(default)]
    pub debug: bool,
}

/// The numbers as a whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Overall {
    /// Seconds from the end of warm-up to the end of the last operation.
    /// Connection set-up is before it.
    pub duration_s: f64,
    /// Seconds of warm-up before that.
    pub warm_up_s: f64,
    /// Operations (a read-modify-write is one) finished in that time.
    pub operations: u64,
    /// Of these, how many failed.
    pub failed: u64,
    /// Operations a second.
    pub throughput: f64,
    /// How the run ended: `count`, `time`, `interrupted`, `stopped` (the
    /// clients had no more to do) or `failed`.
    pub ended_by: Word<EndedBy>,
    /// CPU seconds that the client used, all threads, in the measured time.
    pub client_cpu_s: f64,
}

/// Why a run ended. Of several runs the largest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// All units were done, or the schedule was over.
    #[default]
    Count,
    /// The clients had no more to do, before their number of units was done
    /// or the time was over: a script's `stop()`.
    Stopped,
    /// The time was over.
    Time,
    /// A stop was requested.
    Interrupted,
    /// The store was lost, the workload failed, or clients stopped for failures.
    Failed,
}

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndedBy::Count => "count",
            EndedBy::Stopped => "stopped",
            EndedBy::Time => "time",
            EndedBy::Interrupted => "interrupted",
            EndedBy::Failed => "failed",
        })
    }
}

/// Writes that went through buffers. How long it took to send them is in the
/// metric FLUSH.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BufferedResult {
    /// Writes that were sent, whatever became of them.
    pub sent: u64,
    /// Of these, how many were not done, or at most so many where the store
    /// does not say which.
    pub lost: u64,
    /// Writes that were acknowledged and never sent: their client was given
    /// up, or its store was lost.
    pub unsent: u64,
}

/// How the client kept to its schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PacingResult {
    /// The schedule in words.
    pub schedule: String,
    /// Operations a second that it asked for over the measured time.
    pub target: f64,
    /// How arrivals are spaced: `client`, `uniform` or `poisson`.
    pub arrivals: String,
    /// How long operations due may be held to be sent together.
    pub slack_ns: u64,
    /// Actual start after intended start: the client's and the window's part
    /// of the response time.
    pub lateness: Latency,
}

impl BufferedResult {
    /// The counts of a run; nothing where no write went through a buffer.
    pub fn of(buffered: &Buffered) -> Option<Self> {
        let Buffered { sent, lost, unsent } = *buffered;
        (*buffered != Buffered::default()).then_some(BufferedResult { sent, lost, unsent })
    }

    /// Writes that were acknowledged and not done.
    pub fn not_done(&self) -> u64 {
        self.lost.saturating_add(self.unsent)
    }
}

impl Overall {
    /// Operations a second that failed.
    pub fn failed_per_s(&self) -> f64 {
        if self.duration_s > 0.0 { self.failed as f64 / self.duration_s } else { 0.0 }
    }
}

impl ResultDocument {
    /// Whether operations that did not end make a percentile a lower bound.
    pub fn is_lower_bound(&self, percentile: f64) -> bool {
        let unfinished = self.censored.unfinished() as f64;
        let all = self.overall.operations as f64 + unfinished;
        unfinished > 0.0 && percentile > 100.0 * (1.0 - unfinished / all)
    }

    /// Why the client bounded the result; nothing for a run that failed, which its failure explains.
    pub fn client_bounds(&self) -> &[String] {
        match (&self.client, self.overall.ended_by.known()) {
            (Some(client), ended) if ended != Some(EndedBy::Failed) => &client.bound_by_client,
            _ => &[],
        }
    }

    /// Operations that failed, and writes that were acknowledged and not done.
    pub fn failed(&self) -> u64 {
        let not_done = self.buffered.as_ref().map_or(0, BufferedResult::not_done);
        self.overall.failed.saturating_add(not_done)
    }
}

/// The JSON Schema of [`ResultDocument`], pretty-printed. The tests compare it with the type.
pub fn json_schema() -> &'static str {
    include_str!("../../../docs/result.schema.json")
}
