//! Answers to questions about nodes.

use crate::cell::{Cell, VersionValue};
use crate::node::{Found, Node, NodeShape, Undecided};
use crate::store::NodeStore;
use yesquel_model::{NodeId, Timestamp};
use yesquel_wire::{AnswerWriter, ByteWriter, CellValue, Direction, LargeValue, NodeKind, Question, Scan};

/// Upper bound for the bytes of an answer before its value.
pub(crate) const HEAD_BYTES: usize = 24;

/// Writes the result of a lookup.
#[inline]
pub(crate) fn found(node: &Node, key: &[u8], found: Found<VersionValue<'_>>, writer: &mut AnswerWriter<'_>) {
    match found {
        Found::Elsewhere => writer.moved(node.moved_to(key)),
        Found::Absent => writer.absent(),
        Found::Present(VersionValue { bytes, is_large: true }) => writer.large(bytes),
        Found::Present(VersionValue { bytes, is_large: false }) => writer.value(bytes),
    }
}

/// Scratch space for parts of an answer.
#[derive(Debug, Default)]
pub(crate) struct AnswerBuffers {
    cells: Vec<u8>,
    rows: Vec<u8>,
}

impl AnswerBuffers {
    pub(crate) const NONE: AnswerBuffers = AnswerBuffers { cells: Vec::new(), rows: Vec::new() };
}

/// The store and snapshot that a question is asked of.
#[derive(Clone, Copy)]
pub(crate) struct ReadContext<'a> {
    pub(crate) store: &'a NodeStore,
    pub(crate) snapshot: Timestamp,
    /// Number of the second, for the load.
    pub(crate) second: u16,
}

impl ReadContext<'_> {
    /// Writes a node's answer. Returns the last change of the other nodes that it depends on.
    pub(crate) fn write(
        self,
        node: &Node,
        question: &Question<'_>,
        buffers: &mut AnswerBuffers,
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
                if let Some(shape) = shape_for(node, snapshot, scan, writer)? {
                    let more = write_cells(node, snapshot, shape, scan, &mut buffers.cells, |_, _| ())?;
                    writer.cells(shape.kind, &shape.fence, more, &buffers.cells);
                }
            }
            Question::Follow { scan, root, .. } => {
                let Some(shape) = shape_for(node, snapshot, scan, writer)? else { return Ok(0) };
                if shape.kind != NodeKind::Leaf {
                    let more = write_cells(node, snapshot, shape, scan, &mut buffers.cells, |_, _| ())?;
                    writer.cells(shape.kind, &shape.fence, more, &buffers.cells);
                    return Ok(0);
                }
                let AnswerBuffers { cells, rows } = buffers;
                rows.clear();
                let mut lsn = 0;
                let more = write_cells(node, snapshot, shape, scan, cells, |_, value| {
                    lsn = lsn.max(self.follow(*root, value, rows));
                })?;
                writer.followed(&shape.fence, more, (cells, rows));
                return Ok(lsn);
            }
            // Only the engine's own thread grants watches.
            Question::Watch { .. } => writer.absent(),
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
                        let more = write_cells(other, snapshot, shape, &scan, &mut buffers.cells, |_, _| ())?;
                        writer.cells(shape.kind, &shape.fence, more, &buffers.cells);
                    }
                }
                return Ok(other.changed_at_lsn);
            }
        }
        Ok(0)
    }

    /// Writes the row that a value refers to in another tree. Returns the last change of the nodes
    /// it depends on.
    fn follow(self, root: NodeId, value: &[u8], rows: &mut Vec<u8>) -> u64 {
        let mut lsn = 0;
        let start = rows.len();
        let is_written =
            start as u64 <= ROWS_BYTES_MAX && self.follow_from(root, value, &mut lsn, rows).is_some();
        if !is_written {
            rows.truncate(start);
            AnswerWriter(ByteWriter(rows)).moved(None);
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
                found(node, key, looked, &mut AnswerWriter(ByteWriter(rows)));
                return Some(());
            }
            let child = node.child(self.snapshot, key).ok()??;
            id = NodeId::from_bits(u128::from_le_bytes(child.try_into().ok()?));
        }
        None
    }
}

/// Bytes of the other node's cells when a proof fails.
const OTHER_BYTES_MAX: u64 = 4 << 20;
/// Bytes of rows that a scan follows to; further rows are not answered.
const ROWS_BYTES_MAX: u64 = 1 << 20;
/// Maximum depth of a tree.
const DEPTH_MAX: usize = 64;

/// Returns the shape of a node if the scan is for it; otherwise writes that the key has moved.
fn shape_for<'n>(
    node: &'n Node,
    snapshot: Timestamp,
    scan: &Scan,
    writer: &mut AnswerWriter<'_>,
) -> Result<Option<&'n NodeShape>, Undecided> {
    match node.shape_at(snapshot) {
        None => writer.moved(None),
        Some(shape) if scan.near.as_ref().is_some_and(|key| !shape.fence.contains(key)) => {
            node.wait_for_shape(snapshot)?;
            writer.moved(scan.near.as_ref().and_then(|key| node.moved_to(key)));
        }
        Some(shape) => return Ok(Some(shape)),
    }
    Ok(None)
}

/// Writes the cells that a scan sees. Returns whether there are more. Passes each whole cell to
/// `see`.
fn write_cells(
    node: &Node,
    snapshot: Timestamp,
    shape: &NodeShape,
    scan: &Scan,
    buffer: &mut Vec<u8>,
    mut see: impl FnMut(&[u8], &[u8]),
) -> Result<bool, Undecided> {
    buffer.clear();
    // Cells beyond the fence have moved.
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
        let cell = match value {
            // The location was checked when it was written.
            VersionValue { bytes, is_large: true } => match LargeValue::decode(bytes) {
                Ok(large) => CellValue::Large(large),
                Err(_) => continue,
            },
            VersionValue { bytes: value, .. } if value.len() as u64 > scan.value_bytes_max => {
                CellValue::Length(value.len() as u64)
            }
            VersionValue { bytes: value, .. } => {
                bytes += value.len() as u64;
                CellValue::Bytes(value)
            }
        };
        AnswerWriter::cell(buffer, key, cell);
        // A long value is not followed: its row is answered as missing.
        see(key, if matches!(cell, CellValue::Bytes(_)) { value.bytes } else { &[] });
        count += 1;
        bytes += key.len() as u64;
    }
    Ok(false)
}
