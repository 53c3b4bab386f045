//! A replica, and the crate alone, in the same states.

use raft::{
    Config, RawNode,
    eraftpb::{Entry, Message, MessageType},
    storage::MemStorage,
};
use yesquel_replication::{
    CheckpointHead, RecoveredLog, Replica, ReplicaOptions, ReplicaRole,
    message::{PeerMessage, encode},
};

pub const OPTIONS: ReplicaOptions =
    ReplicaOptions { incarnation: 1, seed: 7, election_ticks: 10, message_bytes: 1_000, is_lost: false };

/// Replica 1 of three, a follower in term 5 with entries up to 4, of which 3 are committed.
pub fn follower() -> Replica {
    let mut replica =
        Replica::start(RecoveredLog::after(1, &CheckpointHead::first(1..=3), Vec::new()), OPTIONS).unwrap();
    let mut append = message(MessageType::MsgAppend, 5);
    (append.index, append.log_term, append.commit) = (1, 1, 3);
    append.set_entries((2..=4).map(|index| entry(index, 4)).collect::<Vec<_>>().into());
    replica.receive(&bytes(&append)).unwrap();
    settle(&mut replica);
    replica
}

/// Replica 1 of three, the leader, with no entry of its term committed.
pub fn elected() -> Replica {
    let mut replica = follower();
    for _ in 0..100 {
        replica.tick();
        settle(&mut replica);
        let term = replica.status().term;
        for (kind, term) in
            [(MessageType::MsgRequestPreVoteResponse, term + 1), (MessageType::MsgRequestVoteResponse, term)]
        {
            let _ = replica.receive(&bytes(&message(kind, term)));
            settle(&mut replica);
        }
        if replica.status().role == ReplicaRole::Leader {
            return replica;
        }
    }
    panic!("it is not elected: {:?}", replica.status());
}

/// Replica 1 of three, the leader.
pub fn leader() -> Replica {
    let mut replica = elected();
    let mut response = message(MessageType::MsgAppendResponse, replica.status().term);
    response.index = replica.status().last;
    replica.receive(&bytes(&response)).unwrap();
    settle(&mut replica);
    assert_eq!(replica.status().committed, replica.status().last);
    replica
}

pub fn settle(replica: &mut Replica) {
    while let Some(work) = replica.take_work().unwrap() {
        replica.written(work.number);
    }
}

pub fn entry(index: u64, term: u64) -> Entry {
    Entry { index, term, data: vec![1].into(), ..Entry::default() }
}

pub fn message(kind: MessageType, term: u64) -> Message {
    let mut message = Message { from: 2, to: 1, term, ..Message::default() };
    message.set_msg_type(kind);
    message
}

pub fn bytes(message: &Message) -> Vec<u8> {
    encode(&PeerMessage { incarnation: 1, is_lost: false, readmitted: 0, message: message.clone() }).unwrap()
}

/// The crate alone, in the state of [`follower`] or [`leader`].
pub fn bare(leads: bool) -> RawNode<MemStorage> {
    let config =
        Config { id: 1, check_quorum: true, pre_vote: true, max_size_per_msg: 1_000, ..Config::default() };
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    let mut node =
        RawNode::new(&config, MemStorage::new_with_conf_state((vec![1, 2, 3], vec![])), &logger).unwrap();
    let mut append = message(MessageType::MsgAppend, 5);
    append.commit = 3;
    append.set_entries((1..=4).map(|index| entry(index, 4)).collect::<Vec<_>>().into());
    node.step(append).unwrap();
    settle_bare(&mut node);
    if leads {
        node.raft.become_candidate();
        settle_bare(&mut node);
        node.raft.become_leader();
        settle_bare(&mut node);
        let mut response = message(MessageType::MsgAppendResponse, 6);
        response.index = 5;
        node.step(response).unwrap();
        settle_bare(&mut node);
    }
    node
}

pub fn settle_bare(node: &mut RawNode<MemStorage>) {
    while node.has_ready() {
        let ready = node.ready();
        node.store().wl().append(ready.entries()).unwrap();
        if let Some(hard) = ready.hs() {
            node.store().wl().set_hardstate(hard.clone());
        }
        node.advance(ready);
        node.advance_apply();
    }
}
