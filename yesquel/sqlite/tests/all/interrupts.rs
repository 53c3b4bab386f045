//! `sqlite3_interrupt` while a statement waits for a silent server or for other connections: it
//! ends at once, and the connection stays usable.

use crate::{place::Place, relay::Relay};
use rusqlite::{Connection, Error, ErrorCode};
use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// A server behind a relay.
struct Relayed {
    place: Place,
    relay: Relay,
}

impl Relayed {
    fn new() -> Relayed {
        let place = Place::new(SCHEMA);
        let relay = Relay::new(place.path("relay"), &place.socket());
        Relayed { place, relay }
    }

    /// Opens a connection to the server's own socket, or to the relay.
    fn open(&self, by: &str) -> Connection {
        let socket = self.place.path(by);
        // The timeout is far above the duration of a test.
        Connection::open(format!("file:yesquel://{}/shop?timeout=60000", socket.display())).unwrap()
    }
}

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, v);
    CREATE TABLE log(id INTEGER PRIMARY KEY AUTOINCREMENT, v);
    INSERT INTO t VALUES(1, 'one', 10), (2, 'two', 20), (3, 'three', 30);";

fn code(error: &Error) -> ErrorCode {
    error.sqlite_error_code().unwrap_or_else(|| panic!("{error:?}"))
}

fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM t WHERE v < 1000", [], |row| row.get(0)).unwrap()
}

/// Statements with requests; a few in transactions, in which the second one waits.
const STATEMENTS: [(&str, &str); 14] = [
    ("", "SELECT v FROM t WHERE id=2"),
    ("", "SELECT sum(v) FROM t"),
    ("", "SELECT v FROM t WHERE name='two'"),
    ("", "PRAGMA user_version"),
    ("", "UPDATE t SET v=v WHERE id=2"),
    ("", "INSERT INTO t(v) VALUES(2000)"),
    ("", "INSERT INTO log(v) VALUES(2000)"),
    ("", "CREATE TABLE other(a)"),
    ("", "BEGIN IMMEDIATE"),
    // More than the socket's buffer.
    ("", "INSERT INTO t(v) VALUES(zeroblob(8000000))"),
    ("BEGIN", "SELECT v FROM t WHERE id=3"),
    ("BEGIN; UPDATE t SET v=5 WHERE id=1", "UPDATE t SET v=6 WHERE id=3"),
    ("BEGIN; UPDATE t SET v=5 WHERE id=1", "COMMIT"),
    ("BEGIN IMMEDIATE; UPDATE t SET v=5 WHERE id=1", "COMMIT"),
];

/// Runs a statement on a thread of its own, and interrupts it while it waits.
fn interrupted(place: &Relayed, connection: Connection, sql: &'static str) -> Connection {
    let handle = connection.get_interrupt_handle();
    place.relay.shut();
    let waiting = thread::spawn(move || {
        let outcome = connection.prepare(sql).and_then(|mut statement| {
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        });
        (connection, outcome)
    });
    place.relay.wait_for_request();
    handle.interrupt();
    let (connection, outcome) = waiting.join().unwrap();
    let error = outcome.expect_err(sql);
    // A timeout has another code.
    assert_eq!(code(&error), ErrorCode::OperationInterrupted, "{sql}: {error:?}");
    place.relay.open();
    connection
}

#[test]
fn a_statement_that_waits_for_a_silent_server_is_interrupted() {
    let place = Relayed::new();
    for knows in [true, false] {
        for (before, sql) in STATEMENTS {
            let connection = place.open("relay");
            if knows {
                assert_eq!(count(&connection), 3);
            }
            connection.execute_batch(before).unwrap();
            let connection = interrupted(&place, connection, sql);
            // As in SQLite, an interrupted write rolls its transaction back.
            let stays = before == "BEGIN";
            assert_eq!(connection.is_autocommit(), !stays, "{before}; {sql}");
            if stays {
                connection.execute_batch("COMMIT").unwrap();
            }
            assert_eq!(count(&connection), 3, "{sql}");
            connection.execute_batch("UPDATE t SET v=10 WHERE id=1; UPDATE t SET v=30 WHERE id=3").unwrap();
        }
    }
}

/// One thread receives for all threads that share a connection to the server. The test first
/// interrupts another thread, then the receiving one.
#[test]
fn one_of_several_waiting_threads_is_interrupted() {
    let place = Relayed::new();
    let connections: Vec<Connection> = (0..4).map(|_| place.open("relay")).collect();
    connections.iter().for_each(|connection| assert_eq!(count(connection), 3));
    let handles: Vec<_> = connections.iter().map(Connection::get_interrupt_handle).collect();
    place.relay.shut();
    let (ended, ends) = mpsc::channel();
    let running: Vec<Arc<AtomicBool>> = connections.iter().map(|_| Arc::default()).collect();
    let threads: Vec<_> = (connections.into_iter().enumerate())
        .map(|(at, connection)| {
            let (ended, running) = (ended.clone(), Arc::clone(&running[at]));
            let query = move || {
                running.store(true, Relaxed);
                connection.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))
            };
            thread::spawn(move || ended.send((at, query())).unwrap())
        })
        .collect();
    place.relay.wait_for_request();
    for at in [3, 0, 1] {
        // An interrupt before the statement begins has no effect: repeat.
        let (connection, outcome) = loop {
            handles[at].interrupt();
            if let Ok(ended) = ends.recv_timeout(Duration::from_millis(1)) {
                break ended;
            }
        };
        assert_eq!(connection, at);
        assert_eq!(code(&outcome.unwrap_err()), ErrorCode::OperationInterrupted);
    }
    place.relay.open();
    let (connection, outcome) = ends.recv().unwrap();
    assert_eq!((connection, outcome.unwrap()), (2, 3));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The progress handler counts instructions. None run during a wait, so that it does not limit the
/// wait.
#[test]
fn the_progress_handler_is_not_called_during_a_wait_for_a_server() {
    let place = Relayed::new();
    let mut connection = place.open("relay");
    assert_eq!(count(&connection), 3);
    connection.progress_handler(1_000_000, Some(|| true)).unwrap();
    place.relay.shut();
    let waits = thread::spawn(move || count(&connection));
    place.relay.wait_for_request();
    // The wait checks for cancellation every 50 ms, hence more than once by now.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        thread::yield_now();
    }
    place.relay.open();
    assert_eq!(waits.join().unwrap(), 3);
}

#[test]
fn a_wait_for_another_transaction_is_interrupted() {
    let place = Relayed::new();
    let (holder, waiting) = (place.open("server"), place.open("server"));
    assert_eq!(count(&waiting), 3);
    waiting.busy_timeout(Duration::from_secs(600)).unwrap();
    for (before, sql) in [
        ("", "BEGIN IMMEDIATE"),
        ("", "UPDATE t SET v=21 WHERE id=2"),
        ("BEGIN; UPDATE t SET v=21 WHERE id=2", "COMMIT"),
    ] {
        waiting.execute_batch(before).unwrap();
        holder.execute_batch("BEGIN IMMEDIATE; UPDATE t SET v=10 WHERE id=1").unwrap();
        let handle = waiting.get_interrupt_handle();
        let done = AtomicBool::new(false);
        let error = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    handle.interrupt();
                    thread::yield_now();
                }
            });
            let mut outcome = waiting.execute_batch(sql);
            // An interrupt before the wait is not counted.
            outcome = outcome.map_err(|error| (done.store(true, Relaxed), error).1);
            done.store(true, Relaxed);
            outcome.expect_err(sql)
        });
        assert_eq!(code(&error), ErrorCode::OperationInterrupted, "{sql}: {error:?}");
        holder.execute_batch("COMMIT").unwrap();
        if !waiting.is_autocommit() {
            waiting.execute_batch("ROLLBACK").unwrap();
        }
        waiting.execute_batch("UPDATE t SET v=20 WHERE id=2").unwrap();
    }
}

/// A server that accepts connections and sends nothing.
#[test]
fn an_attach_that_waits_for_a_greeting_is_interrupted() {
    assert!(yesquel_sqlite::is_linked());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connection = Connection::open("yesquel:").unwrap();
    let handle = connection.get_interrupt_handle();
    let attach = format!("ATTACH 'file:yesquel://127.0.0.1:{port}/shop?timeout=60000' AS other");
    let waiting = thread::spawn(move || (connection.execute_batch(&attach), connection));
    let silent = listener.accept().unwrap();
    handle.interrupt();
    let (outcome, connection) = waiting.join().unwrap();
    let error = outcome.unwrap_err();
    assert_eq!(code(&error), ErrorCode::OperationInterrupted, "{error:?}");
    connection.execute_batch("CREATE TABLE t(a)").unwrap();
    drop(silent);
}
