//! The keys that a run chooses among, and what its distributions are told.

use super::{YCSB_ZIPFIAN, properties as p};
use crate::distribution::{
    DistributionError, Exponential, Hotspot, KeyChooser, ScatteredZipf, ScrambledZipfian, Sequential,
    SkewedLatest, Uniform,
};
use serval_model::properties::Reader;

/// Which keys are hot under the exact Zipfian. The same for all runs, whatever
/// their seed, so that clients side by side and runs one after another agree.
const SCATTER_SEED: u64 = 0;

#[derive(Debug)]
pub(super) struct KeyRange {
    /// The first key.
    pub(super) first: u64,
    /// The last key of those that a load inserts.
    pub(super) last: u64,
    /// Records that are there when a run begins: the number of its first insert.
    pub(super) records: u64,
    /// One past the last key that may be chosen.
    pub(super) end: u64,
    exponent: f64,
    hot_data: f64,
    hot_operations: f64,
    percentile: f64,
    fraction: f64,
}

impl KeyRange {
    pub(super) fn read(reader: &mut Reader<'_>, records: u64, first: u64, last: u64, end: u64) -> Self {
        KeyRange {
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

    /// The distribution of a name of `requestdistribution`; uniform for any
    /// other.
    pub(super) fn chooser(&self, kind: &str) -> Result<KeyChooser, DistributionError> {
        let KeyRange { first, last, records, end, .. } = *self;
        match kind {
            // YCSB's range is closed, and so one key longer than it should be.
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
