//! What a reader must know before quoting a number: a code, and what its
//! sentence is made of. The sentences themselves are made where they are shown.

use crate::{
    load::{Change, Stalls},
    metric::MessageCount,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A note. In documents it has a `code` and, if its sentence needs some,
/// `arguments`; no code is given another meaning, and later versions have more
/// of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "arguments", rename_all = "kebab-case")]
pub enum Note {
    /// The client, and not the store, bounded the result.
    ClientBound {
        /// Why, in a sentence.
        reason: String,
    },
    /// A stop was requested before the run's end.
    Interrupted,
    /// The run failed before its end.
    Failed,
    /// The warm-up was cut off while throughput or service time still changed.
    NotSteady {
        /// How long it was, s.
        warm_up_s: f64,
        /// The time over which it was last judged, s.
        window_s: f64,
        /// Change of throughput over that time, as a share.
        throughput_drift: f64,
        /// Change of the mean service time, as a share.
        service_drift: f64,
    },
    /// The warm-up was cut off, and too little was done to tell whether the run was steady.
    SteadinessUnknown {
        /// How long it was, s.
        warm_up_s: f64,
    },
    /// For some time nearly nothing was done.
    Stalled {
        /// When and how long.
        stalls: Stalls,
        /// Measured time that was judged, s.
        judged_s: f64,
    },
    /// Throughput or service time changed while they were measured.
    Changed {
        /// How throughput did, operations/s.
        throughput: Option<Change>,
        /// How the mean service time did, ns.
        service: Option<Change>,
        /// Measured time that was judged, s.
        judged_s: f64,
    },
    /// Operations had no outcome when the run ended.
    Unfinished {
        /// Sent and not answered.
        in_flight: u64,
        /// Due and not sent.
        not_started: u64,
        /// Age of the oldest, ns.
        oldest_ns: Option<u64>,
        /// Operations that ended.
        operations: u64,
    },
    /// Writes were acknowledged when they were buffered, and not done.
    BufferedWritesNotDone {
        /// Writes that were sent.
        sent: u64,
        /// Of these, not done, at most.
        lost: u64,
        /// Never sent.
        unsent: u64,
    },
    /// Operations failed.
    OperationsFailed {
        /// Their kind, by the metric's name.
        operation: String,
        /// Operations of this kind.
        count: u64,
        /// Failures by status.
        failed: BTreeMap<String, u64>,
        /// The store's most frequent words.
        messages: Vec<MessageCount>,
        /// Other words of the store.
        more_messages: u64,
    },
    /// Less was done than the schedule asked for.
    TargetMissed {
        /// Operations/s asked for.
        target: f64,
        /// Operations/s done.
        throughput: f64,
    },
    /// Operations started late.
    StartedLate {
        /// 99th percentile of how late, ns.
        p99_ns: u64,
        /// The latest, ns.
        max_ns: u64,
        /// For how long operations were held on purpose, if that explains it, ns.
        slack_ns: Option<u64>,
    },
    /// The client was built without optimization.
    DebugBuild,
    /// No operation was measured.
    NoOperations,
    /// Too few operations for tail percentiles.
    FewOperations {
        /// How many.
        operations: u64,
    },
    /// The store was lost.
    StoreLost {
        /// Its words.
        message: String,
    },
    /// The workload could not go on.
    WorkloadEnded {
        /// Its words.
        message: String,
    },
    /// Processes of a group were lost.
    ClientsLost {
        /// Which, and how.
        message: String,
    },
    /// A watched process ended during the run.
    WatchedProcessEnded {
        /// As it was asked for.
        name: String,
    },
    /// The bytes of a watched process are not known.
    WatchedBytesUnknown {
        /// As it was asked for.
        name: String,
        /// Why not.
        why: String,
    },
    /// A client hangs, and with it the last raw times.
    RawTimesMissing,
    /// A load did not store all of its records.
    LoadIncomplete {
        /// Records that are missing.
        missing: u64,
    },
    /// A client was lost and did not run the program of a phase.
    CommandNotRun {
        /// Its number, from 1.
        client: u64,
    },
    /// A curve of an experiment was given up.
    CurveGivenUp {
        /// Its name.
        curve: String,
        /// At which step.
        at: String,
        /// Why.
        why: String,
    },
    /// A sweep's points did not reach the saturation that was found before them.
    SaturationNotReached {
        /// The curve's name.
        curve: String,
        /// The saturation, operations/s.
        saturation: f64,
        /// The highest throughput of a point, operations/s.
        most: f64,
    },
    /// The store held no records before a run whose updates insert them.
    NoRecords {
        /// Number of keys that were looked up.
        keys: u64,
        /// One of them.
        key: String,
        /// The table.
        table: String,
        /// The store's name.
        store: String,
    },
    /// A sentence of the workload, the store's set-up, the plan, or a document of an older version.
    Text {
        /// The sentence.
        text: String,
    },
    /// Of a group of processes.
    #[serde(untagged)]
    Group(GroupNote),
    /// Of read-after-write lag.
    #[serde(untagged)]
    Lag(LagNote),
    /// Of merged results.
    #[serde(untagged)]
    Merged(MergedNote),
    /// A note of a later version.
    #[serde(untagged)]
    Other {
        /// Its code.
        code: String,
        /// What its sentence is made of.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        arguments: Value,
    },
}

/// What a reader must know of a group of processes that made one result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "arguments")]
pub enum GroupNote {
    /// A process of a group was lost.
    #[serde(rename = "group-client-lost")]
    ClientLost {
        /// Which.
        client: ClientName,
        /// How, as a clause.
        why: String,
        /// Operations of it that are in the numbers.
        operations: u64,
    },
    /// The processes of a group may not have begun together.
    #[serde(rename = "group-start-apart")]
    StartApart {
        /// At most so far apart, ns.
        apart_ns: u64,
        /// The largest error of the clocks that this was seen by, ns.
        clock_error_ns: u64,
    },
    /// Something went wrong between the processes of a group, and the run went on.
    #[serde(rename = "group-trouble")]
    Trouble {
        /// What, as a clause.
        trouble: String,
    },
    /// What the workload of one process says.
    #[serde(rename = "group-client-warning")]
    ClientWarning {
        /// Which.
        client: ClientName,
        /// What it says.
        text: String,
    },
}

/// What a reader must know of read-after-write lag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "arguments")]
pub enum LagNote {
    /// Sampled writes did not go into the queue of keys.
    #[serde(rename = "lag-not-carried")]
    NotCarried {
        /// How many.
        not_carried: u64,
        /// How many did.
        carried: u64,
    },
    /// Keys were not found when the time was over.
    #[serde(rename = "lag-not-found")]
    NotFound {
        /// How many.
        keys: u64,
        /// Whether writes lay in buffers, so that some may never be found.
        buffered: bool,
    },
    /// Keys came to no consumer that told of them.
    #[serde(rename = "lag-not-taken")]
    NotTaken {
        /// How many.
        keys: u64,
    },
    /// Keys were written over or deleted before they were found.
    #[serde(rename = "lag-undecided")]
    Undecided {
        /// How many.
        keys: u64,
    },
    /// Reads or writes could not be noted, for there were too many.
    #[serde(rename = "lag-not-noted")]
    NotNoted {
        /// How many.
        operations: u64,
    },
    /// Values were too short for a version.
    #[serde(rename = "lag-too-short")]
    TooShort {
        /// Writes of such values.
        writes: u64,
    },
    /// Keys were in the queue when a consumer began.
    #[serde(rename = "lag-from-before")]
    FromBefore {
        /// How many.
        keys: u64,
    },
    /// Entries of the queue could not be understood.
    #[serde(rename = "lag-foreign")]
    Foreign {
        /// How many.
        entries: u64,
    },
    /// Reads by consumers failed.
    #[serde(rename = "lag-reads-failed")]
    ReadsFailed {
        /// How many.
        failed: u64,
        /// Of how many.
        reads: u64,
    },
}

/// What a reader must know of results that were merged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "arguments")]
pub enum MergedNote {
    /// Results were merged that should not be.
    #[serde(rename = "merged-regardless")]
    Regardless {
        /// Why they should not.
        problem: String,
    },
    /// Results were merged as clients at the same time, and their measured times do not overlap.
    #[serde(rename = "merged-not-at-once")]
    NotAtOnce {
        /// The result that ended first, and the one that began after it.
        parts: [String; 2],
        /// Time between the end and the beginning, s.
        apart_s: f64,
    },
    /// The series of merged results is left out.
    #[serde(rename = "merged-without-series")]
    WithoutSeries,
    /// What is to be known of one of several merged results.
    #[serde(rename = "merged-part")]
    OfPart {
        /// Which.
        part: String,
        /// What.
        note: Box<Note>,
    },
    /// Merged results are of machines that differ.
    #[serde(rename = "merged-machines-differ")]
    MachinesDiffer {
        /// Each, in words.
        machines: Vec<String>,
    },
    /// One of several merged results had no offered load.
    #[serde(rename = "merged-not-paced")]
    NotPaced {
        /// Which.
        part: String,
    },
    /// One of several merged results has no lag.
    #[serde(rename = "merged-lag-not-measured")]
    LagNotMeasured {
        /// Which.
        part: String,
    },
    /// Merged results sampled lag differently.
    #[serde(rename = "merged-lag-sampling-differs")]
    LagSamplingDiffers {
        /// Two results.
        parts: [String; 2],
        /// The share of keys that each sampled.
        samples: [f64; 2],
        /// Time between two reads of a key in each, ns.
        poll_ns: [u64; 2],
    },
    /// Survival curves of merged results are left out.
    #[serde(rename = "merged-without-survival")]
    WithoutSurvival,
    /// Hand-over and visibility of merged results are left out.
    #[serde(rename = "merged-without-visibility")]
    WithoutVisibility {
        /// The results that have none.
        parts: Vec<String>,
    },
}

/// A process of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientName {
    /// Its part of the work: `1/4`.
    pub share: String,
    /// Its host's name.
    pub host: String,
    /// Its process id.
    pub process: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_a_code_and_arguments() {
        let notes = [
            (Note::Lag(LagNote::NotTaken { keys: 3 }), r#"{"code":"lag-not-taken","arguments":{"keys":3}}"#),
            (Note::Interrupted, r#"{"code":"interrupted"}"#),
            (
                Note::FewOperations { operations: 7 },
                r#"{"code":"few-operations","arguments":{"operations":7}}"#,
            ),
            (
                Note::Merged(MergedNote::OfPart { part: "a".to_owned(), note: Box::new(Note::DebugBuild) }),
                r#"{"code":"merged-part","arguments":{"part":"a","note":{"code":"debug-build"}}}"#,
            ),
            (
                Note::Other { code: "tides".to_owned(), arguments: serde_json::json!({ "high": true }) },
                r#"{"code":"tides","arguments":{"high":true}}"#,
            ),
            (Note::Other { code: "ebb".to_owned(), arguments: Value::Null }, r#"{"code":"ebb"}"#),
        ];
        for (note, text) in notes {
            assert_eq!(serde_json::to_string(&note).unwrap(), text);
            assert_eq!(serde_json::from_str::<Note>(text).unwrap(), note);
        }
        // What a known code has in another version is no fault of the document.
        let other = serde_json::from_str::<Note>(r#"{"code":"few-operations","arguments":{"n":7}}"#).unwrap();
        assert!(matches!(other, Note::Other { code, .. } if code == "few-operations"));
    }
}
