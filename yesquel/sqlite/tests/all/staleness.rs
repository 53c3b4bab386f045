//! `?staleness=`: read statements of their own may use the snapshot of an earlier one.

use crate::place::{Place, round_trips};
use rusqlite::Connection;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, n, padding);
    WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 100)
    INSERT INTO t SELECT i, 0, hex(zeroblob(50)) FROM c";

/// Opens a connection as from another process: with a client of its own.
fn open_elsewhere(place: &Place) -> Connection {
    place.open("timeout=59999&watch=no")
}

fn n(connection: &Connection, id: i64) -> i64 {
    connection.query_row("SELECT n FROM t WHERE id=?", [id], |row| row.get(0)).unwrap()
}

#[test]
fn statements_within_the_time_share_what_they_read() {
    let place = Place::new(SCHEMA);
    let (stale, fresh) = (place.open("staleness=200&watch=no"), open_elsewhere(&place));
    let cost = |connection: &Connection| {
        let before = round_trips(connection);
        (1..=50).for_each(|id| assert_eq!(n(connection, id), 0));
        round_trips(connection) - before
    };
    cost(&fresh);
    assert_eq!(cost(&fresh), 50);
    // A machine under load may take longer than the time.
    let begun = Instant::now();
    while cost(&stale) > 10 {
        assert!(begun.elapsed() < MINUTE);
    }
}

/// The lookups of a page view of MediaWiki in its cache of messages: 104 keys of 7,000.
#[test]
fn a_page_view_reads_leaves_and_not_rows() {
    const LOOKUPS: u64 = 104;
    let place = Place::new(SCHEMA);
    let (stale, fresh) = (place.open("staleness=200&watch=no"), open_elsewhere(&place));
    fresh
        .execute_batch(
            "CREATE TABLE l10n_cache(lc_lang, lc_key, lc_value, PRIMARY KEY(lc_lang, lc_key));
             WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < 6999)
             INSERT INTO l10n_cache SELECT 'en', 'messages:' || i, hex(zeroblob(50)) FROM c",
        )
        .unwrap();
    let view = |connection: &Connection| {
        let before = round_trips(connection);
        for number in 0..LOOKUPS {
            let sql = "SELECT lc_value FROM l10n_cache WHERE lc_lang = 'en' AND lc_key = ? LIMIT 1";
            let key = format!("messages:{}", number * 7_919 % 7_000);
            let mut statement = connection.prepare_cached(sql).unwrap();
            assert_eq!(statement.query_row([key], |row| row.get::<_, String>(0)).unwrap().len(), 100);
        }
        round_trips(connection) - before
    };
    // Until splits have ended, and the inner nodes are known.
    let begun = Instant::now();
    while view(&fresh) != LOOKUPS {
        assert!(begun.elapsed() < MINUTE);
    }
    while view(&stale) > LOOKUPS / 2 {
        assert!(begun.elapsed() < MINUTE);
    }
}

#[test]
fn own_commits_are_always_seen() {
    let place = Place::new(SCHEMA);
    let (reader, writer) = (place.open("staleness=200&watch=no"), place.open("watch=no"));
    for round in 1..100 {
        assert_eq!(n(&reader, 1), 2 * round - 2);
        writer.execute("UPDATE t SET n=n+1 WHERE id=1", []).unwrap();
        assert_eq!(n(&reader, 1), 2 * round - 1);
        reader.execute("UPDATE t SET n=n+1 WHERE id=1", []).unwrap();
    }
    // Also after a write that failed, and one that did nothing.
    assert!(reader.execute("INSERT INTO t VALUES(1, 0, 0)", []).is_err());
    assert_eq!(reader.execute("INSERT OR IGNORE INTO t VALUES(1, 0, 0)", []).unwrap(), 0);
    reader.execute("INSERT INTO t(n) VALUES(7)", []).unwrap();
    assert_eq!(n(&reader, 101), 7);
}

#[test]
fn other_commits_are_seen_by_transactions_at_once_and_by_statements_soon() {
    let place = Place::new(SCHEMA);
    let (reader, other) = (place.open("staleness=200&watch=no"), open_elsewhere(&place));
    for round in 1..20 {
        n(&reader, 1);
        other.execute("UPDATE t SET n=n+1 WHERE id=1", []).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(n(&reader, 1), round);
        reader.execute_batch("COMMIT").unwrap();
    }
    n(&reader, 1);
    other.execute_batch("UPDATE t SET n=0 WHERE id=1; ALTER TABLE t ADD COLUMN more DEFAULT 5").unwrap();
    let begun = Instant::now();
    while n(&reader, 1) != 0 {
        assert!(begun.elapsed() < MINUTE);
    }
    // Reads that follow never go back.
    (0..1000).for_each(|_| assert_eq!(n(&reader, 1), 0));
    let more = reader.query_row("SELECT more FROM t WHERE id=1", [], |row| row.get::<_, i64>(0));
    assert_eq!(more.unwrap(), 5);
}

#[test]
fn an_idle_connection_holds_no_snapshot() {
    let place = Place::new(SCHEMA);
    let reader = place.open("staleness=200&watch=no");
    n(&reader, 1);
    let store = place.store();
    let begun = Instant::now();
    while store.status().unwrap().snapshots.holders > 0 {
        assert!(begun.elapsed() < MINUTE);
        std::thread::yield_now();
    }
    n(&reader, 1);
}
