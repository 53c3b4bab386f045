//! How long an operation may take, where there is a limit.
//!
//! The driver has no such limit: an operation is given up by dropping its
//! future. One that has a connection loses it, and another is opened. One that
//! still waits for a connection must not be dropped: its place in the pool's
//! queue would stay, and the driver, which serves one place whenever something
//! happens, would serve nobody but the dead for as long as operations go on
//! being given up. So such an operation goes on as a task of the loop, and its
//! client's next one waits behind it, as long as that may take itself. It may
//! yet be done, after it was counted as failed; of a client one at most is.

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
    /// Whether the operation that is being polled has been given a connection.
    static CONNECTED: Cell<bool> = const { Cell::new(false) };
}

/// What tells of connections as operations are given them, which happens
/// while they are polled.
pub(super) fn connections() -> EventHandler<CmapEvent> {
    EventHandler::callback(|event| {
        if matches!(event, CmapEvent::ConnectionCheckedOut(_)) {
            CONNECTED.set(true);
        }
    })
}

/// Polls an operation, and notes whether it has been given a connection.
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

/// An operation that goes on by itself.
struct Kept {
    task: JoinHandle<()>,
    is_connected: Rc<Cell<bool>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One client's limit, and the operation that its next one waits behind.
#[derive(Default)]
pub(super) struct Limit {
    timeout: Option<Duration>,
    kept: Option<Kept>,
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Limit {
    pub(super) fn new(timeout: Option<Duration>) -> Limit {
        Limit { timeout, kept: None }
    }

    /// Waits for the driver as long as an operation may take.
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
                    self.kept = Some(Kept { task, is_connected });
                }
                Err(late(timeout))
            }
        }
    }

    /// Gives up what is kept: the driver's client is about to go.
    pub(super) fn close(&mut self) {
        self.kept = None;
    }
}

fn late(timeout: Duration) -> Outcome {
    let words = format!("no answer within {timeout:?} (mongodb.timeout)");
    Outcome::failed(Status::ServiceUnavailable, words)
}
