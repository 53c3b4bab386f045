//! Ranges that a transaction knows to be empty because it has deleted their keys. The deleted keys
//! are still stored, and each cursor step would skip them again.

use std::ops::Bound;
use yesquel_model::{Key, KeyRange, NodeId, SmallMap, short_bound};

/// Skipping fewer entries again is cheaper than remembering the gap.
pub(crate) const PASSED_MIN: usize = 4;

/// Gaps kept for each tree: a queue needs those at its ends.
const GAPS_MAX: usize = 4;

/// Empty key ranges of each tree, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Gaps(SmallMap<NodeId, Vec<KeyRange>>);

/// Returns whether no key lies between the two.
fn follows(next: &[u8], key: &[u8]) -> bool {
    next.split_last().is_some_and(|(last, before)| *last == 0 && before == key)
}

impl Gaps {
    fn find(&self, root: NodeId, is_it: impl Fn(&KeyRange) -> bool) -> Option<&KeyRange> {
        self.0.get(&root)?.iter().find(|gap| is_it(gap))
    }

    /// Returns the gap in which a forward scan from a bound begins.
    pub(crate) fn above(&self, root: NodeId, bound: Bound<&[u8]>) -> Option<&KeyRange> {
        self.find(root, |gap| match bound {
            Bound::Included(key) => gap.contains(key),
            Bound::Excluded(key) => gap.contains(key) || follows(&gap.low, key),
            Bound::Unbounded => gap.low.is_empty(),
        })
    }

    /// Returns the gap in which a backward scan from a bound begins.
    pub(crate) fn below(&self, root: NodeId, bound: Bound<&[u8]>) -> Option<&KeyRange> {
        self.find(root, |gap| match bound {
            Bound::Included(key) => gap.contains(key),
            Bound::Excluded(key) => *gap.low < *key && gap.high.as_deref().is_none_or(|high| key <= high),
            Bound::Unbounded => gap.high.is_none(),
        })
    }

    /// Adds an empty range.
    pub(crate) fn put(&mut self, root: NodeId, gap: KeyRange) {
        if !gap.is_empty() {
            let gaps = self.0.or_default(root);
            gaps.retain(|old| !gap.covers(old));
            gaps.truncate(GAPS_MAX - 1);
            gaps.insert(0, gap);
        }
    }

    /// Trims or removes the gaps that hold a key, which now exists.
    pub(crate) fn end_at(&mut self, root: NodeId, key: &[u8]) {
        if let Some(gaps) = self.0.get_mut(&root) {
            for gap in gaps.iter_mut().filter(|gap| gap.contains(key)) {
                gap.high = Some(key.into());
            }
            gaps.retain(|gap| !gap.is_empty());
        }
    }

    /// Drops all gaps, for other keys may be visible now.
    pub(crate) fn clear(&mut self) {
        *self = Gaps::default();
    }
}

/// Returns the successor of a key, within the length limit of bounds.
fn next_key(key: &[u8]) -> Key {
    let next = KeyRange::single(key).high.unwrap_or_default();
    short_bound(&next).into()
}

/// Returns the least key that a lower bound admits.
pub(crate) fn low_of(bound: Bound<&[u8]>) -> Key {
    match bound {
        Bound::Included(key) => key.into(),
        Bound::Excluded(key) => next_key(key),
        Bound::Unbounded => Key::default(),
    }
}

/// Returns the exclusive end of the keys that an upper bound admits.
pub(crate) fn high_of(bound: Bound<&[u8]>) -> Option<Key> {
    match bound {
        Bound::Included(key) => Some(next_key(key)),
        Bound::Excluded(key) => Some(key.into()),
        Bound::Unbounded => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel_model::{ServerId, TreeId};

    const ROOT: NodeId = NodeId::root(TreeId::MAX, ServerId(0));

    #[test]
    fn a_gap_contains_a_position_if_no_visible_key_precedes_it() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.above(ROOT, Bound::Unbounded), None);
        gaps.put(ROOT, KeyRange::new(*b"b\0", *b"f"));
        let above = |bound| gaps.above(ROOT, bound).is_some();
        assert!(
            above(Bound::Excluded(b"b")) && above(Bound::Excluded(b"c")) && above(Bound::Included(b"b\0"))
        );
        assert!(!above(Bound::Included(b"b")) && !above(Bound::Excluded(b"a")) && !above(Bound::Unbounded));
        assert!(!above(Bound::Included(b"f")) && !above(Bound::Excluded(b"f")));
        let below = |bound| gaps.below(ROOT, bound).is_some();
        assert!(below(Bound::Excluded(b"f")) && below(Bound::Excluded(b"c")) && below(Bound::Included(b"c")));
        assert!(!below(Bound::Included(b"f")) && !below(Bound::Excluded(b"b\0")) && !below(Bound::Unbounded));
    }

    #[test]
    fn a_written_key_ends_a_gap() {
        let mut gaps = Gaps::default();
        gaps.put(ROOT, KeyRange::all());
        gaps.end_at(ROOT, b"d");
        assert!(gaps.below(ROOT, Bound::Unbounded).is_none());
        assert_eq!(gaps.above(ROOT, Bound::Unbounded), Some(&KeyRange::new(*b"", *b"d")));
        gaps.end_at(ROOT, b"");
        assert_eq!(gaps.above(ROOT, Bound::Unbounded), None);
        assert_eq!(gaps.below(ROOT, Bound::Included(b"")), None);
    }
}
