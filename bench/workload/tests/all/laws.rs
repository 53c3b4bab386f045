//! Every distribution compared with its law.

use crate::common::statistics::{Fit, P, upper_gamma, within};
use serval_workload::{
    distribution::{
        Discrete, ExactZipf, Exponential, Hotspot, KeyChooser, LengthChooser, LengthHistogram, ScatteredZipf,
        ScrambledZipfian, SkewedLatest, Uniform, Zipfian, zeta,
    },
    hash::fnv64,
    random::{Random, Rng},
};

const DRAWS: u64 = 400_000;

/// Returns P(item < k) under Gray's formula, for k = 0 to n.
fn gray(n: u64, theta: f64, zetan: f64) -> impl Fn(u64) -> f64 {
    let zeta2 = zeta(2, theta);
    let eta = (1.0 - libm::pow(2.0 / n as f64, 1.0 - theta)) / (1.0 - zeta2 / zetan);
    move |k| match k {
        0 => 0.0,
        1 => 1.0 / zetan,
        _ if k >= n => 1.0,
        _ => 1.0 - (1.0 - libm::pow(k as f64 / n as f64, 1.0 - theta)) / eta,
    }
}

/// Returns the cell of a rank: the first 64 ranks one by one, then by powers of 2.
fn cell(rank: u64) -> usize {
    if rank < 64 { rank as usize } else { 58 + rank.ilog2() as usize }
}

/// Returns the probabilities of these cells, from P(rank < k).
fn cells(n: u64, below: impl Fn(u64) -> f64) -> Vec<f64> {
    let mut ends: Vec<u64> = (0..=n.min(64)).collect();
    while ends[ends.len() - 1] < n {
        ends.push((ends[ends.len() - 1] * 2).min(n));
    }
    ends.windows(2).map(|pair| below(pair[1]) - below(pair[0])).collect()
}

#[test]
fn p_values_agree_with_the_tables() {
    for (cells, chi, p) in
        [(1, 3.841_458_8, 0.05), (10, 18.307_038, 0.05), (10, 3.940_299, 0.95), (100, 149.449_25, 0.001)]
    {
        let found = upper_gamma(f64::from(cells) / 2.0, chi / 2.0);
        assert!((found - p).abs() < 1e-7, "{cells} {chi}: {found}");
    }
    assert!((upper_gamma(1.0, 30.0) / libm::exp(-30.0) - 1.0).abs() < 1e-10);
}

#[test]
fn a_wrong_distribution_is_detected() {
    let mut fit = Fit::new("loaded die", vec![0.102, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.098]);
    let mut rng = Rng::new(1);
    for _ in 0..10 * DRAWS {
        fit.count(rng.below(10) as usize);
    }
    assert!(fit.p() < P);
}

#[test]
fn uniform() {
    for (min, max) in [(0, 9), (7, 1006), (5, 5)] {
        let n = max - min + 1;
        let mut fit = Fit::new(format!("uniform {min} {max}, seed 2"), vec![1.0 / n as f64; n as usize]);
        let (uniform, mut rng) = (Uniform::new(min, max).unwrap(), Rng::new(2));
        (0..DRAWS).for_each(|_| fit.count((uniform.draw(&mut rng) - min) as usize));
        fit.check();
    }
}

#[test]
fn zipfian_follows_grays_formula() {
    for (n, theta) in
        [(2, 0.99), (3, 0.99), (100, 0.99), (1000, 0.5), (1000, 0.0), (1_000_000, 0.99), (1 << 40, 0.9)]
    {
        let mut zipfian = Zipfian::new(1, n, theta).unwrap();
        let mut fit =
            Fit::new(format!("zipfian {n} {theta}, seed 3"), cells(n, gray(n, theta, zipfian.zetan())));
        let mut rng = Rng::new(3);
        (0..DRAWS).for_each(|_| fit.count(cell(zipfian.next(&mut rng) - 1)));
        fit.check();
    }
}

#[test]
fn zipfian_mean_agrees_with_the_formula() {
    for (n, theta) in [(1, 0.99), (2, 0.99), (3, 0.99), (100, 0.99), (1000, 0.5), (5000, 0.0)] {
        let zipfian = Zipfian::new(10, 9 + n, theta).unwrap();
        let below = gray(n, theta, zipfian.zetan());
        let mean: f64 = (1..n).map(|k| 1.0 - below(k)).sum();
        let found = LengthChooser::Zipfian(zipfian).mean();
        assert!((found - 10.0 - mean).abs() < 1e-9 * (1.0 + mean), "{n} {theta}: {found}, not 10 + {mean}");
    }
    // A range whose sums are not added term by term.
    let (mut zipfian, mut rng) = (Zipfian::new(0, 9_999_999, 0.7).unwrap(), Rng::new(4));
    let sum: f64 = (0..DRAWS).map(|_| zipfian.next(&mut rng) as f64).sum();
    let (mean, found) = (sum / DRAWS as f64, zipfian.mean());
    assert!((mean / found - 1.0).abs() < 0.01, "{mean} {found}");
}

#[test]
fn scrambled_zipfian_is_the_hash_of_zipfian() {
    let (min, n) = (5, 1000);
    let below = gray(ScrambledZipfian::MAX_ITEM + 1, 0.99, ScrambledZipfian::ZETAN);
    // The popular items go where their hashes point. The others are so many that
    // they are uniform.
    const POPULAR: u64 = 200_000;
    let mut probabilities = vec![(1.0 - below(POPULAR)) / n as f64; n];
    for item in 0..POPULAR {
        probabilities[(fnv64(item) % n as u64) as usize] += below(item + 1) - below(item);
    }
    let mut fit = Fit::new("scrambled, seed 5", probabilities);
    let mut scrambled = ScrambledZipfian::new(min, min + n as u64 - 1, 0.99).unwrap();
    let mut rng = Rng::new(5);
    (0..DRAWS).for_each(|_| fit.count((scrambled.draw(&mut rng) - min) as usize));
    fit.check();
}

#[test]
fn exact_zipf() {
    for exponent in [0.1, 0.5, 0.99, 1.0, 1.000_001, 1.5, 3.0, 20.0, 100.0] {
        for n in [1, 2, 3, 10, 64, 1000, 65_537, 1_000_000, 1 << 52] {
            let zipf = ExactZipf::new(n, exponent).unwrap();
            let all = zeta(n, exponent);
            let mut fit = Fit::new(
                format!("exact {n} {exponent}, seed 6"),
                cells(n, |k| if k == n { 1.0 } else { zeta(k, exponent) / all }),
            );
            let mut rng = Rng::new(6);
            (0..DRAWS / 2).for_each(|_| fit.count(cell(zipf.draw(&mut rng))));
            fit.check();
        }
    }
}

#[test]
fn exact_zipf_rank_for_rank() {
    for (n, exponent) in [(2, 0.5), (3, 0.99), (10, 1.0), (10, 3.0), (5000, 0.99)] {
        let zipf = ExactZipf::new(n, exponent).unwrap();
        let all = zeta(n, exponent);
        let probabilities: Vec<f64> =
            (0..n).map(|rank| libm::pow((rank + 1) as f64, -exponent) / all).collect();
        assert!((zipf.probability(n / 2) - probabilities[n as usize / 2]).abs() < 1e-15);
        let mut fit = Fit::new(format!("exact {n} {exponent} rank for rank, seed 7"), probabilities);
        let mut rng = Rng::new(7);
        (0..20 * DRAWS).for_each(|_| fit.count(zipf.draw(&mut rng) as usize));
        fit.check();
    }
}

/// Counts the draws of a generator.
struct Counted(Rng, u64);

impl Random for Counted {
    fn next_u64(&mut self) -> u64 {
        self.1 += 1;
        self.0.next_u64()
    }
}

#[test]
fn exact_zipf_rarely_rejects() {
    for exponent in [0.01, 0.5, 0.99, 1.0, 1.5, 3.0, 10.0] {
        for n in [1, 2, 3, 10, 1000, 1 << 40] {
            let (zipf, mut rng) = (ExactZipf::new(n, exponent).unwrap(), Counted(Rng::new(8), 0));
            (0..20_000).for_each(|_| assert!(zipf.draw(&mut rng) < n));
            let draws = rng.1 as f64 / 20_000.0;
            assert!(draws < 1.3, "{n} {exponent}: {draws}");
        }
    }
}

#[test]
fn the_hottest_key_has_its_theoretical_share() {
    for (n, percent) in [(1000, 12.9), (1_000_000, 6.5)] {
        let zipf = ScatteredZipf::new(100, 99 + n, 0.99, 42).unwrap();
        let (hottest, share) = (zipf.key(0), 1.0 / zeta(n, 0.99));
        assert!((100.0 * share - percent).abs() < 0.05, "{n}: {share}");
        let mut rng = Rng::new(9);
        let hits = (0..5 * DRAWS).filter(|_| zipf.draw(&mut rng) == hottest).count() as u64;
        assert!(within(4.0, hits, 5 * DRAWS, share), "{n}, seed 9: {hits} of {}, share {share}", 5 * DRAWS);
    }
    // YCSB's stays at 3.8 %, with an irregular tail.
    let mut scrambled = ScrambledZipfian::new(0, 999_999, 0.99).unwrap();
    let (hottest, mut rng) = (fnv64(0) % 1_000_000, Rng::new(10));
    let hits = (0..5 * DRAWS).filter(|_| scrambled.draw(&mut rng) == hottest).count() as u64;
    assert!(within(4.0, hits, 5 * DRAWS, 1.0 / ScrambledZipfian::ZETAN), "seed 10: {hits}");
}

#[test]
fn popularity_of_old_keys_does_not_shift_with_inserts() {
    // 500 keys exist, and 500 more are inserted during the run.
    let zipf = ScatteredZipf::new(0, 999, 0.99, 1).unwrap();
    let old: f64 = (0..500).map(|key| zipf.zipf().probability(zipf.rank(key))).sum();
    let shares: Vec<f64> = (0..500).map(|key| zipf.zipf().probability(zipf.rank(key)) / old).collect();
    for newest in [499, 500, 750, 999] {
        let mut fit = Fit::new(format!("old keys while the newest is {newest}, seed 11"), shares.clone());
        let (mut keys, mut rng) = (KeyChooser::ScatteredZipf(zipf.clone()), Rng::new(11));
        let mut drawn = 0;
        while drawn < DRAWS {
            let key = keys.draw(&mut rng, newest);
            assert!(key <= newest);
            if key < 500 {
                fit.count(key as usize);
                drawn += 1;
            }
        }
        fit.check();
    }
}

#[test]
fn latest_is_zipfian_by_age() {
    for (at_first, newest) in [(1000, 1000), (1000, 1400), (100_000, 100_000), (1_000_000, 1_200_000)] {
        let mut latest = SkewedLatest::new(at_first, 0.99).unwrap();
        let zetan = zeta(newest, 0.99);
        // Eta stays that of the first number of items.
        let eta = (1.0 - libm::pow(2.0 / at_first as f64, 0.01)) / (1.0 - zeta(2, 0.99) / zetan);
        let below = |k: u64| match k {
            0 => 0.0,
            1 => 1.0 / zetan,
            2 => (1.0 + libm::pow(0.5, 0.99)) / zetan,
            _ if k >= newest => 1.0,
            _ => (1.0 - (1.0 - libm::pow(k as f64 / newest as f64, 0.01)) / eta).max(zeta(2, 0.99) / zetan),
        };
        let mut fit = Fit::new(format!("latest {at_first} {newest}, seed 12"), cells(newest, below));
        let mut rng = Rng::new(12);
        (0..DRAWS).for_each(|_| fit.count(cell(newest - latest.draw(&mut rng, newest))));
        fit.check();
    }
}

#[test]
fn latest_grown_step_by_step_equals_latest_grown_at_once() {
    // Across the end of direct addition, where the methods of growth differ.
    let mut steps = Zipfian::of(60_000, 0.99).unwrap();
    let mut rng = Rng::new(13);
    for n in (60_000..70_000).step_by(7) {
        steps.next_of(&mut rng, n);
    }
    for n in [70_001, 90_000, 90_001, 1_000_000_000_000] {
        steps.next_of(&mut rng, n);
        let error = (steps.zetan() / zeta(n, 0.99) - 1.0).abs();
        assert!(error < 1e-13, "{n}: {error:e}");
    }
}

#[test]
fn hotspot() {
    for (fraction, share) in [(0.2, 0.8), (0.0, 0.0), (1.0, 0.3), (0.5, 0.0), (0.0, 0.8)] {
        let hot = (100.0 * fraction) as usize;
        let share_of = |share: f64, part: usize| if part == 0 { 0.0 } else { share / part as f64 };
        // An empty part leaves its share to the other.
        let share: f64 = if hot == 0 {
            0.0
        } else if hot == 100 {
            1.0
        } else {
            share
        };
        let probabilities = (0..100)
            .map(|key| if key < hot { share_of(share, hot) } else { share_of(1.0 - share, 100 - hot) });
        let mut fit = Fit::new(format!("hotspot {fraction} {share}, seed 14"), probabilities.collect());
        let (hotspot, mut rng) = (Hotspot::new(7, 106, fraction, share).unwrap(), Rng::new(14));
        (0..DRAWS).for_each(|_| fit.count((hotspot.draw(&mut rng) - 7) as usize));
        fit.check();
    }
}

#[test]
fn exponential_and_its_redraw() {
    let exponential = Exponential::new(95.0, 857.0).unwrap();
    let below = |k: u64| -libm::expm1(-exponential.gamma() * k as f64);
    assert!((below(857) - 0.95).abs() < 1e-12);
    // The law conditioned on distances up to the newest key.
    for newest in [10, 300, 2000] {
        let within = below(newest + 1);
        let probabilities = (0..=newest).map(|k| (below(k + 1) - below(k)) / within).collect();
        let mut fit = Fit::new(format!("exponential {newest}, seed 15"), probabilities);
        let (mut keys, mut rng) = (KeyChooser::Exponential(exponential.clone()), Rng::new(15));
        (0..DRAWS).for_each(|_| fit.count((newest - keys.draw(&mut rng, newest)) as usize));
        fit.check();
    }
}

#[test]
fn discrete() {
    for weights in [&[0.95, 0.05][..], &[50.0, 0.0, 30.0, 20.0], &[1.0], &[1.0, 1e-3]] {
        let sum: f64 = weights.iter().sum();
        let shares = weights.iter().map(|weight| weight / sum).collect();
        let mut fit = Fit::new(format!("discrete {weights:?}, seed 16"), shares);
        let (discrete, mut rng) = (Discrete::new(weights).unwrap(), Rng::new(16));
        (0..DRAWS).for_each(|_| fit.count(discrete.draw(&mut rng)));
        fit.check();
    }
}

#[test]
fn histogram_both_ways() {
    let histogram = LengthHistogram::parse(b"BlockSize\t10\n0\t5\n1\t0\n2\t3\n3\t2\n").unwrap();
    for (mut lengths, law, mean) in [
        (LengthChooser::Histogram(histogram.clone()), vec![0.6, 0.0, 0.4, 0.0], 12.0),
        (LengthChooser::ExactHistogram(histogram), vec![0.5, 0.0, 0.3, 0.2], 22.0),
    ] {
        assert_eq!(lengths.mean(), mean);
        let mut fit = Fit::new(format!("{lengths:?}, seed 17"), law);
        let mut rng = Rng::new(17);
        (0..DRAWS).for_each(|_| fit.count((lengths.draw(&mut rng) / 10 - 1) as usize));
        fit.check();
    }
}
