//! The time series of a workload: their number, names and write order.
//!
//! Law: a series is a key with a value for each tag. With K keys and tags of
//! c(0) to c(T-1) values there are V = c(0) ... c(T-1) series per key and K V
//! in total. The tag values of a key are counted like the digits of a number v
//! below V, the last tag fastest. Step n writes the series with v = n mod V
//! of the client's key number floor(n/P) mod k, at its timestamp number
//! floor(n/(P k)), where k is the number of the client's keys.
//!
//! P, the number of steps between two keys, should be V. YCSB's odometer
//! carries into the key whenever it passes a tag with one value, so P is the
//! product of the cardinalities after the last such tag. With `1,2,4,8` that
//! is V; with `2,1` it is 1, and only one of the two series of each of two
//! keys is ever written.
//!
//! Example: 2 keys and `1,2` write (AA; AA, AA), (AA; AA, AB), (AB; AA, AA),
//! (AB; AA, AB), and the same again at the next timestamp.
//!
//! A series needs no memory, so there may be 10^12 of them.

use crate::distribution::{Bijection, DistributionError};

/// Letters of names: upper- and lower-case ASCII letters in the order of their code points.
const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Largest number of series: the limit of a shuffle, and of exact comparisons of the share of delayed series as
/// `f64`.
pub(super) const SERIES_MAX: u64 = 1 << 52;

/// Seed of shuffled names. It is the same for all runs, so that a run queries series that a load wrote; YCSB's
/// order differs from run to run.
const SHUFFLE_SEED: u64 = 0;

/// Returns the number of names of a length; `None` if there are 2^64 or more.
pub(super) fn names_of(length: u64) -> Option<u64> {
    u32::try_from(length).ok().and_then(|length| (LETTERS.len() as u64).checked_pow(length))
}

/// Appends name number `number` of a length, in the order of YCSB's `IncrementingPrintableStringGenerator`: 52
/// letters, the last fastest, and from the start again after the last name. AA, AB, ..., Az, BA.
pub(super) fn write_name(out: &mut String, mut number: u64, length: usize) {
    // 12 digits of base 52 hold any number below 2^64.
    let mut digits = [0u8; 12];
    let used = digits.len().min(length);
    for digit in digits[..used].iter_mut().rev() {
        *digit = (number % LETTERS.len() as u64) as u8;
        number /= LETTERS.len() as u64;
    }
    out.extend(std::iter::repeat_n(char::from(LETTERS[0]), length - used));
    out.extend(digits[..used].iter().map(|&digit| char::from(LETTERS[digit as usize])));
}

/// Most letters of all names together that are stored; beyond, each name is computed on use.
const STORED_MAX: u64 = 1 << 20;

/// Names by number, in order or shuffled.
#[derive(Debug, Clone)]
pub(super) struct SeriesNames {
    count: u64,
    length: usize,
    shuffle: Option<Bijection>,
    /// All names, concatenated, if they are few; otherwise empty.
    stored: String,
}

impl SeriesNames {
    pub(super) fn new(count: u64, length: usize, shuffled: bool) -> Result<Self, DistributionError> {
        let shuffle = if shuffled { Some(Bijection::new(count, SHUFFLE_SEED)?) } else { None };
        let mut names = SeriesNames { count, length, shuffle, stored: String::new() };
        if count.saturating_mul(length as u64) <= STORED_MAX {
            let mut stored = String::new();
            (0..count).for_each(|index| names.compute(&mut stored, index));
            names.stored = stored;
        }
        Ok(names)
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Appends the name with an index below [`count`](Self::count).
    #[inline]
    pub(super) fn write(&self, out: &mut String, index: u64) {
        if self.stored.is_empty() {
            self.compute(out, index);
        } else {
            let start = index as usize * self.length;
            out.push_str(&self.stored[start..start + self.length]);
        }
    }

    fn compute(&self, out: &mut String, index: u64) {
        let number = self.shuffle.as_ref().map_or(index, |shuffle| shuffle.apply(index));
        write_name(out, number, self.length);
    }
}

/// The cardinalities of tags.
#[derive(Debug, Clone)]
pub(super) struct Cardinality {
    /// Number of values of each tag, and number of series from one value to the next.
    tags: Vec<(u64, u64)>,
    /// V, the number of series per key.
    pub(super) per_key: u64,
    /// K V, the number of series.
    pub(super) total: u64,
    /// P, the number of steps between two keys.
    period: u64,
}

impl Cardinality {
    /// Makes the cardinalities of `keys` keys and tags with `counts` values; `None` for more than [`SERIES_MAX`]
    /// series. `whole` makes P = V.
    pub(super) fn new(keys: u64, counts: &[u64], whole: bool) -> Option<Self> {
        let total = counts.iter().try_fold(keys, |total, &count| total.checked_mul(count))?;
        if total > SERIES_MAX {
            return None;
        }
        let mut after = 1;
        let mut tags: Vec<(u64, u64)> = counts
            .iter()
            .rev()
            .map(|&count| {
                let tag = (count, after);
                after *= count;
                tag
            })
            .collect();
        tags.reverse();
        let single = tags.iter().rev().find(|(count, _)| *count == 1);
        let period = single.filter(|_| !whole).map_or(after, |(_, after)| *after);
        Some(Cardinality { tags, per_key: after, total, period })
    }

    /// Returns whether YCSB's write order omits series.
    pub(super) fn is_broken(&self) -> bool {
        self.period != self.per_key
    }

    /// Returns the number of values of a tag.
    pub(super) fn values(&self, tag: usize) -> u64 {
        self.tags[tag].0
    }

    /// Returns the number of the value of a tag in series number `v` of a key.
    pub(super) fn value(&self, tag: usize, v: u64) -> u64 {
        let (count, after) = self.tags[tag];
        v / after % count
    }

    /// Returns the data point of a step of a client with `keys` keys from `first` on.
    pub(super) fn point(&self, step: u64, first: u64, keys: u64) -> SeriesPoint {
        let turns = step / self.period;
        SeriesPoint { key: first + turns % keys, v: step % self.per_key, tick: turns / keys }
    }
}

/// Series and timestamp of a data point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeriesPoint {
    /// Number of the key.
    pub(super) key: u64,
    /// Number of the series among those of the key.
    pub(super) v: u64,
    /// Number of the timestamp, from 0.
    pub(super) tick: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64, length: usize) -> String {
        let mut out = String::new();
        write_name(&mut out, number, length);
        out
    }

    #[test]
    fn names_count_up_and_begin_again() {
        assert_eq!([0, 1, 25, 26, 51, 52].map(|n| name(n, 2)), ["AA", "AB", "AZ", "Aa", "Az", "BA"]);
        assert_eq!((name(52 * 52 - 1, 2), name(52 * 52, 2)), ("zz".into(), "AA".into()));
        assert_eq!((name(1, 15), name(53, 1)), ("AAAAAAAAAAAAAAB".into(), "B".into()));
        assert_eq!((names_of(1), names_of(2), names_of(12)), (Some(52), Some(2704), None));
    }

    #[test]
    fn shuffled_names_are_the_same_names() {
        let write = |names: &SeriesNames, index| {
            let mut out = String::new();
            names.write(&mut out, index);
            out
        };
        let shuffled = SeriesNames::new(100, 2, true).unwrap();
        let mut drawn: Vec<String> = (0..100).map(|index| write(&shuffled, index)).collect();
        let computed = SeriesNames { stored: String::new(), ..shuffled.clone() };
        assert_eq!(drawn, (0..100).map(|index| write(&computed, index)).collect::<Vec<_>>());
        let in_turn: Vec<String> = (0..100).map(|n| name(n, 2)).collect();
        assert_ne!(drawn, in_turn);
        drawn.sort();
        assert_eq!(drawn, in_turn);
    }

    /// YCSB's odometer, step by step.
    fn odometer(counts: &[u64], keys: u64, steps: usize) -> Vec<SeriesPoint> {
        let mut digits = vec![0; counts.len()];
        let first = counts.iter().position(|&count| count > 1).unwrap_or(0);
        let (mut key, mut tick) = (0, 0);
        (0..steps)
            .map(|_| {
                let v = counts.iter().zip(&digits).fold(0, |v, (count, digit)| v * count + digit);
                let point = SeriesPoint { key, v, tick };
                let mut carry = false;
                for i in (0..counts.len()).rev() {
                    if counts[i] <= 1 {
                        carry = true;
                    } else if digits[i] + 1 >= counts[i] {
                        digits[i] = 0;
                        carry |= i == first;
                    } else {
                        digits[i] += 1;
                        break;
                    }
                }
                if carry {
                    key += 1;
                    if key == keys {
                        (key, tick) = (0, tick + 1);
                    }
                }
                point
            })
            .collect()
    }

    #[test]
    fn steps_are_those_of_the_odometer() {
        for counts in [
            &[1][..],
            &[3],
            &[1, 2, 4, 8],
            &[2, 1],
            &[2, 1, 3],
            &[1, 1, 1],
            &[2, 3, 1, 2, 1, 1, 4],
            &[4, 3, 2, 1],
        ] {
            for keys in [1, 2, 5] {
                let cardinality = Cardinality::new(keys, counts, false).unwrap();
                let steps: Vec<SeriesPoint> =
                    (0..1000).map(|step| cardinality.point(step, 0, keys)).collect();
                assert_eq!(steps, odometer(counts, keys, 1000), "{counts:?}, {keys} keys");
            }
        }
    }
}
