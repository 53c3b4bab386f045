//! Schema changes concurrent with reads and writes by prepared statements.
//!
//! Applications get only errors about conflicts, constraints, and missing tables and columns. The
//! data is consistent: sums hold, indexes agree with their tables, unique indexes have no
//! duplicates, and there is no tree that the schema does not name.

use crate::servers::Cluster;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, Statement};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server, SocketOptions, Store};
use yesquel_seeds::{Random, check_seeds};

const THREADS: u64 = 5;
const STEPS: u64 = 80;
const ACCOUNTS: i64 = 20;
const MONEY: i64 = 100;

const SCHEMA: &str = "
    CREATE TABLE account(id INTEGER PRIMARY KEY, money INTEGER, note TEXT);
    CREATE TABLE item(id INTEGER PRIMARY KEY, k INTEGER, v TEXT);
    CREATE TABLE parent(id INTEGER PRIMARY KEY);
    CREATE TABLE child(id INTEGER PRIMARY KEY AUTOINCREMENT, parent REFERENCES parent(id));
    CREATE TABLE other.sent(id INTEGER PRIMARY KEY, k INTEGER, v TEXT);";

/// Two databases at one store.
struct Place {
    /// Dropped before its folder.
    server: Option<Server>,
    cluster: Option<Cluster>,
    /// Number of connections so far.
    clients: AtomicU64,
    main: String,
    other: String,
    folder: TempDir,
}

impl Place {
    fn folder() -> Place {
        let folder = TempDir::new().unwrap();
        let name = |name: &str| {
            format!("file:yesquel:{}?durability=none&database={name}", folder.path().join("data").display())
        };
        Place {
            server: None,
            cluster: None,
            clients: AtomicU64::new(0),
            main: name("main"),
            other: name("other"),
            folder,
        }
    }

    fn served() -> Place {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("socket");
        let listen =
            ListenOptions { addresses: vec![Address::Unix(socket.clone())], ..ListenOptions::default() };
        let settings = EngineSettings { node_cells_max: 16, ..EngineSettings::default() };
        let server = Server::start(None, settings, LogOptions::default(), listen).unwrap();
        let name = |name: &str| format!("file:yesquel://{}/{name}", socket.display());
        Place {
            server: Some(server),
            cluster: None,
            clients: AtomicU64::new(0),
            main: name("main"),
            other: name("other"),
            folder,
        }
    }

    /// Three servers. The tables of both databases are at all of them.
    fn cluster() -> Place {
        let settings = EngineSettings { node_cells_max: 16, ..EngineSettings::default() };
        let cluster = Cluster::start_with(settings);
        let name = |name: &str| cluster.named(&[1, 0], name, "placement=tables");
        let (main, other) = (name("main"), name("other"));
        let folder = TempDir::new().unwrap();
        Place { server: None, cluster: Some(cluster), clients: AtomicU64::new(0), main, other, folder }
    }

    /// Number of a database's trees that are not SQL objects: its schema, and its meta values at each
    /// group.
    fn own_trees(&self) -> i64 {
        if self.cluster.is_some() { 4 } else { 2 }
    }

    fn open(&self) -> Connection {
        // At several servers each connection is as of a process of its own.
        let own = match self.cluster {
            Some(_) => format!("&timeout={}", 20_000 + self.clients.fetch_add(1, Relaxed)),
            None => String::new(),
        };
        let main = format!("{}{own}", self.main);
        let connection = Connection::open_with_flags(main, OpenFlags::default()).unwrap();
        assert!(connection.path().unwrap().starts_with("yesquel:"));
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection.execute("ATTACH ? AS other", [format!("{}{own}", self.other)]).unwrap();
        connection.execute_batch("PRAGMA foreign_keys=ON").unwrap();
        connection
    }

    fn store(&self) -> Store {
        if let Some(cluster) = &self.cluster {
            return Store::connect(cluster.address(2), SocketOptions::default()).unwrap();
        }
        match &self.server {
            Some(server) => Store::of_host(server.host().clone()),
            None => Store::open(self.folder.path().join("data")).unwrap(),
        }
    }
}

/// Returns whether an application must expect an error while others change the schema.
fn is_fair(error: &Error) -> bool {
    let code = match error {
        Error::SqliteFailure(error, _) | Error::SqlInputError { error, .. } => error.code,
        _ => return false,
    };
    let message = error.to_string();
    let are_words = |words: &str| message.contains(words);
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::ConstraintViolation => true,
        ErrorCode::Unknown => [
            "no such table",
            "no such column",
            "no such index",
            "no column named",
            "already exists",
            "already another table or index with this name",
            "duplicate column name",
        ]
        .into_iter()
        .any(are_words),
        _ => false,
    }
}

fn number(connection: &Connection, sql: &str) -> Result<i64, Error> {
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

fn text(connection: &Connection, sql: &str) -> Result<String, Error> {
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

struct Client<'a> {
    connection: &'a Connection,
    random: Random,
    /// Index of the thread.
    thread: u64,
    /// Last known name of the money column.
    money: &'static str,
    /// Numbers of successful actions.
    done: [u64; 2],
}

impl Client<'_> {
    fn draw(&mut self, below: i64) -> i64 {
        self.random.next(below as u64) as i64
    }

    /// Runs a statement that stays prepared.
    fn run(&self, sql: &str) -> Result<usize, Error> {
        self.connection.prepare_cached(sql)?.execute([])
    }

    fn step(&mut self) {
        let which = usize::from(self.random.next(3) == 0);
        let is_explicit = self.random.next(2) == 0;
        let begin = if self.random.next(4) == 0 { "BEGIN IMMEDIATE" } else { "BEGIN" };
        let done = if is_explicit { self.run(begin).map(drop) } else { Ok(()) };
        let done = done.and_then(|()| if which == 1 { self.change() } else { self.work() });
        let done = done.and_then(|()| if is_explicit { self.run("COMMIT").map(drop) } else { Ok(()) });
        match done {
            Ok(()) => self.done[which] += 1,
            Err(error) => {
                assert!(is_fair(&error), "{error:?}");
                if !self.connection.is_autocommit() {
                    self.run("ROLLBACK").unwrap();
                }
            }
        }
        assert!(self.connection.is_autocommit());
    }

    fn change(&mut self) -> Result<(), Error> {
        let number = self.draw(4);
        let sql = match self.draw(16) {
            0 => "CREATE INDEX by_v ON item(v)".to_owned(),
            1 => "DROP INDEX by_v".to_owned(),
            2 => "CREATE UNIQUE INDEX by_k ON item(k)".to_owned(),
            3 => {
                // Mostly some exist.
                self.run(
                    "DELETE FROM item WHERE EXISTS(SELECT 1 FROM item b WHERE b.k=item.k AND b.id<item.id)",
                )?;
                "CREATE UNIQUE INDEX IF NOT EXISTS by_k ON item(k)".to_owned()
            }
            4 => "DROP INDEX by_k".to_owned(),
            5 => "CREATE INDEX other.sent_by_k ON sent(k, v)".to_owned(),
            6 => "DROP INDEX other.sent_by_k".to_owned(),
            7 => format!("ALTER TABLE account ADD COLUMN more{number} INTEGER DEFAULT {number}"),
            8 => format!("ALTER TABLE account DROP COLUMN more{number}"),
            9 => "ALTER TABLE account RENAME COLUMN money TO cash".to_owned(),
            10 => "ALTER TABLE account RENAME COLUMN cash TO money".to_owned(),
            11 => format!("CREATE TABLE pass{number}(id INTEGER PRIMARY KEY AUTOINCREMENT, v UNIQUE)"),
            12 => format!("DROP TABLE pass{number}"),
            13 => format!("ALTER TABLE pass{number} RENAME TO pass{}", self.draw(4)),
            14 => format!("CREATE TABLE other.pass{number} AS SELECT k, v FROM sent"),
            _ => format!("DROP TABLE other.pass{number}"),
        };
        self.run(&sql).map(drop)
    }

    /// Retries with the new name if the column was renamed meanwhile.
    fn with_money<T>(&mut self, act: impl Fn(&Self) -> Result<T, Error>) -> Result<T, Error> {
        match act(self) {
            Err(error) if error.to_string().contains("no such column") => {
                self.money = if self.money == "money" { "cash" } else { "money" };
                act(self)
            }
            outcome => outcome,
        }
    }

    fn work(&mut self) -> Result<(), Error> {
        let (some, draw) = (self.draw(ACCOUNTS), self.draw(40));
        let connection = self.connection;
        match self.draw(12) {
            0..3 => {
                // In one statement, for it may run outside of a transaction.
                let (from, to, sum) = (some, (some + 1 + draw) % ACCOUNTS, 1 + draw);
                let changes = self.with_money(|client| {
                    let money = client.money;
                    client.run(&format!(
                        "UPDATE account SET {money} = {money} + CASE id WHEN {to} THEN {sum} ELSE -{sum} END
                         WHERE id IN ({from}, {to}) AND {from} <> {to}"
                    ))
                })?;
                assert!(changes == 2 || from == to, "{changes}");
            }
            3 => {
                let total = self.with_money(|client| {
                    number(client.connection, &format!("SELECT sum({}) FROM account", client.money))
                })?;
                assert_eq!(total, ACCOUNTS * MONEY);
            }
            // Row by row, while others proceed.
            4 => {
                let (count, total) = self.with_money(|client| {
                    let sql = format!("SELECT {} FROM account", client.money);
                    let mut statement = client.connection.prepare_cached(&sql)?;
                    rows(&mut statement)
                })?;
                assert_eq!((count, total), (ACCOUNTS, ACCOUNTS * MONEY));
            }
            5..7 => {
                let mut statement = connection.prepare_cached("INSERT INTO item(k, v) VALUES(?, ?)")?;
                statement.execute((draw, format!("v{}", draw % 7)))?;
            }
            7 => drop(self.run(&format!("UPDATE item SET v='v{}', k=k+40 WHERE k={draw}", draw % 5))?),
            8 => drop(self.run(&format!("DELETE FROM item WHERE v='v{}' AND k>{draw}", draw % 7))?),
            9 => {
                let sql = match draw % 4 {
                    0 => format!("INSERT OR IGNORE INTO parent VALUES({})", some % 5),
                    1 => format!("DELETE FROM parent WHERE id={}", some % 5),
                    2 => format!("DELETE FROM child WHERE parent={}", some % 5),
                    _ => format!("INSERT INTO child(parent) VALUES({})", some % 5),
                };
                self.run(&sql)?;
            }
            10 => {
                let sql = match draw % 3 {
                    0 => format!("INSERT INTO pass{}(v) VALUES({draw})", some % 4),
                    1 => format!("SELECT count(*) FROM pass{}", some % 4),
                    _ => format!("INSERT INTO sent(k, v) VALUES({draw}, 'x')"),
                };
                match draw % 3 {
                    1 => drop(number(connection, &sql)?),
                    _ => drop(self.run(&sql)?),
                }
            }
            _ if connection.is_autocommit() => {
                self.run("BEGIN")?;
                self.look()?;
                self.run("COMMIT")?;
            }
            _ => self.look()?,
        }
        Ok(())
    }

    /// Checks invariants of every snapshot, in a transaction.
    fn look(&self) -> Result<(), Error> {
        let connection = self.connection;
        let is_unique = number(connection, "SELECT count(*) FROM sqlite_schema WHERE name='by_k'")?;
        let doubles = number(connection, "SELECT count(*) - count(DISTINCT k) FROM item NOT INDEXED")?;
        assert!(is_unique == 0 || doubles == 0, "{doubles} duplicates");
        assert_eq!(number(connection, "SELECT count(*) FROM pragma_foreign_key_check")?, 0);
        for database in ["main", "other"] {
            let report = text(connection, &format!("PRAGMA {database}.integrity_check"))?;
            assert_eq!(report, "ok", "of {database}, for thread {}", self.thread);
        }
        Ok(())
    }
}

fn rows(statement: &mut Statement<'_>) -> Result<(i64, i64), Error> {
    let (mut rows, mut count, mut total) = (statement.query([])?, 0, 0);
    while let Some(row) = rows.next()? {
        thread::yield_now();
        count += 1;
        total += row.get::<_, i64>(0)?;
    }
    Ok((count, total))
}

fn hold(place: Place, seed: u64) {
    let connection = place.open();
    connection.execute_batch(SCHEMA).unwrap();
    for id in 0..ACCOUNTS {
        connection.execute("INSERT INTO account(id, money) VALUES(?, ?)", [id, MONEY]).unwrap();
    }
    let done = thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|thread| {
                let connection = place.open();
                connection.set_prepared_statement_cache_capacity(100);
                scope.spawn(move || {
                    let random = Random::new(seed * THREADS + thread);
                    let connection = &connection;
                    let mut client = Client { connection, random, thread, money: "money", done: [0; 2] };
                    (0..STEPS).for_each(|_| client.step());
                    client.done
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .fold([0; 2], |all, one| [all[0] + one[0], all[1] + one[1]])
    });
    if let Some(cluster) = &place.cluster {
        cluster.settle();
    }
    // Both kinds of actions succeeded.
    assert!(done[0] > THREADS * STEPS / 4 && done[1] > THREADS * STEPS / 20, "{done:?}");
    let random = Random::new(seed);
    let mut client = Client { connection: &connection, random, thread: THREADS, money: "money", done };
    connection.execute_batch("BEGIN").unwrap();
    client.look().unwrap();
    let total = client.with_money(|client| {
        number(client.connection, &format!("SELECT sum({}) FROM account", client.money))
    });
    assert_eq!(total.unwrap(), ACCOUNTS * MONEY);
    let trees = |name: &str| {
        let sql = format!("SELECT count(*) FROM {name}.sqlite_schema WHERE rootpage > 0");
        number(&connection, &sql).unwrap()
    };
    // And those of the schema itself.
    let named = [trees("main"), trees("other")].map(|trees| trees + place.own_trees());
    drop(connection);
    let store = place.store();
    let maps = |name: &str| store.database(name).unwrap().maps().unwrap().len() as i64;
    assert_eq!([maps("main"), maps("other")], named);
}

#[test]
fn schemas_change_in_a_folder_during_use() {
    assert!(yesquel_sqlite::is_linked());
    check_seeds(8, |seed| hold(Place::folder(), seed));
}

#[test]
fn schemas_change_at_a_server_during_use() {
    assert!(yesquel_sqlite::is_linked());
    check_seeds(8, |seed| hold(Place::served(), seed));
}

#[test]
fn schemas_change_at_several_groups_during_use() {
    assert!(yesquel_sqlite::is_linked());
    check_seeds(4, |seed| hold(Place::cluster(), seed));
}
