//! Checks of messages before the crate sees them.
//!
//! The crate trusts its peers: it ends the process on many messages that no correct peer sends.
//! `tests/messages.rs` lists them, and shows that each is refused here.

use crate::{
    membership::Membership,
    message::{NUMBER_MAX, travels},
    replica_log::ReplicaLog,
};
use raft::{
    Raft, StateRole,
    eraftpb::{Message, MessageType},
};
use thiserror::Error;

/// Why a message is not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RefusedMessage {
    /// Messages of this kind do not travel.
    #[error("messages of this kind do not travel")]
    Kind,
    /// It is for another replica, or says that it is from this one.
    #[error("the message is not for this replica")]
    Addressee,
    /// Its term is 0, which marks the crate's local messages, or over the limit.
    #[error("the message's term is out of range")]
    Term,
    /// Its entries do not continue each other, or are of a later term than the message.
    #[error("the message's entries do not continue each other")]
    Entries,
    /// Its checkpoint contradicts itself, or what is committed here.
    #[error("the message's checkpoint is invalid")]
    Checkpoint,
    /// It acknowledges an entry that this leader has not made.
    #[error("the message acknowledges an entry that does not exist")]
    Acknowledged,
    /// A leader counts on entries that are missing here: this replica's log has lost some.
    #[error("entries that this replica acknowledged are missing from its log")]
    EntriesLost,
}

/// Checks a message against the state of the replica that it is for.
pub fn check(raft: &Raft<ReplicaLog>, message: &Message) -> Result<(), RefusedMessage> {
    let kind = message.get_msg_type();
    if !travels(kind) {
        return Err(RefusedMessage::Kind);
    }
    if message.to != raft.id || message.from == raft.id || message.from == 0 {
        return Err(RefusedMessage::Addressee);
    }
    if message.term == 0 || message.term > NUMBER_MAX {
        return Err(RefusedMessage::Term);
    }
    if message.term < raft.term {
        // The crate looks at nothing else of it.
        return Ok(());
    }
    match kind {
        MessageType::MsgAppend => check_append(message),
        MessageType::MsgSnapshot => check_checkpoint(raft, message),
        // From an earlier term the leader knows nothing of this replica, and commits nothing here.
        MessageType::MsgHeartbeat if message.commit > raft.raft_log.last_index() => {
            Err(RefusedMessage::EntriesLost)
        }
        MessageType::MsgAppendResponse => check_response(raft, message),
        _ => Ok(()),
    }
}

fn check_append(message: &Message) -> Result<(), RefusedMessage> {
    let (mut index, mut term) = (message.index, message.log_term);
    // Beyond the log the crate takes the term 0 for a match.
    let mut is_valid = (index == 0) == (term == 0) && index <= NUMBER_MAX && message.commit <= NUMBER_MAX;
    for entry in message.get_entries() {
        is_valid &= entry.index == index + 1 && entry.term >= term.max(1);
        if !is_valid {
            break;
        }
        (index, term) = (entry.index, entry.term);
    }
    if is_valid && term <= message.term { Ok(()) } else { Err(RefusedMessage::Entries) }
}

fn check_checkpoint(raft: &Raft<ReplicaLog>, message: &Message) -> Result<(), RefusedMessage> {
    let head = message.get_snapshot().get_metadata();
    let state = head.get_conf_state();
    let is_in_range = (1..=NUMBER_MAX).contains(&head.index) && (1..=message.term).contains(&head.term);
    let contradicts =
        head.index == raft.raft_log.committed && !raft.raft_log.match_term(head.index, head.term);
    if is_in_range && !contradicts && !state.auto_leave && Membership::from_crate(state).is_valid() {
        Ok(())
    } else {
        Err(RefusedMessage::Checkpoint)
    }
}

fn check_response(raft: &Raft<ReplicaLog>, message: &Message) -> Result<(), RefusedMessage> {
    let is_possible = [message.index, message.reject_hint].iter().all(|index| *index <= NUMBER_MAX);
    let leads = raft.state == StateRole::Leader && message.term == raft.term;
    let acknowledges_more = leads && !message.reject && message.index > raft.raft_log.last_index();
    if is_possible && !acknowledges_more && message.request_snapshot == 0 {
        Ok(())
    } else {
        Err(RefusedMessage::Acknowledged)
    }
}
