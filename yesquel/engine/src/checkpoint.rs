//! Checkpoints: the state of a moment, as records that restore it.
//!
//! No snapshot outlives the engine that gave it. A checkpoint therefore has the newest version of
//! each cell only, with times below all later ones. Loading a checkpoint replays its records like
//! those of the log, and then the log after it.

use crate::{
    checkpoint_copies::CheckpointCopies,
    node::Node,
    record::{LogRecord, NO_TXN},
};
use std::sync::Arc;
use yesquel_model::{NodeId, Timestamp};
use yesquel_wire::{Attribute, NewNode, NodeKind, NodeOperation, Operations, WriteOperation};

/// Bytes of operations after which a node continues in another record.
const RECORD_BYTES: usize = 64 << 10;

/// The state of a moment. It shares its nodes with the engine, which goes on and copies the nodes
/// that it changes; another thread may write it.
#[derive(Debug)]
pub struct Checkpoint {
    pub(crate) lsn: u64,
    pub(crate) at: Timestamp,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) checkpoint_copies: CheckpointCopies,
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

    /// Passes each record's bytes to `each`, in order, once: a node is released when it is written.
    pub fn write<E>(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut record = Vec::new();
        for node in self.nodes.drain(..) {
            let written = node_records(&node, self.at, &mut record, &mut each);
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

/// Operations on one node, flushed when they are many.
struct RecordBatch<'a, E> {
    at: Timestamp,
    operations: Vec<u8>,
    last: Option<NodeId>,
    record: &'a mut Vec<u8>,
    each: &'a mut dyn FnMut(&[u8]) -> Result<(), E>,
}

impl<E> RecordBatch<'_, E> {
    fn push(&mut self, node: NodeId, write: WriteOperation<'_>) -> Result<(), E> {
        Operations::push(&mut self.operations, &mut self.last, &NodeOperation { node, write });
        if self.operations.len() > RECORD_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), E> {
        // They were encoded just now.
        let Ok(operations) = Operations::decode(&self.operations) else { return Ok(()) };
        self.record.clear();
        let (txn, at) = (NO_TXN, self.at);
        LogRecord::Commit { txn, birth: at, at, staged: None, operations }.write(self.record);
        (self.each)(self.record)?;
        self.operations.clear();
        self.last = None;
        Ok(())
    }
}

fn node_records<E>(
    node: &Node,
    at: Timestamp,
    record: &mut Vec<u8>,
    each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let Some(shape) = node.shape() else { return Ok(()) };
    let mut batch = RecordBatch { at, operations: Vec::new(), last: None, record, each };
    let new = NewNode { kind: shape.kind, fence: shape.fence.clone() };
    batch.push(node.id, WriteOperation::Create(new))?;
    for (id, value) in shape.attributes() {
        batch.push(node.id, WriteOperation::Set(Attribute { id, value: Some(value) }))?;
    }
    for cell in node.cells().iter() {
        // Cells beyond the fence have moved.
        let Some(value) = cell.newest.filter(|_| shape.fence.contains(cell.key)) else { continue };
        let (key, is_large) = (cell.key, value.is_large);
        let value = value.bytes;
        let write = match (shape.kind, value.try_into()) {
            (NodeKind::Inner, Ok(bits)) => {
                WriteOperation::Link { key, child: NodeId::from_bits(u128::from_le_bytes(bits)) }
            }
            _ => WriteOperation::Put { key, value, expect: yesquel_wire::Expect::Any, is_large },
        };
        batch.push(node.id, write)?;
    }
    batch.send()
}
