//! Answers to questions about one node.

use crate::cell::{Cell, Value};
use crate::node::{Node, Shape, Undecided};
use yesquel_model::Timestamp;
use yesquel_wire::{AnswerWriter, CellValue, Direction, Large, Question, Scan};

/// Bytes of an answer before the value that it tells.
pub(crate) const HEAD_BYTES: usize = 24;

/// Writes what a look for a key has found.
#[inline]
pub(crate) fn found(
    node: &Node,
    key: &[u8],
    found: Option<Option<Value<'_>>>,
    writer: &mut AnswerWriter<'_>,
) {
    match found {
        None => writer.moved(node.moved_to(key)),
        Some(None) => writer.absent(),
        Some(Some(Value { bytes, is_large: true })) => writer.large(bytes),
        Some(Some(Value { bytes, is_large: false })) => writer.value(bytes),
    }
}

/// Writes the answer that a snapshot gives. `cells` is a buffer.
pub(crate) fn write(
    node: &Node,
    snapshot: Timestamp,
    question: &Question<'_>,
    cells: &mut Vec<u8>,
    writer: &mut AnswerWriter<'_>,
) -> Result<(), Undecided> {
    match question {
        Question::Lookup { key, .. } => found(node, key, node.lookup(snapshot, key)?, writer),
        Question::Attribute { id, .. } => match node.attribute(snapshot, *id)? {
            None => writer.moved(None),
            Some(None) => writer.absent(),
            Some(Some(value)) => writer.value(value),
        },
        Question::Scan { scan, .. } => match node.shape_at(snapshot) {
            None => writer.moved(None),
            Some(shape) if scan.near.as_ref().is_some_and(|key| !shape.fence.contains(key)) => {
                writer.moved(scan.near.as_ref().and_then(|key| node.moved_to(key)));
            }
            Some(shape) => {
                cells.clear();
                let more = write_cells(node, snapshot, shape, scan, cells)?;
                writer.cells(shape.kind, &shape.fence, more, cells);
            }
        },
    }
    Ok(())
}

/// Writes the cells that a scan sees; whether there are more of them.
fn write_cells(
    node: &Node,
    snapshot: Timestamp,
    shape: &Shape,
    scan: &Scan,
    buffer: &mut Vec<u8>,
) -> Result<bool, Undecided> {
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
        let value = match value {
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
        AnswerWriter::cell(buffer, key, value);
        count += 1;
        bytes += key.len() as u64;
    }
    Ok(false)
}
