//! Cursor over the tree of a table or an index.

mod groups;

use crate::{
    attached_database::AttachedDatabase,
    code::ResultCode,
    compare::{Comparer, Sought, padded},
    form::KeyForm,
    key::{Collation, Field, above, of_row, push, row_of},
    long_keys::{KeyGroup, PREFIX_BYTES, cut, is_long},
    record::{entry_of, key_of, record_of},
    seek::{Seek, SeekPosition},
    sequence::SequenceRow,
    session::{MoveResult, SqlSession},
    sorted::Sorted,
};
use groups::Entrance;
use std::{cell::RefCell, cmp::Ordering, rc::Rc};
use yesquel::{Cursor, Error, Map, Transaction};

/// Entries to fetch by a seek whose scan length is unknown, then by its first continuation; then
/// come whole leaves. If earlier scans of the tree are known, a seek fetches one more than they
/// read.
const VERY_FEW: u64 = 4;
const FEW: u64 = 64;
const ALL: u64 = u64::MAX;

/// Cursor of SQLite.
#[derive(Debug)]
pub(crate) struct TreeScan {
    session: Rc<RefCell<SqlSession>>,
    map: Map,
    /// Map of the meta values at the group of the tree, which writes guard.
    cookies: Map,
    /// Map that stands for the database.
    sized: Map,
    /// `None`: a table with row numbers.
    form: Option<KeyForm>,
    cursor: Cursor,
    /// Entries left of the number requested.
    left: u64,
    /// Whether the scan has read more than `FEW`, so that whole leaves pay.
    has_taken_few: bool,
    /// Entries fetched by a seek.
    few: u64,
    /// Entries read since the last seek, and the maximum of all scans.
    taken: (u64, u64),
    /// Key at the cursor, now or before.
    key: Box<[u8]>,
    value: Box<[u8]>,
    /// Position in a group of long keys.
    group: Option<Box<KeyGroup>>,
    /// Whether the entry at the key has been written or deleted since it was read.
    is_written: bool,
    /// Copy of a malformed record, with the bytes after its end that SQLite may read.
    padded: Vec<u8>,
    /// Bytes of the last seek, for a guard.
    sought: Vec<u8>,
    /// Number given to a new row, which must not exist.
    new_row: Option<i64>,
    /// Set for sqlite_sequence: rows show the counters' true values.
    shows_sequences: bool,
    /// Sorted entries of an index whose tree has no useful order.
    sorted: Option<Sorted>,
}

impl TreeScan {
    pub(crate) fn new(
        attached: &AttachedDatabase,
        root: u32,
        form: Option<KeyForm>,
        comparer: Comparer,
    ) -> Result<TreeScan, ResultCode> {
        let map = attached.map(root)?;
        let is_other =
            |form: &&KeyForm| form.columns.iter().any(|column| column.collation == Collation::Other);
        let sorted = form.as_ref().filter(is_other).map(|form| Sorted::new(comparer, form.columns.len()));
        let mut session = attached.session.borrow_mut();
        let (cursor, few) = (session.cursor(map)?, session.taken(map).unwrap_or(VERY_FEW));
        drop(session);
        Ok(TreeScan {
            session: Rc::clone(&attached.session),
            map,
            cookies: attached.cookies_at(map),
            sized: attached.cookies(),
            form,
            cursor,
            left: ALL,
            has_taken_few: false,
            few,
            taken: (0, 0),
            key: Box::default(),
            value: Box::default(),
            group: None,
            is_written: false,
            padded: Vec::new(),
            sought: Vec::new(),
            new_row: None,
            shows_sequences: false,
            sorted,
        })
    }

    pub(crate) fn record(&self) -> &[u8] {
        if self.form.is_some() { record_of(&self.value) } else { &self.value }
    }

    /// Returns the record at the cursor with the bytes after its end that SQLite may read.
    pub(crate) fn padded_record(&mut self) -> &[u8] {
        self.padded = padded(self.record());
        &self.padded
    }

    /// Returns whether the last padded record begins at an address.
    pub(crate) fn is_padded(&self, record: *const u8) -> bool {
        !self.padded.is_empty() && self.padded.as_ptr() == record
    }

    /// Reads the entries that this tree's entries refer to along with them.
    pub(crate) fn follow(&mut self, map: Option<Map>) {
        self.cursor.follow(map);
    }

    /// Returns the row number at the cursor.
    pub(crate) fn row(&self) -> i64 {
        row_of(&self.key).unwrap_or_default()
    }

    fn arrive(&mut self, found: MoveResult) -> Result<bool, ResultCode> {
        let Some((key, value)) = found else { return Ok(false) };
        if self.form.is_none() && key.len() != 8 {
            return Err(ResultCode::CORRUPT);
        }
        self.read(key, value);
        self.show()?;
        Ok(true)
    }

    fn read(&mut self, key: Box<[u8]>, value: Box<[u8]>) {
        (self.key, self.value, self.is_written) = (key, value, false);
    }

    /// Returns the bytes of the entry at the cursor; 0 if they are not known.
    fn entry_bytes(&self) -> usize {
        if self.is_written { 0 } else { self.key.len() + self.value.len() }
    }

    /// Replaces the value in a row of sqlite_sequence by the position of its counter.
    fn show(&mut self) -> Result<(), ResultCode> {
        if self.shows_sequences
            && let Some(shown) = self.session.borrow_mut().shown_sequence(self.map, &self.value)?
        {
            self.value = shown.into();
        }
        Ok(())
    }

    /// Moves the cursor in the tree. Returns whether it is on an entry.
    fn go(
        &mut self,
        go: impl for<'t> FnOnce(&mut Cursor, &mut Transaction<'t>) -> Result<MoveResult, Error>,
    ) -> Result<bool, ResultCode> {
        self.group = None;
        let (cursor, mut session) = (&mut self.cursor, self.session.borrow_mut());
        let (found, asked) = session.with(|transaction| {
            let before = transaction.asked();
            let found = go(cursor, transaction)?;
            Ok((found, transaction.asked() - before))
        })?;
        session.access_pattern(self.map).asked(asked);
        drop(session);
        self.arrive(found)
    }

    pub(crate) fn first(&mut self) -> Result<bool, ResultCode> {
        if self.sorted.is_some() {
            return self.move_sorted(Sorted::first);
        }
        self.taken = (1, self.taken.1.max(self.taken.0));
        self.announce(self.few.max(FEW));
        let is_there = self.go(|cursor, transaction| cursor.first(transaction))?;
        self.enter(is_there, Entrance::First)
    }

    pub(crate) fn last(&mut self) -> Result<bool, ResultCode> {
        if self.sorted.is_some() {
            return self.move_sorted(Sorted::last);
        }
        self.announce_few();
        let is_there = self.go(|cursor, transaction| cursor.last(transaction))?;
        self.enter(is_there, Entrance::Last)
    }

    pub(crate) fn next(&mut self) -> Result<bool, ResultCode> {
        if self.sorted.is_some() {
            return self.move_sorted(Sorted::next);
        }
        if let Some(is_there) = self.step_in_group(Entrance::First)? {
            return Ok(is_there);
        }
        self.request_more();
        let is_there = self.go(|cursor, transaction| cursor.next(transaction))?;
        self.enter(is_there, Entrance::First)
    }

    pub(crate) fn previous(&mut self) -> Result<bool, ResultCode> {
        if self.sorted.is_some() {
            return self.move_sorted(Sorted::previous);
        }
        if let Some(is_there) = self.step_in_group(Entrance::Last)? {
            return Ok(is_there);
        }
        self.request_more();
        let is_there = self.go(|cursor, transaction| cursor.previous(transaction))?;
        self.enter(is_there, Entrance::Last)
    }

    fn move_sorted(&mut self, go: impl FnOnce(&mut Sorted)) -> Result<bool, ResultCode> {
        let Some(sorted) = &mut self.sorted else { return Err(ResultCode::INTERNAL) };
        sorted.load(&self.session, self.map)?;
        go(sorted);
        let found = sorted.entry().cloned();
        self.arrive(found)
    }

    /// Announces the number of entries wanted from the next position on.
    fn announce(&mut self, entries: u64) {
        self.left = entries;
        self.cursor.limit(entries);
    }

    /// Before a step: requests more if the announced entries are used up.
    fn request_more(&mut self) {
        self.taken.0 += 1;
        match self.left.checked_sub(1) {
            Some(left) if self.left != ALL => self.left = left,
            Some(_) => {}
            None if self.has_taken_few => self.announce(ALL),
            None => {
                self.has_taken_few = true;
                self.announce(FEW);
            }
        }
    }

    /// Announces a few entries from the next position on.
    fn announce_few(&mut self) {
        self.taken = (1, self.taken.1.max(self.taken.0));
        if self.session.borrow_mut().access_pattern(self.map).seeks() {
            self.announce(ALL);
        } else if !self.has_taken_few {
            self.announce(self.few);
        }
    }

    fn seek_from(&mut self, key: &[u8]) -> Result<bool, ResultCode> {
        self.announce_few();
        if is_long(key) && self.form.is_some() {
            return self.seek_long(key, Seek::GreaterOrEqual);
        }
        self.seek_there(key)
    }

    fn seek_there(&mut self, key: &[u8]) -> Result<bool, ResultCode> {
        let is_there = self.go(|cursor, transaction| cursor.seek(transaction, key))?;
        self.enter(is_there, Entrance::First)
    }

    /// Moves to the last entry below a key.
    fn seek_below(&mut self, key: &[u8]) -> Result<bool, ResultCode> {
        self.announce_few();
        let is_there = self.go(|cursor, transaction| cursor.seek_back(transaction, key))?;
        if is_there && *self.key >= *key {
            return self.previous();
        }
        self.enter(self.is_on_entry(), Entrance::Last)
    }

    fn is_on_entry(&self) -> bool {
        self.cursor.key().is_some()
    }

    /// Restores the position. `None`: nothing is left.
    pub(crate) fn restore(&mut self) -> Result<Option<i32>, ResultCode> {
        if let Some(sorted) = &mut self.sorted {
            sorted.load(&self.session, self.map)?;
            let place = sorted.restore(&(self.key.clone(), self.value.clone()))?;
            let found = sorted.entry().cloned();
            self.arrive(found)?;
            return Ok(place);
        }
        let key = match self.group.take() {
            Some(group) => group.into_key().ok_or(ResultCode::INTERNAL)?,
            None => std::mem::take(&mut self.key),
        };
        self.request_more();
        let is_there = if is_long(&key) && self.form.is_some() {
            self.seek_long(&key, Seek::GreaterOrEqual)?
        } else {
            self.seek_there(&key)?
        };
        let place = if is_there {
            i32::from(*self.whole_key() != *key)
        } else if self.last()? {
            -1
        } else {
            return Ok(None);
        };
        Ok(Some(place))
    }

    /// Moves to a row; `None` if there is no row to move to.
    pub(crate) fn seek_row(&mut self, row: i64, seek: Seek) -> Result<Option<i32>, ResultCode> {
        let key = of_row(row);
        if seek == Seek::Exact {
            let (map, mut session) = (self.map, self.session.borrow_mut());
            let near = session.access_pattern(map).seeks();
            let (record, asked) = session.with(|transaction| {
                let before = transaction.asked();
                let record = if near { transaction.get_near(map, &key) } else { transaction.get(map, &key) };
                Ok((record?, transaction.asked() - before))
            })?;
            session.access_pattern(map).asked(asked);
            drop(session);
            if let Some(record) = record {
                self.cursor.place(&key);
                self.read(key.into(), record);
                self.show()?;
                return Ok(Some(0));
            }
            // A lookup of one row does not continue from where it would be.
            return Ok(None);
        }
        // The successor of a complete key.
        let beyond = || [&key[..], &[0]].concat();
        Ok(self.seek_bytes(&key, beyond, seek)?.map(|arrival| arrival.place))
    }

    /// Moves to the key that begins with these fields.
    pub(crate) fn seek_fields(
        &mut self,
        fields: &[Field<'_>],
        sought: Sought,
        seek: Seek,
    ) -> Result<Option<SeekPosition>, ResultCode> {
        if let Some(sorted) = &mut self.sorted {
            sorted.load(&self.session, self.map)?;
            let arrival = sorted.seek(sought, seek)?;
            let found = sorted.entry().cloned();
            self.arrive(found)?;
            return Ok(arrival);
        }
        let form = self.form.as_ref().ok_or(ResultCode::INTERNAL)?;
        let mut key = std::mem::take(&mut self.sought);
        key.clear();
        for (field, column) in fields.iter().zip(&form.columns) {
            push(&mut key, *field, *column, form.encoding);
        }
        let is_row = form.is_table && fields.len() == form.columns.len() && seek == Seek::Exact;
        let is_more = fields.len() > form.columns.len();
        let outcome = match is_row.then(|| self.seek_cached(&key)) {
            Some(Ok(true)) => Ok(Some(SeekPosition { place: 0, is_equal: true })),
            Some(Err(code)) => Err(code),
            _ if is_more => self.seek_within(&key, (sought, fields.len()), seek),
            _ => self.seek_bytes(&key, || above(&key), seek),
        };
        self.sought = key;
        outcome
    }

    /// Moves to the row of a key if it came along with an entry that refers to it.
    fn seek_cached(&mut self, key: &[u8]) -> Result<bool, ResultCode> {
        if is_long(key) {
            return Ok(false);
        }
        let map = self.map;
        let cached = self.session.borrow_mut().with(|transaction| Ok(transaction.get_cached(map, key)))?;
        let Some(value) = cached else { return Ok(false) };
        self.cursor.place(key);
        self.group = None;
        self.read(key.into(), value);
        Ok(true)
    }

    /// Seeks by more fields than the key of a table without row ids has: the other fields are
    /// compared in the one row that has the key.
    fn seek_within(
        &mut self,
        key: &[u8],
        (sought, fields): (Sought, usize),
        seek: Seek,
    ) -> Result<Option<SeekPosition>, ResultCode> {
        let is_there = self.seek_from(key)?;
        let order = if is_there && self.whole_key().starts_with(key) {
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
        Ok(stays.then_some(SeekPosition { place, is_equal }))
    }

    /// Moves to the previous entry, or to the last of all.
    fn before(&mut self, is_there: bool) -> Result<bool, ResultCode> {
        if is_there { self.previous() } else { self.last() }
    }

    /// Guards the entries with the sought fields.
    pub(crate) fn guard_sought(&mut self) -> Result<(), ResultCode> {
        if self.sorted.is_some() {
            return self.guard_all();
        }
        // Whole groups: their order is not that of the tree.
        let sought = &self.sought[..self.sought.len().min(PREFIX_BYTES)];
        let (map, above) = (self.map, above(sought));
        self.session.borrow_mut().with(|transaction| {
            transaction.guard(map, sought..&above[..]);
            Ok(())
        })
    }

    /// Guards a row.
    pub(crate) fn guard_row(&mut self, row: i64) -> Result<(), ResultCode> {
        let (map, key) = (self.map, of_row(row));
        self.session.borrow_mut().with(|transaction| {
            transaction.guard(map, &key[..]..=&key[..]);
            Ok(())
        })
    }

    /// Guards the whole tree.
    pub(crate) fn guard_all(&mut self) -> Result<(), ResultCode> {
        let map = self.map;
        self.session.borrow_mut().with(|transaction| {
            transaction.guard::<&[u8]>(map, ..);
            Ok(())
        })
    }

    /// Returns a number for a new row, above `above`; `None` if they are used up.
    pub(crate) fn new_row(&mut self, above: i64) -> Result<Option<i64>, ResultCode> {
        self.give_back();
        self.new_row = self.session.borrow_mut().new_row(self.map, above)?;
        Ok(self.new_row)
    }

    /// Returns a number for a new row of a table with AUTOINCREMENT (`sequence.rs`).
    pub(crate) fn new_sequence(
        &mut self,
        sequences: Map,
        row: Option<i64>,
        above: i64,
        name: Option<&[u8]>,
    ) -> Result<i64, ResultCode> {
        let number =
            self.session.borrow_mut().new_sequence(self.map, sequences, SequenceRow { row, above, name })?;
        self.new_row = Some(number);
        Ok(number)
    }

    /// On sqlite_sequence: prefetches a number for a tree that probably needs one.
    pub(crate) fn expect_sequence(&mut self, tree: u64) {
        self.session.borrow_mut().expect_sequence(self.map, tree);
    }

    /// On sqlite_sequence: shows the counters' true values.
    pub(crate) fn show_sequences(&mut self) {
        self.shows_sequences = true;
    }

    /// Writes the position of AUTOINCREMENT.
    pub(crate) fn put_sequence(&mut self, row: i64, record: &[u8]) -> Result<(), ResultCode> {
        // The given number is used.
        self.new_row = None;
        let is_new = self.session.borrow_mut().put_sequence((self.map, self.cookies), row, record)?;
        // No other transaction may create a row for the same table.
        if is_new { self.guard_all() } else { Ok(()) }
    }

    /// Moves to a key, or to one that begins with it and is below `beyond`.
    fn seek_bytes(
        &mut self,
        key: &[u8],
        beyond: impl FnOnce() -> Vec<u8>,
        seek: Seek,
    ) -> Result<Option<SeekPosition>, ResultCode> {
        let is_there = match seek {
            _ if is_long(key) && self.form.is_some() => self.seek_long(key, seek)?,
            Seek::Exact | Seek::GreaterOrEqual => self.seek_from(key)?,
            Seek::Greater => self.seek_from(&beyond())?,
            Seek::Less => self.seek_below(key)?,
            Seek::LessOrEqual => self.seek_below(&beyond())?,
        };
        // Past the end, position on the last entry.
        if !(is_there || seek == Seek::Exact && self.last()?) {
            return Ok(None);
        }
        let found = self.whole_key();
        let is_equal = found.starts_with(key);
        let place = match seek {
            Seek::Exact if is_equal => 0,
            _ if *found < *key => -1,
            // For SQLite, an entry with the same fields is before the next ones in a forward search
            // and after the previous ones in a backward search.
            Seek::LessOrEqual => -1,
            _ => 1,
        };
        Ok(Some(SeekPosition { place, is_equal }))
    }

    /// Returns the last number if it was not used.
    fn give_back(&mut self) {
        if let Some(unused) = self.new_row.take() {
            self.session.borrow().shared.rows().give_back(self.map.tree(), unused);
        }
    }

    /// Writes a row. The cursor is on it then.
    pub(crate) fn put_row(&mut self, row: i64, record: &[u8]) -> Result<(), ResultCode> {
        let key = of_row(row);
        if self.new_row.take() != Some(row) {
            self.session.borrow().shared.rows().wrote(self.map.tree(), row);
            return self.put(&key, record);
        }
        let (map, cookies) = (self.map, self.cookies);
        let mut session = self.session.borrow_mut();
        session.write(cookies, |transaction| transaction.insert(map, &key, record))?;
        session.replaced(self.sized, 0, key.len() + record.len());
        drop(session);
        (self.key, self.is_written) = (key.into(), true);
        Ok(())
    }

    /// Writes an index entry.
    pub(crate) fn put_entry(&mut self, record: &[u8]) -> Result<(), ResultCode> {
        let form = self.form.as_ref().ok_or(ResultCode::INTERNAL)?;
        let mut key = Vec::with_capacity(record.len() + 16);
        key_of(record, &form.columns, form.encoding, &mut key).ok_or(ResultCode::CORRUPT)?;
        let value = entry_of(record, form).ok_or(ResultCode::CORRUPT)?;
        if is_long(&key) && self.sorted.is_none() {
            return self.put_long(key, &value);
        }
        let key = cut(&key).unwrap_or(key);
        if let (Some(sorted), true) = (&mut self.sorted, form.is_table) {
            // Entries that are equal by the collation may differ in bytes. Guard against concurrent
            // ones.
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

    fn put(&mut self, key: &[u8], record: &[u8]) -> Result<(), ResultCode> {
        let (map, cookies) = (self.map, self.cookies);
        let before = if *self.key == *key { self.entry_bytes() } else { 0 };
        self.group = None;
        let mut session = self.session.borrow_mut();
        session.write(cookies, |transaction| transaction.put(map, key, record))?;
        session.replaced(self.sized, before, key.len() + record.len());
        drop(session);
        (self.key, self.is_written) = (key.into(), true);
        Ok(())
    }

    /// Deletes the entry at the cursor, which is between its neighbors then.
    pub(crate) fn delete(&mut self) -> Result<(), ResultCode> {
        let (map, cookies, key) = (self.map, self.cookies, &self.key);
        if self.form.is_none() {
            self.session.borrow().shared.rows().deleted(map.tree(), self.row());
        }
        let mut session = self.session.borrow_mut();
        session.write(cookies, |transaction| transaction.delete(map, key))?;
        session.replaced(self.sized, self.entry_bytes(), 0);
        drop(session);
        self.is_written = true;
        Ok(())
    }

    pub(crate) fn count(&mut self) -> Result<i64, ResultCode> {
        let (mut count, mut is_there) = (0, self.first()?);
        while is_there {
            count += 1;
            is_there = self.next()?;
        }
        Ok(count)
    }
}

impl Drop for TreeScan {
    fn drop(&mut self) {
        let taken = self.taken.0.max(self.taken.1);
        if taken > 0 {
            // Adapts slowly downwards and at once upwards.
            let few = (taken + 1).max(self.few - self.few / 8).min(FEW);
            self.session.borrow_mut().has_taken(self.map, few);
        }
        self.give_back();
    }
}
