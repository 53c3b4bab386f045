//! Keys and ranges of keys, in the order of bytes.

use crate::limits::{BOUND_BYTES_MAX, KEY_BYTES_MAX};
use std::{borrow::Cow, cmp::Ordering, fmt};

/// A key: bytes, in the order of bytes.
pub type Key = Box<[u8]>;

/// What begins with some bytes.
pub type Prefix<'a> = &'a [u8];

/// The first eight bytes of a key, as a number in the order of keys: it decides
/// most comparisons, and many of them stand side by side in memory.
pub fn prefix_of(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}

/// The same end of a range in no more bytes than are taken: no key is longer
/// than [`KEY_BYTES_MAX`], so that what is below one that is longer is below
/// what follows as much of it as a key may have.
pub fn bound_of(key: &[u8]) -> Cow<'_, [u8]> {
    match key.get(..KEY_BYTES_MAX) {
        Some(longest) if key.len() > BOUND_BYTES_MAX => {
            let mut next = Vec::with_capacity(BOUND_BYTES_MAX);
            next.extend_from_slice(longest);
            next.push(0);
            next.into()
        }
        _ => key.into(),
    }
}

/// The shortest key that is above one and not above the other, which follows
/// it: where a node is split that has both, its halves need not know more of
/// them (Bayer and Unterauer, "Prefix B-trees", 1977).
pub fn separator<'a>(before: &[u8], key: &'a [u8]) -> &'a [u8] {
    let same = before.iter().zip(key).take_while(|(one, other)| one == other).count();
    key.get(..=same).unwrap_or(key)
}

/// The prefixes of a range's ends.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    low: u64,
    high: u64,
}

impl Bounds {
    /// Those of a range.
    pub fn of(range: &KeyRange) -> Bounds {
        Bounds { low: prefix_of(&range.low), high: range.high.as_deref().map_or(u64::MAX, prefix_of) }
    }

    /// Whether a key of this prefix is surely in the range; if not, the keys
    /// themselves must be compared.
    pub fn hold(self, prefix: u64) -> bool {
        self.low < prefix && prefix < self.high
    }
}

/// The keys from `low`, itself among them, up to `high`, which is not;
/// without `high` all from `low` on.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct KeyRange {
    /// The first key that may be in it.
    pub low: Key,
    /// The first key that is beyond it; `None` if there is no end.
    pub high: Option<Key>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// From a key on, up to another one.
    pub fn new(low: impl Into<Key>, high: impl Into<Key>) -> KeyRange {
        KeyRange { low: low.into(), high: Some(high.into()) }
    }

    /// From a key on.
    pub fn from(low: impl Into<Key>) -> KeyRange {
        KeyRange { low: low.into(), high: None }
    }

    /// One key alone: up to the key that follows it, which has a zero byte
    /// more.
    pub fn only(key: &[u8]) -> KeyRange {
        let mut next = Vec::with_capacity(key.len() + 1);
        next.extend_from_slice(key);
        next.push(0);
        KeyRange { low: key.into(), high: Some(next.into()) }
    }

    /// The same keys, with ends in no more bytes than are taken.
    pub fn within_bounds(&self) -> KeyRange {
        let short = |key: &Key| bound_of(key).into();
        KeyRange { low: short(&self.low), high: self.high.as_ref().map(short) }
    }

    /// The same, of a range that is needed no more.
    pub fn into_bounds(self) -> KeyRange {
        let is_short = |key: &Key| key.len() <= BOUND_BYTES_MAX;
        if is_short(&self.low) && self.high.as_ref().is_none_or(is_short) {
            self
        } else {
            self.within_bounds()
        }
    }

    /// Whether it is [that of one key alone](KeyRange::only).
    pub fn is_only(&self) -> bool {
        self.high
            .as_ref()
            .is_some_and(|high| high.split_last().is_some_and(|(last, key)| *last == 0 && *key == *self.low))
    }

    /// All keys that begin with a prefix. Its end is the prefix with its last
    /// byte raised by one, bytes of 255 at its end left out first; a prefix of
    /// nothing but such bytes has no end.
    pub fn prefix(prefix: Prefix<'_>) -> KeyRange {
        let mut high = prefix.to_vec();
        while high.last() == Some(&u8::MAX) {
            high.pop();
        }
        let high = match high.last_mut() {
            Some(last) => {
                *last += 1;
                Some(high.into())
            }
            None => None,
        };
        KeyRange { low: prefix.into(), high }
    }

    /// Whether no key is in it.
    pub fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    /// Whether the key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.low <= *key && self.is_above(key)
    }

    /// Whether its end is above the key.
    pub fn is_above(&self, key: &[u8]) -> bool {
        self.high.as_ref().is_none_or(|high| *key < **high)
    }

    /// Whether all keys of the other one are in it. An empty one is in
    /// everything.
    pub fn covers(&self, other: &KeyRange) -> bool {
        other.is_empty() || (self.low <= other.low && compare_ends(&other.high, &self.high).is_le())
    }

    /// Whether each of its keys is in one of the others.
    pub fn is_covered_by<'a>(&self, others: impl IntoIterator<Item = &'a KeyRange>) -> bool {
        let mut others: Vec<&KeyRange> = others.into_iter().filter(|other| !other.is_empty()).collect();
        others.sort_by(|a, b| a.low.cmp(&b.low));
        let mut left = self.clone();
        for other in others {
            if left.is_empty() || other.low > left.low {
                break;
            }
            match &other.high {
                None => return true,
                Some(high) if *high > left.low => left.low = high.clone(),
                Some(_) => {}
            }
        }
        left.is_empty()
    }

    /// Whether a key is in both.
    pub fn meets(&self, other: &KeyRange) -> bool {
        !self.is_empty() && !other.is_empty() && self.is_above(&other.low) && other.is_above(&self.low)
    }

    /// The keys that are in both; empty if there is none.
    pub fn intersection(&self, other: &KeyRange) -> KeyRange {
        let low = if self.low >= other.low { &self.low } else { &other.low };
        let high = if compare_ends(&self.high, &other.high).is_le() { &self.high } else { &other.high };
        KeyRange { low: low.clone(), high: high.clone() }
    }
}

/// Ends in their order: none is above every key.
fn compare_ends(a: &Option<Key>, b: &Option<Key>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.low.escape_ascii())?;
        self.high.as_ref().map_or(Ok(()), |high| write!(f, "{}", high.escape_ascii()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Short keys of few letters, so that they meet.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 254, 255]), 0..4)
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        (key(), prop::option::of(key()))
            .prop_map(|(low, high)| KeyRange { low: low.into(), high: high.map(Into::into) })
    }

    /// Every key of up to four of the letters: between any two ends of the
    /// ranges above there is one, if there is any key at all.
    fn keys() -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut last = all.clone();
        for _ in 0..5 {
            last = last
                .iter()
                .flat_map(|key| [0u8, 1, 254, 255].map(|letter| [key.as_slice(), &[letter]].concat()))
                .collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    #[test]
    fn ends_of_ranges_are_no_longer_than_what_follows_a_key() {
        let long = |length: usize, last: u8| [vec![7; length - 1], vec![last]].concat();
        let [longest, above] = [long(KEY_BYTES_MAX, 7), long(KEY_BYTES_MAX, 8)];
        for key in [&b""[..], b"k", &longest, &long(BOUND_BYTES_MAX, 9)] {
            assert_eq!(bound_of(key), key);
        }
        for beyond in [long(BOUND_BYTES_MAX + 1, 0), long(3 * KEY_BYTES_MAX, 9)] {
            let bound = bound_of(&beyond);
            assert_eq!(bound.len(), BOUND_BYTES_MAX);
            assert!(*longest < *bound && *bound < *above);
            assert!(*longest < *beyond && *beyond < *above);
        }
    }

    proptest! {
        #[test]
        fn a_separator_is_the_shortest_key_between((one, other) in (key(), key())) {
            prop_assume!(one != other);
            let (before, key) = if one < other { (one, other) } else { (other, one) };
            let short = separator(&before, &key);
            prop_assert!(*before < *short && *short <= *key);
            let shortest = keys().into_iter().filter(|own| before < *own && *own <= key).map(|own| own.len()).min();
            prop_assert_eq!(Some(short.len()), shortest);
        }

        /// Every operation on ranges against its meaning for keys.
        #[test]
        fn ranges_are_sets_of_keys(
            a in range(),
            b in range(),
            others in prop::collection::vec(range(), 0..4),
            prefix in key(),
        ) {
            let keys = keys();
            let of = |range: &KeyRange| -> Vec<bool> { keys.iter().map(|key| range.contains(key)).collect() };
            let (in_a, in_b) = (of(&a), of(&b));
            let both: Vec<bool> = in_a.iter().zip(&in_b).map(|(a, b)| *a && *b).collect();
            prop_assert_eq!(of(&a.intersection(&b)), both.clone());
            prop_assert_eq!(a.meets(&b), both.contains(&true));
            if a.covers(&b) {
                prop_assert_eq!(&both, &in_b);
            } else {
                prop_assert!(b.low < a.low || compare_ends(&b.high, &a.high).is_gt());
            }
            prop_assert_eq!(a.is_empty(), !in_a.contains(&true));
            let in_others = |key: &Vec<u8>| others.iter().any(|other| other.contains(key));
            let covered = keys.iter().zip(&in_a).all(|(key, in_a)| !in_a || in_others(key));
            prop_assert_eq!(a.is_covered_by(&others), covered);
            let begins: Vec<bool> = keys.iter().map(|key| key.starts_with(&prefix)).collect();
            prop_assert_eq!(of(&KeyRange::prefix(&prefix)), begins);
            let only: Vec<bool> = keys.iter().map(|key| *key == prefix).collect();
            prop_assert_eq!(of(&KeyRange::only(&prefix)), only);
        }
    }

    proptest! {
        /// With bytes of all values, and ends that share their prefix.
        #[test]
        fn prefixes_are_in_the_order_of_keys(
            a in prop::collection::vec(0..2u8, 6..11),
            b in prop::collection::vec(0..2u8, 6..11),
            c: Vec<u8>,
            has_end: bool,
        ) {
            for (a, b) in [(&a, &b), (&a, &c)] {
                let prefixes = prefix_of(a).cmp(&prefix_of(b));
                prop_assert!(prefixes.is_eq() || prefixes == a.cmp(b));
            }
            let range = KeyRange { low: a.into(), high: has_end.then(|| c.into()) };
            if Bounds::of(&range).hold(prefix_of(&b)) {
                prop_assert!(range.contains(&b));
            }
        }
    }

    #[test]
    fn a_range_is_shown_with_its_ends() {
        assert_eq!(format!("{:?}", KeyRange::new(*b"a", *b"b\0")), "a..b\\x00");
        assert_eq!(format!("{:?}", KeyRange::from(*b"a")), "a..");
    }
}
