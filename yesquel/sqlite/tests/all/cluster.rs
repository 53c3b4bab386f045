//! SQL at a cluster: a database at any group, by the addresses of any servers.

use crate::{place::round_trips, servers::Cluster};
use rusqlite::{Connection, ErrorCode};
use yesquel::{SocketOptions, Store};

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INT);
    CREATE TABLE s(id INTEGER PRIMARY KEY AUTOINCREMENT, t REFERENCES t);
    CREATE INDEX i ON t(n);
    INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20);
    INSERT INTO s(t) VALUES (1), (2);
";

fn sum(connection: &Connection) -> i64 {
    connection.query_row("SELECT sum(n) FROM t", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_database_at_another_group_is_used_by_every_server() {
    let cluster = Cluster::start();
    let first = cluster.open(&[0, 1], "shop", "placement=2");
    first.execute_batch(SCHEMA).unwrap();
    // Schema, meta values, two tables, sqlite_sequence, two indexes.
    cluster.await_trees([0, 0, 7]);
    let others = [cluster.open(&[1], "shop", ""), cluster.open(&[2, 0], "shop", "")];
    for (number, other) in others.iter().enumerate() {
        assert_eq!(sum(other), 30 + number as i64);
        let broken = other.execute("INSERT INTO t VALUES (3, 'a', 0)", []).unwrap_err();
        assert_eq!(broken.sqlite_error_code(), Some(ErrorCode::ConstraintViolation));
        other.execute_batch("BEGIN IMMEDIATE; UPDATE t SET n=n+1 WHERE id=1; COMMIT").unwrap();
        other.execute_batch("INSERT INTO s(t) VALUES (1)").unwrap();
    }
    assert_eq!(sum(&first), 32);
    let ids: String = first.query_row("SELECT group_concat(id) FROM s", [], |row| row.get(0)).unwrap();
    assert_eq!(ids, "1,2,3,4");
    // A change of the schema reaches statements that are prepared.
    let mut select = others[0].prepare("SELECT * FROM t").unwrap();
    assert_eq!(select.query([]).unwrap().as_ref().unwrap().column_count(), 3);
    first.execute_batch("ALTER TABLE t ADD COLUMN more DEFAULT 7; CREATE INDEX j ON t(more)").unwrap();
    let mut rows = select.query([]).unwrap();
    assert_eq!(rows.next().unwrap().unwrap().get::<_, i64>(3).unwrap(), 7);
    drop(rows);
    let checked: String = others[1].query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok");
    let pages: i64 = others[1].query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    assert!(pages >= 7, "{pages}");
    others[1].execute_batch("DROP TABLE s; DROP TABLE t").unwrap();
    cluster.await_trees([0, 0, 3]);
}

/// Statements cost as many round trips as at the home group.
#[test]
fn the_group_of_a_database_costs_no_round_trip() {
    let cluster = Cluster::start();
    let counted = |name: &str, options: &str| {
        let writer = cluster.open(&[0], name, options);
        writer.execute_batch(SCHEMA).unwrap();
        // Another process.
        let connection = cluster.open(&[0], name, "timeout=20000");
        sum(&connection);
        let statements = [
            "SELECT n FROM t WHERE id=1",
            "SELECT id FROM t WHERE name='b'",
            "UPDATE t SET n=n+1 WHERE id=1",
            "INSERT INTO s(t) VALUES (1)",
            "BEGIN IMMEDIATE; UPDATE t SET n=n+1 WHERE id=2; COMMIT",
            "DELETE FROM s WHERE id=1",
        ];
        statements.map(|statement| {
            connection.execute_batch(statement).unwrap();
            let before = round_trips(&connection);
            connection.execute_batch(statement).unwrap();
            round_trips(&connection) - before
        })
    };
    let [home, other] = [counted("home", "placement=0"), counted("other", "placement=1")];
    assert_eq!(home, other);
    // Reads take one, and the update of an indexed column reads the row, then the index.
    assert_eq!(home[..3], [1, 1, 3], "{home:?}");
}

/// One transaction over databases of two groups.
#[test]
fn attached_databases_of_several_groups_commit_together() {
    let cluster = Cluster::start();
    let connection = cluster.open(&[1], "one", "placement=1");
    let other = format!("file:yesquel://{}/two?placement=2", cluster.address(1));
    connection.execute("ATTACH ? AS two", [&other]).unwrap();
    connection
        .execute_batch("CREATE TABLE main.t(n); CREATE TABLE two.t(n); INSERT INTO main.t VALUES (1)")
        .unwrap();
    cluster.await_trees([0, 3, 3]);
    connection
        .execute_batch("BEGIN; UPDATE main.t SET n=5; INSERT INTO two.t SELECT n FROM main.t; COMMIT")
        .unwrap();
    connection.execute_batch("BEGIN; UPDATE main.t SET n=6; DELETE FROM two.t; ROLLBACK").unwrap();
    connection
        .execute_batch("BEGIN IMMEDIATE; UPDATE main.t SET n=n+1; UPDATE two.t SET n=n+1; COMMIT")
        .unwrap();
    let read = |name: &str| {
        let database = cluster.open(&[2], name, "");
        database.query_row("SELECT n FROM t", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!([read("one"), read("two")], [6, 6]);
    let counts = cluster.servers[1].status().commit_protocol.by_groups;
    assert!(counts.iter().any(|bucket| bucket.count > 0), "{counts:?}");
    let store = Store::connect(cluster.address(0), SocketOptions::default()).unwrap();
    store.drop_database("two").unwrap();
    let gone = connection.query_row("SELECT n FROM two.t", [], |row| row.get::<_, i64>(0)).unwrap_err();
    assert!(gone.to_string().contains("dropped"), "{gone}");
}
