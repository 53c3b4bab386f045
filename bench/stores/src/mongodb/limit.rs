//! How long an operation may take, where there is a limit.
//!
//! The driver has no such limit: an operation is given up by dropping its
//! future. One that has a connection loses it, and another is opened. One that
//! still waits for a connection must not be dropped: its place in the pool's
//! queue would stay, and the driver, which serves one place whenever something
//! happens, would serve nobody but the dead for as long as operations go on
//! being given up. So such an operation is kept, and its client's next one
//! waits behind it, as long as that may take itself. It may yet be done, after
//! it was counted as failed; of a client one at most is.

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
    time::Duration,
};
use tokio::time::{Instant, timeout_at};

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

/// An operation in the driver's hands.
struct Work<T> {
    future: Pin<Box<dyn Future<Output = Result<T, Error>>>>,
    is_connected: bool,
}

impl<T> Work<T> {
    async fn until(&mut self, deadline: Instant) -> Option<Result<T, Error>> {
        let polled = poll_fn(|context| {
            CONNECTED.set(self.is_connected);
            let poll = self.future.as_mut().poll(context);
            self.is_connected = CONNECTED.replace(false);
            poll
        });
        timeout_at(deadline, polled).await.ok()
    }
}

/// One client's limit, and the operation that its next one waits behind.
#[derive(Default)]
pub(super) struct Limit {
    timeout: Option<Duration>,
    kept: Option<Work<()>>,
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
            if kept.until(deadline).await.is_none() {
                if kept.is_connected {
                    self.kept = None;
                }
                return Err(late(timeout));
            }
            self.kept = None;
        }
        let mut work = Work { future: Box::pin(work), is_connected: false };
        match work.until(deadline).await {
            Some(result) => result.map_err(|error| super::failure::failure(&error)),
            None => {
                if !work.is_connected {
                    let Work { future, is_connected } = work;
                    self.kept =
                        Some(Work { future: Box::pin(async { future.await.map(drop) }), is_connected });
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
