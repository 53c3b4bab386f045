//! Taking a lease.

use super::Engine;
use crate::{
    effects::{Effects, Now, Stop},
    leases::Lease,
};
use yesquel_model::{KeyRange, Refusal, Timestamp, TreeId, TxnId, limits};

impl Engine {
    /// Takes a lease, or makes one's own last longer. It holds against all who
    /// come from now on, and is answered once those have ended that had voted
    /// before.
    pub(crate) fn lease(
        &mut self,
        now: Now,
        holder: TxnId,
        (tree, range): (TreeId, KeyRange),
        ms: u64,
        effects: &mut Effects,
    ) -> Result<(Timestamp, u64), Stop> {
        self.leases.expire(now.uptime_ms);
        if let Some(ms) = self.leases.wait_ms(tree, now.uptime_ms, holder, |other| other.meets(&range)) {
            return Err(Refusal::Leased { ms }.into());
        }
        let until_ms = now.uptime_ms.saturating_add(ms.min(limits::LEASE_MS_MAX));
        self.leases.take(tree, Lease { holder, range: range.clone(), until_ms })?;
        let voted = self
            .voted
            .iter()
            .find(|(_, voted)| voted.planned.iter().any(|planned| planned.meets(tree, &range)));
        if let Some((txn, _)) = voted {
            return Err(Stop::Wait(*txn));
        }
        let at = self.clock.now(now.wall_ms);
        let needs_lsn = self.under_ceiling(at, effects);
        Ok((at, needs_lsn.max(self.lsn)))
    }
}
