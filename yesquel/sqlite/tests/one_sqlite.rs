//! A process contains one SQLite, and it is Yesquel's: `libsqlite3-sys`, whose sources it uses and
//! whose declarations rusqlite uses, compiles another one.
//!
//! This binary is the hard case: it calls SQLite by rusqlite only, and nothing of `yesquel-sqlite`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod symbols;
use rusqlite::Connection;
use std::env;
use yesquel_sqlite as _;

#[test]
fn rusqlite_opens_databases_on_trees() {
    for name in ["file:yesquel:", "file:yesquel:?database=other"] {
        let connection = Connection::open(name).unwrap();
        let file: String =
            connection.query_row("SELECT file FROM pragma_database_list", [], |row| row.get(0)).unwrap();
        assert!(file.starts_with("yesquel:"), "{file}");
        connection.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE)").unwrap();
        for number in 1..=10 {
            assert_eq!(connection.execute("INSERT INTO t(b) VALUES(?1)", [number * number]).unwrap(), 1);
            assert_eq!(connection.last_insert_rowid(), number);
        }
        let sum: i64 =
            connection.query_row("SELECT sum(b) FROM t WHERE b > 50", [], |row| row.get(0)).unwrap();
        assert_eq!(sum, 64 + 81 + 100);
    }
    let plain = Connection::open_in_memory().unwrap();
    let file: String =
        plain.query_row("SELECT file FROM pragma_database_list", [], |row| row.get(0)).unwrap();
    assert_eq!(file, "");
}

#[test]
fn the_program_contains_one_sqlite() {
    symbols::assert_one_and_ours(&env::current_exe().unwrap());
}
