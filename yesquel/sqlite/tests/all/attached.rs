//! Transactions over two databases of a store.

use crate::place::{Place, round_trips};
use rusqlite::{Connection, ErrorCode};
use std::{thread, time::Duration};
use tempfile::TempDir;

/// A server with two databases, each with a counter in a table.
fn two_counters() -> Place {
    let place = Place::new("");
    for name in ["a", "b"] {
        let schema = format!("CREATE TABLE {name}(n); INSERT INTO {name} VALUES(0)");
        place.open_named(name, "").execute_batch(&schema).unwrap();
    }
    place
}

/// A connection to both: one is main, the other attached.
fn both(place: &Place, main: &str, other: &str) -> Connection {
    let connection = place.open_named(main, "");
    let name = format!("file:yesquel://{}/{other}", place.socket().display());
    connection.execute("ATTACH ? AS other", [name]).unwrap();
    // The schemas are known from now on.
    assert!(counters(&connection).0 >= 0);
    connection
}

fn counters(connection: &Connection) -> (i64, i64) {
    connection.query_row("SELECT a.n, b.n FROM a, b", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

fn leases(place: &Place) -> u64 {
    place.store().status().unwrap().transactions.leases
}

/// As in SQLite, BEGIN IMMEDIATE keeps other writers from all databases of the connection.
#[test]
fn begin_immediate_leases_all_databases() {
    let place = two_counters();
    let holder = both(&place, "a", "b");
    for (name, is_busy) in [("a", true), ("b", true), ("shop", false)] {
        let other = place.open_named(name, "");
        let write = format!("CREATE TABLE IF NOT EXISTS {name}(n); UPDATE {name} SET n=n+1");
        other.execute_batch(&write).unwrap();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        other.busy_timeout(Duration::ZERO).unwrap();
        let outcome = other.execute_batch(&format!("UPDATE {name} SET n=n+1"));
        let code = outcome.err().and_then(|error| error.sqlite_error_code());
        assert_eq!(code, is_busy.then_some(ErrorCode::DatabaseBusy), "{name}");
        // COMMIT releases both, whether it writes to both, to one or to none.
        let writes = ["UPDATE a SET n=n; UPDATE b SET n=n", "UPDATE b SET n=n", ""];
        holder.execute_batch(writes[usize::from(name != "a") + usize::from(!is_busy)]).unwrap();
        holder.execute_batch("COMMIT").unwrap();
        assert_eq!(leases(&place), 0);
        other.execute_batch(&format!("UPDATE {name} SET n=n+1")).unwrap();
    }
}

/// Two connections to the same databases in opposite orders do not wait for each other.
#[test]
fn begin_immediate_in_opposite_orders_does_not_deadlock() {
    const TURNS: i64 = 40;
    let place = two_counters();
    thread::scope(|scope| {
        for (main, other) in [("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")] {
            let place = &place;
            scope.spawn(move || {
                let connection = both(place, main, other);
                connection.busy_timeout(Duration::from_secs(600)).unwrap();
                for _ in 0..TURNS {
                    connection
                        .execute_batch("BEGIN IMMEDIATE; UPDATE a SET n=n+1; UPDATE b SET n=n+1; COMMIT")
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(counters(&both(&place, "a", "b")), (4 * TURNS, 4 * TURNS));
    assert_eq!(leases(&place), 0);
}

#[test]
fn begin_immediate_of_two_databases_takes_one_round_trip() {
    let place = two_counters();
    let (one, two) = (place.open_named("a", "timeout=59999"), both(&place, "a", "b"));
    let cost = |connection: &Connection, sql: &str| {
        let before = round_trips(connection);
        connection.execute_batch(sql).unwrap();
        round_trips(connection) - before
    };
    for connection in [&one, &two] {
        connection.execute_batch("BEGIN IMMEDIATE; UPDATE a SET n=n+1; COMMIT").unwrap();
        assert_eq!(cost(connection, "BEGIN IMMEDIATE"), 1);
        connection.execute_batch("UPDATE a SET n=n+1").unwrap();
        assert_eq!(cost(connection, "COMMIT"), 1);
    }
}

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
