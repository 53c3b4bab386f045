//! What must hold when a round's faults are over.

use crate::{
    cluster::{NetworkCluster, PATIENCE},
    journal,
    lists::{GROUPS, elements, group_of},
    load::RoundLoad,
    sql,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};
use yesquel::status::TransactionStatus;
use yesquel_histories::{Element, ListKey, ListOperation, RecordedOutcome, RecordedTransaction, check};
use yesquel_sql_histories::table_of;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::{Tree, TreeError, Trees};

/// Transactions of a round by outcome.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundCounts {
    pub(crate) committed: u64,
    pub(crate) aborted: u64,
    pub(crate) unknown: u64,
    /// Unknown ones that had committed.
    pub(crate) unknown_committed: u64,
    /// Committed ones that wrote to more than one group, by SQL to tables of lists that were created at
    /// different groups.
    pub(crate) several_groups: u64,
    /// Committed schema changes.
    pub(crate) schema_changes: u64,
}

impl RoundCounts {
    pub(crate) fn add(&mut self, other: RoundCounts) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.unknown += other.unknown;
        self.unknown_committed += other.unknown_committed;
        self.several_groups += other.several_groups;
        self.schema_changes += other.schema_changes;
    }
}

/// Returns the number of ends that recovery has found since the servers were started.
pub(crate) fn recovered(cluster: &NetworkCluster) -> u64 {
    (0..GROUPS).map(|group| cluster.status(group).unwrap().transactions.recovered).sum()
}

/// Waits until no transaction is undecided.
fn settle(cluster: &NetworkCluster) {
    let until = Instant::now() + PATIENCE;
    for group in 0..GROUPS {
        loop {
            match cluster.status(group).map(|status| status.transactions) {
                Ok(TransactionStatus { undecided: 0, contradictions, .. }) => {
                    assert_eq!(contradictions, 0, "a decision contradicts an end");
                    break;
                }
                other => assert!(Instant::now() < until, "transactions stay undecided: {other:?}"),
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Reads lists of maps at one snapshot.
fn read_maps(
    trees: &Trees<SocketTransport>,
    roots: &[Tree],
    keys: &BTreeSet<ListKey>,
) -> Result<BTreeMap<ListKey, Vec<Element>>, TreeError> {
    let mut transaction = trees.begin();
    let mut read = |key: &ListKey| {
        let value = block_on(transaction.get(roots[group_of(*key)], &key.to_be_bytes()))?;
        Ok((*key, elements(value.as_deref())))
    };
    keys.iter().map(&mut read).collect()
}

/// Reads all lists of a history at one snapshot, as soon as that is possible.
fn read_all(
    cluster: &mut NetworkCluster,
    load: RoundLoad,
    keys: &BTreeSet<ListKey>,
) -> BTreeMap<ListKey, Vec<Element>> {
    if let RoundLoad::Sql(_) = load {
        let mut lists = sql::read_all(&cluster.place);
        keys.iter().for_each(|key| _ = lists.entry(*key).or_default());
        return lists;
    }
    let (trees, roots) = (cluster.connect(), cluster.place.trees());
    let until = Instant::now() + PATIENCE;
    loop {
        match read_maps(&trees, &roots, keys) {
            Ok(lists) => return lists,
            Err(error) => assert!(Instant::now() < until, "the lists cannot be read: {error}"),
        }
    }
}

/// Checks the transactions of the clients in a round, and forgets their journals.
pub(crate) fn audit(cluster: &mut NetworkCluster, load: RoundLoad) -> RoundCounts {
    settle(cluster);
    let mut counts = RoundCounts::default();
    let place = cluster.place.clone();
    let journals = cluster.client_numbers().map(|number| place.journal(number)).filter(|path| path.exists());
    let journals: Vec<_> = journals.collect();
    let mut history: Vec<RecordedTransaction> =
        journals.iter().flat_map(|journal| journal::read(journal)).collect();
    let key_of = |operation: &ListOperation| match operation {
        ListOperation::Append { key, .. } | ListOperation::Read { key, .. } => *key,
    };
    let keys: BTreeSet<ListKey> = history.iter().flat_map(|one| one.operations.iter().map(key_of)).collect();
    let begun = journal::now();
    let lists = read_all(cluster, load, &keys);
    for transaction in &history {
        compare(transaction, load, &lists, &mut counts);
    }
    assert!(counts.committed > 0 && counts.several_groups > 0, "clients commit nothing: {counts:?}");
    let operations: Vec<_> = lists.into_iter().map(|(key, list)| ListOperation::read(key, list)).collect();
    let last = RecordedTransaction::committed(u64::MAX, begun, journal::now(), operations);
    history.push(last);
    let report = check(&history, load.model()).unwrap();
    assert!(report.is_clean(), "{report}");
    journals.iter().for_each(|journal| std::fs::remove_file(journal).unwrap());
    counts
}

/// Compares a transaction with the lists at the end: acknowledged ones are there once, rolled back
/// ones are not, and none is there in part.
fn compare(
    transaction: &RecordedTransaction,
    load: RoundLoad,
    lists: &BTreeMap<ListKey, Vec<Element>>,
    counts: &mut RoundCounts,
) {
    let appends: Vec<(ListKey, Element)> = transaction
        .operations
        .iter()
        .filter_map(|operation| match operation {
            ListOperation::Append { key, element } => Some((*key, *element)),
            ListOperation::Read { .. } => None,
        })
        .collect();
    let times =
        |(key, element): &(ListKey, Element)| lists[key].iter().filter(|found| *found == element).count();
    let found: Vec<usize> = appends.iter().map(times).collect();
    let (all, none) = (found.iter().all(|times| *times == 1), found.iter().all(|times| *times == 0));
    let is_right = match transaction.outcome {
        RecordedOutcome::Committed => all,
        RecordedOutcome::Aborted => none,
        RecordedOutcome::Unknown => all || none,
    };
    assert!(is_right, "its appends are there {found:?} times: {transaction:?}");
    match transaction.outcome {
        RecordedOutcome::Committed => counts.committed += 1,
        RecordedOutcome::Aborted => counts.aborted += 1,
        RecordedOutcome::Unknown => {
            counts.unknown += 1;
            counts.unknown_committed += u64::from(all && !appends.is_empty());
        }
    }
    let group_of = |(key, _): &(ListKey, Element)| match load {
        RoundLoad::Maps { .. } => group_of(*key),
        RoundLoad::Sql(_) => table_of(*key),
    };
    let groups: BTreeSet<usize> = appends.iter().map(group_of).collect();
    counts.several_groups += u64::from(all && groups.len() > 1);
}
