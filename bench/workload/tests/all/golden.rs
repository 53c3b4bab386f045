//! Comparison with the published YCSB core, draw by draw: each test generates the golden file from
//! the same injected draws and compares it byte by byte. `golden/README.md` describes how the files
//! were made.

use crate::common::java::{Below, ThreadLocalRandom};
use serval_model::java::string_hash;
use serval_workload::{
    distribution::{
        AcknowledgedCounter, Discrete, Exponential, Hotspot, LengthHistogram, ScrambledZipfian, Sequential,
        SkewedLatest, Uniform, Zipfian,
    },
    hash::fnv64,
    keys::{KeyFormat, KeyOrder},
    random::Random,
    values::{RandomBytes, RandomText, write_integrity},
};
use std::fmt::Write;

/// Appends a line to the text, as `println!` would.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => { writeln!($out, $($arg)*).unwrap() };
}

fn compare(name: &str, ours: &str, golden: &str) {
    for (number, (ours, golden)) in ours.lines().zip(golden.lines()).enumerate() {
        assert_eq!(ours, golden, "{name}, line {}: ours is on the left", number + 1);
    }
    assert_eq!(ours.len(), golden.len(), "{name}: the lengths differ");
    assert!(ours == golden, "{name}: the ends of lines differ");
}

fn draws(out: &mut String, count: usize, mut draw: impl FnMut() -> u64) {
    for i in 0..count {
        let end = if i % 20 == 19 || i == count - 1 { '\n' } else { ' ' };
        write!(out, "{}{end}", draw()).unwrap();
    }
}

fn digest(out: &mut String, count: usize, mut draw: impl FnMut() -> u64) {
    let digest = (0..count)
        .fold(0u64, |digest, _| digest.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(draw()));
    line!(out, "digest of {count}: {digest:016x}");
}

fn constants(out: &mut String, zipfian: &Zipfian) {
    line!(out, "alpha={:016x}", zipfian.alpha().to_bits());
    line!(out, "zetan={:016x}", zipfian.zetan().to_bits());
    line!(out, "eta={:016x}", zipfian.eta_constant().to_bits());
}

#[test]
fn injected_draws_equal_those_of_java() {
    let mut out = String::new();
    for seed in [0, 1, -1, 0x0123_4567_89ab_cdef] {
        line!(out, "seed={seed}");
        let mut random = ThreadLocalRandom::new(seed);
        for _ in 0..5 {
            let (bits, double) = (random.next_u64(), random.next_f64().to_bits());
            line!(
                out,
                "{bits:016x} {double:016x} {} {}",
                random.next_int_below(1000),
                random.next_int_below(64)
            );
        }
    }
    compare("thread_local_random.txt", &out, include_str!("../../golden/thread_local_random.txt"));
}

#[test]
fn hashes_and_key_names_equal_those_of_java() {
    let special = [
        0,
        1,
        2,
        9,
        10,
        99,
        100,
        255,
        256,
        65_535,
        65_536,
        999_999,
        1_000_000,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x1_0000_0000,
        9_999_999_999,
        10_000_000_000,
        1 << 40,
        1 << 52,
        1 << 62,
        i64::MAX as u64,
    ];
    let mut out = String::new();
    for number in special.into_iter().chain((0..500).map(|i| i * 20_082_008)) {
        let hash = fnv64(number);
        let key = |hashed, digits| {
            let order = if hashed { KeyOrder::Hashed } else { KeyOrder::Ordered };
            KeyFormat { order, digits }.key(number)
        };
        write!(out, "{number} {hash} {} {}", key(true, 1), key(false, 1)).unwrap();
        if out.lines().count() <= special.len() {
            for digits in [12, 20] {
                write!(out, " {} {}", key(true, digits), key(false, digits)).unwrap();
            }
        }
        out.push('\n');
    }
    let mut text = String::new();
    for i in 0..64u8 {
        line!(out, "{} {}", text.len(), string_hash(&text));
        text.push((32 + (u32::from(i) * 37) % 95) as u8 as char);
    }
    compare("hashes.txt", &out, include_str!("../../golden/hashes.txt"));
}

#[test]
fn integrity_values() {
    let mut out = String::new();
    for key in ["user0", "user6284781860667377211", "user000000000042"] {
        for field in ["field0", "field9", "f"] {
            for size in [0, 1, 5, 12, 13, 31, 32, 100, 1000] {
                let mut value = Vec::new();
                write_integrity(&mut value, key, field, size);
                line!(out, "{key} {field} {size} {}", String::from_utf8(value).unwrap());
            }
        }
    }
    compare("integrity.txt", &out, include_str!("../../golden/integrity.txt"));
}

/// Combines two draws of Java's 32 bits into one of 64.
struct Ints(ThreadLocalRandom);

impl Random for Ints {
    fn next_u64(&mut self) -> u64 {
        let (low, high) = (self.0.next_int() as u32, self.0.next_int() as u32);
        u64::from(high) << 32 | u64::from(low)
    }
}

#[test]
fn random_values() {
    let text = RandomText { bytes: RandomBytes::Ycsb, compressibility: 0.0 };
    let mut out = String::new();
    for size in [0usize, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 47, 48, 49, 60, 96, 100, 1000] {
        for seed in [size as i64, -1] {
            let mut random = Ints(ThreadLocalRandom::new(seed));
            // YCSB's iterator draws once on construction, without using the draw.
            random.0.next_int();
            let mut value = Vec::new();
            text.write(&mut value, size, &mut random);
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            line!(out, "{size} {seed} {hex}");
        }
    }
    compare("values.txt", &out, include_str!("../../golden/values.txt"));
}

#[test]
fn zipfian() {
    let mut out = String::new();
    for (min, max, theta) in [
        (0, 0, 0.99),
        (0, 1, 0.99),
        (0, 2, 0.99),
        (1, 100, 0.99),
        (0, 999, 0.99),
        (5, 65_004, 0.99),
        (0, 999, 0.5),
        (0, 999, 0.0),
        (10, 10_009, 0.75),
        (0, 999_999, 0.99),
    ] {
        line!(out, "min={min} max={max} theta={theta:?} seed={max}");
        let random = &mut ThreadLocalRandom::new(max as i64);
        let mut zipfian = Zipfian::new(min, max, theta).unwrap();
        for _ in 0..Zipfian::CONSTRUCTOR_DRAWS {
            zipfian.next(random);
        }
        if max > 1 && max < 65_536 {
            constants(&mut out, &zipfian);
        }
        draws(&mut out, 400, || zipfian.next(random));
        digest(&mut out, 100_000, || zipfian.next(random));
    }
    let random = &mut ThreadLocalRandom::new(77);
    let mut zipfian = Zipfian::of(100, Zipfian::THETA).unwrap();
    zipfian.next(random);
    line!(out, "items from 100 in steps of 7, every tenth draw of 50 items, seed=77");
    let mut turn = 0;
    draws(&mut out, 1000, || {
        let items = if turn % 10 == 9 { 50 } else { 100 + 7 * turn };
        turn += 1;
        zipfian.next_of(random, items)
    });
    constants(&mut out, &zipfian);
    compare("zipfian.txt", &out, include_str!("../../golden/zipfian.txt"));
}

#[test]
fn scrambled() {
    let mut out = String::new();
    for (min, max, seed) in [
        (0, 999, 10_000),
        (5, 100_004, 6000),
        (1000, 1_001_000, 4000),
        (0, 1_000_000_000, 3000),
        (0, 0, 20),
        (3, 4, 100),
        (0, 999_999_999_999, 500),
    ] {
        line!(out, "min={min} max={max} seed={seed}");
        let random = &mut ThreadLocalRandom::new(seed);
        let mut scrambled = ScrambledZipfian::new(min, max, Zipfian::THETA).unwrap();
        scrambled.draw(random);
        constants(&mut out, scrambled.zipfian());
        draws(&mut out, seed as usize, || scrambled.draw(random));
        digest(&mut out, 1_000_000, || scrambled.draw(random));
    }
    compare("scrambled.txt", &out, include_str!("../../golden/scrambled.txt"));
}

#[test]
fn latest_with_inserts() {
    let mut out = String::new();
    for records in [1, 4, 1000, 50_000, 200_000] {
        line!(out, "records={records} seed={records}");
        let random = &mut ThreadLocalRandom::new(records as i64);
        let counter = AcknowledgedCounter::new(records, 1);
        let mut latest = SkewedLatest::new(counter.last().unwrap(), Zipfian::THETA).unwrap();
        for _ in 0..SkewedLatest::CONSTRUCTOR_DRAWS {
            latest.draw(random, records - 1);
        }
        draws(&mut out, 500, || latest.draw(random, counter.last().unwrap()));
        let insert = || counter.acknowledge(0, counter.begin(0));
        draws(&mut out, 500, || {
            insert();
            latest.draw(random, counter.last().unwrap())
        });
        (0..1000).for_each(|_| insert());
        draws(&mut out, 200, || latest.draw(random, counter.last().unwrap()));
        digest(&mut out, 100_000, || latest.draw(random, counter.last().unwrap()));
    }
    compare("latest.txt", &out, include_str!("../../golden/latest.txt"));
}

#[test]
fn hotspot_exponential_uniform_sequential() {
    let mut out = String::new();
    for (min, max, fraction, share) in [
        (0, 999, 0.2, 0.8),
        (10, 10, 0.0, 0.0),
        (100, 1099, 0.5, 0.1),
        (0, 99_999, 0.01, 0.99),
        (7, 18, 0.0, 0.0),
        (0, 2, 0.5, 1.0),
    ] {
        line!(out, "hotspot {min} {max} {fraction:?} {share:?}");
        let hotspot = Hotspot::new(min, max, fraction, share).unwrap();
        let random = &mut ThreadLocalRandom::new(11);
        draws(&mut out, 200, || hotspot.draw(random));
        digest(&mut out, 100_000, || hotspot.draw(random));
    }
    for (percentile, width, label) in [
        (95.0, 1000.0 * 0.857_142_857_1, "95.0 857.1428571"),
        (50.0, 100.0, "50.0 100.0"),
        (99.9, 1e9, "99.9 1.0E9"),
    ] {
        line!(out, "exponential {label}");
        let exponential = Exponential::new(percentile, width).unwrap();
        line!(out, "gamma={:016x}", exponential.gamma().to_bits());
        let random = &mut ThreadLocalRandom::new(12);
        draws(&mut out, 400, || exponential.draw(random) as u64);
        digest(&mut out, 100_000, || exponential.draw(random) as u64);
    }
    for (min, max) in [(0, 9), (5, 5), (100, 1_000_000), (0, 0x7fff_ffff_ffff)] {
        line!(out, "uniform {min} {max}");
        let uniform = Uniform::new(min, max).unwrap();
        let random = &mut ThreadLocalRandom::new(13);
        draws(&mut out, 200, || uniform.draw(random));
        digest(&mut out, 100_000, || uniform.draw(random));
    }
    line!(out, "sequential 3 9");
    let sequential = Sequential::new(3, 9).unwrap();
    draws(&mut out, 20, || sequential.draw());
    compare("ranges.txt", &out, include_str!("../../golden/ranges.txt"));
}

#[test]
fn discrete_and_histogram() {
    let mut out = String::new();
    let choices: [(&[f64], &str); 5] = [
        (&[0.95, 0.05], "0.95 0.05"),
        (&[1.0, 2.0, 3.0], "1.0 2.0 3.0"),
        (&[0.1, 0.2, 0.3, 0.4], "0.1 0.2 0.3 0.4"),
        (&[0.0, 1.0, 0.0], "0.0 1.0 0.0"),
        (&[1e-9, 1.0, 1e9], "1.0E-9 1.0 1.0E9"),
    ];
    for (weights, label) in choices {
        line!(out, "discrete {label}");
        let discrete = Discrete::new(weights).unwrap();
        let random = &mut ThreadLocalRandom::new(14);
        draws(&mut out, 200, || discrete.draw(random) as u64);
        digest(&mut out, 100_000, || discrete.draw(random) as u64);
    }
    for file in [
        "BlockSize\t10\n0\t5\n1\t0\n2\t3\n3\t2\n",
        "BlockSize\t1\n0\t7\n",
        "BlockSize\t100\n0\t0\n1\t4\n2\t0\n3\t1\n",
        "BlockSize\t5\n0\t1000\n1\t500\n2\t250\n3\t125\n4\t60\n5\t30\n6\t15\n7\t8\n8\t4\n9\t2\n",
    ] {
        line!(out, "histogram {}", file.replace('\n', ";").replace('\t', ","));
        let histogram = LengthHistogram::parse(file.as_bytes()).unwrap();
        line!(out, "mean={:016x}", histogram.mean().to_bits());
        let random = &mut ThreadLocalRandom { below: Below::NextInt, ..ThreadLocalRandom::new(15) };
        draws(&mut out, 200, || histogram.draw(random));
        digest(&mut out, 100_000, || histogram.draw(random));
    }
    compare("lengths.txt", &out, include_str!("../../golden/lengths.txt"));
}
