//! Answers to questions about nodes.

use crate::cell::{Cell, Value};
use crate::node::{Found, Node, Shape, Undecided};
use crate::store::Store;
use yesquel_model::{NodeId, Timestamp};
use yesquel_wire::{AnswerWriter, CellValue, Direction, Large, NodeKind, Question, Scan, Writer};

/// Bytes of an answer before the value that it tells.
pub(crate) const HEAD_BYTES: usize = 24;

/// Writes what a look for a key has found.
#[inline]
pub(crate) fn found(node: &Node, key: &[u8], found: Found<Value<'_>>, writer: &mut AnswerWriter<'_>) {
    match found {
        Found::Elsewhere => writer.moved(node.moved_to(key)),
        Found::Absent => writer.absent(),
        Found::Present(Value { bytes, is_large: true }) => writer.large(bytes),
        Found::Present(Value { bytes, is_large: false }) => writer.value(bytes),
    }
}

/// Room for parts of an answer.
#[derive(Debug, Default)]
pub(crate) struct Room {
    cells: Vec<u8>,
    rows: Vec<u8>,
}

impl Room {
    pub(crate) const NONE: Room = Room { cells: Vec::new(), rows: Vec::new() };
}

/// Whom a question is asked of, and as of when.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) store: &'a Store,
    pub(crate) snapshot: Timestamp,
    /// Which second it is, for the load.
    pub(crate) second: u16,
}

impl Asked<'_> {
    /// Writes the answer of a node. Returns the last change of those besides it
    /// that were looked at.
    pub(crate) fn write(
        self,
        node: &Node,
        question: &Question<'_>,
        room: &mut Room,
        writer: &mut AnswerWriter<'_>,
    ) -> Result<u64, Undecided> {
        let snapshot = self.snapshot;
        match question {
            Question::Lookup { key, .. } => found(node, key, node.lookup(snapshot, key)?, writer),
            Question::Attribute { id, .. } => match node.attribute(snapshot, *id)? {
                Found::Elsewhere => writer.moved(None),
                Found::Absent => writer.absent(),
                Found::Present(value) => writer.value(value),
            },
            Question::Scan { scan, .. } => {
                if let Some(shape) = shape_for(node, snapshot, scan, writer) {
                    let more = write_cells(node, snapshot, shape, scan, &mut room.cells, |_, _| ())?;
                    writer.cells(shape.kind, &shape.fence, more, &room.cells);
                }
            }
            Question::Follow { scan, root, .. } => {
                let Some(shape) = shape_for(node, snapshot, scan, writer) else { return Ok(0) };
                if shape.kind != NodeKind::Leaf {
                    let more = write_cells(node, snapshot, shape, scan, &mut room.cells, |_, _| ())?;
                    writer.cells(shape.kind, &shape.fence, more, &room.cells);
                    return Ok(0);
                }
                let Room { cells, rows } = room;
                rows.clear();
                let mut lsn = 0;
                let more = write_cells(node, snapshot, shape, scan, cells, |_, value| {
                    lsn = lsn.max(self.follow(*root, value, rows));
                })?;
                writer.followed(&shape.fence, more, (cells, rows));
                return Ok(lsn);
            }
            Question::Proof { key, value, other, .. } => {
                let found = match node.lookup(snapshot, key)? {
                    Found::Elsewhere => {
                        writer.moved(node.moved_to(key));
                        return Ok(0);
                    }
                    Found::Absent => &[],
                    Found::Present(found) => found.bytes,
                };
                if found == *value {
                    writer.same();
                    return Ok(0);
                }
                writer.differs(found);
                let Some(other) = self.store.seen(*other, snapshot)? else {
                    writer.moved(None);
                    return Ok(0);
                };
                let scan = Scan { bytes_max: OTHER_BYTES_MAX, ..Scan::all() };
                match other.shape_at(snapshot) {
                    None => writer.moved(None),
                    Some(shape) => {
                        let more = write_cells(other, snapshot, shape, &scan, &mut room.cells, |_, _| ())?;
                        writer.cells(shape.kind, &shape.fence, more, &room.cells);
                    }
                }
                return Ok(other.changed_at_lsn);
            }
        }
        Ok(0)
    }

    /// Writes what a value refers to in the tree of a root. Returns the last
    /// change of what was looked at.
    fn follow(self, root: NodeId, value: &[u8], rows: &mut Vec<u8>) -> u64 {
        let mut lsn = 0;
        let start = rows.len();
        let told = start as u64 <= ROWS_BYTES_MAX && self.follow_from(root, value, &mut lsn, rows).is_some();
        if !told {
            rows.truncate(start);
            AnswerWriter(Writer(rows)).moved(None);
        }
        lsn
    }

    fn follow_from(self, root: NodeId, value: &[u8], lsn: &mut u64, rows: &mut Vec<u8>) -> Option<()> {
        let (length, rest) = value.split_first()?;
        let key = rest.get(..usize::from(*length)).filter(|key| !key.is_empty())?;
        let mut id = root;
        for _ in 0..DEPTH_MAX {
            let node = self.store.seen(id, self.snapshot).ok()??;
            let shape = node.shape_at(self.snapshot).filter(|shape| shape.fence.contains(key))?;
            *lsn = (*lsn).max(node.changed_at_lsn);
            if shape.kind == NodeKind::Leaf {
                node.load.touch(self.second);
                let looked = node.lookup(self.snapshot, key).ok()?;
                if matches!(looked, Found::Elsewhere) {
                    return None;
                }
                found(node, key, looked, &mut AnswerWriter(Writer(rows)));
                return Some(());
            }
            let child = node.child(self.snapshot, key).ok()??;
            id = NodeId::from_bits(u128::from_le_bytes(child.try_into().ok()?));
        }
        None
    }
}

/// Bytes of the node that is told of when a proof fails.
const OTHER_BYTES_MAX: u64 = 4 << 20;
/// Bytes of what is referred to by cells of one scan, beyond which no more is
/// told.
const ROWS_BYTES_MAX: u64 = 1 << 20;
/// Nodes from a root to a leaf.
const DEPTH_MAX: usize = 64;

/// What a node is, if it is the one for a scan; else that is written.
fn shape_for<'n>(
    node: &'n Node,
    snapshot: Timestamp,
    scan: &Scan,
    writer: &mut AnswerWriter<'_>,
) -> Option<&'n Shape> {
    match node.shape_at(snapshot) {
        None => writer.moved(None),
        Some(shape) if scan.near.as_ref().is_some_and(|key| !shape.fence.contains(key)) => {
            writer.moved(scan.near.as_ref().and_then(|key| node.moved_to(key)));
        }
        Some(shape) => return Some(shape),
    }
    None
}

/// Writes the cells that a scan sees; whether there are more of them. `see` is
/// given each that is told whole.
fn write_cells(
    node: &Node,
    snapshot: Timestamp,
    shape: &Shape,
    scan: &Scan,
    buffer: &mut Vec<u8>,
    mut see: impl FnMut(&[u8], &[u8]),
) -> Result<bool, Undecided> {
    buffer.clear();
    // Beyond its fence a node may have cells that have moved.
    let range = scan.range.intersection(&shape.fence);
    let all = node.scan(snapshot, &range)?;
    let mut next: Box<dyn Iterator<Item = Cell<'_>>> = match scan.direction {
        Direction::Up => Box::new(all),
        Direction::Down => Box::new(all.rev()),
    };
    let seen = next.by_ref().filter_map(|cell| Some((cell.key, cell.seen_at(snapshot)?)));
    let (mut count, mut bytes) = (0, 0);
    for (key, value) in seen {
        if count >= scan.cells_max || bytes >= scan.bytes_max {
            return Ok(true);
        }
        let told = match value {
            // It was looked at when it was written.
            Value { bytes, is_large: true } => match Large::decode(bytes) {
                Ok(large) => CellValue::Large(large),
                Err(_) => continue,
            },
            Value { bytes: value, .. } if value.len() as u64 > scan.value_bytes_max => {
                CellValue::Length(value.len() as u64)
            }
            Value { bytes: value, .. } => {
                bytes += value.len() as u64;
                CellValue::Bytes(value)
            }
        };
        AnswerWriter::cell(buffer, key, told);
        // What a long one refers to is not told: its answer is that there is none.
        see(key, if matches!(told, CellValue::Bytes(_)) { value.bytes } else { &[] });
        count += 1;
        bytes += key.len() as u64;
    }
    Ok(false)
}
