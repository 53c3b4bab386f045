//! Numbers of new rows, from a counter of the table's tree at its server: concurrent inserts would
//! conflict if each took the last number plus one.
//!
//! The numbers that a process has been given form its run. As long as it is the only process that
//! inserts, new rows get SQLite's numbers, one more than the last, and numbers of deleted last rows
//! are reused.

use crate::sequence::Counter;
use rustc_hash::FxHashMap;
use std::{collections::HashMap, ops::Range};

/// Numbers taken at a time when many are needed.
const COUNT_MAX: u64 = 1024;

/// Numbers of a tree that this process alone may use.
#[derive(Debug)]
struct NumberRun {
    /// All numbers given without a gap.
    numbers: Range<i64>,
    /// Next number.
    next: i64,
    /// How many numbers to take next.
    count: u64,
    /// Whether the tree's last row must be read before the next number is chosen.
    is_suspect: bool,
    /// Open transactions that have used numbers.
    users: u32,
    /// When the last of them ended.
    ended: u64,
}

/// Runs of a process at a store, by tree.
#[derive(Debug, Default)]
pub(crate) struct RowNumbers {
    runs: FxHashMap<u64, NumberRun>,
    clock: u64,
    /// Numbers that AUTOINCREMENT's counters have given to this process and that are unused.
    spare: HashMap<Counter, Range<i64>>,
    /// Tables with AUTOINCREMENT, and whether rows with explicit numbers were written.
    sequenced: FxHashMap<u64, bool>,
    /// Counter of a table with AUTOINCREMENT, by the trees of `sqlite_sequence` and of the table,
    /// while inserts need numbers of it.
    counters: FxHashMap<(u64, u64), i64>,
}

/// How to get the number of a new row.
#[derive(Debug, PartialEq)]
pub(crate) enum NextNumber {
    /// Use this number.
    Number(i64),
    /// Take `count` numbers above `above` from the server.
    Take { count: u64, above: i64 },
    /// Read the last row of the tree first.
    Last,
}

impl RowNumbers {
    /// Returns whether the last row of a table with AUTOINCREMENT may be beyond its counter.
    pub(crate) fn is_suspect(&self, tree: u64) -> bool {
        self.sequenced.get(&tree).copied().unwrap_or(true)
    }

    /// Notes that others may use the given numbers.
    pub(crate) fn suspect_sequence(&mut self, tree: u64) {
        self.sequenced.insert(tree, true);
    }

    /// Notes that the last row was read.
    pub(crate) fn clear_suspicion(&mut self, tree: u64) {
        self.sequenced.insert(tree, false);
    }

    /// Returns the counter that the next insert is likely to use, if it is known and complete.
    pub(crate) fn likely_counter(&self, sequences: u64, tree: u64) -> Option<i64> {
        let counter = self.counters.get(&(sequences, tree)).copied();
        counter.filter(|_| !self.is_suspect(tree))
    }

    /// Notes that an insert has used a counter.
    pub(crate) fn note_counter(&mut self, (sequences, counter): Counter, tree: u64) {
        self.counters.insert((sequences, tree), counter);
    }

    /// Notes that an insert had an explicit number.
    pub(crate) fn forget_counter(&mut self, sequences: u64, tree: u64) {
        self.counters.remove(&(sequences, tree));
    }

    /// Takes the unused numbers of a counter; the caller owns them.
    pub(crate) fn take_spare(&mut self, counter: Counter) -> Option<Range<i64>> {
        self.spare.remove(&counter)
    }

    pub(crate) fn spare(&self, counter: Counter) -> Option<Range<i64>> {
        self.spare.get(&counter).cloned()
    }

    /// Returns unused numbers. Of earlier ones, only newer or adjacent numbers are kept.
    pub(crate) fn put_spare(&mut self, counter: Counter, left: Range<i64>) {
        let spare = self.spare.entry(counter).or_insert_with(|| left.clone());
        if left.start == spare.end {
            spare.end = left.end;
        } else if left.end > spare.end {
            *spare = left;
        } else if left.end == spare.start {
            spare.start = left.start;
        }
    }

    /// Returns the logical time at which a transaction begins.
    pub(crate) fn now(&self) -> u64 {
        self.clock
    }

    /// Returns how to get the next number of a tree, above `above`. `last` is the last row that the
    /// transaction sees, which began at `began`; `is_user` says whether it has used numbers before.
    pub(crate) fn next(
        &mut self,
        tree: u64,
        above: i64,
        last: Option<i64>,
        (began, is_user): (u64, bool),
    ) -> NextNumber {
        let Some(run) = self.runs.get_mut(&tree) else {
            return match last {
                // Counters begin at one. Negative numbers are rare, and may conflict.
                Some(last) if last.max(above) < 0 => NextNumber::Number(last.max(above) + 1),
                Some(last) => NextNumber::Take { count: 1, above: last.max(above) },
                None => NextNumber::Last,
            };
        };
        if run.is_suspect {
            let Some(last) = last else { return NextNumber::Last };
            if last.max(above) < 0 {
                return NextNumber::Number(last.max(above) + 1);
            }
            let wanted = last.saturating_add(1);
            // Other transactions may have used numbers in between and not written the rows yet.
            let is_alone = run.users == u32::from(is_user) && run.ended <= began;
            if wanted > run.next || (is_alone && run.numbers.contains(&wanted)) {
                run.next = wanted;
            }
            run.is_suspect = false;
        }
        run.next = run.next.max(above.saturating_add(1));
        if run.next >= run.numbers.end {
            return NextNumber::Take { count: run.count, above: run.next - 1 };
        }
        let number = run.next;
        run.next += 1;
        NextNumber::Number(number)
    }

    /// Adds numbers that the server has given. If this process is the only one, skipped numbers are
    /// its own too.
    pub(crate) fn given(&mut self, tree: u64, given: Range<i64>, is_alone: bool) {
        let run = self.runs.entry(tree).or_insert_with(|| NumberRun {
            numbers: given.clone(),
            next: given.start,
            count: 1,
            is_suspect: false,
            users: 0,
            ended: 0,
        });
        if run.numbers.end != given.start && !is_alone {
            // Numbers in between were given to others.
            run.numbers.start = given.start;
        }
        run.next = run.next.max(given.start);
        run.numbers.end = given.end;
        run.count = (run.count * 2).min(COUNT_MAX);
    }

    /// Returns an unused number.
    pub(crate) fn give_back(&mut self, tree: u64, number: i64) {
        if let Some(run) = self.runs.get_mut(&tree)
            && run.next == number + 1
            && run.numbers.contains(&number)
        {
            run.next = number;
        }
    }

    /// Notes the first use of a tree's numbers by a transaction.
    pub(crate) fn enter(&mut self, tree: u64) {
        if let Some(run) = self.runs.get_mut(&tree) {
            run.users += 1;
        }
    }

    /// Notes the end of such a transaction.
    pub(crate) fn leave(&mut self, tree: u64, is_committed: bool) {
        self.clock += 1;
        if let Some(run) = self.runs.get_mut(&tree) {
            run.users = run.users.saturating_sub(1);
            run.ended = self.clock;
            run.is_suspect |= !is_committed;
        }
    }

    /// Notes a row with an explicit number.
    pub(crate) fn wrote(&mut self, tree: u64, row: i64) {
        if let Some(is_suspect) = self.sequenced.get_mut(&tree) {
            *is_suspect = true;
        }
        if let Some(run) = self.runs.get_mut(&tree) {
            run.is_suspect |= row >= run.next;
        }
    }

    /// Notes a deleted row.
    pub(crate) fn deleted(&mut self, tree: u64, row: i64) {
        if let Some(run) = self.runs.get_mut(&tree) {
            run.is_suspect |= row >= run.next - 1;
        }
    }

    /// Notes that all rows were deleted, or some writes rolled back.
    pub(crate) fn suspect(&mut self, tree: u64) {
        if let Some(run) = self.runs.get_mut(&tree) {
            run.is_suspect = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: (u64, bool) = (0, false);

    #[test]
    fn a_single_client_counts_from_one() {
        let mut rows = RowNumbers::default();
        assert_eq!(rows.next(7, 0, None, ALONE), NextNumber::Last);
        assert_eq!(rows.next(7, 0, Some(0), ALONE), NextNumber::Take { count: 1, above: 0 });
        rows.given(7, 1..2, false);
        assert_eq!(rows.next(7, 0, None, ALONE), NextNumber::Number(1));
        assert_eq!(rows.next(7, 0, None, ALONE), NextNumber::Take { count: 2, above: 1 });
        rows.given(7, 2..4, false);
        assert_eq!(rows.next(7, 0, None, ALONE), NextNumber::Number(2));
        // All rows deleted: start from the first number.
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, None, ALONE), NextNumber::Last);
        assert_eq!(rows.next(7, 0, Some(0), ALONE), NextNumber::Number(1));
        // A row was written far above.
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, Some(100), ALONE), NextNumber::Take { count: 4, above: 100 });
    }

    #[test]
    fn after_a_negative_number_comes_its_successor() {
        let mut rows = RowNumbers::default();
        assert_eq!(rows.next(7, 0, Some(-5), ALONE), NextNumber::Take { count: 1, above: 0 });
        assert_eq!(rows.next(7, -9, Some(-5), ALONE), NextNumber::Number(-4));
        assert_eq!(rows.next(7, i64::MIN, Some(-1), ALONE), NextNumber::Number(0));
    }

    #[test]
    fn unused_numbers_are_reused() {
        let mut rows = RowNumbers::default();
        rows.given(7, 1..9, false);
        assert_eq!(rows.next(7, 0, None, ALONE), NextNumber::Number(1));
        rows.give_back(7, 1);
        assert_eq!(rows.next(7, 0, None, ALONE), NextNumber::Number(1));
        assert_eq!(rows.next(7, 0, None, ALONE), NextNumber::Number(2));
        rows.give_back(7, 1);
        assert_eq!(rows.next(7, 0, None, ALONE), NextNumber::Number(3));
    }

    #[test]
    fn numbers_that_may_be_used_are_not_reused() {
        let mut rows = RowNumbers::default();
        rows.given(7, 1..9, false);
        assert_eq!(rows.next(7, 0, None, ALONE), NextNumber::Number(1));
        rows.enter(7);
        // Another transaction sees no row yet, and must not get the same number.
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, Some(0), ALONE), NextNumber::Number(2));
        let began = rows.now();
        rows.leave(7, true);
        // Nor may one that began before the commit.
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, Some(0), (began, false)), NextNumber::Number(3));
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, Some(1), (rows.now(), false)), NextNumber::Number(2));
        // Others were given 9 to 19, and possibly use what is before.
        rows.given(7, 20..30, false);
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, Some(3), (rows.now(), false)), NextNumber::Number(20));
    }
}
