//! Stores and workloads with configurable behaviour.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use serval_model::{
    Client, Execution, FieldSelection, Metric, Operation, OperationKind, Outcome, Record, Reply, Schema,
    Store, StoreError,
};
use serval_workload::{ClientWorkload, Demand, End, Last, Place, Rng, Step, Workload};
use std::{
    future::{Future, pending},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// How a read behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Answer {
    AtOnce,
    After(Duration),
    /// The client with this number never gets an answer to its operation with
    /// this number.
    NeverFor {
        client: usize,
        operation: u64,
    },
    Fail,
    /// The store is lost from this operation of a client on.
    LostAt(u64),
    /// Takes a millisecond, and the client reports a service time of so many ns.
    Driven(u64),
    Panic,
}

pub struct TestStore {
    pub execution: Execution,
    pub answer: Answer,
    pub connect: Result<(), StoreError>,
    pub reads: Arc<AtomicU64>,
    /// Number of connections that are not closed.
    pub open: Arc<AtomicU64>,
}

impl TestStore {
    pub fn new(execution: Execution, answer: Answer) -> Self {
        TestStore { execution, answer, connect: Ok(()), reads: Arc::default(), open: Arc::default() }
    }
}

pub struct TestClient {
    execution: Execution,
    answer: Answer,
    number: usize,
    done: u64,
    reads: Arc<AtomicU64>,
    open: Arc<AtomicU64>,
}

impl Store for TestStore {
    type Local = ();
    type Client = TestClient;
    fn execution(&self) -> Execution {
        self.execution
    }
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn times_itself(&self) -> bool {
        matches!(self.answer, Answer::Driven(_))
    }
    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }
    async fn connect(&self, (): &(), client: usize) -> Result<TestClient, StoreError> {
        self.connect.clone()?;
        let (execution, answer) = (self.execution, self.answer);
        self.open.fetch_add(1, Relaxed);
        let (reads, open) = (Arc::clone(&self.reads), Arc::clone(&self.open));
        Ok(TestClient { execution, answer, number: client, done: 0, reads, open })
    }
}

impl Client for TestClient {
    async fn read(&mut self, _: &str, _: &str, _: &FieldSelection, _: &mut Reply) -> Outcome {
        self.done += 1;
        self.reads.fetch_add(1, Relaxed);
        match self.answer {
            Answer::AtOnce => Outcome::OK,
            Answer::After(span) => {
                match self.execution {
                    Execution::Threads => std::thread::park_timeout(span),
                    Execution::EventLoops => tokio::time::sleep(span).await,
                }
                Outcome::OK
            }
            Answer::NeverFor { client, operation } if client == self.number && operation == self.done => {
                match self.execution {
                    Execution::Threads => loop {
                        std::thread::park();
                    },
                    Execution::EventLoops => pending().await,
                }
            }
            Answer::NeverFor { .. } => Outcome::OK,
            Answer::Fail => Outcome::error("no"),
            Answer::LostAt(operation) if self.done >= operation => Outcome::error("gone"),
            Answer::LostAt(_) => Outcome::OK,
            Answer::Driven(_) => {
                std::thread::sleep(Duration::from_millis(1));
                Outcome::OK
            }
            Answer::Panic => panic!("a test asked for this"),
        }
    }
    fn update(&mut self, _: &str, _: &str, _: &Record) -> impl Future<Output = Outcome> {
        std::future::ready(Outcome::OK)
    }
    fn insert(&mut self, _: &str, _: &str, _: &Record) -> impl Future<Output = Outcome> {
        std::future::ready(Outcome::OK)
    }
    fn scan(
        &mut self,
        _: &str,
        _: &str,
        _: u64,
        _: &FieldSelection,
        _: &mut Reply,
    ) -> impl Future<Output = Outcome> {
        std::future::ready(Outcome::OK)
    }
    async fn close(&mut self) -> Outcome {
        self.open.fetch_sub(1, Relaxed);
        Outcome::OK
    }
    fn delete(&mut self, _: &str, _: &str) -> impl Future<Output = Outcome> {
        std::future::ready(Outcome::OK)
    }
    fn service_ns(&self) -> Option<u64> {
        match self.answer {
            Answer::Driven(service) => Some(service),
            _ => None,
        }
    }
    fn lost(&self) -> Option<StoreError> {
        let lost = matches!(self.answer, Answer::LostAt(operation) if self.done >= operation);
        lost.then(|| StoreError::new("test", "the store is gone"))
    }
}

/// Reads the same key repeatedly.
pub struct Reads;

impl Workload for Reads {
    fn schema(&self) -> Schema {
        Schema { table: "t".into(), fields: Vec::new() }
    }
    fn demands(&self) -> Vec<Demand> {
        Vec::new()
    }
    fn client(&self, _: Place, _: Rng) -> Box<dyn ClientWorkload> {
        Box::new(Reads)
    }
}

impl ClientWorkload for Reads {
    fn step(&mut self, _: Last<'_>, operation: &mut Operation) -> Step {
        operation.begin(OperationKind::Read);
        operation.key.push('k');
        Step::Issue { more: false }
    }
}

/// Reads a key and updates it, as one unit.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadModifyWrites {
    /// Whether each unit first probes for the record.
    pub probes: bool,
    /// Number of operations of the unit that have ended.
    pub ended: usize,
}

impl Workload for ReadModifyWrites {
    fn schema(&self) -> Schema {
        Schema { table: "t".into(), fields: Vec::new() }
    }
    fn demands(&self) -> Vec<Demand> {
        Vec::new()
    }
    fn client(&self, _: Place, _: Rng) -> Box<dyn ClientWorkload> {
        Box::new(*self)
    }
}

impl ClientWorkload for ReadModifyWrites {
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step {
        self.ended = if matches!(last, Last::Begin) { usize::from(!self.probes) } else { self.ended + 1 };
        operation.begin(if self.ended < 2 { OperationKind::Read } else { OperationKind::Update });
        operation.key.push('k');
        match self.ended {
            0 => Step::Probe,
            1 | 2 => Step::Issue { more: true },
            _ => Step::End(End {
                composite: Some(Metric::READ_MODIFY_WRITE),
                verified: None,
                ok: true,
                stop: false,
            }),
        }
    }
}
