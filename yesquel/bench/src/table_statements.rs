//! Statements of SQL by key, on one table or several (SOSP'15, section 6.2). A client chooses a table
//! and a key at random for each statement.

use crate::Result;
use clap::ValueEnum;
use rusqlite::{Connection, Statement};
use yesquel_seeds::Random;

/// Rows inserted in one transaction.
const BATCH: u64 = 1_000;
/// A client that learns the leaves of a table reads each so many rows: less than a leaf has.
const LEARNED: usize = 50;

/// Statement on the tables, of the paper's section 6.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableStatement {
    /// SELECT of a row by its key.
    Read,
    /// UPDATE of a row by its key.
    Update,
    /// SELECT of up to ten rows from a key on.
    Scan,
    /// Two UPDATEs in a transaction, of rows of two tables.
    UpdateTwo,
}

/// Tables, and a statement on them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableLoad {
    pub(crate) statement: TableStatement,
    /// Number of tables.
    pub(crate) tables: u64,
    /// Rows of a table.
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
}

impl TableLoad {
    /// Creates the tables with their rows, unless they exist.
    pub(crate) fn create(&self, connection: &Connection) -> Result<()> {
        let value = vec![b'v'; self.value_bytes];
        for table in 0..self.tables {
            let exists: bool = connection.query_row(
                "SELECT count(*) FROM sqlite_schema WHERE name='t' || ?",
                [table.cast_signed()],
                |row| row.get(0),
            )?;
            if exists {
                continue;
            }
            connection
                .execute_batch(&format!("CREATE TABLE t{table}(key INTEGER PRIMARY KEY, value BLOB)"))?;
            let mut insert = connection.prepare(&format!("INSERT INTO t{table} VALUES(?, ?)"))?;
            for first in (0..self.keys).step_by(BATCH as usize) {
                connection.execute_batch("BEGIN")?;
                for key in first..self.keys.min(first + BATCH) {
                    insert.execute((key.cast_signed(), &value))?;
                }
                connection.execute_batch("COMMIT")?;
            }
        }
        Ok(())
    }
}

/// A connection with its statements, by table.
pub(crate) struct TablesClient<'a> {
    load: TableLoad,
    connection: &'a Connection,
    statements: Vec<Statement<'a>>,
    random: Random,
    value: Vec<u8>,
}

impl<'a> TablesClient<'a> {
    /// Prepares the statements of a connection, whose random numbers follow from a seed.
    pub(crate) fn prepare(
        load: TableLoad,
        connection: &'a Connection,
        seed: u64,
    ) -> Result<TablesClient<'a>> {
        let sql = |table: u64| match load.statement {
            TableStatement::Read => format!("SELECT value FROM t{table} WHERE key=?"),
            TableStatement::Update | TableStatement::UpdateTwo => {
                format!("UPDATE t{table} SET value=? WHERE key=?")
            }
            TableStatement::Scan => format!("SELECT key, value FROM t{table} WHERE key>=? LIMIT 10"),
        };
        let statements = (0..load.tables).map(|table| connection.prepare(&sql(table)));
        Ok(TablesClient {
            statements: statements.collect::<rusqlite::Result<_>>()?,
            load,
            connection,
            random: Random::new(seed),
            value: vec![b'v'; load.value_bytes.max(8)],
        })
    }

    /// Learns the leaves of all tables.
    pub(crate) fn learn_leaves(&self) -> Result<()> {
        for table in 0..self.load.tables {
            let mut read = self.connection.prepare(&format!("SELECT value FROM t{table} WHERE key=?"))?;
            for key in (0..self.load.keys).step_by(LEARNED) {
                rows(&mut read, key)?;
            }
        }
        Ok(())
    }

    fn table(&mut self) -> usize {
        self.random.next(self.load.tables) as usize
    }

    fn update(&mut self, table: usize) -> Result<()> {
        let key = self.random.next(self.load.keys).cast_signed();
        let number = self.random.next(u64::MAX);
        self.value[..8].copy_from_slice(&number.to_le_bytes());
        match self.statements[table].execute((&self.value, key))? {
            1 => Ok(()),
            changed => Err(format!("an update has changed {changed} rows").into()),
        }
    }

    /// Updates rows of two tables, or of one if there is only one; again after a conflict.
    fn update_two(&mut self) -> Result<()> {
        let first = self.table();
        let second = (first + 1) % self.load.tables as usize;
        loop {
            self.connection.execute_batch("BEGIN")?;
            self.update(first)?;
            self.update(second)?;
            match self.connection.execute_batch("COMMIT") {
                Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                    self.connection.execute_batch("ROLLBACK")?;
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Executes the statement, or the transaction, once.
    pub(crate) fn execute(&mut self) -> Result<()> {
        match self.load.statement {
            TableStatement::Read => {
                let (table, key) = (self.table(), self.random.next(self.load.keys));
                if rows(&mut self.statements[table], key)? != 1 {
                    return Err(format!("row {key} of t{table} is missing").into());
                }
                Ok(())
            }
            TableStatement::Update => {
                let table = self.table();
                self.update(table)
            }
            TableStatement::Scan => {
                let (table, key) = (self.table(), self.random.next(self.load.keys));
                rows(&mut self.statements[table], key)?;
                Ok(())
            }
            TableStatement::UpdateTwo => self.update_two(),
        }
    }
}

/// Runs a query by a key, and returns the number of its rows.
fn rows(statement: &mut Statement<'_>, key: u64) -> Result<u64> {
    let mut rows = statement.query([key.cast_signed()])?;
    let mut count = 0;
    while rows.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}
