//! All nodes of a server, their memory, and the queue of nodes with garbage.

mod values;

pub(crate) use values::{LeafSearch, UnseenValue, nodes_of};

use crate::cell::VersionValue;
use crate::checkpoint_copies::CheckpointCopies;
use crate::node::{NODE_BYTES, Node, NodeLimits, Undecided};
use crate::node_record::NodeItems;
use crate::snapshots::Readable;
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};
use values::ValueIndex;
use yesquel_model::{NodeId, Timestamp, TreeId, TxnId};
use yesquel_wire::{LargeValue, WriteOperation};

/// The nodes, shared with checkpoints in progress: a node that changes meanwhile is copied first.
#[derive(Debug)]
pub(crate) struct NodeStore {
    limits: NodeLimits,
    index: FxHashMap<NodeId, u32>,
    slots: Vec<Option<Arc<Node>>>,
    /// Slot of the node that was changed last: writes come node by node, above all those of
    /// checkpoints.
    last: u32,
    free: Vec<u32>,
    memory: usize,
    checkpoint_copies: CheckpointCopies,
    /// Nodes with garbage, each once, and since when.
    garbage: VecDeque<(Timestamp, NodeId)>,
    /// Nodes whose garbage is pinned by the oldest snapshot.
    pinned_garbage: VecDeque<(Timestamp, NodeId)>,
    /// Nodes over the size limit. A flag in the node would copy it if a checkpoint holds it.
    full: BTreeSet<NodeId>,
    /// Empty nodes.
    empty: Vec<NodeId>,
    /// Trees that are dropped, or prepared to be, while they have nodes.
    ending: FxHashMap<TreeId, TreeEnd>,
    sweep: Sweep,
    values: ValueIndex,
}

/// The end of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeEnd {
    /// An undecided transaction would drop it, not before this time.
    Prepared(TxnId, Timestamp),
    /// It was dropped at this time.
    Dropped(Timestamp),
}

/// A walk through all nodes that removes those of dropped trees.
#[derive(Debug, Default)]
struct Sweep {
    /// The dropped trees.
    trees: Vec<TreeId>,
    /// Progress of the walk.
    at: usize,
}

impl NodeStore {
    pub(crate) fn new(limits: NodeLimits) -> NodeStore {
        NodeStore {
            limits,
            index: FxHashMap::default(),
            slots: Vec::new(),
            last: 0,
            free: Vec::new(),
            memory: 0,
            checkpoint_copies: CheckpointCopies::default(),
            garbage: VecDeque::new(),
            pinned_garbage: VecDeque::new(),
            full: BTreeSet::new(),
            empty: Vec::new(),
            ending: FxHashMap::default(),
            sweep: Sweep::default(),
            values: ValueIndex::default(),
        }
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&Node> {
        self.slots[*self.index.get(&id)? as usize].as_deref()
    }

    /// Returns a node as a snapshot may see it.
    pub(crate) fn seen(&self, id: NodeId, snapshot: Timestamp) -> Result<Option<&Node>, Undecided> {
        match self.tree_end(id.tree) {
            Some(TreeEnd::Prepared(txn, at)) if at <= snapshot => Err(Undecided(txn)),
            Some(TreeEnd::Dropped(at)) if at <= snapshot => Ok(None),
            _ => Ok(self.get(id)),
        }
    }

    /// The end of a tree, if it has one.
    pub(crate) fn tree_end(&self, tree: TreeId) -> Option<TreeEnd> {
        if self.ending.is_empty() { None } else { self.ending.get(&tree).copied() }
    }

    /// Sets the end of a tree; `None`: it stays.
    pub(crate) fn end_tree(&mut self, tree: TreeId, end: Option<TreeEnd>) {
        match end {
            Some(end) => drop(self.ending.insert(tree, end)),
            None => drop(self.ending.remove(&tree)),
        }
    }

    /// Removes nodes of dropped trees that no snapshot from `low` on sees, visiting at most
    /// `nodes_max`.
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
            // No node of these trees was created meanwhile: they are dropped.
            self.forget_trees(&trees);
        } else {
            self.sweep = Sweep { trees, at: end };
        }
    }

    /// Handles an operation on a tree that was dropped before: in replay, its nodes may not be
    /// removed yet.
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
        // Ids may be used again, and are then not in the queue.
        let index = &self.index;
        self.garbage.retain(|(_, id)| index.contains_key(id));
        self.pinned_garbage.retain(|(_, id)| index.contains_key(id));
    }

    fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        let is_last = |slots: &[Option<Arc<Node>>], last: u32| {
            slots.get(last as usize).and_then(Option::as_ref).is_some_and(|node| node.id == id)
        };
        if !is_last(&self.slots, self.last) {
            self.last = *self.index.get(&id)?;
        }
        let node = self.slots[self.last as usize].as_mut()?;
        Some(self.checkpoint_copies.own(node))
    }

    /// Makes all nodes independent of the log: everything is durable.
    fn on_disk(&mut self) {
        for node in self.slots.iter_mut().flatten() {
            Arc::make_mut(node).changed_at_lsn = 0;
        }
    }

    /// Bytes of the nodes.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Bytes of node versions that only a checkpoint holds.
    pub(crate) fn checkpoint_copies(&self) -> usize {
        self.checkpoint_copies.bytes()
    }

    /// Bytes that are copied if a node changes.
    pub(crate) fn price(&self, id: NodeId) -> usize {
        let node = self.index.get(&id).and_then(|slot| self.slots[*slot as usize].as_ref());
        node.map_or(0, CheckpointCopies::price)
    }

    /// Approximately since when there is garbage that the oldest snapshot pins.
    pub(crate) fn oldest_garbage(&self, readable: Readable) -> Option<Timestamp> {
        let pinned_garbage = self.pinned_garbage.front().filter(|(since, _)| *since > readable.low);
        let queued = self.garbage.front().filter(|(since, _)| *since > readable.next);
        pinned_garbage.into_iter().chain(queued).map(|(since, _)| *since).min()
    }

    /// Returns all nodes, shared, except those of trees that no snapshot from `low` on sees, and the
    /// count of their copies.
    pub(crate) fn share(&self, low: Timestamp) -> (Vec<Arc<Node>>, CheckpointCopies) {
        let is_gone = |end| matches!(end, Some(TreeEnd::Dropped(at)) if at <= low);
        let is_there = |node: &&Arc<Node>| !is_gone(self.tree_end(node.id.tree));
        (self.slots.iter().flatten().filter(is_there).cloned().collect(), self.checkpoint_copies.clone())
    }

    /// Trees that were dropped after a time, in order.
    pub(crate) fn dropped_after(&self, time: Timestamp) -> Vec<(TreeId, Timestamp)> {
        let dropped = self.ending.iter().filter_map(|(tree, end)| match end {
            TreeEnd::Dropped(at) if *at > time => Some((*tree, *at)),
            _ => None,
        });
        let mut dropped: Vec<_> = dropped.collect();
        dropped.sort_unstable();
        dropped
    }

    /// Iterates over all nodes, including those of dropped trees.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.slots.iter().flatten().map(|node| &**node)
    }

    /// Adds a node. In replay it may replace one with the same id.
    pub(crate) fn insert(&mut self, mut node: Node) {
        (node.queued, node.pinned_garbage) =
            self.get(node.id).map_or((false, false), |old| (old.queued, old.pinned_garbage));
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
            self.checkpoint_copies.leave(&node);
        }
        self.free.push(slot);
        self.forget_owner(id);
    }

    /// Changes a node, if it exists.
    pub(crate) fn change<T>(&mut self, id: NodeId, change: impl FnOnce(&mut Node) -> T) -> Option<T> {
        let node = self.get_mut(id)?;
        let before = node.memory();
        let result = change(node);
        let after = node.memory();
        self.memory = self.memory + after - before;
        Some(result)
    }

    /// Applies a committed operation, as log record `lsn`. An operation on a node that does not
    /// exist does nothing: it was checked when it was new.
    pub(crate) fn apply(&mut self, (at, lsn): (Timestamp, u64), id: NodeId, write: &WriteOperation<'_>) {
        match write {
            WriteOperation::Create(new) => {
                self.comes_again(id.tree, at);
                let mut node = Node::new(id, at, new);
                node.changed_at_lsn = lsn;
                return self.insert(node);
            }
            WriteOperation::Move { range, to } if to.server == id.server => {
                self.apply_move(at, lsn, id, range, *to);
            }
            WriteOperation::Move { range, .. } => self.remove_unseen_values(id, range),
            WriteOperation::DropTree => self.end_tree(id.tree, Some(TreeEnd::Dropped(at))),
            WriteOperation::Put { value, is_large: true, .. } => self.note_large(id, value),
            WriteOperation::Set(_) | WriteOperation::Drop => {
                self.apply_to_node(at, lsn, id, write);
                return self.note_owner(id);
            }
            _ => {}
        }
        self.apply_to_node(at, lsn, id, write);
    }

    /// Applies an operation that changes one node.
    #[inline]
    fn apply_to_node(&mut self, at: Timestamp, lsn: u64, id: NodeId, write: &WriteOperation<'_>) {
        let limits = self.limits;
        let queue = self.change(id, |node| {
            node.changed_at_lsn = lsn;
            let garbage = match write {
                WriteOperation::Put { key, value: bytes, is_large, .. } => {
                    node.put(at, key, Some(VersionValue { bytes, is_large: *is_large }))
                }
                WriteOperation::Delete { key, .. } | WriteOperation::Unlink { key } => {
                    node.put(at, key, None)
                }
                WriteOperation::Link { key, child } => {
                    node.put(at, key, Some(VersionValue::whole(&child.to_bits().to_le_bytes())))
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
                WriteOperation::Move { range, to } if to.server != id.server => {
                    node.depart(at, range, *to);
                    true
                }
                WriteOperation::Adopt { floor, items } => {
                    // It was checked when it was new.
                    NodeItems::decode(items).into_iter().for_each(|items| node.adopt(*floor, items));
                    true
                }
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

    /// Ends a cell at the time it moved away, if it was written below that time after the move.
    pub(crate) fn end_at(&mut self, at: Timestamp, id: NodeId, key: &[u8]) {
        let queue = self.change(id, |node| {
            node.end_at(at, key);
            // All garbage in it may have been collected since the move.
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
        // Taken out, since two nodes of the store cannot be changed at once.
        let Some(slot) = self.index.get(&to).copied() else { return };
        let Some(mut target) = self.slots[slot as usize].take() else { return };
        let before = target.memory();
        let node = self.checkpoint_copies.own(&mut target);
        node.changed_at_lsn = lsn;
        self.change(from, |source| source.move_to(at, range, node));
        let queue = node.has_garbage() && !std::mem::replace(&mut node.queued, true);
        // Half of a far too large node is still too large, and no write may reach it any more.
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

    /// Whether nodes with garbage wait for the next held snapshot, or for the low-water mark, to rise.
    pub(crate) fn garbage_waits(&self) -> (bool, bool) {
        (!self.garbage.is_empty(), !self.pinned_garbage.is_empty())
    }

    /// Collects what no readable snapshot sees, in at most `nodes_max` nodes, copying no more than
    /// `room` bytes. What is left comes first in the next call. If memory is tight, nodes return
    /// spare capacity.
    ///
    /// A node is visited when its newest garbage is below the next snapshot. Garbage that only the
    /// oldest snapshot pins waits until that one is released.
    pub(crate) fn collect(
        &mut self,
        (readable, now): (Readable, Timestamp),
        nodes_max: usize,
        mut room: usize,
        tight: bool,
    ) {
        for _ in 0..nodes_max {
            let Readable { low, next } = readable;
            let pinned_garbage = self.pinned_garbage.front().filter(|(since, _)| *since <= low);
            let queued = self.garbage.front().filter(|(since, _)| *since <= next);
            let Some(&(since, id)) = pinned_garbage.or(queued) else { return };
            let was_aside = pinned_garbage.is_some();
            let price = self.price(id);
            if price > room {
                return;
            }
            room -= price;
            if was_aside {
                self.pinned_garbage.pop_front()
            } else {
                self.garbage.pop_front()
            };
            let mut gone = Vec::new();
            let left = self.change(id, |node| {
                if was_aside {
                    node.pinned_garbage = false;
                } else {
                    node.queued = false;
                }
                let left = node.collect(readable, |bytes| gone.extend(LargeValue::decode(bytes)));
                // It is in the other queue.
                let left = left || node.queued || node.pinned_garbage;
                if tight {
                    node.tighten();
                }
                let has_garbage = left && node.has_garbage();
                let pinned_garbage = has_garbage && low < next && !node.pinned_garbage;
                let queued = has_garbage && !node.queued && (low == next || node.has_after(next));
                node.pinned_garbage |= pinned_garbage;
                node.queued |= queued;
                let is_empty = left && !node.reported_empty && node.is_empty();
                node.reported_empty |= is_empty;
                (left, pinned_garbage, queued, is_empty)
            });
            let Some((left, pinned_garbage, queued, is_empty)) = left else { continue };
            if !left {
                self.remove(id);
            }
            if pinned_garbage {
                // In order, so that the first is the oldest.
                let last = self.pinned_garbage.back().map_or(since, |(last, _)| since.max(*last));
                self.pinned_garbage.push_back((if was_aside { last.max(next) } else { last }, id));
            }
            if queued {
                self.garbage.push_back((now, id));
            }
            if is_empty {
                self.empty.push(id);
            }
            // Pieces are referenced by one cell only, and no client asks for them any more.
            for node in gone.iter().flat_map(|large| large.ids(id.tree)) {
                // A location that names another kind of node, or a value of another group's cell, is
                // wrong.
                if self.is_value_node(node) && !self.is_foreign(node) {
                    self.remove_piece(node);
                }
            }
        }
    }

    /// Removes a piece of a long value, which may have garbage.
    fn remove_piece(&mut self, id: NodeId) {
        // Its id may be used again, and is then not in the queue.
        if self.get(id).is_some_and(|node| node.queued || node.pinned_garbage) {
            self.garbage.retain(|(_, queued)| *queued != id);
            self.pinned_garbage.retain(|(_, pinned_garbage)| *pinned_garbage != id);
        }
        self.remove(id);
    }

    /// Whether a node is over the size limit.
    pub(crate) fn is_full(&self, node: &Node) -> bool {
        node.is_full(self.limits)
    }

    /// Number of parts for a split.
    pub(crate) fn parts(&self, node: &Node) -> usize {
        node.parts(self.limits)
    }

    /// Whether there are nodes over the size limit.
    pub(crate) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Takes the nodes that have exceeded the size limit since the last call.
    pub(crate) fn take_full(&mut self) -> Vec<NodeId> {
        let full = std::mem::take(&mut self.full);
        // A node that was split since it was reported is not full.
        full.into_iter().filter(|id| self.get(*id).is_some_and(|node| self.is_full(node))).collect()
    }

    /// Adds parts of a node from a checkpoint.
    pub(crate) fn restore(&mut self, id: NodeId, items: NodeItems<'_>) -> Timestamp {
        if self.get(id).is_none() {
            self.insert(Node::empty(id));
        }
        let limits = self.limits;
        let restored = self.change(id, |node| {
            let last = items.iter().map(|item| node.restore(item)).max().unwrap_or_default();
            let queue = node.has_garbage() && !std::mem::replace(&mut node.queued, true);
            (last, queue, node.is_full(limits))
        });
        let (last, queue, full) = restored.unwrap_or_default();
        if queue {
            self.garbage.push_back((last, id));
        }
        if full {
            self.full.insert(id);
        }
        last
    }

    /// Finishes loading a checkpoint.
    pub(crate) fn restored(&mut self, readable: Readable) {
        self.index_values();
        self.collect_orphans(readable);
        // The first is the oldest.
        self.garbage.make_contiguous().sort_unstable_by_key(|(since, _)| *since);
        self.on_disk();
    }

    /// Finds leaves of a checkpoint that are empty and have no garbage: no collection will report
    /// them.
    pub(crate) fn look_for_empty(&mut self) {
        let empty = self.iter().filter(|node| !node.reported_empty && node.is_empty());
        let empty: Vec<NodeId> = empty.map(|node| node.id).collect();
        for id in &empty {
            self.change(*id, |node| node.reported_empty = true);
        }
        self.empty.extend(empty);
    }

    /// Whether there are empty nodes.
    pub(crate) fn has_empty(&self) -> bool {
        !self.empty.is_empty()
    }

    /// Takes the nodes that have become empty since the last call.
    pub(crate) fn take_empty(&mut self) -> Vec<NodeId> {
        let mut empty = std::mem::take(&mut self.empty);
        empty.retain(|id| {
            self.change(*id, |node| {
                node.reported_empty = false;
                node.is_empty()
            }) == Some(true)
        });
        empty
    }

    /// Checks the invariants.
    pub(crate) fn audit(&self, low: Timestamp) -> Result<(), String> {
        let memory: usize = self.iter().map(|node| NODE_BYTES + node.memory()).sum();
        if memory != self.memory {
            return Err(format!("the nodes take {memory} bytes, not {}", self.memory));
        }
        // Nodes of dropped trees are removed without the queue.
        let queued = self.garbage.iter().filter(|(_, id)| self.get(*id).is_some_and(|node| node.queued));
        let pinned_garbage = self
            .pinned_garbage
            .iter()
            .filter(|(_, id)| self.get(*id).is_some_and(|node| node.pinned_garbage));
        if self.iter().filter(|node| node.queued).count() != queued.count()
            || self.iter().filter(|node| node.pinned_garbage).count() != pinned_garbage.count()
        {
            return Err("the queues have other nodes than say so".to_owned());
        }
        if !self.pinned_garbage.iter().is_sorted_by_key(|(since, _)| *since) {
            return Err("what waits aside is out of order".to_owned());
        }
        if self.index.len() != self.iter().count() {
            return Err("the index has other nodes than there are".to_owned());
        }
        self.iter().try_for_each(|node| node.audit(low))
    }
}
