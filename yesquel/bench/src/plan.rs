//! Parameters of a load.

use crate::LoadWorkload;
use std::time::Duration;

pub(crate) struct LoadPlan {
    pub(crate) workload: LoadWorkload,
    pub(crate) target: String,
    pub(crate) threads: u32,
    /// Connections that the threads share, each with its own cache.
    pub(crate) clients: u32,
    pub(crate) measured: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    pub(crate) rate: f64,
    pub(crate) pipeline: usize,
    /// Keys of a scan.
    pub(crate) scan: u64,
    /// Number of threads of all processes, each of which uses keys of its own; 0: all keys are
    /// shared.
    pub(crate) apart: u64,
    pub(crate) process: u64,
    /// Keys loaded by one transaction or in one round trip.
    pub(crate) batch: u64,
    /// Whether keys are loaded in pseudo-random order.
    pub(crate) shuffled: bool,
    /// Whether the database chooses the keys of loaded rows.
    pub(crate) numbered: bool,
}

impl LoadPlan {
    /// Returns whether the load ends when all keys are stored.
    pub(crate) fn is_load(&self) -> bool {
        matches!(self.workload, LoadWorkload::Load | LoadWorkload::Index)
    }
}

/// Fixed-point golden ratio, the usual multiplier for shuffling.
pub(crate) const SHUFFLE: u64 = 0x9e37_79b9_7f4a_7c15;
