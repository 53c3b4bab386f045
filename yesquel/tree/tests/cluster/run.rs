//! One run: tasks are polled when they are woken, and between that one thing
//! happens after the other.

use crate::{
    clients::{observe, work},
    network::{Inside, Network},
    server::Fact,
    steps::{LASTING, PROCESSES, SERVERS, SLOTS, Step, TASKS, process_of},
    world::{Counts, OBSERVER, Shared, World, pause},
};
use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};
use yesquel_client::{Client, CommitError, Error};
use yesquel_engine::Engine;
use yesquel_model::{Key, NodeId, Refusal, ServerId, Timestamp};
use yesquel_tree::{Splitter, TreeError, Trees};

/// How long those who are left may take when all is well again.
const PATIENCE_US: u64 = 60_000_000;
/// Until nobody waits, and what nobody sees is collected.
const QUIET_US: u64 = 5_000_000;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

type Job = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
struct Task {
    job: Option<Job>,
    ready: Option<Arc<Flag>>,
}

impl Task {
    fn new(job: impl Future<Output = ()> + 'static) -> Task {
        Task { job: Some(Box::pin(job)), ready: Some(Arc::new(Flag(AtomicBool::new(true)))) }
    }
}

/// The tasks of clients, those of servers, and one that watches.
const WATCHING: usize = TASKS + SERVERS;

struct Executor {
    shared: Shared,
    tasks: Vec<Task>,
}

impl Executor {
    /// Polls all that are woken, until none is.
    fn poll(&mut self) {
        loop {
            let mut is_quiet = true;
            for number in 0..self.tasks.len() {
                let Task { job: Some(job), ready: Some(ready) } = &mut self.tasks[number] else { continue };
                if !ready.0.swap(false, SeqCst) {
                    continue;
                }
                is_quiet = false;
                let waker = Waker::from(Arc::clone(ready));
                self.shared.borrow_mut().current = Some(number);
                let polled = job.as_mut().poll(&mut Context::from_waker(&waker));
                self.shared.borrow_mut().current = None;
                if polled.is_ready() {
                    self.tasks[number] = Task::default();
                }
                self.bury();
            }
            if is_quiet {
                return;
            }
        }
    }

    /// Those who died go, and others come in their place.
    fn bury(&mut self) {
        let (dying, changed) = {
            let mut world = self.shared.borrow_mut();
            (std::mem::take(&mut world.dying), std::mem::take(&mut world.changed))
        };
        for process in dying {
            self.begin_process(process);
        }
        for server in changed {
            self.tasks[TASKS + server] = Task::default();
            if self.shared.borrow().servers[server].running.is_some() {
                self.tasks[TASKS + server] = Task::new(help(Rc::clone(&self.shared), server));
            }
        }
    }

    /// A process begins; one that was there is no more.
    fn begin_process(&mut self, process: usize) {
        let mine = (0..TASKS).filter(|task| process_of(*task) == process);
        for task in mine.clone() {
            self.tasks[task] = Task::default();
        }
        let life = {
            let mut world = self.shared.borrow_mut();
            mine.clone().for_each(|task| world.book.died(task));
            let life = world.processes[process].lives;
            world.processes[process].lives += 1;
            world.processes[process].committed = Timestamp::ZERO;
            world.counts.deaths += u64::from(life > 0);
            world.cut_all(|peer, _| peer == process, life % 5, 0);
            life
        };
        let trees = Rc::new(self.trees(process, 1 + process as u64 + 100 * life));
        for task in mine {
            self.tasks[task] = Task::new(work(Rc::clone(&self.shared), Rc::clone(&trees), task));
        }
    }

    fn trees(&self, peer: usize, client: u64) -> Trees<Network> {
        Trees::new(Client::new(Network { shared: Rc::clone(&self.shared), peer }, client))
    }

    /// Lets things happen until so, but not for ever.
    fn run_until(&mut self, until_us: u64, is_done: impl Fn(&Executor) -> bool) {
        loop {
            self.bury();
            self.poll();
            if is_done(self) {
                return;
            }
            let mut world = self.shared.borrow_mut();
            assert!(world.now_us < until_us, "somebody waits for ever");
            let event = world.next();
            let Some(event) = event else { panic!("nothing happens any more") };
            world.happen(event);
        }
    }

    fn is_over(&self, task: usize) -> bool {
        self.tasks[task].job.is_none()
    }

    fn now_us(&self) -> u64 {
        self.shared.borrow().now_us
    }

    /// Has something done while nothing else is looked at.
    fn watch(&mut self, job: impl Future<Output = ()> + 'static) {
        self.tasks[WATCHING] = Task::new(job);
        let until_us = self.now_us() + PATIENCE_US;
        self.run_until(until_us, |executor| executor.is_over(WATCHING));
    }

    fn wait(&mut self, us: u64) {
        let shared = Rc::clone(&self.shared);
        self.watch(async move { pause(&shared, us).await });
    }

    /// Waits until no server is ahead of the time: each restart begins some
    /// seconds above the one before, and others refuse such stamps.
    fn wait_for_clocks(&mut self) {
        self.wait(QUIET_US);
        while (0..SERVERS).any(|server| self.shared.borrow_mut().is_ahead(server)) {
            self.wait(QUIET_US);
        }
    }

    /// All is well: the reference, and the laws of trees.
    fn check(&mut self, client: u64, after: &str) {
        let trees = Rc::new(self.trees(OBSERVER, client));
        self.watch(observe(Rc::clone(&self.shared), trees, WATCHING));
        self.wait(QUIET_US);
        let mut world = self.shared.borrow_mut();
        let logs: Vec<Vec<Fact>> =
            world.servers.iter().map(|server| server.facts().cloned().collect()).collect();
        let live = world.book.verify(&logs);
        world.check_laws(&live, after);
    }
}

/// Splits nodes of a server and takes empty ones away, as its helper does.
async fn help(shared: Shared, server: usize) {
    let (client, number) =
        (10_000 + server as u64 + 100 * shared.borrow().servers[server].epoch, server as u16);
    let trees = Trees::new(Client::new(Inside { shared: Rc::clone(&shared), server }, client));
    let splitter = Splitter::new(ServerId(number));
    let mut rounds = 0;
    loop {
        let (has_waited, (sizes, loads, empty)) = work_of(&shared, server).await;
        rounds = if has_waited { 0 } else { rounds + 1 };
        assert!(rounds < ROUNDS_MAX, "server {server}: splits make nodes that are to be split, without end");
        for node in sizes {
            let full = shared.borrow().servers[server].running.as_ref().map(|it| it.engine.how_full(node));
            let (parts, drags) = full.unwrap_or_default();
            let split = told(splitter.split_into(&trees, node, parts, drags).await);
            shared.borrow_mut().counts.splits += split;
        }
        for (node, key) in loads {
            let split = told(splitter.split_at(&trees, node, Some(&key)).await);
            shared.borrow_mut().counts.load_splits += split;
        }
        for node in empty {
            let removed = told(splitter.remove(&trees, node).await);
            shared.borrow_mut().counts.removals += removed;
        }
    }
}

type Work = (Vec<NodeId>, Vec<(NodeId, Key)>, Vec<NodeId>);

/// Rounds of work after which there is nothing to be done for a moment, if what is
/// done leads to an end.
const ROUNDS_MAX: usize = 200;

/// Whether it was waited for, and it.
async fn work_of(shared: &Shared, server: usize) -> (bool, Work) {
    let mut has_waited = false;
    poll_fn(move |context| {
        let mut world = shared.borrow_mut();
        let Some(running) = &mut world.servers[server].running else { return Poll::Pending };
        if !running.engine.has_work() {
            running.helper = Some(context.waker().clone());
            has_waited = true;
            return Poll::Pending;
        }
        let engine: &mut Engine = &mut running.engine;
        Poll::Ready((has_waited, (engine.take_full(), engine.take_hot(), engine.take_empty())))
    })
    .await
}

/// Whether it was done. Nodes that nobody could change now are left for later.
fn told(done: Result<bool, TreeError>) -> u64 {
    let error = match done {
        Ok(done) => return u64::from(done),
        Err(error) => error,
    };
    let disk_failed =
        |error: &Error| matches!(error, Error::Refused(Refusal::DiskFailed | Refusal::DiskLost));
    let is_expected = match &error {
        TreeError::Client(error) | TreeError::Commit(CommitError::Unknown(error)) => disk_failed(error),
        TreeError::Commit(CommitError::Refused { refusal, .. }) => {
            matches!(refusal, Refusal::DiskFailed | Refusal::DiskLost)
        }
        _ => false,
    };
    assert!(is_expected || error.is_conflict(), "a node is not split: {error}");
    0
}

/// Does the steps of a list; what it went through.
pub(crate) fn run(steps: &[Step]) -> Counts {
    let shared = Rc::new(RefCell::new(World::new(steps)));
    let mut tasks = Vec::new();
    tasks.resize_with(WATCHING + 1, Task::default);
    let mut executor = Executor { shared: Rc::clone(&shared), tasks };
    (0..SERVERS).for_each(|server| shared.borrow_mut().rise(server));
    let (trees, world) = (executor.trees(OBSERVER, 1_000_000), Rc::clone(&shared));
    executor.watch(async move {
        for slot in 0..SLOTS {
            // The observer's own connections are never cut.
            let tree = trees.create(ServerId((slot % SERVERS) as u16)).await.unwrap();
            let mut world = world.borrow_mut();
            world.slots.push(tree);
            world.book.lasts(tree);
        }
    });
    // Until each clock is past what was made: none of them goes back.
    executor.wait(300_000);
    shared.borrow_mut().begin_faults(steps);
    (0..PROCESSES).for_each(|process| executor.begin_process(process));
    // Until all is done, or nobody gets anything done any more.
    let until_us = executor.now_us() + PATIENCE_US;
    let is_done = |executor: &Executor| (0..TASKS).all(|task| executor.is_over(task));
    executor.run_until(until_us * 2, |executor| is_done(executor) || executor.now_us() > until_us);
    shared.borrow_mut().heal();
    let until_us = executor.now_us() + PATIENCE_US;
    executor.run_until(until_us, is_done);
    shared.borrow_mut().cut_all(|peer, _| peer < PROCESSES, 4, 4);
    executor.wait_for_clocks();
    for _ in 0..4 {
        (0..SERVERS).for_each(|server| shared.borrow_mut().recover_all(server));
        executor.wait(500_000);
    }
    executor.check(2_000_000, "in the end");
    for server in 0..SERVERS {
        shared.borrow_mut().fall(server, Some(server as u64), 1_000);
    }
    executor.wait_for_clocks();
    executor.check(2_000_001, "after another restart");
    shared.borrow().counts
}

const _: () = assert!(LASTING < SLOTS);
