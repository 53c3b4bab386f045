//! Numbers of AUTOINCREMENT. They come from a counter outside of the transaction, which the table's
//! row in `sqlite_sequence` names, so that concurrent inserts do not conflict on that row.
//!
//! The row has a third field, which SQLite ignores: the random name of the counter. A row that the
//! application wrote has none, nor does a missing row: the next insert draws a new name, and that
//! counter begins at the row's value. So setting or deleting the row restarts the numbers, as in
//! SQLite. Reads of the row show the counter's position.

use crate::{code::ResultCode, key::Field, record::RecordFields};
use self_cell::self_cell;
use std::{fmt, ops::Range};
use yesquel::{Database, Map, PendingNumbers, Store};

/// Row of `sqlite_sequence`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SequenceEntry<'a> {
    pub(crate) name: Field<'a>,
    pub(crate) last: i64,
    pub(crate) counter: Option<i64>,
}

impl<'a> SequenceEntry<'a> {
    pub(crate) fn of(record: &'a [u8]) -> Option<SequenceEntry<'a>> {
        let mut fields = RecordFields::of(record)?;
        let (name, last) = (fields.next()?.ok()?, fields.next()?.ok()?);
        let Field::Integer(last) = last else { return None };
        let counter = match fields.next() {
            Some(Ok(Field::Integer(counter))) => Some(counter),
            _ => None,
        };
        Some(SequenceEntry { name, last, counter })
    }

    /// Encodes the row as a record.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let name = match self.name {
            Field::Text(name) => name,
            _ => return None,
        };
        // The header has one byte for each field; a row with a longer name is left unchanged.
        let kind = u8::try_from(name.len() * 2 + 13).ok().filter(|kind| *kind < 0x80);
        let (first, second) = match kind {
            Some(kind) => (kind, None),
            None => {
                let kind = u16::try_from(name.len() * 2 + 13).ok().filter(|kind| *kind < 1 << 14)?;
                ((kind >> 7) as u8 | 0x80, Some((kind & 0x7f) as u8))
            }
        };
        let integers = 1 + usize::from(self.counter.is_some());
        let header = 1 + 1 + usize::from(second.is_some()) + integers;
        let mut record = vec![header as u8, first];
        record.extend(second);
        record.extend(std::iter::repeat_n(6, integers));
        record.extend_from_slice(name);
        record.extend_from_slice(&self.last.to_be_bytes());
        record.extend(self.counter.into_iter().flat_map(i64::to_be_bytes));
        Some(record)
    }

    pub(crate) fn text(&self) -> &'a [u8] {
        match self.name {
            Field::Text(name) => name,
            _ => &[],
        }
    }
}

/// State of a table's row in `sqlite_sequence` when a new row needs a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SequenceRow<'a> {
    /// Number of the row, if it exists.
    pub(crate) row: Option<i64>,
    /// The number must be above this one.
    pub(crate) above: i64,
    /// Name of the table, by which a counter is found that no row names yet.
    pub(crate) name: Option<&'a [u8]>,
}

/// Tree of `sqlite_sequence`, and a counter there: each database of a connection has its own.
pub(crate) type Counter = (u64, i64);

/// Draws the name of a counter.
pub(crate) fn fresh_counter(store: &Store) -> i64 {
    (store.draw_number() >> 2) as i64 | 1 << 61
}

/// Numbers that a transaction has taken from a counter.
#[derive(Debug)]
pub(crate) struct TakenNumbers {
    pub(crate) counter: Counter,
    /// Tree of the table.
    pub(crate) tree: u64,
    /// All numbers taken without a gap.
    pub(crate) all: Range<i64>,
    pub(crate) next: i64,
    /// How many it has requested.
    pub(crate) asked: u64,
}

/// Largest explicit number that the transaction has written to a table. It is reported to the
/// counter at the commit only.
#[derive(Debug)]
pub(crate) struct ExplicitNumber {
    pub(crate) sequences: Map,
    pub(crate) counter: i64,
    pub(crate) last: i64,
    /// Number of savepoints at that time.
    pub(crate) depth: usize,
}

type NumbersReply<'a> = Option<PendingNumbers<'a>>;

self_cell!(
    pub(crate) struct NumbersRequest {
        owner: Database,
        #[not_covariant]
        dependent: NumbersReply,
    }
);

/// Number requested before it was known to be needed, together with the row that names the counter:
/// both take one round trip.
pub(crate) struct ExpectedNumber {
    pub(crate) counter: Counter,
    /// Tree of the table.
    pub(crate) tree: u64,
    pub(crate) asking: NumbersRequest,
}

impl fmt::Debug for ExpectedNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpectedNumber").field("counter", &self.counter).finish_non_exhaustive()
    }
}

impl ExpectedNumber {
    pub(crate) fn wait(mut self) -> Result<Range<i64>, ResultCode> {
        let asked = self.asking.with_dependent_mut(|_, asked| asked.take().map(PendingNumbers::wait));
        signed(&asked.ok_or(ResultCode::INTERNAL)?.map_err(|error| ResultCode::from(&error))?)
    }
}

pub(crate) fn signed(given: &Range<u64>) -> Result<Range<i64>, ResultCode> {
    match (i64::try_from(given.start), i64::try_from(given.end)) {
        (Ok(start), Ok(end)) => Ok(start..end),
        _ => Err(ResultCode::FULL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_entries_round_trip() {
        let long = "n".repeat(3_000);
        for name in ["", "t", "a name of some length", &long] {
            for (last, counter) in [(0, None), (7, Some(1 << 61)), (i64::MAX, Some(-1))] {
                let row = SequenceEntry { name: Field::Text(name.as_bytes()), last, counter };
                let record = row.encode().unwrap();
                assert_eq!(SequenceEntry::of(&record), Some(row));
            }
        }
        assert_eq!(SequenceEntry::of(b""), None);
    }
}
