//! Memory of node versions that only a checkpoint still holds, because the engine has changed its
//! own copies since.

use crate::node::{NODE_BYTES, Node};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes of such nodes. Clones share the count: the engine has one, and each checkpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct CheckpointCopies(Arc<AtomicUsize>);

/// Bytes of a node.
fn bytes(node: &Node) -> usize {
    NODE_BYTES + node.memory()
}

impl CheckpointCopies {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// Memory that changing a node takes: the bytes of a copy, if a checkpoint holds it.
    pub(crate) fn price(node: &Arc<Node>) -> usize {
        if Arc::strong_count(node) > 1 { bytes(node) } else { 0 }
    }

    /// Returns a node for modification, copying it first if a checkpoint holds it.
    pub(crate) fn own<'a>(&self, node: &'a mut Arc<Node>) -> &'a mut Node {
        let price = CheckpointCopies::price(node);
        if price > 0 {
            self.0.fetch_add(price, Relaxed);
        }
        Arc::make_mut(node)
    }

    /// The engine drops a node, which a checkpoint may still hold.
    pub(crate) fn leave(&self, node: &Arc<Node>) {
        self.0.fetch_add(CheckpointCopies::price(node), Relaxed);
    }

    /// A checkpoint drops a node.
    pub(crate) fn end(&self, node: Arc<Node>) {
        if let Some(node) = Arc::into_inner(node) {
            self.take(bytes(&node));
        }
    }

    /// Ends a checkpoint. If it dropped a node while the engine was taking that for shared, too
    /// much was counted.
    pub(crate) fn settle(&self) {
        if Arc::strong_count(&self.0) == 2 {
            self.0.store(0, Relaxed);
        }
    }

    fn take(&self, bytes: usize) {
        let less = |now: usize| Some(now.saturating_sub(bytes));
        // The closure always returns a number.
        let _ = self.0.fetch_update(Relaxed, Relaxed, less);
    }
}
