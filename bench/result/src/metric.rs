//! The numbers of one operation in a document.

use crate::latency::TimesResult;
use serde::{Deserialize, Serialize};
use serval_model::Status;
use std::collections::BTreeMap;

/// One operation's numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricResult {
    /// READ, UPDATE, INSERT, SCAN, DELETE, READ-MODIFY-WRITE, ...
    pub name: String,
    /// Number of operations by status.
    pub statuses: BTreeMap<String, u64>,
    /// Times of operations that succeeded.
    pub ok: Option<TimesResult>,
    /// Times of operations that failed, by status.
    pub failed: BTreeMap<String, TimesResult>,
    /// The store's messages of failures, with the number of times of each.
    pub messages: Vec<MessageCount>,
}

/// A store's message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MessageCount {
    /// The status that it came with.
    pub status: String,
    /// Its text.
    pub message: String,
    /// Number of times.
    pub count: u64,
}

/// Whether a metric is not an operation of the workload.
pub fn is_beside(name: &str) -> bool {
    matches!(name, "CLEANUP" | "VERIFY" | "SCAN-LATENCY-PER-RECORD" | "DRIVER-HOP" | "FLUSH")
}

impl MetricResult {
    /// Returns how often the operation ended, whatever the status. Saturates, since the numbers
    /// may come from a file.
    pub fn count(&self) -> u64 {
        self.statuses.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Returns the number of failures by status.
    pub fn failures(&self) -> BTreeMap<String, u64> {
        let ok = |status: &str| Status::from_name(status).is_some_and(Status::is_ok);
        let failed = self.statuses.iter().filter(|(status, n)| !ok(status) && **n > 0);
        failed.map(|(status, n)| (status.clone(), *n)).collect()
    }

    /// Returns the number of failures.
    pub fn failed(&self) -> u64 {
        self.failures().values().fold(0, |sum, n| sum.saturating_add(*n))
    }
}
