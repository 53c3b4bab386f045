//! Statements whose cached schema is outdated before their first request: errors follow from the
//! current schema, and schema changes see those of other connections.

use rusqlite::{Connection, ErrorCode};
use tempfile::TempDir;

/// Schemas by the constraint that the row `(1, NULL, 'a')` violates, and the error's text.
const CONSTRAINTS: &[(&str, &str)] = &[
    ("CREATE TABLE t(id INTEGER PRIMARY KEY, c NOT NULL, n)", "NOT NULL constraint failed: t.c"),
    ("CREATE TABLE t(id INTEGER PRIMARY KEY, c, n CHECK (n <> 'a'))", "CHECK constraint failed: n <> 'a'"),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, c INT, n INT) STRICT",
        "cannot store TEXT value in INT column t.n",
    ),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, c, n);
         CREATE TRIGGER no BEFORE INSERT ON t BEGIN SELECT raise(ROLLBACK, 'no rows'); END",
        "no rows",
    ),
];

struct Place(TempDir);

impl Place {
    fn open(&self) -> Connection {
        let folder = self.0.path().join("data");
        Connection::open(format!("file:yesquel:{}?durability=none", folder.display())).unwrap()
    }
}

fn rows(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_constraint_that_another_connection_dropped_is_not_reported() {
    assert!(yesquel_sqlite::is_linked());
    for (constrained, _) in CONSTRAINTS {
        for action in ["ABORT", "FAIL", "ROLLBACK"] {
            for begin in ["", "BEGIN"] {
                let place = Place(TempDir::new().unwrap());
                let (one, other) = (place.open(), place.open());
                one.execute_batch(constrained).unwrap();
                assert_eq!(rows(&one), 0);
                let insert = format!("INSERT OR {action} INTO t VALUES(1, NULL, 'a')");
                let mut prepared = one.prepare(&insert).unwrap();
                let plain = "DROP TABLE t; CREATE TABLE t(id INTEGER PRIMARY KEY, c, n)";
                other.execute_batch(plain).unwrap();
                one.execute_batch(begin).unwrap();
                let outcome = prepared.execute([]);
                assert_eq!(outcome.unwrap(), 1, "{constrained}: {insert}, after '{begin}'");
                one.execute_batch(if begin.is_empty() { "" } else { "COMMIT" }).unwrap();
                assert_eq!(rows(&other), 1);
            }
        }
    }
}

#[test]
fn a_constraint_of_the_present_schema_is_reported() {
    assert!(yesquel_sqlite::is_linked());
    for (constrained, message) in CONSTRAINTS {
        let place = Place(TempDir::new().unwrap());
        let (one, other) = (place.open(), place.open());
        other.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, c, n)").unwrap();
        assert_eq!(rows(&one), 0);
        other.execute_batch("DROP TABLE t").unwrap();
        other.execute_batch(constrained).unwrap();
        let error = one.execute("INSERT INTO t VALUES(1, NULL, 'a')", []).unwrap_err();
        assert_eq!(error.to_string(), *message, "{constrained}");
        assert_eq!(rows(&other), 0);
    }
}

#[test]
fn a_schema_change_in_a_transaction_follows_a_concurrent_one() {
    assert!(yesquel_sqlite::is_linked());
    for begin in ["BEGIN", "SAVEPOINT s"] {
        let place = Place(TempDir::new().unwrap());
        let (one, other) = (place.open(), place.open());
        one.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, c, n)").unwrap();
        assert_eq!(rows(&other), 0);
        one.execute_batch(begin).unwrap();
        other.execute_batch("CREATE INDEX i ON t(c)").unwrap();
        let change = "CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t WHERE id = 6; END";
        one.execute_batch(change).unwrap();
        one.execute_batch(if begin == "BEGIN" { "COMMIT" } else { "RELEASE s" }).unwrap();
        let objects = "SELECT count(*) FROM sqlite_schema WHERE name IN ('t', 'i', 'g')";
        let count: i64 = other.query_row(objects, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 3);
    }
}

/// Begins a transaction that undoes a schema change by `undone` and then inserts a row, while another
/// connection adds an index; returns the error of the commit.
#[track_caller]
fn commit_after_undone_change(undone: &str) -> ErrorCode {
    let place = Place(TempDir::new().unwrap());
    let (one, other) = (place.open(), place.open());
    one.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, c); INSERT INTO t VALUES(1, 7), (2, 7)")
        .unwrap();
    assert_eq!(rows(&other), 2);
    one.execute_batch("BEGIN").unwrap();
    for statement in undone.split(';') {
        let outcome = one.execute_batch(statement);
        assert_eq!(outcome.is_err(), statement.contains("UNIQUE"), "{statement}: {outcome:?}");
    }
    one.execute_batch("INSERT INTO t VALUES(3, 8)").unwrap();
    other.execute_batch("CREATE INDEX i ON t(c)").unwrap();
    let outcome = one.execute_batch("COMMIT");
    let checked: String = other.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok", "{undone}: {outcome:?}");
    outcome.unwrap_err().sqlite_error_code().unwrap()
}

#[test]
fn writes_after_an_undone_schema_change_guard_the_schema() {
    assert!(yesquel_sqlite::is_linked());
    for undone in [
        "SAVEPOINT a; CREATE TABLE x(y); ROLLBACK TO a",
        "SAVEPOINT a; CREATE TABLE x(y); ROLLBACK TO a; RELEASE a",
        "SAVEPOINT a; SAVEPOINT b; CREATE TABLE x(y); RELEASE b; ROLLBACK TO a",
        "SAVEPOINT a; INSERT INTO t VALUES(9, 9); SAVEPOINT b; CREATE TABLE x(y); ROLLBACK TO b; RELEASE a",
        "SAVEPOINT a; CREATE TABLE x(y); SAVEPOINT b; CREATE TABLE z(y); ROLLBACK TO b; ROLLBACK TO a",
        // A statement that fails undoes its own changes.
        "CREATE UNIQUE INDEX u ON t(c)",
    ] {
        assert_eq!(commit_after_undone_change(undone), ErrorCode::DatabaseBusy, "{undone}");
    }
}

#[test]
fn a_schema_change_before_a_savepoint_outlives_its_rollback() {
    assert!(yesquel_sqlite::is_linked());
    for kept in [
        "CREATE TABLE x(y); SAVEPOINT a; CREATE TABLE z(y); ROLLBACK TO a",
        "SAVEPOINT a; CREATE TABLE x(y); RELEASE a",
        "SAVEPOINT a; CREATE TABLE x(y); SAVEPOINT b; CREATE TABLE z(y); ROLLBACK TO b; RELEASE a",
    ] {
        let place = Place(TempDir::new().unwrap());
        let (one, other) = (place.open(), place.open());
        one.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, c)").unwrap();
        assert_eq!(rows(&other), 0);
        one.execute_batch(&format!(
            "BEGIN; {kept}; INSERT INTO x VALUES(1); INSERT INTO t VALUES(1, 1); COMMIT"
        ))
        .unwrap();
        let names = "SELECT group_concat(name, ' ' ORDER BY name) FROM sqlite_schema";
        let names: String = other.query_row(names, [], |row| row.get(0)).unwrap();
        assert_eq!((rows(&other), names.as_str()), (1, "t x"), "{kept}");
    }
}
