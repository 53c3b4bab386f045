//! A cell: a key, its newest value, and the older ones that snapshots may
//! still see.

use std::cmp::Ordering;
use thin_vec::ThinVec;
use yesquel_model::Timestamp;

/// A version that is not the newest.
#[derive(Debug, Clone)]
struct Older {
    at: Timestamp,
    /// Key and value, as in [`Cell`].
    data: Box<[u8]>,
    deleted: bool,
}

/// A cell.
///
/// Key and newest value are one allocation. With 8 bytes of key and 100 of
/// value a cell takes 48 bytes here and 108 there.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    /// The key's first eight bytes, which decide most comparisons.
    prefix: u64,
    /// When the newest version was committed.
    at: Timestamp,
    /// The key, and behind it the value.
    data: Box<[u8]>,
    key_bytes: u32,
    /// Whether the newest version is that there is none.
    deleted: bool,
    /// The versions before, the oldest first. A cell that everybody writes has
    /// many thousands while somebody holds a snapshot.
    older: ThinVec<Older>,
}

/// The first eight bytes of a key, as a number in the order of keys.
pub(crate) fn prefix_of(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}

fn data(key: &[u8], value: Option<&[u8]>) -> Box<[u8]> {
    let value = value.unwrap_or_default();
    let mut data = Vec::with_capacity(key.len() + value.len());
    data.extend_from_slice(key);
    data.extend_from_slice(value);
    data.into()
}

impl Cell {
    pub(crate) fn new(key: &[u8], at: Timestamp, value: Option<&[u8]>) -> Cell {
        Cell {
            prefix: prefix_of(key),
            at,
            data: data(key, value),
            key_bytes: key.len() as u32,
            deleted: value.is_none(),
            older: ThinVec::new(),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.data[..self.key_bytes as usize]
    }

    /// When its newest version was committed.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// Where it stands to a key with this prefix.
    pub(crate) fn compare(&self, prefix: u64, key: &[u8]) -> Ordering {
        self.prefix.cmp(&prefix).then_with(|| self.key().cmp(key))
    }

    /// The newest value, if it is not deleted.
    pub(crate) fn newest(&self) -> Option<&[u8]> {
        if self.deleted { None } else { Some(&self.data[self.key_bytes as usize..]) }
    }

    /// The value that a snapshot sees.
    pub(crate) fn seen_at(&self, snapshot: Timestamp) -> Option<&[u8]> {
        if self.at <= snapshot {
            return self.newest();
        }
        let above = self.older.partition_point(|version| version.at <= snapshot);
        self.older[..above].last().and_then(|version| self.value_of(version))
    }

    fn value_of<'a>(&self, version: &'a Older) -> Option<&'a [u8]> {
        if version.deleted { None } else { Some(&version.data[self.key_bytes as usize..]) }
    }

    /// Adds a version. One of the same time takes the place of the old one: a
    /// transaction wrote the cell twice. One below the newest was prepared
    /// before its cell moved and decided after it. Returns by how many bytes
    /// its memory grew.
    pub(crate) fn write(&mut self, at: Timestamp, value: Option<&[u8]>) -> isize {
        let (new, deleted) = (data(self.key(), value), value.is_none());
        let mut growth = new.len() as isize;
        if at < self.at {
            let position = self.older.partition_point(|version| version.at < at);
            self.reserve();
            self.older.insert(position, Older { at, data: new, deleted });
            return growth + size_of::<Older>() as isize;
        }
        let old = std::mem::replace(&mut self.data, new);
        if at == self.at {
            growth -= old.len() as isize;
        } else {
            growth += size_of::<Older>() as isize;
            self.reserve();
            self.older.push(Older { at: self.at, data: old, deleted: self.deleted });
        }
        self.at = at;
        self.deleted = deleted;
        growth
    }

    /// Takes away what was written after a time, at which it ends. Returns by
    /// how many bytes its memory grew.
    pub(crate) fn end(&mut self, at: Timestamp) -> isize {
        let before = self.memory() as isize;
        while self.at > at {
            let Some(older) = self.older.pop() else {
                *self = Cell::new(self.key(), at, None);
                break;
            };
            (self.at, self.data, self.deleted) = (older.at, older.data, older.deleted);
        }
        if !self.deleted {
            self.write(at, None);
        }
        self.memory() as isize - before
    }

    /// Room for one more version: most cells that are written again have one
    /// older one and no more.
    fn reserve(&mut self) {
        if self.older.len() == self.older.capacity() {
            self.older.reserve_exact(self.older.len().max(1));
        }
    }

    /// Whether it has versions that some low-water mark lets go of.
    pub(crate) fn has_garbage(&self) -> bool {
        self.deleted || !self.older.is_empty()
    }

    /// Lets go of the versions that no snapshot from `low` on sees. Returns
    /// whether anything is left.
    pub(crate) fn collect(&mut self, low: Timestamp) -> bool {
        if self.at <= low {
            self.older = ThinVec::new();
            return !self.deleted;
        }
        let above = self.older.partition_point(|version| version.at <= low);
        // The last of those at or below the mark is seen at the mark itself.
        let kept = self.older[..above].last().is_some_and(|version| !version.deleted);
        self.older.drain(..above - usize::from(kept));
        true
    }

    /// Bytes of memory, without those that the allocator adds.
    pub(crate) fn memory(&self) -> usize {
        let older = self.older.iter().map(|version| size_of::<Older>() + version.data.len());
        size_of::<Cell>() + self.data.len() + older.sum::<usize>()
    }

    /// Its versions, the newest first: when, and what.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (Timestamp, Option<&[u8]>)> {
        let older = self.older.iter().rev().map(|version| (version.at, self.value_of(version)));
        std::iter::once((self.at, self.newest())).chain(older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the list of all that was written: every snapshot from the
        /// low-water mark on sees the same before and after collection.
        #[test]
        fn snapshots_see_what_was_written(
            writes in prop::collection::vec((1..4u64, prop::option::of(0..3u8)), 1..12),
            low in 0..30u64,
        ) {
            let mut at = 0;
            let mut model: Vec<(u64, Option<u8>)> = Vec::new();
            let mut cell: Option<Cell> = None;
            for (step, value) in writes {
                at += step;
                let bytes = value.map(|value| [value]);
                let bytes = bytes.as_ref().map(|value| &value[..]);
                match &mut cell {
                    None => cell = Some(Cell::new(b"key", Timestamp(at), bytes)),
                    Some(cell) => {
                        let before = cell.memory() as isize;
                        let growth = cell.write(Timestamp(at), bytes);
                        prop_assert_eq!(cell.memory() as isize, before + growth);
                    }
                }
                model.push((at, value));
            }
            let mut cell = cell.unwrap();
            let seen = |snapshot: u64| {
                model.iter().rev().find(|(at, _)| *at <= snapshot).and_then(|(_, value)| value.map(|value| vec![value]))
            };
            for snapshot in 0..at + 2 {
                prop_assert_eq!(cell.seen_at(Timestamp(snapshot)).map(<[u8]>::to_vec), seen(snapshot));
            }
            let left = cell.collect(Timestamp(low));
            for snapshot in low..at + 2 {
                prop_assert_eq!(cell.seen_at(Timestamp(snapshot)).map(<[u8]>::to_vec), seen(snapshot));
            }
            // No more than one version at or below the mark, and that no deletion.
            let below: Vec<_> = cell.versions().filter(|(at, _)| at.0 <= low).collect();
            prop_assert!(below.len() <= 1);
            prop_assert!(!left || below.iter().all(|(_, value)| value.is_some()));
            prop_assert_eq!(left, cell.versions().any(|(at, value)| at.0 > low || value.is_some()));
        }

        #[test]
        fn prefixes_are_in_the_order_of_keys(a: Vec<u8>, b: Vec<u8>) {
            let cell = Cell::new(&a, Timestamp(1), Some(b"v"));
            prop_assert_eq!(cell.compare(prefix_of(&b), &b), a.cmp(&b));
        }
    }

    #[test]
    fn a_version_may_come_late() {
        let mut cell = Cell::new(b"key", Timestamp(1), Some(b"a"));
        cell.write(Timestamp(8), None);
        cell.write(Timestamp(5), Some(b"b"));
        let seen = [0, 1, 5, 8].map(|at| cell.seen_at(Timestamp(at)));
        assert_eq!(seen, [None, Some(&b"a"[..]), Some(b"b"), None]);
    }

    #[test]
    fn what_ends_keeps_what_was_before() {
        let mut cell = Cell::new(b"key", Timestamp(1), Some(b"a"));
        cell.write(Timestamp(5), Some(b"b"));
        cell.write(Timestamp(8), Some(b"c"));
        let before = cell.memory() as isize;
        assert_eq!(cell.end(Timestamp(6)), cell.memory() as isize - before);
        let versions: Vec<_> = cell.versions().collect();
        let all = [(Timestamp(6), None), (Timestamp(5), Some(&b"b"[..])), (Timestamp(1), Some(b"a"))];
        assert_eq!(versions, all);
        assert_eq!(cell.end(Timestamp(7)), 0, "it has ended");
        let mut cell = Cell::new(b"key", Timestamp(8), Some(b"a"));
        cell.end(Timestamp(6));
        assert_eq!(cell.versions().collect::<Vec<_>>(), [(Timestamp(6), None)]);
    }

    #[test]
    fn two_writes_of_one_transaction_are_one_version() {
        let mut cell = Cell::new(b"key", Timestamp(1), Some(b"a"));
        cell.write(Timestamp(2), Some(b"b"));
        cell.write(Timestamp(2), None);
        let versions: Vec<_> = cell.versions().collect();
        assert_eq!(versions, [(Timestamp(2), None), (Timestamp(1), Some(&b"a"[..]))]);
        assert_eq!(cell.memory(), 48 + 3 + 32 + 4);
    }
}
