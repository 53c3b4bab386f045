//! What a collection leaves of a node: its parts in a checkpoint and in the canonical form.

use super::{AttributeVersion, Node, NodeShape, ShapeSummary};
use crate::{
    node_record::{COVERED, NodeItem, NodeItems, covered},
    snapshots::Readable,
    write_target::RangeMark,
};
use std::{ops::Range, sync::Arc};
use yesquel_model::{KeyRange, NodeId, Timestamp};
use yesquel_wire::{NewNode, NodeKind};

impl NodeShape {
    /// Its attributes that a readable snapshot sees, or whose removal it does not see, by id.
    fn attributes_left(&self, low: Timestamp) -> Vec<&AttributeVersion> {
        let is_left = |known: &&AttributeVersion| known.value.is_some() || known.at > low;
        let mut left: Vec<&AttributeVersion> = self.attributes.iter().filter(is_left).collect();
        left.sort_unstable_by_key(|known| known.id);
        left
    }
}

impl Node {
    /// A node without any part, to be [restored](Self::restore).
    pub(crate) fn empty(id: NodeId) -> Node {
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        let summary = ShapeSummary::of(COVERED, None);
        Node { summary, shapes: Vec::new(), ..Node::new(id, COVERED, &new) }
    }

    /// Whether it has pieces of long values, or had them before it was dropped.
    pub(crate) fn is_piece(&self) -> bool {
        self.shapes.iter().flat_map(|(_, shape)| shape).any(|shape| shape.kind == NodeKind::Value)
    }

    /// The shapes that a readable snapshot sees, and the present one.
    fn shapes_left(&self, readable: Readable) -> impl Iterator<Item = &(Timestamp, Option<Arc<NodeShape>>)> {
        let ends = self.shapes.iter().skip(1).map(|(at, _)| Some(*at)).chain(std::iter::once(None));
        let all = self.shapes.iter().zip(ends);
        all.filter(move |((at, _), end)| end.is_none_or(|end| readable.sees(*at, end)))
            .map(|(shape, _)| shape)
    }

    /// Whether it was dropped, and all readable snapshots see that. A transaction that is prepared
    /// there creates it anew, whether it was collected before or not.
    pub(crate) fn is_gone(&self, readable: Readable) -> bool {
        matches!(self.shapes.last(), Some((at, None)) if *at <= readable.low)
    }

    /// Whether a collection leaves the node: it exists, or a readable snapshot sees it, or does not
    /// see yet that it was dropped.
    pub(crate) fn is_left(&self, readable: Readable) -> bool {
        !self.is_gone(readable) || self.is_prepared()
    }

    /// The cells within its fence: none if it was dropped. Before that, cells beyond the fence may have
    /// been collected by the rule for these; the same rule for all keeps the state independent of that.
    fn within(&self) -> Range<usize> {
        self.shape().map_or(0..0, |shape| self.cells.covered(&shape.fence))
    }

    /// Collects what no readable snapshot sees, and passes long values among it to `gone`. Returns
    /// whether the node is left.
    pub(crate) fn collect(&mut self, readable: Readable, mut gone: impl FnMut(&[u8])) -> bool {
        // A transaction with a snapshot below a mark must still find it.
        let passed = self.marks.partition_point(|mark| mark.at <= readable.low);
        self.marks.drain(..passed);
        if self.shapes.len() > 1 {
            self.shapes = self.shapes_left(readable).cloned().collect();
        }
        let within = self.within();
        let shape = self.shapes.last().and_then(|(_, shape)| shape.as_ref());
        self.cells.collect(readable, within, |key, value| {
            // A copy of a moved cell goes without its value: it is beyond the fence, or the node is
            // a root that has grown.
            if shape.is_some_and(|shape| shape.kind == NodeKind::Leaf && shape.fence.contains(key)) {
                gone(value);
            }
        });
        self.is_left(readable)
    }

    /// Passes everything to `each` that a collection leaves: the parts from which
    /// [`restore`](Self::restore) makes the node.
    pub(crate) fn items<E>(
        &self,
        readable: Readable,
        mut each: impl FnMut(NodeItem<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let low = readable.low;
        for (at, shape) in self.shapes_left(readable) {
            let new = shape.as_ref().map(|shape| NewNode { kind: shape.kind, fence: shape.fence.clone() });
            each(NodeItem::Shape(covered(*at, low), new))?;
            for known in shape.iter().flat_map(|shape| shape.attributes_left(low)) {
                let (id, at) = (known.id, covered(known.at, low));
                each(NodeItem::Attribute { id, at, value: known.value.as_deref() })?;
            }
        }
        for (range, to) in &self.moves {
            each(NodeItem::Move(range.clone(), *to))?;
        }
        if self.floor > low {
            each(NodeItem::Floor(self.floor))?;
        }
        for mark in self.marks.iter().filter(|mark| mark.at > low) {
            each(NodeItem::Mark(mark.kind, mark.range.clone(), mark.at))?;
        }
        let within = self.within();
        for (position, cell) in self.cells.iter().enumerate() {
            if !cell.is_left(readable, within.contains(&position)) {
                continue;
            }
            let key = cell.key;
            each(NodeItem::Version { key, at: covered(cell.at, low), value: cell.newest })?;
            for version in cell.older_seen(readable) {
                let at = covered(version.at, low);
                each(NodeItem::Version { key, at, value: cell.value_of(version) })?;
            }
        }
        Ok(())
    }

    /// Passes the content of a range to `each`, for another group: of each cell the newest version,
    /// or that it was deleted, and the marks, as far as a snapshot from `low` on needs them.
    pub(crate) fn content<E>(
        &self,
        range: &KeyRange,
        low: Timestamp,
        mut each: impl FnMut(NodeItem<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for mark in self.marks.iter().filter(|mark| mark.at > low && mark.range.overlaps(range)) {
            each(NodeItem::Mark(mark.kind, mark.range.intersection(range), mark.at))?;
        }
        for cell in self.cells.range(self.cells.covered(range)) {
            if cell.newest.is_some() || cell.at > low {
                each(NodeItem::Version { key: cell.key, at: covered(cell.at, low), value: cell.newest })?;
            }
        }
        Ok(())
    }

    /// Whether there are copies of cells, beyond its fence, in a range.
    fn has_copies(&self, fence: &KeyRange, range: &KeyRange) -> bool {
        self.cells.range(self.cells.covered(range)).any(|cell| !fence.contains(cell.key))
    }

    /// Whether copies of cells that have moved away are left in a range.
    pub(crate) fn has_copies_in(&self, range: &KeyRange) -> bool {
        self.shape().is_some_and(|shape| self.has_copies(&shape.fence, range))
    }

    /// Takes over content of another group.
    ///
    /// A node that existed before has no copies of cells in what is added to its fence, unless in
    /// replay: they had been collected when the transaction was prepared.
    pub(crate) fn adopt(&mut self, floor: Timestamp, items: NodeItems<'_>) {
        if let [.., (_, Some(before)), (_, Some(now))] = &self.shapes[..] {
            let (before, now) = (Arc::clone(before), Arc::clone(now));
            if self.has_copies(&before.fence, &now.fence) {
                self.cells.remove_copies(|key| now.fence.contains(key) && !before.fence.contains(key));
            }
        }
        self.floor = self.floor.max(floor);
        for item in items.iter() {
            match item {
                NodeItem::Version { key, at, value } => drop(self.put(at, key, value)),
                NodeItem::Mark(kind, range, at) => self.mark(RangeMark { kind, range, at }),
                // The content was checked: it has nothing else.
                _ => {}
            }
        }
    }

    /// Adds a part from a checkpoint. Returns its time.
    pub(crate) fn restore(&mut self, item: NodeItem<'_>) -> Timestamp {
        match item {
            NodeItem::Shape(at, new) => {
                let shape = new.map(|new| {
                    Arc::new(NodeShape { kind: new.kind, fence: new.fence, attributes: Vec::new() })
                });
                self.summary = ShapeSummary::of(at, shape.as_deref());
                // Most nodes have one.
                self.shapes.reserve_exact(1);
                self.shapes.push((at, shape));
                at
            }
            NodeItem::Attribute { id, at, value } => {
                if let Some((_, Some(shape))) = self.shapes.last_mut() {
                    let value = value.map(Into::into);
                    Arc::make_mut(shape).attributes.push(AttributeVersion { id, at, value });
                }
                at
            }
            NodeItem::Move(range, to) => {
                self.moves.push_back((range, to));
                COVERED
            }
            NodeItem::Floor(at) => {
                self.floor = at;
                at
            }
            NodeItem::Mark(kind, range, at) => {
                self.marks.push_back(RangeMark { kind, range, at });
                at
            }
            NodeItem::Version { key, at, value } => {
                if let Some(large) = value.filter(|value| value.is_large) {
                    self.note_large(large.bytes);
                }
                self.put(at, key, value);
                at
            }
        }
    }

    /// Passes the locations of long values to `each` that a collection leaves.
    pub(crate) fn long_values(&self, readable: Readable, mut each: impl FnMut(&[u8])) {
        let within = self.within();
        for (position, cell) in self.cells.iter().enumerate() {
            if cell.is_left(readable, within.contains(&position)) {
                let older = cell.older_seen(readable).filter_map(|version| cell.value_of(version));
                let values = cell.newest.into_iter().chain(older);
                values.filter(|value| value.is_large).for_each(|value| each(value.bytes));
            }
        }
    }
}
