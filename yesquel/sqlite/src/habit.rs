//! How much is fetched at a time by those who seek often.

/// Whether what a transaction seeks in a tree lies side by side, so that whole
/// leaves are of use: an application that inserts rows in the order of their keys,
/// each by a statement of its own, asks for each whether it is there already.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    seeks: u32,
    /// Of the last seeks with whole leaves, those that had to ask nobody, less
    /// those that had.
    credit: i32,
}

/// Seeks by which nothing is known yet.
const SEEKS_FEW: u32 = 4;
/// Seeks after which it is tried again.
const SEEKS_MANY: u32 = 256;

impl Habit {
    /// It seeks once more; whether it is to fetch whole leaves.
    pub(crate) fn seeks(&mut self) -> bool {
        self.seeks += 1;
        if self.seeks > SEEKS_MANY {
            (self.seeks, self.credit) = (SEEKS_FEW, 0);
        }
        self.seeks > SEEKS_FEW && self.credit > -4
    }

    /// It had to ask so often for what it sought.
    pub(crate) fn asked(&mut self, times: u64) {
        if self.seeks > SEEKS_FEW {
            self.credit = (self.credit + if times == 0 { 1 } else { -1 }).clamp(-4, 16);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let near = (0..200).filter(|_| {
            let near = habit.seeks();
            habit.asked(1);
            near
        });
        assert_eq!(near.count(), 4);
        // But now and then it is tried again.
        assert!((0..200).any(|_| habit.seeks()));
    }
}
