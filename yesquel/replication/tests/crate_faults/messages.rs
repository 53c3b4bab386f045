//! Messages that no correct peer sends: those on which the crate ends the process, each with the
//! check that refuses it, and messages at random.

use crate::support::*;
use raft::{
    StateRole,
    eraftpb::{Message, MessageType, Snapshot},
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use yesquel_replication::{
    ReceiveError, Replica,
    check::RefusedMessage,
    message::{NUMBER_MAX, PeerMessage, decode, encode},
};
use yesquel_seeds::{Random, check_seeds};

/// A name, whether the receiver leads, the message, and the check that refuses it. `None`: the bytes
/// cannot say it.
type DeadlyMessage = (&'static str, bool, Message, Option<RefusedMessage>);

fn deadly_appends() -> Vec<DeadlyMessage> {
    let append = |index, log_term, commit, entries: &[(u64, u64)]| {
        let mut append = message(MessageType::MsgAppend, 5);
        (append.index, append.log_term, append.commit) = (index, log_term, commit);
        append
            .set_entries(entries.iter().map(|(index, term)| entry(*index, *term)).collect::<Vec<_>>().into());
        append
    };
    let refused = Some(RefusedMessage::Entries);
    vec![
        ("entries with a gap", false, append(4, 4, 3, &[(7, 5)]), refused),
        ("entries from before the index", false, append(4, 4, 3, &[(3, 5)]), refused),
        ("entries at the committed index", false, append(3, 4, 3, &[(2, 5)]), refused),
        ("a commit beyond the log, matched by the term 0", false, append(9, 0, 9, &[]), refused),
    ]
}

fn deadly_checkpoints() -> Vec<DeadlyMessage> {
    let checkpoint = |index, term, voters: &[u64], learners: &[u64]| {
        let mut checkpoint = message(MessageType::MsgSnapshot, 5);
        let mut snapshot = Snapshot::default();
        (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (index, term);
        snapshot.mut_metadata().mut_conf_state().set_voters(voters.to_vec());
        snapshot.mut_metadata().mut_conf_state().set_learners(learners.to_vec());
        checkpoint.set_snapshot(snapshot);
        checkpoint
    };
    let refused = Some(RefusedMessage::Checkpoint);
    let mut staged = checkpoint(9, 5, &[1, 2], &[]);
    staged.mut_snapshot().mut_metadata().mut_conf_state().set_learners_next(vec![2]);
    vec![
        ("a checkpoint with the term 0 beyond the log", false, checkpoint(9, 0, &[1, 2, 3], &[]), refused),
        ("a checkpoint without voters", false, checkpoint(9, 5, &[], &[1]), refused),
        ("a checkpoint with a voter that is a learner", false, checkpoint(9, 5, &[1, 2], &[2]), refused),
        ("a checkpoint with a staged learner that is a voter", false, staged, refused),
    ]
}

fn deadly_others() -> Vec<DeadlyMessage> {
    let mut beat = message(MessageType::MsgHeartbeat, 5);
    beat.commit = 9;
    let mut read = message(MessageType::MsgReadIndexResp, 0);
    read.index = 9;
    read.set_entries(vec![entry(1, 1)].into());
    let mut vote = message(MessageType::MsgRequestPreVote, 0);
    (vote.from, vote.index, vote.log_term) = (2, 100, 100);
    vec![
        ("a heartbeat that commits beyond the log", false, beat, Some(RefusedMessage::EntriesLost)),
        (
            "a question for the read index without a context",
            true,
            message(MessageType::MsgReadIndex, 0),
            Some(RefusedMessage::Kind),
        ),
        ("an answer to a read beyond the log in the term 0", false, read, Some(RefusedMessage::Kind)),
        ("a proposal without entries", true, message(MessageType::MsgPropose, 0), Some(RefusedMessage::Kind)),
    ]
}

/// Each of these ends the process that uses the crate 0.7.0 alone, and is refused here.
#[test]
fn messages_that_end_the_crate_are_refused() {
    let all = [deadly_appends(), deadly_checkpoints(), deadly_others()].concat();
    for (name, leads, mut message, refusal) in all {
        let mut node = bare(leads);
        if leads && message.term != 0 {
            message.term = node.raft.term;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _ = node.step(message.clone());
            settle_bare(&mut node);
        }));
        assert!(outcome.is_err(), "the crate survives {name}");

        let mut replica = if leads { leader() } else { follower() };
        let before = replica.status();
        let encoded =
            encode(&PeerMessage { incarnation: 1, is_lost: false, readmitted: 0, message: message.clone() });
        let Some(encoded) = encoded else {
            assert_eq!(refusal, Some(RefusedMessage::Kind), "{name}");
            continue;
        };
        match replica.receive(&encoded) {
            Err(ReceiveError::Refused(why)) => assert_eq!(Some(why), refusal, "{name}"),
            Err(ReceiveError::Malformed(_)) => {}
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(replica.status(), before, "{name}");
    }
}

/// A term near the largest number overflows in the crate at its next election; none is decoded.
#[test]
fn numbers_over_the_limit_are_malformed() {
    for over in [NUMBER_MAX + 1, u64::MAX] {
        for kind in [MessageType::MsgAppendResponse, MessageType::MsgHeartbeat] {
            let mut message = message(kind, over);
            assert!(decode(&bytes(&message)).is_err());
            (message.term, message.commit) = (5, over);
            assert!(decode(&bytes(&message)).is_err());
        }
    }
}

fn random_message(random: &mut Random, replica: &Replica) -> Message {
    let kinds = [
        MessageType::MsgAppend,
        MessageType::MsgAppendResponse,
        MessageType::MsgRequestVote,
        MessageType::MsgRequestVoteResponse,
        MessageType::MsgRequestPreVote,
        MessageType::MsgRequestPreVoteResponse,
        MessageType::MsgSnapshot,
        MessageType::MsgHeartbeat,
        MessageType::MsgHeartbeatResponse,
        MessageType::MsgTimeoutNow,
    ];
    let status = replica.status();
    let near = |random: &mut Random, value: u64| match random.next(12) {
        0 => 0,
        1 => NUMBER_MAX - random.next(2),
        _ => (value + random.next(5)).saturating_sub(2),
    };
    let mut message = message(kinds[random.next(10) as usize], 0);
    message.from = random.next(5);
    // Terms that grow at random reach the limit at once.
    message.term = (status.term + random.next(4)).saturating_sub(2);
    let base = if random.next(2) == 0 { status.last } else { status.committed };
    (message.index, message.commit) = (near(random, base), near(random, base));
    (message.log_term, message.commit_term) = (near(random, status.term), near(random, status.term));
    (message.reject, message.reject_hint) = (random.next(2) == 0, near(random, base));
    if random.next(3) == 0 {
        message.context = vec![random.next(3) as u8; 8].into();
    }
    let mut index = message.index + random.next(20) / 19;
    let entries = (0..random.next(4)).map(|_| {
        index += 1 + random.next(20) / 19;
        entry(index, near(random, message.log_term.min(status.term)))
    });
    message.set_entries(entries.collect::<Vec<_>>().into());
    let mut head = Snapshot::default();
    (head.mut_metadata().index, head.mut_metadata().term) = (near(random, base), near(random, status.term));
    let mut replicas = |most: u64| (1..=4).filter(|_| random.next(most) == 0).collect::<Vec<u64>>();
    let (voters, learners, outgoing) = (replicas(2), replicas(5), replicas(6));
    head.mut_metadata().mut_conf_state().set_voters(voters);
    head.mut_metadata().mut_conf_state().set_learners(learners);
    head.mut_metadata().mut_conf_state().set_voters_outgoing(outgoing);
    message.set_snapshot(head);
    message
}

fn fuzz(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut replica = if random.next(2) == 0 { leader() } else { follower() };
    let mut taken = 0;
    for _ in 0..200 {
        match random.next(8) {
            0 => (0..random.next(25)).for_each(|_| replica.tick()),
            1 => drop(replica.propose(vec![7; random.next(50) as usize])),
            2 => drop(replica.read(random.next(100))),
            3 => drop(replica.checkpoint(Vec::new(), random.next(3))),
            _ => {
                let mut bytes = bytes(&random_message(&mut random, &replica));
                if random.next(20) == 0 {
                    let at = random.next(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << random.next(8);
                }
                taken += u64::from(replica.receive(&bytes).is_ok());
            }
        }
        settle(&mut replica);
    }
    taken
}

/// No message that passes the checks ends the process.
#[test]
fn random_messages_do_not_end_a_replica() {
    let mut taken = 0;
    check_seeds(300, |seed| taken += fuzz(seed));
    println!("{taken} messages taken");
    assert!(taken > 1_000 || std::env::var_os("SEEDS").is_some());
}

#[test]
fn the_crate_alone_leads() {
    assert_eq!(bare(true).raft.state, StateRole::Leader);
}
