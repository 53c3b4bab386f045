//! The zero crossing of an increasing quantity, from noisy trials.
//!
//! Trials at positions x₁ < x₂ < … have values whose mean increases with x. The
//! fit is the isotonic regression m of their means, and the crossing is the zero
//! of m, interpolated linearly between positions. Its standard error s is that of
//! the crossings of B = 2,000 resamples of the trials within each position. A
//! bootstrap of n values has the variance of n - 1, so s is multiplied by
//! √(n/(n-1)), where n is the mean number of trials per position. The interval is
//! crossing ± t(1 - α/2, ν) s, ν = Σ(nᵢ - 1).
//!
//! Source: Ayer et al. (1955) for the regression; Efron and Tibshirani, "An
//! Introduction to the Bootstrap" (1993), 5.3 and 12, for the rest.

use crate::isotonic::isotonic;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Number of resamples.
const RESAMPLES: usize = 2_000;

/// One trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Argument of the trial.
    pub at: f64,
    /// Observed value, 0 or less before the crossing.
    pub value: f64,
}

/// Place of the crossing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Crossing {
    /// Within an interval.
    At {
        /// The estimate.
        at: f64,
        /// Lower end of the interval.
        low: f64,
        /// Upper end of the interval; infinite if there are too few trials to
        /// estimate it.
        high: f64,
    },
    /// Before the first trial: all values are above 0.
    Below,
    /// After the last trial: all values are 0 or less.
    Above,
}

/// Returns the trials by position, in rising order.
fn places(trials: &[Trial]) -> Vec<(f64, Vec<f64>)> {
    let mut sorted: Vec<Trial> =
        trials.iter().copied().filter(|trial| trial.at.is_finite() && trial.value.is_finite()).collect();
    sorted.sort_by(|a, b| a.at.total_cmp(&b.at));
    let mut places: Vec<(f64, Vec<f64>)> = Vec::new();
    for trial in sorted {
        match places.last_mut() {
            Some((at, values)) if *at == trial.at => values.push(trial.value),
            _ => places.push((trial.at, vec![trial.value])),
        }
    }
    places
}

/// Returns the zero of the fit of weighted points: -infinity before the first,
/// infinity after the last.
fn zero(points: &[(f64, f64)], weights: &[f64]) -> f64 {
    let fit = isotonic(points, Some(weights));
    let Some(above) = fit.iter().position(|value| *value > 0.0) else { return f64::INFINITY };
    let Some(below) = above.checked_sub(1) else { return f64::NEG_INFINITY };
    let ((x0, x1), (y0, y1)) = ((points[below].0, points[above].0), (fit[below], fit[above]));
    x0 + (x1 - x0) * (0.0 - y0) / (y1 - y0)
}

/// Returns the crossing of trials, with an interval of the level `confidence`.
/// O(B n), B = 2,000.
pub fn crossing(trials: &[Trial], confidence: f64, seed: u64) -> Crossing {
    let places = places(trials);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let weights: Vec<f64> = places.iter().map(|(_, values)| values.len() as f64).collect();
    let points: Vec<(f64, f64)> = places.iter().map(|(at, values)| (*at, mean(values))).collect();
    let at = zero(&points, &weights);
    if at == f64::NEG_INFINITY {
        return Crossing::Below;
    }
    if at == f64::INFINITY {
        return Crossing::Above;
    }
    let freedom: f64 = weights.iter().map(|n| n - 1.0).sum();
    let unknown = Crossing::At { at, low: f64::NEG_INFINITY, high: f64::INFINITY };
    let Ok(student) = StudentsT::new(0.0, 1.0, freedom) else { return unknown };
    let (first, last) = (points[0].0, points[points.len() - 1].0);
    let mut random = fastrand::Rng::with_seed(seed);
    let crossings: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let points: Vec<(f64, f64)> = places
                .iter()
                .map(|(at, values)| {
                    let drawn = (0..values.len()).map(|_| values[random.usize(..values.len())]);
                    (*at, drawn.sum::<f64>() / values.len() as f64)
                })
                .collect();
            // A resample without a crossing counts at the nearer end of the tested range.
            zero(&points, &weights).clamp(first, last)
        })
        .collect();
    // Positions with a single trial do not vary in a resample and do not affect n.
    let several: Vec<f64> = weights.iter().copied().filter(|n| *n > 1.0).collect();
    let n = mean(&several);
    let centre = mean(&crossings);
    let variance = crossings.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / (RESAMPLES - 1) as f64;
    let error = (variance * n / (n - 1.0)).sqrt();
    let reach = student.inverse_cdf(0.5 + confidence / 2.0) * error;
    Crossing::At { at, low: at - reach, high: at + reach }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sum of uniform numbers: approximately normal, mean 0, variance 1.
    fn normal(random: &mut fastrand::Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    fn trials(random: &mut fastrand::Rng, truth: f64, noise: f64) -> Vec<Trial> {
        let places = [truth - 40.0, truth - 10.0, truth + 20.0, truth + 50.0];
        places
            .iter()
            .flat_map(|at| std::iter::repeat_n(*at, 3))
            .map(|at| Trial { at, value: (at - truth) / 100.0 + noise * normal(random) })
            .collect()
    }

    #[test]
    fn the_crossing_is_exact_without_noise() {
        let mut random = fastrand::Rng::with_seed(1);
        let Crossing::At { at, low, high } = crossing(&trials(&mut random, 540.0, 0.0), 0.95, 1) else {
            panic!()
        };
        assert!((at - 540.0).abs() < 1e-9 && low <= at && at <= high && high - low < 1e-6);
    }

    #[test]
    fn intervals_have_their_nominal_coverage() {
        let mut random = fastrand::Rng::with_seed(2);
        let rounds = 400;
        let covered = (0..rounds)
            .filter(|round| {
                let trials = trials(&mut random, 540.0, 0.1);
                match crossing(&trials, 0.95, *round) {
                    Crossing::At { low, high, .. } => low <= 540.0 && 540.0 <= high,
                    _ => false,
                }
            })
            .count();
        // 95 % of 400 is 380; 352 is four standard deviations below it, for a true level of
        // 93 %.
        assert!(covered >= 352, "{covered} of {rounds}");
    }

    #[test]
    fn a_curve_without_a_crossing_is_reported() {
        let trial = |at, value| Trial { at, value };
        assert_eq!(crossing(&[trial(1.0, 0.5), trial(2.0, 1.0)], 0.95, 1), Crossing::Below);
        assert_eq!(crossing(&[trial(1.0, -2.0), trial(2.0, -1.0)], 0.95, 1), Crossing::Above);
        assert_eq!(crossing(&[], 0.95, 1), Crossing::Above);
        let Crossing::At { at, low, high } = crossing(&[trial(1.0, -1.0), trial(2.0, 1.0)], 0.95, 1) else {
            panic!()
        };
        assert_eq!((at, low, high), (1.5, f64::NEG_INFINITY, f64::INFINITY));
    }
}
