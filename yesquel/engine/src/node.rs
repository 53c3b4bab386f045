//! A node: what a snapshot sees of it, which transactions conflict on it, and how operations change
//! it.

mod state;
mod values;

use crate::cell::{Cell, VersionValue};
use crate::cells::{LiveCells, NodeCells};
use crate::load::NodeLoad;
use crate::write_target::{MarkKind, PreparedOperation, RangeMark, WriteTarget};
use std::{collections::VecDeque, sync::Arc};
use yesquel_model::{
    Conflict, Key, KeyRange, LocalId, NodeId, PrefixBounds, Refusal, ServerId, Timestamp, TxnId, prefix_of,
};
use yesquel_wire::{Expect, HOME_ATTRIBUTE, NewNode, NodeKind, WriteOperation};

/// Size limits beyond which a node is split.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeLimits {
    pub(crate) cells_max: usize,
    pub(crate) bytes_max: usize,
}

/// Approximate memory of a node beside its cells.
pub(crate) const NODE_BYTES: usize = 512;

/// What a snapshot sees at a place of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<T> {
    /// The node does not answer for the place.
    Elsewhere,
    /// No value.
    Absent,
    /// A value.
    Present(T),
}

impl<T> From<Option<T>> for Found<T> {
    #[inline]
    fn from(value: Option<T>) -> Found<T> {
        value.map_or(Found::Absent, Found::Present)
    }
}

/// A version of an attribute; `None`: removed.
#[derive(Debug, Clone)]
struct AttributeVersion {
    id: u16,
    at: Timestamp,
    value: Option<Box<[u8]>>,
}

/// Everything of a node except its cells. A change creates a new one.
#[derive(Debug, Clone)]
pub(crate) struct NodeShape {
    pub(crate) kind: NodeKind,
    pub(crate) fence: KeyRange,
    attributes: Vec<AttributeVersion>,
}

impl NodeShape {
    pub(crate) fn attribute(&self, id: u16) -> Option<&[u8]> {
        self.attributes.iter().find(|known| known.id == id)?.value.as_deref()
    }
}

/// A read must wait for this transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undecided(pub(crate) TxnId);

/// Summary of the present shape. It decides most reads without the shape itself, which lies
/// elsewhere in memory.
#[derive(Debug, Clone, Copy)]
struct ShapeSummary {
    since: Timestamp,
    /// The node is an existing leaf.
    is_leaf: bool,
    bounds: PrefixBounds,
}

impl ShapeSummary {
    fn of(since: Timestamp, shape: Option<&NodeShape>) -> ShapeSummary {
        let is_leaf = shape.is_some_and(|shape| shape.kind == NodeKind::Leaf);
        let bounds = shape.map(|shape| PrefixBounds::of(&shape.fence)).unwrap_or_default();
        ShapeSummary { since, is_leaf, bounds }
    }

    /// Whether a snapshot certainly finds a leaf here that holds keys of this prefix.
    fn holds(&self, snapshot: Timestamp, prefix: u64) -> bool {
        self.is_leaf && self.since <= snapshot && self.bounds.surely_contain(prefix)
    }
}

/// A node of one server. Fields that reads need come first.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The newest shape in short.
    summary: ShapeSummary,
    /// Cells by key.
    cells: NodeCells,
    prepared: Vec<PreparedOperation>,
    /// Log record of the last change.
    pub(crate) changed_at_lsn: u64,
    /// Access counts.
    pub(crate) load: NodeLoad,
    pub(crate) id: NodeId,
    /// Versions of the shape, the oldest first; `None`: the node does not exist.
    shapes: Vec<(Timestamp, Option<Arc<NodeShape>>)>,
    /// Marks, the oldest first: a transaction that began recently checks the last few.
    marks: VecDeque<RangeMark>,
    /// Whether the node is in the collection queue.
    pub(crate) queued: bool,
    /// Whether its garbage is pinned by the oldest snapshot.
    pub(crate) pinned_garbage: bool,
    /// Where its cells have moved, the last move first: hints for clients with stale caches.
    moves: VecDeque<(KeyRange, NodeId)>,
    /// Whether it was reported as empty.
    pub(crate) reported_empty: bool,
    /// Whether a cell may refer to a long value at another group.
    pub(crate) has_remote: bool,
    /// Transactions with snapshots below it conflict with something that came from another group.
    floor: Timestamp,
}

/// Recent marks that a new one is compared with.
const MARKS_COMPARED: usize = 4;
/// Moves that a node remembers.
const MOVES_MAX: usize = 8;

impl Node {
    pub(crate) fn new(id: NodeId, at: Timestamp, new: &NewNode) -> Node {
        let shape = NodeShape { kind: new.kind, fence: new.fence.clone(), attributes: Vec::new() };
        Node {
            summary: ShapeSummary::of(at, Some(&shape)),
            id,
            shapes: vec![(at, Some(Arc::new(shape)))],
            cells: NodeCells::default(),
            marks: VecDeque::new(),
            prepared: Vec::new(),
            changed_at_lsn: 0,
            queued: false,
            pinned_garbage: false,
            moves: VecDeque::new(),
            load: NodeLoad::default(),
            reported_empty: false,
            has_remote: false,
            floor: Timestamp::ZERO,
        }
    }

    /// The present shape, if the node exists.
    pub(crate) fn shape(&self) -> Option<&Arc<NodeShape>> {
        self.shapes.last().and_then(|(_, shape)| shape.as_ref())
    }

    /// The shape that a snapshot sees.
    pub(crate) fn shape_at(&self, snapshot: Timestamp) -> Option<&Arc<NodeShape>> {
        let seen = self.shapes.iter().rev().find(|(at, _)| *at <= snapshot);
        seen.and_then(|(_, shape)| shape.as_ref())
    }

    pub(crate) fn cells(&self) -> &NodeCells {
        &self.cells
    }

    /// Bytes of its cells.
    pub(crate) fn memory(&self) -> usize {
        self.cells.memory()
    }

    /// Where a key has moved, if the node remembers.
    pub(crate) fn moved_to(&self, key: &[u8]) -> Option<(&KeyRange, NodeId)> {
        self.moves.iter().find(|(range, _)| range.contains(key)).map(|(range, to)| (range, *to))
    }

    /// Whether it is a leaf other than a root with nothing left in it, so that it can be removed.
    pub(crate) fn is_empty(&self) -> bool {
        let is_leaf = self.shape().is_some_and(|shape| shape.kind == NodeKind::Leaf);
        is_leaf && self.id.local != LocalId::ROOT && self.cells.is_empty() && self.prepared.is_empty()
    }

    /// Number of cells that are not deleted, and the bytes of their keys and values.
    pub(crate) fn size(&self) -> (usize, usize) {
        let LiveCells { cells, bytes } = self.cells.live();
        (cells, bytes)
    }

    /// Whether it must be split: it has too many cells, or several that are too large together.
    /// Both halves of an inner node need two children: a node with one child only adds a level, and
    /// fills its parent until that is split too, without end.
    pub(crate) fn is_full(&self, limits: NodeLimits) -> bool {
        let LiveCells { cells, bytes } = self.cells.live();
        // Pieces of a value stay together.
        let cells_min = match self.shape().map(|shape| shape.kind) {
            Some(NodeKind::Value) => return false,
            Some(NodeKind::Inner) => 4,
            Some(NodeKind::Leaf) | None => 2,
        };
        cells >= cells_min && (cells > limits.cells_max || bytes > limits.bytes_max)
    }

    /// Number of parts for a split, each at least half of the limit. Parts of an inner node have
    /// two children each, whatever their size, as in [`is_full`](Self::is_full).
    pub(crate) fn parts(&self, limits: NodeLimits) -> usize {
        let LiveCells { cells, bytes } = self.cells.live();
        let of = |size: usize, max: usize| size / (max / 2).max(1);
        let is_inner = self.shape().is_some_and(|shape| shape.kind == NodeKind::Inner);
        let parts_max = if is_inner { cells / 2 } else { cells };
        of(cells, limits.cells_max).max(of(bytes, limits.bytes_max)).min(parts_max)
    }

    /// Whether most of its cells exist only for older snapshots.
    pub(crate) fn mostly_obsolete(&self) -> bool {
        self.cells.len() > 2 * self.cells.live().cells
    }

    /// Whether an operation adds a cell.
    pub(crate) fn grows(&self, write: &WriteOperation<'_>) -> bool {
        match write {
            WriteOperation::Put { key, .. } | WriteOperation::Link { key, .. } => {
                !self.cells.find(key).is_ok_and(|position| self.cells.cell(position).newest.is_some())
            }
            _ => false,
        }
    }

    /// Returns what a snapshot sees under a key.
    pub(crate) fn lookup(
        &self,
        snapshot: Timestamp,
        key: &[u8],
    ) -> Result<Found<VersionValue<'_>>, Undecided> {
        if !self.summary.holds(snapshot, prefix_of(key)) {
            let Some(shape) = self.shape_at(snapshot) else { return Ok(Found::Elsewhere) };
            // An inner node has no values: the tree has grown.
            if shape.kind != NodeKind::Leaf || !shape.fence.contains(key) {
                self.wait_for_shape(snapshot)?;
                return Ok(Found::Elsewhere);
            }
        }
        self.wait_for(snapshot, |target| target.changes_key(key))?;
        Ok(self.cells.get(key).and_then(|cell| cell.seen_at(snapshot)).into())
    }

    /// The cells of a range that a snapshot may see; the caller asks each for what the snapshot
    /// sees.
    pub(crate) fn scan(
        &self,
        snapshot: Timestamp,
        range: &KeyRange,
    ) -> Result<impl DoubleEndedIterator<Item = Cell<'_>> + use<'_>, Undecided> {
        self.wait_for(snapshot, |target| target.changes(range))?;
        Ok(self.cells.range(self.cells.covered(range)))
    }

    /// The child cell that leads to a key, as a snapshot sees it.
    pub(crate) fn child(&self, snapshot: Timestamp, key: &[u8]) -> Result<Option<&[u8]>, Undecided> {
        self.wait_for(snapshot, |_| true)?;
        let after = self.cells.find(key).map_or_else(|position| position, |position| position + 1);
        let mut before = self.cells.range(0..after).rev();
        Ok(before.find_map(|cell| cell.seen_at(snapshot)).map(|value| value.bytes))
    }

    /// Returns the attribute that a snapshot sees.
    pub(crate) fn attribute(&self, snapshot: Timestamp, id: u16) -> Result<Found<&[u8]>, Undecided> {
        self.wait_for(snapshot, |target| matches!(target, WriteTarget::Attribute(own) if *own == id))?;
        Ok(self.shape_at(snapshot).map_or(Found::Elsewhere, |shape| shape.attribute(id).into()))
    }

    /// Waits until it is decided whether the node gets other keys: its group may learn that later than
    /// that of its parent, which already leads there.
    pub(crate) fn wait_for_shape(&self, snapshot: Timestamp) -> Result<(), Undecided> {
        self.wait_for(snapshot, |target| matches!(target, WriteTarget::Shape))
    }

    fn wait_for(&self, snapshot: Timestamp, is_met: impl Fn(&WriteTarget) -> bool) -> Result<(), Undecided> {
        let mut waiting = self.prepared.iter().filter(|prepared| prepared.at <= snapshot);
        match waiting.find(|prepared| is_met(&prepared.target)) {
            Some(prepared) => Err(Undecided(prepared.txn)),
            None => Ok(()),
        }
    }

    /// The group of the root of its tree.
    pub(crate) fn home(&self) -> ServerId {
        let named = self.shape().and_then(|shape| shape.attribute(HOME_ATTRIBUTE)?.try_into().ok());
        named.map_or(self.id.server, |bytes| ServerId(u16::from_le_bytes(bytes)))
    }

    pub(crate) fn floor(&self) -> Timestamp {
        self.floor
    }

    /// Checks an operation of a transaction at a snapshot for conflicts. The caller checks the
    /// fence, since it knows what the transaction itself has changed before.
    pub(crate) fn check(&self, snapshot: Timestamp, write: &WriteOperation<'_>) -> Result<(), Refusal> {
        let node = self.id;
        if snapshot < self.floor {
            return Err(Refusal::SnapshotTooOld { snapshot, oldest: self.floor });
        }
        if !self.prepared.is_empty() {
            let target = WriteTarget::of(write);
            // A move takes along what is prepared on its cells.
            let moves = matches!(write, WriteOperation::Move { .. } | WriteOperation::Reshape(_));
            let first = self.first_child_after(write);
            let met = self.prepared.iter().find(|prepared| match &prepared.target {
                WriteTarget::Attribute(_) | WriteTarget::Shape if moves => true,
                // This may be the removal of the child.
                WriteTarget::Key(key) if moves => first == Some(key),
                _ if moves => false,
                other => other.overlaps(&target),
            });
            if let Some(prepared) = met {
                return Err(Conflict::Prepared { node, by: prepared.txn }.into());
            }
        }
        // Another transaction has removed the child since this one read the node.
        if self.first_child_after(write).is_some_and(|key| !self.has(key)) {
            return Err(Conflict::Node { node }.into());
        }
        match write {
            WriteOperation::Put { key, expect, .. } | WriteOperation::Delete { key, expect } => {
                let there = self.check_key(snapshot, key)?;
                match expect {
                    Expect::Absent if there => Err(Refusal::Exists(node)),
                    Expect::Present if !there => Err(Refusal::Missing(node)),
                    _ => Ok(()),
                }
            }
            WriteOperation::Link { key, .. } | WriteOperation::Unlink { key } => {
                self.check_key(snapshot, key).map(drop)
            }
            WriteOperation::DeleteRange(range) => {
                self.check_cells(snapshot, range)?;
                self.check_marks(snapshot, |mark| mark.range.overlaps(range))
            }
            WriteOperation::Guard(range) => {
                self.check_cells(snapshot, range)?;
                self.check_marks(snapshot, |mark| {
                    mark.kind == MarkKind::Deleted && mark.range.overlaps(range)
                })
            }
            WriteOperation::Set(attribute) => {
                let known = self.shape().into_iter().flat_map(|shape| &shape.attributes);
                let newer = known.filter(|known| known.id == attribute.id).any(|known| known.at > snapshot);
                if newer { Err(Conflict::Node { node }.into()) } else { Ok(()) }
            }
            WriteOperation::Drop => {
                self.check_cells(snapshot, &KeyRange::all())?;
                self.check_marks(snapshot, |_| true)?;
                self.check_shape(snapshot)
            }
            WriteOperation::Create(_) => Err(Conflict::Node { node }.into()),
            WriteOperation::Reshape(_) => self.check_shape(snapshot),
            // Whatever was written to the tree before the drop is dropped too.
            WriteOperation::Move { .. } | WriteOperation::Adopt { .. } | WriteOperation::DropTree => Ok(()),
        }
    }

    /// Checks a write of a key for conflicts. Returns whether the key exists.
    /// The key of the child that a split of an inner node makes the first one of a part.
    fn first_child_after<'w>(&self, write: &'w WriteOperation<'_>) -> Option<&'w Key> {
        let low = match write {
            WriteOperation::Move { range, .. } => &range.low,
            WriteOperation::Reshape(new) => &new.fence.low,
            _ => return None,
        };
        let shape = self.shape().filter(|shape| shape.kind == NodeKind::Inner && shape.fence.low != *low);
        shape.map(|_| low)
    }

    fn has(&self, key: &[u8]) -> bool {
        self.cells.get(key).is_some_and(|cell| cell.newest.is_some())
    }

    fn check_key(&self, snapshot: Timestamp, key: &[u8]) -> Result<bool, Refusal> {
        let cell = self.cells.get(key);
        if cell.is_some_and(|cell| cell.at > snapshot) {
            return Err(Conflict::Cell { node: self.id }.into());
        }
        self.check_marks(snapshot, |mark| mark.range.contains(key))?;
        Ok(cell.is_some_and(|cell| cell.newest.is_some()))
    }

    fn check_cells(&self, snapshot: Timestamp, range: &KeyRange) -> Result<(), Refusal> {
        let newer = self.cells.range(self.cells.covered(range)).any(|cell| cell.at > snapshot);
        if newer { Err(Conflict::Cell { node: self.id }.into()) } else { Ok(()) }
    }

    fn check_marks(&self, snapshot: Timestamp, is_met: impl Fn(&RangeMark) -> bool) -> Result<(), Refusal> {
        let node = self.id;
        let mut newer = self.marks.iter().rev().take_while(|mark| mark.at > snapshot);
        match newer.find(|mark| is_met(mark)) {
            None => Ok(()),
            Some(RangeMark { kind: MarkKind::Deleted, .. }) => Err(Conflict::Range { node }.into()),
            Some(RangeMark { kind: MarkKind::Guarded, .. }) => Err(Conflict::Guard { node }.into()),
        }
    }

    fn check_shape(&self, snapshot: Timestamp) -> Result<(), Refusal> {
        let newer = self.shapes.last().is_some_and(|(at, _)| *at > snapshot);
        if newer { Err(Conflict::Node { node: self.id }.into()) } else { Ok(()) }
    }

    /// Records a prepared operation.
    pub(crate) fn prepare(&mut self, prepared: PreparedOperation) {
        self.prepared.push(prepared);
    }

    /// Removes the operations of a decided transaction.
    pub(crate) fn decided(&mut self, txn: TxnId) {
        self.prepared.retain(|prepared| prepared.txn != txn);
    }

    /// Whether any transaction has prepared an operation here.
    pub(crate) fn is_prepared(&self) -> bool {
        !self.prepared.is_empty()
    }

    /// Writes a cell. Returns whether there is garbage now.
    pub(crate) fn put(&mut self, at: Timestamp, key: &[u8], value: Option<VersionValue<'_>>) -> bool {
        match self.cells.find(key) {
            Ok(position) => {
                self.cells.write(position, at, value);
                true
            }
            Err(position) => {
                self.cells.insert(position, key, at, value);
                value.is_none()
            }
        }
    }

    /// Ends a cell at the time it moved away, if it was written below that time after the move.
    pub(crate) fn end_at(&mut self, at: Timestamp, key: &[u8]) {
        if let Ok(position) = self.cells.find(key)
            && self.cells.cell(position).at < at
        {
            self.put(at, key, None);
        }
    }

    pub(crate) fn delete_range(&mut self, at: Timestamp, range: &KeyRange) {
        for position in self.cells.covered(range) {
            if self.cells.cell(position).seen_at(at).is_some() {
                self.cells.write(position, at, None);
            }
        }
        self.mark(RangeMark { kind: MarkKind::Deleted, range: range.clone(), at });
    }

    pub(crate) fn guard(&mut self, at: Timestamp, range: &KeyRange) {
        self.mark(RangeMark { kind: MarkKind::Guarded, range: range.clone(), at });
    }

    pub(super) fn mark(&mut self, mark: RangeMark) {
        // A newer mark of the same keys conflicts with every transaction that an older one
        // conflicts with. Otherwise a range that every transaction guards, such as a schema's
        // cookie, would collect as many marks as there were recent commits.
        let last = self.marks.iter().rev().take(MARKS_COMPARED);
        let mut same =
            last.enumerate().filter(|(_, known)| known.kind == mark.kind && known.range == mark.range);
        if let Some((back, known)) = same.next() {
            if known.at >= mark.at {
                return;
            }
            self.marks.remove(self.marks.len() - 1 - back);
        }
        // At the end, except for what was prepared earlier and decided later.
        let position = self.marks.partition_point(|known| known.at <= mark.at);
        self.marks.insert(position, mark);
    }

    pub(crate) fn set(&mut self, at: Timestamp, id: u16, value: Option<&[u8]>) {
        let Some(shape) = self.shape() else { return };
        let mut shape = NodeShape::clone(shape);
        shape.attributes.retain(|known| known.id != id);
        shape.attributes.push(AttributeVersion { id, at, value: value.map(Into::into) });
        self.shapes_push(at, Some(shape));
    }

    pub(crate) fn reshape(&mut self, at: Timestamp, new: &NewNode) {
        let attributes = self.shape().map(|shape| shape.attributes.clone()).unwrap_or_default();
        self.shapes_push(at, Some(NodeShape { kind: new.kind, fence: new.fence.clone(), attributes }));
    }

    /// Drops the node with all its cells.
    pub(crate) fn drop_at(&mut self, at: Timestamp) {
        self.delete_range(at, &KeyRange::all());
        self.shapes_push(at, None);
    }

    fn shapes_push(&mut self, at: Timestamp, shape: Option<NodeShape>) {
        let shape = shape.map(Arc::new);
        match self.shapes.last_mut() {
            Some((known, old)) if *known >= at => *old = shape,
            _ => self.shapes.push((at, shape)),
        }
        if let Some((since, shape)) = self.shapes.last() {
            self.summary = ShapeSummary::of(*since, shape.as_deref());
        }
    }

    /// Moves a range to another node; snapshots below `at` still see it here.
    pub(crate) fn move_to(&mut self, at: Timestamp, range: &KeyRange, to: &mut Node) {
        self.moves.truncate(MOVES_MAX - 1);
        self.moves.push_front((range.clone(), to.id));
        // Cells that come back have not moved.
        to.moves.retain(|(gone, _)| !gone.overlaps(range));
        to.has_remote |= self.has_remote;
        to.floor = to.floor.max(self.floor);
        let covered = self.cells.covered(range);
        // Replaces cells that the same transaction wrote, or that are left from before an earlier
        // move.
        to.cells.copy(&self.cells, covered.clone());
        for position in covered {
            // Later versions belong to the other node.
            self.cells.end(position, at);
        }
        for mark in self.marks.iter().filter(|mark| mark.range.overlaps(range)) {
            to.mark(RangeMark { range: mark.range.intersection(range), ..mark.clone() });
        }
        for prepared in &self.prepared {
            let target = match &prepared.target {
                WriteTarget::Key(key) if range.contains(key) => prepared.target.clone(),
                WriteTarget::Range(own) if own.overlaps(range) => WriteTarget::Range(own.intersection(range)),
                WriteTarget::Guard(own) if own.overlaps(range) => WriteTarget::Guard(own.intersection(range)),
                _ => continue,
            };
            to.prepared.push(PreparedOperation { target, ..prepared.clone() });
        }
        // They stay here too: a snapshot below `at` still reads here, and must wait for what may
        // commit below it.
    }

    /// Moves a range to a node of another group, which has adopted what is in it; snapshots below
    /// `at` still see it here.
    pub(crate) fn depart(&mut self, at: Timestamp, range: &KeyRange, to: NodeId) {
        self.moves.truncate(MOVES_MAX - 1);
        self.moves.push_front((range.clone(), to));
        for position in self.cells.covered(range) {
            self.cells.end(position, at);
        }
    }

    /// Whether a rising low-water mark can free something.
    pub(crate) fn has_garbage(&self) -> bool {
        self.shapes.len() > 1 || self.shape().is_none() || !self.marks.is_empty() || self.cells.has_garbage()
    }

    /// Checks the invariants: garbage may exist only while the node is in the queue.
    pub(crate) fn audit(&self, low: Timestamp) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("node {}: {what}", self.id));
        if let Err(what) = self.cells.audit() {
            return wrong(what);
        }
        if !self.marks.iter().is_sorted_by_key(|mark| mark.at) {
            return wrong("its marks are out of order");
        }
        if self.queued || self.pinned_garbage {
            return Ok(());
        }
        if self.has_garbage() {
            return wrong("it has something to collect and is not queued");
        }
        if self.marks.iter().any(|mark| mark.at <= low) {
            return wrong("it has a mark that no snapshot needs");
        }
        let fence = self.shape().map(|shape| &shape.fence);
        for cell in self.cells.iter() {
            if cell.versions().filter(|(at, _)| *at <= low).count() > 1 {
                return wrong("a cell has versions that no snapshot sees");
            }
            let within = fence.is_some_and(|fence| fence.contains(cell.key));
            if cell.at <= low && (!within || cell.newest.is_none()) {
                return wrong("it has a cell that no snapshot sees");
            }
        }
        Ok(())
    }

    /// Returns memory that its cells do not need.
    pub(crate) fn tighten(&mut self) {
        self.cells.tighten();
    }

    /// Whether anything in it is newer than a time.
    pub(crate) fn has_after(&self, time: Timestamp) -> bool {
        self.marks.back().is_some_and(|mark| mark.at > time)
            || self.shapes.last().is_some_and(|(at, _)| *at > time)
            || self.cells.iter().any(|cell| cell.at > time)
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
