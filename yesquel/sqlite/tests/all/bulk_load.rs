//! Bulk-loaded tables and indexes: SQL sees them as if they were buffered until the commit.

use rusqlite::{Connection, ErrorCode, OpenFlags, backup::Backup, params};
use std::time::Duration;

/// Opens a connection to a database shared within the process, with bulk loads flushed as early as
/// possible.
fn open(name: &str) -> Connection {
    yesquel_sqlite::is_linked();
    let flags = OpenFlags::default();
    let address = format!("file:yesquel:?cache=shared&database={name}&ahead=1");
    Connection::open_with_flags(address, flags).unwrap()
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn text(connection: &Connection, sql: &str) -> String {
    connection.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn is_sound(connection: &Connection) {
    assert_eq!(text(connection, "PRAGMA integrity_check"), "ok");
}

const NUMBERS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)";

#[test]
fn a_new_table_is_visible_to_its_transaction_and_to_others_after_the_commit() {
    let (ours, theirs) = (open("sees"), open("sees"));
    ours.execute_batch("BEGIN; CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INT)").unwrap();
    for id in 0..500_i64 {
        // In pseudo-random order.
        let id = id * 37 % 500;
        ours.execute("INSERT INTO t VALUES(?, ?, ?)", params![id, format!("name{id}"), id % 7]).unwrap();
    }
    ours.execute_batch("CREATE INDEX tn ON t(n); UPDATE t SET n = n + 1 WHERE id >= 250").unwrap();
    let double = ours.execute("INSERT INTO t VALUES(900, 'name4', 0)", []).unwrap_err();
    assert_eq!(double.sqlite_error_code(), Some(ErrorCode::ConstraintViolation));
    let double = ours.execute("INSERT INTO t VALUES(4, 'other', 0)", []).unwrap_err();
    assert_eq!(double.sqlite_error_code(), Some(ErrorCode::ConstraintViolation));
    // Through the index, with the rows that it refers to; backwards; with later writes.
    assert_eq!(number(&ours, "SELECT sum(id) FROM t WHERE n = 7"), {
        (250..500).filter(|id| id % 7 == 6).sum::<i64>()
    });
    assert_eq!(number(&ours, "SELECT id FROM t ORDER BY id DESC LIMIT 1"), 499);
    assert_eq!(text(&ours, "SELECT name FROM t WHERE n > 6 ORDER BY n, id LIMIT 1"), "name251");
    // A number from the database after explicit ones.
    ours.execute("INSERT INTO t(name) VALUES('last')", []).unwrap();
    assert_eq!(ours.last_insert_rowid(), 500);
    is_sound(&ours);
    assert_eq!(number(&theirs, "SELECT count(*) FROM sqlite_schema"), 0);
    ours.execute_batch("COMMIT").unwrap();
    assert_eq!(number(&theirs, "SELECT count(*) FROM t"), 501);
    is_sound(&theirs);
}

#[test]
fn rollbacks_and_savepoints_undo_bulk_loads() {
    let connection = open("back");
    connection.execute_batch("CREATE TABLE old(x); INSERT INTO old VALUES(1)").unwrap();
    connection
        .execute_batch(&format!(
            "BEGIN; SAVEPOINT before; CREATE TABLE t(x); INSERT INTO t {NUMBERS} SELECT i FROM n;
             SAVEPOINT after; INSERT INTO t VALUES(7); DELETE FROM t WHERE x < 500;"
        ))
        .unwrap();
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 501);
    connection.execute_batch("ROLLBACK TO after; INSERT INTO t VALUES(8)").unwrap();
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 1_001);
    connection.execute_batch("RELEASE after; INSERT INTO t VALUES(9)").unwrap();
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 1_002);
    connection.execute_batch("ROLLBACK TO before; INSERT INTO old VALUES(2)").unwrap();
    assert!(connection.prepare("SELECT * FROM t").is_err());
    connection.execute_batch("CREATE TABLE t(y); INSERT INTO t VALUES(1); COMMIT").unwrap();
    assert_eq!(number(&connection, "SELECT y FROM t") + number(&connection, "SELECT count(*) FROM old"), 3);
    connection
        .execute_batch(&format!("BEGIN; CREATE TABLE u AS {NUMBERS} SELECT i FROM n; ROLLBACK"))
        .unwrap();
    assert!(connection.prepare("SELECT * FROM u").is_err());
    // A failing statement undoes its own creations only.
    connection
        .execute_batch(&format!("CREATE TABLE d(x); INSERT INTO d {NUMBERS} SELECT i % 999 FROM n"))
        .unwrap();
    let double = connection.execute_batch("CREATE UNIQUE INDEX du ON d(x)").unwrap_err();
    assert_eq!(double.sqlite_error_code(), Some(ErrorCode::ConstraintViolation));
    connection.execute_batch("CREATE INDEX du ON d(x); DROP TABLE t").unwrap();
    is_sound(&connection);
}

#[test]
fn a_table_created_and_dropped_by_one_transaction_leaves_nothing() {
    let connection = open("dropped");
    connection
        .execute_batch(&format!(
            "BEGIN; CREATE TABLE t(x); INSERT INTO t {NUMBERS} SELECT i FROM n; CREATE INDEX i ON t(x); DROP TABLE t;
             CREATE TABLE t(x); INSERT INTO t VALUES(1); DELETE FROM t; INSERT INTO t VALUES(2); COMMIT"
        ))
        .unwrap();
    assert_eq!(number(&connection, "SELECT x FROM t"), 2);
    is_sound(&connection);
}

#[test]
fn an_index_filled_during_a_concurrent_write_conflicts() {
    let (ours, theirs) = (open("beside"), open("beside"));
    ours.execute_batch(&format!("CREATE TABLE t(x); INSERT INTO t {NUMBERS} SELECT i FROM n")).unwrap();
    ours.execute_batch("BEGIN; CREATE INDEX i ON t(x)").unwrap();
    theirs.execute_batch("INSERT INTO t VALUES(5000)").unwrap();
    let lost = ours.execute_batch("COMMIT").unwrap_err();
    assert_eq!(lost.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    ours.execute_batch("ROLLBACK; CREATE INDEX i ON t(x)").unwrap();
    assert_eq!(number(&ours, "SELECT count(*) FROM t INDEXED BY i WHERE x > 0"), 1_001);
    is_sound(&theirs);
}

#[test]
fn a_backup_is_visible_only_when_complete() {
    yesquel_sqlite::is_linked();
    let source = Connection::open_in_memory().unwrap();
    source
        .execute_batch(&format!(
            "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, long BLOB);
             INSERT INTO t(name, long) {NUMBERS} SELECT 'name' || i, zeroblob(i * 50) FROM n;
             CREATE INDEX tn ON t(name); CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
             INSERT INTO w {NUMBERS} SELECT 'key' || i, i FROM n;"
        ))
        .unwrap();
    let (mut target, other) = (open("backup"), open("backup"));
    target.execute_batch("CREATE TABLE before(x); INSERT INTO before VALUES(1)").unwrap();
    {
        let backup = Backup::new(&source, &mut target).unwrap();
        backup.step(40).unwrap();
        assert_eq!(number(&other, "SELECT x FROM before"), 1);
        // Rolled back.
    }
    assert_eq!(number(&target, "SELECT x FROM before"), 1);
    Backup::new(&source, &mut target).unwrap().run_to_completion(50, Duration::ZERO, None).unwrap();
    assert!(other.execute_batch("SELECT * FROM before").is_err());
    let sum = "SELECT sum(id) + sum(length(long)) + (SELECT sum(v) FROM w) FROM t WHERE name > ''";
    assert_eq!(number(&other, sum), number(&source, sum));
    other.execute("INSERT INTO t(name) VALUES('next')", []).unwrap();
    assert_eq!(other.last_insert_rowid(), 1_001);
    is_sound(&other);
}
