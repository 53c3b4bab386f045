//! Costs of statements in round trips to a server.

use crate::place;
use rusqlite::{Connection, OpenFlags};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};

struct Served {
    counted: Connection,
    name: String,
    _server: Server,
    _folder: TempDir,
}

const ROWS: i64 = 3_000;

impl Served {
    fn new() -> Served {
        assert!(yesquel_sqlite::is_linked());
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("socket");
        let address: Address = format!("unix:{}", socket.display()).parse().unwrap();
        let listen = ListenOptions { addresses: vec![address], ..ListenOptions::default() };
        let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
        let name = format!("file:yesquel://{}/shop?watch=no", socket.display());
        let counted = Connection::open_with_flags(&name, OpenFlags::default()).unwrap();
        let served = Served { counted, name, _server: server, _folder: folder };
        served
            .counted
            .execute_batch(&format!(
                "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, n INTEGER, v);
                 CREATE UNIQUE INDEX by_name ON t(name);
                 CREATE INDEX by_n ON t(n);
                 CREATE TABLE plain(id INTEGER PRIMARY KEY, v);
                 CREATE TABLE named(name TEXT PRIMARY KEY, v) WITHOUT ROWID;
                 CREATE TABLE pairs(a TEXT COLLATE NOCASE, b INTEGER, n, v, PRIMARY KEY(b DESC, a)) WITHOUT ROWID;
                 CREATE INDEX pairs_by_n ON pairs(n, a);
                 WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {ROWS})
                 INSERT INTO t SELECT i, 'name ' || i, i / 2, hex(zeroblob(40)) FROM c;
                 INSERT INTO plain SELECT id, v FROM t;
                 INSERT INTO named SELECT name, v FROM t;
                 INSERT INTO pairs SELECT 'A ' || id, id % 7, n, v FROM t;"
            ))
            .unwrap();
        served.settle();
        served
    }

    /// Scans all tables until the server's splits are done and the process has cached all inner
    /// nodes.
    fn settle(&self) {
        let scans = [
            "t",
            "plain",
            "named",
            "pairs",
            "pairs INDEXED BY pairs_by_n WHERE n > 0",
            "t INDEXED BY by_name WHERE name > ''",
            "t INDEXED BY by_n WHERE n > 0",
        ];
        let (mut before, mut rounds, end) = (0, 0, Instant::now() + Duration::from_secs(60));
        while rounds < 3 {
            assert!(Instant::now() < end, "splits do not end");
            let scanned = self.cost(|| {
                for scan in scans {
                    run(&self.counted, &format!("SELECT * FROM {scan}"));
                }
            });
            let ids = (1..ROWS).step_by(50);
            let reads = ids.clone().count() as u64;
            let read = self.cost(|| {
                for id in ids {
                    assert_eq!(run(&self.counted, &format!("SELECT v FROM plain WHERE id = {id}")), 1);
                }
            });
            rounds = if scanned == before && read == reads { rounds + 1 } else { 0 };
            before = scanned;
        }
    }

    fn open(&self) -> Connection {
        let connection = Connection::open_with_flags(&self.name, OpenFlags::default()).unwrap();
        assert!(connection.path().unwrap().starts_with("yesquel:"));
        connection
    }

    /// Round trips of all connections, which share the one to the server.
    fn round_trips(&self) -> u64 {
        place::round_trips(&self.counted)
    }

    /// Returns the number of round trips of an action.
    fn cost(&self, act: impl FnOnce()) -> u64 {
        let before = self.round_trips();
        act();
        self.round_trips() - before
    }
}

/// Prepares and runs a statement. Returns the number of rows.
fn run(connection: &Connection, sql: &str) -> usize {
    let mut statement = connection.prepare(sql).unwrap();
    let mut rows = statement.query([]).unwrap();
    let mut count = 0;
    while rows.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// A program that opens a database for each request, as PHP does, pays for the names of the
/// database and its tables together, then for the cookies and the schema.
#[test]
fn a_database_is_opened_in_few_round_trips() {
    let served = Served::new();
    let mut connection = None;
    let cost = served.cost(|| connection = Some(served.open()));
    assert_eq!(cost, 1);
    let connection = connection.unwrap();
    let cost = served.cost(|| assert_eq!(run(&connection, "SELECT v FROM plain WHERE id = 777"), 1));
    assert_eq!(cost, 2);
    // In a catalog of several leaves, whose split is known.
    let tables: String = (0..300).map(|number| format!("CREATE TABLE more{number}(a);")).collect();
    connection.execute_batch(&format!("BEGIN; {tables} COMMIT")).unwrap();
    served.settle();
    drop(served.open());
    let cost = served.cost(|| drop(served.open()));
    assert!(cost <= 2, "{cost}");
}

#[test]
fn statements_take_the_round_trips_of_the_design() {
    let served = Served::new();
    let connection = served.open();
    // It has read the schema.
    run(&connection, "SELECT * FROM plain");
    let all = [
        (1, 1, "SELECT v FROM plain WHERE id = 777"),
        (1, 0, "SELECT v FROM plain WHERE id = 99777"),
        (1, 1, "SELECT v FROM t WHERE name = 'name 777'"),
        (1, 2, "SELECT v FROM t WHERE n = 777"),
        (1, 1, "SELECT v FROM named WHERE name = 'name 777'"),
        (1, 2, "SELECT v FROM pairs WHERE n = 777"),
        (1, 1, "SELECT v FROM pairs WHERE n = 777 AND a = 'a 1554'"),
        (1, 1, "SELECT max(id) FROM plain"),
        (2, 0, "UPDATE plain SET v = 'new' WHERE id = 777"),
        (2, 0, "UPDATE t SET v = 'new' WHERE name = 'name 778'"),
        (2, 0, "UPDATE t SET v = 'new' WHERE n = 900"),
        (2, 0, "UPDATE named SET v = 'new' WHERE name = 'name 777'"),
        (2, 0, "UPDATE pairs SET v = 'new' WHERE n = 778"),
        (2, 0, "INSERT INTO plain VALUES(100001, 'new')"),
        (2, 0, "DELETE FROM plain WHERE id = 778"),
    ];
    for (expected, rows, sql) in all {
        let cost = served.cost(|| assert_eq!(run(&connection, sql), rows, "{sql}"));
        assert!(cost <= expected, "{sql}: {cost}");
    }
    // A lease, a read, and a commit that releases the lease.
    let cost = served.cost(|| {
        let update = "BEGIN IMMEDIATE; UPDATE plain SET v = 'new' WHERE id = 779; COMMIT";
        connection.execute_batch(update).unwrap();
    });
    assert_eq!(cost, 3, "BEGIN IMMEDIATE");
    // The first insert reads the last row; numbers come in growing ranges.
    run(&connection, "INSERT INTO plain(v) VALUES('first')");
    for number in 0..20 {
        let cost = served.cost(|| assert_eq!(run(&connection, "INSERT INTO plain(v) VALUES('new')"), 0));
        assert!(cost <= 2, "insert {number}: {cost}");
    }
    // The same for AUTOINCREMENT once its counter is known.
    run(&connection, "CREATE TABLE auto(id INTEGER PRIMARY KEY AUTOINCREMENT, v)");
    run(&connection, "INSERT INTO auto(v) VALUES('first')");
    let insert = "INSERT INTO auto(v) VALUES('new')";
    for number in 2..20 {
        let cost = served.cost(|| assert_eq!(run(&connection, insert), 0));
        assert!(cost <= 2, "insert {number}: {cost}");
        assert_eq!(connection.last_insert_rowid(), number);
    }
    // An explicit number is looked up and reported to the counter; no later insert pays for it.
    let cost = served.cost(|| assert_eq!(run(&connection, "INSERT INTO auto VALUES(7777, 'own')"), 0));
    assert!(cost <= 4, "{cost}");
    run(&connection, insert);
    assert_eq!(connection.last_insert_rowid(), 7778);
    run(&connection, "DELETE FROM auto WHERE id < 0");
    let cost = served.cost(|| assert_eq!(run(&connection, insert), 0));
    assert!(cost <= 2, "{cost}");
    assert_eq!(connection.last_insert_rowid(), 7779);
    // Short ranges are in one or two leaves.
    for sql in [
        "SELECT v FROM plain WHERE id >= 1000 LIMIT 5",
        "SELECT v FROM plain WHERE id BETWEEN 1000 AND 1004",
        "SELECT v FROM plain WHERE id <= 1000 ORDER BY id DESC LIMIT 5",
        "SELECT v FROM t WHERE name >= 'name 2' ORDER BY name LIMIT 5",
        "SELECT v FROM named WHERE name >= 'name 2' ORDER BY name LIMIT 5",
        "SELECT v FROM t WHERE n BETWEEN 500 AND 501",
    ] {
        let cost = served.cost(|| assert!(run(&connection, sql) >= 4, "{sql}"));
        assert!(cost <= 2, "{sql}: {cost}");
    }
    let mut total = 0;
    for start in 0..200 {
        let sql = format!("SELECT v FROM plain WHERE id >= {} LIMIT 5", start * 10);
        total += served.cost(|| assert_eq!(run(&connection, &sql), 5, "{sql}"));
    }
    assert!(total <= 220, "200 short ranges: {total}");
    // One for each statement of a transaction, and one for the commit.
    let cost = served.cost(|| {
        connection.execute_batch("BEGIN").unwrap();
        for id in 100..150 {
            assert_eq!(connection.execute("UPDATE plain SET v = 'many' WHERE id = ?", [id]).unwrap(), 1);
        }
        connection.execute_batch("COMMIT").unwrap();
    });
    assert!(cost <= 51, "50 updates and the commit: {cost}");
}

#[test]
fn a_schema_changed_by_another_connection_costs_one_round_trip() {
    let served = Served::new();
    let (connection, other) = (served.open(), served.open());
    let sql = "SELECT v FROM plain WHERE id = 777";
    run(&connection, "SELECT * FROM plain");
    let mut prepared = connection.prepare(sql).unwrap();
    for (number, is_prepared) in [(1, true), (2, false), (3, true)] {
        assert!(served.cost(|| assert_eq!(run(&connection, sql), 1)) <= if number == 1 { 2 } else { 1 });
        other.execute_batch(&format!("ALTER TABLE plain ADD COLUMN c{number} DEFAULT 7")).unwrap();
        let cost = served.cost(|| {
            if is_prepared {
                assert!(prepared.exists([]).unwrap(), "{number}");
            } else {
                assert_eq!(run(&connection, sql), 1);
            }
        });
        assert!(cost <= 2, "{cost}");
        assert_eq!(served.cost(|| assert_eq!(run(&connection, sql), 1)), 1);
    }
    // The first attempt did not commit by the old schema.
    other.execute_batch("ALTER TABLE plain RENAME COLUMN v TO w").unwrap();
    let error = connection.execute("INSERT INTO plain(id, v) VALUES(500001, 1)", []).unwrap_err();
    assert!(error.to_string().contains("no column named v"), "{error}");
    other.execute_batch("CREATE INDEX on_w ON plain(w)").unwrap();
    connection.execute("INSERT INTO plain(id, w) VALUES(500001, 'unique')", []).unwrap();
    let found = "SELECT id FROM plain INDEXED BY on_w WHERE w = 'unique'";
    assert_eq!(other.query_row(found, [], |row| row.get::<_, i64>(0)).unwrap(), 500_001);
}

#[test]
fn inserts_in_key_order_share_round_trips() {
    let served = Served::new();
    let connection = served.open();
    run(&connection, "SELECT * FROM plain");
    let cost = served.cost(|| {
        connection.execute_batch("BEGIN").unwrap();
        for id in 0..100 {
            connection.execute("INSERT INTO plain VALUES(?, 'many')", [200_000 + id]).unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
    });
    assert!(cost <= 10, "100 rows and the commit: {cost}");
}

#[test]
fn random_seeks_fetch_leaves_and_not_rows() {
    let served = Served::new();
    let connection = served.open();
    let scan = served.cost(|| {
        run(&connection, "SELECT * FROM plain");
    });
    let all = served.cost(|| {
        run(&connection, "SELECT * FROM t");
    });
    let join = format!("SELECT o.id, i.v FROM t o CROSS JOIN plain i ON i.id = o.id * 7919 % {ROWS} + 1");
    let cost = served.cost(|| assert_eq!(run(&connection, &join), ROWS as usize));
    println!("scan {scan}, of the outer {all}, join {cost}");
    assert!(cost < all + 50 + 5 * scan, "{cost}, where {scan} scan it, and {all} the outer one");
}

#[test]
fn the_application_sets_the_size_of_the_page_cache() {
    let served = Served::new();
    let connection = served.open();
    let (rows, seeks) = (1_500, 6_000);
    connection
        .execute_batch(&format!(
            "CREATE TABLE wide(id INTEGER PRIMARY KEY, v);
             WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {rows})
             INSERT INTO wide SELECT i, zeroblob(16000) FROM c;"
        ))
        .unwrap();
    let join = format!(
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {seeks})
         SELECT length(v) FROM c CROSS JOIN wide ON id = i * 7919 % {rows} + 1"
    );
    let join = || {
        run(&connection, &join);
    };
    // 24 MB: more than the default cache.
    let few = served.cost(join);
    connection.execute_batch("PRAGMA cache_size = -40000").unwrap();
    let many = served.cost(join);
    println!("{few} of {seeks}; with all of it in memory {many}");
    assert!(few > 2_000 && many < few / 2 && many < 2_500, "{few}, {many}");
}

/// Numbers of trees come from the home group in ranges of 64. A connection waits for the first range
/// only: the next ones are fetched ahead.
#[test]
fn schema_changes_take_the_round_trips_of_the_design() {
    let served = Served::new();
    let connection = served.open();
    run(&connection, "SELECT * FROM plain");
    let cost = |sql: &str| served.cost(|| connection.execute_batch(sql).unwrap());
    for number in 0..70 {
        let table = cost(&format!("CREATE TABLE made{number}(a, b)"));
        let index = cost(&format!("CREATE INDEX made_by{number} ON made{number}(a)"));
        let drop = cost(&format!("DROP TABLE made{number}"));
        let first_range = u64::from(number == 0);
        assert!(table <= 4 + first_range && index <= 4 && drop <= 6, "{number}: {table}, {index}, {drop}");
    }
}
