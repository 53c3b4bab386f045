//! Client processes of a group that produced one result.

use crate::{latency::Latency, load::ClientLoad};
use serde::{Deserialize, Serialize};

/// The processes of a group, and the skew of their starts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupResult {
    /// The processes, in the order of their numbers.
    pub clients: Vec<GroupClient>,
    /// Time between the first and the last actual start, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_skew_ns: Option<u64>,
    /// Largest error of the clocks that measured the skew, ns: the true skew may be larger or
    /// smaller by this much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
    /// Faults between coordinator, clients and ZooKeeper during the run, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

impl GroupResult {
    /// Returns the sum of the clients' resources. A reason why a client bounded the result names
    /// that client.
    pub fn load(&self) -> Option<ClientLoad> {
        let loads: Vec<(&GroupClient, &ClientLoad)> =
            self.clients.iter().filter_map(|client| Some((client, client.load.as_ref()?))).collect();
        if loads.is_empty() {
            return None;
        }
        let largest = |field: fn(&ClientLoad) -> Option<f64>| {
            loads.iter().filter_map(|(_, load)| field(load)).reduce(f64::max)
        };
        let mut sum = ClientLoad {
            busiest_thread: largest(|load| load.busiest_thread),
            outside_store: largest(|load| load.outside_store),
            machine_busy: largest(|load| load.machine_busy),
            ..ClientLoad::default()
        };
        let add = |sum: &mut Option<u64>, more: Option<u64>| *sum = sum.zip(more).map(|(a, b)| a + b);
        sum.usage.run_queue_s = Some(0.0);
        (sum.usage.memory_bytes, sum.usage.sent_bytes, sum.usage.received_bytes) =
            (Some(0), Some(0), Some(0));
        for (client, load) in loads {
            sum.threads += load.threads;
            sum.usage.cpu_s += load.usage.cpu_s;
            sum.usage.run_queue_s = sum.usage.run_queue_s.zip(load.usage.run_queue_s).map(|(a, b)| a + b);
            add(&mut sum.usage.memory_bytes, load.usage.memory_bytes);
            add(&mut sum.usage.sent_bytes, load.usage.sent_bytes);
            add(&mut sum.usage.received_bytes, load.usage.received_bytes);
            sum.bound_by_client.extend(
                load.bound_by_client
                    .iter()
                    .map(|why| format!("Client {} on {}: {why}", client.share, client.host)),
            );
        }
        Some(sum)
    }
}

/// One process of a group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupClient {
    /// Name of its host.
    pub host: String,
    /// Its process id.
    pub process: u32,
    /// Its share of the work: `1/4` is the first of four.
    pub share: String,
    /// Number of its clients, each with at most one operation in flight.
    pub clients: u64,
    /// Operations (units) that it performed.
    pub operations: u64,
    /// Number of these that failed.
    pub failed: u64,
    /// Throughput, operations/s.
    pub throughput: f64,
    /// Response times of its operations that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Latency>,
    /// Lateness of its operations, if they had intended starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Latency>,
    /// Resources that it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<ClientLoad>,
    /// Throughput in each interval of the series, operations/s.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<f64>,
    /// Warnings of its workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why its numbers are incomplete, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}
