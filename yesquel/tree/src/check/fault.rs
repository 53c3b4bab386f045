//! What is wrong with a tree.

use std::{fmt, ops::AddAssign};
use thiserror::Error;
use yesquel_model::{Key, KeyRange, NodeId};

/// What a check has read of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeCounts {
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Leaves.
    pub leaves: u64,
    /// Keys in leaves.
    pub keys: u64,
    /// Long values.
    pub long_values: u64,
    /// Long values that name no owner, as those of earlier releases: no fault.
    pub without_owner: u64,
}

impl TreeCounts {
    /// Returns the number of nodes, without those of long values.
    pub fn nodes(&self) -> u64 {
        self.inner_nodes + self.leaves
    }
}

impl AddAssign for TreeCounts {
    fn add_assign(&mut self, other: TreeCounts) {
        self.inner_nodes += other.inner_nodes;
        self.leaves += other.leaves;
        self.keys += other.keys;
        self.long_values += other.long_values;
        self.without_owner += other.without_owner;
    }
}

/// Fault of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TreeFault {
    /// A parent leads to a node that does not exist.
    #[error("node {node} does not exist, and {} leads to it", Parent(*parent))]
    Missing {
        /// The node.
        node: NodeId,
        /// The inner node that leads to it.
        parent: Option<NodeId>,
    },
    /// A node is reached twice.
    #[error("node {node} is reached twice, the second time from {}", Parent(*parent))]
    ReachedTwice {
        /// The node.
        node: NodeId,
        /// The inner node that leads to it the second time.
        parent: Option<NodeId>,
    },
    /// A node has another range of keys than its parent says.
    #[error("node {node} has the keys {}, and its parent leads to it for {}", Range(fence), Range(expected))]
    Fence {
        /// The node.
        node: NodeId,
        /// Its range.
        fence: KeyRange,
        /// The range by its parent.
        expected: KeyRange,
    },
    /// An inner node has no child.
    #[error("inner node {node} has no child")]
    NoChild {
        /// The node.
        node: NodeId,
    },
    /// The first child of an inner node does not begin where the node does.
    #[error("the first child of inner node {node} begins at {}, the node at {}", Shown(key), Shown(low))]
    Gap {
        /// The node.
        node: NodeId,
        /// Lower bound of the first child.
        key: Key,
        /// Lower bound of the node.
        low: Key,
    },
    /// A cell of an inner node is not the id of a child.
    #[error("inner node {node} has no child at the key {}", Shown(key))]
    Link {
        /// The node.
        node: NodeId,
        /// The cell's key.
        key: Key,
    },
    /// Keys are not in ascending order.
    #[error("the keys of node {node} are not in order at {}", Shown(key))]
    Order {
        /// The node.
        node: NodeId,
        /// The first key that is not above the one before it.
        key: Key,
    },
    /// A key is outside its node's range.
    #[error("node {node} has the key {}, outside its range", Shown(key))]
    Outside {
        /// The node.
        node: NodeId,
        /// The key.
        key: Key,
    },
    /// A long value lacks pieces, or has others than it should.
    #[error("the long value of the key {} lacks pieces at node {node}", Shown(key))]
    Pieces {
        /// The node of the value.
        node: NodeId,
        /// The key of its cell.
        key: Key,
    },
    /// A long value names another owner than its cell.
    #[error("the long value of the key {} at node {node} names another owner", Shown(key))]
    Owner {
        /// The first node of the value.
        node: NodeId,
        /// The key of its cell.
        key: Key,
    },
    /// A node exists, and the tree does not lead to it.
    #[error("node {node} exists, and its tree does not lead to it")]
    Unreached {
        /// The node.
        node: NodeId,
    },
}

impl TreeFault {
    /// Returns a name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            TreeFault::Missing { .. } => "missing_node",
            TreeFault::ReachedTwice { .. } => "node_reached_twice",
            TreeFault::Fence { .. } => "wrong_range",
            TreeFault::NoChild { .. } => "no_child",
            TreeFault::Gap { .. } => "gap",
            TreeFault::Link { .. } => "no_link",
            TreeFault::Order { .. } => "keys_out_of_order",
            TreeFault::Outside { .. } => "key_outside",
            TreeFault::Pieces { .. } => "missing_pieces",
            TreeFault::Owner { .. } => "wrong_owner",
            TreeFault::Unreached { .. } => "unreached_node",
        }
    }

    /// Returns the node at fault.
    pub fn node(&self) -> NodeId {
        match self {
            TreeFault::Missing { node, .. }
            | TreeFault::ReachedTwice { node, .. }
            | TreeFault::Fence { node, .. }
            | TreeFault::NoChild { node }
            | TreeFault::Gap { node, .. }
            | TreeFault::Link { node, .. }
            | TreeFault::Order { node, .. }
            | TreeFault::Outside { node, .. }
            | TreeFault::Pieces { node, .. }
            | TreeFault::Owner { node, .. }
            | TreeFault::Unreached { node } => *node,
        }
    }
}

/// Bytes of a key that a message shows.
const SHOWN_BYTES: usize = 48;

/// A key, in quotes, without its end if it is long.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES)];
        let rest = if shown.len() < self.0.len() { "..." } else { "" };
        write!(f, "\"{}\"{rest}", shown.escape_ascii())
    }
}

struct Range<'a>(&'a KeyRange);

impl fmt::Display for Range<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {}", Shown(&self.0.low))?;
        self.0.high.as_ref().map_or(Ok(()), |high| write!(f, " to {}", Shown(high)))
    }
}

struct Parent(Option<NodeId>);

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(parent) => write!(f, "node {parent}"),
            None => f.write_str("the catalog"),
        }
    }
}
