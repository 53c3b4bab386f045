//! One database over several groups: `placement=tables`.

use crate::{place::round_trips, servers::Cluster};
use rusqlite::{Connection, ErrorCode};
use std::{collections::BTreeMap, thread, time::Duration};
use yesquel::{NodeId, ServerId, SocketOptions, Store};
use yesquel_sqlite::DatabaseTrees;

/// Tables, more than groups.
const TABLES: i64 = 4;

/// Opens a database as another process does.
pub(crate) fn other_process(cluster: &Cluster, number: usize) -> Connection {
    cluster.open(&[number % 3], "shop", &format!("timeout={}", 20_000 + number))
}

fn open(cluster: &Cluster) -> Connection {
    cluster.open(&[1], "shop", "placement=tables")
}

/// Runs statements whose effects other clients read next.
pub(crate) fn run(cluster: &Cluster, connection: &Connection, sql: &str) {
    connection.execute_batch(sql).unwrap();
    cluster.settle();
}

/// Creates the tables `t0` to `t3` with three rows each.
fn create_tables(cluster: &Cluster, connection: &Connection) {
    for table in 0..TABLES {
        let sql = format!(
            "CREATE TABLE t{table}(id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INT, m INT);
             INSERT INTO t{table} VALUES (1, 'a', 10, 1), (2, 'b', 20, 2), (3, 'c', 30, 3);"
        );
        run(cluster, connection, &sql);
    }
}

pub(crate) fn trees(connection: &Connection) -> DatabaseTrees {
    // SAFETY: it is open.
    #[expect(unsafe_code, reason = "connections are identified by their pointers")]
    unsafe { DatabaseTrees::of(connection.handle(), "main") }.unwrap()
}

/// The group of each table and index, by its name.
pub(crate) fn groups(connection: &Connection) -> BTreeMap<String, u16> {
    let maps = trees(connection).database().maps().unwrap();
    let maps: BTreeMap<u64, u16> = maps.into_iter().map(|(_, map)| (map.tree(), map.group().0)).collect();
    let mut roots = connection.prepare("SELECT name, rootpage FROM sqlite_schema WHERE rootpage>0").unwrap();
    let roots = roots.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64))).unwrap();
    roots.map(|row| row.unwrap()).map(|(name, root): (String, u64)| (name, maps[&root])).collect()
}

/// Votes that servers were asked for: commits of one group need none.
fn votes(cluster: &Cluster) -> u64 {
    cluster.servers.iter().map(|server| server.status().commit_protocol.messages.prepares).sum()
}

pub(crate) fn requests(connection: &Connection) -> u64 {
    trees(connection).costs().requests
}

pub(crate) fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn tables_are_distributed_and_indexes_are_at_the_groups_of_their_tables() {
    let cluster = Cluster::start();
    let connection = open(&cluster);
    create_tables(&cluster, &connection);
    connection
        .execute_batch(
            "CREATE INDEX i0 ON t0(n); CREATE INDEX i1 ON t1(n); CREATE INDEX i2 ON t2(n, m);
             CREATE TABLE w(a PRIMARY KEY, b UNIQUE) WITHOUT ROWID; CREATE INDEX iw ON w(b, a);
             BEGIN;
             CREATE TABLE s(id INTEGER PRIMARY KEY AUTOINCREMENT, v UNIQUE);
             CREATE TABLE c AS SELECT * FROM t0;
             CREATE UNIQUE INDEX ic ON c(name);
             COMMIT;",
        )
        .unwrap();
    let groups = groups(&connection);
    let of_tables: Vec<u16> = (0..TABLES).map(|table| groups[&format!("t{table}")]).collect();
    // The database's own group has two trees of the schema, and comes last.
    assert_eq!(of_tables[..3], [2, 0, 1], "{groups:?}");
    for (index, table) in [
        ("sqlite_autoindex_t3_1", "t3"),
        ("i0", "t0"),
        ("i1", "t1"),
        ("i2", "t2"),
        ("sqlite_autoindex_w_2", "w"),
        ("iw", "w"),
        ("sqlite_autoindex_s_1", "s"),
        ("ic", "c"),
    ] {
        assert_eq!(groups[index], groups[table], "{index}: {groups:?}");
    }
    // A copy of the database is distributed alike.
    let mut copy = cluster.open(&[2], "copy", "placement=2,0");
    rusqlite::backup::Backup::new(&connection, &mut copy).unwrap().step(-1).unwrap();
    assert_eq!(number(&copy, "SELECT count(*) FROM c"), 3);
    let copied = trees(&copy);
    let copied = copied.database();
    assert_eq!(copied.groups(), [2, 0].map(ServerId));
    let at = |group| copied.maps().unwrap().iter().filter(|(_, map)| map.group().0 == group).count();
    assert!(at(0) > 5 && at(1) == 0 && at(2) > 5, "{} and {}", at(0), at(2));
    let checked: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok");
}

/// As many tables as groups are at all of them: what holds the schema does not count.
#[test]
fn each_group_gets_a_table() {
    let cluster = Cluster::start();
    for (name, placement, expected) in [("two", "0,1", [1, 0]), ("other", "2,1", [1, 2])] {
        let connection = cluster.open(&[0], name, &format!("placement={placement}"));
        connection.execute_batch("CREATE TABLE a(x); CREATE TABLE b(x)").unwrap();
        let groups = groups(&connection);
        assert_eq!([groups["a"], groups["b"]], expected, "{groups:?}");
    }
}

/// Statements on a table at any group cost as many round trips as in a database of one group, and
/// commit at that group alone.
#[test]
fn statements_cost_no_more_than_at_one_group() {
    let cluster = Cluster::start();
    let writer = open(&cluster);
    create_tables(&cluster, &writer);
    let groups = groups(&writer);
    let at_one = cluster.open(&[1], "one", "placement=2");
    create_tables(&cluster, &at_one);
    let costs = |connection: &Connection, table: i64| {
        let statements = [
            format!("SELECT m FROM t{table} WHERE id=1"),
            format!("SELECT id FROM t{table} WHERE name='b'"),
            format!("SELECT sum(m) FROM t{table}"),
            format!("UPDATE t{table} SET m=m+1 WHERE id=1"),
            format!("UPDATE t{table} SET name=name||'x' WHERE id=1"),
            format!("BEGIN; UPDATE t{table} SET m=m+1 WHERE id=2; COMMIT"),
            format!("BEGIN IMMEDIATE; UPDATE t{table} SET m=m+1 WHERE id=2; COMMIT"),
            format!("BEGIN IMMEDIATE; SELECT m FROM t{table} WHERE id=1; COMMIT"),
            format!("DELETE FROM t{table} WHERE id=1"),
            format!("INSERT INTO t{table}(id, name, m) VALUES(1, 'a', 1)"),
        ];
        // What a process learns once: leaves, and the numbers of rows.
        statements.iter().for_each(|statement| connection.execute_batch(statement).unwrap());
        statements.map(|statement| {
            let before = (round_trips(connection), requests(connection));
            connection.execute_batch(&statement).unwrap();
            (round_trips(connection) - before.0, requests(connection) - before.1)
        })
    };
    let expected = costs(&cluster.open(&[0], "one", "timeout=20000"), 0);
    assert_eq!(expected.map(|(trips, _)| trips)[..4], [1, 1, 1, 2], "{expected:?}");
    let connection = cluster.open(&[0], "shop", "timeout=20000");
    let before = votes(&cluster);
    for table in 0..TABLES {
        let mut counted = costs(&connection, table);
        // BEGIN IMMEDIATE asks all groups at once, and the lease ends at all of them.
        assert_eq!(counted[6], (expected[6].0, expected[6].1 + 2 + 2), "t{table}: {counted:?}");
        assert_eq!(counted[7].0, expected[7].0, "t{table}: {counted:?}");
        (counted[6], counted[7]) = (expected[6], expected[7]);
        assert_eq!(counted, expected, "t{table} at {}", groups[&format!("t{table}")]);
    }
    assert_eq!(votes(&cluster), before);
    // The measure itself.
    connection.execute_batch("BEGIN; UPDATE t0 SET m=0; UPDATE t1 SET m=0; COMMIT").unwrap();
    assert_eq!(votes(&cluster), before + 2);
}

/// A statement that knows an outdated schema gives no wrong answer, at whatever group its table is.
#[test]
fn schema_changes_of_others_are_seen_at_every_group() {
    let cluster = Cluster::start();
    let changer = open(&cluster);
    create_tables(&cluster, &changer);
    let connection = other_process(&cluster, 0);
    let writer = other_process(&cluster, 1);
    for table in 0..TABLES {
        let mut select = connection.prepare(&format!("SELECT * FROM t{table} WHERE id=2")).unwrap();
        assert_eq!(select.query_row([], |row| row.get::<_, i64>(3)).unwrap(), 2);
        let mut update = writer.prepare(&format!("UPDATE t{table} SET m=m+1 WHERE id=2")).unwrap();
        update.execute([]).unwrap();
        let mut insert = writer.prepare(&format!("INSERT INTO t{table} VALUES(9, 'z', 1, 2)")).unwrap();
        // Another table is changed, at another group.
        let other = (table + 1) % TABLES;
        run(&cluster, &changer, &format!("ALTER TABLE t{other} ADD COLUMN more"));
        update.execute([]).unwrap();
        run(&cluster, &changer, &format!("ALTER TABLE t{other} DROP COLUMN more"));
        // This table is changed.
        run(&cluster, &changer, &format!("ALTER TABLE t{table} DROP COLUMN n"));
        assert_eq!(select.query_row([], |row| row.get::<_, i64>(2)).unwrap(), 4);
        assert_eq!(select.column_count(), 3);
        let error = insert.execute([]).unwrap_err();
        assert!(error.to_string().contains("has 3 columns but 4 values"), "{error}");
        update.execute([]).unwrap();
        assert_eq!(number(&changer, &format!("SELECT m FROM t{table} WHERE id=2")), 5);
        // A statement that reads nothing before it writes.
        let mut blind = writer.prepare(&format!("INSERT INTO t{table} VALUES(10, 'y', 1)")).unwrap();
        run(&cluster, &changer, &format!("ALTER TABLE t{table} DROP COLUMN m"));
        assert!(blind.execute([]).is_err());
        assert_eq!(number(&changer, &format!("SELECT count(*) FROM t{table}")), 3);
    }
    // A table that is new, and one that is gone.
    run(&cluster, &changer, "CREATE TABLE new(v); INSERT INTO new VALUES (7); DROP TABLE t2");
    assert_eq!(number(&connection, "SELECT v FROM new"), 7);
    let error = connection.execute("DELETE FROM t2", []).unwrap_err();
    assert!(error.to_string().contains("no such table"), "{error}");
    let checked: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok");
}

/// What a connection does to its own schema is undone with its transaction.
#[test]
fn schema_changes_are_rolled_back_at_every_group() {
    let cluster = Cluster::start();
    let connection = open(&cluster);
    create_tables(&cluster, &connection);
    let other = other_process(&cluster, 0);
    run(
        &cluster,
        &connection,
        "BEGIN;
             CREATE TABLE a(id INTEGER PRIMARY KEY AUTOINCREMENT, v UNIQUE);
             INSERT INTO a(v) VALUES (1), (2);
             SAVEPOINT one;
             CREATE TABLE b(v); INSERT INTO b VALUES (1); DROP TABLE t1; DELETE FROM t0;
             CREATE INDEX late ON t2(m);
             ROLLBACK TO one;
             INSERT INTO a(v) VALUES (3); UPDATE t1 SET m=7 WHERE id=1;
             COMMIT;",
    );
    assert_eq!(number(&other, "SELECT group_concat(id) = '1,2,3' FROM a"), 1);
    assert_eq!(number(&other, "SELECT m FROM t1 WHERE id=1"), 7);
    assert_eq!(number(&other, "SELECT count(*) FROM t0"), 3);
    let named = number(&other, "SELECT count(*) FROM sqlite_schema WHERE name IN ('b', 'late')");
    assert_eq!(named, 0);
    connection.execute_batch("BEGIN; DROP TABLE a; CREATE TABLE a(x); DELETE FROM t3; ROLLBACK").unwrap();
    assert_eq!(number(&other, "SELECT count(*) FROM a"), 3);
    run(&cluster, &other, "INSERT INTO a(v) VALUES (4); DELETE FROM t0; DELETE FROM t1 WHERE id>0");
    assert_eq!(number(&connection, "SELECT max(id) FROM a"), 4);
    assert_eq!(number(&connection, "SELECT seq FROM sqlite_sequence"), 4);
    assert_eq!(number(&connection, "SELECT (SELECT count(*) FROM t0) + (SELECT count(*) FROM t1)"), 0);
    // Sizes are those of all groups.
    other.execute_batch("INSERT INTO t2(name) VALUES (hex(zeroblob(100000)))").unwrap();
    run(&cluster, &other, "INSERT INTO t3(name) VALUES (hex(zeroblob(100000)))");
    let pages = number(&other_process(&cluster, 2), "PRAGMA page_count");
    // Each is in its table and in an index.
    assert!((190..230).contains(&pages), "{pages}");
    run(&cluster, &other, "DROP TABLE a; DROP TABLE t0; DROP TABLE t1; DROP TABLE t2; DROP TABLE t3");
    let checked: String = other.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok");
    drop((connection, other));
    let store = Store::connect(cluster.address(0), SocketOptions::default()).unwrap();
    // The schema, sqlite_sequence, and the meta values at each group.
    assert_eq!(store.database("shop").unwrap().maps().unwrap().len(), 5);
    store.drop_database("shop").unwrap();
    cluster.await_trees([0; 3]);
}

/// BEGIN IMMEDIATE excludes writers at all groups, in turns.
#[test]
fn leases_are_held_at_all_groups() {
    let cluster = Cluster::start();
    let connection = open(&cluster);
    create_tables(&cluster, &connection);
    let other = other_process(&cluster, 0);
    number(&other, "SELECT count(*) FROM t0");
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    for table in 0..TABLES {
        let error = other.execute(&format!("UPDATE t{table} SET m=0"), []).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "t{table}");
    }
    let error = other.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    let before = (round_trips(&connection), requests(&connection));
    connection.execute_batch("UPDATE t1 SET m=m+1 WHERE id=1; COMMIT").unwrap();
    // The read, the commit, and the release at the two other groups, for which nothing waits.
    let after = (round_trips(&connection), requests(&connection));
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 4));
    other.busy_timeout(Duration::from_secs(60)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; UPDATE t0 SET m=0; ROLLBACK; BEGIN IMMEDIATE; COMMIT").unwrap();
    // None of these loses, and none waits for ever.
    thread::scope(|scope| {
        for number in 0..4 {
            let client = other_process(&cluster, 3 + number);
            scope.spawn(move || {
                for round in 0..20 {
                    let [one, two] = [number, number + round].map(|table| table as i64 % TABLES);
                    let sql = format!(
                        "BEGIN IMMEDIATE; UPDATE t{one} SET m=m+1 WHERE id=2;
                         UPDATE t{two} SET m=m+1 WHERE id=2; COMMIT"
                    );
                    client.execute_batch(&sql).unwrap();
                }
            });
        }
    });
    cluster.settle();
    let sums: i64 =
        (0..TABLES).map(|table| number(&other, &format!("SELECT m FROM t{table} WHERE id=2"))).sum();
    assert_eq!(sums, TABLES * 2 + 4 * 20 * 2);
}

/// One transaction over attached databases, each of several groups.
#[test]
fn attached_databases_of_several_groups_each_commit_together() {
    let cluster = Cluster::start();
    let connection = open(&cluster);
    let other = cluster.named(&[1], "two", "placement=2,1");
    connection.execute("ATTACH ? AS two", [&other]).unwrap();
    create_tables(&cluster, &connection);
    connection
        .execute_batch("CREATE TABLE two.u(n); CREATE TABLE two.v(n); INSERT INTO u VALUES (1)")
        .unwrap();
    connection
        .execute_batch("BEGIN; INSERT INTO v SELECT n FROM u; UPDATE t0 SET m=5 WHERE id=1; COMMIT")
        .unwrap();
    connection.execute_batch("BEGIN; INSERT INTO v SELECT n FROM u; UPDATE t0 SET m=6; ROLLBACK").unwrap();
    run(&cluster, &connection, "BEGIN IMMEDIATE; UPDATE v SET n=n+1; UPDATE t1 SET m=5 WHERE id=1; COMMIT");
    let apart = cluster.open(&[0], "two", "mode=ro");
    assert_eq!(number(&apart, "SELECT sum(n) FROM v"), 2);
    run(&cluster, &connection, "ALTER TABLE v ADD COLUMN m DEFAULT 3");
    assert_eq!(number(&apart, "SELECT m FROM v"), 3);
    assert_eq!(
        number(&other_process(&cluster, 0), "SELECT t0.m + t1.m FROM t0, t1 WHERE t0.id=1 AND t1.id=1"),
        10
    );
}

/// While a group does not answer, statements on tables of the others go on.
#[test]
fn a_group_that_is_down_stops_what_needs_it() {
    let mut cluster = Cluster::start();
    let connection = open(&cluster);
    create_tables(&cluster, &connection);
    let groups = groups(&connection);
    let client = cluster.open(&[0], "shop", "timeout=1000");
    assert_eq!(number(&client, "SELECT (SELECT count(*) FROM t0) + (SELECT count(*) FROM t1)"), 6);
    // The last server goes.
    cluster.servers.truncate(2);
    for table in 0..TABLES {
        let is_down = groups[&format!("t{table}")] == 2;
        let update = client.execute(&format!("UPDATE t{table} SET m=7 WHERE id=1"), []);
        assert_eq!(update.is_err(), is_down, "t{table}: {update:?}");
    }
    assert!(client.execute_batch("CREATE TABLE more(v)").is_err());
    assert!(client.execute_batch("BEGIN IMMEDIATE").is_err());
    let up = (0..TABLES).find(|table| groups[&format!("t{table}")] != 2).unwrap();
    client.execute(&format!("UPDATE t{up} SET m=8 WHERE id=1"), []).unwrap();
    assert_eq!(number(&client, &format!("SELECT m FROM t{up} WHERE id=1")), 8);
}

/// A database with groups that the cluster does not have is not created.
#[test]
fn unknown_groups_are_refused() {
    let cluster = Cluster::start();
    let address = cluster.named(&[0], "shop", "placement=0,9");
    let error = Connection::open(address).unwrap_err();
    assert!(error.to_string().contains("group 9 is not known"), "{error}");
}

/// Returns whether all indexes have all rows.
pub(crate) fn check(connection: &Connection) {
    let checked: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok");
}

/// A statement relies on an earlier proof of the schema, and reads at a later snapshot at a group that
/// has no copy of it.
#[test]
fn a_schema_change_between_a_proof_and_a_read_elsewhere_is_noticed() {
    let cluster = Cluster::start();
    let other = cluster.open(&[1], "shop", "placement=1,2");
    run(&cluster, &other, "CREATE TABLE t(id INTEGER PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)");
    let connection = cluster.open(&[0], "own", "placement=0&timeout=20000");
    run(&cluster, &connection, "CREATE TABLE s(v INT); INSERT INTO s VALUES (7)");
    connection.execute("ATTACH ?1 AS shop", [cluster.named(&[0], "shop", "timeout=20000")]).unwrap();
    let mut insert = connection.prepare("INSERT INTO shop.t(v) SELECT v FROM main.s").unwrap();
    // Later ones take the number of their row from a range, and read nothing in `t`.
    insert.execute([]).unwrap();
    for index in 0..5 {
        assert_eq!(number(&connection, "SELECT count(*) FROM shop.t"), index + 2);
        run(&cluster, &other, &format!("CREATE INDEX i{index} ON t(v)"));
        insert.execute([]).unwrap();
        cluster.settle();
        let sql = format!("SELECT count(*) FROM t INDEXED BY i{index} WHERE v=7");
        assert_eq!(number(&other, &sql), index + 2);
    }
    check(&other);
}

/// A commit that a lease refused has guarded the schema after a savepoint, to which the application
/// rolls back.
#[test]
fn a_rollback_after_a_refused_commit_keeps_the_guards() {
    let cluster = Cluster::start();
    let connection = open(&cluster);
    create_tables(&cluster, &connection);
    let other = other_process(&cluster, 0);
    other.busy_timeout(Duration::ZERO).unwrap();
    let sql =
        "BEGIN; INSERT INTO t0 VALUES (50, 'x', 50, 5); SAVEPOINT x; INSERT INTO t0 VALUES (51, 'y', 51, 5)";
    other.execute_batch(sql).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = other.execute_batch("COMMIT").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    run(&cluster, &connection, "CREATE INDEX i ON t0(n); COMMIT");
    let error = other.execute_batch("ROLLBACK TO x; COMMIT").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}");
    other.execute_batch("ROLLBACK").unwrap();
    check(&connection);
    // Tables of another database that are written after the refusal are guarded as well.
    let two = cluster.open(&[2], "two", "placement=2");
    run(&cluster, &two, "CREATE TABLE t(id INTEGER PRIMARY KEY, n INT)");
    other.execute("ATTACH ?1 AS two", [cluster.named(&[0], "two", "timeout=20000")]).unwrap();
    assert_eq!(number(&other, "SELECT count(*) FROM two.t"), 0);
    other.execute_batch("BEGIN; INSERT INTO t0 VALUES (52, 'z', 52, 5)").unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    other.execute_batch("COMMIT").unwrap_err();
    connection.execute_batch("COMMIT").unwrap();
    other.execute_batch("INSERT INTO two.t VALUES (1, 1)").unwrap();
    run(&cluster, &two, "CREATE INDEX i ON t(n)");
    other.execute_batch("COMMIT").unwrap_err();
    other.execute_batch("ROLLBACK").unwrap();
    check(&two);
}

/// Each process takes numbers of rows in advance, but not for the schema: SQLite reads it in the order
/// of its rows, and an index must be behind its table.
#[test]
fn processes_change_the_schema_in_turns() {
    let cluster = Cluster::start();
    for placement in ["tables", "0"] {
        let name = format!("at-{placement}");
        let first = cluster.open(&[0], &name, &format!("placement={placement}&timeout=20000"));
        let second = cluster.open(&[1], &name, &format!("placement={placement}&timeout=21000"));
        for table in ["a", "b", "c", "d"] {
            run(&cluster, &first, &format!("CREATE TABLE {table}(y)"));
        }
        run(&cluster, &second, "DROP TABLE d; CREATE TABLE d(x); CREATE VIEW v AS SELECT x FROM d");
        run(
            &cluster,
            &first,
            "CREATE INDEX i ON d(x); CREATE TRIGGER r AFTER INSERT ON d BEGIN SELECT 1; END",
        );
        run(&cluster, &second, "INSERT INTO d VALUES (7)");
        let third = cluster.open(&[2], &name, "timeout=22000");
        for connection in [&first, &second, &third] {
            assert_eq!(number(connection, "SELECT x FROM v"), 7);
            check(connection);
        }
    }
}

/// The nodes of a table or an index are found at its group, and not before it is committed.
#[test]
fn nodes_are_shown_at_every_group() {
    let cluster = Cluster::start();
    let connection = open(&cluster);
    create_tables(&cluster, &connection);
    let (other, groups) = (other_process(&cluster, 0), groups(&connection));
    let root =
        |name: &str| number(&connection, &format!("SELECT rootpage FROM sqlite_schema WHERE name='{name}'"));
    let group_of = |id: &str| NodeId::from_bits(u128::from_str_radix(id, 16).unwrap()).server.0;
    for (name, group) in groups {
        let root = u32::try_from(root(&name)).unwrap();
        let nodes = trees(&other).nodes(root).unwrap();
        assert!(nodes.nodes.iter().all(|node| group_of(&node.id) == group), "{name} is not at {group}");
    }
    connection.execute_batch("BEGIN; CREATE TABLE more(a)").unwrap();
    let root = u32::try_from(root("more")).unwrap();
    assert!(matches!(trees(&other).nodes(root), Err(yesquel::Error::NoMap(_))));
    connection.execute_batch("ROLLBACK").unwrap();
}

/// BEGIN IMMEDIATE that fails leaves no lease at the groups that had granted one.
#[test]
fn a_failed_begin_immediate_locks_nothing() {
    let cluster = Cluster::start();
    let connection = open(&cluster);
    create_tables(&cluster, &connection);
    let database = trees(&connection);
    let database = database.database();
    // The last group in the order of leases.
    let copy = database.existing_map("sql/cookies@2").unwrap().unwrap();
    let lease = database.lease::<&[u8]>(copy, .., Duration::from_secs(60), Duration::ZERO).unwrap();
    let other = other_process(&cluster, 0);
    number(&other, "SELECT count(*) FROM t0");
    other.busy_timeout(Duration::ZERO).unwrap();
    let error = other.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    assert_eq!(groups(&connection)["t1"], 0);
    // Neither another client nor the same one.
    let third = other_process(&cluster, 4);
    third.busy_timeout(Duration::ZERO).unwrap();
    third.execute_batch("UPDATE t1 SET m=0").unwrap();
    other.execute_batch("UPDATE t1 SET m=0").unwrap();
    drop(lease);
}
