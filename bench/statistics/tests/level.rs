//! Error rates of the statistics of `serval compare`: false alarms, intervals and smallest
//! differences, over synthetic pairs with known differences.
//!
//! A pair has 5 to 10 runs per side. The value of metric q in interval t of a run
//! is m_q + c_q (shared run effect) + own run effect + AR(1) noise, part of which is shared by all
//! metrics: metrics are correlated, as percentiles of one operation are. A run's value is the mean of
//! its intervals.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_statistics::{
    bootstrap::{Run, hierarchical},
    difference::{Difference, Mean},
    moments::mean,
    multiple::holm,
    series::block_length,
};

const ALPHA: f64 = 0.05;
const METRICS: usize = 6;
const INTERVALS: usize = 24;
/// Few resamples suffice: the standard error of a standard error is then 5 %.
const RESAMPLES: usize = 200;

/// Variance of runs.
#[derive(Debug, Clone, Copy)]
struct Law {
    /// Standard deviation between runs, as a share.
    between: f64,
    /// Standard deviation of an interval, as a share.
    within: f64,
    /// Correlation of consecutive intervals.
    phi: f64,
    runs: (usize, usize),
}

fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// Returns the intervals of one run by metric.
fn run(law: &Law, shift: f64, random: &mut fastrand::Rng) -> Vec<Vec<f64>> {
    let shared_run = normal(random);
    // The shared noise and each metric's own, from their stationary distribution.
    let mut noise: Vec<f64> = (0..=METRICS).map(|_| normal(random)).collect();
    let fresh = (1.0 - law.phi * law.phi).sqrt();
    let bases: Vec<f64> =
        (0..METRICS).map(|_| shift + law.between * (0.8 * shared_run + 0.6 * normal(random))).collect();
    let mut series: Vec<Vec<f64>> = vec![Vec::new(); METRICS];
    for _ in 0..INTERVALS {
        noise.iter_mut().for_each(|x| *x = law.phi * *x + fresh * normal(random));
        for (metric, series) in series.iter_mut().enumerate() {
            series.push(bases[metric] + law.within * (0.7 * noise[METRICS] + 0.714 * noise[metric]));
        }
    }
    series
}

fn side(law: &Law, shift: f64, random: &mut fastrand::Rng) -> Vec<Mean> {
    let n = random.usize(law.runs.0..=law.runs.1);
    let series: Vec<_> = (0..n).map(|_| run(law, shift, random)).collect();
    let values: Vec<Vec<f64>> =
        series.iter().map(|run| run.iter().map(|metric| mean(metric).unwrap()).collect()).collect();
    let runs: Vec<Run> = series
        .iter()
        .map(|run| Run { intervals: INTERVALS, block: block_length(&run[0]).ceil() as usize })
        .collect();
    let spreads = hierarchical(&values, &runs, RESAMPLES, random, |run, counts, out| {
        for (metric, out) in series[run].iter().zip(out) {
            *out = metric.iter().zip(counts).map(|(x, n)| x * f64::from(*n)).sum::<f64>() / INTERVALS as f64;
        }
    });
    spreads
        .iter()
        .enumerate()
        .map(|(metric, spread)| Mean {
            mean: values.iter().map(|run| run[metric]).sum::<f64>() / n as f64,
            squared_error: spread.squared_error(n).unwrap(),
            runs: n,
        })
        .collect()
}

#[derive(Debug, Default)]
struct Found {
    pairs: u32,
    /// Number of pairs with any metric called different.
    alarms: u32,
    /// Number of intervals that cover the true value.
    covered: u32,
    /// Number of metrics whose smallest detectable difference was below the true one.
    promised: u32,
    /// Number of these that were called different.
    kept: u32,
}

fn pairs(law: &Law, number: u32, shift: f64, seed: u64) -> Found {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut found = Found { pairs: number, ..Found::default() };
    for _ in 0..number {
        let (a, b) = (side(law, 0.0, &mut random), side(law, shift, &mut random));
        let differences: Vec<Difference> =
            a.iter().zip(&b).map(|(a, b)| Difference::of(a, b).unwrap()).collect();
        let adjusted = holm(&differences.iter().map(Difference::p_value).collect::<Vec<_>>());
        found.alarms += u32::from(adjusted.iter().any(|p| *p <= ALPHA));
        for (difference, p) in differences.iter().zip(adjusted) {
            let (low, high) = difference.interval(ALPHA);
            found.covered += u32::from(low <= shift && shift <= high);
            if difference.detectable(ALPHA / METRICS as f64, 0.8, 0.0) < shift {
                found.promised += 1;
                found.kept += u32::from(p <= ALPHA);
            }
        }
    }
    println!("seed {seed}, {law:?}, shift {shift}: {found:?}");
    found
}

/// Returns the smallest k with P(X > k) <= 0.001 for X binomial with `n` trials of
/// probability `p`.
fn binomial_bound(n: u32, p: f64) -> u32 {
    let (mut term, mut sum, mut k) = ((1.0 - p).powi(n as i32), 0.0, 0);
    loop {
        sum += term;
        if sum >= 0.999 {
            return k;
        }
        term *= f64::from(n - k) / f64::from(k + 1) * p / (1.0 - p);
        k += 1;
    }
}

#[test]
fn four_thousand_equal_pairs_stay_within_the_alarm_rate() {
    // 5 % of 4,000 are 200; more than 244 occur less than once in a thousand. With a thousand
    // pairs the bound would be 7.3 %, and a bootstrap without its correction would pass.
    assert_eq!(binomial_bound(4_000, ALPHA), 244);
    let law = Law { between: 0.02, within: 0.05, phi: 0.5, runs: (5, 10) };
    let found = pairs(&law, 4_000, 0.0, 1);
    assert!(found.alarms <= 244, "{found:?}");
    // Metrics of a pair are correlated, so the bound is that of the number of pairs.
    let missed = (found.pairs * METRICS as u32 - found.covered) / METRICS as u32;
    assert!(missed <= 244, "{found:?}");
}

#[test]
fn equal_pairs_stay_within_the_alarm_rate_with_autocorrelation_and_without_variance_between_runs() {
    for (seed, law) in [
        (2, Law { between: 0.0, within: 0.05, phi: 0.0, runs: (5, 5) }),
        (3, Law { between: 0.0, within: 0.05, phi: 0.9, runs: (5, 10) }),
        (4, Law { between: 0.05, within: 0.05, phi: 0.95, runs: (5, 5) }),
        (5, Law { between: 0.1, within: 0.001, phi: 0.0, runs: (5, 10) }),
    ] {
        let found = pairs(&law, 1_000, 0.0, seed);
        let bound = binomial_bound(1_000, ALPHA);
        assert!(found.alarms <= bound, "{found:?}, at most {bound}");
        let missed = (found.pairs * METRICS as u32 - found.covered) / METRICS as u32;
        assert!(missed <= bound, "{found:?}, at most {bound}");
    }
}

#[test]
fn a_difference_of_five_percent_is_detected_with_the_computed_power() {
    let shift = 0.05;
    for (seed, between) in [(6, 0.005), (7, 0.015), (8, 0.02)] {
        let law = Law { between, within: 0.02, phi: 0.5, runs: (5, 10) };
        let found = pairs(&law, 300, shift, seed);
        assert!(found.promised > 150, "too few promises to judge: {found:?}");
        assert!(f64::from(found.kept) >= 0.75 * f64::from(found.promised), "{found:?}");
        // The intervals also cover a true value other than 0.
        let missed = (found.pairs * METRICS as u32 - found.covered) / METRICS as u32;
        assert!(missed <= binomial_bound(300, ALPHA), "{found:?}");
    }
}

#[test]
fn an_uncorrected_bootstrap_exceeds_the_alarm_rate() {
    // The test has power: the plain bootstrap's standard error with a normal
    // quantile, at five runs that differ, raises too many alarms.
    let law = Law { between: 0.05, within: 0.001, phi: 0.0, runs: (5, 5) };
    let mut random = fastrand::Rng::with_seed(9);
    let mut alarms = 0;
    for _ in 0..400 {
        let (a, b) = (side(&law, 0.0, &mut random), side(&law, 0.0, &mut random));
        let plain = |mean: &Mean| mean.squared_error * 4.0 / 5.0;
        let z = |(a, b): (&Mean, &Mean)| (b.mean - a.mean).abs() / (plain(a) + plain(b)).sqrt();
        // Bonferroni's normal quantile for six metrics: 2.638.
        alarms += u32::from(a.iter().zip(&b).map(z).any(|z| z > 2.638));
    }
    assert!(alarms > binomial_bound(400, ALPHA), "{alarms}");
}
