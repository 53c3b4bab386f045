//! Locations of the trees, and the database names of a script.

use std::{
    collections::BTreeMap,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};
use tempfile::TempDir;
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server, SocketOptions, Store};

/// Location of a script's trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptTrees {
    /// In memory.
    Memory,
    /// In a folder.
    Folder,
    /// At a server on a Unix socket.
    Served,
    /// No trees: SQLite's own b-trees in memory, whose behaviour must be unchanged.
    Plain,
}

/// Trees of a database that are not SQL objects: its schema and its cookies.
pub const OWN_TREES: usize = 2;

/// Server for all scripts of the process.
struct SharedServer {
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

static SERVED: LazyLock<SharedServer> = LazyLock::new(|| {
    let folder = folder();
    let address = Address::Unix(folder.path().join("y.sock"));
    let listen = ListenOptions { addresses: vec![address.clone()], ..ListenOptions::default() };
    let started = Server::start(None, EngineSettings::default(), LogOptions::default(), listen)
        .and_then(|server| Ok((server, Store::connect(&address, SocketOptions::default())?)));
    match started {
        Ok((server, store)) => {
            let socket = folder.path().join("y.sock").display().to_string();
            SharedServer { _server: server, store, socket, _folder: folder }
        }
        Err(error) => panic!("no server can be started: {error}"),
    }
});

/// Database names of a script.
pub struct Places {
    place: ScriptTrees,
    folder: TempDir,
    /// Number of the script in the process.
    number: u64,
}

impl Places {
    /// Returns names for a script.
    pub fn new(place: ScriptTrees) -> Places {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Places { place, folder: folder(), number: NUMBER.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns whether there are trees.
    pub(crate) fn has_trees(&self) -> bool {
        self.place != ScriptTrees::Plain
    }

    /// Returns whether committed data survives reopening.
    pub(crate) fn lasts(&self) -> bool {
        matches!(self.place, ScriptTrees::Folder | ScriptTrees::Served)
    }

    fn database(&self, name: &str) -> String {
        format!("{name}{}", self.number)
    }

    /// Returns the name for each placeholder: the database, a plain file to attach, and a second
    /// database of trees.
    pub(crate) fn ours(&self) -> BTreeMap<&'static str, String> {
        let at = |file: &str| self.folder.path().join(file).display().to_string();
        let trees = |name: &str| match self.place {
            ScriptTrees::Memory => "file:yesquel:".to_owned(),
            ScriptTrees::Plain => ":memory:".to_owned(),
            ScriptTrees::Folder => format!("file:yesquel:{}?durability=none&database={name}", at("store")),
            // Bulk load everything here, as if it were large.
            ScriptTrees::Served => {
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

    /// Returns the number of the main database's trees at the server.
    pub(crate) fn trees(&self) -> Option<usize> {
        if self.place != ScriptTrees::Served {
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
        if self.place == ScriptTrees::Served {
            for name in ["main", "tree"] {
                // It may not exist.
                let _ = SERVED.store.drop_database(&self.database(name));
            }
        }
    }
}
