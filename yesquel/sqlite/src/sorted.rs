//! Indexes whose text the application's own collations order. There is no form
//! of such text that bytes order, so that the tree holds the entries in no order
//! that means anything: they are read all, and sorted here.

use crate::{
    code::Code,
    compare::{Comparer, Sought},
    record::record_of,
    seek::{Arrival, Seek},
    session::Session,
};
use std::{cell::RefCell, cmp::Ordering, rc::Rc};
use yesquel::{Entry, Map};

/// The entries of a tree in their order, as a transaction saw them at some
/// moment.
#[derive(Debug)]
pub(crate) struct Sorted {
    comparer: Comparer,
    /// Fields that make the key.
    fields: usize,
    entries: Rc<Vec<Entry>>,
    /// Of which moment they are.
    version: Option<(u64, u64)>,
    /// Where it stands.
    at: usize,
}

impl Sorted {
    pub(crate) fn new(comparer: Comparer, fields: usize) -> Sorted {
        Sorted { comparer, fields, entries: Rc::default(), version: None, at: 0 }
    }

    fn order(&self, left: &Entry, right: &Entry) -> Result<Ordering, Code> {
        let by_fields = self.comparer.compare(record_of(&left.1), record_of(&right.1), self.fields)?;
        Ok(by_fields.then_with(|| left.0.cmp(&right.0)))
    }

    /// Reads and sorts them, if they are of another moment.
    pub(crate) fn load(&mut self, session: &RefCell<Session>, map: Map) -> Result<(), Code> {
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
        // The application is called from here: nothing of the session is held.
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

    /// What it stands on.
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
        // From beyond the end it goes nowhere.
        if self.at < self.entries.len() {
            self.at += 1;
        }
    }

    pub(crate) fn previous(&mut self) {
        self.at = if self.at < self.entries.len() { self.at.wrapping_sub(1) } else { usize::MAX };
    }

    fn partition(&self, mut is_before: impl FnMut(&Entry) -> Result<bool, Code>) -> Result<usize, Code> {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(&self.entries[middle])? { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Goes to where an entry is, or would be.
    pub(crate) fn restore(&mut self, entry: &Entry) -> Result<Option<i32>, Code> {
        self.at = self.partition(|own| Ok(self.order(own, entry)? == Ordering::Less))?;
        if let Some(found) = self.entry() {
            return Ok(Some(i32::from(found.0 != entry.0)));
        }
        self.last();
        Ok(self.entry().map(|_| -1))
    }

    /// Goes to where the fields are that are sought.
    pub(crate) fn seek(&mut self, sought: Sought, seek: Seek) -> Result<Option<Arrival>, Code> {
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
        Ok(Some(Arrival { place, is_equal: order == Ordering::Equal }))
    }

    /// Those that have the same key by the collations, and other bytes.
    pub(crate) fn same(&self, entry: &Entry) -> Result<Vec<Box<[u8]>>, Code> {
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
