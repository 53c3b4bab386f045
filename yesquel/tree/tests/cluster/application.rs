//! The application that runs on the simulated cluster: clients of trees, and servers that split them.

use crate::{
    clients::{observe, work},
    laws::check_laws,
    steps::{PERMANENT, SLOTS, Step},
    workload::{SharedWorkload, WorkCounts, Workload},
};
use std::{cell::RefCell, rc::Rc};
use yesquel_client::{Client, CommitError, RequestError};
use yesquel_engine::SplitPlan;
use yesquel_model::{Refusal, ServerId};
use yesquel_simulation::{
    Application, BackgroundWork, Cluster, EventCounts, InjectedFault, LocalTransport, Network, SERVERS,
    SharedCluster, TASKS, TASKS_PER_PROCESS, TaskFuture, next_work, run,
};
use yesquel_tree::{Splitter, TreeError, Trees};

/// Rounds of background work without a wait, after which splits count as endless.
const ROUNDS_MAX: usize = 200;
/// The observer's number among the tasks.
const OBSERVER: usize = TASKS;

const _: () = assert!(PERMANENT < SLOTS);

struct TreeClients {
    cluster: SharedCluster,
    workload: SharedWorkload,
}

impl Application for TreeClients {
    fn set_up(&self, network: Network) -> TaskFuture {
        let workload = Rc::clone(&self.workload);
        Box::pin(async move {
            let trees = Trees::new(Client::new(network, 1_000_000));
            for slot in 0..SLOTS {
                let tree = trees.create(ServerId((slot % SERVERS) as u16)).await.unwrap();
                let mut workload = workload.borrow_mut();
                workload.slots.push(tree);
                workload.history.on_created(tree);
            }
        })
    }

    fn process(&self, process: usize, network: Network, client: u64) -> [TaskFuture; TASKS_PER_PROCESS] {
        self.workload.borrow_mut().process_started(process);
        let trees = Rc::new(Trees::new(Client::new(network, client)));
        std::array::from_fn(|number| -> TaskFuture {
            let task = process * TASKS_PER_PROCESS + number;
            let (cluster, workload) = (Rc::clone(&self.cluster), Rc::clone(&self.workload));
            Box::pin(work(cluster, workload, Rc::clone(&trees), task))
        })
    }

    fn background(&self, server: usize, transport: LocalTransport, client: u64) -> Option<TaskFuture> {
        let (cluster, workload) = (Rc::clone(&self.cluster), Rc::clone(&self.workload));
        Some(Box::pin(split_nodes(cluster, workload, server, transport, client)))
    }

    fn observe(&self, network: Network, client: u64) -> TaskFuture {
        let trees = Rc::new(Trees::new(Client::new(network, client)));
        Box::pin(observe(Rc::clone(&self.workload), trees, OBSERVER))
    }

    fn verify(&self, cluster: &mut Cluster, when: &str) {
        let live = self.workload.borrow().history.verify(&cluster.logs());
        check_laws(cluster, &live, when);
    }
}

/// Splits nodes of a server and removes empty ones, as its helper thread does.
async fn split_nodes(
    cluster: SharedCluster,
    workload: SharedWorkload,
    server: usize,
    transport: LocalTransport,
    client: u64,
) {
    let trees = Trees::new(Client::new(transport, client));
    let splitter = Splitter::new(ServerId(server as u16));
    let mut rounds = 0;
    loop {
        let BackgroundWork { waited, full, hot, empty } = next_work(&cluster, server).await;
        rounds = if waited { 0 } else { rounds + 1 };
        assert!(rounds < ROUNDS_MAX, "server {server}: splits do not end");
        for node in full {
            let plan = cluster.borrow_mut().engine(server).map(|engine| engine.split_plan(node));
            let SplitPlan { parts, mostly_obsolete } = plan.unwrap_or_default();
            let split = done(splitter.split_into(&trees, node, parts, mostly_obsolete).await);
            workload.borrow_mut().counts.splits += split;
        }
        for (node, key) in hot {
            let split = done(splitter.split_at(&trees, node, Some(&key)).await);
            workload.borrow_mut().counts.load_splits += split;
        }
        for node in empty {
            let removed = done(splitter.remove(&trees, node).await);
            workload.borrow_mut().counts.removals += removed;
        }
    }
}

/// Returns the number of changes, 0 or 1. Nodes that cannot change now are left for later.
fn done(done: Result<bool, TreeError>) -> u64 {
    let error = match done {
        Ok(done) => return u64::from(done),
        Err(error) => error,
    };
    let disk_failed = |error: &RequestError| {
        matches!(error, RequestError::Refused(Refusal::DiskFailed | Refusal::DiskLost))
    };
    let is_expected = match &error {
        TreeError::Client(error) | TreeError::Commit(CommitError::Unknown(error)) => disk_failed(error),
        TreeError::Commit(CommitError::Refused { refusal, .. }) => {
            matches!(refusal, Refusal::DiskFailed | Refusal::DiskLost)
        }
        _ => false,
    };
    assert!(is_expected || error.is_conflict(), "a split fails: {error}");
    0
}

/// Runs a list of steps; returns the counts.
pub(crate) fn run_steps(steps: &[Step]) -> (EventCounts, WorkCounts) {
    let workload: SharedWorkload = Rc::new(RefCell::new(Workload::new(steps)));
    let faults = steps.iter().filter_map(|step| match step {
        Step::Fault(fault) => Some(fault.clone()),
        Step::Act { .. } => None,
    });
    let faults: Vec<InjectedFault> = faults.collect();
    let counts = run(&faults, |cluster| {
        let of_requests = Rc::clone(&workload);
        cluster.borrow_mut().on_request(move |task, server, request| {
            of_requests.borrow_mut().history.on_request(task, server, request);
        });
        Rc::new(TreeClients { cluster: Rc::clone(cluster), workload: Rc::clone(&workload) })
    });
    let work = workload.borrow().counts;
    (counts, work)
}
