//! Concurrent writers.

use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
use std::{thread, time::Duration};
use tempfile::TempDir;

const THREADS: i64 = 4;
const TIMES: i64 = 100;

/// Database in a folder, without syncs.
struct Shop(TempDir);

impl Shop {
    fn new(schema: &str) -> Shop {
        assert!(yesquel_sqlite::is_linked());
        let shop = Shop(TempDir::new().unwrap());
        shop.open().execute_batch(schema).unwrap();
        shop
    }

    fn open(&self) -> Connection {
        let name = format!("file:yesquel:{}?durability=none", self.0.path().display());
        let connection = Connection::open_with_flags(name, OpenFlags::default()).unwrap();
        assert!(connection.path().unwrap().starts_with("yesquel:"));
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection
    }

    /// Runs a closure several times on each of some threads, each with a connection of its own.
    fn each(&self, act: impl Fn(&mut Connection, i64, i64) + Sync) {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (act, mut connection) = (&act, self.open());
                scope.spawn(move || (0..TIMES).for_each(|time| act(&mut connection, thread, time)));
            }
        });
    }

    fn number(&self, sql: &str) -> i64 {
        self.open().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn is_whole(&self) {
        let report: String = self.open().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(report, "ok");
    }
}

#[test]
fn concurrent_inserts_do_not_conflict() {
    let shop = Shop::new("CREATE TABLE t(id INTEGER PRIMARY KEY, thread, time)");
    shop.each(|connection, thread, time| {
        let changes = connection.execute("INSERT INTO t(thread, time) VALUES(?, ?)", [thread, time]).unwrap();
        assert_eq!(changes, 1);
        let row: [i64; 2] = connection
            .query_row("SELECT thread, time FROM t WHERE id=?", [connection.last_insert_rowid()], |row| {
                Ok([row.get(0)?, row.get(1)?])
            })
            .unwrap();
        assert_eq!(row, [thread, time]);
    });
    assert_eq!(shop.number("SELECT count(DISTINCT thread * 1000 + time) FROM t"), THREADS * TIMES);
    shop.is_whole();
}

#[test]
fn autoincrement_gives_each_insert_its_own_number() {
    let shop = Shop::new("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, thread, time)");
    shop.each(|connection, thread, time| {
        connection.execute("INSERT INTO t(thread, time) VALUES(?, ?)", [thread, time]).unwrap();
    });
    assert_eq!(shop.number("SELECT count(*) FROM t"), THREADS * TIMES);
    let most = shop.number("SELECT max(id) FROM t");
    assert_eq!(shop.number("SELECT seq FROM sqlite_sequence WHERE name='t'"), most);
}

#[test]
fn a_statement_that_conflicts_is_retried() {
    let shop = Shop::new("CREATE TABLE t(n); INSERT INTO t VALUES(0)");
    shop.each(|connection, _, _| assert_eq!(connection.execute("UPDATE t SET n=n+1", []).unwrap(), 1));
    assert_eq!(shop.number("SELECT n FROM t"), THREADS * TIMES);
}

#[test]
fn a_unique_value_is_inserted_once() {
    let shop = Shop::new("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, thread)");
    let ins = std::sync::atomic::AtomicI64::new(0);
    shop.each(|connection, thread, time| {
        match connection.execute("INSERT INTO t(name, thread) VALUES(?, ?)", (format!("n{time}"), thread)) {
            Ok(_) => drop(ins.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
            Err(error) => {
                assert_eq!(error.sqlite_error_code(), Some(ErrorCode::ConstraintViolation), "{error}")
            }
        }
    });
    assert_eq!(ins.into_inner(), TIMES);
    assert_eq!(shop.number("SELECT count(*) FROM t"), TIMES);
    assert_eq!(shop.number("SELECT count(DISTINCT name) FROM t"), TIMES);
    shop.is_whole();
}

#[test]
fn foreign_keys_hold_under_concurrent_changes() {
    let shop = Shop::new(
        "CREATE TABLE parent(id INTEGER PRIMARY KEY);
         CREATE TABLE child(parent REFERENCES parent(id), thread);
         CREATE INDEX children ON child(parent)",
    );
    shop.each(|connection, thread, time| {
        connection.execute_batch("PRAGMA foreign_keys=ON").unwrap();
        let id = time / 2;
        let done = match thread {
            0 => connection.execute("INSERT OR IGNORE INTO parent VALUES(?)", [id]),
            1 => connection.execute("DELETE FROM parent WHERE id=?", [id]),
            _ => connection.execute("INSERT INTO child VALUES(?, ?)", [id, thread]),
        };
        if let Err(error) = done {
            assert_eq!(error.sqlite_error_code(), Some(ErrorCode::ConstraintViolation), "{error}");
        }
    });
    assert_eq!(shop.number("SELECT count(*) FROM pragma_foreign_key_check"), 0);
    shop.is_whole();
}

#[test]
fn begin_immediate_never_conflicts() {
    let shop = Shop::new("CREATE TABLE t(n); INSERT INTO t VALUES(0)");
    shop.each(|connection, _, _| {
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let n: i64 = connection.query_row("SELECT n FROM t", [], |row| row.get(0)).unwrap();
        connection.execute("UPDATE t SET n=?", [n + 1]).unwrap();
        connection.execute_batch("COMMIT").unwrap();
    });
    assert_eq!(shop.number("SELECT n FROM t"), THREADS * TIMES);
}

#[test]
fn a_conflict_of_an_explicit_transaction_is_reported() {
    let shop = Shop::new("CREATE TABLE t(n); INSERT INTO t VALUES(0)");
    let (one, other) = (shop.open(), shop.open());
    one.execute_batch("BEGIN; UPDATE t SET n=1").unwrap();
    other.execute_batch("UPDATE t SET n=2").unwrap();
    let busy = |outcome: Result<(), Error>| match outcome {
        Err(Error::SqliteFailure(error, _)) => error.extended_code,
        other => panic!("{other:?}"),
    };
    assert_eq!(busy(one.execute_batch("COMMIT")), rusqlite::ffi::SQLITE_BUSY_SNAPSHOT);
    // The transaction is open, and can only be rolled back.
    assert!(!one.is_autocommit());
    assert_eq!(busy(one.execute_batch("UPDATE t SET n=3")), rusqlite::ffi::SQLITE_BUSY_SNAPSHOT);
    one.execute_batch("ROLLBACK").unwrap();
    one.execute_batch("UPDATE t SET n=n+1").unwrap();
    assert_eq!(shop.number("SELECT n FROM t"), 3);
}

#[test]
fn an_index_created_concurrently_contains_every_row() {
    let shop = Shop::new("CREATE TABLE t(id INTEGER PRIMARY KEY, thread, time)");
    shop.each(|connection, thread, time| {
        let sql = match (thread, time % 10) {
            (0, 3) => "CREATE INDEX times ON t(time)",
            (0, 8) => "DROP INDEX times",
            _ => {
                connection.execute("INSERT INTO t(thread, time) VALUES(?, ?)", [thread, time]).unwrap();
                return;
            }
        };
        connection.execute_batch(sql).unwrap();
        if time % 10 == 3 {
            let report: String =
                connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(report, "ok");
        }
    });
    assert_eq!(shop.number("SELECT count(*) FROM t"), THREADS * TIMES - TIMES / 5);
    shop.is_whole();
}

#[test]
fn a_single_connection_gets_the_row_ids_of_sqlite() {
    let shop = Shop::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    let connection = shop.open();
    let insert = || {
        connection.execute("INSERT INTO t(v) VALUES(0)", []).unwrap();
        connection.last_insert_rowid()
    };
    assert_eq!([insert(), insert(), insert()], [1, 2, 3]);
    connection.execute("INSERT INTO t VALUES(10, 0)", []).unwrap();
    assert_eq!([insert(), insert()], [11, 12]);
    connection.execute("DELETE FROM t WHERE id>3", []).unwrap();
    assert_eq!(insert(), 4);
    connection.execute_batch("BEGIN").unwrap();
    assert_eq!(insert(), 5);
    connection.execute_batch("ROLLBACK").unwrap();
    assert_eq!(insert(), 5);
    connection.execute("DELETE FROM t", []).unwrap();
    assert_eq!(insert(), 1);
    connection.execute("INSERT INTO t VALUES(-5, 0)", []).unwrap();
    assert_eq!(insert(), 2);
    connection.execute("INSERT INTO t VALUES(9223372036854775807, 0)", []).unwrap();
    let random = insert();
    assert!(random > 2 && random < i64::MAX, "{random}");
}

#[test]
fn chosen_numbers_that_are_rolled_back_have_no_effect() {
    let shop =
        Shop::new("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v); INSERT INTO t VALUES(1, 0)");
    let stock = Connection::open_in_memory().unwrap();
    stock
        .execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v); INSERT INTO t VALUES(1, 0)")
        .unwrap();
    let (ours, other) = (shop.open(), shop.open());
    let seen = |connection: &Connection| -> (i64, i64) {
        connection
            .query_row("SELECT (SELECT max(id) FROM t), seq FROM sqlite_sequence", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap()
    };
    for sql in [
        "BEGIN; INSERT INTO t VALUES(5000, 1)",
        "ROLLBACK",
        "INSERT INTO t(v) VALUES(2)",
        "BEGIN; INSERT INTO t VALUES(100, 3); SAVEPOINT a; INSERT INTO t VALUES(7000, 4)",
        "ROLLBACK TO a",
        "INSERT INTO t VALUES(200, 6); SAVEPOINT b; INSERT INTO t VALUES(300, 7); RELEASE b",
        "ROLLBACK TO a; INSERT INTO t(v) VALUES(8)",
        "INSERT INTO t VALUES(400, 9); COMMIT",
        "DELETE FROM t WHERE id = 400; INSERT INTO t(v) VALUES(10)",
    ] {
        for connection in [&ours, &stock] {
            connection.execute_batch(sql).unwrap();
        }
        assert_eq!(seen(&ours), seen(&stock), "{sql}");
    }
    // Others continue from there.
    other.execute_batch("INSERT INTO t(v) VALUES(11)").unwrap();
    assert_eq!(seen(&other), (402, 402));
}

#[test]
fn autoincrement_equals_sqlites_for_a_single_connection() {
    let shop = Shop::new("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v)");
    let (ours, stock) = (shop.open(), Connection::open_in_memory().unwrap());
    stock.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v)").unwrap();
    for sql in [
        "INSERT INTO t(v) VALUES('a'), ('b')",
        "INSERT INTO t VALUES(10, 'c')",
        "INSERT INTO t(v) VALUES('d')",
        "DELETE FROM t WHERE id >= 10",
        "INSERT INTO t(v) VALUES('e')",
        "BEGIN; INSERT INTO t(v) VALUES('f'); INSERT INTO t(v) VALUES('g'); ROLLBACK",
        "INSERT INTO t(v) VALUES('h')",
        "BEGIN; INSERT INTO t(v) VALUES('i'); INSERT INTO t VALUES(20, 'j'); INSERT INTO t(v) VALUES('k'); COMMIT",
        "INSERT INTO t(v) SELECT v FROM t",
        "INSERT INTO t(v) SELECT v FROM t",
        "UPDATE t SET id = 900 WHERE id = 20",
        "INSERT INTO t(v) VALUES('l')",
        "UPDATE sqlite_sequence SET seq = 1000 WHERE name = 't'",
        "INSERT INTO t(v) VALUES('m')",
        "DELETE FROM t; UPDATE sqlite_sequence SET seq = 0",
        "INSERT INTO t(v) VALUES('n')",
        "DELETE FROM t; DELETE FROM sqlite_sequence",
        "INSERT INTO t(v) VALUES('o')",
        "CREATE TABLE u(id INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO u VALUES(NULL), (NULL), (-5)",
        "ALTER TABLE u RENAME TO w; INSERT INTO w VALUES(NULL)",
        "INSERT INTO w VALUES(NULL)",
        "DROP TABLE w",
    ] {
        let state = |connection: &Connection| {
            connection.execute_batch(sql).unwrap();
            let sql = "SELECT group_concat(id || v) FROM (SELECT * FROM t ORDER BY id)
                       UNION ALL SELECT group_concat(name || seq) FROM (SELECT * FROM sqlite_sequence ORDER BY 1)";
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
            rows.collect::<Result<Vec<_>, _>>().unwrap()
        };
        assert_eq!(state(&ours), state(&stock), "{sql}");
    }
}

#[test]
fn concurrent_autoincrement_transactions_do_not_conflict() {
    let shop =
        Shop::new("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v); INSERT INTO t VALUES(1, 0)");
    shop.each(|connection, thread, time| {
        // No conflict, so that no retry is needed.
        let transaction = connection.transaction().unwrap();
        for _ in 0..3 {
            transaction.execute("INSERT INTO t(v) VALUES(?)", [thread * TIMES + time]).unwrap();
        }
        transaction.commit().unwrap();
    });
    assert_eq!(shop.number("SELECT count(DISTINCT id) FROM t"), 1 + 3 * THREADS * TIMES);
    assert_eq!(shop.number("SELECT count(*) FROM sqlite_sequence"), 1);
    assert!(shop.number("SELECT seq FROM sqlite_sequence") >= shop.number("SELECT max(id) FROM t"));
    shop.is_whole();
}

#[test]
fn tables_with_the_same_name_in_two_databases_count_separately() {
    let shop = Shop::new("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v)");
    let connection = shop.open();
    let other = format!("file:yesquel:{}?durability=none&database=other", shop.0.path().display());
    connection.execute("ATTACH ? AS other", [other]).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE other.t(id INTEGER PRIMARY KEY AUTOINCREMENT, v);
             BEGIN;
             INSERT INTO main.t(v) VALUES(1), (2);
             INSERT INTO other.t(v) VALUES(3);
             INSERT INTO main.t(v) VALUES(4);
             INSERT INTO other.t(v) VALUES(5);
             COMMIT",
        )
        .unwrap();
    let ids = |table: &str| -> String {
        let sql = format!("SELECT group_concat(id) FROM (SELECT id FROM {table} ORDER BY id)");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!((ids("main.t"), ids("other.t")), ("1,2,3".to_owned(), "1,2".to_owned()));
}
