//! A client of SQLite, on a file or on Yesquel's trees.

use super::{KEY, QUOTES};
use rusqlite::{
    CachedStatement, Connection, DropBehavior, Error, ErrorCode, Row, Transaction, TransactionBehavior, ffi,
    types::ValueRef,
};
use serval_model::{Client, FieldSelection, Outcome, Record, Reply, Status, StoreError};
use std::{io::Write as _, sync::Arc};

/// Maximum retries of a batch after a write conflict; the engine retries single
/// statements.
const BATCH_ATTEMPTS_MAX: u32 = 10;

/// Storage below a client's SQLite.
#[derive(Debug, Clone)]
pub(crate) enum Under {
    /// A file: one writer at a time.
    File {
        /// Whether transactions can be rolled back.
        can_roll_back: bool,
    },
    /// Trees: concurrent writers.
    Trees {
        /// Whether this process owns their disk: after its failure no operation can
        /// succeed.
        is_embedded: bool,
        /// Name of the store with its address, for messages.
        name: Arc<str>,
    },
}

/// A client.
#[derive(Debug)]
pub struct SqliteClient {
    /// `None` once closed.
    connection: Option<Connection>,
    /// Buffer for the statement's text.
    sql: String,
    names: ColumnNames,
    upsert: bool,
    under: Under,
    /// Why no operation can succeed any more.
    lost: Option<String>,
}

impl SqliteClient {
    /// Returns a client for records with these fields.
    pub(crate) fn new(connection: Connection, fields: Arc<[String]>, upsert: bool, under: Under) -> Self {
        SqliteClient {
            connection: Some(connection),
            sql: String::new(),
            names: ColumnNames { fields, ..ColumnNames::default() },
            upsert,
            under,
            lost: None,
        }
    }

    /// Runs a verb and converts its result.
    fn run(
        &mut self,
        verb: impl FnOnce(&Connection, &mut String, &mut ColumnNames) -> Result<Outcome, Error>,
    ) -> Outcome {
        let Some(connection) = &self.connection else { return Outcome::error("the client is closed") };
        verb(connection, &mut self.sql, &mut self.names).unwrap_or_else(|error| self.failed(&error))
    }

    /// Converts SQLite's error to an outcome.
    #[cold]
    fn failed(&mut self, error: &Error) -> Outcome {
        let outcome = failure(error);
        match (&self.under, code(error)) {
            // At a server it may also be out of memory, and have some again.
            (Under::Trees { is_embedded, .. }, Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull)) => {
                if *is_embedded {
                    self.lost = Some(words(error));
                }
                Outcome { status: Status::ServiceUnavailable, ..outcome }
            }
            _ => outcome,
        }
    }
}

impl Client for SqliteClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        self.run(|connection, sql, names| {
            QUOTES.select(sql, table, fields);
            sql.push_str(" WHERE YCSB_KEY = ?");
            let mut statement = connection.prepare_cached(sql)?;
            names.learn(table, fields, &statement);
            let mut rows = statement.query([key])?;
            match rows.next()? {
                None => Ok(Outcome::NOT_FOUND),
                Some(row) => {
                    names.answer(row, fields, reply.begin_record())?;
                    Ok(Outcome::OK)
                }
            }
        })
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        self.run(|connection, sql, _| {
            QUOTES.update(sql, table, fields);
            let mut statement = connection.prepare_cached(sql)?;
            let next = bind_values(&mut statement, 1, fields)?;
            statement.raw_bind_parameter(next, key)?;
            Ok(found(statement.raw_execute()?))
        })
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        let upsert = self.upsert;
        self.run(|connection, sql, _| insert(connection, sql, upsert, table, key, record))
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        self.run(|connection, sql, names| {
            QUOTES.select(sql, table, fields);
            sql.push_str(" WHERE YCSB_KEY >= ? ORDER BY YCSB_KEY LIMIT ?");
            let mut statement = connection.prepare_cached(sql)?;
            names.learn(table, fields, &statement);
            let limit = i64::try_from(count).unwrap_or(i64::MAX);
            let mut rows = statement.query((start_key, limit))?;
            while let Some(row) = rows.next()? {
                names.answer(row, fields, reply.begin_record())?;
            }
            Ok(Outcome::OK)
        })
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        self.run(|connection, sql, _| {
            QUOTES.delete(sql, table);
            Ok(found(connection.prepare_cached(sql)?.execute([key])?))
        })
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        let (upsert, under) = (self.upsert, self.under.clone());
        self.run(|connection, sql, _| {
            let mut attempts = 0;
            loop {
                attempts += 1;
                match insert_all(connection, sql, upsert, &under, table, records) {
                    Err(error) if attempts < BATCH_ATTEMPTS_MAX && lost_a_race(&error) => {}
                    done => return done,
                }
            }
        })
    }

    fn lost(&self) -> Option<StoreError> {
        match (&self.under, &self.lost) {
            (Under::Trees { name, .. }, Some(problem)) => Some(StoreError::new(
                &**name,
                format!("{problem}; the folder takes no more writes until it is opened again"),
            )),
            _ => None,
        }
    }

    async fn close(&mut self) -> Outcome {
        match self.connection.take().map(Connection::close) {
            None | Some(Ok(())) => Outcome::OK,
            Some(Err((_, e))) => failure(&e),
        }
    }
}

/// Inserts a batch in one transaction.
fn insert_all(
    connection: &Connection,
    sql: &mut String,
    upsert: bool,
    under: &Under,
    table: &str,
    records: &[(String, Record)],
) -> Result<Outcome, Error> {
    let behavior = match under {
        // Takes the write lock at once, which waits; a transaction that starts
        // with a read may fail to get it later.
        Under::File { .. } => TransactionBehavior::Immediate,
        // No lock: inserts of different keys do not conflict.
        Under::Trees { .. } => TransactionBehavior::Deferred,
    };
    let mut transaction = Transaction::new_unchecked(connection, behavior)?;
    if matches!(under, Under::File { can_roll_back: false }) {
        // In SQLite, a rollback without a journal is undefined.
        transaction.set_drop_behavior(DropBehavior::Commit);
    }
    for (key, record) in records {
        insert(&transaction, sql, upsert, table, key, record)?;
    }
    transaction.commit()?;
    Ok(Outcome::OK)
}

/// Returns whether a batch failed by a write conflict. Impossible on a file, where a batch
/// starts with the lock.
fn lost_a_race(error: &Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_BUSY_SNAPSHOT)
}

fn insert(
    connection: &Connection,
    sql: &mut String,
    upsert: bool,
    table: &str,
    key: &str,
    record: &Record,
) -> Result<Outcome, Error> {
    let verb = if upsert { "INSERT OR REPLACE INTO" } else { "INSERT INTO" };
    QUOTES.insert(sql, verb, table, record.iter().map(|(name, _)| name), 1);
    let mut statement = connection.prepare_cached(sql)?;
    statement.raw_bind_parameter(1, key)?;
    bind_values(&mut statement, 2, record)?;
    statement.raw_execute()?;
    Ok(Outcome::OK)
}

/// Binds the record's values from parameter `first` on. Returns the number of the next
/// parameter.
fn bind_values(statement: &mut CachedStatement<'_>, first: usize, record: &Record) -> Result<usize, Error> {
    let mut parameter = first;
    for (_, value) in record.iter() {
        match std::str::from_utf8(value) {
            Ok(text) => statement.raw_bind_parameter(parameter, text)?,
            Err(_) => statement.raw_bind_parameter(parameter, value)?,
        }
        parameter += 1;
    }
    Ok(parameter)
}

/// Returns the outcome of a statement that must have changed its row.
fn found(changed: usize) -> Outcome {
    if changed == 0 { Outcome::NOT_FOUND } else { Outcome::OK }
}

/// ColumnNames of a row's columns: the selected fields, or for `SELECT *` the schema's
/// fields.
#[derive(Debug, Default)]
struct ColumnNames {
    /// Fields of the schema.
    fields: Arc<[String]>,
    /// Table of `columns`.
    table: String,
    /// Field of each column of `SELECT *`; `None` for the key.
    all: Vec<Option<String>>,
}

impl ColumnNames {
    /// Reads the columns of a `SELECT *`, unless they are known.
    fn learn(&mut self, table: &str, fields: &FieldSelection, statement: &CachedStatement<'_>) {
        let known = self.table == table && self.all.len() == statement.column_count();
        if known || !fields.is_all() {
            return;
        }
        table.clone_into(&mut self.table);
        self.all.clear();
        for column in statement.column_names() {
            let field = self.fields.iter().find(|field| field.eq_ignore_ascii_case(column));
            let field = field.map_or_else(|| column.to_owned(), String::clone);
            self.all.push((!column.eq_ignore_ascii_case(KEY)).then_some(field));
        }
    }

    /// Copies a row into a record; a NULL means that the record lacks the
    /// field.
    fn answer(&self, row: &Row<'_>, fields: &FieldSelection, record: &mut Record) -> Result<(), Error> {
        if fields.is_all() {
            for (index, name) in self.all.iter().enumerate() {
                if let Some(name) = name {
                    push(record, name, row.get_ref(index)?);
                }
            }
        } else {
            for (index, name) in fields.iter().enumerate() {
                push(record, name, row.get_ref(index)?);
            }
        }
        Ok(())
    }
}

fn push(record: &mut Record, name: &str, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => {}
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => record.push(name, bytes),
        // Types that only another tool's table has.
        // Writing to a vector cannot fail.
        ValueRef::Integer(number) => {
            record.push_with(name, |bytes| drop(write!(bytes, "{number}")));
        }
        ValueRef::Real(number) => record.push_with(name, |bytes| drop(write!(bytes, "{number}"))),
    }
}

/// Converts SQLite's error to an outcome.
fn failure(error: &Error) -> Outcome {
    let status = match code(error) {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::CannotOpen) => {
            Status::ServiceUnavailable
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Status::Forbidden,
        // SQLITE_ERROR is an invalid statement; in Serval's SQL that means a
        // missing table or column.
        Some(ErrorCode::Unknown | ErrorCode::TooBig) => Status::BadRequest,
        _ => Status::Error,
    };
    Outcome::failed(status, words(error))
}

pub(crate) fn code(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::SqliteFailure(error, _) | Error::SqlInputError { error, .. } => Some(error.code),
        _ => None,
    }
}

/// Returns SQLite's message without the statement's text, which is not the
/// user's.
pub(crate) fn words(error: &Error) -> String {
    match error {
        Error::SqlInputError { msg, .. } | Error::SqliteFailure(_, Some(msg)) => {
            msg.split(" - should this be ").next().unwrap_or(msg).to_owned()
        }
        other => other.to_string(),
    }
}
