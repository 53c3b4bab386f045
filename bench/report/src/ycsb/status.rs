//! The status line that YCSB prints every few seconds.

use crate::ycsb::{MeasurementType, Metrics, Options, java::two_decimals, names, us};
use jiff::Zoned;
use serval_measure::histogram::Histogram;
use serval_model::{Metric, Status};
use std::time::Duration;

/// The contents of a status line.
#[derive(Debug, Clone)]
pub struct StatusLine<'a> {
    /// The properties.
    pub options: Options<'a>,
    /// The label that it begins with.
    pub label: &'a str,
    /// Local time.
    pub now: &'a Zoned,
    /// Time since the start.
    pub elapsed: Duration,
    /// Operations that ended since the start.
    pub operations: u64,
    /// Operations a second since the last status line.
    pub current_rate: f64,
    /// Remaining operations; 0 if unknown.
    pub todo: u64,
    /// Everything measured so far, which the line lists even without new times.
    pub seen: &'a [(Metric, Status)],
    /// Times since the last status line, in YCSB's [`terms`](crate::ycsb::terms).
    pub interval: &'a Metrics,
}

impl StatusLine<'_> {
    /// Returns the line without a newline; it ends with a space, as in YCSB. It goes to standard error,
    /// and for `measurementtype=timeseries` also to standard output.
    pub fn line(&self) -> String {
        let mut line = format!("{}{} ", self.label, self.now.strftime("%Y-%m-%d %H:%M:%S:%3f"));
        line += &format!("{} sec: {} operations; ", self.elapsed.as_secs(), self.operations);
        if self.operations != 0 {
            line += &format!("{} current ops/sec; ", two_decimals(self.current_rate));
        }
        if self.todo != 0 {
            let rate = 1000.0 * (self.operations as f64 / self.elapsed.as_millis() as f64);
            // Without operations: Java's largest long, or 0 if no time has passed.
            let seconds = (self.todo as f64 / rate).ceil() as i64;
            line += &format!("est completion in {}", remaining(seconds));
        }
        for &side in self.options.sides() {
            let keys = self.seen.iter().copied().chain(names::counts(self.interval).map(|(key, _)| key));
            let mut keys: Vec<_> = keys.map(|key| (key, 1)).collect();
            keys.sort_unstable();
            keys.dedup();
            for named in names::in_order(&self.options, side, keys.into_iter()) {
                let name = self.options.printed(side, &named.name);
                let times = self.options.times(side, &named, self.interval);
                line += &summary(self.options.kind, &name, &times);
                line.push(' ');
            }
        }
        line
    }
}

fn summary(kind: MeasurementType, name: &str, times: &Histogram) -> String {
    match kind {
        MeasurementType::Hdr => hdr(name, times),
        MeasurementType::Buckets | MeasurementType::TimeSeries => average(name, times),
        MeasurementType::Raw => raw(name, times),
        MeasurementType::HdrAndBuckets => {
            format!("{}\n{}", hdr(&format!("Hdr{name}"), times), average(&format!("Bucket{name}"), times))
        }
        MeasurementType::HdrAndRaw => {
            format!("{}\n{}", hdr(&format!("Hdr{name}"), times), raw(&format!("Raw{name}"), times))
        }
    }
}

fn hdr(name: &str, times: &Histogram) -> String {
    let mut text = format!(
        "[{name}: Count={}, Max={}, Min={}, Avg={}",
        times.count(),
        us(times.max()),
        us(times.min()),
        two_decimals(times.mean() / 1000.0)
    );
    for (label, percentile) in [("50", 50.0), ("90", 90.0), ("99", 99.0), ("99.9", 99.9), ("99.99", 99.99)] {
        text += &format!(", {label}={}", us(times.percentile(percentile)));
    }
    text + "]"
}

fn average(name: &str, times: &Histogram) -> String {
    if times.is_empty() {
        return String::new();
    }
    format!("[{name} AverageLatency(us)={}]", two_decimals(times.mean() / 1000.0))
}

fn raw(name: &str, times: &Histogram) -> String {
    if times.is_empty() {
        return String::new();
    }
    let (count, mean) = (times.count(), times.mean() / 1000.0);
    format!("{name} count: {count}, average latency(us): {mean:.2}")
}

/// Formats seconds as YCSB does: days and hours, hours and minutes, or seconds. Each part ends with a
/// space; YCSB prints `10 seconds` but `9 second`.
pub fn remaining(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let mut text = String::new();
    let mut part = |number: i64, unit: &str| {
        if number > 0 {
            text += &format!("{number} {unit}{} ", if number == 1 { "" } else { "s" });
        }
    };
    part(days, "day");
    part(hours, "hour");
    if days < 1 {
        part(minutes, "minute");
    }
    if text.is_empty() {
        text = format!("{seconds} second{} ", if (0..10).contains(&seconds) { "" } else { "s" });
    }
    text
}
