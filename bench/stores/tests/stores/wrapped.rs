//! Wrappers of a store: none, and a write buffer. The suite over each, and a comparison
//! of the final states.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use proptest::prelude::*;
use serval_conformance::{Differences, Executor, InsertExisting, Ready, Subject, properties, schema};
use serval_model::{
    Client, Execution, FieldSelection, OperationKinds, Outcome, Purpose, Record, Reply, Schema, Status,
    Store, StoreError, properties::Reader,
};
use serval_stores::memory::Memory;
use serval_wrappers::{RunClock, Wrapped, WrapperSettings};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A clock that a test controls.
#[derive(Clone, Default)]
pub(crate) struct Hand(pub(crate) Arc<AtomicU64>);

impl Hand {
    pub(crate) fn clock(&self) -> RunClock {
        let hand = self.0.clone();
        RunClock::new(move || hand.load(Relaxed))
    }
}

pub(crate) fn settings(given: &[(&str, &str)]) -> Result<WrapperSettings, String> {
    let given = properties(given);
    let mut reader = Reader::new(&given);
    let settings = WrapperSettings::read(&mut reader, serval_stores::find("memory").unwrap());
    reader.finish().map(|()| settings).map_err(|faults| faults.to_string())
}

pub(crate) fn wrapped(given: &[(&str, &str)], hand: &Hand) -> Wrapped {
    let memory = Memory::open(&properties(&[])).unwrap();
    Wrapped::new(memory, settings(given).unwrap(), hand.clock())
}

pub(crate) async fn connected(store: &Wrapped, client: usize) -> <Wrapped as Store>::Client {
    let local = store.local().unwrap();
    store.connect(&local, client).await.unwrap()
}

pub(crate) fn differences() -> Differences {
    Differences { insert_existing: InsertExisting::Replaced, ..Differences::default() }
}

mod nothing_between {
    use super::*;

    fn subject() -> Subject<Wrapped, Ready> {
        Subject::new(wrapped(&[], &Hand::default()), Ready, differences())
    }

    serval_conformance::suite!(subject);
}

/// A store whose writes are flushed before they are answered, so that the buffer's path
/// to the store must pass the whole suite.
struct Settled(Wrapped);

struct SettledClient(<Wrapped as Store>::Client);

impl Store for Settled {
    type Local = <Wrapped as Store>::Local;
    type Client = SettledClient;
    fn execution(&self) -> Execution {
        self.0.execution()
    }
    fn capabilities(&self) -> OperationKinds {
        self.0.capabilities()
    }
    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        self.0.prepare(schema, purpose)
    }
    fn describe(&self) -> Vec<(String, String)> {
        self.0.describe()
    }
    fn local(&self) -> Result<Self::Local, StoreError> {
        self.0.local()
    }
    async fn connect(&self, local: &Self::Local, client: usize) -> Result<SettledClient, StoreError> {
        Ok(SettledClient(self.0.connect(local, client).await?))
    }
}

impl SettledClient {
    async fn settled(&mut self, taken: Outcome) -> Outcome {
        assert_eq!(taken.status, Status::BatchedOk);
        self.0.send_buffered().await;
        // An empty batch of inserts is not a write.
        self.0.flushed().map_or(Outcome::OK, |flush| flush.outcome)
    }
}

impl Client for SettledClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        self.0.read(table, key, fields, reply).await
    }
    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        let taken = self.0.update(table, key, fields).await;
        self.settled(taken).await
    }
    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        let taken = self.0.insert(table, key, record).await;
        self.settled(taken).await
    }
    async fn scan(
        &mut self,
        table: &str,
        start: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        self.0.scan(table, start, count, fields, reply).await
    }
    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        let taken = self.0.delete(table, key).await;
        self.settled(taken).await
    }
    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        let taken = self.0.insert_batch(table, records).await;
        self.settled(taken).await
    }
    async fn close(&mut self) -> Outcome {
        self.0.close().await
    }
}

mod a_buffer_between {
    use super::*;

    fn subject() -> Subject<Settled, Ready> {
        let store = wrapped(&[("writebuffer.size", "1GiB")], &Hand::default());
        Subject::new(Settled(store), Ready, differences())
    }

    serval_conformance::suite!(subject);
}

#[test]
fn reads_do_not_see_buffered_writes() {
    let hand = Hand::default();
    let store = wrapped(&[("writebuffer.size", "1KiB"), ("writebuffer.latency", "5ms")], &hand);
    store.prepare(&schema(), Purpose::Load).unwrap();
    Ready.run(async {
        let mut client = connected(&store, 0).await;
        let (all, mut reply) = (FieldSelection::default(), Reply::new());
        hand.0.store(1_000, Relaxed);
        assert_eq!(client.send_at(), None);
        let taken = client.insert("usertable", "k", &Record::new()).await;
        assert_eq!(taken.status, Status::BatchedOk);
        assert_eq!(client.send_at(), Some(5_001_000));
        assert_eq!(client.read("usertable", "k", &all, &mut reply).await, Outcome::NOT_FOUND);
        hand.0.store(6_000_000, Relaxed);
        client.send_buffered().await;
        hand.0.store(6_000_100, Relaxed);
        let flush = client.flushed().unwrap();
        assert_eq!((flush.outcome, flush.writes, flush.lost, flush.ago_ns), (Outcome::OK, 1, 0, 100));
        assert_eq!((client.flushed(), client.send_at()), (None, None));
        assert_eq!(client.read("usertable", "k", &all, &mut reply).await, Outcome::OK);
        // A client that is dropped with buffered writes leaves their number.
        client.insert("usertable", "l", &Record::new()).await;
        client.insert("usertable", "m", &Record::new()).await;
        drop(client);
        assert_eq!((store.unsent(), store.unsent()), (2, 0));
    });
}

#[test]
fn a_write_to_another_table_flushes_the_buffer_first() {
    let store = wrapped(&[("writebuffer.size", "1KiB")], &Hand::default());
    store.prepare(&schema(), Purpose::Load).unwrap();
    Ready.run(async {
        let mut client = connected(&store, 0).await;
        let (all, mut reply) = (FieldSelection::default(), Reply::new());
        client.insert("t", "k", &Record::new()).await;
        client.insert("u", "k", &Record::new()).await;
        assert_eq!(client.read("t", "k", &all, &mut reply).await, Outcome::OK);
        assert_eq!(client.read("u", "k", &all, &mut reply).await, Outcome::NOT_FOUND);
        assert_eq!(client.close().await, Outcome::OK);
        let mut other = connected(&store, 1).await;
        assert_eq!(other.read("u", "k", &all, &mut reply).await, Outcome::OK);
    });
}

#[test]
fn invalid_settings_are_refused_and_valid_ones_described() {
    let fault = settings(&[("writebuffer.latency", "5ms")]).unwrap_err();
    assert!(fault.contains("set writebuffer.size"), "{fault}");
    let given = [("writebuffer.size", "10KB"), ("writebuffer.latency", "1500")];
    let facts = wrapped(&given, &Hand::default()).describe();
    assert!(facts.contains(&("writebuffer.size".into(), "9.8 KiB".into())), "{facts:?}");
    assert!(facts.contains(&("writebuffer.latency".into(), "1500ms".into())), "{facts:?}");
}

/// A write, or an advance of the clock by ns.
#[derive(Debug, Clone)]
enum Act {
    Insert(u8, u8),
    Batch(u8, u8),
    Update(u8, u8),
    Delete(u8),
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (any::<u8>(), any::<u8>()).prop_map(|(key, value)| Act::Insert(key % 20, value)),
        (any::<u8>(), 0u8..5).prop_map(|(key, count)| Act::Batch(key % 20, count)),
        (any::<u8>(), any::<u8>()).prop_map(|(key, value)| Act::Update(key % 20, value)),
        any::<u8>().prop_map(|key| Act::Delete(key % 20)),
        (0u64..5_000_000).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 0..80)
}

/// Returns the state of the store after a client has done all this.
fn outcome_of(store: &Wrapped, hand: &Hand, acts: &[Act]) -> BTreeMap<String, Vec<u8>> {
    store.prepare(&schema(), Purpose::Load).unwrap();
    Ready.run(async {
        let mut client = connected(store, 0).await;
        let record = |value: u8| -> Record { [("f", &[value; 3][..])].into_iter().collect() };
        for act in acts {
            match act {
                Act::Insert(key, value) => {
                    client.insert("usertable", &format!("{key:03}"), &record(*value)).await;
                }
                Act::Batch(key, count) => {
                    let batch: Vec<_> = (0..*count).map(|n| (format!("{:03}", key + n), record(n))).collect();
                    client.insert_batch("usertable", &batch).await;
                }
                Act::Update(key, value) => {
                    client.update("usertable", &format!("{key:03}"), &record(*value)).await;
                }
                Act::Delete(key) => {
                    client.delete("usertable", &format!("{key:03}")).await;
                }
                Act::Wait(ns) => {
                    hand.0.fetch_add(*ns, Relaxed);
                    // As the runner does.
                    if client.send_at().is_some_and(|at| at <= hand.0.load(Relaxed)) {
                        client.send_buffered().await;
                    }
                }
            }
        }
        client.close().await;
        let mut reader = connected(store, 1).await;
        let (all, mut found) = (FieldSelection::default(), BTreeMap::new());
        for key in (0..30).map(|key| format!("{key:03}")) {
            let mut reply = Reply::new();
            if reader.read("usertable", &key, &all, &mut reply).await.is_ok() {
                found.insert(key, reply.records()[0].get("f").unwrap_or_default().to_vec());
            }
        }
        found
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, rng_seed: proptest::test_runner::RngSeed::Fixed(3), ..ProptestConfig::default() })]

    #[test]
    fn a_buffered_store_ends_in_the_state_of_an_unbuffered_one(
        acts in acts(), size in 1u64..200, latency in 0u64..10,
    ) {
        let (size, latency) = (size.to_string(), format!("{latency}ms"));
        let (hand, other) = (Hand::default(), Hand::default());
        let buffered = wrapped(&[("writebuffer.size", &size), ("writebuffer.latency", &latency)], &hand);
        let plain = wrapped(&[], &other);
        prop_assert_eq!(outcome_of(&buffered, &hand, &acts), outcome_of(&plain, &other, &acts));
        prop_assert_eq!(buffered.unsent(), 0);
    }
}
