//! An ordered map of few entries: most transactions write in a tree or two, at
//! one server, for which the nodes of a [`BTreeMap`](std::collections::BTreeMap)
//! are larger than all that they hold.

/// Entries in the order of their keys. A look-up takes O(log n) steps; a key that
/// is new moves those after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Few(Vec::new())
    }
}

impl<K: Ord, V> Few<K, V> {
    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| own.cmp(key))
    }

    /// The value under a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.place(key).ok().and_then(|place| self.0.get(place)).map(|(_, value)| value)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key).ok()?;
        self.0.get_mut(place).map(|(_, value)| value)
    }

    /// The value under a key; one that is made now if there is none.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let place = match self.place(&key) {
            Ok(place) => place,
            Err(place) => {
                if self.0.is_empty() {
                    // A vector makes room for four at first.
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (key, V::default()));
                place
            }
        };
        &mut self.0[place].1
    }

    /// All, in the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + ExactSizeIterator {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The keys, in their order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.0.iter().map(|(key, _)| key)
    }

    /// The values, in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator {
        self.0.iter().map(|(_, value)| value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K, V> IntoIterator for Few<K, V> {
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
        fn it_is_an_ordered_map(entries in prop::collection::vec((0..20u8, any::<u16>()), 0..60)) {
            let (mut few, mut map) = (Few::default(), BTreeMap::new());
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
