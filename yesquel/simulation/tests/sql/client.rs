//! The clients: connections that run transactions, and compare what they see.

use crate::{
    application::placement,
    record::{Record, SharedRecord, TaskNotes},
    steps::{KEYS, LISTS, Level, WIDE, Work},
};
use rusqlite::{Connection, Error, OpenFlags};
use std::{
    fmt::Debug,
    sync::{Arc, MutexGuard},
    time::Duration,
};
use yesquel::{Store, TransportObject as _};
use yesquel_histories::RecordedOutcome;
use yesquel_simulation::{BlockingNetwork, is_alive, sleep};
use yesquel_sql_histories::{
    BeginMode, SqlAct, SqlErrorClass, class_of, first_schema, outcome_of, run, run_all,
};

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
        match connection.execute_batch(&first_schema(LISTS, KEYS, WIDE)) {
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
        if work.adds_groups {
            if self.may_begin() {
                self.record().begin(task, self.now());
                self.record().commits(task);
                self.add_groups();
                self.end(task, Ok(()), &"joining groups");
            }
            return;
        }
        if work.begin == BeginMode::Autocommit {
            for act in &work.acts {
                if !self.may_begin() {
                    // If the process has died, the outcome of the last one stays unknown.
                    return;
                }
                self.record().begin(task, self.now());
                self.record().commits(task);
                let done = run(connection, act, &mut self.notes(task));
                if let (Err(error), true) = (&done, act.only_reads()) {
                    let has_reason = self.record().is_disturbed || !is_busy(error);
                    assert!(has_reason, "{act:?} has met a lock without faults: {error}");
                }
                self.end(task, done, act);
            }
            return;
        }
        self.record().begin(task, self.now());
        let begin = if work.begin == BeginMode::Immediate { "BEGIN IMMEDIATE" } else { "BEGIN" };
        let done = connection.execute_batch(begin);
        let done = done.and_then(|()| run_all(connection, &work.acts, &mut self.notes(task)));
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
        if is_alive() && is_committed && work.acts.iter().any(SqlAct::changes_schema) {
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
        let outcome = outcome_of(&done);
        if let Err(error) = done {
            self.expected(&error, during);
        }
        self.record().end(task, self.now(), outcome);
    }

    /// Checks that an error has a reason.
    fn expected(&self, error: &Error, during: &dyn Debug) {
        if !is_alive() {
            return;
        }
        match class_of(error) {
            Some(SqlErrorClass::Busy) => self.record().counts.busy += 1,
            Some(SqlErrorClass::Io | SqlErrorClass::CannotOpen | SqlErrorClass::OutcomeUnknown)
                if self.record().is_disturbed => {}
            Some(SqlErrorClass::Full) if self.record().may_be_full => {}
            _ => panic!("an unexpected error: {error:?}, during {during:?}"),
        }
    }

    fn notes(&self, task: usize) -> TaskNotes {
        TaskNotes { record: Arc::clone(&self.record), task }
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
        let mut acts: Vec<SqlAct> = (0..LISTS).map(|table| SqlAct::ReadAll { table, keys: KEYS }).collect();
        acts.extend((0..WIDE).map(|table| SqlAct::CompareColumns { table }));
        acts.push(SqlAct::CompareIndexes);
        for act in acts {
            loop {
                self.record().begin(task, self.now());
                let done = run(&connection, &act, &mut self.notes(task));
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
    class_of(error) == Some(SqlErrorClass::Busy)
}
