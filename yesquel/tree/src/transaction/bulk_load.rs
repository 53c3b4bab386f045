//! Bulk load of trees that the transaction creates.

use super::TreeTransaction;
use crate::{
    Tree, TreeError, Trees,
    bulk_load::{BulkLoads, CreatedTree, LoadRegistration, UnfinishedLoad},
    gap::low_of,
    stored::LookupAnswer,
};
use std::{collections::BTreeMap, mem, ops::Bound};
use yesquel_client::{CommitError, ReadView};
use yesquel_model::{Key, NodeId, Refusal, ServerId, Timestamp};
use yesquel_transport::Transport;

/// Bytes sent in one commit. The server processes nothing else meanwhile.
const COMMIT_BYTES: usize = 1 << 20;
/// After the first flush, later ones are due at this fraction of the flush_bytes.
const FLUSHES_PER_LIMIT: usize = 8;

impl<'a, T: Transport> TreeTransaction<'a, T> {
    /// Creates an empty tree, named by [`Trees::new_tree`], whose leaves may be at some groups; at none:
    /// all are at the group of the root.
    pub fn create_tree(&mut self, tree: Tree, groups: &[ServerId]) {
        self.make(tree, groups, None);
    }

    /// Creates an empty tree that may be bulk loaded. Later users of the list clean up loads whose
    /// transaction can [no longer commit](Trees::is_snapshot_readable).
    pub fn create_bulk_loaded_tree(
        &mut self,
        tree: Tree,
        groups: &[ServerId],
        registration: LoadRegistration,
    ) {
        self.make(tree, groups, Some(registration));
    }

    fn make(&mut self, tree: Tree, groups: &[ServerId], registration: Option<LoadRegistration>) {
        let flush_bytes = self.trees.bulk_load_bytes();
        let bulk_loads = self.bulk_loads.get_or_insert_with(|| Box::new(BulkLoads::new(flush_bytes)));
        let (root, savepoints) = (tree.root, self.undo_log.count());
        bulk_loads.trees.push(CreatedTree {
            root,
            groups: groups.into(),
            registration,
            savepoints,
            pending_bytes: 0,
            writes: 0,
            lookups: 0,
            empty_from: None,
        });
        self.note_created(root);
    }

    /// Roots of trees that the commit creates, and the groups of their leaves.
    pub(crate) fn trees_to_create(&self) -> impl Iterator<Item = (NodeId, &[ServerId])> {
        let created = self.bulk_loads.iter().flat_map(|bulk_loads| &bulk_loads.trees);
        created.filter(|created| !created.is_flushed()).map(|created| (created.root, &*created.groups))
    }

    /// Returns whether the commit creates the tree.
    pub(crate) fn is_created_by_commit(&self, root: NodeId) -> bool {
        self.bulk_loads
            .as_ref()
            .is_some_and(|bulk_loads| bulk_loads.of(root).is_some_and(|created| !created.is_flushed()))
    }

    /// Returns whether a flush has created the tree.
    pub(crate) fn is_bulk_loaded(&self, root: NodeId) -> bool {
        self.bulk_loads
            .as_ref()
            .is_some_and(|bulk_loads| bulk_loads.of(root).is_some_and(|created| created.is_flushed()))
    }

    /// Returns the key from which on the server of a bulk-loaded tree holds nothing.
    pub(crate) fn empty_from(&self, root: NodeId) -> Option<&Key> {
        self.bulk_loads.as_ref()?.of(root)?.empty_from.as_ref()
    }

    /// Returns whether an insert may meet a flushed key, so that only a lookup tells whether the
    /// key is present.
    pub fn may_be_flushed(&self, tree: Tree, key: &[u8]) -> bool {
        self.empty_from(tree.root).is_some_and(|empty_from| key < &**empty_from)
    }

    /// Returns the read view of a tree.
    pub(crate) fn view_of(&mut self, root: NodeId) -> &mut ReadView {
        match &mut self.bulk_loads {
            Some(bulk_loads) if bulk_loads.of(root).is_some_and(|created| created.is_flushed()) => {
                &mut bulk_loads.view
            }
            _ => &mut self.view,
        }
    }

    /// SearchCounts a lookup in a tree: if the transaction creates it, the lookup would cost a round trip
    /// after a flush.
    pub(crate) fn count_lookup(&mut self, tree: Tree, key: &[u8]) {
        let Some(bulk_loads) = &mut self.bulk_loads else { return };
        let Some(created) = bulk_loads.trees.iter_mut().find(|created| created.root == tree.root) else {
            return;
        };
        let last = self.writes.get(&tree.root).and_then(|writes| writes.keys().next_back());
        if last.is_some_and(|last| key <= &**last) {
            created.lookups += 1;
        }
    }

    /// Accounts for a write of a key. Returns whether it needs an undo step.
    pub(crate) fn record_write(&mut self, root: NodeId, bytes: usize) -> bool {
        self.bulk_loads.as_mut().is_none_or(|bulk_loads| bulk_loads.record_write(root, bytes, &self.undo_log))
    }

    /// Undoes the creation of a tree.
    pub(crate) fn undo_create(&mut self, root: NodeId) {
        let Some(bulk_loads) = &mut self.bulk_loads else { return };
        let Some(place) = bulk_loads.trees.iter().rposition(|created| created.root == root) else { return };
        let created = bulk_loads.trees.remove(place);
        if let (Some(_), Some(registration)) = (created.empty_from, created.registration) {
            bulk_loads.abandoned.push((root, created.groups, registration));
        }
        if let Some(writes) = self.writes.get_mut(&root) {
            writes.clear();
        }
        self.ranges.retain(|(of, _)| *of != root);
        self.pages.forget(root);
    }

    /// Undoes the creation of all trees.
    pub(crate) fn undo_all_creates(&mut self) {
        if let Some(bulk_loads) = &mut self.bulk_loads {
            let roots: Vec<NodeId> = bulk_loads.trees.iter().map(|created| created.root).collect();
            bulk_loads.failure = None;
            bulk_loads.unflushed_bytes = 0;
            roots.into_iter().for_each(|root| self.undo_create(root));
        }
    }

    /// Returns whether enough is buffered for created trees to [flush](Self::flush_bulk_loads) it.
    pub fn should_flush(&self) -> bool {
        self.bulk_loads
            .as_ref()
            .is_some_and(|bulk_loads| bulk_loads.unflushed_bytes >= bulk_loads.flush_bytes)
    }

    /// Returns whether no tree was flushed so far.
    pub fn has_flushed_nothing(&self) -> bool {
        self.bulk_loads.as_ref().is_none_or(|bulk_loads| {
            bulk_loads.abandoned.is_empty() && bulk_loads.trees.iter().all(|created| !created.is_flushed())
        })
    }

    /// Flushes the created trees that are large enough. After an error the transaction can only be
    /// rolled back.
    pub async fn flush_bulk_loads(&mut self) -> Result<(), TreeError> {
        let flush_bytes = self.trees.bulk_load_bytes();
        let Some(bulk_loads) = &mut self.bulk_loads else { return Ok(()) };
        bulk_loads.unflushed_bytes = 0;
        let roots = bulk_loads.due(&self.undo_log, flush_bytes);
        if !roots.is_empty() {
            // Later flushes come earlier.
            bulk_loads.flush_bytes = (flush_bytes / FLUSHES_PER_LIMIT).max(1);
        }
        self.flush_trees(roots).await
    }

    /// Flushes the rest of the bulk-loaded trees. Releases all savepoints.
    pub async fn finish_bulk_loads(&mut self) -> Result<(), TreeError> {
        let Some(bulk_loads) = &self.bulk_loads else { return Ok(()) };
        let flushed = bulk_loads.trees.iter().filter(|created| created.is_flushed());
        let roots: Vec<NodeId> = flushed.map(|created| created.root).collect();
        if roots.is_empty() {
            return Ok(());
        }
        self.undo_log.release_all();
        self.flush_trees(roots).await
    }

    /// Returns the error of a failed flush, after which there is no commit.
    pub(crate) fn check_bulk_loads(&self) -> Result<(), TreeError> {
        match self.bulk_loads.as_ref().and_then(|bulk_loads| bulk_loads.failure.as_ref()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    async fn flush_trees(&mut self, roots: Vec<NodeId>) -> Result<(), TreeError> {
        self.check_bulk_loads()?;
        for root in roots {
            if let Err(error) = self.flush_tree(root).await {
                // The outcome of the flush may be unknown; the transaction itself has surely not
                // committed.
                let error = match error {
                    TreeError::Commit(CommitError::Failed(error) | CommitError::Unknown(error)) => {
                        error.into()
                    }
                    error => error,
                };
                if let Some(bulk_loads) = &mut self.bulk_loads {
                    bulk_loads.failure = Some(error.clone());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn flush_tree(&mut self, root: NodeId) -> Result<(), TreeError> {
        if !self.is_bulk_loaded(root) {
            self.register(root).await?;
        }
        let commit_bytes = COMMIT_BYTES.min(self.trees.bulk_load_bytes().max(1));
        let mut rest = self.writes.get_mut(&root).map(mem::take).unwrap_or_default();
        let mut ranges = Vec::new();
        self.ranges.retain(|range| {
            let is_kept = range.0 != root;
            if !is_kept {
                ranges.push(range.clone());
            }
            is_kept
        });
        while !rest.is_empty() || !ranges.is_empty() {
            let (mut some, mut bytes) = (BTreeMap::new(), 0);
            while bytes < commit_bytes
                && let Some((key, write)) = rest.pop_first()
            {
                bytes += key.len() + write.len();
                some.insert(key, write);
            }
            let last = some.keys().next_back().cloned();
            let mut part = TreeTransaction::new(self.trees);
            *part.writes.or_default(root) = some;
            part.ranges = mem::take(&mut ranges);
            match part.try_commit().await {
                Ok(at) => self.note_flushed(root, at, last),
                Err(error) => {
                    // Restore the transaction's view as far as it is known.
                    rest.extend(mem::take(part.writes.or_default(root)));
                    *self.writes.or_default(root) = rest;
                    self.ranges.append(&mut part.ranges);
                    return Err(error);
                }
            }
        }
        if let Some(created) = self.created_mut(root) {
            created.pending_bytes = 0;
        }
        Ok(())
    }

    fn created_mut(&mut self, root: NodeId) -> Option<&mut CreatedTree> {
        self.bulk_loads.as_mut()?.trees.iter_mut().find(|created| created.root == root)
    }

    /// Creates a tree and registers it in its list.
    async fn register(&mut self, root: NodeId) -> Result<(), TreeError> {
        let created = self.bulk_loads.as_ref().and_then(|bulk_loads| bulk_loads.of(root));
        let registered =
            created.and_then(|created| Some((created.groups.clone(), created.registration.clone()?)));
        let Some((groups, LoadRegistration { list, key })) = registered else { return Ok(()) };
        if self.view.snapshot.is_none() {
            // Others need this snapshot to tell whether the transaction can still commit.
            self.stored(list, &key).await?;
        }
        let snapshot = self.view.snapshot.unwrap_or_default();
        let mut first = TreeTransaction::new(self.trees);
        first.create_tree(Tree::at(root), &groups);
        first.put(list, &key, &UnfinishedLoad { tree: Tree::at(root), snapshot }.encode())?;
        let at = first.commit().await?;
        self.note_flushed(root, at, None);
        Ok(())
    }

    /// Notes that a flush has filled a tree up to a key.
    fn note_flushed(&mut self, root: NodeId, at: Timestamp, last: Option<Key>) {
        let held = self.trees.client.hold(at);
        self.pages.forget(root);
        let Some(bulk_loads) = &mut self.bulk_loads else { return };
        bulk_loads.view.snapshot = Some(at);
        bulk_loads.held = Some(held);
        let Some(created) = bulk_loads.trees.iter_mut().find(|created| created.root == root) else { return };
        let empty_from = last.map_or_else(Key::default, |last| low_of(Bound::Excluded(&last)));
        let known = created.empty_from.get_or_insert_default();
        if *known < empty_from {
            *known = empty_from;
        }
    }

    /// Leaves the flushed trees to be cleaned up by others, for the outcome of the transaction is
    /// unknown.
    pub fn abandon_bulk_loads(&mut self) {
        if let Some(bulk_loads) = &mut self.bulk_loads {
            bulk_loads.abandoned.clear();
            bulk_loads.trees.clear();
            bulk_loads.failure = Some(TreeError::Abandoned);
        }
    }

    /// Removes trees from their lists: the trees that the commit has named are kept, the others
    /// dropped. Call this when the outcome of the transaction is known; if it fails, others clean
    /// up.
    pub async fn settle_bulk_loads(&mut self, is_committed: bool) -> Result<(), TreeError> {
        let Some(bulk_loads) = self.bulk_loads.take() else { return Ok(()) };
        let mut last = TreeTransaction::new(self.trees);
        let dropped = bulk_loads.abandoned.into_iter();
        let dropped = dropped.map(|(root, groups, registration)| (root, groups, registration, false));
        let is_dropped = |root: NodeId| self.drops.iter().any(|dropped| dropped.root == root);
        let created = bulk_loads.trees.into_iter().filter(|created| created.is_flushed());
        let created = created.filter_map(|created| {
            let is_kept = is_committed && !is_dropped(created.root);
            Some((created.root, created.groups, created.registration?, is_kept))
        });
        let mut any = false;
        for (root, groups, LoadRegistration { list, key }, is_kept) in created.chain(dropped) {
            any = true;
            if !is_kept {
                last.drop_tree(Tree::at(root), &groups);
            }
            last.delete(list, &key)?;
        }
        if any {
            last.commit().await?;
        }
        Ok(())
    }
}

impl<T: Transport> Trees<T> {
    /// Returns whether a snapshot is still readable at the server of a tree. If not, a transaction
    /// with this snapshot can never commit there.
    pub async fn is_snapshot_readable(&self, tree: Tree, snapshot: Timestamp) -> Result<bool, TreeError> {
        let mut view = ReadView::from(Some(snapshot));
        match self.client.lookup_at(&mut view, tree.root, &[], LookupAnswer::of).await {
            Ok(_) => Ok(true),
            Err(yesquel_client::RequestError::Refused(Refusal::SnapshotTooOld { .. })) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
