//! What is taken when memory is near its budget, and what is not.
//!
//! Of a budget `B` the last eighth is kept for what must go on when it is full.
//! With `m` bytes taken, and `g` that a transaction may add at most:
//!
//! * `m >= B - B/8 - B/16`: the oldest snapshots that are held go, as long as
//!   what they hold is all that could be collected;
//! * `m + g > B - B/8`: growth is refused, which is values, attributes, new
//!   nodes, parts of long transactions;
//! * `m + g > B`: all else that writes is refused, which is deletes, guards,
//!   splits.
//!
//! Reads, what is decided of transactions that were prepared (`m` has both what
//! they hold and what they will write), dropping trees, collecting and
//! checkpoints go on always. In `m` are nodes, nodes that only a checkpoint
//! still has, parts that are staged and what is prepared; `g` has the nodes that
//! are copied because a checkpoint has them.
//!
//! *Example.* Of 80 MiB, values are taken up to 70. To delete a cell of 100
//! bytes adds about a fifth of what it takes, so to delete all of 70 MiB adds
//! 14: after 10 of them deletes are refused, too, until the first are a second
//! old and what they deleted is collected. Somebody who deletes, and begins
//! again when he is refused, comes to an end.

use super::Engine;
use crate::{
    cell::Cell,
    effects::Stop,
    node::{NODE_BYTES, Node},
    staging::Script,
};
use yesquel_model::{KeyRange, NodeId, Refusal, Timestamp};
use yesquel_wire::{Operation, WriteOperation};

/// The part of the budget that growth leaves alone.
const RESERVE: usize = 8;
/// The part of it before that within which snapshots are let go of: near
/// enough that a server that will not be full loses none.
const NEAR: usize = 16;

/// Memory of a version beside its key and value, at most.
const VERSION_BYTES: usize = 48;
/// Memory of an operation that waits for its transaction's end, likewise.
const PLAN_BYTES: usize = 240;

/// What a transaction may add at most.
#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    bytes: usize,
    /// Beside them, while it waits for its end.
    planned: usize,
    /// It is more than what is needed to make room.
    is_growth: bool,
}

impl Engine {
    /// Bytes that nodes take, also those that only a checkpoint has, parts of
    /// transactions that are staged, and what is prepared.
    pub fn memory(&self) -> usize {
        self.store.memory() + self.store.copies() + self.staging.bytes() + self.promised
    }

    fn budget(&self) -> usize {
        self.settings.memory_bytes_max
    }

    /// So much may still be taken in any case.
    fn room(&self) -> usize {
        self.budget().saturating_sub(self.memory())
    }

    /// So much may still be taken by what grows.
    fn room_to_grow(&self) -> usize {
        let budget = self.budget();
        (budget - budget / RESERVE).saturating_sub(self.memory())
    }

    /// Whether it is nearly spent.
    fn is_near(&self) -> bool {
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

    /// What the cells of a range take in another node.
    fn held(&self, node: NodeId, range: &KeyRange) -> usize {
        let one = |cell: Cell<'_>| {
            let older = cell.older.iter().map(|version| VERSION_BYTES + version.value_bytes());
            let newest = cell.newest.map_or(0, |value| value.bytes.len());
            VERSION_BYTES + cell.key.len() + newest + older.sum::<usize>()
        };
        self.cells(node, range).map(one).sum()
    }

    /// What it adds to end each cell of a range.
    fn ended(&self, node: NodeId, range: &KeyRange) -> usize {
        self.cells(node, range).map(|cell| VERSION_BYTES + cell.key.len()).sum()
    }

    /// What a transaction may add at most.
    fn growth(&self, script: Script<'_>) -> Growth {
        // Parts are there until all of them are done.
        let mut growth = Growth { bytes: script.staged_bytes(), ..Growth::default() };
        let (mut makes, mut moves) = (false, false);
        let mut last: Option<NodeId> = None;
        for Operation { node: id, write } in script.iter() {
            growth.bytes += weight(&write);
            growth.planned += PLAN_BYTES + weight(&write);
            match &write {
                WriteOperation::Put { .. } => growth.is_growth = true,
                WriteOperation::Set(attribute) => growth.is_growth |= attribute.value.is_some(),
                WriteOperation::Create(_) => makes = true,
                // Its cells are there twice.
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
        // A split makes room for what is there already.
        growth.is_growth |= makes && !moves;
        growth
    }

    /// Whether there is room for what a transaction does at once, or when it
    /// is decided.
    pub(crate) fn fits(&mut self, script: Script<'_>, prepares: bool) -> Result<(), Stop> {
        if self.budget() == usize::MAX {
            return Ok(());
        }
        let Growth { bytes, planned, is_growth } = self.growth(script);
        let bytes = if prepares { bytes + planned } else { bytes };
        let room = if is_growth { self.room_to_grow() } else { self.room() };
        if bytes > room { Err(self.refuse_growth().into()) } else { Ok(()) }
    }

    /// Whether there is room for a part, and for what it will write.
    pub(crate) fn fits_part(&mut self, bytes: usize) -> Result<(), Refusal> {
        let all = self.staging.bytes().saturating_add(bytes.saturating_mul(2));
        if self.budget() != usize::MAX && all > self.room_to_grow() {
            return Err(self.refuse_growth());
        }
        Ok(())
    }

    /// What a transaction takes from its vote on until it is decided: what it
    /// holds, and what it will write.
    pub(crate) fn promise(&self, script: Script<'_>) -> usize {
        let growth = self.growth(script);
        growth.bytes + growth.planned
    }

    /// Lets go of the oldest snapshots if memory is nearly spent and nothing
    /// can be collected for their sake.
    pub(crate) fn make_room(&mut self) {
        if !self.is_near() {
            return;
        }
        if let Some(since) = self.store.oldest_garbage(self.snapshots.readable()) {
            self.snapshots.cancel_before(since);
        }
    }

    /// Lets go of what no snapshot sees, as far as there is room for the nodes
    /// that are copied for it.
    pub(crate) fn collect(&mut self, last: Timestamp, nodes_max: usize) {
        let (room, near) = (self.room(), self.is_near());
        self.store.collect((self.snapshots.readable(), last), nodes_max, room, near);
    }
}

/// What a node takes for the places of older versions, where it had none.
fn places(node: &Node) -> usize {
    node.cells().len() * size_of::<usize>()
}

/// Memory that an operation may add, beside nodes that are copied.
fn weight(write: &WriteOperation<'_>) -> usize {
    let range = |range: &KeyRange| range.low.len() + range.high.as_ref().map_or(0, |high| high.len());
    VERSION_BYTES
        + match write {
            WriteOperation::Put { key, value, .. } => key.len() + value.len(),
            WriteOperation::Delete { key, .. } | WriteOperation::Unlink { key } => key.len(),
            WriteOperation::Link { key, .. } => key.len() + size_of::<NodeId>(),
            WriteOperation::DeleteRange(own) | WriteOperation::Guard(own) => range(own),
            WriteOperation::Move { range: own, .. } => range(own),
            WriteOperation::Set(attribute) => attribute.value.map_or(0, <[u8]>::len),
            WriteOperation::Create(new) => NODE_BYTES + range(&new.fence),
            WriteOperation::Reshape(new) => range(&new.fence),
            WriteOperation::Drop | WriteOperation::DropTree => return 0,
        }
}
