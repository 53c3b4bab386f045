//! Synchronization of a run's clients and its conductor: clients report that they are connected,
//! done and finished; the conductor starts and stops them.

use crate::{client_state::ClientStatus, record::AbortCause, run_control::RunControl};
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

/// Command of the conductor to event loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopCommand {
    /// Continue.
    Run,
    /// Begin no unit; wait for the operations in flight.
    Stop,
    /// Drop the operations in flight.
    Abandon,
}

/// Progress of the clients.
#[derive(Debug, Default)]
pub(crate) struct ClientCounts {
    pub(crate) connected: usize,
    /// Clients that have done their last operation, including those that have closed.
    pub(crate) done: usize,
    pub(crate) finished: usize,
    /// Event loops that hold connections.
    loops: usize,
    pub(crate) failure: Option<StoreError>,
    pub(crate) panicked: Option<usize>,
    pub(crate) interrupted: bool,
    /// Why the run cannot continue.
    pub(crate) lost: Option<AbortCause>,
}

/// Whether clients may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Pending,
    Go,
    Cancelled,
}

/// Synchronizes the clients of a run with its conductor.
#[derive(Debug)]
pub(crate) struct RunBarrier {
    pub(crate) statuses: Box<[ClientStatus]>,
    pub(crate) stopping: AtomicBool,
    control: OnceLock<RunControl>,
    counts: Mutex<ClientCounts>,
    changed: Condvar,
    threads: Mutex<Vec<Thread>>,
    starting: watch::Sender<Start>,
    commands: watch::Sender<LoopCommand>,
    /// Whether clients may close.
    closing: watch::Sender<bool>,
}

impl RunBarrier {
    pub(crate) fn new(clients: usize) -> Self {
        RunBarrier {
            statuses: (0..clients).map(|_| ClientStatus::default()).collect(),
            stopping: AtomicBool::new(false),
            control: OnceLock::new(),
            counts: Mutex::default(),
            changed: Condvar::new(),
            threads: Mutex::default(),
            starting: watch::channel(Start::Pending).0,
            commands: watch::channel(LoopCommand::Run).0,
            closing: watch::channel(false).0,
        }
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, ClientCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut ClientCounts)) {
        change(&mut self.counts());
        self.changed.notify_all();
    }

    /// Waits until the counts change, at most for `span`.
    pub(crate) fn wait<'a>(
        &self,
        counts: MutexGuard<'a, ClientCounts>,
        span: Duration,
    ) -> MutexGuard<'a, ClientCounts> {
        self.changed.wait_timeout(counts, span).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Notes that a client has connected or failed to.
    pub(crate) fn connected(&self, result: Result<(), StoreError>) {
        self.change(|counts| match result {
            Ok(()) => counts.connected += 1,
            Err(error) => {
                counts.failure.get_or_insert(error);
            }
        });
    }

    /// Waits until clients may begin. Returns `None` if they never may. Does not block the
    /// thread: a driver's tasks on the same event loop keep running.
    pub(crate) async fn wait_for_start(&self) -> Option<&RunControl> {
        let mut starting = self.starting.subscribe();
        // An error means that the sender is dropped, and the run with it.
        let start = *starting.wait_for(|start| *start != Start::Pending).await.ok()?;
        if start == Start::Cancelled { None } else { self.control.get() }
    }

    /// Starts the clients.
    pub(crate) fn go(&self, control: RunControl) -> &RunControl {
        let control = self.control.get_or_init(|| control);
        self.starting.send_replace(Start::Go);
        control
    }

    /// Ends the wait for the start: the run does not start.
    pub(crate) fn cancel(&self) {
        self.close();
        self.starting.send_replace(Start::Cancelled);
        self.stop();
        self.commands.send_replace(LoopCommand::Abandon);
    }

    /// Asks the conductor to end the run.
    pub(crate) fn interrupt(&self) {
        self.change(|counts| counts.interrupted = true);
    }

    /// Notes that a client is done because the run cannot continue.
    pub(crate) fn lost(&self, error: AbortCause) {
        self.change(|counts| {
            counts.done += 1;
            counts.lost.get_or_insert(error);
        });
    }

    /// Ends all sleeps. No further unit begins.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            thread.unpark();
        }
        self.commands.send_if_modified(|command| {
            let first = *command == LoopCommand::Run;
            if first {
                *command = LoopCommand::Stop;
            }
            first
        });
    }

    /// Returns whether [`stop`](Self::stop) was called.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Notes that a client has done its last operation. Waits until it may close: the traffic of
    /// its connection can be read only while the connection is open.
    pub(crate) async fn done(&self) {
        let mut closing = self.closing.subscribe();
        self.change(|counts| counts.done += 1);
        // An error means that the sender is dropped, and the run with it.
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// Allows clients to close.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Drops the operations in flight.
    pub(crate) fn abandon(&self) {
        self.commands.send_replace(LoopCommand::Abandon);
    }

    /// Counts an event loop until the guard is dropped.
    pub(crate) fn open_loop(&self) -> LoopGuard<'_> {
        self.change(|counts| counts.loops += 1);
        LoopGuard(self)
    }

    /// Waits until all event loops have closed their connections, so that the next run on the same
    /// store does not meet them. Waits at most for `span`: a store may block its loop.
    pub(crate) fn wait_for_loops(&self, span: Duration) {
        let open = |counts: &mut ClientCounts| counts.loops > 0;
        drop(self.changed.wait_timeout_while(self.counts(), span, open));
    }

    pub(crate) fn commands(&self) -> watch::Receiver<LoopCommand> {
        self.commands.subscribe()
    }

    /// Registers a thread to be unparked when the run stops.
    pub(crate) fn register(&self, thread: Thread) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }
}

/// Counts a client as finished when dropped, also by a panic.
pub(crate) struct FinishGuard<'a> {
    pub(crate) barrier: &'a RunBarrier,
    pub(crate) client: usize,
}

impl Drop for FinishGuard<'_> {
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        self.barrier.change(|counts| {
            counts.finished += 1;
            if panicking {
                counts.panicked.get_or_insert(self.client);
            }
        });
    }
}

/// Counts an event loop as closed when dropped.
pub(crate) struct LoopGuard<'a>(&'a RunBarrier);

impl Drop for LoopGuard<'_> {
    fn drop(&mut self) {
        self.0.change(|counts| counts.loops -= 1);
    }
}
