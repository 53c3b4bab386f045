//! Inner nodes as they were seen last. Nobody keeps them up to date: what they
//! lead to is checked by its fence (section 4.1).

use rustc_hash::FxHashMap;
use std::sync::Arc;
use yesquel_model::{Key, KeyRange, NodeId, Timestamp};
use yesquel_wire::MovedTo;

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
#[derive(Debug, Clone)]
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

/// Children of a cached node beyond which it is forgotten: it has been added to
/// for so long that its parent surely knows better.
const CHILDREN_MAX: usize = 1024;

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

    /// A node has said that keys have gone from it to another: its parent is
    /// seen so from now on.
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
        // What is above the range stays with whose it was.
        let rest = high.clone().filter(|high| next != Some(high)).map(|high| (high, from));
        // Seldom shared: in place, for there may be many children.
        let children = &mut Arc::make_mut(inner).children;
        if children[position].0 == *low {
            children[position].1 = *to;
        } else {
            children.insert(after, (low.clone(), *to));
        }
        if let Some(rest) = rest {
            let place = children.partition_point(|(own, _)| *own < rest.0);
            children.insert(place, rest);
        }
    }

    /// Keeps a node, unless it is known as of later.
    pub(crate) fn keep(&mut self, node: NodeId, inner: &Arc<Inner>) {
        let known = self.nodes.entry(node).or_insert_with(|| Arc::clone(inner));
        if known.at < inner.at {
            *known = Arc::clone(inner);
        }
    }
}
