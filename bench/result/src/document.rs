//! The result document: what a run measured, its settings and its machine.
//!
//! Serval writes it as `result.json`. Its schema is derived from these types
//! (`serval schema`) and has a version. Under one version no field changes its
//! name or unit. Times are in nanoseconds unless the field's name has another
//! unit.

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
    /// Settings of the run.
    pub run: RunFacts,
    /// Machine that the client ran on.
    pub environment: Environment,
    /// Warnings for readers of the numbers: the text of `notes`.
    pub warnings: Vec<String>,
    /// The warnings as codes with arguments, in the same order; absent in results of older
    /// versions.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Totals of the measured time.
    pub overall: Overall,
    /// Numbers of each operation.
    pub metrics: Vec<MetricResult>,
    /// Operations in flight or due when the run ended.
    pub censored: Censored,
    /// Buffered writes, which the client acknowledged before it sent them;
    /// absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffered: Option<BufferedResult>,
    /// Lateness against the schedule; absent if the run was not paced.
    pub pacing: Option<PacingResult>,
    /// Result of the steadiness test at the end of the warm-up; absent if the
    /// warm-up had a fixed length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steadiness: Option<Steadiness>,
    /// Changes of throughput and service time in the measured time; absent if
    /// there were too few samples to test for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stationarity: Option<Stationarity>,
    /// Resources that the client used in the measured time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientLoad>,
    /// Resources that watched processes of the store used in the measured time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessLoad>,
    /// The client processes, if several performed this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupResult>,
    /// Read-after-write lag, if the run measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<LagResult>,
    /// Summary of every interval in order of time, warm-up included.
    pub series: Vec<IntervalSummary>,
}

/// Settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunFacts {
    /// Serval's version.
    pub serval_version: String,
    /// The user's label; may be empty.
    pub label: String,
    /// `load` or `run`.
    pub phase: String,
    /// The command line.
    pub command_line: Vec<String>,
    /// When the phase began, RFC 3339.
    pub started: String,
    /// The store's name.
    pub store: String,
    /// The store's description of itself: version, address, settings.
    pub store_facts: BTreeMap<String, String>,
    /// The workload's class, as YCSB names it.
    pub workload: String,
    /// The seed of all random choices.
    pub seed: u64,
    /// Number of clients, each with at most one operation in flight.
    pub clients: u64,
    /// Kind and number of executors: `threads` or `event loops`.
    pub execution: String,
    /// Properties that were set and take effect, with value and origin.
    pub properties: BTreeMap<String, PropertyFact>,
}

/// A property that was set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PropertyFact {
    /// Its value as text.
    pub value: String,
    /// The file and line, or flag, that set it.
    pub origin: String,
}

/// Machine and operating system of the client.
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

/// Totals of the measured time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Overall {
    /// Seconds from the end of the warm-up to the end of the last operation.
    /// Connection set-up comes before.
    pub duration_s: f64,
    /// Seconds of warm-up before the measured time.
    pub warm_up_s: f64,
    /// Operations finished in the measured time; a read-modify-write is one.
    pub operations: u64,
    /// Number of these that failed.
    pub failed: u64,
    /// Operations a second.
    pub throughput: f64,
    /// Why the run ended: `count`, `time`, `interrupted`, `stopped` (the
    /// clients had no more work) or `failed`.
    pub ended_by: Word<EndedBy>,
    /// CPU seconds of all client threads in the measured time.
    pub client_cpu_s: f64,
}

/// Reason for the end of a run. Merged runs have the largest of their reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// All units were done, or the schedule ended.
    #[default]
    Count,
    /// The clients had no more work before they reached their number of units
    /// or the end of the time: a script's `stop()`.
    Stopped,
    /// The time limit was reached.
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

/// Counts of buffered writes. The metric FLUSH has the times of sending them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BufferedResult {
    /// Writes sent, whatever their outcome.
    pub sent: u64,
    /// Number of these that failed; an upper bound if the store does not report
    /// single writes.
    pub lost: u64,
    /// Writes acknowledged and never sent: the runner abandoned their client, or
    /// the store was lost.
    pub unsent: u64,
}

/// Lateness against the schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PacingResult {
    /// The schedule as text.
    pub schedule: String,
    /// Mean offered load in the measured time, operations/s.
    pub target: f64,
    /// Distribution of arrivals: `client`, `uniform` or `poisson`.
    pub arrivals: String,
    /// Longest time for which due operations are held to be sent together, ns.
    pub slack_ns: u64,
    /// Actual start after intended start: the part of the response time that the
    /// client and `slack_ns` add.
    pub lateness: Latency,
}

impl BufferedResult {
    /// Returns the counts of a run; `None` if it buffered no writes.
    pub fn of(buffered: &Buffered) -> Option<Self> {
        let Buffered { sent, lost, unsent } = *buffered;
        (*buffered != Buffered::default()).then_some(BufferedResult { sent, lost, unsent })
    }

    /// Returns the number of writes that were acknowledged and not done.
    pub fn not_done(&self) -> u64 {
        self.lost.saturating_add(self.unsent)
    }
}

impl Overall {
    /// Returns the rate of failed operations, operations/s.
    pub fn failed_per_s(&self) -> f64 {
        if self.duration_s > 0.0 { self.failed as f64 / self.duration_s } else { 0.0 }
    }
}

impl ResultDocument {
    /// Whether unfinished operations make a percentile a lower bound.
    pub fn is_lower_bound(&self, percentile: f64) -> bool {
        let unfinished = self.censored.unfinished() as f64;
        let all = self.overall.operations as f64 + unfinished;
        unfinished > 0.0 && percentile > 100.0 * (1.0 - unfinished / all)
    }

    /// Returns why the client bounded the result; empty for a failed run, whose failure is the
    /// reason.
    pub fn client_bounds(&self) -> &[String] {
        match (&self.client, self.overall.ended_by.known()) {
            (Some(client), ended) if ended != Some(EndedBy::Failed) => &client.bound_by_client,
            _ => &[],
        }
    }

    /// Returns the number of failed operations, plus buffered writes that were not done.
    pub fn failed(&self) -> u64 {
        let not_done = self.buffered.as_ref().map_or(0, BufferedResult::not_done);
        self.overall.failed.saturating_add(not_done)
    }
}

/// The JSON Schema of [`ResultDocument`], pretty-printed. The tests compare it with the type.
pub fn json_schema() -> &'static str {
    include_str!("../../../docs/result.schema.json")
}
