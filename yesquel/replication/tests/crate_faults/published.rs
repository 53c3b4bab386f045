//! Published faults of the crate and of the library that it was ported from: whether 0.7.0 has each,
//! and what happens here.

use crate::support::*;
use raft::{
    ProgressState, ReadState,
    eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Message, MessageType},
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use yesquel_replication::{
    CheckpointHead, MembershipChange, OutgoingMessage, ProposeError, RecoveredLog, Replica, ReplicaOptions,
    ReplicaRole, message::decode,
};

/// Does all work at once, and returns the messages.
fn sent(replica: &mut Replica) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some(work) = replica.take_work().unwrap() {
        replica.written(work.number);
        let outgoing = work.messages.into_iter().chain(work.messages_after);
        messages.extend(outgoing.map(|OutgoingMessage { bytes, .. }| decode(&bytes).unwrap().message));
    }
    messages
}

fn kinds_to(messages: &[Message], to: u64) -> Vec<MessageType> {
    messages.iter().filter(|message| message.to == to).map(|message| message.get_msg_type()).collect()
}

fn rejection(from: u64, term: u64, index: u64, hint: u64, hint_term: u64) -> Message {
    let mut rejection = message(MessageType::MsgAppendResponse, term);
    (rejection.from, rejection.reject) = (from, true);
    (rejection.index, rejection.reject_hint, rejection.log_term) = (index, hint, hint_term);
    rejection
}

/// tikv/raft-rs#555, fixed after 0.7.0: a late rejection makes a leader probe below what it knows to
/// match.
#[test]
fn issue_555_the_crate_probes_below_what_matches() {
    let mut node = bare(true);
    node.report_unreachable(2);
    node.step(rejection(2, 6, 5, 1, 4)).unwrap();
    let progress = node.raft.prs().get(2).unwrap();
    assert_eq!((progress.matched, progress.next_idx), (5, 2));
}

/// The fault costs an unnecessary checkpoint. The crate alone then sends nothing more to that replica,
/// because it ignores the repeated answer; here the answer ends the wait.
#[test]
fn issue_555_here_replication_goes_on() {
    let mut replica = leader();
    let term = replica.status().term;
    let matched = replica.status().last;
    replica.checkpoint(Vec::new(), 0).unwrap();
    // An entry is lost on its way, and the next one rejected; then comes the rejection of a probe.
    replica.propose(vec![1]).unwrap();
    sent(&mut replica);
    replica.receive(&bytes(&rejection(2, term, matched + 1, matched, term))).unwrap();
    sent(&mut replica);
    replica.receive(&bytes(&rejection(2, term, matched, 1, 1))).unwrap();
    let messages = sent(&mut replica);
    assert_eq!(kinds_to(&messages, 2), [MessageType::MsgSnapshot]);
    let mut answer = message(MessageType::MsgAppendResponse, term);
    answer.index = matched;
    replica.receive(&bytes(&answer)).unwrap();
    replica.receive(&bytes(&message(MessageType::MsgHeartbeatResponse, term))).unwrap();
    let messages = sent(&mut replica);
    assert_eq!(kinds_to(&messages, 2), [MessageType::MsgAppend]);
    assert_eq!(messages[0].index, matched);
}

/// tikv/raft-rs#489: the crate ends the process when a replica wins whose entries are not written.
#[test]
fn issue_489_a_winner_with_unwritten_entries_ends_the_crate() {
    let mut node = bare(false);
    let mut append = message(MessageType::MsgAppend, 5);
    (append.index, append.log_term) = (4, 4);
    append.set_entries(vec![entry(5, 5)].into());
    node.step(append).unwrap();
    let ready = node.ready();
    node.store().wl().append(ready.entries()).unwrap();
    node.advance_append_async(ready);
    node.raft.become_candidate();
    let won = catch_unwind(AssertUnwindSafe(|| node.raft.become_leader()));
    assert!(won.is_err());
}

#[test]
fn issue_489_here_nothing_campaigns_before_its_entries_are_written() {
    let mut replica = follower();
    let mut append = message(MessageType::MsgAppend, 5);
    (append.index, append.log_term) = (4, 4);
    append.set_entries(vec![entry(5, 5)].into());
    replica.receive(&bytes(&append)).unwrap();
    let work = replica.take_work().unwrap().unwrap();
    (0..100).for_each(|_| replica.tick());
    replica.receive(&bytes(&message(MessageType::MsgTimeoutNow, 5))).unwrap();
    assert_eq!(replica.status().role, ReplicaRole::Follower);
    replica.written(work.number);
    (0..100).for_each(|_| replica.tick());
    assert_eq!(replica.status().role, ReplicaRole::Candidate);
}

fn removal(replica: u64) -> ConfChangeV2 {
    let mut single = ConfChangeSingle { node_id: replica, ..ConfChangeSingle::default() };
    single.set_change_type(ConfChangeType::RemoveNode);
    let mut change = ConfChangeV2::default();
    change.set_changes(vec![single].into());
    change
}

/// etcd-io/etcd#3404, #11038: a leader that is removed goes on. In the crate the next entry that is
/// committed ends the process.
#[test]
fn a_removed_leader_with_entries_in_flight_ends_the_crate() {
    let mut node = bare(true);
    node.propose(Vec::new(), vec![1]).unwrap();
    settle_bare(&mut node);
    node.apply_conf_change(&removal(1)).unwrap();
    let committed = catch_unwind(AssertUnwindSafe(|| {
        for from in [2, 3] {
            let mut response = message(MessageType::MsgAppendResponse, 6);
            (response.from, response.index) = (from, 6);
            node.step(response).unwrap();
        }
    }));
    assert!(committed.is_err());
}

#[test]
fn here_a_leader_hands_over_before_it_is_removed() {
    let mut replica = leader();
    for change in [
        MembershipChange { removed: [1].into(), ..MembershipChange::default() },
        MembershipChange { learners: [1].into(), ..MembershipChange::default() },
    ] {
        assert_eq!(replica.propose_change(&change), Err(ProposeError::RemovesLeader));
    }
}

fn joint() -> ConfChangeV2 {
    let mut change = removal(3);
    change.set_transition(ConfChangeTransition::Implicit);
    change
}

/// etcd-io/etcd#14538: the entry that leaves a joint membership is not sent until something else is.
#[test]
fn the_crate_does_not_send_the_automatic_exit() {
    let mut node = bare(true);
    node.propose_conf_change(Vec::new(), joint()).unwrap();
    settle_bare(&mut node);
    node.raft.msgs.clear();
    node.apply_conf_change(&joint()).unwrap();
    let mut response = message(MessageType::MsgAppendResponse, 6);
    response.index = 6;
    node.step(response).unwrap();
    settle_bare(&mut node);
    assert_eq!(node.raft.raft_log.last_index(), 7, "the exit is in the log");
    assert_eq!(node.raft.prs().get(2).unwrap().next_idx, 7, "and is not sent");
}

#[test]
fn here_the_exit_is_sent_at_the_next_tick() {
    let mut replica = leader();
    let term = replica.status().term;
    let change = MembershipChange { removed: [3].into(), ..MembershipChange::default() };
    let entered = replica.propose_change(&change).unwrap();
    sent(&mut replica);
    let mut response = message(MessageType::MsgAppendResponse, term);
    response.index = entered.index;
    replica.receive(&bytes(&response)).unwrap();
    sent(&mut replica);
    assert!(replica.membership().is_joint());
    replica.tick();
    let exit = |message: &Message| {
        message.to == 2 && message.entries.iter().any(|entry| entry.index == entered.index + 1)
    };
    assert!(sent(&mut replica).iter().any(exit));
}

/// etcd-io/etcd#10225: a checkpoint that is lost stops replication for ever, unless someone tells.
#[test]
fn a_lost_checkpoint_stops_the_crate_and_not_us() {
    let mut node = bare(true);
    node.raft.mut_prs().get_mut(3).unwrap().become_snapshot(5);
    for _ in 0..1_000 {
        node.tick();
        let mut beat = message(MessageType::MsgHeartbeatResponse, 6);
        for from in [2, 3] {
            beat.from = from;
            node.step(beat.clone()).unwrap();
        }
        settle_bare(&mut node);
    }
    assert_eq!(node.raft.prs().get(3).unwrap().state, ProgressState::Snapshot);

    let mut replica = leader();
    let term = replica.status().term;
    replica.checkpoint(Vec::new(), 0).unwrap();
    replica.receive(&bytes(&rejection(3, term, replica.status().last - 1, 1, 1))).unwrap();
    let mut checkpoints = 0;
    for _ in 0..200 {
        replica.tick();
        for from in [2, 3] {
            let mut beat = message(MessageType::MsgHeartbeatResponse, term);
            beat.from = from;
            replica.receive(&bytes(&beat)).unwrap();
        }
        let messages = sent(&mut replica);
        for probe in messages.iter().filter(|one| one.to == 3 && one.get_msg_type() == MessageType::MsgAppend)
        {
            replica.receive(&bytes(&rejection(3, term, probe.index, 1, 1))).unwrap();
        }
        checkpoints +=
            kinds_to(&messages, 3).iter().filter(|kind| **kind == MessageType::MsgSnapshot).count();
    }
    assert!(checkpoints >= 3, "{checkpoints}");
}

/// tikv/raft-rs#472: a checkpoint whose membership does not name the receiver is refused, each time.
/// Here it is not sent, and a newer one asked for.
#[test]
fn issue_472_a_checkpoint_without_its_receiver_is_not_sent() {
    let mut replica = leader();
    let term = replica.status().term;
    replica.checkpoint(Vec::new(), 0).unwrap();
    let change = MembershipChange { learners: [4].into(), ..MembershipChange::default() };
    let entered = replica.propose_change(&change).unwrap();
    sent(&mut replica);
    let mut response = message(MessageType::MsgAppendResponse, term);
    response.index = entered.index;
    replica.receive(&bytes(&response)).unwrap();
    sent(&mut replica);
    replica.receive(&bytes(&rejection(4, term, entered.index - 1, 0, 0))).unwrap();
    replica.receive(&bytes(&rejection(4, term, entered.index, 0, 0))).unwrap();
    assert!(!kinds_to(&sent(&mut replica), 4).contains(&MessageType::MsgSnapshot));
    assert!(replica.status().wants_checkpoint);
    replica.checkpoint(Vec::new(), 0).unwrap();
    let mut beat = message(MessageType::MsgHeartbeatResponse, term);
    beat.from = 4;
    replica.receive(&bytes(&beat)).unwrap();
    assert!(kinds_to(&sent(&mut replica), 4).contains(&MessageType::MsgSnapshot));
}

/// tikv/raft-rs#332 (open), etcd-io/etcd#7331: a leader has no read index before it has committed an
/// entry of its term. The crate drops the question; here it waits.
#[test]
fn issue_332_a_read_before_the_first_commit_waits() {
    let mut node = bare(true);
    node.raft.become_follower(6, 0);
    node.raft.become_candidate();
    settle_bare(&mut node);
    node.raft.become_leader();
    node.read_index(vec![1]);
    settle_bare(&mut node);
    assert_eq!(node.raft.pending_read_count(), 0);
    assert_eq!(node.raft.read_states, Vec::<ReadState>::new());

    let mut replica = elected();
    let (term, last) = (replica.status().term, replica.status().last);
    for read in 1..=3 {
        replica.read(read).unwrap();
    }
    sent(&mut replica);
    let mut response = message(MessageType::MsgAppendResponse, term);
    response.index = last;
    replica.receive(&bytes(&response)).unwrap();
    assert_eq!(answers(&mut replica), [(1, last), (2, last), (3, last)]);
}

/// Answers every heartbeat of the leader, and returns the reads answered.
fn answers(replica: &mut Replica) -> Vec<(u64, u64)> {
    let mut reads = Vec::new();
    while let Some(work) = replica.take_work().unwrap() {
        replica.written(work.number);
        reads.extend(work.reads);
        for outgoing in work.messages.iter().filter(|outgoing| outgoing.to == 2) {
            let beat = decode(&outgoing.bytes).unwrap().message;
            if beat.get_msg_type() == MessageType::MsgHeartbeat {
                let mut answer = message(MessageType::MsgHeartbeatResponse, beat.term);
                answer.context = beat.context;
                replica.receive(&bytes(&answer)).unwrap();
            }
        }
    }
    reads
}

/// tikv/tikv#7971: a read that joins a round under way may miss what was acknowledged since it began.
#[test]
fn a_read_never_joins_a_round_under_way() {
    let mut replica = leader();
    let (term, before) = (replica.status().term, replica.status().last);
    replica.read(1).unwrap();
    let round = sent(&mut replica).into_iter().find(|one| one.to == 2).unwrap();
    let acknowledged = replica.propose(vec![1]).unwrap().index;
    sent(&mut replica);
    let mut response = message(MessageType::MsgAppendResponse, term);
    response.index = acknowledged;
    replica.receive(&bytes(&response)).unwrap();
    sent(&mut replica);
    replica.read(2).unwrap();
    let mut answer = message(MessageType::MsgHeartbeatResponse, term);
    answer.context = round.context;
    replica.receive(&bytes(&answer)).unwrap();
    let mut reads = answers(&mut replica);
    reads.sort_unstable();
    assert_eq!(reads, [(1, before), (2, acknowledged)]);
}

/// A replica that has lost acknowledged entries does not vote, and does not campaign. If a majority
/// has, the group does not start by itself.
#[test]
fn a_lost_replica_neither_votes_nor_campaigns() {
    let log = RecoveredLog::after(1, &CheckpointHead::first(1..=3), Vec::new());
    let mut replica = Replica::start(log, ReplicaOptions { is_lost: true, ..OPTIONS }).unwrap();
    let mut vote = message(MessageType::MsgRequestVote, 9);
    (vote.index, vote.log_term) = (9, 9);
    replica.receive(&bytes(&vote)).unwrap();
    (0..1_000).for_each(|_| replica.tick());
    assert_eq!(sent(&mut replica), []);
    assert_eq!((replica.status().role, replica.status().is_lost), (ReplicaRole::Follower, true));
}

/// The crate's membership is that of the last entry *applied*. A restarted replica that did not know
/// that its newest membership is committed would campaign under an older one, and two majorities
/// that have no replica in common could decide. So each record holds the commit index as well.
#[test]
fn a_restarted_replica_knows_what_it_knew_as_committed() {
    let mut replica =
        Replica::start(RecoveredLog::after(1, &CheckpointHead::first(1..=3), Vec::new()), OPTIONS).unwrap();
    let mut append = message(MessageType::MsgAppend, 5);
    (append.index, append.log_term, append.commit) = (1, 1, 3);
    append.set_entries((2..=4).map(|index| entry(index, 4)).collect::<Vec<_>>().into());
    replica.receive(&bytes(&append)).unwrap();
    let mut log = RecoveredLog::after(1, &CheckpointHead::first(1..=3), Vec::new());
    while let Some(work) = replica.take_work().unwrap() {
        if work.entries.is_some() {
            log.replay(&work.record).unwrap();
        }
        replica.written(work.number);
    }
    let restarted = Replica::start(log, ReplicaOptions { incarnation: 2, ..OPTIONS }).unwrap();
    assert_eq!((restarted.status().last, restarted.status().committed), (4, 3));
}
