//! Error messages for users.

#![expect(unsafe_code, reason = "SQLite reads a database from memory")]

use rusqlite::{Connection, OpenFlags, ffi};
use std::process::id;

fn open(name: &str) -> Result<Connection, String> {
    assert!(yesquel_sqlite::is_linked());
    Connection::open_with_flags(name, OpenFlags::default()).map_err(|error| error.to_string())
}

#[test]
fn an_invalid_address_is_explained() {
    for (name, says) in [
        ("file:yesquel:data?speed=9", "speed=9: there is no such option"),
        ("file:yesquel://db", "it is yesquel://HOST:PORT/NAME"),
        ("file:yesquel://127.0.0.1:port/shop", "a port is a number"),
    ] {
        let message = open(name).expect_err(name);
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn an_unreachable_server_is_named() {
    let message = open("file:yesquel:///nowhere/at/all.sock/shop?timeout=100").unwrap_err();
    assert!(message.contains("/nowhere/at/all.sock"), "{message}");
}

#[test]
fn a_folder_in_use_names_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("file:yesquel:{}", folder.path().display());
    let first = open(&name).unwrap();
    // Another path to the same folder is the same store.
    let again = open(&format!("file:yesquel:{}/.", folder.path().display())).unwrap();
    first.execute_batch("CREATE TABLE t(a)").unwrap();
    again.execute_batch("INSERT INTO t VALUES(1)").unwrap();
    drop((first, again));
    // A separate store in the same process is not.
    let _taken = yesquel::Store::open(folder.path()).unwrap();
    let message = open(&name).unwrap_err();
    assert!(message.contains(&id().to_string()), "{message}");
    let attached = open(":memory:").unwrap().execute("ATTACH ? AS shop", [name]).unwrap_err().to_string();
    assert!(attached.contains(&id().to_string()), "{attached}");
}

#[test]
fn a_conflict_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("file:yesquel:{}?durability=none", folder.path().display());
    let (one, other) = (open(&name).unwrap(), open(&name).unwrap());
    one.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES(1); BEGIN; UPDATE t SET a=2").unwrap();
    other.execute_batch("UPDATE t SET a=3").unwrap();
    let message = one.execute_batch("COMMIT").unwrap_err().to_string();
    assert!(message.contains("database is locked") && message.contains("begin again"), "{message}");
}

#[test]
fn read_only_connections_create_no_database() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("file:yesquel:{}?durability=none", folder.path().display());
    let read = |name: &str| {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(name, flags).map_err(|error| error.to_string())
    };
    let message = read(&name).unwrap_err();
    assert!(message.contains("no database"), "{message}");
    open(&name).unwrap().execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES(1)").unwrap();
    let reader = read(&name).unwrap();
    assert_eq!(reader.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0)), Ok(1));
    let message = reader.execute("INSERT INTO t VALUES(2)", []).unwrap_err().to_string();
    assert!(message.contains("readonly"), "{message}");
}

#[test]
fn statistics_in_a_virtual_table_are_a_damaged_schema() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&format!("file:yesquel:{}?durability=none", folder.path().display())).unwrap();
    db.execute_batch(
        "CREATE TABLE t(a); INSERT INTO t VALUES(1); PRAGMA writable_schema=ON;
         CREATE VIRTUAL TABLE sqlite_stat1 USING fts5(a); PRAGMA writable_schema=OFF",
    )
    .unwrap();
    // The table that it would clear has no root.
    let error = db.execute_batch("ANALYZE").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseCorrupt), "{error}");
    assert_eq!(db.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0)), Ok(1));
}

#[test]
fn sqlite_itself_explains_a_file_that_holds_an_address() {
    let mut content = yesquel_sqlite::address_file("yesquel://db.example.org/shop").unwrap();
    let connection = Connection::open_in_memory().unwrap();
    let (length, bytes) = (content.len() as i64, content.as_mut_ptr());
    // SAFETY: the bytes outlive the connection, which does not change them.
    let code = unsafe {
        let flags = ffi::SQLITE_DESERIALIZE_READONLY;
        ffi::sqlite3_deserialize(connection.handle(), c"main".as_ptr(), bytes, length, length, flags)
    };
    assert_eq!(code, ffi::SQLITE_OK);
    for sql in
        ["SELECT * FROM page", "CREATE TABLE t(a)", "PRAGMA journal_mode = wal", "PRAGMA integrity_check"]
    {
        let message = connection.execute_batch(sql).unwrap_err().to_string();
        assert!(
            message.contains("(this file holds the address of a Yesquel database and no data: "),
            "{message}"
        );
    }
    drop(connection);
    drop(content);
}
