//! Several client processes that made one result together.

use crate::{document::Latency, load::ClientLoad};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The processes of a group, and how exactly they began together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GroupResult {
    /// The processes, in the order of their numbers.
    pub clients: Vec<GroupClient>,
    /// From the actual start of the first to that of the last, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_skew_ns: Option<u64>,
    /// Largest error of the clocks that the skew was seen by, ns: the true skew may be
    /// so much more or less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
}

/// One process of a group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GroupClient {
    /// Its host's name.
    pub host: String,
    /// Its process id.
    pub process: u32,
    /// Its part of the work: `1/4` is the first of four.
    pub share: String,
    /// Its clients, each with one operation in flight at most.
    pub clients: u64,
    /// Operations (units) that it did.
    pub operations: u64,
    /// Of these, how many failed.
    pub failed: u64,
    /// Operations/s.
    pub throughput: f64,
    /// Response times of all its operations that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Latency>,
    /// How late it started operations, if they had intended starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Latency>,
    /// What it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<ClientLoad>,
    /// Operations/s in each interval of the series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<f64>,
    /// Why what it did is not all here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}
