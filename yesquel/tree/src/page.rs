//! Leaf at a snapshot, as a transaction caches it.

use crate::stored::StoredValue;
use yesquel_model::{Key, KeyRange, NodeId};
use yesquel_wire::{CellValue, LargeValue};

/// Leaf at a snapshot, or part of a very long one.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) node: NodeId,
    /// Range whose cells are all present.
    pub(crate) fence: KeyRange,
    pub(crate) cells: PageCells,
    /// Entries of another tree that the cells refer to, as far as the server returned them.
    pub(crate) followed: Vec<(Key, Option<StoredValue>)>,
}

/// Cells in key order, in one block of memory: a page is read once, and most of its cells perhaps
/// never.
#[derive(Debug, Default)]
pub(crate) struct PageCells {
    bytes: Vec<u8>,
    spans: Vec<CellSpan>,
}

/// Location of a cell: its key, followed by its value.
#[derive(Debug, Clone, Copy)]
struct CellSpan {
    start: u32,
    key_bytes: u32,
    value_bytes: u32,
    /// The value is large: these bytes name its nodes.
    is_large: bool,
}

/// Value of a cell in a page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PageValue<'a> {
    Whole(&'a [u8]),
    Large(LargeValue),
}

/// Maximum number of cells reserved in advance.
const SPANS_MAX: usize = 4_096;

impl PageCells {
    /// Copies the cells of an answer of `answer_bytes` bytes. `None` if a value is incomplete.
    pub(crate) fn of<'a>(
        answer_bytes: usize,
        cells: impl Iterator<Item = (&'a [u8], CellValue<'a>)>,
    ) -> Option<PageCells> {
        let mut all = PageCells { bytes: Vec::with_capacity(answer_bytes), spans: Vec::new() };
        for (key, value) in cells {
            let start = u32::try_from(all.bytes.len()).ok()?;
            all.bytes.extend_from_slice(key);
            let is_large = match value {
                CellValue::Bytes(value) => {
                    all.bytes.extend_from_slice(value);
                    false
                }
                CellValue::Large(large) => {
                    all.bytes.extend_from_slice(&large.encode());
                    true
                }
                CellValue::Length(_) => return None,
            };
            let key_bytes = u32::try_from(key.len()).ok()?;
            let value_bytes = u32::try_from(all.bytes.len()).ok()? - start - key_bytes;
            if all.spans.is_empty() {
                // Estimate from the first cell, which may be very short.
                all.spans.reserve((answer_bytes / all.bytes.len().max(1)).clamp(1, SPANS_MAX));
            }
            all.spans.push(CellSpan { start, key_bytes, value_bytes, is_large });
        }
        Some(all)
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the number of bytes used.
    pub(crate) fn weight(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<CellSpan>()
    }

    /// Reverses the order.
    pub(crate) fn reverse(&mut self) {
        self.spans.reverse();
    }

    fn key_of(&self, span: CellSpan) -> &[u8] {
        let start = span.start as usize;
        &self.bytes[start..start + span.key_bytes as usize]
    }

    pub(crate) fn key(&self, at: usize) -> &[u8] {
        self.key_of(self.spans[at])
    }

    pub(crate) fn value(&self, at: usize) -> PageValue<'_> {
        let span = self.spans[at];
        let start = (span.start + span.key_bytes) as usize;
        let bytes = &self.bytes[start..start + span.value_bytes as usize];
        match span.is_large.then(|| LargeValue::decode(bytes)) {
            Some(Ok(large)) => PageValue::Large(large),
            _ => PageValue::Whole(bytes),
        }
    }

    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.spans.last().map(|span| self.key_of(*span))
    }

    /// Returns the number of cells before the partition point.
    pub(crate) fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        self.spans.partition_point(|span| is_before(self.key_of(*span)))
    }

    /// Returns the index of a key, or the index where it would be inserted.
    pub(crate) fn position(&self, key: &[u8]) -> Result<usize, usize> {
        self.spans.binary_search_by(|span| self.key_of(*span).cmp(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel_model::{LocalId, ServerId};

    #[test]
    fn cells_of_a_page_round_trip() {
        let large = LargeValue { length: 70_000, server: ServerId(1), first: LocalId(9) };
        let all = [
            (&b""[..], CellValue::Bytes(b"empty")),
            (b"a", CellValue::Bytes(b"")),
            (b"b", CellValue::Large(large)),
            (b"bb", CellValue::Bytes(b"value")),
        ];
        let mut cells = PageCells::of(0, all.into_iter()).unwrap();
        assert_eq!((cells.len(), cells.last_key()), (4, Some(&b"bb"[..])));
        for (at, (key, value)) in all.iter().enumerate() {
            assert_eq!((cells.key(at), cells.position(key)), (*key, Ok(at)));
            match (cells.value(at), value) {
                (PageValue::Whole(own), CellValue::Bytes(sent)) => assert_eq!(own, *sent),
                (PageValue::Large(own), CellValue::Large(sent)) => assert_eq!(own, *sent),
                (own, sent) => panic!("{own:?}, {sent:?}"),
            }
        }
        assert_eq!(cells.position(b"ab"), Err(2));
        assert_eq!(cells.partition_point(|key| key < &b"b"[..]), 2);
        cells.reverse();
        assert_eq!(cells.key(0), b"bb");
        assert!(PageCells::of(0, [(&b"k"[..], CellValue::Length(7))].into_iter()).is_none());
    }
}
