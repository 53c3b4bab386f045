//! YCSB's output, line for line, for scripts written for YCSB.
//!
//! Times are in microseconds. `[READ]` is the service time (from the actual start), and
//! `[Intended-READ]` the response time, if `measurement.interval` asks for it. The output has nothing
//! that YCSB would not print. Lines have YCSB's order, which is that of Java's hash maps.

pub mod client_lines;
mod export;
pub mod java;
mod kinds;
mod names;
mod status;
pub mod terms;
#[cfg(test)]
mod tests;

pub use export::Exporter;
pub use status::{StatusLine, remaining};

use names::NamedMeasurement;
use serval_measure::{
    histogram::Histogram,
    legacy::{LegacySeries, TimeKind},
    raw::RawSample,
    recorder::Pair,
};
use serval_model::{Metric, Status};
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// Histograms by metric and status, as [`Totals`](serval_measure::recorder::Totals)
/// has them.
pub type Metrics = BTreeMap<(Metric, Status), Pair>;

/// Series of the older measurement types, merged over all threads.
pub type Legacy = BTreeMap<(Metric, Status, TimeKind), LegacySeries>;

/// `measurement.interval`: which times are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IntervalMode {
    /// `op`: service times.
    #[default]
    Op,
    /// `intended`: response times, under the plain names.
    Intended,
    /// `both`: response times as well, under `Intended-` names.
    Both,
}

impl IntervalMode {
    /// Parses the property's value.
    pub fn from_name(name: &str) -> Option<IntervalMode> {
        match name {
            "op" => Some(IntervalMode::Op),
            "intended" => Some(IntervalMode::Intended),
            "both" => Some(IntervalMode::Both),
            _ => None,
        }
    }
}

/// `measurementtype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MeasurementType {
    /// `hdrhistogram`.
    #[default]
    Hdr,
    /// `histogram`: buckets of 1 ms.
    Buckets,
    /// `hdrhistogram+histogram`.
    HdrAndBuckets,
    /// `hdrhistogram+raw`.
    HdrAndRaw,
    /// `timeseries`: averages over time.
    TimeSeries,
    /// `raw`: every time.
    Raw,
}

impl MeasurementType {
    /// Parses the property's value.
    pub fn from_name(name: &str) -> Option<MeasurementType> {
        match name {
            "hdrhistogram" => Some(MeasurementType::Hdr),
            "histogram" => Some(MeasurementType::Buckets),
            "hdrhistogram+histogram" => Some(MeasurementType::HdrAndBuckets),
            "hdrhistogram+raw" => Some(MeasurementType::HdrAndRaw),
            "timeseries" => Some(MeasurementType::TimeSeries),
            "raw" => Some(MeasurementType::Raw),
            _ => None,
        }
    }

    /// Whether single times are printed, so that the run must keep them.
    pub fn is_raw(self) -> bool {
        matches!(self, MeasurementType::Raw | MeasurementType::HdrAndRaw)
    }
}

/// The properties of YCSB's output.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Names of the workload's own metrics.
    pub custom: &'a [&'a str],
    /// Whether operations had intended starts (`target`).
    pub paced: bool,
    /// `measurement.interval`.
    pub interval: IntervalMode,
    /// `measurementtype`.
    pub kind: MeasurementType,
    /// `hdrhistogram.percentiles`, in the order given.
    pub percentiles: &'a [f64],
    /// `measurement.histogram.verbose`.
    pub verbose: bool,
    /// `histogram.buckets`.
    pub buckets: usize,
    /// `measurement.raw.no_summary`.
    pub raw_no_summary: bool,
    /// `reportlatencyforeacherror`.
    pub report_each_error: bool,
    /// `latencytrackederrors`: names of statuses.
    pub tracked_errors: &'a [String],
}

impl Default for Options<'_> {
    /// YCSB's defaults.
    fn default() -> Self {
        Options {
            custom: &[],
            paced: false,
            interval: IntervalMode::default(),
            kind: MeasurementType::default(),
            percentiles: &[50.0, 95.0, 99.0],
            verbose: false,
            buckets: 1000,
            raw_no_summary: false,
            report_each_error: false,
            tracked_errors: &[],
        }
    }
}

/// The contents of YCSB's report.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The properties.
    pub options: Options<'a>,
    /// Run time in ms.
    pub runtime_ms: u64,
    /// Operations (a read-modify-write is one).
    pub operations: u64,
    /// All times, in YCSB's [`terms`].
    pub metrics: &'a Metrics,
    /// What `histogram` and `timeseries` need, in YCSB's terms; empty for the other kinds.
    pub legacy: &'a Legacy,
    /// What `raw` needs, in YCSB's terms; empty for the other kinds.
    pub raw: &'a [RawSample],
}

/// A value of a line: YCSB prints integers without decimals, other numbers with at least one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

/// One line: `[metric], measurement, value`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportLine {
    /// For example `READ-FAILED`.
    pub metric: String,
    /// For example `99thPercentileLatency(us)`.
    pub measurement: String,
    /// The value.
    pub value: Value,
}

/// Which of YCSB's two maps of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartBasis {
    /// Times from the actual start.
    Service,
    /// Times from the intended start.
    Response,
}

impl Options<'_> {
    /// The maps to print, in order.
    fn sides(&self) -> &'static [StartBasis] {
        match self.interval {
            IntervalMode::Op => &[StartBasis::Service],
            IntervalMode::Intended => &[StartBasis::Response],
            IntervalMode::Both => &[StartBasis::Service, StartBasis::Response],
        }
    }

    /// The name under which a map's measurement is printed.
    fn printed(&self, side: StartBasis, name: &str) -> String {
        match (side, self.interval) {
            (StartBasis::Response, IntervalMode::Intended) | (StartBasis::Service, _) => name.to_owned(),
            (StartBasis::Response, _) => format!("Intended-{name}"),
        }
    }

    /// The times of a measurement.
    fn times(&self, side: StartBasis, named: &NamedMeasurement, metrics: &Metrics) -> Histogram {
        let mut times = Histogram::new();
        for pair in named.sources.iter().filter_map(|key| metrics.get(key)) {
            // Without pacing the response times are the service times.
            times.merge(if side == StartBasis::Response && self.paced {
                &pair.response
            } else {
                &pair.service
            });
        }
        times
    }
}

impl Report<'_> {
    /// Returns all lines, in YCSB's order.
    pub fn lines(&self) -> Vec<ExportLine> {
        let overall = |measurement: &str, value| ExportLine {
            metric: "OVERALL".to_owned(),
            measurement: measurement.to_owned(),
            value,
        };
        let throughput = 1000.0 * self.operations as f64 / self.runtime_ms as f64;
        let mut lines = vec![
            overall("RunTime(ms)", Value::Int(whole(self.runtime_ms))),
            overall("Throughput(ops/sec)", Value::Float(throughput)),
        ];
        for &side in self.options.sides() {
            for named in names::in_order(&self.options, side, names::counts(self.metrics)) {
                kinds::write(self, side, &named, &mut lines);
            }
        }
        lines
    }

    /// Number of measurements in all maps that are printed.
    pub fn measurements(&self) -> usize {
        let of = |side| names::in_order(&self.options, side, names::counts(self.metrics)).len();
        self.options.sides().iter().map(|side| of(*side)).sum()
    }

    /// Writes every single time as the kinds `raw` and `hdrhistogram+raw` do,
    /// before the lines; `epoch_ms` is the run's start since 1970.
    pub fn write_raw_points(&self, epoch_ms: u64, out: &mut impl Write) -> io::Result<()> {
        let prefix = if self.options.kind == MeasurementType::HdrAndRaw { "Raw" } else { "" };
        for &side in self.options.sides() {
            for named in names::in_order(&self.options, side, names::counts(self.metrics)) {
                let name = format!("{prefix}{}", self.options.printed(side, &named.name));
                writeln!(out, "{name} latency raw data: op, timestamp(ms), latency(us)")?;
                let mut samples: Vec<_> = kinds::samples(self, &named).collect();
                samples.sort_by_key(|sample| sample.end_ns);
                for sample in samples {
                    let ms = epoch_ms + sample.end_ns / 1_000_000;
                    writeln!(out, "{name},{ms},{}", kinds::sample_us(side, sample))?;
                }
            }
        }
        out.flush()
    }
}

/// A count as Java's `long`.
fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Nanoseconds as whole microseconds, rounded down as in YCSB.
fn us(ns: u64) -> i64 {
    whole(ns / 1000)
}
