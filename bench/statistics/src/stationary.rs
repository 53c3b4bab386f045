//! Test whether a run was stationary while it was measured. `docs/warm-up.md` has the formulas, an
//! example and the error rates.

use crate::steady::SteadinessInterval;

/// Number of windows in the measured part.
pub const WINDOWS: usize = 30;

/// Operations per window below which a run is not judged.
pub const WINDOW_OPERATIONS_MIN: u64 = 10;

/// Shortest episode, in windows; episodes begin and end at multiples of it.
const PART: usize = WINDOWS / 10;

/// Smallest relative change that is reported; equal to a warm-up's tolerance.
pub const TOLERANCE: f64 = 0.05;

/// Critical |t| of the best-fitting pattern: 2 % of stationary runs whose windows have a
/// correlation of 0.5 exceed it, fewer at lower correlation.
const CRITICAL: f64 = 5.4;

/// Largest correlation of adjacent windows that counts as noise; a higher one indicates a change.
const CORRELATION_MAX: f64 = 0.8;

/// Share of the median throughput below which the store stalls.
const STALLED: f64 = 0.1;

/// Shortest stall that is reported, s.
const STALL_S: f64 = 0.5;

/// Operations expected in the time of a stall, at least: fewer may be missing by chance.
const STALL_OPERATIONS: f64 = 40.0;

/// Pattern of a change over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangePattern {
    /// Gradual, from the beginning to the end.
    Drift,
    /// Sudden and lasting.
    Step,
    /// Temporary: the quantity returns to its former level.
    Episode,
}

/// A change of one quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantityChange {
    /// Its pattern.
    pub shape: ChangePattern,
    /// Start of the step or episode, s since the start of the part; 0 for a drift.
    pub from_s: f64,
    /// End of the episode; for others the end of the part.
    pub to_s: f64,
    /// Mean of the first third (drift), before the step, or outside the episode.
    pub before: f64,
    /// Mean of the last third, after the step, or during the episode.
    pub after: f64,
    /// Size of the change in standard errors.
    pub errors: f64,
}

impl QuantityChange {
    /// Relative change: −0.1 is 10 % less.
    pub fn share(&self) -> f64 {
        if self.before > 0.0 { self.after / self.before - 1.0 } else { 0.0 }
    }
}

/// Times in which nearly nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StallTimes {
    /// Number of stalls.
    pub count: u64,
    /// Total duration, s.
    pub total_s: f64,
    /// Duration of the longest, s.
    pub longest_s: f64,
    /// Start of the longest, s since the start of the part.
    pub longest_at_s: f64,
}

/// Result of the test of a measured part.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StationarityVerdict {
    /// Length of the judged part, s.
    pub judged_s: f64,
    /// Change of the throughput, if any.
    pub throughput: Option<QuantityChange>,
    /// Change of the mean service time, s, if any.
    pub service: Option<QuantityChange>,
    /// Times in which nearly nothing was done.
    pub stalls: StallTimes,
}

/// Judges a measured part by its short intervals: reports a change that exceeds both noise and
/// [`TOLERANCE`]. Returns `None` if there are fewer than two intervals per window, or too few
/// operations. O(n) of the intervals.
pub fn judge(intervals: &[SteadinessInterval]) -> Option<StationarityVerdict> {
    if intervals.len() < 2 * WINDOWS {
        return None;
    }
    let windows: [SteadinessInterval; WINDOWS] = std::array::from_fn(|index| {
        sum(&intervals[index * intervals.len() / WINDOWS..(index + 1) * intervals.len() / WINDOWS])
    });
    let whole = sum(&windows);
    let usual = median(windows.map(|window| window.operations as f64 / window.length_s));
    // If the run stalls most of the time, the median is meaningless.
    let usual = usual.max(ratio([(whole.operations as f64, whole.length_s)].iter()));
    let stalls = stalls(intervals, usual);
    // A stall may leave windows empty; a slow store has few everywhere.
    let few = windows.iter().any(|window| window.operations < WINDOW_OPERATIONS_MIN);
    if usual * whole.length_s / (WINDOWS as f64) < WINDOW_OPERATIONS_MIN as f64 || (few && stalls.count == 0)
    {
        return None;
    }
    let ends: [f64; WINDOWS] =
        std::array::from_fn(|index| windows[..=index].iter().map(|window| window.length_s).sum());
    let throughput = windows.map(|window| (window.operations as f64, window.length_s));
    let service = windows.map(|window| (window.service_s, window.operations as f64));
    Some(StationarityVerdict {
        judged_s: whole.length_s,
        throughput: change(&throughput, &ends),
        service: change(&service, &ends),
        stalls,
    })
}

fn sum(intervals: &[SteadinessInterval]) -> SteadinessInterval {
    intervals.iter().fold(SteadinessInterval::default(), |a, b| SteadinessInterval {
        length_s: a.length_s + b.length_s,
        operations: a.operations + b.operations,
        service_s: a.service_s + b.service_s,
    })
}

fn median<const N: usize>(mut values: [f64; N]) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(N - 1) / 2] + values[N / 2]) / 2.0
}

/// Returns the ratio of sums.
fn ratio<'a>(parts: impl Iterator<Item = &'a (f64, f64)>) -> f64 {
    let (over, under) = parts.fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    if under > 0.0 { over / under } else { 0.0 }
}

/// Returns the change of a quantity to report: of the patterns above the tolerance, the one with
/// the largest |t|.
fn change(windows: &[(f64, f64); WINDOWS], ends: &[f64; WINDOWS]) -> Option<QuantityChange> {
    let mean = ratio(windows.iter());
    if mean <= 0.0 {
        return None;
    }
    // A window without operations has no mean service time.
    let values = windows.map(|(over, under)| if under > 0.0 { over / under / mean } else { 1.0 });
    let third = WINDOWS / 3;
    let line: [f64; WINDOWS] = std::array::from_fn(|index| index as f64);
    let drift = QuantityChange {
        shape: ChangePattern::Drift,
        from_s: 0.0,
        to_s: ends[WINDOWS - 1],
        before: ratio(windows[..third].iter()),
        after: ratio(windows[WINDOWS - third..].iter()),
        errors: errors(&values, &line),
    };
    let episodes = parts().map(|(from, to)| {
        let inside: [f64; WINDOWS] =
            std::array::from_fn(|index| f64::from(u8::from((from..to).contains(&index))));
        let (during, other) =
            (ratio(windows[from..to].iter()), ratio(windows[..from].iter().chain(&windows[to..])));
        QuantityChange {
            shape: if to == WINDOWS { ChangePattern::Step } else { ChangePattern::Episode },
            from_s: if from == 0 { 0.0 } else { ends[from - 1] },
            to_s: ends[to - 1],
            before: other,
            after: during,
            errors: errors(&values, &inside),
        }
    });
    let matters = |change: &QuantityChange, share: f64| {
        // An episode shorter than a third affects the overall mean less.
        change.share().abs() * (3.0 * share).min(1.0) >= TOLERANCE && change.errors > CRITICAL
    };
    let shapes = std::iter::once((drift, 1.0)).chain(episodes.zip(parts()).map(|(change, (from, to))| {
        let part = (to - from) as f64 / WINDOWS as f64;
        (change, part.min(1.0 - part))
    }));
    shapes
        .filter(|(change, share)| matters(change, *share))
        .map(|(change, _)| change)
        .max_by(|a, b| a.errors.total_cmp(&b.errors))
}

/// Candidate episodes, in windows. One that starts at 0 is the complement of one that ends at the
/// last window.
fn parts() -> impl Iterator<Item = (usize, usize)> {
    let edges = || (PART..WINDOWS).step_by(PART);
    let steps = (PART..=WINDOWS - PART).map(|from| (from, WINDOWS));
    let inner = edges().flat_map(move |from| edges().filter(move |to| *to > from).map(move |to| (from, to)));
    steps.chain(inner)
}

/// Returns |t| of the least-squares fit of a pattern: the coefficient over its standard error, with
/// autoregressive noise.
fn errors(values: &[f64; WINDOWS], shape: &[f64; WINDOWS]) -> f64 {
    const N: f64 = WINDOWS as f64;
    let mean = |x: &[f64; WINDOWS]| x.iter().sum::<f64>() / N;
    let (value, place) = (mean(values), mean(shape));
    let squares: f64 = shape.iter().map(|x| (x - place).powi(2)).sum();
    let slope = shape.iter().zip(values).map(|(x, y)| (x - place) * (y - value)).sum::<f64>() / squares;
    let rest: [f64; WINDOWS] =
        std::array::from_fn(|index| values[index] - value - slope * (shape[index] - place));
    let sum: f64 = rest.iter().map(|e| e * e).sum();
    if slope == 0.0 {
        return 0.0;
    }
    if sum <= 0.0 {
        return f64::INFINITY;
    }
    let first = rest.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / sum;
    // Fitting two parameters removes some of the correlation.
    let correlation = ((first + 2.0 / N) / (1.0 - 4.0 / N)).clamp(0.0, CORRELATION_MAX);
    let variance = sum / (N - 2.0) * (1.0 + correlation) / (1.0 - correlation);
    slope.abs() * (squares / variance).sqrt()
}

/// Finds times with less than a tenth of the median rate, wherever they begin.
fn stalls(intervals: &[SteadinessInterval], usual: f64) -> StallTimes {
    let mut stalls = StallTimes::default();
    if usual <= 0.0 {
        return stalls;
    }
    let least_s = STALL_S.max(STALL_OPERATIONS / usual);
    let mut starts: Vec<f64> = Vec::with_capacity(intervals.len() + 1);
    starts.push(0.0);
    for interval in intervals {
        starts.push(starts[starts.len() - 1] + interval.length_s);
    }
    // The stall under construction: from, to.
    let mut open: Option<(f64, f64)> = None;
    let mut close = |from: f64, to: f64| {
        stalls.count += 1;
        stalls.total_s += to - from;
        if to - from > stalls.longest_s {
            (stalls.longest_s, stalls.longest_at_s) = (to - from, from);
        }
    };
    let (mut first, mut operations) = (0, 0u64);
    for (index, interval) in intervals.iter().enumerate() {
        operations += interval.operations;
        // The shortest run of intervals ending here that is long enough.
        while starts[index + 1] - starts[first + 1] >= least_s * (1.0 - 1e-9) {
            operations -= intervals[first].operations;
            first += 1;
        }
        let (from, to) = (starts[first], starts[index + 1]);
        let long_enough = to - from >= least_s * (1.0 - 1e-9);
        if !long_enough || operations as f64 >= STALLED * usual * (to - from) {
            continue;
        }
        open = match open {
            Some((begin, end)) if from <= end => Some((begin, to)),
            Some((begin, end)) => {
                close(begin, end);
                Some((from, to))
            }
            None => Some((from, to)),
        };
    }
    if let Some((from, to)) = open {
        close(from, to);
    }
    stalls
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENGTH_S: f64 = 0.05;
    /// Two intervals a window.
    const COUNT: usize = 2 * WINDOWS;
    const SEEDS: u64 = 1_000;

    /// Returns a normal number by the Box-Muller transform.
    fn normal(random: &mut fastrand::Rng) -> f64 {
        let (u, v): (f64, f64) = (1.0 - random.f64(), random.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Returns a run with these throughputs by window (of 10,000/s, by the position in the run,
    /// 0 to 1), plus noise of this size and correlation between adjacent windows, with clients
    /// that are always in the store.
    fn run(seed: u64, noise: f64, correlation: f64, law: impl Fn(f64) -> f64) -> Vec<SteadinessInterval> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut x = normal(&mut random);
        let mut intervals = Vec::new();
        for window in 0..WINDOWS {
            x = correlation * x + (1.0 - correlation * correlation).sqrt() * normal(&mut random);
            let rate = 1e4 * (law((window as f64 + 0.5) / WINDOWS as f64) + noise * x).max(0.01);
            let interval = SteadinessInterval {
                length_s: LENGTH_S,
                operations: (rate * LENGTH_S) as u64,
                service_s: 8.0 * LENGTH_S,
            };
            intervals.extend([interval; COUNT / WINDOWS]);
        }
        intervals
    }

    /// Of a thousand runs, the number with a reported change.
    fn reported(noise: f64, correlation: f64, law: impl Fn(f64) -> f64) -> usize {
        let is_reported = |seed: &u64| {
            let verdict = judge(&run(*seed, noise, correlation, &law)).unwrap();
            verdict.throughput.is_some() || verdict.service.is_some()
        };
        (0..SEEDS).filter(is_reported).count()
    }

    /// The noise is large, so that no change is too small to be reported.
    #[test]
    fn steady_runs_are_reported_as_changed_at_the_documented_rate() {
        for (correlation, at_most) in [(0.0, 5), (0.3, 15), (0.5, 30), (0.7, 100)] {
            let reported = reported(0.15, correlation, |_| 1.0);
            println!("{correlation}: {reported}");
            assert!(reported <= at_most, "{correlation}: {reported} of {SEEDS}");
        }
        assert_eq!(reported(0.01, 0.5, |_| 1.0), 0, "a small change is not reported, however certain");
    }

    #[test]
    fn what_matters_is_reported_as_often_as_the_document_says() {
        for (noise, correlation, at_least) in [(0.02, 0.0, 999), (0.02, 0.5, 930), (0.03, 0.3, 850)] {
            let step = reported(noise, correlation, |place| if place < 0.5 { 1.0 } else { 0.9 });
            let drift = reported(noise, correlation, |place| 1.0 + 0.2 * place);
            let early = reported(noise, correlation, |place| if place < 0.25 { 1.0 } else { 1.15 });
            let episode =
                reported(noise, correlation, |place| if (0.4..0.6).contains(&place) { 0.8 } else { 1.0 });
            println!("{noise} {correlation}: {step} {drift} {early} {episode}");
            for (shape, reported) in
                [("step", step), ("drift", drift), ("early", early), ("episode", episode)]
            {
                assert!(reported >= at_least, "{shape}, {noise} {correlation}: {reported} of {SEEDS}");
            }
        }
    }

    #[test]
    fn a_change_is_reported_with_shape_place_and_size() {
        let change = |law: &dyn Fn(f64) -> f64| judge(&run(1, 0.001, 0.0, law)).unwrap().throughput.unwrap();
        let drift = change(&|place| 1.0 - 0.3 * place);
        assert_eq!((drift.shape, drift.from_s), (ChangePattern::Drift, 0.0));
        // Thirds have 0.95 and 0.75.
        assert!((drift.share() + 0.2105).abs() < 0.002, "{drift:?}");
        let step = change(&|place| if place < 0.4 { 1.0 } else { 0.8 });
        assert_eq!(step.shape, ChangePattern::Step);
        assert!((step.share() + 0.2).abs() < 0.002, "{step:?}");
        assert!((step.from_s - 0.4 * 3.0).abs() < 1e-9 && (step.to_s - 3.0).abs() < 1e-9, "{step:?}");
        let episode = change(&|place| if (0.4..0.6).contains(&place) { 0.5 } else { 1.0 });
        assert_eq!(episode.shape, ChangePattern::Episode);
        assert!((episode.from_s - 1.2).abs() < 1e-9 && (episode.to_s - 1.8).abs() < 1e-9, "{episode:?}");
        assert!((episode.before / 1e4 - 1.0).abs() < 0.01 && (episode.share() + 0.5).abs() < 0.01);
        // A short one weighs less: 10 % for a tenth of the time is 1 % of the whole.
        let brief = run(1, 0.001, 0.0, |place| if (0.4..0.5).contains(&place) { 0.9 } else { 1.0 });
        assert_eq!(judge(&brief).unwrap().throughput, None);
    }

    #[test]
    fn service_times_are_judged_too() {
        let mut intervals = run(1, 0.01, 0.0, |_| 1.0);
        for interval in &mut intervals[COUNT / 2..] {
            interval.service_s *= 1.2;
        }
        let verdict = judge(&intervals).unwrap();
        assert_eq!(verdict.throughput, None);
        let service = verdict.service.unwrap();
        assert!(service.shape == ChangePattern::Step && (service.share() - 0.2).abs() < 0.02, "{service:?}");
    }

    fn even(count: usize, operations: u64) -> Vec<SteadinessInterval> {
        let interval =
            SteadinessInterval { length_s: LENGTH_S, operations, service_s: 1e-3 * operations as f64 };
        vec![interval; count]
    }

    #[test]
    fn short_runs_and_few_operations_are_not_judged() {
        assert_eq!(judge(&[]), None);
        assert_eq!(judge(&even(COUNT - 1, 1000)), None);
        assert!(judge(&even(COUNT, 1000)).is_some());
        assert_eq!(judge(&even(COUNT, 4)), None, "8 operations a window");
        assert!(judge(&even(COUNT, 5)).is_some());
        assert_eq!(judge(&even(COUNT, 0)), None);
    }

    #[test]
    fn a_constant_run_has_not_changed() {
        let verdict = judge(&even(600, 50)).unwrap();
        assert_eq!((verdict.throughput, verdict.service, verdict.stalls.count), (None, None, 0));
        assert!((verdict.judged_s - 30.0).abs() < 1e-9);
    }

    #[test]
    fn stalls_are_counted_with_their_times() {
        let mut intervals = even(600, 50);
        // From 2.35 to 3.6 s, from 10 to 10.5 s, and 0.4 s that are too short.
        for silent in [47..72, 200..210, 400..408] {
            intervals[silent].fill(SteadinessInterval { length_s: LENGTH_S, operations: 0, service_s: 0.0 });
        }
        let stalls = judge(&intervals).unwrap().stalls;
        assert_eq!(stalls.count, 2, "{stalls:?}");
        // An interval with 50 operations at the end of 25 without is less than a tenth.
        assert!((1.2..1.4).contains(&stalls.longest_s), "{stalls:?}");
        assert!((2.25..2.4).contains(&stalls.longest_at_s), "{stalls:?}");
        assert!((1.7..2.0).contains(&stalls.total_s), "{stalls:?}");
    }

    #[test]
    fn a_run_that_stalls_for_most_of_its_time_is_reported() {
        let mut intervals = even(600, 50);
        intervals[150..].fill(SteadinessInterval { length_s: LENGTH_S, operations: 0, service_s: 0.0 });
        let stalls = judge(&intervals).unwrap().stalls;
        assert!(stalls.count == 1 && stalls.longest_s > 22.0, "{stalls:?}");
    }

    /// Random arrivals of an idle hour: gaps due to chance are not stalls.
    #[test]
    fn few_random_arrivals_are_not_stalls() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut next = 0.0;
            let mut intervals = even(2_400, 0);
            while let Some(interval) = intervals.get_mut((next / LENGTH_S) as usize) {
                interval.operations += 1;
                interval.service_s += 1e-3;
                next += -(1.0 - random.f64()).ln() / 20.0;
            }
            assert_eq!(judge(&intervals).unwrap().stalls.count, 0, "{seed}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(6), ..Default::default() })]

        #[test]
        fn reported_changes_are_finite_and_relevant(
            intervals in prop::collection::vec((1e-3f64..10.0, 0u64..1_000, 0.0f64..1e3), 0..200),
        ) {
            let intervals: Vec<SteadinessInterval> = intervals
                .into_iter()
                .map(|(length_s, operations, service_s)| SteadinessInterval { length_s, operations, service_s })
                .collect();
            if let Some(verdict) = judge(&intervals) {
                prop_assert!(verdict.stalls.total_s <= verdict.judged_s * (1.0 + 1e-9));
                for change in [verdict.throughput, verdict.service].into_iter().flatten() {
                    prop_assert!(change.share().abs() >= TOLERANCE && change.from_s < change.to_s, "{:?}", change);
                    prop_assert!(change.share().is_finite() && change.errors > CRITICAL);
                }
            }
        }
    }
}
