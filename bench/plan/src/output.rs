//! What YCSB's output shows.

use crate::properties as p;
use serval_model::properties::Reader;
use serval_report::ycsb;
use std::path::PathBuf;

/// What YCSB's output shows.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputOptions {
    /// `measurementtype`.
    pub measurement_type: &'static str,
    /// `measurement.interval`.
    pub interval: ycsb::Interval,
    /// `hdrhistogram.percentiles`, in the order given.
    pub percentiles: Vec<f64>,
    /// Where `.hdr` files go, if asked for.
    pub hdr_files: Option<String>,
    /// Whether every cell is shown.
    pub verbose: bool,
    /// Buckets of the older histogram.
    pub buckets: usize,
    /// Where raw times go; `None` is standard output.
    pub raw_file: Option<PathBuf>,
    /// Whether raw times come without a summary.
    pub raw_no_summary: bool,
    /// Whether failures are shown by status.
    pub each_error: bool,
    /// Statuses of failures shown apart.
    pub tracked_errors: Vec<String>,
    /// `exporter`.
    pub exporter: String,
    /// Where the export goes; `None` is standard output.
    pub export_file: Option<PathBuf>,
}

impl OutputOptions {
    /// Reads what properties say of it.
    pub(crate) fn read(reader: &mut Reader<'_>) -> OutputOptions {
        let percentiles = reader.numbers(&p::PERCENTILES);
        if percentiles.iter().any(|p| !(0.0..=100.0).contains(p)) {
            reader.fault(&p::PERCENTILES, "percentiles are from 0 to 100");
        }
        let interval = ycsb::Interval::from_name(reader.choice(&p::MEASUREMENT_INTERVAL)).unwrap_or_default();
        let exporter = reader.text(&p::EXPORTER);
        if exporter != "json" && ycsb::Exporter::from_name(&exporter).is_none() {
            reader.fault(&p::EXPORTER, "no such exporter. Use YCSB's class names, 'ycsb' or 'json'");
        }
        OutputOptions {
            measurement_type: reader.choice(&p::MEASUREMENT_TYPE),
            interval,
            percentiles,
            hdr_files: reader.flag(&p::HDR_FILE_OUTPUT).then(|| reader.text(&p::HDR_OUTPUT_PATH)),
            verbose: reader.flag(&p::HISTOGRAM_VERBOSE),
            buckets: reader.count(&p::HISTOGRAM_BUCKETS) as usize,
            raw_file: reader.path(&p::RAW_OUTPUT_FILE),
            raw_no_summary: reader.flag(&p::RAW_NO_SUMMARY),
            each_error: reader.flag(&p::REPORT_EACH_ERROR),
            tracked_errors: reader.names(&p::TRACKED_ERRORS),
            exporter,
            export_file: reader.path(&p::EXPORT_FILE),
        }
    }

    /// The options of YCSB's output.
    pub fn ycsb<'a>(&'a self, custom: &'a [&'a str], paced: bool) -> ycsb::Options<'a> {
        ycsb::Options {
            custom,
            paced,
            interval: self.interval,
            kind: ycsb::Kind::from_name(self.measurement_type).unwrap_or_default(),
            percentiles: &self.percentiles,
            verbose: self.verbose,
            buckets: self.buckets,
            raw_no_summary: self.raw_no_summary,
            report_each_error: self.each_error,
            tracked_errors: &self.tracked_errors,
        }
    }
}
