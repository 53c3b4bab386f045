//! Serializable transactions: they note what they read, and guard it.

use super::TreeTransaction;
use crate::{Tree, reads::Reads};
use std::{collections::BTreeMap, ops::Bound};
use yesquel_model::{Key, KeyRange, NodeId};
use yesquel_transport::Transport;

impl<T: Transport> TreeTransaction<'_, T> {
    /// Makes the transaction serializable: its commit guards all that it reads from now on, so that
    /// of two transactions one of which writes what the other reads, one fails. A transaction that
    /// writes nothing sends nothing, and never fails because of this: it sees the state after a
    /// number of commits in the order of their times.
    ///
    /// Write-snapshot isolation (Yabandeh and Gómez Ferro, EuroSys'12). Guards that are held until the
    /// decision keep that property where commits take several servers.
    pub fn serializable(&mut self) {
        self.reads.get_or_insert_default();
    }

    /// Returns where reads of a tree are noted; `None`: they are not. No other transaction knows a tree
    /// that this one creates, and its creation may be rolled back.
    #[inline]
    fn reads_of(&mut self, tree: Tree) -> Option<&mut Reads> {
        self.reads.as_ref()?;
        let is_own = self.is_created_by_commit(tree.root) || self.is_bulk_loaded(tree.root);
        self.reads.as_deref_mut().filter(|_| !is_own)
    }

    /// Notes that a key was read.
    #[inline]
    pub(crate) fn note_read(&mut self, tree: Tree, key: &[u8]) {
        if let Some(reads) = self.reads_of(tree) {
            reads.key(tree.root, key);
        }
    }

    /// Returns the ranges to guard. A transaction without writes guards only what its caller wants.
    pub(crate) fn guarded(&self) -> impl Iterator<Item = (&NodeId, &KeyRange)> {
        let reads = self.reads.as_deref().filter(|_| self.writes_something());
        let guards = self.guards.iter().map(|(root, range)| (root, range));
        guards.chain(reads.into_iter().flat_map(Reads::iter))
    }

    fn writes_something(&self) -> bool {
        // Rollbacks to savepoints leave empty maps.
        !self.writes.values().all(BTreeMap::is_empty)
            || !self.ranges.is_empty()
            || !self.drops.is_empty()
            || self.bulk_loads.is_some()
    }

    /// Notes a step of a forward scan from a bound.
    #[inline]
    pub(crate) fn note_step_up(&mut self, tree: Tree, from: Bound<&[u8]>, found: Option<&Key>) {
        if let Some(reads) = self.reads_of(tree) {
            reads.step_up(tree.root, from, found);
        }
    }

    /// Notes a step of a backward scan from a bound.
    #[inline]
    pub(crate) fn note_step_down(&mut self, tree: Tree, to: Bound<&[u8]>, found: Option<&Key>) {
        if let Some(reads) = self.reads_of(tree) {
            reads.step_down(tree.root, to, found);
        }
    }
}
