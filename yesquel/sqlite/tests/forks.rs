//! `fork()`: a connection belongs to the process that opened it. In a child it fails, the child
//! opens its own, and the parent's is not harmed.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
#![expect(unsafe_code, reason = "fork() is the system's")]

use rusqlite::{Connection, Error, ErrorCode};
use std::{
    io::{PipeReader, PipeWriter, Read, Write, pipe},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};
use tempfile::TempDir;
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};

/// Time in seconds after which a child that hangs is killed.
const PATIENCE: u32 = 60;

/// Runs a closure in a child process.
#[must_use]
fn child(act: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child has this thread only, and continues to use the library, as children of
    // other programs do.
    match unsafe { libc::fork() } {
        0 => unsafe {
            libc::alarm(PATIENCE);
            let outcome = catch_unwind(AssertUnwindSafe(act));
            libc::_exit(i32::from(outcome.is_err()))
        },
        pid => pid,
    }
}

#[track_caller]
fn ends(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: it is a child of this process.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed or hangs");
}

/// Closes a connection of the parent's in a child that never returns.
fn close(connection: &Connection) {
    // SAFETY: it is neither used nor dropped afterwards.
    unsafe { ptr::read(connection) }.close().unwrap();
}

fn is_told(outcome: Result<(), Error>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::ApiMisuse), "{error:?}");
    assert!(error.to_string().contains("opened before fork()"), "{error}");
}

fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

/// Everything that a child may do with an inherited connection.
fn inherited(connection: &Connection, in_transaction: bool) {
    let mut prepared = connection.prepare("SELECT v FROM t").unwrap();
    is_told(prepared.exists([]).map(drop));
    drop(prepared);
    for sql in ["INSERT INTO t(v) VALUES(1)", "UPDATE t SET v=2", "CREATE TABLE u(a)", "DROP TABLE t"] {
        is_told(connection.execute_batch(sql));
    }
    if in_transaction {
        // The child ends its copy of the transaction, not the parent's.
        is_told(connection.execute_batch("COMMIT"));
    } else {
        is_told(connection.execute_batch("BEGIN IMMEDIATE"));
    }
    close(connection);
}

fn signal() -> (PipeReader, PipeWriter) {
    pipe().unwrap()
}

fn served() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("socket");
    let listen = ListenOptions { addresses: vec![Address::Unix(socket.clone())], ..ListenOptions::default() };
    let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
    let open = || Connection::open(format!("file:yesquel://{}/shop", socket.display())).unwrap();
    let connection = open();
    connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v)").unwrap();
    // As application servers do: opened, forked, and each child opens its own.
    let workers: Vec<_> = (0..8)
        .map(|number| {
            child(|| {
                if number % 2 == 0 {
                    inherited(&connection, false);
                }
                let own = open();
                for _ in 0..20 {
                    own.execute("INSERT INTO t(v) VALUES(?)", [number]).unwrap();
                }
                // A child that exits with all connections open.
                if number == 7 {
                    // SAFETY: it does not return.
                    unsafe { libc::exit(0) };
                }
            })
        })
        .collect();
    workers.into_iter().for_each(ends);
    assert_eq!(count(&connection), 160);
    // In the middle of a transaction, which keeps others from writing.
    let other = open();
    connection.execute_batch("BEGIN IMMEDIATE; INSERT INTO t(v) VALUES(100)").unwrap();
    ends(child(|| inherited(&connection, true)));
    let error = other.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&other), 161);
    // A child of a child.
    ends(child(|| {
        let own = open();
        own.execute("INSERT INTO t(v) VALUES(200)", []).unwrap();
        ends(child(|| {
            inherited(&own, false);
            inherited(&connection, false);
            open().execute("INSERT INTO t(v) VALUES(300)", []).unwrap();
        }));
        own.execute("INSERT INTO t(v) VALUES(200)", []).unwrap();
    }));
    assert_eq!(count(&connection), 164);
    drop((connection, other));
    drop(server);
}

fn embedded() {
    let folder = TempDir::new().unwrap();
    let name = format!("file:yesquel:{}", folder.path().join("data").display());
    let open = || Connection::open(&name).unwrap();
    let connection = open();
    connection
        .execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t(v) VALUES(0)")
        .unwrap();
    ends(child(|| {
        inherited(&connection, false);
        let message = Connection::open(&name).unwrap_err().to_string();
        assert!(message.contains("process"), "{message}");
    }));
    // After the parent has closed it a child can open it: no sibling keeps it, though it was forked
    // with it open.
    let ((mut closed, notify), (mut held, hold)) = (signal(), signal());
    let second = child(|| {
        assert_eq!(closed.read(&mut [0]).unwrap(), 1);
        open().execute("INSERT INTO t(v) VALUES(1)", []).unwrap();
    });
    let idle = child(|| {
        held.read_exact(&mut [0]).unwrap();
        // Closing the inherited one is harmless.
        close(&connection);
    });
    connection.execute("INSERT INTO t(v) VALUES(2)", []).unwrap();
    drop(connection);
    (&notify).write_all(b"!").unwrap();
    ends(second);
    let connection = open();
    assert_eq!(count(&connection), 3);
    (&hold).write_all(b"!").unwrap();
    ends(idle);
    connection.execute("INSERT INTO t(v) VALUES(3)", []).unwrap();
    drop(connection);
    assert_eq!(count(&open()), 4);
}

fn in_memory() {
    for name in ["yesquel:", "file:yesquel:?cache=shared&database=forks"] {
        let connection = Connection::open(name).unwrap();
        connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v)").unwrap();
        ends(child(|| {
            inherited(&connection, false);
            // Another one of the same name.
            let own = Connection::open(name).unwrap();
            own.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t(v) VALUES(1)")
                .unwrap();
            assert_eq!(count(&own), 1);
        }));
        assert_eq!(count(&connection), 0);
    }
}

/// All in one test, for a child has only the thread that forks, and would wait forever for locks of
/// other threads.
#[test]
fn a_connection_stays_with_its_process() {
    assert!(yesquel_sqlite::is_linked());
    in_memory();
    served();
    embedded();
}
