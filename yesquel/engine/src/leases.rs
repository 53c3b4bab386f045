//! Leases: for some time only one client may write within a range of a tree, so that its
//! transactions do not lose. `docs/yesquel/leases.md` has the laws.

use rustc_hash::FxHashMap;
use yesquel_model::{KeyRange, Refusal, TreeId, TxnId, limits};
use yesquel_wire::{NodeKind, WriteOperation};

/// A range in which only the holder may write.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) holder: TxnId,
    pub(crate) range: KeyRange,
    /// By the uptime clock.
    pub(crate) until_ms: u64,
}

/// The leases of a server. They are not persistent: they spare transactions conflicts, and protect
/// no data.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    trees: FxHashMap<TreeId, Vec<HeldLease>>,
    count: usize,
}

impl Leases {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Drops expired leases.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        if self.count > 0 {
            self.keep(|lease| lease.until_ms > now_ms);
        }
    }

    pub(crate) fn release(&mut self, holder: TxnId) {
        self.keep(|lease| lease.holder != holder);
    }

    fn keep(&mut self, is_kept: impl Fn(&HeldLease) -> bool) {
        for leases in self.trees.values_mut() {
            leases.retain(&is_kept);
        }
        self.trees.retain(|_, leases| !leases.is_empty());
        self.count = self.trees.values().map(Vec::len).sum();
    }

    /// Milliseconds until the other leases end that satisfy `is_met`.
    pub(crate) fn wait_ms(
        &self,
        tree: TreeId,
        now_ms: u64,
        own: TxnId,
        is_met: impl Fn(&KeyRange) -> bool,
    ) -> Option<u64> {
        let is_others =
            |lease: &&HeldLease| lease.holder != own && lease.until_ms > now_ms && is_met(&lease.range);
        self.trees.get(&tree)?.iter().filter(is_others).map(|lease| lease.until_ms - now_ms).max()
    }

    pub(crate) fn take(&mut self, tree: TreeId, lease: HeldLease) -> Result<(), Refusal> {
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

    /// Checks that an operation on a node of some kind is not within another client's lease.
    pub(crate) fn check(
        &self,
        now_ms: u64,
        own: TxnId,
        tree: TreeId,
        kind: NodeKind,
        write: &WriteOperation<'_>,
    ) -> Result<(), Refusal> {
        let is_met = |range: &KeyRange| match write {
            // Keys of pieces are not keys of the tree.
            _ if kind == NodeKind::Value => false,
            WriteOperation::Put { key, .. } | WriteOperation::Delete { key, .. } => range.contains(key),
            WriteOperation::DeleteRange(own) | WriteOperation::Guard(own) => own.overlaps(range),
            WriteOperation::DropTree => true,
            // Splits change nothing that a read sees.
            _ => false,
        };
        match self.wait_ms(tree, now_ms, own, is_met) {
            Some(ms) => Err(Refusal::Leased { ms }),
            None => Ok(()),
        }
    }
}
