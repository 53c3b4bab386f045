//! Malformed records: another client of the server can write any bytes. SQLite must report them and
//! read nothing beyond their end.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
#![expect(
    unsafe_code,
    reason = "it takes the handle of a connection, and guards memory by the system's pages"
)]

mod guarded;

use guarded::{GuardedAllocator, guard};
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use std::{
    ffi::{c_char, c_int, c_void},
    ptr,
};
use yesquel_seeds::{Random, check_seeds};
use yesquel_sqlite::DatabaseTrees;

#[global_allocator]
static ALLOCATOR: GuardedAllocator = GuardedAllocator;

const SCHEMA: &str = "CREATE TABLE t(a INTEGER, b TEXT, c REAL, d BLOB);
    CREATE INDEX by_b ON t(b, a);
    CREATE INDEX by_a ON t(a);
    CREATE TABLE w(a INTEGER, b TEXT, c REAL, PRIMARY KEY(a, b)) WITHOUT ROWID;
    CREATE INDEX w_by_c ON w(c);
    INSERT INTO t VALUES(1, 'one', 1.5, x'01'), (2, 'two', 2.5, x'02'), (NULL, NULL, NULL, NULL);
    INSERT INTO w VALUES(1, 'one', 1.5), (2, 'two', 2.5);";

/// Statements that decode records in all ways: columns, comparisons with keys, row ids of entries,
/// copies, and the values before a change.
const STATEMENTS: &[&str] = &[
    "SELECT * FROM t",
    "SELECT d, c, b, a FROM t ORDER BY c",
    "SELECT a, b FROM t INDEXED BY by_b WHERE b >= 'a' AND b <= 'z'",
    "SELECT * FROM t INDEXED BY by_b WHERE b = 'two' AND a > 0 AND a < 9",
    "SELECT * FROM t INDEXED BY by_a WHERE a >= -9 AND a < 9",
    "SELECT * FROM t INDEXED BY by_a WHERE a <= 9 ORDER BY a DESC",
    "SELECT * FROM t INDEXED BY by_a WHERE a IS NULL",
    "SELECT a, count(*) FROM t GROUP BY a",
    "SELECT * FROM w",
    "SELECT * FROM w WHERE a = 1 AND b = 'one'",
    "SELECT * FROM w WHERE a > 0 AND a < 9",
    "SELECT * FROM w INDEXED BY w_by_c WHERE c > 1.0 AND c < 9.5",
    "PRAGMA quick_check",
    "PRAGMA integrity_check",
    "CREATE TEMP TABLE IF NOT EXISTS copied AS SELECT * FROM t",
    "CREATE TABLE u(a INTEGER, b TEXT, c REAL, d BLOB)",
    "INSERT INTO u SELECT * FROM t",
    "DROP TABLE u",
    "ANALYZE",
    "UPDATE t SET d = c",
    "UPDATE w SET c = 7.5",
    "DELETE FROM t WHERE b = 'one'",
    "DELETE FROM t",
    "DELETE FROM w",
];

unsafe extern "C" {
    fn sqlite3_preupdate_hook(
        connection: *mut ffi::sqlite3,
        hook: extern "C" fn(*mut c_void, *mut ffi::sqlite3, c_int, *const c_char, *const c_char, i64, i64),
        argument: *mut c_void,
    ) -> *mut c_void;
    fn sqlite3_preupdate_old(
        connection: *mut ffi::sqlite3,
        column: c_int,
        value: *mut *mut ffi::sqlite3_value,
    ) -> c_int;
}

/// Reads a row before it changes.
extern "C" fn read_old(
    _: *mut c_void,
    connection: *mut ffi::sqlite3,
    _: c_int,
    _: *const c_char,
    _: *const c_char,
    _: i64,
    _: i64,
) {
    let mut value = ptr::null_mut();
    // SAFETY: it is the connection that calls this; the value is not used.
    unsafe { sqlite3_preupdate_old(connection, 1, &mut value) };
}

/// A record with random serial types and bytes, whose lengths fit now and then; or a valid one with
/// changes.
fn hostile(random: &mut Random, valid: &[u8]) -> Vec<u8> {
    let mut record = match random.next(4) {
        0 => (0..random.next(24)).map(|_| random.next(256) as u8).collect(),
        1 => {
            let fields = random.next(6) as u8;
            let mut record = vec![fields + 1];
            record.extend((0..fields).map(|_| random.next(20) as u8));
            record.extend((0..random.next(12)).map(|_| random.next(256) as u8));
            record
        }
        _ => valid.to_vec(),
    };
    for _ in 0..random.next(3) {
        let byte = [0, 1, 6, 7, 0x3f, 0x7f, 0x80, 0xff, random.next(256) as u8][random.next(9) as usize];
        let at = random.next(record.len() as u64 + 1) as usize;
        match record.get_mut(at) {
            Some(changed) => *changed = byte,
            None => record.push(byte),
        }
    }
    if random.next(2) == 0 {
        record.truncate(random.next(record.len() as u64 + 1) as usize);
    }
    record
}

/// Replaces the records of a tree's entries.
fn spoil(random: &mut Random, trees: &DatabaseTrees, root: u32, is_index: bool) {
    let database = trees.database();
    let map = trees.map(root).unwrap();
    let mut transaction = database.begin();
    let entries: Vec<_> = transaction.range::<&[u8]>(map, ..).collect::<Result<_, _>>().unwrap();
    for (key, value) in entries {
        let begin = if is_index { 1 + usize::from(value[0]) } else { 0 };
        let mut spoilt = value[..begin].to_vec();
        spoilt.extend(hostile(random, &value[begin..]));
        if is_index && random.next(8) == 0 {
            spoilt.truncate(random.next(2) as usize);
        }
        if random.next(3) > 0 {
            transaction.put(map, &key, &spoilt).unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// Runs a statement and reads its rows. Returns whether it found a malformed record.
fn finds_damage(connection: &Connection, sql: &str) -> bool {
    let read = || {
        let mut statement = connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                row.get_ref(column)?;
            }
        }
        Ok::<(), rusqlite::Error>(())
    };
    read().is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt))
}

#[test]
fn malformed_records_are_read_within_their_bounds() {
    guard();
    assert!(yesquel_sqlite::is_linked());
    let (mut damaged, mut read) = (0, 0);
    check_seeds(400, |seed| {
        let random = &mut Random::new(seed);
        let connection = Connection::open_with_flags("file:yesquel:", OpenFlags::default()).unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        let roots = |sql: &str| -> Vec<(u32, bool)> {
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            rows.collect::<Result<_, _>>().unwrap()
        };
        let all = roots("SELECT rootpage, name <> 't' FROM sqlite_schema");
        // SAFETY: the connection is open, and its hook has no argument.
        let trees = unsafe {
            sqlite3_preupdate_hook(connection.handle(), read_old, ptr::null_mut());
            DatabaseTrees::of(connection.handle(), "main").unwrap()
        };
        for (root, is_index) in all {
            spoil(random, &trees, root, is_index);
        }
        for sql in STATEMENTS {
            if finds_damage(&connection, sql) { damaged += 1 } else { read += 1 }
        }
    });
    println!("{damaged} statements found a malformed record, {read} did not");
    assert!(damaged > 100 && read > 100);
}

#[test]
fn a_record_without_bytes_is_malformed() {
    let connection = Connection::open_with_flags("file:yesquel:", OpenFlags::default()).unwrap();
    connection.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES(1)").unwrap();
    // SAFETY: the connection is open.
    let trees = unsafe { DatabaseTrees::of(connection.handle(), "main") }.unwrap();
    let root = connection.query_row("SELECT rootpage FROM sqlite_schema", [], |row| row.get::<_, u32>(0));
    let map = trees.map(root.unwrap()).unwrap();
    trees.database().put(map, &[0x80, 0, 0, 0, 0, 0, 0, 1], b"").unwrap();
    let read = connection.query_row("SELECT a FROM t", [], |row| row.get::<_, Option<i64>>(0));
    assert_eq!(read, Ok(None), "as SQLite reads a record whose header has no bytes");
    connection.execute_batch("DELETE FROM t").unwrap();
}
