//! What may be forgotten, and what is answered afterwards.

use crate::support::{Groups, decoded, is_vote, txn};
use yesquel_engine::LogRecord;
use yesquel_model::{ServerId, Timestamp};
use yesquel_wire::{Decision, HorizonReport, Reply, SettledReport, TransactionOutcome, Vote};

const BOTH: [usize; 2] = [0, 1];
/// Longer than outcomes are kept.
const LONG_MS: u64 = 11 * 60_000;

fn settled(number: u64, birth: Timestamp, exceptions: &[u64]) -> SettledReport {
    SettledReport { number, birth, exceptions: exceptions.to_vec() }
}

/// The fault: after eleven minutes, a commit that had succeeded was reported as aborted.
#[test]
fn a_forgotten_outcome_is_never_an_abort() {
    let mut groups = Groups::new(1);
    let birth = groups.birth();
    let request = groups.commit_born(0, (txn(1, 1), birth), b"a");
    assert!(matches!(decoded(&groups.answer(0, request).unwrap()), Reply::Committed(_)));
    groups.pass(LONG_MS);
    let forgotten = Reply::Outcome(TransactionOutcome::Forgotten);
    assert_eq!(decoded(&groups.outcome(0, txn(1, 1), birth)), forgotten);
    // Nor is it committed twice.
    let request = groups.commit_born(0, (txn(1, 1), birth), b"a");
    assert!(matches!(decoded(&groups.answer(0, request).unwrap()), Reply::Forgotten(_)));
}

/// The end of a transaction of several groups is not forgotten by time alone: another participant
/// may be in doubt.
#[test]
fn an_end_is_kept_until_the_other_participants_have_reported() {
    let mut groups = Groups::new(2);
    let (at, birth) = (groups.voted(0, txn(1, 1), b"a", &BOTH), groups.birth());
    groups.voted(1, txn(1, 1), b"a", &BOTH);
    groups.decide(0, txn(1, 1), Decision::Commit(at), &BOTH);
    groups.groups[0].is_down = true;
    groups.pass(LONG_MS);
    // The second group is still in doubt, and says so.
    groups.exchange_reports();
    groups.pass(2_000);
    assert_eq!(groups.ends(0), 1);
    groups.groups[0].is_down = false;
    groups.pass(10_000);
    assert_eq!(groups.groups[1].engine.undecided().count(), 0);
    groups.exchange_reports();
    groups.pass(2_000);
    assert_eq!([groups.ends(0), groups.ends(1)], [0, 0]);
    // A late prepare is not voted for again; a client learns that it cannot know.
    let request = groups.prepare_born(0, (txn(1, 1), birth), b"a", false, &BOTH);
    assert!(matches!(decoded(&groups.answer(0, request).unwrap()), Reply::Forgotten(_)));
    assert!(is_vote(&groups.vote(0, txn(1, 1), birth, false), &Vote::Forgotten));
    assert!(is_vote(&groups.vote(0, txn(1, 1), birth, true), &Vote::No));
    let answer = groups.decide_born(0, (txn(1, 1), birth), Decision::Commit(at), &BOTH);
    assert_eq!(decoded(&answer), Reply::Done);
}

/// A group that has left for good reports no more: nothing waits for it.
#[test]
fn an_end_does_not_wait_for_a_retired_group() {
    let mut groups = Groups::new(2);
    let at = groups.voted(0, txn(1, 1), b"a", &BOTH);
    groups.voted(1, txn(1, 1), b"a", &BOTH);
    groups.decide(0, txn(1, 1), Decision::Commit(at), &BOTH);
    groups.decide(1, txn(1, 1), Decision::Commit(at), &BOTH);
    groups.groups[1].is_down = true;
    groups.pass(LONG_MS);
    assert_eq!(groups.ends(0), 1);
    groups.groups[0].engine.retire_group(ServerId(1));
    groups.pass(2_000);
    assert_eq!(groups.ends(0), 0);
}

/// Forced no-votes and ends that recovery has found go as well.
#[test]
fn ends_of_refusals_are_forgotten() {
    let mut groups = Groups::new(2);
    groups.voted(0, txn(1, 1), b"a", &BOTH);
    groups.pass(5_000);
    assert_eq!([groups.ends(0), groups.ends(1)], [1, 1]);
    let is_refusal = |record: &Vec<u8>| matches!(LogRecord::decode(record), Ok(LogRecord::Refuse { .. }));
    assert!(groups.groups[1].log.iter().any(is_refusal));
    groups.pass(LONG_MS);
    groups.exchange_reports();
    groups.pass(2_000);
    assert_eq!([groups.ends(0), groups.ends(1)], [0, 0]);
}

/// What a client has settled is forgotten with its next record, except for what it names, and stays
/// covered after a restart.
#[test]
fn settled_transactions_are_forgotten_and_stay_covered() {
    let mut groups = Groups::new(2);
    let birth = groups.birth();
    for number in [1, 2] {
        let key = [number as u8];
        let at = groups.voted(0, txn(1, number), &key, &BOTH);
        groups.decide(0, txn(1, number), Decision::Commit(at), &BOTH);
    }
    groups.groups[0].engine.on_settled(1, 1, &settled(3, birth, &[2]));
    assert_eq!(groups.ends(0), 2);
    let request = groups.commit(0, txn(1, 4), b"d");
    assert!(groups.answer(0, request).is_some());
    assert_eq!(groups.ends(0), 1);
    for restart in [
        |_: &mut Groups| (),
        |groups: &mut Groups| groups.restart(0, 0),
        |groups: &mut Groups| {
            groups.restart_from_checkpoint(0);
        },
    ] {
        restart(&mut groups);
        for number in [1, 3] {
            let request = groups.prepare_born(0, (txn(1, number), birth), b"z", false, &BOTH);
            let answer = groups.answer(0, request).unwrap();
            assert!(matches!(decoded(&answer), Reply::Forgotten(_)), "{number}: {:?}", decoded(&answer));
        }
        let request = groups.prepare_born(0, (txn(1, 2), birth), b"z", false, &BOTH);
        let answer = groups.answer(0, request).unwrap();
        assert!(matches!(decoded(&answer), Reply::Vote(Vote::Decided(Decision::Commit(_)))));
    }
    // The entry goes when the horizon has passed its largest birth, and covers them from then on.
    groups.pass(LONG_MS);
    assert_eq!(groups.groups[0].engine.status(groups.now).transactions.clients, 1, "number 2 is kept");
    let request = groups.prepare_born(0, (txn(1, 1), birth), b"z", false, &BOTH);
    assert!(matches!(decoded(&groups.answer(0, request).unwrap()), Reply::Forgotten(_)));
}

/// Reports that overtake each other merge.
#[test]
fn an_older_report_brings_nothing_back() {
    let mut groups = Groups::new(1);
    let birth = groups.birth();
    for number in 1..=3 {
        let request = groups.commit(0, txn(1, number), &[number as u8]);
        assert!(groups.answer(0, request).is_some());
    }
    for report in [settled(3, birth, &[2]), settled(2, birth, &[1])] {
        groups.groups[0].engine.on_settled(1, 1, &report);
        let request = groups.commit(0, txn(2, report.number), b"x");
        assert!(groups.answer(0, request).is_some());
    }
    let request = groups.commit(0, txn(1, 4), b"y");
    assert!(groups.answer(0, request).is_some());
    let mut outcome = |number| match decoded(&groups.outcome(0, txn(1, number), birth)) {
        Reply::Outcome(TransactionOutcome::Forgotten) => "forgotten",
        Reply::Outcome(TransactionOutcome::Decided(Decision::Commit(_))) => "committed",
        reply => panic!("{reply:?}"),
    };
    assert_eq!([1, 2, 3, 4].map(&mut outcome), ["forgotten", "committed", "forgotten", "committed"]);
}

/// A clock that jumps ahead does not cover transactions that have just begun, and the horizon never
/// falls.
#[test]
fn the_horizon_rises_at_most_twice_as_fast_as_time() {
    let mut groups = Groups::new(1);
    // Another group waits for the horizon.
    groups.groups[0].engine.on_report(ServerId(1), HorizonReport::default());
    groups.pass(5_000);
    let horizon = |groups: &mut Groups| groups.groups[0].engine.status(groups.now).transactions.horizon;
    let before = horizon(&mut groups);
    assert!(before > 0);
    let birth = groups.birth();
    let request = groups.commit_born(0, (txn(1, 1), birth), b"a");
    assert!(groups.answer(0, request).is_some());
    groups.now.wall_ms += 3_600_000;
    groups.pass(60_000);
    let after = horizon(&mut groups);
    assert!(after > before && (after - before) >> 16 <= 2 * 70_000, "{} ms", (after - before) >> 16);
    assert!(matches!(
        decoded(&groups.outcome(0, txn(1, 1), birth)),
        Reply::Outcome(TransactionOutcome::Decided(Decision::Commit(_)))
    ));
    groups.now.wall_ms -= 3_600_000;
    groups.pass(60_000);
    assert!(horizon(&mut groups) >= after);
    groups.restart(0, 0);
    assert!(horizon(&mut groups) >= after);
}

/// Ends of a client that is gone are settled after it has been gone for ten seconds, except for the
/// newest; the other participants are asked.
#[test]
fn ends_of_a_client_that_is_gone_are_settled() {
    let mut groups = Groups::new(2);
    groups.groups[0].engine.on_settled(1, 1, &settled(0, Timestamp::ZERO, &[]));
    for number in 1..=40 {
        let at = groups.voted(0, txn(1, number), &[number as u8], &BOTH);
        // The second group has decided only some of them, and was never asked for others.
        if number % 3 > 0 {
            groups.voted(1, txn(1, number), &[number as u8], &BOTH);
            groups.decide(0, txn(1, number), Decision::Commit(at), &BOTH);
        } else {
            groups.decide(0, txn(1, number), Decision::Abort, &BOTH);
        }
        if number % 3 == 1 {
            groups.decide(1, txn(1, number), Decision::Commit(at), &BOTH);
        }
    }
    assert_eq!(groups.ends(0), 40);
    groups.disconnect(1);
    groups.pass(9_000);
    assert_eq!(groups.ends(0), 40);
    groups.pass(15_000);
    assert_eq!(groups.ends(0), 16, "the newest are kept for a client that comes back");
    assert_eq!(groups.groups[1].engine.undecided().count(), 0);
    // After ten minutes they are covered, and go when the other group says so.
    groups.pass(LONG_MS);
    groups.exchange_reports();
    groups.pass(2_000);
    assert_eq!(groups.ends(0), 0);
}

/// Commits at both groups by clients that are gone then, sixteen each.
fn commits_of_clients_that_are_gone(groups: &mut Groups, clients: u64) {
    for client in 1..=clients {
        for group in &mut groups.groups {
            group.engine.on_settled(client, client, &settled(0, Timestamp::ZERO, &[]));
        }
        for number in 1..=16 {
            let key = [number as u8];
            let votes = BOTH.map(|group| groups.voted(group, txn(client, number), &key, &BOTH));
            let at = votes[0].max(votes[1]);
            for group in BOTH {
                groups.decide(group, txn(client, number), Decision::Commit(at), &BOTH);
            }
        }
        groups.pass(50);
        groups.disconnect(client);
    }
}

/// Ends that are kept for clients that are gone take a quarter of the memory budget at most. Those of
/// the clients that have been gone longest go first, and none before the other group has confirmed
/// that it has ended there.
#[test]
fn ends_kept_for_clients_that_are_gone_have_a_limit() {
    const BUDGET: usize = 1 << 20;
    const CLIENTS: u64 = 200;
    // An end takes some 96 bytes.
    const ENDS_MAX: u64 = (BUDGET / 4 / 96) as u64;
    for restarts in [false, true] {
        let mut groups = Groups::with_memory(2, BUDGET);
        let birth = groups.birth();
        commits_of_clients_that_are_gone(&mut groups, CLIENTS);
        assert_eq!(groups.ends(0), 16 * CLIENTS);
        assert!(groups.ends(0) > ENDS_MAX);
        groups.groups[1].is_down = true;
        if restarts {
            groups.restart(0, 0);
        }
        groups.pass(15_000);
        assert_eq!(groups.ends(0), 16 * CLIENTS);
        groups.groups[1].is_down = false;
        groups.pass(15_000);
        let ends = groups.ends(0);
        assert!(ends <= ENDS_MAX && ends > ENDS_MAX - 16, "{ends} of {ENDS_MAX}");
        let is_known = |groups: &mut Groups, client| {
            let vote = groups.vote(0, txn(client, 16), birth, false);
            matches!(decoded(&vote), Reply::Vote(Vote::Decided(Decision::Commit(_))))
        };
        if !restarts {
            assert!(is_known(&mut groups, CLIENTS) && !is_known(&mut groups, 1));
        }
        // They take no vote any more, and are covered after a restart too.
        groups.restart_from_checkpoint(0);
        let forgotten = (1..=CLIENTS).find(|client| !is_known(&mut groups, *client)).unwrap();
        assert!(is_vote(&groups.vote(0, txn(forgotten, 16), birth, false), &Vote::Forgotten));
        assert_eq!(groups.ends(0), ends);
    }
}

/// A client without heartbeats fills no memory: its ends go with a record of their own.
#[test]
fn ends_count_as_memory_and_large_reports_are_logged_at_once() {
    let mut groups = Groups::new(1);
    let birth = groups.birth();
    let before = groups.groups[0].engine.memory();
    for number in 1..=1_500 {
        let request = groups.commit(0, txn(1, number), b"a");
        assert!(groups.answer(0, request).is_some());
    }
    let full = groups.groups[0].engine.memory();
    assert!(full > before + 1_500 * 24, "{full} {before}");
    groups.groups[0].engine.on_settled(1, 1, &settled(1_500, birth, &[]));
    groups.pass(500);
    assert!(groups.groups[0].engine.memory() + 1_400 * 24 < full);
}
