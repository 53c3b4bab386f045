//! Numbers for people.

use std::time::Duration;

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
    fn spans() {
        let spans =
            [500, 1_500, 85_000, 1_200_000, 250_000_000, 1_500_000_000, 200_000_000_000, 90_061_000_000_000];
        assert_eq!(
            spans.map(|ns| span(Duration::from_nanos(ns))),
            ["500ns", "1.5µs", "85µs", "1.2ms", "250ms", "1s", "3m 20s", "1d 1h"]
        );
    }
}
