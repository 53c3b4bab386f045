//! What a load is.

use crate::Workload;
use std::time::Duration;

pub(crate) struct Plan {
    pub(crate) workload: Workload,
    pub(crate) target: String,
    pub(crate) threads: u32,
    /// Connections, each with a cache of its own, that the threads share.
    pub(crate) clients: u32,
    pub(crate) measured: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    pub(crate) rate: f64,
    pub(crate) pipeline: usize,
    /// Keys of a scan.
    pub(crate) scan: u64,
    /// Threads of all processes, of which each has keys to itself; 0: they
    /// share all.
    pub(crate) apart: u64,
    pub(crate) process: u64,
    /// Keys that one transaction, or one going to and fro, loads.
    pub(crate) batch: u64,
    /// Whether keys are loaded in no order.
    pub(crate) shuffled: bool,
    /// Whether rows that are loaded get their keys from the database.
    pub(crate) numbered: bool,
}

impl Plan {
    /// Whether it ends when all keys are stored.
    pub(crate) fn is_load(&self) -> bool {
        matches!(self.workload, Workload::Load | Workload::Index)
    }
}

/// The golden ratio's bits, as everybody takes them to shuffle.
pub(crate) const SHUFFLE: u64 = 0x9e37_79b9_7f4a_7c15;
