//! Read-after-write lag as a user measures it: in one process, in two processes with ZooKeeper, and
//! in a group.
//!
//! `cargo xtask test` starts the servers and names them in the environment; without them the tests
//! that need them are ignored.

use crate::common::{Ran, folder, program, serval, workload};
use serval_conformance::variable;
use serval_result::{document::ResultDocument, lag::LagResult};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Serializes tests that write the same keys.
static STORE: Mutex<()> = Mutex::new(());

/// Returns ZooKeeper's address and the properties of a Redis, with a guard against concurrent
/// writers in this program. Other programs use other databases of the server.
fn servers() -> Option<(String, String, MutexGuard<'static, ()>)> {
    let (zookeeper, redis) = (variable("SERVAL_TEST_ZOOKEEPER")?, variable("SERVAL_TEST_REDIS")?);
    let (host, port) = redis.rsplit_once(':').unwrap();
    let guard = STORE.lock().unwrap_or_else(PoisonError::into_inner);
    Some((zookeeper, format!("-p redis.host={host} -p redis.port={port} -p redis.database=8"), guard))
}

fn document(folder: &Path, name: &str) -> ResultDocument {
    serde_json::from_slice(&std::fs::read(folder.join(name).join("result.json")).unwrap()).unwrap()
}

/// Checks the lag of a consistent store.
#[track_caller]
fn check_no_staleness(lag: &LagResult) {
    let versions = lag.versions.as_ref().unwrap();
    for violations in [versions.read_your_writes, versions.monotonic_reads, versions.monotonic_writes] {
        assert_eq!(violations.violations, 0, "{versions:?}");
    }
    assert_eq!(versions.stale().1, 0, "{versions:?}");
    assert_eq!(lag.keys.later + lag.keys.censored + lag.keys.unread, 0, "{:?}", lag.keys);
}

#[test]
fn consumers_of_a_load_find_all_sampled_keys() {
    let place = folder();
    let words = format!(
        "load memory -P {} -p recordcount=20000 -p threadcount=3 -p lag.role=both -p lag.consumers=2 -p lag.sample=0.1 --result r",
        workload("workloada")
    );
    let ran = serval(place.path(), &words).expect(0);
    // The consumers' reads are not part of the workload.
    assert_eq!(ran.value("[INSERT], Operations,"), 20000.0);
    assert!(!ran.stdout.contains("[READ]"), "{}", ran.stdout);
    let document = document(place.path(), "r");
    let lag = document.lag.unwrap();
    check_no_staleness(&lag);
    assert!((1700..2300).contains(&lag.keys.tried), "{:?}", lag.keys);
    assert_eq!((lag.keys.tried, lag.writes.not_carried), (lag.writes.carried, 0));
    assert!(lag.visible.is_some() && lag.versions.unwrap().read_your_writes.checked > 0);
    let page = std::fs::read_to_string(place.path().join("r/report.html")).unwrap();
    assert!(page.contains("Read-after-write lag") && page.contains("not yet visible"));
    let curves = std::fs::read_to_string(place.path().join("r/lag.csv")).unwrap();
    assert!(
        curves.contains("\n,visible_upper,") && curves.contains("\n,behind,,0,1.000000,"),
        "{curves:.300}"
    );
    serval(place.path(), "report r --lag-csv again.csv").expect(0);
    assert_eq!(std::fs::read_to_string(place.path().join("again.csv")).unwrap(), curves);
    serval(
        place.path(),
        &format!("load memory -P {} -p recordcount=1 --result plain", workload("workloada")),
    )
    .expect(0);
    let ran = serval(place.path(), "report plain --lag-csv none.csv");
    assert!(ran.status == 2 && ran.stderr.contains("there is no lag in it"), "{}", ran.stderr);
    assert!(!place.path().join("plain/lag.csv").exists());
}

#[test]
fn a_store_that_is_read_beside_the_run_is_finished_once() {
    let place = folder();
    let words = format!(
        "load basic -P {} -p recordcount=50 -p basicdb.verbose=false -p basicdb.count=true -p lag.role=both -p lag.sample=1 \
         -p lag.drain=10ms",
        workload("workloada")
    );
    let ran = serval(place.path(), &words).expect(0);
    let uniques: Vec<&str> =
        ran.stdout.lines().filter(|line| line.starts_with("[INSERTS], Uniques")).collect();
    assert_eq!(uniques, ["[INSERTS], Uniques, 50"], "{}", ran.stdout);
}

#[test]
fn updates_and_batches_are_sampled_and_the_warm_up_is_not() {
    let place = folder();
    let store = format!(
        "sqlite -P {} -p sqlite.path=x.db -p recordcount=500 -p lag.sample=0.2",
        workload("workloadf")
    );
    serval(place.path(), &format!("load {store} -p batchsize=50 -p lag.role=both --result l")).expect(0);
    let loaded = document(place.path(), "l").lag.unwrap();
    assert!(loaded.keys.tried > 50 && loaded.keys.tried == loaded.writes.carried, "{loaded:?}");
    check_no_staleness(&loaded);
    serval(place.path(), &format!("run {store} -p operationcount=2000 -p warmup=100ms -p client-coord=none -p lag.role=both --result r"))
        .expect(0);
    let lag = document(place.path(), "r").lag.unwrap();
    check_no_staleness(&lag);
    assert!(lag.keys.tried > 50 && lag.writes.acknowledged > lag.writes.carried, "{lag:?}");
}

#[test]
fn impossible_settings_are_reported_before_the_start() {
    let place = folder();
    for (words, part) in [
        ("run noop -p lag.role=producer", "lag.zookeeper"),
        ("run noop -p client-coord=consumer", "lag.zookeeper"),
        ("load noop -p recordcount=1 -p lag.role=consumer -p lag.zookeeper=x:1", "serval run"),
        ("run noop -p lag.role=both -p fieldlength=19", "20 bytes"),
        ("run noop -p lag.role=both -p fieldlengthdistribution=uniform", "20 bytes"),
        ("run noop -p lag.role=both -p dataintegrity=true", "dataintegrity"),
        ("run noop -p lag.role=both -p workload=timeseries", "timeseries"),
        ("run noop -p lag.role=both -p lag.consumers.clients=1", "lag.consumers.clients"),
        ("run noop -p lag.consumers.clients=1", "alone, lag.role=both"),
        ("run noop -p lag.role=both -p lag.zookeeper=x:1 -p lag.queue=a/../b", "lag.queue"),
    ] {
        let ran = serval(place.path(), &format!("{words} -p operationcount=1"));
        assert!(ran.status != 0 && ran.stderr.contains(part), "{words}: {}", ran.stderr);
    }
}

fn start(folder: &Path, words: &str) -> Child {
    let mut command = program();
    command.current_dir(folder).args(words.split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for a line with these words, and then discards the output.
fn wait_for(child: &mut Child, words: &str) {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let found = lines.by_ref().any(|line| line.contains(words));
    assert!(found, "ended without '{words}'");
    std::thread::spawn(move || lines.for_each(drop));
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS SERVAL_TEST_ZOOKEEPER"]
fn a_producer_and_a_consumer_meet_in_zookeeper_by_ycsbs_properties() {
    let Some((zookeeper, redis, _guard)) = servers() else { return };
    let place = folder();
    let common = format!(
        "redis -P {} {redis} -p recordcount=3000 -p coord-server={zookeeper} -p coord-server-zkRoot=/serval-lag-{}",
        workload("workloada"),
        std::process::id()
    );
    serval(place.path(), &format!("load {common}")).expect(0);
    let mut consumer = start(
        place.path(),
        &format!("run {common} -p client-coord=consumer -p threadcount=2 -p lag.idle=1 --result c"),
    );
    wait_for(&mut consumer, "Starting test");
    let words =
        format!("run {common} -p client-coord=producer -p lag.sample=0.1 -p operationcount=4000 --result p");
    serval(place.path(), &words).expect(0);
    assert!(consumer.wait().unwrap().success());
    let (produced, consumed) =
        (document(place.path(), "p").lag.unwrap(), document(place.path(), "c").lag.unwrap());
    assert!(produced.writes.carried > 50 && produced.writes.not_carried == 0, "{produced:?}");
    assert_eq!(consumed.keys.tried, produced.writes.carried);
    check_no_staleness(&consumed);
    // Two processes without a comparison of their clocks.
    assert!(consumed.visible.is_none() && consumed.survival.unwrap().since == "first read");
}

/// The store that a sweep opens to learn its capabilities is opened by this process, not by a group.
#[test]
#[ignore = "needs SERVAL_TEST_REDIS SERVAL_TEST_ZOOKEEPER"]
fn clients_of_a_sweeping_group_may_consume() {
    let Some((zookeeper, redis, _guard)) = servers() else { return };
    let place = folder();
    let root = format!("serval-lag-sweep-{}", std::process::id());
    let agents: Vec<Child> = (0..2)
        .map(|_| {
            let mut agent = start(place.path(), &format!("agent --join {zookeeper} --root {root} --once"));
            wait_for(&mut agent, "waiting for work");
            agent
        })
        .collect();
    let words = format!(
        "sweep {} --store redis {redis} -p recordcount=300 -p lag.consumers.clients=1 -p lag.sample=1 -p coordination.root={root} \
         --agents 2 --coordination {zookeeper} --clients 2 --points 200 --time 1s --warm-up 0 --warm-up-max 0 --repeats 1 --out s",
        workload("workloada")
    );
    serval(place.path(), &words).expect(0);
    for mut agent in agents {
        assert!(agent.wait().unwrap().success());
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS SERVAL_TEST_ZOOKEEPER"]
fn the_last_clients_of_a_group_consume_and_their_reads_do_not_count() {
    let Some((zookeeper, redis, _guard)) = servers() else { return };
    let place = folder();
    let root = format!("serval-lag-group-{}", std::process::id());
    let agents: Vec<Child> = (0..3)
        .map(|_| {
            let mut agent = start(place.path(), &format!("agent --join {zookeeper} --root {root} --once"));
            wait_for(&mut agent, "waiting for work");
            agent
        })
        .collect();
    let words = format!(
        "load redis -P {} {redis} -p recordcount=6000 -p threadcount=2 -p lag.sample=0.1 -p lag.consumers.clients=1 \
         -p coordination.root={root} --clients 3 --coordination {zookeeper} --result r",
        workload("workloada")
    );
    let ran: Ran = serval(place.path(), &words).expect(0);
    assert_eq!(ran.value("[INSERT], Operations,"), 6000.0);
    assert!(!ran.stdout.contains("[READ]"), "{}", ran.stdout);
    for mut agent in agents {
        assert!(agent.wait().unwrap().success());
    }
    let document = document(place.path(), "r");
    let lag = document.lag.unwrap();
    check_no_staleness(&lag);
    assert!(lag.keys.tried > 400 && lag.keys.tried == lag.writes.carried, "{lag:?}");
    // The coordinator knows the clock offsets.
    let visible = lag.visible.unwrap();
    assert!(visible.clock_error_ns > 0 && visible.upper.unwrap().count == lag.keys.tried);
    let shares: Vec<String> =
        document.group.unwrap().clients.into_iter().map(|client| client.share).collect();
    assert_eq!(shares, ["1/2", "2/2", "consumer 1/1"]);
}
