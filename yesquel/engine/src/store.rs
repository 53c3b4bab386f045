//! All nodes of a server, the memory that they take, and the queue of those
//! that have something to collect.

use crate::cell::Value;
use crate::copies::Copies;
use crate::node::{NODE_BYTES, Node, NodeLimits, Undecided};
use crate::snapshots::Readable;
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};
use yesquel_model::{NodeId, Timestamp, TreeId, TxnId};
use yesquel_wire::{Large, NodeKind, WriteOperation};

/// The nodes. They are shared with whoever writes a checkpoint: one that
/// changes meanwhile is copied first.
#[derive(Debug)]
pub(crate) struct Store {
    limits: NodeLimits,
    index: FxHashMap<NodeId, u32>,
    slots: Vec<Option<Arc<Node>>>,
    /// Where the node stood that was changed last: what is written comes node
    /// by node, that of checkpoints above all.
    last: u32,
    free: Vec<u32>,
    memory: usize,
    copies: Copies,
    /// Nodes with something to collect, each once, since when.
    garbage: VecDeque<(Timestamp, NodeId)>,
    /// The same, of what is kept for the oldest snapshot only.
    aside: VecDeque<(Timestamp, NodeId)>,
    /// Nodes that want to be split. To note it in a node would copy it where a
    /// checkpoint has it.
    full: BTreeSet<NodeId>,
    /// Nodes in which nothing is left.
    empty: Vec<NodeId>,
    /// Trees that are dropped or about to be, as long as there are nodes of
    /// them.
    ending: FxHashMap<TreeId, TreeEnd>,
    sweep: Sweep,
}

/// What becomes of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeEnd {
    /// A transaction that is not decided would drop it, not before this time.
    Prepared(TxnId, Timestamp),
    /// It was dropped at this time.
    Dropped(Timestamp),
}

/// A walk through all nodes, that takes away those of dropped trees.
#[derive(Debug, Default)]
struct Sweep {
    /// The trees that it is for.
    trees: Vec<TreeId>,
    /// How far it has come.
    at: usize,
}

impl Store {
    pub(crate) fn new(limits: NodeLimits) -> Store {
        Store {
            limits,
            index: FxHashMap::default(),
            slots: Vec::new(),
            last: 0,
            free: Vec::new(),
            memory: 0,
            copies: Copies::default(),
            garbage: VecDeque::new(),
            aside: VecDeque::new(),
            full: BTreeSet::new(),
            empty: Vec::new(),
            ending: FxHashMap::default(),
            sweep: Sweep::default(),
        }
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&Node> {
        self.slots[*self.index.get(&id)? as usize].as_deref()
    }

    /// A node as a snapshot may see it.
    pub(crate) fn seen(&self, id: NodeId, snapshot: Timestamp) -> Result<Option<&Node>, Undecided> {
        match self.tree_end(id.tree) {
            Some(TreeEnd::Prepared(txn, at)) if at <= snapshot => Err(Undecided(txn)),
            Some(TreeEnd::Dropped(at)) if at <= snapshot => Ok(None),
            _ => Ok(self.get(id)),
        }
    }

    /// What becomes of a tree, if that is not that it stays.
    pub(crate) fn tree_end(&self, tree: TreeId) -> Option<TreeEnd> {
        if self.ending.is_empty() { None } else { self.ending.get(&tree).copied() }
    }

    /// What becomes of a tree from now on; `None`: it stays.
    pub(crate) fn end_tree(&mut self, tree: TreeId, end: Option<TreeEnd>) {
        match end {
            Some(end) => drop(self.ending.insert(tree, end)),
            None => drop(self.ending.remove(&tree)),
        }
    }

    /// Takes away nodes of trees that no snapshot from `low` on sees; looks at
    /// so many at most.
    pub(crate) fn sweep(&mut self, low: Timestamp, nodes_max: usize) {
        if self.ending.is_empty() {
            return;
        }
        if self.sweep.trees.is_empty() {
            let gone =
                self.ending.iter().filter(|(_, end)| matches!(end, TreeEnd::Dropped(at) if *at <= low));
            self.sweep = Sweep { trees: gone.map(|(tree, _)| *tree).collect(), at: 0 };
            if self.sweep.trees.is_empty() {
                return;
            }
        }
        let end = self.slots.len().min(self.sweep.at + nodes_max);
        let trees = std::mem::take(&mut self.sweep.trees);
        self.remove_nodes(self.sweep.at..end, &trees);
        if end == self.slots.len() {
            // No node of them was made meanwhile: they were dropped.
            self.forget_trees(&trees);
        } else {
            self.sweep = Sweep { trees, at: end };
        }
    }

    /// Something is done to a tree. If it was dropped before, all of it was
    /// gone by then, which is not so yet where a log is done again.
    pub(crate) fn comes_again(&mut self, tree: TreeId, at: Timestamp) {
        if matches!(self.tree_end(tree), Some(TreeEnd::Dropped(dropped)) if dropped < at) {
            self.remove_nodes(0..self.slots.len(), &[tree]);
            self.forget_trees(&[tree]);
        }
    }

    fn remove_nodes(&mut self, slots: std::ops::Range<usize>, trees: &[TreeId]) {
        for slot in slots {
            let id = self.slots[slot].as_ref().map(|node| node.id);
            if let Some(id) = id.filter(|id| trees.contains(&id.tree)) {
                self.remove(id);
            }
        }
    }

    fn forget_trees(&mut self, trees: &[TreeId]) {
        self.ending.retain(|tree, _| !trees.contains(tree));
        // Their names may come again, and are then not in the queue.
        let index = &self.index;
        self.garbage.retain(|(_, id)| index.contains_key(id));
        self.aside.retain(|(_, id)| index.contains_key(id));
    }

    fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        let is_last = |slots: &[Option<Arc<Node>>], last: u32| {
            slots.get(last as usize).and_then(Option::as_ref).is_some_and(|node| node.id == id)
        };
        if !is_last(&self.slots, self.last) {
            self.last = *self.index.get(&id)?;
        }
        let node = self.slots[self.last as usize].as_mut()?;
        Some(self.copies.own(node))
    }

    /// Nobody needs to wait for the log to see the nodes as they are.
    pub(crate) fn on_disk(&mut self) {
        for node in self.slots.iter_mut().flatten() {
            Arc::make_mut(node).changed_at_lsn = 0;
        }
    }

    /// Bytes that the nodes take.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Bytes of nodes that only a checkpoint has.
    pub(crate) fn copies(&self) -> usize {
        self.copies.bytes()
    }

    /// Bytes that are copied if a node is changed.
    pub(crate) fn price(&self, id: NodeId) -> usize {
        let node = self.index.get(&id).and_then(|slot| self.slots[*slot as usize].as_ref());
        node.map_or(0, Copies::price)
    }

    /// Since when there is something, about, that cannot be collected for the sake
    /// of the oldest snapshot.
    pub(crate) fn oldest_garbage(&self, readable: Readable) -> Option<Timestamp> {
        let aside = self.aside.front().filter(|(since, _)| *since > readable.low);
        let queued = self.garbage.front().filter(|(since, _)| *since > readable.next);
        aside.into_iter().chain(queued).map(|(since, _)| *since).min()
    }

    /// All nodes, shared, but for those of dropped trees; and the count of
    /// those that whoever has them keeps for himself.
    pub(crate) fn share(&self) -> (Vec<Arc<Node>>, Copies) {
        let is_there = |node: &&Arc<Node>| !matches!(self.tree_end(node.id.tree), Some(TreeEnd::Dropped(_)));
        (self.slots.iter().flatten().filter(is_there).cloned().collect(), self.copies.clone())
    }

    /// All nodes, those of dropped trees among them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.slots.iter().flatten().map(|node| &**node)
    }

    /// Adds a node. One of the same name, of which something is left only where
    /// a log is done again, makes room for it.
    pub(crate) fn insert(&mut self, mut node: Node) {
        (node.queued, node.aside) = self.get(node.id).map_or((false, false), |old| (old.queued, old.aside));
        self.remove(node.id);
        self.memory += NODE_BYTES + node.memory();
        let (id, node) = (node.id, Some(Arc::new(node)));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = node;
                slot
            }
            None => {
                self.slots.push(node);
                self.slots.len() as u32 - 1
            }
        };
        self.index.insert(id, slot);
    }

    fn remove(&mut self, id: NodeId) {
        let Some(slot) = self.index.remove(&id) else { return };
        if let Some(node) = self.slots[slot as usize].take() {
            self.memory -= NODE_BYTES + node.memory();
            self.copies.leave(&node);
        }
        self.free.push(slot);
    }

    /// Changes a node that is there.
    pub(crate) fn change<T>(&mut self, id: NodeId, change: impl FnOnce(&mut Node) -> T) -> Option<T> {
        let node = self.get_mut(id)?;
        let before = node.memory();
        let result = change(node);
        let after = node.memory();
        self.memory = self.memory + after - before;
        Some(result)
    }

    /// Does what a committed operation says, as record `lsn` of the log.
    /// Operations on nodes that there are not do nothing: they were checked
    /// when they were new.
    pub(crate) fn apply(&mut self, (at, lsn): (Timestamp, u64), id: NodeId, write: &WriteOperation<'_>) {
        match write {
            WriteOperation::Create(new) => {
                self.comes_again(id.tree, at);
                let mut node = Node::new(id, at, new);
                node.changed_at_lsn = lsn;
                return self.insert(node);
            }
            WriteOperation::Move { range, to } => self.apply_move(at, lsn, id, range, *to),
            WriteOperation::DropTree => self.end_tree(id.tree, Some(TreeEnd::Dropped(at))),
            _ => {}
        }
        let limits = self.limits;
        let queue = self.change(id, |node| {
            node.changed_at_lsn = lsn;
            let garbage = match write {
                WriteOperation::Put { key, value: bytes, is_large, .. } => {
                    node.put(at, key, Some(Value { bytes, is_large: *is_large }))
                }
                WriteOperation::Delete { key, .. } | WriteOperation::Unlink { key } => {
                    node.put(at, key, None)
                }
                WriteOperation::Link { key, child } => {
                    node.put(at, key, Some(Value::whole(&child.to_bits().to_le_bytes())))
                }
                WriteOperation::DeleteRange(range) => {
                    node.delete_range(at, range);
                    true
                }
                WriteOperation::Guard(range) => {
                    node.guard(at, range);
                    true
                }
                WriteOperation::Set(attribute) => {
                    node.set(at, attribute.id, attribute.value);
                    true
                }
                WriteOperation::Drop => {
                    node.drop_at(at);
                    true
                }
                WriteOperation::Reshape(new) => {
                    node.reshape(at, new);
                    true
                }
                WriteOperation::DropTree => false,
                WriteOperation::Create(_) | WriteOperation::Move { .. } => true,
            };
            let queue = garbage && !node.queued;
            node.queued |= garbage;
            (queue, node.is_full(limits))
        });
        if let Some((true, _)) = queue {
            self.garbage.push_back((at, id));
        }
        if let Some((_, true)) = queue {
            self.full.insert(id);
        }
    }

    /// Ends a cell at the time at which it moved away, if it was written below that
    /// after it had moved.
    pub(crate) fn end_at(&mut self, at: Timestamp, id: NodeId, key: &[u8]) {
        let queue = self.change(id, |node| {
            node.end_at(at, key);
            // All that was garbage in it may have been collected since it moved.
            node.has_garbage() && !std::mem::replace(&mut node.queued, true)
        });
        if queue == Some(true) {
            self.garbage.push_back((at, id));
        }
    }

    fn apply_move(
        &mut self,
        at: Timestamp,
        lsn: u64,
        from: NodeId,
        range: &yesquel_model::KeyRange,
        to: NodeId,
    ) {
        // Taken out, for one cannot change two of a store at once.
        let Some(slot) = self.index.get(&to).copied() else { return };
        let Some(mut target) = self.slots[slot as usize].take() else { return };
        let before = target.memory();
        let node = self.copies.own(&mut target);
        node.changed_at_lsn = lsn;
        self.change(from, |source| source.move_to(at, range, node));
        let queue = node.has_garbage() && !std::mem::replace(&mut node.queued, true);
        // Half of what is far too large is too large, and nobody may write to
        // it any more.
        let full = node.is_full(self.limits);
        self.memory = self.memory + node.memory() - before;
        self.slots[slot as usize] = Some(target);
        if queue {
            self.garbage.push_back((at, to));
        }
        if full {
            self.full.insert(to);
        }
    }

    /// Lets go of what no snapshot sees that may be read, in at most so many
    /// nodes, and copies no more than `room` bytes for it. What is not done now
    /// comes first the next time. Where memory is tight nodes give back all.
    ///
    /// A node is looked at when what was last found in it is below the next
    /// snapshot; what is left in it then for the oldest one waits aside until that
    /// one goes.
    pub(crate) fn collect(
        &mut self,
        (readable, now): (Readable, Timestamp),
        nodes_max: usize,
        mut room: usize,
        tight: bool,
    ) {
        for _ in 0..nodes_max {
            let Readable { low, next } = readable;
            let aside = self.aside.front().filter(|(since, _)| *since <= low);
            let queued = self.garbage.front().filter(|(since, _)| *since <= next);
            let Some(&(since, id)) = aside.or(queued) else { return };
            let was_aside = aside.is_some();
            let price = self.price(id);
            if price > room {
                return;
            }
            room -= price;
            if was_aside {
                self.aside.pop_front()
            } else {
                self.garbage.pop_front()
            };
            let mut gone = Vec::new();
            let left = self.change(id, |node| {
                if was_aside {
                    node.aside = false;
                } else {
                    node.queued = false;
                }
                let left = node.collect(readable, |bytes| gone.extend(Large::decode(bytes)));
                // It stands in the other queue.
                let left = left || node.queued || node.aside;
                if tight {
                    node.tighten();
                }
                let has_garbage = left && node.has_garbage();
                let aside = has_garbage && low < next && !node.aside;
                let queued = has_garbage && !node.queued && (low == next || node.has_after(next));
                node.aside |= aside;
                node.queued |= queued;
                let is_empty = left && !node.told_empty && node.is_empty();
                node.told_empty |= is_empty;
                (left, aside, queued, is_empty)
            });
            let Some((left, aside, queued, is_empty)) = left else { continue };
            if !left {
                self.remove(id);
            }
            if aside {
                // In order, so that the first is the oldest.
                let last = self.aside.back().map_or(since, |(last, _)| since.max(*last));
                self.aside.push_back((if was_aside { last.max(next) } else { last }, id));
            }
            if queued {
                self.garbage.push_back((now, id));
            }
            if is_empty {
                self.empty.push(id);
            }
            // Their nodes stand alone, and nobody will ask for them any more.
            for node in gone.iter().flat_map(|large| large.ids(id.tree)) {
                // Who names another kind of node has made it up.
                let kind = self.get(node).and_then(Node::shape).map(|shape| shape.kind);
                if kind == Some(NodeKind::Value) {
                    self.remove_piece(node);
                }
            }
        }
    }

    /// Takes a piece of a long value away, which may have something to collect.
    fn remove_piece(&mut self, id: NodeId) {
        // Its name may come again, and is then not in the queue.
        if self.get(id).is_some_and(|node| node.queued || node.aside) {
            self.garbage.retain(|(_, queued)| *queued != id);
            self.aside.retain(|(_, aside)| *aside != id);
        }
        self.remove(id);
    }

    /// Whether a node is too large.
    pub(crate) fn is_full(&self, node: &Node) -> bool {
        node.is_full(self.limits)
    }

    /// In how many parts a node should be split.
    pub(crate) fn parts(&self, node: &Node) -> usize {
        node.parts(self.limits)
    }

    /// Whether there are nodes that have grown too large.
    pub(crate) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Nodes that have grown too large since this was asked last.
    pub(crate) fn take_full(&mut self) -> Vec<NodeId> {
        let full = std::mem::take(&mut self.full);
        // One that was split after it was told again is not.
        full.into_iter().filter(|id| self.get(*id).is_some_and(|node| self.is_full(node))).collect()
    }

    /// Takes away pieces of long values that no cell names: a checkpoint has
    /// the newest version of each cell only, and the pieces of older ones.
    pub(crate) fn remove_unnamed(&mut self) {
        let of_kind = |node: &Node, kind: NodeKind| node.shape().is_some_and(|shape| shape.kind == kind);
        let mut pieces: Vec<NodeId> =
            self.iter().filter(|node| of_kind(node, NodeKind::Value)).map(|node| node.id).collect();
        if pieces.is_empty() {
            return;
        }
        let leaves = self.iter().filter(|node| of_kind(node, NodeKind::Leaf));
        let named: FxHashSet<NodeId> = leaves
            .flat_map(|node| {
                let values = node.cells().iter().filter_map(|cell| cell.newest);
                let larges = values.filter(|value| value.is_large);
                larges
                    .filter_map(|value| Large::decode(value.bytes).ok())
                    .flat_map(|large| large.ids(node.id.tree))
            })
            .collect();
        pieces.retain(|id| !named.contains(id));
        pieces.into_iter().for_each(|id| self.remove_piece(id));
    }

    /// Notes the leaves in which nothing is left and nothing was: those of a
    /// checkpoint, whose garbage nobody will collect.
    pub(crate) fn look_for_empty(&mut self) {
        let empty = self.iter().filter(|node| !node.told_empty && node.is_empty());
        let empty: Vec<NodeId> = empty.map(|node| node.id).collect();
        for id in &empty {
            self.change(*id, |node| node.told_empty = true);
        }
        self.empty.extend(empty);
    }

    /// Whether there are nodes in which nothing is left.
    pub(crate) fn has_empty(&self) -> bool {
        !self.empty.is_empty()
    }

    /// Nodes in which nothing is left since this was asked last.
    pub(crate) fn take_empty(&mut self) -> Vec<NodeId> {
        let mut empty = std::mem::take(&mut self.empty);
        empty.retain(|id| {
            self.change(*id, |node| {
                node.told_empty = false;
                node.is_empty()
            }) == Some(true)
        });
        empty
    }

    /// Says what is wrong.
    pub(crate) fn audit(&self, low: Timestamp) -> Result<(), String> {
        let memory: usize = self.iter().map(|node| NODE_BYTES + node.memory()).sum();
        if memory != self.memory {
            return Err(format!("the nodes take {memory} bytes, not {}", self.memory));
        }
        // Nodes of dropped trees go without a look at the queue.
        let queued = self.garbage.iter().filter(|(_, id)| self.get(*id).is_some_and(|node| node.queued));
        let aside = self.aside.iter().filter(|(_, id)| self.get(*id).is_some_and(|node| node.aside));
        if self.iter().filter(|node| node.queued).count() != queued.count()
            || self.iter().filter(|node| node.aside).count() != aside.count()
        {
            return Err("the queues have other nodes than say so".to_owned());
        }
        if !self.aside.iter().is_sorted_by_key(|(since, _)| *since) {
            return Err("what waits aside is out of order".to_owned());
        }
        if self.index.len() != self.iter().count() {
            return Err("the index has other nodes than there are".to_owned());
        }
        self.iter().try_for_each(|node| node.audit(low))
    }
}
