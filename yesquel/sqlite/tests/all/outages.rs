//! Servers that stop, restart, are replaced, or have lost the database: statements fail with a
//! clear message within the timeout, never with an empty result, and the connection stays usable.

use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};
use tempfile::TempDir;
use yesquel::{Address, Denial, EngineSettings, ListenOptions, LogOptions, Server, Store};
use yesquel_wire::greeting::Welcome;

/// In milliseconds.
const TIMEOUT: u64 = 300;

/// Server that can be stopped and started.
struct Place {
    /// Dropped before its folder.
    server: Option<Server>,
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        assert!(yesquel_sqlite::is_linked());
        let mut place = Place { server: None, folder: TempDir::new().unwrap() };
        place.start();
        place.open().execute_batch(SCHEMA).unwrap();
        place
    }

    fn start(&mut self) {
        let socket = Address::Unix(self.folder.path().join("socket"));
        let listen = ListenOptions { addresses: vec![socket], ..ListenOptions::default() };
        let data = self.folder.path().join("data");
        let server = Server::start(Some(&data), EngineSettings::default(), LogOptions::default(), listen);
        self.server = Some(server.unwrap());
    }

    fn stop(&mut self) {
        self.server = None;
    }

    fn open(&self) -> Connection {
        self.open_with(TIMEOUT, "yes")
    }

    fn open_with(&self, timeout: u64, watch: &str) -> Connection {
        let socket = self.folder.path().join("socket");
        open(&format!("file:yesquel://{}/shop?timeout={timeout}&watch={watch}", socket.display())).unwrap()
    }
}

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, v);
    INSERT INTO t VALUES(1, 'one', 10), (2, 'two', 20), (3, 'three', 30);
    PRAGMA user_version = 7;";

const ROWS: [&str; 3] = ["Integer(10)", "Integer(20)", "Integer(30)"];

fn open(name: &str) -> Result<Connection, String> {
    Connection::open_with_flags(name, OpenFlags::default()).map_err(|error| error.to_string())
}

/// Returns the rows of a statement as text.
fn rows(connection: &Connection, sql: &str) -> Result<Vec<String>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(format!("{:?}", row.get_ref(0)?));
    }
    Ok(all)
}

fn code(error: &Error) -> ErrorCode {
    match error {
        Error::SqliteFailure(error, _) | Error::SqlInputError { error, .. } => error.code,
        error => panic!("{error:?}"),
    }
}

/// Statements, and the number of rows that they change.
const STATEMENTS: [(&str, usize); 13] = [
    ("SELECT v FROM t WHERE id=2", 1),
    ("SELECT v FROM t WHERE id=99", 0),
    ("SELECT v FROM t WHERE name='two'", 1),
    ("SELECT v FROM t WHERE id BETWEEN 1 AND 2", 2),
    ("SELECT v FROM t ORDER BY id DESC LIMIT 1", 1),
    ("SELECT count(*) FROM t WHERE name >= 'three'", 1),
    ("SELECT name FROM sqlite_schema WHERE name='t'", 1),
    ("PRAGMA user_version", 1),
    ("UPDATE t SET v=v+1 WHERE id=2", 0),
    ("UPDATE t SET v=v WHERE name='nobody'", 0),
    ("INSERT INTO t(name) VALUES('four')", 0),
    ("DELETE FROM t WHERE name='four'", 0),
    ("CREATE TABLE IF NOT EXISTS other(a)", 0),
];

#[test]
fn an_unreachable_server_is_an_error_and_not_an_empty_table() {
    let mut place = Place::new();
    // With a cached schema and prepared statements, and without.
    for knows in [true, false] {
        let connection = place.open();
        let all = || STATEMENTS.iter().map(|(sql, _)| rows(&connection, sql));
        if knows {
            all().for_each(|outcome| drop(outcome.unwrap()));
        }
        place.stop();
        for (outcome, (sql, _)) in all().zip(STATEMENTS) {
            let error = outcome.expect_err(sql);
            assert!(
                matches!(code(&error), ErrorCode::SystemIoFailure | ErrorCode::CannotOpen),
                "{sql}: {error:?}"
            );
            assert!(error.to_string().contains("connection"), "{sql}: {error}");
            assert!(!error.to_string().contains("no answer"), "{sql} waits for the timeout: {error}");
            // The message names the server once.
            let socket = place.folder.path().join("socket");
            assert_eq!(error.to_string().matches(socket.to_str().unwrap()).count(), 1, "{sql}: {error}");
            assert!(connection.is_autocommit());
        }
        place.start();
        for (outcome, (sql, count)) in all().zip(STATEMENTS) {
            assert_eq!(outcome.unwrap().len(), count, "{sql}");
        }
        assert_eq!(rows(&connection, "PRAGMA user_version").unwrap(), ["Integer(7)"]);
        assert_eq!(rows(&connection, "PRAGMA integrity_check").unwrap().len(), 1);
    }
}

/// The connection ended while idle: the next statement is repeated without an error.
#[test]
fn the_first_statement_after_a_restart_succeeds() {
    let mut place = Place::new();
    let connection = place.open();
    for _ in 0..2 {
        for (sql, count) in STATEMENTS {
            assert_eq!(rows(&connection, sql).unwrap().len(), count);
            rows(&connection, "DELETE FROM t WHERE name='four'").unwrap();
            place.stop();
            place.start();
            assert_eq!(rows(&connection, sql).unwrap().len(), count, "{sql}");
            rows(&connection, "DELETE FROM t WHERE name='four'").unwrap();
        }
        // A connection that has just verified its schema commits at once.
        rows(&connection, "INSERT INTO t(v) VALUES(40)").unwrap();
        place.stop();
        place.start();
        rows(&connection, "INSERT INTO t(v) VALUES(50)").unwrap();
        assert_eq!(rows(&connection, "SELECT v FROM t WHERE name IS NULL").unwrap().len(), 2);
        rows(&connection, "DELETE FROM t WHERE name IS NULL").unwrap();
        // A transaction without a request yet, and the statements that begin one.
        connection.execute_batch("BEGIN").unwrap();
        place.stop();
        place.start();
        connection.execute_batch("INSERT INTO t(v) VALUES(40); COMMIT").unwrap();
        place.stop();
        place.start();
        connection.execute_batch("BEGIN IMMEDIATE; DELETE FROM t WHERE v=40; COMMIT").unwrap();
    }
    assert_eq!(rows(&connection, "SELECT id FROM t ORDER BY id").unwrap().len(), 3);
}

/// The leaves that a connection reads without asking are not those of a server that has ended.
#[test]
fn a_restart_ends_what_is_read_without_asking() {
    let mut place = Place::new();
    let connection = place.open();
    let read = || rows(&connection, "SELECT v FROM t WHERE id=3").unwrap();
    for round in 40..50 {
        (0..70).for_each(|_| drop(read()));
        place.stop();
        place.start();
        let sql = format!("UPDATE t SET v={round} WHERE id=3");
        assert!(rows(&place.open_with(TIMEOUT + 1, "no"), &sql).is_ok());
        assert_eq!(read(), [format!("Integer({round})")]);
    }
}

#[test]
fn a_transaction_during_a_restart_fails() {
    let mut place = Place::new();
    // Otherwise it may have read the whole table.
    let connection = place.open_with(TIMEOUT, "no");
    for is_noticed in [true, false] {
        for sql in ["SELECT v FROM t WHERE id=3", "UPDATE t SET v=99 WHERE id=3", "COMMIT"] {
            connection.execute_batch("BEGIN; UPDATE t SET v=0 WHERE id=2").unwrap();
            place.stop();
            if !is_noticed {
                place.start();
            }
            let error = rows(&connection, sql).expect_err(sql);
            assert_eq!(code(&error), ErrorCode::SystemIoFailure, "{sql}: {error:?}");
            assert!(error.to_string().contains("connection"), "{sql}: {error}");
            // As after a disk failure, SQLite has rolled back, and reports that to a second
            // ROLLBACK.
            assert!(connection.is_autocommit(), "{sql}");
            let message = rows(&connection, "ROLLBACK").unwrap_err().to_string();
            assert!(message.contains("no transaction is active"), "{message}");
            if is_noticed {
                place.start();
            }
            assert_eq!(rows(&connection, "SELECT v FROM t ORDER BY id").unwrap(), ROWS, "{sql}");
            connection.execute_batch("BEGIN; UPDATE t SET v=20 WHERE id=2; COMMIT").unwrap();
        }
    }
}

#[test]
fn if_exists_and_if_not_exists_read_the_current_schema() {
    let place = Place::new();
    let (connection, other) = (place.open(), place.open());
    for sql in ["CREATE TABLE IF NOT EXISTS t(id)", "DROP TABLE IF EXISTS u"] {
        connection.execute_batch(sql).unwrap();
    }
    other.execute_batch("DROP TABLE t; CREATE TABLE u(a)").unwrap();
    connection.execute_batch("CREATE TABLE IF NOT EXISTS t(id)").unwrap();
    assert_eq!(rows(&connection, "SELECT name FROM sqlite_schema WHERE name='t'").unwrap().len(), 1);
    other.execute_batch("INSERT INTO t VALUES(1); DROP TABLE t; DROP TABLE u").unwrap();
    connection.execute_batch("DROP TABLE IF EXISTS t").unwrap();
    other.execute_batch("CREATE TABLE u(a)").unwrap();
    connection.execute_batch("DROP TABLE IF EXISTS u").unwrap();
    assert_eq!(rows(&other, "SELECT name FROM sqlite_schema").unwrap().len(), 0);
}

/// How often a statement has asked whether to wait.
static WAITS: AtomicU32 = AtomicU32::new(0);

/// Lets a statement wait twice.
fn waits_twice(before: i32) -> bool {
    WAITS.fetch_add(1, SeqCst);
    before < 2
}

#[test]
fn a_dropped_database_is_an_error_and_not_an_empty_one() {
    let place = Place::new();
    let mut connection = place.open();
    // The wait for its return ends when the application says so.
    connection.busy_handler(Some(waits_twice)).unwrap();
    STATEMENTS.iter().for_each(|(sql, _)| drop(rows(&connection, sql).unwrap()));
    let store = Store::of_host(place.server.as_ref().unwrap().host().clone());
    store.drop_database("shop").unwrap();
    for (sql, _) in STATEMENTS {
        WAITS.store(0, SeqCst);
        let error = rows(&connection, sql).expect_err(sql);
        assert_eq!(code(&error), ErrorCode::SystemIoFailure, "{sql}: {error:?}");
        assert!(error.to_string().contains("the database is not there any more"), "{sql}: {error}");
        assert!(connection.is_autocommit());
        let waits = WAITS.load(SeqCst);
        assert!(waits <= 3, "{sql} waits {waits} times");
    }
    // A database of the same name is another one.
    let other = place.open();
    other.execute_batch(SCHEMA).unwrap();
    assert_eq!(rows(&other, "SELECT v FROM t WHERE id=2").unwrap(), ["Integer(20)"]);
    let message = rows(&connection, "SELECT v FROM t WHERE id=2").unwrap_err().to_string();
    assert!(message.contains("the database is not there any more"), "{message}");
}

#[test]
fn a_server_of_another_release_is_reported_with_its_version() {
    assert!(yesquel_sqlite::is_linked());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        assert_ne!(stream.read(&mut [0; 4096]).unwrap(), 0);
        stream.write_all(&Welcome::Refused(Denial::Version { lowest: 7, highest: 9 }).encode()).unwrap();
        // Until the client has disconnected.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let message = open(&format!("file:yesquel://127.0.0.1:{port}/shop")).unwrap_err();
    assert!(message.contains("versions 7 to 9") && message.contains("the same release"), "{message}");
    server.join().unwrap();
}

#[test]
fn exceeded_limits_are_reported() {
    let place = Place::new();
    let connection = place.open();
    let socket = place.folder.path().join("socket");
    let long = "n".repeat(yesquel::NAME_BYTES_MAX + 1);
    let message = open(&format!("file:yesquel://{}/{long}", socket.display())).unwrap_err();
    assert!(message.contains("cannot be a name"), "{message}");
    let name = format!("file:yesquel://{}/shop?speed=9", socket.display());
    let message = connection.execute("ATTACH ? AS other", [name]).unwrap_err().to_string();
    assert!(message.contains("there is no such option"), "{message}");
    let error = connection.execute("INSERT INTO t(name) VALUES(zeroblob(1000000001))", []).unwrap_err();
    assert_eq!(code(&error), ErrorCode::TooBig, "{error:?}");
    assert_eq!(rows(&connection, "SELECT count(*) FROM t").unwrap(), ["Integer(3)"]);
}

/// Returns the message of the connection's last error.
#[allow(unsafe_code, reason = "rusqlite has no call for it")]
fn words(connection: &Connection) -> String {
    // SAFETY: The connection is open, and the message is copied before the next call.
    unsafe {
        let words = std::ffi::CStr::from_ptr(rusqlite::ffi::sqlite3_errmsg(connection.handle()));
        words.to_string_lossy().into_owned()
    }
}

/// Calls without a statement have messages, too.
#[test]
fn copies_and_blobs_report_errors() {
    let mut place = Place::new();
    let mut plain = Connection::open_in_memory().unwrap();
    plain.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES(zeroblob(1000000)), (2)").unwrap();
    let mut connection = place.open();
    let many = "INSERT INTO t(v) SELECT zeroblob(1000000) FROM json_each('[1,2,3,4,5,6,7,8,9]')";
    connection.execute_batch(many).unwrap();
    for is_to_server in [true, false] {
        let (from, to) = if is_to_server { (&plain, &mut connection) } else { (&connection, &mut plain) };
        let copy = rusqlite::backup::Backup::new(from, to).unwrap();
        copy.step(1).unwrap();
        place.stop();
        let Error::SqliteFailure(error, _) = copy.step(-1).unwrap_err() else { panic!() };
        drop(copy);
        assert_eq!(error.code, ErrorCode::SystemIoFailure);
        let message = yesquel_sqlite::last_message(error.extended_code).unwrap();
        assert!(message.contains("connection"), "{message}");
        assert_eq!(words(if is_to_server { &connection } else { &plain }), message);
        place.start();
    }
    let mut blob = connection.blob_open("main", "t", "v", 7, false).unwrap();
    place.stop();
    assert!(blob.write_at(b"1", 900_000).and_then(|()| blob.close()).is_err());
    place.start();
    assert_eq!(rows(&connection, "SELECT length(v) FROM t WHERE id=7").unwrap(), ["Integer(1000000)"]);
}

/// The application need not know about requests sent before the commit.
#[test]
fn data_sent_before_a_failed_commit_is_not_committed() {
    let mut place = Place::new();
    let socket = place.folder.path().join("socket");
    let connection =
        open(&format!("file:yesquel://{}/shop?timeout={TIMEOUT}&ahead=1000", socket.display())).unwrap();
    let more =
        "INSERT INTO made SELECT value, zeroblob(100) FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14]')";
    for is_entered in [true, false] {
        connection.execute_batch("BEGIN; CREATE TABLE made(a, b)").unwrap();
        if is_entered {
            connection.execute_batch(more).unwrap();
        }
        place.stop();
        let error = connection.execute_batch(more).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("connection") && !message.contains("not known"), "{message}");
        assert_eq!((code(&error), connection.is_autocommit()), (ErrorCode::SystemIoFailure, true));
        assert_eq!(yesquel_sqlite::last_error_kind(), Some(yesquel_sqlite::SqlErrorKind::Unreachable));
        place.start();
        assert_eq!(rows(&connection, "SELECT name FROM sqlite_schema WHERE name='made'").unwrap().len(), 0);
    }
}
