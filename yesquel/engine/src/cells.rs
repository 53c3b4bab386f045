//! The cells of a node, by key.

use crate::cell::Cell;
use std::ops::{Deref, Range};
use yesquel_model::{KeyRange, prefix_of};

/// Cells in the order of their keys, each key once.
///
/// The prefixes of the keys stand side by side: those of 128 cells in 16 lines
/// of a processor's cache. A search begins where the key would be if keys were
/// spread evenly, as numbers mostly are, and reads one or two of them; at worst
/// six. Then comes the one cell that it is for.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// Those of the first cell and the last, beside what else of a node a
    /// search reads.
    ends: (u64, u64),
    /// That of each cell.
    prefixes: Vec<u64>,
    cells: Vec<Cell>,
}

impl Clone for Cells {
    fn clone(&self) -> Cells {
        // Whoever is copied is about to change, and mostly grows.
        let mut copy = Cells::default();
        copy.reserve(self.len() + 1);
        copy.ends = self.ends;
        copy.prefixes.extend_from_slice(&self.prefixes);
        copy.cells.extend_from_slice(&self.cells);
        copy
    }
}

impl Deref for Cells {
    type Target = [Cell];

    fn deref(&self) -> &[Cell] {
        &self.cells
    }
}

impl Cells {
    /// Where a key stands, or would.
    pub(crate) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = prefix_of(key);
        let first = self.first_from(prefix);
        let same = self.prefixes[first..].iter().take_while(|own| **own == prefix);
        match self.cells[first..first + same.count()].binary_search_by(|cell| cell.key().cmp(key)) {
            Ok(position) => Ok(first + position),
            Err(position) => Err(first + position),
        }
    }

    /// How many cells have a lower prefix.
    fn first_from(&self, prefix: u64) -> usize {
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
        let place = (prefix - first) as f64 / (last - first) as f64;
        let guess = (place * (self.len() - 1) as f64) as usize;
        let (mut high, mut step) = (self.len(), 2);
        let is_lower = |at: usize| self.prefixes.get(at).is_some_and(|own| *own < prefix);
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
        low + self.prefixes[low..high].partition_point(|own| *own < prefix)
    }

    /// The ends are not what they were.
    fn note_ends(&mut self) {
        let ends = self.prefixes.first().zip(self.prefixes.last());
        self.ends = ends.map_or((0, 0), |(first, last)| (*first, *last));
    }

    /// The cells with keys in a range.
    pub(crate) fn covered(&self, range: &KeyRange) -> Range<usize> {
        let position = |key: &[u8]| self.find(key).unwrap_or_else(|position| position);
        let low = position(&range.low);
        let high = range.high.as_deref().map_or(self.len(), position);
        low..high.max(low)
    }

    /// Puts a cell where [`find`](Self::find) says that it is missing.
    pub(crate) fn insert(&mut self, position: usize, cell: Cell) {
        // Not by doubling: a node has few cells, and there are many nodes.
        if self.len() == self.cells.capacity() {
            self.reserve((self.len() / 8).max(4));
        }
        let prefix = cell.prefix();
        self.prefixes.insert(position, prefix);
        if position == 0 {
            self.ends.0 = prefix;
        }
        if position == self.cells.len() {
            self.ends.1 = prefix;
        }
        self.cells.insert(position, cell);
    }

    /// Room for so many more, and no further ones.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.prefixes.reserve_exact(more);
        self.cells.reserve_exact(more);
    }

    /// Puts a cell in the place of the one with its key.
    pub(crate) fn replace(&mut self, position: usize, cell: Cell) -> Cell {
        std::mem::replace(&mut self.cells[position], cell)
    }

    /// Changes a cell, whose key stays.
    pub(crate) fn change<T>(&mut self, position: usize, change: impl FnOnce(&mut Cell) -> T) -> T {
        change(&mut self.cells[position])
    }

    /// Changes each cell and keeps those for which it says so.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut Cell) -> bool) {
        let before = self.len();
        self.cells.retain_mut(&mut keep);
        if self.len() == before {
            return;
        }
        self.prefixes.clear();
        self.prefixes.extend(self.cells.iter().map(Cell::prefix));
        self.note_ends();
        // Half of what was a large node is elsewhere now.
        if self.cells.capacity() > self.len() + self.len() / 2 {
            let spare = self.len() / 8;
            self.prefixes.shrink_to(self.len() + spare);
            self.cells.shrink_to(self.len() + spare);
        }
    }

    /// Whether they are in order, and the prefixes theirs.
    pub(crate) fn is_in_order(&self) -> bool {
        self.cells.is_sorted_by(|a, b| a.key() < b.key())
            && self.prefixes.iter().copied().eq(self.cells.iter().map(Cell::prefix))
            && self.prefixes.first().is_none_or(|first| *first == self.ends.0)
            && self.prefixes.last().is_none_or(|last| *last == self.ends.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Value;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use yesquel_model::Timestamp;

    /// Keys that share their first bytes, or all of them but the length.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0..3u8, 0..12)
    }

    proptest! {
        /// Numbers of any spread: even, in heaps, far apart.
        #[test]
        fn a_search_ends_where_the_key_is(
            numbers in prop::collection::vec((any::<u64>(), 0..64u32), 1..200),
            goals in prop::collection::vec((any::<u64>(), 0..64u32), 1..50),
        ) {
            let number = |(number, shift): (u64, u32)| number >> shift;
            let mut sorted: Vec<u64> = numbers.into_iter().map(number).collect();
            sorted.sort_unstable();
            sorted.dedup();
            let mut cells = Cells::default();
            for number in &sorted {
                let cell = Cell::new(&number.to_be_bytes(), Timestamp(1), None);
                cells.insert(cells.len(), cell);
            }
            for goal in goals.into_iter().map(number).chain(sorted.iter().copied()) {
                prop_assert_eq!(cells.find(&goal.to_be_bytes()), sorted.binary_search(&goal));
            }
        }

        /// Against a map: searches, insertions, and cells that go.
        #[test]
        fn cells_are_found_where_they_are(
            keys in prop::collection::vec(key(), 1..80),
            goals in prop::collection::vec(key(), 1..20),
            ends in (key(), key()),
            gone in 1..4u8,
        ) {
            let (mut cells, mut model) = (Cells::default(), BTreeMap::new());
            for (number, key) in keys.iter().enumerate() {
                let at = Timestamp(number as u64);
                let cell = Cell::new(key, at, Some(Value::whole(b"v")));
                match cells.find(key) {
                    Ok(position) => drop(cells.replace(position, cell)),
                    Err(position) => cells.insert(position, cell),
                }
                model.insert(key.clone(), at);
            }
            let is_gone = |key: &[u8]| key.first().is_some_and(|first| *first < gone);
            cells.retain(|cell| !is_gone(cell.key()));
            model.retain(|key, _| !is_gone(key));
            prop_assert!(cells.is_in_order());
            let all: Vec<_> = cells.iter().map(|cell| (cell.key().to_vec(), cell.at())).collect();
            prop_assert_eq!(&all, &model.clone().into_iter().collect::<Vec<_>>());
            for goal in goals {
                let before = model.range(..goal.clone()).count();
                let expected = if model.contains_key(&goal) { Ok(before) } else { Err(before) };
                prop_assert_eq!(cells.find(&goal), expected);
            }
            let range = KeyRange::new(ends.0, ends.1);
            let covered: Vec<_> = cells[cells.covered(&range)].iter().map(|cell| cell.key().to_vec()).collect();
            let expected: Vec<_> = model.keys().filter(|key| range.contains(key)).cloned().collect();
            prop_assert_eq!(covered, expected);
        }
    }

    #[test]
    fn room_is_near_what_is_there() {
        let mut cells = Cells::default();
        for number in 0..1_000u64 {
            let key = number.to_be_bytes();
            cells.insert(cells.len(), Cell::new(&key, Timestamp(1), None));
            assert!(cells.cells.capacity() <= cells.len() + cells.len() / 8 + 4);
        }
        cells.retain(|cell| cell.prefix() >= 500);
        assert!(cells.cells.capacity() <= 500 + 500 / 8);
        assert!(cells.prefixes.capacity() <= 500 + 500 / 8);
        assert_eq!(cells.find(&700u64.to_be_bytes()), Ok(200));
    }
}
