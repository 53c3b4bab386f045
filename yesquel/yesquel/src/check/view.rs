//! A snapshot of the store, and how many nodes its trees had just before and after it was taken.

use crate::{Error, Store, any_transport::AnyTransport, catalog::catalog_tree};
use std::collections::{BTreeMap, BTreeSet};
use yesquel_model::{ServerId, Timestamp, TreeId};
use yesquel_transport::block_on;
use yesquel_tree::TreeTransaction;
use yesquel_wire::{Question, Scan, status::ServerStatus};

/// Numbers of nodes, without those of long values, by tree and group.
type NodeCounts = BTreeMap<(TreeId, ServerId), u64>;

pub(super) struct CheckView<'s> {
    /// Holds the snapshot.
    pub(super) transaction: TreeTransaction<'s, AnyTransport>,
    pub(super) snapshot: Timestamp,
    /// Groups that answer.
    pub(super) groups: BTreeSet<ServerId>,
    before: NodeCounts,
    after: NodeCounts,
}

impl<'s> CheckView<'s> {
    /// Takes a snapshot at which everything is visible that the groups have committed before. Notes
    /// the groups that do not answer.
    pub(super) fn take(
        store: &'s Store,
        unanswered: &mut BTreeMap<ServerId, String>,
    ) -> Result<CheckView<'s>, Error> {
        let (trees, mut groups) = (&store.inner.trees, BTreeSet::new());
        let (mut before, mut after) = (NodeCounts::new(), NodeCounts::new());
        for group in store.groups()? {
            let counted = store.status_of(group).and_then(|status| {
                count(&status, group, &mut before);
                // The client learns the time of the group, and takes no snapshot below it.
                let scan = Scan { cells_max: 0, ..Scan::all() };
                let question = Question::Scan { node: catalog_tree(group).root(), scan: scan.into() };
                block_on(trees.client().read(&mut None, group, &[question])).map_err(Error::from)
            });
            match counted {
                Ok(_) => drop(groups.insert(group)),
                Err(error @ Error::Interrupted(_)) => return Err(error),
                Err(error) => drop(unanswered.insert(group, error.to_string())),
            }
        }
        let mut transaction = trees.begin();
        // Any key: the first read gives the snapshot.
        block_on(transaction.get(catalog_tree(store.home_group()), &[]))?;
        let Some(snapshot) = transaction.snapshot() else {
            return Err(Error::Internal("a read has given no snapshot".to_owned()));
        };
        for group in &groups {
            count(&store.status_of(*group)?, *group, &mut after);
        }
        Ok(CheckView { transaction, snapshot, groups, before, after })
    }

    /// Returns the groups with nodes of a tree.
    pub(super) fn groups_of(&self, tree: TreeId) -> Vec<ServerId> {
        self.groups.iter().copied().filter(|group| self.after.contains_key(&(tree, *group))).collect()
    }

    /// Returns the trees that have nodes, before the snapshot and after it.
    pub(super) fn trees(&self) -> Vec<(TreeId, ServerId)> {
        self.before.keys().filter(|of| self.after.contains_key(of)).copied().collect()
    }

    /// Whether a tree may have more nodes at a group than a walk has reached: their number was
    /// another one, or has changed meanwhile.
    pub(super) fn may_have_more(&self, tree: TreeId, group: ServerId, reached: u64) -> bool {
        let (before, after) = (self.before.get(&(tree, group)), self.after.get(&(tree, group)));
        before != after || after.is_none_or(|nodes| *nodes != reached)
    }
}

fn count(status: &ServerStatus, group: ServerId, counts: &mut NodeCounts) {
    for tree in &status.trees {
        if let Some(number) = TreeId::new(tree.tree) {
            counts.insert((number, group), tree.leaves + tree.inner);
        }
    }
}
