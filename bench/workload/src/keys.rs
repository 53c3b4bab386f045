//! The text of a key.

use crate::{
    distribution::{Bijection, DistributionError, bijection::MAX_ITEMS},
    hash::fnv64,
};

/// Number in a record's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOrder {
    /// The FNV hash of the record's number, which scatters consecutive inserts
    /// (`insertorder=hashed`).
    Hashed,
    /// The record's number (`insertorder=ordered`).
    Ordered,
    /// A number of a permuted range (`insertorder=uniform`).
    Uniform(Box<KeyNumbers>),
}

/// A pseudorandom permutation of a range. Any number of consecutive records has keys that
/// are uniform in the range, without duplicates. Records beyond the range's size get
/// the keys after its end, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyNumbers {
    low: u64,
    order: Bijection,
}

impl KeyNumbers {
    /// Returns a permutation of the numbers `low` to `high`, inclusive, that the seed
    /// determines.
    pub fn new(low: u64, high: u64, seed: u64) -> Result<KeyNumbers, DistributionError> {
        if high < low {
            return Err(DistributionError::EmptyRange { min: low, max: high });
        }
        if high - low >= MAX_ITEMS {
            return Err(DistributionError::LongRange { min: low, max: high, limit: MAX_ITEMS });
        }
        Ok(KeyNumbers { low, order: Bijection::new(high - low + 1, seed)? })
    }

    /// Returns the first number of the range.
    pub fn low(&self) -> u64 {
        self.low
    }

    /// Returns the size of the range.
    pub fn count(&self) -> u64 {
        self.order.items()
    }

    /// Returns the last number of the range.
    pub fn high(&self) -> u64 {
        self.low + (self.order.items() - 1)
    }

    /// Returns the number in a record's key.
    #[inline]
    pub fn of(&self, record: u64) -> u64 {
        let place = if record < self.order.items() { self.order.apply(record) } else { record };
        self.low.saturating_add(place)
    }
}

/// Format of keys: `user` and a number, padded with zeros on the
/// left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFormat {
    /// Mapping from the record's number to the key's.
    pub order: KeyOrder,
    /// Minimum number of digits (`zeropadding`).
    pub digits: usize,
}

impl KeyFormat {
    /// Appends the key of a record.
    #[inline]
    pub fn write(&self, out: &mut String, number: u64) {
        self.write_with(out, "user", number);
    }

    /// As [`write`](Self::write), with another prefix than `user`.
    // Always: a prefix known to the compiler costs two instructions, any other a call.
    #[inline(always)]
    pub fn write_with(&self, out: &mut String, prefix: &str, number: u64) {
        let number = match &self.order {
            KeyOrder::Hashed => fnv64(number),
            KeyOrder::Ordered => number,
            KeyOrder::Uniform(numbers) => numbers.of(number),
        };
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(number);
        out.push_str(prefix);
        for _ in text.len()..self.digits {
            out.push('0');
        }
        out.push_str(text);
    }

    /// Returns the keys that split the records `first` to `first + count - 1` into `partitions` parts of
    /// equal size: the first key of each part but the first. `None` if the text order of keys
    /// differs from their numbers' order: hashed or unpadded keys.
    pub fn split_points(&self, first: u64, count: u64, partitions: u64) -> Option<Vec<String>> {
        let (low, numbers) = match &self.order {
            KeyOrder::Hashed => return None,
            KeyOrder::Ordered => (first, count),
            KeyOrder::Uniform(numbers) => (numbers.low(), numbers.count()),
        };
        let high = low.checked_add(numbers.checked_sub(1)?)?;
        if high.to_string().len() > self.digits && low.to_string().len() != high.to_string().len() {
            return None;
        }
        let format = KeyFormat { order: KeyOrder::Ordered, digits: self.digits };
        let point = |i: u64| low + (u128::from(numbers) * u128::from(i) / u128::from(partitions)) as u64;
        let mut points: Vec<u64> = (1..partitions).map(point).collect();
        points.dedup();
        // The first key is no split point.
        points.retain(|point| *point > low);
        Some(points.into_iter().map(|point| format.key(point)).collect())
    }

    /// Returns the key of a record.
    pub fn key(&self, number: u64) -> String {
        let mut key = String::new();
        self.write(&mut key, number);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn pieces_have_equal_sizes_and_are_in_text_order() {
        let numbers = |low, high| KeyOrder::Uniform(Box::new(KeyNumbers::new(low, high, 0).unwrap()));
        let uniform = KeyFormat { order: numbers(0, 999), digits: 4 };
        let points = uniform.split_points(0, 10, 4).unwrap();
        assert_eq!(points, ["user0250", "user0500", "user0750"]);
        // Fewer keys than parts.
        assert_eq!(KeyFormat { order: numbers(5, 6), digits: 1 }.split_points(0, 2, 9).unwrap(), ["user6"]);
        let ordered = |digits| KeyFormat { order: KeyOrder::Ordered, digits };
        assert_eq!(ordered(3).split_points(0, 200, 2).unwrap(), ["user100"]);
        // As text, 99 sorts after 100.
        assert_eq!(ordered(1).split_points(0, 200, 2), None);
        assert_eq!(ordered(1).split_points(100, 200, 2).unwrap(), ["user200"]);
        assert_eq!(KeyFormat { order: KeyOrder::Hashed, digits: 1 }.split_points(0, 9, 2), None);
    }

    #[test]
    fn keys_equal_those_of_ycsb() {
        let ordered = |digits| KeyFormat { order: KeyOrder::Ordered, digits };
        assert_eq!((ordered(1).key(0), ordered(1).key(5)), ("user0".into(), "user5".into()));
        assert_eq!(ordered(8).key(5), "user00000005");
        assert_eq!(ordered(2).key(12345), "user12345");
        assert_eq!(KeyFormat { order: KeyOrder::Hashed, digits: 1 }.key(0), "user6284781860667377211");
        let mut account = String::new();
        ordered(3).write_with(&mut account, "account", 7);
        assert_eq!(account, "account007");
    }

    #[test]
    fn an_empty_range_is_refused() {
        assert!(KeyNumbers::new(5, 4, 0).is_err());
        assert!(KeyNumbers::new(0, u64::MAX, 0).is_err());
        assert_eq!(KeyNumbers::new(7, 7, 0).map(|numbers| numbers.of(0)), Ok(7));
    }

    #[test]
    fn the_first_of_many_keys_are_uniform_in_the_range() {
        // As sparse as in the paper: 6 million of 12 billion.
        let numbers = KeyNumbers::new(0, 12_000_000_000, 0).unwrap();
        let mut counts = [0u64; 16];
        (0..160_000).for_each(|record| counts[(numbers.of(record) / 750_000_001) as usize] += 1);
        let chi2: f64 = counts.iter().map(|count| (*count as f64 - 10_000.0).powi(2) / 10_000.0).sum();
        // The 99.9th percentile of chi-square with 15 degrees of freedom.
        assert!(chi2 < 37.7, "{chi2}: {counts:?}");
    }

    proptest! {
        #[test]
        fn every_number_of_the_range_occurs_once_before_later_numbers(
            low in 0u64..1 << 60, count in 1u64..2000, seed in any::<u64>(),
        ) {
            let numbers = KeyNumbers::new(low, low + count - 1, seed).unwrap();
            let all: HashSet<u64> = (0..count).map(|record| numbers.of(record)).collect();
            prop_assert_eq!(all.len() as u64, count);
            prop_assert!(all.iter().all(|number| (low..=numbers.high()).contains(number)));
            prop_assert_eq!(numbers.of(count), numbers.high() + 1);
        }
    }
}
