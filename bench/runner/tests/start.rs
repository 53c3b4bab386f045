//! Drivers keep running while a run waits for its start.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use common::{Answer, Reads, TestStore};
use serval_model::{Client, Execution, FieldSelection, Outcome, Record, Reply, Store, StoreError};
use serval_runner::{Control, Gate, RunError, RunOptions, clock, run};
use serval_workload::Workload;
use std::{
    future::{Future, ready},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Longest wait for a keepalive. Only a failing test waits this long.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// A store whose connections have one task each on the event loop, like sessions with keepalives.
struct Sessions {
    /// Sends a keepalive to the task of each connection.
    keepalives: Mutex<Vec<UnboundedSender<()>>>,
    alive: Mutex<mpsc::Sender<usize>>,
}

struct Session;

impl Store for Sessions {
    type Local = ();
    type Client = Session;
    fn execution(&self) -> Execution {
        Execution::EventLoops
    }
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }
    async fn connect(&self, (): &(), client: usize) -> Result<Session, StoreError> {
        let (sender, mut keepalives) = unbounded_channel();
        let alive = self.alive.lock().unwrap().clone();
        tokio::task::spawn_local(async move {
            while keepalives.recv().await.is_some() {
                let _ = alive.send(client);
            }
        });
        self.keepalives.lock().unwrap().push(sender);
        Ok(Session)
    }
}

impl Client for Session {
    fn read(&mut self, _: &str, _: &str, _: &FieldSelection, _: &mut Reply) -> impl Future<Output = Outcome> {
        ready(Outcome::OK)
    }
    fn update(&mut self, _: &str, _: &str, _: &Record) -> impl Future<Output = Outcome> {
        ready(Outcome::OK)
    }
    fn insert(&mut self, _: &str, _: &str, _: &Record) -> impl Future<Output = Outcome> {
        ready(Outcome::OK)
    }
    fn scan(
        &mut self,
        _: &str,
        _: &str,
        _: u64,
        _: &FieldSelection,
        _: &mut Reply,
    ) -> impl Future<Output = Outcome> {
        ready(Outcome::OK)
    }
    fn delete(&mut self, _: &str, _: &str) -> impl Future<Output = Outcome> {
        ready(Outcome::OK)
    }
    async fn close(&mut self) -> Outcome {
        Outcome::OK
    }
}

#[test]
fn driver_tasks_run_while_the_run_waits_for_its_start() {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 3;
    let (sender, alive) = mpsc::channel();
    let store = Arc::new(Sessions { keepalives: Mutex::default(), alive: Mutex::new(sender) });
    let (asked, alive) = (Arc::clone(&store), Mutex::new(alive));
    let missed = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&missed);
    // Called once all clients have connected, before any may begin.
    let gate = Gate::new(move || {
        let keepalives = asked.keepalives.lock().unwrap();
        assert_eq!(keepalives.len(), CLIENTS);
        for round in 0..ROUNDS {
            keepalives.iter().for_each(|keepalive| keepalive.send(()).unwrap());
            let alive = alive.lock().unwrap();
            let mut heard: Vec<usize> =
                (0..CLIENTS).map_while(|_| alive.recv_timeout(SILENCE_MAX).ok()).collect();
            heard.sort_unstable();
            if heard != (0..CLIENTS).collect::<Vec<_>>() {
                *noted.lock().unwrap() = Some((round, heard));
                break;
            }
        }
        Some(clock::now())
    });
    let options = RunOptions {
        clients: CLIENTS,
        event_loops: Some(2),
        units: Some(60),
        gate: Some(gate),
        ..RunOptions::default()
    };
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    let record = run(&store, &workload, &options, &Control::default(), &mut ()).unwrap();
    assert_eq!(*missed.lock().unwrap(), None, "round, and the clients whose tasks ran in it");
    assert_eq!(record.totals.units, 60);
}

#[test]
fn a_refused_start_ends_the_run_on_threads_and_event_loops() {
    for execution in [Execution::Threads, Execution::EventLoops] {
        let store = Arc::new(TestStore::new(execution, Answer::AtOnce));
        let workload: Arc<dyn Workload> = Arc::new(Reads);
        let options = RunOptions {
            clients: 3,
            units: Some(30),
            gate: Some(Gate::new(|| None)),
            ..RunOptions::default()
        };
        let ended = run(&store, &workload, &options, &Control::default(), &mut ());
        assert_eq!(ended.unwrap_err(), RunError::Interrupted, "{execution:?}");
        assert_eq!(store.reads.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}
