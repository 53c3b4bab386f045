//! A simulated store has clean histories without faults, and each fault is found. `SEEDS=from..to`
//! chooses seeds.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod store;

use std::collections::BTreeMap;
use store::{Fault, Size, history};
use yesquel_histories::{
    Anomaly, AnomalyKind, ConsistencyModel, Dependency, Edge, Element, HistoryReport, ListKey, ListOperation,
    RecordedTransaction, check,
};

const SIZE: Size = Size { transactions: 200, clients: 6, keys: 5, keys_for: 1000 };

/// Seeds of which half must find a fault.
const ENOUGH: u64 = 20;

fn seeds() -> std::ops::Range<u64> {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    seeds.unwrap_or(0..40)
}

fn report(fault: Fault, seed: u64, model: ConsistencyModel) -> HistoryReport {
    let history = history(fault, SIZE, seed);
    let report = check(&history, model).unwrap();
    for anomaly in &report.anomalies {
        let proof: Result<(), String> = proves(&history, anomaly);
        assert_eq!(proof, Ok(()), "seed {seed}, {fault:?}, {model:?}: {anomaly}");
    }
    report
}

/// Checks that the edges of an anomaly are true, and form a cycle where required.
fn proves(history: &[RecordedTransaction], anomaly: &Anomaly) -> Result<(), String> {
    for Edge { from, to, dependency } in &anomaly.edges {
        let (one, other) = (&history[*from], &history[*to]);
        let appends = |who: &RecordedTransaction, key, element| {
            who.operations.contains(&ListOperation::Append { key, element })
        };
        let reads = |who: &RecordedTransaction, key: ListKey, as_said: &dyn Fn(&[Element]) -> bool| {
            who.operations.iter().any(|operation| match operation {
                ListOperation::Read { key: other, list: Some(list) } => *other == key && as_said(list),
                _ => false,
            })
        };
        let is_true = match *dependency {
            Dependency::WriteWrite { key, first, second, seen } => {
                let in_turn = |list: &[Element]| {
                    let place = |element| list.iter().position(|it| *it == element);
                    place(first).zip(place(second)).is_some_and(|(first, second)| first < second)
                };
                let in_order = history.iter().any(|it| reads(it, key, &in_turn));
                appends(one, key, first) && appends(other, key, second) && in_order == seen
            }
            Dependency::WriteRead { key, element } => {
                appends(one, key, element) && reads(other, key, &|list| list.contains(&element))
            }
            Dependency::ReadWrite { key, seen, missed } => {
                let as_said = |list: &[Element]| {
                    !list.contains(&missed) && seen.is_none_or(|seen| list.contains(&seen))
                };
                reads(one, key, &as_said) && appends(other, key, missed)
            }
            Dependency::Session { process } => {
                one.process == process && other.process == process && one.completed <= other.invoked
            }
            Dependency::RealTime { completed, invoked } => {
                (one.completed, other.invoked) == (completed, invoked) && completed < invoked
            }
        };
        if !is_true {
            return Err(format!("{dependency:?} is not so"));
        }
    }
    if anomaly.kind < AnomalyKind::G0 {
        return Ok(());
    }
    let after = anomaly.edges.iter().cycle().skip(1);
    let mut each: Vec<usize> = anomaly.edges.iter().map(|edge| edge.from).collect();
    each.sort_unstable();
    each.dedup();
    let circle = each.len() == anomaly.edges.len()
        && anomaly.edges.iter().zip(after.clone()).all(|(edge, next)| edge.to == next.from);
    let rw = anomaly.edges.iter().filter(|edge| edge.dependency.is_rw()).count();
    let in_a_row = anomaly
        .edges
        .iter()
        .zip(after)
        .any(|(edge, next)| edge.dependency.is_rw() && next.dependency.is_rw());
    let wr = anomaly.edges.iter().any(|edge| matches!(edge.dependency, Dependency::WriteRead { .. }));
    let right = match anomaly.kind {
        AnomalyKind::G0 => rw == 0 && !wr,
        AnomalyKind::G1c => rw == 0 && wr,
        AnomalyKind::GSingle => rw == 1,
        AnomalyKind::GNonadjacent => rw > 1 && !in_a_row,
        AnomalyKind::G2Item => rw > 1 && in_a_row,
        _ => rw >= 1,
    };
    if circle && right { Ok(()) } else { Err(format!("it is no {}", anomaly.kind.name())) }
}

fn clean(fault: Fault, models: &[ConsistencyModel]) {
    for seed in seeds() {
        for model in models {
            let report = report(fault, seed, *model);
            assert!(report.is_clean(), "seed {seed} (SEEDS={seed}..{}): {report}", seed + 1);
        }
    }
}

/// Checks that at least half of the seeds find the fault under one of the names, unless they are
/// few. Other anomalies may be found as `others` allows.
fn caught(fault: Fault, model: ConsistencyModel, names: &[&str], others: Others) {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut caught = 0;
    for seed in seeds() {
        let report = report(fault, seed, model);
        let found = report.names();
        caught += u64::from(found.iter().any(|name| names.contains(&name.as_str())));
        for name in found {
            let known = names.contains(&name.as_str()) || others.allow(&name);
            assert!(known, "seed {seed}: {name} for {fault:?}: {report}");
            *seen.entry(name).or_default() += 1;
        }
    }
    let of = seeds().end - seeds().start;
    println!("{fault:?}: {caught} of {of}, {seen:?}");
    assert!(of < ENOUGH || 2 * caught >= of, "{fault:?} was caught by {caught} of {of} seeds: {seen:?}");
}

/// Other anomalies that may be found.
enum Others {
    /// Any: a fault of a store has many consequences.
    Any,
    /// These only.
    Only(&'static [&'static str]),
}

impl Others {
    fn allow(&self, name: &str) -> bool {
        match self {
            Others::Any => true,
            Others::Only(names) => names.contains(&name),
        }
    }
}

const SNAPSHOT: [ConsistencyModel; 3] = [
    ConsistencyModel::SnapshotIsolation,
    ConsistencyModel::StrongSessionSnapshotIsolation,
    ConsistencyModel::StrongSnapshotIsolation,
];
const ALL: [ConsistencyModel; 6] = [
    ConsistencyModel::SnapshotIsolation,
    ConsistencyModel::StrongSessionSnapshotIsolation,
    ConsistencyModel::StrongSnapshotIsolation,
    ConsistencyModel::Serializable,
    ConsistencyModel::StrongSessionSerializable,
    ConsistencyModel::StrictSerializable,
];

#[test]
fn a_correct_store_is_clean() {
    clean(Fault::None, &SNAPSHOT);
}

#[test]
fn a_serializable_store_is_clean_of_write_skew_too() {
    clean(Fault::NoneSerializable, &ALL);
}

#[test]
fn snapshot_isolation_is_not_serializable() {
    caught(Fault::None, ConsistencyModel::Serializable, &["G2-item"], Others::Only(&[]));
}

#[test]
fn a_correct_store_does_enough_work() {
    let of = |fault| {
        let counts =
            seeds().map(|seed| report(fault, seed, ConsistencyModel::StrongSnapshotIsolation).counts);
        counts.map(|counts| (counts.transactions, counts.edges)).min().unwrap()
    };
    let (transactions, edges) = of(Fault::None);
    assert!(transactions > 80 && edges > 200, "{transactions}, {edges}");
}

#[test]
fn no_conflict_check_is_a_lost_update() {
    caught(Fault::NoConflictCheck, ConsistencyModel::SnapshotIsolation, &["lost update"], Others::Any);
}

#[test]
fn reads_at_their_own_time_are_read_skew() {
    caught(Fault::ReadsAtStatement, ConsistencyModel::SnapshotIsolation, &["G-single"], Others::Any);
}

#[test]
fn dirty_reads_are_aborted_reads() {
    // A seed without a refusal has no aborted transaction to read.
    caught(Fault::DirtyReads, ConsistencyModel::SnapshotIsolation, &["G1a"], Others::Any);
}

#[test]
fn reads_of_aborted_writes_are_aborted_reads() {
    caught(Fault::AbortsStay, ConsistencyModel::SnapshotIsolation, &["G1a"], Others::Any);
}

#[test]
fn a_lost_commit_is_found() {
    caught(Fault::LostCommit, ConsistencyModel::SnapshotIsolation, &["lost update", "G-single"], Others::Any);
}

#[test]
fn a_lost_commit_is_almost_always_found_by_real_time_models() {
    let names = ["lost update", "G-single", "G-single-realtime", "G0-process", "G0-realtime"];
    caught(Fault::LostCommit, ConsistencyModel::StrongSnapshotIsolation, &names, Others::Any);
}

#[test]
fn a_commit_in_parts_is_read_skew() {
    caught(Fault::PartialCommit, ConsistencyModel::SnapshotIsolation, &["G-single"], Others::Any);
}

#[test]
fn snapshots_that_go_back_violate_session_models_only() {
    clean(Fault::SnapshotsGoBack, &[ConsistencyModel::SnapshotIsolation]);
    let model = ConsistencyModel::StrongSessionSnapshotIsolation;
    caught(Fault::SnapshotsGoBack, model, &["G-single-process"], Others::Only(&["G-nonadjacent-process"]));
}

#[test]
fn stale_snapshots_violate_real_time_models_only() {
    clean(Fault::StaleSnapshots, &SNAPSHOT[..2]);
    let model = ConsistencyModel::StrongSnapshotIsolation;
    caught(Fault::StaleSnapshots, model, &["G-single-realtime"], Others::Only(&["G-nonadjacent-realtime"]));
}

#[test]
fn two_sites_are_a_long_fork() {
    caught(Fault::TwoSites, ConsistencyModel::SnapshotIsolation, &["G-nonadjacent"], Others::Only(&[]));
}

#[test]
fn missing_own_writes_is_internal() {
    caught(Fault::BlindToItself, ConsistencyModel::SnapshotIsolation, &["internal"], Others::Only(&[]));
}

#[test]
fn appending_twice_is_a_duplicate() {
    caught(Fault::Twice, ConsistencyModel::SnapshotIsolation, &["duplicate element"], Others::Only(&[]));
}

#[test]
fn elements_of_other_lists_are_phantoms() {
    caught(
        Fault::Mixed,
        ConsistencyModel::SnapshotIsolation,
        &["phantom element"],
        Others::Only(&["internal"]),
    );
}
