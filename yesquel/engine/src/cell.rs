//! Cells as views: a key, its newest value, and the older ones that snapshots may still see.
//! [`NodeCells`](crate::cells::NodeCells) lays them out in memory.

use crate::snapshots::Readable;
use yesquel_model::{Timestamp, limits};

/// The form of a version's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueForm {
    /// The cell was deleted.
    Deleted,
    /// A value.
    Whole,
    /// The location of a long value.
    Large,
}

/// A value in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VersionValue<'a> {
    pub(crate) bytes: &'a [u8],
    /// The bytes are the location of a long value.
    pub(crate) is_large: bool,
}

impl<'a> VersionValue<'a> {
    pub(crate) fn whole(bytes: &'a [u8]) -> VersionValue<'a> {
        VersionValue { bytes, is_large: false }
    }
}

impl ValueForm {
    pub(crate) fn of(value: Option<VersionValue<'_>>) -> ValueForm {
        match value {
            None => ValueForm::Deleted,
            Some(VersionValue { is_large: false, .. }) => ValueForm::Whole,
            Some(VersionValue { is_large: true, .. }) => ValueForm::Large,
        }
    }

    pub(crate) fn value(self, bytes: &[u8]) -> Option<VersionValue<'_>> {
        match self {
            ValueForm::Deleted => None,
            ValueForm::Whole => Some(VersionValue { bytes, is_large: false }),
            ValueForm::Large => Some(VersionValue { bytes, is_large: true }),
        }
    }
}

/// A version: where its value is, and its form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VersionRef {
    /// Commit time.
    pub(crate) at: Timestamp,
    /// Offset in the bytes of its node: 40 bits, for a terabyte.
    start: u32,
    start_high: u8,
    /// Length of the key, and above it the form.
    what: u8,
    value_bytes: u16,
}

const _: () = assert!(limits::CELL_VALUE_BYTES_MAX <= u16::MAX as usize);

impl VersionRef {
    /// A version whose value has no place yet. Key lengths fit into four bits.
    pub(crate) fn new(at: Timestamp, key_bytes: u8, value: Option<VersionValue<'_>>) -> VersionRef {
        let what = key_bytes | (ValueForm::of(value) as u8) << 4;
        VersionRef {
            at,
            start: 0,
            start_high: 0,
            what,
            value_bytes: value.map_or(0, |value| value.bytes.len() as u16),
        }
    }

    pub(crate) fn start(self) -> usize {
        usize::from(self.start_high) << 32 | self.start as usize
    }

    pub(crate) fn starts_at(&mut self, start: usize) {
        (self.start, self.start_high) = (start as u32, (start >> 32) as u8);
    }

    pub(crate) fn key_bytes(self) -> u8 {
        self.what & 0xf
    }

    pub(crate) fn value_bytes(self) -> usize {
        usize::from(self.value_bytes)
    }

    pub(crate) fn form(self) -> ValueForm {
        match self.what >> 4 {
            0 => ValueForm::Deleted,
            1 => ValueForm::Whole,
            _ => ValueForm::Large,
        }
    }

    /// The value, at the start of some bytes.
    fn value(self, bytes: &[u8]) -> Option<VersionValue<'_>> {
        self.form().value(&bytes[..self.value_bytes()])
    }
}

/// A view of a cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) key: &'a [u8],
    /// Commit time of the newest version.
    pub(crate) at: Timestamp,
    pub(crate) newest: Option<VersionValue<'a>>,
    /// Older versions, the oldest first. A cell that many write has many thousands while a snapshot
    /// is held.
    pub(crate) older: &'a [VersionRef],
    /// The bytes that hold their values.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Cell<'a> {
    /// Returns the value that a snapshot sees.
    pub(crate) fn seen_at(self, snapshot: Timestamp) -> Option<VersionValue<'a>> {
        if self.at <= snapshot {
            return self.newest;
        }
        let above = self.older.partition_point(|version| version.at <= snapshot);
        self.older[..above].last().and_then(|version| self.value_of(*version))
    }

    /// Returns the value of an older version.
    pub(crate) fn value_of(self, version: VersionRef) -> Option<VersionValue<'a>> {
        version.value(&self.bytes[version.start()..])
    }

    /// The older versions that a readable snapshot sees.
    pub(crate) fn older_seen(self, readable: Readable) -> impl Iterator<Item = VersionRef> + use<'a> {
        let is_seen = move |(at, version): &(usize, &VersionRef)| {
            let until = self.older.get(at + 1).map_or(self.at, |next| next.at);
            readable.sees(version.at, until)
        };
        let seen = self.older.iter().enumerate().filter(is_seen).map(|(_, version)| *version);
        // A deletion with no older version is as if the cell had never existed.
        seen.skip_while(|version| version.form() == ValueForm::Deleted)
    }

    /// Whether a collection leaves the cell. A deletion within the fence is kept as long as a
    /// snapshot does not see it, since that transaction must not write the key.
    pub(crate) fn is_left(self, readable: Readable, is_within: bool) -> bool {
        let ended = if is_within { readable.low } else { readable.next };
        self.newest.is_some() || self.at > ended || self.older_seen(readable).next().is_some()
    }

    /// Iterates over its versions, the newest first: commit time and value.
    pub(crate) fn versions(self) -> impl Iterator<Item = (Timestamp, Option<VersionValue<'a>>)> {
        let older = self.older.iter().rev().map(move |version| (version.at, self.value_of(*version)));
        std::iter::once((self.at, self.newest)).chain(older)
    }
}
