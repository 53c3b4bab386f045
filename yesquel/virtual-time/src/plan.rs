//! What a run simulates.

use crate::processor::Quota;
use std::time::Duration;
use thiserror::Error;
use yesquel_engine::Techniques;

/// Most servers of a run.
pub const SERVERS_MAX: usize = 256;
/// Most connections of a run, each with a thread.
const CONNECTIONS_MAX: usize = 20_000;

/// What a run simulates.
#[derive(Debug, Clone)]
pub struct VirtualPlan {
    /// Storage servers, each on a machine with one processor; from 1 to [`SERVERS_MAX`].
    pub servers: usize,
    /// Client processes, each on a machine of its own.
    pub processes: usize,
    /// Connections of a process, each with a thread in a closed loop.
    pub connections: usize,
    /// Processors of a client's machine.
    pub client_processors: usize,
    /// Holds the servers' processors to a share, once all clients are ready.
    pub quota: Option<Quota>,
    /// Name of the statement in the cost model.
    pub statement: String,
    /// Techniques of the servers.
    pub techniques: Techniques,
    /// Whether clients cache inner nodes.
    pub caches_inner_nodes: bool,
    /// Time from the first statements of all connections to the measured ones.
    pub ramp: Duration,
    /// Time in which statements are measured.
    pub measured: Duration,
    /// Seed of what the model draws.
    pub seed: u64,
}

/// A plan that cannot be run.
#[derive(Debug, Error)]
#[error("{what} = {value}: it must be from 1 to {most}")]
pub struct PlanError {
    /// The value's name.
    pub what: &'static str,
    /// The value.
    pub value: u64,
    /// Its maximum.
    pub most: u64,
}

impl VirtualPlan {
    /// Connections of all processes.
    pub fn all_connections(&self) -> usize {
        self.processes.saturating_mul(self.connections)
    }

    /// Checks the ranges of its values.
    ///
    /// # Errors
    ///
    /// If a value is out of range.
    pub fn check(&self) -> Result<(), PlanError> {
        let quota = self.quota.unwrap_or(Quota { period_ns: 1, share_ns: 1, tick_ns: 0 });
        let day_ns = 86_400_000_000_000;
        let values = [
            ("servers", self.servers as u64, SERVERS_MAX as u64),
            ("client processes", self.processes as u64, CONNECTIONS_MAX as u64),
            ("connections of a process", self.connections as u64, CONNECTIONS_MAX as u64),
            ("connections", self.all_connections() as u64, CONNECTIONS_MAX as u64),
            ("processors of a client", self.client_processors as u64, 1_024),
            ("period of the quota, ns", quota.period_ns, day_ns),
            ("share of the quota, ns", quota.share_ns, quota.period_ns),
            ("measured time, ns", u64::try_from(self.measured.as_nanos()).unwrap_or(u64::MAX), day_ns),
        ];
        for (what, value, most) in values {
            if !(1..=most).contains(&value) {
                return Err(PlanError { what, value, most });
            }
        }
        Ok(())
    }
}
