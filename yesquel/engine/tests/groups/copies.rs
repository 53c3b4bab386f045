//! Requests that arrive twice on their connection.

use crate::support::{Answer, Groups, decoded, put, txn};
use yesquel_engine::{Caller, Effects};
use yesquel_model::{Conflict, Refusal, Timestamp, TxnId};
use yesquel_wire::{ByteWriter, Decision, Operations, Reply, Request};

const BOTH: [usize; 2] = [0, 1];

fn is_refused_because_of(answer: &Answer, other: TxnId) -> bool {
    let conflict = |refusal| match refusal {
        Refusal::Conflict(Conflict::Prepared { by, .. }) => by == other,
        _ => false,
    };
    matches!(decoded(answer), Reply::Refused { refusal, .. } if conflict(refusal))
}

/// A client that was refused goes on under another number. A vote for the old one would hold its
/// keys, and recovery could commit what the client was told is refused.
#[test]
fn a_copy_of_a_refused_prepare_gets_the_same_refusal() {
    let mut groups = Groups::new(2);
    groups.voted(0, txn(1, 1), b"a", &BOTH);
    let birth = groups.birth();
    let refused = groups.prepare_born(0, (txn(2, 1), birth), b"a", false, &BOTH);
    assert!(is_refused_because_of(&groups.answer(0, refused).unwrap(), txn(1, 1)));
    // Nothing is in its way any more.
    groups.decide(0, txn(1, 1), Decision::Abort, &BOTH);
    let copy = groups.prepare_born(0, (txn(2, 1), birth), b"a", false, &BOTH);
    assert!(is_refused_because_of(&groups.answer(0, copy).unwrap(), txn(1, 1)));
    assert_eq!(groups.groups[0].engine.undecided().count(), 0);
    // The next number is examined.
    groups.voted(0, txn(2, 2), b"a", &BOTH);
}

/// Only the newest refusals of a connection are kept; of older numbers it is known that they take no
/// vote. What has an end keeps it.
#[test]
fn copies_of_old_numbers_take_no_vote() {
    let mut groups = Groups::new(2);
    groups.voted(0, txn(1, 1), b"a", &BOTH);
    let committed = groups.commit(0, txn(2, 1), b"b");
    let committed = groups.answer(0, committed).unwrap();
    for number in 2..200 {
        let refused = groups.prepare(0, txn(2, number), b"a", false, &BOTH);
        assert!(is_refused_because_of(&groups.answer(0, refused).unwrap(), txn(1, 1)));
    }
    groups.decide(0, txn(1, 1), Decision::Abort, &BOTH);
    for number in 2..200 {
        let copy = groups.prepare(0, txn(2, number), b"a", false, &BOTH);
        let copy = groups.answer(0, copy).unwrap();
        let is_negative =
            is_refused_because_of(&copy, txn(1, 1)) || matches!(decoded(&copy), Reply::Forgotten(_));
        assert!(is_negative, "{:?}", decoded(&copy));
    }
    let copy = groups.commit(0, txn(2, 1), b"b");
    assert_eq!(groups.answer(0, copy).unwrap().0, committed.0);
    groups.voted(0, txn(2, 200), b"a", &BOTH);
}

/// A server whose clock is wrong refuses what it does not know, and a copy of that later; but a copy
/// of a commit is answered like the commit, whose answer may still wait for the disk.
#[test]
fn refusals_without_examination_are_repeated_but_not_made_of_copies() {
    let mut groups = Groups::new(1);
    let birth = groups.birth();
    let committed = groups.commit_born(0, (txn(1, 1), birth), b"a");
    let committed = groups.answer(0, committed).unwrap();
    let refusal = Refusal::ClockDiffers { ahead_ms: 7 };
    let mut refuse = |txn| {
        let operations = put(0, &[b"a"]);
        let operations = Operations::decode(&operations).unwrap();
        let (snapshot, seen, lease, staged) = (None, Timestamp::ZERO, 0, None);
        let request = Request::Commit { txn, birth, snapshot, seen, lease, staged, operations };
        let (mut bytes, mut effects) = (Vec::new(), Effects::default());
        request.write(&mut ByteWriter(&mut bytes));
        let (engine, caller) = (&mut groups.groups[0].engine, Caller { connection: 1, request: 1 });
        engine.refuse_request(groups.now, caller, &bytes, refusal, &mut effects).unwrap();
        assert_eq!(effects.replies.len(), 1);
        effects.bytes
    };
    assert_eq!(refuse(txn(1, 1)), committed.0);
    let mut refused = Vec::new();
    Reply::Refused { operation: None, refusal }.write(&mut refused);
    assert_eq!(refuse(txn(1, 2)), refused);
    let copy = groups.commit_born(0, (txn(1, 2), birth), b"a");
    assert_eq!(groups.answer(0, copy).unwrap().0, refused);
}
