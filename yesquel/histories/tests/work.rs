//! Amount of work for long histories: deterministic counts.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod store;

use store::{Fault, Size, history};
use yesquel_histories::{
    AnomalyKind, CheckCounts, ConsistencyModel, HistoryReport, ListOperation, RecordedTransaction, check,
};

fn long(fault: Fault, transactions: usize) -> Vec<RecordedTransaction> {
    history(fault, Size { transactions, clients: 10, keys: 12, keys_for: 60 }, 7)
}

fn elements(history: &[RecordedTransaction]) -> u64 {
    let lists =
        history.iter().flat_map(|transaction| &transaction.operations).map(|operation| match operation {
            ListOperation::Read { list: Some(list), .. } => list.len() as u64,
            _ => 0,
        });
    lists.sum()
}

fn counts(history: &[RecordedTransaction], model: ConsistencyModel) -> (HistoryReport, CheckCounts) {
    let report = check(history, model).unwrap();
    let counts = report.counts;
    (report, counts)
}

#[test]
fn a_clean_history_is_traversed_once() {
    for model in [ConsistencyModel::SnapshotIsolation, ConsistencyModel::StrongSnapshotIsolation] {
        let history = long(Fault::None, 100_000);
        let (report, counts) = counts(&history, model);
        assert!(report.is_clean(), "{report}");
        assert!(counts.transactions > 50_000 && counts.edges > 150_000, "{counts:?}");
        // Each edge once, and the few within transactions and of time.
        assert!(counts.steps <= counts.edges + 4 * counts.transactions, "{counts:?}");
        assert!(counts.elements <= 5 * elements(&history), "{counts:?}");
    }
}

#[test]
fn one_fault_adds_little_work() {
    let mut history = long(Fault::None, 20_000);
    let before = counts(&history, ConsistencyModel::StrongSnapshotIsolation).1;
    let (one, other) = (ListOperation::append(u64::MAX, 1), ListOperation::append(u64::MAX, 2));
    let list = ListOperation::read(u64::MAX, []);
    history.push(RecordedTransaction::committed(1_000, 1, 2, [list.clone(), one]));
    history.push(RecordedTransaction::committed(1_001, 1, 2, [list, other]));
    let (report, after) = counts(&history, ConsistencyModel::StrongSnapshotIsolation);
    assert_eq!(report.names(), ["lost update"]);
    assert!(after.steps < before.steps + 200, "{before:?}, then {after:?}");
}

#[test]
fn work_is_linear_in_the_length_of_the_history() {
    for (fault, model) in [
        (Fault::None, ConsistencyModel::StrongSnapshotIsolation),
        (Fault::NoneSerializable, ConsistencyModel::StrictSerializable),
        (Fault::NoConflictCheck, ConsistencyModel::SnapshotIsolation),
        (Fault::SnapshotsGoBack, ConsistencyModel::StrongSnapshotIsolation),
        (Fault::None, ConsistencyModel::StrictSerializable),
    ] {
        let of = |transactions| counts(&long(fault, transactions), model).1;
        let (one, two) = (of(5_000), of(10_000));
        for (one, two) in [(one.steps, two.steps), (one.elements, two.elements), (one.edges, two.edges)] {
            assert!(10 * two < 22 * one, "{fault:?}: {one}, then {two}");
        }
    }
}

#[test]
fn many_faults_multiply_the_work_by_a_small_factor() {
    for (fault, model, kind) in [
        (Fault::NoConflictCheck, ConsistencyModel::StrongSnapshotIsolation, AnomalyKind::LostUpdate),
        (Fault::StaleSnapshots, ConsistencyModel::StrongSnapshotIsolation, AnomalyKind::GSingle),
        (Fault::None, ConsistencyModel::StrictSerializable, AnomalyKind::G2Item),
    ] {
        let (report, counts) = counts(&long(fault, 50_000), model);
        let found = report.anomalies.iter().filter(|anomaly| anomaly.kind == kind).count();
        println!("{fault:?}: {found} of {}, {counts:?}", report.anomalies.len());
        assert!(found > 100, "{fault:?}: {found}");
        assert!(counts.steps < 20 * counts.edges, "{counts:?}");
    }
}

/// Each transaction reads the previous one's write, and the first reads the last one's.
fn ring(size: u64, missed_by: impl Fn(u64) -> bool) -> Vec<RecordedTransaction> {
    let each = (0..size).map(|at| {
        let before = (at + size - 1) % size;
        // A missed transaction follows its reader; a seen one precedes it.
        let first = match missed_by(at) {
            true => ListOperation::append(before, 1),
            false => ListOperation::read(before, [1]),
        };
        let second = match missed_by((at + 1) % size) {
            true => ListOperation::read(at, []),
            false => ListOperation::append(at, 1),
        };
        RecordedTransaction::committed(at, 1, 2, [first, second])
    });
    each.collect()
}

#[test]
fn searches_of_a_cycle_through_all_transactions_are_limited() {
    const SIZE: u64 = 100_000;
    let (report, counts) = counts(&ring(SIZE, |_| false), ConsistencyModel::SnapshotIsolation);
    assert_eq!(report.names(), ["G1c"]);
    assert_eq!(report.anomalies[0].edges.len() as u64, SIZE);
    assert!(counts.steps < 100 * SIZE, "{counts:?}");
    // Every second edge is an `rw` edge: searches for a cycle with only one of them fail from each
    // and stop; some other cycle is found.
    let (report, counts) = self::counts(&ring(SIZE, |at| at % 2 == 0), ConsistencyModel::SnapshotIsolation);
    assert_eq!(report.names(), ["G-nonadjacent"]);
    assert_eq!(report.anomalies[0].edges.len() as u64, SIZE);
    assert!(counts.steps < 200 * SIZE, "{counts:?}");
    // Only one: a G-single of all transactions.
    let (report, counts) = self::counts(&ring(SIZE, |at| at == 5), ConsistencyModel::SnapshotIsolation);
    assert_eq!(report.names(), ["G-single"]);
    assert!(counts.steps < 100 * SIZE, "{counts:?}");
    // Two adjacent ones break it.
    let (report, _) = self::counts(&ring(SIZE, |at| at == 5 || at == 6), ConsistencyModel::SnapshotIsolation);
    assert!(report.is_clean(), "{report}");
    // The description of a long cycle is short.
    let (report, _) = self::counts(&ring(SIZE, |_| false), ConsistencyModel::SnapshotIsolation);
    assert!(report.to_string().len() < 10_000, "{report}");
}

#[test]
fn concurrent_reads_and_writes_add_a_linear_number_of_edges() {
    let mut history: Vec<RecordedTransaction> = Vec::new();
    for at in 0..20_000 {
        history.push(RecordedTransaction::committed(at, 1, 2, [ListOperation::read(0, [])]));
        history.push(RecordedTransaction::committed(100_000 + at, 1, 2, [ListOperation::append(0, at)]));
    }
    for model in [ConsistencyModel::StrongSnapshotIsolation, ConsistencyModel::StrictSerializable] {
        let (report, counts) = counts(&history, model);
        assert!(report.is_clean(), "{report}");
        assert!(counts.edges <= 40_000 && counts.steps < 8 * counts.edges, "{counts:?}");
    }
}
