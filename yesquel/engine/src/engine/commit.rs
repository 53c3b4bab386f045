//! Commit of transactions in one phase or two, and recovery of undecided ones.
//! `docs/yesquel/commit.md` has every branch.

use super::Engine;
use crate::{
    effects::{Effects, Now, Stop, VoteQuery},
    record::{LogRecord, NO_TXN},
    recovery_timer::RecoveryTimer,
    staging::{CommitPayload, OperationScript},
    store::TreeEnd,
    transaction::{KnownVote, PendingWrite, PreparedTxn},
    write_target::PreparedOperation,
};
use yesquel_model::{Conflict, HybridClock, NodeId, Refusal, ServerId, Timestamp, TxnId};
use yesquel_wire::{
    Decision, ENDS_LEASE, NodeOperation, Operations, Participants, TransactionOutcome, Vote, WriteOperation,
};

impl Engine {
    /// Checks all operations. Nothing is changed.
    fn check(
        &mut self,
        now_ms: u64,
        holder: TxnId,
        snapshot: Timestamp,
        script: OperationScript<'_>,
        prepares: bool,
    ) -> Result<(), Stop> {
        self.check_each(now_ms, holder, snapshot, script)?;
        self.fits(script, prepares)
    }

    pub(crate) fn commit(
        &mut self,
        now: Now,
        txn: TxnId,
        snapshot: Option<Timestamp>,
        CommitPayload { lease, staged, operations }: CommitPayload<'_>,
        effects: &mut Effects,
    ) -> Result<Timestamp, Stop> {
        match self.outcomes.single_server_outcome(txn) {
            None => {}
            // The request was sent again.
            Some(TransactionOutcome::Decided(Decision::Commit(at))) => return Ok(at),
            Some(_) => return Err(Refusal::GivenUp(txn).into()),
        }
        let snapshot = self.snapshot(now, snapshot)?;
        let parts = self.staging.take(txn.client, staged)?;
        let script = OperationScript::new(parts.as_ref(), operations);
        let holder = TxnId { number: lease & !ENDS_LEASE, ..txn };
        if let Err(stop) = self.check(now.uptime_ms, holder, snapshot, script, false) {
            self.staging.put_back(txn.client, staged, parts);
            return Err(stop);
        }
        let at = self.clock.tick(now.wall_ms);
        self.under_ceiling(at, effects);
        self.log(&LogRecord::Commit { txn, at, staged, operations }, effects);
        self.apply_commit(now.uptime_ms, txn, at, script);
        self.counts.commits += 1;
        self.touch(&operations);
        if lease & ENDS_LEASE != 0 {
            self.release(holder);
        }
        Ok(at)
    }

    pub(crate) fn apply_commit(
        &mut self,
        uptime_ms: u64,
        txn: TxnId,
        at: Timestamp,
        script: OperationScript<'_>,
    ) {
        for NodeOperation { node, write } in script.iter() {
            self.apply_operation(at, node, &write);
        }
        if txn != NO_TXN {
            self.outcomes.committed(txn, at, uptime_ms);
        }
    }

    pub(crate) fn apply_operation(&mut self, at: Timestamp, node: NodeId, write: &WriteOperation<'_>) {
        if let WriteOperation::Move { range, to } = write {
            // Rare: only splits move cells, and few transactions are prepared at a time.
            for prepared in self.prepared.values_mut() {
                prepared.moved(at, node, range, *to);
            }
        }
        self.store.apply((at, self.lsn), node, write);
    }

    pub(crate) fn prepare(
        &mut self,
        now: Now,
        txn: TxnId,
        snapshot: Option<Timestamp>,
        participants: &Participants<'_>,
        CommitPayload { lease, staged, operations }: CommitPayload<'_>,
        effects: &mut Effects,
    ) -> Result<Timestamp, Stop> {
        if let Some(prepared) = self.prepared.get(&txn) {
            return Ok(prepared.at);
        }
        match self.outcomes.distributed_outcome(txn) {
            None => {}
            Some(Decision::Commit(at)) => return Ok(at),
            Some(Decision::Abort) => return Err(Refusal::GivenUp(txn).into()),
        }
        let snapshot = self.snapshot(now, snapshot)?;
        let parts = self.staging.take(txn.client, staged)?;
        let script = OperationScript::new(parts.as_ref(), operations);
        let holder = TxnId { number: lease & !ENDS_LEASE, ..txn };
        if let Err(stop) = self.check(now.uptime_ms, holder, snapshot, script, true) {
            // Prepare never blocks: waiting here while holding votes elsewhere could deadlock
            // across servers.
            let stop = match stop {
                Stop::Wait(by) => {
                    let node = script.iter().next().map_or(NodeId::default(), |operation| operation.node);
                    Stop::Refuse(None, Conflict::Prepared { node, by }.into())
                }
                stop => stop,
            };
            self.staging.put_back(txn.client, staged, parts);
            return Err(stop);
        }
        let at = self.clock.tick(now.wall_ms);
        self.under_ceiling(at, effects);
        let record = LogRecord::Prepare { txn, at, participants: *participants, staged, operations };
        self.log(&record, effects);
        self.apply_prepare(now.uptime_ms, txn, at, participants, script);
        self.counts.prepares += 1;
        if lease & ENDS_LEASE != 0
            && let Some(prepared) = self.prepared.get_mut(&txn)
        {
            prepared.ends_lease = Some(holder);
        }
        self.touch(&operations);
        Ok(at)
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
        at: Timestamp,
        participants: &Participants<'_>,
        script: OperationScript<'_>,
    ) {
        let pending: Vec<PendingWrite> =
            script.iter().map(|operation| PendingWrite::new(&operation)).collect();
        for pending in &pending {
            self.store.comes_again(pending.node.tree, at);
            let target = pending.target();
            self.store.change(pending.node, |node| node.prepare(PreparedOperation { txn, at, target }));
            if pending.drops_tree() {
                self.store.end_tree(pending.node.tree, Some(TreeEnd::Prepared(txn, at)));
            }
            if pending.creates() {
                self.creating.insert(pending.node, txn);
            }
        }
        let participants = participants.iter().collect();
        let bytes = self.reservation(script);
        self.reserved_bytes += bytes;
        let recovery = RecoveryTimer::new(uptime_ms, self.settings.recover_age_ms);
        let prepared =
            PreparedTxn { at, participants, pending, bytes, yes: Vec::new(), recovery, ends_lease: None };
        self.prepared.insert(txn, prepared);
    }

    /// The caller must wake the requests that wait for the transaction.
    pub(crate) fn decide(&mut self, txn: TxnId, decision: Decision, effects: &mut Effects) {
        if let Some(prepared) = self.prepared.get(&txn) {
            let decision = match decision {
                // A commit time below a vote is wrong, from any sender.
                Decision::Commit(at) => Decision::Commit(at.max(prepared.at)),
                Decision::Abort => Decision::Abort,
            };
            let ended = prepared.ends_lease.filter(|_| matches!(decision, Decision::Commit(_)));
            self.log(&LogRecord::Decide { txn, decision }, effects);
            self.apply_decision(txn, decision);
            ended.into_iter().for_each(|holder| self.release(holder));
        } else if decision == Decision::Abort && self.outcomes.distributed_outcome(txn).is_none() {
            // The transaction has not voted here and must not any more: a prepare may be in flight.
            self.log(&LogRecord::Decide { txn, decision }, effects);
            self.apply_decision(txn, decision);
        }
    }

    pub(crate) fn apply_decision(&mut self, txn: TxnId, decision: Decision) {
        if let Some(prepared) = self.prepared.remove(&txn) {
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
            if let Decision::Commit(at) = decision {
                self.clock = HybridClock::above(self.clock.last().max(at));
                let readable = self.snapshots.readable();
                for pending in &prepared.pending {
                    if let Some(write) = pending.operation(at, readable) {
                        self.apply_operation(at, pending.node, &write);
                        if let Some((key, moved_at)) = pending.moved_away() {
                            self.store.end_at(moved_at, pending.node, key);
                        }
                    }
                }
            }
        }
        self.outcomes.decide(txn, decision);
    }

    /// Returns this server's vote; if it has not voted, it votes no now.
    pub(crate) fn vote_of(&mut self, txn: TxnId, effects: &mut Effects) -> (KnownVote, Vec<ServerId>) {
        if let Some(decision) = self.outcomes.distributed_outcome(txn) {
            return (KnownVote::Decided(decision), Vec::new());
        }
        if let Some(prepared) = self.prepared.get(&txn) {
            return (KnownVote::Yes(prepared.at), prepared.participants.clone());
        }
        self.log(&LogRecord::Decide { txn, decision: Decision::Abort }, effects);
        self.apply_decision(txn, Decision::Abort);
        (KnownVote::No, Vec::new())
    }

    pub(crate) fn outcome(&mut self, now: Now, txn: TxnId) -> TransactionOutcome {
        self.outcomes.single_server_outcome(txn).unwrap_or_else(|| {
            self.outcomes.give_up(txn, now.uptime_ms);
            TransactionOutcome::Decided(Decision::Abort)
        })
    }

    /// Handles the answer to a [`VoteQuery`].
    pub fn on_vote(&mut self, now: Now, ask: VoteQuery, vote: &Vote<'_>, effects: &mut Effects) {
        let Some(prepared) = self.prepared.get_mut(&ask.txn) else { return };
        let decision = match vote {
            Vote::Decided(decision) => *decision,
            Vote::No => Decision::Abort,
            Vote::Yes { at, .. } => {
                if !prepared.yes.iter().any(|(server, _)| *server == ask.server) {
                    prepared.yes.push((ask.server, *at));
                }
                let known = |server: &ServerId| prepared.yes.iter().any(|(yes, _)| yes == server);
                if !prepared.participants.iter().all(known) {
                    return;
                }
                let last = prepared.yes.iter().map(|(_, at)| *at).max();
                Decision::Commit(last.unwrap_or(prepared.at))
            }
        };
        self.decide(ask.txn, decision, effects);
        self.wake(now, ask.txn, effects);
    }

    /// Asks the participants of an undecided transaction for their votes.
    pub fn recover(&mut self, now: Now, txn: TxnId, effects: &mut Effects) {
        let Some(prepared) = self.prepared.get(&txn) else { return };
        let (us, at) = (self.settings.server, prepared.at);
        let others = prepared.participants.iter().filter(|server| **server != us);
        effects.vote_queries.extend(others.map(|server| VoteQuery { server: *server, txn }));
        let vote = Vote::Yes { at, participants: Participants::NONE };
        self.on_vote(now, VoteQuery { server: us, txn }, &vote, effects);
    }
}
