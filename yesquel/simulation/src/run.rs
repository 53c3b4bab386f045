//! One run: faults strike while clients work, then the cluster is healed and verified, twice.

use crate::{
    cluster::{Cluster, EventCounts, LocalTransport, Network, OBSERVER, SharedCluster, pause},
    fault::{InjectedFault, PROCESSES, TASKS_PER_PROCESS},
    tasks::{SimulationExecutor, Starts, TaskFuture},
};
use std::{cell::RefCell, rc::Rc};

/// Time in which the clients must end once the cluster is healed.
const SHUTDOWN_LIMIT_US: u64 = 60_000_000;
/// Time after which no transaction waits and all garbage is collected.
const QUIET_US: u64 = 5_000_000;

/// The clients of a run, and what they verify.
pub trait Application {
    /// Prepares the data, before any fault. Its transport is never disturbed.
    fn set_up(&self, network: Network) -> TaskFuture;

    /// The tasks of a process that starts, as the client of this number. It may have died before, in
    /// the middle of any call.
    fn process(&self, process: usize, network: Network, client: u64) -> [TaskFuture; TASKS_PER_PROCESS];

    /// Background work of a server that starts: it ends when the server stops.
    fn background(&self, _server: usize, _transport: LocalTransport, _client: u64) -> Option<TaskFuture> {
        None
    }

    /// Reads everything, after all faults have ended, as the client of this number.
    fn observe(&self, network: Network, client: u64) -> TaskFuture;

    /// Verifies what the clients and the observer saw; `when` says at which point of the run.
    ///
    /// # Panics
    ///
    /// If a law does not hold.
    fn verify(&self, cluster: &mut Cluster, when: &str);
}

struct ClientTasks<A>(Rc<A>);

impl<A: Application> Starts for ClientTasks<A> {
    fn process(&self, cluster: &SharedCluster, process: usize) -> [TaskFuture; TASKS_PER_PROCESS] {
        let life = cluster.borrow().processes[process].lives;
        let network = Network::new(cluster, process);
        self.0.process(process, network, 1 + process as u64 + 100 * (life - 1))
    }

    fn background(&self, cluster: &SharedCluster, server: usize) -> Option<TaskFuture> {
        let client = 10_000 + server as u64 + 100 * cluster.borrow().epoch(server);
        let transport = LocalTransport { cluster: Rc::clone(cluster), server };
        self.0.background(server, transport, client)
    }
}

struct SimulationRun<A> {
    application: Rc<A>,
    executor: SimulationExecutor<ClientTasks<A>>,
}

impl<A: Application> SimulationRun<A> {
    fn network(&self) -> Network {
        Network::new(&self.executor.cluster, OBSERVER)
    }

    /// Runs a task of the observer, and ends its connections, as a client does that is closed.
    fn observe(&mut self, task: TaskFuture) {
        self.executor.observe(task, SHUTDOWN_LIMIT_US);
        self.executor.cluster.borrow_mut().cut_all(|peer, _| peer == OBSERVER, 4, 4);
    }

    fn servers(&self) -> usize {
        self.executor.cluster.borrow().server_count()
    }

    fn wait(&mut self, us: u64) {
        let cluster = Rc::clone(&self.executor.cluster);
        self.executor.observe(Box::pin(async move { pause(&cluster, us).await }), us + SHUTDOWN_LIMIT_US);
    }

    /// Waits until no server's logical clock is ahead of physical time: each restart begins some
    /// seconds above the one before, and other servers refuse such timestamps.
    fn wait_for_clocks(&mut self) {
        self.wait(QUIET_US);
        while (0..self.servers()).any(|server| self.executor.cluster.borrow_mut().is_ahead(server)) {
            self.wait(QUIET_US);
        }
    }

    /// Reads everything and verifies the laws.
    fn check(&mut self, client: u64, when: &str) {
        // Readers resolve the undecided transactions that they meet, servers the others by their
        // age.
        self.observe(self.application.observe(self.network(), client));
        self.wait(QUIET_US);
        let until_us = self.executor.now_us() + SHUTDOWN_LIMIT_US;
        while (0..self.servers()).any(|server| self.executor.cluster.borrow_mut().is_in_doubt(server)) {
            assert!(self.executor.now_us() < until_us, "{when}: a transaction stays undecided");
            self.wait(QUIET_US);
        }
        let mut cluster = self.executor.cluster.borrow_mut();
        for server in 0..cluster.server_count() {
            let Some(engine) = cluster.engine(server) else { panic!("server {server} {when}: it is down") };
            if let Err(wrong) = engine.audit() {
                panic!("server {server} {when}: {wrong}");
            }
            assert!(engine.undecided().next().is_none(), "server {server} {when}: undecided transactions");
        }
        self.application.verify(&mut cluster, when);
    }
}

/// Plays faults against an application and verifies its laws; returns what happened.
///
/// # Panics
///
/// If a law does not hold, or if a client waits for ever.
pub fn run<A: Application>(
    faults: &[InjectedFault],
    start: impl FnOnce(&SharedCluster) -> Rc<A>,
) -> EventCounts {
    let cluster = Rc::new(RefCell::new(Cluster::new(faults)));
    let application = start(&cluster);
    let executor = SimulationExecutor::new(Rc::clone(&cluster), ClientTasks(Rc::clone(&application)));
    let mut run = SimulationRun { application, executor };
    run.executor.each_server(Cluster::start);
    run.observe(run.application.set_up(run.network()));
    // Until each clock has passed the set-up's commits.
    run.wait(300_000);
    // A decision may be late. A server whose disk failed before it came would show no set-up.
    while (0..run.servers()).any(|server| cluster.borrow_mut().is_in_doubt(server)) {
        run.wait(QUIET_US);
    }
    cluster.borrow_mut().begin_faults(faults);
    run.executor.start_processes();
    // Until the clients are done, or make no progress any more.
    let until_us = run.executor.now_us() + SHUTDOWN_LIMIT_US;
    run.executor
        .run_until(until_us * 2, |executor| executor.clients_are_done() || executor.now_us() > until_us);
    cluster.borrow_mut().heal();
    let until_us = run.executor.now_us() + SHUTDOWN_LIMIT_US;
    run.executor.run_until(until_us, SimulationExecutor::clients_are_done);
    cluster.borrow_mut().cut_all(|peer, _| peer < PROCESSES, 4, 4);
    run.wait_for_clocks();
    run.check(2_000_000, "at the end");
    for server in 0..run.servers() {
        cluster.borrow_mut().stop(server, Some(server as u64), 1_000);
    }
    run.wait_for_clocks();
    run.check(2_000_001, "after another restart");
    cluster.borrow().counts()
}
