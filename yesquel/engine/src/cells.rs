//! The cells of a node, by key.

use crate::cell::{Cell, Form, Row, Value};
use crate::snapshots::Readable;
use std::ops::Range;
use thin_vec::ThinVec;
use yesquel_model::{KeyRange, Timestamp, prefix_of};

/// Bytes of a key that stand in its head.
const HEAD: usize = 8;
/// A key that is longer stands before its value, behind its length.
const LONG: u8 = HEAD as u8 + 1;
/// Bytes of that length.
const LENGTH: usize = 4;

/// A size: cells that are not deleted, and the bytes of their keys and newest
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Live {
    pub(crate) cells: usize,
    pub(crate) bytes: usize,
}

/// What becomes of a newest version after which another one comes.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// Snapshots may still see it.
    Older,
    Gone,
}

/// Cells in the order of their keys, each key once.
///
/// Four allocations are all that a node's cells take: the heads of the keys
/// (their first eight bytes), rows that say where the rest is, the bytes of
/// longer keys and of values, and, while there are any, rows of older versions.
/// With 8 bytes of key and 100 of value a cell takes 8, 16 and 100.
///
/// *Searches.* The heads of 128 cells stand in 16 lines of a processor's cache.
/// A search begins where the key would be if keys were spread evenly, as
/// numbers mostly are, and reads one or two of them; at worst six.
///
/// *Bytes.* A value is written behind all others and stays where it is, also
/// when a newer one has come. What no row names any more is left out when a
/// quarter of the bytes is such.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// The prefixes of the first cell and the last, beside what else of a node
    /// a search reads.
    ends: (u64, u64),
    heads: Vec<[u8; HEAD]>,
    rows: Vec<Row>,
    bytes: Vec<u8>,
    /// Of them, those that no row names.
    dead: usize,
    /// The versions of each cell that are not its newest, the oldest first;
    /// nothing at all where no cell has any.
    older: Vec<ThinVec<Row>>,
    /// How many they are.
    versions: usize,
    live: Live,
}

impl Clone for Cells {
    fn clone(&self) -> Cells {
        // Whoever is copied is about to change, and mostly grows.
        let mut copy = Cells {
            heads: Vec::new(),
            rows: Vec::new(),
            bytes: Vec::new(),
            older: self.older.clone(),
            ..*self
        };
        copy.heads.reserve_exact(spare(self.len()));
        copy.heads.extend_from_slice(&self.heads);
        copy.rows.reserve_exact(spare(self.len()));
        copy.rows.extend_from_slice(&self.rows);
        copy.bytes.reserve_exact(spare(self.bytes.len()));
        copy.bytes.extend_from_slice(&self.bytes);
        copy
    }
}

/// Room for so many and some more. Not by doubling: there are many nodes. Of
/// few sizes: what one node lets go of as it grows another one can use.
fn spare(length: usize) -> usize {
    let step = (length.next_power_of_two() / 16).max(4);
    (length + step / 2).next_multiple_of(step)
}

impl Cells {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Cells that are not deleted.
    pub(crate) fn live(&self) -> Live {
        self.live
    }

    /// Bytes of memory, without room that is spare.
    pub(crate) fn memory(&self) -> usize {
        let rows = (self.len() + self.versions) * size_of::<Row>();
        let places = self.len() * HEAD + self.older.len() * size_of::<ThinVec<Row>>();
        places + rows + self.bytes.len()
    }

    /// Whether some low-water mark lets go of something.
    pub(crate) fn has_garbage(&self) -> bool {
        self.versions > 0 || self.live.cells < self.len()
    }

    /// Bytes before the value of a cell.
    fn tail_bytes(&self, position: usize) -> usize {
        let row = self.rows[position];
        if row.key_bytes() != LONG {
            return 0;
        }
        let length = self.bytes[row.start()..].first_chunk::<LENGTH>();
        LENGTH + length.map_or(0, |length| u32::from_le_bytes(*length) as usize)
    }

    /// The bytes of a cell.
    fn place(&self, position: usize) -> Range<usize> {
        let row = self.rows[position];
        row.start()..row.start() + self.tail_bytes(position) + row.value_bytes()
    }

    /// The key of a cell.
    fn key(&self, position: usize) -> &[u8] {
        let row = self.rows[position];
        match row.key_bytes() {
            LONG => &self.bytes[row.start() + LENGTH..row.start() + self.tail_bytes(position)],
            short => &self.heads[position][..usize::from(short)],
        }
    }

    /// A cell.
    pub(crate) fn cell(&self, position: usize) -> Cell<'_> {
        let row = self.rows[position];
        let (key, value) = match row.key_bytes() {
            LONG => {
                let bytes = &self.bytes[self.place(position)];
                let (tail, value) = bytes.split_at(bytes.len() - row.value_bytes());
                (&tail[LENGTH..], value)
            }
            short => {
                let start = row.start();
                (&self.heads[position][..usize::from(short)], &self.bytes[start..start + row.value_bytes()])
            }
        };
        let older = self.older.get(position).map_or(&[][..], |older| older);
        Cell { key, at: row.at, newest: row.form().value(value), older, bytes: &self.bytes }
    }

    /// Cells in their order.
    pub(crate) fn range(&self, positions: Range<usize>) -> impl DoubleEndedIterator<Item = Cell<'_>> {
        positions.map(|position| self.cell(position))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Cell<'_>> {
        self.range(0..self.len())
    }

    /// Where a key stands, or would.
    pub(crate) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = prefix_of(key);
        self.find_from(self.guess(prefix), prefix, key)
    }

    /// The same, from where it may be.
    fn find_from(&self, guess: usize, prefix: u64, key: &[u8]) -> Result<usize, usize> {
        let first = self.first_from(guess, prefix);
        // Mostly it is there, and the only one.
        if self.heads.get(first).is_none_or(|head| u64::from_be_bytes(*head) != prefix) {
            return Err(first);
        }
        let is_same = |head: &[u8; HEAD]| u64::from_be_bytes(*head) == prefix;
        let rest = &self.heads[first + 1..];
        let same = 1 + if rest.first().is_some_and(is_same) { rest.partition_point(is_same) } else { 0 };
        let (mut low, mut high) = (first, first + same);
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The cell of a key. Its row is fetched from memory together with the heads
    /// around it, not after them.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Cell<'_>> {
        let prefix = prefix_of(key);
        let guess = self.guess(prefix);
        if let Some(near) = self.rows.get(guess) {
            std::hint::black_box(near.at);
        }
        self.find_from(guess, prefix, key).ok().map(|position| self.cell(position))
    }

    /// Where a prefix would be if they were spread evenly.
    fn guess(&self, prefix: u64) -> usize {
        let (first, last) = self.ends;
        let place = prefix.saturating_sub(first) as f64 / (last - first).max(1) as f64;
        (place * self.len().saturating_sub(1) as f64) as usize
    }

    /// How many cells have a lower prefix; about so many, one may guess.
    fn first_from(&self, guess: usize, prefix: u64) -> usize {
        let (first, last) = self.ends;
        if self.is_empty() || prefix <= first {
            return 0;
        }
        // Keys that grow come behind all others.
        if last < prefix {
            return self.len();
        }
        // Where it would be, and from there in steps that double to where it is:
        // what is below `low` is lower, what is from `high` on is not.
        let (mut high, mut step) = (self.len(), 2);
        let is_lower = |at: usize| self.heads.get(at).is_some_and(|head| u64::from_be_bytes(*head) < prefix);
        let low = if is_lower(guess) {
            let mut low = guess + 1;
            while is_lower(low + step) {
                (low, step) = (low + step + 1, step * 2);
            }
            high = high.min(low + step);
            low
        } else {
            high = high.min(guess);
            while high > step && !is_lower(high - step) {
                (high, step) = (high - step, step * 2);
            }
            high.saturating_sub(step)
        };
        low + self.heads[low..high].partition_point(|head| u64::from_be_bytes(*head) < prefix)
    }

    /// The cells with keys in a range.
    pub(crate) fn covered(&self, range: &KeyRange) -> Range<usize> {
        let position = |key: &[u8]| self.find(key).unwrap_or_else(|position| position);
        let low = position(&range.low);
        let high = range.high.as_deref().map_or(self.len(), position);
        low..high.max(low)
    }

    /// Room for so many more cells, with so many bytes.
    fn reserve(&mut self, cells: usize, bytes: usize) {
        self.heads.reserve_exact(cells);
        self.rows.reserve_exact(cells);
        self.bytes.reserve_exact(bytes);
    }

    /// Room for the bytes of one more value.
    fn make_room(&mut self, more: usize) {
        let length = self.bytes.len();
        if length + more <= self.bytes.capacity() {
            return;
        }
        if self.dead * 4 > length {
            self.leave_out_dead(more);
        } else {
            self.bytes.reserve_exact(spare(length + more) - length);
        }
    }

    /// Leaves out what nobody names, however little it is.
    pub(crate) fn tighten(&mut self) {
        if self.dead > 0 {
            self.leave_out_dead(0);
        }
    }

    /// Bytes without those that nobody names, and room for some more.
    fn leave_out_dead(&mut self, more: usize) {
        let left = self.bytes.len() - self.dead;
        let mut bytes = Vec::with_capacity(spare(left).max(left + more));
        for position in 0..self.len() {
            let place = self.place(position);
            self.rows[position].starts_at(bytes.len());
            bytes.extend_from_slice(&self.bytes[place]);
            for version in self.older.get_mut(position).into_iter().flatten() {
                let start = version.start();
                version.starts_at(bytes.len());
                bytes.extend_from_slice(&self.bytes[start..start + version.value_bytes()]);
            }
        }
        (self.bytes, self.dead) = (bytes, 0);
    }

    fn note_ends(&mut self) {
        let ends = self.heads.first().zip(self.heads.last());
        self.ends =
            ends.map_or((0, 0), |(first, last)| (u64::from_be_bytes(*first), u64::from_be_bytes(*last)));
    }

    fn add_live(&mut self, key_bytes: usize, value: Option<Value<'_>>) {
        if let Some(value) = value {
            self.live.cells += 1;
            self.live.bytes += key_bytes + value.bytes.len();
        }
    }

    /// Puts a cell where [`find`](Self::find) says that it is missing.
    pub(crate) fn insert(&mut self, position: usize, key: &[u8], at: Timestamp, value: Option<Value<'_>>) {
        if self.len() == self.rows.capacity() {
            self.reserve(spare(self.len() + 1) - self.len(), 0);
        }
        let bytes = value.map_or(&[][..], |value| value.bytes);
        let is_long = key.len() > HEAD;
        self.make_room(if is_long { LENGTH + key.len() } else { 0 } + bytes.len());
        let what = if is_long { LONG } else { key.len() as u8 };
        let mut row = Row::new(at, what, value);
        row.starts_at(self.bytes.len());
        if is_long {
            self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
            self.bytes.extend_from_slice(key);
        }
        self.bytes.extend_from_slice(bytes);
        let prefix = prefix_of(key);
        if position == 0 {
            self.ends.0 = prefix;
        }
        if position == self.len() {
            self.ends.1 = prefix;
        }
        self.heads.insert(position, prefix.to_be_bytes());
        self.rows.insert(position, row);
        if !self.older.is_empty() {
            self.older.insert(position, ThinVec::new());
        }
        self.add_live(key.len(), value);
    }

    /// Gives a cell another newest version, and the one before its fate.
    fn set(&mut self, position: usize, at: Timestamp, value: Option<Value<'_>>, fate: Fate) {
        let bytes = value.map_or(&[][..], |value| value.bytes);
        let tail = self.tail_bytes(position);
        // First of all: what is not named by then is left out.
        self.make_room(tail + bytes.len());
        let old = self.rows[position];
        match fate {
            Fate::Older => self.keep_older(position, self.as_older(position)),
            Fate::Gone => self.dead += old.value_bytes(),
        }
        let mut row = Row::new(at, old.key_bytes(), value);
        row.starts_at(self.bytes.len());
        self.bytes.extend_from_within(old.start()..old.start() + tail);
        self.bytes.extend_from_slice(bytes);
        self.dead += tail;
        self.put_row(position, row);
    }

    /// Puts a row, whose bytes are there, in the place of the newest.
    fn put_row(&mut self, position: usize, row: Row) {
        let live = |cells: &Cells| {
            let Cell { key, newest, .. } = cells.cell(position);
            newest.map_or((0, 0), |value| (1, key.len() + value.bytes.len()))
        };
        let before = live(self);
        self.rows[position] = row;
        let after = live(self);
        self.live.cells = self.live.cells + after.0 - before.0;
        self.live.bytes = self.live.bytes + after.1 - before.1;
    }

    /// Where the value of a cell's newest version stands, without its key.
    fn as_older(&self, position: usize) -> Row {
        let mut row = self.rows[position];
        row.starts_at(row.start() + self.tail_bytes(position));
        row
    }

    /// Keeps a version, whose bytes are there, among those that are not a
    /// cell's newest.
    fn keep_older(&mut self, position: usize, version: Row) {
        self.versions += 1;
        if self.older.is_empty() {
            self.older.resize_with(self.rows.len(), ThinVec::new);
        }
        let older = &mut self.older[position];
        // Most cells that are written again have one older version and no more.
        if older.len() == older.capacity() {
            older.reserve_exact(older.len().max(1));
        }
        let place = older.partition_point(|known| known.at < version.at);
        older.insert(place, version);
    }

    /// Writes a version that is not to be a cell's newest.
    fn write_older(&mut self, position: usize, at: Timestamp, value: Option<Value<'_>>) {
        let bytes = value.map_or(&[][..], |value| value.bytes);
        self.make_room(bytes.len());
        let mut version = Row::new(at, self.rows[position].key_bytes(), value);
        version.starts_at(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.keep_older(position, version);
    }

    fn pop_older(&mut self, position: usize) -> Option<Row> {
        let version = self.older.get_mut(position)?.pop()?;
        self.versions -= 1;
        Some(version)
    }

    /// Adds a version. One of the same time takes the place of the old one: a
    /// transaction wrote the cell twice. One below the newest was prepared
    /// before its cell moved and decided after it.
    pub(crate) fn write(&mut self, position: usize, at: Timestamp, value: Option<Value<'_>>) {
        let newest = self.rows[position];
        if at < newest.at {
            return self.write_older(position, at, value);
        }
        let fate = if at == newest.at { Fate::Gone } else { Fate::Older };
        self.set(position, at, value, fate);
    }

    /// Takes away what was written after a time, at which a cell ends.
    pub(crate) fn end(&mut self, position: usize, at: Timestamp) {
        // Rare: what is written to a cell that has moved is the other node's.
        while self.rows[position].at > at {
            let (version, bytes) = match self.pop_older(position) {
                Some(version) => {
                    let start = version.start();
                    self.dead += version.value_bytes();
                    (version, self.bytes[start..start + version.value_bytes()].to_vec())
                }
                None => (Row::new(at, 0, None), Vec::new()),
            };
            self.set(position, version.at, version.form().value(&bytes), Fate::Gone);
        }
        if self.rows[position].form() != Form::Deleted {
            self.write(position, at, None);
        }
    }

    /// Takes copies of another node's cells, with all their versions, in the
    /// place of those with the same keys.
    pub(crate) fn copy(&mut self, from: &Cells, positions: Range<usize>) {
        let older = from.older.get(positions.clone()).unwrap_or_default().iter().flatten();
        let older: usize = older.map(|version| version.value_bytes()).sum();
        let bytes = positions.clone().map(|position| from.place(position).len()).sum::<usize>() + older;
        self.reserve(positions.len(), bytes);
        for cell in from.range(positions) {
            let position = match self.find(cell.key) {
                Err(position) => {
                    self.insert(position, cell.key, cell.at, cell.newest);
                    position
                }
                Ok(position) => {
                    while let Some(version) = self.pop_older(position) {
                        self.dead += version.value_bytes();
                    }
                    self.set(position, cell.at, cell.newest, Fate::Gone);
                    position
                }
            };
            for version in cell.older {
                self.write_older(position, version.at, cell.value_of(*version));
            }
        }
    }

    /// Lets go of the versions that no snapshot sees that may be read, and of cells
    /// of which nothing is left. That a cell within the fence was deleted is kept as
    /// long as there is somebody who does not see it, for he must not write it.
    /// `gone` is told the keys and values of long ones among them.
    pub(crate) fn collect(
        &mut self,
        readable: Readable,
        within: Range<usize>,
        mut gone: impl FnMut(&[u8], &[u8]),
    ) {
        let mut kept = 0;
        for position in 0..self.len() {
            self.collect_older(position, readable, &mut gone);
            let row = self.rows[position];
            let ended = if within.contains(&position) { readable.low } else { readable.next };
            let is_last = self.older.get(position).is_none_or(|older| older.is_empty());
            if row.form() == Form::Deleted && row.at <= ended && is_last {
                self.dead += self.place(position).len();
                continue;
            }
            self.heads.swap(kept, position);
            self.rows.swap(kept, position);
            if !self.older.is_empty() {
                self.older.swap(kept, position);
            }
            kept += 1;
        }
        self.heads.truncate(kept);
        self.rows.truncate(kept);
        self.older.truncate(if self.versions > 0 { kept } else { 0 });
        self.note_ends();
        self.give_back();
    }

    fn collect_older(&mut self, position: usize, readable: Readable, gone: &mut impl FnMut(&[u8], &[u8])) {
        let cell = self.cell(position);
        if cell.older.is_empty() {
            return;
        }
        let is_seen = |(at, version): (usize, &Row)| {
            let until = cell.older.get(at + 1).map_or(cell.at, |next| next.at);
            // A deletion before which nothing is left is as if it had never been.
            readable.sees(version.at, until)
                && !(version.form() == Form::Deleted && version.at <= readable.low)
        };
        let (mut dead, mut unseen) = (0, 0);
        for (at, version) in cell.older.iter().enumerate() {
            if !is_seen((at, version)) {
                unseen += 1;
                dead += version.value_bytes();
                if let Some(Value { bytes, is_large: true }) = cell.value_of(*version) {
                    gone(cell.key, bytes);
                }
            }
        }
        if unseen == 0 {
            return;
        }
        let kept: ThinVec<Row> = if unseen == cell.older.len() {
            ThinVec::new()
        } else {
            cell.older.iter().enumerate().filter(|row| is_seen(*row)).map(|(_, version)| *version).collect()
        };
        (self.versions, self.dead) = (self.versions - unseen, self.dead + dead);
        self.older[position] = kept;
    }

    /// Gives back room that nobody needs: half of what was a large node is
    /// elsewhere now.
    fn give_back(&mut self) {
        if self.older.is_empty() {
            self.older = Vec::new();
        }
        if self.rows.capacity() > self.len() + self.len() / 2 {
            self.heads.shrink_to(spare(self.len()));
            self.rows.shrink_to(spare(self.len()));
        }
        if self.dead * 4 > self.bytes.len() {
            self.leave_out_dead(0);
        }
    }

    /// Says what is wrong.
    pub(crate) fn audit(&self) -> Result<(), &'static str> {
        let keys: Vec<&[u8]> = self.iter().map(|cell| cell.key).collect();
        if !keys.is_sorted_by(|a, b| a < b) {
            return Err("its cells are out of order");
        }
        if !keys.iter().map(|key| prefix_of(key)).eq(self.heads.iter().map(|head| u64::from_be_bytes(*head)))
        {
            return Err("its heads are not those of its keys");
        }
        let (mut ends, mut live) = (self.clone(), Live::default());
        ends.note_ends();
        for Cell { key, newest, .. } in self.iter() {
            live.cells += usize::from(newest.is_some());
            live.bytes += newest.map_or(0, |value| key.len() + value.bytes.len());
        }
        if (ends.ends, live) != (self.ends, self.live) {
            return Err("its size is not that of its cells");
        }
        let named: usize = (0..self.len()).map(|position| self.place(position).len()).sum();
        let older = || self.older.iter().flatten();
        let older_bytes: usize = older().map(|version| version.value_bytes()).sum();
        if (named + older_bytes + self.dead, older().count()) != (self.bytes.len(), self.versions) {
            return Err("its memory is not that of its cells");
        }
        if !self.older.is_empty() && self.older.len() != self.len() {
            return Err("its older versions are not those of its cells");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
