//! Estimates S(t), the share of keys that are not visible yet after a time t, when some keys are
//! censored. Kaplan and Meier ("Nonparametric estimation from incomplete observations",
//! Journal of the American Statistical Association 53, 1958):
//!
//! ```text
//! S(t) = product over event times t_i <= t of (1 - d_i / n_i)
//! ```
//!
//! with d_i the keys that became visible at t_i, and n_i those that were neither visible nor
//! censored before t_i. A key that is censored at t_i counts in n_i.

use serval_result::lag::SurvivalStep;

/// Maximum number of steps of a curve: more than a plot's pixels.
const STEPS_MAX: usize = 500;

/// Returns the curve of times, ns, each with whether the key became visible (otherwise it was censored).
pub fn survival(spans: &[(u64, bool)]) -> Vec<SurvivalStep> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let (mut steps, mut share, mut rest) = (Vec::new(), 1.0, &sorted[..]);
    while let Some((at, _)) = rest.first() {
        let (n, at) = (rest.len(), *at);
        let here = rest.partition_point(|(other, _)| *other <= at);
        let events = rest[..here].iter().filter(|(_, event)| *event).count();
        if events > 0 {
            share *= 1.0 - events as f64 / n as f64;
            steps.push(SurvivalStep { at_ns: at, share });
        }
        rest = &rest[here..];
    }
    thinned(steps)
}

/// Returns a curve of fewer steps, each a fixed part of the total fall or more; keeps the last.
fn thinned(steps: Vec<SurvivalStep>) -> Vec<SurvivalStep> {
    if steps.len() <= STEPS_MAX {
        return steps;
    }
    let fall = (1.0 - steps.last().map_or(0.0, |last| last.share)) / (STEPS_MAX - 2) as f64;
    let (mut kept, mut share, count) = (Vec::new(), 1.0, steps.len());
    for (index, step) in steps.into_iter().enumerate() {
        if share - step.share >= fall || index + 1 == count {
            share = step.share;
            kept.push(step);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serval_result::lag::Survival;

    #[test]
    fn the_example_in_the_document_is_correct() {
        // Five keys: visible after 1, 3, 3 and 6 ms; one not found when it was last read, after 3 ms.
        let spans = [(1, true), (3, true), (3, true), (3, false), (6, true)];
        let shares: Vec<(u64, f64)> = survival(&spans).iter().map(|step| (step.at_ns, step.share)).collect();
        let expected = [(1, 0.8), (3, 0.8 * 0.5), (6, 0.0)];
        assert_eq!(shares.len(), 3);
        for ((at, share), (expected_at, expected)) in shares.into_iter().zip(expected) {
            assert!(at == expected_at && (share - expected).abs() < 1e-12, "{at}: {share}");
        }
        assert_eq!(survival(&[(5, false)]), []);
    }

    /// Evaluates the definition at one instant.
    fn naive(spans: &[(u64, bool)], t: u64) -> f64 {
        let mut times: Vec<u64> =
            spans.iter().filter(|(at, event)| *event && *at <= t).map(|(at, _)| *at).collect();
        times.sort_unstable();
        times.dedup();
        let factor = |at: &u64| {
            let events = spans.iter().filter(|(other, event)| *event && other == at).count();
            let left = spans.iter().filter(|(other, _)| other >= at).count();
            1.0 - events as f64 / left as f64
        };
        times.iter().map(factor).product()
    }

    proptest! {
        #[test]
        fn the_estimate_is_the_product_of_its_definition(
            spans in proptest::collection::vec((0u64..50, any::<bool>()), 0..200), t in 0u64..60
        ) {
            let share = Survival::at(&survival(&spans), t);
            prop_assert!((share - naive(&spans, t)).abs() < 1e-9, "{share}");
        }

        /// Without censoring it is the share of longer times.
        #[test]
        fn without_censoring_the_estimate_is_the_empirical_share(spans in proptest::collection::vec(0u64..1_000_000, 1..3000)) {
            let all: Vec<(u64, bool)> = spans.iter().map(|span| (*span, true)).collect();
            let curve = survival(&all);
            prop_assert!(curve.len() <= STEPS_MAX);
            for t in (0..1_000_000).step_by(100_003) {
                let longer = spans.iter().filter(|span| **span > t).count() as f64 / spans.len() as f64;
                // The error of thinning.
                prop_assert!((Survival::at(&curve, t) - longer).abs() < 2.0 / STEPS_MAX as f64 + 1e-9);
            }
        }
    }
}
