//! SQL by clients that come while the home group is down.

use rusqlite::{Connection, Error, ErrorCode};
use std::{path::Path, time::Duration};
use tempfile::TempDir;
use yesquel::{
    Address, EngineSettings, ListenOptions, LogOptions, PeerOptions, Server, ServerId, SocketOptions, Store,
};
use yesquel_sqlite::add_groups;

const SERVERS: u16 = 4;

/// Servers that know each other and can be stopped. The first one has the home group.
struct Cluster {
    /// Dropped before their folder.
    servers: Vec<Option<Server>>,
    folder: TempDir,
}

fn address(folder: &Path, server: u16) -> Address {
    Address::Unix(folder.join(format!("{server}.sock")))
}

fn start(folder: &Path, server: u16) -> Server {
    let others = (0..SERVERS).filter(|other| *other != server);
    let servers = others.map(|other| (ServerId(other), address(folder, other))).collect();
    let listen = ListenOptions {
        addresses: vec![address(folder, server)],
        peers: PeerOptions { servers, ..PeerOptions::default() },
        ..ListenOptions::default()
    };
    let settings = EngineSettings { server: ServerId(server), ..EngineSettings::default() };
    let data = folder.join(format!("data-{server}"));
    Server::start(Some(&data), settings, LogOptions::default(), listen).unwrap()
}

impl Cluster {
    fn start() -> Cluster {
        assert!(yesquel_sqlite::is_linked());
        let folder = TempDir::new().unwrap();
        let servers = (0..SERVERS).map(|server| Some(start(folder.path(), server))).collect();
        Cluster { servers, folder }
    }

    fn stop(&mut self, server: u16) {
        self.servers[usize::from(server)] = None;
    }

    fn restart(&mut self, server: u16) {
        self.servers[usize::from(server)] = Some(start(self.folder.path(), server));
    }

    /// Opens a database by a server, as another process does for each `number`.
    fn try_open(&self, server: u16, name: &str, number: u32) -> Result<Connection, Error> {
        let address = address(self.folder.path(), server);
        let options = format!("placement=2,3&timeout={}", 30_000 + number);
        let connection = Connection::open(format!("file:yesquel://{address}/{name}?{options}"))?;
        connection.busy_timeout(Duration::from_secs(60))?;
        Ok(connection)
    }

    fn open(&self, server: u16, number: u32) -> Connection {
        self.try_open(server, "shop", number).unwrap()
    }

    fn store(&self) -> Store {
        Store::connect(&address(self.folder.path(), 0), SocketOptions::default()).unwrap()
    }

    /// Waits until machines have all names, and know how all transactions have ended.
    fn settle(&self, servers: &[u16]) {
        let store = self.store();
        for server in servers {
            while !store.is_name_copy_current(ServerId(*server)).unwrap() {
                std::thread::yield_now();
            }
        }
        while self.servers.iter().flatten().any(|server| server.status().transactions.undecided > 0) {
            std::thread::yield_now();
        }
    }
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Checks that an operation needs the home group.
fn needs_home<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure), "{error:?}");
    assert!(error.to_string().contains("home group"), "{error}");
    assert_eq!(yesquel_sqlite::last_error_kind(), Some(yesquel_sqlite::SqlErrorKind::Unreachable));
}

const SCHEMA: &str = "
    CREATE TABLE a(id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INT);
    CREATE TABLE b(id INTEGER PRIMARY KEY AUTOINCREMENT, n INT, long TEXT);
    CREATE INDEX i ON b(n);
    INSERT INTO a VALUES (1, 'one', 10), (2, 'two', 20);
    INSERT INTO b(n) VALUES (1), (2), (3)";

#[test]
fn statements_work_and_schema_changes_wait_for_the_home_group() {
    let mut cluster = Cluster::start();
    cluster.open(0, 0).execute_batch(SCHEMA).unwrap();
    cluster.settle(&[1, 2, 3]);
    cluster.stop(0);
    let connections = [(1, 1), (2, 2), (3, 3)].map(|(server, process)| cluster.open(server, process));
    for (own, connection) in connections.iter().enumerate() {
        let own = own as i64;
        assert_eq!(number(connection, "SELECT sum(a.n) FROM a JOIN b ON a.id = b.n"), 30 + own);
        connection.execute("INSERT INTO a(name, n) VALUES (?, 0)", [format!("of {own}")]).unwrap();
        connection.execute("INSERT INTO b(n, long) VALUES (?, hex(zeroblob(200000)))", [100 + own]).unwrap();
        assert_eq!(number(connection, "SELECT max(length(long)) FROM b"), 400_000);
        connection.execute("UPDATE a SET n = n + 1 WHERE name = 'one'", []).unwrap();
        connection.execute("DELETE FROM a WHERE name = ?", [format!("of {own}")]).unwrap();
        // Two groups.
        let both = "BEGIN IMMEDIATE; UPDATE b SET n = n WHERE n = 3; UPDATE a SET n = n; COMMIT";
        connection.execute_batch(both).unwrap();
        assert!(number(connection, "PRAGMA page_count") > 0);
    }
    let [connection, ..] = &connections;
    for sql in ["CREATE TABLE c(x)", "DROP TABLE a", "CREATE INDEX j ON a(n)", "DROP INDEX i"] {
        needs_home(connection.execute_batch(sql));
    }
    needs_home(cluster.try_open(1, "other", 1));
    assert_eq!(number(connection, "SELECT count(*) FROM b"), 6);
    cluster.restart(0);
    connection.execute_batch("CREATE TABLE c(x); DROP INDEX i; INSERT INTO c VALUES (7)").unwrap();
    cluster.settle(&[1, 2, 3]);
    let other = cluster.open(1, 4);
    assert_eq!(number(&other, "SELECT x FROM c"), 7);
    let checked: String = other.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok");
}

/// A copy from before a table was created: the other copies have it.
#[test]
fn a_table_that_a_copy_lacks_is_found_in_another() {
    let mut cluster = Cluster::start();
    let first = cluster.open(0, 0);
    first.execute_batch(SCHEMA).unwrap();
    cluster.settle(&[1, 2, 3]);
    cluster.stop(1);
    first.execute_batch("DROP TABLE a; CREATE TABLE a(id INTEGER PRIMARY KEY, v INT)").unwrap();
    first
        .execute_batch("CREATE TABLE c(v INT); INSERT INTO a VALUES (1, 5); INSERT INTO c VALUES (6)")
        .unwrap();
    cluster.settle(&[2, 3]);
    drop(first);
    cluster.stop(0);
    cluster.restart(1);
    let connection = cluster.open(1, 1);
    assert_eq!(number(&connection, "SELECT a.v + c.v FROM a, c"), 11);
    connection.execute_batch("UPDATE a SET v = 8; DELETE FROM c").unwrap();
}

/// A copy from before groups joined the database.
#[test]
fn groups_that_a_copy_lacks_are_found_in_another() {
    let mut cluster = Cluster::start();
    let address = address(cluster.folder.path(), 0);
    let first = Connection::open(format!("file:yesquel://{address}/shop?placement=2")).unwrap();
    first.execute_batch("CREATE TABLE a(v INT); INSERT INTO a VALUES (1)").unwrap();
    cluster.settle(&[1, 2, 3]);
    cluster.stop(1);
    add_groups(&cluster.store(), "shop", &"3".parse().unwrap(), Duration::from_secs(60)).unwrap();
    cluster.settle(&[2, 3]);
    first.execute_batch("CREATE TABLE b(v INT); INSERT INTO b VALUES (2)").unwrap();
    cluster.settle(&[2, 3]);
    drop(first);
    cluster.stop(0);
    cluster.restart(1);
    let connection = cluster.open(1, 1);
    connection.execute_batch("UPDATE a SET v = v + 1").unwrap();
    assert_eq!(number(&connection, "SELECT a.v + b.v FROM a, b"), 4);
}

/// A database that was dropped and created again after the copy.
#[test]
fn a_copy_from_before_a_database_was_dropped_gives_an_error() {
    let mut cluster = Cluster::start();
    cluster.open(0, 0).execute_batch(SCHEMA).unwrap();
    cluster.settle(&[1, 2, 3]);
    cluster.stop(1);
    cluster.store().drop_database("shop").unwrap();
    cluster.open(0, 1).execute_batch("CREATE TABLE a(n INT); INSERT INTO a VALUES (9)").unwrap();
    cluster.settle(&[2, 3]);
    cluster.stop(0);
    cluster.restart(1);
    let old = cluster.open(1, 2);
    for sql in ["SELECT n FROM a", "INSERT INTO a(n) VALUES (1)", "SELECT * FROM sqlite_schema"] {
        let error = old.execute_batch(sql).unwrap_err();
        assert!(error.to_string().contains("dropped"), "{sql}: {error}");
    }
    assert_eq!(number(&cluster.open(2, 3), "SELECT n FROM a"), 9);
}
