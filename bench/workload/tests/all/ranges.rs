//! Properties of every draw: ranges, limits, errors, and the time to start.

#![allow(clippy::disallowed_types, reason = "a test may measure time")]

use proptest::prelude::*;
use serval_workload::{
    distribution::{
        Bijection, Discrete, DistributionError, ExactZipf, Exponential, Hotspot, KeyChooser, LengthChooser,
        LengthHistogram, ScatteredZipf, ScrambledZipfian, Sequential, SkewedLatest, Uniform, Zipfian, zeta,
    },
    random::{Random, Rng},
};
use std::{collections::HashSet, thread, time::Instant};

/// Every distribution of keys over a range.
fn choosers(min: u64, max: u64) -> Vec<KeyChooser> {
    vec![
        KeyChooser::Uniform(Uniform::new(min, max).unwrap()),
        KeyChooser::Zipfian(ScrambledZipfian::new(min, max, 0.99).unwrap()),
        KeyChooser::ScatteredZipf(ScatteredZipf::new(min, max, 1.2, 7).unwrap()),
        KeyChooser::Latest(SkewedLatest::new(max, 0.99).unwrap()),
        KeyChooser::Hotspot(Hotspot::new(min, max, 0.2, 0.8).unwrap()),
        KeyChooser::Exponential(Exponential::new(95.0, (max - min + 1) as f64).unwrap()),
        KeyChooser::Sequential(Sequential::new(min, max).unwrap()),
    ]
}

/// Always the same draw, such as the highest or the lowest.
struct Extreme(u64);

impl Random for Extreme {
    fn next_u64(&mut self) -> u64 {
        self.0
    }

    /// The default implementation would wait for another draw.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
}

proptest! {
    #[test]
    fn keys_exist(seed: u64, min in 0u64..1 << 40, bits in 0u32..40, length: u64, short in 0u64..100) {
        let max = min + length % (1 << bits);
        // Long enough that redraws are few.
        let newest = max - (max - min) * short / 200;
        let mut rng = Rng::new(seed);
        for mut keys in choosers(min, max) {
            let lowest = keys.lowest();
            if lowest > newest {
                continue;
            }
            for newest in [newest, newest, max, max] {
                let key = keys.draw(&mut rng, newest);
                prop_assert!((lowest..=newest).contains(&key), "{key} is not in {lowest}..={newest}: {keys:?}");
            }
        }
    }

    #[test]
    fn zipfian_stays_in_range(seed: u64, min in 0u64..1 << 40, bits in 0u32..50, length: u64, theta in 0.0..0.999) {
        let max = min + length % (1 << bits);
        let mut zipfian = Zipfian::with_zeta(min, max, theta, zeta(max - min + 1, theta)).unwrap();
        let mut rng = Rng::new(seed);
        for _ in 0..10 {
            prop_assert!((min..=max).contains(&zipfian.next(&mut rng)));
        }
        prop_assert!((min..=max).contains(&zipfian.next(&mut Extreme(0))));
        prop_assert!((min..=max).contains(&zipfian.next(&mut Extreme(u64::MAX))));
    }

    #[test]
    fn zipfian_increases_with_the_draw(n in 3u64..100_000, theta in 0.01..0.99, draws in prop::collection::vec(any::<u64>(), 2..50)) {
        let mut zipfian = Zipfian::new(0, n - 1, theta).unwrap();
        let mut draws = draws;
        draws.sort_unstable();
        let items: Vec<u64> = draws.iter().map(|&draw| zipfian.next(&mut Extreme(draw))).collect();
        prop_assert!(items.is_sorted(), "{items:?}");
    }

    #[test]
    fn exact_zipf_stays_in_range(seed: u64, bits in 0u32..=52, n: u64, exponent in 0.001..100.0) {
        let n = n % (1 << bits) + 1;
        let zipf = ExactZipf::new(n, exponent).unwrap();
        let mut rng = Rng::new(seed);
        for _ in 0..20 {
            prop_assert!(zipf.draw(&mut rng) < n);
        }
    }

    #[test]
    fn latest_follows_growth(seed: u64, start in 0u64..1000, steps in prop::collection::vec((0u64..100, 0u32..45), 1..30)) {
        let mut latest = SkewedLatest::new(start, 0.99).unwrap();
        let (mut newest, mut rng) = (start, Rng::new(seed));
        for (growth, shift) in steps {
            // Mostly small steps, with occasional large jumps.
            newest += growth << if shift < 40 { 0 } else { shift - 10 };
            prop_assert!(latest.draw(&mut rng, newest) <= newest);
        }
        // Back again, as for a client that read an older value.
        prop_assert!(latest.draw(&mut rng, start) <= start);
        prop_assert_eq!(latest.draw(&mut rng, 0), 0);
    }

    #[test]
    fn discrete_always_chooses_a_value(weights in prop::collection::vec(0.0..1e3f64, 1..40), draw: u64) {
        prop_assume!(weights.iter().any(|&weight| weight > 0.0));
        let discrete = Discrete::new(&weights).unwrap();
        for draw in [draw, 0, u64::MAX] {
            let index = discrete.draw(&mut Extreme(draw));
            prop_assert!(weights[index] > 0.0);
        }
    }

    #[test]
    fn histograms_draw_only_lengths_of_the_file(counts in prop::collection::vec(0u64..50, 1..40), draw: u64) {
        prop_assume!(counts.iter().any(|&count| count > 0));
        let mut file = String::from("BlockSize\t8\r\n");
        for (bucket, count) in counts.iter().enumerate() {
            file += &format!("{bucket}\t{count}\r\n");
        }
        let histogram = LengthHistogram::parse(file.as_bytes()).unwrap();
        for draw in [draw, 0, u64::MAX] {
            let exact = histogram.draw_exact(&mut Extreme(draw));
            prop_assert!(exact.is_multiple_of(8) && counts[(exact / 8 - 1) as usize] > 0);
            // YCSB's walk, step by step.
            let total: u64 = counts.iter().sum();
            let mut number = Extreme(draw).below(total) as i64;
            let mut expected = (counts.len() - 1) * 8;
            for (bucket, &count) in counts[..counts.len() - 1].iter().enumerate() {
                number -= count as i64;
                if number <= 0 {
                    expected = (bucket + 1) * 8;
                    break;
                }
            }
            prop_assert_eq!(histogram.draw(&mut Extreme(draw)), expected as u64);
        }
    }
}

#[test]
fn equal_seeds_give_equal_keys() {
    for (mut one, mut two) in choosers(0, 99_999).into_iter().zip(choosers(0, 99_999)) {
        let (mut a, mut b) = (Rng::new(3), Rng::new(3));
        for _ in 0..1000 {
            assert_eq!(one.draw(&mut a, 99_999), two.draw(&mut b, 99_999));
        }
    }
}

/// Returns a source whose uniform draw has this value.
fn uniform_draw(u: f64) -> Extreme {
    Extreme((u * (1u64 << 53) as f64) as u64 * (1 << 11))
}

#[test]
fn the_examples_of_the_documents() {
    let mut zipfian = Zipfian::new(0, 999, 0.99).unwrap();
    assert_eq!([0.1, 0.19, 0.5].map(|u| zipfian.next(&mut uniform_draw(u))), [0, 1, 22]);
    assert!((zipfian.zetan() - 7.729).abs() < 5e-4 && (zipfian.eta_constant() - 0.0748).abs() < 5e-5);
    assert_eq!(ScrambledZipfian::new(0, 999, 0.99).unwrap().draw(&mut Extreme(0)), 211);
    // Chosen such that u = 3 between ln 1000.5 and ln 1.5 - 1.
    let exact = ExactZipf::new(1000, 1.0).unwrap();
    let (low, high) = (1.5f64.ln() - 1.0, 1000.5f64.ln());
    assert_eq!(exact.draw(&mut uniform_draw((high - 3.0) / (high - low))), 19);
    assert_eq!(SkewedLatest::new(1000, 0.99).unwrap().draw(&mut uniform_draw(0.5), 1000), 1000 - 22);
    let exponential = Exponential::new(95.0, 857.142_857_1).unwrap();
    assert_eq!(exponential.draw(&mut uniform_draw(0.5)) as u64, 198);
    assert!((exponential.gamma() - 0.003_495).abs() < 5e-7 && (exponential.mean() - 286.0).abs() < 0.5);
    assert_eq!(Discrete::new(&[95.0, 5.0]).unwrap().draw(&mut uniform_draw(0.97)), 1);
    let hotspot = Hotspot::new(0, 999, 0.2, 0.8).unwrap();
    assert_eq!(hotspot.draw(&mut uniform_draw(0.79)), 158);
    let histogram = LengthHistogram::parse(b"BlockSize\t10\n0\t5\n1\t0\n2\t3\n3\t2\n").unwrap();
    let tenths = || (0..10).map(|number| uniform_draw(f64::from(number) / 10.0 + 0.05));
    let ycsb: Vec<u64> = tenths().map(|mut draw| histogram.draw(&mut draw)).collect();
    let exact: Vec<u64> = tenths().map(|mut draw| histogram.draw_exact(&mut draw)).collect();
    assert_eq!(ycsb, [10, 10, 10, 10, 10, 10, 30, 30, 30, 30]);
    assert_eq!(exact, [10, 10, 10, 10, 10, 30, 30, 30, 40, 40]);
}

#[test]
fn discrete_ends_with_the_last_value_of_positive_weight() {
    // Ten tenths do not add up to 1.
    let tenths = Discrete::new(&[0.1; 10]).unwrap();
    assert_eq!(tenths.draw(&mut Extreme(u64::MAX)), 9);
    assert_eq!(tenths.draw(&mut Extreme(0)), 0);
    let ended = Discrete::new(&[0.1, 0.1, 0.1, 0.0]).unwrap();
    assert_eq!(ended.draw(&mut Extreme(u64::MAX)), 2);
    assert_eq!(Discrete::new(&[0.0, 1.0]).unwrap().draw(&mut Extreme(0)), 1);
}

#[test]
fn clients_share_a_sequence() {
    let sequential = Sequential::new(5, 8).unwrap();
    let mut keys = KeyChooser::Sequential(sequential.clone());
    let mut other = keys.clone();
    let drawn: Vec<u64> =
        (0..3).flat_map(|_| [keys.draw(&mut Extreme(0), 8), other.draw(&mut Extreme(0), 8)]).collect();
    assert_eq!(drawn, [5, 6, 7, 8, 5, 6]);
    // 7 and 8 are skipped while they do not exist.
    assert_eq!((keys.draw(&mut Extreme(0), 6), keys.draw(&mut Extreme(0), 6)), (5, 6));
    let sequential = Sequential::new(0, 9999).unwrap();
    let seen: Vec<u64> = thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let sequential = sequential.clone();
                scope.spawn(move || (0..2500).map(|_| sequential.draw()).collect::<Vec<_>>())
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(seen.into_iter().collect::<HashSet<_>>().len(), 10_000);
}

#[test]
fn a_trillion_keys_start_at_once() {
    // Work per key would take minutes; the limit leaves room for a busy
    // machine.
    let started = Instant::now();
    let n = 1_000_000_000_000;
    let mut rng = Rng::new(1);
    for mut keys in choosers(0, n - 1) {
        assert!(keys.draw(&mut rng, n - 1) < n);
    }
    ScrambledZipfian::new(0, n, 0.5).unwrap();
    Zipfian::new(0, n, 0.99).unwrap().mean();
    ExactZipf::new(1 << 52, 3.0).unwrap().probability(1 << 51);
    Bijection::new(1 << 52, 1).unwrap();
    let mut latest = SkewedLatest::new(1, 0.99).unwrap();
    latest.draw(&mut rng, n);
    latest.draw(&mut rng, 1 << 62);
    let taken = started.elapsed().as_millis();
    assert!(taken < 1000, "{taken} ms");
}

#[test]
fn invalid_parameters_are_refused() {
    let text = |error: DistributionError| error.to_string();
    assert_eq!(
        text(Uniform::new(5, 4).unwrap_err()),
        "the range from 5 to 4 is empty: its end must not lie below its start"
    );
    assert!(text(Uniform::new(0, u64::MAX).unwrap_err()).contains("too long"));
    for theta in [-0.1, 1.0, 1.5, f64::NAN] {
        assert!(text(Zipfian::new(0, 9, theta).unwrap_err()).contains("at least 0 and below 1"));
        assert!(ScrambledZipfian::new(0, 9, theta).is_err());
        assert!(SkewedLatest::new(9, theta).is_err());
    }
    for exponent in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        assert!(text(ExactZipf::new(10, exponent).unwrap_err()).contains("above 0"));
    }
    assert!(ExactZipf::new(0, 1.0).is_err());
    assert!(ScatteredZipf::new(0, 1 << 52, 1.0, 0).is_err());
    assert!(text(Hotspot::new(0, 9, 1.1, 0.5).unwrap_err()).contains("fraction of hot keys is 1.1"));
    assert!(text(Hotspot::new(0, 9, 0.1, -0.5).unwrap_err()).contains("share of operations"));
    for percentile in [0.0, 100.0, -1.0, 101.0, f64::NAN] {
        assert!(text(Exponential::new(percentile, 10.0).unwrap_err()).contains("percentile"));
    }
    for width in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        assert!(text(Exponential::new(95.0, width).unwrap_err()).contains("width"));
    }
    for weights in [&[1.0, -1.0][..], &[1.0, f64::NAN], &[1.0, f64::INFINITY]] {
        assert!(text(Discrete::new(weights).unwrap_err()).contains("weight 1"));
    }
    assert_eq!(Discrete::new(&[0.0]).unwrap_err(), DistributionError::NoWeight);
    assert_eq!(Discrete::new(&[]).unwrap_err(), DistributionError::NoWeight);
}

#[test]
fn faults_of_a_histogram_file_name_their_lines() {
    let faults = |file: &str| LengthHistogram::parse(file.as_bytes()).unwrap_err().to_string();
    for (file, line, part) in [
        ("", "line 1: ", "empty"),
        ("0\t5\n", "line 1: ", "'BlockSize'"),
        ("BlockSize\n0\t5\n", "line 1: ", "'BlockSize'"),
        ("BlockSize\t0\n0\t5\n", "line 1: ", "block size is '0'"),
        ("BlockSize\t2147483648\n0\t5\n", "line 1: ", "from 1 to 2147483647"),
        ("BlockSize\t10\n", "line 2: ", "no bucket"),
        ("BlockSize\t10\n0\t0\n", "line 3: ", "above 0"),
        ("BlockSize\t10\n0\t5\n2\t5\n", "line 3: ", "'2' where 1 must come"),
        ("BlockSize\t10\n1\t5\n0\t5\n", "line 2: ", "in order from 0"),
        ("BlockSize\t10\n0\t5\n0\t5\n", "line 3: ", "where 1 must come"),
        ("BlockSize\t10\n0\t-5\n", "line 2: ", "the count is '-5'"),
        ("BlockSize\t10\n0 5\n", "line 2: ", "a tab and a count"),
        ("BlockSize\t10\n0\t5\n\n1\t5\n", "line 3: ", "a tab and a count"),
        ("BlockSize\t10\n0\t18446744073709551615\n1\t1\n", "line 4: ", "64 bits"),
    ] {
        let text = faults(file);
        assert!(text.starts_with(line) && text.contains(part), "{file:?}: {text}");
    }
    // All faults, up to a limit; counting continues after a fault.
    let text = faults("BlockSize\tx\n0\t5\n1\tx\n2\t5\n9\t5\n4\t1\n");
    assert_eq!(text.matches("line").count() - 1, 3, "{text}");
    assert_eq!(LengthHistogram::parse("x\n".repeat(1000).as_bytes()).unwrap_err().0.len(), 10);
    let long = faults(&format!("BlockSize\t{}\n", "9".repeat(1000)));
    assert!(long.len() < 200, "{long}");
    // Blank lines at the end and further columns are ignored.
    let histogram = LengthHistogram::parse(b"BlockSize\t10\r\n0\t5\tx\r\n\r\n\r\n").unwrap();
    assert_eq!((histogram.mean(), histogram.mean_exact()), (0.0, 10.0));
}

#[test]
fn a_histogram_file_is_bounded() {
    use serval_workload::distribution::histogram::{MAX_BUCKETS, MAX_FILE_BYTES};
    let mut file = String::from("BlockSize\t1\n");
    for bucket in 0..MAX_BUCKETS {
        file += &format!("{bucket}\t1\n");
    }
    assert!(LengthHistogram::parse(file.as_bytes()).is_ok());
    file += &format!("{MAX_BUCKETS}\t1\n");
    assert!(LengthHistogram::parse(file.as_bytes()).unwrap_err().to_string().contains("one too many"));
    let error = LengthHistogram::parse(&vec![b'x'; MAX_FILE_BYTES + 1]).unwrap_err();
    assert!(error.to_string().contains("at most 33554432"), "{error}");
}

#[test]
fn lengths_and_their_means() {
    let mut rng = Rng::new(2);
    let mut constant = LengthChooser::Constant(100);
    assert_eq!((constant.draw(&mut rng), constant.mean()), (100, 100.0));
    let mut uniform = LengthChooser::Uniform(Uniform::new(1, 100).unwrap());
    assert!((1..=100).contains(&uniform.draw(&mut rng)));
    assert_eq!(uniform.mean(), 50.5);
}
