//! The store `memory`: the suite, and its delay.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_conformance::{Differences, Executor, InsertExisting, Ready, Subject, properties, schema};
use serval_model::{Client, Outcome, Purpose, Record, Reply, Store};
use serval_stores::memory::Memory;
use std::time::{Duration, Instant};

fn memory(settings: &[(&str, &str)]) -> Result<Memory, String> {
    Memory::open(&properties(settings)).map_err(|faults| faults.to_string())
}

fn subject() -> Subject<Memory, Ready> {
    let differences = Differences { insert_existing: InsertExisting::Replaced, ..Differences::default() };
    Subject::new(memory(&[]).unwrap(), Ready, differences)
}

serval_conformance::suite!(subject);

#[test]
fn a_run_without_a_load_is_refused_with_the_reason() {
    let store = memory(&[]).unwrap();
    let error = store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("no table 'usertable'"), "{error}");
    assert!(error.contains("one command"), "{error}");
}

#[test]
fn every_operation_takes_the_delay_and_a_batch_takes_it_once() {
    let store = memory(&[("memory.delay", "5ms")]).unwrap();
    assert!(store.describe().contains(&("delay".into(), "5ms".into())));
    Ready.run(async {
        let mut client = store.connect(&(), 0).await.unwrap();
        let (fields, mut reply) = (Default::default(), Reply::new());
        let start = Instant::now();
        let batch: Vec<_> = (0..100).map(|n| (format!("k{n}"), Record::new())).collect();
        assert_eq!(client.insert_batch("t", &batch).await, Outcome::OK);
        assert_eq!(client.insert("t", "k", &Record::new()).await, Outcome::OK);
        assert_eq!(client.read("t", "k", &fields, &mut reply).await, Outcome::OK);
        assert_eq!(client.update("t", "k", &Record::new()).await, Outcome::OK);
        assert_eq!(client.scan("t", "k", 9, &fields, &mut reply).await, Outcome::OK);
        assert_eq!(client.delete("t", "k").await, Outcome::OK);
        let taken = start.elapsed();
        assert!(taken >= Duration::from_millis(30), "{taken:?}");
        // One delay for the batch, not a hundred; the rest allows for a busy machine.
        assert!(taken < Duration::from_millis(400), "{taken:?}");
    });
}

#[test]
fn a_bare_delay_is_in_microseconds_and_faults_are_reported_together() {
    let store = memory(&[("memory.delay", "250")]).unwrap();
    assert!(store.describe().contains(&("delay".into(), "250us".into())));
    let wrong = [("memory.delay", "soon"), ("memory.delay.distribution", "unifrom")];
    let faults = memory(&wrong).unwrap_err();
    assert!(faults.contains("memory.delay=soon"), "{faults}");
    assert!(faults.contains("did you mean 'uniform'?"), "{faults}");
}

#[test]
fn tables_are_separate() {
    let store = memory(&[]).unwrap();
    Ready.run(async {
        let mut client = store.connect(&(), 0).await.unwrap();
        assert_eq!(client.insert("t", "k", &Record::new()).await, Outcome::OK);
        assert_eq!(client.delete("u", "k").await, Outcome::NOT_FOUND);
        assert_eq!(client.delete("t", "k").await, Outcome::OK);
    });
}
