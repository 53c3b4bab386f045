//! A leaf as a snapshot sees it, as a transaction keeps it.

use crate::stored::Stored;
use yesquel_model::{Key, KeyRange, NodeId};
use yesquel_wire::{CellValue, LargeValue};

/// A leaf as a snapshot sees it, or a part of one that is very long.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) node: NodeId,
    /// What the cells are all of.
    pub(crate) fence: KeyRange,
    pub(crate) cells: Cells,
    /// What they refer to in another tree, as far as it was told.
    pub(crate) followed: Vec<(Key, Option<Stored>)>,
}

/// Cells in their order, one after the other in one piece of memory: a page is
/// read once, and most of its cells perhaps never.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Where one stands: its key, and its value behind it.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: u32,
    key_bytes: u32,
    value_bytes: u32,
    /// The value stands elsewhere, and this says where.
    is_large: bool,
}

/// A value as a page has it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Whole(&'a [u8]),
    Large(LargeValue),
}

/// Places that there is room for before they are needed.
const PLACES_MAX: usize = 4_096;

impl Cells {
    /// Those of an answer, which took so many bytes; none if one of them was not
    /// told whole.
    pub(crate) fn of<'a>(
        told_bytes: usize,
        cells: impl Iterator<Item = (&'a [u8], CellValue<'a>)>,
    ) -> Option<Cells> {
        let mut all = Cells { bytes: Vec::with_capacity(told_bytes), places: Vec::new() };
        for (key, value) in cells {
            let start = u32::try_from(all.bytes.len()).ok()?;
            if start > 0 && all.places.len() == 1 {
                // As many as there are if they are all like the first, which may be
                // a very short one.
                all.places.reserve((told_bytes / all.bytes.len()).min(PLACES_MAX));
            }
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
            all.places.push(Place { start, key_bytes, value_bytes, is_large });
        }
        Some(all)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes that they take.
    pub(crate) fn weight(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<Place>()
    }

    /// The other way round.
    pub(crate) fn reverse(&mut self) {
        self.places.reverse();
    }

    fn key_of(&self, place: Place) -> &[u8] {
        let start = place.start as usize;
        &self.bytes[start..start + place.key_bytes as usize]
    }

    pub(crate) fn key(&self, at: usize) -> &[u8] {
        self.key_of(self.places[at])
    }

    pub(crate) fn value(&self, at: usize) -> Value<'_> {
        let place = self.places[at];
        let start = (place.start + place.key_bytes) as usize;
        let bytes = &self.bytes[start..start + place.value_bytes as usize];
        match place.is_large.then(|| LargeValue::decode(bytes)) {
            Some(Ok(large)) => Value::Large(large),
            _ => Value::Whole(bytes),
        }
    }

    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.places.last().map(|place| self.key_of(*place))
    }

    /// How many come before: their keys are so.
    pub(crate) fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        self.places.partition_point(|place| is_before(self.key_of(*place)))
    }

    /// Where a key stands, or would.
    pub(crate) fn position(&self, key: &[u8]) -> Result<usize, usize> {
        self.places.binary_search_by(|place| self.key_of(*place).cmp(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel_model::{LocalId, ServerId};

    #[test]
    fn cells_are_as_they_were_told() {
        let large = LargeValue { length: 70_000, server: ServerId(1), first: LocalId(9) };
        let all = [
            (&b""[..], CellValue::Bytes(b"empty")),
            (b"a", CellValue::Bytes(b"")),
            (b"b", CellValue::Large(large)),
            (b"bb", CellValue::Bytes(b"value")),
        ];
        let mut cells = Cells::of(0, all.into_iter()).unwrap();
        assert_eq!((cells.len(), cells.last_key()), (4, Some(&b"bb"[..])));
        for (at, (key, value)) in all.iter().enumerate() {
            assert_eq!((cells.key(at), cells.position(key)), (*key, Ok(at)));
            match (cells.value(at), value) {
                (Value::Whole(own), CellValue::Bytes(told)) => assert_eq!(own, *told),
                (Value::Large(own), CellValue::Large(told)) => assert_eq!(own, *told),
                (own, told) => panic!("{own:?}, {told:?}"),
            }
        }
        assert_eq!(cells.position(b"ab"), Err(2));
        assert_eq!(cells.partition_point(|key| key < &b"b"[..]), 2);
        cells.reverse();
        assert_eq!(cells.key(0), b"bb");
        assert!(Cells::of(0, [(&b"k"[..], CellValue::Length(7))].into_iter()).is_none());
    }
}
