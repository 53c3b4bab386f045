//! Histories of connections that append to lists by SQL, checked in real time, which one server
//! guarantees: against snapshot isolation, and against serializability with
//! `isolation=serializable`.
//!
//! A list is a text in a row, also found by an index. Rows inserted and deleted around the lists
//! cause splits and removals of leaves.

use rusqlite::{Connection, Error, ErrorCode, OpenFlags, Row, TransactionBehavior};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use tempfile::TempDir;
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};
use yesquel_histories::{
    AnomalyKind, ConsistencyModel, ListOperation, RecordedOutcome, RecordedTransaction, check,
};
use yesquel_seeds::{Random, check_seeds};

/// Number of lists, each preceded by other rows.
const LISTS: i64 = 6;
const THREADS: u64 = 6;
const TRANSACTIONS: u64 = 150;
/// Distance between the rows of lists.
const APART: i64 = 1_000;

/// Location of the database.
struct Place {
    /// Dropped before its folder.
    _server: Option<Server>,
    names: Vec<String>,
    _folder: TempDir,
}

fn settings() -> EngineSettings {
    EngineSettings { node_cells_max: 16, ..EngineSettings::default() }
}

impl Place {
    fn folder(options: &str) -> Place {
        let folder = TempDir::new().unwrap();
        let name = format!("file:yesquel:{}?durability=none&{options}", folder.path().display());
        Place { _server: None, names: vec![name], _folder: folder }
    }

    fn served(more: &str) -> Place {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("socket");
        let listen =
            ListenOptions { addresses: vec![Address::Unix(socket.clone())], ..ListenOptions::default() };
        let options = LogOptions { checkpoint_bytes: 1 << 20, ..LogOptions::default() };
        let data = folder.path().join("data");
        let server = Server::start(Some(&data), settings(), options, listen).unwrap();
        // Connections with one timeout share a store, as in a process.
        let name =
            |number| format!("file:yesquel://{}/lists?timeout={}&{more}", socket.display(), 60_000 + number);
        Place { _server: Some(server), names: (0..3).map(name).collect(), _folder: folder }
    }

    fn open(&self, number: u64) -> Connection {
        let name = &self.names[number as usize % self.names.len()];
        let connection = Connection::open_with_flags(name, OpenFlags::default()).unwrap();
        assert!(connection.path().unwrap().starts_with("yesquel:"));
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection
    }
}

fn row_of(list: i64) -> i64 {
    (list + 1) * APART
}

fn read(list: i64, elements: Vec<u64>) -> ListOperation {
    ListOperation::read(list as u64, elements)
}

fn append(list: i64, element: i64) -> ListOperation {
    ListOperation::append(list as u64, element as u64)
}

fn elements(text: &str) -> Vec<u64> {
    text.split_terminator(',').map(|element| element.parse().unwrap()).collect()
}

fn list(row: &Row<'_>) -> Result<Vec<u64>, Error> {
    Ok(elements(row.get_ref(0)?.as_str()?))
}

/// Client with its random draws.
struct Client {
    random: Random,
    element: i64,
}

impl Client {
    fn list(&mut self) -> i64 {
        self.random.next(LISTS as u64) as i64
    }

    fn element(&mut self) -> i64 {
        self.element += 1;
        self.element
    }

    /// Runs one or two statements, in a transaction or separately.
    fn act(&mut self, connection: &Connection, seen: &mut Vec<ListOperation>) -> Result<(), Error> {
        // Otherwise an embedded thread would run whole transactions without interruption.
        std::thread::yield_now();
        let number = self.list();
        let row = row_of(number);
        match self.random.next(8) {
            0 => {
                let found =
                    connection.prepare_cached("SELECT list FROM t WHERE id=?")?.query_row([row], list)?;
                seen.push(read(number, found));
            }
            // By the index, and the row that it refers to.
            1 => {
                let found = connection
                    .prepare_cached("SELECT list FROM t WHERE name=?")?
                    .query_row([number], list)?;
                seen.push(read(number, found));
            }
            2..4 if !connection.is_autocommit() => {
                let mut found =
                    connection.prepare_cached("SELECT list FROM t WHERE id=?")?.query_row([row], list)?;
                seen.push(read(number, found.clone()));
                let element = self.element();
                found.push(element as u64);
                let text: String = found.iter().map(|element| format!("{element},")).collect();
                let sql = "UPDATE t SET list=? WHERE id=?";
                assert_eq!(connection.prepare_cached(sql)?.execute((text, row))?, 1);
                seen.push(append(number, element));
            }
            // It reads internally, which the history does not record.
            2..5 => {
                let element = self.element();
                let sql = "UPDATE t SET list=list || ? || ',' WHERE name=?";
                assert_eq!(connection.prepare_cached(sql)?.execute((element, number))?, 1);
                seen.push(append(number, element));
            }
            // Deleted and inserted again, so that the index is written, too.
            5 => {
                let element = self.element();
                let sql = "INSERT OR REPLACE INTO t SELECT id, name, list || ? || ',' FROM t WHERE id=?";
                assert_eq!(connection.prepare_cached(sql)?.execute((element, row))?, 1);
                seen.push(append(number, element));
            }
            which => {
                let sql = if which == 6 {
                    "SELECT list, name FROM t WHERE id >= ? AND name IS NOT NULL ORDER BY id LIMIT 3"
                } else {
                    "SELECT list, name FROM t WHERE name >= ?/1000 - 1 ORDER BY name LIMIT 3"
                };
                let mut statement = connection.prepare_cached(sql)?;
                let mut rows = statement.query([row])?;
                let mut names = Vec::new();
                while let Some(row) = rows.next()? {
                    names.push(row.get::<_, i64>(1)?);
                    seen.push(read(names[names.len() - 1], list(row)?));
                }
                assert_eq!(names, (number..LISTS.min(number + 3)).collect::<Vec<_>>());
            }
        }
        Ok(())
    }

    fn transact(&mut self, connection: &mut Connection, seen: &mut Vec<ListOperation>) -> Result<(), Error> {
        let behavior = match self.random.next(10) {
            0..3 => return self.act(connection, seen),
            3 => TransactionBehavior::Immediate,
            _ => TransactionBehavior::Deferred,
        };
        let transaction = connection.transaction_with_behavior(behavior)?;
        let steps = 1 + self.random.next(4);
        let done = (0..steps).try_for_each(|_| self.act(&transaction, seen));
        let done = done.and_then(|()| transaction.commit());
        // An immediate transaction never conflicts.
        assert!(!matches!(behavior, TransactionBehavior::Immediate) || done.is_ok(), "{done:?}");
        done
    }

    /// Inserts rows between the lists and deletes them.
    fn fill(&mut self, connection: &Connection) {
        let row = row_of(self.list());
        let sql = if self.random.next(2) == 0 {
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 100)
             INSERT OR REPLACE INTO t SELECT ? - i * 7, NULL, hex(zeroblob(20)) FROM c"
        } else {
            "DELETE FROM t WHERE id > ?1 - 1000 AND id < ?1"
        };
        connection.execute(sql, [row]).unwrap();
    }
}

fn is_busy(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// Runs the clients. Returns their history.
fn history(place: &Place, seed: u64) -> Vec<RecordedTransaction> {
    let clock = AtomicU64::new(0);
    let now = || clock.fetch_add(1, SeqCst);
    let history = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (history, now, mut connection) = (&history, &now, place.open(thread));
            scope.spawn(move || {
                let random = Random::new(seed * THREADS + thread);
                let mut client = Client { random, element: (thread as i64 + 1) << 32 };
                for number in 0..TRANSACTIONS {
                    if number % 16 == thread {
                        client.fill(&connection);
                    }
                    let (begun, mut seen) = (now(), Vec::new());
                    let outcome = match client.transact(&mut connection, &mut seen) {
                        Ok(()) => RecordedOutcome::Committed,
                        Err(error) if is_busy(&error) => RecordedOutcome::Aborted,
                        Err(error) => panic!("{error}"),
                    };
                    let transaction = RecordedTransaction::committed(thread, begun, now(), seen);
                    history.lock().unwrap().push(transaction.with_outcome(outcome));
                }
            });
        }
    });
    // All lists, at the end.
    let (connection, begun) = (place.open(0), now());
    let mut statement = connection.prepare("SELECT list FROM t WHERE name NOT NULL ORDER BY name").unwrap();
    let lists = statement.query_map([], list).unwrap();
    let last = lists.zip(0..).map(|(list, name)| read(name, list.unwrap()));
    let last = RecordedTransaction::committed(THREADS, begun, now(), last.collect::<Vec<_>>());
    assert_eq!(last.operations.len() as i64, LISTS);
    let report: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(report, "ok");
    let mut history = history.into_inner().unwrap();
    history.push(last);
    history
}

/// Runs the clients. Returns their history, in which some transactions have conflicted.
fn run(place: &Place, seed: u64) -> Vec<RecordedTransaction> {
    assert!(yesquel_sqlite::is_linked());
    let connection = place.open(0);
    connection
        .execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, name INTEGER UNIQUE, list TEXT)")
        .unwrap();
    for list in 0..LISTS {
        connection.execute("INSERT INTO t VALUES(?, ?, '')", [row_of(list), list]).unwrap();
    }
    let history = history(place, seed);
    // The threads were concurrent.
    assert!(history.iter().any(|transaction| transaction.outcome == RecordedOutcome::Aborted));
    history
}

fn is_snapshot_isolated(history: &[RecordedTransaction]) {
    let report = check(history, ConsistencyModel::StrongSnapshotIsolation).unwrap();
    assert!(report.is_clean(), "{report}");
    // There are anomalies that snapshot isolation allows and serializability does not.
    let report = check(history, ConsistencyModel::Serializable).unwrap();
    assert!(report.found(AnomalyKind::G2Item), "{report}");
}

fn is_serializable(history: &[RecordedTransaction]) {
    let report = check(history, ConsistencyModel::StrictSerializable).unwrap();
    assert!(report.is_clean(), "{report}");
}

const SERIALIZABLE: &str = "isolation=serializable";

#[test]
fn connections_to_a_folder_see_snapshots() {
    check_seeds(1, |seed| is_snapshot_isolated(&run(&Place::folder(""), seed)));
}

#[test]
fn connections_to_a_server_see_snapshots_whose_commits_are_on_disk() {
    check_seeds(1, |seed| is_snapshot_isolated(&run(&Place::served(""), seed)));
}

#[test]
fn serializable_connections_to_a_folder_have_an_order() {
    check_seeds(1, |seed| is_serializable(&run(&Place::folder(SERIALIZABLE), seed)));
}

#[test]
fn serializable_connections_to_a_server_have_an_order() {
    check_seeds(1, |seed| is_serializable(&run(&Place::served(SERIALIZABLE), seed)));
}
