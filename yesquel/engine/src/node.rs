//! A node: what it looks like to a snapshot, what stands in the way of a
//! transaction, and how operations change it.

use crate::cell::{Cell, Value};
use crate::cells::{Cells, Live};
use crate::load::Load;
use crate::snapshots::Readable;
use crate::target::{Claim, Mark, Prepared, Target};
use std::{collections::VecDeque, sync::Arc};
use yesquel_model::{Bounds, Conflict, KeyRange, LocalId, NodeId, Refusal, Timestamp, TxnId, prefix_of};
use yesquel_wire::{Expect, NewNode, NodeKind, WriteOperation};

/// How large a node may grow before it is to be split.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeLimits {
    pub(crate) cells_max: usize,
    pub(crate) bytes_max: usize,
}

/// Memory that a node takes beside its cells, about.
pub(crate) const NODE_BYTES: usize = 512;

/// What a snapshot sees at a place of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<T> {
    /// The node does not answer for the place.
    Elsewhere,
    /// Nothing.
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

/// An attribute, or that there was one.
#[derive(Debug, Clone)]
struct AttributeVersion {
    id: u16,
    at: Timestamp,
    value: Option<Box<[u8]>>,
}

/// All of a node but its cells. A change makes another one.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) kind: NodeKind,
    pub(crate) fence: KeyRange,
    attributes: Vec<AttributeVersion>,
}

impl Shape {
    pub(crate) fn attribute(&self, id: u16) -> Option<&[u8]> {
        self.attributes.iter().find(|known| known.id == id)?.value.as_deref()
    }

    /// All that there are.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.attributes.iter().filter_map(|known| Some((known.id, known.value.as_deref()?)))
    }
}

/// A read must wait for this transaction's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undecided(pub(crate) TxnId);

/// What a node is now, as far as a look at it decides most reads: shapes and
/// their fences are elsewhere in memory.
#[derive(Debug, Clone, Copy)]
struct Glance {
    since: Timestamp,
    /// A leaf, and there.
    is_leaf: bool,
    bounds: Bounds,
}

impl Glance {
    fn of(since: Timestamp, shape: Option<&Shape>) -> Glance {
        let is_leaf = shape.is_some_and(|shape| shape.kind == NodeKind::Leaf);
        let bounds = shape.map(|shape| Bounds::of(&shape.fence)).unwrap_or_default();
        Glance { since, is_leaf, bounds }
    }

    /// Whether a snapshot surely finds a leaf here to which keys of this prefix
    /// belong.
    fn holds(&self, snapshot: Timestamp, prefix: u64) -> bool {
        self.is_leaf && self.since <= snapshot && self.bounds.hold(prefix)
    }
}

/// A node of one server. What a read needs comes first.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The newest shape, in short.
    glance: Glance,
    /// By key, each key once.
    cells: Cells,
    prepared: Vec<Prepared>,
    /// The log's length when it was last changed.
    pub(crate) changed_at_lsn: u64,
    /// How often it is asked for.
    pub(crate) load: Load,
    pub(crate) id: NodeId,
    /// The oldest first; `None`: not there.
    shapes: Vec<(Timestamp, Option<Arc<Shape>>)>,
    /// The oldest first: whoever began a moment ago looks at the last few.
    marks: VecDeque<Mark>,
    /// Whether it stands in the queue for collection.
    pub(crate) queued: bool,
    /// Whether it waits for the oldest snapshot to go.
    pub(crate) aside: bool,
    /// Where its cells have gone, the last first: a help for those who come
    /// by an old map, and no more than that.
    moves: VecDeque<(KeyRange, NodeId)>,
    /// Whether it was told that it is empty.
    pub(crate) told_empty: bool,
}

/// Marks among which a new one looks for one of the same keys.
const MARKS_COMPARED: usize = 4;
/// Moves that a node remembers.
const MOVES_MAX: usize = 8;

impl Node {
    pub(crate) fn new(id: NodeId, at: Timestamp, new: &NewNode) -> Node {
        let shape = Shape { kind: new.kind, fence: new.fence.clone(), attributes: Vec::new() };
        Node {
            glance: Glance::of(at, Some(&shape)),
            id,
            shapes: vec![(at, Some(Arc::new(shape)))],
            cells: Cells::default(),
            marks: VecDeque::new(),
            prepared: Vec::new(),
            changed_at_lsn: 0,
            queued: false,
            aside: false,
            moves: VecDeque::new(),
            load: Load::default(),
            told_empty: false,
        }
    }

    /// The shape now, if the node is there.
    pub(crate) fn shape(&self) -> Option<&Arc<Shape>> {
        self.shapes.last().and_then(|(_, shape)| shape.as_ref())
    }

    /// The shape that a snapshot sees.
    pub(crate) fn shape_at(&self, snapshot: Timestamp) -> Option<&Arc<Shape>> {
        let seen = self.shapes.iter().rev().find(|(at, _)| *at <= snapshot);
        seen.and_then(|(_, shape)| shape.as_ref())
    }

    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Bytes of its cells.
    pub(crate) fn memory(&self) -> usize {
        self.cells.memory()
    }

    /// Where a key has gone, if that is remembered.
    pub(crate) fn moved_to(&self, key: &[u8]) -> Option<(&KeyRange, NodeId)> {
        self.moves.iter().find(|(range, _)| range.contains(key)).map(|(range, to)| (range, *to))
    }

    /// Whether nothing is left in it, so that it may go: a leaf that is no
    /// root.
    pub(crate) fn is_empty(&self) -> bool {
        let is_leaf = self.shape().is_some_and(|shape| shape.kind == NodeKind::Leaf);
        is_leaf && self.id.local != LocalId::ROOT && self.cells.is_empty() && self.prepared.is_empty()
    }

    /// Cells that are not deleted, and the bytes of their keys and values.
    pub(crate) fn size(&self) -> (usize, usize) {
        let Live { cells, bytes } = self.cells.live();
        (cells, bytes)
    }

    /// Whether it is to be split: it has too many cells, or several that are
    /// too large together. Of an inner one both halves must have two children:
    /// with one it would lead to its child and nowhere else, and what it takes
    /// from the parent's room has the parent split, and so on without end.
    pub(crate) fn is_full(&self, limits: NodeLimits) -> bool {
        let Live { cells, bytes } = self.cells.live();
        // Pieces of a value stay together.
        let cells_min = match self.shape().map(|shape| shape.kind) {
            Some(NodeKind::Value) => return false,
            Some(NodeKind::Inner) => 4,
            Some(NodeKind::Leaf) | None => 2,
        };
        cells >= cells_min && (cells > limits.cells_max || bytes > limits.bytes_max)
    }

    /// In how many parts it should be split, each at least half as large as a node
    /// may be. Parts of an inner one have two children each, whatever their bytes, as
    /// where it is said when it [is full](Self::is_full).
    pub(crate) fn parts(&self, limits: NodeLimits) -> usize {
        let Live { cells, bytes } = self.cells.live();
        let of = |size: usize, max: usize| size / (max / 2).max(1);
        let is_inner = self.shape().is_some_and(|shape| shape.kind == NodeKind::Inner);
        let parts_max = if is_inner { cells / 2 } else { cells };
        of(cells, limits.cells_max).max(of(bytes, limits.bytes_max)).min(parts_max)
    }

    /// Whether most of its cells are not there any more, but for older snapshots.
    pub(crate) fn drags(&self) -> bool {
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

    /// What a snapshot sees under a key.
    pub(crate) fn lookup(&self, snapshot: Timestamp, key: &[u8]) -> Result<Found<Value<'_>>, Undecided> {
        if !self.glance.holds(snapshot, prefix_of(key)) {
            let Some(shape) = self.shape_at(snapshot) else { return Ok(Found::Elsewhere) };
            // An inner node has no values: the tree has grown.
            if shape.kind != NodeKind::Leaf || !shape.fence.contains(key) {
                return Ok(Found::Elsewhere);
            }
        }
        self.wait_for(snapshot, |target| target.changes_key(key))?;
        Ok(self.cells.get(key).and_then(|cell| cell.seen_at(snapshot)).into())
    }

    /// The cells in a range that a snapshot may see; each is still to be asked
    /// what the snapshot sees of it.
    pub(crate) fn scan(
        &self,
        snapshot: Timestamp,
        range: &KeyRange,
    ) -> Result<impl DoubleEndedIterator<Item = Cell<'_>> + use<'_>, Undecided> {
        self.wait_for(snapshot, |target| target.changes(range))?;
        Ok(self.cells.range(self.cells.covered(range)))
    }

    /// The cell of the child that leads to a key, as a snapshot sees it.
    pub(crate) fn child(&self, snapshot: Timestamp, key: &[u8]) -> Result<Option<&[u8]>, Undecided> {
        self.wait_for(snapshot, |_| true)?;
        let after = self.cells.find(key).map_or_else(|position| position, |position| position + 1);
        let mut before = self.cells.range(0..after).rev();
        Ok(before.find_map(|cell| cell.seen_at(snapshot)).map(|value| value.bytes))
    }

    /// The attribute that a snapshot sees.
    pub(crate) fn attribute(&self, snapshot: Timestamp, id: u16) -> Result<Found<&[u8]>, Undecided> {
        self.wait_for(snapshot, |target| matches!(target, Target::Attribute(own) if *own == id))?;
        Ok(self.shape_at(snapshot).map_or(Found::Elsewhere, |shape| shape.attribute(id).into()))
    }

    fn wait_for(&self, snapshot: Timestamp, is_met: impl Fn(&Target) -> bool) -> Result<(), Undecided> {
        let mut waiting = self.prepared.iter().filter(|prepared| prepared.at <= snapshot);
        match waiting.find(|prepared| is_met(&prepared.target)) {
            Some(prepared) => Err(Undecided(prepared.txn)),
            None => Ok(()),
        }
    }

    /// What stands in the way of an operation of a transaction that reads at
    /// `snapshot`. The fence is the caller's to look at, who knows what the
    /// transaction itself has made of it before.
    pub(crate) fn check(&self, snapshot: Timestamp, write: &WriteOperation<'_>) -> Result<(), Refusal> {
        let node = self.id;
        if !self.prepared.is_empty() {
            let target = Target::of(write);
            // What moves takes along what is prepared on its cells.
            let moves = matches!(write, WriteOperation::Move { .. } | WriteOperation::Reshape(_));
            let met = self.prepared.iter().find(|prepared| {
                if moves {
                    matches!(prepared.target, Target::Attribute(_) | Target::Shape)
                } else {
                    prepared.target.meets(&target)
                }
            });
            if let Some(prepared) = met {
                return Err(Conflict::Prepared { node, by: prepared.txn }.into());
            }
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
                self.check_marks(snapshot, |mark| mark.range.meets(range))
            }
            WriteOperation::Guard(range) => {
                self.check_cells(snapshot, range)?;
                self.check_marks(snapshot, |mark| mark.claim == Claim::Deleted && mark.range.meets(range))
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
            // Whoever wrote into the tree before it was dropped has written in vain.
            WriteOperation::Move { .. } | WriteOperation::DropTree => Ok(()),
        }
    }

    /// What stands in the way of writing a key; whether it is there.
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

    fn check_marks(&self, snapshot: Timestamp, is_met: impl Fn(&Mark) -> bool) -> Result<(), Refusal> {
        let node = self.id;
        let mut newer = self.marks.iter().rev().take_while(|mark| mark.at > snapshot);
        match newer.find(|mark| is_met(mark)) {
            None => Ok(()),
            Some(Mark { claim: Claim::Deleted, .. }) => Err(Conflict::Range { node }.into()),
            Some(Mark { claim: Claim::Guarded, .. }) => Err(Conflict::Guard { node }.into()),
        }
    }

    fn check_shape(&self, snapshot: Timestamp) -> Result<(), Refusal> {
        let newer = self.shapes.last().is_some_and(|(at, _)| *at > snapshot);
        if newer { Err(Conflict::Node { node: self.id }.into()) } else { Ok(()) }
    }

    /// Notes an operation of a transaction that votes yes.
    pub(crate) fn prepare(&mut self, prepared: Prepared) {
        self.prepared.push(prepared);
    }

    /// Forgets the operations of a transaction that is decided.
    pub(crate) fn decided(&mut self, txn: TxnId) {
        self.prepared.retain(|prepared| prepared.txn != txn);
    }

    /// Whether a transaction has prepared anything here.
    pub(crate) fn is_prepared(&self) -> bool {
        !self.prepared.is_empty()
    }

    /// Writes a cell. Returns whether there is now something to collect.
    pub(crate) fn put(&mut self, at: Timestamp, key: &[u8], value: Option<Value<'_>>) -> bool {
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

    /// Ends a cell at the time at which it moved away, if it was written below
    /// that after it had moved.
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
        self.mark(Mark { claim: Claim::Deleted, range: range.clone(), at });
    }

    pub(crate) fn guard(&mut self, at: Timestamp, range: &KeyRange) {
        self.mark(Mark { claim: Claim::Guarded, range: range.clone(), at });
    }

    fn mark(&mut self, mark: Mark) {
        // Whoever is stopped by an older one is stopped by a newer one of the same
        // keys too. What every transaction guards, as the cookie of a schema, would
        // else stand here as often as there were commits of late.
        let last = self.marks.iter().rev().take(MARKS_COMPARED);
        let mut same =
            last.enumerate().filter(|(_, known)| known.claim == mark.claim && known.range == mark.range);
        if let Some((back, known)) = same.next() {
            if known.at >= mark.at {
                return;
            }
            self.marks.remove(self.marks.len() - 1 - back);
        }
        // At the end, but for what was prepared before and decided after.
        let position = self.marks.partition_point(|known| known.at <= mark.at);
        self.marks.insert(position, mark);
    }

    pub(crate) fn set(&mut self, at: Timestamp, id: u16, value: Option<&[u8]>) {
        let Some(shape) = self.shape() else { return };
        let mut shape = Shape::clone(shape);
        shape.attributes.retain(|known| known.id != id);
        shape.attributes.push(AttributeVersion { id, at, value: value.map(Into::into) });
        self.shapes_push(at, Some(shape));
    }

    pub(crate) fn reshape(&mut self, at: Timestamp, new: &NewNode) {
        let attributes = self.shape().map(|shape| shape.attributes.clone()).unwrap_or_default();
        self.shapes_push(at, Some(Shape { kind: new.kind, fence: new.fence.clone(), attributes }));
    }

    /// Takes the node away, with all its cells.
    pub(crate) fn drop_at(&mut self, at: Timestamp) {
        self.delete_range(at, &KeyRange::all());
        self.shapes_push(at, None);
    }

    fn shapes_push(&mut self, at: Timestamp, shape: Option<Shape>) {
        let shape = shape.map(Arc::new);
        match self.shapes.last_mut() {
            Some((known, old)) if *known >= at => *old = shape,
            _ => self.shapes.push((at, shape)),
        }
        if let Some((since, shape)) = self.shapes.last() {
            self.glance = Glance::of(*since, shape.as_deref());
        }
    }

    /// Hands what stands in a range to another node, and keeps it for
    /// snapshots below `at` as deleted then.
    pub(crate) fn move_to(&mut self, at: Timestamp, range: &KeyRange, to: &mut Node) {
        self.moves.truncate(MOVES_MAX - 1);
        self.moves.push_front((range.clone(), to.id));
        // What comes back has not gone.
        to.moves.retain(|(gone, _)| !gone.meets(range));
        let covered = self.cells.covered(range);
        // In the place of those that were written by the same transaction, or
        // are left from before the cells moved away.
        to.cells.copy(&self.cells, covered.clone());
        for position in covered {
            // What was written later is the other node's.
            self.cells.end(position, at);
        }
        for mark in self.marks.iter().filter(|mark| mark.range.meets(range)) {
            to.mark(Mark { range: mark.range.intersection(range), ..mark.clone() });
        }
        for prepared in &self.prepared {
            let target = match &prepared.target {
                Target::Key(key) if range.contains(key) => prepared.target.clone(),
                Target::Range(own) if own.meets(range) => Target::Range(own.intersection(range)),
                Target::Guard(own) if own.meets(range) => Target::Guard(own.intersection(range)),
                _ => continue,
            };
            to.prepared.push(Prepared { target, ..prepared.clone() });
        }
        // They stay here too: a snapshot below `at` still reads here, and must
        // wait for what may commit below it.
    }

    /// Whether some low-water mark lets go of something.
    pub(crate) fn has_garbage(&self) -> bool {
        self.shapes.len() > 1 || self.shape().is_none() || !self.marks.is_empty() || self.cells.has_garbage()
    }

    /// Says what is wrong with it: what nobody sees may be there only if the
    /// node is in the queue.
    pub(crate) fn audit(&self, low: Timestamp) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("node {}: {what}", self.id));
        if let Err(what) = self.cells.audit() {
            return wrong(what);
        }
        if !self.marks.iter().is_sorted_by_key(|mark| mark.at) {
            return wrong("its marks are out of order");
        }
        if self.queued || self.aside {
            return Ok(());
        }
        if self.has_garbage() {
            return wrong("it has something to collect and is not queued");
        }
        if self.marks.iter().any(|mark| mark.at <= low) {
            return wrong("it has a mark that nobody needs");
        }
        let fence = self.shape().map(|shape| &shape.fence);
        for cell in self.cells.iter() {
            if cell.versions().filter(|(at, _)| *at <= low).count() > 1 {
                return wrong("a cell has versions that nobody sees");
            }
            let within = fence.is_some_and(|fence| fence.contains(cell.key));
            if cell.at <= low && (!within || cell.newest.is_none()) {
                return wrong("it has a cell that nobody sees");
            }
        }
        Ok(())
    }

    /// Gives back what its cells do not need.
    pub(crate) fn tighten(&mut self) {
        self.cells.tighten();
    }

    /// Whether there is anything in it from after a time.
    pub(crate) fn has_after(&self, time: Timestamp) -> bool {
        self.marks.back().is_some_and(|mark| mark.at > time)
            || self.shapes.last().is_some_and(|(at, _)| *at > time)
            || self.cells.iter().any(|cell| cell.at > time)
    }

    /// Lets go of what no snapshot sees that may be read, and tells of the long
    /// values among it. Returns whether the node is left.
    pub(crate) fn collect(&mut self, readable: Readable, mut gone: impl FnMut(&[u8])) -> bool {
        let low = readable.low;
        // Whoever has an older snapshot than a mark's time must meet it.
        let passed = self.marks.partition_point(|mark| mark.at <= low);
        self.marks.drain(..passed);
        let ends: Vec<Timestamp> = self.shapes.iter().skip(1).map(|(at, _)| *at).collect();
        let mut ends = ends.into_iter();
        self.shapes.retain(|(at, _)| ends.next().is_none_or(|end| readable.sees(*at, end)));
        let shape = self.shapes.last().and_then(|(_, shape)| shape.as_ref());
        let within = shape.map_or(0..self.cells.len(), |shape| self.cells.covered(&shape.fence));
        self.cells.collect(readable, within, |key, value| {
            // A copy of one that has moved goes without its value: it is beyond
            // the fence, or the node is a root that has grown.
            if shape.is_some_and(|shape| shape.kind == NodeKind::Leaf && shape.fence.contains(key)) {
                gone(value);
            }
        });
        !matches!(self.shapes.as_slice(), [(at, None)] if *at <= low) || self.is_prepared()
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
