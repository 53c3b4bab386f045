//! Collations of the application.

use rusqlite::{Connection, OpenFlags};
use std::cmp::Ordering;

/// By length first, case-insensitive.
fn by_length(left: &str, right: &str) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.to_lowercase().cmp(&right.to_lowercase()))
}

fn open(name: &str) -> Connection {
    assert!(yesquel_sqlite::is_linked());
    let connection = Connection::open_with_flags(name, OpenFlags::default()).unwrap();
    connection.create_collation("by_length", by_length).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT COLLATE by_length UNIQUE, n);
             CREATE TABLE w(name TEXT COLLATE by_length PRIMARY KEY, n) WITHOUT ROWID",
        )
        .unwrap();
    connection
}

fn rows(connection: &Connection, sql: &str) -> Result<Vec<String>, String> {
    let mut statement = connection.prepare(sql).map_err(|error| error.to_string())?;
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        let values = (0..columns).map(|column| row.get_ref(column).map(|value| format!("{value:?}")));
        Ok(values.collect::<Result<Vec<_>, _>>()?.join(" "))
    });
    rows.and_then(Iterator::collect).map_err(|error| error.to_string())
}

#[test]
fn indexes_have_the_order_of_an_applications_collation() {
    let (trees, native) = (open("file:yesquel:"), open(":memory:"));
    assert!(trees.path().unwrap().starts_with("yesquel:"));
    let names = ["pear", "fig", "Apple", "banana", "FIG", "kiwi", "plum", "apple", "a", "B", "cherry"];
    let mut all = Vec::new();
    for (n, name) in names.iter().enumerate() {
        all.push(format!("INSERT INTO t(name, n) VALUES('{name}', {n})"));
        all.push(format!("INSERT OR REPLACE INTO w VALUES('{name}', {n})"));
    }
    for from in ["t", "w"] {
        for order in ["", " ORDER BY name", " ORDER BY name DESC"] {
            all.push(format!("SELECT name, n FROM {from}{order}"));
            for compared in ["<", "<=", ">", ">=", "="] {
                for name in ["FIG", "Plum", "zz", "", "bananas"] {
                    all.push(format!("SELECT name, n FROM {from} WHERE name {compared} '{name}'{order}"));
                }
            }
        }
        all.push(format!("UPDATE {from} SET name=name || 's' WHERE n % 3 = 0"));
        all.push(format!("DELETE FROM {from} WHERE name > 'kiwi'"));
        all.push(format!("SELECT name FROM {from} ORDER BY name"));
    }
    all.push("REINDEX".to_owned());
    all.push("PRAGMA integrity_check".to_owned());
    let mut rows_seen = 0;
    for sql in all {
        let (ours, theirs) = (rows(&trees, &sql), rows(&native, &sql));
        assert_eq!(ours, theirs, "{sql}");
        rows_seen += ours.map_or(0, |rows| rows.len());
    }
    assert!(rows_seen > 100, "{rows_seen}");
}
