//! Questions for votes and outcomes: the answers, and what recovery makes of those of others.

use super::{Engine, commit::owned};
use crate::{
    effects::{Effects, Now, VoteQuery},
    outcomes::TransactionEnd,
    queue::{QUEUED_MS_MAX, QueuedPrepare},
    record::LogRecord,
    recovery_timer::RecoveryCause,
    transaction::KnownVote,
};
use std::sync::Arc;
use yesquel_model::{ServerId, Timestamp, TxnId};
use yesquel_wire::{Decision, Participants, Request, TransactionList, TransactionOutcome, Vote};

impl Engine {
    /// Returns this server's vote; if it has not voted, it votes no now.
    pub(crate) fn vote_of(
        &mut self,
        now: Now,
        txn: TxnId,
        (birth, participants): (Timestamp, Participants<'_>),
        is_voter: bool,
        effects: &mut Effects,
    ) -> (KnownVote, Arc<[ServerId]>) {
        let none = || Arc::from([]);
        if let Some(decision) = self.outcomes.distributed_outcome(txn) {
            return (KnownVote::Decided(decision), none());
        }
        if let Some(prepared) = self.prepared.get(&txn) {
            return (KnownVote::Yes(prepared.at), Arc::clone(&prepared.participants));
        }
        if self.queue.get(txn).is_some_and(|queued| queued.since_ms + QUEUED_MS_MAX > now.uptime_ms) {
            return (KnownVote::Waiting, none());
        }
        if self.outcomes.covers(txn, birth) {
            // A participant that has voted never gets a wrong no: what it asks for is forgotten only
            // after it has ended there.
            return (if is_voter { KnownVote::No } else { KnownVote::Forgotten }, none());
        }
        self.force_no(txn, birth, &participants, effects);
        (KnownVote::No, none())
    }

    /// Votes no, although the transaction may still ask for the vote.
    fn force_no(
        &mut self,
        txn: TxnId,
        birth: Timestamp,
        participants: &Participants<'_>,
        effects: &mut Effects,
    ) {
        self.log(&LogRecord::Refuse { txn, birth, participants: *participants }, effects);
        let (decision, participants) = (Decision::Abort, owned(participants));
        self.apply_decision(txn, TransactionEnd { decision, birth, participants });
        self.queue.end(txn);
    }

    /// Returns the outcome of a transaction of this server alone; if it has not ended, it is given
    /// up.
    pub(crate) fn outcome(
        &mut self,
        txn: TxnId,
        birth: Timestamp,
        effects: &mut Effects,
    ) -> TransactionOutcome {
        if let Some(decision) = self.outcomes.single_server_outcome(txn) {
            return TransactionOutcome::Decided(decision);
        }
        if self.outcomes.covers(txn, birth) {
            return TransactionOutcome::Forgotten;
        }
        self.log(&LogRecord::GiveUp { txn, birth }, effects);
        self.outcomes.give_up(txn, birth);
        TransactionOutcome::Decided(Decision::Abort)
    }

    /// Answers whether transactions of a client have ended here: one flag each. Those without a vote
    /// end now.
    pub(crate) fn have_ended(
        &mut self,
        client: u64,
        transactions: &TransactionList<'_>,
        effects: &mut Effects,
    ) -> Vec<u8> {
        let mut flags = Vec::new();
        for (number, birth, participants) in transactions.iter() {
            let txn = TxnId { client, number };
            let is_open = self.prepared.contains_key(&txn) || self.queue.get(txn).is_some();
            let is_known = self.outcomes.distributed_outcome(txn).is_some();
            if !is_open && !is_known && !self.outcomes.covers(txn, birth) {
                self.force_no(txn, birth, &participants, effects);
            }
            flags.push(u8::from(!is_open));
        }
        flags
    }

    /// Handles the answer to a [`VoteQuery`].
    pub fn on_vote(&mut self, now: Now, ask: &VoteQuery, vote: &Vote<'_>, effects: &mut Effects) {
        let Some(prepared) = self.prepared.get_mut(&ask.txn) else { return };
        let decision = match vote {
            Vote::Decided(decision) => *decision,
            Vote::No => Decision::Abort,
            // The client still decides.
            Vote::Waiting => return prepared.recovery.is_queued_elsewhere(now.uptime_ms),
            Vote::Forgotten => return prepared.recovery.is_forgotten_elsewhere(),
            Vote::Yes { at, .. } => {
                if !prepared.yes.iter().any(|(server, _)| *server == ask.server) {
                    prepared.yes.push((ask.server, *at));
                }
                let known = |server: &ServerId| prepared.yes.iter().any(|(yes, _)| yes == server);
                if !prepared.participants.iter().all(known) {
                    if prepared.waits && ask.server != self.settings.server {
                        self.ask_for_votes(ask.txn, effects);
                    }
                    return;
                }
                let last = prepared.yes.iter().map(|(_, at)| *at).max();
                Decision::Commit(last.unwrap_or(prepared.at))
            }
        };
        self.counts.recovered += 1;
        self.count_recovery_end(ask.txn, Some(decision));
        // It is prepared, so that the decision is obeyed, by the birth and participants of the vote.
        let decided = self.decide(ask.txn, (ask.birth, Participants::NONE), decision, effects);
        debug_assert!(decided.is_ok());
        self.recover_client(now, ask.txn.client, effects);
        self.after_end(now, ask.txn, effects);
    }

    /// A client has left a transaction to recovery, and perhaps is dead: its other ones here are
    /// recovered too, and those that have been queued for as long leave the queue. Otherwise those
    /// that wait for each other would end one after the other.
    fn recover_client(&mut self, now: Now, client: u64, effects: &mut Effects) {
        for (txn, prepared) in &mut self.prepared {
            if txn.client == client {
                prepared.recovery.hasten(now.uptime_ms, RecoveryCause::Client);
            }
        }
        let is_meant = |queued: &&QueuedPrepare| {
            queued.txn.client == client && queued.since_ms + self.settings.recover_after_ms <= now.uptime_ms
        };
        let requests: Vec<Box<[u8]>> =
            self.queue.iter().filter(is_meant).map(|queued| queued.request.clone()).collect();
        for request in requests {
            if let Ok(Request::Prepare { txn, birth, participants, .. }) = Request::decode(&request) {
                self.force_no(txn, birth, &participants, effects);
            }
        }
    }

    /// Asks the participants of an undecided transaction for their votes.
    pub fn recover(&mut self, now: Now, txn: TxnId, effects: &mut Effects) {
        let us = self.settings.server;
        let Some(prepared) = self.prepared.get(&txn) else { return };
        let (at, birth, participants) = (prepared.at, prepared.birth, Arc::clone(&prepared.participants));
        let is_on_disk = prepared.lsn <= self.synced_lsn;
        self.ask_for_votes(txn, effects);
        if !is_on_disk {
            // A crash could take this server's vote back. The next attempt counts it.
            return;
        }
        let vote = Vote::Yes { at, participants: Participants::NONE };
        self.on_vote(now, &VoteQuery { server: us, txn, birth, participants }, &vote, effects);
    }

    /// Asks for the votes that are not known: all of them, or the first one if the client asks the
    /// participants one after the other, for those behind it were not asked for their votes yet.
    fn ask_for_votes(&self, txn: TxnId, effects: &mut Effects) {
        let Some(prepared) = self.prepared.get(&txn) else { return };
        let is_unknown = |server: &&ServerId| {
            **server != self.settings.server && !prepared.yes.iter().any(|(yes, _)| yes == *server)
        };
        let most = if prepared.waits { 1 } else { usize::MAX };
        let (birth, participants) = (prepared.birth, &prepared.participants);
        let queries = participants.iter().filter(is_unknown).take(most).map(|server| VoteQuery {
            server: *server,
            txn,
            birth,
            participants: Arc::clone(participants),
        });
        effects.vote_queries.extend(queries);
    }
}
