//! The application that runs on the simulated cluster: clients of trees, and servers that split them.

use crate::{
    clients::{observe, work},
    laws::check_laws,
    maintenance::maintain,
    steps::{PERMANENT, SLOTS, Step},
    workload::{SharedWorkload, WorkCounts, Workload},
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use yesquel_client::Client;
use yesquel_model::ServerId;
use yesquel_node::MaintenanceStep;
use yesquel_simulation::{
    Application, Cluster, EventCounts, InjectedFault, LocalTransport, Network, OBSERVER, SERVERS_MAX,
    SharedCluster, TASKS_PER_PROCESS, TaskFuture, run,
};
use yesquel_tree::{Tree, Trees, ValuePlacement, WatchLimits};

/// Limits of a process that soon has as many watched leaves as it may.
const FEW_WATCHES: WatchLimits =
    WatchLimits { bytes_max: 2_000, leaves_max: 3, kept_for: Duration::from_millis(300), reads_max: 64 };

const _: () = assert!(PERMANENT < SLOTS);

/// Places long values by their trees and keys, at all servers.
fn spread<const SERVERS: usize>(tree: Tree, key: &[u8]) -> ServerId {
    let sum = key.iter().fold(tree.root().tree.number(), |sum, byte| sum + u64::from(*byte));
    ServerId((sum % SERVERS as u64) as u16)
}

/// Placements by the number of servers, less one.
const VALUE_PLACEMENTS: [ValuePlacement; SERVERS_MAX] =
    [spread::<1>, spread::<2>, spread::<3>, spread::<4>, spread::<5>, spread::<6>, spread::<7>, spread::<8>];

/// The groups at which the leaves of the tree in a slot may be: those of one tree in three stay at the
/// group of the root.
pub(crate) fn groups_of(slot: usize, servers: usize) -> Vec<ServerId> {
    if slot.is_multiple_of(3) { Vec::new() } else { (0..servers as u16).map(ServerId).collect() }
}

struct TreeClients {
    cluster: SharedCluster,
    workload: SharedWorkload,
}

impl Application for TreeClients {
    fn set_up(&self, network: Network) -> TaskFuture {
        let workload = Rc::clone(&self.workload);
        let servers = self.cluster.borrow().server_count();
        Box::pin(async move {
            let trees = Trees::new(Client::new(network, 1_000_000));
            for slot in 0..SLOTS {
                let own = ServerId((slot % servers) as u16);
                let tree = trees.create_over(own, &groups_of(slot, servers)).await.unwrap();
                let mut workload = workload.borrow_mut();
                workload.slots.push(tree);
                workload.history.on_created(tree);
            }
        })
    }

    fn process(&self, process: usize, network: Network, client: u64) -> [TaskFuture; TASKS_PER_PROCESS] {
        self.workload.borrow_mut().process_started(process);
        let mut trees = Trees::new(Client::new(network, client));
        trees.place_values(VALUE_PLACEMENTS[self.cluster.borrow().server_count() - 1]);
        match process {
            0 => trees.limit_watched(FEW_WATCHES),
            // Leaves that change are watched again at once.
            1 => trees.limit_watched(WatchLimits { reads_max: 1, ..WatchLimits::default() }),
            _ => {}
        }
        let trees = Rc::new(trees);
        std::array::from_fn(|number| -> TaskFuture {
            let task = process * TASKS_PER_PROCESS + number;
            let (cluster, workload) = (Rc::clone(&self.cluster), Rc::clone(&self.workload));
            Box::pin(work(cluster, workload, Rc::clone(&trees), task))
        })
    }

    fn background(&self, server: usize, transport: LocalTransport, client: u64) -> Option<TaskFuture> {
        let (cluster, workload) = (Rc::clone(&self.cluster), Rc::clone(&self.workload));
        Some(Box::pin(maintain(cluster, server, transport, client, move |step| {
            let mut workload = workload.borrow_mut();
            workload.history.has_departures |= step == MaintenanceStep::SplitAway;
            let counts = &mut workload.counts;
            match step {
                MaintenanceStep::Split => counts.splits += 1,
                MaintenanceStep::LoadSplit => counts.load_splits += 1,
                MaintenanceStep::SplitAway => counts.splits_away += 1,
                MaintenanceStep::Removal => counts.removals += 1,
            }
        })))
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

/// Runs a list of steps; returns the counts.
pub(crate) fn run_steps(steps: &[Step]) -> (EventCounts, WorkCounts) {
    let workload: SharedWorkload = Rc::new(RefCell::new(Workload::new(steps)));
    let faults = steps.iter().filter_map(|step| match step {
        Step::Fault(fault) => Some(fault.clone()),
        Step::Act { .. } => None,
    });
    let faults: Vec<InjectedFault> = faults.collect();
    let counts = run(&faults, |cluster| {
        cluster.borrow_mut().check_numbers();
        let of_requests = Rc::clone(&workload);
        cluster.borrow_mut().on_request(move |task, server, request| {
            of_requests.borrow_mut().history.on_request(task, server, request);
        });
        Rc::new(TreeClients { cluster: Rc::clone(cluster), workload: Rc::clone(&workload) })
    });
    let work = workload.borrow().counts;
    (counts, work)
}
