//! Connections that are opened again after they were lost.
//!
//! # The law
//!
//! * **When.** An operation that finds no connection, or one that is known to
//!   be over, opens it. Nothing is opened in the background.
//! * **One attempt at a time.** Clients that share a connection wait for the
//!   same attempt. An attempt that failed is followed by a pause of
//!   [`RECONNECT_PAUSE`]: from the failure to the start of the next attempt.
//!   The pause never grows, because a longer one would show as the server's
//!   time to recover. After a success there is no pause, unless the first
//!   operation could send nothing on the new connection ([`ConnectionFate::Unsent`]),
//!   which counts as a failed attempt.
//! * **Meanwhile** an operation waits for the attempt, pause included. It goes
//!   on when the attempt succeeds and fails with SERVICE_UNAVAILABLE and the
//!   attempt's reason when that fails. If its own time limit ends first, it
//!   fails with SERVICE_UNAVAILABLE, and the attempt is left to the next
//!   operation: where connecting takes longer than an operation may, there is
//!   a connection all the same after some of them.
//! * **Nothing is repeated.** An operation whose connection is lost fails.
//! * **What loses a connection:** an error for which [`Connector::failure`]
//!   says so, and a time limit that ends while the operation waits for its
//!   answer, which may still arrive and would be taken for the next one's
//!   ([`Connector::LATE`] where the driver distinguishes the answers).
//! * A client that fails on an older connection leaves a newer one open.

use serval_model::{Outcome, Status, StoreError};
use std::{
    cell::{Cell, RefCell},
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until, timeout_at},
};

/// Time from a failed attempt to connect to the next one, so that a server
/// that is down is not asked by every operation.
pub(crate) const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// State of a connection after a failed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionFate {
    /// The next operation uses it.
    Kept,
    /// Broken: no further operation can be sent.
    Lost,
    /// Broken before the operation was sent: the server has not seen it.
    Unsent,
}

/// A failed operation.
#[derive(Debug)]
pub(crate) struct OperationFailure {
    /// State of its connection.
    pub(crate) fate: ConnectionFate,
    /// Outcome that the client reports.
    pub(crate) outcome: Outcome,
}

/// The time limit of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimit {
    /// `None`: no limit.
    pub(crate) time: Option<Duration>,
    /// The property that sets it.
    pub(crate) property: &'static str,
}

impl TimeLimit {
    fn deadline(self) -> Option<Instant> {
        self.time.map(|time| Instant::now() + time)
    }

    fn no_connection(self) -> Outcome {
        self.exceeded("connection lost: no new one")
    }

    fn late(self, fate: ConnectionFate) -> Outcome {
        self.exceeded(if fate == ConnectionFate::Kept { "no answer" } else { "connection lost: no answer" })
    }

    fn exceeded(self, what: &str) -> Outcome {
        let words = format!("{what} within {:?} ({})", self.time.unwrap_or_default(), self.property);
        Outcome::failed(Status::ServiceUnavailable, words)
    }
}

/// Opens the connections of one store to one server, and classifies its errors
/// on them mean.
pub(crate) trait Connector {
    /// An open connection.
    type Connection: 'static;
    /// The driver's error.
    type Error;

    /// State of a connection after an operation's timeout.
    const LATE: ConnectionFate = ConnectionFate::Lost;

    /// The time limit of operations.
    fn limit(&self) -> TimeLimit;

    /// Opens a connection that is ready for operations. The connector limits
    /// the time that this takes.
    fn open(&self) -> impl Future<Output = Result<Self::Connection, StoreError>> + 'static;

    /// A second handle to a connection, for another client of the event loop;
    /// `None` if a connection has one user.
    fn share(connection: &Self::Connection) -> Option<Self::Connection>;

    /// Returns whether the next operation can be sent on it, as far as is
    /// known before it is sent.
    fn is_usable(_: &mut Self::Connection, _: &mut Context<'_>) -> bool {
        true
    }

    /// The outcome of an error, and whether it ends its connection.
    fn failure(&self, connection: &Self::Connection, error: &Self::Error) -> OperationFailure;

    /// Called with the connection of an operation that ran out of time.
    fn abandon(_: &Self::Connection) {}

    /// The time; tests have a virtual clock.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Ends at `at` by the same clock.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + 'static {
        sleep_until(at)
    }
}

/// Waits for a future until a deadline, if there is one.
async fn by<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => timeout_at(deadline, future).await.ok(),
    }
}

type Attempt<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>>>>;

/// The attempt to connect that is under way, or the pause before the next.
struct Attempts<C: Connector> {
    under_way: Option<Attempt<C::Connection>>,
    /// The end of the pause after a failure.
    next_at: Option<Instant>,
}

impl<C: Connector> Attempts<C> {
    /// Waits for the attempt that is under way, or for a new one. A caller
    /// that stops waiting leaves it under way.
    async fn wait(&mut self, connector: &C) -> Result<C::Connection, Outcome> {
        let under_way = self.under_way.get_or_insert_with(|| {
            let pause = self.next_at.take().map(|at| connector.sleep_until(at));
            let open = connector.open();
            Box::pin(async move {
                if let Some(pause) = pause {
                    pause.await;
                }
                open.await
            })
        });
        let result = under_way.as_mut().await;
        self.under_way = None;
        result.map_err(|error| {
            self.pause(connector);
            Outcome::failed(Status::ServiceUnavailable, error.problem)
        })
    }

    fn pause(&mut self, connector: &C) {
        self.next_at = Some(connector.now() + RECONNECT_PAUSE);
    }
}

/// A connection with its number among those of its slot.
type Numbered<T> = (T, u64);

/// A place for one connection, shared by clients of an event loop or one
/// client's own.
pub(crate) struct Slot<C: Connector> {
    connector: C,
    current: RefCell<Option<C::Connection>>,
    /// Number of connections opened so far: a client that failed on an older
    /// one must not close a newer one.
    opened: Cell<u64>,
    /// Locked by the client that opens the connection.
    attempts: Mutex<Attempts<C>>,
}

impl<C: Connector> fmt::Debug for Slot<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("opened", &self.opened).finish_non_exhaustive()
    }
}

impl<C: Connector> Slot<C> {
    /// A slot whose connection is opened by the first operation.
    pub(crate) fn empty(connector: C) -> Rc<Self> {
        let attempts = Mutex::new(Attempts { under_way: None, next_at: None });
        Rc::new(Slot { connector, current: RefCell::default(), opened: Cell::default(), attempts })
    }

    /// A slot with an open connection.
    pub(crate) async fn connect(connector: C) -> Result<Rc<Self>, StoreError> {
        let connection = connector.open().await?;
        let slot = Slot::empty(connector);
        *slot.current.borrow_mut() = Some(connection);
        slot.opened.set(1);
        Ok(slot)
    }

    /// Opens the slot's connections.
    pub(crate) fn connector(&self) -> &C {
        &self.connector
    }

    /// A handle to the open connection, or the connection itself if it cannot
    /// be shared.
    fn current(&self) -> Option<Numbered<C::Connection>> {
        let mut current = self.current.borrow_mut();
        let handle = C::share(current.as_ref()?).or_else(|| current.take());
        handle.map(|connection| (connection, self.opened.get()))
    }

    /// A handle to the connection, opened if there is none.
    async fn connection(&self) -> Result<Numbered<C::Connection>, Outcome> {
        if let Some(found) = self.current() {
            return Ok(found);
        }
        let mut attempts = self.attempts.lock().await;
        if let Some(found) = self.current() {
            return Ok(found);
        }
        let connection = attempts.wait(&self.connector).await?;
        self.opened.set(self.opened.get() + 1);
        *self.current.borrow_mut() = C::share(&connection);
        Ok((connection, self.opened.get()))
    }

    /// Closes the connection of this number, unless a newer one is open.
    fn close(&self, number: u64) {
        if self.opened.get() == number {
            *self.current.borrow_mut() = None;
        }
    }

    /// Makes the next attempt wait as after a failed one.
    fn pause(&self) {
        // A client that holds the lock is at an attempt of its own already.
        if let Ok(mut attempts) = self.attempts.try_lock() {
            attempts.pause(&self.connector);
        }
    }
}

/// One client's connection through a slot.
pub(crate) struct Reconnecting<C: Connector> {
    slot: Rc<Slot<C>>,
    held: Option<Numbered<C::Connection>>,
}

impl<C: Connector> fmt::Debug for Reconnecting<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.held.as_ref().map(|(_, number)| number);
        f.debug_struct("Reconnecting").field("slot", &self.slot).field("held", &number).finish()
    }
}

impl<C: Connector> Reconnecting<C> {
    /// A client of a slot.
    pub(crate) fn new(slot: Rc<Slot<C>>) -> Self {
        Reconnecting { slot, held: None }
    }

    /// A client with an open connection of its own.
    pub(crate) async fn connect(connector: C) -> Result<Self, StoreError> {
        let slot = Slot::connect(connector).await?;
        let held = slot.current();
        Ok(Reconnecting { slot, held })
    }

    /// Opens the connection.
    pub(crate) fn connector(&self) -> &C {
        self.slot.connector()
    }

    /// The connection that the next operation uses; `None` if that opens one.
    pub(crate) fn open(&self) -> Option<&C::Connection> {
        self.held.as_ref().map(|(connection, _)| connection)
    }

    /// Gives the connection up; the next operation opens another.
    pub(crate) fn close(&mut self) -> Option<C::Connection> {
        let (connection, number) = self.held.take()?;
        self.slot.close(number);
        Some(connection)
    }

    /// The connection that an operation uses, opened if there is none.
    async fn obtain<'a>(
        slot: &Slot<C>,
        held: &'a mut Option<Numbered<C::Connection>>,
        deadline: Option<Instant>,
    ) -> Result<&'a mut Numbered<C::Connection>, Outcome> {
        if let Some((connection, number)) = held
            && !poll_fn(|context| Poll::Ready(C::is_usable(connection, context))).await
        {
            slot.close(*number);
            *held = None;
        }
        match held {
            Some(found) => Ok(found),
            none => {
                let opened = by(deadline, slot.connection()).await;
                Ok(none.insert(opened.ok_or_else(|| slot.connector.limit().no_connection())??))
            }
        }
    }

    /// Does an operation's work on the connection, in the time that an
    /// operation has.
    pub(crate) async fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut C::Connection) -> Result<T, C::Error>,
    ) -> Result<T, Outcome> {
        self.try_run(work).await.map_err(|failure| failure.outcome)
    }

    /// As [`Reconnecting::run`], for callers that need the connection's fate.
    pub(crate) async fn try_run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut C::Connection) -> Result<T, C::Error>,
    ) -> Result<T, OperationFailure> {
        let (connector, limit) = (&self.slot.connector, self.slot.connector.limit());
        let deadline = limit.deadline();
        let before = self.held.as_ref().map(|(_, number)| *number);
        let (connection, number) = Self::obtain(&self.slot, &mut self.held, deadline)
            .await
            .map_err(|outcome| OperationFailure { fate: ConnectionFate::Lost, outcome })?;
        let failure = match by(deadline, work(connection)).await {
            Some(Ok(value)) => return Ok(value),
            Some(Err(error)) => connector.failure(connection, &error),
            None => {
                C::abandon(connection);
                OperationFailure { fate: C::LATE, outcome: limit.late(C::LATE) }
            }
        };
        let is_new = before != Some(*number);
        if failure.fate != ConnectionFate::Kept {
            self.close();
        }
        if failure.fate == ConnectionFate::Unsent && is_new {
            self.slot.pause();
        }
        Err(failure)
    }
}

/// Items shared by the clients of an event loop, created on demand: client `n` has item
/// `n` modulo the number of items.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    items: Mutex<Vec<T>>,
    next: Cell<usize>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Pool { items: Mutex::default(), next: Cell::default() }
    }
}

impl<T: Clone> Pool<T> {
    /// The next client's item of so many, opened if it is not there. A client
    /// has an item of its own if there are to be none.
    pub(crate) async fn next(
        &self,
        size: usize,
        open: impl AsyncFnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if size == 0 {
            return open().await;
        }
        let number = self.next.get() % size;
        self.next.set(self.next.get() + 1);
        // Held while connecting, so that no two clients open the same item.
        let mut items = self.items.lock().await;
        if items.len() <= number {
            items.push(open().await?);
        }
        Ok(items[number.min(items.len() - 1)].clone())
    }
}

#[cfg(test)]
mod tests;
