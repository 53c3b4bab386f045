//! Tests whose course follows from a seed: thousands of seeds a test, and one
//! that fails is named and can be run again.
//!
//! `SEEDS=from..to cargo test …` chooses the seeds of every such test, the end
//! not among them. With `SHRINK=0` a failing list is not shortened, and only its
//! message is shown. For tests only; nothing that is shipped depends on it.

mod failure;
mod random;
mod range;
mod shrink;

pub use random::Random;

use std::{
    fmt::Debug,
    ops::Range,
    panic::{AssertUnwindSafe, RefUnwindSafe, catch_unwind, resume_unwind},
};

/// Runs the seeds that `SEEDS` chooses, or so many from zero.
///
/// The first that panics is named on standard output, and its panic goes on.
///
/// # Panics
///
/// If a seed does, or `SEEDS` is no range.
///
/// ```
/// use yesquel_seeds::{Random, check_seeds};
///
/// check_seeds(100, |seed| assert!(Random::new(seed).next(6) < 6));
/// ```
#[track_caller]
pub fn check_seeds(count: u64, run: impl FnMut(u64)) {
    match range::chosen(count) {
        Ok(seeds) => each(seeds, run),
        Err(why) => panic!("{why}"),
    }
}

/// Makes the steps of the seeds that `SEEDS` chooses, or of so many from zero,
/// and runs each list.
///
/// The first list that panics is shortened to the steps that the failure
/// needs. Panics on the way there are not printed, but for the last.
///
/// # Panics
///
/// If a list does, with the seed, the last panic's message and the steps left;
/// or if `SEEDS` is no range.
///
/// ```
/// use yesquel_seeds::{Random, check_steps};
///
/// let steps = |seed| {
///     let mut random = Random::new(seed);
///     (0..10).map(|_| random.next(100)).collect()
/// };
/// check_steps(100, steps, |steps: &[u64]| assert!(steps.iter().sum::<u64>() < 1000));
/// ```
#[track_caller]
pub fn check_steps<S: Clone + Debug + RefUnwindSafe>(
    count: u64,
    steps: impl Fn(u64) -> Vec<S>,
    run: impl Fn(&[S]) + RefUnwindSafe,
) {
    let shrinks = std::env::var_os("SHRINK").is_none_or(|value| value != "0");
    let failed = range::chosen(count)
        .map(|mut seeds| seeds.find_map(|seed| report_of_failure(seed, steps(seed), &run, shrinks)));
    match failed {
        Ok(None) => {}
        Ok(Some(why)) | Err(why) => panic!("{why}"),
    }
}

fn each(seeds: Range<u64>, mut run: impl FnMut(u64)) {
    for seed in seeds {
        // The panic resumes, so its partial effects are never observed.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            println!("seed {seed} ({})", replay(seed));
            resume_unwind(panic);
        }
    }
}

fn report_of_failure<S: Clone + Debug + RefUnwindSafe>(
    seed: u64,
    steps: Vec<S>,
    run: &(impl Fn(&[S]) + RefUnwindSafe),
    shrinks: bool,
) -> Option<String> {
    let failure = |steps: &[S]| failure::of(|| run(steps));
    let first = failure(&steps)?;
    if !shrinks {
        return Some(format!("seed {seed} ({}): {first}", replay(seed)));
    }
    let steps = shrink::shrink(steps, |fewer| failure(fewer).is_some());
    let message = failure(&steps).unwrap_or_else(|| format!("{first} (not when run again)"));
    let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
    Some(format!("seed {seed} ({}): {message}\nafter\n{}", replay(seed), steps.join("\n")))
}

/// How to run one seed again.
fn replay(seed: u64) -> String {
    format!("SEEDS={seed}..{}", seed + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn a_failure_is_reported_with_its_seed_and_the_steps_it_needs() {
        let run = |steps: &[u64]| assert!(!steps.contains(&3), "met {}", steps.len());
        assert_eq!(report_of_failure(7, vec![1, 2, 4], &run, true), None);
        let report = report_of_failure(7, vec![1, 2, 3, 4], &run, true);
        assert_eq!(report.as_deref(), Some("seed 7 (SEEDS=7..8): met 1\nafter\n  3"));
        let report = report_of_failure(7, vec![1, 2, 3, 4], &run, false);
        assert_eq!(report.as_deref(), Some("seed 7 (SEEDS=7..8): met 4"));
    }

    #[test]
    fn a_failure_that_does_not_repeat_is_reported_with_all_steps() {
        let again = AtomicBool::new(false);
        let run = |_: &[u64]| assert!(again.swap(true, Relaxed), "by chance");
        let report = report_of_failure(7, vec![1, 2], &run, true);
        let expected = "seed 7 (SEEDS=7..8): by chance (not when run again)\nafter\n  1\n  2";
        assert_eq!(report.as_deref(), Some(expected));
    }

    #[test]
    fn the_panic_of_the_first_failing_seed_is_raised_again() {
        let mut ran = Vec::new();
        let panic = failure::of(AssertUnwindSafe(|| {
            each(3..9, |seed| {
                ran.push(seed);
                assert!(seed != 5, "it is {seed}");
            });
        }));
        assert_eq!((panic.as_deref(), ran), (Some("it is 5"), vec![3, 4, 5]));
    }
}
