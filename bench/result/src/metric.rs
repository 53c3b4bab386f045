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
    /// How many ended with each status.
    pub statuses: BTreeMap<String, u64>,
    /// Times of those that succeeded.
    pub ok: Option<TimesResult>,
    /// Times of those that failed, by status.
    pub failed: BTreeMap<String, TimesResult>,
    /// What the store said of failures, with the number of times it said so.
    pub messages: Vec<MessageCount>,
}

/// A store's message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MessageCount {
    /// The status it came with.
    pub status: String,
    /// The words.
    pub message: String,
    /// How often.
    pub count: u64,
}

/// Whether a metric is no operation of the workload.
pub fn is_beside(name: &str) -> bool {
    matches!(name, "CLEANUP" | "VERIFY" | "SCAN-LATENCY-PER-RECORD" | "DRIVER-HOP" | "FLUSH")
}

impl MetricResult {
    /// How often the operation ended, in whatever way. Numbers come from files
    /// too, so that nothing here overflows.
    pub fn count(&self) -> u64 {
        self.statuses.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// How often it failed, by status.
    pub fn failures(&self) -> BTreeMap<String, u64> {
        let ok = |status: &str| Status::from_name(status).is_some_and(Status::is_ok);
        let failed = self.statuses.iter().filter(|(status, n)| !ok(status) && **n > 0);
        failed.map(|(status, n)| (status.clone(), *n)).collect()
    }

    /// How often it failed.
    pub fn failed(&self) -> u64 {
        self.failures().values().fold(0, |sum, n| sum.saturating_add(*n))
    }
}
