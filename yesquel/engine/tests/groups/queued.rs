//! Prepares in group order: the queue of a group.

use crate::support::{Answer, Groups, decoded, is_vote, txn};
use yesquel_model::{Conflict, Refusal};
use yesquel_wire::{Decision, Reply, Vote};

const BOTH: [usize; 2] = [0, 1];

fn refused_for_prepared(answer: &Answer) -> bool {
    let prepared = |refusal| matches!(refusal, Refusal::Conflict(Conflict::Prepared { .. }));
    matches!(decoded(answer), Reply::Refused { refusal, .. } if prepared(refusal))
}

/// The queue is served in the order of arrival. Prepares in parallel are refused by what is queued
/// as by what is prepared, and commits of one group queue behind both, in their order of arrival too.
#[test]
fn the_queue_is_served_by_arrival() {
    let mut groups = Groups::new(2);
    let at = groups.voted(0, txn(1, 1), b"a", &BOTH);
    let second = groups.prepare(0, txn(2, 1), b"a", true, &BOTH);
    let single = groups.commit(0, txn(3, 1), b"a");
    let third = groups.prepare(0, txn(4, 1), b"a", true, &BOTH);
    let parallel = groups.prepare(0, txn(5, 1), b"a", false, &BOTH);
    assert!(refused_for_prepared(&groups.answer(0, parallel).unwrap()));
    // Other keys are not concerned.
    groups.voted(0, txn(6, 1), b"b", &BOTH);
    for waiting in [second, single, third] {
        assert!(groups.answer(0, waiting).is_none());
    }
    groups.decide(0, txn(1, 1), Decision::Commit(at), &BOTH);
    let answer = groups.answer(0, second).expect("it is the first");
    let Reply::Voted(at) = decoded(&answer) else { panic!() };
    assert!(groups.answer(0, single).is_none() && groups.answer(0, third).is_none());
    // A parallel one is refused by the queued one alone, too.
    groups.decide(0, txn(2, 1), Decision::Commit(at), &BOTH);
    assert!(matches!(decoded(&groups.answer(0, single).unwrap()), Reply::Committed(_)));
    assert!(matches!(decoded(&groups.answer(0, third).unwrap()), Reply::Voted(_)));
    assert_eq!(groups.groups[0].engine.status(groups.now).transactions.queued_total, 2);
}

/// Nothing overtakes a queued prepare, though nothing is prepared on its keys.
#[test]
fn nothing_overtakes_a_queued_prepare() {
    let mut groups = Groups::new(2);
    let at = groups.voted(0, txn(1, 1), b"a", &BOTH);
    let queued = groups.prepare_two(0, txn(2, 1), [b"a", b"b"], true);
    let parallel = groups.prepare(0, txn(3, 1), b"b", false, &BOTH);
    assert!(refused_for_prepared(&groups.answer(0, parallel).unwrap()));
    let single = groups.commit(0, txn(4, 1), b"b");
    let later = groups.prepare(0, txn(5, 1), b"b", true, &BOTH);
    assert!(groups.answer(0, single).is_none() && groups.answer(0, later).is_none());
    groups.decide(0, txn(1, 1), Decision::Commit(at), &BOTH);
    assert!(matches!(decoded(&groups.answer(0, queued).unwrap()), Reply::Voted(_)));
    assert!(groups.answer(0, single).is_none() && groups.answer(0, later).is_none());
    groups.decide(0, txn(2, 1), Decision::Abort, &BOTH);
    assert!(matches!(decoded(&groups.answer(0, single).unwrap()), Reply::Committed(_)));
    assert!(matches!(decoded(&groups.answer(0, later).unwrap()), Reply::Voted(_)));
}

/// Recovery of a transaction that is queued elsewhere leaves a live client two seconds; then it
/// votes no there, and the client learns it.
#[test]
fn a_queued_prepare_counts_as_waiting_for_two_seconds() {
    let mut groups = Groups::new(2);
    groups.groups[0].is_down = true;
    groups.voted(1, txn(1, 1), b"a", &BOTH);
    // It holds group 0, and is queued at group 1.
    let first = groups.prepare(0, txn(2, 1), b"a", true, &BOTH);
    assert!(matches!(decoded(&groups.answer(0, first).unwrap()), Reply::Voted(_)));
    let queued = groups.prepare(1, txn(2, 1), b"a", true, &BOTH);
    let reader = groups.lookup(0, 3, b"a");
    groups.pass(1_900);
    let birth = groups.birth();
    assert!(is_vote(&groups.vote(1, txn(2, 1), birth, true), &Vote::Waiting));
    assert!(groups.answer(1, queued).is_none() && groups.answer(0, reader).is_none());
    groups.pass(5_000);
    let answer = groups.answer(1, queued).unwrap();
    let refusal = Refusal::GivenUp(txn(2, 1));
    assert_eq!(decoded(&answer), Reply::Refused { operation: None, refusal });
    assert!(groups.answer(0, reader).is_some());
    assert!(is_vote(&groups.vote(1, txn(2, 1), birth, true), &Vote::Decided(Decision::Abort)));
}

/// The machines of two clients are cut off, so that no connection ends. A reader waits for a
/// transaction of one, which is queued elsewhere behind one of the other: recovery ends both soon.
#[test]
fn a_queued_prepare_of_a_dead_client_is_recovered_soon_after_its_turn() {
    let mut groups = Groups::new(2);
    BOTH.iter().for_each(|group| _ = groups.voted(*group, txn(4, 1), b"a", &BOTH));
    let first = groups.prepare(0, txn(1, 2), b"b", true, &BOTH);
    assert!(matches!(decoded(&groups.answer(0, first).unwrap()), Reply::Voted(_)));
    let queued = groups.prepare(1, txn(1, 2), b"a", true, &BOTH);
    let reader = groups.lookup(0, 3, b"b");
    groups.pass(650);
    assert!(matches!(decoded(&groups.answer(1, queued).unwrap()), Reply::Voted(_)));
    assert!(groups.answer(0, reader).is_some());
}

/// Several transactions of a client whose machine is cut off wait for each other. One of another
/// client waits for the last of them, and a reader for that: all of them end together.
#[test]
fn transactions_of_a_dead_client_that_wait_for_each_other_end_together() {
    let mut groups = Groups::new(2);
    BOTH.iter().for_each(|group| _ = groups.voted(*group, txn(1, 1), b"a", &BOTH));
    let chain: [[&[u8]; 2]; 4] = [[b"a", b"b"], [b"b", b"c"], [b"c", b"d"], [b"d", b"e"]];
    for (number, keys) in (2..).zip(chain) {
        let queued = groups.prepare_two(1, txn(1, number), keys, true);
        assert!(groups.answer(1, queued).is_none());
    }
    let first = groups.prepare(0, txn(2, 1), b"x", true, &BOTH);
    assert!(matches!(decoded(&groups.answer(0, first).unwrap()), Reply::Voted(_)));
    let queued = groups.prepare(1, txn(2, 1), b"e", true, &BOTH);
    let reader = groups.lookup(0, 3, b"x");
    groups.pass(650);
    assert!(matches!(decoded(&groups.answer(1, queued).unwrap()), Reply::Voted(_)));
    assert!(groups.answer(0, reader).is_some());
}

/// The end of its connection removes a prepare from the queue, and lets those behind it go on.
#[test]
fn a_queued_prepare_leaves_with_its_client() {
    let mut groups = Groups::new(2);
    let at = groups.voted(0, txn(1, 1), b"a", &BOTH);
    let gone = groups.prepare_two(0, txn(2, 1), [b"a", b"b"], true);
    let single = groups.commit(0, txn(3, 1), b"b");
    let later = groups.prepare(0, txn(4, 1), b"b", true, &BOTH);
    groups.disconnect(2);
    groups.pass(50);
    assert!(groups.answer(0, gone).is_none());
    assert!(matches!(decoded(&groups.answer(0, single).unwrap()), Reply::Committed(_)));
    assert!(matches!(decoded(&groups.answer(0, later).unwrap()), Reply::Voted(_)));
    groups.decide(0, txn(1, 1), Decision::Commit(at), &BOTH);
    // It has not voted, so that recovery elsewhere aborts it.
    let birth = groups.birth();
    assert!(is_vote(&groups.vote(0, txn(2, 1), birth, true), &Vote::No));
}

/// Recovery of a transaction in group order does not ask the groups that its client has not asked
/// yet: they would refuse.
#[test]
fn recovery_in_group_order_stops_at_the_first_that_waits() {
    let all = [0, 1, 2];
    let mut groups = Groups::new(4);
    // The first transaction stays in doubt: the other participant is down.
    groups.groups[3].is_down = true;
    let at = groups.voted(1, txn(1, 1), b"a", &[1, 3]);
    let first = groups.prepare(0, txn(2, 1), b"a", true, &all);
    assert!(groups.answer(0, first).is_some());
    let second = groups.prepare(1, txn(2, 1), b"a", true, &all);
    // A reader makes the first group ask.
    let reader = groups.lookup(0, 3, b"a");
    groups.pass(1_500);
    assert!(groups.answer(0, reader).is_none());
    groups.decide(1, txn(1, 1), Decision::Commit(at), &[1, 3]);
    assert!(matches!(decoded(&groups.answer(1, second).unwrap()), Reply::Voted(_)));
    // The third group was not asked, and votes.
    let third = groups.prepare(2, txn(2, 1), b"a", true, &all);
    assert!(matches!(decoded(&groups.answer(2, third).unwrap()), Reply::Voted(_)));
}
