//! The cells of a node, by key.

use crate::cell::{Cell, ValueForm, VersionRef, VersionValue};
use crate::snapshots::Readable;
use std::ops::Range;
use thin_vec::ThinVec;
use yesquel_model::{KeyRange, Timestamp, prefix_of};

/// Bytes of a key in its head.
const HEAD: usize = 8;
/// Marks a longer key, which is stored before its value, with its length.
const LONG: u8 = HEAD as u8 + 1;
/// Bytes of that length.
const LENGTH: usize = 4;

/// While older versions are kept, bytes grow by at least one part in so many.
const REWRITES_AHEAD: usize = 8;

/// Number of cells that are not deleted, and the bytes of their keys and newest values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LiveCells {
    pub(crate) cells: usize,
    pub(crate) bytes: usize,
}

/// What happens to the newest version when a newer one is written.
#[derive(Debug, Clone, Copy)]
enum VersionFate {
    /// Older snapshots may still see it.
    Older,
    Gone,
}

/// Cells in key order, each key once.
///
/// A node's cells take four allocations: the heads of the keys (their first eight bytes), rows that
/// locate the rest, the bytes of longer keys and of values, and, while there are any, rows of older
/// versions. With 8 bytes of key and 100 of value a cell takes 8, 16 and 100 bytes.
///
/// *Searches.* The heads of 128 cells fill 16 cache lines. A search starts where the key would be
/// if keys were evenly spread, as numbers usually are, and reads one or two lines; at worst six.
///
/// *Bytes.* A value is appended after all others and stays in place, also when a newer one follows.
/// Unreferenced bytes are compacted once they make up a quarter.
#[derive(Debug, Default)]
pub(crate) struct NodeCells {
    /// The prefixes of the first and the last cell, next to what else a search reads.
    ends: (u64, u64),
    heads: Vec<[u8; HEAD]>,
    rows: Vec<VersionRef>,
    bytes: Vec<u8>,
    /// Unreferenced bytes.
    dead: usize,
    /// Older versions of each cell, the oldest first; empty if no cell has any.
    older: Vec<ThinVec<VersionRef>>,
    /// Number of older versions.
    versions: usize,
    live: LiveCells,
}

impl Clone for NodeCells {
    fn clone(&self) -> NodeCells {
        // A node that is copied is about to change, and usually grows.
        let mut copy = NodeCells {
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

/// Spare capacity for a length. Not doubled, since there are many nodes; of few sizes, so that a
/// growing node can reuse what another one has freed.
fn spare(length: usize) -> usize {
    let step = (length.next_power_of_two() / 16).max(4);
    (length + step / 2).next_multiple_of(step)
}

impl NodeCells {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Counts the cells that are not deleted.
    pub(crate) fn live(&self) -> LiveCells {
        self.live
    }

    /// Bytes of memory, without spare capacity.
    pub(crate) fn memory(&self) -> usize {
        let rows = (self.len() + self.versions) * size_of::<VersionRef>();
        let places = self.len() * HEAD + self.older.len() * size_of::<ThinVec<VersionRef>>();
        places + rows + self.bytes.len()
    }

    /// Whether a rising low-water mark can free something.
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

    /// Returns a cell.
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

    /// Iterates over cells by position.
    pub(crate) fn range(&self, positions: Range<usize>) -> impl DoubleEndedIterator<Item = Cell<'_>> {
        positions.map(|position| self.cell(position))
    }

    /// Iterates over all cells.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Cell<'_>> {
        self.range(0..self.len())
    }

    /// Position of a key, or where to insert it.
    pub(crate) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = prefix_of(key);
        self.find_from(self.guess(prefix), prefix, key)
    }

    /// Like [`find`](Self::find), starting at a guess.
    fn find_from(&self, guess: usize, prefix: u64, key: &[u8]) -> Result<usize, usize> {
        let first = self.first_from(guess, prefix);
        // Usually there is exactly one cell with this prefix.
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

    /// The cell of a key. Its row is fetched from memory together with the heads around it, not
    /// after them.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Cell<'_>> {
        let prefix = prefix_of(key);
        let guess = self.guess(prefix);
        if let Some(near) = self.rows.get(guess) {
            std::hint::black_box(near.at);
        }
        self.find_from(guess, prefix, key).ok().map(|position| self.cell(position))
    }

    /// Position of a prefix if they were evenly spread.
    fn guess(&self, prefix: u64) -> usize {
        let (first, last) = self.ends;
        let place = prefix.saturating_sub(first) as f64 / (last - first).max(1) as f64;
        (place * self.len().saturating_sub(1) as f64) as usize
    }

    /// Number of cells with a lower prefix, searched from a guess.
    fn first_from(&self, guess: usize, prefix: u64) -> usize {
        let (first, last) = self.ends;
        if self.is_empty() || prefix <= first {
            return 0;
        }
        // Growing keys go to the end.
        if last < prefix {
            return self.len();
        }
        // Gallops from the guess in doubling steps: everything below `low` is lower, and nothing
        // from `high` on is.
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

    /// Reserves space for more cells and their bytes.
    fn reserve(&mut self, cells: usize, bytes: usize) {
        self.heads.reserve_exact(cells);
        self.rows.reserve_exact(cells);
        self.bytes.reserve_exact(bytes);
    }

    /// Reserves space for the bytes of one more value. To grow copies all bytes, so that a node whose
    /// cells are written again, and whose bytes grow with each write until the next collection, grows
    /// in larger steps.
    fn make_room(&mut self, more: usize) {
        let length = self.bytes.len();
        if length + more <= self.bytes.capacity() {
            return;
        }
        if self.dead * 4 > length {
            self.leave_out_dead(more);
        } else {
            let ahead = if self.versions > 0 { length / REWRITES_AHEAD } else { 0 };
            self.bytes.reserve_exact(spare(length + more.max(ahead)) - length);
        }
    }

    /// Drops all unreferenced bytes.
    pub(crate) fn tighten(&mut self) {
        if self.dead > 0 {
            self.leave_out_dead(0);
        }
    }

    /// Drops unreferenced bytes and reserves space for more.
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

    fn add_live(&mut self, key_bytes: usize, value: Option<VersionValue<'_>>) {
        if let Some(value) = value {
            self.live.cells += 1;
            self.live.bytes += key_bytes + value.bytes.len();
        }
    }

    /// Inserts a cell at the position that [`find`](Self::find) returned.
    pub(crate) fn insert(
        &mut self,
        position: usize,
        key: &[u8],
        at: Timestamp,
        value: Option<VersionValue<'_>>,
    ) {
        if self.len() == self.rows.capacity() {
            self.reserve(spare(self.len() + 1) - self.len(), 0);
        }
        let bytes = value.map_or(&[][..], |value| value.bytes);
        let is_long = key.len() > HEAD;
        self.make_room(if is_long { LENGTH + key.len() } else { 0 } + bytes.len());
        let what = if is_long { LONG } else { key.len() as u8 };
        let mut row = VersionRef::new(at, what, value);
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

    /// Replaces the newest version of a cell.
    fn set(&mut self, position: usize, at: Timestamp, value: Option<VersionValue<'_>>, fate: VersionFate) {
        let bytes = value.map_or(&[][..], |value| value.bytes);
        let tail = self.tail_bytes(position);
        // First: bytes that are unreferenced by then are dropped.
        self.make_room(tail + bytes.len());
        let old = self.rows[position];
        match fate {
            VersionFate::Older => self.keep_older(position, self.as_older(position)),
            VersionFate::Gone => self.dead += old.value_bytes(),
        }
        let mut row = VersionRef::new(at, old.key_bytes(), value);
        row.starts_at(self.bytes.len());
        self.bytes.extend_from_within(old.start()..old.start() + tail);
        self.bytes.extend_from_slice(bytes);
        self.dead += tail;
        self.put_row(position, row);
    }

    /// Stores a row as the newest version; its bytes are in place.
    fn put_row(&mut self, position: usize, row: VersionRef) {
        let live = |cells: &NodeCells| {
            let Cell { key, newest, .. } = cells.cell(position);
            newest.map_or((0, 0), |value| (1, key.len() + value.bytes.len()))
        };
        let before = live(self);
        self.rows[position] = row;
        let after = live(self);
        self.live.cells = self.live.cells + after.0 - before.0;
        self.live.bytes = self.live.bytes + after.1 - before.1;
    }

    /// The newest version of a cell as an older one: without the key.
    fn as_older(&self, position: usize) -> VersionRef {
        let mut row = self.rows[position];
        row.starts_at(row.start() + self.tail_bytes(position));
        row
    }

    /// Adds a version to the older ones of a cell; its bytes are in place.
    fn keep_older(&mut self, position: usize, version: VersionRef) {
        self.versions += 1;
        if self.older.is_empty() {
            self.older.resize_with(self.rows.len(), ThinVec::new);
        }
        let older = &mut self.older[position];
        // Most cells that are written again have one older version.
        if older.len() == older.capacity() {
            older.reserve_exact(older.len().max(1));
        }
        let place = older.partition_point(|known| known.at < version.at);
        older.insert(place, version);
    }

    /// Writes an older version of a cell, replacing one of the same time.
    fn write_older(&mut self, position: usize, at: Timestamp, value: Option<VersionValue<'_>>) {
        if let Some(older) = self.older.get_mut(position)
            && let Ok(same) = older.binary_search_by_key(&at, |version| version.at)
        {
            self.dead += older.remove(same).value_bytes();
            self.versions -= 1;
        }
        let bytes = value.map_or(&[][..], |value| value.bytes);
        self.make_room(bytes.len());
        let mut version = VersionRef::new(at, self.rows[position].key_bytes(), value);
        version.starts_at(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.keep_older(position, version);
    }

    fn pop_older(&mut self, position: usize) -> Option<VersionRef> {
        let version = self.older.get_mut(position)?.pop()?;
        self.versions -= 1;
        Some(version)
    }

    /// Adds a version. A version of the same time is replaced: a transaction wrote the cell twice.
    /// A version below the newest was prepared before its cell moved and decided after it.
    pub(crate) fn write(&mut self, position: usize, at: Timestamp, value: Option<VersionValue<'_>>) {
        let newest = self.rows[position];
        if at < newest.at {
            return self.write_older(position, at, value);
        }
        let fate = if at == newest.at { VersionFate::Gone } else { VersionFate::Older };
        self.set(position, at, value, fate);
    }

    /// Removes the versions after a time at which a cell ends.
    pub(crate) fn end(&mut self, position: usize, at: Timestamp) {
        // Rare: writes to a moved cell go to the other node.
        while self.rows[position].at > at {
            let (version, bytes) = match self.pop_older(position) {
                Some(version) => {
                    let start = version.start();
                    self.dead += version.value_bytes();
                    (version, self.bytes[start..start + version.value_bytes()].to_vec())
                }
                None => (VersionRef::new(at, 0, None), Vec::new()),
            };
            self.set(position, version.at, version.form().value(&bytes), VersionFate::Gone);
        }
        if self.rows[position].form() != ValueForm::Deleted {
            self.write(position, at, None);
        }
    }

    /// Copies another node's cells with all their versions, replacing cells with the same keys.
    pub(crate) fn copy(&mut self, from: &NodeCells, positions: Range<usize>) {
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
                    self.set(position, cell.at, cell.newest, VersionFate::Gone);
                    position
                }
            };
            for version in cell.older {
                self.write_older(position, version.at, cell.value_of(*version));
            }
        }
    }

    /// Removes cells whose keys have moved away, with all their versions.
    pub(crate) fn remove_copies(&mut self, is_copy: impl Fn(&[u8]) -> bool) {
        self.retain(|cells, position| {
            let cell = cells.cell(position);
            if !is_copy(cell.key) {
                return true;
            }
            let older: usize = cell.older.iter().map(|version| version.value_bytes()).sum();
            let (count, live) = (cell.older.len(), cell.newest.map(|value| value.bytes.len()));
            let key_bytes = cell.key.len();
            cells.dead += older;
            cells.versions -= count;
            if let Some(bytes) = live {
                cells.live.cells -= 1;
                cells.live.bytes -= key_bytes + bytes;
            }
            false
        });
    }

    /// Keeps the cells that a predicate chooses. The others have no older versions by then.
    fn retain(&mut self, mut is_kept: impl FnMut(&mut NodeCells, usize) -> bool) {
        let mut kept = 0;
        for position in 0..self.len() {
            if !is_kept(self, position) {
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

    /// Collects the versions that no readable snapshot sees, and cells without versions. Passes the
    /// keys and values of long values to `gone`.
    pub(crate) fn collect(
        &mut self,
        readable: Readable,
        within: Range<usize>,
        mut gone: impl FnMut(&[u8], &[u8]),
    ) {
        self.retain(|cells, position| {
            cells.collect_older(position, readable, &mut gone);
            cells.cell(position).is_left(readable, within.contains(&position))
        });
    }

    fn collect_older(&mut self, position: usize, readable: Readable, gone: &mut impl FnMut(&[u8], &[u8])) {
        let cell = self.cell(position);
        if cell.older.is_empty() {
            return;
        }
        let unseen = cell.older.len() - cell.older_seen(readable).count();
        if unseen == 0 {
            return;
        }
        let kept: ThinVec<VersionRef> = cell.older_seen(readable).collect();
        let (mut dead, mut left) = (0, kept.iter().peekable());
        for version in cell.older {
            if left.next_if(|next| next.at == version.at).is_some() {
                continue;
            }
            dead += version.value_bytes();
            if let Some(VersionValue { bytes, is_large: true }) = cell.value_of(*version) {
                gone(cell.key, bytes);
            }
        }
        (self.versions, self.dead) = (self.versions - unseen, self.dead + dead);
        self.older[position] = kept;
    }

    /// Returns unused memory: half of what was a large node is elsewhere now.
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
        } else if self.versions == 0 {
            self.bytes.shrink_to(spare(self.bytes.len()));
        }
    }

    /// Checks the invariants.
    pub(crate) fn audit(&self) -> Result<(), &'static str> {
        let keys: Vec<&[u8]> = self.iter().map(|cell| cell.key).collect();
        if !keys.is_sorted_by(|a, b| a < b) {
            return Err("its cells are out of order");
        }
        if !keys.iter().map(|key| prefix_of(key)).eq(self.heads.iter().map(|head| u64::from_be_bytes(*head)))
        {
            return Err("its heads are not those of its keys");
        }
        let (mut ends, mut live) = (self.clone(), LiveCells::default());
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
