//! All nodes of a server, the memory that they take, and the queue of those
//! that have something to collect.

use crate::node::Node;
use rustc_hash::FxHashMap;
use std::{collections::VecDeque, sync::Arc};
use yesquel_model::{NodeId, Timestamp};
use yesquel_wire::WriteOperation;

/// How large a node may grow before it is to be split.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeLimits {
    pub(crate) cells_max: usize,
    pub(crate) bytes_max: usize,
}

/// Memory that a node takes beside its cells, about.
const NODE_BYTES: usize = 512;

/// The nodes. They are shared with whoever writes a checkpoint: one that
/// changes meanwhile is copied first.
#[derive(Debug, Default)]
pub(crate) struct Store {
    index: FxHashMap<NodeId, u32>,
    slots: Vec<Option<Arc<Node>>>,
    free: Vec<u32>,
    memory: usize,
    /// Nodes with something to collect, each once, since when.
    garbage: VecDeque<(Timestamp, NodeId)>,
    /// Nodes that want to be split.
    full: Vec<NodeId>,
}

impl Store {
    pub(crate) fn get(&self, id: NodeId) -> Option<&Node> {
        self.slots[*self.index.get(&id)? as usize].as_deref()
    }

    fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.slots[*self.index.get(&id)? as usize].as_mut().map(Arc::make_mut)
    }

    /// Bytes that the nodes take.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// All nodes, shared.
    pub(crate) fn share(&self) -> Vec<Arc<Node>> {
        self.slots.iter().flatten().cloned().collect()
    }

    fn iter(&self) -> impl Iterator<Item = &Node> {
        self.slots.iter().flatten().map(|node| &**node)
    }

    pub(crate) fn insert(&mut self, node: Node) {
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
    pub(crate) fn apply(
        &mut self,
        (at, lsn): (Timestamp, u64),
        limits: NodeLimits,
        id: NodeId,
        write: &WriteOperation<'_>,
    ) {
        match write {
            WriteOperation::Create(new) => {
                let mut node = Node::new(id, at, new);
                node.changed_at_lsn = lsn;
                return self.insert(node);
            }
            WriteOperation::Move { range, to } => self.apply_move(at, lsn, id, range, *to),
            _ => {}
        }
        let queue = self.change(id, |node| {
            node.changed_at_lsn = lsn;
            let garbage = match write {
                WriteOperation::Put { key, value, .. } => node.put(at, key, Some(value)),
                WriteOperation::Delete { key, .. } | WriteOperation::Unlink { key } => {
                    node.put(at, key, None)
                }
                WriteOperation::Link { key, child } => {
                    node.put(at, key, Some(&child.to_bits().to_le_bytes()))
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
                WriteOperation::Create(_) | WriteOperation::Move { .. } => true,
            };
            let queue = garbage && !node.queued;
            node.queued |= garbage;
            let full = !node.told_full && node.is_full(limits);
            node.told_full |= full;
            (queue, full)
        });
        if let Some((true, _)) = queue {
            self.garbage.push_back((at, id));
        }
        if let Some((_, true)) = queue {
            self.full.push(id);
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
        let node = Arc::make_mut(&mut target);
        node.changed_at_lsn = lsn;
        self.change(from, |source| source.move_to(at, range, node));
        let queue = node.has_garbage() && !std::mem::replace(&mut node.queued, true);
        self.memory = self.memory + node.memory() - before;
        self.slots[slot as usize] = Some(target);
        if queue {
            self.garbage.push_back((at, to));
        }
    }

    /// Lets go of what no snapshot from `low` on sees, in at most so many
    /// nodes. What is not done now comes first the next time.
    pub(crate) fn collect(&mut self, low: Timestamp, now: Timestamp, nodes_max: usize) {
        for _ in 0..nodes_max {
            let Some(&(since, id)) = self.garbage.front().filter(|(since, _)| *since <= low) else { return };
            debug_assert!(since <= low);
            self.garbage.pop_front();
            let left = self.change(id, |node| {
                node.queued = false;
                let left = node.collect(low);
                node.queued = left && node.has_garbage();
                (left, node.queued)
            });
            match left {
                Some((false, _)) => self.remove(id),
                Some((true, true)) => self.garbage.push_back((now, id)),
                _ => {}
            }
        }
    }

    /// Whether there are nodes that have grown too large.
    pub(crate) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Nodes that have grown too large since this was asked last.
    pub(crate) fn take_full(&mut self) -> Vec<NodeId> {
        let mut full = std::mem::take(&mut self.full);
        full.retain(|id| self.change(*id, |node| node.told_full = false).is_some());
        full
    }

    /// Says what is wrong.
    pub(crate) fn audit(&self, low: Timestamp) -> Result<(), String> {
        let memory: usize = self.iter().map(|node| NODE_BYTES + node.memory()).sum();
        if memory != self.memory {
            return Err(format!("the nodes take {memory} bytes, not {}", self.memory));
        }
        if self.iter().filter(|node| node.queued).count() != self.garbage.len() {
            return Err("the queue has other nodes than say so".to_owned());
        }
        if self.index.len() != self.iter().count() {
            return Err("the index has other nodes than there are".to_owned());
        }
        self.iter().try_for_each(|node| node.audit(low))
    }
}
