//! Leaves of one table at several groups.

use crate::{
    place::round_trips,
    servers::Cluster,
    several_groups::{other_process, requests},
};
use rusqlite::Connection;
use std::thread;
use yesquel::{EngineSettings, LeafPlacement};

const ROWS: i64 = 600;

/// Servers whose leaves have few cells and go to each group in turn.
fn cluster() -> Cluster {
    let settings = EngineSettings { node_cells_max: 8, ..EngineSettings::default() };
    Cluster::start_placing(settings, LeafPlacement::Spread)
}

/// Waits until each group has leaves of trees whose roots are elsewhere, or of which there are many.
fn await_leaves(cluster: &Cluster) {
    let has_many = |server: &yesquel::Server| server.status().trees.iter().any(|tree| tree.leaves > 1);
    while !cluster.servers.iter().all(has_many) {
        thread::yield_now();
    }
    cluster.settle();
}

fn fill(cluster: &Cluster) -> Connection {
    let connection = cluster.open(&[1], "shop", "placement=tables");
    connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, n INT);").unwrap();
    connection.execute_batch("CREATE INDEX by_name ON t(name);").unwrap();
    for row in 0..ROWS {
        connection
            .execute("INSERT INTO t VALUES (?1, ?2, 0)", (row * 7 % ROWS, format!("name {row:04}")))
            .unwrap();
    }
    await_leaves(cluster);
    connection
}

fn check(connection: &Connection, rows: i64) {
    let checked: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok");
    let counts =
        "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM t INDEXED BY by_name WHERE name >= '')";
    let counts = connection.query_row(counts, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(counts, (rows, rows));
}

#[test]
fn a_table_is_read_and_written_at_all_groups() {
    let cluster = cluster();
    let connection = fill(&cluster);
    // With `session` a read could miss a commit of another client at another group.
    let early = cluster.open(&[2], "shop", "consistency=strict");
    check(&early, ROWS);
    // Writers of one table, whose rows are at different groups.
    thread::scope(|scope| {
        for writer in 0..3 {
            let cluster = &cluster;
            scope.spawn(move || {
                let connection = other_process(cluster, 10 + writer);
                for row in 0..ROWS / 6 {
                    let (one, other) = (row, ROWS - 1 - row);
                    let sql = "UPDATE t SET n = n + 1 WHERE id IN (?1, ?2)";
                    while connection.execute(sql, (one, other)).is_err() {}
                }
            });
        }
    });
    cluster.settle();
    let sum: i64 = early.query_row("SELECT sum(n) FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!(sum, ROWS);
    connection.execute("DELETE FROM t WHERE id % 3 = 1", []).unwrap();
    cluster.settle();
    check(&early, ROWS - ROWS / 3);
    connection.execute("UPDATE t SET id = id + 10000 WHERE id < 100", []).unwrap();
    cluster.settle();
    check(&early, ROWS - ROWS / 3);
    connection.execute("DELETE FROM t", []).unwrap();
    cluster.settle();
    check(&early, 0);
}

#[test]
fn schema_changes_are_seen_at_all_groups() {
    let cluster = cluster();
    let connection = fill(&cluster);
    let other = other_process(&cluster, 2);
    check(&other, ROWS);
    connection.execute_batch("ALTER TABLE t DROP COLUMN n").unwrap();
    cluster.settle();
    for id in [0, 100, 300, 500, 599] {
        let columns = |row: &rusqlite::Row<'_>| Ok(row.as_ref().column_count());
        let found = other.query_row("SELECT * FROM t WHERE id = ?1", [id], columns);
        assert_eq!(found.unwrap(), 2);
    }
    assert!(other.execute("UPDATE t SET n = 1 WHERE id = 599", []).is_err());
}

/// A write at any group guards the schema there: a read and a commit in one phase.
#[test]
fn a_row_at_any_group_is_updated_in_two_requests() {
    let cluster = cluster();
    drop(fill(&cluster));
    let connection = other_process(&cluster, 2);
    let mut update = connection.prepare("UPDATE t SET n = n + 1 WHERE id = ?1").unwrap();
    let mut pass = || {
        let before = requests(&connection);
        (0..ROWS).for_each(|id| assert_eq!(update.execute([id]).unwrap(), 1));
        requests(&connection) - before
    };
    // The first passes learn where the leaves are, of which some may still be split.
    let passes: Vec<u64> = (0..10).map(|_| pass()).collect();
    assert!(passes.contains(&(2 * ROWS as u64)), "{passes:?}");
}

/// The rows of an index's entries are at any groups, which are asked together.
#[test]
fn rows_of_index_entries_are_read_in_one_round_trip() {
    let cluster = cluster();
    drop(fill(&cluster));
    let connection = other_process(&cluster, 2);
    let sql = "SELECT sum(n), count(*) FROM (SELECT n FROM t INDEXED BY by_name WHERE name >= ?1 LIMIT 8)";
    let mut select = connection.prepare(sql).unwrap();
    let mut pass = || {
        let before = round_trips(&connection);
        for row in 0..ROWS - 8 {
            let name = format!("name {row:04}");
            let found: (i64, i64) = select.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            assert_eq!(found, (0, 8));
        }
        round_trips(&connection) - before
    };
    // The entries are in two or three leaves of four to eight cells. Each costs a round trip, and one for
    // its rows, instead of one for each row. The first passes learn where leaves are.
    let passes: Vec<u64> = (0..3).map(|_| pass()).collect();
    assert!(passes.iter().any(|trips| *trips < 6 * (ROWS as u64 - 8)), "{passes:?}");
}

/// The schema of a table is guarded at whatever group its rows are written.
#[test]
fn writes_by_an_outdated_schema_fail_at_all_groups() {
    let cluster = cluster();
    let connection = fill(&cluster);
    let other = other_process(&cluster, 2);
    for (number, id) in [0, 100, 300, 500, ROWS - 1].into_iter().enumerate() {
        other.execute_batch("BEGIN").unwrap();
        assert_eq!(other.execute("UPDATE t SET n = n + 1 WHERE id = ?1", [id]).unwrap(), 1);
        connection.execute_batch(&format!("CREATE TABLE u{number}(x)")).unwrap();
        let error = other.execute_batch("COMMIT").unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "{error}");
        other.execute_batch("ROLLBACK").unwrap();
    }
}

/// The nodes of a dropped table go at all groups.
#[test]
fn a_dropped_table_leaves_nothing() {
    let cluster = cluster();
    let connection = fill(&cluster);
    let nodes = || -> u64 {
        let trees = cluster.servers.iter().flat_map(|server| server.status().trees);
        trees.map(|tree| if tree.tree == 0 { 0 } else { tree.leaves }).sum()
    };
    let before = nodes();
    connection.execute_batch("DROP TABLE t").unwrap();
    drop(connection);
    while nodes() >= before {
        thread::yield_now();
    }
    let rest = other_process(&cluster, 2);
    assert!(rest.prepare("SELECT * FROM t").is_err());
    rest.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, n INT)").unwrap();
    assert_eq!(rest.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}
