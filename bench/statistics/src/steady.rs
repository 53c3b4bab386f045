//! Test whether a run has reached steady state: the end of a warm-up. `docs/warm-up.md` has the
//! formulas and an example.

/// Batches of the window; their spread gives the standard error of its means.
pub const BATCHES: usize = 16;

/// Operations per batch below which a window is not judged.
pub const BATCH_OPERATIONS_MIN: u64 = 10;

/// Places, in batches, at which the window is split in two. A linear trend shows at each; a bulge
/// in the middle hides from the middle split only, and a change near an end shows at the split near
/// it.
const SPLITS: [usize; 3] = [BATCHES / 2, BATCHES / 4, BATCHES * 3 / 4];

/// Counts of a short interval. All intervals of a sequence are about equally long.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SteadinessInterval {
    /// Its length, s; above zero.
    pub length_s: f64,
    /// Operations that ended in it.
    pub operations: u64,
    /// The sum of their service times, s.
    pub service_s: f64,
}

/// Change of one quantity over the window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct QuantityDrift {
    /// The largest difference of the means after and before a split of the
    /// window, as a share of the window's mean: 0.01 is 1 % more. For a steady
    /// change it is that over half of the window.
    pub change: f64,
    /// The standard error of the difference of the window's halves, as the
    /// same share.
    pub error: f64,
}

/// Result of the test of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SteadinessVerdict {
    /// Whether the sequence is steady.
    pub steady: bool,
    /// The length of the window that was judged, s; 0 when the sequence is
    /// too short.
    pub window_s: f64,
    /// Drift of the throughput.
    pub throughput: QuantityDrift,
    /// Drift of the mean service time.
    pub service: QuantityDrift,
}

/// Parameters of the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Horizon: the future time for which the sequence must stay steady, s.
    pub horizon_s: f64,
    /// Relative change allowed over that time; above zero.
    pub tolerance: f64,
    /// Share of the longest warm-up that has passed, 0 to 1.
    pub patience: f64,
    /// Whether the run is paced: the throughput then equals the offered load, except for chance.
    pub is_paced: bool,
}

/// Multiple of the tolerance that noise may hide at the end of the longest warm-up, minus one.
const NOISE_AT_LAST: f64 = 2.0;

/// Judges the second half of the sequence, the window. It is steady if, extrapolated, neither
/// throughput nor mean service time changes by more than the tolerance between the halves of the
/// horizon. Two standard errors must be within the tolerance, or within three times the tolerance
/// at the end of the longest warm-up. The window must be long enough and have enough operations.
pub fn judge(intervals: &[SteadinessInterval], terms: &Terms) -> SteadinessVerdict {
    let window = &intervals[intervals.len() - intervals.len() / 2..];
    if window.len() < BATCHES {
        return SteadinessVerdict::default();
    }
    let batches: [SteadinessInterval; BATCHES] = std::array::from_fn(|index| {
        sum(&window[index * window.len() / BATCHES..(index + 1) * window.len() / BATCHES])
    });
    let window_s = sum(&batches).length_s;
    // The means of two halves are half a length apart, in the window and in the horizon.
    let scale = (terms.horizon_s / window_s).max(1.0);
    let throughput = Quantity::of(&batches, |b| (b.operations as f64, b.length_s));
    let service = Quantity::of(&batches, |b| (b.service_s, b.operations as f64));
    let enough = batches.iter().all(|batch| batch.operations >= BATCH_OPERATIONS_MIN);
    SteadinessVerdict {
        // Poisson arrivals vary independently of the store.
        steady: enough
            && throughput.changes_little(scale, terms)
            && (terms.is_paced || throughput.is_known(scale, terms))
            && service.changes_little(scale, terms)
            && service.is_known(scale, terms),
        window_s,
        throughput: throughput.drift(),
        service: service.drift(),
    }
}

fn sum(intervals: &[SteadinessInterval]) -> SteadinessInterval {
    intervals.iter().fold(SteadinessInterval::default(), |a, b| SteadinessInterval {
        length_s: a.length_s + b.length_s,
        operations: a.operations + b.operations,
        service_s: a.service_s + b.service_s,
    })
}

/// A ratio of two sums, such as operations to seconds, over the window.
struct Quantity {
    /// Relative differences of the means after and before each split.
    changes: [f64; SPLITS.len()],
    /// Relative standard error of the difference of the halves.
    error: f64,
}

impl Quantity {
    fn of(
        batches: &[SteadinessInterval; BATCHES],
        parts: impl Fn(&SteadinessInterval) -> (f64, f64),
    ) -> Quantity {
        let mean = |batches: &[SteadinessInterval]| {
            let (over, under) = parts(&sum(batches));
            if under > 0.0 { over / under } else { 0.0 }
        };
        let whole = mean(batches);
        if whole <= 0.0 {
            return Quantity { changes: [0.0; SPLITS.len()], error: 0.0 };
        }
        // Computed within the halves, so that their difference does not count as noise.
        let halves = batches.chunks(BATCHES / 2).map(|half| {
            let middle = half.iter().map(|batch| mean(&[*batch])).sum::<f64>() / half.len() as f64;
            half.iter().map(|batch| (mean(&[*batch]) - middle).powi(2)).sum::<f64>()
        });
        let variance = halves.sum::<f64>() / (BATCHES - 2) as f64;
        Quantity {
            changes: SPLITS.map(|at| (mean(&batches[at..]) - mean(&batches[..at])) / whole),
            // Standard error of the difference of two means over half of the batches each.
            error: (variance * 2.0 / (BATCHES / 2) as f64).sqrt() / whole,
        }
    }

    /// Whether the changes are within the tolerance, and what chance may have
    /// added to them when patience is at its end.
    fn changes_little(&self, scale: f64, terms: &Terms) -> bool {
        SPLITS.iter().zip(self.changes).all(|(&at, change)| {
            // The mean of the shorter part of an off-centre split has a larger error.
            let parts = 1.0 / at as f64 + 1.0 / (BATCHES - at) as f64;
            let error = self.error * (parts * (BATCHES / 4) as f64).sqrt();
            (change.abs() - 2.0 * terms.patience * error) * scale <= terms.tolerance
        })
    }

    /// Whether noise permits a judgement. Noise does not excuse a change: a window so noisy that
    /// it could hide a change twice as large as allowed is not judged, and more time reduces the
    /// noise. Some stores are always noisy. At the end of the longest warm-up, though, a drift
    /// would be large enough to show.
    fn is_known(&self, scale: f64, terms: &Terms) -> bool {
        let allowed = terms.tolerance * (1.0 + NOISE_AT_LAST * terms.patience);
        2.0 * self.error * scale <= allowed
    }

    fn drift(&self) -> QuantityDrift {
        let largest = |a: f64, b: f64| if b.abs() > a.abs() { b } else { a };
        QuantityDrift { change: self.changes.into_iter().fold(0.0, largest), error: self.error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENGTH_S: f64 = 0.05;
    const TOLERANCE: f64 = 0.05;
    const HORIZON_S: f64 = 10.0;

    /// Terms after a number of intervals, of at most 1,200.
    fn terms(seen: usize, horizon_s: f64) -> Terms {
        Terms { horizon_s, tolerance: TOLERANCE, patience: seen as f64 / 1200.0, is_paced: false }
    }

    /// Returns intervals of a store with this throughput and service time at each instant (s),
    /// plus noise of this size, as a share.
    fn sequence(
        seed: u64,
        count: usize,
        noise: f64,
        throughput: impl Fn(f64) -> f64,
        service_s: impl Fn(f64) -> f64,
    ) -> Vec<SteadinessInterval> {
        let mut rng = fastrand::Rng::with_seed(seed);
        // Twelve uniform numbers are nearly normal, with variance 1.
        let mut normal = move || (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
        let mut owed = 0.0;
        let intervals = (0..count).map(|index| {
            let at = (index as f64 + 0.5) * LENGTH_S;
            owed += throughput(at) * LENGTH_S * (1.0 + noise * normal()).max(0.0);
            let operations = owed as u64;
            owed -= operations as f64;
            let mean = service_s(at) * (1.0 + noise * normal()).max(0.0);
            SteadinessInterval { length_s: LENGTH_S, operations, service_s: mean * operations as f64 }
        });
        intervals.collect()
    }

    /// Returns the instant (s) at which a warm-up along the sequence ends.
    fn end(sequence: &[SteadinessInterval], horizon_s: f64) -> Option<f64> {
        let looks = 1..=sequence.len();
        let first = looks.into_iter().find(|&n| judge(&sequence[..n], &terms(n, horizon_s)).steady)?;
        Some(first as f64 * LENGTH_S)
    }

    #[test]
    fn without_noise_the_shortest_window_is_enough() {
        let calm = sequence(1, 400, 0.0, |_| 1e4, |_| 1e-4);
        assert_eq!(end(&calm, HORIZON_S), Some(2.0 * BATCHES as f64 * LENGTH_S));
    }

    #[test]
    fn a_sequence_too_short_or_empty_is_not_judged() {
        assert_eq!(judge(&[], &terms(0, HORIZON_S)), SteadinessVerdict::default());
        let calm = sequence(1, 2 * BATCHES - 2, 0.0, |_| 1e4, |_| 1e-4);
        assert_eq!(judge(&calm, &terms(0, HORIZON_S)), SteadinessVerdict::default());
        let idle = sequence(1, 400, 0.0, |_| 0.0, |_| 0.0);
        let verdict = judge(&idle, &terms(0, HORIZON_S));
        assert!(!verdict.steady && verdict.throughput.change == 0.0);
    }

    #[test]
    fn few_operations_need_a_longer_window() {
        // 10 operations per batch at 20/s: batches of half a second, 16 s in total.
        let slow = sequence(1, 1000, 0.0, |_| 20.0, |_| 1e-2);
        let end = end(&slow, 1.0).unwrap();
        assert!((16.0..=18.0).contains(&end), "{end}");
    }

    #[test]
    fn a_change_is_reported_with_sign_and_size() {
        // From 100/s to 150/s over a window from 10 to 20 s: the means of the halves
        // are 112.5 and 137.5.
        let rising = sequence(1, 400, 0.0, |t| 100.0 * (1.0 + (t - 10.0) / 20.0), |_| 1e-3);
        let verdict = judge(&rising, &terms(0, HORIZON_S));
        assert!((verdict.window_s - 10.0).abs() < 1e-9);
        assert!((verdict.throughput.change - 0.2).abs() < 0.01, "{verdict:?}");
        assert!(verdict.service.change.abs() < 1e-9);
        let falling = sequence(1, 400, 0.0, |_| 1e4, |t| 1e-3 * (1.0 - t / 40.0));
        let change = judge(&falling, &terms(0, HORIZON_S)).service.change;
        assert!((change + 0.2).abs() < 0.01, "{change}");
    }

    #[test]
    fn a_stall_in_the_middle_is_not_steady() {
        let stalled = sequence(1, 400, 0.0, |t| if (14.0..16.0).contains(&t) { 0.0 } else { 1e4 }, |_| 1e-4);
        assert!(!judge(&stalled, &terms(0, HORIZON_S)).steady);
        // A slowdown in the middle that could be noise is not steady either, although
        // the halves are equal.
        let slower =
            sequence(1, 400, 0.0, |t| if (12.5..17.5).contains(&t) { 9.15e3 } else { 1e4 }, |_| 1e-4);
        assert!(!judge(&slower, &terms(0, HORIZON_S)).steady);
    }

    /// Random arrivals at 60/s, at a store with exponential service times: a
    /// window of 30 s has 1,800 operations, and the means of its halves have errors of 3.3 %.
    #[test]
    fn few_random_arrivals_are_steady_in_time() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut exponential = move || -(1.0 - rng.f64()).ln();
        let mut next = exponential() / 60.0;
        let intervals: Vec<SteadinessInterval> = (1..=1200)
            .map(|index| {
                let mut interval = SteadinessInterval { length_s: LENGTH_S, ..SteadinessInterval::default() };
                while next < f64::from(index) * LENGTH_S {
                    interval.operations += 1;
                    interval.service_s += 1e-3 * exponential();
                    next += exponential() / 60.0;
                }
                interval
            })
            .collect();
        let steady = |paced: bool| {
            (1..=intervals.len())
                .find(|&n| judge(&intervals[..n], &Terms { is_paced: paced, ..terms(n, HORIZON_S) }).steady)
        };
        assert!(steady(true).is_some_and(|n| (100..1000).contains(&n)), "{:?}", steady(true));
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(6), ..Default::default() })]

        /// White noise of 20 % per interval has an error of 2.5 % after 29 s:
        /// 2 x 0.2 / sqrt(T / 2 / 50 ms). Ten seconds more allow for chance.
        #[test]
        fn a_constant_series_with_noise_is_steady_soon(seed: u64, noise in 0.0f64..0.2) {
            let constant = sequence(seed, 1200, noise, |_| 1e4, |_| 1e-4);
            let end = end(&constant, HORIZON_S);
            prop_assert!(end.is_some_and(|end| end <= 10.0 + 150.0 * noise), "{end:?}");
        }

        /// A drift that doubles the value in less than about 40 s changes it by more
        /// than 10 % between the halves of 10 s, at any position.
        #[test]
        fn a_slow_drift_is_never_steady(
            seed: u64, noise in 0.0f64..0.03, whole_s in 10.0f64..40.0, service: bool, falling: bool,
        ) {
            let line = |t: f64| if falling { 1.0 / (1.0 + t / whole_s) } else { 1.0 + t / whole_s };
            let drifting = if service {
                sequence(seed, 1200, noise, |_| 1e4, |t| 1e-4 * line(t))
            } else {
                sequence(seed, 1200, noise, |t| 1e4 * line(t), |_| 1e-4)
            };
            let end = end(&drifting, HORIZON_S);
            prop_assert_eq!(end, None);
        }

        /// Not before only one batch of the window, 1/16 of it, precedes
        /// the step.
        #[test]
        fn a_step_in_the_window_is_not_steady(
            seed: u64, noise in 0.0f64..0.05, factor in 1.4f64..4.0, at in 3.0f64..10.0, up: bool, service: bool,
        ) {
            let factor = if up { factor } else { 1.0 / factor };
            let step = |t: f64| if t < at { 1.0 } else { factor };
            let stepping = if service {
                sequence(seed, 1200, noise, |_| 1e4, |t| 1e-4 * step(t))
            } else {
                sequence(seed, 1200, noise, |t| 1e4 * step(t), |_| 1e-4)
            };
            let batch = |n: usize| n as f64 * LENGTH_S / 2.0 / BATCHES as f64;
            for n in 2 * BATCHES..=stepping.len() {
                let (from, to) = (n as f64 * LENGTH_S / 2.0, n as f64 * LENGTH_S);
                if from + batch(n) < at && at < to - batch(n) {
                    let verdict = judge(&stepping[..n], &terms(n, HORIZON_S));
                    prop_assert!(!verdict.steady, "step at {}, window {}..{}: {:?}", at, from, to, verdict);
                }
            }
            // Without the step in the window, the run is steady.
            prop_assert!(judge(&stepping, &terms(1200, HORIZON_S)).steady);
        }

        /// Never by chance: a series that varies by its own size is not judged.
        #[test]
        fn a_very_noisy_series_is_not_steady(seed: u64) {
            let wild = sequence(seed, 100, 0.9, |_| 1e4, |_| 1e-4);
            prop_assert_eq!(end(&wild, HORIZON_S), None);
        }

        #[test]
        fn arbitrary_sequences_do_not_panic(values in prop::collection::vec((0.0f64..1e3, any::<u32>(), 0.0f64..1e9), 0..100),
                          horizon in 0.0f64..1e6) {
            let intervals: Vec<_> = values
                .into_iter()
                .map(|(length_s, operations, service_s)| SteadinessInterval { length_s, operations: operations.into(), service_s })
                .collect();
            let _ = judge(&intervals, &terms(intervals.len(), horizon));
        }
    }
}
