//! The executor: polls the tasks that were woken, in the order in which they were, then lets the next
//! event happen.

use crate::cluster::SharedCluster;
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
};
use yesquel_simulation::TaskFuture;

/// Numbers of the tasks that were woken.
#[derive(Default)]
struct ReadyQueue(Mutex<VecDeque<usize>>);

impl ReadyQueue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TaskWaker {
    number: usize,
    is_queued: AtomicBool,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, SeqCst) {
            self.ready.lock().push_back(self.number);
        }
    }
}

struct Task {
    job: TaskFuture,
    waker: Arc<TaskWaker>,
}

/// Tasks, and the cluster whose events wake them.
pub(crate) struct Executor {
    pub(crate) cluster: SharedCluster,
    /// Tasks that have ended leave their places.
    tasks: Vec<Option<Task>>,
    ready: Arc<ReadyQueue>,
}

impl Executor {
    pub(crate) fn new(cluster: SharedCluster) -> Executor {
        Executor { cluster, tasks: Vec::new(), ready: Arc::default() }
    }

    /// Adds a task.
    pub(crate) fn spawn(&mut self, job: TaskFuture) {
        let (number, ready) = (self.tasks.len(), Arc::clone(&self.ready));
        let waker = Arc::new(TaskWaker { number, is_queued: AtomicBool::new(false), ready });
        Arc::clone(&waker).wake();
        self.tasks.push(Some(Task { job, waker }));
    }

    fn poll_ready(&mut self) {
        loop {
            let Some(number) = self.ready.lock().pop_front() else { return };
            let Some(Task { job, waker }) = &mut self.tasks[number] else { continue };
            waker.is_queued.store(false, SeqCst);
            let waker = Waker::from(Arc::clone(waker));
            if job.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                self.tasks[number] = None;
            }
        }
    }

    /// Lets events happen until a condition holds. Returns false if it does not hold at the time.
    pub(crate) fn run_until(&mut self, until_ns: u64, mut is_done: impl FnMut() -> bool) -> bool {
        loop {
            self.poll_ready();
            if is_done() {
                return true;
            }
            let mut cluster = self.cluster.borrow_mut();
            if cluster.now_ns() >= until_ns || !cluster.step() {
                return false;
            }
        }
    }
}
