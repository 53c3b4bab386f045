//! The threads of a client that run transactions of SQL, and record them in the client's journal.

use crate::{
    journal::{Journal, JournalEntry, now},
    lists::{Lists, SLOTS, group_of},
    load::SqlLevel,
    place::Place,
    sql::{self, WIDE},
};
use rusqlite::Connection;
use std::{
    fmt::Debug,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};
use yesquel_histories::{ListOperation, RecordedOutcome};
use yesquel_seeds::Random;
use yesquel_sql_histories::{BeginMode, OperationNotes, SqlAct, outcome_of, row_of, run, run_all, take_back};

/// Time between two transactions of a thread.
const PAUSE: Duration = Duration::from_millis(3);
/// Time between two attempts to open the database.
const RETRY: Duration = Duration::from_millis(50);
/// Values of rows.
const VALUES: u64 = 8;

/// A thread with a connection of its own.
pub(crate) struct SqlWriter<'a> {
    pub(crate) place: &'a Place,
    pub(crate) journal: &'a Journal,
    /// Number of the thread in the history.
    pub(crate) process: u64,
    pub(crate) random: Random,
    pub(crate) round: u64,
    pub(crate) level: SqlLevel,
    /// The same for all connections of a process, which are one client.
    pub(crate) timeout: Duration,
    /// Whether it changes schemas.
    pub(crate) changes_schemas: bool,
}

/// The operations of a transaction. A statement of its own is written to the journal before it runs.
struct JournalNotes<'a> {
    journal: &'a Journal,
    process: u64,
    begun: u64,
    is_autocommit: bool,
    /// The last number that was taken.
    number: &'a mut i64,
    operations: Vec<ListOperation>,
    entry: Option<JournalEntry>,
}

impl OperationNotes for JournalNotes<'_> {
    fn number(&mut self) -> i64 {
        *self.number += 1;
        *self.number
    }

    fn note(&mut self, operation: ListOperation) {
        let is_append = matches!(operation, ListOperation::Append { .. });
        self.operations.push(operation);
        if self.is_autocommit && is_append {
            self.entry = Some(self.journal.try_commit(self.process, self.begun, &self.operations));
        }
    }

    fn operations(&self) -> usize {
        self.operations.len()
    }

    fn rolled_back(&mut self, to: usize) {
        take_back(&mut self.operations, to);
    }

    fn compared(&mut self) {}
}

/// Writes an error to the client's log, and checks that a fault explains it.
#[track_caller]
fn expect(error: &rusqlite::Error, during: &dyn Debug) {
    println!("{} ms: {error}, during {during:?}", now() / 1_000_000);
    sql::expect(error, during);
}

/// A transaction as it was drawn.
#[derive(Debug)]
struct SqlWork {
    begin: BeginMode,
    acts: Vec<SqlAct>,
    commits: bool,
}

impl SqlWriter<'_> {
    /// Runs transactions until the end.
    pub(crate) fn work(mut self, ends: &AtomicBool) {
        let Some(mut connection) = self.open(ends) else { return };
        let Some(mut lists) = self.lists(&connection, ends) else { return };
        let mut number = (self.process << 32) as i64;
        while !ends.load(Relaxed) {
            let work = self.draw(&lists);
            for operation in self.transact(&connection, &work, &mut number) {
                if let ListOperation::Read { key, list: Some(list) } = operation {
                    lists.saw_key(row_of(key), list.len());
                }
            }
            if self.random.next(50) == 0 {
                // The client must not end with its only connection: the next one would not know what it
                // has seen.
                let Some(next) = self.open(ends) else { return };
                connection = next;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Opens a connection, as soon as the servers can be reached.
    fn open(&self, ends: &AtomicBool) -> Option<Connection> {
        while !ends.load(Relaxed) {
            match sql::open(self.place, self.level, self.timeout) {
                Ok(connection) => return Some(connection),
                Err(error) => expect(&error, &"open"),
            }
            thread::sleep(RETRY);
        }
        None
    }

    fn lists(&self, connection: &Connection, ends: &AtomicBool) -> Option<Lists> {
        while !ends.load(Relaxed) {
            match sql::current_lists(connection, self.round) {
                Ok(lists) => return Some(lists),
                Err(error) => expect(&error, &"current lists"),
            }
            thread::sleep(RETRY);
        }
        None
    }

    /// Draws a transaction.
    fn draw(&mut self, lists: &Lists) -> SqlWork {
        if self.changes_schemas && self.random.next(12) == 0 {
            return self.draw_change(lists);
        }
        let mut acts = Vec::new();
        let begin = match self.random.next(24) {
            0..6 => {
                acts.push(self.draw_statement(lists));
                return SqlWork { begin: BeginMode::Autocommit, acts, commits: true };
            }
            6 => BeginMode::Immediate,
            _ => BeginMode::Deferred,
        };
        match self.random.next(16) {
            0 | 1 => acts.extend([self.draw_row(), self.draw_row()]),
            2 => acts.push(SqlAct::UpdateWide { table: self.random.next(WIDE as u64) as usize }),
            _ => {}
        }
        for _ in 0..1 + self.random.next(3) {
            let (table, key) = self.list(lists);
            acts.push(SqlAct::Read { table, key });
            if self.random.next(3) > 0 {
                acts.push(SqlAct::Append { table, key });
            }
        }
        if self.random.next(10) == 0 {
            acts.insert(self.random.next(acts.len() as u64) as usize, SqlAct::Savepoint);
            acts.push(SqlAct::RollbackTo);
            let (table, key) = self.list(lists);
            acts.push(SqlAct::Append { table, key });
        }
        SqlWork { begin, acts, commits: self.random.next(15) > 0 }
    }

    /// Draws a statement that is a transaction of its own.
    fn draw_statement(&mut self, lists: &Lists) -> SqlAct {
        let (table, key) = self.list(lists);
        match self.random.next(12) {
            0..4 => SqlAct::Append { table, key },
            4..7 => SqlAct::Read { table, key },
            7 => SqlAct::CompareColumns { table: self.random.next(WIDE as u64) as usize },
            8 => SqlAct::CompareIndexes,
            _ => self.draw_row(),
        }
    }

    /// Draws a write of a row and of the indexes that contain it.
    fn draw_row(&mut self) -> SqlAct {
        let value = self.random.next(VALUES) as i64;
        match self.random.next(5) {
            0 | 1 => SqlAct::InsertRow { value },
            2 | 3 => SqlAct::DeleteRow { value },
            _ => SqlAct::UpdateRows { value },
        }
    }

    /// Draws a schema change, with an append in the same transaction.
    fn draw_change(&mut self, lists: &Lists) -> SqlWork {
        let table = self.random.next(WIDE as u64) as usize;
        let change = match self.random.next(8) {
            0..3 => SqlAct::AddColumn { table },
            3 | 4 => SqlAct::DropColumn { table },
            5 => SqlAct::Recreate { table },
            6 => SqlAct::ChangeIndex { table: Some(table), create: self.random.next(3) > 0 },
            _ => SqlAct::ChangeIndex { table: None, create: self.random.next(3) > 0 },
        };
        let (list, key) = self.list(lists);
        let acts = vec![SqlAct::Append { table: list, key }, change, SqlAct::CompareColumns { table }];
        // Schema changes of deferred transactions often lose.
        let begin = if self.random.next(3) == 0 { BeginMode::Deferred } else { BeginMode::Immediate };
        SqlWork { begin, acts, commits: self.random.next(5) > 0 }
    }

    /// Draws a list that is in use.
    fn list(&mut self, lists: &Lists) -> (usize, i64) {
        let key = lists.key(self.random.next(SLOTS));
        (group_of(key), key as i64)
    }

    /// Runs a transaction and records it; returns its operations.
    fn transact(&self, connection: &Connection, work: &SqlWork, number: &mut i64) -> Vec<ListOperation> {
        let is_autocommit = work.begin == BeginMode::Autocommit;
        let (journal, process, begun) = (self.journal, self.process, now());
        let operations = Vec::new();
        let mut notes =
            JournalNotes { journal, process, begun, is_autocommit, number, operations, entry: None };
        let done = match work.begin {
            BeginMode::Autocommit => work.acts.iter().try_for_each(|act| run(connection, act, &mut notes)),
            BeginMode::Deferred => connection.execute_batch("BEGIN"),
            BeginMode::Immediate => connection.execute_batch("BEGIN IMMEDIATE"),
        };
        if is_autocommit {
            let JournalNotes { operations, entry, .. } = notes;
            let entry = entry.unwrap_or_else(|| journal.try_commit(process, begun, &operations));
            journal.end(entry, outcome_of(&done));
            done.unwrap_or_else(|error| expect(&error, work));
            return operations;
        }
        let done = done.and_then(|()| run_all(connection, &work.acts, &mut notes));
        let operations = notes.operations;
        let entry = journal.try_commit(process, begun, &operations);
        let (done, outcome) = match done {
            Ok(()) if work.commits => {
                let done = connection.execute_batch("COMMIT");
                let outcome = outcome_of(&done);
                (done, outcome)
            }
            // COMMIT was not sent.
            done => (done, RecordedOutcome::Aborted),
        };
        journal.end(entry, outcome);
        done.unwrap_or_else(|error| expect(&error, work));
        if !connection.is_autocommit() {
            let rolled_back = connection.execute_batch("ROLLBACK");
            rolled_back.unwrap_or_else(|error| expect(&error, &"ROLLBACK"));
        }
        operations
    }
}
