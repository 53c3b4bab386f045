//! A cell: a key, its newest value, and the older ones that snapshots may
//! still see.

use std::cmp::Ordering;
use thin_vec::ThinVec;
use yesquel_model::Timestamp;

/// What a version is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// That there is nothing.
    Deleted,
    /// A value.
    Whole,
    /// Where a long value is.
    Large,
}

/// A value as it stands in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value<'a> {
    pub(crate) bytes: &'a [u8],
    /// They say where a long value is.
    pub(crate) is_large: bool,
}

impl<'a> Value<'a> {
    pub(crate) fn whole(bytes: &'a [u8]) -> Value<'a> {
        Value { bytes, is_large: false }
    }
}

impl Form {
    fn of(value: Option<Value<'_>>) -> Form {
        match value {
            None => Form::Deleted,
            Some(Value { is_large: false, .. }) => Form::Whole,
            Some(Value { is_large: true, .. }) => Form::Large,
        }
    }

    fn value(self, bytes: &[u8]) -> Option<Value<'_>> {
        match self {
            Form::Deleted => None,
            Form::Whole => Some(Value { bytes, is_large: false }),
            Form::Large => Some(Value { bytes, is_large: true }),
        }
    }
}

/// A version that is not the newest.
#[derive(Debug, Clone)]
struct Older {
    at: Timestamp,
    /// Key and value, as in [`Cell`].
    data: Box<[u8]>,
    form: Form,
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
    /// What the newest version is.
    form: Form,
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

fn data(key: &[u8], value: Option<Value<'_>>) -> Box<[u8]> {
    let value = value.map_or(&[][..], |value| value.bytes);
    let mut data = Vec::with_capacity(key.len() + value.len());
    data.extend_from_slice(key);
    data.extend_from_slice(value);
    data.into()
}

impl Cell {
    pub(crate) fn new(key: &[u8], at: Timestamp, value: Option<Value<'_>>) -> Cell {
        Cell {
            prefix: prefix_of(key),
            at,
            data: data(key, value),
            key_bytes: key.len() as u32,
            form: Form::of(value),
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
    pub(crate) fn newest(&self) -> Option<Value<'_>> {
        self.form.value(&self.data[self.key_bytes as usize..])
    }

    /// The value that a snapshot sees.
    pub(crate) fn seen_at(&self, snapshot: Timestamp) -> Option<Value<'_>> {
        if self.at <= snapshot {
            return self.newest();
        }
        let above = self.older.partition_point(|version| version.at <= snapshot);
        self.older[..above].last().and_then(|version| self.value_of(version))
    }

    fn value_of<'a>(&self, version: &'a Older) -> Option<Value<'a>> {
        version.form.value(&version.data[self.key_bytes as usize..])
    }

    /// Adds a version. One of the same time takes the place of the old one: a
    /// transaction wrote the cell twice. One below the newest was prepared
    /// before its cell moved and decided after it. Returns by how many bytes
    /// its memory grew.
    pub(crate) fn write(&mut self, at: Timestamp, value: Option<Value<'_>>) -> isize {
        let (new, form) = (data(self.key(), value), Form::of(value));
        let mut growth = new.len() as isize;
        if at < self.at {
            let position = self.older.partition_point(|version| version.at < at);
            self.reserve();
            self.older.insert(position, Older { at, data: new, form });
            return growth + size_of::<Older>() as isize;
        }
        let old = std::mem::replace(&mut self.data, new);
        if at == self.at {
            growth -= old.len() as isize;
        } else {
            growth += size_of::<Older>() as isize;
            self.reserve();
            self.older.push(Older { at: self.at, data: old, form: self.form });
        }
        self.at = at;
        self.form = form;
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
            (self.at, self.data, self.form) = (older.at, older.data, older.form);
        }
        if self.form != Form::Deleted {
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
        self.form == Form::Deleted || !self.older.is_empty()
    }

    /// Lets go of the versions that no snapshot from `low` on sees, and tells
    /// of those that were long values. Returns whether anything is left.
    pub(crate) fn collect(&mut self, low: Timestamp, mut gone: impl FnMut(&[u8])) -> bool {
        let key_bytes = self.key_bytes as usize;
        let mut tell = |version: &Older| {
            if version.form == Form::Large {
                gone(&version.data[key_bytes..]);
            }
        };
        if self.at <= low {
            self.older.iter().for_each(&mut tell);
            self.older = ThinVec::new();
            return self.form != Form::Deleted;
        }
        let above = self.older.partition_point(|version| version.at <= low);
        // The last of those at or below the mark is seen at the mark itself.
        let kept = self.older[..above].last().is_some_and(|version| version.form != Form::Deleted);
        self.older.drain(..above - usize::from(kept)).for_each(|version| tell(&version));
        true
    }

    /// Bytes of memory, without those that the allocator adds.
    pub(crate) fn memory(&self) -> usize {
        let older = self.older.iter().map(|version| size_of::<Older>() + version.data.len());
        size_of::<Cell>() + self.data.len() + older.sum::<usize>()
    }

    /// Its versions, the newest first: when, and what.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (Timestamp, Option<Value<'_>>)> {
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
                let bytes = bytes.as_ref().map(|value| Value::whole(&value[..]));
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
                prop_assert_eq!(cell.seen_at(Timestamp(snapshot)).map(|value| value.bytes.to_vec()), seen(snapshot));
            }
            let left = cell.collect(Timestamp(low), |_| {});
            for snapshot in low..at + 2 {
                prop_assert_eq!(cell.seen_at(Timestamp(snapshot)).map(|value| value.bytes.to_vec()), seen(snapshot));
            }
            // No more than one version at or below the mark, and that no deletion.
            let below: Vec<_> = cell.versions().filter(|(at, _)| at.0 <= low).collect();
            prop_assert!(below.len() <= 1);
            prop_assert!(!left || below.iter().all(|(_, value)| value.is_some()));
            prop_assert_eq!(left, cell.versions().any(|(at, value)| at.0 > low || value.is_some()));
        }

        #[test]
        fn prefixes_are_in_the_order_of_keys(a: Vec<u8>, b: Vec<u8>) {
            let cell = Cell::new(&a, Timestamp(1), Some(Value::whole(b"v")));
            prop_assert_eq!(cell.compare(prefix_of(&b), &b), a.cmp(&b));
        }
    }

    fn whole(bytes: &[u8]) -> Option<Value<'_>> {
        Some(Value::whole(bytes))
    }

    #[test]
    fn a_version_may_come_late() {
        let mut cell = Cell::new(b"key", Timestamp(1), whole(b"a"));
        cell.write(Timestamp(8), None);
        cell.write(Timestamp(5), whole(b"b"));
        let seen = [0, 1, 5, 8].map(|at| cell.seen_at(Timestamp(at)));
        assert_eq!(seen, [None, whole(b"a"), whole(b"b"), None]);
    }

    #[test]
    fn what_ends_keeps_what_was_before() {
        let mut cell = Cell::new(b"key", Timestamp(1), whole(b"a"));
        cell.write(Timestamp(5), whole(b"b"));
        cell.write(Timestamp(8), whole(b"c"));
        let before = cell.memory() as isize;
        assert_eq!(cell.end(Timestamp(6)), cell.memory() as isize - before);
        let versions: Vec<_> = cell.versions().collect();
        let all = [(Timestamp(6), None), (Timestamp(5), whole(b"b")), (Timestamp(1), whole(b"a"))];
        assert_eq!(versions, all);
        assert_eq!(cell.end(Timestamp(7)), 0, "it has ended");
        let mut cell = Cell::new(b"key", Timestamp(8), whole(b"a"));
        cell.end(Timestamp(6));
        assert_eq!(cell.versions().collect::<Vec<_>>(), [(Timestamp(6), None)]);
    }

    #[test]
    fn two_writes_of_one_transaction_are_one_version() {
        let mut cell = Cell::new(b"key", Timestamp(1), whole(b"a"));
        cell.write(Timestamp(2), whole(b"b"));
        cell.write(Timestamp(2), None);
        let versions: Vec<_> = cell.versions().collect();
        assert_eq!(versions, [(Timestamp(2), None), (Timestamp(1), whole(b"a"))]);
        assert_eq!(cell.memory(), 48 + 3 + 32 + 4);
    }

    #[test]
    fn long_values_that_nobody_sees_are_told() {
        let large = |bytes| Some(Value { bytes, is_large: true });
        let mut cell = Cell::new(b"key", Timestamp(1), large(b"a"));
        cell.write(Timestamp(2), large(b"b"));
        cell.write(Timestamp(3), whole(b"c"));
        let collect = |cell: &mut Cell, low| {
            let mut gone = Vec::new();
            cell.collect(Timestamp(low), |bytes| gone.push(bytes.to_vec()));
            gone
        };
        assert_eq!(collect(&mut cell, 1), Vec::<Vec<u8>>::new());
        assert_eq!(collect(&mut cell, 2), [b"a"]);
        assert_eq!(collect(&mut cell, 3), [b"b"]);
        // The newest goes when it is deleted, like any other.
        cell.write(Timestamp(4), large(b"d"));
        cell.write(Timestamp(5), None);
        assert_eq!(collect(&mut cell, 5), [b"d"]);
    }
}
