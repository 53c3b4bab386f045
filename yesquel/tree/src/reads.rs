//! What a serializable transaction has read: ranges of keys, present or not, which its commit
//! guards.

use crate::gap::{high_of, low_of};
use std::ops::Bound;
use yesquel_model::{Key, KeyRange, NodeId, SmallMap};

/// Maximum number of separate ranges of a tree. Beyond it, neighbors become one range, together with
/// the keys between them, which were not read.
const RANGES_MAX: usize = 1_024;

/// Ranges of keys that were read, by root of the tree.
#[derive(Debug, Default)]
pub(crate) struct Reads(SmallMap<NodeId, Vec<KeyRange>>);

impl Reads {
    /// Adds a key.
    pub(crate) fn key(&mut self, root: NodeId, key: &[u8]) {
        self.range(root, KeyRange::single(key).into_short_bounds());
    }

    /// Adds a step of a forward scan: the keys from a bound to the one found, or to the end.
    pub(crate) fn step_up(&mut self, root: NodeId, from: Bound<&[u8]>, found: Option<&Key>) {
        let high = found.and_then(|found| high_of(Bound::Included(found)));
        self.range(root, KeyRange { low: low_of(from), high });
    }

    /// Adds a step of a backward scan: the keys from the one found, or from the first one, to a
    /// bound.
    pub(crate) fn step_down(&mut self, root: NodeId, to: Bound<&[u8]>, found: Option<&Key>) {
        let low = found.map_or_else(Key::default, |found| low_of(Bound::Included(found)));
        self.range(root, KeyRange { low, high: high_of(to) });
    }

    fn range(&mut self, root: NodeId, mut range: KeyRange) {
        if range.is_empty() {
            return;
        }
        let all = self.0.or_default(root);
        // Those that meet or overlap the range. They are sorted, and do not meet each other.
        let first = all.partition_point(|own| own.high.as_ref().is_some_and(|high| *high < range.low));
        let is_beyond = |own: &KeyRange| range.high.as_ref().is_some_and(|high| own.low > *high);
        let count = all[first..].iter().take_while(|own| !is_beyond(own)).count();
        for met in &all[first..first + count] {
            range = range.hull(met);
        }
        all.splice(first..first + count, [range]);
        if all.len() > RANGES_MAX {
            *all = all.chunks(2).map(|pair| pair[0].hull(&pair[pair.len() - 1])).collect();
        }
    }

    /// Returns the ranges.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&NodeId, &KeyRange)> {
        self.0.iter().flat_map(|(root, all)| all.iter().map(move |range| (root, range)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ops::Bound::{Excluded, Included, Unbounded};
    use yesquel_model::{ServerId, TreeId};

    const ROOT: NodeId = NodeId::root(TreeId::MAX, ServerId(0));

    fn ranges(reads: &Reads) -> Vec<KeyRange> {
        reads.iter().map(|(_, range)| range.clone()).collect()
    }

    #[test]
    fn a_scan_is_one_range() {
        let mut reads = Reads::default();
        let keys = [b"b", b"d", b"f"].map(|key| Key::from(&key[..]));
        reads.step_up(ROOT, Included(b"a"), Some(&keys[0]));
        reads.step_up(ROOT, Excluded(b"b"), Some(&keys[1]));
        reads.step_up(ROOT, Excluded(b"d"), Some(&keys[2]));
        assert_eq!(ranges(&reads), [KeyRange::new(*b"a", *b"f\0")]);
        reads.step_up(ROOT, Excluded(b"f"), None);
        assert_eq!(ranges(&reads), [KeyRange::from(*b"a")]);
        reads.step_down(ROOT, Excluded(b"b"), None);
        assert_eq!(ranges(&reads), [KeyRange::all()]);

        let mut back = Reads::default();
        back.step_down(ROOT, Unbounded, Some(&keys[2]));
        back.step_down(ROOT, Excluded(b"f"), Some(&keys[1]));
        assert_eq!(ranges(&back), [KeyRange::from(*b"d")]);
        back.key(ROOT, b"a");
        assert_eq!(ranges(&back), [KeyRange::single(b"a"), KeyRange::from(*b"d")]);
    }

    #[test]
    fn many_keys_become_fewer_ranges() {
        let mut reads = Reads::default();
        for number in 0..10_000u32 {
            reads.key(ROOT, &(number * 2).to_be_bytes());
        }
        let all = ranges(&reads);
        assert!((RANGES_MAX / 2..=RANGES_MAX).contains(&all.len()), "{}", all.len());
        assert!((0..10_000u32).all(|number| {
            let key = (number * 2).to_be_bytes();
            all.iter().any(|range| range.contains(&key))
        }));
    }

    proptest! {
        /// The ranges contain exactly what was added, are sorted, and do not meet.
        #[test]
        fn ranges_are_the_union_of_what_was_read(
            added in prop::collection::vec((0u8..40, 1u8..8, any::<bool>()), 0..30),
        ) {
            let (mut reads, mut expected) = (Reads::default(), [false; 64]);
            for (low, length, is_open) in added {
                let range = KeyRange { low: [low].into(), high: (!is_open).then(|| [low + length].into()) };
                let end = if is_open { 64 } else { usize::from(low + length) };
                expected[usize::from(low)..end].fill(true);
                reads.range(ROOT, range);
            }
            let all = ranges(&reads);
            for (key, is_read) in expected.into_iter().enumerate() {
                let found = all.iter().filter(|range| range.contains(&[key as u8])).count();
                prop_assert_eq!(found, usize::from(is_read), "{}", key);
            }
            for pair in all.windows(2) {
                prop_assert!(pair[0].high.as_ref().is_some_and(|high| *high < pair[1].low));
            }
        }
    }
}
