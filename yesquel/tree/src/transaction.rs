//! Transactions over trees: reads at one snapshot, writes buffered until the commit (deferred
//! writes, section 5).

mod bulk_load;
mod commit;
mod many;
mod serializable;

use crate::{
    Tree, TreeError, Trees,
    bulk_load::{BulkLoads, empty_range_from},
    cache::Goal,
    gap::Gaps,
    guard::GuardAtAny,
    page::{Page, PageCells, PageValue},
    pages::Pages,
    reads::Reads,
    savepoint::{Savepoint, Undo, UndoLog},
    search::{FORWARD_STEPS_MAX, PageRequest, check_key},
    stored::{LookupAnswer, StoredValue},
    watched::WatchUse,
    write::BufferedWrite,
};
use std::{
    cell::{Cell, OnceCell},
    collections::BTreeMap,
    sync::Arc,
};
use yesquel_client::{LeaseHolder, ReadReply, ReadView, SnapshotHold};
use yesquel_model::{Key, KeyRange, NodeId, ServerId, SmallMap, Timestamp, limits};
use yesquel_transport::Transport;
use yesquel_wire::{Expect, LargeValue, Question};

/// A tree that a transaction drops, and the groups at which it may have leaves.
#[derive(Debug)]
pub(crate) struct DroppedTree {
    pub(crate) root: NodeId,
    groups: Box<[ServerId]>,
}

/// Transaction with snapshot isolation. Guards make it stricter where needed, and
/// [`serializable`](Self::serializable) everywhere.
///
/// Its snapshot is that of its first read. Dropping it rolls it back.
#[derive(Debug)]
pub struct TreeTransaction<'a, T> {
    pub(crate) trees: &'a Trees<T>,
    pub(crate) view: ReadView,
    /// Number of reads that asked a server.
    asked: u64,
    /// Number of watched leaves that were read without asking.
    pub(crate) used_watched: u64,
    /// Keeps the snapshot's versions on the servers.
    held: Option<SnapshotHold<'a>>,
    pub(crate) writes: SmallMap<NodeId, BTreeMap<Key, BufferedWrite>>,
    /// Ranges to delete, before the writes.
    pub(crate) ranges: Vec<(NodeId, KeyRange)>,
    guards: Vec<(NodeId, KeyRange)>,
    /// Ranges of which one copy is guarded, at a server that is written.
    guards_at_any: Vec<GuardAtAny>,
    /// What it has read, if it is serializable.
    reads: Option<Box<Reads>>,
    /// Trees to create, before all else. Most transactions create none.
    pub(crate) bulk_loads: Option<Box<BulkLoads<'a>>>,
    /// Trees to drop, after all else.
    pub(crate) drops: Vec<DroppedTree>,
    lease: Option<LeaseHolder>,
    /// Whether the commit was a message: a transaction without writes and guards sends none.
    has_sent_commit: Cell<bool>,
    /// The servers of the commit, if it was within a lease.
    committed_at: OnceCell<Box<[ServerId]>>,
    pub(crate) undo_log: UndoLog,
    pub(crate) pages: Pages,
    pub(crate) watch_use: WatchUse,
    /// The server whose notices of changes were taken last, and for which snapshot.
    pub(crate) noticed_at: Option<(ServerId, Option<Timestamp>)>,
    /// What the client had seen before that.
    pub(crate) noticed_seen: Timestamp,
    /// Ranges that cursors need not search again.
    pub(crate) gaps: Gaps,
}

/// What the transaction's own state says about a key.
enum CachedAnswer {
    Value(Option<Box<[u8]>>),
    Large(LargeValue),
    /// Nothing but the expected leaf.
    Leaf(NodeId),
}

/// Page of a range known to be empty.
fn nothing(tree: Tree, fence: KeyRange) -> Arc<Page> {
    Arc::new(Page { node: tree.root, fence, cells: PageCells::default(), followed: Vec::new() })
}

impl<T: Transport> Trees<T> {
    /// Returns the present value of a key, in a transaction of its own.
    pub async fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Box<[u8]>>, TreeError> {
        check_key(key)?;
        let node = self.leaf(tree.root(), key);
        let mut snapshot = None;
        match self.client.lookup(&mut snapshot, node, key, LookupAnswer::of).await? {
            LookupAnswer::Absent => Ok(None),
            LookupAnswer::Stored(StoredValue::Whole(value)) => Ok(Some(value)),
            // More reads follow, at the same snapshot. They are rare and their future is large:
            // boxed, so that callers need not reserve room for it.
            looked => {
                let mut transaction = TreeTransaction::at(self, snapshot);
                Box::pin(transaction.found(tree, key, node, looked)).await
            }
        }
    }
}

impl<'a, T: Transport> TreeTransaction<'a, T> {
    pub(crate) fn new(trees: &'a Trees<T>) -> Self {
        TreeTransaction::at(trees, None)
    }

    /// Begins a transaction with a given snapshot.
    pub(crate) fn at(trees: &'a Trees<T>, snapshot: Option<Timestamp>) -> Self {
        TreeTransaction {
            trees,
            view: snapshot.into(),
            asked: 0,
            used_watched: 0,
            held: snapshot.map(|snapshot| trees.client.hold(snapshot)),
            writes: SmallMap::default(),
            ranges: Vec::new(),
            guards: Vec::new(),
            guards_at_any: Vec::new(),
            reads: None,
            bulk_loads: None,
            drops: Vec::new(),
            lease: None,
            has_sent_commit: Cell::new(false),
            committed_at: OnceCell::new(),
            undo_log: UndoLog::default(),
            pages: Pages::default(),
            watch_use: WatchUse::default(),
            noticed_at: None,
            noticed_seen: Timestamp::ZERO,
            gaps: Gaps::default(),
        }
    }

    /// Returns the snapshot, once something was read.
    pub fn snapshot(&self) -> Option<Timestamp> {
        self.view.snapshot
    }

    /// Lets servers collect the versions of the snapshot, while the transaction is not used.
    pub fn release_snapshot(&mut self) {
        self.held = None;
    }

    /// Keeps the versions of the snapshot again. Servers may have collected them if more than half a
    /// second has passed; reads then fail.
    pub fn hold_snapshot(&mut self) {
        self.held = self.view.snapshot.map(|snapshot| self.trees.client.hold(snapshot));
    }

    /// Returns the number of reads that went to a server. A caller that sees neighboring keys miss
    /// may [prefetch](Self::get_near).
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Returns how often a [watched](Self::use_watched) leaf was used without asking its server.
    pub fn used_watched(&self) -> u64 {
        self.used_watched
    }

    /// Returns the server whose watched leaves were read, while there is no snapshot.
    pub fn used_at(&self) -> Option<ServerId> {
        self.view.used_at()
    }

    /// Raises the number of read bytes cached for later reads, by default 16 MiB. When the limit is
    /// exceeded, all cached pages are dropped.
    pub fn keep_up_to(&mut self, bytes: usize) {
        self.pages.keep_up_to(bytes);
    }

    pub(crate) fn own_writes(&self, tree: Tree) -> Option<&BTreeMap<Key, BufferedWrite>> {
        self.writes.get(&tree.root)
    }

    /// Returns whether no range was deleted.
    pub(crate) fn deletes_nothing_whole(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns whether a range deletion of this transaction covers the key.
    pub(crate) fn is_deleted(&self, tree: Tree, key: &[u8]) -> bool {
        self.ranges.iter().any(|(root, range)| *root == tree.root && range.contains(key))
    }

    /// Returns whether nothing that servers hold of the tree is visible: the transaction creates
    /// it, or has deleted everything.
    fn is_empty_at_servers(&self, tree: Tree) -> bool {
        self.is_created_by_commit(tree.root)
            || self.ranges.iter().any(|(root, range)| *root == tree.root && range.covers(&KeyRange::all()))
    }

    /// Returns whether the server of a bulk-loaded tree holds no key from this one on.
    fn is_beyond(&self, tree: Tree, key: &[u8]) -> bool {
        self.empty_from(tree.root).is_some_and(|empty_from| key >= &**empty_from)
    }

    /// Returns the value of a key.
    pub async fn get(&mut self, tree: Tree, key: &[u8]) -> Result<Option<Box<[u8]>>, TreeError> {
        check_key(key)?;
        self.note_read(tree, key);
        self.count_lookup(tree, key);
        let leaf = match self.known(tree, key) {
            CachedAnswer::Value(value) => return Ok(value),
            CachedAnswer::Large(large) => return Box::pin(self.large(tree, large)).await.map(Some),
            CachedAnswer::Leaf(leaf) => leaf,
        };
        self.stored_at(tree, key, leaf).await
    }

    /// Returns the value that servers hold, regardless of own writes.
    pub(crate) async fn stored(&mut self, tree: Tree, key: &[u8]) -> Result<Option<Box<[u8]>>, TreeError> {
        let leaf = self.trees.leaf(tree.root, key);
        self.stored_at(tree, key, leaf).await
    }

    async fn stored_at(
        &mut self,
        tree: Tree,
        key: &[u8],
        leaf: NodeId,
    ) -> Result<Option<Box<[u8]>>, TreeError> {
        let goal = Goal::At(key);
        let mut page = self.watched(tree, leaf, goal);
        if page.is_none() {
            page = self.watch(tree, leaf, goal).await?;
        }
        if let Some(page) = page {
            return self.on_page(tree, &page, key).await;
        }
        match self.look(tree, leaf, key).await? {
            LookupAnswer::Absent => Ok(None),
            LookupAnswer::Stored(StoredValue::Whole(value)) => Ok(Some(value)),
            // Boxed, as in `Trees::get`.
            looked => Box::pin(self.found(tree, key, leaf, looked)).await,
        }
    }

    /// Like [`get`](Self::get), and prefetches the key's neighbors.
    pub async fn get_near(&mut self, tree: Tree, key: &[u8]) -> Result<Option<Box<[u8]>>, TreeError> {
        check_key(key)?;
        self.note_read(tree, key);
        match self.known(tree, key) {
            CachedAnswer::Value(value) => Ok(value),
            CachedAnswer::Large(large) => self.large(tree, large).await.map(Some),
            CachedAnswer::Leaf(_) => {
                let page = self.page(tree, PageRequest::leaf(Goal::At(key))).await?;
                self.on_page(tree, &page, key).await
            }
        }
    }

    /// Returns the value of a key if it came along with an entry that refers to it, and was not
    /// overwritten.
    pub fn get_cached(&mut self, tree: Tree, key: &[u8]) -> Option<Box<[u8]>> {
        let StoredValue::Whole(value) = self.pages.single(tree.root, key)?.as_ref()? else { return None };
        let is_own = self.own_writes(tree).is_some_and(|writes| writes.contains_key(key));
        let is_visible = !is_own && !self.is_empty_at_servers(tree) && !self.is_deleted(tree, key);
        let value = is_visible.then(|| value.clone())?;
        self.note_read(tree, key);
        Some(value)
    }

    /// Returns what is known of a key without asking a server.
    fn known(&self, tree: Tree, key: &[u8]) -> CachedAnswer {
        if let Some(write) = self.own_writes(tree).and_then(|writes| writes.get(key)) {
            return CachedAnswer::Value(write.value.clone());
        }
        if self.is_empty_at_servers(tree) || self.is_deleted(tree, key) || self.is_beyond(tree, key) {
            return CachedAnswer::Value(None);
        }
        let of = |stored: &StoredValue| match stored {
            StoredValue::Whole(value) => CachedAnswer::Value(Some(value.clone())),
            StoredValue::Large(large) => CachedAnswer::Large(*large),
        };
        if let Some(single) = self.pages.single(tree.root, key) {
            return single.as_ref().map_or(CachedAnswer::Value(None), of);
        }
        let leaf = self.trees.leaf(tree.root, key);
        match self.pages.get(leaf, Goal::At(key)) {
            Some(page) => match page.cells.position(key).map(|at| page.cells.value(at)) {
                Ok(PageValue::Whole(value)) => CachedAnswer::Value(Some(value.into())),
                Ok(PageValue::Large(large)) => CachedAnswer::Large(large),
                Err(_) => CachedAnswer::Value(None),
            },
            None => CachedAnswer::Leaf(leaf),
        }
    }

    /// Asks a node of a tree for a key.
    async fn look(&mut self, tree: Tree, node: NodeId, key: &[u8]) -> Result<LookupAnswer, TreeError> {
        self.asked += 1;
        let client = &self.trees.client;
        let looked = client.lookup_at(self.view_of(tree.root), node, key, LookupAnswer::of).await?;
        self.hold();
        Ok(looked)
    }

    /// Returns the value of a key, given the answer of its expected leaf.
    pub(crate) async fn found(
        &mut self,
        tree: Tree,
        key: &[u8],
        mut node: NodeId,
        mut looked: LookupAnswer,
    ) -> Result<Option<Box<[u8]>>, TreeError> {
        let goal = Goal::At(key);
        // The path to the leaf, needed only if the answer was wrong.
        let (mut path, mut steps) = (None, 0);
        let trees = self.trees;
        let way = || trees.guess_again(tree.root(), goal).path;
        loop {
            match looked {
                LookupAnswer::Absent => return Ok(None),
                LookupAnswer::Stored(StoredValue::Whole(value)) => return Ok(Some(value)),
                LookupAnswer::Stored(StoredValue::Large(large)) => {
                    return self.large(tree, large).await.map(Some);
                }
                // Forward steps from a stale root would keep this client from ever learning the
                // tree's inner nodes.
                LookupAnswer::Moved(Some(to)) if steps < FORWARD_STEPS_MAX && node != tree.root => {
                    steps += 1;
                    trees.moved(path.get_or_insert_with(way), node, &to);
                    node = to.to;
                    looked = self.look(tree, node, key).await?;
                }
                LookupAnswer::Moved(_) => break,
            }
        }
        // The node may be no leaf; search again from an ancestor.
        let path = path.unwrap_or_else(way);
        let view = self.view_of(tree.root);
        let page = trees.page_from(view, tree.root, PageRequest::leaf(goal), path, node).await?;
        let page = self.pages.keep(tree.root, page);
        self.on_page(tree, &page, key).await
    }

    /// Returns the value of a key in a leaf.
    async fn on_page(&mut self, tree: Tree, page: &Page, key: &[u8]) -> Result<Option<Box<[u8]>>, TreeError> {
        match page.cells.position(key) {
            Ok(position) => self.value(tree, page.cells.value(position)).await.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Requests the open proofs of a server.
    pub(crate) async fn read_proofs(&mut self, server: ServerId) -> Result<(), TreeError> {
        self.trees.client.read_at(&mut self.view, server, &[]).await?;
        self.hold();
        Ok(())
    }

    /// Reads nodes of a tree at the tree's snapshot.
    pub(crate) async fn read(
        &mut self,
        tree: Tree,
        server: ServerId,
        questions: &[Question<'_>],
    ) -> Result<ReadReply, TreeError> {
        let client = &self.trees.client;
        let reading = client.read_at(self.view_of(tree.root), server, questions).await?;
        self.hold();
        Ok(reading)
    }

    /// Returns the leaf of a goal, from the transaction's cache if possible.
    pub(crate) async fn page(
        &mut self,
        tree: Tree,
        mut wanted: PageRequest<'_>,
    ) -> Result<Arc<Page>, TreeError> {
        let goal = wanted.goal;
        if self.is_empty_at_servers(tree) {
            return Ok(nothing(tree, KeyRange::all()));
        }
        if let Some(empty_from) = self.empty_from(tree.root) {
            let empty_range_from = empty_range_from(empty_from);
            if goal.is_in(&empty_range_from) && matches!(goal, Goal::At(_)) {
                return Ok(nothing(tree, empty_range_from));
            }
        }
        // One request reads both trees at one snapshot, and bulk-loaded trees have another one.
        if self.bulk_loads.is_some() {
            wanted.follow =
                wanted.follow.filter(|other| self.is_bulk_loaded(*other) == self.is_bulk_loaded(tree.root));
        }
        if let Some(page) = self.pages.last(tree.root, goal) {
            return Ok(page);
        }
        let guess = self.trees.guess(tree.root, goal);
        if let Some(page) = self.pages.get(guess.leaf, goal).map(Arc::clone) {
            self.pages.used(tree.root, &page);
            return Ok(page);
        }
        if let Some(page) = self.watched(tree, guess.leaf, goal) {
            return Ok(page);
        }
        if let Some(page) = self.watch(tree, guess.leaf, goal).await? {
            return Ok(page);
        }
        self.asked += 1;
        let (trees, view) = (self.trees, self.view_of(tree.root));
        let mut page = trees.page_from(view, tree.root, wanted, guess.path, guess.leaf).await?;
        self.hold();
        if let Some(root) = wanted.follow {
            let followed = std::mem::take(&mut page.followed);
            let is_whole = followed.len() >= page.cells.len();
            self.pages.keep_singles(root, followed);
            if !is_whole {
                // Rare, and its future is large.
                Box::pin(self.follow_elsewhere(Tree::at(root), &page)).await?;
            }
        }
        Ok(self.pages.keep(tree.root, page))
    }

    /// Notes that a server was asked.
    pub(crate) fn note_asked(&mut self) {
        self.asked += 1;
        self.hold();
    }

    /// Holds the snapshot, if there is one.
    fn hold(&mut self) {
        if self.held.is_none() {
            self.held = self.view.snapshot.map(|snapshot| self.trees.client.hold(snapshot));
        }
    }

    fn check(key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        check_key(key)?;
        let (bytes, bytes_max) = (value.len(), limits::VALUE_BYTES_MAX as usize);
        if bytes > bytes_max { Err(TreeError::TooLong { what: "a value", bytes, bytes_max }) } else { Ok(()) }
    }

    fn write(&mut self, tree: Tree, key: &[u8], write: BufferedWrite) {
        if write.value.is_some() {
            self.gaps.end_at(tree.root, key);
        }
        let length = key.len() + write.value.as_ref().map_or(0, |value| value.len());
        let is_undone = self.record_write(tree.root, length);
        let old = self.writes.or_default(tree.root).insert(key.into(), write);
        if is_undone {
            self.undo_log.push(|| Undo::Write(tree.root, key.into(), old));
        }
    }

    /// Returns what a write of a key must expect, given earlier writes of this transaction.
    fn expect(&self, tree: Tree, key: &[u8], wanted: Expect) -> Result<Expect, TreeError> {
        let own = self.own_writes(tree).and_then(|writes| writes.get(key));
        match own {
            Some(BufferedWrite { value: Some(_), .. }) if wanted == Expect::Absent => Err(TreeError::Exists),
            // The first write's expectation remains.
            Some(BufferedWrite { expect, .. }) => Ok(*expect),
            None if self.is_deleted(tree, key) => Ok(Expect::Any),
            None => Ok(wanted),
        }
    }

    /// Writes a value under a key, present or not.
    pub fn put(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        Self::check(key, value)?;
        let expect = self.expect(tree, key, Expect::Any)?;
        self.write(tree, key, BufferedWrite { value: Some(value.into()), expect });
        Ok(())
    }

    /// Inserts a key that must be absent. The commit checks that, if no read did before.
    pub fn insert(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        Self::check(key, value)?;
        let expect = self.expect(tree, key, Expect::Absent)?;
        self.write(tree, key, BufferedWrite { value: Some(value.into()), expect });
        Ok(())
    }

    /// Deletes a key, if it is present.
    pub fn delete(&mut self, tree: Tree, key: &[u8]) -> Result<(), TreeError> {
        Self::check(key, &[])?;
        let expect = self.expect(tree, key, Expect::Any)?;
        self.write(tree, key, BufferedWrite { value: None, expect });
        Ok(())
    }

    /// Deletes all keys of a range.
    pub fn delete_range(&mut self, tree: Tree, range: &KeyRange) {
        let range = &range.with_short_bounds();
        if range.is_empty() {
            return;
        }
        if let Some(writes) = self.writes.get_mut(&tree.root) {
            let own: Vec<Key> = writes.keys().filter(|key| range.contains(key)).cloned().collect();
            for key in own {
                // The expectation that the key was absent remains.
                let old = match writes.get(&key).map(|write| write.expect) {
                    Some(expect @ Expect::Absent) => {
                        writes.insert(key.clone(), BufferedWrite { value: None, expect })
                    }
                    _ => writes.remove(&key),
                };
                self.undo_log.push(|| Undo::Write(tree.root, key, old));
            }
        }
        self.ranges.push((tree.root, range.clone()));
        self.undo_log.push(|| Undo::Range(tree.root));
    }

    /// Guards a range: if another transaction changes it between this one's reads and commit, one
    /// of the two fails.
    pub fn guard(&mut self, tree: Tree, range: KeyRange) {
        if !range.is_empty() {
            self.guards.push((tree.root, range.into_short_bounds()));
            self.undo_log.push(|| Undo::Guard);
        }
    }

    /// Guards a range of one of several trees that have the same content at every snapshot: a
    /// transaction that changes one of them changes all. If the transaction writes at none of their
    /// servers, `preferred` is guarded. So a guard needs no server that would not take part anyway.
    pub fn guard_at_any(&mut self, copies: &Arc<[NodeId]>, preferred: Tree, range: KeyRange) {
        if !range.is_empty() {
            let (copies, preferred) = (Arc::clone(copies), preferred.root);
            self.guards_at_any.push(GuardAtAny { copies, preferred, range: range.into_short_bounds() });
            self.undo_log.push(|| Undo::GuardAtAny);
        }
    }

    /// Notes that the transaction creates a tree.
    pub(crate) fn note_created(&mut self, root: NodeId) {
        self.undo_log.push(|| Undo::Create(root));
    }

    /// Declares that the writes are within a lease, where no other client writes now. If the lease
    /// has expired, the transaction is still correct, but others may conflict with it.
    pub fn within_lease(&mut self, holder: &LeaseHolder) {
        self.lease = Some(holder.clone());
    }

    /// Returns a range of each tree that covers all keys which the transaction writes or guards.
    pub fn touched(&self) -> BTreeMap<NodeId, KeyRange> {
        let writes = self.writes.iter().filter_map(|(root, writes)| {
            let (low, high) = (writes.first_key_value()?.0, writes.last_key_value()?.0);
            Some((*root, KeyRange { low: low.clone(), ..KeyRange::single(high) }))
        });
        // Which copy is guarded depends on where the leaves are.
        let at_any =
            self.guards_at_any.iter().flat_map(|guard| guard.copies.iter().map(|copy| (copy, &guard.range)));
        let ranges =
            self.ranges.iter().map(|(root, range)| (root, range)).chain(self.guarded()).chain(at_any);
        let ranges = ranges.map(|(root, range)| (*root, range.clone()));
        let drops = self.drops.iter().map(|dropped| (dropped.root, KeyRange::all()));
        let mut touched = BTreeMap::<NodeId, KeyRange>::new();
        for (root, range) in writes.chain(ranges).chain(drops) {
            match touched.get_mut(&root) {
                Some(all) => *all = all.hull(&range),
                None => drop(touched.insert(root, range)),
            }
        }
        touched.values_mut().for_each(|range| *range = range.with_short_bounds());
        touched
    }

    /// Returns whether a commit was sent to servers. Without writes and guards there is none, and
    /// no lease is released.
    pub fn has_sent_commit(&self) -> bool {
        self.has_sent_commit.get()
    }

    /// Returns the servers to which the commit of a transaction within a lease was sent.
    pub fn committed_at(&self) -> &[ServerId] {
        self.committed_at.get().map_or(&[], |servers| servers)
    }

    /// Drops a tree with the leaves that it may have at some groups. Later writers to it get an error.
    pub fn drop_tree(&mut self, tree: Tree, groups: &[ServerId]) {
        self.drops.push(DroppedTree { root: tree.root, groups: groups.into() });
        self.undo_log.push(|| Undo::Drop);
    }

    /// Sets a savepoint, valid until it is released.
    pub fn savepoint(&self) -> Savepoint {
        self.undo_log.savepoint()
    }

    /// Releases a savepoint and the later ones.
    pub fn release(&mut self, savepoint: Savepoint) -> Result<(), TreeError> {
        self.undo_log.release(savepoint).map_err(TreeError::Savepoint)
    }

    /// Rolls back the writes after a savepoint. Fails, without effect, if the savepoint belongs to
    /// another transaction or was itself rolled back.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TreeError> {
        for undo in self.undo_log.back_to(savepoint).map_err(TreeError::Savepoint)? {
            match undo {
                Undo::Write(root, key, old) => {
                    let writes = self.writes.or_default(root);
                    match old {
                        Some(old) => drop(writes.insert(key, old)),
                        None => drop(writes.remove(&key)),
                    }
                }
                Undo::Range(root) => {
                    // A range undone with its tree may have been flushed.
                    let last = self.ranges.iter().rposition(|(of, _)| *of == root);
                    last.map(|last| self.ranges.remove(last));
                }
                Undo::Guard => drop(self.guards.pop()),
                Undo::GuardAtAny => drop(self.guards_at_any.pop()),
                Undo::Create(root) => self.undo_create(root),
                Undo::Drop => drop(self.drops.pop()),
            }
        }
        self.gaps.clear();
        Ok(())
    }

    /// Rolls back all writes and savepoints. The snapshot stays.
    pub fn rollback_all(&mut self) {
        self.writes = SmallMap::default();
        self.ranges.clear();
        self.guards.clear();
        self.guards_at_any.clear();
        self.undo_all_creates();
        self.drops.clear();
        self.undo_log.clear();
        self.gaps.clear();
    }

    /// Rolls the transaction back.
    pub fn rollback(self) {}

    /// Commits the transaction. Returns the commit timestamp.
    pub async fn commit(self) -> Result<Timestamp, TreeError> {
        self.try_commit().await
    }

    /// Like [`commit`](Self::commit), for callers that retry while others hold leases. After a
    /// commit or an unknown outcome the transaction must not be used any more.
    pub async fn try_commit(&self) -> Result<Timestamp, TreeError> {
        self.try_commit_since(None).await
    }

    /// Commits a transaction that relies on reads of an earlier transaction of this client at
    /// snapshot `since`: its guarded ranges must be unchanged since then, also if its own reads are
    /// of a later snapshot. A failure has no effect, and the caller may go on with
    /// [`try_commit`](Self::try_commit).
    pub async fn try_commit_since(&self, since: Option<Timestamp>) -> Result<Timestamp, TreeError> {
        self.check_bulk_loads()?;
        let mut larges = self.larges().await?;
        let mut staging = self.stage(&larges).await?;
        let earliest = self.view.snapshot.into_iter().chain(since).min();
        let outcome = self.commit_staged(earliest, &mut larges, &mut staging).await;
        if outcome.is_err() {
            self.trees.client.unstage(staging).await;
        }
        outcome
    }
}
