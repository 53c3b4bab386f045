//! From two sets of runs to verdicts. The statistics are described in `docs/comparing.md`.

use crate::{
    CompareOptions, RUNS_MIN,
    document::{MetricComparison, MetricId, MetricKind, MetricVerdict, RESPONSE, SERVICE},
    run::{ComparedRun, ResamplingData, RunIdentity},
};
use serval_measure::layout;
use serval_statistics::{
    bootstrap::{self, ResampleSpread, hierarchical},
    difference::{Difference, Mean},
    moments::{mean, variance},
    multiple::holm,
    quantile::quantile_of,
};
use std::collections::BTreeSet;

/// Operations that each run needs for a 99.9th percentile: ten are then above it.
const P999_MIN: u64 = 10_000;
/// Probability of finding the smallest detectable change.
const POWER: f64 = 0.8;
/// Quantile of the differences between runs of one side that counts as noise.
const NOISE_QUANTILE: f64 = 0.95;

/// A metric of both sides, judged but for what depends on the other metrics.
pub(crate) struct JudgedMetric {
    pub(crate) comparison: MetricComparison,
    difference: Option<Difference>,
    /// Differences up to this are noise, on the compared scale.
    noise: Option<f64>,
}

/// A value on the compared scale: its logarithm, or the share itself.
fn scaled(kind: MetricKind, value: f64) -> f64 {
    if kind.is_relative() { value.ln() } else { value }
}

/// A difference on the compared scale as a change.
fn change(kind: MetricKind, difference: f64) -> f64 {
    // Shares are at most 1 apart.
    if kind.is_relative() { difference.exp_m1() } else { difference.clamp(-1.0, 1.0) }
}

/// Returns the metrics that all runs have, and a sentence for each operation that some runs lack.
pub(crate) fn metrics(a: &[&ComparedRun], b: &[&ComparedRun]) -> (Vec<MetricId>, Vec<String>) {
    let runs = || a.iter().chain(b);
    let mut chosen = Vec::new();
    let mut left_out = Vec::new();
    let everywhere = |metric: &MetricId| runs().all(|run| run.values.contains_key(metric));
    for kind in [MetricKind::Throughput, MetricKind::FailedShare] {
        let metric = MetricId { operation: None, kind };
        let wanted = kind != MetricKind::Throughput || runs().any(|run| run.throughput_matters);
        if wanted && everywhere(&metric) {
            chosen.push(metric);
        }
    }
    let two_times = runs().all(|run| run.two_times);
    let operations: BTreeSet<&str> = runs().flat_map(|run| run.counts.keys().map(String::as_str)).collect();
    for operation in operations {
        let least = runs().map(|run| run.counts.get(operation).copied().unwrap_or(0)).min().unwrap_or(0);
        if least == 0 {
            let has = |side: &[&ComparedRun]| side.iter().any(|run| run.counts.contains_key(operation));
            left_out.push(match (has(a), has(b)) {
                (true, false) => format!("{operation} succeeded in A only and is not compared."),
                (false, true) => format!("{operation} succeeded in B only and is not compared."),
                _ => format!("{operation} did not succeed in every run and is not compared."),
            });
            continue;
        }
        let kinds = RESPONSE.into_iter();
        let kinds = kinds.chain(SERVICE.into_iter().filter(|_| two_times));
        for kind in kinds.filter(|kind| kind.percentile() != Some(99.9) || least >= P999_MIN) {
            let metric = MetricId { operation: Some(operation.to_owned()), kind };
            if everywhere(&metric) {
                chosen.push(metric);
            }
        }
    }
    (chosen, left_out)
}

/// A run's value of a metric on the compared scale.
fn scaled_value(run: &ComparedRun, metric: &MetricId) -> Option<f64> {
    run.values.get(metric).map(|value| scaled(metric.kind, *value))
}

/// Returns the spread of each metric's mean by resampling, and why the times of some runs could not be resampled.
fn spreads(
    runs: &[&ComparedRun],
    metrics: &[MetricId],
    options: &CompareOptions,
) -> (Vec<ResampleSpread>, Vec<String>) {
    let values: Vec<Vec<f64>> = runs
        .iter()
        .map(|run| metrics.iter().map(|metric| scaled_value(run, metric).unwrap_or(f64::NAN)).collect())
        .collect();
    let how: Vec<bootstrap::Run> = runs
        .iter()
        .map(|run| bootstrap::Run { intervals: run.pieces.number(), block: run.pieces.block.max(1) })
        .collect();
    let mut problems = Vec::new();
    // The bootstrap evaluates one run after the other, so that one log is in memory at a time.
    let mut held: Option<(usize, ResamplingData)> = None;
    let random = &mut generator(runs, options);
    let spreads = hierarchical(&values, &how, options.resamples, random, |index, weights, out| {
        let run = runs[index];
        if held.as_ref().is_none_or(|(of, _)| *of != index) {
            let (data, problem) = run.resampling_data(metrics);
            problems.extend(problem);
            held = Some((index, data));
        }
        let Some((_, data)) = &held else { return };
        for (metric, out) in metrics.iter().zip(out) {
            *out += data.deviation(run, metric, weights).unwrap_or(0.0);
        }
    });
    (spreads, problems)
}

/// A generator that depends on the seed and the runs only: swapped sides differ by the same, with the opposite sign.
fn generator(runs: &[&ComparedRun], options: &CompareOptions) -> fastrand::Rng {
    // FNV-1a.
    let mut hash = options.seed ^ 0xcbf2_9ce4_8422_2325;
    for run in runs {
        let RunIdentity { started, seed, host } = &run.identity;
        for byte in started.bytes().chain(seed.to_le_bytes()).chain(host.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    fastrand::Rng::with_seed(hash)
}

/// Resolution of values without a cell: further digits come from arithmetic, not from the store.
const DIGITS: f64 = 1e-9;

/// Difference below which values are the same, as a share of the value: a histogram's cell, or [`DIGITS`].
fn resolution(kind: MetricKind, value: f64) -> f64 {
    match kind.percentile() {
        Some(_) if value >= 1.0 => {
            let cell = layout::index_of(value as u64);
            (layout::highest_of(cell) - layout::lowest_of(cell) + 1) as f64 / value
        }
        _ if kind.is_relative() => DIGITS,
        _ => 0.0,
    }
}

/// |differences| of all pairs of values.
fn differences(values: &[f64]) -> impl Iterator<Item = f64> {
    let pairs = values
        .iter()
        .enumerate()
        .flat_map(|(index, one)| values[index + 1..].iter().map(move |other| one - other));
    pairs.map(f64::abs)
}

/// One side's values of a metric.
struct MetricSample {
    /// The runs' values in the metric's unit.
    values: Vec<f64>,
    /// The same on the compared scale.
    scaled: Vec<f64>,
    /// Squared standard error of the mean of `scaled`; `None` for fewer than two runs.
    squared_error: Option<f64>,
}

impl MetricSample {
    fn of(kind: MetricKind, values: Vec<f64>, squared_error: Option<f64>) -> MetricSample {
        let scaled = values.iter().map(|value| scaled(kind, *value)).collect();
        MetricSample { values, scaled, squared_error }
    }

    fn middle(&self) -> f64 {
        mean(&self.scaled).unwrap_or(f64::NAN)
    }

    /// The mean with its error; `resolution` is that of the values on the compared scale.
    fn mean(&self, resolution: f64) -> Option<Mean> {
        let runs = self.scaled.len();
        // A value is somewhere in its cell: the variance of a uniform number.
        let squared_error = self.squared_error? + resolution * resolution / 12.0 / runs as f64;
        Some(Mean { mean: self.middle(), squared_error, runs })
    }
}

/// Compares the samples of both sides. `repeats`: |differences| of runs that are known to be of the same, on the
/// compared scale; without them, those within each side are the noise.
fn compare_samples(
    metric: MetricId,
    a: MetricSample,
    b: MetricSample,
    mut repeats: Vec<f64>,
    options: &CompareOptions,
) -> JudgedMetric {
    let kind = metric.kind;
    let back = |middle: f64| if kind.is_relative() { middle.exp() } else { middle };
    let (middle_a, middle_b) = (a.middle(), b.middle());
    let resolution = resolution(kind, back(middle_a)).max(resolution(kind, back(middle_b)));
    let difference = a.mean(resolution).zip(b.mean(resolution)).and_then(|(a, b)| Difference::of(&a, &b));
    if repeats.is_empty() {
        repeats.extend(differences(&a.scaled).chain(differences(&b.scaled)));
    }
    let noise = quantile_of(&repeats, NOISE_QUANTILE).map(|noise| noise.max(resolution));
    let interval = difference.map(|d| d.interval(options.alpha));
    let comparison = MetricComparison {
        metric,
        a: back(middle_a),
        b: back(middle_b),
        change: change(kind, middle_b - middle_a),
        low: interval.map(|(low, _)| change(kind, low)),
        high: interval.map(|(_, high)| change(kind, high)),
        p: difference.map(|d| d.p_value()),
        p_adjusted: None,
        noise: noise.map(|noise| change(kind, noise)),
        detectable: None,
        verdict: MetricVerdict::Inconclusive,
        values_a: a.values,
        values_b: b.values,
    };
    JudgedMetric { comparison, difference, noise }
}

/// Compares throughputs by their numbers alone; [`conclude`] comes after it.
pub(crate) fn throughputs(a: Vec<f64>, b: Vec<f64>, options: &CompareOptions) -> JudgedMetric {
    let kind = MetricKind::Throughput;
    let sample = |values: Vec<f64>| {
        let mut sample = MetricSample::of(kind, values, None);
        sample.squared_error = variance(&sample.scaled).map(|variance| variance / sample.scaled.len() as f64);
        sample
    };
    compare_samples(MetricId { operation: None, kind }, sample(a), sample(b), Vec::new(), options)
}

/// Failed and finished operations of runs.
fn failures(runs: &[&ComparedRun]) -> (f64, f64) {
    let share = MetricId { operation: None, kind: MetricKind::FailedShare };
    let failed = runs.iter().map(|run| run.operations as f64 * run.values.get(&share).unwrap_or(&0.0));
    (failed.sum(), runs.iter().map(|run| run.operations as f64).sum())
}

/// Compares the metrics of two sets of runs; [`conclude`] comes after it. `same` are sets of runs that repeat one
/// another. Also returns why the times of some runs could not be resampled.
pub(crate) fn judge(
    a: &[&ComparedRun],
    b: &[&ComparedRun],
    same: &[Vec<&ComparedRun>],
    metrics: &[MetricId],
    options: &CompareOptions,
) -> (Vec<JudgedMetric>, Vec<String>) {
    let (spreads_a, mut problems) = spreads(a, metrics, options);
    let (spreads_b, problems_b) = spreads(b, metrics, options);
    problems.extend(problems_b);
    let ((failed_a, all_a), (failed_b, all_b)) = (failures(a), failures(b));
    // Estimated from both sides, and never 0: no failure in a thousand operations is not "never".
    let share = (failed_a + failed_b + 0.5) / (all_a + all_b + 1.0);
    let judged = metrics.iter().enumerate().map(|(index, metric)| {
        let kind = metric.kind;
        let sample = |runs: &[&ComparedRun], spread: &ResampleSpread, operations: f64| {
            let values = runs.iter().filter_map(|run| run.values.get(metric)).copied().collect();
            let binomial = share * (1.0 - share) / operations.max(1.0);
            let least = if kind == MetricKind::FailedShare { binomial } else { 0.0 };
            let squared_error = spread.squared_error(runs.len()).map(|error| error.max(least));
            MetricSample::of(kind, values, squared_error)
        };
        let repeats = same.iter().flat_map(|runs| {
            let values: Vec<f64> = runs.iter().filter_map(|run| scaled_value(run, metric)).collect();
            differences(&values).collect::<Vec<f64>>()
        });
        let (a, b) = (sample(a, &spreads_a[index], all_a), sample(b, &spreads_b[index], all_b));
        compare_samples(metric.clone(), a, b, repeats.collect(), options)
    });
    (judged.collect(), problems)
}

/// Gives the verdicts, which depend on the number of metrics compared.
pub(crate) fn conclude<'a>(all: impl Iterator<Item = &'a mut JudgedMetric>, options: &CompareOptions) {
    let enough = |values: &[f64]| values.len() >= RUNS_MIN;
    let conclusive = |judged: &JudgedMetric| {
        let MetricComparison { values_a, values_b, .. } = &judged.comparison;
        enough(values_a) && enough(values_b)
    };
    let mut family: Vec<(&mut MetricComparison, Difference, f64)> = all
        .filter(|judged| conclusive(judged))
        .filter_map(|judged| {
            let JudgedMetric { comparison, difference, noise } = judged;
            Some((comparison, (*difference)?, noise.unwrap_or(0.0)))
        })
        .collect();
    let p_values: Vec<f64> = family.iter().map(|(comparison, ..)| comparison.p.unwrap_or(1.0)).collect();
    // Holm's lowest level, if all other metrics have smaller p-values, is never below this.
    let level = options.alpha / p_values.len().max(1) as f64;
    for ((comparison, difference, noise), adjusted) in family.iter_mut().zip(holm(&p_values)) {
        let kind = comparison.metric.kind;
        let threshold = if kind.is_relative() { options.threshold } else { 0.0 };
        let detectable = difference.detectable(level, POWER, noise.max(threshold.ln_1p()));
        comparison.p_adjusted = Some(adjusted);
        comparison.detectable = Some(change(kind, detectable));
        comparison.verdict = if adjusted > options.alpha {
            MetricVerdict::NoDifference
        } else if difference.difference.abs() <= *noise {
            MetricVerdict::WithinNoise
        } else if comparison.change.abs() <= threshold {
            MetricVerdict::BelowThreshold
        } else if (difference.difference > 0.0) == kind.more_is_better() {
            MetricVerdict::Better
        } else {
            MetricVerdict::Worse
        };
    }
}
