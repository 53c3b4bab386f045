//! The clients: connections that run transactions, and compare what they see.

use crate::{
    application::placement,
    record::{Record, SharedRecord},
    schema,
    steps::{Act, Begin, KEYS, LISTS, Level, WIDE, Work},
};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, OptionalExtension as _, ffi};
use std::{
    fmt::Debug,
    sync::{Arc, MutexGuard},
    time::Duration,
};
use yesquel::{Store, TransportObject as _};
use yesquel_histories::{ListOperation, RecordedOutcome};
use yesquel_simulation::{BlockingNetwork, TASKS, is_alive, sleep};

/// How long a statement waits for others: longer than the lease of a process that has died.
const BUSY_TIMEOUT: Duration = Duration::from_secs(12);
/// When tasks begin no more transactions, so that a run in which all wait for each other ends.
const WORK_US: u64 = 50_000_000;
/// Attempts to read everything at the end.
const ATTEMPTS: usize = 20;

/// Result of a statement.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// A task of a process.
pub(crate) struct Client {
    network: Arc<BlockingNetwork>,
    store: Store,
    record: SharedRecord,
    host: String,
    groups: usize,
    connection: Option<Connection>,
}

/// Creates the catalog and the tables.
pub(crate) fn set_up(client: &Client) {
    client.store.create_catalog().unwrap();
    let connection = client.open().unwrap();
    // One transaction: a request for a lease that arrives twice may take it again after its release.
    for attempt in 1.. {
        match connection.execute_batch(&schema::first()) {
            Ok(()) => return,
            // Other servers may find that it takes long, and abort it.
            Err(error) => assert!(is_busy(&error) && attempt < ATTEMPTS, "{error}"),
        }
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK").unwrap();
        }
    }
}

impl Client {
    pub(crate) fn new(
        network: Arc<BlockingNetwork>,
        store: Store,
        record: SharedRecord,
        host: String,
        groups: usize,
    ) -> Client {
        Client { network, store, record, host, groups, connection: None }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap()
    }

    fn now(&self) -> u64 {
        self.network.uptime().as_micros() as u64
    }

    fn open(&self) -> Result<Connection> {
        let level = match self.record().level {
            Level::Session => "",
            Level::Strict => "&consistency=strict",
            Level::Serializable => "&isolation=serializable",
        };
        let first = self.groups.min(self.record().groups);
        let name = format!("file:yesquel://{}/shop?placement={}{level}", self.host, placement(first));
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(name, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    }

    /// Runs the transactions of a task until none is left.
    pub(crate) fn work(&mut self, task: usize) {
        while self.may_begin() {
            let Some(work) = self.record().next_work(task) else { return };
            sleep(&self.network, Duration::from_micros(work.pause_us));
            if work.reopens {
                self.connection = None;
            }
            let connection = match self.connection.take().map_or_else(|| self.open(), Ok) {
                Ok(connection) => connection,
                Err(error) => {
                    self.expected(&error, &"open");
                    continue;
                }
            };
            self.run(&connection, task, &work);
            self.connection = Some(connection);
        }
        if is_alive() {
            self.record().leave_out(task);
        }
    }

    /// Whether the task begins another transaction.
    fn may_begin(&self) -> bool {
        is_alive() && self.now() < WORK_US
    }

    fn run(&self, connection: &Connection, task: usize, work: &Work) {
        if work.begin == Begin::Autocommit {
            for act in &work.acts {
                if !self.may_begin() {
                    // If the process has died, the outcome of the last one stays unknown.
                    return;
                }
                self.record().begin(task, self.now());
                self.record().commits(task);
                let done = self.act(connection, task, act);
                let only_reads = matches!(
                    act,
                    Act::Read { .. } | Act::ReadAll { .. } | Act::CompareColumns { .. } | Act::CompareIndexes
                );
                if let (Err(error), true) = (&done, only_reads) {
                    let has_reason = self.record().is_disturbed || !is_busy(error);
                    assert!(has_reason, "{act:?} has met a lock without faults: {error}");
                }
                self.end(task, done, act);
            }
            return;
        }
        self.record().begin(task, self.now());
        let begin = if work.begin == Begin::Immediate { "BEGIN IMMEDIATE" } else { "BEGIN" };
        let changes = |act: &Act| {
            matches!(
                act,
                Act::AddColumn { .. }
                    | Act::DropColumn { .. }
                    | Act::Recreate { .. }
                    | Act::ChangeIndex { .. }
            )
        };
        let done = connection.execute_batch(begin).and_then(|()| {
            let mut at_savepoint = None;
            for act in &work.acts {
                match act {
                    Act::Savepoint => {
                        connection.execute_batch("SAVEPOINT s")?;
                        at_savepoint = Some(self.record().operations(task));
                    }
                    Act::RollbackTo => {
                        if let Some(to) = at_savepoint {
                            connection.execute_batch("ROLLBACK TO s")?;
                            self.record().rolled_back(task, to);
                        }
                    }
                    act => self.act(connection, task, act)?,
                }
            }
            Ok(())
        });
        let is_right = done.is_ok();
        let done = match done {
            Ok(()) if work.commits => {
                self.record().commits(task);
                connection.execute_batch("COMMIT")
            }
            done => done,
        };
        let is_committed = done.is_ok() && work.commits;
        if !connection.is_autocommit() {
            // A commit that has failed leaves the transaction open.
            let rolled_back = connection.execute_batch("ROLLBACK");
            if let Err(error) = rolled_back {
                self.expected(&error, &"ROLLBACK");
            }
        }
        if is_alive() && is_committed && work.acts.iter().any(changes) {
            self.record().counts.schema_changes += 1;
        }
        if is_right && !work.commits {
            return self.record().end(task, self.now(), RecordedOutcome::Aborted);
        }
        self.end(task, done, work);
    }

    /// Notes how a transaction has ended.
    fn end(&self, task: usize, done: Result<()>, during: &dyn Debug) {
        if !is_alive() {
            // The outcome is recorded when the process begins anew.
            return;
        }
        let outcome = match done {
            Ok(()) => RecordedOutcome::Committed,
            Err(error) => {
                self.expected(&error, during);
                match error.sqlite_error().map(|error| error.extended_code) {
                    Some(ffi::SQLITE_IOERR_COMMIT_ATOMIC) => RecordedOutcome::Unknown,
                    _ => RecordedOutcome::Aborted,
                }
            }
        };
        self.record().end(task, self.now(), outcome);
    }

    /// Checks that an error has a reason.
    fn expected(&self, error: &Error, during: &dyn Debug) {
        if !is_alive() {
            return;
        }
        let code = error.sqlite_error().map(|error| error.extended_code & 0xff);
        match code {
            Some(ffi::SQLITE_BUSY) => self.record().counts.busy += 1,
            Some(ffi::SQLITE_IOERR | ffi::SQLITE_CANTOPEN) if self.record().is_disturbed => {}
            Some(ffi::SQLITE_FULL) if self.record().may_be_full => {}
            _ => panic!("an unexpected error: {error:?}, during {during:?}"),
        }
    }

    fn act(&self, connection: &Connection, task: usize, act: &Act) -> Result<()> {
        match act {
            Act::Append { table, key } => {
                let element = self.record().number();
                let operation = ListOperation::append(list_key(*table, *key), element as u64);
                // Its end may never be known.
                self.record().note(task, operation);
                let sql = format!("UPDATE list{table} SET v = v || ?1 || ' ' WHERE k = ?2");
                let changed = connection.prepare_cached(&sql)?.execute((element, key))?;
                assert_eq!(changed, 1);
            }
            Act::Read { table, key } => {
                let sql = format!("SELECT v FROM list{table} WHERE k = ?1");
                let mut select = connection.prepare_cached(&sql)?;
                let list = select.query_row([key], |row| row.get::<_, String>(0))?;
                self.record().note(task, ListOperation::read(list_key(*table, *key), elements(&list)));
            }
            Act::ReadAll { table } => {
                let sql = format!("SELECT k, v FROM list{table} ORDER BY k");
                let mut select = connection.prepare_cached(&sql)?;
                let rows = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
                let rows = rows.collect::<Result<Vec<(i64, String)>>>()?;
                assert_eq!(rows.len() as i64, KEYS);
                for (key, list) in rows {
                    let (key, list) = (list_key(*table, key), elements(&list));
                    if task == TASKS {
                        self.record().observed(key, list.clone());
                    }
                    self.record().note(task, ListOperation::read(key, list));
                }
            }
            Act::CompareColumns { table } => {
                schema::compare_columns(connection, *table)?;
                self.record().counts.compared += 1;
            }
            Act::CompareIndexes => {
                schema::compare_indexes(connection)?;
                self.record().counts.compared += 1;
            }
            Act::AddColumn { table } => {
                let number = self.record().number();
                schema::add_column(connection, *table, number)?;
            }
            Act::DropColumn { table } => schema::drop_column(connection, *table)?,
            Act::Recreate { table } => schema::recreate(connection, *table)?,
            Act::UpdateWide { table } => schema::update_wide(connection, *table)?,
            Act::ChangeIndex { table, create } => schema::change_index(connection, *table, *create)?,
            Act::AddGroups => self.add_groups(),
            Act::InsertRow { value } => {
                let number = self.record().number();
                let mut insert = connection.prepare_cached("INSERT INTO rows(u, v) VALUES (?1, ?2)")?;
                insert.execute((number, value))?;
            }
            Act::UpdateRows { value } => {
                let mut update = connection.prepare_cached("UPDATE rows SET v = v + 1 WHERE v = ?1")?;
                update.execute([value])?;
            }
            Act::DeleteRow { value } => {
                let sql = "SELECT id FROM rows WHERE v = ?1 ORDER BY id LIMIT 1";
                let mut select = connection.prepare_cached(sql)?;
                if let Some(id) = select.query_row([value], |row| row.get::<_, i64>(0)).optional()? {
                    connection.prepare_cached("DELETE FROM rows WHERE id = ?1")?.execute([id])?;
                }
            }
            Act::Savepoint | Act::RollbackTo => {}
        }
        Ok(())
    }

    /// Lets all groups join the database, by a connection of its own.
    fn add_groups(&self) {
        let placement = placement(self.groups).parse().unwrap();
        match yesquel_sqlite::add_groups(&self.store, "shop", &placement, BUSY_TIMEOUT) {
            Ok(_) => {}
            Err(error) => {
                let has_reason = match &error {
                    yesquel::Error::Leased(_) | yesquel::Error::Conflict(_) => true,
                    yesquel::Error::Internal(_) | yesquel::Error::Damaged(_) => false,
                    _ => self.record().is_disturbed,
                };
                assert!(has_reason || !is_alive(), "groups do not join: {error}");
            }
        }
    }

    /// Reads everything after the faults have ended.
    pub(crate) fn observe(&mut self, task: usize) {
        let (mut attempts, connection) = (0, self.open().unwrap());
        let mut acts: Vec<Act> = (0..LISTS).map(|table| Act::ReadAll { table }).collect();
        acts.extend((0..WIDE).map(|table| Act::CompareColumns { table }));
        acts.push(Act::CompareIndexes);
        for act in acts {
            loop {
                self.record().begin(task, self.now());
                let done = self.act(&connection, task, &act);
                let is_done = done.is_ok();
                // Votes and recoveries may still be under way.
                self.end(task, done, &act);
                attempts += 1;
                if is_done {
                    break;
                }
                assert!(attempts < ATTEMPTS, "{act:?} fails after all faults have ended");
            }
        }
        let problems: Vec<String> = connection
            .prepare("PRAGMA integrity_check")
            .and_then(|mut check| check.query_map([], |row| row.get(0))?.collect())
            .unwrap();
        assert_eq!(problems, ["ok"]);
        let database = self.store.database("shop").unwrap();
        assert_eq!(yesquel_sqlite::copy_faults(&database).unwrap(), []);
    }
}

fn is_busy(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

fn list_key(table: usize, key: i64) -> u64 {
    (table as i64 * KEYS + key) as u64
}

fn elements(list: &str) -> Vec<u64> {
    list.split_whitespace().map(|element| element.parse().unwrap()).collect()
}
