//! Filling trees that the transaction makes ahead of its commit.

use super::Transaction;
use crate::{
    Tree, TreeError, Trees,
    ahead::{Entry, Made, Makes, UnderWay},
    gap::low_of,
    stored::Looked,
};
use std::{collections::BTreeMap, mem, ops::Bound};
use yesquel_client::{CommitError, ReadView};
use yesquel_model::{Key, NodeId, Refusal, Timestamp};
use yesquel_transport::Transport;

/// What is sent in one commit: while it is done nobody else is served.
const COMMIT_BYTES: usize = 1 << 20;
/// In so many parts of what it gathers it goes on.
const PARTS: usize = 8;

impl<'a, T: Transport> Transaction<'a, T> {
    /// Makes a tree, empty, that nobody else [has got](Trees::fresh).
    pub fn create_tree(&mut self, tree: Tree) {
        self.make(tree, None);
    }

    /// The same, of one that may be filled ahead of the commit. Whoever goes on
    /// with the list looks after what others have [left](Trees::is_kept) there.
    pub fn create_tree_ahead(&mut self, tree: Tree, under_way: UnderWay) {
        self.make(tree, Some(under_way));
    }

    fn make(&mut self, tree: Tree, under_way: Option<UnderWay>) {
        let limit = self.trees.ahead_bytes();
        let makes = self.makes.get_or_insert_with(|| Box::new(Makes::new(limit)));
        let (root, savepoints) = (tree.root, self.steps.count());
        makes.all.push(Made { root, under_way, savepoints, waiting: 0, writes: 0, looks: 0, beyond: None });
        self.made(root);
    }

    /// Roots of trees that the commit makes.
    pub(crate) fn creates(&self) -> impl Iterator<Item = NodeId> {
        let made = self.makes.iter().flat_map(|makes| &makes.all);
        made.filter(|made| made.beyond.is_none()).map(|made| made.root)
    }

    /// Whether the commit makes it.
    pub(crate) fn is_to_make(&self, root: NodeId) -> bool {
        self.makes.as_ref().is_some_and(|makes| makes.of(root).is_some_and(|made| made.beyond.is_none()))
    }

    /// Whether it was made ahead of the commit.
    pub(crate) fn is_ahead(&self, root: NodeId) -> bool {
        self.makes.as_ref().is_some_and(|makes| makes.of(root).is_some_and(|made| made.beyond.is_some()))
    }

    /// From which key on there is nothing at the server of a tree that was made
    /// ahead.
    pub(crate) fn beyond(&self, root: NodeId) -> Option<&Key> {
        self.makes.as_ref()?.of(root)?.beyond.as_ref()
    }

    /// Whether an insert may meet what was sent ahead, so that only a look at the
    /// tree tells whether the key is there.
    pub fn may_have_sent(&self, tree: Tree, key: &[u8]) -> bool {
        self.beyond(tree.root).is_some_and(|beyond| key < &**beyond)
    }

    /// The moment at which a tree is read.
    pub(crate) fn view_of(&mut self, root: NodeId) -> &mut ReadView {
        match &mut self.makes {
            Some(makes) if makes.of(root).is_some_and(|made| made.beyond.is_some()) => &mut makes.view,
            _ => &mut self.view,
        }
    }

    /// A key is looked for in a tree: if it makes it itself, that would be a
    /// round trip once it is at its server.
    pub(crate) fn looks(&mut self, tree: Tree, key: &[u8]) {
        let Some(makes) = &mut self.makes else { return };
        let Some(made) = makes.all.iter_mut().find(|made| made.root == tree.root) else { return };
        let last = self.writes.get(&tree.root).and_then(|writes| writes.keys().next_back());
        if last.is_some_and(|last| key <= &**last) {
            made.looks += 1;
        }
    }

    /// A key is written. Whether what undoes it is to be kept.
    pub(crate) fn is_undone_singly(&mut self, root: NodeId, bytes: usize) -> bool {
        self.makes.as_mut().is_none_or(|makes| makes.write(root, bytes, &self.steps))
    }

    /// A tree is not made after all.
    pub(crate) fn take_back(&mut self, root: NodeId) {
        let Some(makes) = &mut self.makes else { return };
        let Some(place) = makes.all.iter().rposition(|made| made.root == root) else { return };
        let made = makes.all.remove(place);
        if let (Some(_), Some(under_way)) = (made.beyond, made.under_way) {
            makes.given_up.push((root, under_way));
        }
        if let Some(writes) = self.writes.get_mut(&root) {
            writes.clear();
        }
        self.ranges.retain(|(of, _)| *of != root);
        self.pages.forget(root);
    }

    /// None is.
    pub(crate) fn take_all_back(&mut self) {
        if let Some(makes) = &mut self.makes {
            let roots: Vec<NodeId> = makes.all.iter().map(|made| made.root).collect();
            makes.broken = None;
            makes.since = 0;
            roots.into_iter().for_each(|root| self.take_back(root));
        }
    }

    /// Whether so much is gathered for trees that it makes that it is to be
    /// [sent](Self::send_ahead).
    pub fn is_much(&self) -> bool {
        self.makes.as_ref().is_some_and(|makes| makes.since >= makes.limit)
    }

    /// Whether it has filled no tree ahead so far.
    pub fn is_first(&self) -> bool {
        self.makes.as_ref().is_none_or(|makes| {
            makes.given_up.is_empty() && makes.all.iter().all(|made| made.beyond.is_none())
        })
    }

    /// Sends ahead of the commit what it has gathered for trees that it makes, if
    /// it is much. After an error the transaction can only be rolled back.
    pub async fn send_ahead(&mut self) -> Result<(), TreeError> {
        let limit = self.trees.ahead_bytes();
        let Some(makes) = &mut self.makes else { return Ok(()) };
        makes.since = 0;
        let roots = makes.due(&self.steps, limit);
        if !roots.is_empty() {
            // From now on it need not gather as much.
            makes.limit = (limit / PARTS).max(1);
        }
        self.send_all(roots).await
    }

    /// Sends what is left for those trees that were sent ahead: then there is
    /// nothing that could be taken back but all.
    pub async fn send_rest(&mut self) -> Result<(), TreeError> {
        let Some(makes) = &self.makes else { return Ok(()) };
        let ahead = makes.all.iter().filter(|made| made.beyond.is_some());
        let roots: Vec<NodeId> = ahead.map(|made| made.root).collect();
        if roots.is_empty() {
            return Ok(());
        }
        self.steps.release_all();
        self.send_all(roots).await
    }

    /// Why it cannot be committed, whatever there is.
    pub(crate) fn check_sent(&self) -> Result<(), TreeError> {
        match self.makes.as_ref().and_then(|makes| makes.broken.as_ref()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    async fn send_all(&mut self, roots: Vec<NodeId>) -> Result<(), TreeError> {
        self.check_sent()?;
        for root in roots {
            if let Err(error) = self.send_tree(root).await {
                // Of what was sent that may not be known, of the transaction it is:
                // it was not committed.
                let error = match error {
                    TreeError::Commit(CommitError::Failed(error) | CommitError::Unknown(error)) => {
                        error.into()
                    }
                    error => error,
                };
                if let Some(makes) = &mut self.makes {
                    makes.broken = Some(error.clone());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn send_tree(&mut self, root: NodeId) -> Result<(), TreeError> {
        if !self.is_ahead(root) {
            self.enter(root).await?;
        }
        let commit_bytes = COMMIT_BYTES.min(self.trees.ahead_bytes().max(1));
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
            let mut part = Transaction::new(self.trees);
            *part.writes.or_default(root) = some;
            part.ranges = mem::take(&mut ranges);
            match part.try_commit().await {
                Ok(at) => self.has_sent(root, at, last),
                Err(error) => {
                    // What it sees is as before, as far as that is known.
                    rest.extend(mem::take(part.writes.or_default(root)));
                    *self.writes.or_default(root) = rest;
                    self.ranges.append(&mut part.ranges);
                    return Err(error);
                }
            }
        }
        if let Some(made) = self.made_mut(root) {
            made.waiting = 0;
        }
        Ok(())
    }

    fn made_mut(&mut self, root: NodeId) -> Option<&mut Made> {
        self.makes.as_mut()?.all.iter_mut().find(|made| made.root == root)
    }

    /// Makes a tree, and enters it in its list.
    async fn enter(&mut self, root: NodeId) -> Result<(), TreeError> {
        let under_way = self.makes.as_ref().and_then(|makes| makes.of(root)?.under_way.clone());
        let Some(UnderWay { list, key }) = under_way else { return Ok(()) };
        if self.view.snapshot.is_none() {
            // By which others know whether it can still commit.
            self.stored(list, &key).await?;
        }
        let snapshot = self.view.snapshot.unwrap_or_default();
        let mut first = Transaction::new(self.trees);
        first.create_tree(Tree::at(root));
        first.put(list, &key, &Entry { tree: Tree::at(root), snapshot }.encode())?;
        let at = first.commit().await?;
        self.has_sent(root, at, None);
        Ok(())
    }

    /// A commit has filled a tree, up to a key.
    fn has_sent(&mut self, root: NodeId, at: Timestamp, last: Option<Key>) {
        let held = self.trees.client.hold(at);
        self.pages.forget(root);
        let Some(makes) = &mut self.makes else { return };
        makes.view.snapshot = Some(at);
        makes.held = Some(held);
        let Some(made) = makes.all.iter_mut().find(|made| made.root == root) else { return };
        let beyond = last.map_or_else(Key::default, |last| low_of(Bound::Excluded(&last)));
        let known = made.beyond.get_or_insert_default();
        if *known < beyond {
            *known = beyond;
        }
    }

    /// Leaves what was sent ahead to whoever finds it, for it is not known how the
    /// transaction has ended.
    pub fn leave_ahead(&mut self) {
        if let Some(makes) = &mut self.makes {
            makes.given_up.clear();
            makes.all.clear();
            makes.broken = Some(TreeError::Abandoned);
        }
    }

    /// Strikes trees off their lists: those that the commit has given a name,
    /// and the others, which are dropped. To be done when it is known how the
    /// transaction has ended; if it fails, whoever finds them there does it.
    pub async fn settle(&mut self, is_committed: bool) -> Result<(), TreeError> {
        let Some(makes) = self.makes.take() else { return Ok(()) };
        let mut last = Transaction::new(self.trees);
        let dropped = makes.given_up.into_iter().map(|(root, under_way)| (root, under_way, false));
        let made = makes.all.into_iter().filter(|made| made.beyond.is_some());
        let made = made.filter_map(|made| {
            Some((made.root, made.under_way?, is_committed && !self.drops.contains(&made.root)))
        });
        let mut any = false;
        for (root, UnderWay { list, key }, is_kept) in made.chain(dropped) {
            any = true;
            if !is_kept {
                last.drop_tree(Tree::at(root));
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
    /// Whether a snapshot can still be read at the server of a tree. If not, a
    /// transaction that has it can never commit there any more.
    pub async fn is_kept(&self, tree: Tree, snapshot: Timestamp) -> Result<bool, TreeError> {
        let mut view = ReadView::from(Some(snapshot));
        match self.client.lookup_at(&mut view, tree.root, &[], Looked::of).await {
            Ok(_) => Ok(true),
            Err(yesquel_client::Error::Refused(Refusal::SnapshotTooOld { .. })) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
