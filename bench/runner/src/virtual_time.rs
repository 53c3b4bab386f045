//! Runs on a virtual clock: the same clients, pacing, recorders and conductor as
//! in real time, on one thread, in an order that is the same every time, as
//! fast as they compute. For stores whose law is known, which tell whether
//! what is measured is true.

use crate::{
    clock::Clock,
    conductor::Next,
    crew::Crew,
    run::{ClientExecution, Control, Observer, Prepared, RunError, RunOptions, RunRecord},
    stage::{Finish, Stage},
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

/// A clock that stands still while anybody computes, and moves on to the next
/// instant at which somebody wants to be woken. Clones are the same clock.
///
/// One run at a time uses it; the next goes on from its present instant.
#[derive(Debug, Clone, Default)]
pub struct VirtualTime(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    now: AtomicU64,
    sleepers: Mutex<Sleepers>,
}

#[derive(Debug, Default)]
struct Sleepers {
    heap: BinaryHeap<Reverse<Wakeup>>,
    number: u64,
}

/// Ordered by instant, then by who came first.
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
    /// A clock at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Now, ns.
    pub fn now(&self) -> u64 {
        self.0.now.load(Relaxed)
    }

    /// Sleeps until an instant, ns; not at all if it is past. Of those who wake
    /// at the same instant, who slept first wakes first.
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

    /// The next instant at which somebody wants to be woken.
    fn next(&self) -> Option<u64> {
        self.sleepers().heap.peek().map(|Reverse(wakeup)| wakeup.instant)
    }

    /// Moves on to an instant and wakes all who are due.
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

impl Clock for &VirtualTime {
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

/// Sleeps for one client.
struct VirtualSleeper {
    time: VirtualTime,
    stage: Arc<Stage>,
}

impl Sleeper for VirtualSleeper {
    fn now(&self) -> u64 {
        self.time.now()
    }

    async fn until(&self, instant: u64) -> bool {
        let mut queued = false;
        poll_fn(|context| {
            if self.stage.is_stopping() {
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

/// Numbers of tasks that want to go on, in the order of their wishes.
type Ready = Arc<Mutex<VecDeque<usize>>>;

struct Wish {
    task: usize,
    waits: AtomicBool,
    ready: Ready,
}

impl Wake for Wish {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.waits.swap(true, Relaxed) {
            self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.task);
        }
    }
}

/// A future that is to be run to its end.
struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    wish: Arc<Wish>,
    waker: Waker,
}

/// Tasks, on this thread.
#[derive(Default)]
struct Tasks {
    tasks: Vec<Option<Task>>,
    ready: Ready,
}

impl Tasks {
    fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        let (task, ready) = (self.tasks.len(), Arc::clone(&self.ready));
        let wish = Arc::new(Wish { task, waits: AtomicBool::new(false), ready });
        let waker = Waker::from(Arc::clone(&wish));
        wish.wake_by_ref();
        self.tasks.push(Some(Task { future: Box::pin(future), wish, waker }));
    }

    fn wake_all(&self) {
        self.tasks.iter().flatten().for_each(|task| task.wish.wake_by_ref());
    }

    /// Runs until every task waits for something.
    fn settle(&mut self) {
        loop {
            let next = self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(index) = next else { return };
            let Some(task) = &mut self.tasks[index] else { continue };
            task.wish.waits.store(false, Relaxed);
            if task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
                self.tasks[index] = None;
            }
        }
    }

    fn all_done(&self) -> bool {
        self.tasks.iter().all(Option::is_none)
    }
}

/// Connects the clients, all at the same time.
fn connect<S: Store>(
    time: &VirtualTime,
    crew: &Crew<S>,
    observer: &mut dyn Observer,
) -> Result<Vec<S::Client>, StoreError> {
    let local = Rc::new(crew.store.local()?);
    let connected: Rc<RefCell<Vec<Option<S::Client>>>> = Rc::default();
    let failure: Rc<RefCell<Option<StoreError>>> = Rc::default();
    let mut tasks = Tasks::default();
    for index in 0..crew.clients {
        connected.borrow_mut().push(None);
        let (store, local) = (Arc::clone(&crew.store), Rc::clone(&local));
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
    observer.connected(clients.len(), crew.clients);
    Ok(clients)
}

/// Runs a workload on a store in virtual time, as [`run`](crate::run) does in
/// real time. The store's futures wait for `time` and for nothing else, and its
/// operations take some: those of a client that never waits would never end. A
/// panic of a store is the caller's.
pub fn run<S: Store>(
    time: &VirtualTime,
    store: &Arc<S>,
    workload: &Arc<dyn Workload>,
    options: &RunOptions,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<RunRecord, RunError> {
    let prepared = Prepared::new(store, workload, options, control, |_| Duration::ZERO)?;
    let Prepared { stage, crew, options, .. } = &prepared;
    let clients = connect(time, crew, observer)?;
    if stage.tally().interrupted {
        return Err(RunError::Interrupted);
    }
    let (recorder, handle) = Recorder::new(&options.recorder);
    let handle = Rc::new(handle);
    let mut conductor = prepared.conductor(time, vec![recorder], observer);
    let mut watch = conductor.start(stage, workload.verifies(), None);
    let mut tasks = Tasks::default();
    for (index, mut client) in clients.into_iter().enumerate() {
        let (crew, handle) = (Arc::clone(crew), Rc::clone(&handle));
        let sleeper = VirtualSleeper { time: time.clone(), stage: Arc::clone(stage) };
        tasks.spawn(async move {
            let _finish = Finish { stage: &crew.stage, client: index };
            crew.run_client(index, &mut client, &handle, &sleeper).await;
        });
    }
    drop(handle);
    let (mut wake, mut seen, mut stopped) = (0, None, false);
    loop {
        tasks.settle();
        let tally = {
            let tally = stage.tally();
            (tally.finished, tally.done, tally.interrupted, tally.lost.is_some())
        };
        if time.now() >= wake || seen != Some(tally) {
            seen = Some(tally);
            let closing = watch.closing;
            match conductor.step(&mut watch) {
                Next::Done => break,
                Next::At(instant) => wake = instant,
            }
            if stage.is_stopping() && !stopped {
                stopped = true;
                tasks.wake_all();
                continue;
            }
            if watch.closing != closing {
                continue;
            }
        }
        time.advance(time.next().map_or(wake, |next| next.min(wake)));
    }
    // What is in flight is left where it is. Nobody is to wake for it later.
    drop(tasks);
    time.sleepers().heap.clear();
    let record = conductor.finish(watch)?;
    prepared.complete(record, store, ClientExecution::VirtualTime)
}
