//! The lines of one measurement, by measurement type.

use crate::ycsb::{
    ExportLine, MeasurementType, Options, Report, StartBasis, Value, java::java_double,
    names::NamedMeasurement, us, whole,
};
use serval_measure::{
    histogram::Histogram,
    legacy::{LegacySeries, TimeKind},
    raw::RawSample,
};
use serval_model::Status;

/// Appends lines under one name.
struct Writer<'a> {
    name: String,
    lines: &'a mut Vec<ExportLine>,
}

impl<'a> Writer<'a> {
    fn new(prefix: &str, name: &str, lines: &'a mut Vec<ExportLine>) -> Self {
        Writer { name: format!("{prefix}{name}"), lines }
    }

    fn line(&mut self, measurement: impl Into<String>, value: Value) {
        let (metric, measurement) = (self.name.clone(), measurement.into());
        self.lines.push(ExportLine { metric, measurement, value });
    }

    fn int(&mut self, measurement: impl Into<String>, value: i64) {
        self.line(measurement, Value::Int(value));
    }

    fn float(&mut self, measurement: impl Into<String>, value: f64) {
        self.line(measurement, Value::Float(value));
    }

    fn returns(&mut self, returns: &[(Status, u64)]) {
        for (status, count) in returns {
            self.int(format!("Return={}", status.name()), whole(*count));
        }
    }
}

/// Appends all lines of a measurement.
pub(super) fn write(
    report: &Report<'_>,
    side: StartBasis,
    named: &NamedMeasurement,
    lines: &mut Vec<ExportLine>,
) {
    let options = &report.options;
    let name = options.printed(side, &named.name);
    let returns = &named.returns[..];
    let times = || options.times(side, named, report.metrics);
    match options.kind {
        MeasurementType::Hdr => hdr(options, &times(), returns, Writer::new("", &name, lines)),
        MeasurementType::Buckets => {
            buckets(options, &series(report, side, named), returns, Writer::new("", &name, lines))
        }
        MeasurementType::TimeSeries => {
            time_series(&series(report, side, named), returns, Writer::new("", &name, lines))
        }
        MeasurementType::Raw => raw(report, side, named, returns, Writer::new("", &name, lines)),
        // Of the two measurements, only the first counts statuses.
        MeasurementType::HdrAndBuckets => {
            hdr(options, &times(), returns, Writer::new("Hdr", &name, lines));
            buckets(options, &series(report, side, named), &[], Writer::new("Bucket", &name, lines));
        }
        MeasurementType::HdrAndRaw => {
            hdr(options, &times(), returns, Writer::new("Hdr", &name, lines));
            raw(report, side, named, &[], Writer::new("Raw", &name, lines));
        }
    }
}

fn hdr(options: &Options<'_>, times: &Histogram, returns: &[(Status, u64)], mut out: Writer<'_>) {
    out.int("Operations", whole(times.count()));
    out.float("AverageLatency(us)", times.mean() / 1000.0);
    out.int("MinLatency(us)", us(times.min()));
    out.int("MaxLatency(us)", us(times.max()));
    for &percentile in options.percentiles {
        out.int(format!("{}PercentileLatency(us)", ordinal(percentile)), us(times.percentile(percentile)));
    }
    out.returns(returns);
    if options.verbose {
        for step in times.to_hdr(1000).iter_recorded() {
            let value = step.value_iterated_to().min(i32::MAX as u64);
            out.float(value.to_string(), step.count_since_last_iteration() as f64);
        }
    }
}

/// `1st`, `2nd`, `50th`; a fraction has no ending.
fn ordinal(percentile: f64) -> String {
    if percentile % 1.0 != 0.0 {
        return java_double(percentile);
    }
    let number = percentile as i64;
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// The series of a measurement that the older types keep.
fn series(report: &Report<'_>, side: StartBasis, named: &NamedMeasurement) -> LegacySeries {
    let time = match side {
        StartBasis::Service => TimeKind::Service,
        StartBasis::Response => TimeKind::Response,
    };
    let mut sum = LegacySeries::default();
    for (metric, status) in &named.sources {
        if let Some(series) = report.legacy.get(&(*metric, *status, time)) {
            sum.merge(series);
        }
    }
    sum
}

/// A minimum or maximum of the older types: -1 if there is none.
fn bound(series: &LegacySeries, us: u64) -> i64 {
    if series.count == 0 { -1 } else { whole(us) }
}

fn buckets(options: &Options<'_>, series: &LegacySeries, returns: &[(Status, u64)], mut out: Writer<'_>) {
    let count = series.count as f64;
    // 0 / 0 is NaN, as in Java.
    let mean = series.sum_us as f64 / count;
    let bucket = |index: usize| series.buckets.get(index).copied().unwrap_or(0);
    out.int("Operations", whole(series.count));
    out.float("AverageLatency(us)", mean);
    out.float("LatencyVariance(us)", series.sum_squares / count - mean * mean);
    out.int("MinLatency(us)", bound(series, series.min_us));
    out.int("MaxLatency(us)", bound(series, series.max_us));
    let (mut seen, mut done_95th) = (0u64, false);
    for index in 0..options.buckets {
        seen += bucket(index);
        let share = seen as f64 / count;
        let value = whole(index as u64 * 1000);
        if !done_95th && share >= 0.95 {
            out.int("95thPercentileLatency(us)", value);
            done_95th = true;
        }
        if share >= 0.99 {
            out.int("99thPercentileLatency(us)", value);
            break;
        }
    }
    out.returns(returns);
    if options.verbose {
        for index in 0..options.buckets {
            out.int(index.to_string(), whole(bucket(index)));
        }
        out.int(format!(">{}", options.buckets), whole(bucket(options.buckets)));
    }
}

fn time_series(series: &LegacySeries, returns: &[(Status, u64)], mut out: Writer<'_>) {
    out.int("Operations", whole(series.count));
    out.float("AverageLatency(us)", series.sum_us as f64 / series.count as f64);
    out.int("MinLatency(us)", bound(series, series.min_us));
    out.int("MaxLatency(us)", bound(series, series.max_us));
    out.returns(returns);
    // YCSB's time begins with the first measurement.
    let first = series.units.keys().next().copied().unwrap_or(0);
    for (unit, (sum, count)) in &series.units {
        out.float((unit - first).to_string(), *sum as f64 / *count as f64);
    }
    if series.units.is_empty() {
        out.float("0", f64::NAN);
    }
}

/// The single times of a measurement.
pub(super) fn samples<'a>(
    report: &'a Report<'_>,
    named: &'a NamedMeasurement,
) -> impl Iterator<Item = &'a RawSample> {
    report.raw.iter().filter(|sample| named.sources.contains(&(sample.metric, sample.status)))
}

/// A single time in µs.
pub(super) fn sample_us(side: StartBasis, sample: &RawSample) -> i64 {
    us(match side {
        StartBasis::Service => sample.times.service,
        StartBasis::Response => sample.times.response,
    })
}

fn raw(
    report: &Report<'_>,
    side: StartBasis,
    named: &NamedMeasurement,
    returns: &[(Status, u64)],
    mut out: Writer<'_>,
) {
    let mut times: Vec<i64> = samples(report, named).map(|sample| sample_us(side, sample)).collect();
    times.sort_unstable();
    out.int("Total Operations", whole(times.len() as u64));
    if let (Some(min), Some(max), false) = (times.first(), times.last(), report.options.raw_no_summary) {
        out.int("Below is a summary of latency in microseconds:", -1);
        out.float("Average", times.iter().sum::<i64>() as f64 / times.len() as f64);
        out.int("Min", *min);
        out.int("Max", *max);
        let parts = [
            ("p1", 0.01),
            ("p5", 0.05),
            ("p50", 0.5),
            ("p90", 0.9),
            ("p95", 0.95),
            ("p99", 0.99),
            ("p99.9", 0.999),
            ("p99.99", 0.9999),
        ];
        for (name, part) in parts {
            out.int(name, times[(times.len() as f64 * part) as usize]);
        }
    }
    out.returns(returns);
}
