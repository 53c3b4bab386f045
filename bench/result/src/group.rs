//! Several client processes that made one result together.

use crate::{latency::Latency, load::ClientLoad};
use serde::{Deserialize, Serialize};

/// The processes of a group, and how exactly they began together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// What went wrong between coordinator, clients and ZooKeeper while they were at work, in
    /// words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

impl GroupResult {
    /// What all together used; where a client bounded the result it is named.
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
    /// What its workload had to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why what it did is not all here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}
