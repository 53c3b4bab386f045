//! Read-ahead policy for frequent seeks: how much to fetch, and how much to cache.

use rustc_hash::FxHashMap;

/// Access pattern of a transaction in one tree, which decides whether a seek fetches a whole leaf.
/// That pays if seeks are near each other, as in an application that inserts rows in key order,
/// each by a statement of its own that first looks up the key. It also pays if the transaction
/// returns to the leaves that it has, as a join or `PRAGMA integrity_check` does.
///
/// The pattern is not known in advance. So one in [`SEEKS_A_TRY`] seeks that miss fetches a leaf. A
/// transaction with several times as many seeks as leaves has half of them by then, and fetches the
/// others as it proceeds; any other transaction pays a small fraction more.
#[derive(Debug, Default)]
pub(crate) struct AccessPattern {
    seeks: u32,
    /// Number of recent seeks without a request, minus those with one.
    credit: i32,
}

/// Seeks before the pattern counts as known.
const SEEKS_FEW: u32 = 4;
/// Credit down to which a seek fetches a leaf in any case.
const CREDIT_LEAST: i32 = -4;
/// One in so many seeks fetches a leaf regardless of the pattern.
const SEEKS_A_TRY: u32 = 4;
/// Seeks from which that begins, for it does not pay in a short transaction.
const SEEKS_MANY: u32 = 32;

impl AccessPattern {
    /// Counts a seek. Returns whether to fetch a whole leaf.
    pub(crate) fn seeks(&mut self) -> bool {
        self.seeks = self.seeks.saturating_add(1);
        let tries = self.seeks > SEEKS_MANY && self.seeks.is_multiple_of(SEEKS_A_TRY);
        self.seeks > SEEKS_FEW && (self.credit > CREDIT_LEAST || tries)
    }

    /// Counts the requests of the last seek.
    pub(crate) fn asked(&mut self, times: u64) {
        if self.seeks > SEEKS_FEW {
            self.credit = (self.credit + if times == 0 { 1 } else { -1 }).clamp(CREDIT_LEAST, 16);
        }
    }
}

/// Access patterns of a transaction, by tree, and the cache sizes of the connection's databases
/// (`PRAGMA cache_size`), by their schemas' trees.
#[derive(Debug, Default)]
pub(crate) struct AccessPatterns {
    trees: FxHashMap<u64, AccessPattern>,
    kept: FxHashMap<u64, usize>,
}

impl AccessPatterns {
    pub(crate) fn of(&mut self, tree: u64) -> &mut AccessPattern {
        self.trees.entry(tree).or_default()
    }

    /// Resets the patterns at the end of a transaction.
    pub(crate) fn clear(&mut self) {
        self.trees.clear();
    }

    /// Sets the cache size of a database, in bytes.
    pub(crate) fn keep(&mut self, schema: u64, bytes: usize) {
        self.kept.insert(schema, bytes);
    }

    /// Returns the largest cache size.
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
    fn leaves_are_fetched_while_they_help_later_seeks() {
        let mut access_pattern = AccessPattern::default();
        let first: Vec<bool> = (0..SEEKS_FEW + 1).map(|_| access_pattern.seeks()).collect();
        assert_eq!(first.iter().filter(|near| **near).count(), 1);
        // One in three requests a leaf, and two hit it.
        for time in 0..100 {
            access_pattern.asked(u64::from(time % 3 == 0));
            assert!(access_pattern.seeks());
        }
        // No leaf helps the next seek.
        let mut access_pattern = AccessPattern::default();
        let mut near = 0;
        for seek in 1..=SEEKS_MANY {
            near += u32::from(access_pattern.seeks());
            access_pattern.asked(1);
            assert!(seek <= SEEKS_FEW + 4 || near == 4);
        }
        // An occasional trial remains.
        let tries = (0..400).filter(|_| {
            let near = access_pattern.seeks();
            access_pattern.asked(1);
            near
        });
        assert_eq!(tries.count(), 400 / SEEKS_A_TRY as usize);
    }

    /// Random seeks: returns the number of requests and the number there would be without leaves.
    fn asked(leaves: u64, seeks: u64, random: &mut Random) -> (u64, u64) {
        let (mut access_pattern, mut known) = (AccessPattern::default(), HashSet::new());
        let (mut asked, mut fetched) = (0, 0);
        for _ in 0..seeks {
            let leaf = random.next(leaves);
            let near = access_pattern.seeks();
            let is_known = known.contains(&leaf);
            if near && !is_known {
                fetched += 1;
                known.insert(leaf);
            }
            asked += u64::from(!is_known);
            access_pattern.asked(u64::from(!is_known));
        }
        (asked, fetched)
    }

    #[test]
    fn frequent_seeks_fetch_each_leaf_and_rare_seeks_few() {
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
