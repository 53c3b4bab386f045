//! Indexes with collations of the application. Such text has no encoding in byte order, so that the
//! order of the tree is meaningless: all entries are read and sorted here.

use crate::{
    code::ResultCode,
    compare::{Comparer, Sought},
    record::record_of,
    seek::{Seek, SeekPosition},
    session::SqlSession,
};
use std::{cell::RefCell, cmp::Ordering, rc::Rc};
use yesquel::{Entry, Map};

/// Sorted entries of a tree, as of one version of a transaction's view.
#[derive(Debug)]
pub(crate) struct Sorted {
    comparer: Comparer,
    /// Number of fields in the key.
    fields: usize,
    entries: Rc<Vec<Entry>>,
    /// Version of the view.
    version: Option<(u64, u64)>,
    /// Index of the current entry.
    at: usize,
}

impl Sorted {
    pub(crate) fn new(comparer: Comparer, fields: usize) -> Sorted {
        Sorted { comparer, fields, entries: Rc::default(), version: None, at: 0 }
    }

    fn order(&self, left: &Entry, right: &Entry) -> Result<Ordering, ResultCode> {
        let by_fields = self.comparer.compare(record_of(&left.1), record_of(&right.1), self.fields)?;
        Ok(by_fields.then_with(|| left.0.cmp(&right.0)))
    }

    /// Reads and sorts the entries, unless the view is unchanged.
    pub(crate) fn load(&mut self, session: &RefCell<SqlSession>, map: Map) -> Result<(), ResultCode> {
        let version = session.borrow_mut().version();
        if self.version == Some(version) {
            return Ok(());
        }
        let mut entries = Vec::new();
        {
            let mut session = session.borrow_mut();
            let mut cursor = session.cursor(map)?;
            let mut next = session.with(|transaction| cursor.first(transaction))?;
            while let Some(entry) = next {
                entries.push(entry);
                next = session.with(|transaction| cursor.next(transaction))?;
            }
        }
        // This calls the application: nothing of the session may be borrowed.
        let mut failed = None;
        entries.sort_by(|left, right| {
            self.order(left, right).unwrap_or_else(|code| {
                failed = Some(code);
                Ordering::Equal
            })
        });
        self.entries = Rc::new(entries);
        self.version = Some(session.borrow_mut().version());
        failed.map_or(Ok(()), Err)
    }

    /// Returns the current entry.
    pub(crate) fn entry(&self) -> Option<&Entry> {
        self.entries.get(self.at)
    }

    pub(crate) fn first(&mut self) {
        self.at = 0;
    }

    pub(crate) fn last(&mut self) {
        self.at = self.entries.len().wrapping_sub(1);
    }

    pub(crate) fn next(&mut self) {
        // The end stays the end.
        if self.at < self.entries.len() {
            self.at += 1;
        }
    }

    pub(crate) fn previous(&mut self) {
        self.at = if self.at < self.entries.len() { self.at.wrapping_sub(1) } else { usize::MAX };
    }

    fn partition(
        &self,
        mut is_before: impl FnMut(&Entry) -> Result<bool, ResultCode>,
    ) -> Result<usize, ResultCode> {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(&self.entries[middle])? { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Moves to an entry, or to where it would be.
    pub(crate) fn restore(&mut self, entry: &Entry) -> Result<Option<i32>, ResultCode> {
        self.at = self.partition(|own| Ok(self.order(own, entry)? == Ordering::Less))?;
        if let Some(found) = self.entry() {
            return Ok(Some(i32::from(found.0 != entry.0)));
        }
        self.last();
        Ok(self.entry().map(|_| -1))
    }

    /// Moves to the sought fields.
    pub(crate) fn seek(&mut self, sought: Sought, seek: Seek) -> Result<Option<SeekPosition>, ResultCode> {
        let fields = self.fields;
        let compare = |entry: &Entry| sought.compare(record_of(&entry.1), fields);
        let low = self.partition(|own| Ok(compare(own) == Ordering::Less))?;
        let beyond = self.partition(|own| Ok(compare(own) != Ordering::Greater))?;
        self.at = match seek {
            Seek::Exact | Seek::GreaterOrEqual => low,
            Seek::Greater => beyond,
            Seek::Less => low.wrapping_sub(1),
            Seek::LessOrEqual => beyond.wrapping_sub(1),
        };
        if self.entry().is_none() && seek == Seek::Exact {
            self.last();
        }
        let Some(entry) = self.entry() else { return Ok(None) };
        let order = compare(entry);
        let place = match (seek, order) {
            (Seek::Exact, Ordering::Equal) => 0,
            (_, Ordering::Less) | (Seek::LessOrEqual, _) => -1,
            _ => 1,
        };
        Ok(Some(SeekPosition { place, is_equal: order == Ordering::Equal }))
    }

    /// Returns the entries whose keys are equal by the collations and differ in bytes.
    pub(crate) fn same(&self, entry: &Entry) -> Result<Vec<Box<[u8]>>, ResultCode> {
        let mut same = Vec::new();
        for own in self.entries.iter() {
            if own.0 != entry.0
                && self.comparer.compare(record_of(&own.1), record_of(&entry.1), self.fields)?
                    == Ordering::Equal
            {
                same.push(own.0.clone());
            }
        }
        Ok(same)
    }
}
