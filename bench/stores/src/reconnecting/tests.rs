//! The law, on a virtual clock: a sleep ends at once and sets the clock.

use super::*;
use std::{collections::VecDeque, future::pending};
use tokio::{join, sync::Notify};

/// A server whose attempts to connect have given results; after those it
/// takes connections. If `KEEPS`, a connection outlives an operation that ran
/// out of time.
#[derive(Clone, Default)]
struct Server<const KEEPS: bool = false>(Rc<State>);

#[derive(Default)]
struct State {
    results: RefCell<VecDeque<Result<(), &'static str>>>,
    is_shared: Cell<bool>,
    limit: Cell<Option<Duration>>,
    /// Time since the start.
    now: Cell<Duration>,
    /// Duration of an attempt.
    takes: Cell<Duration>,
    /// If there is one, attempts wait until it is notified.
    gate: RefCell<Option<Rc<Notify>>>,
    /// When attempts began, in ms.
    attempts: RefCell<Vec<u128>>,
    /// Whether connections are known to be over.
    is_over: Cell<bool>,
    abandoned: Cell<usize>,
}

/// The number of the attempt that opened it.
struct Connection(usize, Rc<State>);

thread_local!(static START: Instant = Instant::now());

impl<const KEEPS: bool> Connector for Server<KEEPS> {
    type Connection = Connection;
    type Error = ConnectionFate;

    const LATE: ConnectionFate = if KEEPS { ConnectionFate::Kept } else { ConnectionFate::Lost };

    fn limit(&self) -> TimeLimit {
        TimeLimit { time: self.0.limit.get(), property: "test.timeout" }
    }

    fn open(&self) -> impl Future<Output = Result<Connection, StoreError>> + 'static {
        let state = Rc::clone(&self.0);
        async move {
            state.attempts.borrow_mut().push(state.now.get().as_millis());
            let gate = state.gate.borrow().clone();
            if let Some(gate) = gate {
                gate.notified().await;
            }
            state.now.set(state.now.get() + state.takes.get());
            let result = state.results.borrow_mut().pop_front().unwrap_or(Ok(()));
            result.map_err(|problem| StoreError::new("it", problem))?;
            state.is_over.set(false);
            let number = state.attempts.borrow().len();
            Ok(Connection(number, state))
        }
    }

    fn share(connection: &Connection) -> Option<Connection> {
        let Connection(number, state) = connection;
        state.is_shared.get().then(|| Connection(*number, Rc::clone(state)))
    }

    fn is_usable(connection: &mut Connection, _: &mut Context<'_>) -> bool {
        !connection.1.is_over.get()
    }

    fn failure(&self, _: &Connection, fate: &ConnectionFate) -> OperationFailure {
        OperationFailure { fate: *fate, outcome: Outcome::error("it failed") }
    }

    fn abandon(connection: &Connection) {
        connection.1.abandoned.set(connection.0);
    }

    fn now(&self) -> Instant {
        START.with(|start| *start) + self.0.now.get()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + 'static {
        let state = Rc::clone(&self.0);
        async move { state.now.set(state.now.get().max(at - START.with(|start| *start))) }
    }
}

impl<const KEEPS: bool> Server<KEEPS> {
    fn attempts(&self) -> Vec<u128> {
        self.0.attempts.borrow().clone()
    }

    fn limit_to(&self, time: Option<Duration>) {
        self.0.limit.set(time);
    }

    fn client(&self) -> Reconnecting<Self> {
        Reconnecting::new(Slot::empty(self.clone()))
    }
}

/// An operation that succeeds; the number of its connection.
async fn number<const KEEPS: bool>(client: &mut Reconnecting<Server<KEEPS>>) -> usize {
    client.run(async |connection| Ok(connection.0)).await.expect("an operation")
}

/// An operation that fails with an error of this fate.
async fn fail<const KEEPS: bool>(client: &mut Reconnecting<Server<KEEPS>>, fate: ConnectionFate) {
    let failure = client.try_run(async |_| Err::<(), _>(fate)).await.expect_err("a failure");
    assert_eq!((failure.fate, failure.outcome.status), (fate, Status::Error));
}

/// The words of an operation that fails because the store is not available.
async fn unavailable<const KEEPS: bool>(client: &mut Reconnecting<Server<KEEPS>>) -> String {
    let outcome =
        client.run(async |_| pending::<Result<(), ConnectionFate>>().await).await.expect_err("a failure");
    assert_eq!(outcome.status, Status::ServiceUnavailable);
    outcome.message.expect("words").into()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("an event loop").block_on(test);
}

#[test]
fn failed_attempts_are_followed_by_a_pause_and_successful_ones_are_not() {
    run(async {
        let server: Server = Server::default();
        server.0.results.borrow_mut().extend([Err("refused"), Err("refused")]);
        server.0.takes.set(Duration::from_millis(30));
        let mut client = server.client();
        assert_eq!(unavailable(&mut client).await, "refused");
        assert_eq!(unavailable(&mut client).await, "refused");
        assert_eq!(number(&mut client).await, 3);
        assert_eq!(server.attempts(), [0, 130, 260]);
        fail(&mut client, ConnectionFate::Lost).await;
        assert_eq!(number(&mut client).await, 4);
        assert_eq!(server.attempts()[3..], [290]);
    });
}

#[test]
fn an_attempt_outlives_the_operation_that_started_it() {
    run(async {
        let (server, gate): (Server, _) = (Server::default(), Rc::new(Notify::new()));
        *server.0.gate.borrow_mut() = Some(Rc::clone(&gate));
        server.limit_to(Some(Duration::ZERO));
        let mut client = server.client();
        for _ in 0..3 {
            let words = unavailable(&mut client).await;
            assert_eq!(words, "connection lost: no new one within 0ns (test.timeout)");
        }
        server.limit_to(None);
        gate.notify_one();
        assert_eq!(number(&mut client).await, 1);
        // The next attempt is another one.
        fail(&mut client, ConnectionFate::Lost).await;
        gate.notify_one();
        assert_eq!(number(&mut client).await, 2);
        assert_eq!(server.attempts().len(), 2);
    });
}

#[test]
fn clients_that_share_a_connection_wait_for_one_attempt() {
    run(async {
        let (server, gate): (Server, _) = (Server::default(), Rc::new(Notify::new()));
        server.0.is_shared.set(true);
        *server.0.gate.borrow_mut() = Some(Rc::clone(&gate));
        let slot = Slot::empty(server.clone());
        let (mut first, mut second) = (Reconnecting::new(Rc::clone(&slot)), Reconnecting::new(slot));
        let opened = async { gate.notify_one() };
        assert_eq!(join!(number(&mut first), number(&mut second), opened), (1, 1, ()));
        assert_eq!(server.attempts().len(), 1);
    });
}

#[test]
fn a_client_that_fails_on_an_older_connection_leaves_the_newer_one_open() {
    run(async {
        let server: Server = Server::default();
        server.0.is_shared.set(true);
        let slot = Slot::connect(server.clone()).await.expect("a connection");
        let (mut first, mut second) = (Reconnecting::new(Rc::clone(&slot)), Reconnecting::new(slot));
        assert_eq!((number(&mut first).await, number(&mut second).await), (1, 1));
        fail(&mut first, ConnectionFate::Lost).await;
        assert_eq!(number(&mut first).await, 2);
        fail(&mut second, ConnectionFate::Lost).await;
        assert_eq!((number(&mut second).await, number(&mut first).await), (2, 2));
    });
}

#[test]
fn the_connector_decides_whether_an_error_loses_the_connection() {
    run(async {
        let server: Server = Server::default();
        let mut client = Reconnecting::connect(server.clone()).await.expect("a connection");
        fail(&mut client, ConnectionFate::Kept).await;
        assert_eq!(number(&mut client).await, 1);
        fail(&mut client, ConnectionFate::Lost).await;
        assert!(client.open().is_none());
        assert_eq!(number(&mut client).await, 2);
        fail(&mut client, ConnectionFate::Unsent).await;
        assert_eq!((number(&mut client).await, server.attempts()), (3, vec![0, 0, 0]));
    });
}

#[test]
fn a_new_connection_that_cannot_send_counts_as_a_failed_attempt() {
    run(async {
        let server: Server = Server::default();
        let mut client = server.client();
        fail(&mut client, ConnectionFate::Unsent).await;
        fail(&mut client, ConnectionFate::Unsent).await;
        assert_eq!(number(&mut client).await, 3);
        assert_eq!(server.attempts(), [0, 100, 200]);
    });
}

#[test]
fn a_connection_known_to_be_closed_is_replaced_before_the_operation() {
    run(async {
        let server: Server = Server::default();
        server.0.is_shared.set(true);
        let mut client = server.client();
        assert_eq!(number(&mut client).await, 1);
        server.0.is_over.set(true);
        assert_eq!(number(&mut client).await, 2);
    });
}

#[test]
fn a_late_answer_loses_the_connection_unless_answers_are_matched_to_requests() {
    run(async {
        let server: Server = Server::default();
        let mut client = server.client();
        number(&mut client).await;
        server.limit_to(Some(Duration::ZERO));
        let words = unavailable(&mut client).await;
        assert_eq!(words, "connection lost: no answer within 0ns (test.timeout)");
        assert_eq!(server.0.abandoned.get(), 1);
        assert_eq!(number(&mut client).await, 2);

        let server: Server<true> = Server::default();
        let mut client = server.client();
        number(&mut client).await;
        server.limit_to(Some(Duration::ZERO));
        assert_eq!(unavailable(&mut client).await, "no answer within 0ns (test.timeout)");
        assert_eq!(number(&mut client).await, 1);
    });
}

#[test]
fn a_pool_opens_its_items_once_and_hands_them_out_in_turn() {
    run(async {
        for (size, expected) in [(0, [0, 1, 2, 3, 4]), (1, [0; 5]), (2, [0, 1, 0, 1, 0])] {
            let (pool, opened) = (Pool::default(), Cell::new(0));
            let open = async || Ok(opened.replace(opened.get() + 1));
            let mut found = Vec::new();
            for _ in 0..5 {
                found.push(pool.next(size, open).await.expect("an item"));
            }
            assert_eq!(found, expected, "{size}");
        }
    });
}
