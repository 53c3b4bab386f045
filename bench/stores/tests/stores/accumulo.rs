//! Accumulo, a real server through the Java driver: the suite, YCSB's layout,
//! buffered writes, and error messages.
//!
//! `cargo xtask test` builds the driver and starts the server; without them these tests are
//! ignored.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_conformance::{
    Differences, EventLoop, Executor, InsertExisting, Subject, properties, schema, silent, variable,
};
use serval_driver::Driver;
use serval_model::{Client, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store};
use serval_stores::accumulo::Accumulo;
use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Settings for the server.
fn settings() -> Option<Vec<(&'static str, String)>> {
    let folder = PathBuf::from(variable("SERVAL_TEST_JAVA_DRIVER")?).join("../accumulo/target");
    Some(vec![
        ("accumulo.zooKeepers", variable("SERVAL_TEST_ACCUMULO")?),
        ("accumulo.password", variable("SERVAL_TEST_ACCUMULO_PASSWORD")?),
        ("accumulo.username", "root".to_owned()),
        ("accumulo.instanceName", "serval".to_owned()),
        ("accumulo.driver", folder.display().to_string()),
        ("java.args", "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1".to_owned()),
    ])
}

/// Returns the store with some settings changed.
fn accumulo(changes: &[(&str, &str)]) -> Option<Driver> {
    let all = settings()?;
    let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Some(Accumulo::open(&properties(&[&all[..], changes].concat())).unwrap())
}

/// Returns a table that no other test uses.
fn own_table() -> Schema {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Schema { table: format!("t{}x{number}", std::process::id()), ..schema() }
}

fn record() -> Record {
    Record::from_iter([("field0", &b"a"[..]), ("field1", b"b")])
}

async fn read<C: Client>(client: &mut C, table: &str, key: &str) -> Status {
    client.read(table, key, &FieldSelection::default(), &mut Reply::new()).await.status
}

#[test]
#[ignore = "needs SERVAL_TEST_ACCUMULO SERVAL_TEST_ACCUMULO_PASSWORD SERVAL_TEST_JAVA_DRIVER"]
fn a_buffered_write_is_visible_to_others_after_its_flush() {
    // One buffer that is never flushed, and one that is flushed immediately: each
    // refutes the expectation of the other.
    for (latency, seen) in [("0", Status::NotFound), ("4", Status::Ok)] {
        let changes = [("accumulo.batchWriterMaxLatency", latency), ("accumulo.batchWriterSize", "10MB")];
        let Some(store) = accumulo(&changes) else { return };
        let shape = own_table();
        store.prepare(&shape, Purpose::Load).unwrap();
        EventLoop.run(async {
            let local = store.local().unwrap();
            let (mut one, mut other) =
                (store.connect(&local, 0).await.unwrap(), store.connect(&local, 1).await.unwrap());
            let written = one.insert(&shape.table, "user1", &record()).await;
            assert_eq!(written.status, Status::BatchedOk);
            // Reads until the write is visible, for many times the time of a flush.
            // A buffer that is not flushed never becomes visible.
            let mut status = Status::NotFound;
            for _ in 0..500 {
                status = read(&mut other, &shape.table, "user1").await;
                if status == Status::Ok {
                    break;
                }
            }
            assert_eq!(status, seen, "latency {latency}");
            assert_eq!(one.close().await, Outcome::OK);
            let flush = one.flushed().unwrap();
            assert_eq!((flush.outcome, flush.writes, flush.lost), (Outcome::OK, 1, 0));
            assert_eq!(read(&mut other, &shape.table, "user1").await, Status::Ok);
            other.close().await;
        });
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ACCUMULO SERVAL_TEST_ACCUMULO_PASSWORD SERVAL_TEST_JAVA_DRIVER"]
fn faults_are_reported_before_the_run() {
    let Some(store) = accumulo(&[]) else { return };
    let missing = store.prepare(&own_table(), Purpose::Run).unwrap_err().to_string();
    assert!(missing.contains("there is no table") && missing.contains("createtable"), "{missing}");
    let store = accumulo(&[("accumulo.create", "false")]).unwrap();
    assert!(
        store.prepare(&own_table(), Purpose::Load).unwrap_err().to_string().contains("there is no table")
    );
    let store = accumulo(&[("accumulo.password", "wrong")]).unwrap();
    let refused = store.prepare(&own_table(), Purpose::Load).unwrap_err().to_string();
    assert!(refused.contains("accumulo.password") && !refused.contains("wrong"), "{refused}");
    let (_listener, silent) = silent();
    let changes = [("accumulo.zooKeepers", silent.as_str()), ("accumulo.connecttimeout", "1s")];
    let lost = accumulo(&changes).unwrap().prepare(&own_table(), Purpose::Load).unwrap_err().to_string();
    assert!(lost.contains(&silent) && lost.contains("accumulo.connecttimeout"), "{lost}");
}

#[test]
fn impossible_settings_are_refused_together() {
    let faults = Accumulo::open(&properties(&[
        ("accumulo.batchWriterSize", "0"),
        ("accumulo.batchWriterMaxLatency", "3"),
        ("accumulo.durability", "some"),
        ("accumulo.timeout", "2m"),
        ("java.program", "/nowhere/java"),
    ]));
    let words = faults.unwrap_err().to_string();
    for name in [
        "accumulo.batchWriterSize",
        "accumulo.batchWriterMaxLatency",
        "accumulo.durability",
        "accumulo.timeout",
        "java.program",
        "accumulo.zooKeepers",
    ] {
        assert!(words.contains(name), "{name} is not in: {words}");
    }
}

/// The suite, with every write flushed and awaited. Cases use the same table,
/// and each finds its own column family empty.
mod unbuffered {
    use super::*;

    fn subject() -> Option<Subject<Driver, EventLoop>> {
        let family = own_table().table;
        let store = accumulo(&[("accumulo.clientbuffering", "false"), ("accumulo.columnFamily", &family)])?;
        let differences = Differences {
            update_missing_is_not_found: !serval_stores::accumulo::INFO.updates_insert,
            insert_existing: InsertExisting::Merged,
            empty_records: false,
            ..Differences::default()
        };
        Some(Subject::new(store, EventLoop, differences))
    }
    // Not the case of several event loops: a driver that Serval starts has one.
    serval_conformance::suite! { subject:
        values_are_returned_byte_for_byte,
        keys_may_be_any_text,
        a_read_returns_the_requested_fields,
        a_record_may_have_some_fields_only,
        an_update_leaves_the_other_fields,
        missing_records_are_not_found,
        an_update_of_a_missing_record,
        an_insert_of_an_existing_key,
        a_deleted_record_is_missing,
        a_record_without_fields,
        a_scan_starts_at_its_key_and_stops_at_its_limit,
        a_scan_returns_the_requested_fields,
        a_batch_is_written,
        a_failed_batch_stops_at_the_failure,
        the_next_client_reads_earlier_writes,
        any_sequence_of_operations_agrees_with_a_map,
    }
}
