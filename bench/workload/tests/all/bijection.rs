//! The permutation of ranks is one to one and well scattered.

use crate::common::statistics::Fit;
use proptest::prelude::*;
use serval_workload::distribution::{Bijection, bijection::MAX_ITEMS};

#[test]
fn the_map_is_a_bijection_of_every_short_range() {
    let mut seen = Vec::new();
    for n in (1..=3000).chain([4095, 4096, 4097, 9999, 65_536, 65_537, 1_000_003]) {
        for seed in [0, n, u64::MAX] {
            let bijection = Bijection::new(n, seed).unwrap();
            seen.clear();
            seen.resize(n as usize, false);
            for x in 0..n {
                let y = bijection.apply(x);
                assert!(y < n, "{n} {seed}: {x} maps to {y}");
                assert!(!seen[y as usize], "{n} {seed}: {x} and another number map to {y}");
                seen[y as usize] = true;
                assert_eq!(bijection.invert(y), x, "{n} {seed}: the inverse of {y}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn the_map_is_a_bijection_of_long_ranges(bits in 1u32..=52, n: u64, seed: u64, x: u64) {
        // As many short ranges as long ones.
        let n = n % (1 << bits) + 1;
        let bijection = Bijection::new(n, seed).unwrap();
        for x in [x % n, 0, n - 1] {
            let y = bijection.apply(x);
            prop_assert!(y < n);
            prop_assert_eq!(bijection.invert(y), x);
            prop_assert_eq!(bijection.apply(bijection.invert(x)), x);
        }
    }
}

#[test]
fn limits() {
    assert!(Bijection::new(0, 0).is_err());
    assert!(Bijection::new(MAX_ITEMS + 1, 0).is_err());
    let whole = Bijection::new(MAX_ITEMS, 7).unwrap();
    for x in [0, 1, MAX_ITEMS / 2, MAX_ITEMS - 1] {
        assert_eq!(whole.invert(whole.apply(x)), x);
    }
    assert_eq!(Bijection::new(1, 3).unwrap().apply(0), 0);
    assert_eq!(Bijection::new(100, 3).unwrap(), Bijection::new(100, 3).unwrap());
    assert_ne!(Bijection::new(100, 3).unwrap(), Bijection::new(100, 4).unwrap());
}

/// The key of a rank is the same in every version: stored results name keys.
#[test]
fn values_are_part_of_the_contract() {
    let first = |n, seed| -> Vec<u64> {
        let bijection = Bijection::new(n, seed).unwrap();
        (0..6).map(|x| bijection.apply(x)).collect()
    };
    assert_eq!(first(100, 1), [60, 49, 76, 31, 43, 14]);
    assert_eq!(first(1000, 1), [528, 182, 787, 53, 407, 386]);
    assert_eq!(
        first(1_000_000_000_000, 1),
        [
            442_208_262_464,
            479_650_870_209,
            732_101_603_295,
            353_935_455_246,
            565_436_121_335,
            978_353_558_142
        ]
    );
}

#[test]
fn over_all_seeds_positions_are_uniform() {
    for n in [2u64, 3, 5, 10, 16, 97, 1000] {
        for x in [0, 1, n - 1] {
            let mut fit = Fit::new(format!("{x} of {n}"), vec![1.0 / n as f64; n as usize]);
            (0..100_000).for_each(|seed| fit.count(Bijection::new(n, seed).unwrap().apply(x) as usize));
            fit.check();
        }
    }
}

#[test]
fn over_all_seeds_pairs_of_positions_are_uniform() {
    for n in [3u64, 5, 10, 16, 25, 100] {
        let size = n as usize;
        for (first, second) in [(0, 1), (0, n - 1), (n / 2, n / 2 + 1)] {
            let even = 1.0 / (n * (n - 1)) as f64;
            let probabilities =
                (0..size * size).map(|pair| if pair / size == pair % size { 0.0 } else { even });
            let mut fit = Fit::new(format!("{first} and {second} of {n}"), probabilities.collect());
            for seed in 0..200_000 {
                let bijection = Bijection::new(n, seed).unwrap();
                fit.count(bijection.apply(first) as usize * size + bijection.apply(second) as usize);
            }
            fit.check();
        }
    }
}

#[test]
fn the_first_ranks_scatter_over_the_range() {
    for n in [100_000, 1_000_000, 10_000_000_019, 1_000_000_000_000, MAX_ITEMS] {
        let cells = |name: &str| Fit::new(format!("{name} of {n}"), vec![0.01; 100]);
        let (mut places, mut steps, mut lows) = (cells("places"), cells("steps"), cells("lowest digits"));
        let bijection = Bijection::new(n, 5).unwrap();
        let scaled = |x: u64| ((u128::from(x) * 100) / u128::from(n)) as usize;
        // A small part of the range, since all of it is uniform by definition.
        for x in 0..10_000 {
            let (here, next) = (bijection.apply(x), bijection.apply(x + 1));
            places.count(scaled(here));
            steps.count(scaled(if next >= here { next - here } else { next + n - here }));
            lows.count((here % 100) as usize);
        }
        for fit in [places, steps, lows] {
            fit.check();
        }
    }
}
