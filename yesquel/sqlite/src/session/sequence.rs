//! Numbers of AUTOINCREMENT, in a transaction.

use super::SqlSession;
use crate::{
    code::ResultCode,
    key::{of_row, row_of},
    sequence::{
        Counter, ExpectedNumber, ExplicitNumber, NumbersRequest, SequenceEntry, SequenceRow, TakenNumbers,
        fresh_counter, signed,
    },
};
use std::ops::Range;
use yesquel::{Error, Map};

/// Maximum of numbers taken at a time, for a transaction with many rows.
const COUNT_MAX: u64 = 64;

impl SqlSession {
    /// Returns the number of a new row of a table.
    pub(crate) fn new_sequence(
        &mut self,
        map: Map,
        sequences: Map,
        SequenceRow { row, mut above, name }: SequenceRow<'_>,
    ) -> Result<i64, ResultCode> {
        self.shared.check_process()?;
        let stored = match row {
            Some(row) => self.with(|transaction| transaction.get(sequences, &of_row(row)))?,
            None => None,
        };
        let mut counter = stored.as_deref().and_then(SequenceEntry::of).and_then(|row| row.counter);
        let is_suspect = self.shared.rows().is_suspect(map.tree());
        if counter.is_none() {
            let name = name.ok_or(ResultCode::NOTFOUND)?;
            counter = self.drawn.get(&(sequences.tree(), name.into())).copied();
        }
        let counter = match counter {
            Some(counter) if !is_suspect => counter,
            found => {
                // Rows may be beyond what the `sqlite_sequence` row says.
                let mut cursor = self.cursor(map)?;
                let last = self.with(|transaction| {
                    cursor.limit(1);
                    cursor.last(transaction)
                })?;
                above = above.max(last.and_then(|(key, _)| row_of(&key)).unwrap_or(0));
                self.shared.rows().clear_suspicion(map.tree());
                found.unwrap_or_else(|| {
                    let counter = fresh_counter(self.database().store());
                    self.drawn.insert((sequences.tree(), name.unwrap_or_default().into()), counter);
                    counter
                })
            }
        };
        self.next_of((sequences, counter), map.tree(), above.max(0))
    }

    /// Returns the largest explicit number for a counter.
    fn chosen(&self, sequences: Map, counter: i64) -> Option<i64> {
        let own = |chosen: &&ExplicitNumber| chosen.sequences == sequences && chosen.counter == counter;
        self.chosen.iter().filter(own).map(|chosen| chosen.last).max()
    }

    /// Records an explicit number.
    fn chooses(&mut self, sequences: Map, counter: i64, last: i64) {
        if self.chosen(sequences, counter).is_none_or(|before| before < last) {
            let depth = self.savepoints();
            // An earlier one since the same savepoint is superseded.
            self.chosen.retain(|chosen| {
                chosen.sequences != sequences || chosen.counter != counter || chosen.depth < depth
            });
            self.chosen.push(ExplicitNumber { sequences, counter, last, depth });
        }
    }

    /// Drops the explicit numbers that a rollback undoes, or merges those of released savepoints.
    pub(crate) fn chosen_until(&mut self, is_rollback: bool, number: Option<usize>) {
        let depth = number.unwrap_or(0);
        if is_rollback {
            self.chosen.retain(|chosen| number.is_some() && chosen.depth <= depth);
        } else {
            self.chosen.iter_mut().for_each(|chosen| chosen.depth = chosen.depth.min(depth));
        }
    }

    /// Reports the explicit numbers to their counters.
    pub(crate) fn report_explicit_numbers(&mut self) -> Result<(), ResultCode> {
        while let Some(ExplicitNumber { sequences, counter, last, .. }) = self.chosen.pop() {
            self.take(sequences, counter, (0, last))?;
        }
        Ok(())
    }

    /// Returns the next number of a counter, above `above`.
    fn next_of(
        &mut self,
        (sequences, counter): (Map, i64),
        tree: u64,
        above: i64,
    ) -> Result<i64, ResultCode> {
        let above = above.max(self.chosen(sequences, counter).unwrap_or(0));
        let wanted = above.checked_add(1).ok_or(ResultCode::FULL)?;
        let named = (sequences.tree(), counter);
        let place = self.given.iter().position(|given| given.counter == named);
        let mut asked = 0;
        if let Some(given) = place.and_then(|place| self.given.get_mut(place)) {
            let next = given.next.max(wanted);
            if next < given.all.end {
                given.next = next + 1;
                return Ok(next);
            }
            asked = given.asked;
        }
        // A fraction of what it has taken so far.
        let count = (asked / 8).clamp(1, COUNT_MAX);
        let asked = asked + count;
        let taken = match self.expected(named, wanted) {
            Some(taken) => taken,
            None => self.take(sequences, counter, (count, above))?,
        };
        let mut all = taken.clone();
        // Unused numbers of earlier transactions, if no other process took any since.
        let spare = self.shared.rows().take_spare(named);
        if let Some(spare) = spare.filter(|spare| spare.end == taken.start && place.is_none()) {
            all.start = spare.start;
        }
        let next = all.start.max(wanted);
        let given = TakenNumbers { counter: named, tree, all, next: next + 1, asked };
        self.shared.rows().note_counter(named, tree);
        match place.and_then(|place| self.given.get_mut(place)) {
            // A gap: the numbers before it are not used.
            Some(before) if before.all.end != taken.start => *before = given,
            Some(before) => {
                (before.all.end, before.next, before.asked) = (taken.end, next + 1, asked);
            }
            None => self.given.push(given),
        }
        Ok(next)
    }

    fn take(&mut self, map: Map, counter: i64, (count, above): (u64, i64)) -> Result<Range<i64>, ResultCode> {
        let _waits = self.waits();
        let given = self.database().numbers(map, counter.unsigned_abs(), count, above.unsigned_abs());
        signed(&given.map_err(|error| self.code_of(&error))?)
    }

    /// Prefetches a number together with the row of `sqlite_sequence`, which is read next, if a new
    /// row of the table probably needs one.
    pub(crate) fn expect_sequence(&mut self, sequences: Map, tree: u64) {
        if self.expected.is_some() || self.shared.is_of_parent() {
            return;
        }
        let Some(counter) = self.shared.rows().likely_counter(sequences.tree(), tree) else { return };
        let counter = (sequences.tree(), counter);
        if self.given.iter().any(|given| given.counter == counter) {
            return;
        }
        // May take a lease, which comes first.
        self.begun();
        let _waits = self.waits();
        let asking = NumbersRequest::try_new(self.database().clone(), |database| {
            database.numbers_unordered(sequences, counter.1.unsigned_abs(), 1, 0).map(Some)
        });
        // On an error the later request reports it.
        let asking: Result<_, Error> = asking;
        self.expected = asking.ok().map(|asking| ExpectedNumber { counter, tree, asking });
    }

    /// Takes the prefetched number, if it belongs to this counter and is above `wanted`.
    fn expected(&mut self, counter: Counter, wanted: i64) -> Option<Range<i64>> {
        let expected = self.expected.take_if(|expected| expected.counter == counter)?;
        let _waits = self.waits();
        expected.wait().ok().filter(|taken| taken.start >= wanted)
    }

    /// Notes that a statement has inserted rows up to the number in the record. Returns whether the
    /// `sqlite_sequence` row is new.
    pub(crate) fn put_sequence(
        &mut self,
        (map, cookies): (Map, Map),
        row: i64,
        record: &[u8],
    ) -> Result<bool, ResultCode> {
        let Some(new) = SequenceEntry::of(record) else { return Err(ResultCode::CORRUPT) };
        let stored = self.with(|transaction| transaction.get(map, &of_row(row)))?;
        let named = stored.as_deref().and_then(SequenceEntry::of).and_then(|row| row.counter);
        let drawn = || self.drawn.get(&(map.tree(), new.text().into())).copied();
        let counter = named.or_else(drawn).unwrap_or_else(|| fresh_counter(self.database().store()));
        if new.last == i64::MAX {
            // A counter cannot pass the largest number; the row records that none is left.
            let record =
                SequenceEntry { counter: Some(counter), ..new }.encode().unwrap_or_else(|| record.to_vec());
            self.write(cookies, |transaction| transaction.put(map, &of_row(row), &record))?;
            return Ok(stored.is_none());
        }
        // An explicit number.
        let given = self.given.iter().find(|given| given.counter == (map.tree(), counter));
        if given.is_none_or(|given| given.all.end <= new.last) && new.last > 0 {
            self.chooses(map, counter, new.last);
        }
        if named.is_none() {
            let new = SequenceEntry { counter: Some(counter), ..new };
            let record = new.encode().unwrap_or_else(|| record.to_vec());
            self.write(cookies, |transaction| transaction.put(map, &of_row(row), &record))?;
        }
        Ok(stored.is_none())
    }

    /// Returns a row of `sqlite_sequence` with the position of its counter, if that differs from
    /// the stored value.
    pub(crate) fn shown_sequence(&mut self, map: Map, record: &[u8]) -> Result<Option<Vec<u8>>, ResultCode> {
        let Some((row, counter)) = SequenceEntry::of(record).and_then(|row| Some((row, row.counter?))) else {
            return Ok(None);
        };
        let next = self.take(map, counter, (0, 0))?.start;
        // Numbers taken and unused are not visible to others.
        let named = (map.tree(), counter);
        let own = self.given.iter().find(|given| given.counter == named && given.all.end == next);
        let spare = self.shared.rows().spare(named).filter(|spare| spare.end == next);
        let next = own.map_or(spare.map_or(next, |spare| spare.start), |given| given.next);
        let next = next.max(self.chosen(map, named.1).map_or(0, |last| last.saturating_add(1)));
        Ok(SequenceEntry { last: row.last.max(next - 1), counter: None, ..row }.encode())
    }

    /// Notes the end of the transaction.
    pub(crate) fn end_sequences(&mut self, is_committed: bool) {
        self.drawn.clear();
        self.chosen.clear();
        if let Some(expected) = self.expected.take() {
            // The rows had explicit numbers, or there were none.
            let (counter, tree) = (expected.counter, expected.tree);
            let taken = {
                let _waits = self.waits();
                expected.wait()
            };
            let mut rows = self.shared.rows();
            rows.forget_counter(counter.0, tree);
            if let Ok(taken) = taken {
                rows.put_spare(counter, taken);
            }
        }
        if self.given.is_empty() {
            return;
        }
        let mut rows = self.shared.rows();
        for TakenNumbers { counter, tree, all, next, .. } in self.given.drain(..) {
            if !is_committed {
                // Possibly only because of an explicit number.
                rows.suspect_sequence(tree);
            }
            let left = if is_committed { next..all.end } else { all };
            if !left.is_empty() {
                rows.put_spare(counter, left);
            }
        }
    }
}
