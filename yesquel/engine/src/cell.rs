//! A cell as one looks at it: a key, its newest value, and the older ones that
//! snapshots may still see. Where they stand in memory is the affair of
//! [`Cells`](crate::cells::Cells).

use yesquel_model::{Timestamp, limits};

/// What a version is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
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
    pub(crate) fn of(value: Option<Value<'_>>) -> Form {
        match value {
            None => Form::Deleted,
            Some(Value { is_large: false, .. }) => Form::Whole,
            Some(Value { is_large: true, .. }) => Form::Large,
        }
    }

    pub(crate) fn value(self, bytes: &[u8]) -> Option<Value<'_>> {
        match self {
            Form::Deleted => None,
            Form::Whole => Some(Value { bytes, is_large: false }),
            Form::Large => Some(Value { bytes, is_large: true }),
        }
    }
}

/// Where a version stands, and what it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// When it was committed.
    pub(crate) at: Timestamp,
    /// Where in the bytes of its node: 40 bits, for a terabyte.
    start: u32,
    start_high: u8,
    /// The length of the key; above it the form.
    what: u8,
    value_bytes: u16,
}

const _: () = assert!(limits::CELL_VALUE_BYTES_MAX <= u16::MAX as usize);

impl Row {
    /// One whose value stands nowhere yet. Of a key there are only as many
    /// lengths as four bits tell.
    pub(crate) fn new(at: Timestamp, key_bytes: u8, value: Option<Value<'_>>) -> Row {
        let what = key_bytes | (Form::of(value) as u8) << 4;
        Row {
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

    pub(crate) fn form(self) -> Form {
        match self.what >> 4 {
            0 => Form::Deleted,
            1 => Form::Whole,
            _ => Form::Large,
        }
    }

    /// The value, of which some bytes begin.
    fn value(self, bytes: &[u8]) -> Option<Value<'_>> {
        self.form().value(&bytes[..self.value_bytes()])
    }
}

/// A cell, where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) key: &'a [u8],
    /// When the newest version was committed.
    pub(crate) at: Timestamp,
    pub(crate) newest: Option<Value<'a>>,
    /// The oldest first. A cell that everybody writes has many thousands while
    /// somebody holds a snapshot.
    pub(crate) older: &'a [Row],
    /// In which those stand.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Cell<'a> {
    /// The value that a snapshot sees.
    pub(crate) fn seen_at(self, snapshot: Timestamp) -> Option<Value<'a>> {
        if self.at <= snapshot {
            return self.newest;
        }
        let above = self.older.partition_point(|version| version.at <= snapshot);
        self.older[..above].last().and_then(|version| self.value_of(*version))
    }

    /// The value of an older version.
    pub(crate) fn value_of(self, version: Row) -> Option<Value<'a>> {
        version.value(&self.bytes[version.start()..])
    }

    /// Its versions, the newest first: when, and what.
    pub(crate) fn versions(self) -> impl Iterator<Item = (Timestamp, Option<Value<'a>>)> {
        let older = self.older.iter().rev().map(move |version| (version.at, self.value_of(*version)));
        std::iter::once((self.at, self.newest)).chain(older)
    }
}
