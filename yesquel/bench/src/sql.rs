//! SQL client: SQLite's interface by rusqlite, with one connection and prepared statements for each
//! thread, as in an application.

use crate::Result;
use rusqlite::{Connection, Statement, TransactionBehavior};
use std::time::Duration;

/// Name of the database at a server, as in the other loads.
const DATABASE: &str = "bench";

/// Time for which a statement is retried after conflicts, and for which SQLite waits for locks.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Statement of all reads.
const READ: &str = "SELECT value FROM kv WHERE key = ?1";

/// Operations of a thread on the table, in any database.
pub(crate) trait SqlTable {
    /// Returns whether a key exists.
    fn read(&mut self, key: u64) -> Result<bool>;

    /// Changes the value of an existing key.
    fn update(&mut self, key: u64, value: &[u8]) -> Result<()>;

    /// Reads up to `limit` rows from a key on. Returns their number.
    fn range(&mut self, key: u64, limit: u64) -> Result<u64>;

    /// Inserts a row with this key, or with one that the database chooses.
    fn insert(&mut self, key: Option<u64>, value: &[u8]) -> Result<()>;

    /// Inserts rows in one transaction, by one statement each.
    fn insert_all(&mut self, keys: &mut dyn Iterator<Item = Option<u64>>, value: &[u8]) -> Result<()>;
}

/// Location of a database, and its engine.
#[derive(Debug, Clone)]
pub(crate) struct SqlLocation {
    name: String,
    /// Whether it is a plain file with SQLite's own engine.
    stock: bool,
    /// Page cache of a connection of SQLite's own engine, in KiB; `None`: the default.
    cache_kib: Option<u64>,
}

impl SqlLocation {
    /// Parses a target; `None` if it is not for SQLite's interface. At servers, tables are distributed
    /// over all groups.
    pub(crate) fn of(kind: &str, rest: &str) -> Option<SqlLocation> {
        let place = |name: String, stock, cache_kib| Some(SqlLocation { name, stock, cache_kib });
        match kind {
            "sql" => place(format!("yesquel://{rest}/{DATABASE}?placement=tables"), false, None),
            "folder" => place(format!("yesquel:{rest}"), false, None),
            "sqlite" => place(rest.to_owned(), true, None),
            // More than any table of these benchmarks.
            "sqlite-cached" => place(rest.to_owned(), true, Some(1 << 20)),
            _ => None,
        }
    }

    /// Opens a connection.
    pub(crate) fn open(&self) -> Result<Connection> {
        assert!(yesquel_sqlite::is_linked());
        let connection = Connection::open(&self.name)?;
        let answers: String =
            connection.query_row("SELECT file FROM pragma_database_list", [], |row| row.get(0))?;
        if answers.starts_with("yesquel:") == self.stock {
            return Err(format!("'{answers}' is not whose it should be").into());
        }
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if self.stock {
            // As recommended for files with several writers.
            let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
            if mode != "wal" {
                return Err(format!("'{}' has the journal mode {mode}", self.name).into());
            }
            connection.execute_batch("PRAGMA synchronous = NORMAL")?;
        }
        if let Some(kib) = self.cache_kib {
            connection.execute_batch(&format!("PRAGMA cache_size = -{kib}"))?;
        }
        Ok(connection)
    }

    /// Creates the table before any thread uses it.
    pub(crate) fn prepare(&self) -> Result<()> {
        let connection = self.open()?;
        connection.execute_batch("CREATE TABLE IF NOT EXISTS kv(key INTEGER PRIMARY KEY, value BLOB)")?;
        Ok(())
    }
}

/// Reads a row by a new connection.
pub(crate) fn first_read(connection: &Connection, key: u64) -> Result<bool> {
    found(&mut connection.prepare(READ)?, key)
}

fn found(read: &mut Statement<'_>, key: u64) -> Result<bool> {
    let mut rows = read.query([number(key)])?;
    match rows.next()? {
        Some(row) => Ok(!row.get_ref(0)?.as_blob()?.is_empty()),
        None => Ok(false),
    }
}

pub(crate) struct Sql {
    connection: &'static Connection,
    read: Statement<'static>,
    update: Statement<'static>,
    range: Statement<'static>,
    insert: Statement<'static>,
    append: Statement<'static>,
}

fn number(key: u64) -> i64 {
    key.cast_signed()
}

impl Sql {
    pub(crate) fn connect(place: &SqlLocation) -> Result<Sql> {
        // Its statements borrow it until the process ends.
        let connection: &'static Connection = Box::leak(Box::new(place.open()?));
        Ok(Sql {
            connection,
            read: connection.prepare(READ)?,
            update: connection.prepare("UPDATE kv SET value = ?2 WHERE key = ?1")?,
            range: connection.prepare("SELECT key, value FROM kv WHERE key >= ?1 LIMIT ?2")?,
            insert: connection.prepare("INSERT INTO kv(key, value) VALUES(?1, ?2)")?,
            // A separate statement: one with a key column checks whether the row exists, even for
            // NULL.
            append: connection.prepare("INSERT INTO kv(value) VALUES(?1)")?,
        })
    }
}

impl SqlTable for Sql {
    fn read(&mut self, key: u64) -> Result<bool> {
        found(&mut self.read, key)
    }

    fn update(&mut self, key: u64, value: &[u8]) -> Result<()> {
        match self.update.execute((number(key), value))? {
            1 => Ok(()),
            changed => Err(format!("an update has changed {changed} rows").into()),
        }
    }

    fn range(&mut self, key: u64, limit: u64) -> Result<u64> {
        let mut rows = self.range.query([number(key), number(limit)])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += u64::from(!row.get_ref(1)?.as_blob()?.is_empty());
        }
        Ok(count)
    }

    fn insert(&mut self, key: Option<u64>, value: &[u8]) -> Result<()> {
        match key {
            Some(key) => self.insert.execute((number(key), value))?,
            None => self.append.execute([value])?,
        };
        Ok(())
    }

    fn insert_all(&mut self, keys: &mut dyn Iterator<Item = Option<u64>>, value: &[u8]) -> Result<()> {
        let transaction =
            rusqlite::Transaction::new_unchecked(self.connection, TransactionBehavior::Deferred)?;
        for key in keys {
            self.insert(key, value)?;
        }
        Ok(transaction.commit()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_a_location_and_an_engine() {
        let name =
            |kind: &str, rest: &str| SqlLocation::of(kind, rest).map(|place| (place.name, place.stock));
        assert_eq!(
            name("sql", "host:1"),
            Some(("yesquel://host:1/bench?placement=tables".to_owned(), false))
        );
        assert_eq!(
            name("sql", "/run/s"),
            Some(("yesquel:///run/s/bench?placement=tables".to_owned(), false))
        );
        assert_eq!(
            name("folder", "f?durability=none"),
            Some(("yesquel:f?durability=none".to_owned(), false))
        );
        assert_eq!(name("sqlite", "f.db"), Some(("f.db".to_owned(), true)));
        assert_eq!(name("redis", "host:1"), None);
    }

    #[test]
    fn yesquel_and_sqlite_return_the_same_results() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (kind, name) in
            [("folder", path("ours")), ("sqlite", path("file")), ("sqlite-cached", path("other"))]
        {
            let place = SqlLocation::of(kind, &name).unwrap();
            place.prepare().unwrap();
            let mut sql = Sql::connect(&place).unwrap();
            sql.insert_all(&mut (0..10).map(Some), b"value").unwrap();
            sql.insert(None, b"more").unwrap();
            sql.update(10, b"other").unwrap();
            assert!(sql.update(11, b"none").is_err());
            assert_eq!((sql.read(10).unwrap(), sql.read(11).unwrap()), (true, false));
            assert_eq!(sql.range(8, 5).unwrap(), 3);
            assert!(first_read(&place.open().unwrap(), 0).unwrap());
        }
        // A foreign file is refused.
        assert!(SqlLocation { name: path("file"), stock: false, cache_kib: None }.open().is_err());
    }
}
