//! A transaction that reads a second database of the same store later than the first.

use rusqlite::Connection;
use tempfile::TempDir;

/// The read of a long value carries the proof of the other database's schema.
#[test]
fn a_long_value_is_read_whole_when_the_request_also_verifies_a_schema() {
    assert!(yesquel_sqlite::is_linked());
    let folder = TempDir::new().unwrap();
    let name = |name: &str| {
        format!("file:yesquel:{}?durability=none&database={name}", folder.path().join("data").display())
    };
    let connection = Connection::open(name("main")).unwrap();
    connection.execute("ATTACH ? AS other", [name("other")]).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, c TEXT);
             CREATE TABLE other.u(id INTEGER PRIMARY KEY);
             INSERT INTO t VALUES (1, printf('%.*c', 200000, 'x')), (2, 'a');",
        )
        .unwrap();
    connection.execute_batch("BEGIN").unwrap();
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(number("SELECT count(*) FROM t"), 2);
    // The leaf is cached now, so the first request is for the pieces.
    assert_eq!(number("SELECT length(c) + (SELECT count(*) FROM u) FROM t WHERE id = 1"), 200_000);
    let checked: String = connection.query_row("PRAGMA quick_check", [], |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok");
}
