//! The document of a comparison, as `serval compare --json` prints it.
//!
//! Its version is counted apart from that of results, by the same rule: a
//! field is never renamed or given another unit under the same version.

use serde::{Deserialize, Serialize};

/// Version of the comparison document's schema.
pub const COMPARISON_VERSION: u32 = 1;

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Version of this schema: 1.
    pub comparison_version: u32,
    /// Serval's version.
    pub serval_version: String,
    /// What side A was given as.
    pub a: String,
    /// What side B was given as.
    pub b: String,
    /// The chance of any false alarm in all that is compared, at most; 0 to 0.5.
    pub alpha: f64,
    /// Relative changes up to this are ignored, as a share: 0.02 is 2 %.
    pub threshold: f64,
    /// Resamples of each side.
    pub resamples: u64,
    /// The seed of the resampling.
    pub seed: u64,
    /// What is found of all.
    pub verdict: OverallVerdict,
    /// The verdict in a sentence.
    pub sentence: String,
    /// What differs in the set-up of the sides.
    pub setup: Vec<SetupDifference>,
    /// Things a reader must know before quoting a number.
    pub warnings: Vec<String>,
    /// What was compared: the one set of runs of each side, or an experiment's
    /// points.
    pub points: Vec<PointComparison>,
}

/// The verdict of a whole comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverallVerdict {
    /// Something is worse in B.
    Worse,
    /// Nothing is known to be worse, but a side of some point has too few runs.
    Inconclusive,
    /// Nothing is worse, something is better.
    Better,
    /// Nothing is worse or better.
    NoDifference,
}

/// The verdict of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricVerdict {
    /// B is better, beyond chance, noise and threshold.
    Better,
    /// B is worse, beyond chance, noise and threshold.
    Worse,
    /// Beyond chance, but no more than single runs of one side differ by.
    WithinNoise,
    /// Beyond chance and noise, but no more than the threshold.
    BelowThreshold,
    /// Not beyond chance. That there is no difference is not shown: see the
    /// smallest one that would have been found.
    NoDifference,
    /// A side has too few runs to say.
    Inconclusive,
}

impl MetricVerdict {
    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            MetricVerdict::Better => "better",
            MetricVerdict::Worse => "worse",
            MetricVerdict::WithinNoise => "within noise",
            MetricVerdict::BelowThreshold => "ignored",
            MetricVerdict::NoDifference => "no difference",
            MetricVerdict::Inconclusive => "inconclusive",
        }
    }
}

/// Something in which the sides differ that is no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupDifference {
    /// What: `store`, `clients`, a property's name.
    pub what: String,
    /// What it is in A; several values are joined by `; `.
    pub a: String,
    /// What it is in B.
    pub b: String,
}

/// The comparison of one set of runs with another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointComparison {
    /// The point of an experiment; empty where results were given.
    pub name: String,
    /// Runs of A, where they are.
    pub runs_a: Vec<String>,
    /// Runs of B.
    pub runs_b: Vec<String>,
    /// The metrics.
    pub metrics: Vec<MetricComparison>,
}

/// Metrics of all points, each with its point's name.
pub(crate) fn metrics(points: &[PointComparison]) -> impl Iterator<Item = (&str, &MetricComparison)> {
    points.iter().flat_map(|point| point.metrics.iter().map(|metric| (point.name.as_str(), metric)))
}

/// Number of runs of the smallest side of any point; 0 without points.
pub(crate) fn least_runs(points: &[PointComparison]) -> usize {
    points.iter().flat_map(|point| [point.runs_a.len(), point.runs_b.len()]).min().unwrap_or(0)
}

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MetricId {
    /// The operation; absent for what is of a whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// What of it.
    pub kind: MetricKind,
}

/// What of an operation, or a run, is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricKind {
    /// Operations/s of a run.
    Throughput,
    /// The share of operations that failed, 0 to 1.
    FailedShare,
    /// Mean response time, ns.
    ResponseMean,
    /// Median of response times, ns.
    ResponseP50,
    /// 95th percentile of response times, ns.
    ResponseP95,
    /// 99th percentile of response times, ns.
    ResponseP99,
    /// 99.9th percentile of response times, ns.
    ResponseP999,
    /// Mean service time, ns.
    ServiceMean,
    /// Median of service times, ns.
    ServiceP50,
    /// 95th percentile of service times, ns.
    ServiceP95,
    /// 99th percentile of service times, ns.
    ServiceP99,
    /// 99.9th percentile of service times, ns.
    ServiceP999,
}

/// What of an operation's times is compared.
pub(crate) const RESPONSE: [MetricKind; 5] = [
    MetricKind::ResponseMean,
    MetricKind::ResponseP50,
    MetricKind::ResponseP95,
    MetricKind::ResponseP99,
    MetricKind::ResponseP999,
];
/// The same of service times.
pub(crate) const SERVICE: [MetricKind; 5] = [
    MetricKind::ServiceMean,
    MetricKind::ServiceP50,
    MetricKind::ServiceP95,
    MetricKind::ServiceP99,
    MetricKind::ServiceP999,
];

impl MetricKind {
    /// The percentile, 0 to 100, if it is one.
    pub fn percentile(self) -> Option<f64> {
        match self {
            MetricKind::ResponseP50 | MetricKind::ServiceP50 => Some(50.0),
            MetricKind::ResponseP95 | MetricKind::ServiceP95 => Some(95.0),
            MetricKind::ResponseP99 | MetricKind::ServiceP99 => Some(99.0),
            MetricKind::ResponseP999 | MetricKind::ServiceP999 => Some(99.9),
            _ => None,
        }
    }

    /// Whether it is a service time.
    pub fn is_service(self) -> bool {
        SERVICE.contains(&self)
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        self == MetricKind::Throughput
    }

    /// Whether sides are compared by the difference of logarithms, that is by
    /// their quotient. Shares may be 0 and are compared by their difference.
    pub fn is_relative(self) -> bool {
        self != MetricKind::FailedShare
    }
}

/// One metric of both sides.
///
/// Changes are relative, (B − A) / A, but for a share that failed: there they
/// are differences of shares. Absent is what too few runs cannot say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricComparison {
    /// Which.
    pub metric: MetricId,
    /// A's value: the geometric mean over runs of a run's value; of shares the
    /// arithmetic mean.
    pub a: f64,
    /// B's value.
    pub b: f64,
    /// The change from A to B.
    pub change: f64,
    /// Confidence interval of the change, at the level 1 − α for this metric
    /// alone: lower end.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// The chance of such a change if there were none, for this metric alone.
    pub p: Option<f64>,
    /// The same, adjusted for all metrics compared (Holm).
    pub p_adjusted: Option<f64>,
    /// What single runs of the same side differ by: 95th percentile.
    pub noise: Option<f64>,
    /// The smallest change that would have been found with a chance of 80 %.
    pub detectable: Option<f64>,
    /// The verdict.
    pub verdict: MetricVerdict,
    /// The runs' values in A.
    pub values_a: Vec<f64>,
    /// The runs' values in B.
    pub values_b: Vec<f64>,
}
