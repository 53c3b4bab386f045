//! Commit of transactions in one phase or two, and recovery of undecided ones.
//! `docs/yesquel/commit.md` has every branch.

use super::Engine;
use crate::{
    effects::{Effects, Now, Stop},
    outcomes::TransactionEnd,
    record::{LogRecord, NO_TXN},
    recovery_timer::RecoveryTimer,
    staging::{CommitPayload, OperationScript},
    store::TreeEnd,
    transaction::{PendingWrite, PreparedTxn},
    write_target::PreparedOperation,
};
use std::sync::Arc;
use yesquel_model::{Conflict, HybridClock, NodeId, Refusal, ServerId, Timestamp, TxnId, limits};
use yesquel_wire::{
    Decision, NodeOperation, Operations, Participants, Reply, TransactionOutcome, Vote, WriteOperation,
};

/// What a client states of a transaction when it asks to commit or to vote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitRequest<'a> {
    pub(crate) txn: TxnId,
    pub(crate) birth: Timestamp,
    pub(crate) snapshot: Option<Timestamp>,
    pub(crate) payload: CommitPayload<'a>,
    /// The connection on which it came.
    pub(crate) connection: u64,
    /// When the request has come, by the queue's count; the highest number if it comes now.
    pub(crate) arrival: u64,
}

/// A vote's terms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VoteTerms<'a> {
    pub(crate) participants: Participants<'a>,
    /// The request may be queued.
    pub(crate) waits: bool,
}

/// A vote for yes, without the operations.
#[derive(Debug)]
pub(crate) struct PreparedVote {
    pub(crate) at: Timestamp,
    pub(crate) birth: Timestamp,
    pub(crate) waits: bool,
    pub(crate) participants: Arc<[ServerId]>,
}

/// The owned form of participants.
pub(crate) fn owned(participants: &Participants<'_>) -> Arc<[ServerId]> {
    participants.iter().collect()
}

impl Engine {
    /// Checks all operations. Nothing is changed.
    fn check(
        &mut self,
        now_ms: u64,
        request: &CommitRequest<'_>,
        snapshot: Timestamp,
        script: OperationScript<'_>,
        prepares: bool,
    ) -> Result<(), Stop> {
        self.check_disk()?;
        let holder = request.payload.holder(request.txn);
        self.check_each(now_ms, holder, snapshot, (script, prepares))?;
        if !self.queue.is_empty()
            && let Some(queued) = self.queue.before(request.arrival, script)
        {
            return Err(Stop::Wait(queued));
        }
        self.fits(script, prepares)
    }

    /// Checks that a transaction may still vote or commit here.
    fn check_birth(&self, now: Now, request: &CommitRequest<'_>) -> Result<(), Stop> {
        let CommitRequest { txn, birth, connection, .. } = *request;
        if self.outcomes.covers(txn, birth) || self.refused.covers(connection, txn) {
            return Err(Stop::Forgotten);
        }
        let is_ahead = birth.ms() > now.wall_ms.saturating_add(limits::CLOCK_AHEAD_MS_MAX);
        if is_ahead && birth > self.clock.last() { Err(self.too_far_ahead(now, birth)) } else { Ok(()) }
    }

    /// Logs what a client has reported, together with another record of that client.
    fn log_reported(&mut self, client: u64, effects: &mut Effects) {
        if let Some(report) = self.outcomes.take_reported(client) {
            self.outcomes.settle(client, &report);
            self.log(&LogRecord::Settled { client, report }, effects);
        }
    }

    pub(crate) fn commit(
        &mut self,
        now: Now,
        request: &CommitRequest<'_>,
        effects: &mut Effects,
    ) -> Result<Timestamp, Stop> {
        let CommitRequest { txn, birth, snapshot, payload, .. } = *request;
        let CommitPayload { staged, operations, .. } = payload;
        match self.outcomes.single_server_outcome(txn) {
            None => self.check_birth(now, request)?,
            // The request was sent again.
            Some(Decision::Commit(at)) => return Ok(at),
            Some(Decision::Abort) => return Err(Refusal::GivenUp(txn).into()),
        }
        let snapshot = self.snapshot(now, snapshot)?;
        let parts = self.staging.take(txn.client, staged)?;
        let script = OperationScript::new(parts.as_ref(), operations);
        if let Err(stop) = self.check(now.uptime_ms, request, snapshot, script, false) {
            self.staging.put_back(txn.client, staged, parts);
            return Err(stop);
        }
        self.log_reported(txn.client, effects);
        let at = self.clock.tick(now.wall_ms);
        self.under_ceiling(at, effects);
        self.log(&LogRecord::Commit { txn, birth, at, staged, operations }, effects);
        self.apply_commit(txn, (birth, at), script);
        self.counts.commits += 1;
        self.touch(&operations);
        if let Some(holder) = payload.ended_lease(txn) {
            self.release(holder);
        }
        Ok(at)
    }

    pub(crate) fn apply_commit(
        &mut self,
        txn: TxnId,
        (birth, at): (Timestamp, Timestamp),
        script: OperationScript<'_>,
    ) {
        for NodeOperation { node, write } in script.iter() {
            self.apply_operation(at, node, &write);
        }
        if txn != NO_TXN {
            self.outcomes.committed(txn, birth, at);
        }
    }

    pub(crate) fn apply_operation(&mut self, at: Timestamp, node: NodeId, write: &WriteOperation<'_>) {
        if let WriteOperation::Move { range, to } = write
            && to.server == node.server
        {
            // Rare: only splits move cells, and few transactions are prepared at a time.
            for prepared in self.prepared.values_mut() {
                prepared.moved(at, node, range, *to);
            }
        }
        self.last_change = self.last_change.max(at);
        self.watches.changes(at, node, write);
        self.store.apply((at, self.lsn), node, write);
    }

    pub(crate) fn prepare<'r>(
        &mut self,
        now: Now,
        request: &CommitRequest<'_>,
        terms: &VoteTerms<'_>,
        effects: &mut Effects,
    ) -> Result<Reply<'r>, Stop> {
        let CommitRequest { txn, birth, snapshot, payload, connection, .. } = *request;
        let CommitPayload { staged, operations, .. } = payload;
        let VoteTerms { participants, waits } = *terms;
        if let Some(prepared) = self.prepared.get(&txn) {
            return Ok(Reply::Voted(prepared.at));
        }
        if let Some(decision) = self.outcomes.distributed_outcome(txn) {
            return Ok(Reply::Vote(Vote::Decided(decision)));
        }
        self.check_birth(now, request)?;
        let snapshot = self.snapshot(now, snapshot)?;
        let parts = self.staging.take(txn.client, staged)?;
        let script = OperationScript::new(parts.as_ref(), operations);
        if let Err(stop) = self.check(now.uptime_ms, request, snapshot, script, true) {
            let stop = match stop {
                // Waiting here while holding votes at servers that come later in their order could
                // deadlock.
                Stop::Wait(by) if !waits => {
                    let node = script.iter().next().map_or(NodeId::default(), |operation| operation.node);
                    Stop::Refuse(None, Conflict::Prepared { node, by }.into())
                }
                Stop::Wait(by) => {
                    self.queue_targets = crate::queue::targets(script);
                    Stop::Wait(by)
                }
                stop => stop,
            };
            self.staging.put_back(txn.client, staged, parts);
            return Err(stop);
        }
        self.log_reported(txn.client, effects);
        let at = self.clock.tick(now.wall_ms);
        self.under_ceiling(at, effects);
        let record = LogRecord::Prepare { txn, birth, waits, at, participants, staged, operations };
        self.log(&record, effects);
        let vote = PreparedVote { at, birth, waits, participants: owned(&participants) };
        self.apply_prepare(now.uptime_ms, txn, vote, script);
        self.prepared_by(txn, connection);
        self.counts.prepares += 1;
        if let Some(prepared) = self.prepared.get_mut(&txn) {
            prepared.ends_lease = payload.ended_lease(txn);
        }
        self.touch(&operations);
        Ok(Reply::Voted(at))
    }

    /// Counts an access for each operation.
    fn touch(&mut self, operations: &Operations<'_>) {
        let load_max = self.settings.load_max();
        for NodeOperation { node: id, write } in operations.iter() {
            let Some(node) = self.store.get(id) else { continue };
            if node.load.touch(self.samples.second) > load_max
                && let Some(key) = write.key()
            {
                self.samples.note(id, key);
            }
        }
    }

    pub(crate) fn apply_prepare(
        &mut self,
        uptime_ms: u64,
        txn: TxnId,
        vote: PreparedVote,
        script: OperationScript<'_>,
    ) {
        let PreparedVote { at, birth, waits, participants } = vote;
        let pending: Vec<PendingWrite> =
            script.iter().map(|operation| PendingWrite::new(&operation)).collect();
        for pending in &pending {
            self.store.comes_again(pending.node.tree, at);
            // Its client may answer COMMIT before the decision is here.
            if let Some(operation) = pending.pending() {
                self.watches.changes(at, pending.node, &operation.write);
            }
            let target = pending.target();
            self.store.change(pending.node, |node| node.prepare(PreparedOperation { txn, at, target }));
            if pending.drops_tree() {
                self.store.end_tree(pending.node.tree, Some(TreeEnd::Prepared(txn, at)));
            }
            if pending.creates() {
                self.creating.insert(pending.node, txn);
            }
            if pending.departs() {
                self.departure_prepared(pending.node, txn);
            }
        }
        let bytes = self.reservation(script);
        self.reserved_bytes += bytes;
        let yes = Vec::new();
        let recovery = RecoveryTimer::new(uptime_ms, self.settings.recover_age_ms);
        let prepared = PreparedTxn {
            lsn: self.lsn,
            at,
            birth,
            waits,
            participants,
            pending,
            bytes,
            yes,
            recovery,
            ends_lease: None,
        };
        self.prepared.insert(txn, prepared);
    }

    /// Handles a decision of a client or of recovery. The caller must call [`Engine::after_end`].
    pub(crate) fn decide<'r>(
        &mut self,
        txn: TxnId,
        (birth, participants): (Timestamp, Participants<'_>),
        decision: Decision,
        effects: &mut Effects,
    ) -> Result<Reply<'r>, Refusal> {
        if let Some(prepared) = self.prepared.get(&txn) {
            let decision = match decision {
                // A commit time below a vote is wrong, from any sender.
                Decision::Commit(at) => Decision::Commit(at.max(prepared.at)),
                Decision::Abort => Decision::Abort,
            };
            let commits = matches!(decision, Decision::Commit(_));
            let ended = prepared.ends_lease.filter(|_| commits);
            if commits && prepared.participants.first() == Some(&self.settings.server) {
                self.commit_counts.committed(prepared.participants.len());
            }
            let (birth, all) = (prepared.birth, Arc::clone(&prepared.participants));
            let encoded = Participants::encode(&all);
            // They are in order.
            let participants = Participants::decode(&encoded).unwrap_or(Participants::NONE);
            self.log_reported(txn.client, effects);
            self.log(&LogRecord::Decide { txn, birth, participants, decision }, effects);
            self.apply_decision(txn, TransactionEnd { decision, birth, participants: all });
            ended.into_iter().for_each(|holder| self.release(holder));
            return Ok(Reply::Done);
        }
        match (self.outcomes.distributed_outcome(txn), decision) {
            (Some(end), _) if end == decision => Ok(Reply::Done),
            (Some(end), _) => {
                // No correct sender decides the opposite.
                self.counts.contradictions += 1;
                Ok(Reply::Outcome(TransactionOutcome::Decided(end)))
            }
            // Its end was durable before it was forgotten.
            (None, _) if self.outcomes.covers(txn, birth) => Ok(Reply::Done),
            // It would be half a transaction.
            (None, Decision::Commit(_)) => Err(Refusal::NotPrepared(txn)),
            // The transaction has not voted here and must not any more: a prepare may be in flight.
            (None, Decision::Abort) => {
                self.log_reported(txn.client, effects);
                self.log(&LogRecord::Decide { txn, birth, participants, decision }, effects);
                let participants = owned(&participants);
                self.apply_decision(txn, TransactionEnd { decision, birth, participants });
                self.queue.end(txn);
                Ok(Reply::Done)
            }
        }
    }

    pub(crate) fn apply_decision(&mut self, txn: TxnId, mut end: TransactionEnd) {
        if let Some(prepared) = self.prepared.remove(&txn) {
            // The records of earlier versions do not have them.
            end.birth = end.birth.max(prepared.birth);
            if end.participants.is_empty() {
                end.participants = prepared.participants;
            }
            self.reserved_bytes -= prepared.bytes;
            for pending in &prepared.pending {
                self.store.change(pending.node, |node| node.decided(txn));
                if pending.drops_tree() {
                    self.store.end_tree(pending.node.tree, None);
                }
                if pending.creates() {
                    self.creating.remove(&pending.node);
                }
            }
            if let Decision::Commit(at) = end.decision {
                self.clock = HybridClock::above(self.clock.last().max(at));
                self.read_below(at);
                if at > self.ceiling {
                    // Another group's vote: timestamps up to it depend on this record.
                    (self.ceiling, self.ceiling_lsn) = (at, self.lsn);
                }
                let readable = self.snapshots.readable();
                for pending in &prepared.pending {
                    if let Some(write) = pending.operation(at, readable) {
                        self.apply_operation(at, pending.node, &write);
                        if let Some((key, moved_at)) = pending.moved_away() {
                            self.store.end_at(moved_at, pending.node, key);
                        }
                    }
                }
                self.orphans_of_decision(at, prepared.pending.iter().map(|pending| pending.node));
            }
        }
        self.outcomes.decide(txn, end);
    }
}
