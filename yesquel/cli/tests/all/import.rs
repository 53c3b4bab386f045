//! `yesquel import`: SQLite's files become databases, complete or absent.

use crate::program::Place;
use rusqlite::Connection;
use std::{fs, os::unix::fs::FileExt};

/// A file with objects of every kind.
const CONTENT: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE UNIQUE, n REAL, b BLOB);
    WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000)
        INSERT INTO t SELECT x, 'name' || (x * 7919 % 3000), x / 8.0, zeroblob(x % 50) FROM c;
    CREATE INDEX tn ON t(n DESC, name) WHERE id % 3;
    CREATE TABLE w(a TEXT, b INT, PRIMARY KEY(b, a)) WITHOUT ROWID;
    INSERT INTO w VALUES('x', 1), ('y', 1);
    CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT, x);
    INSERT INTO counted VALUES(41, 'a'), (42, NULL);
    CREATE INDEX cx ON counted(x);
    CREATE VIEW v AS SELECT name FROM t;
    CREATE TRIGGER told AFTER INSERT ON w BEGIN INSERT INTO counted(x) VALUES(new.a); END;
    CREATE TABLE generated(a, b AS (a * 2), c AS (a + 1) STORED);
    INSERT INTO generated(a) VALUES(1), (2);
    CREATE VIRTUAL TABLE words USING fts5(body);
    INSERT INTO words VALUES('hello world');
    PRAGMA user_version = 77;
    PRAGMA application_id = 5;";

fn make(place: &Place, name: &str) {
    Connection::open(place.path(name)).unwrap().execute_batch(CONTENT).unwrap();
}

#[test]
fn an_imported_file_can_be_exported() {
    let place = Place::new();
    make(&place, "app.db");
    let output = place.prints(&["import", "app.db", "yesquel:data"]);
    assert!(output.starts_with("imported 3,0"), "{output}");
    let output = place.prints(&["export", "--json", "yesquel:data", "out.db"]);
    let output: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&output["from"], &output["to"]), (&"yesquel:data".into(), &"out.db".into()));
    assert_eq!((&output["indexes"], output["tables"].as_u64() > Some(4)), (&2.into(), true), "{output}");
    assert!(output["rows"].as_u64() > Some(3_000) && output["bytes"].as_u64() > Some(100_000), "{output}");
    let first = place.prints(&["dump", "app.db"]);
    assert!(first.contains("INSERT INTO sqlite_sequence VALUES('counted',42);"));
    assert_eq!(first, place.prints(&["dump", "yesquel:data"]));
    assert_eq!(first, place.prints(&["dump", "out.db"]));
    let asked = [
        "PRAGMA integrity_check",
        "PRAGMA user_version",
        "PRAGMA application_id",
        "SELECT * FROM words('hello')",
        "SELECT count(*) FROM t INDEXED BY tn WHERE id % 3",
    ];
    for address in ["yesquel:data", "out.db"] {
        let arguments = [&["shell", address], &asked[..]].concat();
        assert_eq!(place.prints(&arguments), "ok\n77\n5\nhello world\n2000\n", "{address}");
    }
    assert_eq!(place.files(), ["app.db", "data", "out.db"]);
    // Row ids, triggers and full-text search continue to work.
    let write = "INSERT INTO w VALUES('z', 1); SELECT max(id) FROM counted; INSERT INTO t(name) VALUES('new'); \
        SELECT max(id) FROM t";
    assert_eq!(place.prints(&["shell", "yesquel:data", write]), "43\n3001\n");
}

#[test]
fn an_existing_database_is_replaced_only_with_force() {
    let place = Place::new();
    make(&place, "app.db");
    place.prints(&["shell", "yesquel:data", "CREATE TABLE before(a); INSERT INTO before VALUES(1)"]);
    let (status, said) = place.fails(&["import", "app.db", "yesquel:data"]);
    assert_eq!(status, 2);
    assert_eq!(said, "error: there is something in yesquel:data already; --force replaces all of it\n");
    assert_eq!(place.prints(&["shell", "yesquel:data", ".tables"]).trim_end(), "before");
    assert_eq!(place.prints(&["import", "--quiet", "--force", "app.db", "yesquel:data"]), "");
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'before'; SELECT count(*) FROM t";
    assert_eq!(place.prints(&["shell", "yesquel:data", tables]), "0\n3000\n");
}

#[test]
fn an_incomplete_database_is_not_imported() {
    let place = Place::new();
    fs::write(place.path("empty.db"), "").unwrap();
    fs::write(place.path("text.db"), "name,number\n").unwrap();
    fs::write(place.path("address.db"), "yesquel:other\n").unwrap();
    make(&place, "app.db");
    // Damage a page in the middle, then the second half.
    make(&place, "damaged.db");
    let damaged = fs::File::options().write(true).open(place.path("damaged.db")).unwrap();
    damaged.write_all_at(&[0x55; 4096], 4096 * 5).unwrap();
    fs::copy(place.path("app.db"), place.path("short.db")).unwrap();
    let short = fs::File::options().write(true).open(place.path("short.db")).unwrap();
    short.set_len(short.metadata().unwrap().len() / 2).unwrap();
    // An index that disagrees with its table.
    make(&place, "index.db");
    let wrong = "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'cx';";
    let connection = Connection::open(place.path("index.db")).unwrap();
    let root: i64 = connection
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'cx'", [], |row| row.get(0))
        .unwrap();
    connection.execute_batch(wrong).unwrap();
    drop(connection);
    let connection = Connection::open(place.path("index.db")).unwrap();
    let back = format!(
        "DELETE FROM counted WHERE id = 41; PRAGMA writable_schema = ON; INSERT INTO sqlite_schema \
         VALUES('index', 'cx', 'counted', {root}, 'CREATE INDEX cx ON counted(x)');"
    );
    connection.execute_batch(&back).unwrap();
    drop(connection);
    for (file, status, expected) in [
        ("empty.db", 1, "empty.db: the file is empty, and no SQLite database"),
        ("text.db", 1, "text.db is no SQLite database: it does not begin with 'SQLite format 3'"),
        ("address.db", 1, "address.db holds the address of a database"),
        ("none.db", 3, "none.db: there is no such file"),
        ("damaged.db", 1, "damaged.db"),
        ("short.db", 1, "short.db"),
        ("index.db", 1, "index.db is damaged: wrong # of entries in index cx"),
        ("yesquel:data", 2, "'yesquel:data' is an address"),
    ] {
        let (found, said) = place.fails(&["import", file, "yesquel:data"]);
        assert_eq!(found, status, "{file}: {said}");
        assert!(said.starts_with(&format!("error: {expected}")), "{file}: {said}");
        assert!(!place.path("data").exists(), "{file}");
    }
}

#[test]
fn unreachable_addresses_are_reported() {
    let place = Place::new();
    make(&place, "app.db");
    for (address, status, expected) in [
        ("yesquel:data?speed=9", 2, "there is no such option"),
        ("yesquel://host", 2, "yesquel://HOST:PORT/NAME"),
        ("yesquel://127.0.0.1:1/shop?timeout=2000", 4, "127.0.0.1:1"),
        ("yesquel:///nowhere/socket/shop", 4, "/nowhere/socket"),
        ("yesquel:app.db", 1, "app.db"),
    ] {
        let (found, said) = place.fails(&["import", "app.db", address]);
        assert_eq!(found, status, "{address}: {said}");
        assert!(said.contains(expected), "{address}: {said}");
    }
    assert_eq!(place.files(), ["app.db"]);
}
