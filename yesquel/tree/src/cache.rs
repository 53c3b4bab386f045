//! Cache of inner nodes. Entries may be stale: the fence of the node that they lead to reveals it
//! (section 4.1).

use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use yesquel_model::{Key, KeyRange, NodeId, PrefixBounds, Timestamp, TreeId, prefix_of};
use yesquel_wire::MovedTo;

/// Target of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal<'a> {
    /// The leaf of a key.
    At(&'a [u8]),
    /// The leaf of the keys just below a key, or of the tree's greatest keys.
    Below(Option<&'a [u8]>),
}

impl Goal<'_> {
    /// Returns whether a node with this fence is the target leaf or leads to it.
    pub(crate) fn is_in(self, fence: &KeyRange) -> bool {
        match self {
            Goal::At(key) => fence.contains(key),
            Goal::Below(Some(key)) => {
                *fence.low < *key && fence.high.as_ref().is_none_or(|high| **high >= *key)
            }
            Goal::Below(None) => fence.high.is_none(),
        }
    }
}

/// Cached inner node.
#[derive(Debug, Clone)]
pub(crate) struct InnerNode {
    pub(crate) fence: KeyRange,
    bounds: PrefixBounds,
    /// Each child with the least key of its range.
    pub(crate) children: Vec<(Key, NodeId)>,
    /// Prefixes of those keys: a search compares them without touching the keys, which are
    /// elsewhere in memory.
    prefixes: Vec<u64>,
    /// Time at which the node was read.
    pub(crate) at: Timestamp,
}

impl InnerNode {
    pub(crate) fn new(fence: KeyRange, children: Vec<(Key, NodeId)>, at: Timestamp) -> InnerNode {
        let prefixes = children.iter().map(|(low, _)| prefix_of(low)).collect();
        InnerNode { bounds: PrefixBounds::of(&fence), fence, children, prefixes, at }
    }

    fn insert(&mut self, place: usize, child: (Key, NodeId)) {
        self.prefixes.insert(place, prefix_of(&child.0));
        self.children.insert(place, child);
    }

    /// SearchCounts the children whose least key is below `key`, or equal to it if `own` is set.
    fn before(&self, key: &[u8], own: bool) -> usize {
        let prefix = prefix_of(key);
        let below = self.prefixes.partition_point(|low| *low < prefix);
        // Mostly there are none, and no key is touched.
        if self.prefixes.get(below) != Some(&prefix) {
            return below;
        }
        let same = self.prefixes[below..].partition_point(|low| *low == prefix);
        let is_before = |(low, _): &(Key, NodeId)| if own { **low <= *key } else { **low < *key };
        below + self.children[below..below + same].partition_point(is_before)
    }

    /// Returns the child that leads to a key.
    fn child_at(&self, key: &[u8]) -> Option<NodeId> {
        if !self.bounds.surely_contain(prefix_of(key)) && !self.fence.contains(key) {
            return None;
        }
        Some(self.children.get(self.before(key, true).checked_sub(1)?)?.1)
    }

    /// Returns the child that leads to the goal, and the range that this node assigns to it.
    pub(crate) fn child(&self, goal: Goal<'_>) -> Option<(NodeId, KeyRange)> {
        let after = match goal {
            Goal::At(key) => self.before(key, true),
            Goal::Below(Some(key)) => self.before(key, false),
            Goal::Below(None) => self.children.len(),
        };
        let (low, child) = self.children.get(after.checked_sub(1)?)?;
        let high = self.children.get(after).map(|(low, _)| low.clone()).or_else(|| self.fence.high.clone());
        Some((*child, KeyRange { low: low.clone(), high }))
    }
}

/// Inner nodes that a client knows.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    nodes: FxHashMap<NodeId, Arc<InnerNode>>,
    /// Roots that were very long leaves when they were last seen.
    long_leaves: FxHashSet<NodeId>,
}

/// Number of children empty_from which a cached node is dropped: after so many additions it has
/// certainly been split.
const CHILDREN_MAX: usize = 1024;

/// Maximum number of steps of one search in the cache: nodes read at different times may form a
/// cycle.
const STEPS_MAX: usize = 100;

/// Where the cache expects a goal.
#[derive(Debug)]
pub(crate) struct Guess {
    /// Inner nodes from the root down.
    pub(crate) path: Vec<NodeId>,
    /// Expected leaf.
    pub(crate) leaf: NodeId,
    /// Expected range of the leaf.
    pub(crate) fence: KeyRange,
}

impl Cache {
    /// Returns the expected leaf of a key; `None` if the cached nodes form a cycle.
    pub(crate) fn leaf(&self, root: NodeId, key: &[u8]) -> Option<NodeId> {
        let mut leaf = root;
        for _ in 0..STEPS_MAX {
            match self.nodes.get(&leaf).and_then(|inner| inner.child_at(key)) {
                Some(child) => leaf = child,
                None => return Some(leaf),
            }
        }
        None
    }

    /// Follows the cached nodes from a root as far as they lead; `None` if they form a cycle.
    pub(crate) fn guess(&self, root: NodeId, goal: Goal<'_>) -> Option<Guess> {
        let mut guess = Guess { path: Vec::new(), leaf: root, fence: KeyRange::all() };
        for _ in 0..STEPS_MAX {
            let known = self.nodes.get(&guess.leaf).filter(|inner| goal.is_in(&inner.fence));
            let Some((child, fence)) = known.and_then(|inner| inner.child(goal)) else { return Some(guess) };
            guess.path.push(guess.leaf);
            (guess.leaf, guess.fence) = (child, fence);
        }
        None
    }

    /// Returns whether a root was a very long leaf when it was last seen.
    pub(crate) fn is_long_leaf(&self, root: NodeId) -> bool {
        !self.long_leaves.is_empty() && self.long_leaves.contains(&root)
    }

    /// Notes whether a root is a very long leaf.
    pub(crate) fn note_leaf(&mut self, root: NodeId, is_long: bool) {
        if is_long {
            self.long_leaves.insert(root);
        } else {
            self.long_leaves.remove(&root);
        }
    }

    /// Drops the nodes of a tree whose cached nodes form a cycle.
    pub(crate) fn forget(&mut self, tree: TreeId) {
        self.nodes.retain(|node, _| node.tree != tree);
    }

    /// Updates a parent: a node has reported that some of its keys have moved to another node.
    pub(crate) fn moved(&mut self, parent: NodeId, from: NodeId, moved: &MovedTo) {
        let Some(inner) = self.nodes.get_mut(&parent) else { return };
        if inner.children.len() >= CHILDREN_MAX {
            self.nodes.remove(&parent);
            return;
        }
        let MovedTo { range: KeyRange { low, high }, to } = moved;
        let after = inner.children.partition_point(|(own, _)| own <= low);
        let Some(position) = after.checked_sub(1).filter(|position| inner.children[*position].1 == from)
        else {
            return;
        };
        let next = inner.children.get(after).map(|(low, _)| low);
        let fits = match (high, next) {
            (Some(high), Some(next)) => high <= next,
            (None, Some(_)) => false,
            (_, None) => true,
        };
        if !fits {
            return;
        }
        // Keys above the moved range stay with the old child.
        let rest = high.clone().filter(|high| next != Some(high)).map(|high| (high, from));
        // The node is rarely shared, and may have many children: change it in place.
        let inner = Arc::make_mut(inner);
        if inner.children[position].0 == *low {
            inner.children[position].1 = *to;
        } else {
            inner.insert(after, (low.clone(), *to));
        }
        if let Some(rest) = rest {
            let place = inner.children.partition_point(|(own, _)| *own < rest.0);
            inner.insert(place, rest);
        }
    }

    /// Inserts a node unless a newer version is cached.
    pub(crate) fn keep(&mut self, node: NodeId, inner: &Arc<InnerNode>) {
        let known = self.nodes.entry(node).or_insert_with(|| Arc::clone(inner));
        if known.at < inner.at {
            *known = Arc::clone(inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use yesquel_model::{LocalId, ServerId};

    fn node(local: usize) -> NodeId {
        let root = NodeId::root(TreeId::new(1).unwrap(), ServerId(0));
        NodeId { local: LocalId(local as u64), ..root }
    }

    /// Keys that share their first bytes, or differ in length only.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0..3u8, 0..12)
    }

    proptest! {
        /// Compares the search by prefixes with a search by whole keys.
        #[test]
        fn a_childs_range_starts_at_its_key(
            lows in prop::collection::btree_set(key(), 1..40),
            goals in prop::collection::vec(key(), 1..20),
        ) {
            let lows: Vec<Vec<u8>> = lows.into_iter().collect();
            let children = lows.iter().enumerate().map(|(at, low)| (low.clone().into(), node(at))).collect();
            let inner = InnerNode::new(KeyRange::from(lows[0].clone()), children, Timestamp(1));
            for goal in goals {
                let (at, below) = (Goal::At(&goal), Goal::Below(Some(&goal)));
                let last = |is_before: &dyn Fn(&Vec<u8>) -> bool| lows.iter().rposition(is_before).map(node);
                let (up_to, before) = (last(&|low| *low <= goal), last(&|low| *low < goal));
                prop_assert_eq!(inner.child(at).map(|(child, _)| child), up_to);
                prop_assert_eq!(inner.child(below).map(|(child, _)| child), before);
                prop_assert_eq!(inner.child_at(&goal), up_to);
                if let Some((_, fence)) = inner.child(at) {
                    prop_assert!(fence.contains(&goal));
                }
            }
        }
    }
}
