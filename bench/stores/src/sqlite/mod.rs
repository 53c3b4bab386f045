//! SQLite, linked in: an embedded SQL engine on one file.
//!
//! The layout of YCSB's JDBC client, so that either tool reads the other's data: the
//! workload's table, a text primary key `YCSB_KEY`, and a text column per field, named
//! in capitals.
//!
//! A client is a thread with a connection of its own; SQLite serializes writers. Every
//! verb is one statement and one transaction, a batch of inserts is one transaction.
//!
//! Cost besides SQLite: the SQL is written into the client's buffer, and its text finds
//! the prepared statement in rusqlite's cache, which allocates a copy of the text each
//! time it puts the statement back. SQLite copies the bound key and values. Nothing
//! else is allocated. A second cache, of texts, would gain nothing: reading ten fields
//! by name takes as long as `SELECT *`.
//!
//! The SQLite is Yesquel's, the only one of the process; on plain files its
//! b-trees are SQLite's own.

pub(crate) mod client;
pub(crate) mod table;

pub use client::SqliteClient;

use crate::{StoreInfo, columns::Quotes, jdbc, yesquel_sql::link};
use client::{Under, code, words};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, config::DbConfig};
use serval_model::{
    Execution, Purpose, Schema, Store, StoreError,
    properties::{Faults, Kind, Properties, Property, PropertyTable, Reader, units},
};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use table::{Holder, TableFault};

/// Column of the primary key, named as in YCSB.
const KEY: &str = "YCSB_KEY";

/// Maximum number of prepared statements of a client. A workload uses a few, plus two
/// for each field that it reads and updates alone; beyond about 120 such fields some
/// are prepared again.
pub(crate) const STATEMENTS_MAX: usize = 256;

/// Longest wait for a lock: SQLite counts milliseconds in 31 bits.
pub(crate) const BUSY_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// Largest `sqlite.cache_size`: SQLite counts KiB in 31 bits.
const CACHE_SIZE_MAX: u64 = (i32::MAX as u64) << 10;

static PATH: Property =
    Property::serval("sqlite.path", Kind::Path, "Database file; the load creates it. Overrides db.url.")
        .default("serval.db");

static JOURNAL_MODE: Property = Property::serval(
    "sqlite.journal_mode",
    Kind::Choice(&["wal", "delete", "truncate", "persist", "memory", "off"]),
    "SQLite's journal mode. With wal, readers and one writer do not block each other. With the others, a \
     writer locks out all other clients; memory and off may lose the file in a crash.",
)
.default("wal");

static SYNCHRONOUS: Property = Property::serval(
    "sqlite.synchronous",
    Kind::Choice(&["off", "normal", "full", "extra"]),
    "When SQLite waits for the disk. In wal mode, normal may lose the last transactions in a power \
     failure, full loses none.",
)
.default("normal");

static BUSY_TIMEOUT: Property = Property::serval(
    "sqlite.busy_timeout",
    Kind::MILLISECONDS,
    "Time for which an operation waits for a lock, before it fails with SERVICE_UNAVAILABLE.",
)
.default("5s")
.unit("ms");

static CACHE_SIZE: Property = Property::serval(
    "sqlite.cache_size",
    Kind::Size,
    "Page cache of each client. If unset: SQLite's own, about 2 MB.",
)
.unit("bytes");

static MMAP_SIZE: Property = Property::serval(
    "sqlite.mmap_size",
    Kind::Size,
    "Part of the file that is read through a memory map, at most 2 GiB.",
)
.default("0")
.unit("bytes");

static UPSERT: Property = Property::serval(
    "sqlite.upsert",
    Kind::Flag,
    "Whether an insert replaces an existing record (INSERT OR REPLACE) or fails, as in YCSB.",
)
.default("false");

/// The database that holds the table, for messages.
const HOLDER: Holder = Holder { store: INFO.name, noun: "file", property: PATH.name, kind: "" };

/// SQLite's quote character of identifiers.
const QUOTES: Quotes = Quotes('"');

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "sqlite",
    aliases: &[],
    summary: "SQLite, linked in: an embedded SQL engine on one file",
    details: "Layout of YCSB's JDBC client, so that either tool reads what the other loaded: table \
              usertable (property table), primary key column YCSB_KEY, columns FIELD0, FIELD1, ... of \
              text. Values that are not UTF-8 are stored as blobs; a missing field is NULL.\n\
              read: SELECT by key. scan: SELECT from the key on, ORDER BY key, LIMIT; a snapshot, in byte \
              order of keys. update: UPDATE; a missing record is NOT_FOUND. insert: INSERT; an existing \
              key is an ERROR unless sqlite.upsert is set. delete: DELETE. A batch of inserts is one \
              transaction: all or nothing, except with sqlite.journal_mode=off.\n\
              A client is a thread with a connection of its own. One connection writes at a time; the \
              others sleep and retry, so waits for the write lock come in steps of up to 100 ms and not \
              in order of arrival. Closing the last client writes the write-ahead log back into the file.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable {
        heading: "sqlite",
        properties: &[
            &PATH,
            &JOURNAL_MODE,
            &SYNCHRONOUS,
            &BUSY_TIMEOUT,
            &CACHE_SIZE,
            &MMAP_SIZE,
            &UPSERT,
            &jdbc::URL,
            &jdbc::DRIVER,
            &jdbc::FETCH_SIZE,
            &jdbc::AUTO_COMMIT,
            &jdbc::BATCH_API,
        ],
    },
};

/// Reads the file's path, from its own property or from JDBC's URL.
fn path(reader: &mut Reader<'_>) -> PathBuf {
    if !reader.given(&PATH) && reader.given(&jdbc::URL) {
        let url = reader.text(&jdbc::URL);
        match url.trim().strip_prefix("jdbc:sqlite:") {
            Some(file) => return PathBuf::from(file),
            None => {
                // The message omits the URL, which may contain a password.
                reader.fault_overall(
                    "db.url: is of another database: write jdbc:sqlite:FILE, or set sqlite.path",
                );
            }
        }
    }
    reader.path(&PATH).unwrap_or_default()
}

/// Values of the properties.
#[derive(Debug, Clone)]
struct SqliteSettings {
    path: PathBuf,
    journal_mode: &'static str,
    synchronous: &'static str,
    busy_timeout: Duration,
    cache_size: Option<u64>,
    mmap_size: u64,
    upsert: bool,
}

/// Facts from the preparation of the store.
#[derive(Debug, Default)]
struct PreparedStore {
    /// Fields of the schema, whose names columns map to.
    fields: Arc<[String]>,
    /// Effective settings.
    facts: Vec<(String, String)>,
}

/// The store.
#[derive(Debug)]
pub struct Sqlite {
    settings: SqliteSettings,
    prepared: Mutex<PreparedStore>,
}

impl Sqlite {
    /// Reads the properties. Opens no file.
    pub fn open(properties: &Properties) -> Result<Self, Faults> {
        let mut reader = Reader::new(properties);
        let settings = SqliteSettings {
            path: path(&mut reader),
            journal_mode: reader.choice(&JOURNAL_MODE),
            synchronous: reader.choice(&SYNCHRONOUS),
            busy_timeout: reader.duration(&BUSY_TIMEOUT),
            cache_size: reader.given(&CACHE_SIZE).then(|| reader.size(&CACHE_SIZE)),
            mmap_size: reader.size(&MMAP_SIZE),
            upsert: reader.flag(&UPSERT),
        };
        // These names have a special meaning for SQLite.
        match settings.path.to_string_lossy().as_ref() {
            "" => reader.fault(&PATH, "must name a file"),
            ":memory:" => reader.fault(
                &PATH,
                "would give each client a database of its own; name a file (one under /dev/shm \
                 stays in memory), or use the store 'memory'",
            ),
            path if path.starts_with("file:") => {
                reader.fault(&PATH, "must be a plain path, not a URI; ./file:... if it is meant");
            }
            _ => {}
        }
        if settings.busy_timeout > BUSY_TIMEOUT_MAX {
            reader.fault(&BUSY_TIMEOUT, "must be 24 days or less");
        }
        if settings.cache_size.is_some_and(|size| size > CACHE_SIZE_MAX) {
            reader.fault(&CACHE_SIZE, "must be 2047 GiB or less");
        }
        if settings.mmap_size > i64::MAX as u64 {
            reader.fault(&MMAP_SIZE, "is more than SQLite can count");
        }
        reader.finish()?;
        Ok(Sqlite { settings, prepared: Mutex::default() })
    }

    fn error(&self, problem: impl Into<String>) -> StoreError {
        StoreError::new(format!("{} ({})", INFO.name, self.settings.path.display()), problem)
    }

    /// Converts SQLite's error, with advice for the kinds that have a remedy.
    fn refused(&self, error: &Error) -> StoreError {
        let remedy = match code(error) {
            Some(ErrorCode::NotADatabase) => ": the file is something else; is sqlite.path right?".to_owned(),
            Some(ErrorCode::CannotOpen) => match self.settings.path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                    format!(": there is no folder '{}'; make it first", folder.display())
                }
                _ => ": may this user read and write the file and its folder?".to_owned(),
            },
            Some(ErrorCode::ReadOnly) => ": may this user write the file and its folder?".to_owned(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => format!(
                ": another connection held a lock for {} (sqlite.busy_timeout); what else uses the file?",
                units::format_duration(self.settings.busy_timeout.as_nanos() as u64)
            ),
            _ => String::new(),
        };
        self.error(format!("{}{remedy}", words(error)))
    }

    /// Opens the file with the settings.
    fn connection(&self, create: bool) -> Result<Connection, Error> {
        assert!(link::is_linked(), "another SQLite is linked into this program");
        let settings = &self.settings;
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if create {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let connection = Connection::open_with_flags(&settings.path, flags)?;
        connection.busy_timeout(settings.busy_timeout)?;
        // Otherwise SQLite takes a quoted name of a missing column for a string,
        // and a read of a missing field would succeed.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        connection.pragma_update_and_check(None, "journal_mode", settings.journal_mode, |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", settings.synchronous)?;
        connection.pragma_update(None, "mmap_size", settings.mmap_size as i64)?;
        if let Some(size) = settings.cache_size {
            // Negative: KiB rather than pages.
            connection.pragma_update(None, "cache_size", -(size.div_ceil(1 << 10) as i64))?;
        }
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Ok(connection)
    }

    /// Asks SQLite for its effective settings.
    fn facts(&self, connection: &Connection) -> Result<Vec<(String, String)>, Error> {
        let text = |name| connection.pragma_query_value(None, name, |row| row.get::<_, String>(0));
        let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let journal_mode = text("journal_mode")?;
        let synchronous = match number("synchronous")? {
            0 => "off".to_owned(),
            1 => "normal".to_owned(),
            2 => "full".to_owned(),
            3 => "extra".to_owned(),
            other => other.to_string(),
        };
        let cache = match number("cache_size")? {
            kib if kib < 0 => units::format_size(kib.unsigned_abs() << 10),
            pages => format!("{pages} pages"),
        };
        // There is no row if SQLite was built without memory maps.
        let mmap = number("mmap_size").unwrap_or(0);
        Ok(vec![
            ("journal_mode".into(), journal_mode),
            ("synchronous".into(), synchronous),
            ("page_size".into(), format!("{} B", number("page_size")?)),
            ("cache_size".into(), cache),
            ("mmap_size".into(), units::format_size(mmap.unsigned_abs())),
        ])
    }
}

impl Store for Sqlite {
    type Local = ();
    type Client = SqliteClient;

    fn execution(&self) -> Execution {
        Execution::Threads
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let path = &self.settings.path;
        if purpose == Purpose::Run && !path.exists() {
            return Err(self.error(format!(
                "there is no such file, so no table '{}': load it first, with 'serval load \
                 sqlite' and the same sqlite.path",
                schema.table
            )));
        }
        let connection = self.connection(purpose == Purpose::Load).map_err(|e| self.refused(&e))?;
        table::check(&connection, schema, purpose, &HOLDER).map_err(|refusal| match refusal {
            TableFault::Sqlite(error) => self.refused(&error),
            TableFault::Table(words) => self.error(words),
        })?;
        let facts = self.facts(&connection).map_err(|e| self.refused(&e))?;
        if let Some((_, mode)) = facts.first()
            && mode != self.settings.journal_mode
        {
            return Err(self.error(format!(
                "SQLite keeps journal mode '{mode}' instead of '{}': this kind of file or file \
                 system cannot have it; set sqlite.journal_mode={mode}",
                self.settings.journal_mode
            )));
        }
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        *prepared = PreparedStore { fields: schema.fields.clone().into(), facts };
        Ok(())
    }

    fn describe(&self) -> Vec<(String, String)> {
        let settings = &self.settings;
        let path = std::path::absolute(&settings.path).unwrap_or(settings.path.clone());
        let mut all =
            vec![("version".into(), rusqlite::version().into()), ("path".into(), path.display().to_string())];
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(prepared.facts.iter().cloned());
        all.extend([
            ("busy_timeout".into(), units::format_duration(settings.busy_timeout.as_nanos() as u64)),
            ("upsert".into(), settings.upsert.to_string()),
        ]);
        all
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: usize) -> Result<SqliteClient, StoreError> {
        let connection = self.connection(false).map_err(|e| self.refused(&e))?;
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let under = Under::File { can_roll_back: self.settings.journal_mode != "off" };
        Ok(SqliteClient::new(connection, prepared.fields.clone(), self.settings.upsert, under))
    }

    // No `finish`: closing the last connection checkpoints and removes the
    // write-ahead log.
}
