//! The memory budget: what is refused near it, and what goes on.
//!
//! The last eighth of the budget `B` is reserved for what must go on when memory is full. Let `m`
//! be the bytes taken, and `g` the most that a transaction may add:
//!
//! * `m >= B - B/8 - B/16`: the oldest held snapshots are cancelled, as long as everything
//!   collectable is held by them;
//! * `m + g > B - B/8`: growth is refused: values, attributes, new nodes, parts of long
//!   transactions;
//! * `m + g > B`: all other writes are refused: deletes, guards, splits.
//!
//! Always allowed are reads, decisions on prepared transactions (`m` covers what they hold and what
//! they will write), dropping trees, garbage collection and checkpoints. `m` covers nodes, nodes
//! that only a checkpoint still holds, staged parts and prepared operations; `g` includes nodes
//! that are copied because a checkpoint holds them.
//!
//! *Example.* Of 80 MiB, values are accepted up to 70. Deleting a cell of 100 bytes adds about a
//! fifth of its size, so deleting all of 70 MiB adds 14: after 10 of them deletes are refused too,
//! until the first are a second old and their cells are collected. A client that deletes, and
//! begins again when it is refused, finishes.

use super::Engine;
use crate::{
    cell::Cell,
    effects::{Effects, Stop},
    node::{NODE_BYTES, Node},
    staging::OperationScript,
};
use yesquel_model::{KeyRange, NodeId, Refusal, Timestamp};
use yesquel_wire::{NodeOperation, WriteOperation};

/// One part in so many of the budget is reserved.
const RESERVE: usize = 8;
/// Snapshots are cancelled within this part below the reserve: close enough that a server that will
/// not fill up cancels none.
const NEAR: usize = 16;

/// Upper bound for the memory of a version beside its key and value.
const VERSION_BYTES: usize = 48;
/// Upper bound for the memory of a pending operation beside its key and value.
const PLAN_BYTES: usize = 240;

/// Upper bound for what a transaction may add.
#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    bytes: usize,
    /// Added on top while the transaction is prepared.
    pending: usize,
    /// It is more than what is needed to free memory.
    is_growth: bool,
}

impl Engine {
    /// Bytes of nodes (including those that only a checkpoint still holds), staged parts, prepared
    /// transactions and the ends of transactions.
    pub fn memory(&self) -> usize {
        self.store.memory()
            + self.store.checkpoint_copies()
            + self.staging.bytes()
            + self.reserved_bytes
            + self.outcomes.bytes()
    }

    fn budget(&self) -> usize {
        self.settings.memory_bytes_max
    }

    /// Bytes that any write may still take.
    fn room(&self) -> usize {
        self.budget().saturating_sub(self.memory())
    }

    /// Bytes that growth may still take.
    fn room_to_grow(&self) -> usize {
        let budget = self.budget();
        (budget - budget / RESERVE).saturating_sub(self.memory())
    }

    /// Whether the budget is nearly spent.
    pub(super) fn is_near(&self) -> bool {
        let budget = self.budget();
        self.memory() >= budget - budget / RESERVE - budget / NEAR
    }

    fn refuse_growth(&mut self) -> Refusal {
        self.counts.refused_memory += 1;
        Refusal::OutOfMemory
    }

    /// The cells of a range of a node.
    fn cells(&self, node: NodeId, range: &KeyRange) -> impl Iterator<Item = Cell<'_>> {
        let cells = self.store.get(node).map(Node::cells);
        cells.into_iter().flat_map(move |cells| cells.range(cells.covered(range)))
    }

    /// Bytes that the cells of a range take in another node.
    fn held(&self, node: NodeId, range: &KeyRange) -> usize {
        let one = |cell: Cell<'_>| {
            let older = cell.older.iter().map(|version| VERSION_BYTES + version.value_bytes());
            let newest = cell.newest.map_or(0, |value| value.bytes.len());
            VERSION_BYTES + cell.key.len() + newest + older.sum::<usize>()
        };
        self.cells(node, range).map(one).sum()
    }

    /// Bytes added by deleting each cell of a range.
    fn ended(&self, node: NodeId, range: &KeyRange) -> usize {
        self.cells(node, range).map(|cell| VERSION_BYTES + cell.key.len()).sum()
    }

    /// Upper bound for what a transaction may add.
    fn growth(&self, script: OperationScript<'_>) -> Growth {
        // Staged parts remain until all of them are applied.
        let mut growth = Growth { bytes: script.staged_bytes(), ..Growth::default() };
        let (mut makes, mut moves) = (false, false);
        let mut last: Option<NodeId> = None;
        for NodeOperation { node: id, write } in script.iter() {
            growth.bytes += weight(&write);
            growth.pending += PLAN_BYTES + weight(&write);
            match &write {
                WriteOperation::Put { .. } | WriteOperation::Adopt { .. } => growth.is_growth = true,
                WriteOperation::Set(attribute) => growth.is_growth |= attribute.value.is_some(),
                WriteOperation::Create(_) => makes = true,
                // Its cells exist twice meanwhile.
                WriteOperation::Move { range, .. } => {
                    moves = true;
                    growth.bytes += self.ended(id, range) + self.held(id, range);
                }
                WriteOperation::DeleteRange(range) => growth.bytes += self.ended(id, range),
                _ => {}
            }
            if last != Some(id) && write != WriteOperation::DropTree {
                growth.bytes += self.store.price(id) + self.store.get(id).map_or(0, places);
                last = Some(id);
            }
        }
        // A split only divides what exists.
        growth.is_growth |= makes && !moves;
        growth
    }

    /// Checks that there is room for what a transaction does now, or when it is decided.
    pub(crate) fn fits(&mut self, script: OperationScript<'_>, prepares: bool) -> Result<(), Stop> {
        if self.budget() == usize::MAX {
            return Ok(());
        }
        let Growth { bytes, pending, is_growth } = self.growth(script);
        let bytes = if prepares { bytes + pending } else { bytes };
        let room = if is_growth { self.room_to_grow() } else { self.room() };
        if bytes > room { Err(self.refuse_growth().into()) } else { Ok(()) }
    }

    /// Checks that there is room for a staged part, and for what it will write.
    pub(crate) fn fits_part(&mut self, bytes: usize) -> Result<(), Refusal> {
        let all = self.staging.bytes().saturating_add(bytes.saturating_mul(2));
        if self.budget() != usize::MAX && all > self.room_to_grow() {
            return Err(self.refuse_growth());
        }
        Ok(())
    }

    /// Bytes that a prepared transaction takes until it is decided: its operations, and what they
    /// will write.
    pub(crate) fn reservation(&self, script: OperationScript<'_>) -> usize {
        let growth = self.growth(script);
        growth.bytes + growth.pending + crate::outcomes::END_BYTES
    }

    /// Cancels the oldest snapshots if memory is nearly spent and they hold everything collectable.
    pub(crate) fn relieve_memory(&mut self, effects: &mut Effects) {
        if !self.is_near() {
            return;
        }
        let readable = self.snapshots.readable();
        if let Some(since) = self.store.oldest_garbage(readable) {
            let proposed = self.snapshots.cancel_before(since);
            if proposed != readable {
                self.set_low_water(proposed, effects);
            }
        }
    }

    /// Collects versions that no snapshot sees, as far as there is room for the nodes that are
    /// copied for it.
    pub(crate) fn collect(&mut self, last: Timestamp, nodes_max: usize) {
        let (room, near) = (self.room(), self.is_near());
        self.store.collect((self.snapshots.readable(), last), nodes_max, room, near);
    }
}

/// Bytes for the places of older versions, where a node had none.
fn places(node: &Node) -> usize {
    node.cells().len() * size_of::<usize>()
}

/// Bytes that an operation may add, beside copied nodes.
fn weight(write: &WriteOperation<'_>) -> usize {
    let range = |range: &KeyRange| range.low.len() + range.high.as_ref().map_or(0, |high| high.len());
    VERSION_BYTES
        + match write {
            WriteOperation::Put { key, value, .. } => key.len() + value.len(),
            WriteOperation::Delete { key, .. } | WriteOperation::Unlink { key } => key.len(),
            WriteOperation::Link { key, .. } => key.len() + size_of::<NodeId>(),
            WriteOperation::DeleteRange(own) | WriteOperation::Guard(own) => range(own),
            WriteOperation::Move { range: own, .. } => range(own),
            // A cell takes three bytes of an item at least.
            WriteOperation::Adopt { items, .. } => items.len() + items.len() / 3 * VERSION_BYTES,
            WriteOperation::Set(attribute) => attribute.value.map_or(0, <[u8]>::len),
            WriteOperation::Create(new) => NODE_BYTES + range(&new.fence),
            WriteOperation::Reshape(new) => range(&new.fence),
            WriteOperation::Drop | WriteOperation::DropTree => return 0,
        }
}
