//! Delayed visibility of writes, by a clock that the test controls.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use crate::wrapped::{Hand, connected, differences, settings, wrapped};
use proptest::prelude::*;
use serval_conformance::{Executor, Ready, Subject, properties, schema};
use serval_model::{
    Client, Execution, FieldSelection, Outcome, Purpose, Record, Reply, Status, Store, StoreError,
    properties::Reader,
};
use serval_wrappers::{Wrapped, WrapperSettings};
use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed};

const TABLE: &str = serval_conformance::TABLE;
const MS: u64 = 1_000_000;

mod no_delay_between {
    use super::*;

    fn subject() -> Subject<Wrapped, Ready> {
        let store = wrapped(&[("visibility.delay", "constant:0ms")], &Hand::default());
        Subject::new(store, Ready, differences())
    }

    serval_conformance::suite!(subject);
}

type Handle = <Wrapped as Store>::Client;

fn record(value: u8) -> Record {
    [("f", &[value][..]), ("g", b"same")].into_iter().collect()
}

/// Returns field f as this client sees it.
async fn f(client: &mut Handle, key: &str) -> Option<u8> {
    let (mut fields, mut reply) = (FieldSelection::default(), Reply::new());
    fields.push("f");
    let outcome = client.read(TABLE, key, &fields, &mut reply).await;
    if outcome.status == Status::NotFound {
        assert!(reply.records().is_empty());
        return None;
    }
    assert_eq!(outcome, Outcome::OK);
    let [record] = reply.records() else { panic!("{reply:?}") };
    assert_eq!(record.len(), 1);
    Some(record.get("f").unwrap()[0])
}

async fn scan(client: &mut Handle, start: &str, count: u64) -> Vec<u8> {
    let mut reply = Reply::new();
    assert_eq!(client.scan(TABLE, start, count, &FieldSelection::default(), &mut reply).await, Outcome::OK);
    reply.records().iter().map(|record| record.get("f").unwrap()[0]).collect()
}

/// Returns a delayed store, its clock, and two clients.
fn with_two(given: &[(&str, &str)], case: impl AsyncFnOnce(&Hand, &mut Handle, &mut Handle)) {
    let hand = Hand::default();
    let store = wrapped(given, &hand);
    store.prepare(&schema(), Purpose::Load).unwrap();
    Ready.run(async {
        let mut writer = connected(&store, 0).await;
        let mut other = connected(&store, 1).await;
        case(&hand, &mut writer, &mut other).await;
    });
    store.finish().unwrap();
}

#[test]
fn others_see_the_old_value_until_the_delay_of_a_write_has_passed() {
    with_two(&[("visibility.delay", "constant:50ms")], async |hand, writer, other| {
        assert_eq!(writer.insert(TABLE, "k", &record(1)).await, Outcome::OK);
        assert_eq!((f(writer, "k").await, f(other, "k").await), (Some(1), None));
        hand.0.store(50 * MS - 1, Relaxed);
        assert_eq!(f(other, "k").await, None);
        assert_eq!(writer.update(TABLE, "k", &record(2)).await, Outcome::OK);
        hand.0.store(50 * MS, Relaxed);
        assert_eq!((f(writer, "k").await, f(other, "k").await), (Some(2), Some(1)));
        hand.0.store(100 * MS - 1, Relaxed);
        assert_eq!(f(other, "k").await, Some(2));
        assert_eq!(writer.delete(TABLE, "k").await, Outcome::OK);
        assert_eq!((f(writer, "k").await, f(other, "k").await), (None, Some(2)));
        hand.0.store(150 * MS - 1, Relaxed);
        assert_eq!(f(other, "k").await, None);
    });
}

#[test]
fn a_writer_sees_its_own_writes_late_if_configured() {
    let given = [("visibility.delay", "constant:50ms"), ("visibility.own", "delayed")];
    with_two(&given, async |hand, writer, _| {
        writer.insert(TABLE, "k", &record(1)).await;
        assert_eq!(f(writer, "k").await, None);
        hand.0.store(50 * MS, Relaxed);
        assert_eq!(f(writer, "k").await, Some(1));
    });
}

#[test]
fn clients_of_different_runs_on_a_store_are_different_writers() {
    let hand = Hand::default();
    let store = wrapped(&[("visibility.delay", "constant:50ms")], &hand);
    Ready.run(async {
        let mut writer = connected(&store, 0).await;
        let mut consumer = connected(&store, 0).await;
        writer.insert(TABLE, "k", &record(1)).await;
        assert_eq!((f(&mut writer, "k").await, f(&mut consumer, "k").await), (Some(1), None));
        hand.0.store(50 * MS, Relaxed);
        assert_eq!(f(&mut consumer, "k").await, Some(1));
    });
}

#[test]
fn an_update_of_some_fields_keeps_the_visible_values_of_the_others() {
    with_two(&[("visibility.delay", "constant:5ms")], async |hand, writer, other| {
        writer.insert(TABLE, "k", &record(1)).await;
        hand.0.store(4 * MS, Relaxed);
        writer.update(TABLE, "k", &[("g", &b"new"[..])].into_iter().collect()).await;
        hand.0.store(6 * MS, Relaxed);
        let mut reply = Reply::new();
        other.read(TABLE, "k", &FieldSelection::default(), &mut reply).await;
        assert_eq!(reply.records(), [record(1)]);
        // A later write while the first is still delayed.
        writer.update(TABLE, "k", &[("f", &[3][..])].into_iter().collect()).await;
        hand.0.store(10 * MS, Relaxed);
        reply.clear();
        other.read(TABLE, "k", &FieldSelection::default(), &mut reply).await;
        assert_eq!(reply.records()[0].get("f").unwrap(), [1]);
        assert_eq!(reply.records()[0].get("g").unwrap(), b"new");
    });
}

#[test]
fn scans_return_visible_records_up_to_the_requested_number() {
    with_two(&[("visibility.delay", "constant:10ms")], async |hand, writer, other| {
        let batch: Vec<_> = [0, 2, 4, 6].map(|n| (format!("k{n}"), record(n))).into();
        assert_eq!(writer.insert_batch(TABLE, &batch).await, Outcome::OK);
        assert_eq!(scan(other, "k", 10).await, [0u8; 0]);
        hand.0.store(20 * MS, Relaxed);
        writer.insert(TABLE, "k1", &record(1)).await;
        writer.insert(TABLE, "k3", &record(3)).await;
        writer.update(TABLE, "k4", &record(40)).await;
        assert_eq!(scan(writer, "k", 4).await, [0, 1, 2, 3]);
        assert_eq!(scan(other, "k", 3).await, [0, 2, 4]);
        assert_eq!(scan(other, "k1", 10).await, [2, 4, 6]);
        hand.0.store(30 * MS, Relaxed);
        assert_eq!(scan(other, "k", 10).await, [0, 1, 2, 3, 40, 6]);
    });
}

#[test]
fn a_failed_write_is_not_delayed() {
    with_two(&[("visibility.delay", "constant:10ms")], async |hand, writer, other| {
        assert_eq!(writer.update(TABLE, "k", &record(1)).await, Outcome::NOT_FOUND);
        assert_eq!(writer.delete(TABLE, "k").await, Outcome::NOT_FOUND);
        writer.insert(TABLE, "k", &record(2)).await;
        assert_eq!(f(other, "k").await, None);
        hand.0.store(10 * MS, Relaxed);
        assert_eq!(f(other, "k").await, Some(2));
    });
}

#[test]
fn every_write_is_visible_from_the_listed_instant_and_delays_follow_their_distribution() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("delays.csv");
    let given = [("visibility.delay", "exponential:50ms"), ("visibility.log", path.to_str().unwrap())];
    const KEYS: u64 = 2000;
    let hand = Hand::default();
    let store = wrapped(&given, &hand);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let key = |n: u64| format!("k,{n:05}");
    Ready.run(async {
        let mut writer = connected(&store, 0).await;
        let mut other = connected(&store, 1).await;
        for n in 0..KEYS {
            hand.0.store(n * 1000, Relaxed);
            assert_eq!(writer.insert(TABLE, &key(n), &record(1)).await, Outcome::OK);
        }
        store.finish().unwrap();
        let list = std::fs::read_to_string(&path).unwrap();
        let mut lines = list.lines();
        assert_eq!(lines.next(), Some("key,acknowledged_ns,delay_ns"));
        let mut due: Vec<(u64, u64)> = Vec::new();
        for (n, line) in (0..KEYS).zip(lines) {
            let rest = line.strip_prefix(&format!("\"{}\",{},", key(n), n * 1000)).unwrap();
            due.push((n * 1000 + rest.parse::<u64>().unwrap(), n));
        }
        let mean = due.iter().map(|(at, n)| (at - n * 1000) as f64).sum::<f64>() / KEYS as f64;
        // Five standard errors of the mean.
        assert!((mean / 5e7 - 1.0).abs() < 5.0 / (KEYS as f64).sqrt(), "{mean}");
        let over = due.iter().filter(|(at, n)| (at - n * 1000) as f64 > 1.5e8).count() as f64 / KEYS as f64;
        assert!((over - (-3f64).exp()).abs() < 0.025, "{over}");
        due.sort_unstable();
        for (at, n) in due.into_iter().filter(|(at, _)| *at >= KEYS * 1000) {
            hand.0.store(at - 1, Relaxed);
            assert_eq!(f(&mut other, &key(n)).await, None);
            hand.0.store(at, Relaxed);
            assert_eq!(f(&mut other, &key(n)).await, Some(1));
        }
    });
}

#[test]
fn clients_draw_different_delays_and_a_seed_repeats_them() {
    let draws = |seed: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("delays.csv");
        let log = path.to_str().unwrap();
        let given =
            [("visibility.delay", "exponential:50ms"), ("visibility.log", log), ("visibility.seed", seed)];
        with_two(&given, async |_, one, other| {
            one.insert(TABLE, "k", &record(1)).await;
            other.insert(TABLE, "k", &record(1)).await;
        });
        std::fs::read_to_string(&path).unwrap()
    };
    let list = draws("1");
    let delays: Vec<&str> = list.lines().skip(1).map(|line| line.rsplit_once(',').unwrap().1).collect();
    assert_ne!(delays[0], delays[1]);
    assert_eq!(list, draws("1"));
    assert_ne!(list, draws("2"));
}

#[test]
fn invalid_settings_are_refused_and_the_lag_is_described() {
    for (given, words) in [
        (vec![("visibility.delay", "50ms")], "constant:50ms"),
        (vec![("visibility.delay", "uniform:50ms")], "no law 'uniform'"),
        (vec![("visibility.delay", "constant:soon")], "unknown unit"),
        (vec![("visibility.own", "delayed")], "without visibility.delay"),
        (vec![("visibility.log", "x")], "without visibility.delay"),
    ] {
        let fault = settings(&given).unwrap_err();
        assert!(fault.contains(words), "{fault}");
    }
    let given = [("visibility.delay", "exponential:50")];
    assert!(settings(&given).unwrap().warning().unwrap().contains("lag on purpose"));
    assert_eq!(settings(&[]).unwrap().warning(), None);
    let facts = wrapped(&given, &Hand::default()).describe();
    assert!(facts.contains(&("visibility.delay".into(), "exponential:50ms".into())), "{facts:?}");
}

/// A store without space, which fails writes only.
struct Full;
struct FullClient;

impl Store for Full {
    type Local = ();
    type Client = FullClient;
    fn execution(&self) -> Execution {
        Execution::Threads
    }
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }
    async fn connect(&self, (): &(), _: usize) -> Result<FullClient, StoreError> {
        Ok(FullClient)
    }
}

impl Client for FullClient {
    async fn read(&mut self, _: &str, _: &str, _: &FieldSelection, reply: &mut Reply) -> Outcome {
        reply.push("f", b"old");
        Outcome::OK
    }
    async fn update(&mut self, _: &str, _: &str, _: &Record) -> Outcome {
        Outcome::OK
    }
    async fn insert(&mut self, _: &str, _: &str, _: &Record) -> Outcome {
        Outcome::error("full")
    }
    async fn scan(&mut self, _: &str, _: &str, _: u64, _: &FieldSelection, _: &mut Reply) -> Outcome {
        Outcome::OK
    }
    async fn delete(&mut self, _: &str, _: &str) -> Outcome {
        Outcome::OK
    }
}

#[test]
fn delayed_writes_are_bounded_and_released() {
    let hand = Hand::default();
    let given = properties(&[("visibility.delay", "constant:1s")]);
    let mut reader = Reader::new(&given);
    let settings = WrapperSettings::read(&mut reader, serval_stores::find("noop").unwrap());
    let store = Wrapped::new(Full, settings, hand.clock());
    Ready.run(async {
        let mut client = connected(&store, 0).await;
        let mebibyte: Record = [("f", &vec![0; 1 << 20][..])].into_iter().collect();
        // With its overhead, one less than 256 fits.
        for n in 0..255 {
            assert_eq!(client.update("t", &format!("k{n}"), &mebibyte).await, Outcome::OK);
        }
        // Failed writes take no space.
        for n in 0..100_000 {
            let outcome = client.insert("t", &format!("i{n}"), &Record::new()).await;
            assert_eq!(outcome.status, Status::Error);
        }
        let outcome = client.update("t", "k", &mebibyte).await;
        assert_eq!(outcome.status, Status::ServiceUnavailable);
        assert!(outcome.message.unwrap().contains("256 MiB"));
        // Visible writes are released; a failed batch takes no space either.
        hand.0.store(1000 * MS, Relaxed);
        let batch: Vec<_> = (0..10).map(|n| (format!("k{n}"), mebibyte.clone())).collect();
        for _ in 0..100 {
            assert_eq!(client.insert_batch("t", &batch).await.status, Status::Error);
        }
        for n in 0..255 {
            assert_eq!(client.update("t", &format!("k{n}"), &mebibyte).await, Outcome::OK, "{n}");
        }
    });
}

#[derive(Debug, Clone)]
enum Act {
    Insert(u8, u8),
    Update(u8, u8),
    Delete(u8),
    Wait(u64),
    Read(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let key = 0u8..6;
    let act = prop_oneof![
        (key.clone(), any::<u8>()).prop_map(|(key, value)| Act::Insert(key, value)),
        (key.clone(), any::<u8>()).prop_map(|(key, value)| Act::Update(key, value)),
        key.clone().prop_map(Act::Delete),
        (0u64..30).prop_map(|ms| Act::Wait(ms * MS)),
        key.prop_map(Act::Read),
    ];
    prop::collection::vec(act, 0..100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, rng_seed: proptest::test_runner::RngSeed::Fixed(5), ..ProptestConfig::default() })]

    /// Others see at t the state of the store at t minus the delay.
    #[test]
    fn with_a_constant_delay_others_read_old_versions(acts in acts(), delay_ms in 0u64..60) {
        let law = format!("constant:{delay_ms}ms");
        with_two(&[("visibility.delay", &law)], async |hand, writer, other| {
            let mut now = 0;
            // The values of each record with their start times.
            let mut past: BTreeMap<u8, Vec<(u64, Option<u8>)>> = BTreeMap::new();
            for act in &acts {
                let name = |key: &u8| format!("k{key}");
                match act {
                    Act::Wait(ns) => {
                        now += ns;
                        hand.0.store(now, Relaxed);
                    }
                    Act::Insert(key, value) => {
                        writer.insert(TABLE, &name(key), &record(*value)).await;
                        past.entry(*key).or_default().push((now, Some(*value)));
                    }
                    Act::Update(key, value) => {
                        if writer.update(TABLE, &name(key), &record(*value)).await.is_ok() {
                            past.entry(*key).or_default().push((now, Some(*value)));
                        }
                    }
                    Act::Delete(key) => {
                        if writer.delete(TABLE, &name(key)).await.is_ok() {
                            past.entry(*key).or_default().push((now, None));
                        }
                    }
                    Act::Read(key) => {
                        let states = past.entry(*key).or_default();
                        let seen = states.iter().rfind(|(at, _)| at + delay_ms * MS <= now);
                        assert_eq!(f(other, &name(key)).await, seen.and_then(|(_, state)| *state));
                        let own = states.last().and_then(|(_, state)| *state);
                        assert_eq!(f(writer, &name(key)).await, own);
                    }
                }
            }
        });
    }
}
