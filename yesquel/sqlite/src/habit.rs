//! How much is fetched at a time by those who seek often, and how much of it is
//! kept.

use rustc_hash::FxHashMap;

/// Whether what a transaction seeks in a tree lies side by side, so that whole
/// leaves are of use: an application that inserts rows in the order of their keys,
/// each by a statement of its own, asks for each whether it is there already. Or
/// whether it seeks so often that it comes back to leaves that it has: a join, or
/// `PRAGMA integrity_check`.
///
/// Which of the two it is nobody knows before. So of many seeks that find nothing
/// one in [`SEEKS_A_TRY`] fetches a leaf: who seeks as often as there are leaves,
/// some times over, has half of them by then, and fetches the others as he goes;
/// who does not pays a part more for what he asks.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    seeks: u32,
    /// Of the last seeks those that had to ask nobody, less those that had.
    credit: i32,
}

/// Seeks by which nothing is known yet.
const SEEKS_FEW: u32 = 4;
/// Seeks that fetch leaves in any case then.
const CREDIT_LEAST: i32 = -4;
/// Of so many seeks one fetches a leaf, whatever is known.
const SEEKS_A_TRY: u32 = 4;
/// Seeks after which that begins: it is no use to a transaction of a few.
const SEEKS_MANY: u32 = 32;

impl Habit {
    /// It seeks once more; whether it is to fetch whole leaves.
    pub(crate) fn seeks(&mut self) -> bool {
        self.seeks = self.seeks.saturating_add(1);
        let tries = self.seeks > SEEKS_MANY && self.seeks.is_multiple_of(SEEKS_A_TRY);
        self.seeks > SEEKS_FEW && (self.credit > CREDIT_LEAST || tries)
    }

    /// It had to ask so often for what it sought.
    pub(crate) fn asked(&mut self, times: u64) {
        if self.seeks > SEEKS_FEW {
            self.credit = (self.credit + if times == 0 { 1 } else { -1 }).clamp(CREDIT_LEAST, 16);
        }
    }
}

/// The habits of a transaction, by tree; and what the databases of a connection
/// are to keep of what it reads (`PRAGMA cache_size`), by their schemas' trees.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    trees: FxHashMap<u64, Habit>,
    kept: FxHashMap<u64, usize>,
}

impl Habits {
    pub(crate) fn of(&mut self, tree: u64) -> &mut Habit {
        self.trees.entry(tree).or_default()
    }

    /// The transaction has ended.
    pub(crate) fn clear(&mut self) {
        self.trees.clear();
    }

    /// A database is to keep so many bytes.
    pub(crate) fn keep(&mut self, schema: u64, bytes: usize) {
        self.kept.insert(schema, bytes);
    }

    /// The most that one of them is to keep.
    pub(crate) fn kept(&self) -> usize {
        self.kept.values().copied().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use yesquel_seeds::{Random, check_seeds};

    #[test]
    fn leaves_are_fetched_as_long_as_they_are_of_use() {
        let mut habit = Habit::default();
        let first: Vec<bool> = (0..SEEKS_FEW + 1).map(|_| habit.seeks()).collect();
        assert_eq!(first.iter().filter(|near| **near).count(), 1);
        // One in three asks for a leaf, and two find theirs.
        for time in 0..100 {
            habit.asked(u64::from(time % 3 == 0));
            assert!(habit.seeks());
        }
        // None is of use to the next.
        let mut habit = Habit::default();
        let mut near = 0;
        for seek in 1..=SEEKS_MANY {
            near += u32::from(habit.seeks());
            habit.asked(1);
            assert!(seek <= SEEKS_FEW + 4 || near == 4);
        }
        // But now and then it is tried.
        let tries = (0..400).filter(|_| {
            let near = habit.seeks();
            habit.asked(1);
            near
        });
        assert_eq!(tries.count(), 400 / SEEKS_A_TRY as usize);
    }

    /// Seeks in no order: how often somebody is asked, of how many it would be
    /// without leaves.
    fn asked(leaves: u64, seeks: u64, random: &mut Random) -> (u64, u64) {
        let (mut habit, mut known) = (Habit::default(), HashSet::new());
        let (mut asked, mut fetched) = (0, 0);
        for _ in 0..seeks {
            let leaf = random.next(leaves);
            let near = habit.seeks();
            let is_known = known.contains(&leaf);
            if near && !is_known {
                fetched += 1;
                known.insert(leaf);
            }
            asked += u64::from(!is_known);
            habit.asked(u64::from(!is_known));
        }
        (asked, fetched)
    }

    #[test]
    fn who_seeks_often_asks_for_each_leaf_and_who_does_not_for_few() {
        check_seeds(20, |seed| {
            let mut random = Random::new(seed);
            for leaves in [1, 10, 100, 1_000, 10_000] {
                let (often, _) = asked(leaves, leaves * 100, &mut random);
                assert!(often < leaves * 5 + 50, "{often} for {leaves} leaves");
                let (_, fetched) = asked(leaves * 100, leaves, &mut random);
                assert!(fetched <= leaves / 4 + leaves / 20 + 8, "{fetched} for {leaves} seeks");
            }
        });
    }
}
