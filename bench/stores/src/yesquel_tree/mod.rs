//! Yesquel's ordered maps, embedded or at a server, by the public crate
//! `yesquel`.
//!
//! | verb | what it is |
//! |---|---|
//! | read | `get` |
//! | update | a transaction: `get`, merge of the fields, `put` |
//! | insert | a transaction: `insert`, which fails for an existing key |
//! | scan | `range` from the key on: a snapshot, in byte order |
//! | delete | a transaction: `delete`, which does not check for the record |
//! | batch of inserts | transactions of up to a megabyte |
//!
//! A table is a map, a record is one value encoded as in framed.rs. `Database::run` retries
//! a transaction after a write conflict.
//!
//! A client is a thread. All threads share one `Database` and hence one connection, which
//! combines their requests; this is the intended use of Yesquel.

mod client;
mod settings;

pub use client::YesquelTreeClient;

use crate::{StoreInfo, yesquel_sql::is_empty};
use serval_model::{
    Execution, Purpose, Schema, Store, StoreError,
    properties::{Faults, Properties, PropertyTable},
};
use settings::{TreeLocation, YesquelTreeSettings};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use yesquel::{ConnectError, Database, Denial, Error};

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "yesquel-tree",
    aliases: &[],
    summary: "Yesquel's ordered maps with transactions: embedded (in memory or in a folder) or at a server",
    details: "A table is a map of the database; a record is one value under its key's bytes. The value is \
              framed as in YCSB's RocksDB binding: for each field the length of its name in 4 bytes, \
              big-endian, the name, the length of its value in 4 bytes, big-endian, the value.\n\
              read: get. scan: a range from the key on; a snapshot, in byte order. insert: a transaction; \
              an existing key is an ERROR. update: a transaction that reads the record and writes it back \
              with the fields; a missing record is NOT_FOUND. delete: a transaction without a read; a \
              missing record is OK. A batch of inserts is one transaction: all or nothing; a batch of \
              more than 1 MiB is several. A transaction that loses against another one is retried, at \
              most 100 times, then the operation is SERVICE_UNAVAILABLE. A record has at most 1 GiB, \
              including names and lengths.\n\
              If yesquel-tree.address is not set, the storage server runs inside Serval: in the folder \
              yesquel-tree.path, which only one process can open at a time, or in memory, where load and \
              run must be one command ('serval bench'). 'yesquel serve' starts a server. A client is a \
              thread; all clients share one connection. A lost connection fails the operations in flight \
              on it and is reopened by the next operation. Inside Serval a failure of the disk ends the \
              run.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable { heading: "yesquel-tree", properties: settings::ALL },
};

/// The store.
#[derive(Debug)]
pub struct YesquelTree {
    settings: YesquelTreeSettings,
    /// The database's location, for messages.
    place: String,
    /// `None` until first used, and after the last client is closed, unless it is in
    /// memory.
    database: Mutex<Option<Database>>,
    /// Whether a client has reported a failure of the disk.
    is_lost: Arc<AtomicBool>,
}

impl YesquelTree {
    /// Reads the properties. Neither opens files nor connects.
    pub fn open(properties: &Properties) -> Result<Self, Faults> {
        let settings = YesquelTreeSettings::read(properties)?;
        let place = match &settings.place {
            TreeLocation::Memory => "in memory".to_owned(),
            TreeLocation::Folder(path, _) => path.display().to_string(),
            TreeLocation::Server(address, _) => address.to_string(),
        };
        Ok(YesquelTree { settings, place, database: Mutex::default(), is_lost: Arc::default() })
    }

    fn name(&self) -> String {
        format!("{} ({})", INFO.name, self.place)
    }

    fn error(&self, problem: impl Into<String>) -> StoreError {
        StoreError::new(self.name(), problem)
    }

    /// Converts Yesquel's error, with advice.
    fn refused(&self, error: &Error) -> StoreError {
        let words = error.to_string();
        // The error contains the location already.
        let words = words.strip_prefix(&format!("{}: ", self.place)).unwrap_or(&words);
        let advice = match error {
            Error::Connect(ConnectError::Denied { denial: Denial::Credential, .. }) => {
                "Check yesquel-tree.credential_file"
            }
            Error::Connect(ConnectError::Denied { .. }) => {
                return self.error(format!("cannot connect: {words}"));
            }
            Error::Connect(ConnectError::Certificate { .. }) => {
                "Do yesquel-tree.tls.roots and the host of yesquel-tree.address fit the server's certificate?"
            }
            Error::Connect(_) => {
                "Is a Yesquel server running, is yesquel-tree.address right, and yesquel-tree.tls as the server wants \
                 it?"
            }
            Error::InUse(_) | Error::Damaged(_) | Error::Denied(_) | Error::Open(_) => {
                return self.error(format!("{words} (yesquel-tree.path)"));
            }
            _ => return self.error(words),
        };
        // Some messages end with a question themselves.
        let stop = if words.ends_with('?') { "" } else { "." };
        self.error(format!("cannot connect: {words}{stop} {advice}"))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Database>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the database; opens it if necessary.
    fn database(&self, purpose: Purpose) -> Result<Database, StoreError> {
        let mut known = self.lock();
        if let Some(database) = &*known {
            return Ok(database.clone());
        }
        let store = match (&self.settings.place, purpose) {
            (TreeLocation::Memory, Purpose::Run) => {
                return Err(self.error(
                    "this store forgets everything when Serval ends, so load and run must be one command, unless \
                     yesquel-tree.path or yesquel-tree.address say where records stay",
                ));
            }
            (TreeLocation::Memory, Purpose::Load) => yesquel::Store::in_memory(),
            // A run creates nothing, such as a folder.
            (TreeLocation::Folder(path, _), Purpose::Run) if is_empty(path) => {
                return Err(self.error(format!("there is nothing: {}", self.load_first())));
            }
            (TreeLocation::Folder(path, options), _) => yesquel::Store::open_with(path, *options),
            (TreeLocation::Server(addresses, options), _) => {
                yesquel::Store::connect_any(addresses, options.clone())
            }
        };
        let store = store.map_err(|error| self.refused(&error))?;
        let name = &self.settings.database;
        let database = match purpose {
            Purpose::Load => store.database_or_create(name),
            Purpose::Run => store.database(name),
        };
        let database = database.map_err(|error| match error {
            Error::NoDatabase(name) => {
                self.error(format!("there is no database '{name}': {}", self.load_first()))
            }
            Error::Name { .. } => self.error(format!("yesquel-tree.database: {error}")),
            error => self.refused(&error),
        })?;
        Ok(known.insert(database).clone())
    }

    fn load_first(&self) -> String {
        let property = match self.settings.place {
            TreeLocation::Server(..) => "yesquel-tree.address",
            _ => "yesquel-tree.path",
        };
        format!(
            "load it first, with 'serval load {}' and the same {property}, yesquel-tree.database and table",
            INFO.name
        )
    }
}

impl Store for YesquelTree {
    type Local = ();
    type Client = YesquelTreeClient;

    fn execution(&self) -> Execution {
        Execution::Threads
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let database = self.database(purpose)?;
        let table = schema.table.as_str();
        let map = match purpose {
            Purpose::Load => database.map(table).map(Some),
            Purpose::Run => database.existing_map(table),
        };
        match map {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(self.error(format!(
                "the database '{}' has no table '{table}': {}",
                database.name(),
                self.load_first()
            ))),
            Err(error @ Error::Name { .. }) => Err(self.error(format!("table: {error}"))),
            Err(error) => Err(self.refused(&error)),
        }
    }

    fn describe(&self) -> Vec<(String, String)> {
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let mut facts = match &self.settings.place {
            TreeLocation::Memory => vec![fact("place", "in memory, inside Serval".to_owned())],
            TreeLocation::Folder(path, options) => {
                let path = std::path::absolute(path).unwrap_or(path.clone());
                vec![
                    fact("path", path.display().to_string()),
                    fact("durability", options.durability.to_string()),
                ]
            }
            TreeLocation::Server(address, options) => {
                vec![fact("address", address.to_string()), fact("tls", options.tls.is_some().to_string())]
            }
        };
        facts.push(fact("database", self.settings.database.clone()));
        let database = self.lock().clone();
        // A server that does not report its status may still serve.
        if let (TreeLocation::Server(..), Some(status)) =
            (&self.settings.place, database.and_then(|database| database.store().status().ok()))
        {
            facts.push(fact("server version", status.version));
            facts.push(fact("durability", status.durability));
        }
        facts
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: usize) -> Result<YesquelTreeClient, StoreError> {
        let database = self.database(Purpose::Run)?;
        // A server may restart.
        let is_embedded = !matches!(self.settings.place, TreeLocation::Server(..));
        let is_lost = is_embedded.then(|| Arc::clone(&self.is_lost));
        Ok(YesquelTreeClient::new(database, is_lost, self.name()))
    }

    fn finish(&self) -> Result<(), StoreError> {
        if matches!(self.settings.place, TreeLocation::Memory) {
            return Ok(());
        }
        let Some(database) = self.lock().take() else { return Ok(()) };
        // Asynchronous writes may have failed. A failure that a client has reported must
        // not replace the results.
        if !matches!(self.settings.place, TreeLocation::Folder(..)) || self.is_lost.load(Relaxed) {
            return Ok(());
        }
        let status = database.store().status().map_err(|error| self.refused(&error))?;
        match (status.log.failed, status.log.full) {
            (Some(why), _) => Err(self.error(format!("the disk has failed: {why}"))),
            (None, Some(full)) => Err(self.error(format!("the disk is full: {}", full.error))),
            (None, None) => Ok(()),
        }
    }
}
