//! Long values whose nodes are at another group than their cells.

use crate::support::{Groups, decoded, node, txn};
use yesquel_engine::Engine;
use yesquel_model::{KeyRange, LocalId, NodeId, ServerId, Timestamp, TxnId};
use yesquel_wire::{
    Attribute, Decision, Expect, LargeValue, NewNode, NodeKind, NodeOperation, Operations, Reply, Request,
    ValueOwner, ValueUse, WriteOperation,
};

/// The group of the cells, and that of the values' nodes.
const CELLS: usize = 0;
const NODES: usize = 1;
const BOTH: [usize; 2] = [CELLS, NODES];
/// Longer than the mark needs to pass a commit, and an answer to be repeated.
const LONG_MS: u64 = 3_000;

fn large(first: u64) -> LargeValue {
    // Two nodes.
    LargeValue { length: 600_000, server: ServerId(NODES as u16), first: LocalId(first) }
}

fn value(first: u64) -> NodeId {
    large(first).first_node(node(CELLS).tree)
}

/// The operations that create a long value, without its pieces.
fn creates(key: &[u8], first: u64) -> Vec<u8> {
    let owner = ValueOwner { server: ServerId(CELLS as u16), nodes: large(first).nodes(), key: key.into() };
    let attributes = owner.attributes();
    let mut operations = Vec::new();
    for id in large(first).ids(node(CELLS).tree) {
        let new = NewNode { kind: NodeKind::Value, fence: KeyRange::all() };
        operations.push(NodeOperation { node: id, write: WriteOperation::Create(new) });
        for (number, value) in attributes.iter().filter(|_| id == value(first)) {
            let write = WriteOperation::Set(Attribute { id: *number, value: Some(value) });
            operations.push(NodeOperation { node: id, write });
        }
        let (key, value, expect) = (&[0; 4], b"piece", Expect::Any);
        let write = WriteOperation::Put { key, value, expect, is_large: false };
        operations.push(NodeOperation { node: id, write });
    }
    Operations::encode(&operations)
}

fn refers(key: &[u8], first: u64) -> Vec<u8> {
    let (value, expect) = (large(first).encode(), Expect::Any);
    let write = WriteOperation::Put { key, value: &value, expect, is_large: true };
    Operations::encode(&[NodeOperation { node: node(CELLS), write }])
}

fn delete(key: &[u8]) -> Vec<u8> {
    let write = WriteOperation::Delete { key, expect: Expect::Any };
    Operations::encode(&[NodeOperation { node: node(CELLS), write }])
}

/// Sends a prepare, and expects a yes.
fn prepare(groups: &mut Groups, group: usize, txn: TxnId, operations: &[u8]) -> Timestamp {
    let birth = groups.birth();
    let request = groups.prepare_operations(group, (txn, birth), operations, false, &BOTH);
    groups.vote_of(group, request)
}

fn decide(groups: &mut Groups, group: usize, txn: TxnId, at: Timestamp) {
    assert_eq!(decoded(&groups.decide(group, txn, Decision::Commit(at), &BOTH)), Reply::Done);
}

/// Writes a long value.
fn write(groups: &mut Groups, number: u64, key: &[u8], first: u64) {
    let txn = txn(1, number);
    let votes =
        [prepare(groups, CELLS, txn, &refers(key, first)), prepare(groups, NODES, txn, &creates(key, first))];
    BOTH.into_iter().for_each(|group| decide(groups, group, txn, votes[0].max(votes[1])));
}

/// Commits at the group of the cells.
fn commit(groups: &mut Groups, number: u64, operations: &[u8]) -> Timestamp {
    let (txn, birth, seen) = (txn(2, number), groups.birth(), Timestamp::ZERO);
    let operations = Operations::decode(operations).unwrap();
    let (snapshot, lease, staged) = (None, 0, None);
    let request = Request::Commit { txn, birth, snapshot, seen, lease, staged, operations };
    let answer = groups.ask(CELLS, 2, &request);
    let Reply::Committed(at) = decoded(&answer) else { panic!("{:?}", decoded(&answer)) };
    at
}

/// The number of nodes for long values.
fn values(groups: &mut Groups) -> u64 {
    let now = groups.now;
    groups.groups[NODES].engine.status(now).trees.iter().map(|tree| tree.values).sum()
}

fn pending(groups: &Groups, group: usize) -> [usize; 3] {
    groups.groups[group].engine.pending_values()
}

/// Checks that engines made from the log, and from a checkpoint, have the state of the live ones.
fn check_made_again(groups: &mut Groups) {
    for group in BOTH {
        let live = groups.groups[group].engine.canonical();
        let again = |engine: &Engine| assert!(engine.canonical() == live, "group {group}");
        let (number, all) = (group, &mut *groups);
        again(&all.made_again(number, false));
        again(&all.made_again(number, true));
    }
}

/// A superseded value becomes an orphan at the group of its cell by the record of the mark, whatever
/// was collected, and its nodes go when their own group's mark has passed that time.
#[test]
fn a_superseded_value_goes_when_both_marks_have_passed() {
    let mut groups = Groups::new(2);
    write(&mut groups, 1, b"k", 10);
    write(&mut groups, 2, b"other", 20);
    groups.pass(LONG_MS);
    assert_eq!(values(&mut groups), 4);
    // A client of the other group holds an older snapshot.
    let held = groups.groups[NODES].engine.last_timestamp();
    groups.groups[NODES].engine.hold(7, [Some(held), None], false);
    groups.groups[NODES].is_down = true;
    let at = commit(&mut groups, 1, &delete(b"k"));
    assert!(at > held);
    groups.pass(LONG_MS);
    assert_eq!(pending(&groups, CELLS), [1, 0, 0]);
    check_made_again(&mut groups);
    // The orphan survives a restart, from the log and from a checkpoint.
    groups.restart(CELLS, 0);
    groups.restart_from_checkpoint(CELLS);
    groups.groups[NODES].is_down = false;
    groups.pass(LONG_MS);
    assert_eq!((pending(&groups, CELLS), pending(&groups, NODES)), ([0; 3], [0, 1, 0]));
    assert_eq!(values(&mut groups), 4, "the snapshot still sees it");
    check_made_again(&mut groups);
    groups.groups[NODES].engine.hold(7, [None; 2], false);
    groups.pass(LONG_MS);
    assert_eq!((pending(&groups, NODES), values(&mut groups)), ([0; 3], 2));
    check_made_again(&mut groups);
}

/// The time of an orphan does not depend on what was collected between the mark and the next held
/// snapshot.
#[test]
fn an_orphans_time_is_the_same_whatever_was_collected() {
    let mut groups = Groups::new(2);
    write(&mut groups, 1, b"k", 10);
    let held = groups.groups[CELLS].engine.last_timestamp();
    groups.groups[CELLS].engine.hold(7, [Some(held), None], false);
    groups.groups[NODES].is_down = true;
    // The deletion is collected, for no snapshot between the two is held.
    commit(&mut groups, 1, &delete(b"k"));
    commit(&mut groups, 2, &refers(b"k", 20));
    groups.pass(LONG_MS);
    assert!(groups.groups[CELLS].engine.oldest_snapshot() == held);
    assert_eq!(pending(&groups, CELLS), [0; 3]);
    groups.groups[CELLS].engine.hold(7, [None; 2], false);
    groups.pass(LONG_MS);
    assert_eq!(pending(&groups, CELLS), [1, 0, 0]);
    check_made_again(&mut groups);
}

/// The values of a dropped tree go with it.
#[test]
fn the_values_of_a_dropped_tree_go() {
    let mut groups = Groups::new(2);
    write(&mut groups, 1, b"k", 10);
    let drop_tree = NodeOperation { node: node(CELLS), write: WriteOperation::DropTree };
    commit(&mut groups, 1, &Operations::encode(&[drop_tree]));
    groups.pass(LONG_MS);
    assert_eq!((pending(&groups, CELLS), values(&mut groups)), ([0; 3], 0));
    check_made_again(&mut groups);
}

/// A decision may come when the mark has passed its time.
#[test]
fn a_late_decision_makes_orphans() {
    let mut groups = Groups::new(2);
    write(&mut groups, 1, b"k", 10);
    let late = txn(1, 2);
    let at = prepare(&mut groups, CELLS, late, &delete(b"k"));
    groups.groups[NODES].is_down = true;
    // Something else raises the mark.
    groups.pass(1_000);
    commit(&mut groups, 1, &delete(b"x"));
    groups.pass(LONG_MS);
    assert!(groups.groups[CELLS].engine.oldest_snapshot() > at);
    assert_eq!(pending(&groups, CELLS), [0; 3]);
    decide(&mut groups, CELLS, late, at);
    assert_eq!(pending(&groups, CELLS), [1, 0, 0]);
    check_made_again(&mut groups);
    groups.groups[NODES].is_down = false;
    groups.pass(LONG_MS);
    assert_eq!((pending(&groups, CELLS), values(&mut groups)), ([0; 3], 0));
}

/// After a restart a group removes nothing that the cell's group does not know to be unused.
#[test]
fn a_restarted_group_asks_the_owners() {
    let mut groups = Groups::new(2);
    write(&mut groups, 1, b"k", 10);
    write(&mut groups, 2, b"other", 20);
    groups.pass(LONG_MS);
    groups.groups[CELLS].is_down = true;
    groups.restart_from_checkpoint(NODES);
    groups.pass(LONG_MS);
    assert_eq!((pending(&groups, NODES), values(&mut groups)), ([0, 0, 2], 4));
    // The cell of the second value is deleted while the group of the nodes is down.
    commit(&mut groups, 1, &delete(b"other"));
    groups.groups[NODES].is_down = true;
    groups.pass(LONG_MS);
    assert_eq!(pending(&groups, CELLS), [1, 0, 0]);
    let orphaned = groups.groups[CELLS].log.len();
    groups.restart(CELLS, 0);
    assert_eq!(groups.groups[CELLS].log.len(), orphaned);
    groups.groups[NODES].is_down = false;
    groups.groups[CELLS].is_down = false;
    groups.pass(LONG_MS);
    assert_eq!((pending(&groups, NODES), values(&mut groups)), ([0; 3], 2));
    check_made_again(&mut groups);
}

/// The question about a value waits for transactions that may refer to it.
#[test]
fn a_question_waits_for_what_is_prepared() {
    let mut groups = Groups::new(2);
    let txn = txn(1, 1);
    let votes = [
        prepare(&mut groups, CELLS, txn, &refers(b"k", 10)),
        prepare(&mut groups, NODES, txn, &creates(b"k", 10)),
    ];
    let at = votes[0].max(votes[1]);
    decide(&mut groups, NODES, txn, at);
    let ask = |groups: &mut Groups, key: &[u8], first| {
        let request = Request::ValueUse { root: node(CELLS), key, value: value(first) };
        let answer = groups.ask(CELLS, 1_000_000, &request);
        let Reply::ValueUse(answer) = decoded(&answer) else { panic!("{:?}", decoded(&answer)) };
        answer
    };
    assert_eq!(ask(&mut groups, b"k", 10), ValueUse::Undecided);
    assert!(matches!(ask(&mut groups, b"another", 10), ValueUse::Unused { .. }));
    decide(&mut groups, CELLS, txn, at);
    assert_eq!(ask(&mut groups, b"k", 10), ValueUse::Used);
    assert!(matches!(ask(&mut groups, b"k", 20), ValueUse::Unused { .. }));
}

/// A value that is being created is not dropped before that.
#[test]
fn a_drop_waits_for_the_creation() {
    let mut groups = Groups::new(2);
    let txn = txn(1, 1);
    let at = prepare(&mut groups, NODES, txn, &creates(b"k", 10));
    let request = Request::DropValue { value: value(10), nodes: 2, since: Timestamp(1) };
    let answer = groups.ask(NODES, 1_000_000, &request);
    assert_eq!(decoded(&answer), Reply::ValueUse(ValueUse::Undecided));
    decide(&mut groups, NODES, txn, at);
    assert_eq!(values(&mut groups), 2);
    let answer = groups.ask(NODES, 1_000_000, &request);
    assert_eq!(decoded(&answer), Reply::Done);
    groups.pass(LONG_MS);
    assert_eq!(values(&mut groups), 0);
    // The other group repeats the message.
    let answer = groups.ask(NODES, 1_000_000, &request);
    assert_eq!((decoded(&answer), pending(&groups, NODES)), (Reply::Done, [0; 3]));
}
