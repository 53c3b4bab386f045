//! Saturating sums: numbers in files are not trusted.

use std::collections::BTreeMap;

/// Adds a number to a sum.
pub(crate) fn add(sum: &mut u64, number: u64) {
    *sum = sum.saturating_add(number);
}

/// The sum of numbers.
pub(crate) fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// The sums of numbers by key.
pub(crate) fn sums<K: Ord>(numbers: impl IntoIterator<Item = (K, u64)>) -> BTreeMap<K, u64> {
    let mut sums = BTreeMap::new();
    numbers.into_iter().for_each(|(key, number)| add(sums.entry(key).or_default(), number));
    sums
}
