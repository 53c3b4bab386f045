//! Lag of a real Redis with a known visibility delay, by the system's clock: the lag of each key is
//! compared with the delay.
//!
//! `cargo xtask test` starts the servers and names them in the environment; without them the tests
//! are ignored.

use crate::common::{
    Ran, folder,
    group::{agents, document, leader, root},
    late::{LateRedis, Law},
    serval, workload,
};
use serval_conformance::variable;
use std::{
    collections::HashMap,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

const MS: u64 = 1_000_000;

/// Number of keys of a run by one process, and by a group.
const KEYS: u64 = 600;
const KEYS_OF_GROUP: u64 = 300;

/// Share of keys whose delay since their acknowledgement must lie within its bounds. Instants allow
/// it for all keys. Durations allow it for those without a context switch between Redis and the
/// client's record of the acknowledgement.
const SHARE: f64 = 0.95;

/// Other test programs write the same keys in other databases of the server.
const DATABASE: &str = "-p redis.database=9";

/// Serializes tests that write the same keys.
static STORE: Mutex<()> = Mutex::new(());

fn redis() -> Option<(String, MutexGuard<'static, ()>)> {
    Some((variable("SERVAL_TEST_REDIS")?, STORE.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// A line of `lag-keys.csv` for a key that was found.
struct Line {
    key: String,
    acknowledged: i64,
    hand_over: i64,
    lag: i64,
    /// `None` if the first read found it.
    poll: Option<i64>,
    lower: i64,
    upper: i64,
    error: i64,
}

fn lines(folder: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(folder.join("r/lag-keys.csv")).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let line = |line: &str| {
        let of: HashMap<&str, &str> = names.iter().copied().zip(line.split(',')).collect();
        let number = |name: &str| of[name].parse::<i64>().unwrap_or_else(|_| panic!("{name} of {line}"));
        let at_once = of["fate"] == "at_once";
        assert!(at_once || of["fate"] == "later", "{line}");
        Line {
            key: of["key"].to_owned(),
            acknowledged: number("acknowledged_ns"),
            hand_over: number("hand_over_ns"),
            lag: number("lag_ns"),
            poll: (!at_once).then(|| number("poll_ns")),
            lower: number("lower_ns"),
            upper: number("upper_ns"),
            error: number("clock_error_ns"),
        }
    };
    lines.map(line).collect()
}

/// Compares a key with the instant at which it became visible.
#[track_caller]
fn check_key(line: &Line, seen_at: i64) {
    let Line { key, acknowledged, hand_over, lag, poll, lower, upper, error } = line;
    // A delay may end before the client has recorded the acknowledgement: visible at once.
    let since = (seen_at - acknowledged).max(0);
    assert!(*lower <= since && since <= *upper, "{key}: {lower} <= {since} <= {upper}");
    // The paper's lag is the rest of the delay after the hand-over, up to a poll.
    let left = since - hand_over;
    match poll {
        Some(poll) => {
            let off = lag - left;
            assert!(
                off.abs() <= poll + error,
                "{key}: {lag} for {left} is off by {off} with a poll of {poll}"
            );
        }
        None => assert_eq!(*lag, 0, "{key}"),
    }
}

/// Compares a result with the instants at which records became visible.
fn check_result(folder: &Path, keys: u64, seen_at: impl Fn(&str) -> u64) {
    let lines = lines(folder);
    let lag = document(folder).lag.unwrap();
    assert_eq!(
        (lag.writes.carried, lag.writes.not_carried, lag.keys.tried),
        (keys, 0, keys),
        "{:?}",
        lag.keys
    );
    assert_eq!((lag.keys.at_once + lag.keys.later, lines.len() as u64), (keys, keys), "{:?}", lag.keys);
    assert_eq!(lines.iter().filter(|line| line.poll.is_some()).count() as u64, lag.keys.later);
    assert!(lag.keys.later > 0, "{:?}", lag.keys);
    for line in &lines {
        check_key(line, i64::try_from(seen_at(&line.key)).unwrap());
    }
}

/// Returns the wrapper's list: acknowledgement and delay by key.
fn list(path: &Path) -> HashMap<String, (u64, u64)> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let mut parts = line.rsplitn(3, ',');
        let mut number = || parts.next().unwrap().parse().unwrap();
        let (delay, acknowledged) = (number(), number());
        (parts.next().unwrap().to_owned(), (acknowledged, delay))
    };
    text.lines().skip(1).map(line).collect()
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS"]
fn one_process_measures_the_delay_of_its_store() {
    let Some((redis, _guard)) = redis() else { return };
    let (host, port) = redis.rsplit_once(':').unwrap();
    for law in ["constant:50ms", "exponential:50ms"] {
        let place = folder();
        let words = format!(
            "load redis -P {} -p redis.host={host} -p redis.port={port} {DATABASE} -p recordcount={KEYS} -p threadcount=4 \
             -p visibility.delay={law} -p visibility.log=delays.csv -p lag.role=both -p lag.sample=1 -p lag.consumers=4 \
             -p lag.drain=60 --result r",
            workload("workloada")
        );
        let _: Ran = serval(place.path(), &words).expect(0);
        let delays = list(&place.path().join("delays.csv"));
        check_result(place.path(), KEYS, |key| delays[key].0 + delays[key].1);
        let lines = lines(place.path());
        let held = lines.iter().filter(|line| {
            let delay = delays[&line.key].1 as i64;
            line.lower <= delay && delay <= line.upper
        });
        let share = held.count() as f64 / lines.len() as f64;
        assert!(share >= SHARE, "{law}: {share}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS SERVAL_TEST_ZOOKEEPER SERVAL_TEST_ZOOKEEPER_ENSEMBLE"]
fn a_group_measures_the_delay_over_zookeeper() {
    let Some((redis, _guard)) = redis() else { return };
    // An ensemble of three servers, if there is one.
    let cluster = variable("SERVAL_TEST_ZOOKEEPER_ENSEMBLE").or_else(|| variable("SERVAL_TEST_ZOOKEEPER"));
    let Some(cluster) = cluster else { return };
    // Keys pass through ZooKeeper: a short delay would end before they are read.
    for (seed, law) in [(7, Law::Constant(500 * MS)), (8, Law::Exponential(500 * MS))] {
        let (place, root) = (folder(), root());
        let late = LateRedis::start(&redis, law, seed);
        let agents = agents(&cluster, &root, 3);
        let words = format!(
            "load redis -P {} -p redis.host=127.0.0.1 -p redis.port={} {DATABASE} -p recordcount={KEYS_OF_GROUP} -p threadcount=2 \
             -p target=300 -p lag.sample=1 -p lag.poll=20 -p lag.consumers.clients=1 -p lag.drain=60 --clients 3 --result r",
            workload("workloada"),
            late.port
        );
        let ran = Ran::of(leader(place.path(), &cluster, &root, &words).output().unwrap());
        ran.expect(0);
        for agent in agents {
            let (status, heard) = agent.end();
            assert_eq!(status, 0, "{heard:#?}");
        }
        check_result(place.path(), KEYS_OF_GROUP, |key| late.seen_at(key));
        let lag = document(place.path()).lag.unwrap();
        let visible = lag.visible.unwrap();
        assert!(visible.clock_error_ns > 0 && lag.queue.contains("ZooKeeper"), "{}", lag.queue);
    }
}
