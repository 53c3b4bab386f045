//! One run: the data is created, connections open and warm up, and then statements are measured.

use crate::{
    client::{BEGIN, LoadError, Measurement, VirtualClient, VirtualLoad},
    cluster::{Origin, SharedCluster, VirtualCluster},
    costs::{CostError, CostModel},
    executor::Executor,
    maintenance::maintain,
    network::VirtualNetwork,
    plan::{PlanError, VirtualPlan},
    result::VirtualResult,
    server::ServerCounts,
};
use hdrhistogram::Histogram;
use std::{
    cell::RefCell,
    ops::Range,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use thiserror::Error;
use yesquel::Store;
use yesquel_seeds::Random;
use yesquel_simulation::{BlockingNetwork, TaskFuture, blocking_task};

const SECOND_NS: u64 = 1_000_000_000;
/// Time in which data must be created, and in which clients must be ready.
const SET_UP_NS: u64 = 36_000 * SECOND_NS;
/// Time after the data is created in which nodes are split.
const SPLITS_NS: u64 = 2 * SECOND_NS;
/// Time in which clients must end.
const END_NS: u64 = 600 * SECOND_NS;
/// Longest response time that the histogram records.
const LATENCY_NS_MAX: u64 = 3_600 * SECOND_NS;
/// Number of the client that creates the data.
const SET_UP_CLIENT: u64 = 1 << 31;

/// Number of runs of this program, by which the stores of their processes differ.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Why a run has no result.
#[derive(Debug, Error)]
pub enum VirtualError {
    /// The plan is out of range.
    #[error("the plan cannot be run: {0}")]
    Plan(#[from] PlanError),
    /// The cost model does not fit.
    #[error(transparent)]
    Costs(#[from] CostError),
    /// A client has failed.
    #[error("a client of the simulated cluster has failed: {0}")]
    Client(String),
    /// Clients wait for ever, or their statements take too long.
    #[error("the simulated clients have not {0} within {1} s of simulated time")]
    Stuck(&'static str, u64),
}

/// A simulated client process.
struct Process {
    network: Rc<VirtualNetwork>,
    blocking: Arc<BlockingNetwork>,
    store: Store,
    host: String,
}

impl Process {
    fn new(cluster: &SharedCluster, number: usize, client: u64, caches: bool, host: String) -> Process {
        let network = VirtualNetwork::new(cluster, Origin::Client(number));
        let (blocking, store) = BlockingNetwork::open(&network, |blocking| {
            let store = Store::with_transport(Arc::clone(&blocking) as _, client);
            (blocking, store)
        });
        store.cache_inner_nodes(caches);
        Process { network: Rc::new(network), blocking, store, host }
    }

    fn client(&self, place: (usize, usize), seed: u64, measurement: &Arc<Measurement>) -> VirtualClient {
        VirtualClient {
            network: Arc::clone(&self.blocking),
            store: self.store.clone(),
            host: self.host.clone(),
            process: place.0,
            number: place.1,
            seed,
            measurement: Arc::clone(measurement),
        }
    }
}

struct VirtualRun<'a, L> {
    plan: &'a VirtualPlan,
    load: Arc<L>,
    measurement: Arc<Measurement>,
    executor: Executor,
    random: Random,
    run: u64,
}

/// Simulates a load, and returns what was measured. The result follows from the plan, the costs and the
/// load.
///
/// # Errors
///
/// If the plan or the costs do not fit, a client fails, or clients do not end.
pub fn run<L: VirtualLoad>(
    plan: &VirtualPlan,
    costs: &CostModel,
    load: Arc<L>,
) -> Result<VirtualResult, VirtualError> {
    plan.check()?;
    let statement = Duration::from_nanos(costs.statement_ns(&plan.statement)?);
    let latencies = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
    let latencies = latencies.unwrap_or_else(|error| unreachable!("constant bounds: {error}"));
    // One more process creates the data.
    let cluster = VirtualCluster::new(plan, costs, plan.processes + 1);
    let mut run = VirtualRun {
        plan,
        load,
        measurement: Measurement::new(statement, latencies),
        executor: Executor::new(Rc::new(RefCell::new(cluster))),
        random: Random::new(plan.seed),
        run: RUNS.fetch_add(1, Relaxed),
    };
    run.set_up()?;
    run.connect()?;
    run.measure()
}

impl<L: VirtualLoad> VirtualRun<'_, L> {
    fn now_ns(&self) -> u64 {
        self.executor.cluster.borrow().now_ns()
    }

    /// Lets events happen until a condition holds, or a client fails.
    fn run_until(
        &mut self,
        what: &'static str,
        within_ns: u64,
        is_done: impl Fn(&Measurement) -> bool,
    ) -> Result<(), VirtualError> {
        let (until_ns, measurement) = (self.now_ns() + within_ns, Arc::clone(&self.measurement));
        let has_failed = || measurement.lock().failure.is_some();
        let is_done = self.executor.run_until(until_ns, || is_done(&measurement) || has_failed());
        if let Some(failure) = measurement.lock().failure.take() {
            return Err(VirtualError::Client(failure));
        }
        if is_done { Ok(()) } else { Err(VirtualError::Stuck(what, within_ns / SECOND_NS)) }
    }

    fn process(&self, number: usize, client: u64) -> Process {
        let host = format!("virtual-{}-{number}", self.run);
        Process::new(&self.executor.cluster, number, client, self.plan.caches_inner_nodes, host)
    }

    /// Adds a task with a thread for a client.
    fn spawn(
        &mut self,
        process: &Process,
        client: VirtualClient,
        code: impl FnOnce(&L, &VirtualClient) -> Result<(), LoadError> + Send + 'static,
    ) {
        let load = Arc::clone(&self.load);
        let task: TaskFuture = blocking_task(&process.network, move || {
            let ended = code(&load, &client);
            client.measurement.end(ended);
        });
        self.executor.spawn(task);
    }

    /// Starts the servers, and creates the data.
    fn set_up(&mut self) -> Result<(), VirtualError> {
        for server in 0..self.plan.servers {
            let cluster = Rc::clone(&self.executor.cluster);
            self.executor.spawn(Box::pin(maintain(cluster, server, self.plan.techniques)));
        }
        let process = self.process(self.plan.processes, SET_UP_CLIENT);
        let client = process.client((self.plan.processes, 0), self.plan.seed, &self.measurement);
        self.spawn(&process, client, |load, client| {
            client.store.create_catalog()?;
            load.set_up(client)
        });
        self.run_until("created the data", SET_UP_NS, |measurement| measurement.lock().ended > 0)?;
        self.measurement.lock().ended = 0;
        let until_ns = self.now_ns() + SPLITS_NS;
        let cluster = Rc::clone(&self.executor.cluster);
        self.executor.run_until(u64::MAX, || cluster.borrow().now_ns() >= until_ns);
        Ok(())
    }

    /// Opens all connections.
    fn connect(&mut self) -> Result<(), VirtualError> {
        for number in 0..self.plan.processes {
            let process = self.process(number, number as u64 + 1);
            for connection in 0..self.plan.connections {
                let seed = self.random.next(u64::MAX);
                let client = process.client((number, connection), seed, &self.measurement);
                self.spawn(&process, client, |load, client| load.connect(client));
            }
        }
        let all = self.plan.all_connections();
        self.run_until("become ready", SET_UP_NS, |measurement| measurement.lock().ready == all)
    }

    /// Measures statements.
    fn measure(&mut self) -> Result<VirtualResult, VirtualError> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let from_ns = self.now_ns().saturating_add(nanoseconds(BEGIN.saturating_add(self.plan.ramp)));
        let window = from_ns..from_ns.saturating_add(nanoseconds(self.plan.measured));
        {
            let (mut cluster, random) = (self.executor.cluster.borrow_mut(), &mut self.random);
            if let Some(quota) = self.plan.quota {
                cluster.limit_servers(quota, |below| random.next(below));
            }
            cluster.count_within(&window);
        }
        self.measurement.lock().window = Some(window.clone());
        let cluster = Rc::clone(&self.executor.cluster);
        let all = self.plan.all_connections();
        let is_at = |at_ns: u64| {
            let cluster = Rc::clone(&cluster);
            move |measurement: &Measurement| {
                cluster.borrow().now_ns() >= at_ns || measurement.lock().ended == all
            }
        };
        self.run_until("begun", END_NS, is_at(window.start))?;
        cluster.borrow_mut().reset_counts();
        self.run_until("worked", END_NS + window.end - window.start, is_at(window.end))?;
        let result = self.result(&window);
        self.run_until("ended", END_NS, |measurement| measurement.lock().ended == all)?;
        Ok(result)
    }

    fn result(&self, window: &Range<u64>) -> VirtualResult {
        let (state, cluster) = (self.measurement.lock(), self.executor.cluster.borrow());
        let length_ns = (window.end - window.start) as f64;
        let (counts, busy_ns): (Vec<_>, Vec<u64>) = cluster.server_counts().unzip();
        let sum = |of: &dyn Fn(&ServerCounts) -> u64| counts.iter().map(of).sum::<u64>();
        let mean = |sum: u64, count: u64| if count == 0 { 0.0 } else { sum as f64 / count as f64 };
        let clients = (0..self.plan.processes).map(|process| cluster.client_busy_ns(process)).sum::<u64>();
        let processors = (self.plan.processes * self.plan.client_processors) as f64;
        let statements = state.latencies.len();
        let requests = sum(&|counts| counts.reads + counts.writes);
        let mean_ns = if statements == 0 { 0.0 } else { state.latency_sum as f64 / statements as f64 };
        let quantile_us = |quantile| state.latencies.value_at_quantile(quantile) as f64 / 1e3;
        VirtualResult {
            statements,
            seconds: length_ns / 1e9,
            connections: self.plan.all_connections(),
            mean_us: mean_ns / 1e3,
            p50_us: quantile_us(0.5),
            p99_us: quantile_us(0.99),
            server_use: busy_ns.iter().map(|busy_ns| *busy_ns as f64 / length_ns).collect(),
            client_use: clients as f64 / processors / length_ns,
            requests: counts.iter().map(|counts| counts.reads + counts.writes).collect(),
            read_bytes: mean(sum(&|counts| counts.read_bytes), sum(&|counts| counts.reads)),
            write_bytes: mean(sum(&|counts| counts.write_bytes), sum(&|counts| counts.writes)),
            batch: mean(requests, sum(&|counts| counts.batches)),
            connection_batch: mean(requests, sum(&|counts| counts.connections)),
        }
    }
}
