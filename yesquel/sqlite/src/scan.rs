//! A cursor over the tree of a table or an index.

use crate::{
    code::Code,
    compare::{Comparer, Sought},
    form::Form,
    key::{Collation, Field, above, of_row, push, row_of},
    record::{entry_of, key_of, record_of},
    seek::{Arrival, Seek},
    sequence::SequenceRow,
    session::{Found, Session},
    side::Side,
    sorted::Sorted,
};
use std::{cell::RefCell, cmp::Ordering, rc::Rc};
use yesquel::{Cursor, Error, Map, Transaction};

/// Entries that are asked for by a seek, of which nobody knows how far it goes
/// on; then, if it does; then whole leaves. Who has sought in the tree before
/// asks for as many as it took then, and one more.
const VERY_FEW: u64 = 4;
const FEW: u64 = 64;
const ALL: u64 = u64::MAX;

/// A cursor.
#[derive(Debug)]
pub(crate) struct Scan {
    session: Rc<RefCell<Session>>,
    map: Map,
    cookies: Map,
    /// `None`: a table, by numbers of rows.
    form: Option<Form>,
    cursor: Cursor,
    /// Entries that are still wanted of those that were asked for.
    left: u64,
    /// It has gone on from a few: whole leaves are of use.
    has_taken_few: bool,
    /// Entries that are asked for by a seek.
    few: u64,
    /// Entries that it has taken since it was sought, and the most of all times.
    taken: (u64, u64),
    /// What it stands on, or stood on.
    key: Box<[u8]>,
    value: Box<[u8]>,
    /// What was sought last, for a guard.
    sought: Vec<u8>,
    /// The number that a new row was given, of which there must be none.
    new_row: Option<i64>,
    /// Its rows are those of sqlite_sequence, to be shown as they are in truth.
    shows_sequences: bool,
    /// Its entries in their order, which the tree does not know.
    sorted: Option<Sorted>,
}

impl Scan {
    pub(crate) fn new(side: &Side, root: u32, form: Option<Form>, comparer: Comparer) -> Result<Scan, Code> {
        let map = side.map(root).ok_or(Code::CORRUPT)?;
        let is_other = |form: &&Form| form.columns.iter().any(|column| column.collation == Collation::Other);
        let sorted = form.as_ref().filter(is_other).map(|form| Sorted::new(comparer, form.columns.len()));
        let mut session = side.session.borrow_mut();
        let (cursor, few) = (session.cursor(map)?, session.taken(map).unwrap_or(VERY_FEW));
        drop(session);
        Ok(Scan {
            session: Rc::clone(&side.session),
            map,
            cookies: side.cookies(),
            form,
            cursor,
            left: ALL,
            has_taken_few: false,
            few,
            taken: (0, 0),
            key: Box::default(),
            value: Box::default(),
            sought: Vec::new(),
            new_row: None,
            shows_sequences: false,
            sorted,
        })
    }

    pub(crate) fn record(&self) -> &[u8] {
        if self.form.is_some() { record_of(&self.value) } else { &self.value }
    }

    /// What the entries refer to is read with them.
    pub(crate) fn follow(&mut self, map: Option<Map>) {
        self.cursor.follow(map);
    }

    /// The number of the row that it stands on.
    pub(crate) fn row(&self) -> i64 {
        row_of(&self.key).unwrap_or_default()
    }

    fn arrive(&mut self, found: Found) -> Result<bool, Code> {
        let Some((key, value)) = found else { return Ok(false) };
        if self.form.is_none() && key.len() != 8 {
            return Err(Code::CORRUPT);
        }
        (self.key, self.value) = (key, value);
        self.show()?;
        Ok(true)
    }

    /// Shows how far the counter has come that a row of sqlite_sequence names.
    fn show(&mut self) -> Result<(), Code> {
        if self.shows_sequences
            && let Some(shown) = self.session.borrow_mut().shown_sequence(self.map, &self.value)?
        {
            self.value = shown.into();
        }
        Ok(())
    }

    /// Moves in the tree; whether it has arrived anywhere.
    fn go(
        &mut self,
        go: impl for<'t> FnOnce(&mut Cursor, &mut Transaction<'t>) -> Result<Found, Error>,
    ) -> Result<bool, Code> {
        let (cursor, mut session) = (&mut self.cursor, self.session.borrow_mut());
        let (found, asked) = session.with(|transaction| {
            let before = transaction.asked();
            let found = go(cursor, transaction)?;
            Ok((found, transaction.asked() - before))
        })?;
        session.habit(self.map).asked(asked);
        drop(session);
        self.arrive(found)
    }

    pub(crate) fn first(&mut self) -> Result<bool, Code> {
        if self.sorted.is_some() {
            return self.move_sorted(Sorted::first);
        }
        self.taken = (1, self.taken.1.max(self.taken.0));
        self.wants(self.few.max(FEW));
        self.go(|cursor, transaction| cursor.first(transaction))
    }

    pub(crate) fn last(&mut self) -> Result<bool, Code> {
        if self.sorted.is_some() {
            return self.move_sorted(Sorted::last);
        }
        self.wants_few();
        self.go(|cursor, transaction| cursor.last(transaction))
    }

    pub(crate) fn next(&mut self) -> Result<bool, Code> {
        if self.sorted.is_some() {
            return self.move_sorted(Sorted::next);
        }
        self.goes_on();
        self.go(|cursor, transaction| cursor.next(transaction))
    }

    pub(crate) fn previous(&mut self) -> Result<bool, Code> {
        if self.sorted.is_some() {
            return self.move_sorted(Sorted::previous);
        }
        self.goes_on();
        self.go(|cursor, transaction| cursor.previous(transaction))
    }

    fn move_sorted(&mut self, go: impl FnOnce(&mut Sorted)) -> Result<bool, Code> {
        let Some(sorted) = &mut self.sorted else { return Err(Code::INTERNAL) };
        sorted.load(&self.session, self.map)?;
        go(sorted);
        let found = sorted.entry().cloned();
        self.arrive(found)
    }

    /// So many entries are wanted from where it goes now.
    fn wants(&mut self, entries: u64) {
        self.left = entries;
        self.cursor.limit(entries);
    }

    /// It goes one further: who has taken all that was wanted wants more.
    fn goes_on(&mut self) {
        self.taken.0 += 1;
        match self.left.checked_sub(1) {
            Some(left) if self.left != ALL => self.left = left,
            Some(_) => {}
            None if self.has_taken_few => self.wants(ALL),
            None => {
                self.has_taken_few = true;
                self.wants(FEW);
            }
        }
    }

    /// A few are wanted from where it goes now.
    fn wants_few(&mut self) {
        self.taken = (1, self.taken.1.max(self.taken.0));
        if self.session.borrow_mut().habit(self.map).seeks() {
            self.wants(ALL);
        } else if !self.has_taken_few {
            self.wants(self.few);
        }
    }

    fn seek_from(&mut self, key: &[u8]) -> Result<bool, Code> {
        self.wants_few();
        self.seek_there(key)
    }

    fn seek_there(&mut self, key: &[u8]) -> Result<bool, Code> {
        self.go(|cursor, transaction| cursor.seek(transaction, key))
    }

    /// The last one below a key.
    fn seek_below(&mut self, key: &[u8]) -> Result<bool, Code> {
        self.wants_few();
        let is_there = self.go(|cursor, transaction| cursor.seek_back(transaction, key))?;
        if is_there && *self.key >= *key { self.previous() } else { Ok(self.stands()) }
    }

    fn stands(&self) -> bool {
        self.cursor.key().is_some()
    }

    /// Finds its place again. `None`: there is nothing any more.
    pub(crate) fn restore(&mut self) -> Result<Option<i32>, Code> {
        if let Some(sorted) = &mut self.sorted {
            sorted.load(&self.session, self.map)?;
            let place = sorted.restore(&(self.key.clone(), self.value.clone()))?;
            let found = sorted.entry().cloned();
            self.arrive(found)?;
            return Ok(place);
        }
        let key = std::mem::take(&mut self.key);
        self.goes_on();
        let place = if self.seek_there(&key)? {
            i32::from(*self.key != *key)
        } else if self.last()? {
            -1
        } else {
            return Ok(None);
        };
        Ok(Some(place))
    }

    /// Goes to a row; `None` if there is none where it is to go.
    pub(crate) fn seek_row(&mut self, row: i64, seek: Seek) -> Result<Option<i32>, Code> {
        let key = of_row(row);
        if seek == Seek::Exact {
            let (map, mut session) = (self.map, self.session.borrow_mut());
            let near = session.habit(map).seeks();
            let (record, asked) = session.with(|transaction| {
                let before = transaction.asked();
                let record = if near { transaction.get_near(map, &key) } else { transaction.get(map, &key) };
                Ok((record?, transaction.asked() - before))
            })?;
            session.habit(map).asked(asked);
            drop(session);
            if let Some(record) = record {
                self.cursor.place(&key);
                (self.key, self.value) = (key.into(), record);
                self.show()?;
                return Ok(Some(0));
            }
            // Whoever looks for one row does not go on from where it would be.
            return Ok(None);
        }
        // The least key above it, for it is whole.
        let beyond = || [&key[..], &[0]].concat();
        Ok(self.seek_bytes(&key, beyond, seek)?.map(|arrival| arrival.place))
    }

    /// Goes to where the fields are that a key begins with.
    pub(crate) fn seek_fields(
        &mut self,
        fields: &[Field<'_>],
        sought: Sought,
        seek: Seek,
    ) -> Result<Option<Arrival>, Code> {
        if let Some(sorted) = &mut self.sorted {
            sorted.load(&self.session, self.map)?;
            let arrival = sorted.seek(sought, seek)?;
            let found = sorted.entry().cloned();
            self.arrive(found)?;
            return Ok(arrival);
        }
        let form = self.form.as_ref().ok_or(Code::INTERNAL)?;
        let mut key = std::mem::take(&mut self.sought);
        key.clear();
        for (field, column) in fields.iter().zip(&form.columns) {
            push(&mut key, *field, *column, form.encoding);
        }
        let is_row = form.is_table && fields.len() == form.columns.len() && seek == Seek::Exact;
        let is_more = fields.len() > form.columns.len();
        let outcome = match is_row.then(|| self.is_told(&key)) {
            Some(Ok(true)) => Ok(Some(Arrival { place: 0, is_equal: true })),
            Some(Err(code)) => Err(code),
            _ if is_more => self.seek_within(&key, (sought, fields.len()), seek),
            _ => self.seek_bytes(&key, || above(&key), seek),
        };
        self.sought = key;
        outcome
    }

    /// Goes to the one row of a key if it was read with an entry that refers to it.
    fn is_told(&mut self, key: &[u8]) -> Result<bool, Code> {
        let map = self.map;
        let told = self.session.borrow_mut().with(|transaction| Ok(transaction.told_of(map, key)))?;
        let Some(value) = told else { return Ok(false) };
        self.cursor.place(key);
        (self.key, self.value) = (key.into(), value);
        Ok(true)
    }

    /// More fields are sought than the key of a table without row ids has: of the
    /// one row that has the key the rest decides.
    fn seek_within(
        &mut self,
        key: &[u8],
        (sought, fields): (Sought, usize),
        seek: Seek,
    ) -> Result<Option<Arrival>, Code> {
        let is_there = self.seek_from(key)?;
        let order = if is_there && self.key.starts_with(key) {
            sought.compare(self.record(), fields)
        } else {
            Ordering::Greater
        };
        let is_equal = is_there && order == Ordering::Equal;
        let stays = match seek {
            Seek::Exact => is_there || self.last()?,
            Seek::GreaterOrEqual => is_there && (order != Ordering::Less || self.next()?),
            Seek::Greater => is_there && (order == Ordering::Greater || self.next()?),
            Seek::LessOrEqual => (is_there && order != Ordering::Greater) || self.before(is_there)?,
            Seek::Less => (is_there && order == Ordering::Less) || self.before(is_there)?,
        };
        let place = match seek {
            Seek::Exact if !is_there => -1,
            Seek::Exact => order as i32,
            Seek::Less | Seek::LessOrEqual => -1,
            Seek::GreaterOrEqual | Seek::Greater => 1,
        };
        Ok(stays.then_some(Arrival { place, is_equal }))
    }

    /// Goes to the one before, or to the last of all.
    fn before(&mut self, is_there: bool) -> Result<bool, Code> {
        if is_there { self.previous() } else { self.last() }
    }

    /// What has these fields must be as it is at the commit.
    pub(crate) fn guard_sought(&mut self) -> Result<(), Code> {
        if self.sorted.is_some() {
            return self.guard_all();
        }
        let (map, above) = (self.map, above(&self.sought));
        let sought = &self.sought;
        self.session.borrow_mut().with(|transaction| {
            transaction.guard(map, &sought[..]..&above[..]);
            Ok(())
        })
    }

    /// So must a row.
    pub(crate) fn guard_row(&mut self, row: i64) -> Result<(), Code> {
        let (map, key) = (self.map, of_row(row));
        self.session.borrow_mut().with(|transaction| {
            transaction.guard(map, &key[..]..=&key[..]);
            Ok(())
        })
    }

    /// So must all.
    pub(crate) fn guard_all(&mut self) -> Result<(), Code> {
        let map = self.map;
        self.session.borrow_mut().with(|transaction| {
            transaction.guard::<&[u8]>(map, ..);
            Ok(())
        })
    }

    /// A number for a new row, above `above`; `None` if they are used up.
    pub(crate) fn new_row(&mut self, above: i64) -> Result<Option<i64>, Code> {
        self.give_back();
        self.new_row = self.session.borrow_mut().new_row(self.map, above)?;
        Ok(self.new_row)
    }

    /// The same for a table with AUTOINCREMENT (`sequence.rs`).
    pub(crate) fn new_sequence(
        &mut self,
        sequences: Map,
        row: Option<i64>,
        above: i64,
        name: Option<&[u8]>,
    ) -> Result<i64, Code> {
        let number =
            self.session.borrow_mut().new_sequence(self.map, sequences, SequenceRow { row, above, name })?;
        self.new_row = Some(number);
        Ok(number)
    }

    /// It is over sqlite_sequence, and a number for a tree is likely to be wanted.
    pub(crate) fn expect_sequence(&mut self, tree: u64) {
        self.session.borrow_mut().expect_sequence(self.map, tree);
    }

    /// It is over sqlite_sequence, of which it shows how far counters have come.
    pub(crate) fn show_sequences(&mut self) {
        self.shows_sequences = true;
    }

    /// AUTOINCREMENT has come so far.
    pub(crate) fn put_sequence(&mut self, row: i64, record: &[u8]) -> Result<(), Code> {
        // The row's own number is used.
        self.new_row = None;
        let is_new = self.session.borrow_mut().put_sequence((self.map, self.cookies), row, record)?;
        // Nobody else may have made one for the same table meanwhile.
        if is_new { self.guard_all() } else { Ok(()) }
    }

    /// Goes to a key, or to what begins with it and is below `beyond`.
    fn seek_bytes(
        &mut self,
        key: &[u8],
        beyond: impl FnOnce() -> Vec<u8>,
        seek: Seek,
    ) -> Result<Option<Arrival>, Code> {
        let is_there = match seek {
            Seek::Exact | Seek::GreaterOrEqual => self.seek_from(key)?,
            Seek::Greater => self.seek_from(&beyond())?,
            Seek::Less => self.seek_below(key)?,
            Seek::LessOrEqual => self.seek_below(&beyond())?,
        };
        // At the end of all there is still the last one.
        if !(is_there || seek == Seek::Exact && self.last()?) {
            return Ok(None);
        }
        let is_equal = self.key.starts_with(key);
        let place = match seek {
            Seek::Exact if is_equal => 0,
            _ if *self.key < *key => -1,
            // SQLite takes what has the same fields to be before what comes
            // after them, and after what comes before them.
            Seek::LessOrEqual => -1,
            _ => 1,
        };
        Ok(Some(Arrival { place, is_equal }))
    }

    /// The number that was got last and not used is for others.
    fn give_back(&mut self) {
        if let Some(unused) = self.new_row.take() {
            self.session.borrow().shared.rows().give_back(self.map.tree(), unused);
        }
    }

    /// Writes a row. It stands on it then.
    pub(crate) fn put_row(&mut self, row: i64, record: &[u8]) -> Result<(), Code> {
        let key = of_row(row);
        if self.new_row.take() != Some(row) {
            self.session.borrow().shared.rows().wrote(self.map.tree(), row);
            return self.put(&key, record);
        }
        let (map, cookies) = (self.map, self.cookies);
        self.session.borrow_mut().write(cookies, |transaction| transaction.insert(map, &key, record))?;
        self.key = key.into();
        Ok(())
    }

    /// Writes an entry of an index.
    pub(crate) fn put_entry(&mut self, record: &[u8]) -> Result<(), Code> {
        let form = self.form.as_ref().ok_or(Code::INTERNAL)?;
        let mut key = Vec::with_capacity(record.len() + 16);
        key_of(record, &form.columns, form.encoding, &mut key).ok_or(Code::CORRUPT)?;
        let value = entry_of(record, form).ok_or(Code::CORRUPT)?;
        if let (Some(sorted), true) = (&mut self.sorted, form.is_table) {
            // What is equal to it may be so by other bytes. Nobody else may write
            // such a one meanwhile.
            sorted.load(&self.session, self.map)?;
            let same = sorted.same(&(key.clone().into(), value.clone().into()))?;
            let (map, cookies) = (self.map, self.cookies);
            self.session
                .borrow_mut()
                .write(cookies, |transaction| same.iter().try_for_each(|key| transaction.delete(map, key)))?;
            self.guard_all()?;
        }
        self.put(&key, &value)?;
        if self.sorted.is_some() {
            self.value = value.into();
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], record: &[u8]) -> Result<(), Code> {
        let (map, cookies) = (self.map, self.cookies);
        self.session.borrow_mut().write(cookies, |transaction| transaction.put(map, key, record))?;
        self.key = key.into();
        Ok(())
    }

    /// Deletes what it stands on. It stands between its neighbours then.
    pub(crate) fn delete(&mut self) -> Result<(), Code> {
        let (map, cookies, key) = (self.map, self.cookies, &self.key);
        if self.form.is_none() {
            self.session.borrow().shared.rows().deleted(map.tree(), self.row());
        }
        self.session.borrow_mut().write(cookies, |transaction| transaction.delete(map, key))
    }

    pub(crate) fn count(&mut self) -> Result<i64, Code> {
        let (mut count, mut is_there) = (0, self.first()?);
        while is_there {
            count += 1;
            is_there = self.next()?;
        }
        Ok(count)
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        let taken = self.taken.0.max(self.taken.1);
        if taken > 0 {
            // Who takes fewer now may take as many again: slowly down, at once up.
            let few = (taken + 1).max(self.few - self.few / 8).min(FEW);
            self.session.borrow_mut().has_taken(self.map, few);
        }
        self.give_back();
    }
}
