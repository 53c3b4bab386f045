//! The application that runs on the simulated cluster: connections of SQLite.

use crate::{
    client::{Client, set_up},
    maintenance::maintain,
    record::{Record, SharedRecord, WorkCounts},
    steps::Step,
};
use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use yesquel::{Addresses, Error, SocketOptions, Store};
use yesquel_simulation::{
    Application, BlockingNetwork, Cluster, EventCounts, InjectedFault, LocalTransport, Network,
    SharedCluster, TASKS, TASKS_PER_PROCESS, TaskFuture, blocking_task, outcomes, run,
};

thread_local! {
    /// The store of the process that a thread simulates.
    static STORE: RefCell<Option<Store>> = const { RefCell::new(None) };
}

/// Returns the store of the process that this thread simulates.
pub(crate) fn connector(_: &Addresses, _: SocketOptions) -> Result<Store, Error> {
    STORE
        .with_borrow(Clone::clone)
        .ok_or_else(|| Error::Unavailable("this thread simulates no process".to_owned()))
}

/// Number of clients of all runs, by which the stores of their processes differ.
static CLIENTS: AtomicU64 = AtomicU64::new(0);

struct SqlClients {
    cluster: SharedCluster,
    record: SharedRecord,
    groups: usize,
}

/// A process of a run.
#[derive(Clone)]
struct Process {
    network: Rc<Network>,
    blocking: Arc<BlockingNetwork>,
    store: Store,
    host: String,
}

impl SqlClients {
    fn process(&self, network: Network, client: u64) -> Process {
        let (blocking, store) = BlockingNetwork::open(&network, |blocking| {
            let store = Store::with_transport(Arc::clone(&blocking) as _, client);
            (blocking, store)
        });
        let host = format!("client-{}", CLIENTS.fetch_add(1, Relaxed));
        Process { network: Rc::new(network), blocking, store, host }
    }

    fn task(&self, process: &Process, code: impl FnOnce(Client) + Send + 'static) -> TaskFuture {
        let Process { network, blocking, store, host } = process.clone();
        let (record, groups) = (Arc::clone(&self.record), self.groups);
        blocking_task(&network, move || {
            STORE.set(Some(store.clone()));
            code(Client::new(blocking, store, record, host, groups));
            STORE.set(None);
        })
    }
}

impl Application for SqlClients {
    fn set_up(&self, network: Network) -> TaskFuture {
        let process = self.process(network, 1_000_000);
        self.task(&process, |client| set_up(&client))
    }

    fn process(&self, process: usize, network: Network, client: u64) -> [TaskFuture; TASKS_PER_PROCESS] {
        let now = self.cluster.borrow().now_us();
        self.record.lock().unwrap().process_started(process, now);
        let one = self.process(network, client);
        std::array::from_fn(|number| {
            let task = process * TASKS_PER_PROCESS + number;
            self.task(&one, move |mut client| client.work(task))
        })
    }

    fn background(&self, server: usize, transport: LocalTransport, client: u64) -> Option<TaskFuture> {
        let record = Arc::clone(&self.record);
        Some(Box::pin(maintain(Rc::clone(&self.cluster), server, transport, client, move |_| {
            record.lock().unwrap().counts.splits += 1;
        })))
    }

    fn observe(&self, network: Network, client: u64) -> TaskFuture {
        let process = self.process(network, client);
        self.task(&process, |mut client| client.observe(TASKS))
    }

    fn verify(&self, cluster: &mut Cluster, when: &str) {
        // All servers that have voted have the same outcomes, and nothing commits without all votes.
        outcomes(&cluster.logs());
        self.record.lock().unwrap().verify(when);
    }
}

/// Runs a list of steps; returns the counts.
pub(crate) fn run_steps(steps: &[Step]) -> (EventCounts, WorkCounts) {
    let record = Arc::new(Mutex::new(Record::new(steps)));
    let faults = steps.iter().filter_map(|step| match step {
        Step::Fault(fault) => Some(fault.clone()),
        Step::Work(_) | Step::Level(_) | Step::Groups(_) => None,
    });
    let faults: Vec<InjectedFault> = faults.collect();
    let counts = run(&faults, |cluster| {
        cluster.borrow_mut().check_numbers();
        let groups = cluster.borrow().server_count();
        Rc::new(SqlClients { cluster: Rc::clone(cluster), record: Arc::clone(&record), groups })
    });
    let work = record.lock().unwrap().counts;
    (counts, work)
}

/// The first groups of the cluster, as a placement.
pub(crate) fn placement(groups: usize) -> String {
    (0..groups).map(|group| group.to_string()).collect::<Vec<_>>().join(",")
}
