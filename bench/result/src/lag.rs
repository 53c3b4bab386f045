//! How stale reads were (`docs/lag.md`).

use crate::latency::Latency;
use serde::{Deserialize, Serialize};

/// Read-after-write lag, and what the reads told of versions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LagResult {
    /// What keys went by: `memory`, or a ZooKeeper.
    pub queue: String,
    /// The share of keys that was sampled, from 0 to 1.
    pub sample: f64,
    /// Time between two reads of a key at least, ns.
    pub poll_ns: u64,
    /// Consumers, all processes together.
    pub consumers: u64,
    /// Sampled writes.
    pub writes: LagWrites,
    /// Reads by consumers, those that failed included.
    pub reads: u64,
    /// Of these, how many failed, which says nothing of lag.
    pub reads_failed: u64,
    /// What became of the keys.
    pub keys: LagKeys,
    /// The paper's lag: from the first read to the first read that succeeded, of the keys for
    /// which that is not zero, ns by the consumer's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Latency>,
    /// From the last read in vain, as it was sent, to the answer of the one that succeeded, of
    /// the same keys: by so much the lag may be too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<Latency>,
    /// From the acknowledgement to the first read, of all keys: by so much the lag is too short.
    /// Absent where the clocks are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_over: Option<Latency>,
    /// From the acknowledgement to when the write could be seen; absent where the clocks are not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible: Option<Brackets>,
    /// The share of keys that is not visible yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survival: Option<Survival>,
    /// What was said of versions; absent where no read was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
}

/// Sampled writes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LagWrites {
    /// Inserts and updates of sampled keys that were acknowledged, warm-up included.
    pub acknowledged: u64,
    /// Those that failed.
    pub failed: u64,
    /// How many went into the queue.
    pub carried: u64,
    /// How many should have and could not.
    pub not_carried: u64,
    /// Writes of sampled keys of which a value was not long enough for a stamp: what is said of versions leaves open
    /// what reads without one saw.
    pub too_short: u64,
    /// Writes and reads that could not be noted, for there were too many. What is said of
    /// versions does not know of them.
    pub not_noted: u64,
    /// Keys that were in the queue before a consumer began: of an earlier run, or of producers
    /// that began before it.
    pub from_before: u64,
    /// Things in the queue that could not be understood.
    pub foreign: u64,
}

/// Keys that consumers have read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LagKeys {
    /// All.
    pub tried: u64,
    /// Found by the first read: their lag is zero.
    pub at_once: u64,
    /// Found by a later one.
    pub later: u64,
    /// Not found when the time was over: their lag is more than what was seen.
    pub censored: u64,
    /// Written over or deleted, or may have been, before they were found, so that nothing can be said.
    pub undecided: u64,
    /// Never read: taken from the queue too late, or left in it.
    pub unread: u64,
    /// Carried by the queue, and come to no consumer that told of it: there were too few consumers, or one was
    /// lost. 0 where consumers, or producers, are of another result.
    #[serde(default)]
    pub not_taken: u64,
}

impl LagKeys {
    /// Keys whose lag was not zero, those that were not found included.
    pub fn not_zero(&self) -> u64 {
        self.later.saturating_add(self.censored)
    }

    /// Keys of whose lag something is known.
    pub fn decided(&self) -> u64 {
        self.at_once.saturating_add(self.not_zero())
    }

    /// The share of keys whose lag was not zero; `None` where there is no key.
    pub fn share_not_zero(&self) -> Option<f64> {
        let all = self.decided();
        (all > 0).then(|| self.not_zero() as f64 / all as f64)
    }
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Found by the first read.
    AtOnce,
    /// Found by a later one.
    Later,
    /// Not found when the time was over.
    Censored,
    /// Nothing can be said.
    Undecided,
    /// Never read.
    Unread,
}

impl Fate {
    /// Its word in `lag-keys.csv`.
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

/// A sampled write whose key was taken from the queue: a line of `lag-keys.csv`. What is not known, or
/// was not, is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LagKey {
    /// The key.
    pub key: String,
    /// What its values begin with: who wrote them, and which of its versions it is.
    pub stamp: String,
    /// What became of it.
    pub fate: Fate,
    /// Reads until it was found, failures left out.
    pub reads: u64,
    /// When it was acknowledged, ns of the monotonic clock of the process that made the result.
    pub acknowledged_ns: Option<i64>,
    /// From then to the first read, ns.
    pub hand_over_ns: Option<u64>,
    /// The paper's lag, ns; 0 where the first read found it.
    pub lag_ns: Option<u64>,
    /// From the last read in vain to the answer of the one that found it, ns.
    pub poll_ns: Option<u64>,
    /// The lower end of the time from acknowledgement to visibility, ns.
    pub lower_ns: Option<u64>,
    /// The upper end.
    pub upper_ns: Option<u64>,
    /// The error of the clocks, by which these ends are widened already, ns.
    pub clock_error_ns: u64,
}

/// Where the times from acknowledgement to visibility lie.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Brackets {
    /// Lower ends: to the last read that did not find it. Zero where the first did.
    pub lower: Option<Latency>,
    /// Upper ends: to the answer of the first that found it.
    pub upper: Option<Latency>,
    /// Largest error of the clocks, by which brackets are widened, ns; 0 for one clock.
    pub clock_error_ns: u64,
    /// Keys that have no bracket, and are in no survival curve, for nothing is known of the clock of
    /// the process that wrote them.
    #[serde(default)]
    pub without: u64,
}

/// The share of keys not yet visible after a time: Kaplan and Meier's estimate, with the keys
/// that were not found as censored.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Survival {
    /// Since when times are counted: `acknowledgement`, or `first read` where the clocks are not
    /// known.
    pub since: String,
    /// As if each became visible at the lower end of its bracket.
    pub lower: Vec<SurvivalStep>,
    /// As if each became visible at the upper end.
    pub upper: Vec<SurvivalStep>,
}

/// From this time on, until the next step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SurvivalStep {
    /// ns.
    pub at_ns: u64,
    /// The share that is not visible yet, from 0 to 1.
    pub share: f64,
}

impl Survival {
    /// The share of a curve that is left after so many ns.
    pub fn at(curve: &[SurvivalStep], ns: u64) -> f64 {
        let after = curve.partition_point(|step| step.at_ns <= ns);
        after.checked_sub(1).map_or(1.0, |last| curve[last].share)
    }
}

/// What reads told of versions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Versions {
    /// Reads by how many acknowledged versions they were behind.
    pub behind: Vec<Behind>,
    /// Reads of which clocks, or versions that nobody noted, do not tell how far behind they were.
    pub undecided: u64,
    /// From a version's acknowledgement to the last read that did not see it, of those that a
    /// read did not see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_stale: Option<Latency>,
    /// Versions that were acknowledged, of keys that were read.
    pub versions: u64,
    /// Writers that did not find what they had just written. Of reads by writers.
    pub read_your_writes: Violations,
    /// Reads that saw an older version than an earlier read by the same consumer. Of reads
    /// that had an earlier one.
    pub monotonic_reads: Violations,
    /// Reads that saw a later version of a writer and not an earlier one, or saw them in another
    /// order. Of reads that saw a version.
    pub monotonic_writes: Violations,
}

impl Versions {
    /// Reads of which it is known how far behind they were, and how many of these were behind.
    pub fn stale(&self) -> (u64, u64) {
        self.behind.iter().fold((0, 0), |(all, stale): (u64, u64), behind| {
            let missed = if behind.versions > 0 { behind.reads } else { 0 };
            (all.saturating_add(behind.reads), stale.saturating_add(missed))
        })
    }
}

/// Reads that were so far behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Behind {
    /// Acknowledged versions that they did not see; the largest stands for that many or more.
    pub versions: u64,
    /// How many reads.
    pub reads: u64,
}

/// How often a promise was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Violations {
    /// How often it could be told.
    pub checked: u64,
    /// Of these, how often it was not kept.
    pub violations: u64,
    /// How often clocks, or versions that nobody noted, left it open.
    pub undecided: u64,
}
