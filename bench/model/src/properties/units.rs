//! Sizes, durations and counts with units.

use std::time::Duration;

/// Parses a size in bytes: `100`, `64KiB`, `64k`, `1.5GB`, `1 MiB`.
///
/// `kB`, `MB`, ... are powers of 1000; `KiB`, `MiB`, ... powers of 1024. A
/// single letter (`k`, `M`, `G`, `T`) is the power of 1024, as in Java tools
/// and redis.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(format!("unknown unit '{unit}': use B, KiB, MiB, GiB, TiB, kB, MB, GB or TB")),
    };
    scale(number, factor, "size")
}

/// Parses a duration in nanoseconds: `250ms`, `10m`, `1.5h`, or a bare number
/// in units of `bare_ns` nanoseconds.
pub fn parse_duration(text: &str, bare_ns: u64) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor: u64 = match unit {
        "" => bare_ns,
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" | "secs" => 1_000_000_000,
        "m" | "min" | "mins" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(format!("unknown unit '{unit}': use ns, us, ms, s, m, h or d")),
    };
    scale(number, factor, "time span")
}

/// Formats a count with its noun: `1 record`, `2 records`.
pub fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_' || c == '+' || c == '-'))
        .unwrap_or(text.len());
    (text[..end].trim(), text[end..].trim())
}

fn scale(number: &str, factor: u64, what: &str) -> Result<u64, String> {
    let plain = number.replace('_', "");
    if let Ok(whole) = plain.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("is too large a {what}"));
    }
    let value: f64 = plain.parse().map_err(|_| format!("is not a {what}"))?;
    if value < 0.0 {
        return Err(format!("a {what} cannot be negative"));
    }
    let scaled = value * factor as f64;
    // Just below 2^63; larger sizes and durations are not meaningful.
    if !scaled.is_finite() || scaled > 9.2e18 {
        return Err(format!("is too large a {what}"));
    }
    Ok(scaled.round() as u64)
}

/// Converts to ns. A longer duration becomes `u64::MAX`, an instant that is never reached.
#[inline]
pub fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Formats a duration like [`format_duration`].
pub fn format_span(span: Duration) -> String {
    format_duration(nanoseconds(span))
}

/// Formats nanoseconds with the most readable unit: `1.5s`, `250ms`, `10m`.
pub fn format_duration(ns: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    for (size, unit) in UNITS {
        if ns >= size && ns.is_multiple_of(size) {
            return format!("{}{unit}", ns / size);
        }
    }
    for (size, unit) in UNITS {
        if ns >= size {
            return format!("{:.2}{unit}", ns as f64 / size as f64);
        }
    }
    "0s".into()
}

/// Formats a number of bytes with a binary unit: `1.5 MiB`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("100", 100),
            ("1KiB", 1024),
            ("1k", 1024),
            ("1kB", 1000),
            ("1.5 GiB", 3 << 29),
            ("1_000", 1000),
            ("2TB", 2_000_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "1XB", "-1", "1e400", "99999999999TiB", "."] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations() {
        let second = 1_000_000_000;
        for (text, ns) in [
            ("10", 10 * second),
            ("10m", 600 * second),
            ("250ms", 250_000_000),
            ("1.5h", 5_400 * second),
            ("3us", 3_000),
            ("0", 0),
        ] {
            assert_eq!(parse_duration(text, second), Ok(ns), "{text}");
        }
        assert!(parse_duration("10 parsecs", second).is_err());
        assert!(parse_duration("-1s", second).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in ".*") {
            let _ = parse_size(&text);
            let _ = parse_duration(&text, 1_000_000_000);
        }

        #[test]
        fn whole_units_survive_a_round_trip(n in 0u64..1_000_000, unit in 0usize..6) {
            let ns = n * [1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000][unit];
            prop_assert_eq!(parse_duration(&format_duration(ns), 1), Ok(ns));
        }
    }
}
