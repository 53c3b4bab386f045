//! A handmade history for each anomaly, which is found under its name, and similar histories
//! without it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use yesquel_histories::{
    AnomalyKind, AnomalyOrder, ConsistencyModel, Dependency, HistoryError, ListOperation, RecordedOutcome,
    RecordedTransaction, check,
};

const X: u64 = 1;
const Y: u64 = 2;

fn append(key: u64, element: u64) -> ListOperation {
    ListOperation::append(key, element)
}

fn read<const N: usize>(key: u64, list: [u64; N]) -> ListOperation {
    ListOperation::read(key, list)
}

/// All at the same time, each by a process of its own.
fn together(transactions: impl IntoIterator<Item = Vec<ListOperation>>) -> Vec<RecordedTransaction> {
    let each = transactions.into_iter().enumerate();
    each.map(|(at, operations)| RecordedTransaction::committed(at as u64, 1, 9, operations)).collect()
}

/// One after the other, each by the named process.
fn in_turn(transactions: impl IntoIterator<Item = (u64, Vec<ListOperation>)>) -> Vec<RecordedTransaction> {
    let each = transactions.into_iter().enumerate();
    each.map(|(at, (process, operations))| {
        RecordedTransaction::committed(process, 10 * at as u64, 10 * at as u64 + 5, operations)
    })
    .collect()
}

/// Returns the names of the anomalies.
fn names(history: &[RecordedTransaction], model: ConsistencyModel) -> Vec<String> {
    let report = check(history, model).unwrap();
    assert_eq!(report.is_clean(), report.names().is_empty());
    report.names()
}

/// Returns the only anomaly.
fn single(
    history: &[RecordedTransaction],
    model: ConsistencyModel,
    name: &str,
) -> yesquel_histories::Anomaly {
    let report = check(history, model).unwrap();
    assert_eq!(report.names(), [name], "{report}");
    assert_eq!(report.anomalies.len(), 1, "{report}");
    let anomaly = report.anomalies[0].clone();
    if !anomaly.edges.is_empty() && anomaly.kind >= AnomalyKind::G0 {
        let after = anomaly.edges.iter().cycle().skip(1);
        assert!(
            anomaly.edges.iter().zip(after).all(|(edge, next)| edge.to == next.from),
            "no circle: {report}"
        );
    }
    for at in &anomaly.transactions {
        assert!(anomaly.explanation.contains(&format!("T{at} ")), "{report}");
    }
    anomaly
}

const SNAPSHOT: [ConsistencyModel; 3] = [
    ConsistencyModel::SnapshotIsolation,
    ConsistencyModel::StrongSessionSnapshotIsolation,
    ConsistencyModel::StrongSnapshotIsolation,
];
const SERIAL: [ConsistencyModel; 3] = [
    ConsistencyModel::Serializable,
    ConsistencyModel::StrongSessionSerializable,
    ConsistencyModel::StrictSerializable,
];

fn clean_in_all(history: &[RecordedTransaction]) {
    for model in SNAPSHOT.into_iter().chain(SERIAL) {
        assert_eq!(names(history, model), [""; 0], "{model:?}");
    }
}

/// Checks that every model finds the anomaly of this name, and nothing else.
fn only_in_all(history: &[RecordedTransaction], name: &str) {
    for model in SNAPSHOT.into_iter().chain(SERIAL) {
        single(history, model, name);
    }
}

#[test]
fn an_empty_history_is_clean() {
    clean_in_all(&[]);
    clean_in_all(&together([vec![]]));
}

#[test]
fn sequential_transactions_are_clean() {
    clean_in_all(&in_turn([
        (0, vec![read(X, []), append(X, 1), read(X, [1]), append(X, 2), read(X, [1, 2])]),
        (1, vec![append(Y, 1), read(X, [1, 2])]),
        (0, vec![append(X, 3), append(Y, 2), read(Y, [1, 2])]),
        (2, vec![read(X, [1, 2, 3]), read(Y, [1, 2])]),
    ]));
}

#[test]
fn a_write_cycle_is_g0() {
    let history = together([
        vec![append(X, 1), append(Y, 1)],
        vec![append(X, 2), append(Y, 2)],
        vec![read(X, [1, 2]), read(Y, [2, 1])],
    ]);
    only_in_all(&history, "G0");
    let found = single(&history, ConsistencyModel::SnapshotIsolation, "G0");
    assert_eq!((found.order, found.edges.len()), (AnomalyOrder::Data, 2));
    assert!(found.edges.iter().all(|edge| matches!(edge.dependency, Dependency::WriteWrite { .. })));
}

#[test]
fn interleaved_writes_of_one_key_are_g0() {
    let history = together([vec![append(X, 1), append(X, 3)], vec![append(X, 2)], vec![read(X, [1, 2, 3])]]);
    only_in_all(&history, "G0");
}

#[test]
fn a_read_of_an_aborted_element_is_g1a() {
    let mut history = together([
        vec![append(X, 1)],
        vec![append(X, 2)],
        vec![read(X, [1, 2])],
        vec![read(X, [1])],
        vec![append(X, 3)],
        vec![read(X, [1, 3])],
    ]);
    history[1].outcome = RecordedOutcome::Aborted;
    only_in_all(&history, "G1a");
    let found = single(&history, ConsistencyModel::SnapshotIsolation, "G1a");
    assert_eq!(found.transactions, [2, 1]);
    assert_eq!(found.edges[0].dependency, Dependency::WriteRead { key: X, element: 2 });
    // Not if no committed transaction read it.
    history[2].outcome = RecordedOutcome::Aborted;
    clean_in_all(&history);
}

#[test]
fn a_read_between_two_appends_of_a_transaction_is_g1b() {
    let mut history = together([vec![append(X, 1), append(X, 2)], vec![read(X, [1])], vec![read(X, [1, 2])]]);
    only_in_all(&history, "G1b");
    assert_eq!(single(&history, ConsistencyModel::SnapshotIsolation, "G1b").transactions, [1, 0]);
    // A reader of the rest is not needed.
    history.pop();
    only_in_all(&history, "G1b");
    // The writer itself may see it.
    clean_in_all(&together([vec![append(X, 1), read(X, [1]), append(X, 2)], vec![read(X, [1, 2])]]));
}

#[test]
fn transactions_that_read_each_others_writes_are_g1c() {
    let history = together([vec![append(X, 1), read(Y, [1])], vec![append(Y, 1), read(X, [1])]]);
    only_in_all(&history, "G1c");
    let found = single(&history, ConsistencyModel::SnapshotIsolation, "G1c");
    assert!(found.edges.iter().all(|edge| matches!(edge.dependency, Dependency::WriteRead { .. })));
}

#[test]
fn a_cycle_of_reads_and_overwrites_is_g1c() {
    // T0 -ww-> T1 -wr-> T0.
    let history =
        together([vec![append(X, 1), read(Y, [1])], vec![append(X, 2), append(Y, 1)], vec![read(X, [1, 2])]]);
    only_in_all(&history, "G1c");
}

#[test]
fn reading_half_of_a_commit_is_read_skew() {
    let history = together([vec![append(X, 1), append(Y, 1)], vec![read(X, [1]), read(Y, [])]]);
    only_in_all(&history, "G-single");
    let found = single(&history, ConsistencyModel::SnapshotIsolation, "G-single");
    assert_eq!(found.edges.iter().filter(|edge| edge.dependency.is_rw()).count(), 1);
    assert!(found.explanation.contains("T1 read key 2 as empty and missed 1, which T0 appended"));
}

#[test]
fn read_skew_over_several_transactions_is_found() {
    let history = together([
        vec![append(X, 1)],
        vec![read(X, [1]), append(Y, 1)],
        vec![read(Y, [1]), append(3, 1)],
        vec![read(3, [1]), read(X, [])],
    ]);
    let found = single(&history, ConsistencyModel::SnapshotIsolation, "G-single");
    assert_eq!(found.edges.len(), 4);
    assert_eq!(found.transactions.len(), 4);
}

#[test]
fn overwriting_an_unseen_write_is_a_lost_update() {
    let seen = together([
        vec![append(X, 1)],
        vec![read(X, [1]), append(X, 2)],
        vec![read(X, [1]), append(X, 3)],
        vec![read(X, [1, 2, 3])],
    ]);
    only_in_all(&seen, "lost update");
    let found = single(&seen, ConsistencyModel::SnapshotIsolation, "lost update");
    assert_eq!(found.transactions, [2, 1]);
    // No read of its end is needed.
    only_in_all(&seen[..3], "lost update");
    // The other need not have read anything.
    let blind = together([vec![append(X, 1)], vec![read(X, []), append(X, 2)], vec![read(X, [1, 2])]]);
    only_in_all(&blind, "lost update");
    // A blind write before another's read, write and commit is fine.
    clean_in_all(&together([vec![append(X, 1)], vec![read(X, [1]), append(X, 2)], vec![read(X, [1, 2])]]));
    // Reads after its own append count without that append.
    let after = together([vec![append(X, 1)], vec![append(X, 2), read(X, [2])], vec![read(X, [1, 2])]]);
    only_in_all(&after, "lost update");
}

#[test]
fn read_skew_and_a_lost_update_are_both_reported() {
    // T1 saw what T0 wrote to Y, but not what it wrote to X, and wrote there.
    let history = together([
        vec![append(X, 1), append(Y, 1)],
        vec![read(X, []), read(Y, [1]), append(X, 2)],
        vec![read(X, [1, 2])],
    ]);
    assert_eq!(names(&history, ConsistencyModel::SnapshotIsolation), ["lost update", "G-single"]);
}

#[test]
fn contradictory_lists_are_incompatible_orders() {
    let history =
        together([vec![append(X, 1)], vec![append(X, 2)], vec![read(X, [1, 2])], vec![read(X, [2, 1])]]);
    only_in_all(&history, "incompatible orders");
    assert_eq!(
        single(&history, ConsistencyModel::SnapshotIsolation, "incompatible orders").transactions,
        [2, 3]
    );
    let gone = together([vec![append(X, 1)], vec![append(X, 2)], vec![read(X, [1])], vec![read(X, [2])]]);
    only_in_all(&gone, "incompatible orders");
    // Elements missing from one read are not ordered after it: T3 may have missed T1's commit.
    let mut gone = gone;
    gone[1].operations.push(append(Y, 7));
    gone[2].operations.push(read(Y, [7]));
    only_in_all(&gone, "incompatible orders");
}

#[test]
fn ones_own_appends_out_of_order_are_incompatible_orders() {
    let turned = together([vec![append(X, 1), append(X, 2)], vec![read(X, [2, 1])]]);
    assert!(names(&turned, ConsistencyModel::SnapshotIsolation).contains(&"incompatible orders".to_owned()));
    let half = together([vec![append(X, 1), append(X, 2)], vec![read(X, [2])]]);
    only_in_all(&half, "incompatible orders");
}

#[test]
fn an_element_twice_in_a_list_is_a_duplicate() {
    let history =
        together([vec![append(X, 1)], vec![append(X, 2)], vec![read(X, [1, 2, 1])], vec![read(X, [1, 2])]]);
    only_in_all(&history, "duplicate element");
}

#[test]
fn an_element_that_no_transaction_appended_is_a_phantom() {
    let history = together([
        vec![append(X, 1), append(Y, 5)],
        vec![read(X, [1, 5])],
        vec![append(X, 2)],
        vec![read(X, [1, 2])],
    ]);
    only_in_all(&history, "phantom element");
}

#[test]
fn missing_own_appends_is_internal() {
    only_in_all(&together([vec![append(X, 1), read(X, [])]]), "internal");
    only_in_all(&together([vec![append(X, 1), append(X, 2), read(X, [2])]]), "internal");
    // Nor may it see them before they exist.
    only_in_all(&together([vec![read(X, [1]), append(X, 1)]]), "internal");
}

#[test]
fn a_key_that_changes_between_two_reads_of_a_transaction_is_internal_and_read_skew() {
    let history = together([vec![append(X, 1)], vec![read(X, []), read(X, [1])]]);
    for model in SNAPSHOT.into_iter().chain(SERIAL) {
        assert_eq!(names(&history, model), ["internal", "G-single"]);
    }
}

#[test]
fn an_append_overwrites_the_last_read() {
    let history =
        together([vec![append(X, 1)], vec![read(X, []), read(X, [1]), append(X, 2)], vec![read(X, [1, 2])]]);
    assert_eq!(names(&history, ConsistencyModel::SnapshotIsolation), ["internal", "G-single"]);
}

#[test]
fn unread_elements_follow_all_read_elements() {
    // Of X only 1 is ever read, so that 2 follows it, and T0 has seen T1; the reader of 1 has
    // missed 2.
    let written =
        together([vec![append(X, 1), read(Y, [5])], vec![append(X, 2), append(Y, 5)], vec![read(X, [1])]]);
    assert_eq!(names(&written, ConsistencyModel::SnapshotIsolation), ["G1c", "G-single"]);
    // T0 missed 2, in either order.
    let missed = together([vec![read(X, []), read(Y, [5]), append(X, 1)], vec![append(X, 2), append(Y, 5)]]);
    only_in_all(&missed, "G-single");
}

#[test]
fn a_long_fork_is_g_nonadjacent_and_not_read_skew() {
    // Parallel snapshot isolation allows histories without G-single.
    let history = together([
        vec![append(X, 1)],
        vec![append(Y, 1)],
        vec![read(X, [1]), read(Y, [])],
        vec![read(X, []), read(Y, [1])],
    ]);
    only_in_all(&history, "G-nonadjacent");
    let found = single(&history, ConsistencyModel::SnapshotIsolation, "G-nonadjacent");
    assert_eq!(found.edges.len(), 4);
    assert_eq!(found.edges.iter().filter(|edge| edge.dependency.is_rw()).count(), 2);
}

#[test]
fn a_long_fork_and_information_flow_are_both_reported() {
    let history = together([
        vec![append(X, 1), read(3, [1])],
        vec![append(Y, 1)],
        vec![read(X, [1]), read(Y, [])],
        vec![read(X, []), read(Y, [1])],
        vec![append(3, 1), read(X, [1])],
    ]);
    assert_eq!(names(&history, ConsistencyModel::SnapshotIsolation), ["G1c", "G-nonadjacent"]);
}

#[test]
fn a_cycle_through_a_transaction_twice_is_not_a_fork() {
    // T0 and T1 saw each other. T2 missed T0, which missed T3, which T2 saw: this cycle alone would
    // be allowed.
    let history = together([
        vec![append(X, 1), read(Y, []), append(3, 1), read(4, [1])],
        vec![append(4, 1), read(3, [1])],
        vec![read(X, []), read(Y, [1])],
        vec![append(Y, 1)],
    ]);
    only_in_all(&history, "G1c");
}

#[test]
fn write_skew_and_a_session_that_goes_back_are_both_reported() {
    let mut history = in_turn([
        (0, vec![read(X, []), read(Y, []), append(X, 1)]),
        (1, vec![read(X, []), read(Y, []), read(3, []), append(Y, 1)]),
        (0, vec![read(X, []), append(3, 1)]),
    ]);
    history[1].invoked = 0;
    assert_eq!(names(&history, ConsistencyModel::Serializable), ["G2-item"]);
    assert_eq!(names(&history, ConsistencyModel::StrongSessionSnapshotIsolation), ["G-single-process"]);
    assert_eq!(names(&history, ConsistencyModel::StrongSessionSerializable), ["G-single-process", "G2-item"]);
}

#[test]
fn write_skew_is_allowed_by_snapshot_isolation_alone() {
    let history = together([
        vec![read(X, []), read(Y, []), append(X, 1)],
        vec![read(X, []), read(Y, []), append(Y, 1)],
    ]);
    for model in SNAPSHOT {
        assert_eq!(names(&history, model), [""; 0]);
    }
    for model in SERIAL {
        let found = single(&history, model, "G2-item");
        assert!(found.edges.iter().all(|edge| edge.dependency.is_rw()));
    }
}

#[test]
fn write_skew_of_three_is_allowed_by_snapshot_isolation_alone() {
    // T0 -rw-> T1 -rw-> T2 -wr-> T0, the read-only anomaly of Fekete et al.
    let history =
        together([vec![read(X, []), read(Y, [1])], vec![read(Y, []), append(X, 1)], vec![append(Y, 1)]]);
    for model in SNAPSHOT {
        assert_eq!(names(&history, model), [""; 0]);
    }
    for model in SERIAL {
        assert_eq!(single(&history, model, "G2-item").edges.len(), 3);
    }
}

#[test]
fn a_session_that_goes_back_violates_session_models_only() {
    let history = in_turn([(0, vec![append(X, 1)]), (1, vec![read(X, [1])]), (1, vec![read(X, [])])]);
    // The writer had also ended before the second read.
    let mut history: Vec<RecordedTransaction> = history;
    history[0].completed = 99;
    assert_eq!(names(&history, ConsistencyModel::SnapshotIsolation), [""; 0]);
    assert_eq!(names(&history, ConsistencyModel::Serializable), [""; 0]);
    for model in [
        ConsistencyModel::StrongSessionSnapshotIsolation,
        ConsistencyModel::StrongSnapshotIsolation,
        ConsistencyModel::StrongSessionSerializable,
        ConsistencyModel::StrictSerializable,
    ] {
        assert_eq!(single(&history, model, "G-single-process").order, AnomalyOrder::Session);
    }
    // Two clients may be at different times.
    history[2].process = 2;
    assert_eq!(names(&history, ConsistencyModel::StrongSessionSnapshotIsolation), [""; 0]);
}

#[test]
fn missing_an_own_commit_violates_session_models() {
    let history = in_turn([(0, vec![append(X, 1)]), (0, vec![read(X, [])])]);
    assert_eq!(names(&history, ConsistencyModel::SnapshotIsolation), [""; 0]);
    single(&history, ConsistencyModel::StrongSessionSnapshotIsolation, "G-single-process");
}

#[test]
fn a_stale_read_violates_real_time_models_only() {
    let mut history = in_turn([(0, vec![append(X, 1)]), (1, vec![read(X, [])])]);
    for model in [
        ConsistencyModel::SnapshotIsolation,
        ConsistencyModel::StrongSessionSnapshotIsolation,
        ConsistencyModel::Serializable,
        ConsistencyModel::StrongSessionSerializable,
    ] {
        assert_eq!(names(&history, model), [""; 0]);
    }
    for model in [ConsistencyModel::StrongSnapshotIsolation, ConsistencyModel::StrictSerializable] {
        let found = single(&history, model, "G-single-realtime");
        assert_eq!(found.order, AnomalyOrder::RealTime);
        assert!(found.edges.iter().any(|edge| {
            (edge.from, edge.to, edge.dependency)
                == (0, 1, Dependency::RealTime { completed: 5, invoked: 10 })
        }));
    }
    // A transaction that began while the other was running may miss it.
    history[1].invoked = 5;
    clean_in_all(&history);
}

#[test]
fn real_time_order_spans_other_transactions() {
    let history = in_turn([
        (0, vec![append(X, 1)]),
        (1, vec![append(Y, 1)]),
        (2, vec![append(Y, 2)]),
        (3, vec![read(X, [])]),
    ]);
    let found = single(&history, ConsistencyModel::StrongSnapshotIsolation, "G-single-realtime");
    assert_eq!(found.transactions.len(), 2);
    // Any number of transactions between is one edge: shorter than by the last one, which saw T0
    // and ended late.
    let mut turns = vec![(0, vec![append(X, 1)])];
    turns.extend((0..12).map(|at| (1, vec![append(Y, at)])));
    turns.push((3, vec![read(X, [])]));
    let mut history = in_turn(turns);
    history.push(RecordedTransaction::committed(4, 1, 129, [read(X, [1])]));
    let found = single(&history, ConsistencyModel::StrongSnapshotIsolation, "G-single-realtime");
    assert_eq!(found.transactions.len(), 2);
}

#[test]
fn writes_against_real_time_are_g0_realtime() {
    let history = in_turn([(0, vec![append(X, 2)]), (1, vec![append(X, 1)]), (2, vec![read(X, [1, 2])])]);
    assert_eq!(names(&history, ConsistencyModel::StrongSessionSnapshotIsolation), [""; 0]);
    single(&history, ConsistencyModel::StrongSnapshotIsolation, "G0-realtime");
}

#[test]
fn reads_of_the_future_are_g1c_realtime() {
    let history = in_turn([(0, vec![read(X, [1])]), (1, vec![append(X, 1)])]);
    assert_eq!(names(&history, ConsistencyModel::Serializable), [""; 0]);
    single(&history, ConsistencyModel::StrongSnapshotIsolation, "G1c-realtime");
}

#[test]
fn skew_in_real_time_violates_serializability_only() {
    // T0 missed T1's write, T1 missed T2's, and T2 was before T0.
    let mut history =
        in_turn([(0, vec![append(Y, 1)]), (1, vec![read(X, [])]), (2, vec![read(Y, []), append(X, 1)])]);
    history[2].invoked = 1;
    for model in SNAPSHOT {
        assert_eq!(names(&history, model), [""; 0]);
    }
    assert_eq!(names(&history, ConsistencyModel::Serializable), [""; 0]);
    single(&history, ConsistencyModel::StrictSerializable, "G2-item-realtime");
}

#[test]
fn a_transaction_of_unknown_outcome_counts_once_it_is_read() {
    // Half of it was seen.
    let mut history = together([vec![append(X, 1), append(Y, 1)], vec![read(X, [1]), read(Y, [])]]);
    history[0].outcome = RecordedOutcome::Unknown;
    single(&history, ConsistencyModel::SnapshotIsolation, "G-single");
    // No other transaction read its writes: it may not have committed.
    let mut unseen =
        together([vec![read(X, []), append(Y, 1)], vec![append(X, 1), append(Y, 2)], vec![read(Y, [2])]]);
    unseen[0].outcome = RecordedOutcome::Unknown;
    clean_in_all(&unseen);
    // Reads of an unknown transaction count if it was itself seen, transitively.
    let mut chain =
        together([vec![append(X, 1)], vec![read(X, [1]), append(Y, 1)], vec![read(Y, [1]), read(X, [])]]);
    chain[0].outcome = RecordedOutcome::Unknown;
    chain[1].outcome = RecordedOutcome::Unknown;
    single(&chain, ConsistencyModel::SnapshotIsolation, "G-single");
    // Reads of its own do not count.
    let mut alone = together([vec![append(X, 1), read(X, [1]), read(Y, [])], vec![read(X, [])]]);
    alone[0].outcome = RecordedOutcome::Unknown;
    clean_in_all(&alone);
    assert_eq!(check(&alone, ConsistencyModel::SnapshotIsolation).unwrap().counts.transactions, 1);
}

#[test]
fn no_transaction_follows_an_unknown_outcome_in_real_time() {
    let mut history = in_turn([(0, vec![append(X, 1)]), (0, vec![read(X, [])]), (0, vec![read(X, [1])])]);
    single(&history, ConsistencyModel::StrongSnapshotIsolation, "G-single-process");
    history[0].outcome = RecordedOutcome::Unknown;
    clean_in_all(&history);
    // But it follows its predecessors.
    let mut after =
        in_turn([(0, vec![append(X, 1)]), (0, vec![read(X, []), append(Y, 1)]), (1, vec![read(Y, [1])])]);
    after[1].outcome = RecordedOutcome::Unknown;
    assert_eq!(names(&after, ConsistencyModel::StrongSessionSnapshotIsolation), ["G-single-process"]);
    after[1].process = 2;
    assert_eq!(names(&after, ConsistencyModel::StrongSessionSnapshotIsolation), [""; 0]);
    assert_eq!(names(&after, ConsistencyModel::StrongSnapshotIsolation), ["G-single-realtime"]);
}

#[test]
fn an_unanswered_read_adds_no_edge() {
    let mut history = together([vec![append(X, 1), append(Y, 1)], vec![read(X, [1]), read(Y, [])]]);
    history[1].operations[1] = ListOperation::Read { key: Y, list: None };
    clean_in_all(&history);
}

#[test]
fn a_fault_among_many_concurrent_transactions_is_found() {
    // Many read X as empty, and many append to it unread; one of the readers read the other writes
    // of one of the appenders.
    let mut transactions: Vec<Vec<ListOperation>> = (0..50).map(|_| vec![read(X, [])]).collect();
    transactions.extend((0..50).map(|at| vec![append(X, at), append(100 + at, at)]));
    clean_in_all(&together(transactions.clone()));
    transactions[20].push(read(130, [30]));
    let found = single(&together(transactions), ConsistencyModel::SnapshotIsolation, "G-single");
    assert_eq!(found.transactions.len(), 2);
    assert!(found.transactions.contains(&20) && found.transactions.contains(&80));
    assert!(found.explanation.contains("T20 read key 1 as empty and missed 30"), "{}", found.explanation);
}

#[test]
fn the_end_of_long_lists_is_reported() {
    let mut transactions: Vec<Vec<ListOperation>> = (0..100).map(|at| vec![append(X, at)]).collect();
    transactions[99].push(append(Y, 1));
    transactions.push(vec![read(Y, [1]), ListOperation::read(X, (0..99).collect::<Vec<_>>())]);
    transactions.push(vec![ListOperation::read(X, (0..100).collect::<Vec<_>>())]);
    let found = single(&together(transactions), ConsistencyModel::SnapshotIsolation, "G-single");
    assert!(found.explanation.contains("[(91 more), 91, 92, 93, 94, 95, 96, 97, 98]"), "{found}");
    assert!(
        found.explanation.contains("T100 read key 1 up to 98 and missed 99, which T99 appended"),
        "{found}"
    );
}

#[test]
fn several_faults_are_all_reported() {
    let mut history = together([
        vec![append(X, 1), append(Y, 1)],
        vec![read(X, [1]), read(Y, [])],
        vec![append(3, 1), append(4, 1)],
        vec![read(3, [1]), read(4, [])],
        vec![append(5, 1)],
        vec![read(5, [1])],
    ]);
    history[4].outcome = RecordedOutcome::Aborted;
    let report = check(&history, ConsistencyModel::StrongSnapshotIsolation).unwrap();
    assert_eq!(report.names(), ["G1a", "G-single"]);
    assert_eq!(report.anomalies.len(), 3, "{report}");
    let text = report.to_string();
    assert!(text.starts_with("3 anomalies against strong snapshot isolation: G1a, G-single\n"), "{text}");
}

#[test]
fn a_report_of_many_faults_is_limited() {
    let mut history = together((0..12).map(|at| vec![append(at, 1)]));
    history.iter_mut().for_each(|transaction| transaction.outcome = RecordedOutcome::Aborted);
    let all: Vec<ListOperation> = (0..12).map(|at| read(at, [1])).collect();
    history.push(RecordedTransaction::committed(12, 1, 9, all));
    let report = check(&history, ConsistencyModel::SnapshotIsolation).unwrap();
    assert_eq!(report.anomalies.len(), 12);
    assert!(report.to_string().ends_with("... and 2 more"), "{report}");
}

#[test]
fn an_invalid_history_is_refused() {
    let twice = together([vec![append(X, 1)], vec![append(Y, 1)], vec![append(X, 1)]]);
    assert_eq!(
        check(&twice, ConsistencyModel::SnapshotIsolation),
        Err(HistoryError::AppendedTwice { key: X, element: 1, first: 0, second: 2 })
    );
    let mut back = together([vec![append(X, 1)]]);
    back[0].completed = 0;
    assert_eq!(
        check(&back, ConsistencyModel::SnapshotIsolation),
        Err(HistoryError::EndsBeforeItBegins { transaction: 0, invoked: 1, completed: 0 })
    );
    let mut both = in_turn([(7, vec![]), (7, vec![])]);
    both[1].invoked = 4;
    assert_eq!(
        check(&both, ConsistencyModel::SnapshotIsolation),
        Err(HistoryError::Overlap { process: 7, first: 0, second: 1 })
    );
}
