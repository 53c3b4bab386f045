//! BEGIN IMMEDIATE, and commits that meet another connection's lease, have their turns in the order
//! of arrival. A wait that ends in another way leaves no lease behind.

use crate::place::Place;
use rusqlite::{Connection, Error, ErrorCode};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicI32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel::Store;

const MINUTE: Duration = Duration::from_secs(60);

/// A server with a counter in a table.
struct Counter {
    place: Place,
    store: Store,
}

impl Counter {
    fn new() -> Counter {
        let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, n); INSERT INTO t VALUES(1, 0), (2, 0)";
        let place = Place::new(schema);
        let store = place.store();
        Counter { place, store }
    }

    fn open(&self) -> Connection {
        let connection = self.place.open("");
        connection.busy_timeout(MINUTE).unwrap();
        // The schema is known from now on.
        count(&connection);
        connection
    }

    /// Waits until so many requests wait at the server.
    fn await_waiting(&self, count: u64) {
        let begun = Instant::now();
        while self.waiting() != count {
            assert!(begun.elapsed() < MINUTE, "{} wait, not {count}", self.waiting());
            thread::yield_now();
        }
    }

    fn waiting(&self) -> u64 {
        self.store.status().unwrap().transactions.waiting
    }

    fn leases(&self) -> u64 {
        self.store.status().unwrap().transactions.leases
    }
}

fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT n FROM t WHERE id=1", [], |row| row.get(0)).unwrap()
}

fn is_busy(outcome: Result<(), Error>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error:?}");
}

#[test]
fn eight_writers_take_turns() {
    const WRITERS: usize = 8;
    const TURNS: usize = 20;
    let place = Counter::new();
    let turns = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (place, turns) = (&place, &turns);
            scope.spawn(move || {
                let connection = place.open();
                for turn in 0..TURNS {
                    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
                    turns.lock().unwrap().push(writer);
                    connection.execute_batch("UPDATE t SET n=n+1 WHERE id=1").unwrap();
                    if turn + 1 < TURNS {
                        // Until all others wait again, so that the next holder is known.
                        place.await_waiting(WRITERS as u64 - 1);
                    }
                    connection.execute_batch("COMMIT").unwrap();
                }
            });
        }
    });
    let turns = turns.into_inner().unwrap();
    for (at, others) in turns.windows(WRITERS).enumerate() {
        let mut others = others.to_vec();
        others.sort_unstable();
        assert_eq!(others, (0..WRITERS).collect::<Vec<_>>(), "from turn {at}: {turns:?}");
    }
    assert_eq!(count(&place.open()), (WRITERS * TURNS) as i64);
    assert_eq!((place.leases(), place.waiting()), (0, 0));
}

/// A statement of its own that meets a lease, and then loses a race with its holder, has its turn
/// after those that waited before, and before those that came later.
#[test]
fn a_statement_waits_for_its_turn_twice_at_most() {
    let place = Counter::new();
    let connections: Vec<Connection> = (0..4).map(|_| place.open()).collect();
    let [first, writer, second, third] = connections.try_into().unwrap();
    first.execute_batch("BEGIN IMMEDIATE; UPDATE t SET n=n+1 WHERE id=1").unwrap();
    thread::scope(|scope| {
        let place = &place;
        scope.spawn(move || writer.execute_batch("UPDATE t SET n=n+1 WHERE id=1").unwrap());
        place.await_waiting(1);
        scope.spawn(move || {
            second.execute_batch("BEGIN IMMEDIATE").unwrap();
            // The writer has lost to the first, and waits again.
            place.await_waiting(1);
            assert_eq!(count(&second), 1);
            scope.spawn(move || {
                third.execute_batch("BEGIN IMMEDIATE").unwrap();
                assert_eq!(count(&third), 3);
                third.execute_batch("COMMIT").unwrap();
            });
            place.await_waiting(2);
            second.execute_batch("UPDATE t SET n=n+1 WHERE id=1; COMMIT").unwrap();
        });
        place.await_waiting(2);
        first.execute_batch("COMMIT").unwrap();
    });
    assert_eq!((count(&place.open()), place.leases(), place.waiting()), (3, 0, 0));
}

/// A commit without a conflict needs one turn.
#[test]
fn a_commit_waits_for_its_turn() {
    let place = Counter::new();
    let (first, second, waiting) = (place.open(), place.open(), place.open());
    first.execute_batch("BEGIN IMMEDIATE; UPDATE t SET n=n+1 WHERE id=1").unwrap();
    waiting.execute_batch("BEGIN; UPDATE t SET n=5 WHERE id=2").unwrap();
    thread::scope(|scope| {
        let place = &place;
        let commits = scope.spawn(move || waiting.execute_batch("COMMIT").unwrap());
        place.await_waiting(1);
        let begins = scope.spawn(move || {
            second.execute_batch("BEGIN IMMEDIATE").unwrap();
            let n = second.query_row("SELECT n FROM t WHERE id=2", [], |row| row.get::<_, i64>(0));
            assert_eq!(n.unwrap(), 5);
        });
        place.await_waiting(2);
        first.execute_batch("COMMIT").unwrap();
        commits.join().unwrap();
        begins.join().unwrap();
    });
    assert_eq!((place.leases(), place.waiting()), (0, 0));
}

#[test]
fn without_a_busy_timeout_nothing_waits() {
    let place = Counter::new();
    let (holder, other) = (place.open(), place.open());
    other.busy_timeout(Duration::ZERO).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    for (before, sql) in [
        ("", "BEGIN IMMEDIATE"),
        ("", "UPDATE t SET n=n+1 WHERE id=2"),
        ("BEGIN; UPDATE t SET n=n+1 WHERE id=2", "COMMIT"),
    ] {
        other.execute_batch(before).unwrap();
        is_busy(other.execute_batch(sql));
        assert_eq!((place.leases(), place.waiting()), (1, 0), "{sql}");
    }
    // The transaction that could not commit is still open.
    assert!(!other.is_autocommit());
    holder.execute_batch("COMMIT").unwrap();
    other.execute_batch("COMMIT").unwrap();
}

static CALLS: AtomicI32 = AtomicI32::new(0);

#[test]
fn a_busy_handler_is_called_until_it_gives_up() {
    let place = Counter::new();
    let (holder, mut other) = (place.open(), place.open());
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    other.busy_handler(Some(|calls| CALLS.swap(calls + 1, SeqCst) == calls && calls < 3)).unwrap();
    for (before, sql) in [("", "BEGIN IMMEDIATE"), ("BEGIN; UPDATE t SET n=n+1 WHERE id=2", "COMMIT")] {
        CALLS.store(0, SeqCst);
        other.execute_batch(before).unwrap();
        is_busy(other.execute_batch(sql));
        assert_eq!(CALLS.load(SeqCst), 4, "{sql}");
        assert_eq!(place.leases(), 1);
    }
    other.execute_batch("ROLLBACK").unwrap();
    // Between its calls the request waits in the queue, and keeps its place there.
    other.busy_handler(Some(|_| true)).unwrap();
    let later = place.open();
    thread::scope(|scope| {
        let place = &place;
        let first = scope.spawn(move || {
            other.execute_batch("BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=1; COMMIT").unwrap();
        });
        place.await_waiting(1);
        let second = scope.spawn(move || {
            later.execute_batch("BEGIN IMMEDIATE").unwrap();
            later.execute_batch("COMMIT").unwrap();
        });
        place.await_waiting(2);
        holder.execute_batch("COMMIT").unwrap();
        first.join().unwrap();
        second.join().unwrap();
    });
    assert_eq!((place.leases(), place.waiting()), (0, 0));
}

#[test]
fn an_interrupted_wait_leaves_no_lease() {
    let place = Counter::new();
    let (holder, mut other) = (place.open(), place.open());
    for (before, sql) in [
        ("", "BEGIN IMMEDIATE"),
        ("", "UPDATE t SET n=n+1 WHERE id=2"),
        ("BEGIN; UPDATE t SET n=n+1 WHERE id=2", "COMMIT"),
    ] {
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        other.execute_batch(before).unwrap();
        let handle = other.get_interrupt_handle();
        thread::scope(|scope| {
            let other = &mut other;
            let waits = scope.spawn(move || other.execute_batch(sql));
            place.await_waiting(1);
            handle.interrupt();
            let error = waits.join().unwrap().unwrap_err();
            assert_eq!(error.sqlite_error_code(), Some(ErrorCode::OperationInterrupted), "{error:?}");
        });
        holder.execute_batch("COMMIT").unwrap();
        assert_eq!((place.leases(), place.waiting()), (0, 0), "{sql}");
        if !other.is_autocommit() {
            other.execute_batch("ROLLBACK").unwrap();
        }
    }
}

/// The commit is no message then, and cannot release the lease.
#[test]
fn a_commit_without_writes_leaves_no_lease() {
    let place = Counter::new();
    let connection = place.open();
    for sql in [
        "BEGIN IMMEDIATE; COMMIT",
        "BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=99; COMMIT",
        "BEGIN IMMEDIATE; SAVEPOINT s; UPDATE t SET n=1 WHERE id=1; ROLLBACK TO s; COMMIT",
        "BEGIN IMMEDIATE; SAVEPOINT s; CREATE TABLE other(a); ROLLBACK TO s; COMMIT",
        "BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=1; ROLLBACK",
    ] {
        connection.execute_batch(sql).unwrap();
        assert_eq!(place.leases(), 0, "{sql}");
    }
}

/// A program has leased the rows of a table, without SQL: the commit queues for these rows.
#[test]
fn a_commit_waits_for_a_lease_of_rows() {
    let counter = Counter::new();
    let connection = counter.open();
    let root = "SELECT rootpage FROM sqlite_master WHERE name='t'";
    let number: u32 = connection.query_row(root, [], |row| row.get(0)).unwrap();
    let database = counter.store.database("shop").unwrap();
    let rows = database.existing_map(&format!("sql/{number}")).unwrap().unwrap();
    let lease = database.lease::<&[u8]>(rows, .., MINUTE, MINUTE).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || connection.execute_batch("UPDATE t SET n=n+1 WHERE id=1").unwrap());
        counter.await_waiting(1);
        lease.release().unwrap();
    });
    assert_eq!((count(&counter.open()), counter.leases(), counter.waiting()), (1, 0, 0));
}
