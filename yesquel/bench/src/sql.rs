//! A client by SQL: SQLite's interface over rusqlite, a connection and prepared
//! statements for each thread, as an application has them.

use crate::worker::Result;
use rusqlite::{Connection, Statement, TransactionBehavior};
use std::time::Duration;

/// The database, as the other loads call theirs.
const DATABASE: &str = "bench";

/// How long a statement may lose races; it is run again by itself.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Sql {
    connection: &'static Connection,
    read: Statement<'static>,
    update: Statement<'static>,
    range: Statement<'static>,
}

fn number(key: u64) -> i64 {
    key.cast_signed()
}

impl Sql {
    fn open(address: &str) -> Result<Connection> {
        assert!(yesquel_sqlite::is_linked());
        let connection = Connection::open(format!("yesquel://{address}/{DATABASE}"))?;
        let answers: String =
            connection.query_row("SELECT file FROM pragma_database_list", [], |row| row.get(0))?;
        assert!(answers.starts_with("yesquel:"), "'{answers}' is no database of Yesquel's");
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    }

    /// Makes the table, before any thread wants it.
    pub(crate) fn prepare(address: &str) -> Result<()> {
        let connection = Sql::open(address)?;
        connection.execute_batch("CREATE TABLE IF NOT EXISTS kv(key INTEGER PRIMARY KEY, value BLOB)")?;
        Ok(())
    }

    pub(crate) fn connect(address: &str) -> Result<Sql> {
        // Its statements stay with it, until the process ends.
        let connection: &'static Connection = Box::leak(Box::new(Sql::open(address)?));
        Ok(Sql {
            connection,
            read: connection.prepare("SELECT value FROM kv WHERE key = ?1")?,
            update: connection.prepare("UPDATE kv SET value = ?2 WHERE key = ?1")?,
            range: connection.prepare("SELECT key, value FROM kv WHERE key >= ?1 LIMIT ?2")?,
        })
    }

    /// Whether there is such a key.
    pub(crate) fn read(&mut self, key: u64) -> Result<bool> {
        let mut rows = self.read.query([number(key)])?;
        match rows.next()? {
            Some(row) => Ok(!row.get_ref(0)?.as_blob()?.is_empty()),
            None => Ok(false),
        }
    }

    pub(crate) fn update(&mut self, key: u64, value: &[u8]) -> Result<()> {
        match self.update.execute((number(key), value))? {
            1 => Ok(()),
            changed => Err(format!("an update has changed {changed} rows").into()),
        }
    }

    /// So many from a key on; how many there are.
    pub(crate) fn range(&mut self, key: u64, limit: u64) -> Result<u64> {
        let mut rows = self.range.query([number(key), number(limit)])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += u64::from(!row.get_ref(1)?.as_blob()?.is_empty());
        }
        Ok(count)
    }

    /// Rows with these keys, in one transaction.
    pub(crate) fn insert_all(&mut self, keys: impl Iterator<Item = u64>, value: &[u8]) -> Result<()> {
        let transaction =
            rusqlite::Transaction::new_unchecked(self.connection, TransactionBehavior::Deferred)?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT OR REPLACE INTO kv(key, value) VALUES(?1, ?2)")?;
            for key in keys {
                insert.execute((number(key), value))?;
            }
        }
        Ok(transaction.commit()?)
    }
}
