//! Yesquel's SQL, embedded or at a server: Serval's default store.
//!
//! This store is an application of SQLite: rusqlite, SQLite's interface and a `yesquel:`
//! address. It shares verbs, table and SQL with the store `sqlite`, so that the two
//! differ only below SQLite.
//!
//! A client is a thread with a connection of its own. The library multiplexes a process's
//! connections to one server over one socket.

pub(crate) mod link;
mod settings;

pub use crate::sqlite::SqliteClient;

use crate::{
    StoreInfo,
    sqlite::{
        STATEMENTS_MAX,
        client::{Under, code, words},
        table::{self, Holder, TableFault},
    },
};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, config::DbConfig};
use serval_model::{
    Execution, Purpose, Schema, Store, StoreError,
    properties::{Faults, Properties, PropertyTable, units},
};
use settings::YesquelSqlSettings;
use std::{
    fs, io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use yesquel_sqlite::{DatabaseLocation, SqlErrorKind};

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "yesquel",
    aliases: &[],
    summary: "Yesquel's SQL: embedded (in a folder or in memory) or at a server",
    details: "The table is that of the store sqlite and of YCSB's JDBC client: usertable (property \
              table), primary key column YCSB_KEY, columns FIELD0, FIELD1, ... of text \
              (yesquel.without_rowid stores it in one tree instead of two). Values that are not UTF-8 are \
              stored as blobs; a missing field is NULL.\n\
              read: SELECT by key. scan: SELECT from the key on, ORDER BY key, LIMIT; a snapshot, in byte \
              order of keys. update: UPDATE; a missing record is NOT_FOUND. insert: INSERT; an existing \
              key is an ERROR unless yesquel.upsert is set. delete: DELETE. A batch of inserts is one \
              transaction: all or nothing. A statement or batch that loses against another client is \
              retried ten times at once, and a statement then for yesquel.busy_timeout; after that it is \
              SERVICE_UNAVAILABLE.\n\
              yesquel.address is the address that any SQLite program opens. If it is not set, the \
              database is in the folder serval-data, which only one process can open at a time ('serval \
              bench': in the result folder, removed at the end unless --keep-store is given). A power \
              failure may then lose the writes of the last 100 ms: the guarantee of \
              sqlite.synchronous=normal, where no write waits for the disk. In memory (yesquel:) load and \
              run must be one command ('serval bench'). 'yesquel serve' starts a server. A client is a \
              thread with a connection of its own; all connections share one socket. Inside Serval a \
              failure of the disk ends the run.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable { heading: "yesquel", properties: settings::ALL },
};

/// The database that holds the table, for messages.
const HOLDER: Holder =
    Holder { store: INFO.name, noun: "database", property: settings::ADDRESS.name, kind: "" };

/// Facts from the preparation of the store.
#[derive(Debug, Default)]
struct PreparedStore {
    /// Fields of the schema, whose names columns map to.
    fields: Arc<[String]>,
    /// Keeps an embedded database open between load and run: a database in memory
    /// disappears with its last connection.
    keeper: Option<Connection>,
}

/// The store.
#[derive(Debug)]
pub struct YesquelSql {
    settings: YesquelSqlSettings,
    prepared: Mutex<PreparedStore>,
}

impl YesquelSql {
    /// Reads the properties. Neither opens files nor connects.
    pub fn open(properties: &Properties) -> Result<Self, Faults> {
        Ok(YesquelSql { settings: YesquelSqlSettings::read(properties)?, prepared: Mutex::default() })
    }

    fn name(&self) -> String {
        format!("{} ({})", INFO.name, self.settings.address)
    }

    fn error(&self, problem: impl Into<String>) -> StoreError {
        StoreError::new(self.name(), problem)
    }

    fn is_embedded(&self) -> bool {
        !matches!(self.settings.address.location, DatabaseLocation::Server(_))
    }

    fn lock(&self) -> MutexGuard<'_, PreparedStore> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts the engine's error, with advice for the kinds that have a remedy.
    fn refused(&self, error: &Error) -> StoreError {
        let YesquelSqlSettings { address, opened, .. } = &self.settings;
        let words = words(error);
        // The error contains the address already.
        let words = words.strip_prefix(&format!("{address}: ")).unwrap_or(&words);
        let words = words.strip_suffix(&format!(": {opened}")).unwrap_or(words);
        let is_served = !self.is_embedded();
        // SQLite has one code for all failures to open.
        let kind = yesquel_sqlite::last_error_kind();
        let remedy = match code(error) {
            Some(ErrorCode::CannotOpen) if kind == Some(SqlErrorKind::NoDatabase) => {
                return self.error(format!("there is no database '{}': {}", address.name, load_first()));
            }
            Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) if is_served => {
                ". Is a Yesquel server running, and is yesquel.address right?"
            }
            _ => "",
        };
        // Some messages end with a question themselves.
        let words = if remedy.is_empty() { words } else { words.trim_end_matches('.') };
        self.error(format!("{words}{remedy}"))
    }

    /// Opens the database and checks that it is Yesquel's.
    fn connection(&self, creates: bool) -> Result<Connection, StoreError> {
        // Another SQLite would create a file of that name.
        if !link::is_linked() {
            return Err(self.error("another SQLite is linked into this program"));
        }
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if creates {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let refused = |error: &Error| self.refused(error);
        // Clears the kind of an earlier failure.
        let _ = yesquel_sqlite::last_error_kind();
        let connection =
            Connection::open_with_flags(&self.settings.opened, flags).map_err(|error| refused(&error))?;
        self.set_up(&connection).map_err(|error| refused(&error))?;
        Ok(connection)
    }

    fn set_up(&self, connection: &Connection) -> Result<(), Error> {
        let answers: String =
            connection.query_row("SELECT file FROM pragma_database_list", [], |row| row.get(0))?;
        assert!(answers.starts_with("yesquel:"), "'{answers}' is no database of Yesquel's");
        connection.busy_timeout(self.settings.busy_timeout)?;
        // Otherwise SQLite takes a quoted name of a missing column for a string,
        // and a read of a missing field would succeed.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Ok(())
    }

    /// Returns why a run has no database, as far as is known without creating it.
    fn nothing(&self) -> Option<StoreError> {
        match &self.settings.address.location {
            DatabaseLocation::Memory | DatabaseLocation::SharedMemory => Some(self.error(
                "this database is gone when Serval ends, so load and run must be one command, unless yesquel.address \
                 says where records stay",
            )),
            DatabaseLocation::Folder(path) if is_empty(path) => {
                Some(self.error(format!("there is nothing: {}", load_first())))
            }
            DatabaseLocation::Folder(_) | DatabaseLocation::Server(_) => None,
        }
    }
}

fn load_first() -> String {
    format!(
        "load it first, with 'serval load {}' and the same {} and table",
        INFO.name,
        settings::ADDRESS.name
    )
}

/// Returns whether a folder is missing or empty.
pub(crate) fn is_empty(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut files) => files.next().is_none(),
        // Opening it reports other errors.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

impl Store for YesquelSql {
    type Local = ();
    type Client = SqliteClient;

    fn execution(&self) -> Execution {
        Execution::Threads
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let mut prepared = self.lock();
        let keeper = match prepared.keeper.take() {
            Some(keeper) => keeper,
            None => {
                if let Some(nothing) = (purpose == Purpose::Run).then(|| self.nothing()).flatten() {
                    return Err(nothing);
                }
                self.connection(purpose == Purpose::Load)?
            }
        };
        let kind = if self.settings.without_rowid { " WITHOUT ROWID" } else { "" };
        let checked = table::check(&keeper, schema, purpose, &Holder { kind, ..HOLDER });
        *prepared = PreparedStore { fields: schema.fields.clone().into(), keeper: Some(keeper) };
        checked.map_err(|refusal| match refusal {
            TableFault::Sqlite(error) => self.refused(&error),
            TableFault::Table(words) => self.error(words),
        })
    }

    fn describe(&self) -> Vec<(String, String)> {
        let YesquelSqlSettings { address, busy_timeout, upsert, .. } = &self.settings;
        let mut all = vec![
            ("version".to_owned(), format!("{}, SQLite {}", env!("CARGO_PKG_VERSION"), rusqlite::version())),
            ("address".to_owned(), address.to_string()),
        ];
        if let DatabaseLocation::Folder(path) = &address.location {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            all.push(("path".to_owned(), path.display().to_string()));
            all.push(("durability".to_owned(), address.durability.to_string()));
        }
        all.push(("busy_timeout".to_owned(), units::format_duration(busy_timeout.as_nanos() as u64)));
        all.push(("upsert".to_owned(), upsert.to_string()));
        all
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: usize) -> Result<SqliteClient, StoreError> {
        let connection = self.connection(false)?;
        let under = Under::Trees { is_embedded: self.is_embedded(), name: self.name().into() };
        Ok(SqliteClient::new(connection, self.lock().fields.clone(), self.settings.upsert, under))
    }

    fn finish(&self) -> Result<(), StoreError> {
        // A database in memory must survive until the run after the load.
        if matches!(self.settings.address.location, DatabaseLocation::Folder(_) | DatabaseLocation::Server(_))
        {
            let keeper = self.lock().keeper.take();
            if let Some(Err((_, error))) = keeper.map(Connection::close) {
                return Err(self.refused(&error));
            }
        }
        Ok(())
    }
}
