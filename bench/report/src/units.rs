//! Formats numbers for people.

/// Formats a time with three significant digits in the unit that fits: `999 ns`, `1.50 µs`,
/// `12.3 ms`, `3.20 s`; whole seconds above 1000 s, powers of ten from 10,000,000 s: `3.2e9 s`.
pub fn time(ns: f64) -> String {
    if !ns.is_finite() {
        return "–".to_owned();
    }
    for (unit, size) in [("ns", 1.0), ("µs", 1e3), ("ms", 1e6)] {
        let value = ns / size;
        // A value that rounds to 1000 gets the next unit.
        if value < 999.5 {
            return if unit == "ns" { format!("{value:.0} ns") } else { format!("{} {unit}", digits(value)) };
        }
    }
    match ns / 1e9 {
        seconds if seconds >= MUCH => format!("{seconds:.1e} s"),
        seconds => format!("{} s", digits(seconds)),
    }
}

/// Formats a value with `words`; a dash if it is unknown.
pub fn known<T>(value: Option<T>, words: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), words)
}

/// Value from which numbers are shown as powers of ten.
const MUCH: f64 = 1e7;

/// Formats a number with three significant digits; whole numbers above 1000.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Formats a whole number in groups of three: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// As [`count`], in at most eleven characters: numbers from a billion on in `G`.
pub fn short_count(number: u64) -> String {
    if number < 1_000_000_000 { count(number) } else { format!("{} G", digits(number as f64 / 1e9)) }
}

/// Formats a rate: three significant digits, and all digits of the whole part.
pub fn rate(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value < 999.5 { digits(value) } else { short_count(value.round() as u64) }
}

/// Formats a part as a percentage, with two significant digits below 10 %. Only 0 is `0 %`, and only
/// the whole is `100 %`.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0 %".to_owned();
    }
    let value = part as f64 / whole as f64 * 100.0;
    match value {
        v if part < whole && v >= 99.95 => "> 99.9 %".to_owned(),
        v if v >= 10.0 => format!("{v:.1} %"),
        v if v < 0.0001 => "< 0.0001 %".to_owned(),
        v => {
            let decimals = (1.0 - v.log10().floor()).max(0.0) as usize;
            format!("{v:.decimals$} %")
        }
    }
}

/// Formats a percentile: `p50`, `p99.9`.
pub fn percentile(percentile: f64) -> String {
    format!("p{percentile}")
}

/// Formats a number of things: `1 operation`, `2 operations`.
pub fn plural(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats a number of things with the verb: `1 record is`, `2 records are`.
pub fn are(number: u64, thing: &str) -> String {
    format!("{} {}", plural(number, thing), if number == 1 { "is" } else { "are" })
}

/// Formats a number of things with the verb: `1 key was`, `2 keys were`.
pub fn were(number: u64, thing: &str) -> String {
    format!("{} {}", plural(number, thing), if number == 1 { "was" } else { "were" })
}

/// Formats bytes in the binary unit that fits.
pub fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB"] {
        if value < 1023.5 {
            return if unit == "bytes" {
                format!("{number} bytes")
            } else {
                format!("{} {unit}", digits(value))
            };
        }
        value /= 1024.0;
    }
    if value >= MUCH { format!("{value:.1e} TiB") } else { format!("{} TiB", digits(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (999.4, "999 ns"),
            (999.6, "1.00 µs"),
            (1_500.0, "1.50 µs"),
            (9_996.0, "10.0 µs"),
            (99_960.0, "100 µs"),
            (999_600.0, "1.00 ms"),
            (12_345_678.0, "12.3 ms"),
            (3.2e9, "3.20 s"),
            (4.4e12, "4400 s"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(time(ns), text, "{ns}");
        }
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(short_count(12_345_678_901), "12.3 G");
        assert_eq!(rate(12_345.6), "12,346");
        assert_eq!(rate(1.234), "1.23");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(12, 740_700), "0.0016 %");
        assert_eq!(percent(999_999, 1_000_000), "> 99.9 %");
        assert_eq!(percent(1, u64::MAX), "< 0.0001 %");
        assert_eq!(percent(0, 0), "0 %");
        assert_eq!(percent(7, 7), "100.0 %");
        assert_eq!(plural(1, "run"), "1 run");
        assert_eq!(["record", "key"].map(|thing| are(1, thing)), ["1 record is", "1 key is"]);
        assert_eq!(
            [0, 1, 2000].map(|n| are(n, "record")),
            ["0 records are", "1 record is", "2,000 records are"]
        );
        assert_eq!([0, 1, 2].map(|n| were(n, "key")), ["0 keys were", "1 key was", "2 keys were"]);
        assert_eq!(bytes(25_300_000_000), "23.6 GiB");
    }
}
