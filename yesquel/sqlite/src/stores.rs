//! Stores that the connections of a process share.

use crate::{
    address::{DatabaseAddress, DatabaseLocation},
    code::ResultCode,
    last_error,
    row_numbers::RowNumbers,
    secrets::Secrets,
    size::{DatabaseSize, SizeEstimate},
};
use rustc_hash::FxHashMap;
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use yesquel::{Error, LogOptions, Store, fork};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum StoreKey {
    Memory(String),
    Folder(PathBuf),
    Server(yesquel::Address, Option<Duration>, Secrets),
}

/// Open stores of the process. A folder can be opened only once, and connections find it here. An
/// entry disappears with the last connection.
type OpenStores = HashMap<StoreKey, Weak<SharedStore>>;

/// Number of generations of forked processes with separate tables; then they are reused.
const PROCESSES: usize = 64;

fn open_stores() -> MutexGuard<'static, Option<OpenStores>> {
    // In a forked child no thread of its parent exists to release a lock.
    static OPEN: [Mutex<Option<OpenStores>>; PROCESSES] = [const { Mutex::new(None) }; PROCESSES];
    let own = &OPEN[fork::generation() as usize % PROCESSES];
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Store with the state that the connections of a process share.
#[derive(Debug)]
pub(crate) struct SharedStore {
    store: Store,
    rows: Mutex<RowNumbers>,
    /// Sizes of databases by their maps of meta values.
    sizes: Mutex<FxHashMap<u64, SizeEstimate>>,
    /// Whether a size was ever asked for; otherwise commits need not note what they add.
    has_sizes: AtomicBool,
    /// Fork generation of the process that opened it.
    generation: u32,
}

impl SharedStore {
    fn new(store: Store) -> Arc<SharedStore> {
        Arc::new(SharedStore {
            store,
            rows: Mutex::default(),
            sizes: Mutex::default(),
            has_sizes: AtomicBool::new(false),
            generation: fork::generation(),
        })
    }
}

/// Reference to a store that connections share.
#[derive(Debug, Clone)]
pub(crate) struct StoreRef(Option<Arc<SharedStore>>);

impl StoreRef {
    fn common(&self) -> &SharedStore {
        // Only the drop takes it out.
        match &self.0 {
            Some(common) => common,
            None => unreachable!("a store after its end"),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.common().store
    }

    /// Returns the row numbers of the process.
    pub(crate) fn rows(&self) -> MutexGuard<'_, RowNumbers> {
        self.common().rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the estimates of sizes, if there are any.
    pub(crate) fn sizes(&self) -> Option<MutexGuard<'_, FxHashMap<u64, SizeEstimate>>> {
        let common = self.common();
        let is_asked = common.has_sizes.load(Ordering::Relaxed);
        is_asked.then(|| common.sizes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the size of the database with these meta values, unless the server must be asked.
    pub(crate) fn known_size(&self, cookies: u64, now: Instant) -> Option<DatabaseSize> {
        self.sizes()?.get(&cookies)?.size(now)
    }

    /// Notes a size that was requested at a time and has just been received.
    pub(crate) fn note_size(&self, cookies: u64, size: DatabaseSize, requested: Instant) {
        self.common().has_sizes.store(true, Ordering::Relaxed);
        if let Some(mut sizes) = self.sizes() {
            sizes.insert(cookies, SizeEstimate::new(size, requested, Instant::now()));
        }
    }

    /// Returns whether the store belongs to the parent of this process.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.common().generation != fork::generation()
    }

    /// Fails in a child process, which must not use its parent's connection.
    pub(crate) fn check_process(&self) -> Result<(), ResultCode> {
        if !self.is_of_parent() {
            return Ok(());
        }
        let words = "the connection was opened before fork(), by another process, which has it: open one in this process";
        last_error::set(ResultCode::MISUSE, words);
        Err(ResultCode::MISUSE)
    }

    pub(crate) fn is(&self, other: &StoreRef) -> bool {
        matches!((&self.0, &other.0), (Some(own), Some(other)) if Arc::ptr_eq(own, other))
    }
}

impl Drop for StoreRef {
    fn drop(&mut self) {
        if self.is_of_parent() {
            // Its threads do not exist here, and its files are the parent's.
            std::mem::forget(self.0.take());
            return;
        }
        // The next opener of the folder must find it either shared or closed.
        let _opening = open_stores();
        self.0 = None;
    }
}

/// Returns a store that is already open.
fn found(open: &mut Option<OpenStores>, which: &StoreKey) -> Option<StoreRef> {
    let store = open.get_or_insert_default().get(which).and_then(Weak::upgrade)?;
    // Another generation may have used this table before.
    (store.generation == fork::generation()).then_some(StoreRef(Some(store)))
}

/// Returns the store of an address.
pub(crate) fn store_of(address: &DatabaseAddress) -> Result<StoreRef, Error> {
    let shared = shared_of(address)?;
    if let Some(bytes) = address.bulk_load_bytes {
        shared.store().set_bulk_load_bytes(bytes);
    }
    Ok(shared)
}

fn shared_of(address: &DatabaseAddress) -> Result<StoreRef, Error> {
    let which = match &address.location {
        DatabaseLocation::Memory => return Ok(StoreRef(Some(SharedStore::new(Store::in_memory()?)))),
        DatabaseLocation::SharedMemory => StoreKey::Memory(address.name.clone()),
        DatabaseLocation::Folder(folder) => {
            let full = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
            StoreKey::Folder(full.canonicalize().unwrap_or(full))
        }
        DatabaseLocation::Server(server) => {
            StoreKey::Server(server.clone(), address.timeout, address.secrets.clone())
        }
    };
    let mut open = open_stores();
    if let Some(store) = found(&mut open, &which) {
        return Ok(store);
    }
    let store = match &which {
        StoreKey::Memory(_) => Store::in_memory()?,
        StoreKey::Folder(folder) => {
            Store::open_with(folder, LogOptions { durability: address.durability, ..LogOptions::default() })?
        }
        StoreKey::Server(server, timeout, secrets) => {
            // Do not block others on a slow server.
            drop(open);
            let mut options = secrets.options()?;
            if let Some(timeout) = timeout {
                options.timeout = *timeout;
                options.connect_timeout = *timeout;
            }
            let connected = Store::connect(server, options)?;
            open = open_stores();
            if let Some(store) = found(&mut open, &which) {
                // Another thread was first. The new connection must not be dropped under the lock.
                drop(open);
                drop(connected);
                return Ok(store);
            }
            connected
        }
    };
    let store = SharedStore::new(store);
    let open = open.get_or_insert_default();
    open.retain(|_, store| store.strong_count() > 0);
    // The full name of a new folder is known only now.
    let which = match which {
        StoreKey::Folder(folder) => StoreKey::Folder(folder.canonicalize().unwrap_or(folder)),
        other => other,
    };
    open.insert(which, Arc::downgrade(&store));
    Ok(StoreRef(Some(store)))
}
