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
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel::{Addresses, Error, LogOptions, SocketOptions, Store, fork};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum StoreKey {
    Memory(String),
    Folder(PathBuf),
    /// With its timeout, secrets, and whether the process watches what it reads.
    Server(Addresses, Option<Duration>, Secrets, bool),
}

/// Open stores of the process. A folder can be opened only once, and connections find it here. An
/// entry disappears with the last connection, that of a server a while later.
#[derive(Default)]
struct OpenStores {
    known: HashMap<StoreKey, Weak<SharedStore>>,
    /// Stores without connections, and since when.
    idle: Vec<(Instant, Arc<SharedStore>)>,
    /// Whether a thread closes idle stores.
    has_closer: bool,
}

/// How long the connection to a server is kept after the last connection of SQLite. Applications
/// that open one for each request then find what the process has cached.
const IDLE_TIME: Duration = Duration::from_secs(5);

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
    /// Number of commits of its connections.
    commits: AtomicU64,
    /// Sizes of databases by their maps of meta values.
    sizes: Mutex<FxHashMap<u64, SizeEstimate>>,
    /// Whether a size was ever asked for; otherwise commits need not note what they add.
    has_sizes: AtomicBool,
    /// Fork generation of the process that opened it.
    generation: u32,
    /// Whether it is kept for a while without connections.
    may_be_idle: bool,
}

impl SharedStore {
    fn new(store: Store, may_be_idle: bool) -> Arc<SharedStore> {
        Arc::new(SharedStore {
            store,
            rows: Mutex::default(),
            commits: AtomicU64::new(0),
            sizes: Mutex::default(),
            has_sizes: AtomicBool::new(false),
            generation: fork::generation(),
            may_be_idle,
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

    /// Returns the time of a monotonic clock.
    pub(crate) fn uptime(&self) -> Duration {
        self.store().uptime()
    }

    /// Returns the row numbers of the process.
    pub(crate) fn rows(&self) -> MutexGuard<'_, RowNumbers> {
        self.common().rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a commit.
    pub(crate) fn note_commit(&self) {
        self.common().commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of commits by connections of this process. A commit that a thread knows
    /// of is included.
    pub(crate) fn commits(&self) -> u64 {
        self.common().commits.load(Ordering::Relaxed)
    }

    /// Returns the estimates of sizes, if there are any.
    pub(crate) fn sizes(&self) -> Option<MutexGuard<'_, FxHashMap<u64, SizeEstimate>>> {
        let common = self.common();
        let is_asked = common.has_sizes.load(Ordering::Relaxed);
        is_asked.then(|| common.sizes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the size of the database with these meta values, unless the server must be asked.
    pub(crate) fn known_size(&self, cookies: u64) -> Option<DatabaseSize> {
        self.sizes()?.get(&cookies)?.size(self.uptime())
    }

    /// Notes a size that was requested at an [uptime](Self::uptime) and has just been received.
    pub(crate) fn note_size(&self, cookies: u64, size: DatabaseSize, requested: Duration) {
        self.common().has_sizes.store(true, Ordering::Relaxed);
        if let Some(mut sizes) = self.sizes() {
            sizes.insert(cookies, SizeEstimate::new(size, requested, self.uptime()));
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
        let mut open = open_stores();
        let Some(store) = self.0.take() else { return };
        if store.may_be_idle && Arc::strong_count(&store) == 1 {
            open.get_or_insert_default().keep_idle(store);
        }
    }
}

impl OpenStores {
    /// Returns a store that is already open.
    fn find(&mut self, which: &StoreKey) -> Option<StoreRef> {
        let store = self.known.get(which).and_then(Weak::upgrade)?;
        // Another generation may have used this table before.
        if store.generation != fork::generation() {
            return None;
        }
        if let Some(place) = self.idle.iter().position(|(_, idle)| Arc::ptr_eq(idle, &store)) {
            self.idle.swap_remove(place);
            if !store.store.is_connected() {
                // The server may have restarted: connect anew, and report if that fails.
                self.known.remove(which);
                return None;
            }
        }
        Some(StoreRef(Some(store)))
    }

    /// Keeps a store without connections for a while.
    fn keep_idle(&mut self, store: Arc<SharedStore>) {
        if !self.has_closer {
            let thread = thread::Builder::new().name("yesquel-idle".to_owned());
            self.has_closer = thread.spawn(close_idle).is_ok();
        }
        if self.has_closer {
            self.idle.push((Instant::now(), store));
        }
    }
}

/// Closes idle stores when their time is over, until there are none.
fn close_idle() {
    loop {
        thread::sleep(IDLE_TIME);
        let mut open = open_stores();
        let open_stores = open.get_or_insert_default();
        let is_over = |(since, _): &mut (Instant, Arc<SharedStore>)| since.elapsed() >= IDLE_TIME;
        let gone: Vec<_> = open_stores.idle.extract_if(.., is_over).collect();
        open_stores.has_closer = !open_stores.idle.is_empty();
        let ends = !open_stores.has_closer;
        drop(open);
        // Closing may take a moment.
        drop(gone);
        if ends {
            return;
        }
    }
}

/// Connects to servers in the program's own way.
#[doc(hidden)]
pub type Connector = fn(&Addresses, SocketOptions) -> Result<Store, Error>;

static CONNECTOR: OnceLock<Connector> = OnceLock::new();

/// Sets how this process connects to servers from now on, instead of by sockets: for simulations. Such
/// a store is closed with its last connection. Returns whether this was the first call, which counts.
#[doc(hidden)]
pub fn set_connector(connector: Connector) -> bool {
    CONNECTOR.set(connector).is_ok()
}

fn connect(servers: &Addresses, options: SocketOptions) -> Result<Store, Error> {
    match CONNECTOR.get() {
        Some(connector) => connector(servers, options),
        None => Store::connect_any(servers, options),
    }
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
        DatabaseLocation::Memory => return Ok(StoreRef(Some(SharedStore::new(Store::in_memory()?, false)))),
        DatabaseLocation::SharedMemory => StoreKey::Memory(address.name.clone()),
        DatabaseLocation::Folder(folder) => {
            let full = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
            StoreKey::Folder(full.canonicalize().unwrap_or(full))
        }
        DatabaseLocation::Server(servers) => {
            StoreKey::Server(servers.clone(), address.timeout, address.secrets.clone(), address.watches)
        }
    };
    let mut open = open_stores();
    if let Some(store) = open.get_or_insert_default().find(&which) {
        return Ok(store);
    }
    let store = match &which {
        StoreKey::Memory(_) => Store::in_memory()?,
        StoreKey::Folder(folder) => {
            Store::open_with(folder, LogOptions { durability: address.durability, ..LogOptions::default() })?
        }
        StoreKey::Server(servers, timeout, secrets, watches) => {
            // Do not block others on a slow server.
            drop(open);
            let mut options = secrets.options()?;
            if let Some(timeout) = timeout {
                options.timeout = *timeout;
                options.connect_timeout = *timeout;
            }
            let connected = connect(servers, options)?;
            connected.set_watching(*watches);
            open = open_stores();
            if let Some(store) = open.get_or_insert_default().find(&which) {
                // Another thread was first. The new connection must not be dropped under the lock.
                drop(open);
                drop(connected);
                return Ok(store);
            }
            connected
        }
    };
    let store = SharedStore::new(store, matches!(which, StoreKey::Server(..)) && CONNECTOR.get().is_none());
    let open = &mut open.get_or_insert_default().known;
    open.retain(|_, store| store.strong_count() > 0);
    // The full name of a new folder is known only now.
    let which = match which {
        StoreKey::Folder(folder) => StoreKey::Folder(folder.canonicalize().unwrap_or(folder)),
        other => other,
    };
    open.insert(which, Arc::downgrade(&store));
    Ok(StoreRef(Some(store)))
}
