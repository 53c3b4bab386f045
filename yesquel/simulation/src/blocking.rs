//! Code that blocks its thread while it waits, as SQLite does, as a task of the simulation.
//!
//! Each such task has a thread. The simulation and these threads take turns: exactly one of them runs
//! at any time, so that a run follows from its seed. A thread runs until it waits for a reply or for
//! the end of a pause. Its requests are then sent by the simulation's thread, where the
//! [`SimulatedTransport`] is. No simulated time passes while a thread runs.

use crate::{
    cluster::lost,
    simulated_transport::{SimulatedCall, SimulatedTransport},
    tasks::TaskFuture,
};
use std::{
    any::Any,
    cell::RefCell,
    fmt,
    future::{Future, poll_fn, ready},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    rc::Rc,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
    time::Duration,
};
use yesquel_model::{ClusterMembership, GroupEpoch, ServerId, Timestamp};
use yesquel_transport::{
    Attempt, HeartbeatSource, LostCall, ObjectCall, ReplyHandler, TransportObject, block_on,
};
use yesquel_wire::{Correction, GroupLocation};

/// Stack of a thread, enough for SQLite's parser in a build that is not optimised.
const STACK_BYTES: usize = 4 << 20;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread asks of the simulation, done on its thread.
type SimulationRequest = Box<dyn FnOnce(&mut PendingRequests, &mut Context<'_>) + Send>;

/// What a thread waits for, on the simulation's side.
struct PendingRequests {
    network: Rc<dyn SimulatedTransport>,
    waiting: Vec<SimulatedCall<()>>,
    /// Whether one has ended since the thread ran.
    has_result: bool,
}

impl PendingRequests {
    /// Begins something that takes time.
    fn begin(&mut self, context: &mut Context<'_>, request: impl Future<Output = ()> + 'static) {
        let mut request: SimulatedCall<()> = Box::pin(request);
        match request.as_mut().poll(context) {
            Poll::Ready(()) => self.has_result = true,
            Poll::Pending => self.waiting.push(request),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) {
        let before = self.waiting.len();
        self.waiting.retain_mut(|request| request.as_mut().poll(context).is_pending());
        self.has_result |= self.waiting.len() < before;
    }
}

/// How a thread has ended: by a panic, or without.
type ThreadEnd = Result<(), Box<dyn Any + Send>>;

/// Which side runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Simulation,
    Thread,
}

struct TurnState {
    turn: Turn,
    requests: Vec<SimulationRequest>,
    /// Time of the simulation.
    now: Duration,
    /// Wakes the task.
    waker: Option<Waker>,
    /// Something has ended that another thread had begun.
    has_result: bool,
    /// The process has died: nothing leaves it any more.
    is_dead: bool,
    /// The thread has ended, by this panic if there is one.
    ended: Option<ThreadEnd>,
}

/// Passes the turn between the simulation and a thread.
struct Handoff {
    state: Mutex<TurnState>,
    passed: Condvar,
}

impl Handoff {
    fn wait_for(&self, own: Turn) -> MutexGuard<'_, TurnState> {
        self.passed
            .wait_while(locked(&self.state), |state| state.turn != own)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the simulation run until the thread has its turn again. Returns whether its process lives.
    fn yield_to_simulation(&self) -> bool {
        let mut state = locked(&self.state);
        if state.is_dead {
            return false;
        }
        state.turn = Turn::Simulation;
        drop(state);
        self.passed.notify_all();
        !self.wait_for(Turn::Thread).is_dead
    }
}

thread_local! {
    /// Of the thread of a task.
    static OWN: RefCell<Option<Arc<Handoff>>> = const { RefCell::new(None) };
}

fn own() -> Option<Arc<Handoff>> {
    OWN.with_borrow(Clone::clone)
}

/// Returns whether this thread is a task of a process that lives.
pub fn is_alive() -> bool {
    own().is_some_and(|own| !locked(&own.state).is_dead)
}

/// Waits for a simulated time, on the thread of a task.
pub fn sleep(network: &BlockingNetwork, time: Duration) {
    block_on(network.pause(time));
}

/// Uses a processor of the client's machine for a time, on the thread of a task: see
/// [`SimulatedTransport::compute`].
pub fn compute(time: Duration) {
    block_on(wait_for(move |network| network.compute(time)));
}

/// Submits a request to the simulation. Returns false if the thread is no task of a living process.
fn submit(request: SimulationRequest) -> bool {
    let Some(own) = own() else { return false };
    let mut state = locked(&own.state);
    if !state.is_dead {
        state.requests.push(request);
    }
    !state.is_dead
}

/// Result of a request, and the thread that waits for it.
struct Awaited<T> {
    result: Option<T>,
    waiting: Option<Arc<Handoff>>,
}

/// Where a request leaves its result.
struct ResultSlot<T>(Mutex<Awaited<T>>);

impl<T> ResultSlot<T> {
    fn new() -> Arc<ResultSlot<T>> {
        Arc::new(ResultSlot(Mutex::new(Awaited { result: None, waiting: None })))
    }

    fn set(&self, result: T) {
        let mut awaited = locked(&self.0);
        awaited.result = Some(result);
        // It may be another thread than the one that has begun it.
        if let Some(waiting) = awaited.waiting.take() {
            let mut state = locked(&waiting.state);
            state.has_result = true;
            state.waker.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Waits for the result; `None`: the process has died.
    async fn wait(self: Arc<Self>) -> Option<T> {
        poll_fn(move |context| {
            if let Some(result) = locked(&self.0).result.take() {
                return Poll::Ready(Some(result));
            }
            let Some(own) = own() else { return Poll::Ready(None) };
            locked(&self.0).waiting = Some(Arc::clone(&own));
            if !own.yield_to_simulation() {
                return Poll::Ready(None);
            }
            match locked(&self.0).result.take() {
                Some(result) => Poll::Ready(Some(result)),
                None => {
                    // The thread runs because of something else that this future's caller waits for.
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Waits for something that the simulation does.
fn wait_for(
    begin: impl FnOnce(Rc<dyn SimulatedTransport>) -> SimulatedCall<()> + Send + 'static,
) -> impl Future<Output = ()> + Send {
    let slot = ResultSlot::new();
    let given = Arc::clone(&slot);
    let is_submitted = submit(Box::new(move |requests, context| {
        let call = begin(Rc::clone(&requests.network));
        requests.begin(context, async move {
            call.await;
            given.set(());
        });
    }));
    async move {
        if is_submitted {
            slot.wait().await;
        }
    }
}

/// The place of a reply. If the task that has sent the request ends before, the reply is lost to other
/// threads that wait for it.
struct CallReply {
    slot: Arc<ResultSlot<Result<Vec<u8>, LostCall>>>,
    group: ServerId,
}

impl Drop for CallReply {
    fn drop(&mut self) {
        let is_missing = locked(&self.slot.0).result.is_none();
        if is_missing {
            self.slot.set(Err(lost(self.group)));
        }
    }
}

/// The network for the threads of a process, which share it.
pub struct BlockingNetwork {
    membership: ClusterMembership,
    clock: Timestamp,
    began: Duration,
    heartbeats: Mutex<Option<Arc<dyn HeartbeatSource>>>,
}

impl fmt::Debug for BlockingNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingNetwork").finish_non_exhaustive()
    }
}

impl BlockingNetwork {
    /// Returns the network of a process for its threads, with a client that `open` makes of it.
    pub fn open<C>(network: &dyn SimulatedTransport, open: impl FnOnce(Arc<BlockingNetwork>) -> C) -> C {
        let blocking = Arc::new(BlockingNetwork {
            membership: network.membership(),
            clock: network.clock(),
            began: network.uptime(),
            heartbeats: Mutex::default(),
        });
        let client = open(Arc::clone(&blocking));
        if let Some(heartbeats) = locked(&blocking.heartbeats).take() {
            network.set_heartbeat_source(heartbeats);
        }
        client
    }
}

impl TransportObject for BlockingNetwork {
    fn call<'a>(&'a self, group: ServerId, request: &[u8]) -> ObjectCall<'a> {
        let slot = ResultSlot::new();
        let (given, request) = (CallReply { slot: Arc::clone(&slot), group }, request.to_vec());
        let is_submitted = submit(Box::new(move |requests, context| {
            let network = Rc::clone(&requests.network);
            requests.begin(context, async move {
                let reply = network.call(group, request).await;
                given.slot.set(reply);
            });
        }));
        if !is_submitted {
            return Box::pin(ready(Err(lost(group))));
        }
        Box::pin(async move { slot.wait().await.unwrap_or_else(|| Err(lost(group))) })
    }

    fn send(&self, group: ServerId, request: &[u8], handler: ReplyHandler) {
        let (request, handler) = (request.to_vec(), Arc::new(Mutex::new(Some(handler))));
        let given = Arc::clone(&handler);
        let is_submitted = submit(Box::new(move |requests, _| {
            if let Some(handler) = locked(&given).take() {
                requests.network.send(group, &request, handler);
            }
        }));
        if !is_submitted && let Some(handler) = locked(&handler).take() {
            handler(Err(lost(group)));
        }
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool {
        let has_learned = Arc::new(Mutex::new(false));
        let (given, correction) = (Arc::clone(&has_learned), OwnedCorrection::of(correction));
        let is_submitted = submit(Box::new(move |requests, _| {
            *locked(&given) = requests.network.correct(group, &correction.borrowed(), attempt);
            requests.has_result = true;
        }));
        let is_done = is_submitted && own().is_some_and(|own| own.yield_to_simulation());
        is_done && *locked(&has_learned)
    }

    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(wait_for(move |network| network.pause(time)))
    }

    fn membership(&self) -> ClusterMembership {
        self.membership
    }

    fn uptime(&self) -> Duration {
        own().map_or(self.began, |own| locked(&own.state).now)
    }

    fn clock(&self) -> Timestamp {
        self.clock
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        *locked(&self.heartbeats) = Some(heartbeats);
    }
}

/// A [`Correction`] with its own addresses.
enum OwnedCorrection {
    WrongGroup(Option<(ServerId, GroupEpoch, String)>),
    NotLeader { term: u64, leader: String },
}

impl OwnedCorrection {
    fn of(correction: &Correction<'_>) -> OwnedCorrection {
        match correction {
            Correction::WrongGroup(place) => OwnedCorrection::WrongGroup(
                place.map(|GroupLocation { group, epoch, address }| (group, epoch, address.to_owned())),
            ),
            Correction::NotLeader { term, leader } => {
                OwnedCorrection::NotLeader { term: *term, leader: (*leader).to_owned() }
            }
        }
    }

    fn borrowed(&self) -> Correction<'_> {
        match self {
            OwnedCorrection::WrongGroup(place) => {
                Correction::WrongGroup(place.as_ref().map(|(group, epoch, address)| GroupLocation {
                    group: *group,
                    epoch: *epoch,
                    address,
                }))
            }
            OwnedCorrection::NotLeader { term, leader } => Correction::NotLeader { term: *term, leader },
        }
    }
}

/// A thread as a task.
struct BlockingTask {
    handoff: Arc<Handoff>,
    requests: PendingRequests,
    thread: Option<JoinHandle<()>>,
}

/// Returns a task that runs code on a thread of its own, which uses [`BlockingNetwork`] of this network.
/// If the task is dropped, its process has died: all calls are lost from then on, and the code must end.
///
/// # Panics
///
/// If there can be no more threads.
pub fn blocking_task<N: SimulatedTransport + 'static>(
    network: &Rc<N>,
    code: impl FnOnce() + Send + 'static,
) -> TaskFuture {
    let network: Rc<dyn SimulatedTransport> = Rc::<N>::clone(network);
    let handoff = Arc::new(Handoff {
        state: Mutex::new(TurnState {
            turn: Turn::Simulation,
            requests: Vec::new(),
            now: Duration::ZERO,
            waker: None,
            has_result: true,
            is_dead: false,
            ended: None,
        }),
        passed: Condvar::new(),
    });
    let of_thread = Arc::clone(&handoff);
    let body = move || {
        let is_dead = of_thread.wait_for(Turn::Thread).is_dead;
        OWN.set(Some(Arc::clone(&of_thread)));
        let ended = if is_dead { Ok(()) } else { catch_unwind(AssertUnwindSafe(code)) };
        OWN.set(None);
        let mut state = locked(&of_thread.state);
        (state.ended, state.turn) = (Some(ended), Turn::Simulation);
        drop(state);
        of_thread.passed.notify_all();
    };
    let thread = thread::Builder::new().name("simulated".to_owned()).stack_size(STACK_BYTES).spawn(body);
    let thread = thread.unwrap_or_else(|error| panic!("no thread for a simulated task: {error}"));
    let requests = PendingRequests { network, waiting: Vec::new(), has_result: false };
    Box::pin(BlockingTask { handoff, requests, thread: Some(thread) })
}

impl BlockingTask {
    /// Lets the thread run until it waits. Returns what it asks for, and how it has ended.
    fn run_thread(&self) -> (Vec<SimulationRequest>, Option<ThreadEnd>) {
        locked(&self.handoff.state).turn = Turn::Thread;
        self.handoff.passed.notify_all();
        let mut state = self.handoff.wait_for(Turn::Simulation);
        (std::mem::take(&mut state.requests), state.ended.take())
    }
}

impl Future for BlockingTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            self.requests.poll(context);
            let has_result = std::mem::take(&mut self.requests.has_result);
            let mut state = locked(&self.handoff.state);
            if !(has_result | std::mem::take(&mut state.has_result)) {
                return Poll::Pending;
            }
            (state.now, state.waker) = (self.requests.network.uptime(), Some(context.waker().clone()));
            drop(state);
            let (requests, ended) = self.run_thread();
            requests.into_iter().for_each(|request| request(&mut self.requests, context));
            if let Some(ended) = ended {
                // It has nothing left to do.
                let _ = self.thread.take().map(JoinHandle::join);
                if let Err(panic) = ended {
                    resume_unwind(panic);
                }
                return Poll::Ready(());
            }
        }
    }
}

impl Drop for BlockingTask {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let mut state = locked(&self.handoff.state);
        (state.is_dead, state.requests) = (true, Vec::new());
        drop(state);
        let (_, ended) = self.run_thread();
        let _ = thread.join();
        if let (Some(Err(panic)), false) = (ended, thread::panicking()) {
            resume_unwind(panic);
        }
    }
}
