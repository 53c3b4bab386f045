//! Inner nodes as they were seen last. Nobody keeps them up to date: what they
//! lead to is checked by its fence (section 4.1).

use rustc_hash::FxHashMap;
use std::sync::Arc;
use yesquel_model::{Key, KeyRange, NodeId, Timestamp};

/// What a search is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal<'a> {
    /// The leaf of a key.
    At(&'a [u8]),
    /// The leaf of the keys just below one; of the last keys of all.
    Below(Option<&'a [u8]>),
}

impl Goal<'_> {
    /// Whether a node with this fence is, or leads to, the leaf.
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

/// An inner node.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) fence: KeyRange,
    /// Each child with the least key that is its.
    pub(crate) children: Vec<(Key, NodeId)>,
    /// As of when.
    pub(crate) at: Timestamp,
}

impl Inner {
    /// The child that leads to the goal, and the keys that are its as far as
    /// this node knows.
    pub(crate) fn child(&self, goal: Goal<'_>) -> Option<(NodeId, KeyRange)> {
        let after = match goal {
            Goal::At(key) => self.children.partition_point(|(low, _)| **low <= *key),
            Goal::Below(Some(key)) => self.children.partition_point(|(low, _)| **low < *key),
            Goal::Below(None) => self.children.len(),
        };
        let (low, child) = self.children.get(after.checked_sub(1)?)?;
        let high = self.children.get(after).map(|(low, _)| low.clone()).or_else(|| self.fence.high.clone());
        Some((*child, KeyRange { low: low.clone(), high }))
    }
}

/// The inner nodes that a client knows.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    nodes: FxHashMap<NodeId, Arc<Inner>>,
}

/// Steps of one search in the cache: nodes seen at different times may lead in
/// a circle.
const STEPS_MAX: usize = 100;

/// Where the cache thinks that a goal is.
#[derive(Debug)]
pub(crate) struct Guess {
    /// The inner nodes on the way, the root first.
    pub(crate) path: Vec<NodeId>,
    /// What should be the leaf.
    pub(crate) leaf: NodeId,
    /// The keys that should be its.
    pub(crate) fence: KeyRange,
}

impl Cache {
    /// Follows the cache from a root as far as it goes.
    pub(crate) fn guess(&mut self, root: NodeId, goal: Goal<'_>) -> Guess {
        let mut guess = Guess { path: Vec::new(), leaf: root, fence: KeyRange::all() };
        for _ in 0..STEPS_MAX {
            let known = self.nodes.get(&guess.leaf).filter(|inner| goal.is_in(&inner.fence));
            let Some((child, fence)) = known.and_then(|inner| inner.child(goal)) else { return guess };
            guess.path.push(guess.leaf);
            (guess.leaf, guess.fence) = (child, fence);
        }
        self.nodes.retain(|node, _| node.tree != root.tree);
        Guess { path: Vec::new(), leaf: root, fence: KeyRange::all() }
    }

    /// Keeps a node, unless it is known as of later.
    pub(crate) fn keep(&mut self, node: NodeId, inner: &Arc<Inner>) {
        let known = self.nodes.entry(node).or_insert_with(|| Arc::clone(inner));
        if known.at < inner.at {
            *known = Arc::clone(inner);
        }
    }
}
