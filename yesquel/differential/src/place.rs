//! Where the trees are, and the names that a script gets for them.

use std::{
    collections::BTreeMap,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};
use tempfile::TempDir;
use yesquel::{Address, ListenOptions, LogOptions, Server, Settings, SocketOptions, Store};

/// Where the trees of a script are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In memory.
    Memory,
    /// In a folder.
    Folder,
    /// At a server, by its socket.
    Served,
    /// No trees: SQLite's own b-trees in memory, which ours must leave as they
    /// are.
    Plain,
}

/// Trees of a database that are not of SQL: its schema and its cookies.
pub const OWN_TREES: usize = 2;

/// A server for all scripts of the process.
struct Served {
    _server: Server,
    store: Store,
    socket: String,
    _folder: TempDir,
}

fn folder() -> TempDir {
    match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => panic!("no folder can be made: {error}"),
    }
}

static SERVED: LazyLock<Served> = LazyLock::new(|| {
    let folder = folder();
    let address = Address::Unix(folder.path().join("y.sock"));
    let listen = ListenOptions { addresses: vec![address.clone()], ..ListenOptions::default() };
    let started = Server::start(None, Settings::default(), LogOptions::default(), listen)
        .and_then(|server| Ok((server, Store::connect(&address, SocketOptions::default())?)));
    match started {
        Ok((server, store)) => {
            let socket = folder.path().join("y.sock").display().to_string();
            Served { _server: server, store, socket, _folder: folder }
        }
        Err(error) => panic!("no server can be started: {error}"),
    }
});

/// The names of a script's databases.
pub struct Places {
    place: Place,
    folder: TempDir,
    /// Its number among the scripts of the process.
    number: u64,
}

impl Places {
    /// Names for a script.
    pub fn new(place: Place) -> Places {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Places { place, folder: folder(), number: NUMBER.fetch_add(1, Ordering::Relaxed) }
    }

    /// Whether there are trees.
    pub(crate) fn has_trees(&self) -> bool {
        self.place != Place::Plain
    }

    /// Whether what was committed is there when it is opened again.
    pub(crate) fn lasts(&self) -> bool {
        matches!(self.place, Place::Folder | Place::Served)
    }

    fn database(&self, name: &str) -> String {
        format!("{name}{}", self.number)
    }

    /// For each placeholder its name: the database, a plain file to attach, and
    /// a second database of trees.
    pub(crate) fn ours(&self) -> BTreeMap<&'static str, String> {
        let at = |file: &str| self.folder.path().join(file).display().to_string();
        let trees = |name: &str| match self.place {
            Place::Memory => "file:yesquel:".to_owned(),
            Place::Plain => ":memory:".to_owned(),
            Place::Folder => format!("file:yesquel:{}?durability=none&database={name}", at("store")),
            // What a transaction makes itself is sent ahead of its commit there, as it
            // would be if it were large.
            Place::Served => {
                format!("file:yesquel://{}/{}?ahead=300", SERVED.socket, self.database(name))
            }
        };
        BTreeMap::from([("{main}", trees("main")), ("{tree}", trees("tree")), ("{file}", at("ours-file.db"))])
    }

    pub(crate) fn stock(&self) -> BTreeMap<&'static str, String> {
        let at = |file: &str| self.folder.path().join(file).display().to_string();
        let main = if self.lasts() { at("stock-main.db") } else { ":memory:".to_owned() };
        let tree = if self.lasts() { at("stock-tree.db") } else { ":memory:".to_owned() };
        BTreeMap::from([("{main}", main), ("{tree}", tree), ("{file}", at("stock-file.db"))])
    }

    /// How many trees the main database has at the server.
    pub(crate) fn trees(&self) -> Option<usize> {
        if self.place != Place::Served {
            return None;
        }
        match SERVED.store.database(&self.database("main")).and_then(|database| database.maps()) {
            Ok(maps) => Some(maps.len()),
            Err(error) => panic!("the server says: {error}"),
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        if self.place == Place::Served {
            for name in ["main", "tree"] {
                // It may not have been made.
                let _ = SERVED.store.drop_database(&self.database(name));
            }
        }
    }
}
