//! The opening of a connection that was lost, which may take longer than the
//! operation may that first needs it.

use serval_model::{Outcome, Status, StoreError};
use std::{fmt, future::Future, pin::Pin, time::Duration};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Time from an attempt to connect that failed to the next one, so that a
/// server that is down is not asked by every operation.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

type Attempt<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>>>>;

/// A place for an attempt to connect.
///
/// An operation that has waited as long as it may leaves the attempt where it
/// is, and the next one goes on with it: where connecting takes longer than an
/// operation may, there is a connection all the same after some of them.
pub(crate) struct Opening<T> {
    under_way: Option<Attempt<T>>,
    /// No attempt begins before this: the last one failed.
    next_at: Option<Instant>,
}

impl<T> Default for Opening<T> {
    fn default() -> Self {
        Opening { under_way: None, next_at: None }
    }
}

impl<T> fmt::Debug for Opening<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("under_way", &self.under_way.is_some()).finish_non_exhaustive()
    }
}

impl<T> Opening<T> {
    /// Waits for the attempt that is under way, or for one that `open` begins.
    /// Whoever stops waiting leaves it as it is.
    pub(crate) async fn wait<F>(&mut self, open: impl FnOnce() -> F) -> Result<T, Outcome>
    where
        F: Future<Output = Result<T, StoreError>> + 'static,
    {
        let under_way = self.under_way.get_or_insert_with(|| {
            let (begin_at, opening) = (self.next_at.take(), open());
            Box::pin(async move {
                if let Some(at) = begin_at {
                    sleep_until(at).await;
                }
                opening.await
            })
        });
        let result = under_way.as_mut().await;
        self.under_way = None;
        self.next_at = result.is_err().then(|| Instant::now() + RECONNECT_PAUSE);
        result.map_err(|error| Outcome::failed(Status::ServiceUnavailable, error.problem))
    }
}

/// When an operation that begins now has to be over.
pub(crate) fn deadline(limit: Option<Duration>) -> Option<Instant> {
    limit.map(|limit| Instant::now() + limit)
}

/// What a future brings by then.
pub(crate) async fn by<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => timeout_at(deadline, future).await.ok(),
    }
}

/// What an operation is told that has no connection when it has to be over.
pub(crate) fn no_connection(limit: Option<Duration>, property: &str) -> Outcome {
    let words = format!("connection lost: no new one within {:?} ({property})", limit.unwrap_or_default());
    Outcome::failed(Status::ServiceUnavailable, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, rc::Rc};

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("an event loop").block_on(test);
    }

    #[test]
    fn who_stops_waiting_leaves_the_attempt_to_the_next() {
        run(async {
            let begun = Rc::new(Cell::new(0));
            let gate = Rc::new(tokio::sync::Notify::new());
            let open = || {
                let (begun, gate) = (Rc::clone(&begun), Rc::clone(&gate));
                async move {
                    begun.set(begun.get() + 1);
                    gate.notified().await;
                    Ok(begun.get())
                }
            };
            let mut opening = Opening::default();
            for _ in 0..3 {
                assert_eq!(by(deadline(Some(Duration::ZERO)), opening.wait(open)).await, None);
            }
            gate.notify_one();
            assert_eq!(opening.wait(open).await, Ok(1));
            // The next attempt is another one.
            gate.notify_one();
            assert_eq!(opening.wait(open).await, Ok(2));
        });
    }

    #[test]
    fn attempts_are_apart() {
        run(async {
            let mut opening = Opening::<()>::default();
            let start = Instant::now();
            for _ in 0..3 {
                let refused = opening.wait(|| async { Err(StoreError::new("it", "refused")) }).await;
                assert_eq!(refused.unwrap_err().status, Status::ServiceUnavailable);
            }
            assert!(start.elapsed() >= 2 * RECONNECT_PAUSE);
        });
    }
}
