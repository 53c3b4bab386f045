//! Reads of watched leaves in transactions.

use crate::{
    Tree, TreeError, TreeTransaction,
    cache::Goal,
    page::Page,
    search::{Fetched, PageRequest},
    watched::{WatchUse, WatchedLeaf},
};
use std::sync::Arc;
use yesquel_model::{KeyRange, NodeId};
use yesquel_transport::Transport;
use yesquel_wire::{Direction, Question, Scan};

impl<T: Transport> TreeTransaction<'_, T> {
    /// Lets the transaction use leaves that the client watches. `only_reads`: it writes nothing, so
    /// that it needs no snapshot as long as watched leaves have all that it reads. What it sees
    /// includes every commit that was acknowledged before its first read.
    pub fn use_watched(&mut self, only_reads: bool) {
        self.watch_use = match only_reads {
            _ if !self.trees.watched.is_used() => WatchUse::Never,
            true => WatchUse::AtPresent,
            false => WatchUse::AtSnapshot,
        };
    }

    /// Whether trees can be read at the transaction's own view.
    fn may_watch(&self) -> bool {
        self.watch_use != WatchUse::Never && self.bulk_loads.is_none()
    }

    /// Returns a watched leaf, if it is right for this transaction.
    pub(crate) fn watched(&mut self, tree: Tree, node: NodeId, goal: Goal<'_>) -> Option<Arc<Page>> {
        let leaves = &self.trees.watched;
        if !self.may_watch() || leaves.is_empty() {
            return None;
        }
        let may_use_now = self.watch_use == WatchUse::AtPresent;
        // Open proofs must be asked first.
        if self.view.snapshot.is_none() && !(may_use_now && self.view.all_answered()) {
            return None;
        }
        let now = Some((node.server, self.view.snapshot));
        if self.noticed_at != now {
            // Before the notices: later replies may tell of changes whose notices are not taken here.
            let seen = self.trees.client.seen();
            if !self.trees.client.take_notices(node.server) {
                return None;
            }
            (self.noticed_at, self.noticed_seen) = (now, seen);
        }
        let at_present = (may_use_now, self.noticed_seen);
        let page = leaves.get(&mut self.view, at_present, node, goal)?;
        self.used_watched += 1;
        Some(self.pages.keep_shared(tree.root, page))
    }

    /// Before a read that asks a server: reads the whole leaf and watches it, if it was read often.
    /// `None`: read it in the usual way.
    pub(crate) async fn watch(
        &mut self,
        tree: Tree,
        node: NodeId,
        goal: Goal<'_>,
    ) -> Result<Option<Arc<Page>>, TreeError> {
        let trees = self.trees;
        let end_all = || trees.client.end_watches(node.server);
        let is_watchable = self.may_watch() && trees.client.can_watch(node.server);
        if !is_watchable || !trees.watched.is_wanted(node, trees.client.uptime(), end_all) {
            return Ok(None);
        }
        // It is rare, and its state would make the state of each read larger.
        Box::pin(self.watch_now(tree, node, goal)).await
    }

    async fn watch_now(
        &mut self,
        tree: Tree,
        node: NodeId,
        goal: Goal<'_>,
    ) -> Result<Option<Arc<Page>>, TreeError> {
        let trees = self.trees;
        let near = match goal {
            Goal::At(key) => Some(key.into()),
            Goal::Below(_) => None,
        };
        let all = Scan { near, bytes_max: PageRequest::BYTES_MAX, ..Scan::all() };
        let question = Question::Scan { node, scan: all.into() };
        let Some((reply, watch)) = trees.client.watch_at(&mut self.view, node, question).await? else {
            return Ok(None);
        };
        self.note_asked();
        let answer = reply.answers().and_then(|answers| answers.iter().next());
        let range = (&KeyRange::all(), Direction::Up);
        let (Fetched::Leaf(page), false) = trees.scanned(self.view.snapshot, node, range, answer)? else {
            return Ok(None);
        };
        if !goal.is_in(&page.fence) {
            return Ok(None);
        }
        let page = self.pages.keep(tree.root, page);
        if let (Some(watch), Some(since)) = (watch, self.view.snapshot) {
            trees.watched.keep(WatchedLeaf { page: Arc::clone(&page), since, watch });
        }
        Ok(Some(page))
    }

    /// Gives the transaction a snapshot, which a transaction that writes needs.
    pub async fn pin(&mut self) -> Result<(), TreeError> {
        self.watch_use = self.watch_use.min(WatchUse::AtSnapshot);
        match self.view.used_at() {
            Some(server) => self.read_proofs(server).await,
            None => Ok(()),
        }
    }
}
