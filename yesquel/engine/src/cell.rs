//! A cell: a key, its newest value, and the older ones that snapshots may
//! still see.

use thin_vec::ThinVec;
use yesquel_model::{Timestamp, prefix_of};

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
    /// As in [`Cell`].
    data: Box<[u8]>,
    form: Form,
}

/// A cell.
///
/// A short key stands in the cell itself; a longer one and the newest value are
/// one allocation. With 8 bytes of key and 100 of value a cell takes 48 bytes
/// here and 100 there, and 8 for the prefix beside it.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    /// The key's first eight bytes.
    head: [u8; HEAD],
    /// When the newest version was committed.
    at: Timestamp,
    /// The key, if the head is not all of it, and behind it the value.
    data: Box<[u8]>,
    key_bytes: u32,
    /// What the newest version is.
    form: Form,
    /// The versions before, the oldest first. A cell that everybody writes has
    /// many thousands while somebody holds a snapshot.
    older: ThinVec<Older>,
}

/// What a cell takes in its node, the prefix of its key among it.
const PLACE_BYTES: usize = size_of::<Cell>() + size_of::<u64>();

/// Bytes of a key that stand in the cell itself.
const HEAD: usize = 8;

/// Bytes of a key that stand before each of its values.
fn tail_bytes(key_bytes: usize) -> usize {
    if key_bytes > HEAD { key_bytes } else { 0 }
}

fn data(key: &[u8], value: Option<Value<'_>>) -> Box<[u8]> {
    let value = value.map_or(&[][..], |value| value.bytes);
    let key = if key.len() > HEAD { key } else { &[] };
    let mut data = Vec::with_capacity(key.len() + value.len());
    data.extend_from_slice(key);
    data.extend_from_slice(value);
    data.into()
}

impl Cell {
    pub(crate) fn new(key: &[u8], at: Timestamp, value: Option<Value<'_>>) -> Cell {
        Cell {
            head: prefix_of(key).to_be_bytes(),
            at,
            data: data(key, value),
            key_bytes: key.len() as u32,
            form: Form::of(value),
            older: ThinVec::new(),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        let length = self.key_bytes as usize;
        if length > HEAD { &self.data[..length] } else { &self.head[..length] }
    }

    /// The prefix of its key.
    pub(crate) fn prefix(&self) -> u64 {
        u64::from_be_bytes(self.head)
    }

    fn tail_bytes(&self) -> usize {
        tail_bytes(self.key_bytes as usize)
    }

    /// When its newest version was committed.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// The newest value, if it is not deleted.
    pub(crate) fn newest(&self) -> Option<Value<'_>> {
        self.form.value(&self.data[self.tail_bytes()..])
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
        version.form.value(&version.data[self.tail_bytes()..])
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
        let tail_bytes = self.tail_bytes();
        let mut tell = |version: &Older| {
            if version.form == Form::Large {
                gone(&version.data[tail_bytes..]);
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
        PLACE_BYTES + self.data.len() + older.sum::<usize>()
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

        /// Keys around the length that stands in the cell itself.
        #[test]
        fn a_cell_has_its_key_whatever_becomes_of_it(key in prop::collection::vec(any::<u8>(), 0..20)) {
            let mut cell = Cell::new(&key, Timestamp(1), whole(b"a"));
            prop_assert_eq!((cell.key(), cell.prefix()), (&key[..], prefix_of(&key)));
            cell.write(Timestamp(2), whole(b"bc"));
            cell.write(Timestamp(3), None);
            prop_assert_eq!(cell.key(), &key[..]);
            let seen = [1, 2, 3].map(|at| cell.seen_at(Timestamp(at)));
            prop_assert_eq!(seen, [whole(b"a"), whole(b"bc"), None]);
            cell.end(Timestamp(1));
            prop_assert_eq!((cell.key(), cell.newest()), (&key[..], None));
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
        assert_eq!(cell.memory(), 48 + 8 + 32 + 1);
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
