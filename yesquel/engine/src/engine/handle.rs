//! Requests: answers, waits and the queue of prepares.

use super::{
    DelayedRequest, Engine, WaitingRequest,
    commit::{CommitRequest, VoteTerms},
    refusals::asks_to_commit,
};
use crate::{
    effects::{AddressedReply, Caller, Effects, Now, ReplyDurability, Stop},
    queue::QueuedPrepare,
    record::LogRecord,
    staging::CommitPayload,
    transaction::KnownVote,
    wanted_lease::WantedLease,
};
use yesquel_model::{Conflict, Refusal, TreeId, TxnId};
use yesquel_wire::{Malformed, Participants, Reply, Request, Vote};

/// The arrival of a request that comes now.
const ARRIVES_NOW: u64 = u64::MAX;

impl Engine {
    /// Answers a request, or keeps it until it can be answered. Malformed bytes are an error and
    /// change nothing.
    pub fn handle(
        &mut self,
        now: Now,
        caller: Caller,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<(), Malformed> {
        self.handle_arrived(now, caller, bytes, ARRIVES_NOW, effects)
    }

    /// Like [`handle`](Self::handle), for a request that may have waited before.
    fn handle_arrived(
        &mut self,
        now: Now,
        caller: Caller,
        bytes: &[u8],
        arrival: u64,
        effects: &mut Effects,
    ) -> Result<(), Malformed> {
        let start = effects.bytes.len();
        if let Some(needs_lsn) = self.peek(now, bytes, &mut effects.bytes) {
            self.reply(caller, start, needs_lsn, effects);
            return Ok(());
        }
        let request = Request::decode(bytes)?;
        if arrival == ARRIVES_NOW {
            self.commit_counts.received(&request);
        }
        if matches!(request, Request::Lease { .. }) {
            // Requests that wait for an expired lease come first.
            self.serve_leases(now, effects);
        }
        let start = effects.bytes.len();
        let (mut decided, mut queues) = (None, None);
        match &request {
            Request::Decide { txn, .. } => decided = Some(*txn),
            Request::Prepare { txn, waits: true, staged, .. } => {
                let name = staged.map(|staged| TxnId { number: staged.number, ..*txn });
                queues = Some((*txn, name));
            }
            _ => {}
        }
        let outcome = self.answer(now, (caller, arrival), request, effects);
        let outcome = match outcome {
            Err(Stop::Delay { fits_at_ms }) => {
                effects.bytes.truncate(start);
                self.delayed.push(DelayedRequest { caller, request: bytes.into(), fits_at_ms });
                return Ok(());
            }
            Err(Stop::Queue(wanted)) => {
                effects.bytes.truncate(start);
                self.enqueue(now, *wanted, caller, bytes, effects);
                return Ok(());
            }
            outcome => outcome,
        };
        if let Some(waits_for) = self.conclude(now, (caller, start), outcome, effects) {
            let (since_ms, request) = (now.uptime_ms, bytes);
            let arrival = if arrival == ARRIVES_NOW { self.queue.next_arrival() } else { arrival };
            match queues {
                Some((txn, staged)) => {
                    self.counts.queued += 1;
                    self.hasten_recovery(now, waits_for);
                    let writes = (staged, std::mem::take(&mut self.queue_targets));
                    let came = (since_ms, arrival);
                    self.queue.push(QueuedPrepare::new(txn, caller, request, came, writes));
                }
                None => {
                    let request = self.present_after_wait.take().map_or_else(|| request.into(), Vec::into);
                    self.wait_for(now, waits_for, WaitingRequest { caller, request, arrival })
                }
            }
        }
        if let Some(txn) = decided {
            // After the reply to the request itself, which is complete now.
            self.after_end(now, txn, effects);
        } else if self.queue.is_changed {
            self.advance_queue(now, effects);
        }
        if self.leases.is_freed() {
            self.serve_leases(now, effects);
        }
        Ok(())
    }

    /// Keeps a request until the end of a transaction.
    fn wait_for(&mut self, now: Now, txn: TxnId, waiting: WaitingRequest) {
        self.counts.waits += 1;
        self.hasten_recovery(now, txn);
        self.waiting.entry(txn).or_default().push(waiting);
    }

    /// Completes the reply to a lease request whose turn has come, or keeps it until the
    /// transactions that voted before have ended.
    pub(super) fn conclude_lease(
        &mut self,
        now: Now,
        (caller, start): (Caller, usize),
        bytes: &[u8],
        outcome: Result<u64, Stop>,
        effects: &mut Effects,
    ) {
        let outcome = outcome.map(|needs_lsn| (needs_lsn, ReplyDurability::Configured));
        if let Some(waits_for) = self.conclude(now, (caller, start), outcome, effects) {
            let arrival = self.queue.next_arrival();
            self.wait_for(now, waits_for, WaitingRequest { caller, request: bytes.into(), arrival });
        }
    }

    /// Completes a reply. Returns the transaction that the request must wait for, if there is one.
    fn conclude(
        &mut self,
        now: Now,
        (caller, start): (Caller, usize),
        outcome: Result<(u64, ReplyDurability), Stop>,
        effects: &mut Effects,
    ) -> Option<TxnId> {
        match outcome {
            Ok((needs_lsn, durability)) => {
                self.reply(caller, start, needs_lsn, effects);
                if let Some(reply) = effects.replies.last_mut() {
                    reply.durability = durability;
                }
            }
            Err(Stop::Wait(_)) if self.frozen.is_some() => {
                // No outcome can be recorded any more.
                effects.bytes.truncate(start);
                self.refuse(caller, Refusal::DiskFailed, 0, effects);
            }
            Err(Stop::Wait(txn)) => {
                effects.bytes.truncate(start);
                return Some(txn);
            }
            // Requests are delayed, and those for leases queued, when they come.
            Err(Stop::Delay { .. } | Stop::Queue(_)) => {
                effects.bytes.truncate(start);
                self.refuse(caller, Refusal::Leased { ms: 0 }, self.lsn, effects);
            }
            Err(Stop::Forgotten) => {
                effects.bytes.truncate(start);
                let clock = self.clock.now(now.wall_ms);
                let needs_lsn = self.under_ceiling(clock, effects);
                Reply::Forgotten(clock).write(&mut effects.bytes);
                self.reply(caller, start, needs_lsn.max(self.lsn), effects);
            }
            Err(Stop::Refuse(operation, refusal)) => {
                match refusal {
                    Refusal::Conflict(conflict) => {
                        self.counts.conflicts += 1;
                        let is_prepared = matches!(conflict, Conflict::Prepared { .. });
                        self.commit_counts.refused_prepared += u64::from(is_prepared);
                    }
                    Refusal::Moved(_) => self.counts.moved += 1,
                    _ => {}
                }
                effects.bytes.truncate(start);
                Reply::Refused { operation, refusal }.write(&mut effects.bytes);
                // A refusal reveals state too, unless it says that no state is served.
                let is_of_disk = matches!(refusal, Refusal::DiskFailed | Refusal::DiskFull);
                let needs_lsn = if is_of_disk { 0 } else { self.lsn };
                self.reply(caller, start, needs_lsn, effects);
            }
        }
        None
    }

    pub(crate) fn reply(&self, caller: Caller, start: usize, needs_lsn: u64, effects: &mut Effects) {
        let (durability, bytes) = (ReplyDurability::Configured, start..effects.bytes.len());
        effects.replies.push(AddressedReply { caller, needs_lsn, durability, bytes });
    }

    /// Answers a request; a copy of one that was refused is refused again.
    fn answer(
        &mut self,
        now: Now,
        (caller, arrival): (Caller, u64),
        request: Request<'_>,
        effects: &mut Effects,
    ) -> Result<(u64, ReplyDurability), Stop> {
        let Some(txn) = asks_to_commit(&request) else {
            return self.examine(now, (caller, arrival), request, effects);
        };
        if let Some((operation, refusal)) = self.refused.refusal(caller, txn) {
            return Err(Stop::Refuse(operation, refusal));
        }
        let outcome = self.examine(now, (caller, arrival), request, effects);
        if let Err(Stop::Refuse(operation, refusal)) = &outcome {
            self.refused.note(caller, txn, (*operation, *refusal));
        }
        outcome
    }

    /// Appends the reply to the effects' bytes and returns the log record that it depends on.
    fn examine(
        &mut self,
        now: Now,
        (caller, arrival): (Caller, u64),
        request: Request<'_>,
        effects: &mut Effects,
    ) -> Result<(u64, ReplyDurability), Stop> {
        if self.frozen.is_some() && !matches!(request, Request::Read { .. }) {
            return Err(Refusal::DiskFailed.into());
        }
        let mut durability = ReplyDurability::Configured;
        let reply = match request {
            Request::Read { snapshot, seen, questions } => {
                self.witness(now, seen)?;
                let snapshot = match self.read_bounds() {
                    Some(bounds) if snapshot.is_none() => Some(self.bounded_snapshot(now, bounds, seen)?),
                    _ => snapshot,
                };
                return Ok((self.read(now, caller.connection, snapshot, questions, effects)?, durability));
            }
            Request::Commit { txn, birth, snapshot, seen, lease, staged, operations } => {
                self.witness(now, seen)?;
                let payload = CommitPayload { lease, staged, operations };
                let connection = caller.connection;
                let request = CommitRequest { txn, birth, snapshot, payload, connection, arrival };
                Reply::Committed(self.commit(now, &request, effects)?)
            }
            Request::Prepare {
                txn,
                birth,
                waits,
                snapshot,
                seen,
                participants,
                lease,
                staged,
                operations,
            } => {
                self.witness(now, seen)?;
                durability = ReplyDurability::SyncedNow;
                let payload = CommitPayload { lease, staged, operations };
                let connection = caller.connection;
                let request = CommitRequest { txn, birth, snapshot, payload, connection, arrival };
                let terms = VoteTerms { participants, waits };
                self.prepare(now, &request, &terms, effects)?
            }
            Request::Stage { name, part, operations } => {
                self.stage(now, name, part, &operations, effects)?;
                Reply::Done
            }
            Request::Unstage { name } => {
                if self.staging.remove(name).is_some() {
                    self.log(&LogRecord::Unstage { name }, effects);
                }
                Reply::Done
            }
            Request::Decide { txn, birth, participants, decision } => {
                durability = ReplyDurability::Synced;
                self.count_recovery_end(txn, None);
                self.decide(txn, (birth, participants), decision, effects)?
            }
            Request::Resolve { txn, birth, participants, is_voter } => {
                let (vote, participants) = self.vote_of(now, txn, (birth, participants), is_voter, effects);
                let participants = Participants::encode(&participants);
                // It was encoded in order just now.
                let participants = Participants::decode(&participants).unwrap_or(Participants::NONE);
                let vote = match vote {
                    KnownVote::Yes(at) => Vote::Yes { at, participants },
                    KnownVote::No => Vote::No,
                    KnownVote::Decided(decision) => Vote::Decided(decision),
                    KnownVote::Waiting => Vote::Waiting,
                    KnownVote::Forgotten => Vote::Forgotten,
                };
                Reply::Vote(vote).write(&mut effects.bytes);
                return Ok((self.lsn, ReplyDurability::SyncedNow));
            }
            Request::Outcome { txn, birth } => {
                durability = ReplyDurability::SyncedNow;
                Reply::Outcome(self.outcome(txn, birth, effects))
            }
            Request::Ended { client, transactions } => {
                let flags = self.have_ended(client, &transactions, effects);
                Reply::Ended(&flags).write(&mut effects.bytes);
                return Ok((self.lsn, ReplyDurability::Synced));
            }
            Request::DropValue { value, nodes, since } => {
                durability = ReplyDurability::Synced;
                self.drop_value(now, (value, nodes), since, effects)
            }
            Request::ValueUse { root, key, value } => {
                durability = ReplyDurability::Synced;
                self.value_use(now, root, key, value)
            }
            Request::Lease { holder, ranges, ms, wait_ms, seen } => {
                self.check_disk()?;
                self.witness(now, seen)?;
                let wanted = WantedLease { holder, ranges, ms, wait_ms };
                let (at, needs_lsn) = self.lease(now, caller, wanted, effects)?;
                Reply::Leased(at).write(&mut effects.bytes);
                return Ok((needs_lsn, durability));
            }
            Request::Release { holder } => {
                self.release(holder);
                Reply::Done
            }
            Request::Present { asked, seen, votes_until } => {
                self.check_disk()?;
                self.witness(now, seen)?;
                let (at, needs_lsn) = self.present_clock(now, (asked, seen, votes_until), effects)?;
                Reply::Present(at).write(&mut effects.bytes);
                return Ok((needs_lsn, durability));
            }
            // The driver answers these; it knows more.
            Request::Inspect { .. }
            | Request::InspectAfter { .. }
            | Request::Directory
            | Request::Join { .. }
            | Request::Manage { .. } => Reply::Report(b"{}"),
            Request::Take { node, count, above } => {
                if node.tree == TreeId::default() {
                    // Numbers that are unique in the cluster are never given out twice.
                    durability = ReplyDurability::SyncedNow;
                }
                Reply::Taken(self.take(node, count, above, effects)?)
            }
        };
        reply.write(&mut effects.bytes);
        Ok((self.lsn, durability))
    }

    pub(crate) fn log(&mut self, record: &LogRecord<'_>, effects: &mut Effects) {
        record.write(&mut effects.log);
        effects.record_ends.push(effects.log.len());
        self.lsn += 1;
    }

    /// Retries the requests that waited for a transaction.
    fn wake(&mut self, now: Now, txn: TxnId, effects: &mut Effects) {
        let woken = self.waiting.remove(&txn).unwrap_or_default();
        for WaitingRequest { caller, request, arrival, .. } in woken {
            // The request was checked when it arrived.
            let handled = self.handle_arrived(now, caller, &request, arrival, effects);
            debug_assert!(handled.is_ok());
        }
    }

    /// Goes on after the end of a transaction that had voted: with the requests that waited for it,
    /// and then with the queue. Each of them yields to what was queued before it.
    pub(crate) fn after_end(&mut self, now: Now, txn: TxnId, effects: &mut Effects) {
        self.wake(now, txn, effects);
        self.queue.is_changed = !self.queue.is_empty() || self.queue.is_changed;
        self.advance_queue(now, effects);
    }

    /// Lets the queued prepares vote that need not wait any more, in the order of their arrival.
    pub(super) fn advance_queue(&mut self, now: Now, effects: &mut Effects) {
        while std::mem::take(&mut self.queue.is_changed) {
            for (txn, caller) in self.queue.take_left() {
                if let Some(caller) = caller {
                    let (start, refusal) = (effects.bytes.len(), Refusal::GivenUp(txn));
                    Reply::Refused { operation: None, refusal }.write(&mut effects.bytes);
                    self.reply(caller, start, self.lsn, effects);
                }
                self.wake(now, txn, effects);
            }
            let mut place = 0;
            while let Some(queued) = self.queue.at(place) {
                let (txn, caller, arrival) = (queued.txn, queued.caller, queued.arrival);
                let bytes = std::mem::take(&mut queued.request);
                // It was checked when it arrived.
                let Ok(request) = Request::decode(&bytes) else { return };
                let start = effects.bytes.len();
                let outcome = self.answer(now, (caller, arrival), request, effects);
                let outcome = outcome.map_err(|stop| self.refuse_delay(now, caller, txn, stop));
                let has_voted = outcome.is_ok();
                let waits_for = self.conclude(now, (caller, start), outcome, effects);
                match (waits_for, self.queue.at(place)) {
                    (Some(waits_for), Some(queued)) => {
                        queued.request = bytes;
                        self.hasten_recovery(now, waits_for);
                        place += 1;
                    }
                    // Whatever waits for it now waits for its end.
                    (None, Some(queued)) if has_voted => {
                        let txn = queued.txn;
                        self.queue.voted(place);
                        if self.waiting.contains_key(&txn) {
                            self.hasten_recovery(now, txn);
                        }
                    }
                    _ => drop(self.queue.remove(|queued| queued.arrival == arrival)),
                }
            }
        }
    }
}
