//! Long index keys, of any length.
//!
//! The tree stores a prefix of such a key and a digest of all of it. Stored keys that share this
//! prefix are a group, whose order is that of the whole keys and not that of the stored bytes.

use ring::digest::{SHA256, digest};
use yesquel::Entry;

/// Bytes of a stored key that is cut. Several fit into a leaf.
const CUT_KEY_BYTES: usize = 16 << 10;
const DIGEST_BYTES: usize = 32;
/// Bytes that the stored keys of a group share.
pub(crate) const PREFIX_BYTES: usize = CUT_KEY_BYTES - DIGEST_BYTES;

/// Returns whether a stored or sought key begins with the prefix of a group.
pub(crate) fn is_long(key: &[u8]) -> bool {
    key.len() >= PREFIX_BYTES
}

/// Returns whether a stored key may be cut, so that its record tells the whole key.
pub(crate) fn may_be_cut(stored: &[u8]) -> bool {
    stored.len() == CUT_KEY_BYTES
}

/// Returns the key under which the tree stores a key, if it differs from that.
pub(crate) fn cut(key: &[u8]) -> Option<Vec<u8>> {
    if key.len() <= CUT_KEY_BYTES {
        return None;
    }
    Some([&key[..PREFIX_BYTES], digest(&SHA256, key).as_ref()].concat())
}

/// Entry of a group with its whole key.
#[derive(Debug)]
pub(crate) struct LongEntry {
    pub(crate) key: Box<[u8]>,
    pub(crate) stored: Entry,
}

/// Position in a group of entries that share a prefix, or at an entry that was just written.
#[derive(Debug)]
pub(crate) struct KeyGroup {
    /// In order of the whole keys.
    entries: Vec<LongEntry>,
    at: usize,
}

impl KeyGroup {
    pub(crate) fn new(mut entries: Vec<LongEntry>) -> KeyGroup {
        entries.sort_unstable_by(|left, right| left.key.cmp(&right.key));
        KeyGroup { entries, at: 0 }
    }

    /// Returns the entry at the position.
    pub(crate) fn entry(&self) -> Option<&LongEntry> {
        self.entries.get(self.at)
    }

    /// Returns the whole key at the position.
    pub(crate) fn into_key(mut self) -> Option<Box<[u8]>> {
        (self.at < self.entries.len()).then(|| self.entries.swap_remove(self.at).key)
    }

    /// Moves to the first entry.
    pub(crate) fn first(&mut self) -> bool {
        self.go(Some(0))
    }

    /// Moves to the last entry.
    pub(crate) fn last(&mut self) -> bool {
        self.go(self.entries.len().checked_sub(1))
    }

    pub(crate) fn next(&mut self) -> bool {
        self.go(Some(self.at + 1))
    }

    pub(crate) fn previous(&mut self) -> bool {
        self.go(self.at.checked_sub(1))
    }

    /// Moves to the first entry that is not below a key or, if `is_above`, is above all keys that
    /// begin with it.
    pub(crate) fn seek(&mut self, key: &[u8], is_above: bool) -> bool {
        self.go(Some(self.boundary(key, is_above)))
    }

    /// Moves to the entry before that.
    pub(crate) fn seek_below(&mut self, key: &[u8], is_above: bool) -> bool {
        self.go(self.boundary(key, is_above).checked_sub(1))
    }

    fn boundary(&self, key: &[u8], is_above: bool) -> usize {
        self.entries.partition_point(|entry| *entry.key < *key || is_above && entry.key.starts_with(key))
    }

    /// Moves to an entry. Without one, the position stays, and the caller leaves the group.
    fn go(&mut self, at: Option<usize>) -> bool {
        let found = at.filter(|at| *at < self.entries.len());
        self.at = found.unwrap_or(self.at);
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_are_cut_only_if_they_are_too_long() {
        let long = vec![7; CUT_KEY_BYTES + 1];
        assert_eq!(cut(&long[1..]), None);
        let stored = cut(&long).unwrap();
        assert_eq!((stored.len(), &stored[..PREFIX_BYTES]), (CUT_KEY_BYTES, &long[..PREFIX_BYTES]));
        assert!(may_be_cut(&stored) && is_long(&stored) && is_long(&long[..PREFIX_BYTES]));
        assert!(!is_long(&long[1..PREFIX_BYTES]) && !may_be_cut(&long[2..]));
        let other = [&long[..], &[0]].concat();
        assert_ne!(cut(&other), Some(stored));
    }

    proptest! {
        #[test]
        fn groups_are_searched_by_whole_keys(
            mut keys in prop::collection::btree_set("[ab]{0,4}", 0..12),
            sought in "[ab]{0,4}",
            is_above: bool,
        ) {
            let all: Vec<_> = keys.iter().cloned().collect();
            let entries = all.iter().rev().map(|key| LongEntry {
                key: key.as_bytes().into(),
                stored: (Box::default(), Box::default()),
            });
            let mut group = KeyGroup::new(entries.collect());
            let is_beyond = |key: &String| {
                *key >= sought && !(is_above && key.starts_with(&sought))
            };
            let found = |group: &KeyGroup, is_there: bool| {
                is_there.then(|| String::from_utf8_lossy(&group.entry().unwrap().key).into_owned())
            };
            let is_there = group.seek(sought.as_bytes(), is_above);
            prop_assert_eq!(found(&group, is_there), all.iter().find(|key| is_beyond(key)).cloned());
            let is_there = group.seek_below(sought.as_bytes(), is_above);
            prop_assert_eq!(found(&group, is_there), all.iter().rfind(|key| !is_beyond(key)).cloned());
            // Both ways through the group.
            let mut is_there = group.first();
            while let Some(key) = found(&group, is_there) {
                prop_assert_eq!(Some(&key), keys.first());
                keys.remove(&key);
                is_there = group.next();
            }
            let mut backwards = Vec::new();
            let mut is_there = group.last();
            while let Some(key) = found(&group, is_there) {
                backwards.push(key);
                is_there = group.previous();
            }
            backwards.reverse();
            prop_assert_eq!(backwards, all);
        }
    }
}
