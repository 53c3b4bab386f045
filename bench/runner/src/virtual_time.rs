//! Runs on a virtual clock: the same clients, pacing, recorders and conductor as in real time, on
//! one thread, in a deterministic order, without waiting. With stores whose law is known, they
//! show whether the measurement is right.

use crate::{
    client_pool::ClientPool,
    clock::ConductorClock,
    conductor::Next,
    options::RunOptions,
    record::{ClientExecution, Observer, RunError, RunRecord},
    run::{Control, Prepared},
    run_barrier::{FinishGuard, RunBarrier},
    timers::Sleeper,
};
use serval_measure::recorder::Recorder;
use serval_model::{Store, StoreError};
use serval_workload::Workload;
use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, SystemTime},
};

/// A clock that stops while a task runs, and advances to the next wake-up when all tasks wait.
/// Clones are the same clock.
///
/// One run at a time uses it. The next run starts at its present instant.
#[derive(Debug, Clone, Default)]
pub struct VirtualTime(Arc<VirtualClockState>);

#[derive(Debug, Default)]
struct VirtualClockState {
    now: AtomicU64,
    sleepers: Mutex<Sleepers>,
}

#[derive(Debug, Default)]
struct Sleepers {
    heap: BinaryHeap<Reverse<Wakeup>>,
    number: u64,
}

/// A sleeping task. Ordered by instant, then first come, first served.
struct Wakeup {
    instant: u64,
    number: u64,
    waker: Waker,
}

impl fmt::Debug for Wakeup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ns", self.number, self.instant)
    }
}

impl PartialEq for Wakeup {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Wakeup {}

impl PartialOrd for Wakeup {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wakeup {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.instant, self.number).cmp(&(other.instant, other.number))
    }
}

impl VirtualTime {
    /// Creates a clock at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the time, ns.
    pub fn now(&self) -> u64 {
        self.0.now.load(Relaxed)
    }

    /// Sleeps until an instant, ns; returns immediately if it is past. Tasks with the same instant
    /// wake in the order in which they began to sleep.
    pub async fn sleep_until(&self, instant: u64) {
        let mut queued = false;
        poll_fn(|context| {
            if self.now() >= instant {
                return Poll::Ready(());
            }
            self.queue_once(&mut queued, instant, context);
            Poll::Pending
        })
        .await;
    }

    fn queue_once(&self, queued: &mut bool, instant: u64, context: &Context<'_>) {
        if !std::mem::replace(queued, true) {
            let sleepers = &mut *self.sleepers();
            sleepers.number += 1;
            let (number, waker) = (sleepers.number, context.waker().clone());
            sleepers.heap.push(Reverse(Wakeup { instant, number, waker }));
        }
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the instant of the next wake-up.
    fn next(&self) -> Option<u64> {
        self.sleepers().heap.peek().map(|Reverse(wakeup)| wakeup.instant)
    }

    /// Advances to an instant and wakes the tasks that are due.
    fn advance(&self, instant: u64) {
        self.0.now.fetch_max(instant, Relaxed);
        let mut sleepers = self.sleepers();
        while sleepers.heap.peek().is_some_and(|Reverse(wakeup)| wakeup.instant <= instant) {
            if let Some(Reverse(wakeup)) = sleepers.heap.pop() {
                wakeup.waker.wake();
            }
        }
    }
}

impl ConductorClock for &VirtualTime {
    fn now(&self) -> u64 {
        VirtualTime::now(self)
    }
    fn cpu(&self) -> Duration {
        Duration::ZERO
    }
    fn date(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(VirtualTime::now(self))
    }
}

/// The sleeper of one client.
struct VirtualSleeper {
    time: VirtualTime,
    barrier: Arc<RunBarrier>,
}

impl Sleeper for VirtualSleeper {
    fn now(&self) -> u64 {
        self.time.now()
    }

    async fn until(&self, instant: u64) -> bool {
        let mut queued = false;
        poll_fn(|context| {
            if self.barrier.is_stopping() {
                return Poll::Ready(false);
            }
            if self.time.now() >= instant {
                return Poll::Ready(true);
            }
            self.time.queue_once(&mut queued, instant, context);
            Poll::Pending
        })
        .await
    }
}

/// Numbers of the tasks that are ready to run, in the order in which they were woken.
type ReadyTasks = Arc<Mutex<VecDeque<usize>>>;

/// Puts a task into the queue of ready tasks.
struct TaskWaker {
    task: usize,
    queued: AtomicBool,
    ready: ReadyTasks,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Relaxed) {
            self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.task);
        }
    }
}

/// A future with its waker.
struct ClientTask {
    future: Pin<Box<dyn Future<Output = ()>>>,
    task_waker: Arc<TaskWaker>,
    waker: Waker,
}

/// An executor on this thread.
#[derive(Default)]
struct Tasks {
    tasks: Vec<Option<ClientTask>>,
    ready: ReadyTasks,
}

impl Tasks {
    fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        let (task, ready) = (self.tasks.len(), Arc::clone(&self.ready));
        let task_waker = Arc::new(TaskWaker { task, queued: AtomicBool::new(false), ready });
        let waker = Waker::from(Arc::clone(&task_waker));
        task_waker.wake_by_ref();
        self.tasks.push(Some(ClientTask { future: Box::pin(future), task_waker, waker }));
    }

    fn wake_all(&self) {
        self.tasks.iter().flatten().for_each(|task| task.task_waker.wake_by_ref());
    }

    /// Runs until all tasks wait.
    fn settle(&mut self) {
        loop {
            let next = self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(index) = next else { return };
            let Some(task) = &mut self.tasks[index] else { continue };
            task.task_waker.queued.store(false, Relaxed);
            if task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
                self.tasks[index] = None;
            }
        }
    }

    fn all_done(&self) -> bool {
        self.tasks.iter().all(Option::is_none)
    }
}

/// Connects all clients concurrently.
fn connect<S: Store>(
    time: &VirtualTime,
    pool: &ClientPool<S>,
    observer: &mut dyn Observer,
) -> Result<Vec<S::Client>, StoreError> {
    let local = Rc::new(pool.store.local()?);
    let connected: Rc<RefCell<Vec<Option<S::Client>>>> = Rc::default();
    let failure: Rc<RefCell<Option<StoreError>>> = Rc::default();
    let mut tasks = Tasks::default();
    for index in 0..pool.clients {
        connected.borrow_mut().push(None);
        let (store, local) = (Arc::clone(&pool.store), Rc::clone(&local));
        let (connected, failure) = (Rc::clone(&connected), Rc::clone(&failure));
        tasks.spawn(async move {
            match store.connect(&local, index).await {
                Ok(client) => connected.borrow_mut()[index] = Some(client),
                Err(error) => drop(failure.borrow_mut().get_or_insert(error)),
            }
        });
    }
    loop {
        tasks.settle();
        if let Some(error) = failure.take() {
            return Err(error);
        }
        if tasks.all_done() {
            break;
        }
        let Some(next) = time.next() else {
            return Err(StoreError::new("virtual time", "a client that connects waits for something else"));
        };
        time.advance(next);
    }
    let clients: Vec<_> = connected.take().into_iter().flatten().collect();
    observer.connected(clients.len(), pool.clients);
    Ok(clients)
}

/// Runs a workload on a store in virtual time, as [`run`](crate::run) does in real time.
///
/// The store's futures may wait for `time` only. Its operations must take time, or a client's loop
/// never ends. A panic of the store unwinds into the caller.
pub fn run<S: Store>(
    time: &VirtualTime,
    store: &Arc<S>,
    workload: &Arc<dyn Workload>,
    options: &RunOptions,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<RunRecord, RunError> {
    let prepared = Prepared::new(store, workload, options, control, |_| Duration::ZERO)?;
    let Prepared { barrier, pool, options, .. } = &prepared;
    let clients = connect(time, pool, observer)?;
    if barrier.counts().interrupted {
        return Err(RunError::Interrupted);
    }
    let (recorder, handle) = Recorder::new(&options.recorder);
    let handle = Rc::new(handle);
    let mut conductor = prepared.conductor(time, vec![recorder], observer);
    let mut state = conductor.start(barrier, workload.verifies(), None);
    let mut tasks = Tasks::default();
    for (index, mut client) in clients.into_iter().enumerate() {
        let (pool, handle) = (Arc::clone(pool), Rc::clone(&handle));
        let sleeper = VirtualSleeper { time: time.clone(), barrier: Arc::clone(barrier) };
        tasks.spawn(async move {
            let _finish = FinishGuard { barrier: &pool.barrier, client: index };
            pool.run_client(index, &mut client, &handle, &sleeper).await;
        });
    }
    drop(handle);
    let (mut wake, mut seen, mut stopped) = (0, None, false);
    loop {
        tasks.settle();
        let counts = {
            let counts = barrier.counts();
            (counts.finished, counts.done, counts.interrupted, counts.lost.is_some())
        };
        if time.now() >= wake || seen != Some(counts) {
            seen = Some(counts);
            let closing = state.closing;
            match conductor.step(&mut state) {
                Next::Done => break,
                Next::At(instant) => wake = instant,
            }
            if barrier.is_stopping() && !stopped {
                stopped = true;
                tasks.wake_all();
                continue;
            }
            if state.closing != closing {
                continue;
            }
        }
        time.advance(time.next().map_or(wake, |next| next.min(wake)));
    }
    // Operations in flight are dropped, and their wake-ups with them.
    drop(tasks);
    time.sleepers().heap.clear();
    let record = conductor.finish(state)?;
    prepared.complete(record, store, ClientExecution::VirtualTime)
}
