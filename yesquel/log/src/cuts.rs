//! Cuts: batches after which earlier records do not count.

/// The cuts of a log, without those that a later cut includes: positions and indexes grow.
#[derive(Debug, Default)]
pub(crate) struct CutList(Vec<(u64, u64)>);

impl CutList {
    /// Adds the cut by a batch at a position, behind all others: earlier records with this index or
    /// a higher one do not count.
    pub(crate) fn push(&mut self, position: u64, index: u64) {
        while self.0.last().is_some_and(|(_, last)| *last >= index) {
            self.0.pop();
        }
        self.0.push((position, index));
    }

    /// Returns whether a later batch cuts this record.
    pub(crate) fn removes(&self, position: u64, index: u64) -> bool {
        let later = self.0.partition_point(|(at, _)| *at <= position);
        // The first of the later ones has the lowest index.
        self.0.get(later).is_some_and(|(_, cut)| *cut <= index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_unless_a_later_batch_cuts_it() {
        let all = [(10, 8), (20, 12), (30, 5), (40, 9)];
        let mut cuts = CutList::default();
        for (position, index) in all {
            cuts.push(position, index);
        }
        assert!(cuts.0.is_sorted() && cuts.0.len() == 2, "{cuts:?}");
        for position in 0..50 {
            for index in 1..20 {
                let expected = all.iter().any(|(at, cut)| *at > position && *cut <= index);
                assert_eq!(cuts.removes(position, index), expected, "{position} {index}");
            }
        }
    }
}
