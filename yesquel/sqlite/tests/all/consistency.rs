//! Levels of consistency: `consistency=strict` and `linear`. That they hold is shown by simulation
//! (`yesquel-client`, `several_servers.rs`), where clocks differ; here their cost is counted.

use crate::{place::round_trips, servers::Cluster};
use rusqlite::Connection;
use yesquel_sqlite::DatabaseTrees;

/// Tables at different groups.
const TABLES: [&str; 3] = ["t0", "t1", "t2"];

fn writer(cluster: &Cluster) -> Connection {
    let writer = cluster.open(&[0], "shop", "placement=tables");
    for table in TABLES {
        let sql =
            format!("CREATE TABLE {table}(id INTEGER PRIMARY KEY, n INT); INSERT INTO {table} VALUES(1, 0)");
        writer.execute_batch(&sql).unwrap();
    }
    cluster.settle();
    writer
}

fn n(connection: &Connection, table: &str) -> i64 {
    let mut select = connection.prepare_cached(&format!("SELECT n FROM {table} WHERE id=1")).unwrap();
    select.query_row([], |row| row.get(0)).unwrap()
}

fn requests(connection: &Connection) -> u64 {
    // SAFETY: it is open.
    #[expect(unsafe_code, reason = "connections are identified by their pointers")]
    unsafe { DatabaseTrees::of(connection.handle(), "main") }.unwrap().costs().requests
}

/// All groups of the database are asked at once, before each transaction.
#[test]
fn it_costs_one_parallel_round_trip_a_transaction() {
    let cluster = Cluster::start();
    writer(&cluster);
    let cost = |options: &str, sql: &str| {
        let connection = cluster.open(&[1], "shop", options);
        // What a process learns once.
        TABLES.iter().for_each(|table| _ = n(&connection, table));
        let before = (round_trips(&connection), requests(&connection));
        connection.execute_batch(sql).unwrap();
        (round_trips(&connection) - before.0, requests(&connection) - before.1)
    };
    for sql in [
        "SELECT n FROM t1 WHERE id=1",
        "BEGIN; SELECT n FROM t0 WHERE id=1; SELECT n FROM t2 WHERE id=1; COMMIT",
        "UPDATE t1 SET n=n+1 WHERE id=1",
    ] {
        let session = cost("timeout=20001", sql);
        for level in ["linear", "strict"] {
            let options = format!("consistency={level}&timeout={}", 20_000 + level.len());
            assert_eq!(cost(&options, sql), (session.0 + 1, session.1 + 3), "{level}: {sql}");
        }
    }
}
