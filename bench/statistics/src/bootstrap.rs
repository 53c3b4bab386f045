//! The hierarchical bootstrap: resamples runs, then blocks of intervals within them.
//!
//! A side of a comparison is n runs. The question is how far the mean over runs
//! of a quantity (the logarithm of a run's 99th percentile, say) would vary if
//! everything were repeated. Runs differ, and intervals within a run are
//! autocorrelated. A resample draws n of the n runs with replacement, and
//! replaces the intervals of each drawn run by as many of them, in circular
//! blocks.

use crate::{moments::RunningMoments, quantile::median};

/// How a run can be resampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Its number of intervals; with fewer than two the run is kept whole.
    pub intervals: usize,
    /// Length of blocks, in intervals; at least 1.
    pub block: usize,
}

/// Variance of resamples of a side's mean, by resampled level.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ResampleSpread {
    /// B: the variance of the mean of the drawn runs without resampled intervals.
    pub runs: f64,
    /// W / n: the part that the intervals within runs add.
    pub intervals: f64,
}

impl ResampleSpread {
    /// Returns the squared standard error of a mean over `runs` runs; `None` for fewer than
    /// two.
    ///
    /// SE² = max( n/(n−1) · B, W/n )
    ///
    /// | symbol | meaning |
    /// |---|---|
    /// | n | runs |
    /// | S² | variance of the runs' values, divisor n − 1 |
    /// | B | variance over resamples of the mean of the drawn runs; its expectation is (n−1)/n · S²/n |
    /// | W | variance of a run's value when its blocks are resampled: the median over runs |
    ///
    /// A resample of both runs and intervals varies by B + W/n. But S² already
    /// contains the variance within runs, since a run's value includes it: the sum
    /// would count W twice. Drawing n of n runs with replacement makes B too small
    /// by (n−1)/n, which matters at n = 5. The result is S²/n, which is unbiased,
    /// but at least the variance of the intervals alone: five runs that happen to
    /// be close together prove nothing. That floor is the median over runs, so
    /// that a single run with a long stall does not determine it.
    ///
    /// Davison and Hinkley, "Bootstrap Methods and their Application" (1997), 3.8; Field and Welsh, Journal of the
    /// Royal Statistical Society B 69 (2007), on the contribution of each level.
    pub fn squared_error(&self, runs: usize) -> Option<f64> {
        let n = runs as f64;
        (runs > 1).then(|| (n / (n - 1.0) * self.runs).max(self.intervals))
    }
}

/// Draws circular blocks: sets `counts[i]` to the number of occurrences of interval i in
/// the resample, which is as long as the run.
///
/// Blocks of `length` intervals start at any interval with equal probability and wrap around the end.
/// The last one is cut. Politis and Romano, "A circular block-resampling procedure for
/// stationary data" (1992).
pub fn circular_blocks(length: usize, random: &mut fastrand::Rng, counts: &mut [u32]) {
    let n = counts.len();
    counts.fill(0);
    if n == 0 {
        return;
    }
    let length = length.clamp(1, n);
    let mut missing = n;
    while missing > 0 {
        let (start, take) = (random.usize(..n), length.min(missing));
        let before_end = take.min(n - start);
        counts[start..start + before_end].iter_mut().for_each(|count| *count += 1);
        counts[..take - before_end].iter_mut().for_each(|count| *count += 1);
        missing -= take;
    }
}

/// Performs the hierarchical bootstrap of the means of several quantities.
///
/// `values[run][quantity]` are the runs' values, and `runs` describes how each can be
/// resampled. `evaluate(run, counts, out)` computes the quantities of a run in
/// which interval i occurs `counts[i]` times. A quantity that it does not change, or that is not
/// finite, keeps the run's own value. All calls for one run are consecutive, so that only one
/// run needs to be in memory. Returns a [`ResampleSpread`] for each quantity.
///
/// # Panics
/// If `runs` and `values` differ in length.
pub fn hierarchical(
    values: &[Vec<f64>],
    runs: &[Run],
    resamples: usize,
    random: &mut fastrand::Rng,
    mut evaluate: impl FnMut(usize, &[u32], &mut [f64]),
) -> Vec<ResampleSpread> {
    assert_eq!(values.len(), runs.len(), "one description a run");
    let n = values.len();
    let quantities = values.first().map_or(0, Vec::len);
    // Draws the runs of each resample before any run is evaluated.
    let mut draws = vec![0u32; resamples * n];
    for resample in draws.chunks_mut(n.max(1)) {
        (0..n).for_each(|_| resample[random.usize(..n)] += 1);
    }
    let mut sums = vec![0.0; resamples * quantities];
    let mut within: Vec<Vec<f64>> = vec![Vec::new(); quantities];
    let mut one = vec![0.0; quantities];
    for (run, (own, how)) in values.iter().zip(runs).enumerate() {
        let mut counts = vec![0; how.intervals];
        let mut spread = vec![RunningMoments::default(); quantities];
        let drawn = draws.iter().skip(run).step_by(n);
        for (&times, sums) in drawn.zip(sums.chunks_mut(quantities.max(1))) {
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += f64::from(times) * own);
            for _ in 0..times {
                one.copy_from_slice(own);
                if how.intervals > 1 {
                    circular_blocks(how.block, random, &mut counts);
                    evaluate(run, &counts, &mut one);
                }
                for ((spread, value), own) in spread.iter_mut().zip(&one).zip(own) {
                    spread.push(if value.is_finite() { *value } else { *own });
                }
            }
        }
        for (within, spread) in within.iter_mut().zip(spread).filter(|(_, spread)| spread.count() > 0) {
            within.push(spread.spread());
        }
    }
    let spread = |quantity: usize| {
        let mut means = RunningMoments::default();
        sums.iter().skip(quantity).step_by(quantities).for_each(|sum| means.push(sum / n as f64));
        ResampleSpread {
            runs: means.spread(),
            intervals: median(&within[quantity]).unwrap_or(0.0) / n as f64,
        }
    };
    (0..quantities).map(spread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::{mean, variance};
    use proptest::prelude::*;

    #[test]
    fn resampling_runs_gives_the_variance_of_a_mean() {
        let values: Vec<Vec<f64>> = [1.0, 2.0, 4.0, 8.0, 3.0].iter().map(|&v| vec![v, 0.5]).collect();
        let runs = [Run { intervals: 0, block: 1 }; 5];
        let mut random = fastrand::Rng::with_seed(1);
        let spreads = hierarchical(&values, &runs, 20_000, &mut random, |_, _, _| unreachable!());
        let first: Vec<f64> = values.iter().map(|v| v[0]).collect();
        let expected = variance(&first).unwrap() / 5.0;
        let estimate = spreads[0].squared_error(5).unwrap();
        assert!((estimate / expected - 1.0).abs() < 0.03, "{estimate} for {expected}");
        assert_eq!((spreads[0].intervals, spreads[1].runs), (0.0, 0.0));
        assert_eq!(spreads[0].squared_error(1), None);
    }

    #[test]
    fn resampling_intervals_gives_the_variance_of_their_mean() {
        // Independent intervals, and runs with exactly equal means.
        let mut random = fastrand::Rng::with_seed(2);
        let mut series: Vec<Vec<f64>> = (0..6).map(|_| (0..50).map(|_| random.f64()).collect()).collect();
        for run in &mut series {
            let middle = mean(run).unwrap();
            run.iter_mut().for_each(|x| *x -= middle);
        }
        let values = vec![vec![0.0]; 6];
        let runs = [Run { intervals: 50, block: 1 }; 6];
        let spreads = hierarchical(&values, &runs, 5_000, &mut random, |run, counts, out| {
            out[0] = series[run].iter().zip(counts).map(|(x, n)| x * f64::from(*n)).sum::<f64>() / 50.0;
        });
        // The variance of a uniform number is 1/12; six runs of 50.
        let expected = 1.0 / 12.0 / 300.0;
        let estimate = spreads[0].squared_error(6).unwrap();
        assert!((estimate / expected - 1.0).abs() < 0.15, "{estimate} for {expected}");
    }

    #[test]
    fn longer_blocks_capture_autocorrelation() {
        // Intervals in groups of ten equal ones: blocks of one treat them as independent.
        let mut random = fastrand::Rng::with_seed(3);
        let series: Vec<f64> = (0..200).map(|_| random.f64()).flat_map(|x| [x; 10]).collect();
        let middle = mean(&series).unwrap();
        let mut within = |block| {
            let runs = [Run { intervals: series.len(), block }];
            let spreads = hierarchical(&[vec![middle]], &runs, 2_000, &mut random, |_, counts, out| {
                let sum: f64 = series.iter().zip(counts).map(|(x, n)| x * f64::from(*n)).sum();
                out[0] = sum / series.len() as f64;
            });
            spreads[0].intervals
        };
        let (short, long) = (within(1), within(50));
        assert!(long > 5.0 * short, "{short} {long}");
    }

    proptest! {
        #[test]
        fn blocks_draw_as_many_samples_as_given(n in 1usize..80, length in 0usize..100, seed in 0u64..1000) {
            let mut counts = vec![7; n];
            circular_blocks(length, &mut fastrand::Rng::with_seed(seed), &mut counts);
            prop_assert_eq!(counts.iter().sum::<u32>() as usize, n);
        }
    }
}
