//! Where clients and the conductor of a run meet: who has connected, who has
//! finished, when to go and when to stop.

use crate::{client::Course, run::Lost, slot::Slot};
use serval_model::StoreError;
use std::{
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::Thread,
    time::Duration,
};
use tokio::sync::watch;

/// What event loops are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    /// Begin nothing more; wait for what is in flight.
    Stop,
    /// Leave everything where it is.
    Abandon,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) connected: usize,
    /// Clients that operate no more; those that have closed are among them.
    pub(crate) done: usize,
    pub(crate) finished: usize,
    /// Event loops that still hold connections.
    loops: usize,
    pub(crate) failure: Option<StoreError>,
    pub(crate) panicked: Option<usize>,
    pub(crate) interrupted: bool,
    /// Why the run cannot go on, in the middle of it.
    pub(crate) lost: Option<Lost>,
}

/// Whether clients may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Pending,
    Go,
    Cancelled,
}

/// One run's meeting place.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) slots: Box<[Slot]>,
    pub(crate) stopping: AtomicBool,
    course: OnceLock<Course>,
    tally: Mutex<Tally>,
    changed: Condvar,
    threads: Mutex<Vec<Thread>>,
    starting: watch::Sender<Start>,
    orders: watch::Sender<Order>,
    /// Whether clients may close.
    closing: watch::Sender<bool>,
}

impl Stage {
    pub(crate) fn new(clients: usize) -> Self {
        Stage {
            slots: (0..clients).map(|_| Slot::default()).collect(),
            stopping: AtomicBool::new(false),
            course: OnceLock::new(),
            tally: Mutex::default(),
            changed: Condvar::new(),
            threads: Mutex::default(),
            starting: watch::channel(Start::Pending).0,
            orders: watch::channel(Order::Run).0,
            closing: watch::channel(false).0,
        }
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally());
        self.changed.notify_all();
    }

    /// Waits for a change, at most for `span`.
    pub(crate) fn wait<'a>(&self, tally: MutexGuard<'a, Tally>, span: Duration) -> MutexGuard<'a, Tally> {
        self.changed.wait_timeout(tally, span).unwrap_or_else(PoisonError::into_inner).0
    }

    /// A client has connected, or not.
    pub(crate) fn connected(&self, result: Result<(), StoreError>) {
        self.change(|tally| match result {
            Ok(()) => tally.connected += 1,
            Err(error) => {
                tally.failure.get_or_insert(error);
            }
        });
    }

    /// Waits until clients may begin. Returns `None` if they never may. Does not block the
    /// thread: a driver's tasks on the same event loop keep running.
    pub(crate) async fn wait_for_start(&self) -> Option<&Course> {
        let mut starting = self.starting.subscribe();
        // An error means that the sender is gone, and this stage with it.
        let start = *starting.wait_for(|start| *start != Start::Pending).await.ok()?;
        if start == Start::Cancelled { None } else { self.course.get() }
    }

    /// Lets the clients go.
    pub(crate) fn go(&self, course: Course) -> &Course {
        let course = self.course.get_or_init(|| course);
        self.starting.send_replace(Start::Go);
        course
    }

    /// There will be no start.
    pub(crate) fn cancel(&self) {
        self.close();
        self.starting.send_replace(Start::Cancelled);
        self.stop();
        self.orders.send_replace(Order::Abandon);
    }

    /// Somebody wants the run to end now.
    pub(crate) fn interrupt(&self) {
        self.change(|tally| tally.interrupted = true);
    }

    /// The run cannot go on, as one of its clients has found.
    pub(crate) fn lost(&self, error: Lost) {
        self.change(|tally| {
            tally.done += 1;
            tally.lost.get_or_insert(error);
        });
    }

    /// Ends all sleeps; no further unit begins.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            thread.unpark();
        }
        self.orders.send_if_modified(|order| {
            let first = *order == Order::Run;
            if first {
                *order = Order::Stop;
            }
            first
        });
    }

    /// Whether sleeps have been ended.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// A client operates no more. Waits until it may close: what its connection
    /// has carried is known only as long as it is open.
    pub(crate) async fn done(&self) {
        let mut closing = self.closing.subscribe();
        self.change(|tally| tally.done += 1);
        // An error says that the sender is gone, and with it this stage.
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// Lets clients close.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Gives up on what is still in flight.
    pub(crate) fn abandon(&self) {
        self.orders.send_replace(Order::Abandon);
    }

    /// An event loop begins.
    pub(crate) fn open_loop(&self) -> OpenLoop<'_> {
        self.change(|tally| tally.loops += 1);
        OpenLoop(self)
    }

    /// Waits until all event loops have let go of their connections, so that
    /// the next run on the same store finds none taken; not longer than
    /// `span`, for a store may hold its loop.
    pub(crate) fn wait_for_loops(&self, span: Duration) {
        let open = |tally: &mut Tally| tally.loops > 0;
        drop(self.changed.wait_timeout_while(self.tally(), span, open));
    }

    pub(crate) fn orders(&self) -> watch::Receiver<Order> {
        self.orders.subscribe()
    }

    /// Has this thread unparked when the run stops.
    pub(crate) fn register(&self, thread: Thread) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }
}

/// Says that a client has finished, even when it panics.
pub(crate) struct Finish<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) client: usize,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        self.stage.change(|tally| {
            tally.finished += 1;
            if panicking {
                tally.panicked.get_or_insert(self.client);
            }
        });
    }
}

/// An event loop that stands.
pub(crate) struct OpenLoop<'a>(&'a Stage);

impl Drop for OpenLoop<'_> {
    fn drop(&mut self) {
        self.0.change(|tally| tally.loops -= 1);
    }
}
