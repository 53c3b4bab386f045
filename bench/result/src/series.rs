//! The series of a document: its intervals.

use serde::{Deserialize, Serialize};
use serval_measure::histogram::Histogram;
use std::collections::BTreeMap;

/// Numbers of one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntervalSummary {
    /// Start, seconds since the run's start.
    pub start_s: f64,
    /// Length, s.
    pub length_s: f64,
    /// Whether it belongs to the warm-up.
    pub warm_up: bool,
    /// Operations by metric.
    pub metrics: BTreeMap<String, IntervalMetric>,
    /// Offered load and lateness, if the run was paced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing: Option<IntervalPacing>,
}

/// Offered load and lateness in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntervalPacing {
    /// Operations due in the interval.
    pub due: f64,
    /// Actual start after intended start, of operations started in the interval.
    /// Zeros during the warm-up.
    pub lateness: IntervalTimes,
}

/// One operation's numbers in one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntervalMetric {
    /// Number of operations that succeeded.
    pub ok: u64,
    /// Number of operations that failed.
    pub failed: u64,
    /// Response times of operations that succeeded.
    pub response: IntervalTimes,
    /// Service times of operations that succeeded.
    pub service: IntervalTimes,
    /// Distribution of the response times of operations that succeeded, for heat
    /// maps: `level:count` for each level that is not empty, in rising order,
    /// separated by spaces. Level L contains the times t with
    /// 10^(L/10) <= t < 10^((L+1)/10) ns: ten levels a decade.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub levels: String,
}

/// Summary of an interval's times. The HDR log has the whole histogram.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntervalTimes {
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

/// Formats a histogram as [`IntervalMetric::levels`].
pub fn levels(histogram: &Histogram) -> String {
    let mut text = String::new();
    let mut push = |level: u32, count: u64| {
        let space = if text.is_empty() { "" } else { " " };
        text.push_str(&format!("{space}{level}:{count}"));
    };
    let mut open: Option<(u32, u64)> = None;
    for (ns, count) in histogram.iter() {
        let level = (10.0 * (ns.max(1) as f64).log10()).floor() as u32;
        match &mut open {
            Some((same, sum)) if *same == level => *sum += count,
            _ => {
                if let Some((level, sum)) = open.replace((level, count)) {
                    push(level, sum);
                }
            }
        }
    }
    if let Some((level, sum)) = open {
        push(level, sum);
    }
    text
}

/// Parses the output of [`levels`] into pairs of a level and a count. Skips
/// malformed pairs.
pub fn parse_levels(text: &str) -> impl Iterator<Item = (u32, u64)> + '_ {
    text.split(' ').filter_map(|pair| {
        let (level, count) = pair.split_once(':')?;
        Some((level.parse().ok()?, count.parse().ok()?))
    })
}

impl IntervalTimes {
    /// Returns the summary of a histogram.
    pub fn of(histogram: &Histogram) -> Self {
        IntervalTimes {
            mean_ns: histogram.mean(),
            p50_ns: histogram.percentile(50.0),
            p95_ns: histogram.percentile(95.0),
            p99_ns: histogram.percentile(99.0),
            p999_ns: histogram.percentile(99.9),
            max_ns: histogram.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_tenths_of_decades() {
        let mut histogram = Histogram::new();
        for ns in [1, 1_000, 1_001, 1_300, 20_000_000] {
            histogram.record(ns);
        }
        let text = levels(&histogram);
        assert_eq!(text, "0:1 30:2 31:1 73:1");
        let sum: u64 = parse_levels(&text).map(|(_, count)| count).sum();
        assert_eq!(sum, 5);
        assert_eq!(parse_levels("x 3 4:y 5:6").collect::<Vec<_>>(), [(5, 6)]);
        assert_eq!(parse_levels(&levels(&Histogram::new())).count(), 0);
    }
}
