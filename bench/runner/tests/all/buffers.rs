//! Write buffers on a virtual clock: when and how often they are flushed, and how failed writes are
//! counted.

use proptest::prelude::*;
use serval_measure::recorder::Buffered;
use serval_model::{
    Client, Execution, FieldSelection, Metric, Operation, OperationKind, Outcome, Record, Reply, Schema,
    Status, Store, StoreError,
    properties::{Origin, Properties, Reader},
};
use serval_runner::{
    Control, EndedBy, RunOptions, RunRecord,
    pacing::rate::RateSchedule,
    virtual_time::{VirtualTime, run},
};
use serval_workload::{ClientWorkload, Demand, Last, Place, Rng, Step, Workload};
use serval_wrappers::{RunClock, Wrapped, WrapperSettings};
use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

const MS: u64 = 1_000_000;

/// A request to the store: instant, operation, number of records, first key.
type Asked = (u64, &'static str, usize, String);

/// A store that takes a millisecond per request and records the requests.
struct Slow {
    time: VirtualTime,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Number of the first write that fails; later ones fail as well.
    fails_from: u64,
    /// Whether the store is then lost; otherwise it never answers.
    lost: bool,
    hangs: bool,
    writes: Arc<AtomicU64>,
}

impl Slow {
    fn new(time: &VirtualTime) -> Slow {
        let (asked, writes) = Default::default();
        Slow { time: time.clone(), asked, fails_from: u64::MAX, lost: false, hangs: false, writes }
    }
}

struct SlowClient {
    time: VirtualTime,
    asked: Arc<Mutex<Vec<Asked>>>,
    fails_from: u64,
    lost: bool,
    hangs: bool,
    writes: Arc<AtomicU64>,
}

impl Store for Slow {
    type Local = ();
    type Client = SlowClient;
    fn execution(&self) -> Execution {
        Execution::EventLoops
    }
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }
    async fn connect(&self, (): &(), _: usize) -> Result<SlowClient, StoreError> {
        let Slow { time, asked, fails_from, lost, hangs, writes } = self;
        let (time, asked, writes) = (time.clone(), Arc::clone(asked), Arc::clone(writes));
        Ok(SlowClient { time, asked, fails_from: *fails_from, lost: *lost, hangs: *hangs, writes })
    }
}

impl SlowClient {
    async fn serve(&mut self, verb: &'static str, records: usize, key: &str) -> Outcome {
        self.asked.lock().unwrap().push((self.time.now(), verb, records, key.to_owned()));
        self.time.sleep_until(self.time.now() + MS).await;
        if verb != "read" && self.writes.fetch_add(records as u64, Relaxed) >= self.fails_from {
            if self.hangs {
                pending::<()>().await;
            }
            return Outcome::error("disk full");
        }
        Outcome::OK
    }
}

impl Client for SlowClient {
    async fn read(&mut self, _: &str, key: &str, _: &FieldSelection, _: &mut Reply) -> Outcome {
        self.serve("read", 1, key).await
    }
    async fn update(&mut self, _: &str, key: &str, _: &Record) -> Outcome {
        self.serve("update", 1, key).await
    }
    async fn insert(&mut self, _: &str, key: &str, _: &Record) -> Outcome {
        self.serve("insert", 1, key).await
    }
    async fn insert_batch(&mut self, _: &str, records: &[(String, Record)]) -> Outcome {
        self.serve("batch", records.len(), &records[0].0).await
    }
    async fn scan(&mut self, _: &str, key: &str, _: u64, _: &FieldSelection, _: &mut Reply) -> Outcome {
        self.serve("scan", 1, key).await
    }
    async fn delete(&mut self, _: &str, key: &str) -> Outcome {
        self.serve("delete", 1, key).await
    }
    fn lost(&self) -> Option<StoreError> {
        (self.lost && self.writes.load(Relaxed) >= self.fails_from).then(|| StoreError::new("slow", "gone"))
    }
}

/// Repeats a sequence of operations, on keys of four digits with values of this size.
struct Verbs(&'static [OperationKind], usize);

struct Steps(&'static [OperationKind], usize, usize);

impl Workload for Verbs {
    fn schema(&self) -> Schema {
        Schema { table: "t".into(), fields: Vec::new() }
    }
    fn demands(&self) -> Vec<Demand> {
        Vec::new()
    }
    fn client(&self, _: Place, _: Rng) -> Box<dyn ClientWorkload> {
        Box::new(Steps(self.0, self.1, 0))
    }
}

impl ClientWorkload for Steps {
    fn step(&mut self, _: Last<'_>, operation: &mut Operation) -> Step {
        let kind = self.0[self.2 % self.0.len()];
        operation.begin(kind);
        operation.key.push_str(&format!("{:04}", self.2));
        self.2 += 1;
        if kind != OperationKind::Delete {
            operation.record.push("f", &vec![b'v'; self.1]);
        }
        Step::Issue { more: false }
    }
}

const INSERTS: &[OperationKind] = &[OperationKind::Insert];

fn settings(size: u64, latency_ms: u64) -> WrapperSettings {
    let mut properties = Properties::new();
    for (name, value) in [("writebuffer.size", size), ("writebuffer.latency", latency_ms)] {
        properties.set(name, value.to_string(), Origin::Program("test"));
    }
    let mut reader = Reader::new(&properties);
    let settings = WrapperSettings::read(&mut reader, serval_stores::find("noop").unwrap());
    reader.finish().unwrap();
    settings
}

fn go(
    store: Slow,
    settings: WrapperSettings,
    workload: Verbs,
    options: &RunOptions,
) -> (RunRecord, Vec<Asked>) {
    let (time, asked) = (store.time.clone(), Arc::clone(&store.asked));
    let clock = time.clone();
    let store = Arc::new(Wrapped::new(store, settings, RunClock::new(move || clock.now())));
    let workload: Arc<dyn Workload> = Arc::new(workload);
    let record = run(&time, &store, &workload, options, &Control::default(), &mut ()).unwrap();
    let asked = asked.lock().unwrap().clone();
    (record, asked)
}

fn count(record: &RunRecord, metric: Metric, status: Status) -> u64 {
    record.totals.measured.get(&(metric, status)).map_or(0, |pair| pair.service.count())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn a_buffer_is_flushed_each_time_it_is_full(
        clients in 1u64..4, each in 1u64..60, value in 0usize..300, size in 1u64..4000,
    ) {
        let options = RunOptions {
            clients: clients as usize,
            units: Some(clients * each),
            ..RunOptions::default()
        };
        let time = VirtualTime::new();
        let (record, asked) = go(Slow::new(&time), settings(size, 0), Verbs(INSERTS, value), &options);
        // A key has 4 bytes, the name of a field 1.
        let bytes = 5 + value as u64;
        let in_one = size.div_ceil(bytes);
        let flushes = clients * each.div_ceil(in_one);
        prop_assert_eq!(count(&record, Metric::FLUSH, Status::Ok), flushes);
        prop_assert_eq!(count(&record, Metric::INSERT, Status::BatchedOk), clients * each);
        prop_assert_eq!(record.totals.buffered, Buffered { sent: clients * each, lost: 0, unsent: 0 });
        prop_assert_eq!(asked.iter().map(|(_, _, records, _)| *records as u64).sum::<u64>(), clients * each);
        // A batch has at most a hundred writes and takes 1 ms.
        let full = record.totals.measured[&(Metric::FLUSH, Status::Ok)].service.max();
        prop_assert_eq!(full / MS, each.min(in_one).div_ceil(100));
    }
}

#[test]
fn a_write_of_an_idle_client_waits_no_longer_than_the_limit() {
    let options = RunOptions {
        clients: 1,
        units: Some(3),
        rate: Some(RateSchedule::constant(1.0)),
        ..RunOptions::default()
    };
    let time = VirtualTime::new();
    let (record, asked) = go(Slow::new(&time), settings(1 << 20, 250), Verbs(INSERTS, 10), &options);
    let start = asked[0].0 - 250 * MS;
    let at: Vec<u64> = asked.iter().map(|(at, ..)| (at - start) / MS).collect();
    // The last write is sent immediately because its client is done.
    assert_eq!(at, [250, 1250, 2000]);
    assert_eq!(count(&record, Metric::FLUSH, Status::Ok), 3);
    assert_eq!(record.totals.measured[&(Metric::INSERT, Status::BatchedOk)].response.max(), 0);
    // The measured part ends with this flush.
    assert_eq!(record.duration, Duration::from_millis(2001));
}

#[test]
fn a_busy_client_flushes_between_operations_and_does_not_delay_reads() {
    const VERBS: &[OperationKind] =
        &[OperationKind::Insert, OperationKind::Read, OperationKind::Read, OperationKind::Read];
    let options = RunOptions { clients: 1, units: Some(8), ..RunOptions::default() };
    let time = VirtualTime::new();
    let (record, asked) = go(Slow::new(&time), settings(1 << 20, 2), Verbs(VERBS, 10), &options);
    let verbs: Vec<&str> = asked.iter().map(|(_, verb, ..)| *verb).collect();
    assert_eq!(verbs, ["read", "read", "insert", "read", "read", "read", "insert", "read"]);
    let reads = &record.totals.measured[&(Metric::READ, Status::Ok)];
    assert_eq!((reads.service.count(), reads.service.max() / MS), (6, 1), "a flush is in no read's time");
}

#[test]
fn writes_other_than_inserts_are_sent_one_by_one_in_order() {
    const VERBS: &[OperationKind] =
        &[OperationKind::Insert, OperationKind::Insert, OperationKind::Update, OperationKind::Delete];
    let options = RunOptions { clients: 1, units: Some(8), ..RunOptions::default() };
    let time = VirtualTime::new();
    let (record, asked) = go(Slow::new(&time), settings(1 << 20, 0), Verbs(VERBS, 10), &options);
    let asked: Vec<_> = asked.iter().map(|(_, verb, records, key)| (*verb, *records, key.as_str())).collect();
    let expected = [
        ("batch", 2, "0000"),
        ("update", 1, "0002"),
        ("delete", 1, "0003"),
        ("batch", 2, "0004"),
        ("update", 1, "0006"),
        ("delete", 1, "0007"),
    ];
    assert_eq!(asked, expected);
    let flush = &record.totals.measured[&(Metric::FLUSH, Status::Ok)].service;
    assert_eq!((flush.count(), flush.max() / MS), (1, 6));
}

#[test]
fn writes_that_fail_in_a_flush_count_as_lost_and_the_rest_is_sent() {
    const VERBS: &[OperationKind] = &[OperationKind::Update];
    let options = RunOptions { clients: 1, units: Some(50), ..RunOptions::default() };
    let time = VirtualTime::new();
    let store = Slow { fails_from: 43, ..Slow::new(&time) };
    // Ten writes fill the buffer.
    let (record, asked) = go(store, settings(150, 0), Verbs(VERBS, 10), &options);
    assert_eq!((record.totals.units, record.totals.units_failed, asked.len()), (50, 0, 50));
    assert_eq!(record.totals.buffered, Buffered { sent: 50, lost: 7, unsent: 0 });
    assert_eq!(count(&record, Metric::FLUSH, Status::Ok), 4);
    assert_eq!(count(&record, Metric::FLUSH, Status::Error), 1);
    assert_eq!(record.messages[&(Metric::FLUSH, Status::Error, "disk full".into())], 1);
}

#[test]
fn a_store_lost_in_a_flush_ends_the_run() {
    let options = RunOptions { clients: 1, units: Some(1000), ..RunOptions::default() };
    let time = VirtualTime::new();
    let store = Slow { fails_from: 20, lost: true, ..Slow::new(&time) };
    let (record, _) = go(store, settings(150, 0), Verbs(INSERTS, 10), &options);
    assert_eq!((record.ended_by, record.totals.units), (EndedBy::Failed, 30));
    assert!(record.lost.unwrap().to_string().contains("gone"));
    assert_eq!(record.totals.buffered, Buffered { sent: 30, lost: 10, unsent: 0 });
}

#[test]
fn writes_of_an_abandoned_client_are_reported() {
    let options = RunOptions {
        clients: 2,
        time: Some(Duration::from_secs(1)),
        rate: Some(RateSchedule::constant(100.0)),
        ..RunOptions::default()
    };
    let time = VirtualTime::new();
    let store = Slow { fails_from: 0, hangs: true, ..Slow::new(&time) };
    // Neither client fills its buffer in this time. Both hang in their last flush.
    let (record, _) = go(store, settings(1 << 20, 0), Verbs(INSERTS, 10), &options);
    assert_eq!(record.totals.buffered, Buffered { sent: 0, lost: 0, unsent: record.totals.units });
    assert_eq!(record.in_flight.count(), 2);
}
