//! The state of a node as a record of a checkpoint: its shapes, attributes, moves, marks and
//! versions, each with its time.
//!
//! Times at or below the low-water mark are left out, since no readable snapshot can tell them
//! apart. Such an item has [`COVERED`] as its time. A time is stored as the difference from the one
//! before it.

use crate::cell::VersionValue;
use crate::write_target::MarkKind;
use std::fmt;
use yesquel_model::{KeyRange, NodeId, Timestamp, limits};
use yesquel_wire::{ByteReader, ByteWriter, LargeValue, Malformed, NewNode, NodeKind};

/// Time of what the low-water mark covers: below the vote of every prepared transaction.
pub(crate) const COVERED: Timestamp = Timestamp::ZERO;

/// Returns a time, or [`COVERED`].
pub(crate) fn covered(at: Timestamp, low: Timestamp) -> Timestamp {
    if at <= low { COVERED } else { at }
}

/// A part of a node's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeItem<'a> {
    /// A version of kind and fence; `None`: the node does not exist.
    Shape(Timestamp, Option<NewNode>),
    /// An attribute of the shape before it; `None`: removed.
    Attribute { id: u16, at: Timestamp, value: Option<&'a [u8]> },
    /// A range of keys that has moved to another node; the last move first.
    Move(KeyRange, NodeId),
    /// Transactions with snapshots below this time conflict with what came from another group.
    Floor(Timestamp),
    /// A mark, in the order of times.
    Mark(MarkKind, KeyRange, Timestamp),
    /// A version of a cell: the newest, then the others, the oldest first.
    Version { key: &'a [u8], at: Timestamp, value: Option<VersionValue<'a>> },
}

// The first byte of an item: its kind, and flags above it.
const KIND: u8 = 7;
const SHAPE_LEAF: u8 = 0;
const SHAPE_INNER: u8 = 1;
const SHAPE_VALUE: u8 = 2;
const SHAPE_NONE: u8 = 3;
const ATTRIBUTE: u8 = 4;
const MOVE: u8 = 5;
const MARK: u8 = 6;
const VERSION: u8 = 7;
/// The item has a time.
const TIMED: u8 = 8;
/// A value follows.
const PRESENT: u8 = 16;
/// The value is the location of a long one; the mark is a guard; the item is a floor, not a move.
const SPECIAL: u8 = 32;
/// A version has the key of the version before it.
const SAME_KEY: u8 = 64;

fn zigzag(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends the items of a node to a buffer.
#[derive(Debug, Default)]
pub(crate) struct NodeItemWriter {
    pub(crate) bytes: Vec<u8>,
    last: Timestamp,
    /// Position and length of the key of the version before.
    key: Option<(usize, usize)>,
}

impl NodeItemWriter {
    /// Begins another record.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.last, self.key) = (COVERED, None);
    }

    pub(crate) fn push(&mut self, item: &NodeItem<'_>) {
        let (tag, at) = match item {
            NodeItem::Shape(at, shape) => {
                let kind = match shape.as_ref().map(|shape| shape.kind) {
                    Some(NodeKind::Leaf) => SHAPE_LEAF,
                    Some(NodeKind::Inner) => SHAPE_INNER,
                    Some(NodeKind::Value) => SHAPE_VALUE,
                    None => SHAPE_NONE,
                };
                (kind, *at)
            }
            NodeItem::Attribute { at, value, .. } => {
                (ATTRIBUTE | if value.is_some() { PRESENT } else { 0 }, *at)
            }
            NodeItem::Move(..) => (MOVE, COVERED),
            NodeItem::Floor(at) => (MOVE | SPECIAL, *at),
            NodeItem::Mark(MarkKind::Deleted, _, at) => (MARK, *at),
            NodeItem::Mark(MarkKind::Guarded, _, at) => (MARK | SPECIAL, *at),
            NodeItem::Version { key, at, value } => {
                let is_same =
                    self.key.is_some_and(|(start, length)| self.bytes[start..start + length] == **key);
                let form = match value {
                    None => 0,
                    Some(VersionValue { is_large: false, .. }) => PRESENT,
                    Some(VersionValue { is_large: true, .. }) => PRESENT | SPECIAL,
                };
                (VERSION | form | if is_same { SAME_KEY } else { 0 }, *at)
            }
        };
        let is_timed = at != COVERED;
        let mut writer = ByteWriter(&mut self.bytes);
        writer.byte(tag | if is_timed { TIMED } else { 0 });
        if is_timed {
            writer.number(zigzag(at.0.wrapping_sub(self.last.0) as i64));
            self.last = at;
        }
        match item {
            NodeItem::Shape(_, shape) => {
                if let Some(shape) = shape {
                    writer.range(&shape.fence);
                }
            }
            NodeItem::Attribute { id, value, .. } => {
                writer.number(u64::from(*id));
                if let Some(value) = value {
                    writer.bytes(value);
                }
            }
            NodeItem::Move(range, to) => drop(writer.range(range).node(*to)),
            NodeItem::Floor(_) => {}
            NodeItem::Mark(_, range, _) => drop(writer.range(range)),
            NodeItem::Version { key, value, .. } => {
                if tag & SAME_KEY == 0 {
                    writer.bytes(key);
                    self.key = Some((self.bytes.len() - key.len(), key.len()));
                }
                if let Some(value) = value {
                    ByteWriter(&mut self.bytes).bytes(value.bytes);
                }
            }
        }
    }
}

/// The items of one record; the bytes were checked once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeItems<'a> {
    bytes: &'a [u8],
}

impl fmt::Debug for NodeItems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> NodeItems<'a> {
    /// Decodes and checks items.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<NodeItems<'a>, Malformed> {
        let mut iter = NodeItemReader::new(bytes);
        while !iter.reader.is_done() {
            iter.read()?;
        }
        Ok(NodeItems { bytes })
    }

    /// Wraps what a [`NodeItemWriter`] has written.
    pub(crate) fn written(bytes: &'a [u8]) -> NodeItems<'a> {
        NodeItems { bytes }
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = NodeItem<'a>> {
        let mut iter = NodeItemReader::new(self.bytes);
        // Decoding has checked them before.
        std::iter::from_fn(move || if iter.reader.is_done() { None } else { iter.read().ok() })
    }
}

struct NodeItemReader<'a> {
    reader: ByteReader<'a>,
    last: Timestamp,
    key: Option<&'a [u8]>,
}

impl<'a> NodeItemReader<'a> {
    fn new(bytes: &'a [u8]) -> NodeItemReader<'a> {
        NodeItemReader { reader: ByteReader::new(bytes), last: COVERED, key: None }
    }

    /// Flags that an item of a kind may have.
    fn flags(kind: u8) -> u8 {
        match kind {
            ATTRIBUTE => TIMED | PRESENT,
            MOVE => TIMED | SPECIAL,
            MARK => TIMED | SPECIAL,
            VERSION => TIMED | PRESENT | SPECIAL | SAME_KEY,
            _ => TIMED,
        }
    }

    fn time(&mut self, tag: u8) -> Result<Timestamp, Malformed> {
        if tag & TIMED == 0 {
            return Ok(COVERED);
        }
        let before = self.reader;
        self.last = Timestamp(self.last.0.wrapping_add(unzigzag(self.reader.number()?) as u64));
        if self.last == COVERED { Err(before.malformed("a time that is left out")) } else { Ok(self.last) }
    }

    fn value(&mut self) -> Result<&'a [u8], Malformed> {
        let before = self.reader;
        let value = self.reader.bytes()?;
        if value.len() > limits::CELL_VALUE_BYTES_MAX {
            return Err(before.malformed("a value over the limit"));
        }
        Ok(value)
    }

    fn read(&mut self) -> Result<NodeItem<'a>, Malformed> {
        let before = self.reader;
        let tag = self.reader.byte()?;
        let kind = tag & KIND;
        if tag & !KIND & !NodeItemReader::flags(kind) != 0 {
            return Err(before.malformed("a node's item with wrong flags"));
        }
        let at = self.time(tag)?;
        let is_present = tag & PRESENT != 0;
        Ok(match kind {
            SHAPE_NONE => NodeItem::Shape(at, None),
            SHAPE_LEAF | SHAPE_INNER | SHAPE_VALUE => {
                let kind = match kind {
                    SHAPE_LEAF => NodeKind::Leaf,
                    SHAPE_INNER => NodeKind::Inner,
                    _ => NodeKind::Value,
                };
                NodeItem::Shape(at, Some(NewNode { kind, fence: self.reader.range()? }))
            }
            ATTRIBUTE => {
                let id = u16::try_from(self.reader.number()?);
                let id = id.map_err(|_| before.malformed("an attribute beyond 16 bits"))?;
                NodeItem::Attribute { id, at, value: if is_present { Some(self.value()?) } else { None } }
            }
            MOVE if tag & SPECIAL != 0 && tag & TIMED != 0 => NodeItem::Floor(at),
            MOVE if tag & (SPECIAL | TIMED) == 0 => NodeItem::Move(self.reader.range()?, self.reader.node()?),
            MOVE => return Err(before.malformed("a floor without a time, or a move with one")),
            MARK => {
                let kind = if tag & SPECIAL == 0 { MarkKind::Deleted } else { MarkKind::Guarded };
                NodeItem::Mark(kind, self.reader.range()?, at)
            }
            _ => {
                let key = match self.key {
                    Some(key) if tag & SAME_KEY != 0 => key,
                    None if tag & SAME_KEY != 0 => return Err(before.malformed("no previous key")),
                    _ => self.reader.key()?,
                };
                self.key = Some(key);
                let is_large = tag & SPECIAL != 0;
                if is_large && !is_present {
                    return Err(before.malformed("a long value without its location"));
                }
                let bytes = if is_present { Some(self.value()?) } else { None };
                if let Some(bytes) = bytes.filter(|_| is_large) {
                    LargeValue::decode(bytes)?;
                }
                NodeItem::Version { key, at, value: bytes.map(|bytes| VersionValue { bytes, is_large }) }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel_model::{LocalId, ServerId, TreeId};

    #[test]
    fn items_round_trip() {
        let range = KeyRange { low: (*b"a").into(), high: Some((*b"k").into()) };
        let to = NodeId { tree: TreeId::new(3).unwrap(), server: ServerId(1), local: LocalId(7) };
        let large = LargeValue { length: 40_000, server: ServerId(0), first: LocalId(9) }.encode();
        let whole = |bytes| Some(VersionValue { bytes, is_large: false });
        let version = |key: &'static [u8], at, value| NodeItem::Version { key, at: Timestamp(at), value };
        let shape = |kind| Some(NewNode { kind, fence: range.clone() });
        let items = [
            NodeItem::Shape(COVERED, shape(NodeKind::Inner)),
            NodeItem::Shape(Timestamp(70), shape(NodeKind::Value)),
            NodeItem::Shape(Timestamp(80), None),
            NodeItem::Shape(Timestamp(u64::MAX), shape(NodeKind::Leaf)),
            NodeItem::Attribute { id: 700, at: Timestamp(5), value: Some(b"value") },
            NodeItem::Attribute { id: 1, at: COVERED, value: None },
            NodeItem::Move(range.clone(), to),
            NodeItem::Floor(Timestamp(40)),
            NodeItem::Mark(MarkKind::Deleted, range.clone(), Timestamp(1 << 60)),
            NodeItem::Mark(MarkKind::Guarded, range.clone(), Timestamp(3)),
            version(b"", 0, whole(b"")),
            version(b"b", 90, None),
            version(b"b", 70, whole(b"old")),
            version(b"b", 80, Some(VersionValue { bytes: &large, is_large: true })),
            version(b"c", 0, whole(b"new")),
        ];
        let mut writer = NodeItemWriter::default();
        items.iter().for_each(|item| writer.push(item));
        let decoded = NodeItems::decode(&writer.bytes).unwrap();
        assert!(decoded.iter().eq(items.iter().cloned()), "{:?}", decoded.iter().collect::<Vec<_>>());
        for length in 0..writer.bytes.len() {
            // No cut within an item is taken for its end.
            let Ok(less) = NodeItems::decode(&writer.bytes[..length]) else { continue };
            assert!(items.starts_with(&less.iter().collect::<Vec<_>>()));
        }
        // A record that begins again names the key.
        writer.clear();
        writer.push(&items[11]);
        assert!(NodeItems::decode(&writer.bytes).unwrap().iter().eq(items[11..12].iter().cloned()));
        for wrong in
            [&[SHAPE_NONE | SPECIAL][..], &[VERSION | SAME_KEY], &[VERSION | SPECIAL, 0], &[TIMED, 0]]
        {
            assert!(NodeItems::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
