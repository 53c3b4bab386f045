//! Keys and ranges of keys, in byte order.

use crate::limits::{BOUND_BYTES_MAX, KEY_BYTES_MAX};
use std::{borrow::Cow, cmp::Ordering, fmt};

/// A key, compared bytewise.
pub type Key = Box<[u8]>;

/// The first bytes of keys.
pub type Prefix<'a> = &'a [u8];

/// Returns the first eight bytes of a key as a number in key order. It decides most comparisons,
/// and many prefixes lie side by side in memory.
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

/// Returns an equivalent bound of at most [`BOUND_BYTES_MAX`] bytes. No key is longer than
/// [`KEY_BYTES_MAX`], so a longer bound is equivalent to the successor of its longest possible key.
pub fn short_bound(key: &[u8]) -> Cow<'_, [u8]> {
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

/// Returns the shortest key that is above `before` and not above `key`, which follows it. The two
/// halves of a split node need no longer bound between them (Bayer and Unterauer, "Prefix B-trees",
/// 1977).
pub fn separator<'a>(before: &[u8], key: &'a [u8]) -> &'a [u8] {
    let same = before.iter().zip(key).take_while(|(one, other)| one == other).count();
    key.get(..=same).unwrap_or(key)
}

/// The prefixes of a range's bounds.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrefixBounds {
    low: u64,
    high: u64,
}

impl PrefixBounds {
    /// Returns those of a range.
    pub fn of(range: &KeyRange) -> PrefixBounds {
        PrefixBounds { low: prefix_of(&range.low), high: range.high.as_deref().map_or(u64::MAX, prefix_of) }
    }

    /// Whether a key with this prefix is certainly in the range. If not, the keys themselves must
    /// be compared.
    pub fn surely_contain(self, prefix: u64) -> bool {
        self.low < prefix && prefix < self.high
    }
}

/// The keys from `low` (inclusive) to `high` (exclusive); without `high`, all keys from `low` on.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct KeyRange {
    /// Inclusive lower bound.
    pub low: Key,
    /// Exclusive upper bound; `None`: unbounded.
    pub high: Option<Key>,
}

impl KeyRange {
    /// The range of all keys.
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// The keys from `low` up to `high`.
    pub fn new(low: impl Into<Key>, high: impl Into<Key>) -> KeyRange {
        KeyRange { low: low.into(), high: Some(high.into()) }
    }

    /// The keys from `low` on.
    pub fn from(low: impl Into<Key>) -> KeyRange {
        KeyRange { low: low.into(), high: None }
    }

    /// One key: the range ends at its successor, which has one zero byte more.
    pub fn single(key: &[u8]) -> KeyRange {
        let mut next = Vec::with_capacity(key.len() + 1);
        next.extend_from_slice(key);
        next.push(0);
        KeyRange { low: key.into(), high: Some(next.into()) }
    }

    /// Returns the same range with bounds of at most [`BOUND_BYTES_MAX`] bytes.
    pub fn with_short_bounds(&self) -> KeyRange {
        let short = |key: &Key| short_bound(key).into();
        KeyRange { low: short(&self.low), high: self.high.as_ref().map(short) }
    }

    /// Like [`with_short_bounds`](Self::with_short_bounds), but consumes the range.
    pub fn into_short_bounds(self) -> KeyRange {
        let is_short = |key: &Key| key.len() <= BOUND_BYTES_MAX;
        if is_short(&self.low) && self.high.as_ref().is_none_or(is_short) {
            self
        } else {
            self.with_short_bounds()
        }
    }

    /// Whether it is the range of a [single key](KeyRange::single).
    pub fn is_single(&self) -> bool {
        self.high
            .as_ref()
            .is_some_and(|high| high.split_last().is_some_and(|(last, key)| *last == 0 && *key == *self.low))
    }

    /// All keys that begin with a prefix. The upper bound is the prefix with its last byte raised
    /// by one, after trailing bytes of 255 are dropped; a prefix of nothing but 255 has no upper
    /// bound.
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

    /// Whether the range has no keys.
    pub fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    /// Whether the range contains a key.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.low <= *key && self.is_above(key)
    }

    /// Whether the upper bound is above a key.
    pub fn is_above(&self, key: &[u8]) -> bool {
        self.high.as_ref().is_none_or(|high| *key < **high)
    }

    /// Whether the range contains all keys of another one. An empty range is covered by every
    /// range.
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

    /// Whether the two ranges have a key in common.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        !self.is_empty() && !other.is_empty() && self.is_above(&other.low) && other.is_above(&self.low)
    }

    /// Returns the keys in both ranges.
    pub fn intersection(&self, other: &KeyRange) -> KeyRange {
        let low = if self.low >= other.low { &self.low } else { &other.low };
        let high = if compare_ends(&self.high, &other.high).is_le() { &self.high } else { &other.high };
        KeyRange { low: low.clone(), high: high.clone() }
    }

    /// Returns the smallest range with all keys of both.
    pub fn hull(&self, other: &KeyRange) -> KeyRange {
        let low = if self.low <= other.low { &self.low } else { &other.low };
        let high = if compare_ends(&self.high, &other.high).is_ge() { &self.high } else { &other.high };
        KeyRange { low: low.clone(), high: high.clone() }
    }
}

/// Compares upper bounds: unbounded is the greatest.
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

    /// Short keys of few letters, so that they often overlap.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 254, 255]), 0..4)
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        (key(), prop::option::of(key()))
            .prop_map(|(low, high)| KeyRange { low: low.into(), high: high.map(Into::into) })
    }

    /// Every key of up to four letters. Between any two bounds of the ranges above there is one, if
    /// there is any key at all.
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
    fn bounds_are_at_most_as_long_as_a_keys_successor() {
        let long = |length: usize, last: u8| [vec![7; length - 1], vec![last]].concat();
        let [longest, above] = [long(KEY_BYTES_MAX, 7), long(KEY_BYTES_MAX, 8)];
        for key in [&b""[..], b"k", &longest, &long(BOUND_BYTES_MAX, 9)] {
            assert_eq!(short_bound(key), key);
        }
        for beyond in [long(BOUND_BYTES_MAX + 1, 0), long(3 * KEY_BYTES_MAX, 9)] {
            let bound = short_bound(&beyond);
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

        /// Checks every operation on ranges against its meaning for keys.
        #[test]
        fn ranges_behave_like_sets_of_keys(
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
            prop_assert_eq!(a.overlaps(&b), both.contains(&true));
            let hull = a.hull(&b);
            prop_assert!([&a, &b].iter().all(|range| hull.covers(range)));
            prop_assert!([&a.low, &b.low].contains(&&hull.low) && [&a.high, &b.high].contains(&&hull.high));
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
            let single: Vec<bool> = keys.iter().map(|key| *key == prefix).collect();
            prop_assert_eq!(of(&KeyRange::single(&prefix)), single);
        }
    }

    proptest! {
        /// With bytes of all values, and bounds that share their prefix.
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
            if PrefixBounds::of(&range).surely_contain(prefix_of(&b)) {
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
