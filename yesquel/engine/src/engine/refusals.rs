//! Refusals of requests that are not examined, or wait; and which numbers are noted as refused.

use super::Engine;
use crate::effects::{Caller, Effects, Now, Stop};
use yesquel_model::{Refusal, Timestamp, TooFarAhead, TxnId};
use yesquel_wire::{Malformed, Reply, Request};

/// The transaction that a request wants to commit, or to vote for.
pub(super) fn asks_to_commit(request: &Request<'_>) -> Option<TxnId> {
    match request {
        Request::Commit { txn, .. } | Request::Prepare { txn, .. } => Some(*txn),
        _ => None,
    }
}

impl Engine {
    pub(super) fn refuse(&self, caller: Caller, refusal: Refusal, needs_lsn: u64, effects: &mut Effects) {
        let start = effects.bytes.len();
        Reply::Refused { operation: None, refusal }.write(&mut effects.bytes);
        self.reply(caller, start, needs_lsn, effects);
    }

    /// Refuses a request without examining it; but a copy of one that has a vote or an end gets the
    /// answer of the first, which may still wait for the disk.
    pub fn refuse_request(
        &mut self,
        now: Now,
        caller: Caller,
        bytes: &[u8],
        refusal: Refusal,
        effects: &mut Effects,
    ) -> Result<(), Malformed> {
        if let Some(txn) = asks_to_commit(&Request::decode(bytes)?) {
            let has_answer = self.prepared.contains_key(&txn)
                || self.outcomes.distributed_outcome(txn).is_some()
                || self.outcomes.single_server_outcome(txn).is_some();
            if has_answer {
                return self.handle(now, caller, bytes, effects);
            }
            self.refused.note(caller, txn, (None, refusal));
        }
        self.refuse(caller, refusal, 0, effects);
        Ok(())
    }

    /// Refuses all requests that wait.
    pub fn refuse_waiting(&mut self, refusal: Refusal, effects: &mut Effects) {
        let waiting = std::mem::take(&mut self.waiting).into_values().flatten();
        let waiting = waiting.map(|waiting| (waiting.caller, waiting.request));
        let delayed = std::mem::take(&mut self.delayed).into_iter();
        let delayed = delayed.map(|delayed| (delayed.caller, delayed.request));
        let queued = self.queue.remove(|_| true).into_iter().map(|queued| (queued.caller, queued.request));
        for (caller, bytes) in waiting.chain(queued).chain(delayed) {
            if let Some(txn) = Request::decode(&bytes).ok().as_ref().and_then(asks_to_commit) {
                self.refused.note(caller, txn, (None, refusal));
            }
            self.refuse(caller, refusal, 0, effects);
        }
        for caller in self.leases.take_waiting() {
            self.refuse(caller, refusal, 0, effects);
        }
    }

    /// Turns the delay of a prepare that was queued into a refusal: its stamp does not fit any more.
    pub(super) fn refuse_delay(&mut self, now: Now, caller: Caller, txn: TxnId, stop: Stop) -> Stop {
        let Stop::Delay { fits_at_ms } = stop else { return stop };
        let (given, ours) = (Timestamp::from_ms(fits_at_ms), Timestamp::from_ms(now.wall_ms));
        let refusal = Refusal::from(TooFarAhead { given, ours });
        self.refused.note(caller, txn, (None, refusal));
        Stop::Refuse(None, refusal)
    }
}
