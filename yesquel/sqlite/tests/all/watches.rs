//! Leaves that the process watches: reading them costs no round trip, and every change that was
//! acknowledged is seen.

use crate::place::{Place, round_trips};
use rusqlite::{Connection, functions::FunctionFlags};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    thread,
};

const SCHEMA: &str = "CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT UNIQUE, v);
    CREATE TABLE b(id INTEGER PRIMARY KEY, v);
    WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 100)
    INSERT INTO a SELECT i, 'key ' || i, 0 FROM c;
    INSERT INTO b SELECT id, 0 FROM a";

const BY_KEY: &str = "SELECT v FROM a WHERE k = 'key 7'";

/// Reads of a leaf after which it is watched, whatever was written there before.
const READS_MOST: usize = 70;

/// Opens a connection as from another process: with a client of its own.
fn open_elsewhere(place: &Place) -> Connection {
    place.open("timeout=59999")
}

fn value(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn cost<T>(connection: &Connection, act: impl FnOnce() -> T) -> (u64, T) {
    let before = round_trips(connection);
    let done = act();
    (round_trips(connection) - before, done)
}

/// Reads until that costs no round trip.
#[track_caller]
fn warm(connection: &Connection, sql: &str) {
    for _ in 0..READS_MOST {
        if cost(connection, || value(connection, sql)).0 == 0 {
            return;
        }
    }
    panic!("{sql} still costs round trips");
}

#[test]
fn what_is_read_often_costs_no_round_trip() {
    let place = Place::new(SCHEMA);
    let reader = place.open("");
    warm(&reader, BY_KEY);
    let (trips, ()) = cost(&reader, || {
        (1..=100)
            .for_each(|id| assert_eq!(value(&reader, &format!("SELECT v FROM a WHERE k = 'key {id}'")), 0));
        assert_eq!(value(&reader, "SELECT count(*) FROM a WHERE id > 50"), 50);
    });
    assert_eq!(trips, 0);
    // An explicit transaction has a snapshot of its own, and reads the rest here.
    let (trips, ()) = cost(&reader, || {
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(value(&reader, "SELECT v FROM b WHERE id = 1"), 0);
        (0..10).for_each(|_| assert_eq!(value(&reader, BY_KEY), 0));
        reader.execute_batch("COMMIT").unwrap();
    });
    assert_eq!(trips, 1);
    let without = place.open("watch=no");
    let (trips, ()) = cost(&without, || (0..100).for_each(|_| assert_eq!(value(&without, BY_KEY), 0)));
    assert!(trips >= 100, "{trips}");
}

/// As a worker of PHP does: a connection for each page view.
#[test]
fn the_next_connection_finds_what_the_last_has_read() {
    let place = Place::new(SCHEMA);
    let view = |before: u64| {
        let reader = place.open("");
        (0..10).for_each(|_| assert_eq!(value(&reader, BY_KEY), 0));
        let trips = round_trips(&reader);
        (trips - before, trips)
    };
    let (first, mut trips) = view(0);
    assert!(first > 2);
    for _ in 0..READS_MOST {
        let cost;
        (cost, trips) = view(trips);
        if cost == 0 {
            return;
        }
    }
    panic!("views still cost round trips");
}

#[test]
fn a_change_is_seen_once_it_is_committed() {
    let place = Place::new(SCHEMA);
    let (reader, writer) = (place.open(""), open_elsewhere(&place));
    for round in 1..100 {
        warm(&reader, BY_KEY);
        assert_eq!(writer.execute("UPDATE a SET v = ? WHERE id = 7", [round]).unwrap(), 1);
        assert_eq!(value(&reader, BY_KEY), round);
        assert_eq!(value(&writer, BY_KEY), round);
    }
    // Other rows of the leaf, and rows that were not there.
    warm(&reader, BY_KEY);
    writer.execute_batch("INSERT INTO a(k, v) VALUES('new', 1); DELETE FROM a WHERE id = 8").unwrap();
    assert_eq!(value(&reader, "SELECT count(*) FROM a WHERE k = 'new' OR k = 'key 8'"), 1);
}

#[test]
fn own_changes_and_changed_schemas_are_seen() {
    let place = Place::new(SCHEMA);
    let (reader, writer) = (place.open(""), open_elsewhere(&place));
    for round in 1..10 {
        warm(&reader, BY_KEY);
        reader.execute("UPDATE a SET v = ? WHERE id = 7", [round]).unwrap();
        assert_eq!(value(&reader, BY_KEY), round);
    }
    warm(&reader, BY_KEY);
    writer.execute_batch("ALTER TABLE a RENAME COLUMN v TO w").unwrap();
    assert!(reader.query_row(BY_KEY, [], |row| row.get::<_, i64>(0)).is_err());
    assert_eq!(value(&reader, "SELECT w FROM a WHERE k = 'key 7'"), 9);
    warm(&reader, "SELECT v FROM b WHERE id = 1");
    writer
        .execute_batch("DROP TABLE b; CREATE TABLE b(id INTEGER PRIMARY KEY, v); INSERT INTO b VALUES(1, 5)")
        .unwrap();
    assert_eq!(value(&reader, "SELECT v FROM b WHERE id = 1"), 5);
}

/// A transaction keeps its snapshot when what it has read from watched leaves changes.
#[test]
fn a_transaction_reads_one_snapshot() {
    let place = Place::new(SCHEMA);
    let (reader, writer) = (place.open(""), open_elsewhere(&place));
    let set = |value: i64| {
        writer
            .execute_batch(&format!("BEGIN; UPDATE a SET v = {value}; UPDATE b SET v = {value}; COMMIT"))
            .unwrap();
    };
    for round in 1..20 {
        warm(&reader, BY_KEY);
        reader.execute_batch("BEGIN").unwrap();
        set(2 * round);
        assert_eq!(value(&reader, BY_KEY), 2 * round, "its snapshot is that of its first read");
        set(2 * round + 1);
        assert_eq!(value(&reader, "SELECT v FROM b WHERE id = 7"), 2 * round);
        assert_eq!(value(&reader, "SELECT v FROM a WHERE id = 7"), 2 * round);
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!(value(&reader, BY_KEY), 2 * round + 1);
    }
}

/// A statement without a snapshot has read a watched leaf. Then it changes, together with what the
/// statement reads next.
#[test]
fn a_statement_reads_one_snapshot() {
    let place = Place::new(SCHEMA);
    let reader = place.open("");
    let writer = Mutex::new(open_elsewhere(&place));
    let flags = FunctionFlags::SQLITE_UTF8;
    reader
        .create_scalar_function("others_write", 1, flags, move |context| {
            let value: i64 = context.get(0)?;
            let sql = format!("BEGIN; UPDATE a SET v = {value}; UPDATE b SET v = {value}; COMMIT");
            writer.lock().unwrap().execute_batch(&sql).unwrap();
            Ok(0)
        })
        .unwrap();
    for round in 1..20 {
        warm(&reader, "SELECT v FROM a WHERE id = 7");
        let sql = format!(
            "SELECT a.v, others_write({round}), (SELECT v FROM b WHERE b.id = a.id), (SELECT v FROM a WHERE id = 8)
             FROM a WHERE id = 7"
        );
        let read = reader.query_row(&sql, [], |row| {
            Ok([row.get::<_, i64>(0)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?])
        });
        assert_eq!(read.unwrap(), [round - 1; 3]);
        assert_eq!(value(&reader, "SELECT v FROM a WHERE id = 7"), round);
    }
}

/// A write by the connection of an open statement is checked against what that statement has read.
#[test]
fn a_write_beside_a_read_statement_loses_no_update() {
    let place = Place::new(SCHEMA);
    let (reader, writer) = (place.open(""), open_elsewhere(&place));
    for _ in 0..10 {
        warm(&reader, "SELECT v FROM a WHERE id = 7");
        let before = value(&writer, "SELECT v FROM a WHERE id = 7");
        let mut statement = reader.prepare("SELECT v FROM a WHERE id >= 7").unwrap();
        let mut rows = statement.query([]).unwrap();
        assert_eq!(rows.next().unwrap().unwrap().get::<_, i64>(0).unwrap(), before);
        writer.execute_batch("UPDATE a SET v = v + 100 WHERE id = 7").unwrap();
        let written = reader.execute("UPDATE a SET v = v + 1 WHERE id = 7", []);
        drop(rows);
        drop(statement);
        let after = value(&writer, "SELECT v FROM a WHERE id = 7");
        assert_eq!(after, before + 100 + i64::from(written.is_ok()), "{written:?}");
    }
}

/// Readers with clients of their own, beside writers: what was acknowledged before a statement is
/// seen by it, and no statement sees a part of a transaction.
#[test]
fn acknowledged_commits_are_seen_beside_writers() {
    const WRITES: i64 = 150;
    let place = Place::new(SCHEMA);
    let acknowledged = AtomicI64::new(0);
    thread::scope(|scope| {
        for number in 0..3 {
            let (place, acknowledged) = (&place, &acknowledged);
            scope.spawn(move || {
                let reader = place.open(&format!("timeout={}", 50_000 + number));
                let mut last = 0;
                while last < WRITES {
                    // Many reads, so that leaves are watched, between two that show the order.
                    for _ in 0..20 {
                        let floor = acknowledged.load(SeqCst);
                        let sql = "SELECT a.v, b.v FROM a JOIN b ON b.id = a.id + 1 WHERE a.k = 'key 7'";
                        let pair = reader.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
                        let (one, other): (i64, i64) = pair.unwrap();
                        assert_eq!(one, other);
                        assert!(one >= floor.max(last), "{one}, acknowledged {floor}, seen {last}");
                        last = one;
                    }
                }
            });
        }
        let writer = open_elsewhere(&place);
        for written in 1..=WRITES {
            let sql = format!(
                "BEGIN IMMEDIATE; UPDATE a SET v = {written} WHERE id = 7;
                 UPDATE b SET v = {written} WHERE id = 8; COMMIT"
            );
            writer.execute_batch(&sql).unwrap();
            acknowledged.store(written, SeqCst);
            // Time for the readers: leaves are watched after some reads only.
            (0..written % 7 * 10).for_each(|_| assert_eq!(value(&writer, BY_KEY), written));
        }
    });
}
