//! Options of YCSB's output, from properties.

use crate::properties as p;
use serval_model::properties::Reader;
use serval_report::ycsb;
use std::path::PathBuf;

/// Options of YCSB's output.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputOptions {
    /// `measurementtype`.
    pub measurement_type: &'static str,
    /// `measurement.interval`.
    pub interval: ycsb::IntervalMode,
    /// `hdrhistogram.percentiles`, in the order given.
    pub percentiles: Vec<f64>,
    /// Prefix of the paths of `.hdr` files; `None` for no files.
    pub hdr_files: Option<String>,
    /// Whether every cell of the histograms is listed.
    pub verbose: bool,
    /// Number of buckets with `measurementtype=histogram`.
    pub buckets: usize,
    /// File for raw times; `None` is standard output.
    pub raw_file: Option<PathBuf>,
    /// Whether raw times have no summary.
    pub raw_no_summary: bool,
    /// Whether failures are listed by status.
    pub each_error: bool,
    /// Statuses of failures that are listed separately.
    pub tracked_errors: Vec<String>,
    /// `exporter`.
    pub exporter: String,
    /// File for the export; `None` is standard output.
    pub export_file: Option<PathBuf>,
}

impl OutputOptions {
    /// Reads the options from properties. Faults go to the reader.
    pub(crate) fn read(reader: &mut Reader<'_>) -> OutputOptions {
        let percentiles = reader.numbers(&p::PERCENTILES);
        if percentiles.iter().any(|p| !(0.0..=100.0).contains(p)) {
            reader.fault(&p::PERCENTILES, "percentiles are from 0 to 100");
        }
        let interval =
            ycsb::IntervalMode::from_name(reader.choice(&p::MEASUREMENT_INTERVAL)).unwrap_or_default();
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

    /// Returns the options in the form that the report takes.
    pub fn ycsb<'a>(&'a self, custom: &'a [&'a str], paced: bool) -> ycsb::Options<'a> {
        ycsb::Options {
            custom,
            paced,
            interval: self.interval,
            kind: ycsb::MeasurementType::from_name(self.measurement_type).unwrap_or_default(),
            percentiles: &self.percentiles,
            verbose: self.verbose,
            buckets: self.buckets,
            raw_no_summary: self.raw_no_summary,
            report_each_error: self.each_error,
            tracked_errors: &self.tracked_errors,
        }
    }
}
