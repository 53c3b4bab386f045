//! A connection to a wiki's database, and its implementation by SQLite's interface.

use super::statements::Dialect;
use rusqlite::{Connection, ErrorCode, types::ValueRef};
use std::borrow::Cow;

/// Prepared statements that a connection keeps: the traced ones, with some lengths of lists.
pub(crate) const STATEMENTS_MAX: usize = 300;

/// Failure of a statement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WikiError {
    /// The transaction lost against another one, and may be run again.
    #[error("a conflict: {0}")]
    Conflict(String),
    #[error(transparent)]
    Failed(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl WikiError {
    pub(crate) fn failed(message: impl Into<String>) -> WikiError {
        WikiError::Failed(message.into().into())
    }
}

pub(crate) type WikiResult<T> = Result<T, WikiError>;

/// Value of a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WikiValue {
    Null,
    Integer(i64),
    Real(f64),
    /// A text or a blob: the databases differ in what a column is.
    Bytes(Vec<u8>),
}

/// Parameter of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Parameter<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(Cow<'a, str>),
}

impl<'a> From<&'a str> for Parameter<'a> {
    fn from(text: &'a str) -> Self {
        Parameter::Text(text.into())
    }
}

impl From<String> for Parameter<'_> {
    fn from(text: String) -> Self {
        Parameter::Text(text.into())
    }
}

impl From<i64> for Parameter<'_> {
    fn from(number: i64) -> Self {
        Parameter::Integer(number)
    }
}

impl From<i32> for Parameter<'_> {
    fn from(number: i32) -> Self {
        Parameter::Integer(number.into())
    }
}

impl From<usize> for Parameter<'_> {
    fn from(number: usize) -> Self {
        // Lengths of texts are below 2^63.
        Parameter::Integer(number as i64)
    }
}

pub(crate) type WikiRow = Vec<WikiValue>;

/// A connection to a wiki's database. Statements are prepared once for each text.
pub(crate) trait WikiStore {
    fn dialect(&self) -> Dialect;

    /// Begins a transaction of statements that read, or of some that write.
    fn begin(&mut self, writes: bool) -> WikiResult<()>;

    fn commit(&mut self) -> WikiResult<()>;

    /// Ends the transaction, if there is one, without its changes.
    fn rollback(&mut self) -> WikiResult<()>;

    /// Runs a statement and returns its rows.
    fn query(&mut self, text: &str, parameters: &[Parameter<'_>]) -> WikiResult<Vec<WikiRow>>;

    /// Runs a statement that returns no rows. Returns the number that the database has given to the
    /// row that an INSERT created.
    fn execute(&mut self, text: &str, parameters: &[Parameter<'_>]) -> WikiResult<i64>;

    /// Runs a statement without parameters, once.
    fn define(&mut self, text: &str) -> WikiResult<()>;
}

/// By SQLite's interface: Yesquel, or SQLite's own engine.
pub(crate) struct SqliteWiki(Connection);

impl From<rusqlite::Error> for WikiError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                WikiError::Conflict(error.to_string())
            }
            _ => WikiError::Failed(error.into()),
        }
    }
}

impl SqliteWiki {
    pub(crate) fn new(connection: Connection) -> WikiResult<SqliteWiki> {
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        // As MediaWiki does when it opens a database.
        connection.execute_batch("PRAGMA case_sensitive_like = 1; PRAGMA temp_store = MEMORY")?;
        Ok(SqliteWiki(connection))
    }

    fn run<T>(
        &mut self,
        text: &str,
        parameters: &[Parameter<'_>],
        with: impl FnOnce(&mut rusqlite::Statement<'_>) -> rusqlite::Result<T>,
    ) -> WikiResult<T> {
        let mut statement = self.0.prepare_cached(text)?;
        for (index, parameter) in (1..).zip(parameters) {
            match parameter {
                Parameter::Null => statement.raw_bind_parameter(index, rusqlite::types::Null)?,
                Parameter::Integer(number) => statement.raw_bind_parameter(index, number)?,
                Parameter::Real(number) => statement.raw_bind_parameter(index, number)?,
                Parameter::Text(text) => statement.raw_bind_parameter(index, text.as_ref())?,
            }
        }
        Ok(with(&mut statement)?)
    }
}

impl WikiStore for SqliteWiki {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn begin(&mut self, writes: bool) -> WikiResult<()> {
        // As MediaWiki does for a GET and for a POST.
        self.execute(if writes { "BEGIN IMMEDIATE" } else { "BEGIN DEFERRED" }, &[]).map(drop)
    }

    fn commit(&mut self) -> WikiResult<()> {
        self.execute("COMMIT", &[]).map(drop)
    }

    fn rollback(&mut self) -> WikiResult<()> {
        if self.0.is_autocommit() {
            return Ok(()); // SQLite has rolled it back.
        }
        self.execute("ROLLBACK", &[]).map(drop)
    }

    fn query(&mut self, text: &str, parameters: &[Parameter<'_>]) -> WikiResult<Vec<WikiRow>> {
        self.run(text, parameters, |statement| {
            let columns = statement.column_count();
            let mut rows = statement.raw_query();
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                let values = (0..columns).map(|column| Ok(value(row.get_ref(column)?)));
                all.push(values.collect::<rusqlite::Result<_>>()?);
            }
            Ok(all)
        })
    }

    fn execute(&mut self, text: &str, parameters: &[Parameter<'_>]) -> WikiResult<i64> {
        self.run(text, parameters, |statement| statement.raw_execute())?;
        Ok(self.0.last_insert_rowid())
    }

    fn define(&mut self, text: &str) -> WikiResult<()> {
        Ok(self.0.execute_batch(text)?)
    }
}

fn value(value: ValueRef<'_>) -> WikiValue {
    match value {
        ValueRef::Null => WikiValue::Null,
        ValueRef::Integer(number) => WikiValue::Integer(number),
        ValueRef::Real(number) => WikiValue::Real(number),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => WikiValue::Bytes(bytes.to_vec()),
    }
}
