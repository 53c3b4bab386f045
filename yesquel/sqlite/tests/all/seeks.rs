//! Results of seeks, compared with SQLite's own b-trees.

use rusqlite::{Connection, OpenFlags, types::Value};

fn rows(connection: &Connection, sql: &str) -> Vec<Vec<Value>> {
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
    statement.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap()
}

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, v);
    INSERT INTO t VALUES(-9223372036854775808, 0), (-1, 1), (0, 2), (7, 3), (9223372036854775807, 4);
    CREATE TABLE w(k PRIMARY KEY, v) WITHOUT ROWID;
    INSERT INTO w VALUES(1, 10), (2, NULL), (5, 50), ('a', 'x'), (x'61', 'y');
    CREATE TABLE s(a, b, c);
    CREATE INDEX ab ON s(a, b DESC);
    INSERT INTO s VALUES(1, 1, 1), (1, 2, 2), (1, NULL, 3), (2, 1, 4), (NULL, 9, 5), ('a', 1.5, 6)";

#[test]
fn seeks_find_the_same_rows_as_in_sqlite() {
    assert!(yesquel_sqlite::is_linked());
    let open = |name| Connection::open_with_flags(name, OpenFlags::default()).unwrap();
    let (trees, native) = (open("file:yesquel:"), open(":memory:"));
    assert!(trees.path().unwrap().starts_with("yesquel:"));
    for connection in [&trees, &native] {
        connection.execute_batch(SCHEMA).unwrap();
    }
    let values = [
        "-9223372036854775808",
        "-1.5",
        "0",
        "1",
        "6.9",
        "9223372036854775807",
        "9e999",
        "-9e999",
        "'a'",
        "x'61'",
        "NULL",
    ];
    let mut all = vec![
        "SELECT min(v), max(v) FROM w WHERE k IN (1, 2, 5)".to_owned(),
        "SELECT v FROM w WHERE k IN (1, 2, 5) ORDER BY v ASC NULLS LAST".to_owned(),
        "SELECT v FROM w WHERE k IN (1, 2, 5) ORDER BY v DESC NULLS FIRST".to_owned(),
    ];
    for (from, column) in [("t", "id"), ("w", "k"), ("s", "a"), ("s", "a=1 AND b")] {
        for order in ["", " ORDER BY 1", " ORDER BY 1 DESC, 2 DESC", " ORDER BY 1, 2 DESC"] {
            for value in values {
                for operator in ["<", "<=", "=", ">=", ">", "IS"] {
                    all.push(format!("SELECT * FROM {from} WHERE {column} {operator} {value}{order}"));
                }
            }
        }
    }
    let mut seen = 0;
    for sql in all {
        let (mut ours, mut theirs) = (rows(&trees, &sql), rows(&native, &sql));
        seen += ours.len();
        if !sql.contains("ORDER BY") {
            ours.sort_by_key(|row| format!("{row:?}"));
            theirs.sort_by_key(|row| format!("{row:?}"));
        }
        assert_eq!(ours, theirs, "{sql}");
    }
    assert!(seen > 500, "{seen}");
}

#[test]
fn a_deleted_row_is_not_updated() {
    let open = |name| Connection::open_with_flags(name, OpenFlags::default()).unwrap();
    let of = |connection: Connection| {
        connection
            .execute_batch(
                "PRAGMA recursive_triggers=true;
                 CREATE TABLE t(a UNIQUE, b UNIQUE);
                 CREATE TRIGGER r AFTER DELETE ON t BEGIN DELETE FROM t; END;
                 INSERT INTO t VALUES(1, NULL), (0, NULL)",
            )
            .unwrap();
        let outcome =
            connection.execute("UPDATE OR REPLACE t SET b=1", []).map_err(|error| error.to_string());
        (outcome, rows(&connection, "SELECT * FROM t ORDER BY a"))
    };
    assert_eq!(of(open("file:yesquel:")), of(open(":memory:")));
}
