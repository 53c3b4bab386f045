//! Votes, decisions and their durability.

use crate::support::{Groups, decoded, is_vote, put, txn};
use yesquel_engine::ReplyDurability;
use yesquel_model::{Refusal, Timestamp};
use yesquel_wire::{Decision, Operations, Reply, Request, Staged, TransactionOutcome, Vote};

const BOTH: [usize; 2] = [0, 1];

/// A vote is on disk when its reply leaves, whatever the server's durability is; a decision may wait
/// for the next sync.
#[test]
fn votes_and_decisions_wait_for_the_disk_under_every_durability() {
    let mut groups = Groups::new(2);
    let request = groups.prepare(0, txn(1, 1), b"a", false, &BOTH);
    let (bytes, durability) = groups.answer(0, request).unwrap();
    let Ok(Reply::Voted(at)) = Reply::decode(&bytes) else { panic!() };
    assert_eq!(durability, ReplyDurability::SyncedNow);
    let done = groups.decide(0, txn(1, 1), Decision::Commit(at), &BOTH);
    assert_eq!((decoded(&done), done.1), (Reply::Done, ReplyDurability::Synced));
    // Forced no-votes, and transactions that are given up.
    let birth = groups.birth();
    let no = groups.vote(0, txn(1, 2), birth, true);
    assert!(is_vote(&no, &Vote::No) && no.1 == ReplyDurability::SyncedNow);
    assert_eq!(groups.outcome(0, txn(1, 3), birth).1, ReplyDurability::SyncedNow);
    // The server's durability decides when a commit of one group is on disk.
    let request = groups.commit(0, txn(1, 4), b"b");
    assert_eq!(groups.answer(0, request).unwrap().1, ReplyDurability::Configured);
}

/// It would be half a transaction.
#[test]
fn a_decision_to_commit_what_was_not_prepared_is_refused() {
    let mut groups = Groups::new(2);
    let decision = Decision::Commit(groups.birth());
    let answer = groups.decide(0, txn(1, 1), decision, &BOTH);
    let refused = Reply::Refused { operation: None, refusal: Refusal::NotPrepared(txn(1, 1)) };
    assert_eq!(decoded(&answer), refused);
    // An abort is recorded, for the prepare may be on its way.
    assert_eq!(decoded(&groups.decide(0, txn(1, 1), Decision::Abort, &BOTH)), Reply::Done);
    let request = groups.prepare(0, txn(1, 1), b"a", false, &BOTH);
    assert!(is_vote(&groups.answer(0, request).unwrap(), &Vote::Decided(Decision::Abort)));
}

#[test]
fn a_contradicting_decision_is_answered_with_the_end_and_counted() {
    let mut groups = Groups::new(2);
    let at = groups.voted(0, txn(1, 1), b"a", &BOTH);
    for _ in 0..2 {
        assert_eq!(decoded(&groups.decide(0, txn(1, 1), Decision::Commit(at), &BOTH)), Reply::Done);
    }
    let answer = groups.decide(0, txn(1, 1), Decision::Abort, &BOTH);
    let end = TransactionOutcome::Decided(Decision::Commit(at));
    assert_eq!(decoded(&answer), Reply::Outcome(end));
    assert_eq!(groups.groups[0].engine.status(groups.now).transactions.contradictions, 1);
}

/// The promise that a transaction will not commit survives a restart.
#[test]
fn a_transaction_that_was_given_up_does_not_commit_after_a_restart() {
    for from_checkpoint in [false, true] {
        let mut groups = Groups::new(1);
        let birth = groups.birth();
        let answer = groups.outcome(0, txn(1, 1), birth);
        let aborted = Reply::Outcome(TransactionOutcome::Decided(Decision::Abort));
        assert_eq!(decoded(&answer), aborted);
        match from_checkpoint {
            true => groups.restart_from_checkpoint(0),
            false => groups.restart(0, 0),
        }
        let request = groups.commit_born(0, (txn(1, 1), birth), b"a");
        let answer = groups.answer(0, request).unwrap();
        let refused = Reply::Refused { operation: None, refusal: Refusal::GivenUp(txn(1, 1)) };
        assert_eq!(decoded(&answer), refused);
        assert_eq!(decoded(&groups.outcome(0, txn(1, 1), birth)), aborted);
    }
}

/// A birth is bounded by the group's clock, like every other stamp, and moves no clock.
#[test]
fn a_birth_too_far_ahead_is_refused() {
    let mut groups = Groups::new(1);
    let birth = Timestamp::from_ms(groups.now.wall_ms + 1_001);
    let request = groups.commit_born(0, (txn(1, 1), birth), b"a");
    let answer = groups.answer(0, request).unwrap();
    assert!(matches!(decoded(&answer), Reply::Refused { refusal: Refusal::TooFarAhead(_), .. }));
    // A little is waited for.
    let birth = Timestamp::from_ms(groups.now.wall_ms + 600);
    let request = groups.commit_born(0, (txn(1, 3), birth), b"b");
    assert!(groups.answer(0, request).is_none());
    groups.pass(100);
    assert!(groups.answer(0, request).is_some());
    let birth = Timestamp::from_ms(groups.now.wall_ms + 500);
    let request = groups.commit_born(0, (txn(1, 2), birth), b"a");
    let answer = groups.answer(0, request).unwrap();
    let Reply::Committed(at) = decoded(&answer) else { panic!("{:?}", decoded(&answer)) };
    assert!(at < birth);
}

/// A writer that never reads leaves nothing undecided: after two seconds, or at once if the
/// connection of its client has ended.
#[test]
fn recovery_starts_by_age_and_by_the_end_of_the_connection() {
    for is_connected in [true, false] {
        let mut groups = Groups::new(2);
        groups.voted(0, txn(1, 1), b"a", &BOTH);
        groups.voted(1, txn(1, 1), b"a", &BOTH);
        groups.pass(1_900);
        assert_eq!(groups.groups[0].engine.undecided().count(), 1);
        if !is_connected {
            groups.disconnect(1);
        }
        groups.pass(if is_connected { 100 } else { 50 });
        for group in &groups.groups {
            assert_eq!(group.engine.undecided().count(), 0);
        }
        assert_eq!(groups.ends(0), 1);
    }
}

/// A group that does not answer is asked again, less and less often.
#[test]
fn recovery_backs_off() {
    let mut groups = Groups::new(2);
    groups.voted(0, txn(1, 1), b"a", &BOTH);
    groups.groups[1].is_down = true;
    let before = groups.messages;
    groups.pass(60_000);
    assert_eq!(groups.messages, before);
    assert_eq!(groups.groups[0].engine.undecided().count(), 1);
    groups.groups[1].is_down = false;
    groups.pass(5_000);
    // It has not voted.
    assert_eq!(groups.groups[0].engine.undecided().count(), 0);
    assert!(is_vote(&groups.vote(0, txn(1, 1), groups.birth(), true), &Vote::Decided(Decision::Abort)));
}

/// Staged parts go by a record only: a request that names too many does not drop them.
#[test]
fn a_request_that_names_missing_parts_drops_none() {
    let mut groups = Groups::new(1);
    let operations = put(0, &[b"a"]);
    let operations = Operations::decode(&operations).unwrap();
    let stage = Request::Stage { name: txn(1, 9), part: 0, operations };
    assert_eq!(decoded(&groups.ask(0, 1, &stage)), Reply::Done);
    let mut commit = |number, parts| {
        let (txn, birth, staged) = (txn(1, number), groups.birth(), Some(Staged { number: 9, parts }));
        let (snapshot, seen, lease, operations) = (None, Timestamp::ZERO, 0, Operations::NONE);
        groups.ask(0, 1, &Request::Commit { txn, birth, snapshot, seen, lease, staged, operations })
    };
    let refused = Reply::Refused { operation: None, refusal: Refusal::GivenUp(txn(1, 9)) };
    assert_eq!(decoded(&commit(1, 2)), refused);
    assert!(matches!(decoded(&commit(2, 1)), Reply::Committed(_)));
}

/// The status is bounded, whatever is in doubt.
#[test]
fn the_status_lists_the_oldest_undecided_transactions() {
    const MANY: u64 = 300;
    let mut groups = Groups::new(2);
    groups.groups[1].is_down = true;
    for number in 1..=MANY {
        groups.prepare(0, txn(1, MANY - number), &number.to_be_bytes(), false, &BOTH);
        if number < 3 {
            groups.pass(50);
        }
    }
    let status = groups.groups[0].engine.status(groups.now);
    let listed = &status.commit_protocol.undecided;
    assert_eq!((status.transactions.undecided, listed.len()), (MANY, 256));
    let ages: Vec<u64> = listed.iter().take(3).map(|undecided| undecided.age_ms).collect();
    let numbers: Vec<u64> = listed.iter().take(3).map(|undecided| undecided.number).collect();
    assert_eq!((ages, numbers), (vec![100, 50, 0], vec![MANY - 1, MANY - 2, 0]));
    assert_eq!((&listed[0].participants, &listed[0].unknown), (&vec![0, 1], &vec![1]));
    assert!(!listed[0].recovers);
    groups.pass(3_000);
    let status = groups.groups[0].engine.status(groups.now);
    assert!(status.commit_protocol.undecided.iter().all(|undecided| undecided.recovers));
}
