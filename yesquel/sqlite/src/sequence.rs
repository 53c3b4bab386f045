//! Numbers of AUTOINCREMENT: from a counter that the table's row in
//! `sqlite_sequence` names, outside of the transaction, so that those who insert
//! do not meet at that row.
//!
//! The row has a third field, which SQLite does not look at: the name of the
//! counter, a number that was drawn by chance. A row that the application has
//! written has none, and neither has one that is not there: the next insert
//! draws a new name, and the counter begins where the row says. So whoever sets
//! the row, or deletes it, begins anew, as ever. Whoever reads the row is shown
//! how far the counter has come.

use crate::{code::Code, key::Field, record::Fields};
use self_cell::self_cell;
use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    ops::Range,
};
use yesquel::{Database, Map, Numbers};

/// A row of `sqlite_sequence`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row<'a> {
    pub(crate) name: Field<'a>,
    pub(crate) last: i64,
    pub(crate) counter: Option<i64>,
}

impl<'a> Row<'a> {
    pub(crate) fn of(record: &'a [u8]) -> Option<Row<'a>> {
        let mut fields = Fields::of(record)?;
        let (name, last) = (fields.next()?.ok()?, fields.next()?.ok()?);
        let Field::Integer(last) = last else { return None };
        let counter = match fields.next() {
            Some(Ok(Field::Integer(counter))) => Some(counter),
            _ => None,
        };
        Some(Row { name, last, counter })
    }

    /// Its record.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let name = match self.name {
            Field::Text(name) => name,
            _ => return None,
        };
        // A header of one byte a number: names are not that long, or the row
        // stays as it is.
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

/// What is known of a table's row in `sqlite_sequence` when a new row needs a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SequenceRow<'a> {
    /// The row, if there is one.
    pub(crate) row: Option<i64>,
    /// The number must be above this one.
    pub(crate) above: i64,
    /// The table's name, by which a counter is found that no row names yet.
    pub(crate) name: Option<&'a [u8]>,
}

/// The tree of `sqlite_sequence`, and a counter there: databases of a connection
/// have each their own.
pub(crate) type Counter = (u64, i64);

/// The name of a counter that nobody has.
pub(crate) fn fresh_counter() -> i64 {
    // Keys of the standard library's hashes are drawn by chance.
    (RandomState::new().hash_one(0) >> 2) as i64 | 1 << 61
}

/// Numbers that a transaction has got of a counter.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) counter: Counter,
    /// The tree of the table.
    pub(crate) tree: u64,
    /// From the first that it has got without a gap.
    pub(crate) all: Range<i64>,
    pub(crate) next: i64,
    /// How many it has asked for.
    pub(crate) asked: u64,
}

/// The greatest number of a table that the application has chosen, and the
/// transaction written. If it is rolled back nobody hears of it.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) sequences: Map,
    pub(crate) counter: i64,
    pub(crate) last: i64,
    /// How many savepoints there were.
    pub(crate) depth: usize,
}

type Asked<'a> = Option<Numbers<'a>>;

self_cell!(
    pub(crate) struct Asking {
        owner: Database,
        #[not_covariant]
        dependent: Asked,
    }
);

/// A number that was asked for before it was known to be wanted, beside the row
/// that says by which counter: both take one round trip.
pub(crate) struct Expected {
    pub(crate) counter: Counter,
    /// The tree of the table.
    pub(crate) tree: u64,
    pub(crate) asking: Asking,
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expected").field("counter", &self.counter).finish_non_exhaustive()
    }
}

impl Expected {
    pub(crate) fn wait(mut self) -> Result<Range<i64>, Code> {
        let asked = self.asking.with_dependent_mut(|_, asked| asked.take().map(Numbers::wait));
        signed(&asked.ok_or(Code::INTERNAL)?.map_err(|error| Code::from(&error))?)
    }
}

pub(crate) fn signed(given: &Range<u64>) -> Result<Range<i64>, Code> {
    match (i64::try_from(given.start), i64::try_from(given.end)) {
        (Ok(start), Ok(end)) => Ok(start..end),
        _ => Err(Code::FULL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back() {
        let long = "n".repeat(3_000);
        for name in ["", "t", "a name of some length", &long] {
            for (last, counter) in [(0, None), (7, Some(1 << 61)), (i64::MAX, Some(-1))] {
                let row = Row { name: Field::Text(name.as_bytes()), last, counter };
                let record = row.encode().unwrap();
                assert_eq!(Row::of(&record), Some(row));
            }
        }
        assert_eq!(Row::of(b""), None);
    }
}
