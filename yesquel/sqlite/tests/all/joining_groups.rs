//! Groups that join a database which is in use.

use crate::{
    servers::Cluster,
    several_groups::{check, groups, number, other_process, run, trees},
};
use rusqlite::{Connection, ErrorCode};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use yesquel::{Placement, ServerId, SocketOptions, Store};
use yesquel_sqlite::{add_groups, copy_faults};

const WAIT: Duration = Duration::from_secs(60);

/// Opens a database of one group.
fn open(cluster: &Cluster, name: &str) -> Connection {
    cluster.open(&[1], name, "placement=2")
}

/// Opens a database of one group with a table that has a row.
fn open_with_row(cluster: &Cluster) -> Connection {
    let connection = open(cluster, "shop");
    run(cluster, &connection, "CREATE TABLE t(id INTEGER PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)");
    connection
}

/// Adds groups as another process does. Returns all groups.
fn add(cluster: &Cluster, name: &str, placement: &str) -> Vec<u16> {
    let store = Store::connect(cluster.address(0), SocketOptions::default()).unwrap();
    let database = add_groups(&store, name, &placement.parse().unwrap(), WAIT).unwrap();
    cluster.settle();
    assert_eq!(copy_faults(&database).unwrap(), []);
    database.groups().iter().map(|group| group.0).collect()
}

/// Clients that were connected before learn the groups with their next statement, whatever it is.
#[test]
fn clients_learn_groups_that_join() {
    let cluster = Cluster::start();
    let first = open_with_row(&cluster);
    let others: Vec<Connection> = (0..5).map(|number| other_process(&cluster, number)).collect();
    for other in &others {
        assert_eq!(number(other, "SELECT v FROM t"), 1);
    }
    assert_eq!(add(&cluster, "shop", "2,0"), [2, 0]);
    assert_eq!(add(&cluster, "shop", "0"), [2, 0], "it has joined");
    assert_eq!(add(&cluster, "shop", "tables"), [2, 0, 1]);
    // The next change of the schema writes all copies, and places tables at the new groups.
    for table in ["a", "b", "c"] {
        let sql = format!("CREATE TABLE {table}(id INTEGER PRIMARY KEY, v INT UNIQUE)");
        run(&cluster, &others[0], &sql);
    }
    let groups = groups(&others[0]);
    assert_eq!(["t", "a", "b", "c"].map(|table| groups[table]), [2, 0, 1, 2], "{groups:?}");
    let mut insert = others[1].prepare("INSERT INTO t(v) VALUES (2)").unwrap();
    insert.execute([]).unwrap();
    run(&cluster, &others[2], "INSERT INTO a(v) VALUES (5)");
    assert_eq!(number(&others[3], "SELECT (SELECT v FROM a) + (SELECT sum(v) FROM t)"), 8);
    run(&cluster, &others[4], "BEGIN; UPDATE t SET v=7; INSERT INTO b(v) SELECT id FROM t; COMMIT");
    assert_eq!(number(&first, "SELECT (SELECT count(*) FROM b) + (SELECT sum(v) FROM t)"), 2 + 14);
    for connection in others.iter().chain([&first]) {
        assert_eq!(trees(connection).database().groups(), [2, 0, 1].map(ServerId));
        check(connection);
    }
}

/// The set of groups is a part of the schema that a statement relies on.
#[test]
fn statements_prepared_before_give_no_wrong_answer() {
    let cluster = Cluster::start();
    let changer = open(&cluster, "shop");
    run(&cluster, &changer, "CREATE TABLE t(id INTEGER PRIMARY KEY, v INT, w INT)");
    run(&cluster, &changer, "INSERT INTO t VALUES (1, 2, 3)");
    let [reader, writer, creator] = [0, 1, 2].map(|number| other_process(&cluster, number));
    let mut select = reader.prepare("SELECT * FROM t").unwrap();
    let mut blind = writer.prepare("INSERT INTO t VALUES (9, 9, 9)").unwrap();
    let mut create = creator.prepare("CREATE TABLE made(v)").unwrap();
    assert_eq!(select.query_row([], |row| row.get::<_, i64>(2)).unwrap(), 3);
    assert_eq!(number(&creator, "SELECT count(*) FROM t"), 1);
    add(&cluster, "shop", "tables");
    run(&cluster, &changer, "ALTER TABLE t DROP COLUMN v");
    assert_eq!(select.query_row([], |row| row.get::<_, i64>(1)).unwrap(), 3);
    assert!(blind.execute([]).unwrap_err().to_string().contains("has 2 columns but 3 values"));
    create.execute([]).unwrap();
    cluster.settle();
    // It has written the copies at the groups that have joined.
    assert_eq!(add(&cluster, "shop", "tables"), [2, 0, 1]);
    assert_eq!(number(&reader, "SELECT count(*) FROM made"), 0);
    assert_ne!(groups(&reader)["made"], 2);
}

/// A transaction that began before loses, as with any change of the schema, and does so before its
/// commit if it holds leases.
#[test]
fn transactions_that_began_before_lose() {
    let cluster = Cluster::start();
    let connection = open_with_row(&cluster);
    let store = Store::connect(cluster.address(1), SocketOptions::default()).unwrap();
    // A lease keeps groups from joining.
    connection.execute_batch("BEGIN IMMEDIATE; UPDATE t SET v=2").unwrap();
    let refused = add_groups(&store, "shop", &Placement::Tables, Duration::ZERO);
    assert!(matches!(refused, Err(yesquel::Error::Leased(_))), "{refused:?}");
    connection.execute_batch("COMMIT").unwrap();
    for (sql, joins) in [("UPDATE t SET v=3", "0"), ("CREATE TABLE u(v)", "1")] {
        connection.execute_batch(&format!("BEGIN; {sql}")).unwrap();
        add(&cluster, "shop", joins);
        let error = connection.execute_batch("COMMIT").unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{sql}: {error}");
        connection.execute_batch("ROLLBACK").unwrap();
    }
    connection.execute_batch("BEGIN; UPDATE t SET v=v+1").unwrap();
    // Groups that have joined already change nothing.
    add(&cluster, "shop", "tables");
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(number(&other_process(&cluster, 0), "SELECT v FROM t"), 3);
}

/// BEGIN IMMEDIATE with leases at the former groups only fails at its first statement.
#[test]
fn leases_at_the_former_groups_are_not_enough() {
    let cluster = Cluster::start();
    let connection = open_with_row(&cluster);
    let other = other_process(&cluster, 0);
    add(&cluster, "shop", "0");
    run(&cluster, &other, "CREATE TABLE new(v)");
    assert_eq!(groups(&other)["new"], 0);
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = connection.execute_batch("INSERT INTO new VALUES (1)").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}");
    assert_eq!(error.sqlite_error().unwrap().extended_code, rusqlite::ffi::SQLITE_BUSY_SNAPSHOT);
    connection.execute_batch("ROLLBACK; BEGIN IMMEDIATE; INSERT INTO new VALUES (1)").unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    let error = other.execute_batch("INSERT INTO new VALUES (2)").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}");
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(number(&other, "SELECT count(*) FROM new"), 1);
}

/// A transaction that asked the former groups for the present begins again, or fails if it has read
/// something.
#[test]
fn strict_transactions_ask_the_groups_that_have_joined() {
    let cluster = Cluster::start();
    open_with_row(&cluster);
    let levels = ["consistency=session&timeout=20000", "consistency=strict&timeout=21000"];
    let [session, strict] = levels.map(|options| cluster.open(&[0], "shop", options));
    let selected = [&session, &strict].map(|connection| {
        let mut select = connection.prepare("SELECT v FROM t").unwrap();
        assert_eq!(select.query_row([], |row| row.get::<_, i64>(0)).unwrap(), 1);
        (connection, select)
    });
    add(&cluster, "shop", "tables");
    let [session, strict] = selected.map(|(connection, mut select)| {
        let before = trees(connection).costs().requests;
        assert_eq!(select.query_row([], |row| row.get::<_, i64>(0)).unwrap(), 1);
        trees(connection).costs().requests - before
    });
    // It asks the former group, and then all three, for the transaction that takes the place of the one
    // that has found the change, and for the statement's. It proves the schema once more.
    assert_eq!(strict - session, 1 + 3 + 3 + 1);
    // It has read at another database.
    let mut other = cluster.open(&[0], "other", "consistency=strict&timeout=21000");
    run(&cluster, &other, "CREATE TABLE u(v); INSERT INTO u VALUES (1)");
    let second = cluster.open(&[1], "second", "placement=1");
    run(&cluster, &second, "CREATE TABLE t(v); INSERT INTO t VALUES (2)");
    other.execute("ATTACH ?1 AS second", [cluster.named(&[0], "second", "timeout=21000")]).unwrap();
    assert_eq!(number(&other, "SELECT v FROM second.t"), 2);
    add(&cluster, "second", "tables");
    let transaction = other.transaction().unwrap();
    assert_eq!(transaction.query_row("SELECT v FROM u", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    let read = transaction.query_row("SELECT v FROM second.t", [], |row| row.get::<_, i64>(0));
    assert_eq!(read.unwrap_err().sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    transaction.rollback().unwrap();
    assert_eq!(number(&other, "SELECT v FROM second.t"), 2);
}

/// Two that add groups at once, one of which waits for the other.
#[test]
fn groups_are_added_at_once() {
    for round in 0..4 {
        let cluster = Cluster::start();
        let connection = open(&cluster, "shop");
        run(&cluster, &connection, "CREATE TABLE t(v)");
        let outdated = other_process(&cluster, 0);
        assert_eq!(number(&outdated, "SELECT count(*) FROM t"), 0);
        // Both wait for this one.
        connection.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
        let added = thread::scope(|scope| {
            let adding = ["0", if round % 2 == 0 { "1" } else { "tables" }].map(|placement| {
                let address = cluster.address(0).clone();
                scope.spawn(move || {
                    let store = Store::connect(&address, SocketOptions::default()).unwrap();
                    add_groups(&store, "shop", &placement.parse().unwrap(), WAIT).map(drop)
                })
            });
            connection.execute_batch("COMMIT").unwrap();
            adding.map(|adding| adding.join().unwrap())
        });
        assert!(added.iter().all(Result::is_ok), "{added:?}");
        cluster.settle();
        // No copy is missed.
        let mut groups = add(&cluster, "shop", "tables");
        groups.sort_unstable();
        assert_eq!(groups, [0, 1, 2]);
        run(&cluster, &outdated, "CREATE TABLE u(v)");
        add(&cluster, "shop", "tables");
        assert_eq!(number(&connection, "SELECT count(*) FROM u"), 0);
    }
}

/// Meta values that are written without the schema being read.
#[test]
fn values_of_the_application_reach_all_copies() {
    let cluster = Cluster::start();
    let connection = open(&cluster, "shop");
    run(&cluster, &connection, "CREATE TABLE t(v)");
    let version = |connection: &Connection| number(connection, "PRAGMA user_version");
    let others = ["", "BEGIN", "BEGIN; INSERT INTO t VALUES (1)"].map(|begin| {
        let other = other_process(&cluster, begin.len());
        assert_eq!(version(&other), 0);
        (other, begin)
    });
    add(&cluster, "shop", "tables");
    let mut expected = 0;
    for (other, begin) in &others {
        other.execute_batch(begin).unwrap();
        match other.execute_batch(&format!("PRAGMA user_version={}", expected + 1)) {
            Ok(()) => expected += 1,
            Err(error) => assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}"),
        }
        if !other.is_autocommit() {
            other.execute_batch("COMMIT").unwrap_or_else(|_| {
                other.execute_batch("ROLLBACK").unwrap();
            });
        }
        // Checks that all copies agree.
        add(&cluster, "shop", "tables");
        for reader in [other, &connection] {
            assert_eq!(version(reader), expected, "after {begin}");
        }
    }
    assert!(expected >= 2, "{expected}");
}

/// A database that is attached twice has one schema.
#[test]
fn a_database_attached_twice_learns_groups_once() {
    let cluster = Cluster::start();
    let connection = open(&cluster, "shop");
    run(&cluster, &connection, "CREATE TABLE t(a INT, b INT); INSERT INTO t VALUES (1, 2)");
    let twice = other_process(&cluster, 0);
    assert_eq!(number(&twice, "SELECT b FROM t"), 2);
    add(&cluster, "shop", "0");
    run(&cluster, &connection, "ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN a INT DEFAULT 5");
    twice.execute("ATTACH ?1 AS again", [cluster.named(&[0], "shop", "timeout=20000")]).unwrap();
    assert_eq!(number(&twice, "SELECT main.t.a + again.t.a FROM main.t, again.t"), 10);
    add(&cluster, "shop", "1");
    run(&cluster, &connection, "CREATE INDEX i ON t(b)");
    // Without a limit it would read its own rows.
    run(&cluster, &twice, "INSERT INTO main.t(b) SELECT b + 1 FROM again.t LIMIT 1");
    assert_eq!(number(&connection, "SELECT count(*) FROM t INDEXED BY i WHERE b=3"), 1);
    run(&cluster, &twice, "BEGIN IMMEDIATE; INSERT INTO again.t(b) VALUES (4); COMMIT");
    check(&connection);
    check(&twice);
}

/// Groups may join before there is a schema.
#[test]
fn a_database_without_a_schema_gets_groups() {
    let cluster = Cluster::start();
    let store = Store::connect(cluster.address(0), SocketOptions::default()).unwrap();
    store.create_database("shop").unwrap();
    assert_eq!(add(&cluster, "shop", "2"), [0, 2]);
    let connection = cluster.open(&[1], "shop", "");
    run(&cluster, &connection, "CREATE TABLE a(v); CREATE TABLE b(v)");
    assert_eq!(groups(&connection).into_values().collect::<Vec<_>>(), [2, 0]);
    assert_eq!(add(&cluster, "shop", "1"), [0, 2, 1]);
    let missing = add_groups(&store, "other", &Placement::Tables, WAIT).unwrap_err();
    assert!(matches!(missing, yesquel::Error::NoDatabase(_)), "{missing}");
    let missing = add_groups(&store, "shop", &Placement::Group(ServerId(9)), WAIT).unwrap_err();
    assert!(matches!(missing, yesquel::Error::NoGroup(9)), "{missing}");
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writers and changes of the schema beside it: nothing is lost, and all copies agree.
#[test]
fn groups_join_beside_writers() {
    let cluster = Cluster::start();
    let connection = open(&cluster, "shop");
    run(&cluster, &connection, "CREATE TABLE t(id INTEGER PRIMARY KEY, v INT UNIQUE)");
    let has_joined = AtomicBool::new(false);
    let written: Vec<(i64, i64)> = thread::scope(|scope| {
        let cluster = &cluster;
        let clients = (0..4_usize).map(|client| {
            let (connection, has_joined) = (other_process(cluster, client), &has_joined);
            scope.spawn(move || {
                let (mut rows, mut tables) = (0, 0);
                // Some after all groups have joined.
                let mut left = 10;
                while left > 0 {
                    left -= i64::from(has_joined.load(Ordering::Relaxed));
                    let value = i64::try_from(client).unwrap() * 1_000_000 + rows;
                    let sql = format!("BEGIN IMMEDIATE; INSERT INTO t(v) VALUES ({value}); COMMIT");
                    let sql = if rows % 2 == 0 { format!("INSERT INTO t(v) VALUES ({value})") } else { sql };
                    match connection.execute_batch(&sql) {
                        Ok(()) => rows += 1,
                        // Once for a connection and each group that joins.
                        Err(error) if rows % 2 == 1 => {
                            assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}");
                            connection.execute_batch("ROLLBACK").unwrap();
                        }
                        Err(error) => panic!("{error}"),
                    }
                    if client == 0 && rows % 8 == 7 {
                        let made = format!("CREATE TABLE u{tables} AS SELECT 1 AS one");
                        tables += i64::from(connection.execute_batch(&made).is_ok());
                    }
                }
                (rows, tables)
            })
        });
        let clients: Vec<_> = clients.collect();
        // Also if this thread fails.
        let _ends = SetAtEnd(&has_joined);
        for (placement, rows) in [("0", 20), ("tables", 60)] {
            let is_running = || !clients.iter().all(thread::ScopedJoinHandle::is_finished);
            while is_running() && number(&connection, "SELECT count(*) FROM t") < rows {
                thread::yield_now();
            }
            add(cluster, "shop", placement);
        }
        has_joined.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    cluster.settle();
    let rows: i64 = written.iter().map(|(rows, _)| rows).sum();
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), rows);
    let tables = number(&connection, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'u%'");
    assert_eq!(tables, written[0].1);
    assert_eq!(add(&cluster, "shop", "tables").len(), 3);
    check(&connection);
}
