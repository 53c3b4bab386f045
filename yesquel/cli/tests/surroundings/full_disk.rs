//! A full disk, simulated by a file size limit: writes fail with a clear message, reads continue,
//! and acknowledged data survives; the same through SQL.

use crate::{PROGRAM, support::Process};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
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
    let mut server = serve("ulimit -f 2000;");
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
    // Writes in flight may be on disk or not; later ones are not.
    let lost = "failed or filled up while it was written; whether the transaction was committed is not known";
    assert!(said.contains(lost), "{said}");
    let said = fails(&["tree", "shop/stock", "put", "more", "v"]);
    assert!(said.contains("has failed or is full: it takes no writes until it is restarted"), "{said}");
    assert!(!said.contains("not known"), "{said}");
    assert!(taken > 10);
    let all_is_there = || {
        for number in 0..taken {
            let output = run(&["tree", "shop/stock", "get", &key(number)]);
            assert!(output.status.success() && output.stdout.len() == 30_001, "{number} of {taken}");
        }
    };
    all_is_there();
    let status = run(&["status"]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.contains("FAILED: ") && status.contains("it cannot be written: File too large"),
        "{status}"
    );
    server.terminate();
    assert!(server.said().contains("the disk has failed"), "{}", server.said());
    // With free space it continues.
    let _server = serve("");
    all_is_there();
    assert!(run(&["tree", "shop/stock", "put", "more", "v"]).status.success());
}

#[test]
fn on_a_full_disk_sql_writes_fail_clearly_and_queries_continue() {
    assert!(yesquel_sqlite::is_linked());
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let serve = |limit: &str| serve(place.path(), limit);
    let mut server = serve("ulimit -f 1000;");
    let name = format!("file:yesquel://{}/shop", socket.display());
    let connection = Connection::open_with_flags(name, OpenFlags::default()).unwrap();
    connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, v)").unwrap();
    let insert = |id: i64| {
        connection.execute("INSERT INTO t VALUES(?1, 'name ' || ?1, zeroblob(30000))", [id]).map(drop)
    };
    let fails = |outcome: Result<(), Error>| match outcome {
        Err(Error::SqliteFailure(error, Some(words))) => {
            assert!(matches!(error.code, ErrorCode::SystemIoFailure | ErrorCode::DiskFull), "{error:?}");
            assert!(words.contains("failed or"), "{words}");
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
    server.terminate();
    // With free space it continues; the first statement may report the server's exit.
    let _server = serve("");
    let _ = connection.query_row("SELECT 1 FROM t WHERE id=0", [], |_| Ok(()));
    all_is_there();
    insert(1_000).unwrap();
    let whole: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
}
