//! Numbers of new rows: from a counter of the table's tree at its server, so
//! that those who insert at the same time do not meet at the last one and one
//! more.
//!
//! What a process was given is its run. As long as the process is the only one
//! that inserts, the number of a new row is what SQLite makes it, one more than
//! the last, and numbers of rows that are gone are given out again.

use crate::sequence::Counter;
use rustc_hash::FxHashMap;
use std::{collections::HashMap, ops::Range};

/// Numbers that are asked for at a time, once it is clear that many are wanted.
const COUNT_MAX: u64 = 1024;

/// Numbers of a tree that nobody outside this process is given.
#[derive(Debug)]
struct Run {
    /// From the first one that was given without a gap.
    numbers: Range<i64>,
    /// The next that is given out.
    next: i64,
    /// How many are asked for next.
    count: u64,
    /// What stands last in the tree may not be what the next one is above.
    is_suspect: bool,
    /// Transactions that have got some and are under way.
    users: u32,
    /// When the last of them ended.
    ended: u64,
}

/// All runs of a process at a store, by tree.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    runs: FxHashMap<u64, Run>,
    clock: u64,
    /// Numbers of AUTOINCREMENT's counters that this process was given last and
    /// has not used.
    spare: HashMap<Counter, Range<i64>>,
    /// Tables with AUTOINCREMENT, and whether rows were written there by numbers
    /// of their own.
    sequenced: FxHashMap<u64, bool>,
    /// The counter of a table with AUTOINCREMENT, by the trees of `sqlite_sequence`
    /// and of the table, while inserts want numbers of it.
    counters: FxHashMap<(u64, u64), i64>,
}

/// What is to be done for the number of a row.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// This is it.
    Number(i64),
    /// The server is to be asked for so many above this one.
    Take { count: u64, above: i64 },
    /// The last one of the tree must be known.
    Last,
}

impl Rows {
    /// Whether what stands last in a table with AUTOINCREMENT may be beyond what
    /// its counter knows of.
    pub(crate) fn is_suspect(&self, tree: u64) -> bool {
        self.sequenced.get(&tree).copied().unwrap_or(true)
    }

    /// What was given may be taken by others.
    pub(crate) fn suspect_sequence(&mut self, tree: u64) {
        self.sequenced.insert(tree, true);
    }

    /// It was looked at.
    pub(crate) fn is_looked_at(&mut self, tree: u64) {
        self.sequenced.insert(tree, false);
    }

    /// The counter by which the next insert into a table is likely to get its
    /// number, if it is known, and is known to know all numbers.
    pub(crate) fn likely_counter(&self, sequences: u64, tree: u64) -> Option<i64> {
        let counter = self.counters.get(&(sequences, tree)).copied();
        counter.filter(|_| !self.is_suspect(tree))
    }

    /// An insert has got its number by it.
    pub(crate) fn counts_by(&mut self, (sequences, counter): Counter, tree: u64) {
        self.counters.insert((sequences, tree), counter);
    }

    /// One had a number of its own.
    pub(crate) fn counts_no_more(&mut self, sequences: u64, tree: u64) {
        self.counters.remove(&(sequences, tree));
    }

    /// Numbers that are left of a counter's; who takes them has them alone.
    pub(crate) fn take_spare(&mut self, counter: Counter) -> Option<Range<i64>> {
        self.spare.remove(&counter)
    }

    pub(crate) fn spare(&self, counter: Counter) -> Option<Range<i64>> {
        self.spare.get(&counter).cloned()
    }

    /// These are left. Of what was left before, only the newer is of use, and what
    /// it goes on from.
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

    /// The moment of a transaction that begins.
    pub(crate) fn now(&self) -> u64 {
        self.clock
    }

    /// The next number of a tree, above `above`. `last` is what stands last in
    /// the tree as a transaction sees it that began at a moment and has or has
    /// not got others before.
    pub(crate) fn next(
        &mut self,
        tree: u64,
        above: i64,
        last: Option<i64>,
        (began, is_user): (u64, bool),
    ) -> Next {
        let Some(run) = self.runs.get_mut(&tree) else {
            return match last {
                // Counters count from one. These are seldom, and may meet.
                Some(last) if last.max(above) < 0 => Next::Number(last.max(above) + 1),
                Some(last) => Next::Take { count: 1, above: last.max(above) },
                None => Next::Last,
            };
        };
        if run.is_suspect {
            let Some(last) = last else { return Next::Last };
            if last.max(above) < 0 {
                return Next::Number(last.max(above) + 1);
            }
            let wanted = last.saturating_add(1);
            // Others may have got what is between, and not have written it yet.
            let is_alone = run.users == u32::from(is_user) && run.ended <= began;
            if wanted > run.next || (is_alone && run.numbers.contains(&wanted)) {
                run.next = wanted;
            }
            run.is_suspect = false;
        }
        run.next = run.next.max(above.saturating_add(1));
        if run.next >= run.numbers.end {
            return Next::Take { count: run.count, above: run.next - 1 };
        }
        let number = run.next;
        run.next += 1;
        Next::Number(number)
    }

    /// The server has given numbers. Where this process is the only one, nobody
    /// was given those that were skipped.
    pub(crate) fn given(&mut self, tree: u64, given: Range<i64>, is_alone: bool) {
        let run = self.runs.entry(tree).or_insert_with(|| Run {
            numbers: given.clone(),
            next: given.start,
            count: 1,
            is_suspect: false,
            users: 0,
            ended: 0,
        });
        if run.numbers.end != given.start && !is_alone {
            // Others were given what is between.
            run.numbers.start = given.start;
        }
        run.next = run.next.max(given.start);
        run.numbers.end = given.end;
        run.count = (run.count * 2).min(COUNT_MAX);
    }

    /// One that was got is not used.
    pub(crate) fn give_back(&mut self, tree: u64, number: i64) {
        if let Some(run) = self.runs.get_mut(&tree)
            && run.next == number + 1
            && run.numbers.contains(&number)
        {
            run.next = number;
        }
    }

    /// A transaction has got one of a tree, its first.
    pub(crate) fn enter(&mut self, tree: u64) {
        if let Some(run) = self.runs.get_mut(&tree) {
            run.users += 1;
        }
    }

    /// It has ended.
    pub(crate) fn leave(&mut self, tree: u64, is_committed: bool) {
        self.clock += 1;
        if let Some(run) = self.runs.get_mut(&tree) {
            run.users = run.users.saturating_sub(1);
            run.ended = self.clock;
            run.is_suspect |= !is_committed;
        }
    }

    /// A row was written by a number of its own.
    pub(crate) fn wrote(&mut self, tree: u64, row: i64) {
        if let Some(is_suspect) = self.sequenced.get_mut(&tree) {
            *is_suspect = true;
        }
        if let Some(run) = self.runs.get_mut(&tree) {
            run.is_suspect |= row >= run.next;
        }
    }

    /// A row has gone.
    pub(crate) fn deleted(&mut self, tree: u64, row: i64) {
        if let Some(run) = self.runs.get_mut(&tree) {
            run.is_suspect |= row >= run.next - 1;
        }
    }

    /// All rows of a tree have gone, or some were taken back.
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
    fn one_alone_counts_from_one() {
        let mut rows = Rows::default();
        assert_eq!(rows.next(7, 0, None, ALONE), Next::Last);
        assert_eq!(rows.next(7, 0, Some(0), ALONE), Next::Take { count: 1, above: 0 });
        rows.given(7, 1..2, false);
        assert_eq!(rows.next(7, 0, None, ALONE), Next::Number(1));
        assert_eq!(rows.next(7, 0, None, ALONE), Next::Take { count: 2, above: 1 });
        rows.given(7, 2..4, false);
        assert_eq!(rows.next(7, 0, None, ALONE), Next::Number(2));
        // All were deleted: from the first one on.
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, None, ALONE), Next::Last);
        assert_eq!(rows.next(7, 0, Some(0), ALONE), Next::Number(1));
        // One was written far above.
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, Some(100), ALONE), Next::Take { count: 4, above: 100 });
    }

    #[test]
    fn below_zero_it_is_the_next_one() {
        let mut rows = Rows::default();
        assert_eq!(rows.next(7, 0, Some(-5), ALONE), Next::Take { count: 1, above: 0 });
        assert_eq!(rows.next(7, -9, Some(-5), ALONE), Next::Number(-4));
        assert_eq!(rows.next(7, i64::MIN, Some(-1), ALONE), Next::Number(0));
    }

    #[test]
    fn what_is_not_used_is_given_again() {
        let mut rows = Rows::default();
        rows.given(7, 1..9, false);
        assert_eq!(rows.next(7, 0, None, ALONE), Next::Number(1));
        rows.give_back(7, 1);
        assert_eq!(rows.next(7, 0, None, ALONE), Next::Number(1));
        assert_eq!(rows.next(7, 0, None, ALONE), Next::Number(2));
        rows.give_back(7, 1);
        assert_eq!(rows.next(7, 0, None, ALONE), Next::Number(3));
    }

    #[test]
    fn what_others_may_have_is_not_given_again() {
        let mut rows = Rows::default();
        rows.given(7, 1..9, false);
        assert_eq!(rows.next(7, 0, None, ALONE), Next::Number(1));
        rows.enter(7);
        // Another one sees none yet, and must not have the same.
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, Some(0), ALONE), Next::Number(2));
        let began = rows.now();
        rows.leave(7, true);
        // Nor may one that began before it was committed.
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, Some(0), (began, false)), Next::Number(3));
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, Some(1), (rows.now(), false)), Next::Number(2));
        // Others were given 9 to 19: what is before is theirs, too, perhaps.
        rows.given(7, 20..30, false);
        rows.suspect(7);
        assert_eq!(rows.next(7, 0, Some(3), (rows.now(), false)), Next::Number(20));
    }
}
