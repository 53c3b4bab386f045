//! A replica of a group.

use crate::{
    ReplicationError,
    check::{RefusedMessage, check},
    membership::{Membership, MembershipChange},
    message::{PeerMessage, decode, encode},
    readmit::PeerStarts,
    reads::PendingReads,
    recovery::{CheckpointHead, RecoveredLog, encode_record},
    replica_log::{ReplicaLog, checkpoint_of},
    work::{CommittedEntry, EntryId, OutgoingMessage, ReadyWork},
};
use raft::{
    Config, ProgressState, RawNode, SnapshotStatus, StateRole,
    eraftpb::{Entry, EntryType, Message, MessageType},
};
use std::collections::BTreeMap;
use thiserror::Error;
use yesquel_wire::Malformed;

/// Ticks between a leader's heartbeats.
const HEARTBEAT_TICKS: usize = 2;
/// Ticks after which a checkpoint that was sent counts as lost. The crate sends nothing else
/// meanwhile, and has no timeout of its own.
const CHECKPOINT_TICKS: u64 = 50;
/// Entries that a learner may lack when it is made a voter.
const PROMOTION_LAG: u64 = 1_000;

/// How a replica starts.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaOptions {
    /// Number of this start, larger than all before, durable.
    pub incarnation: u64,
    /// Seed of the times of elections.
    pub seed: u64,
    /// Ticks of silence after which an election may begin; at the latest after twice as many.
    pub election_ticks: usize,
    /// Largest bytes of entries in one message.
    pub message_bytes: u64,
    /// Whether entries that it acknowledged may be lost.
    pub is_lost: bool,
}

/// What a replica is in its term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaRole {
    /// It leads.
    Leader,
    /// It asks for votes.
    Candidate,
    /// It receives entries.
    Follower,
    /// It is no longer in the group.
    Removed,
}

/// The state of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Its role.
    pub role: ReplicaRole,
    /// Its term.
    pub term: u64,
    /// The leader of the term; 0: not known.
    pub leader: u64,
    /// Index of the last entry.
    pub last: u64,
    /// Index of the last entry known as committed.
    pub committed: u64,
    /// Whether it may have lost entries, and waits for a leader.
    pub is_lost: bool,
    /// Whether a replica needs a newer checkpoint than there is.
    pub wants_checkpoint: bool,
}

/// Why nothing is proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProposeError {
    /// This replica does not lead.
    #[error("this replica does not lead in term {term}; the leader is {leader}")]
    NotLeader {
        /// Its term.
        term: u64,
        /// The leader; 0: not known.
        leader: u64,
    },
    /// The lead is being handed over.
    #[error("the lead is being handed over")]
    Transferring,
    /// Another change of the membership is not finished.
    #[error("another change of the membership is not finished")]
    Changing,
    /// The change would remove or demote the leader, which hands over first.
    #[error("the change removes the leader")]
    RemovesLeader,
    /// A replica to be promoted is not a learner, or lacks many entries.
    #[error("replica {0} is not ready to vote")]
    NotReady(u64),
}

/// Why a message is not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReceiveError {
    /// Its bytes are malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It contradicts the replica's state.
    #[error(transparent)]
    Refused(#[from] RefusedMessage),
    /// Its sender has started again since.
    #[error("the message is of an earlier start of its sender")]
    EarlierStart,
    /// The crate does not take it.
    #[error("the sender is not in the group")]
    Stranger,
}

/// One replica of a group.
pub struct Replica {
    raw: RawNode<ReplicaLog>,
    options: ReplicaOptions,
    is_lost: bool,
    is_readmitted: bool,
    is_removed: bool,
    /// Whether the membership has ever named this replica. One that joins may apply older ones.
    was_member: bool,
    /// State of the generator of election times.
    random: u64,
    /// Ticks of silence after which this replica campaigns.
    campaign_after: usize,
    elapsed: usize,
    ticks: u64,
    led_in: u64,
    /// Number of the last work that was written.
    written: u64,
    last_work: u64,
    applied: u64,
    membership: Membership,
    reads: PendingReads,
    peers: PeerStarts,
    /// Checkpoints under way, by receiver, with the tick at which each counts as lost.
    checkpoints: BTreeMap<u64, u64>,
}

impl Replica {
    /// Starts a replica.
    pub fn start(log: RecoveredLog, options: ReplicaOptions) -> Result<Replica, ReplicationError> {
        let (id, log) = log.into_parts();
        let (applied, membership) = (log.before.0, log.membership.clone());
        let config = Config {
            id,
            applied,
            election_tick: options.election_ticks,
            heartbeat_tick: HEARTBEAT_TICKS,
            // One possible value, which is never reached: the crate's random number does not matter.
            min_election_tick: 4 * options.election_ticks,
            max_election_tick: 4 * options.election_ticks + 1,
            max_size_per_msg: options.message_bytes,
            max_inflight_msgs: 64,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, log, &logger)
            .map_err(|error| ReplicationError::Start { replica: id, error })?;
        let mut replica = Replica {
            raw,
            options,
            is_lost: options.is_lost,
            is_readmitted: false,
            is_removed: false,
            was_member: membership.contains(id),
            random: options.seed ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            campaign_after: 0,
            elapsed: 0,
            ticks: 0,
            led_in: 0,
            written: 0,
            last_work: 0,
            applied,
            membership,
            reads: PendingReads::default(),
            peers: PeerStarts::default(),
            checkpoints: BTreeMap::new(),
        };
        replica.draw_campaign();
        Ok(replica)
    }

    /// The state now.
    pub fn status(&self) -> ReplicaStatus {
        let raft = &self.raw.raft;
        let role = match raft.state {
            _ if self.is_removed => ReplicaRole::Removed,
            StateRole::Leader => ReplicaRole::Leader,
            StateRole::Follower => ReplicaRole::Follower,
            StateRole::Candidate | StateRole::PreCandidate => ReplicaRole::Candidate,
        };
        ReplicaStatus {
            role,
            term: raft.term,
            leader: raft.leader_id,
            last: raft.raft_log.last_index(),
            committed: raft.raft_log.committed,
            is_lost: self.is_lost,
            wants_checkpoint: raft.store().wants_checkpoint.get(),
        }
    }

    /// The membership at the last entry applied.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The log.
    pub fn log(&self) -> &ReplicaLog {
        self.raw.store()
    }

    /// Index of the last entry that is no longer in the log, as a checkpoint covers it.
    pub fn covered(&self) -> u64 {
        self.raw.store().before.0
    }

    /// Index of the last entry given out as committed.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    fn leads(&self) -> bool {
        self.raw.raft.state == StateRole::Leader && !self.is_removed
    }

    fn draw_campaign(&mut self) {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let spread = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        let ticks = self.options.election_ticks;
        self.campaign_after = ticks + (spread % ticks as u64) as usize;
    }

    /// A tick of the owner's clock has passed.
    pub fn tick(&mut self) {
        if self.is_removed {
            return;
        }
        self.ticks += 1;
        self.raw.tick();
        let overdue: Vec<u64> =
            self.checkpoints.iter().filter(|(_, at)| **at <= self.ticks).map(|(to, _)| *to).collect();
        for to in overdue {
            self.checkpoints.remove(&to);
            self.raw.report_snapshot(to, SnapshotStatus::Failure);
        }
        if self.leads() {
            self.leave_joint();
        } else {
            self.campaign_in_time();
        }
    }

    /// Campaigns after a time of silence. The crate's own timeout would be the same on all replicas,
    /// and holding back its ticks would prolong the time in which voters refuse.
    fn campaign_in_time(&mut self) {
        let elapsed = self.raw.raft.election_elapsed;
        if elapsed < self.elapsed {
            self.draw_campaign();
        }
        self.elapsed = elapsed.min(2 * self.options.election_ticks);
        self.raw.raft.election_elapsed = self.elapsed;
        // While a write is under way the log in memory is ahead of the disk: a sole voter would win at
        // once, and the crate ends the process (tikv/raft-rs#489).
        let may_campaign = self.raw.raft.promotable() && !self.is_lost && self.written == self.last_work;
        if elapsed >= self.campaign_after && may_campaign {
            self.raw.raft.election_elapsed = 0;
            self.elapsed = 0;
            self.draw_campaign();
            // The crate refuses only what is unknown; a campaign is not.
            let _ = self.raw.campaign();
        }
    }

    /// Ends a joint membership. A leader that will not be a voter after it hands over first: the
    /// crate ends the process when a leader that is removed learns that an entry is committed.
    fn leave_joint(&mut self) {
        let raft = &self.raw.raft;
        if !self.membership.is_joint() || raft.has_pending_conf() || !raft.commit_to_current_term() {
            return;
        }
        if self.membership.voters.contains(&raft.id) {
            self.propose_to_crate(&MembershipChange::default());
        } else if raft.lead_transferee.is_none() {
            let progress =
                |id: &u64| raft.prs().get(*id).filter(|one| one.recent_active).map(|one| one.matched);
            let best = self.membership.voters.iter().copied().max_by_key(|id| progress(id));
            if let Some(best) = best {
                self.raw.transfer_leader(best);
            }
        }
    }

    fn propose_to_crate(&mut self, change: &MembershipChange) {
        // It refuses what `propose_change` has checked.
        let _ = self.raw.propose_conf_change(change.encode(), change.to_crate());
    }

    fn require_lead(&self) -> Result<(), ProposeError> {
        let raft = &self.raw.raft;
        if !self.leads() {
            return Err(ProposeError::NotLeader { term: raft.term, leader: raft.leader_id });
        }
        if raft.lead_transferee.is_some() { Err(ProposeError::Transferring) } else { Ok(()) }
    }

    fn last_entry(&self) -> EntryId {
        EntryId { term: self.raw.raft.term, index: self.raw.raft.raft_log.last_index() }
    }

    /// Adds an entry to the leader's log. The leader may apply it now, and holds what depends on it
    /// until the entry is committed.
    pub fn propose(&mut self, data: Vec<u8>) -> Result<EntryId, ProposeError> {
        self.require_lead()?;
        match self.raw.propose(Vec::new(), data) {
            Ok(()) => Ok(self.last_entry()),
            Err(_) => Err(ProposeError::Transferring),
        }
    }

    /// Begins a change of the membership: it becomes joint, and the leader ends that by itself.
    pub fn propose_change(&mut self, change: &MembershipChange) -> Result<EntryId, ProposeError> {
        self.require_lead()?;
        let raft = &self.raw.raft;
        if raft.has_pending_conf() || self.membership.is_joint() || change.leaves_joint() {
            return Err(ProposeError::Changing);
        }
        if change.removed.contains(&raft.id) || change.learners.contains(&raft.id) {
            return Err(ProposeError::RemovesLeader);
        }
        for replica in change.voters.iter().filter(|replica| !self.membership.voters.contains(replica)) {
            let matched = raft.prs().get(*replica).map(|progress| progress.matched);
            let is_near =
                matched.is_some_and(|at| at > 0 && at + PROMOTION_LAG >= raft.raft_log.last_index());
            if !is_near || !self.membership.learners.contains(replica) {
                return Err(ProposeError::NotReady(*replica));
            }
        }
        self.propose_to_crate(change);
        Ok(self.last_entry())
    }

    /// Asks for a read that sees everything that was acknowledged before now. The answer is among a
    /// later work's reads.
    pub fn read(&mut self, read: u64) -> Result<(), ProposeError> {
        self.require_lead()?;
        self.reads.add(read);
        Ok(())
    }

    /// Hands the lead over to a voter. Until that has it, or an election's time has passed, nothing
    /// is proposed.
    pub fn transfer(&mut self, to: u64) -> Result<(), ProposeError> {
        self.require_lead()?;
        if to == self.raw.raft.id || !self.membership.voters.contains(&to) {
            return Err(ProposeError::NotReady(to));
        }
        self.raw.transfer_leader(to);
        Ok(())
    }

    /// Processes a message's bytes.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ReceiveError> {
        let PeerMessage { incarnation, is_lost, readmitted, mut message } = decode(bytes)?;
        if self.is_removed {
            return Ok(());
        }
        if self.is_lost && message.get_msg_type() == MessageType::MsgHeartbeat {
            // It means entries that this replica has acknowledged. Those here may be others: if the
            // record of a cut is lost, the entries that it cut are back.
            message.commit = 0;
        }
        check(&self.raw.raft, &message)?;
        if !self.peers.observe(message.from, incarnation, is_lost) {
            return Err(ReceiveError::EarlierStart);
        }
        if is_lost && self.leads() {
            self.begin_readmission(message.from);
        }
        if self.is_lost && readmitted == self.options.incarnation && message.term >= self.raw.raft.term {
            (self.is_lost, self.is_readmitted) = (false, true);
        }
        if self.ignores(&message) {
            return Ok(());
        }
        if message.get_msg_type() == MessageType::MsgAppendResponse
            && !message.reject
            && self.leads()
            && message.term == self.raw.raft.term
        {
            self.end_checkpoint(&message);
        }
        self.raw.step(message).map_err(|_| ReceiveError::Stranger)
    }

    fn ignores(&self, message: &Message) -> bool {
        match message.get_msg_type() {
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => self.is_lost,
            // As in `campaign_in_time`. The leader repeats the transfer, or gives it up.
            MessageType::MsgTimeoutNow => self.is_lost || self.written != self.last_work,
            _ => false,
        }
    }

    /// A receiver that had more than the checkpoint acknowledges what the leader knew, and the crate
    /// would go on waiting: its state is ended here.
    fn end_checkpoint(&mut self, message: &Message) {
        let progress = self.raw.raft.prs().get(message.from);
        let waits =
            progress.is_some_and(|one| one.state == ProgressState::Snapshot && message.index >= one.matched);
        if waits && self.checkpoints.contains_key(&message.from) {
            let has_it = progress.is_some_and(|one| message.index >= one.pending_snapshot);
            if has_it {
                self.checkpoints.remove(&message.from);
                self.raw.report_snapshot(message.from, SnapshotStatus::Finish);
            }
        }
    }

    /// Forgets what was known of a lost replica's log.
    fn begin_readmission(&mut self, from: u64) {
        let last = self.raw.raft.raft_log.last_index();
        if self.peers.begin(from, last)
            && let Some(progress) = self.raw.raft.mut_prs().get_mut(from)
        {
            progress.matched = 0;
            progress.become_probe();
            progress.next_idx = last + 1;
            self.checkpoints.remove(&from);
        }
    }

    /// A work's record, and all before it, are written: durably, or as the group's durability says.
    pub fn written(&mut self, number: u64) {
        self.written = self.written.max(number);
        if !self.is_removed {
            self.raw.on_persist_ready(number);
            self.advance_applied();
        }
    }

    /// Tells the crate what is applied. A checkpoint counts only when it is written.
    fn advance_applied(&mut self) {
        let log = &self.raw.raft.raft_log;
        if self.applied > log.applied && self.applied <= log.persisted.min(log.committed) {
            self.raw.advance_apply_to(self.applied);
        }
    }

    /// Keeps a checkpoint as of an applied entry, and removes entries before it but for the last
    /// `keep`. Returns the head of its file.
    pub fn checkpoint(&mut self, data: Vec<u8>, keep: u64) -> Option<CheckpointHead> {
        let (index, membership) = (self.applied, self.membership.clone());
        let term = self.raw.store().term_of(index).filter(|_| index > 0)?;
        let hard = self.raw.raft.hard_state();
        let head = CheckpointHead { index, term, membership, vote: (hard.term, hard.vote) };
        let checkpoint = checkpoint_of(index, term, &head.membership, data);
        self.raw.mut_store().compact(checkpoint, index.saturating_sub(keep));
        Some(head)
    }

    /// Returns the work there is, if any.
    pub fn take_work(&mut self) -> Result<Option<ReadyWork>, ReplicationError> {
        let mut work = ReadyWork::default();
        if self.is_removed {
            work.failed_reads = self.reads.fail();
            return Ok((!work.failed_reads.is_empty()).then_some(work));
        }
        self.follow_lead(&mut work);
        let has_more = !work.failed_reads.is_empty() || work.is_deposed || self.is_readmitted;
        work.reads = self.reads.answered(self.applied);
        if !self.raw.has_ready() && !has_more && work.reads.is_empty() {
            return Ok(None);
        }
        work.is_readmitted = std::mem::take(&mut self.is_readmitted);
        self.take_ready(&mut work)?;
        work.reads.extend(self.reads.answered(self.applied));
        Ok(Some(work))
    }

    /// Notices a change of the lead, and begins rounds that confirm it.
    fn follow_lead(&mut self, work: &mut ReadyWork) {
        let raft = &self.raw.raft;
        if !self.leads() || (self.led_in != 0 && self.led_in != raft.term) {
            work.is_deposed = self.led_in != 0;
            self.led_in = 0;
            work.failed_reads = self.reads.fail();
            self.peers.abandon();
            self.checkpoints.clear();
        }
        if !self.leads() {
            return;
        }
        self.led_in = self.raw.raft.term;
        let raft = &self.raw.raft;
        self.peers.grant(|replica| raft.prs().get(replica).map_or(0, |progress| progress.matched));
        // The crate drops a question that comes before an entry of the term is committed.
        if raft.commit_to_current_term() {
            if let Some(round) = self.reads.begin() {
                self.raw.read_index(round.to_le_bytes().to_vec());
            }
            if self.peers.needs_round() {
                let round = self.reads.new_round();
                self.peers.begin_round(round);
                self.raw.read_index(round.to_le_bytes().to_vec());
            }
        }
    }

    fn take_ready(&mut self, work: &mut ReadyWork) -> Result<(), ReplicationError> {
        let mut ready = self.raw.ready();
        work.number = ready.number();
        self.last_work = work.number;
        work.messages = self.outgoing(ready.take_messages());
        work.messages_after = self.outgoing(ready.take_persisted_messages());
        if !ready.snapshot().is_empty() {
            self.restore(&ready, work);
        }
        let mut entries = ready.take_entries();
        for entry in entries.iter_mut().filter(|entry| entry.get_entry_type() != EntryType::EntryNormal) {
            // The crate's encoding of a change that was proposed here; ours is in the context.
            entry.data.clear();
        }
        let hard = self.raw.raft.hard_state();
        let store = self.raw.mut_store();
        work.holds_vote = (hard.term, hard.vote) != (store.hard.term, store.hard.vote);
        if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
            work.entries = Some((first.index, last.index));
            work.cut = store.append(&entries);
        }
        if !entries.is_empty() || hard != store.hard {
            work.record = encode_record(&hard, &entries);
            store.hard = hard;
        }
        let committed = ready.take_committed_entries();
        for state in ready.take_read_states() {
            if let Ok(round) = state.request_ctx[..].try_into().map(u64::from_le_bytes)
                && !self.reads.confirm(round, state.index)
            {
                self.peers.confirm(round);
            }
        }
        self.raw.advance_append_async(ready);
        self.apply(committed, work)
    }

    fn restore(&mut self, ready: &raft::Ready, work: &mut ReadyWork) {
        let head = ready.snapshot().get_metadata();
        let hard = self.raw.raft.hard_state();
        self.membership = Membership::from_crate(head.get_conf_state());
        self.applied = head.index;
        let described = CheckpointHead {
            index: head.index,
            term: head.term,
            membership: self.membership.clone(),
            vote: (hard.term, hard.vote),
        };
        work.restored = Some((described.encode(), ready.snapshot().data.to_vec()));
        work.membership = Some((head.index, self.membership.clone()));
        self.raw.mut_store().restore(ready.snapshot());
    }

    fn apply(&mut self, committed: Vec<Entry>, work: &mut ReadyWork) -> Result<(), ReplicationError> {
        for entry in committed {
            let id = EntryId { term: entry.term, index: entry.index };
            let is_change = entry.get_entry_type() == EntryType::EntryConfChangeV2;
            if is_change {
                let change = MembershipChange::decode(&entry.context)?;
                // A change that does not fit is refused by all replicas alike.
                if let Ok(state) = self.raw.apply_conf_change(&change.to_crate()) {
                    self.membership = Membership::from_crate(&state);
                    work.membership = Some((entry.index, self.membership.clone()));
                }
            }
            let data = if is_change { Vec::new() } else { entry.data.to_vec() };
            work.committed.push(CommittedEntry { id, data });
            self.applied = entry.index;
        }
        let id = self.raw.raft.id;
        let is_member = self.membership.contains(id);
        self.was_member |= is_member;
        if self.was_member && !is_member {
            self.is_removed = true;
            return Ok(());
        }
        self.advance_applied();
        let is_voter = self.membership.voters.contains(&id) || self.membership.outgoing.contains(&id);
        if self.leads() && !is_voter {
            let term = self.raw.raft.term;
            self.raw.raft.become_follower(term, 0);
        }
        Ok(())
    }

    /// Encodes messages of the crate.
    fn outgoing(&mut self, messages: Vec<Message>) -> Vec<OutgoingMessage> {
        let mut outgoing = Vec::with_capacity(messages.len());
        for mut message in messages {
            let (to, kind) = (message.to, message.get_msg_type());
            if kind == MessageType::MsgSnapshot {
                self.checkpoints.insert(to, self.ticks + CHECKPOINT_TICKS);
            }
            // A leader must not count a replica that is lost when it confirms its lead.
            if self.is_lost && kind == MessageType::MsgHeartbeatResponse {
                message.context.clear();
            }
            let peer = PeerMessage {
                incarnation: self.options.incarnation,
                is_lost: self.is_lost,
                readmitted: self.peers.readmitted(to),
                message,
            };
            outgoing.extend(encode(&peer).map(|bytes| OutgoingMessage { to, bytes }));
        }
        outgoing
    }
}
