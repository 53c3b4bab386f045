//! Agents and coordinators for tests, as threads of one process.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part; a failed unwrap fails the test"
)]

pub(crate) mod server;

use rustix::time::{ClockId, clock_gettime};
use serval_coordination::{
    agent::{self, AgentEvent, JobHandle, Joining, Quit, Worker},
    coordinator::{Coordinator, CoordinatorReport, Leading},
    directory::DirectoryError,
    group::{GroupSettings, OnLost, PhaseEnd},
    message::{ClientFacts, Work},
};
use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

pub(crate) fn clock() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn zookeeper() -> Option<String> {
    let address = std::env::var("SERVAL_TEST_ZOOKEEPER").ok();
    assert!(address.is_some(), "SERVAL_TEST_ZOOKEEPER is not set: 'cargo xtask test' sets it");
    address
}

pub(crate) fn root() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("serval-coordination-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn leading(cluster: &str, root: &str, clients: usize, on_lost: OnLost) -> Leading {
    let settings = GroupSettings { clients, on_lost, ..GroupSettings::default() };
    Leading {
        cluster: cluster.to_owned(),
        root: root.to_owned(),
        group: "test".to_owned(),
        listen: None,
        calls_agents: true,
        settings,
        clock,
    }
}

/// Blocks loads until a test lets them end.
#[derive(Default)]
pub(crate) struct Hold {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Hold {
    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let open = self.open.lock().unwrap();
        drop(self.changed.wait_while(open, |open| !*open).unwrap());
    }
}

/// Records the proposed start and reports exactly it as the actual start.
struct Waiter {
    starts: mpsc::Sender<u64>,
    events: mpsc::Sender<AgentEvent>,
    hold: Arc<Hold>,
}

impl Worker for Waiter {
    fn work(&mut self, work: Work, job: &JobHandle) -> Result<Vec<u8>, String> {
        if let Some(why) = work.kind.strip_prefix("fail ") {
            return Err(why.to_owned());
        }
        let Some(start) = job.ready() else { return Ok(Vec::new()) };
        // Reports the proposed instant without waiting: the tests check the proposal, not how well this
        // machine keeps to it.
        job.began(start);
        let _ = self.starts.send(start);
        job.interval(b"interval".to_vec());
        if work.kind.starts_with("hold") {
            let hold = Arc::clone(&self.hold);
            job.on_end(move |_| hold.open());
            self.hold.wait();
        }
        Ok(format!("{} {}", work.kind, work.store).into_bytes())
    }

    fn on_event(&mut self, event: AgentEvent) {
        println!("{event:?}");
        let _ = self.events.send(event);
    }
}

pub(crate) fn facts(number: usize) -> ClientFacts {
    ClientFacts {
        host: format!("host{number}"),
        process: number as u32,
        version: "test".to_owned(),
        processors: 1,
        stores: vec!["memory".to_owned()],
    }
}

pub(crate) struct Agents {
    threads: Vec<thread::JoinHandle<Result<(), DirectoryError>>>,
    quits: Vec<Quit>,
    pub(crate) starts: mpsc::Receiver<u64>,
    pub(crate) events: mpsc::Receiver<AgentEvent>,
    pub(crate) hold: Arc<Hold>,
}

impl Agents {
    pub(crate) fn start(cluster: &str, root: &str, count: usize) -> Agents {
        Self::with_timeout(cluster, root, count, Duration::from_secs(6))
    }

    pub(crate) fn with_timeout(cluster: &str, root: &str, count: usize, timeout: Duration) -> Agents {
        let (start_sender, starts) = mpsc::channel();
        let (event_sender, events) = mpsc::channel();
        let hold = Arc::new(Hold::default());
        let quits: Vec<Quit> = (0..count).map(|_| Quit::default()).collect();
        let threads = quits.iter().enumerate().map(|(number, quit)| {
            let joining = Joining {
                cluster: cluster.to_owned(),
                root: root.to_owned(),
                timeout,
                once: false,
                facts: facts(number),
                clock,
            };
            let mut waiter = Waiter {
                starts: start_sender.clone(),
                events: event_sender.clone(),
                hold: Arc::clone(&hold),
            };
            let quit = quit.clone();
            thread::spawn(move || agent::serve(&joining, &quit, &mut waiter))
        });
        Agents { threads: threads.collect(), quits, starts, events, hold }
    }

    /// Waits until a number of agents have reported an event of a kind.
    pub(crate) fn wait_for(&self, count: usize, kind: impl Fn(&AgentEvent) -> bool) {
        assert_eq!(self.events.iter().filter(|event| kind(event)).take(count).count(), count);
    }

    pub(crate) fn end(self) {
        self.quits.iter().for_each(Quit::quit);
        for thread in self.threads {
            thread.join().unwrap().unwrap();
        }
    }
}

pub(crate) fn work(kind: &str) -> Option<Work> {
    Some(Work {
        phase: 0,
        kind: kind.to_owned(),
        store: "memory".to_owned(),
        properties: Vec::new(),
        command: None,
    })
}

pub(crate) fn complete(coordinator: &Coordinator) {
    loop {
        match coordinator.next().expect("the coordinator goes on") {
            CoordinatorReport::Complete => return,
            CoordinatorReport::Joined { .. } | CoordinatorReport::Trouble(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the end of a phase and the results that clients sent in it.
pub(crate) fn phase_end(coordinator: &Coordinator) -> (PhaseEnd, Vec<(usize, String)>, usize) {
    let (mut results, mut intervals) = (Vec::new(), 0);
    loop {
        match coordinator.next().expect("the coordinator goes on") {
            CoordinatorReport::Result(client, bytes) => {
                results.push((client, String::from_utf8(bytes).unwrap()))
            }
            CoordinatorReport::Interval(..) => intervals += 1,
            CoordinatorReport::Over(end) => {
                results.sort();
                return (end, results, intervals);
            }
            CoordinatorReport::Starts(_) | CoordinatorReport::Lost(_) => {}
            CoordinatorReport::Trouble(words) | CoordinatorReport::Ending(words) => println!("{words}"),
            other => panic!("{other:?}"),
        }
    }
}
