//! Leases: for a while only one may write within a range of a tree, so that
//! its transactions lose to nobody. `docs/yesquel/leases.md` has the laws.

use crate::engine::{Effects, Engine, Now, Stop};
use rustc_hash::FxHashMap;
use yesquel_model::{KeyRange, Refusal, Timestamp, TreeId, TxnId, limits};
use yesquel_wire::{NodeKind, WriteOperation};

/// What one may write in, and nobody else.
#[derive(Debug)]
struct Lease {
    holder: TxnId,
    range: KeyRange,
    /// Of the time that never goes back.
    until_ms: u64,
}

/// The leases of a server. Nothing of them is on disk: they keep transactions
/// from losing, not from harm.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    trees: FxHashMap<TreeId, Vec<Lease>>,
    count: usize,
}

impl Leases {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Lets those go whose time is over.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        if self.count > 0 {
            self.keep(|lease| lease.until_ms > now_ms);
        }
    }

    pub(crate) fn release(&mut self, holder: TxnId) {
        self.keep(|lease| lease.holder != holder);
    }

    fn keep(&mut self, is_kept: impl Fn(&Lease) -> bool) {
        for leases in self.trees.values_mut() {
            leases.retain(&is_kept);
        }
        self.trees.retain(|_, leases| !leases.is_empty());
        self.count = self.trees.values().map(Vec::len).sum();
    }

    /// For how long one who is not the holder must wait for what `is_met`.
    fn wait_ms(
        &self,
        tree: TreeId,
        now_ms: u64,
        own: TxnId,
        is_met: impl Fn(&KeyRange) -> bool,
    ) -> Option<u64> {
        let is_others =
            |lease: &&Lease| lease.holder != own && lease.until_ms > now_ms && is_met(&lease.range);
        self.trees.get(&tree)?.iter().filter(is_others).map(|lease| lease.until_ms - now_ms).max()
    }

    fn take(&mut self, tree: TreeId, lease: Lease) -> Result<(), Refusal> {
        let leases = self.trees.entry(tree).or_default();
        match leases.iter_mut().find(|own| own.holder == lease.holder && own.range == lease.range) {
            Some(own) => own.until_ms = lease.until_ms,
            None if self.count >= limits::LEASES_MAX => return Err(Refusal::TooManyLeases),
            None => {
                leases.push(lease);
                self.count += 1;
            }
        }
        Ok(())
    }

    /// That an operation on a node of some kind is not within what another one
    /// holds.
    pub(crate) fn check(
        &self,
        now_ms: u64,
        own: TxnId,
        tree: TreeId,
        kind: NodeKind,
        write: &WriteOperation<'_>,
    ) -> Result<(), Refusal> {
        let is_met = |range: &KeyRange| match write {
            // Nodes of long values have keys of their own.
            _ if kind == NodeKind::Value => false,
            WriteOperation::Put { key, .. } | WriteOperation::Delete { key, .. } => range.contains(key),
            WriteOperation::DeleteRange(own) | WriteOperation::Guard(own) => own.meets(range),
            WriteOperation::DropTree => true,
            // Splits change nothing that anybody reads.
            _ => false,
        };
        match self.wait_ms(tree, now_ms, own, is_met) {
            Some(ms) => Err(Refusal::Leased { ms }),
            None => Ok(()),
        }
    }
}

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
