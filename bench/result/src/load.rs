//! Resources that a run used: by the client, and by watched processes of the
//! store.

use serde::{Deserialize, Serialize};

/// Resources that processes used in the measured time, as far as the system reports them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// CPU time of all threads, user and system, s.
    pub cpu_s: f64,
    /// Run-queue wait of all threads, s.
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

/// Resources that the client used, and whether the client bounded the result.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientLoad {
    /// Usage of its process, an embedded store included.
    pub usage: Usage,
    /// Number of threads that run clients.
    pub threads: u64,
    /// The largest share of the measured time that one of these threads ran or
    /// waited in the run queue; 1 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_thread: Option<f64>,
    /// The share of the clients' time outside of store calls: generating
    /// operations, recording times. Absent if clients share threads or wait for
    /// intended starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_store: Option<f64>,
    /// CPU utilization of the machine by all processes, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_busy: Option<f64>,
    /// Why the client, not the store, bounded the result, one sentence each;
    /// empty if it did not.
    pub bound_by_client: Vec<String>,
}

/// A watched process of the store, or several that match one pattern.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessLoad {
    /// The pattern: a process id, or a part of a command line.
    pub name: String,
    /// The processes that match.
    pub pids: Vec<u32>,
    /// The command line of the first, without secrets.
    pub command: String,
    /// Their usage together.
    pub usage: Usage,
}

/// Result of the steadiness test at the end of a warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steadiness {
    /// Whether the run became steady within the longest warm-up.
    pub steady: bool,
    /// Longest warm-up, s.
    pub max_s: f64,
    /// Length of the last window tested, s.
    pub window_s: f64,
    /// Drift of throughput over the window, as a share: 0.01 is 1 % more.
    pub throughput_drift: f64,
    /// Drift of the mean service time over the window, as a share.
    pub service_drift: f64,
}

/// Changes of throughput and service time in the measured time, by the test in
/// `docs/warm-up.md`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stationarity {
    /// Part of the measured time that was tested, s.
    pub judged_s: f64,
    /// Change of throughput, operations/s; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Change>,
    /// Change of the mean service time, ns; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Change>,
    /// Stalls; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
}

/// Shape of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ChangeShape {
    /// Gradual, from the beginning to the end.
    Drift,
    /// Sudden, and lasting until the end.
    Step,
    /// Temporary: afterwards the quantity is as before.
    Episode,
}

/// A change within the measured time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// Its shape.
    pub shape: ChangeShape,
    /// Start, seconds since the measured time began; 0 for a drift.
    pub from_s: f64,
    /// End, s; for a drift and a step the end of the tested part.
    pub to_s: f64,
    /// Mean in the first third (drift), before the change (step), or outside of
    /// it (episode).
    pub before: f64,
    /// Mean in the last third, after the change, or within it.
    pub after: f64,
    /// `after / before - 1`: -0.1 is 10 % less.
    pub change: f64,
}

/// Times in which throughput was below a tenth of its usual value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stalls {
    /// Number of stalls.
    pub count: u64,
    /// Their total length, s.
    pub total_s: f64,
    /// Length of the longest, s.
    pub longest_s: f64,
    /// Start of the longest, seconds since the measured time began.
    pub longest_at_s: f64,
}
