//! Whether a run stayed what it was while it was measured. The law, its
//! symbols, an example and its error rates are in `docs/warm-up.md`.

use crate::steady::Interval;

/// Windows that the measured part is cut into.
pub const WINDOWS: usize = 30;

/// Operations that each window has at least, for a run that can be judged.
pub const WINDOW_OPERATIONS_MIN: u64 = 10;

/// The shortest part that may differ from the rest, in windows; episodes begin
/// and end at multiples of it.
const PART: usize = WINDOWS / 10;

/// Change that is told, as a share; the same as a warm-up's tolerance.
pub const TOLERANCE: f64 = 0.05;

/// |t| of the best shape beyond which a change is not put down to chance: what
/// 2 % of runs exceed whose windows have a correlation of 0.5, and fewer of less.
const CRITICAL: f64 = 5.4;

/// Correlation of neighbouring windows at most that is put down to noise: what
/// hangs together more closely is a change.
const CORRELATION_MAX: f64 = 0.8;

/// The share of the usual throughput below which nearly nothing was done.
const STALLED: f64 = 0.1;

/// The shortest stall that is told, s.
const STALL_S: f64 = 0.5;

/// Operations that would usually have ended in a stall, at least: fewer may be
/// missing by chance.
const STALL_OPERATIONS: f64 = 40.0;

/// How a quantity changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Little by little from the beginning to the end.
    Drift,
    /// At once, and for good.
    Step,
    /// For some time, and then it was as before.
    Episode,
}

/// A change of one quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// How it came.
    pub shape: Shape,
    /// When, s since the part's begin: of a step from then on, of an episode
    /// from then; 0 of a drift.
    pub from_s: f64,
    /// Until when: of an episode; of others the part's end.
    pub to_s: f64,
    /// The mean in the first third (drift), before (step), or at other times
    /// (episode).
    pub before: f64,
    /// The mean in the last third, after, or in it.
    pub after: f64,
    /// By how many standard errors it is more than nothing.
    pub errors: f64,
}

impl Change {
    /// As a share of what was before: −0.1 is 10 % less.
    pub fn share(&self) -> f64 {
        if self.before > 0.0 { self.after / self.before - 1.0 } else { 0.0 }
    }
}

/// Times in which nearly nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stalls {
    /// How many.
    pub count: u64,
    /// Together, s.
    pub total_s: f64,
    /// The longest, s.
    pub longest_s: f64,
    /// When the longest began, s since the part's begin.
    pub longest_at_s: f64,
}

/// What can be said of a measured part.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Verdict {
    /// How much of it was judged, s.
    pub judged_s: f64,
    /// How operations a second changed, if they did.
    pub throughput: Option<Change>,
    /// How the mean service time, s, changed, if it did.
    pub service: Option<Change>,
    /// Times in which nearly nothing was done.
    pub stalls: Stalls,
}

/// Judges a measured part by what was seen of it in short intervals: a change is
/// told if it is more than noise explains and more than [`TOLERANCE`]. `None`
/// when there are fewer than two intervals a window, or too few operations.
/// O(n) of the intervals.
pub fn judge(intervals: &[Interval]) -> Option<Verdict> {
    if intervals.len() < 2 * WINDOWS {
        return None;
    }
    let windows: [Interval; WINDOWS] = std::array::from_fn(|index| {
        sum(&intervals[index * intervals.len() / WINDOWS..(index + 1) * intervals.len() / WINDOWS])
    });
    let whole = sum(&windows);
    let usual = median(windows.map(|window| window.operations as f64 / window.length_s));
    // Of a run that stands still for most of its time the median says nothing.
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
    Some(Verdict {
        judged_s: whole.length_s,
        throughput: change(&throughput, &ends),
        service: change(&service, &ends),
        stalls,
    })
}

fn sum(intervals: &[Interval]) -> Interval {
    intervals.iter().fold(Interval::default(), |a, b| Interval {
        length_s: a.length_s + b.length_s,
        operations: a.operations + b.operations,
        service_s: a.service_s + b.service_s,
    })
}

fn median<const N: usize>(mut values: [f64; N]) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(N - 1) / 2] + values[N / 2]) / 2.0
}

/// The ratio of sums.
fn ratio<'a>(parts: impl Iterator<Item = &'a (f64, f64)>) -> f64 {
    let (over, under) = parts.fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    if under > 0.0 { over / under } else { 0.0 }
}

/// The change of a quantity that is told, if one is: the shape that stands out
/// of the noise the most, of those that matter.
fn change(windows: &[(f64, f64); WINDOWS], ends: &[f64; WINDOWS]) -> Option<Change> {
    let mean = ratio(windows.iter());
    if mean <= 0.0 {
        return None;
    }
    // A window without operations has no service time: the mean says nothing.
    let values = windows.map(|(over, under)| if under > 0.0 { over / under / mean } else { 1.0 });
    let third = WINDOWS / 3;
    let line: [f64; WINDOWS] = std::array::from_fn(|index| index as f64);
    let drift = Change {
        shape: Shape::Drift,
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
        Change {
            shape: if to == WINDOWS { Shape::Step } else { Shape::Episode },
            from_s: if from == 0 { 0.0 } else { ends[from - 1] },
            to_s: ends[to - 1],
            before: other,
            after: during,
            errors: errors(&values, &inside),
        }
    });
    let matters = |change: &Change, share: f64| {
        // What a part shorter than a third does to the whole is less.
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

/// Parts of the whole that may differ from the rest, in windows. One that
/// begins with the whole is the rest of one that ends with it.
fn parts() -> impl Iterator<Item = (usize, usize)> {
    let edges = || (PART..WINDOWS).step_by(PART);
    let steps = (PART..=WINDOWS - PART).map(|from| (from, WINDOWS));
    let inner = edges().flat_map(move |from| edges().filter(move |to| *to > from).map(move |to| (from, to)));
    steps.chain(inner)
}

/// |t| of the least-squares fit of values by a shape: the coefficient over its
/// standard error, the noise taken to be autoregressive.
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
    // A fit of two numbers takes some of the correlation away.
    let correlation = ((first + 2.0 / N) / (1.0 - 4.0 / N)).clamp(0.0, CORRELATION_MAX);
    let variance = sum / (N - 2.0) * (1.0 + correlation) / (1.0 - correlation);
    slope.abs() * (squares / variance).sqrt()
}

/// Times in which less than a tenth of the usual rate was done, wherever they
/// begin.
fn stalls(intervals: &[Interval], usual: f64) -> Stalls {
    let mut stalls = Stalls::default();
    if usual <= 0.0 {
        return stalls;
    }
    let least_s = STALL_S.max(STALL_OPERATIONS / usual);
    let mut starts: Vec<f64> = Vec::with_capacity(intervals.len() + 1);
    starts.push(0.0);
    for interval in intervals {
        starts.push(starts[starts.len() - 1] + interval.length_s);
    }
    // The stall that grows: from, to.
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
        // The shortest stretch of intervals up to here that is long enough.
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

    /// Box and Muller's.
    fn normal(random: &mut fastrand::Rng) -> f64 {
        let (u, v): (f64, f64) = (1.0 - random.f64(), random.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// A run whose windows have these throughputs (of 10,000/s, by the place in
    /// it, 0 to 1) but for noise of this size and correlation from one window
    /// to the next, with clients that are always in the store.
    fn run(seed: u64, noise: f64, correlation: f64, law: impl Fn(f64) -> f64) -> Vec<Interval> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut x = normal(&mut random);
        let mut intervals = Vec::new();
        for window in 0..WINDOWS {
            x = correlation * x + (1.0 - correlation * correlation).sqrt() * normal(&mut random);
            let rate = 1e4 * (law((window as f64 + 0.5) / WINDOWS as f64) + noise * x).max(0.01);
            let interval = Interval {
                length_s: LENGTH_S,
                operations: (rate * LENGTH_S) as u64,
                service_s: 8.0 * LENGTH_S,
            };
            intervals.extend([interval; COUNT / WINDOWS]);
        }
        intervals
    }

    /// In how many of a thousand runs something is told.
    fn told(noise: f64, correlation: f64, law: impl Fn(f64) -> f64) -> usize {
        let is_told = |seed: &u64| {
            let verdict = judge(&run(*seed, noise, correlation, &law)).unwrap();
            verdict.throughput.is_some() || verdict.service.is_some()
        };
        (0..SEEDS).filter(is_told).count()
    }

    /// The noise is large, so that no change is too small to be told.
    #[test]
    fn steady_runs_are_told_to_have_changed_as_seldom_as_the_document_says() {
        for (correlation, at_most) in [(0.0, 5), (0.3, 15), (0.5, 30), (0.7, 100)] {
            let told = told(0.15, correlation, |_| 1.0);
            println!("{correlation}: {told}");
            assert!(told <= at_most, "{correlation}: {told} of {SEEDS}");
        }
        assert_eq!(told(0.01, 0.5, |_| 1.0), 0, "what is small is not told, however sure it is");
    }

    #[test]
    fn what_matters_is_told_as_often_as_the_document_says() {
        for (noise, correlation, at_least) in [(0.02, 0.0, 999), (0.02, 0.5, 930), (0.03, 0.3, 850)] {
            let step = told(noise, correlation, |place| if place < 0.5 { 1.0 } else { 0.9 });
            let drift = told(noise, correlation, |place| 1.0 + 0.2 * place);
            let early = told(noise, correlation, |place| if place < 0.25 { 1.0 } else { 1.15 });
            let episode =
                told(noise, correlation, |place| if (0.4..0.6).contains(&place) { 0.8 } else { 1.0 });
            println!("{noise} {correlation}: {step} {drift} {early} {episode}");
            for (shape, told) in [("step", step), ("drift", drift), ("early", early), ("episode", episode)] {
                assert!(told >= at_least, "{shape}, {noise} {correlation}: {told} of {SEEDS}");
            }
        }
    }

    #[test]
    fn a_change_is_told_with_its_shape_place_and_size() {
        let change = |law: &dyn Fn(f64) -> f64| judge(&run(1, 0.001, 0.0, law)).unwrap().throughput.unwrap();
        let drift = change(&|place| 1.0 - 0.3 * place);
        assert_eq!((drift.shape, drift.from_s), (Shape::Drift, 0.0));
        // Thirds have 0.95 and 0.75.
        assert!((drift.share() + 0.2105).abs() < 0.002, "{drift:?}");
        let step = change(&|place| if place < 0.4 { 1.0 } else { 0.8 });
        assert_eq!(step.shape, Shape::Step);
        assert!((step.share() + 0.2).abs() < 0.002, "{step:?}");
        assert!((step.from_s - 0.4 * 3.0).abs() < 1e-9 && (step.to_s - 3.0).abs() < 1e-9, "{step:?}");
        let episode = change(&|place| if (0.4..0.6).contains(&place) { 0.5 } else { 1.0 });
        assert_eq!(episode.shape, Shape::Episode);
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
        assert!(service.shape == Shape::Step && (service.share() - 0.2).abs() < 0.02, "{service:?}");
    }

    fn even(count: usize, operations: u64) -> Vec<Interval> {
        let interval = Interval { length_s: LENGTH_S, operations, service_s: 1e-3 * operations as f64 };
        vec![interval; count]
    }

    #[test]
    fn what_is_too_short_or_has_too_few_operations_is_not_judged() {
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
            intervals[silent].fill(Interval { length_s: LENGTH_S, operations: 0, service_s: 0.0 });
        }
        let stalls = judge(&intervals).unwrap().stalls;
        assert_eq!(stalls.count, 2, "{stalls:?}");
        // An interval with 50 operations at the end of 25 without is less than a tenth.
        assert!((1.2..1.4).contains(&stalls.longest_s), "{stalls:?}");
        assert!((2.25..2.4).contains(&stalls.longest_at_s), "{stalls:?}");
        assert!((1.7..2.0).contains(&stalls.total_s), "{stalls:?}");
    }

    #[test]
    fn a_run_that_stands_still_for_most_of_its_time_says_so() {
        let mut intervals = even(600, 50);
        intervals[150..].fill(Interval { length_s: LENGTH_S, operations: 0, service_s: 0.0 });
        let stalls = judge(&intervals).unwrap().stalls;
        assert!(stalls.count == 1 && stalls.longest_s > 22.0, "{stalls:?}");
    }

    /// Random arrivals of an idle hour: silence is no stall where it is chance.
    #[test]
    fn few_random_arrivals_do_not_stall() {
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
        fn what_is_told_is_finite_and_matters(
            intervals in prop::collection::vec((1e-3f64..10.0, 0u64..1_000, 0.0f64..1e3), 0..200),
        ) {
            let intervals: Vec<Interval> = intervals
                .into_iter()
                .map(|(length_s, operations, service_s)| Interval { length_s, operations, service_s })
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
