//! Stores that the connections of a process share.

use crate::{
    address::{Address, Place},
    code::Code,
    rows::Rows,
    secrets::Secrets,
    told,
};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use yesquel::{Error, Options, Store, fork};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Which {
    Memory(String),
    Folder(PathBuf),
    Server(yesquel::Address, Option<Duration>, Secrets),
}

/// One process has a folder once, whatever its connections: this is where they
/// find it. An entry goes with the last connection.
type Open = HashMap<Which, Weak<Common>>;

/// Processes that were forked, one from the other, and have each their own of
/// these; then from the first one on again.
const PROCESSES: usize = 64;

fn open_stores() -> MutexGuard<'static, Option<Open>> {
    // In a child none of its parent's threads is there to let go of a lock.
    static OPEN: [Mutex<Option<Open>>; PROCESSES] = [const { Mutex::new(None) }; PROCESSES];
    let own = &OPEN[fork::generation() as usize % PROCESSES];
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store, and what the connections of a process know of it together.
#[derive(Debug)]
pub(crate) struct Common {
    store: Store,
    rows: Mutex<Rows>,
    /// The process that has opened it.
    generation: u32,
}

impl Common {
    fn new(store: Store) -> Arc<Common> {
        Arc::new(Common { store, rows: Mutex::default(), generation: fork::generation() })
    }
}

/// A store that others of the process may have too.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Option<Arc<Common>>);

impl Shared {
    fn common(&self) -> &Common {
        // It is taken out by the drop only.
        match &self.0 {
            Some(common) => common,
            None => unreachable!("a store after its end"),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.common().store
    }

    /// The numbers of rows that the process has.
    pub(crate) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.common().rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is the parent's, of which this process is a child.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.common().generation != fork::generation()
    }

    /// A child is told that the connection is not its own.
    pub(crate) fn check_process(&self) -> Result<(), Code> {
        if !self.is_of_parent() {
            return Ok(());
        }
        let words = "the connection was opened before fork(), by another process, which has it: open one in this process";
        told::say(Code::MISUSE, words);
        Err(Code::MISUSE)
    }

    pub(crate) fn is(&self, other: &Shared) -> bool {
        matches!((&self.0, &other.0), (Some(own), Some(other)) if Arc::ptr_eq(own, other))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.is_of_parent() {
            // Its threads are not here, and its files are the parent's.
            std::mem::forget(self.0.take());
            return;
        }
        // Whoever opens the folder next must find it either shared or closed.
        let _opening = open_stores();
        self.0 = None;
    }
}

/// One that is open already.
fn found(open: &mut Option<Open>, which: &Which) -> Option<Shared> {
    let store = open.get_or_insert_default().get(which).and_then(Weak::upgrade)?;
    // Another process may have had its place.
    (store.generation == fork::generation()).then_some(Shared(Some(store)))
}

/// The store of an address.
pub(crate) fn store_of(address: &Address) -> Result<Shared, Error> {
    let shared = shared_of(address)?;
    if let Some(bytes) = address.ahead {
        shared.store().set_ahead_bytes(bytes);
    }
    Ok(shared)
}

fn shared_of(address: &Address) -> Result<Shared, Error> {
    let which = match &address.place {
        Place::Memory => return Ok(Shared(Some(Common::new(Store::in_memory()?)))),
        Place::SharedMemory => Which::Memory(address.name.clone()),
        Place::Folder(folder) => {
            let full = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
            Which::Folder(full.canonicalize().unwrap_or(full))
        }
        Place::Server(server) => Which::Server(server.clone(), address.timeout, address.secrets.clone()),
    };
    let mut open = open_stores();
    if let Some(store) = found(&mut open, &which) {
        return Ok(store);
    }
    let store = match &which {
        Which::Memory(_) => Store::in_memory()?,
        Which::Folder(folder) => {
            Store::open_with(folder, Options { durability: address.durability, ..Options::default() })?
        }
        Which::Server(server, timeout, secrets) => {
            // Others do not wait for a server that is slow to answer, or does not.
            drop(open);
            let mut options = secrets.options()?;
            if let Some(timeout) = timeout {
                options.timeout = *timeout;
                options.connect_timeout = *timeout;
            }
            let connected = Store::connect(server, options)?;
            open = open_stores();
            if let Some(store) = found(&mut open, &which) {
                // Another thread was first; this connection ends, and not meanwhile.
                drop(open);
                drop(connected);
                return Ok(store);
            }
            connected
        }
    };
    let store = Common::new(store);
    let open = open.get_or_insert_default();
    open.retain(|_, store| store.strong_count() > 0);
    // A folder that was just made has its full name only now.
    let which = match which {
        Which::Folder(folder) => Which::Folder(folder.canonicalize().unwrap_or(folder)),
        other => other,
    };
    open.insert(which, Arc::downgrade(&store));
    Ok(Shared(Some(store)))
}
