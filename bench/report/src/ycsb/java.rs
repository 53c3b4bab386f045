//! Java's formats of numbers and its order of hash maps, which YCSB's output shows.

use serval_model::java::string_hash;

/// Formats as `Double.toString`: the shortest digits that parse to the same number, with at least one
/// decimal, and in scientific notation below 10^-3 and from 10^7 on.
///
/// Java before 19 sometimes prints a digit too many; this function never does.
pub fn java_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() };
    }
    if value == 0.0 || (1e-3..1e7).contains(&value.abs()) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => format!("{digits}E{exponent}"),
        Some((digits, exponent)) => format!("{digits}.0E{exponent}"),
        None => text,
    }
}

/// Formats as `DecimalFormat("#.##")`: at most two decimals, rounding half to even.
pub fn two_decimals(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞".to_owned() } else { "-∞".to_owned() };
    }
    // Java starts from the shortest digits if they suffice; beyond 17 digits it appends zeros, as
    // `{}` does.
    let text = if value.abs() < 1e15 { format!("{value:.2}") } else { format!("{value}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a number as Jackson does in JSON: infinities and NaN are quoted.
pub(crate) fn json_double(value: f64) -> String {
    let text = java_double(value);
    if value.is_finite() { text } else { format!("\"{text}\"") }
}

/// The bin of a hash code in a `ConcurrentHashMap` of `table` bins.
fn bin(hash: i32, table: usize) -> usize {
    let hash = hash as u32;
    ((hash ^ (hash >> 16)) & 0x7fff_ffff) as usize & (table - 1)
}

/// Bins of a map of `entries` entries: 16, doubled when three quarters full.
fn table(entries: usize) -> usize {
    let mut table = 16;
    while entries >= table * 3 / 4 {
        table *= 2;
    }
    table
}

/// Sorts entries into the iteration order of a `ConcurrentHashMap` that they were inserted into in the
/// given order.
pub(crate) fn map_order<T>(entries: Vec<T>, hash: impl Fn(&T) -> i32) -> Vec<T> {
    let mut bins: Vec<Vec<T>> = (0..16).map(|_| Vec::new()).collect();
    let mut count = 0;
    for entry in entries {
        let hash_code = hash(&entry);
        let size = bins.len();
        bins[bin(hash_code, size)].push(entry);
        count += 1;
        if table(count) > size {
            bins = split(bins, &hash);
        }
    }
    bins.into_iter().flatten().collect()
}

/// Doubles a table. Java splits every bin in two: it keeps the order of the last run of entries that
/// stay together, and inserts those before it in front one by one, which reverses them.
fn split<T>(bins: Vec<Vec<T>>, hash: &impl Fn(&T) -> i32) -> Vec<Vec<T>> {
    let size = bins.len();
    let mut larger: Vec<Vec<T>> = (0..2 * size).map(|_| Vec::new()).collect();
    for mut entries in bins {
        let to = |entry: &T| bin(hash(entry), 2 * size);
        let Some(last) = entries.last().map(to) else { continue };
        let run = entries.iter().rposition(|e| to(e) != last).map_or(0, |before| before + 1);
        larger[last] = entries.split_off(run);
        for entry in entries {
            larger[to(&entry)].insert(0, entry);
        }
    }
    larger
}

/// Sorts names of measurements into the order of YCSB's map.
pub(crate) fn name_order(names: Vec<&str>) -> Vec<&str> {
    map_order(names, |name| string_hash(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_java_writes_them() {
        let mut longer = 0;
        for line in include_str!("../../tests/golden/doubles.txt").lines() {
            let mut parts = line.split(' ');
            let value = f64::from_bits(u64::from_str_radix(parts.next().unwrap(), 16).unwrap());
            let (text, short) = (parts.next().unwrap(), parts.next().unwrap());
            let ours = java_double(value);
            if ours != text {
                // Java 17 may print a digit too many (JDK-4511638).
                assert!(text.len() > ours.len() && text.parse::<f64>().unwrap() == value, "{ours} {text}");
                longer += 1;
            }
            assert_eq!(two_decimals(value), short, "{value}");
        }
        assert!(longer <= 3, "{longer}");
    }

    #[test]
    fn maps_are_listed_as_java_lists_them() {
        for line in include_str!("../../tests/golden/maps.txt").lines() {
            let (inserted, listed) = line.split_once('|').unwrap();
            let names = name_order(inserted.split_whitespace().collect());
            assert_eq!(names.join(" "), listed, "{inserted}");
        }
    }
}
