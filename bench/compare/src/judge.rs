//! From two sets of runs to verdicts. The law is in `docs/comparing.md`.

use crate::{
    Options, RUNS_MIN,
    document::{Kind, Metric, MetricComparison, RESPONSE, SERVICE, Verdict},
    run::{Parts, Run},
};
use serval_measure::layout;
use serval_statistics::{
    bootstrap::{self, Spread, hierarchical},
    difference::{Difference, Mean},
    moments::{mean, variance},
    multiple::holm,
    quantile::quantile_of,
};
use std::collections::BTreeSet;

/// Operations of which each run needs this many for its 99.9th percentile: ten are
/// then above it.
const P999_MIN: u64 = 10_000;
/// The chance with which the smallest detectable change is found.
const POWER: f64 = 0.8;
/// The quantile of the differences of runs of one side that is the noise.
const NOISE_QUANTILE: f64 = 0.95;

/// A metric of both sides before it is known how many others there are.
pub(crate) struct Judged {
    /// As it will be, but for what depends on the others.
    pub(crate) told: MetricComparison,
    difference: Option<Difference>,
    /// What a difference must exceed to be none of chance's: noise, on the
    /// scale that is compared.
    noise: Option<f64>,
    conclusive: bool,
}

/// Values on the scale that is compared: logarithms, or shares.
fn scaled(kind: Kind, value: f64) -> f64 {
    if kind.is_relative() { value.ln() } else { value }
}

/// A difference on that scale as a change.
fn change(kind: Kind, difference: f64) -> f64 {
    // No share is above 1, and no more apart from another.
    if kind.is_relative() { difference.exp_m1() } else { difference.clamp(-1.0, 1.0) }
}

/// The metrics to compare, and what is left out and why.
pub(crate) fn metrics(a: &[&Run], b: &[&Run]) -> (Vec<Metric>, Vec<String>) {
    let runs = || a.iter().chain(b);
    let mut chosen = Vec::new();
    let mut left_out = Vec::new();
    let everywhere = |metric: &Metric| runs().all(|run| run.values.contains_key(metric));
    for kind in [Kind::Throughput, Kind::FailedShare] {
        let metric = Metric { operation: None, kind };
        let wanted = kind != Kind::Throughput || runs().any(|run| run.throughput_matters);
        if wanted && everywhere(&metric) {
            chosen.push(metric);
        }
    }
    let two_times = runs().all(|run| run.two_times);
    let operations: BTreeSet<&str> = runs().flat_map(|run| run.counts.keys().map(String::as_str)).collect();
    for operation in operations {
        let least = runs().map(|run| run.counts.get(operation).copied().unwrap_or(0)).min().unwrap_or(0);
        if least == 0 {
            let has = |side: &[&Run]| side.iter().any(|run| run.counts.contains_key(operation));
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
            let metric = Metric { operation: Some(operation.to_owned()), kind };
            if everywhere(&metric) {
                chosen.push(metric);
            }
        }
    }
    (chosen, left_out)
}

/// The runs' values of metrics on the scale that is compared.
fn matrix(runs: &[&Run], metrics: &[Metric]) -> Vec<Vec<f64>> {
    let value =
        |run: &Run, metric: &Metric| run.values.get(metric).map_or(f64::NAN, |v| scaled(metric.kind, *v));
    runs.iter().map(|run| metrics.iter().map(|metric| value(run, metric)).collect()).collect()
}

/// How the means of a side are spread, by resampling; and what could not be resampled within runs.
fn spreads(
    runs: &[&Run],
    values: &[Vec<f64>],
    metrics: &[Metric],
    options: &Options,
    random: &mut fastrand::Rng,
) -> (Vec<Spread>, Vec<String>) {
    let how: Vec<bootstrap::Run> = runs
        .iter()
        .map(|run| bootstrap::Run { intervals: run.pieces.number(), block: run.pieces.block.max(1) })
        .collect();
    let mut problems = Vec::new();
    // Runs are asked for one after the other, and only one is held.
    let mut held: Option<(usize, Parts)> = None;
    let spreads = hierarchical(values, &how, options.resamples, random, |index, weights, out| {
        let run = runs[index];
        if held.as_ref().is_none_or(|(of, _)| *of != index) {
            let (parts, problem) = run.parts(metrics);
            problems.extend(problem);
            held = Some((index, parts));
        }
        let Some((_, parts)) = &held else { return };
        for (metric, out) in metrics.iter().zip(out) {
            *out += parts.deviation(run, metric, weights).unwrap_or(0.0);
        }
    });
    (spreads, problems)
}

/// Where a value has no cell: what further digits are is arithmetic, and not the store's.
const DIGITS: f64 = 1e-9;

/// How far apart values can be and be told as the same, as a share of the value: a cell of the
/// histograms, or [`DIGITS`].
fn resolution(kind: Kind, value: f64) -> f64 {
    match kind.percentile() {
        Some(_) if value >= 1.0 => {
            let cell = layout::index_of(value as u64);
            (layout::highest_of(cell) - layout::lowest_of(cell) + 1) as f64 / value
        }
        _ if kind.is_relative() => DIGITS,
        _ => 0.0,
    }
}

/// |differences| of all pairs of a set of runs, on the scale that is compared.
fn differences_within(runs: &[&Run], metric: &Metric, into: &mut Vec<f64>) {
    let values: Vec<f64> =
        runs.iter().filter_map(|run| run.values.get(metric)).map(|v| scaled(metric.kind, *v)).collect();
    for (index, one) in values.iter().enumerate() {
        into.extend(values[index + 1..].iter().map(|other| (one - other).abs()));
    }
}

/// What single runs of the same differ by: from runs that were made to tell,
/// or else within the sides.
fn noise(a: &[&Run], b: &[&Run], same: &[Vec<&Run>], metric: &Metric) -> Option<f64> {
    let mut apart = Vec::new();
    same.iter().for_each(|runs| differences_within(runs, metric, &mut apart));
    if apart.is_empty() {
        differences_within(a, metric, &mut apart);
        differences_within(b, metric, &mut apart);
    }
    quantile_of(&apart, NOISE_QUANTILE)
}

/// The draws for a set of runs: from the seed and the runs alone, so that sides that are swapped
/// are found to differ by the same, with the other sign.
fn draws(runs: &[&Run], options: &Options) -> fastrand::Rng {
    // FNV-1a.
    let mut hash = options.seed ^ 0xcbf2_9ce4_8422_2325;
    for run in runs {
        let (started, seed, host) = &run.identity;
        for byte in started.bytes().chain(seed.to_le_bytes()).chain(host.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    fastrand::Rng::with_seed(hash)
}

/// Compares throughputs that are known as numbers alone, each of them on its own; [`conclude`] comes after it.
pub(crate) fn throughputs(a: &[f64], b: &[f64], options: &Options) -> Judged {
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let (logs_a, logs_b) = (logs(a), logs(b));
    let side = |values: &[f64]| {
        let squared_error = (variance(values)? + DIGITS * DIGITS / 12.0) / values.len() as f64;
        Some(Mean { mean: mean(values)?, squared_error, runs: values.len() })
    };
    let sides = side(&logs_a).zip(side(&logs_b));
    let difference = sides.and_then(|(a, b)| Difference::of(&a, &b));
    let apart: Vec<f64> = [&logs_a, &logs_b]
        .into_iter()
        .flat_map(|logs| {
            logs.iter()
                .enumerate()
                .flat_map(|(nth, one)| logs[nth + 1..].iter().map(move |x| (x - one).abs()))
        })
        .collect();
    let noise = quantile_of(&apart, NOISE_QUANTILE).map(|noise| noise.max(DIGITS));
    let kind = Kind::Throughput;
    let middle = |logs: &[f64]| mean(logs).unwrap_or(f64::NAN);
    let interval = difference.map(|d| d.interval(options.alpha));
    let told = MetricComparison {
        metric: Metric { operation: None, kind },
        a: middle(&logs_a).exp(),
        b: middle(&logs_b).exp(),
        change: change(kind, middle(&logs_b) - middle(&logs_a)),
        low: interval.map(|(low, _)| change(kind, low)),
        high: interval.map(|(_, high)| change(kind, high)),
        p: difference.map(|d| d.p_value()),
        p_adjusted: None,
        noise: noise.map(|noise| change(kind, noise)),
        detectable: None,
        verdict: Verdict::Inconclusive,
        values_a: a.to_vec(),
        values_b: b.to_vec(),
    };
    let conclusive = a.len() >= RUNS_MIN && b.len() >= RUNS_MIN;
    Judged { told, difference, noise, conclusive }
}

/// Compares two sets of runs; [`conclude`] comes after it. `same` are sets of runs
/// that are known to be of the same.
pub(crate) fn judge(
    a: &[&Run],
    b: &[&Run],
    same: &[Vec<&Run>],
    metrics: &[Metric],
    options: &Options,
) -> (Vec<Judged>, Vec<String>) {
    let conclusive = a.len() >= RUNS_MIN && b.len() >= RUNS_MIN;
    let (values_a, values_b) = (matrix(a, metrics), matrix(b, metrics));
    let (spreads_a, mut problems) = spreads(a, &values_a, metrics, options, &mut draws(a, options));
    let (spreads_b, more) = spreads(b, &values_b, metrics, options, &mut draws(b, options));
    problems.extend(more);
    let failed = |runs: &[&Run]| -> (f64, f64) {
        let share = Metric { operation: None, kind: Kind::FailedShare };
        let all = runs.iter().map(|run| run.operations as f64);
        let failed = runs.iter().map(|run| run.operations as f64 * run.values.get(&share).unwrap_or(&0.0));
        (failed.sum(), all.sum())
    };
    let ((failed_a, all_a), (failed_b, all_b)) = (failed(a), failed(b));
    // Of both sides, and never quite 0: none of a thousand is not never.
    let share = (failed_a + failed_b + 0.5) / (all_a + all_b + 1.0);
    let judged = metrics.iter().enumerate().map(|(index, metric)| {
        let kind = metric.kind;
        let middle =
            |values: &[Vec<f64>]| values.iter().map(|run| run[index]).sum::<f64>() / values.len() as f64;
        let (mean_a, mean_b) = (middle(&values_a), middle(&values_b));
        let back = |mean: f64| if kind.is_relative() { mean.exp() } else { mean };
        let cell = resolution(kind, back(mean_a)).max(resolution(kind, back(mean_b)));
        let side = |mean: f64, spread: &Spread, runs: &[&Run], operations: f64| {
            let mut squared_error = spread.squared_error(runs.len())?;
            // A value is somewhere in its cell: a uniform number's variance.
            squared_error += cell * cell / 12.0 / runs.len() as f64;
            if kind == Kind::FailedShare {
                squared_error = squared_error.max(share * (1.0 - share) / operations.max(1.0));
            }
            Some(Mean { mean, squared_error, runs: runs.len() })
        };
        let difference = side(mean_a, &spreads_a[index], a, all_a)
            .zip(side(mean_b, &spreads_b[index], b, all_b))
            .and_then(|(a, b)| Difference::of(&a, &b));
        let noise = noise(a, b, same, metric).map(|noise| noise.max(cell));
        let interval = difference.map(|d| d.interval(options.alpha));
        let told = MetricComparison {
            metric: metric.clone(),
            a: back(mean_a),
            b: back(mean_b),
            change: change(kind, mean_b - mean_a),
            low: interval.map(|(low, _)| change(kind, low)),
            high: interval.map(|(_, high)| change(kind, high)),
            p: difference.map(|d| d.p_value()),
            p_adjusted: None,
            noise: noise.map(|noise| change(kind, noise)),
            detectable: None,
            verdict: Verdict::Inconclusive,
            values_a: a.iter().filter_map(|run| run.values.get(metric)).copied().collect(),
            values_b: b.iter().filter_map(|run| run.values.get(metric)).copied().collect(),
        };
        Judged { told, difference, noise, conclusive }
    });
    (judged.collect(), problems)
}

/// Gives verdicts, when all that is compared is known.
pub(crate) fn conclude(all: &mut [Judged], options: &Options) {
    let mut family: Vec<&mut Judged> =
        all.iter_mut().filter(|judged| judged.conclusive && judged.difference.is_some()).collect();
    let p_values: Vec<f64> = family.iter().map(|judged| judged.told.p.unwrap_or(1.0)).collect();
    let adjusted = holm(&p_values);
    let each = options.alpha / p_values.len().max(1) as f64;
    for (judged, adjusted) in family.iter_mut().zip(adjusted) {
        let Some(difference) = judged.difference else { continue };
        let kind = judged.told.metric.kind;
        let noise = judged.noise.unwrap_or(0.0);
        let threshold = if kind.is_relative() { options.threshold } else { 0.0 };
        let floor = noise.max(threshold.ln_1p());
        // The level that is left when all others come first: Holm's is never lower.
        let detectable = difference.detectable(each, POWER, floor);
        judged.told.p_adjusted = Some(adjusted);
        judged.told.detectable = Some(change(kind, detectable));
        judged.told.verdict = if adjusted > options.alpha {
            Verdict::NoDifference
        } else if difference.difference.abs() <= noise {
            Verdict::WithinNoise
        } else if judged.told.change.abs() <= threshold {
            Verdict::BelowThreshold
        } else if (difference.difference > 0.0) == kind.more_is_better() {
            Verdict::Better
        } else {
            Verdict::Worse
        };
    }
}
