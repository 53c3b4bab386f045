//! Checkpoints: the state of a moment, as records that restore it.
//!
//! The records contain what the low-water mark does not cover, and the newest of what it does; they
//! are those of the *canonical form*: two engines with the same state write the same bytes, whatever
//! they have collected. Loading a checkpoint replays its records like those of the log, and then the
//! log after it.

use crate::{
    checkpoint_copies::CheckpointCopies,
    node::Node,
    node_record::{NodeItemWriter, NodeItems},
    record::LogRecord,
    snapshots::Readable,
};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use yesquel_model::NodeId;

/// Bytes of a node's parts after which it continues in another record.
const RECORD_BYTES: usize = 64 << 10;

/// The state of a moment. It shares its nodes with the engine, which goes on and copies the nodes
/// that it changes; another thread may write it.
#[derive(Debug)]
pub struct Checkpoint {
    pub(crate) lsn: u64,
    pub(crate) readable: Readable,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) checkpoint_copies: CheckpointCopies,
    /// Nodes to leave out.
    pub(crate) orphans: FxHashSet<NodeId>,
    /// Records of everything but the nodes, and the end of each.
    pub(crate) rest: Vec<u8>,
    pub(crate) rest_ends: Vec<usize>,
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        self.nodes.clear();
        self.checkpoint_copies.settle();
    }
}

impl Checkpoint {
    /// Last log record that the checkpoint covers.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Passes each record's bytes to `each`, in the order of nodes, once: a node is released when it
    /// is written.
    pub fn write<E>(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let (mut items, mut record) = (NodeItemWriter::default(), Vec::new());
        // Here and not when the checkpoint begins, since the engine waits for that.
        self.nodes.sort_by_cached_key(|node| node.id);
        for node in self.nodes.drain(..) {
            let written = if self.orphans.contains(&node.id) {
                Ok(())
            } else {
                node_records(&node, self.readable, &mut items, &mut record, &mut each)
            };
            self.checkpoint_copies.end(node);
            written?;
        }
        let mut from = 0;
        for end in &self.rest_ends {
            each(&self.rest[from..*end])?;
            from = *end;
        }
        Ok(())
    }
}

fn node_records<E>(
    node: &Node,
    readable: Readable,
    items: &mut NodeItemWriter,
    record: &mut Vec<u8>,
    each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if node.is_gone(readable) {
        return Ok(());
    }
    let mut send = |items: &mut NodeItemWriter| {
        record.clear();
        LogRecord::Node { node: node.id, items: NodeItems::written(&items.bytes) }.write(record);
        items.clear();
        each(record)
    };
    items.clear();
    node.items(readable, |item| {
        items.push(&item);
        if items.bytes.len() > RECORD_BYTES { send(items) } else { Ok(()) }
    })?;
    if items.bytes.is_empty() { Ok(()) } else { send(items) }
}
