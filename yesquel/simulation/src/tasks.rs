//! The executor: polls the tasks that were woken, then lets the next event happen.

use crate::{
    cluster::{Cluster, SharedCluster},
    fault::{PROCESSES, SERVERS_MAX, TASKS, TASKS_PER_PROCESS},
};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
};

/// A task of the simulation.
pub type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Polls without waiting in between after which a background task counts as running in circles.
const POLLS_MAX: usize = 100_000;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

struct SimulatedTask {
    job: TaskFuture,
    woken: Arc<Woken>,
}

impl SimulatedTask {
    fn new(job: TaskFuture) -> SimulatedTask {
        SimulatedTask { job, woken: Arc::new(Woken(AtomicBool::new(true))) }
    }
}

/// Place of a server's background task, behind the clients' tasks.
const BACKGROUND: usize = TASKS;
/// Number of the observer's task.
pub const OBSERVER: usize = BACKGROUND + SERVERS_MAX;

/// Started with a process or a server.
pub(crate) trait Starts {
    /// The tasks of a process in a new life.
    fn process(&self, cluster: &SharedCluster, process: usize) -> [TaskFuture; TASKS_PER_PROCESS];
    /// The background task of a server, if the test has one.
    fn background(&self, cluster: &SharedCluster, server: usize) -> Option<TaskFuture>;
}

pub(crate) struct SimulationExecutor<S> {
    pub(crate) cluster: SharedCluster,
    starts: S,
    tasks: Vec<Option<SimulatedTask>>,
}

impl<S: Starts> SimulationExecutor<S> {
    pub(crate) fn new(cluster: SharedCluster, starts: S) -> SimulationExecutor<S> {
        SimulationExecutor { cluster, starts, tasks: (0..=OBSERVER).map(|_| None).collect() }
    }

    /// Polls all woken tasks until none is left.
    fn poll(&mut self) {
        let mut polls = 0;
        loop {
            let mut is_quiet = true;
            for number in 0..self.tasks.len() {
                let Some(SimulatedTask { job, woken }) = &mut self.tasks[number] else { continue };
                if self.cluster.borrow().is_stopped(number) || !woken.0.swap(false, SeqCst) {
                    continue;
                }
                is_quiet = false;
                polls += 1;
                assert!(polls < POLLS_MAX, "task {number} runs in circles");
                let waker = Waker::from(Arc::clone(woken));
                self.cluster.borrow_mut().current_task = Some(number);
                let polled = job.as_mut().poll(&mut Context::from_waker(&waker));
                self.cluster.borrow_mut().current_task = None;
                if polled.is_ready() {
                    self.tasks[number] = None;
                }
                self.replace_dead();
            }
            if is_quiet {
                return;
            }
        }
    }

    /// Drops the tasks of processes and servers that died, and starts those that came.
    fn replace_dead(&mut self) {
        let (dying, changed) = {
            let mut cluster = self.cluster.borrow_mut();
            (std::mem::take(&mut cluster.dying), std::mem::take(&mut cluster.changed))
        };
        for process in dying {
            self.start_process(process);
        }
        for server in changed {
            self.tasks[BACKGROUND + server] = None;
            if self.cluster.borrow_mut().engine(server).is_some() {
                let job = self.starts.background(&self.cluster, server);
                self.tasks[BACKGROUND + server] = job.map(SimulatedTask::new);
            }
        }
    }

    /// Starts a process; its previous life ends.
    pub(crate) fn start_process(&mut self, process: usize) {
        let first = process * TASKS_PER_PROCESS;
        self.tasks[first..first + TASKS_PER_PROCESS].fill_with(|| None);
        {
            let mut cluster = self.cluster.borrow_mut();
            let life = cluster.processes[process].lives;
            cluster.processes[process].lives += 1;
            cluster.processes[process].routes.clear();
            cluster.processes[process].stopped_until_us = 0;
            cluster.counts.deaths += u64::from(life > 0);
            cluster.cut_all(|peer, _| peer == process, life % 5, 0);
        }
        for (at, job) in self.starts.process(&self.cluster, process).into_iter().enumerate() {
            self.tasks[first + at] = Some(SimulatedTask::new(job));
        }
    }

    /// Lets events happen until a condition holds.
    pub(crate) fn run_until(&mut self, until_us: u64, is_done: impl Fn(&SimulationExecutor<S>) -> bool) {
        loop {
            self.replace_dead();
            self.poll();
            if is_done(self) {
                return;
            }
            let mut cluster = self.cluster.borrow_mut();
            assert!(cluster.now_us() < until_us, "a task waits for ever");
            let Some(event) = cluster.next() else { panic!("a task waits, and no event is left") };
            cluster.handle_event(event);
        }
    }

    /// Whether all client tasks have ended.
    pub(crate) fn clients_are_done(&self) -> bool {
        self.tasks[..TASKS].iter().all(Option::is_none)
    }

    /// Microseconds since the start of the run.
    pub(crate) fn now_us(&self) -> u64 {
        self.cluster.borrow().now_us()
    }

    /// Runs the observer's task to its end.
    pub(crate) fn observe(&mut self, job: TaskFuture, within_us: u64) {
        self.tasks[OBSERVER] = Some(SimulatedTask::new(job));
        let until_us = self.now_us() + within_us;
        self.run_until(until_us, |executor| executor.tasks[OBSERVER].is_none());
    }

    /// Does something with each server.
    pub(crate) fn each_server(&self, act: impl Fn(&mut Cluster, usize)) {
        let servers = self.cluster.borrow().server_count();
        (0..servers).for_each(|server| act(&mut self.cluster.borrow_mut(), server));
    }

    /// Starts all processes.
    pub(crate) fn start_processes(&mut self) {
        (0..PROCESSES).for_each(|process| self.start_process(process));
    }
}
