//! Long index keys: the same order, searches and constraints as in SQLite.

#![expect(unsafe_code, reason = "connections are identified by their pointers")]

use crate::place::Place;
use rusqlite::{Connection, ErrorCode, params, types::Value};
use tempfile::TempDir;
use yesquel::limits::KEY_BYTES_MAX;
use yesquel_sqlite::DatabaseTrees;

/// Bytes above which keys are cut.
const CUT: usize = 16 << 10;

/// Indexes of all collations and directions, a unique one, and rows that are themselves long keys.
const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, name, folded TEXT COLLATE NOCASE);
    CREATE INDEX by_name ON t(name);
    CREATE INDEX by_folded ON t(folded DESC, id);
    CREATE TABLE w(name TEXT, n INTEGER, v, PRIMARY KEY(name, n DESC)) WITHOUT ROWID;
    CREATE TABLE u(name TEXT UNIQUE COLLATE RTRIM);";

/// Short texts, and long ones with equal beginnings, around the lengths at which keys are cut and
/// beyond a tree's keys, with different ends.
fn texts() -> Vec<String> {
    let base = "x".repeat(CUT);
    let mut all: Vec<String> = ["", "w", "x", "y"].map(str::to_owned).into();
    // Keys have three bytes more for the tag and the end of a text, and eleven for a row id.
    all.extend([60, 47, 35, 34, 15, 14, 3, 2].map(|shorter| base[shorter..].to_owned()));
    let ends = ["", "B", "a", "a ", "aa", "b", "b\0c", "\u{e9}"].map(str::to_owned);
    all.extend(ends.iter().map(|end| format!("{base}{end}")));
    all.extend([&base[1..], "y"].map(|end| format!("w{}{end}", base.repeat(KEY_BYTES_MAX / CUT))));
    // In no order.
    all.sort_by_key(|text| (text.len() * 7919 % 101, text.clone()));
    all
}

/// Runs a statement in both databases, with a text; the rows, or the kinds of errors, are equal.
fn both(ours: &Connection, stock: &Connection, sql: &str, text: &str) {
    let run = |connection: &Connection| {
        let mut statement = connection.prepare_cached(sql)?;
        let columns = statement.column_count();
        let parameters = statement.parameter_count();
        let mut rows = if parameters == 0 { statement.query([]) } else { statement.query(params![text]) }?;
        let mut all: Vec<Vec<Value>> = Vec::new();
        while let Some(row) = rows.next()? {
            all.push((0..columns).map(|column| row.get(column)).collect::<Result<_, _>>()?);
        }
        Ok(all)
    };
    let code = |error: rusqlite::Error| error.sqlite_error_code();
    let (ours, stock) = (run(ours).map_err(code), run(stock).map_err(code));
    assert_eq!(ours, stock, "{sql} with {} bytes that end in {:?}", text.len(), text.chars().last());
}

/// Searches and scans of both directions.
fn compare(ours: &Connection, stock: &Connection, texts: &[String]) {
    for sql in [
        "SELECT id, length(name) FROM t ORDER BY name",
        "SELECT id, length(name) FROM t ORDER BY name DESC",
        "SELECT id FROM t INDEXED BY by_folded ORDER BY folded, id DESC",
        "SELECT id FROM t INDEXED BY by_folded ORDER BY folded DESC, id",
        "SELECT length(name), n, v FROM w ORDER BY name, n DESC",
        "SELECT length(name), n, v FROM w ORDER BY name DESC, n",
        "SELECT length(min(name)), length(max(name)) FROM t",
        "SELECT count(*), sum(length(name)) FROM w",
    ] {
        both(ours, stock, sql, "");
    }
    for text in texts {
        for sql in [
            "SELECT id FROM t WHERE name > ? ORDER BY name LIMIT 2",
            "SELECT id FROM t WHERE name >= ? ORDER BY name LIMIT 2",
            "SELECT id FROM t WHERE name < ? ORDER BY name DESC LIMIT 2",
            "SELECT id FROM t WHERE name <= ? ORDER BY name DESC LIMIT 2",
            "SELECT id FROM t INDEXED BY by_folded WHERE folded = ?",
            "SELECT n, v FROM w WHERE name = ?",
            "SELECT v FROM w WHERE name = ? AND n = 1",
            "SELECT n FROM w WHERE name = ? AND n > 0 AND v IS NOT NULL ORDER BY n",
        ] {
            both(ours, stock, sql, text);
        }
    }
}

#[test]
fn long_keys_are_ordered_found_and_constrained_as_in_sqlite() {
    assert!(yesquel_sqlite::is_linked());
    let (ours, stock) = (Connection::open("file:yesquel:").unwrap(), Connection::open_in_memory().unwrap());
    ours.execute_batch(SCHEMA).unwrap();
    stock.execute_batch(SCHEMA).unwrap();
    let texts = texts();
    for (number, text) in texts.iter().enumerate() {
        both(&ours, &stock, "INSERT INTO t(name, folded) VALUES(?1, ?1)", text);
        both(&ours, &stock, "INSERT INTO w VALUES(?, 1, 'one')", text);
        if number % 5 == 0 {
            both(&ours, &stock, "INSERT INTO w VALUES(?, 2, 'two')", text);
        }
        // Some are equal by the collation, and refused.
        both(&ours, &stock, "INSERT INTO u VALUES(?)", text);
    }
    compare(&ours, &stock, &texts);
    for text in &texts {
        both(&ours, &stock, "INSERT INTO w VALUES(?, 2, 'again')", text);
        both(&ours, &stock, "INSERT INTO u VALUES(? || ' ')", text);
    }
    for sql in [
        "INSERT INTO t(name, folded) SELECT CAST(name AS BLOB), upper(folded) FROM t WHERE id % 4 = 1",
        "REPLACE INTO w SELECT name, n, 'three' FROM w WHERE n = 2",
        "UPDATE t SET name = name || 'z', folded = folded || 'Z' WHERE id % 3 = 0",
        "UPDATE w SET n = n + 7 WHERE length(name) % 2",
        "UPDATE w SET v = v || 'z'",
        "DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY name LIMIT 3 OFFSET 5)",
        "DELETE FROM w WHERE n = 1 AND length(name) % 3 = 0",
        "DELETE FROM u WHERE rowid % 3 = 0",
    ] {
        both(&ours, &stock, sql, "");
    }
    compare(&ours, &stock, &texts);
    both(&ours, &stock, "PRAGMA integrity_check", "");

    // Copies, by tree and by row.
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("copy.db");
    ours.execute("VACUUM INTO ?", [file.to_str().unwrap()]).unwrap();
    compare(&ours, &Connection::open(&file).unwrap(), &texts[..1]);
    let mut other = Connection::open("file:yesquel:").unwrap();
    rusqlite::backup::Backup::new(&ours, &mut other).unwrap().step(-1).unwrap();
    compare(&other, &stock, &texts[..1]);
    both(&ours, &stock, "DELETE FROM t", "");
    both(&ours, &stock, "DROP TABLE w", "");
    both(&ours, &stock, "SELECT count(*), sum(length(name)) FROM u", "");
}

#[test]
fn keys_that_an_older_version_has_not_cut_keep_their_order() {
    let (ours, stock) = (Connection::open("file:yesquel:").unwrap(), Connection::open_in_memory().unwrap());
    let base = "x".repeat(CUT);
    // One has as many bytes as a cut key.
    let texts = ["b", "a", "c", "bb"].map(|end| format!("{base}{end}"));
    let texts: Vec<String> = texts.into_iter().chain([base[3..].to_owned()]).collect();
    for connection in [&ours, &stock] {
        connection.execute_batch("CREATE TABLE w(name TEXT PRIMARY KEY, n) WITHOUT ROWID").unwrap();
        for (number, text) in (10_u8..).zip(&texts) {
            connection.execute("INSERT INTO w VALUES(?, ?)", params![text, number]).unwrap();
        }
    }
    // As written by an older version: every second key is whole.
    // SAFETY: it is open.
    let trees = unsafe { DatabaseTrees::of(ours.handle(), "main") }.unwrap();
    let root = ours.query_row("SELECT rootpage FROM sqlite_schema", [], |row| row.get::<_, u32>(0)).unwrap();
    let map = trees.map(root).unwrap();
    let mut transaction = trees.database().begin();
    let entries: Vec<_> = transaction.range::<&[u8]>(map, ..).collect::<Result<_, _>>().unwrap();
    assert_eq!(entries.len(), texts.len());
    for (number, text) in (10_u8..).zip(&texts).step_by(2) {
        let whole = [b"\x25", text.as_bytes(), &[0, 1]].concat();
        let (cut, value) = entries.iter().find(|(_, value)| value.last() == Some(&number)).unwrap();
        if **cut != *whole {
            transaction.delete(map, cut).unwrap();
            transaction.put(map, &whole, value).unwrap();
        }
    }
    transaction.commit().unwrap();
    let check = || {
        for sql in
            ["SELECT n FROM w ORDER BY name", "SELECT n FROM w ORDER BY name DESC", "SELECT count(*) FROM w"]
        {
            both(&ours, &stock, sql, "");
        }
        for text in &texts {
            both(&ours, &stock, "SELECT n FROM w WHERE name >= ? ORDER BY name", text);
            both(&ours, &stock, "SELECT n FROM w WHERE name < ? ORDER BY name DESC", text);
            both(&ours, &stock, "SELECT n FROM w WHERE name = ?", text);
        }
    };
    check();
    for sql in ["UPDATE w SET n = n + 10", "REPLACE INTO w SELECT name, n + 1 FROM w WHERE n % 2 = 0"] {
        both(&ours, &stock, sql, "");
        check();
    }
    for text in &texts[..2] {
        let upsert = "INSERT INTO w VALUES(?, 7) ON CONFLICT(name) DO UPDATE SET n = n + excluded.n";
        both(&ours, &stock, upsert, text);
        check();
    }
    both(&ours, &stock, "DELETE FROM w WHERE name > ?", &texts[1]);
    check();
}

#[test]
fn concurrent_inserts_of_a_long_key_conflict() {
    let place = Place::new("");
    let (one, other) = (place.open(""), place.open(""));
    one.execute_batch(SCHEMA).unwrap();
    let long = "x".repeat(2 * KEY_BYTES_MAX);
    for insert in ["INSERT INTO u VALUES(?)", "INSERT INTO w VALUES(?, 1, 1)"] {
        for connection in [&one, &other] {
            connection.execute_batch("BEGIN").unwrap();
            assert_eq!(connection.execute(insert, [&long]).unwrap(), 1);
        }
        one.execute_batch("COMMIT").unwrap();
        let lost = other.execute_batch("COMMIT").unwrap_err();
        assert_eq!(lost.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{lost}");
        other.execute_batch("ROLLBACK").unwrap();
        let refused = other.execute(insert, [&long]).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::ConstraintViolation), "{refused}");
    }
    assert_eq!(one.query_row("PRAGMA integrity_check", [], |row| row.get(0)), Ok("ok".to_owned()));
}
