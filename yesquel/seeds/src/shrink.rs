//! The few steps of many that a failure needs.

/// Leaves out of a failing list what the failure does not need: large pieces
/// first, then single steps, until it needs each of those left.
pub(crate) fn shrink<S: Clone>(mut steps: Vec<S>, fails: impl Fn(&[S]) -> bool) -> Vec<S> {
    let mut piece = steps.len();
    while piece > 0 {
        let before = steps.len();
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + piece).min(fewer.len()));
            if fails(&fewer) {
                steps = fewer;
            } else {
                at += piece;
            }
        }
        // A step that was needed may not be once a later one is gone.
        if piece > 1 || steps.len() == before {
            piece /= 2;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn needed_steps_keep_their_order() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let steps: Vec<usize> = (0..random.next(60) as usize).collect();
            let needed: Vec<usize> = steps.iter().copied().filter(|_| random.next(8) == 0).collect();
            let fails = |fewer: &[usize]| needed.iter().all(|step| fewer.contains(step));
            assert_eq!(shrink(steps, fails), needed, "seed {seed}");
        }
    }

    /// Failures that come and go as steps do.
    #[test]
    fn the_shrunk_list_fails_and_needs_every_step() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let steps: Vec<u64> = (0..1 + random.next(60)).map(|_| random.next(100)).collect();
            let modulus = 2 + random.next(9);
            let rest = steps.iter().sum::<u64>() % modulus;
            let fails = |fewer: &[u64]| fewer.iter().sum::<u64>() % modulus == rest;
            let shrunk = shrink(steps, fails);
            assert!(fails(&shrunk), "seed {seed}");
            for at in 0..shrunk.len() {
                let mut fewer = shrunk.clone();
                fewer.remove(at);
                assert!(!fails(&fewer), "seed {seed}: {shrunk:?} fails without step {at}");
            }
        }
    }

    #[test]
    fn a_step_needed_only_by_a_removed_step_is_removed() {
        // `b` without `a` hides the failure.
        let fails = |steps: &[char]| steps.contains(&'c') && (steps.contains(&'a') || !steps.contains(&'b'));
        assert_eq!(shrink(vec!['a', 'b', 'c'], fails), ['c']);
    }
}
