//! An ordered map of few entries. Most transactions write to one or two trees at one server, for
//! which a node of a [`BTreeMap`](std::collections::BTreeMap) is larger than the content.

/// Entries sorted by key. A lookup takes O(log n); inserting a new key moves the entries after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmallMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        SmallMap(Vec::new())
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| own.cmp(key))
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.place(key).ok().and_then(|place| self.0.get(place)).map(|(_, value)| value)
    }

    /// Returns the value of a key for modification.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key).ok()?;
        self.0.get_mut(place).map(|(_, value)| value)
    }

    /// Returns the value of a key, inserting the default if there is none.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let place = match self.place(&key) {
            Ok(place) => place,
            Err(place) => {
                if self.0.is_empty() {
                    // A vector would reserve four places at first.
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (key, V::default()));
                place
            }
        };
        &mut self.0[place].1
    }

    /// Iterates over the entries in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + ExactSizeIterator {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Iterates over the keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.0.iter().map(|(key, _)| key)
    }

    /// Iterates over the values in key order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator {
        self.0.iter().map(|(_, value)| value)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K, V> IntoIterator for SmallMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_small_map_behaves_like_an_ordered_map(entries in prop::collection::vec((0..20u8, any::<u16>()), 0..60)) {
            let (mut few, mut map) = (SmallMap::default(), BTreeMap::new());
            for (key, value) in entries {
                *few.or_default(key) = value;
                map.insert(key, value);
                if let Some(value) = few.get_mut(&(key / 2)) {
                    *value ^= 1;
                }
                map.entry(key / 2).and_modify(|value| *value ^= 1);
                prop_assert!((0..20).all(|key| few.get(&key) == map.get(&key)));
            }
            prop_assert!(few.keys().eq(map.keys()) && few.values().eq(map.values()));
            prop_assert!(few.iter().eq(map.iter()));
            prop_assert_eq!((few.len(), few.is_empty()), (map.len(), map.is_empty()));
            prop_assert!(few.into_iter().eq(map));
        }
    }
}
