//! Read-after-write lag (`docs/lag.md`).

use crate::latency::Latency;
use serde::{Deserialize, Serialize};

/// Read-after-write lag, and the versions that reads returned.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LagResult {
    /// The queue of keys: `memory`, or a ZooKeeper address.
    pub queue: String,
    /// Share of keys that are sampled, from 0 to 1.
    pub sample: f64,
    /// Shortest time between two reads of a key, ns.
    pub poll_ns: u64,
    /// Number of consumers in all processes.
    pub consumers: u64,
    /// Sampled writes.
    pub writes: LagWrites,
    /// Reads by consumers, failed ones included.
    pub reads: u64,
    /// Number of these that failed; they do not count towards lag.
    pub reads_failed: u64,
    /// Sampled keys by their outcome.
    pub keys: LagKeys,
    /// The paper's lag: from the first read to the first successful read, of keys whose lag is not
    /// zero, ns by the consumer's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Latency>,
    /// From the start of the last unsuccessful read to the end of the successful one, of the same
    /// keys: the most by which the lag may be too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<Latency>,
    /// From the acknowledgement to the first read, of all keys: the amount by which the lag is too
    /// short. Absent if the clock offsets are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_over: Option<Latency>,
    /// From the acknowledgement to the write's visibility; absent if the clock offsets are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible: Option<Brackets>,
    /// Share of keys that are not visible yet, over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survival: Option<Survival>,
    /// Staleness and session guarantees of reads; absent if no read was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
}

/// Sampled writes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LagWrites {
    /// Acknowledged inserts and updates of sampled keys, warm-up included.
    pub acknowledged: u64,
    /// Inserts and updates that failed.
    pub failed: u64,
    /// Writes whose key entered the queue.
    pub carried: u64,
    /// Writes whose key could not enter the queue.
    pub not_carried: u64,
    /// Writes of sampled keys with a value too short for a stamp. Reads without a stamp may have
    /// seen one of them, which `versions` counts as undecided.
    pub too_short: u64,
    /// Writes and reads that exceeded the recorder's capacity. `versions` does not include them.
    pub not_noted: u64,
    /// Keys in the queue from before a consumer began: of an earlier run, or of producers that
    /// began earlier.
    pub from_before: u64,
    /// Malformed entries in the queue.
    pub foreign: u64,
}

/// Sampled keys by their outcome.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LagKeys {
    /// Keys that consumers took from the queue.
    pub tried: u64,
    /// Found by the first read: lag zero.
    pub at_once: u64,
    /// Found by a later read.
    pub later: u64,
    /// Not found by the end of the time: the lag is longer than observed.
    pub censored: u64,
    /// Possibly overwritten or deleted before they were found: lag unknown.
    pub undecided: u64,
    /// Never read: taken from the queue too late, or left in it.
    pub unread: u64,
    /// Put into the queue, and reported by no consumer: there were too few consumers, or one was
    /// lost. 0 if consumers or producers belong to another result.
    #[serde(default)]
    pub not_taken: u64,
}

impl LagKeys {
    /// Returns the number of keys whose lag was not zero, keys not found included.
    pub fn not_zero(&self) -> u64 {
        self.later.saturating_add(self.censored)
    }

    /// Returns the number of keys whose lag is known or bounded.
    pub fn decided(&self) -> u64 {
        self.at_once.saturating_add(self.not_zero())
    }

    /// Returns the share of keys whose lag was not zero; `None` if there are no keys.
    pub fn share_not_zero(&self) -> Option<f64> {
        let all = self.decided();
        (all > 0).then(|| self.not_zero() as f64 / all as f64)
    }
}

/// Outcome of a sampled key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Found by the first read.
    AtOnce,
    /// Found by a later read.
    Later,
    /// Not found by the end of the time.
    Censored,
    /// Lag unknown.
    Undecided,
    /// Never read.
    Unread,
}

impl Fate {
    /// Returns its name in `lag-keys.csv`.
    pub fn word(self) -> &'static str {
        match self {
            Fate::AtOnce => "at_once",
            Fate::Later => "later",
            Fate::Censored => "censored",
            Fate::Undecided => "undecided",
            Fate::Unread => "unread",
        }
    }
}

/// A sampled write whose key was taken from the queue: a line of `lag-keys.csv`. Unknown values
/// are absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LagKey {
    /// The key.
    pub key: String,
    /// Prefix of its values: the writer and the version.
    pub stamp: String,
    /// Its outcome.
    pub fate: Fate,
    /// Reads until it was found, failed ones not counted.
    pub reads: u64,
    /// Time of the acknowledgement, ns of the monotonic clock of the process that made the result.
    pub acknowledged_ns: Option<i64>,
    /// Time from the acknowledgement to the first read, ns.
    pub hand_over_ns: Option<u64>,
    /// The paper's lag, ns; 0 if the first read found it.
    pub lag_ns: Option<u64>,
    /// From the start of the last unsuccessful read to the end of the successful one, ns.
    pub poll_ns: Option<u64>,
    /// Lower bound of the time from acknowledgement to visibility, ns.
    pub lower_ns: Option<u64>,
    /// Upper bound of it, ns.
    pub upper_ns: Option<u64>,
    /// Error of the clocks, already included in both bounds, ns.
    pub clock_error_ns: u64,
}

/// Bounds of the times from acknowledgement to visibility.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Brackets {
    /// Lower bounds: to the last read that did not find the write. Zero if the first read found it.
    pub lower: Option<Latency>,
    /// Upper bounds: to the end of the first read that found it.
    pub upper: Option<Latency>,
    /// Largest error of the clocks, included in both bounds, ns; 0 for one clock.
    pub clock_error_ns: u64,
    /// Keys without bounds, and not in the survival curves: the clock offset of the process that
    /// wrote them is unknown.
    #[serde(default)]
    pub without: u64,
}

/// Share of keys not yet visible over time: the Kaplan-Meier estimate, with keys that were not
/// found as censored.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Survival {
    /// Origin of the times: `acknowledgement`, or `first read` if the clock offsets are unknown.
    pub since: String,
    /// The curve if each key became visible at its lower bound.
    pub lower: Vec<SurvivalStep>,
    /// The curve if each key became visible at its upper bound.
    pub upper: Vec<SurvivalStep>,
}

/// A step of a survival curve. Its share holds from its time until the next step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SurvivalStep {
    /// Time, ns.
    pub at_ns: u64,
    /// Share that is not visible yet, from 0 to 1.
    pub share: f64,
}

impl Survival {
    /// Returns the share of a curve at a time, ns.
    pub fn at(curve: &[SurvivalStep], ns: u64) -> f64 {
        let after = curve.partition_point(|step| step.at_ns <= ns);
        after.checked_sub(1).map_or(1.0, |last| curve[last].share)
    }
}

/// Versions that reads returned.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Versions {
    /// Reads by the number of acknowledged versions that they missed.
    pub behind: Vec<Behind>,
    /// Reads whose staleness is unknown, because of clock errors or unrecorded versions.
    pub undecided: u64,
    /// From a version's acknowledgement to the last read that missed it, of versions that a read
    /// missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_stale: Option<Latency>,
    /// Acknowledged versions of keys that were read.
    pub versions: u64,
    /// Reads by writers that did not return the version just written, out of all reads by writers.
    pub read_your_writes: Violations,
    /// Reads that returned an older version than an earlier read by the same consumer, out of reads
    /// with an earlier one.
    pub monotonic_reads: Violations,
    /// Reads that returned a writer's later version without an earlier one, or the two in another
    /// order, out of reads that returned a version.
    pub monotonic_writes: Violations,
}

impl Versions {
    /// Returns the number of reads whose staleness is known, and how many of these were stale.
    pub fn stale(&self) -> (u64, u64) {
        self.behind.iter().fold((0, 0), |(all, stale): (u64, u64), behind| {
            let missed = if behind.versions > 0 { behind.reads } else { 0 };
            (all.saturating_add(behind.reads), stale.saturating_add(missed))
        })
    }
}

/// Number of reads that missed a number of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Behind {
    /// Acknowledged versions missed; the largest number stands for itself and more.
    pub versions: u64,
    /// Number of reads.
    pub reads: u64,
}

/// Violations of a session guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Violations {
    /// Reads that could be checked.
    pub checked: u64,
    /// Number of these that violated the guarantee.
    pub violations: u64,
    /// Reads that could not be checked, because of clock errors or unrecorded versions.
    pub undecided: u64,
}
