//! Leases: requests for them, and the queue in which they wait for their turns.

use super::Engine;
use crate::{
    effects::{Caller, Effects, Now, Stop},
    leases::LeaseTurn,
    transaction::PendingWrite,
    wanted_lease::WantedLease,
};
use yesquel_model::{Refusal, Timestamp, TxnId};
use yesquel_wire::{Reply, Request};

impl Engine {
    /// Takes or renews a lease, or queues the request until its turn.
    pub(crate) fn lease(
        &mut self,
        now: Now,
        caller: Caller,
        wanted: WantedLease,
        effects: &mut Effects,
    ) -> Result<(Timestamp, u64), Stop> {
        match self.leases.turn_ms(now.uptime_ms, &wanted) {
            None => self.grant(now, caller, wanted, effects),
            Some(ms) if wanted.wait_ms == 0 => Err(Refusal::Leased { ms }.into()),
            Some(_) if self.leases.has_place(&wanted) => Err(Stop::Queue(Box::new(wanted))),
            Some(_) => Err(Refusal::TooManyLeases.into()),
        }
    }

    /// Takes or renews a lease whose turn has come. It holds against all transactions from now on,
    /// and the reply waits until the transactions that voted before have ended.
    fn grant(
        &mut self,
        now: Now,
        caller: Caller,
        wanted: WantedLease,
        effects: &mut Effects,
    ) -> Result<(Timestamp, u64), Stop> {
        let ranges = wanted.ranges.clone();
        self.leases.take(now.uptime_ms, wanted, caller.connection)?;
        let is_in =
            |pending: &PendingWrite| ranges.iter().any(|(tree, range)| pending.overlaps(*tree, range));
        let prepared = self.prepared.iter().find(|(_, prepared)| prepared.pending.iter().any(is_in));
        if let Some((txn, _)) = prepared {
            return Err(Stop::Wait(*txn));
        }
        let at = self.clock.now(now.wall_ms);
        let needs_lsn = self.under_ceiling(at, effects);
        Ok((at, needs_lsn.max(self.lsn)))
    }

    /// Queues a request until its turn.
    pub(crate) fn enqueue(
        &mut self,
        now: Now,
        wanted: WantedLease,
        caller: Caller,
        bytes: &[u8],
        effects: &mut Effects,
    ) {
        self.counts.waits += 1;
        if let Some(before) = self.leases.enqueue(now.uptime_ms, wanted, caller, bytes) {
            self.refuse(before, Refusal::Leased { ms: 0 }, self.lsn, effects);
        }
    }

    /// Ends the leases of a holder, and its requests that wait.
    pub(crate) fn release(&mut self, holder: TxnId) {
        self.leases.release(holder);
        let Engine { waiting, delayed, leases, .. } = self;
        let mut is_kept = |caller: Caller, request: &[u8]| {
            let request = Request::decode(request);
            let is_own = matches!(request, Ok(Request::Lease { holder: own, .. }) if own == holder);
            if is_own {
                leases.withdraw(caller);
            }
            !is_own
        };
        for waiting in waiting.values_mut() {
            waiting.retain(|waiting| is_kept(waiting.caller, &waiting.request));
        }
        waiting.retain(|_, waiting| !waiting.is_empty());
        delayed.retain(|delayed| is_kept(delayed.caller, &delayed.request));
    }

    /// Ends expired leases and waits, and answers the requests whose turn has come.
    pub(crate) fn serve_leases(&mut self, now: Now, effects: &mut Effects) {
        self.leases.expire(now.uptime_ms);
        for caller in self.leases.take_withdrawn() {
            self.refuse(caller, Refusal::Leased { ms: 0 }, self.lsn, effects);
        }
        let mut place = 0;
        while let Some(turn) = self.leases.next_turn(now.uptime_ms, &mut place) {
            let start = effects.bytes.len();
            match turn {
                LeaseTurn::Take(wanted, caller, bytes) => {
                    let granted = self.grant(now, caller, wanted, effects);
                    let outcome = granted.map(|(at, needs_lsn)| {
                        Reply::Leased(at).write(&mut effects.bytes);
                        needs_lsn
                    });
                    self.conclude_lease(now, (caller, start), &bytes, outcome, effects);
                }
                LeaseTurn::Refuse(caller, ms) => {
                    self.refuse(caller, Refusal::Leased { ms }, self.lsn, effects);
                }
            }
        }
    }
}
