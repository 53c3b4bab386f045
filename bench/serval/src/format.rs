//! Numbers for people.

use std::time::Duration;

/// A count with thousands apart: `12,345`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A span of time in the unit that reads best: `85µs`, `1.2ms`, `3m 20s`.
pub(crate) fn span(span: Duration) -> String {
    let ns = span.as_nanos() as f64;
    let digits = |value: f64, unit: &str| {
        let decimals = if value < 10.0 { 1 } else { 0 };
        format!("{value:.decimals$}{unit}")
    };
    match span.as_secs() {
        0 if ns < 1e3 => format!("{ns:.0}ns"),
        0 if ns < 1e6 => digits(ns / 1e3, "µs"),
        0 => digits(ns / 1e6, "ms"),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        seconds @ 3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        seconds => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_spans() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        let spans =
            [500, 1_500, 85_000, 1_200_000, 250_000_000, 1_500_000_000, 200_000_000_000, 90_061_000_000_000];
        assert_eq!(
            spans.map(|ns| span(Duration::from_nanos(ns))),
            ["500ns", "1.5µs", "85µs", "1.2ms", "250ms", "1s", "3m 20s", "1d 1h"]
        );
    }
}
