//! The range of keys that a run's distributions choose from.

use super::{YCSB_ZIPFIAN, properties as p};
use crate::distribution::{
    DistributionError, Exponential, Hotspot, KeyChooser, ScatteredZipf, ScrambledZipfian, Sequential,
    SkewedLatest, Uniform,
};
use serval_model::properties::Reader;

/// Seed that chooses the hot keys of the exact Zipfian. Independent of the run's seed, so
/// that concurrent clients and successive runs agree.
const SCATTER_SEED: u64 = 0;

#[derive(Debug)]
pub(super) struct RecordRange {
    /// The first key.
    pub(super) first: u64,
    /// The last key that a load inserts.
    pub(super) last: u64,
    /// Number of records at the start of a run, which is the number of its first insert.
    pub(super) records: u64,
    /// One past the last key that may be chosen.
    pub(super) end: u64,
    exponent: f64,
    hot_data: f64,
    hot_operations: f64,
    percentile: f64,
    fraction: f64,
}

impl RecordRange {
    pub(super) fn read(reader: &mut Reader<'_>, records: u64, first: u64, last: u64, end: u64) -> Self {
        RecordRange {
            first,
            last,
            records,
            end,
            exponent: reader.number(&p::ZIPFIAN_EXPONENT),
            hot_data: reader.number(&p::HOTSPOT_DATA_FRACTION),
            hot_operations: reader.number(&p::HOTSPOT_OPERATION_FRACTION),
            percentile: reader.number(&p::EXPONENTIAL_PERCENTILE),
            fraction: reader.number(&p::EXPONENTIAL_FRACTION),
        }
    }

    /// Returns the distribution for a value of `requestdistribution`; uniform for
    /// unknown ones.
    pub(super) fn chooser(&self, kind: &str) -> Result<KeyChooser, DistributionError> {
        let RecordRange { first, last, records, end, .. } = *self;
        match kind {
            // As in YCSB, whose closed range has one key too many.
            "zipfian" => ScrambledZipfian::new(first, end, YCSB_ZIPFIAN).map(KeyChooser::Zipfian),
            "exactzipfian" => {
                ScatteredZipf::new(first, end - 1, self.exponent, SCATTER_SEED).map(KeyChooser::ScatteredZipf)
            }
            "latest" => SkewedLatest::new(records - 1, YCSB_ZIPFIAN).map(KeyChooser::Latest),
            "hotspot" => {
                Hotspot::new(first, last, self.hot_data, self.hot_operations).map(KeyChooser::Hotspot)
            }
            "sequential" => Sequential::new(first, last).map(KeyChooser::Sequential),
            "exponential" => {
                let width = records as f64 * self.fraction;
                Exponential::new(self.percentile, width).map(KeyChooser::Exponential)
            }
            _ => Uniform::new(first, last).map(KeyChooser::Uniform),
        }
    }
}
