//! Yesquel's SQL, embedded or at a server: what Serval runs on when no other
//! store is named.
//!
//! An application on SQLite is what this store is: rusqlite, SQLite's interface
//! and a `yesquel:` address. Verbs, table and texts are those of the store
//! `sqlite`, so that the two differ in what is under SQLite alone.
//!
//! A client is a thread with a connection of its own. All connections of a
//! process to one server share a socket; that is the library's doing.

pub(crate) mod link;
mod settings;

pub use crate::sqlite::SqliteClient;

use crate::{
    StoreInfo,
    sqlite::{
        STATEMENTS_MAX,
        client::{Under, code, words},
        table::{self, Holder, Refusal},
    },
};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, config::DbConfig};
use serval_model::{
    Execution, Purpose, Schema, Store, StoreError,
    properties::{Faults, Properties, Table, units},
};
use settings::Settings;
use std::{
    fs, io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use yesquel_sqlite::DatabaseLocation;

/// What people are told of this store.
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
    properties: Table { heading: "yesquel", properties: settings::ALL },
};

/// What the table is in.
const HOLDER: Holder =
    Holder { store: INFO.name, noun: "database", property: settings::ADDRESS.name, kind: "" };

/// What preparing found out.
#[derive(Debug, Default)]
struct Prepared {
    /// The fields of the schema, by whose names columns are given back.
    fields: Arc<[String]>,
    /// Keeps an embedded database open between the clients of load and run;
    /// what is in memory would be gone with the last of them.
    keeper: Option<Connection>,
}

/// The store.
#[derive(Debug)]
pub struct YesquelSql {
    settings: Settings,
    prepared: Mutex<Prepared>,
}

/// Whether the server knows no database of that name: SQLite has one code for
/// all that cannot be opened, and the words are Yesquel's own.
fn is_no_database(words: &str) -> bool {
    words.contains("no database")
}

impl YesquelSql {
    /// A store with these properties. Touches no data and connects to nobody.
    pub fn open(properties: &Properties) -> Result<Self, Faults> {
        Ok(YesquelSql { settings: Settings::read(properties)?, prepared: Mutex::default() })
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

    fn lock(&self) -> MutexGuard<'_, Prepared> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's refusal, with what to do about the kinds that have a remedy.
    fn refused(&self, error: &Error) -> StoreError {
        let Settings { address, opened, .. } = &self.settings;
        let words = words(error);
        // The address stands before it already.
        let words = words.strip_prefix(&format!("{address}: ")).unwrap_or(&words);
        let words = words.strip_suffix(&format!(": {opened}")).unwrap_or(words);
        let is_served = !self.is_embedded();
        let remedy = match code(error) {
            Some(ErrorCode::CannotOpen) if is_no_database(words) => {
                return self.error(format!("there is no database '{}': {}", address.name, load_first()));
            }
            Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) if is_served => {
                ". Is a Yesquel server running, and is yesquel.address right?"
            }
            _ => "",
        };
        // Some words end with a question themselves.
        let words = if remedy.is_empty() { words } else { words.trim_end_matches('.') };
        self.error(format!("{words}{remedy}"))
    }

    /// Opens the database, and sees that it is Yesquel that answers.
    fn connection(&self, creates: bool) -> Result<Connection, StoreError> {
        // Another SQLite would make a file of that name.
        if !link::is_linked() {
            return Err(self.error("another SQLite is linked into this program"));
        }
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if creates {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let refused = |error: &Error| self.refused(error);
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
        // Otherwise SQLite takes a quoted name that is no column for a string,
        // and a read of a field that there is not would succeed.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Ok(())
    }

    /// Why there is nothing to run on, if that can be told without making it.
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

/// Whether there is no folder, or nothing in it.
pub(crate) fn is_empty(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut files) => files.next().is_none(),
        // Why it cannot be read is told when it is opened.
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
        *prepared = Prepared { fields: schema.fields.clone().into(), keeper: Some(keeper) };
        checked.map_err(|refusal| match refusal {
            Refusal::Sqlite(error) => self.refused(&error),
            Refusal::Table(words) => self.error(words),
        })
    }

    fn describe(&self) -> Vec<(String, String)> {
        let Settings { address, busy_timeout, upsert, .. } = &self.settings;
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
        // In memory it would be gone, and the run comes after the load.
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
