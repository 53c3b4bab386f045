//! Statements whose cached schema is outdated before their first request: errors follow from the
//! current schema, and schema changes see those of other connections.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use rusqlite::Connection;
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
