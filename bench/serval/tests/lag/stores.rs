//! Read-after-write lag of real stores: a consistent store shows none, and the figures of the
//! others are consistent with each other.
//!
//! `cargo xtask test` starts the servers and names them in the environment; without them the tests
//! that need them are ignored.

use crate::common::{folder, serval, workload};
use serval_conformance::variable;
use serval_result::{
    document::{Latency, ResultDocument},
    lag::{LagResult, Violations},
};
use std::path::Path;

/// Numbers of records and of writes of a run.
const RECORDS: u64 = 800;

fn document(folder: &Path, name: &str) -> ResultDocument {
    serde_json::from_slice(&std::fs::read(folder.join(name).join("result.json")).unwrap()).unwrap()
}

fn count(latency: Option<&Latency>) -> u64 {
    latency.map_or(0, |latency| latency.count)
}

/// Checks invariants of stores whose writes all become visible while consumers read: every key in the
/// queue was found or overwritten, and the counts are consistent.
#[track_caller]
fn check_invariants(lag: &LagResult) {
    let (keys, writes) = (&lag.keys, &lag.writes);
    assert!(keys.tried > 0 && (writes.not_carried, writes.failed, lag.reads_failed) == (0, 0, 0), "{lag:?}");
    assert_eq!((keys.tried, keys.unread, keys.censored), (writes.carried, 0, 0), "{keys:?}");
    assert_eq!(keys.at_once + keys.later + keys.undecided, keys.tried, "{keys:?}");
    let found = keys.at_once + keys.later;
    assert_eq!((count(lag.lag.as_ref()), count(lag.poll.as_ref())), (keys.later, keys.later));
    assert_eq!(count(lag.hand_over.as_ref()), found);
    let visible = lag.visible.as_ref().unwrap();
    let (lower, upper) = (visible.lower.as_ref().unwrap(), visible.upper.as_ref().unwrap());
    assert_eq!((lower.count, upper.count, visible.clock_error_ns), (found, found, 0));
    for (low, high) in lower.percentiles.iter().zip(&upper.percentiles) {
        assert!(low.percentile == high.percentile && low.ns <= high.ns, "{low:?} {high:?}");
    }
    let survival = lag.survival.as_ref().unwrap();
    assert_eq!(survival.since, "acknowledgement");
    for curve in [&survival.lower, &survival.upper] {
        assert!(curve.windows(2).all(|two| two[0].at_ns < two[1].at_ns && two[0].share >= two[1].share));
        // All writes became visible.
        assert_eq!(curve.last().unwrap().share, 0.0);
    }
    let versions = lag.versions.as_ref().unwrap();
    let (known, stale) = versions.stale();
    // An unsuccessful read missed a version.
    assert_eq!(known + versions.undecided, lag.reads, "{versions:?}");
    assert!(keys.later <= stale + versions.undecided, "{versions:?}");
    assert!(versions.read_your_writes.checked > 0 && versions.monotonic_reads.checked > 0, "{versions:?}");
}

/// Checks a store that guarantees visibility of acknowledged writes.
#[track_caller]
fn check_no_staleness(lag: &LagResult) {
    check_invariants(lag);
    let versions = lag.versions.as_ref().unwrap();
    assert_eq!(
        (lag.keys.later, lag.keys.undecided, versions.stale().1, versions.undecided),
        (0, 0, 0, 0),
        "{lag:?}"
    );
    assert!(versions.last_stale.is_none());
    for promise in [versions.read_your_writes, versions.monotonic_reads, versions.monotonic_writes] {
        is_kept(promise);
    }
}

#[track_caller]
fn is_kept(promise: Violations) {
    assert!(promise.checked > 0 && (promise.violations, promise.undecided) == (0, 0), "{promise:?}");
}

/// Performs a load and a run of updates, with consumers. Of two concurrent writes of a key one may never
/// become visible; its consumer then waits for all of `lag.drain`.
fn load_and_run(store: &str) -> (tempfile::TempDir, [ResultDocument; 2]) {
    let place = folder();
    let common = format!(
        "{store} -P {} -p recordcount={RECORDS} -p threadcount=3 -p lag.role=both -p lag.consumers=2 -p lag.sample=0.3 \
         -p lag.readback=0.5 -p lag.again=0.5 -p lag.drain=20",
        workload("workloada")
    );
    serval(place.path(), &format!("load {common} --result l")).expect(0);
    let run = format!(
        "run {common} -p readproportion=0 -p updateproportion=1 -p operationcount={RECORDS} --result r"
    );
    serval(place.path(), &run).expect(0);
    let documents = ["l", "r"].map(|name| document(place.path(), name));
    (place, documents)
}

fn ring(read: &str, write: &str) -> Option<String> {
    if !cfg!(feature = "cassandra") {
        panic!("the feature cassandra is off: --features full");
    }
    let ring = variable("SERVAL_TEST_CASSANDRA_RING")?;
    let (hosts, port) = ring.rsplit_once(':').unwrap();
    Some(format!(
        "cassandra -p cassandra.hosts={hosts} -p cassandra.port={port} -p cassandra.replication_factor=3 \
         -p cassandra.keyspace=lag_{read}_{write} -p cassandra.readconsistencylevel={read} \
         -p cassandra.writeconsistencylevel={write} -p cassandra.connecttimeoutmillis=60000"
    ))
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA_RING"]
fn a_ring_with_overlapping_quorums_has_no_lag_and_keeps_all_guarantees() {
    let Some(store) = ring("QUORUM", "QUORUM") else { return };
    let (_place, documents) = load_and_run(&store);
    for document in documents {
        let facts = &document.run.store_facts;
        assert_eq!(facts["nodes"], "3");
        assert_eq!(facts["replication"], "class=SimpleStrategy replication_factor=3");
        check_no_staleness(&document.lag.unwrap());
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA_RING"]
fn a_ring_read_at_one_node_shows_every_write_eventually() {
    let Some(store) = ring("ONE", "ONE") else { return };
    let (_place, documents) = load_and_run(&store);
    documents.into_iter().for_each(|document| check_invariants(&document.lag.unwrap()));
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES_PRIMARY SERVAL_TEST_POSTGRES_REPLICA"]
fn a_standby_shows_every_write_in_order() {
    if !cfg!(feature = "postgres") {
        panic!("the feature postgres is off: --features full");
    }
    let (Some(primary), Some(standby)) =
        (variable("SERVAL_TEST_POSTGRES_PRIMARY"), variable("SERVAL_TEST_POSTGRES_REPLICA"))
    else {
        return;
    };
    let (host, port) = primary.rsplit_once(':').unwrap();
    let table = format!("lag{}", std::process::id());
    let (_place, documents) = load_and_run(&format!(
        "postgres -p postgres.host={host} -p postgres.port={port} -p postgres.replica={standby} -p table={table}"
    ));
    for document in documents {
        let lag = document.lag.unwrap();
        check_invariants(&lag);
        let versions = lag.versions.unwrap();
        is_kept(versions.monotonic_reads);
        is_kept(versions.monotonic_writes);
    }
}

/// Each client has its own session. ZooKeeper guarantees that a session never goes back and sees its
/// own writes, on any server.
#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER_ENSEMBLE"]
fn sessions_with_an_ensemble_keep_their_guarantees() {
    if !cfg!(feature = "zookeeper") {
        panic!("the feature zookeeper is off: --features full");
    }
    let Some(ensemble) = variable("SERVAL_TEST_ZOOKEEPER_ENSEMBLE") else { return };
    let node = format!("serval-lag-{}", std::process::id());
    let (_place, documents) =
        load_and_run(&format!("zookeeper -p zookeeper.connectString={ensemble}/{node}"));
    for document in documents {
        let lag = document.lag.unwrap();
        check_invariants(&lag);
        let versions = lag.versions.unwrap();
        is_kept(versions.read_your_writes);
        is_kept(versions.monotonic_reads);
        is_kept(versions.monotonic_writes);
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_HBASE SERVAL_TEST_HBASE_DRIVER"]
fn a_write_buffer_of_hbase_hides_keys_until_it_is_flushed() {
    let (Some(address), Some(driver)) = (variable("SERVAL_TEST_HBASE"), variable("SERVAL_TEST_HBASE_DRIVER"))
    else {
        return;
    };
    let (host, port) = address.rsplit_once(':').unwrap();
    let place = folder();
    let words = format!(
        "load hbase -P {} -p hbase.zookeeper.quorum={host} -p hbase.zookeeper.property.clientPort={port} \
         -p hbase.driver={driver} -p hbase.namespace=serval_lag_{} -p recordcount=1000 -p threadcount=4 \
         -p writebuffer.size=1MB -p lag.role=both -p lag.sample=0.3 -p lag.again=0.5 -p lag.readback=0.5 -p lag.drain=60 \
         --result r",
        workload("workloada"),
        std::process::id()
    );
    serval(place.path(), &words).expect(0);
    let lag = document(place.path(), "r").lag.unwrap();
    check_invariants(&lag);
    // Four buffers of a megabyte hold all writes until their clients close: no writer can see its writes.
    let own = lag.versions.unwrap().read_your_writes;
    assert_eq!((own.violations, own.undecided), (own.checked, 0), "{own:?}");
}
