//! What a run cost the machines it ran on: the client, and the processes of
//! the store that were watched.

use serde::{Deserialize, Serialize};

/// What processes used in the measured time, as far as the system tells.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// CPU seconds, all threads, user and system.
    pub cpu_s: f64,
    /// Seconds that threads were ready to run and had no processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_s: Option<f64>,
    /// Resident memory at the end of the measured time, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes sent on TCP connections that were open at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Bytes received on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
}

/// What the client used, and whether it was what bounded the result.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientLoad {
    /// What its process used. An embedded store is part of it.
    pub usage: Usage,
    /// Threads that clients ran on.
    pub threads: u64,
    /// The largest share of the measured time that one of these was running,
    /// or ready to run and without a processor; 1 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_thread: Option<f64>,
    /// The share of the clients' time that they spent outside of the store:
    /// making operations, writing down times. Absent where clients share
    /// threads, and where they wait for intended starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_store: Option<f64>,
    /// The share of the machine's processors that was in use, by anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_busy: Option<f64>,
    /// Why the client, and not the store, bounded the result; a sentence
    /// each, and none if it did not.
    pub bound_by_client: Vec<String>,
}

/// A watched process of the store, or several that go by one name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessLoad {
    /// How it was asked for: a process id, or a part of a command line.
    pub name: String,
    /// The processes that were found.
    pub pids: Vec<u32>,
    /// The command line of the first, without secrets.
    pub command: String,
    /// What they used together.
    pub usage: Usage,
}

/// How a warm-up ended that was to last until the run is steady.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steadiness {
    /// Whether it became steady before the longest time allowed.
    pub steady: bool,
    /// The longest time allowed, s.
    pub max_s: f64,
    /// The time over which it was last judged, s.
    pub window_s: f64,
    /// Change of throughput over that time, as a share: 0.01 is 1 % more.
    pub throughput_drift: f64,
    /// Change of the mean service time over that time, as a share.
    pub service_drift: f64,
}

/// Whether throughput and service time stayed what they were while the run was
/// measured, by the test in `docs/warm-up.md`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stationarity {
    /// How much of the measured time was judged, s.
    pub judged_s: f64,
    /// How throughput changed, operations/s; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Change>,
    /// How the mean service time changed, ns; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Change>,
    /// Times in which nearly nothing was done; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
}

/// How a quantity changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ChangeShape {
    /// Little by little from the beginning to the end.
    Drift,
    /// At once, and until the end.
    Step,
    /// For some time, and then it was as before.
    Episode,
}

/// A change within the measured time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// How it came.
    pub shape: ChangeShape,
    /// Seconds since the measured time began, from when on; 0 of a drift.
    pub from_s: f64,
    /// Until when, s; of a drift and a step the end of what was judged.
    pub to_s: f64,
    /// The mean in the first third (drift), before it (step), or outside of it
    /// (episode).
    pub before: f64,
    /// The mean in the last third, after it, or in it.
    pub after: f64,
    /// `after` over `before`, less one: -0.1 is 10 % less.
    pub change: f64,
}

/// Times in which less than a tenth of the usual throughput was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stalls {
    /// How many.
    pub count: u64,
    /// Together, s.
    pub total_s: f64,
    /// The longest, s.
    pub longest_s: f64,
    /// When that began, seconds since the measured time began.
    pub longest_at_s: f64,
}
