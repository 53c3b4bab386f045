//! A client by SQL: SQLite's interface over rusqlite, a connection and prepared
//! statements for each thread, as an application has them.

use crate::Result;
use rusqlite::{Connection, Statement, TransactionBehavior};
use std::time::Duration;

/// The database at a server, as the other loads call theirs.
const DATABASE: &str = "bench";

/// How long a statement may lose races; it is run again by itself. SQLite's own
/// files are waited for as long.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// What all reads ask.
const READ: &str = "SELECT value FROM kv WHERE key = ?1";

/// What a thread does with the table, whoever keeps it.
pub(crate) trait Table {
    /// Whether there is such a key.
    fn read(&mut self, key: u64) -> Result<bool>;

    /// Another value for a key that there is.
    fn update(&mut self, key: u64, value: &[u8]) -> Result<()>;

    /// So many from a key on; how many there are.
    fn range(&mut self, key: u64, limit: u64) -> Result<u64>;

    /// A row with this key, or with one that the database gives it.
    fn insert(&mut self, key: Option<u64>, value: &[u8]) -> Result<()>;

    /// Rows, in one transaction, a statement each.
    fn insert_all(&mut self, keys: &mut dyn Iterator<Item = Option<u64>>, value: &[u8]) -> Result<()>;
}

/// Where a database is, and who keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    name: String,
    /// SQLite's own, on a plain file.
    stock: bool,
    /// KiB of its pages that a connection of SQLite's own keeps; none: as it is made.
    cache_kib: Option<u64>,
}

impl Place {
    /// What a target's kind and the rest of it mean; none: it is not SQLite's
    /// interface that it names.
    pub(crate) fn of(kind: &str, rest: &str) -> Option<Place> {
        let place = |name: String, stock, cache_kib| Some(Place { name, stock, cache_kib });
        match kind {
            "sql" => place(format!("yesquel://{rest}/{DATABASE}"), false, None),
            "folder" => place(format!("yesquel:{rest}"), false, None),
            "sqlite" => place(rest.to_owned(), true, None),
            // More than any table of these benchmarks has.
            "sqlite-cached" => place(rest.to_owned(), true, Some(1 << 20)),
            _ => None,
        }
    }

    /// A connection that can be used.
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
            // As is advised for files that several connections write.
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

    /// Makes the table, before any thread wants it.
    pub(crate) fn prepare(&self) -> Result<()> {
        let connection = self.open()?;
        connection.execute_batch("CREATE TABLE IF NOT EXISTS kv(key INTEGER PRIMARY KEY, value BLOB)")?;
        Ok(())
    }
}

/// Asks a connection that was just opened for a row.
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
    pub(crate) fn connect(place: &Place) -> Result<Sql> {
        // Its statements stay with it, until the process ends.
        let connection: &'static Connection = Box::leak(Box::new(place.open()?));
        Ok(Sql {
            connection,
            read: connection.prepare(READ)?,
            update: connection.prepare("UPDATE kv SET value = ?2 WHERE key = ?1")?,
            range: connection.prepare("SELECT key, value FROM kv WHERE key >= ?1 LIMIT ?2")?,
            insert: connection.prepare("INSERT INTO kv(key, value) VALUES(?1, ?2)")?,
            // A statement of its own: one that may be given a key looks whether
            // there is such a row, also where it is given NULL.
            append: connection.prepare("INSERT INTO kv(value) VALUES(?1)")?,
        })
    }
}

impl Table for Sql {
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
    fn a_target_says_where_and_whose() {
        let name = |kind: &str, rest: &str| Place::of(kind, rest).map(|place| (place.name, place.stock));
        assert_eq!(name("sql", "host:1"), Some(("yesquel://host:1/bench".to_owned(), false)));
        assert_eq!(name("sql", "/run/s"), Some(("yesquel:///run/s/bench".to_owned(), false)));
        assert_eq!(
            name("folder", "f?durability=none"),
            Some(("yesquel:f?durability=none".to_owned(), false))
        );
        assert_eq!(name("sqlite", "f.db"), Some(("f.db".to_owned(), true)));
        assert_eq!(name("redis", "host:1"), None);
    }

    #[test]
    fn both_do_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (kind, name) in
            [("folder", path("ours")), ("sqlite", path("file")), ("sqlite-cached", path("other"))]
        {
            let place = Place::of(kind, &name).unwrap();
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
        // A file of another's is not taken for ours.
        assert!(Place { name: path("file"), stock: false, cache_kib: None }.open().is_err());
    }
}
