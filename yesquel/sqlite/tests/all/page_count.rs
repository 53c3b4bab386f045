//! `PRAGMA page_count`: an estimate, by which programs bound the size of a database.

use crate::place::round_trips;
use rusqlite::Connection;
use tempfile::TempDir;
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};

/// Bytes of a page.
const PAGE: i64 = 4096;

/// A database in memory, in a folder, and at a server.
fn each_place(act: impl Fn(Connection)) {
    assert!(yesquel_sqlite::is_linked());
    let folder = TempDir::new().unwrap();
    let path = folder.path().display();
    let socket = Address::Unix(folder.path().join("socket"));
    let listen = ListenOptions { addresses: vec![socket], ..ListenOptions::default() };
    let _server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
    for name in [
        "file:yesquel:".to_owned(),
        format!("file:yesquel:{path}/data?durability=none"),
        format!("file:yesquel://{path}/socket/shop"),
    ] {
        println!("{name}");
        act(Connection::open(&name).unwrap());
    }
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn pages(connection: &Connection) -> i64 {
    number(connection, "PRAGMA page_count")
}

/// A hundred pages of rows with an index.
const FILL: &str = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 1000)
    INSERT INTO t(name, value) SELECT 'name ' || i, randomblob(400) FROM c";

#[test]
fn the_estimate_follows_the_content() {
    each_place(|connection| {
        assert_eq!(pages(&connection), 0, "an empty database");
        let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, value); CREATE INDEX i ON t(name)";
        connection.execute_batch(schema).unwrap();
        assert_eq!(pages(&connection), 3, "the schema, a table, an index");
        connection.execute_batch(FILL).unwrap();
        let full = pages(&connection);
        let file = Connection::open_in_memory().unwrap();
        file.execute_batch(schema).unwrap();
        file.execute_batch(FILL).unwrap();
        let stock = pages(&file);
        assert!((stock * 3 / 4..=stock * 5 / 4).contains(&full), "{full}, as a file {stock}");

        // Own writes count before the commit.
        connection.execute_batch("BEGIN").unwrap();
        connection.execute_batch(FILL).unwrap();
        let more = pages(&connection);
        assert!((full * 7 / 4..=full * 9 / 4).contains(&more), "{full}, then {more}");
        connection.execute_batch("ROLLBACK").unwrap();
        assert_eq!(pages(&connection), full);

        // The same rows again, with other names.
        connection.execute_batch("UPDATE t SET name = 'other ' || id").unwrap();
        let updated = pages(&connection);
        assert!((full - 5..=full + 5).contains(&updated), "{full}, then {updated}");
        connection.execute_batch("DELETE FROM t WHERE id % 2").unwrap();
        let half = pages(&connection);
        assert!((full * 2 / 5..=full * 3 / 5).contains(&half), "{full}, then {half}");
        connection.execute_batch("DELETE FROM t").unwrap();
        assert_eq!(pages(&connection), 3);
        connection.execute_batch("DROP TABLE t").unwrap();
        assert_eq!(pages(&connection), 0);
        assert_eq!(number(&connection, "PRAGMA freelist_count"), 0);
        assert_eq!(number(&connection, "PRAGMA max_page_count"), i64::from(u32::MAX - 1));
    });
}

/// As Python's `diskcache` does: after each write it asks for the size, and evicts ten rows while
/// that is above the limit.
#[test]
fn a_cache_that_evicts_by_its_size_stays_at_its_limit() {
    const LIMIT: i64 = 100 * PAGE;
    each_place(|connection| {
        let schema =
            "CREATE TABLE cache(id INTEGER PRIMARY KEY, value); CREATE INDEX by_value ON cache(value)";
        connection.execute_batch(schema).unwrap();
        for write in 0..600 {
            connection.execute_batch("INSERT INTO cache(value) VALUES(randomblob(1000))").unwrap();
            if pages(&connection) * PAGE > LIMIT {
                let evict = "DELETE FROM cache WHERE id IN (SELECT id FROM cache ORDER BY id LIMIT 10)";
                connection.execute_batch(evict).unwrap();
            }
            let rows = number(&connection, "SELECT count(*) FROM cache");
            // A row takes its value twice.
            assert!(rows * 2000 <= LIMIT + 20 * PAGE, "{rows} rows after {write} writes");
            assert!(write < 200 || rows * 2000 >= LIMIT / 2, "{rows} rows after {write} writes");
        }
    });
}

#[test]
fn a_size_that_is_known_takes_no_round_trip() {
    each_place(|connection| {
        connection.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES(1)").unwrap();
        // Answers are used for a second; the machine may be slow now and then.
        let is_free = (0..1000).any(|_| {
            let before = round_trips(&connection);
            assert_eq!(pages(&connection), 2);
            round_trips(&connection) == before
        });
        assert!(is_free);
    });
}
