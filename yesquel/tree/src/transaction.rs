//! Transactions over trees: reads at one snapshot, writes that wait for the
//! commit (deferred writes, section 5).

mod ahead;
mod commit;

use crate::{
    Tree, TreeError, Trees,
    ahead::{Makes, nothing_from},
    cache::Goal,
    gap::Gaps,
    page::{Cells, Page, Value},
    pages::Pages,
    savepoint::{Savepoint, Steps, Undo},
    search::{FORWARD_STEPS_MAX, Wanted, check_key},
    stored::{Looked, Stored},
    write::Write,
};
use std::{collections::BTreeMap, rc::Rc};
use yesquel_client::{Lease, ReadView, Reading, SnapshotHold};
use yesquel_model::{Key, KeyRange, NodeId, ServerId, SmallMap, Timestamp, limits};
use yesquel_transport::Transport;
use yesquel_wire::{Expect, LargeValue, Question};

/// A transaction: snapshot isolation, and guards for what must be more.
///
/// Its snapshot is that of its first read. Dropping it rolls it back.
#[derive(Debug)]
pub struct Transaction<'a, T> {
    pub(crate) trees: &'a Trees<T>,
    pub(crate) view: ReadView,
    /// Times that servers were asked.
    asked: u64,
    /// Has servers keep what the snapshot sees.
    held: Option<SnapshotHold<'a>>,
    pub(crate) writes: SmallMap<NodeId, BTreeMap<Key, Write>>,
    /// Ranges to delete, before the writes.
    pub(crate) ranges: Vec<(NodeId, KeyRange)>,
    guards: Vec<(NodeId, KeyRange)>,
    /// Trees to make, before all else: most make none.
    pub(crate) makes: Option<Box<Makes<'a>>>,
    /// Roots of trees to drop, after all else.
    pub(crate) drops: Vec<NodeId>,
    lease: Option<Lease>,
    pub(crate) steps: Steps,
    pub(crate) pages: Pages,
    /// Where cursors need not look again.
    pub(crate) gaps: Gaps,
}

/// What a transaction knows of a key.
enum Known {
    Value(Option<Box<[u8]>>),
    Large(LargeValue),
    /// Nothing but what should be its leaf.
    Leaf(NodeId),
}

/// Of a part of a tree in which there is nothing.
fn nothing(tree: Tree, fence: KeyRange) -> Rc<Page> {
    Rc::new(Page { node: tree.root, fence, cells: Cells::default(), followed: Vec::new() })
}

impl<T: Transport> Trees<T> {
    /// The value under a key now, in a transaction of its own.
    pub async fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Box<[u8]>>, TreeError> {
        check_key(key)?;
        let node = self.leaf(tree.root(), key);
        let mut snapshot = None;
        match self.client.lookup(&mut snapshot, node, key, Looked::of).await? {
            Looked::Absent => Ok(None),
            Looked::Stored(Stored::Whole(value)) => Ok(Some(value)),
            // There is more to be read, of the same moment.
            // Seldom, and the way there is long: in a box, so that not everybody
            // who asks has to have room for it.
            looked => {
                let mut transaction = Transaction::at(self, snapshot);
                Box::pin(transaction.found(tree, key, node, looked)).await
            }
        }
    }
}

impl<'a, T: Transport> Transaction<'a, T> {
    pub(crate) fn new(trees: &'a Trees<T>) -> Self {
        Transaction::at(trees, None)
    }

    /// One that has read at a snapshot.
    pub(crate) fn at(trees: &'a Trees<T>, snapshot: Option<Timestamp>) -> Self {
        Transaction {
            trees,
            view: snapshot.into(),
            asked: 0,
            held: snapshot.map(|snapshot| trees.client.hold(snapshot)),
            writes: SmallMap::default(),
            ranges: Vec::new(),
            guards: Vec::new(),
            makes: None,
            drops: Vec::new(),
            lease: None,
            steps: Steps::default(),
            pages: Pages::default(),
            gaps: Gaps::default(),
        }
    }

    /// Its snapshot, once something was read.
    pub fn snapshot(&self) -> Option<Timestamp> {
        self.view.snapshot
    }

    /// How often it has read what it had not read before. Who sees that his reads
    /// lie side by side may ask for [more](Self::get_near) at a time.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Of what it reads it keeps so many bytes for its next reads, and never fewer
    /// than 16 MiB. Beyond that all goes, and it gathers anew.
    pub fn keep_up_to(&mut self, bytes: usize) {
        self.pages.keep_up_to(bytes);
    }

    pub(crate) fn own_writes(&self, tree: Tree) -> Option<&BTreeMap<Key, Write>> {
        self.writes.get(&tree.root)
    }

    /// Whether it has deleted no ranges.
    pub(crate) fn deletes_nothing_whole(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the transaction itself has deleted the key with a range.
    pub(crate) fn is_deleted(&self, tree: Tree, key: &[u8]) -> bool {
        self.ranges.iter().any(|(root, range)| *root == tree.root && range.contains(key))
    }

    /// Whether nothing that a server has of the tree is seen: the transaction
    /// makes it, or has deleted all.
    fn is_empty_at_servers(&self, tree: Tree) -> bool {
        self.is_to_make(tree.root)
            || self.ranges.iter().any(|(root, range)| *root == tree.root && range.covers(&KeyRange::all()))
    }

    /// Whether no key from this one on is at the server of a tree that was made
    /// ahead.
    fn is_beyond(&self, tree: Tree, key: &[u8]) -> bool {
        self.beyond(tree.root).is_some_and(|beyond| key >= &**beyond)
    }

    /// The value under a key.
    pub async fn get(&mut self, tree: Tree, key: &[u8]) -> Result<Option<Box<[u8]>>, TreeError> {
        check_key(key)?;
        self.looks(tree, key);
        let leaf = match self.known(tree, key) {
            Known::Value(value) => return Ok(value),
            Known::Large(large) => return Box::pin(self.large(tree, large)).await.map(Some),
            Known::Leaf(leaf) => leaf,
        };
        self.stored_at(tree, key, leaf).await
    }

    /// What servers have under a key, whatever the transaction has written.
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
        match self.look(tree, leaf, key).await? {
            Looked::Absent => Ok(None),
            Looked::Stored(Stored::Whole(value)) => Ok(Some(value)),
            // In a box, as in `Trees::get`.
            looked => Box::pin(self.found(tree, key, leaf, looked)).await,
        }
    }

    /// The same for one who will ask for its neighbours too: they are read with
    /// it.
    pub async fn get_near(&mut self, tree: Tree, key: &[u8]) -> Result<Option<Box<[u8]>>, TreeError> {
        check_key(key)?;
        match self.known(tree, key) {
            Known::Value(value) => Ok(value),
            Known::Large(large) => self.large(tree, large).await.map(Some),
            Known::Leaf(_) => {
                let page = self.page(tree, Wanted::leaf(Goal::At(key))).await?;
                self.on_page(tree, &page, key).await
            }
        }
    }

    /// What stands under a key, if it was told of with what refers to it, and
    /// nothing is written there.
    pub fn told_of(&self, tree: Tree, key: &[u8]) -> Option<Box<[u8]>> {
        let Stored::Whole(value) = self.pages.single(tree.root, key)?.as_ref()? else { return None };
        let is_own = self.own_writes(tree).is_some_and(|writes| writes.contains_key(key));
        (!is_own && !self.is_empty_at_servers(tree) && !self.is_deleted(tree, key)).then(|| value.clone())
    }

    /// What there is to know of a key without asking.
    fn known(&self, tree: Tree, key: &[u8]) -> Known {
        if let Some(write) = self.own_writes(tree).and_then(|writes| writes.get(key)) {
            return Known::Value(write.value.clone());
        }
        if self.is_empty_at_servers(tree) || self.is_deleted(tree, key) || self.is_beyond(tree, key) {
            return Known::Value(None);
        }
        let of = |stored: &Stored| match stored {
            Stored::Whole(value) => Known::Value(Some(value.clone())),
            Stored::Large(large) => Known::Large(*large),
        };
        if let Some(single) = self.pages.single(tree.root, key) {
            return single.as_ref().map_or(Known::Value(None), of);
        }
        let leaf = self.trees.leaf(tree.root, key);
        match self.pages.get(leaf, Goal::At(key)) {
            Some(page) => match page.cells.position(key).map(|at| page.cells.value(at)) {
                Ok(Value::Whole(value)) => Known::Value(Some(value.into())),
                Ok(Value::Large(large)) => Known::Large(large),
                Err(_) => Known::Value(None),
            },
            None => Known::Leaf(leaf),
        }
    }

    /// Asks a node of a tree for a key.
    async fn look(&mut self, tree: Tree, node: NodeId, key: &[u8]) -> Result<Looked, TreeError> {
        self.asked += 1;
        let client = &self.trees.client;
        let looked = client.lookup_at(self.view_of(tree.root), node, key, Looked::of).await?;
        self.hold();
        Ok(looked)
    }

    /// The value under a key, of which a node that should be its leaf has said
    /// something.
    pub(crate) async fn found(
        &mut self,
        tree: Tree,
        key: &[u8],
        mut node: NodeId,
        mut looked: Looked,
    ) -> Result<Option<Box<[u8]>>, TreeError> {
        let goal = Goal::At(key);
        // The way to the leaf, if that turns out to be wrong.
        let (mut path, mut steps) = (None, 0);
        let trees = self.trees;
        let way = || trees.guess_again(tree.root(), goal).path;
        loop {
            match looked {
                Looked::Absent => return Ok(None),
                Looked::Stored(Stored::Whole(value)) => return Ok(Some(value)),
                Looked::Stored(Stored::Large(large)) => return self.large(tree, large).await.map(Some),
                // From a root that is no leaf any more one does not go on, for
                // nobody would ever learn what the tree looks like.
                Looked::Moved(Some(to)) if steps < FORWARD_STEPS_MAX && node != tree.root => {
                    steps += 1;
                    trees.moved(path.get_or_insert_with(way), node, &to);
                    node = to.to;
                    looked = self.look(tree, node, key).await?;
                }
                Looked::Moved(_) => break,
            }
        }
        // It may be no leaf; else back, and down from there.
        let path = path.unwrap_or_else(way);
        let view = self.view_of(tree.root);
        let page = trees.page_from(view, tree.root, Wanted::leaf(goal), path, node).await?;
        let page = self.pages.keep(tree.root, page);
        self.on_page(tree, &page, key).await
    }

    /// The value under a key of a leaf.
    async fn on_page(&mut self, tree: Tree, page: &Page, key: &[u8]) -> Result<Option<Box<[u8]>>, TreeError> {
        match page.cells.position(key) {
            Ok(position) => self.value(tree, page.cells.value(position)).await.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Asks a server what was not asked yet of all that is to be proved.
    pub(crate) async fn read_proofs(&mut self, server: ServerId) -> Result<(), TreeError> {
        self.trees.client.read_at(&mut self.view, server, &[]).await?;
        self.hold();
        Ok(())
    }

    /// Asks nodes of a tree at the moment at which it is read.
    pub(crate) async fn read(
        &mut self,
        tree: Tree,
        server: ServerId,
        questions: &[Question<'_>],
    ) -> Result<Reading, TreeError> {
        let client = &self.trees.client;
        let reading = client.read_at(self.view_of(tree.root), server, questions).await?;
        self.hold();
        Ok(reading)
    }

    /// The leaf of a goal, from the transaction's own cache if it is there.
    pub(crate) async fn page(&mut self, tree: Tree, mut wanted: Wanted<'_>) -> Result<Rc<Page>, TreeError> {
        let goal = wanted.goal;
        if self.is_empty_at_servers(tree) {
            return Ok(nothing(tree, KeyRange::all()));
        }
        if let Some(beyond) = self.beyond(tree.root) {
            let nothing_from = nothing_from(beyond);
            if goal.is_in(&nothing_from) && matches!(goal, Goal::At(_)) {
                return Ok(nothing(tree, nothing_from));
            }
        }
        // What is read of two trees in one request is of one moment.
        if self.makes.is_some() {
            wanted.follow = wanted.follow.filter(|other| self.is_ahead(*other) == self.is_ahead(tree.root));
        }
        if let Some(page) = self.pages.last(tree.root, goal) {
            return Ok(page);
        }
        let guess = self.trees.guess(tree.root, goal);
        if let Some(page) = self.pages.get(guess.leaf, goal).map(Rc::clone) {
            self.pages.used(tree.root, &page);
            return Ok(page);
        }
        self.asked += 1;
        let (trees, view) = (self.trees, self.view_of(tree.root));
        let mut page = trees.page_from(view, tree.root, wanted, guess.path, guess.leaf).await?;
        self.hold();
        if let Some(root) = wanted.follow {
            self.pages.keep_singles(root, std::mem::take(&mut page.followed));
        }
        Ok(self.pages.keep(tree.root, page))
    }

    /// Sees to it that the snapshot, if there is one, is not let go of.
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

    fn write(&mut self, tree: Tree, key: &[u8], write: Write) {
        if write.value.is_some() {
            self.gaps.end_at(tree.root, key);
        }
        let length = key.len() + write.value.as_ref().map_or(0, |value| value.len());
        let is_undone = self.is_undone_singly(tree.root, length);
        let old = self.writes.or_default(tree.root).insert(key.into(), write);
        if is_undone {
            self.steps.push(|| Undo::Write(tree.root, key.into(), old));
        }
    }

    /// What a write of a key must expect, which an earlier one may have
    /// settled.
    fn expect(&self, tree: Tree, key: &[u8], wanted: Expect) -> Result<Expect, TreeError> {
        let own = self.own_writes(tree).and_then(|writes| writes.get(key));
        match own {
            Some(Write { value: Some(_), .. }) if wanted == Expect::Absent => Err(TreeError::Exists),
            // What the first one expected must still be so.
            Some(Write { expect, .. }) => Ok(*expect),
            None if self.is_deleted(tree, key) => Ok(Expect::Any),
            None => Ok(wanted),
        }
    }

    /// Writes a value under a key, whatever is there.
    pub fn put(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        Self::check(key, value)?;
        let expect = self.expect(tree, key, Expect::Any)?;
        self.write(tree, key, Write { value: Some(value.into()), expect });
        Ok(())
    }

    /// Inserts a key that must not be there; that it is not is found out by
    /// the commit, if not before.
    pub fn insert(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        Self::check(key, value)?;
        let expect = self.expect(tree, key, Expect::Absent)?;
        self.write(tree, key, Write { value: Some(value.into()), expect });
        Ok(())
    }

    /// Deletes a key, if it is there.
    pub fn delete(&mut self, tree: Tree, key: &[u8]) -> Result<(), TreeError> {
        Self::check(key, &[])?;
        let expect = self.expect(tree, key, Expect::Any)?;
        self.write(tree, key, Write { value: None, expect });
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
                // That a key was absent must hold, whatever became of it.
                let old = match writes.get(&key).map(|write| write.expect) {
                    Some(expect @ Expect::Absent) => {
                        writes.insert(key.clone(), Write { value: None, expect })
                    }
                    _ => writes.remove(&key),
                };
                self.steps.push(|| Undo::Write(tree.root, key, old));
            }
        }
        self.ranges.push((tree.root, range.clone()));
        self.steps.push(|| Undo::Range(tree.root));
    }

    /// What was read in a range must still be so at the commit, and whoever
    /// changes it meanwhile loses, or this one.
    pub fn guard(&mut self, tree: Tree, range: KeyRange) {
        if !range.is_empty() {
            self.guards.push((tree.root, range.into_short_bounds()));
            self.steps.push(|| Undo::Guard);
        }
    }

    /// It makes a tree from now on.
    pub(crate) fn made(&mut self, root: NodeId) {
        self.steps.push(|| Undo::Create(root));
    }

    /// What it writes is within a lease, where nobody else writes now. One that
    /// is over is no fault: others may be first then, as ever.
    pub fn under(&mut self, lease: &Lease) {
        self.lease = Some(lease.clone());
    }

    /// Takes a whole tree away. Whoever writes to it afterwards is told that
    /// there is none.
    pub fn drop_tree(&mut self, tree: Tree) {
        self.drops.push(tree.root);
        self.steps.push(|| Undo::Drop);
    }

    /// A place to come back to, until it is released.
    pub fn savepoint(&self) -> Savepoint {
        self.steps.savepoint()
    }

    /// Forgets a savepoint and those after it: nobody will come back to them.
    pub fn release(&mut self, savepoint: Savepoint) -> Result<(), TreeError> {
        self.steps.release(savepoint).map_err(TreeError::Savepoint)
    }

    /// Takes back what was written after a savepoint. Fails, and changes
    /// nothing, if it is another transaction's, or was itself taken back.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TreeError> {
        for undo in self.steps.back_to(savepoint).map_err(TreeError::Savepoint)? {
            match undo {
                Undo::Write(root, key, old) => {
                    let writes = self.writes.or_default(root);
                    match old {
                        Some(old) => drop(writes.insert(key, old)),
                        None => drop(writes.remove(&key)),
                    }
                }
                Undo::Range(root) => {
                    // One that goes back with its tree may have been sent ahead.
                    let last = self.ranges.iter().rposition(|(of, _)| *of == root);
                    last.map(|last| self.ranges.remove(last));
                }
                Undo::Guard => drop(self.guards.pop()),
                Undo::Create(root) => self.take_back(root),
                Undo::Drop => drop(self.drops.pop()),
            }
        }
        self.gaps.clear();
        Ok(())
    }

    /// Takes back all that was written, savepoints among it. What was read is
    /// still of its moment.
    pub fn rollback_all(&mut self) {
        self.writes = SmallMap::default();
        self.ranges.clear();
        self.guards.clear();
        self.take_all_back();
        self.drops.clear();
        self.steps.clear();
        self.gaps.clear();
    }

    /// Ends it without a trace.
    pub fn rollback(self) {}

    /// Commits it. Returns when it happened.
    pub async fn commit(self) -> Result<Timestamp, TreeError> {
        self.try_commit().await
    }

    /// The same for those who try again as long as others hold leases. After it
    /// was committed, or lost, there is nothing more to be done with it.
    pub async fn try_commit(&self) -> Result<Timestamp, TreeError> {
        self.try_commit_since(None).await
    }

    /// The same for one that has read nothing, but knows what an earlier
    /// transaction of this client has read, of that one's moment: what it guards
    /// must be as it was then. If it fails, nothing was done, and there is
    /// [the other way](Self::try_commit).
    pub async fn try_commit_since(&self, since: Option<Timestamp>) -> Result<Timestamp, TreeError> {
        self.check_sent()?;
        let larges = self.larges().await?;
        let mut staging = self.stage(&larges).await?;
        let outcome = self.commit_staged(self.view.snapshot.or(since), &larges, &mut staging).await;
        if outcome.is_err() {
            self.trees.client.unstage(staging).await;
        }
        outcome
    }
}
