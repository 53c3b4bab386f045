//! fjall, linked in: an embedded key-value engine in one folder, an LSM tree like
//! RocksDB.
//!
//! | verb | what it is |
//! |---|---|
//! | read | `get` |
//! | update | under the key's lock: `get`, merge of the fields, `insert` |
//! | insert | under the key's lock: `insert`, which replaces an existing record |
//! | scan | `range` from the key on: a snapshot, in byte order |
//! | delete | under the key's lock: `remove`, which does not check for the record |
//! | batch of inserts | one write batch under the locks of its keys: all or nothing |
//!
//! A table is a keyspace (a column family in other engines), a record is one value
//! encoded as in framed.rs.
//!
//! An update reads and writes the whole record. To prevent lost updates of
//! different fields of a record, a writer holds one of 1,024 locks, chosen by the
//! key's hash, from before the read until the write is in the engine. Readers take no
//! lock.
//!
//! Cost besides fjall: a lock for writers, and the encoding into the client's buffer.
//! fjall copies key and value.

use crate::{StoreInfo, framed, optional};
use fjall::{
    CompressionType, Database, Error, Keyspace, KeyspaceCreateOptions, PersistMode, config::CompressionPolicy,
};
use serval_model::{
    Client, Execution, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store, StoreError,
    java::string_hash,
    properties::{Faults, Kind, Properties, Property, PropertyTable, Reader, units},
};
use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Number of writers' locks: many more than clients, so that writers of different
/// keys seldom contend.
const LOCKS: usize = 1024;

/// fjall stores a key's length in 16 bits, and refuses empty keys.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// fjall stores a value's length in 32 bits.
const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// fjall stores the length of a keyspace's name in 8 bits.
const NAME_BYTES_MAX: usize = u8::MAX as usize;

/// File by which fjall recognises its folders.
const MARKER: &str = "version";

static PATH: Property =
    Property::serval("fjall.path", Kind::Path, "Folder of the database; the load creates it.")
        .default("serval.fjall");

static DURABILITY: Property = Property::serval(
    "fjall.durability",
    Kind::Choice(&["buffer", "sync-data", "sync-all"]),
    "Handling of the journal before a write is acknowledged. buffer: handed to the operating system; a \
     crash of the process loses nothing, a power failure loses the last writes. sync-data: fdatasync. \
     sync-all: fsync.",
)
.default("buffer");

static CACHE_SIZE: Property = Property::serval(
    "fjall.cache_size",
    Kind::Size,
    "Block cache, shared by all clients. fjall's authors recommend a fifth of the memory.",
)
.default("32MiB")
.unit("bytes");

static MEMTABLE_SIZE: Property = Property::serval(
    "fjall.memtable_size",
    Kind::Size,
    "Size of the memtable of a table that the load creates: the bytes gathered in memory before they are \
     written as a sorted file. 1 MiB or more.",
)
.default("64MiB")
.unit("bytes");

static COMPRESSION: Property = Property::serval(
    "fjall.compression",
    Kind::Choice(&["lz4", "none"]),
    "Compression of the files of a table that the load creates. lz4 leaves the two youngest levels \
     uncompressed, as fjall does by default.",
)
.default("lz4");

static WORKERS: Property = Property::serval(
    "fjall.workers",
    Kind::Count { min: 1, max: 256 },
    "Threads that write and merge files. If unset: fjall's own choice, one per processor and at most four.",
);

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: optional::FJALL.name,
    aliases: optional::FJALL.aliases,
    summary: optional::FJALL.summary,
    details: "A table is a keyspace (column family); a record is one value under its key's bytes. The \
              value is framed as in YCSB's RocksDB binding: for each field the length of its name in 4 \
              bytes, big-endian, the name, the length of its value in 4 bytes, big-endian, the value.\n\
              read: get. scan: a range from the key on; a snapshot, in byte order. insert: replaces an \
              existing record. update: reads the record and writes it back with the fields; a missing \
              record is NOT_FOUND. delete: writes a tombstone without a read; a missing record is OK. A \
              batch of inserts is one write batch: all or nothing.\n\
              A writer of a key holds one of 1,024 locks, chosen by the key's hash, so that concurrent \
              updates of one record do not lose fields; readers hold none. A client is a thread; all \
              clients share one database, which only one process can open at a time. Keys have 1 to \
              65,535 bytes.\n\
              A failure to write the journal ends the run, because fjall then accepts no more writes.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable {
        heading: "fjall",
        properties: &[&PATH, &DURABILITY, &CACHE_SIZE, &MEMTABLE_SIZE, &COMPRESSION, &WORKERS],
    },
};

/// Values of the properties.
#[derive(Debug)]
struct FjallSettings {
    path: PathBuf,
    durability: &'static str,
    cache_size: u64,
    memtable_size: u64,
    compression: &'static str,
    workers: Option<usize>,
}

/// State that all clients share.
struct FjallState {
    database: Database,
    locks: Vec<Mutex<()>>,
    /// Whether a write of the journal has failed; fjall then accepts no more writes.
    poisoned: AtomicBool,
}

impl fmt::Debug for FjallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FjallState").field("poisoned", &self.poisoned).finish_non_exhaustive()
    }
}

/// The store.
#[derive(Debug)]
pub struct Fjall {
    settings: FjallSettings,
    /// `None` until first used, and again after the last client is closed.
    shared: Mutex<Option<Arc<FjallState>>>,
}

impl Fjall {
    /// Reads the properties. Opens no file.
    pub fn open(properties: &Properties) -> Result<Self, Faults> {
        let mut reader = Reader::new(properties);
        let settings = FjallSettings {
            path: reader.path(&PATH).unwrap_or_default(),
            durability: reader.choice(&DURABILITY),
            cache_size: reader.size(&CACHE_SIZE),
            memtable_size: reader.size(&MEMTABLE_SIZE),
            compression: reader.choice(&COMPRESSION),
            workers: reader.optional_count(&WORKERS).map(|count| count as usize),
        };
        if settings.path.as_os_str().is_empty() {
            reader.fault(&PATH, "must name a folder");
        }
        if settings.memtable_size < 1 << 20 {
            reader.fault(&MEMTABLE_SIZE, "must be 1 MiB or more");
        }
        reader.finish()?;
        Ok(Fjall { settings, shared: Mutex::default() })
    }

    fn error(&self, problem: impl Into<String>) -> StoreError {
        StoreError::new(format!("{} ({})", INFO.name, self.settings.path.display()), problem)
    }

    /// Converts fjall's error, with advice for the kinds that have a remedy.
    fn refused(&self, error: &Error) -> StoreError {
        let remedy = match error {
            Error::Locked => {
                ": another process, or another run of this one, has it open; is fjall.path right?"
            }
            Error::InvalidVersion(_) => {
                ": another version of fjall wrote it; load into another folder (fjall.path)"
            }
            Error::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                ": may this user read and write the folder?"
            }
            _ => "",
        };
        self.error(format!("{}{remedy}", words(error)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<FjallState>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the database; opens it if necessary.
    fn shared(&self) -> Result<Arc<FjallState>, StoreError> {
        let mut shared = self.lock();
        if let Some(shared) = &*shared {
            return Ok(Arc::clone(shared));
        }
        let mut builder = Database::builder(&self.settings.path).cache_size(self.settings.cache_size);
        if let Some(workers) = self.settings.workers {
            builder = builder.worker_threads(workers);
        }
        let database = builder.open().map_err(|error| self.refused(&error))?;
        let locks = (0..LOCKS).map(|_| Mutex::default()).collect();
        Ok(Arc::clone(shared.insert(Arc::new(FjallState {
            database,
            locks,
            poisoned: AtomicBool::new(false),
        }))))
    }

    /// Refuses folders that are missing or hold other files, before fjall creates its
    /// files there.
    fn check_folder(&self, table: &str, purpose: Purpose) -> Result<(), StoreError> {
        let path = &self.settings.path;
        if path.join(MARKER).exists() {
            return Ok(());
        }
        if purpose == Purpose::Run {
            return Err(self.error(format!(
                "there is no such database, so no table '{table}': load it first, with 'serval load fjall' and the \
                 same fjall.path"
            )));
        }
        match std::fs::read_dir(path).map(|mut files| files.next().is_some()) {
            Ok(true) => {
                Err(self.error("the folder has files that are not fjall's: name another (fjall.path)"))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.error(format!("{error}: fjall.path must name a folder")))
            }
            _ => Ok(()),
        }
    }

    fn create_options(&self) -> KeyspaceCreateOptions {
        let options = KeyspaceCreateOptions::default().max_memtable_size(self.settings.memtable_size);
        if self.settings.compression == "none" {
            return options.data_block_compression_policy(CompressionPolicy::all(CompressionType::None));
        }
        options
    }

    /// Durability of writes beyond fjall's own.
    fn persist_mode(&self) -> Option<PersistMode> {
        match self.settings.durability {
            "sync-data" => Some(PersistMode::SyncData),
            "sync-all" => Some(PersistMode::SyncAll),
            _ => None,
        }
    }
}

impl Store for Fjall {
    type Local = ();
    type Client = FjallClient;

    fn execution(&self) -> Execution {
        Execution::Threads
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let table = schema.table.as_str();
        if table.is_empty() || table.len() > NAME_BYTES_MAX {
            return Err(self.error(format!("table: a name has 1 to {NAME_BYTES_MAX} bytes")));
        }
        self.check_folder(table, purpose)?;
        let shared = self.shared()?;
        if purpose == Purpose::Run && !shared.database.keyspace_exists(table) {
            return Err(self.error(format!(
                "the database has no table '{table}': load it first, with 'serval load fjall' and the same \
                 fjall.path and table"
            )));
        }
        let opened = shared.database.keyspace(table, || self.create_options());
        opened.map(drop).map_err(|error| self.refused(&error))
    }

    fn describe(&self) -> Vec<(String, String)> {
        let FjallSettings { path, durability, cache_size, memtable_size, compression, workers } =
            &self.settings;
        let path = std::path::absolute(path).unwrap_or(path.clone());
        let workers = workers.map_or_else(|| "fjall's choice".to_owned(), |count| count.to_string());
        [
            ("path", path.display().to_string()),
            ("durability", (*durability).to_owned()),
            ("cache_size", units::format_size(*cache_size)),
            ("memtable_size of a new table", units::format_size(*memtable_size)),
            ("compression of a new table", (*compression).to_owned()),
            ("workers", workers),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: usize) -> Result<FjallClient, StoreError> {
        Ok(FjallClient {
            shared: Some(self.shared()?),
            table: None,
            durability: self.persist_mode(),
            frame: Vec::new(),
            lost: None,
            name: format!("{} ({})", INFO.name, self.settings.path.display()),
        })
    }

    fn finish(&self) -> Result<(), StoreError> {
        let Some(shared) = self.lock().take() else { return Ok(()) };
        shared.database.persist(PersistMode::SyncAll).map_err(|error| self.refused(&error))
    }
}

/// A client.
pub struct FjallClient {
    /// `None` once closed.
    shared: Option<Arc<FjallState>>,
    /// The table of the last operation; workloads use one.
    table: Option<(String, Keyspace)>,
    /// How to sync the journal after a write, if at all.
    durability: Option<PersistMode>,
    /// Buffer for the value to write.
    frame: Vec<u8>,
    /// Why no operation can succeed any more.
    lost: Option<String>,
    name: String,
}

impl FjallClient {
    /// Runs a verb with the table's keyspace and converts its
    /// result.
    fn run(
        &mut self,
        table: &str,
        verb: impl FnOnce(&FjallState, &Keyspace, &mut Vec<u8>) -> Result<Outcome, Error>,
    ) -> Outcome {
        let Some(shared) = &self.shared else { return Outcome::error("the client is closed") };
        if self.table.as_ref().is_none_or(|(name, _)| name != table) {
            // Opening a missing keyspace would create it.
            if !shared.database.keyspace_exists(table) {
                return Outcome::failed(Status::BadRequest, format!("there is no table '{table}'"));
            }
            match shared.database.keyspace(table, KeyspaceCreateOptions::default) {
                Ok(keyspace) => self.table = Some((table.to_owned(), keyspace)),
                Err(error) => return failure(&error),
            }
        }
        let Some((_, keyspace)) = &self.table else { return Outcome::error("the table is gone") };
        verb(shared, keyspace, &mut self.frame).unwrap_or_else(|error| {
            if matches!(error, Error::Poisoned) || shared.poisoned.load(Ordering::Relaxed) {
                self.lost = Some(words(&error));
            }
            failure(&error)
        })
    }

    /// Runs a verb that writes one key under the key's lock, and makes it
    /// durable.
    fn write(
        &mut self,
        table: &str,
        key: &str,
        verb: impl FnOnce(&Keyspace, &mut Vec<u8>) -> Result<Outcome, Error>,
    ) -> Outcome {
        let durability = self.durability;
        self.run(table, |shared, keyspace, frame| {
            let held = shared.locks[lock_of(key)].lock().unwrap_or_else(PoisonError::into_inner);
            let outcome = verb(keyspace, frame)?;
            // The lock is released before waiting for the disk.
            drop(held);
            if outcome.is_ok() {
                shared.persist(durability)?;
            }
            Ok(outcome)
        })
    }
}

impl FjallState {
    fn persist(&self, durability: Option<PersistMode>) -> Result<(), Error> {
        let Some(mode) = durability else { return Ok(()) };
        // A failed journal never recovers.
        self.database.persist(mode).inspect_err(|_| self.poisoned.store(true, Ordering::Relaxed))
    }
}

impl Client for FjallClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        if !can_be(key) {
            return Outcome::NOT_FOUND;
        }
        self.run(table, |_, keyspace, _| match keyspace.get(key)? {
            None => Ok(Outcome::NOT_FOUND),
            Some(value) => Ok(framed::answer(key.as_bytes(), &value, fields, reply.begin_record())),
        })
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        if !can_be(key) {
            return Outcome::NOT_FOUND;
        }
        self.write(table, key, |keyspace, frame| {
            let Some(old) = keyspace.get(key)? else { return Ok(Outcome::NOT_FOUND) };
            let merged = framed::merge(frame, key.as_bytes(), &old, fields);
            if merged.is_ok() { put(keyspace, key, frame) } else { Ok(merged) }
        })
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        if !can_be(key) {
            return no_key(key);
        }
        self.write(table, key, |keyspace, frame| {
            framed::encode(frame, record);
            put(keyspace, key, frame)
        })
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        self.run(table, |_, keyspace, _| {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            for found in keyspace.range(start_key..).take(count) {
                let (key, value) = found.into_inner()?;
                let outcome = framed::answer(&key, &value, fields, reply.begin_record());
                if !outcome.is_ok() {
                    return Ok(outcome);
                }
            }
            Ok(Outcome::OK)
        })
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        if !can_be(key) {
            return Outcome::OK;
        }
        self.write(table, key, |keyspace, _| {
            keyspace.remove(key)?;
            Ok(Outcome::OK)
        })
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        if let Some((key, _)) = records.iter().find(|(key, _)| !can_be(key)) {
            return no_key(key);
        }
        let durability = self.durability;
        self.run(table, |shared, keyspace, frame| {
            let mut batch =
                shared.database.batch().durability(Some(durability.unwrap_or(PersistMode::Buffer)));
            for (key, record) in records {
                framed::encode(frame, record);
                if frame.len() > VALUE_BYTES_MAX {
                    return Ok(too_large(frame.len()));
                }
                batch.insert(keyspace, key.as_str(), frame.as_slice());
            }
            // Each lock once, in a global order, to avoid deadlock.
            let mut numbers: Vec<usize> = records.iter().map(|(key, _)| lock_of(key)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let lock = |number: usize| shared.locks[number].lock().unwrap_or_else(PoisonError::into_inner);
            let held: Vec<MutexGuard<'_, ()>> = numbers.into_iter().map(lock).collect();
            batch.commit()?;
            drop(held);
            Ok(Outcome::OK)
        })
    }

    fn lost(&self) -> Option<StoreError> {
        let problem = self.lost.as_ref()?;
        Some(StoreError::new(
            &self.name,
            format!("{problem}; it takes no more writes until it is opened again"),
        ))
    }

    async fn close(&mut self) -> Outcome {
        self.table = None;
        self.shared = None;
        Outcome::OK
    }
}

/// Returns the number of a key's lock.
fn lock_of(key: &str) -> usize {
    string_hash(key) as u32 as usize % LOCKS
}

/// Returns whether a key is valid.
fn can_be(key: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len())
}

fn no_key(key: &str) -> Outcome {
    let words = format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len());
    Outcome::failed(Status::BadRequest, words)
}

fn too_large(bytes: usize) -> Outcome {
    let words = format!("a record of {bytes} bytes is more than the {VALUE_BYTES_MAX} that a value may have");
    Outcome::failed(Status::BadRequest, words)
}

fn put(keyspace: &Keyspace, key: &str, frame: &[u8]) -> Result<Outcome, Error> {
    if frame.len() > VALUE_BYTES_MAX {
        return Ok(too_large(frame.len()));
    }
    keyspace.insert(key, frame)?;
    Ok(Outcome::OK)
}

/// Converts fjall's error to an outcome.
fn failure(error: &Error) -> Outcome {
    let status = match error {
        Error::Io(error) if error.kind() == io::ErrorKind::StorageFull => Status::ServiceUnavailable,
        Error::Poisoned => Status::ServiceUnavailable,
        _ => Status::Error,
    };
    Outcome::failed(status, words(error))
}

fn words(error: &Error) -> String {
    match error {
        Error::Io(error) => error.to_string(),
        Error::Locked => "the database is locked".to_owned(),
        Error::Poisoned => "a write of the journal has failed".to_owned(),
        Error::InvalidVersion(_) => "the database's version is not known".to_owned(),
        error => format!("{error:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_lock() {
        // Java's smallest number among them.
        for key in ["", "user1", "polygenelubricants", "\u{1f600}"] {
            assert!(lock_of(key) < LOCKS);
        }
    }
}
