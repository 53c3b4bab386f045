//! Taking a lease.

use super::Engine;
use crate::{
    effects::{Effects, Now, Stop},
    leases::HeldLease,
};
use yesquel_model::{KeyRange, Refusal, Timestamp, TreeId, TxnId, limits};

impl Engine {
    /// Takes or renews a lease. It holds against all transactions from now on, and the reply waits
    /// until the transactions that voted before have ended.
    pub(crate) fn lease(
        &mut self,
        now: Now,
        holder: TxnId,
        (tree, range): (TreeId, KeyRange),
        ms: u64,
        effects: &mut Effects,
    ) -> Result<(Timestamp, u64), Stop> {
        self.leases.expire(now.uptime_ms);
        if let Some(ms) = self.leases.wait_ms(tree, now.uptime_ms, holder, |other| other.overlaps(&range)) {
            return Err(Refusal::Leased { ms }.into());
        }
        let until_ms = now.uptime_ms.saturating_add(ms.min(limits::LEASE_MS_MAX));
        self.leases.take(tree, HeldLease { holder, range: range.clone(), until_ms })?;
        let prepared = self
            .prepared
            .iter()
            .find(|(_, prepared)| prepared.pending.iter().any(|pending| pending.overlaps(tree, &range)));
        if let Some((txn, _)) = prepared {
            return Err(Stop::Wait(*txn));
        }
        let at = self.clock.now(now.wall_ms);
        let needs_lsn = self.under_ceiling(at, effects);
        Ok((at, needs_lsn.max(self.lsn)))
    }
}
