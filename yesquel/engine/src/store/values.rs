//! Long values whose cells and nodes are at two groups. `docs/yesquel/cluster/directory.md` has the
//! rules.

use super::{NodeStore, TreeEnd};
use crate::{node::Node, snapshots::Readable};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use yesquel_model::{KeyRange, LocalId, NodeId, Timestamp, TreeId, TxnId};
use yesquel_wire::{LargeValue, NodeKind, ValueOwner};

/// Nodes that a search visits at most; a deeper tree is damaged.
const DEPTH_MAX: usize = 64;

/// A long value at another group that no readable snapshot sees any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnseenValue {
    /// Its first node.
    pub(crate) value: NodeId,
    /// Number of its nodes.
    pub(crate) nodes: u64,
    /// The time from which on no snapshot sees it.
    pub(crate) since: Timestamp,
}

impl UnseenValue {
    fn new(large: LargeValue, tree: TreeId, since: Timestamp) -> UnseenValue {
        UnseenValue { value: large.first_node(tree), nodes: large.nodes(), since }
    }
}

/// Where the search for a leaf ends.
pub(crate) enum LeafSearch<'s> {
    Found(&'s Node),
    /// The tree does not exist, or no longer from this time on.
    NoTree(Option<Timestamp>),
    /// A transaction that may change the answer is prepared.
    Prepared(TxnId),
    /// The nodes do not lead to a leaf.
    Lost,
}

/// Long values whose cells, or whose nodes, are at another group.
#[derive(Debug, Default)]
pub(super) struct ValueIndex {
    /// Whether a cell here may refer to a long value at another group.
    has_remote: bool,
    /// First nodes, and numbers of nodes, of the long values here whose owners are at other groups.
    foreign: BTreeMap<NodeId, u64>,
}

/// The nodes of a long value. Ids beyond the last one are left out.
pub(crate) fn nodes_of(value: NodeId, nodes: u64) -> impl Iterator<Item = NodeId> {
    let ids = (0..nodes).filter_map(move |number| value.local.0.checked_add(number));
    ids.map(move |local| NodeId { local: LocalId(local), ..value })
}

impl NodeStore {
    /// Notes the location of a long value that a cell of a node refers to.
    pub(super) fn note_large(&mut self, id: NodeId, location: &[u8]) {
        self.values.has_remote |= self.change(id, |node| node.note_large(location)) == Some(true);
    }

    /// Notes that a node may name another owner.
    pub(super) fn note_owner(&mut self, id: NodeId) {
        let owner = self.get(id).and_then(Node::owner).filter(|owner| owner.server != id.server);
        match owner {
            Some(owner) => drop(self.values.foreign.insert(id, owner.nodes)),
            None => self.forget_owner(id),
        }
    }

    /// Notes that a node is removed.
    pub(super) fn forget_owner(&mut self, id: NodeId) {
        if !self.values.foreign.is_empty() {
            self.values.foreign.remove(&id);
        }
    }

    /// Notes the owners and the long values at other groups, after a checkpoint was loaded.
    pub(super) fn index_values(&mut self) {
        let pieces: Vec<NodeId> = self.iter().filter(|node| node.is_piece()).map(|node| node.id).collect();
        pieces.into_iter().for_each(|id| self.note_owner(id));
        let has_remote = self.iter().any(|node| node.has_remote);
        self.values.has_remote = has_remote;
    }

    /// Whether a node belongs to a long value whose owner is at another group.
    pub(super) fn is_foreign(&self, id: NodeId) -> bool {
        let mut before = self.values.foreign.range(..=id);
        before.next_back().is_some_and(|(first, nodes)| {
            (first.tree, first.server) == (id.tree, id.server) && id.local.0 - first.local.0 < *nodes
        })
    }

    /// Whether a cell here may refer to a long value at another group.
    pub(crate) fn has_remote_values(&self) -> bool {
        self.values.has_remote
    }

    /// First nodes of the long values here whose owners are at other groups.
    pub(crate) fn foreign_values(&self) -> impl Iterator<Item = NodeId> {
        self.values.foreign.keys().copied()
    }

    /// The owner of a long value here, if it is at another group.
    pub(crate) fn foreign_owner(&self, value: NodeId) -> Option<ValueOwner> {
        self.get(value)?.owner().filter(|owner| owner.server != value.server)
    }

    /// Whether there is any node of a long value.
    pub(crate) fn has_value(&self, value: NodeId, nodes: u64) -> bool {
        nodes_of(value, nodes).any(|id| self.is_value_node(id))
    }

    /// Whether a node has pieces of a long value.
    pub(super) fn is_value_node(&self, id: NodeId) -> bool {
        self.get(id).and_then(Node::shape).is_some_and(|shape| shape.kind == NodeKind::Value)
    }

    /// Removes the nodes of a long value.
    pub(crate) fn remove_value(&mut self, value: NodeId, nodes: u64) {
        for id in nodes_of(value, nodes) {
            // A wrong message may name another kind of node.
            if self.is_value_node(id) {
                self.remove_piece(id);
            }
        }
    }

    /// Long values at other groups that a snapshot could see under the mark `before`, and none can
    /// under the mark `after`. What was collected meanwhile does not matter: it was seen by none
    /// before.
    pub(crate) fn newly_unseen(&self, before: Readable, after: Readable) -> Vec<UnseenValue> {
        let mut unseen = Vec::new();
        if !self.values.has_remote {
            return unseen;
        }
        let queued: BTreeSet<NodeId> =
            self.garbage.iter().chain(&self.pinned_garbage).map(|(_, id)| *id).collect();
        for node in queued.iter().filter_map(|id| self.get(*id)) {
            node.remote_versions(Some(before), |large, at, until| {
                if let Some(until) = until.filter(|until| !after.sees(at, *until)) {
                    unseen.push(UnseenValue::new(large, node.id.tree, until));
                }
            });
        }
        for (tree, dropped) in self.dropped_after(before.low) {
            if dropped <= after.low {
                self.unseen_of_tree(tree, dropped, &mut unseen);
            }
        }
        unseen
    }

    /// Long values at other groups that a transaction has superseded which was decided only when no
    /// readable snapshot could see them any more.
    pub(crate) fn unseen_since(
        &self,
        at: Timestamp,
        nodes: impl Iterator<Item = NodeId>,
        readable: Readable,
    ) -> Vec<UnseenValue> {
        let mut unseen = Vec::new();
        let nodes: BTreeSet<NodeId> = nodes.collect();
        for node in nodes.iter().filter_map(|id| self.get(*id)) {
            node.remote_versions(None, |large, from, until| {
                if until == Some(at) && !readable.sees(from, at) {
                    unseen.push(UnseenValue::new(large, node.id.tree, at));
                }
            });
        }
        let trees: BTreeSet<TreeId> = nodes.iter().map(|id| id.tree).collect();
        for tree in trees {
            if at <= readable.low && self.tree_end(tree) == Some(TreeEnd::Dropped(at)) {
                self.unseen_of_tree(tree, at, &mut unseen);
            }
        }
        unseen
    }

    /// The newest values of a tree that was dropped.
    fn unseen_of_tree(&self, tree: TreeId, dropped: Timestamp, unseen: &mut Vec<UnseenValue>) {
        for node in self.iter().filter(|node| node.id.tree == tree) {
            node.remote_versions(None, |large, _, until| {
                if until.is_none() {
                    unseen.push(UnseenValue::new(large, tree, dropped));
                }
            });
        }
    }

    /// Searches the leaf of a key at the present.
    pub(crate) fn leaf_of(&self, root: NodeId, key: &[u8]) -> LeafSearch<'_> {
        if let Some(TreeEnd::Dropped(at)) = self.tree_end(root.tree) {
            return LeafSearch::NoTree(Some(at));
        }
        let Some(mut node) = self.get(root) else { return self.local_leaf_of(root.tree, key) };
        for _ in 0..DEPTH_MAX {
            let Some(shape) = node.shape() else { return LeafSearch::Lost };
            match shape.kind {
                NodeKind::Leaf if shape.fence.contains(key) => return LeafSearch::Found(node),
                NodeKind::Inner => {}
                NodeKind::Leaf | NodeKind::Value => return LeafSearch::Lost,
            }
            let child = match node.child(Timestamp::MAX, key) {
                Ok(child) => child.and_then(|bits| bits.try_into().ok()).map(u128::from_le_bytes),
                Err(undecided) => return LeafSearch::Prepared(undecided.0),
            };
            let Some(child) = child.map(NodeId::from_bits) else { return LeafSearch::Lost };
            match self.get(child) {
                Some(child) => node = child,
                None if child.server != root.server => return self.local_leaf_of(root.tree, key),
                None => return LeafSearch::Lost,
            }
        }
        LeafSearch::Lost
    }

    /// Searches the leaf of a key among the leaves here, for a tree whose root or inner nodes lead to
    /// other groups. Rare: visits all nodes.
    fn local_leaf_of(&self, tree: TreeId, key: &[u8]) -> LeafSearch<'_> {
        let holds = |node: &&Node| {
            let shape = node.shape().filter(|shape| shape.kind == NodeKind::Leaf);
            node.id.tree == tree && shape.is_some_and(|shape| shape.fence.contains(key))
        };
        // A leaf with a cell of a long value never goes to another group.
        self.iter().find(holds).map_or(LeafSearch::NoTree(None), LeafSearch::Found)
    }

    /// Pieces of long values that no readable snapshot finds: those of versions that are, or could
    /// be, collected. Of values whose cells are at other groups, these decide.
    pub(crate) fn orphans(&self, readable: Readable) -> FxHashSet<NodeId> {
        let is_local = |node: &&Node| node.is_piece() && !self.is_foreign(node.id);
        let mut pieces: FxHashSet<NodeId> = self.iter().filter(is_local).map(|node| node.id).collect();
        if pieces.is_empty() {
            return pieces;
        }
        for node in self.iter().filter(|node| !node.is_piece()) {
            node.long_values(readable, |bytes| {
                let ids = LargeValue::decode(bytes).map(|large| large.ids(node.id.tree));
                ids.into_iter().flatten().for_each(|piece| {
                    pieces.remove(&piece);
                });
            });
        }
        pieces
    }

    /// Removes the long values here to which versions in a range refer, which moves to another group.
    /// There are none but in replay: when the move was prepared, all such versions had been collected.
    pub(super) fn remove_unseen_values(&mut self, id: NodeId, range: &KeyRange) {
        let unseen = self.get(id).map(|node| node.long_values_in(range)).unwrap_or_default();
        for piece in unseen.iter().flat_map(|large| large.ids(id.tree)) {
            if self.is_value_node(piece) && !self.is_foreign(piece) {
                self.remove_piece(piece);
            }
        }
    }

    /// Removes pieces of long values that no cell refers to.
    pub(super) fn collect_orphans(&mut self, readable: Readable) {
        self.orphans(readable).into_iter().for_each(|id| self.remove_piece(id));
    }

    /// Names the owners of the long values whose cells and nodes are both here.
    pub(crate) fn name_owners(&mut self) {
        let mut owners = Vec::new();
        for node in self.iter() {
            let server = node.id.server;
            node.local_values(|key, large| {
                owners.push((large.first_node(node.id.tree), server, key.to_vec(), large.nodes()))
            });
        }
        for (value, server, key, nodes) in owners {
            self.change(value, |node| node.name_owner(server, &key, nodes));
        }
    }
}
