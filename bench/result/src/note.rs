//! Warnings for readers of the numbers: a code with arguments. Their text is
//! made where it is shown.

use crate::{
    load::{Change, Stalls},
    metric::MessageCount,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A note. In documents it has a `code` and, if its text needs some,
/// `arguments`. A code never changes its meaning; later versions add codes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "arguments", rename_all = "kebab-case")]
pub enum Note {
    /// The client, not the store, bounded the result.
    ClientBound {
        /// The reason, one sentence.
        reason: String,
    },
    /// A stop was requested before the end of the run.
    Interrupted,
    /// The run failed before its end.
    Failed,
    /// The warm-up ended while throughput or service time still changed.
    NotSteady {
        /// Length of the warm-up, s.
        warm_up_s: f64,
        /// Length of the last window tested, s.
        window_s: f64,
        /// Drift of throughput over the window, as a share.
        throughput_drift: f64,
        /// Drift of the mean service time over the window, as a share.
        service_drift: f64,
    },
    /// The warm-up ended with too few operations to test whether the run was steady.
    SteadinessUnknown {
        /// Length of the warm-up, s.
        warm_up_s: f64,
    },
    /// The measured time contains stalls.
    Stalled {
        /// The stalls.
        stalls: Stalls,
        /// Part of the measured time that was tested, s.
        judged_s: f64,
    },
    /// Throughput or service time changed in the measured time.
    Changed {
        /// Change of throughput, operations/s.
        throughput: Option<Change>,
        /// Change of the mean service time, ns.
        service: Option<Change>,
        /// Part of the measured time that was tested, s.
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
    /// Buffered writes were acknowledged and not done.
    BufferedWritesNotDone {
        /// Writes that were sent.
        sent: u64,
        /// Number of these that failed, at most.
        lost: u64,
        /// Never sent.
        unsent: u64,
    },
    /// Operations failed.
    OperationsFailed {
        /// The operation, by its metric's name.
        operation: String,
        /// Number of its operations.
        count: u64,
        /// Failures by status.
        failed: BTreeMap<String, u64>,
        /// The store's most frequent messages.
        messages: Vec<MessageCount>,
        /// Number of its other messages.
        more_messages: u64,
    },
    /// The throughput is below the offered load.
    TargetMissed {
        /// Offered load, operations/s.
        target: f64,
        /// Throughput, operations/s.
        throughput: f64,
    },
    /// Operations started late.
    StartedLate {
        /// 99th percentile of lateness, ns.
        p99_ns: u64,
        /// Largest lateness, ns.
        max_ns: u64,
        /// Time for which operations were held on purpose, if that explains the lateness, ns.
        slack_ns: Option<u64>,
    },
    /// The client was built without optimization.
    DebugBuild,
    /// No operation was measured.
    NoOperations,
    /// Too few operations for tail percentiles.
    FewOperations {
        /// Number of operations.
        operations: u64,
    },
    /// The store was lost.
    StoreLost {
        /// The store's message.
        message: String,
    },
    /// The workload failed.
    WorkloadEnded {
        /// The workload's message.
        message: String,
    },
    /// Processes of a group were lost.
    ClientsLost {
        /// The processes, each with the reason.
        message: String,
    },
    /// A watched process ended during the run.
    WatchedProcessEnded {
        /// The pattern that selects it.
        name: String,
    },
    /// The network traffic of a watched process is unknown.
    WatchedBytesUnknown {
        /// The pattern that selects it.
        name: String,
        /// The reason.
        why: String,
    },
    /// A client hangs and still holds its last raw times.
    RawTimesMissing,
    /// A load did not store all of its records.
    LoadIncomplete {
        /// Number of missing records.
        missing: u64,
    },
    /// A client was lost and did not run the program of a phase.
    CommandNotRun {
        /// Its number, from 1.
        client: u64,
    },
    /// The experiment gave up a curve.
    CurveGivenUp {
        /// Its name.
        curve: String,
        /// The step that failed.
        at: String,
        /// The reason.
        why: String,
    },
    /// A sweep's points did not reach the saturation found before them.
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
        /// One of these keys.
        key: String,
        /// The table.
        table: String,
        /// The store's name.
        store: String,
    },
    /// Text of the workload, the store's set-up, the plan, or a document of an older version.
    Text {
        /// The text.
        text: String,
    },
    /// A note on a group of processes.
    #[serde(untagged)]
    Group(GroupNote),
    /// A note on read-after-write lag.
    #[serde(untagged)]
    Lag(LagNote),
    /// A note on merged results.
    #[serde(untagged)]
    Merged(MergedNote),
    /// A note of a later version.
    #[serde(untagged)]
    Other {
        /// Its code.
        code: String,
        /// The arguments of its text.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        arguments: Value,
    },
}

/// A note on a group of processes that produced one result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "arguments")]
pub enum GroupNote {
    /// A process of a group was lost.
    #[serde(rename = "group-client-lost")]
    ClientLost {
        /// The process.
        client: ClientName,
        /// The reason, as a clause.
        why: String,
        /// Number of its operations that the result includes.
        operations: u64,
    },
    /// The processes of a group may not have started at the same time.
    #[serde(rename = "group-start-apart")]
    StartApart {
        /// Upper bound of the skew of their starts, ns.
        apart_ns: u64,
        /// Largest error of the clocks that measured the skew, ns.
        clock_error_ns: u64,
    },
    /// A fault between the processes of a group that did not end the run.
    #[serde(rename = "group-trouble")]
    Trouble {
        /// The fault, as a clause.
        trouble: String,
    },
    /// A warning of one process's workload.
    #[serde(rename = "group-client-warning")]
    ClientWarning {
        /// The process.
        client: ClientName,
        /// The warning.
        text: String,
    },
}

/// A note on read-after-write lag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "arguments")]
pub enum LagNote {
    /// Keys of sampled writes could not enter the queue.
    #[serde(rename = "lag-not-carried")]
    NotCarried {
        /// Number of these writes.
        not_carried: u64,
        /// Number of writes whose key entered the queue.
        carried: u64,
    },
    /// Keys were not found by the end of the time.
    #[serde(rename = "lag-not-found")]
    NotFound {
        /// Number of keys.
        keys: u64,
        /// Whether writes were buffered, so that some may never become visible.
        buffered: bool,
    },
    /// Keys were put into the queue and reported by no consumer.
    #[serde(rename = "lag-not-taken")]
    NotTaken {
        /// Number of keys.
        keys: u64,
    },
    /// Keys were overwritten or deleted before they were found.
    #[serde(rename = "lag-undecided")]
    Undecided {
        /// Number of keys.
        keys: u64,
    },
    /// Reads or writes exceeded the recorder's capacity.
    #[serde(rename = "lag-not-noted")]
    NotNoted {
        /// Number of reads and writes.
        operations: u64,
    },
    /// Values were too short for a stamp.
    #[serde(rename = "lag-too-short")]
    TooShort {
        /// Number of writes of such values.
        writes: u64,
    },
    /// Keys were in the queue when a consumer began.
    #[serde(rename = "lag-from-before")]
    FromBefore {
        /// Number of keys.
        keys: u64,
    },
    /// The queue contained malformed entries.
    #[serde(rename = "lag-foreign")]
    Foreign {
        /// Number of entries.
        entries: u64,
    },
    /// Reads by consumers failed.
    #[serde(rename = "lag-reads-failed")]
    ReadsFailed {
        /// Number of failed reads.
        failed: u64,
        /// Number of all reads.
        reads: u64,
    },
}

/// A note on merged results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "arguments")]
pub enum MergedNote {
    /// The results were merged although they do not fit together.
    #[serde(rename = "merged-regardless")]
    Regardless {
        /// Why they do not fit.
        problem: String,
    },
    /// Results of simultaneous clients were merged, and their measured times do not overlap.
    #[serde(rename = "merged-not-at-once")]
    NotAtOnce {
        /// The result that ended first, and the one that began after it.
        parts: [String; 2],
        /// Time between that end and that beginning, s.
        apart_s: f64,
    },
    /// Merged results have no series.
    #[serde(rename = "merged-without-series")]
    WithoutSeries,
    /// A note on one of the merged results.
    #[serde(rename = "merged-part")]
    OfPart {
        /// The result.
        part: String,
        /// Its note.
        note: Box<Note>,
    },
    /// The merged results were measured on different machines.
    #[serde(rename = "merged-machines-differ")]
    MachinesDiffer {
        /// Descriptions of the machines.
        machines: Vec<String>,
    },
    /// One of the merged results was not paced.
    #[serde(rename = "merged-not-paced")]
    NotPaced {
        /// The result.
        part: String,
    },
    /// One of the merged results has no lag.
    #[serde(rename = "merged-lag-not-measured")]
    LagNotMeasured {
        /// The result.
        part: String,
    },
    /// The merged results sampled lag differently.
    #[serde(rename = "merged-lag-sampling-differs")]
    LagSamplingDiffers {
        /// Two results.
        parts: [String; 2],
        /// Share of keys that each sampled.
        samples: [f64; 2],
        /// Time between two reads of a key in each, ns.
        poll_ns: [u64; 2],
    },
    /// The merged result has no survival curves.
    #[serde(rename = "merged-without-survival")]
    WithoutSurvival,
    /// The merged result has no hand-over and visibility times.
    #[serde(rename = "merged-without-visibility")]
    WithoutVisibility {
        /// The results without these times.
        parts: Vec<String>,
    },
}

/// A process of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientName {
    /// Its share of the work: `1/4`.
    pub share: String,
    /// Name of its host.
    pub host: String,
    /// Its process id.
    pub process: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_a_code_and_arguments() {
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
        // Unexpected arguments of a known code do not make a document invalid.
        let other = serde_json::from_str::<Note>(r#"{"code":"few-operations","arguments":{"n":7}}"#).unwrap();
        assert!(matches!(other, Note::Other { code, .. } if code == "few-operations"));
    }
}
