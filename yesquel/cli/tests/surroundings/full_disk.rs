//! A full disk, simulated by a file size limit: writes fail with a clear message, reads continue,
//! and acknowledged data survives; the same through SQL.

use crate::{PROGRAM, support::Process};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use std::{
    path::Path,
    process::{Command, Output},
};

/// A server with a data folder and a socket; `limit` is a shell command that runs before it.
fn serve(folder: &Path, limit: &str) -> Process {
    let mut command = Command::new("bash");
    let script = format!("{limit} exec \"$0\" \"$@\"");
    command.arg("-c").arg(script).arg(PROGRAM).arg("serve").arg("--data").arg(folder.join("data"));
    let server = Process::spawn(command.arg("--listen").arg(folder.join("socket")));
    server.wait_until_ready();
    server
}

/// Limits the size of the files that a server writes, as a disk that is full; none: not any more. It
/// must have been started with a limit that is soft.
fn limit_files(server: &Process, bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let limit = Rlimit { current: bytes.or(maximum), maximum };
    prlimit(Some(server.id()), Resource::Fsize, limit).unwrap();
}

#[test]
fn on_a_full_disk_writes_fail_clearly_and_reads_continue() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let serve = |limit: &str| serve(place.path(), limit);
    let run = |command: &[&str]| -> Output {
        let (first, rest) = command.split_first().unwrap();
        let mut run = Command::new(PROGRAM);
        run.arg(first);
        if *first == "databases" {
            run.arg(rest[0]).arg(&socket).args(&rest[1..]);
        } else {
            run.arg(&socket).args(rest);
        }
        run.output().unwrap()
    };
    let fails = |command: &[&str]| {
        let output = run(command);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // Of 2,000 KiB.
    let mut server = serve("ulimit -S -f 2000;");
    assert!(run(&["databases", "create", "shop"]).status.success());
    let value = "x".repeat(30_000);
    let key = |number: u32| format!("key{number:04}");
    let mut taken = 0;
    let said = loop {
        let output = run(&["tree", "shop/stock", "put", &key(taken), &value]);
        if !output.status.success() {
            break String::from_utf8(output.stderr).unwrap();
        }
        taken += 1;
        assert!(taken < 100, "the disk does not fill");
    };
    // A write in flight waits for space, but not for long; later ones are refused at once.
    let unknown =
        "failed or filled up while it was written; whether the transaction was committed is not known";
    assert!(said.contains(unknown), "{said}");
    assert!(taken > 10);
    let all_is_there = |count: u32| {
        for number in 0..count {
            let output = run(&["tree", "shop/stock", "get", &key(number)]);
            assert!(output.status.success() && output.stdout.len() == 30_001, "{number} of {count}");
        }
    };
    let is_refused = |count: u32| {
        let said = fails(&["tree", "shop/stock", "put", "more", "v"]);
        assert!(said.contains("disk is full: it takes no writes until there is space"), "{said}");
        assert!(!said.contains("not known"), "{said}");
        all_is_there(count);
        let status = String::from_utf8(run(&["status"]).stdout).unwrap();
        let is_reported =
            status.contains("FULL for ") && status.contains("it cannot be written: File too large");
        assert!(is_reported, "{status}");
    };
    is_refused(taken);
    // The server goes on when there is space, and the write that did not fit is complete.
    limit_files(&server, None);
    let mut attempts = 0;
    while !run(&["tree", "shop/stock", "put", "more", "v"]).status.success() {
        attempts += 1;
        assert!(attempts < 10_000, "there is space, and the server takes no writes: {}", server.said());
    }
    all_is_there(taken + 1);
    let said = server.said();
    assert!(said.contains("the disk is full") && said.contains("the disk has space again"), "{said}");
    // A server may be stopped while its disk is full.
    limit_files(&server, Some(0));
    fails(&["tree", "shop/stock", "put", "last", &value]);
    is_refused(taken + 1);
    server.terminate();
    assert!(server.said().contains("its last records could not be written"), "{}", server.said());
    let _server = serve("");
    all_is_there(taken + 1);
    assert!(!run(&["tree", "shop/stock", "get", "last"]).status.success());
    assert!(run(&["tree", "shop/stock", "put", "more", "v"]).status.success());
}

#[test]
fn on_a_full_disk_sql_writes_fail_clearly_and_queries_continue() {
    assert!(yesquel_sqlite::is_linked());
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let serve = |limit: &str| serve(place.path(), limit);
    let server = serve("ulimit -S -f 1000;");
    let name = format!("file:yesquel://{}/shop", socket.display());
    let connection = Connection::open_with_flags(name, OpenFlags::default()).unwrap();
    connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, v)").unwrap();
    let insert = |id: i64| {
        connection.execute("INSERT INTO t VALUES(?1, 'name ' || ?1, zeroblob(30000))", [id]).map(drop)
    };
    let fails = |outcome: Result<(), Error>| match outcome {
        Err(Error::SqliteFailure(error, Some(words))) => {
            assert!(matches!(error.code, ErrorCode::SystemIoFailure | ErrorCode::DiskFull), "{error:?}");
            assert!(words.contains("filled up") || words.contains("is full"), "{words}");
        }
        outcome => panic!("{outcome:?}"),
    };
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let mut taken = 0;
    let last = loop {
        let outcome = insert(taken);
        if outcome.is_err() {
            break outcome;
        }
        taken += 1;
        assert!(taken < 100, "the disk does not fill");
    };
    fails(last);
    assert!(taken > 10);
    fails(insert(1_000));
    fails(connection.execute_batch("DELETE FROM t WHERE id < 5"));
    fails(connection.execute_batch("BEGIN; INSERT INTO t VALUES(1000, 'more', 0); COMMIT"));
    assert!(connection.is_autocommit());
    let all_is_there = || {
        assert_eq!(number(&format!("SELECT count(*) FROM t WHERE id < {taken}")), taken);
        assert_eq!(number("SELECT id FROM t WHERE name='name 7'"), 7);
        assert_eq!(number("SELECT count(*) FROM t WHERE id >= 1000"), 0);
    };
    all_is_there();
    // With space it goes on, and the insert that did not fit is complete.
    limit_files(&server, None);
    let mut attempts = 0;
    while insert(1_000).is_err() {
        attempts += 1;
        assert!(attempts < 100_000, "there is space, and the server takes no writes: {}", server.said());
    }
    assert_eq!(number("SELECT count(*) FROM t"), taken + 2);
    let whole: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
}
