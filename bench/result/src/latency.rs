//! Distributions of times in a document.

use serde::{Deserialize, Serialize};
use serval_measure::{
    histogram::{DecodeError, Histogram},
    recorder::Pair,
};

/// Response and service times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimesResult {
    /// From the intended start to the outcome, as a user sees it. Equal to the
    /// service times if the run was not paced.
    pub response: Latency,
    /// From the actual start to the outcome: the store's part.
    pub service: Latency,
}

/// A distribution of times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// Number of times.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Smallest.
    pub min_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// The percentiles requested, in rising order.
    pub percentiles: Vec<Percentile>,
    /// All counts: HdrHistogram V2 compressed, base64, values in ns. `serval
    /// merge` adds these.
    pub histogram: String,
}

/// One percentile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Percentile {
    /// From 0 to 100.
    pub percentile: f64,
    /// The time that this share of operations did not exceed, at most 0.1 %
    /// too high.
    pub ns: u64,
}

/// Operations without an outcome at the end. Their true times are at least
/// these ages, so percentiles without them are too low.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Censored {
    /// Sent and not answered.
    pub in_flight: u64,
    /// Due by the schedule and not sent.
    pub not_started: u64,
    /// Ages since the intended starts of those in flight.
    pub in_flight_age: Option<Latency>,
    /// Ages since the intended starts of those not sent.
    pub not_started_age: Option<Latency>,
}

impl Censored {
    /// Returns the number of operations without an outcome.
    pub fn unfinished(&self) -> u64 {
        self.in_flight.saturating_add(self.not_started)
    }
}

impl Latency {
    /// Returns the summary of a histogram.
    pub fn of(histogram: &Histogram, percentiles: &[f64]) -> Self {
        let mut percentiles = percentiles.to_vec();
        percentiles.sort_by(f64::total_cmp);
        percentiles.dedup();
        Latency {
            count: histogram.count(),
            mean_ns: histogram.mean(),
            min_ns: histogram.min(),
            max_ns: histogram.max(),
            percentiles: percentiles
                .iter()
                .map(|&p| Percentile { percentile: p, ns: histogram.percentile(p) })
                .collect(),
            histogram: histogram.encode(),
        }
    }

    /// Returns a percentile, if it was requested.
    pub fn percentile(&self, percentile: f64) -> Option<u64> {
        self.percentiles.iter().find(|p| (p.percentile - percentile).abs() < 1e-9).map(|p| p.ns)
    }

    /// Decodes the histogram.
    pub fn to_histogram(&self) -> Result<Histogram, DecodeError> {
        Histogram::decode_exact(&self.histogram, self.mean_ns, self.min_ns, self.max_ns)
    }
}

impl TimesResult {
    /// Returns the summary of a pair. The service times stand for the response
    /// times if the run was not paced.
    pub fn of(pair: &Pair, paced: bool, percentiles: &[f64]) -> Self {
        let service = Latency::of(&pair.service, percentiles);
        let response = if paced { Latency::of(&pair.response, percentiles) } else { service.clone() };
        TimesResult { response, service }
    }
}
