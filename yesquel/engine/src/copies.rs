//! Nodes that are kept for a checkpoint only, because the engine has changed
//! its own copies of them meanwhile: memory like any other.

use crate::node::{NODE_BYTES, Node};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that such nodes take. Clones are the same count: the engine's, and one
/// of each checkpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Copies(Arc<AtomicUsize>);

/// What a node takes in all.
fn bytes(node: &Node) -> usize {
    NODE_BYTES + node.memory()
}

impl Copies {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// What it takes to change a node: the bytes of another one, if a
    /// checkpoint has it.
    pub(crate) fn price(node: &Arc<Node>) -> usize {
        if Arc::strong_count(node) > 1 { bytes(node) } else { 0 }
    }

    /// A node to be changed, which is copied first if a checkpoint has it.
    pub(crate) fn own<'a>(&self, node: &'a mut Arc<Node>) -> &'a mut Node {
        let price = Copies::price(node);
        if price > 0 {
            self.0.fetch_add(price, Relaxed);
        }
        Arc::make_mut(node)
    }

    /// The engine has no use for a node any more, a checkpoint may.
    pub(crate) fn leave(&self, node: &Arc<Node>) {
        self.0.fetch_add(Copies::price(node), Relaxed);
    }

    /// A checkpoint has no use for a node any more.
    pub(crate) fn end(&self, node: Arc<Node>) {
        if let Some(node) = Arc::into_inner(node) {
            self.take(bytes(&node));
        }
    }

    /// A checkpoint is over. Where it let go of a node in the moment in which
    /// the engine took it for shared, too much was counted.
    pub(crate) fn settle(&self) {
        if Arc::strong_count(&self.0) == 2 {
            self.0.store(0, Relaxed);
        }
    }

    fn take(&self, bytes: usize) {
        let less = |now: usize| Some(now.saturating_sub(bytes));
        // There is always a number.
        let _ = self.0.fetch_update(Relaxed, Relaxed, less);
    }
}
