//! Time limit of operations.
//!
//! The driver has no such limit, so an operation is cancelled by dropping its future.
//! An operation with a connection loses it, and the driver opens another. An operation
//! that waits for a connection must not be dropped: its entry would stay in the pool's
//! queue, and as the driver serves one entry per event, it would serve only dead
//! entries while operations keep timing out. Such an operation continues as a task of
//! the loop, and its client's next operation waits for it, within its own limit. It may
//! still be executed after it was counted as failed; at most one per client.

use mongodb::{
    error::Error,
    event::{EventHandler, cmap::CmapEvent},
};
use serval_model::{Outcome, Status};
use std::{
    cell::Cell,
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    time::Duration,
};
use tokio::{
    task::{JoinHandle, spawn_local},
    time::{Instant, timeout_at},
};

thread_local! {
    /// Whether the operation that is being polled has a connection.
    static CONNECTED: Cell<bool> = const { Cell::new(false) };
}

/// Event handler for connections; operations get connections while they are
/// polled.
pub(super) fn connections() -> EventHandler<CmapEvent> {
    EventHandler::callback(|event| {
        if matches!(event, CmapEvent::ConnectionCheckedOut(_)) {
            CONNECTED.set(true);
        }
    })
}

/// Polls an operation and records whether it has a connection.
async fn noting<T>(
    mut future: Pin<Box<dyn Future<Output = Result<T, Error>>>>,
    is_connected: Rc<Cell<bool>>,
) -> Result<T, Error> {
    poll_fn(|context| {
        CONNECTED.set(is_connected.get());
        let poll = future.as_mut().poll(context);
        is_connected.set(CONNECTED.replace(false));
        poll
    })
    .await
}

/// An operation that continues as a task.
struct ContinuedOperation {
    task: JoinHandle<()>,
    is_connected: Rc<Cell<bool>>,
}

impl Drop for ContinuedOperation {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A client's time limit, and the operation that its next one waits for.
#[derive(Default)]
pub(super) struct MongoLimit {
    timeout: Option<Duration>,
    kept: Option<ContinuedOperation>,
}

impl fmt::Debug for MongoLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoLimit").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl MongoLimit {
    pub(super) fn new(timeout: Option<Duration>) -> MongoLimit {
        MongoLimit { timeout, kept: None }
    }

    /// Waits for the driver within the time limit of operations.
    pub(super) async fn wait<T: 'static>(
        &mut self,
        work: impl Future<Output = Result<T, Error>> + 'static,
    ) -> Result<T, Outcome> {
        let Some(timeout) = self.timeout else {
            return work.await.map_err(|error| super::failure::failure(&error));
        };
        let deadline = Instant::now() + timeout;
        if let Some(kept) = &mut self.kept {
            if timeout_at(deadline, &mut kept.task).await.is_err() {
                if kept.is_connected.get() {
                    self.kept = None;
                }
                return Err(late(timeout));
            }
            self.kept = None;
        }
        let is_connected = Rc::new(Cell::new(false));
        let mut work = Box::pin(noting(Box::pin(work), Rc::clone(&is_connected)));
        match timeout_at(deadline, &mut work).await {
            Ok(result) => result.map_err(|error| super::failure::failure(&error)),
            Err(_) => {
                if !is_connected.get() {
                    let task = spawn_local(async { drop(work.await) });
                    self.kept = Some(ContinuedOperation { task, is_connected });
                }
                Err(late(timeout))
            }
        }
    }

    /// Aborts the continued operation before the driver is shut down.
    pub(super) fn close(&mut self) {
        self.kept = None;
    }
}

fn late(timeout: Duration) -> Outcome {
    let words = format!("no answer within {timeout:?} (mongodb.timeout)");
    Outcome::failed(Status::ServiceUnavailable, words)
}
