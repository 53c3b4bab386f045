//! Locations of the trees, and the database names of a script.

use std::{
    collections::BTreeMap,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};
use tempfile::TempDir;
use yesquel::{
    Address, Database, EngineSettings, Error, ListenOptions, LogOptions, PeerOptions, Server, ServerId,
    SocketOptions, Store,
};

/// Location of a script's trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptTrees {
    /// In memory.
    Memory,
    /// In a folder.
    Folder,
    /// At a server on a Unix socket.
    Served,
    /// At three servers, each of which has a part of the tables.
    Cluster,
    /// No trees: SQLite's own b-trees in memory, whose behaviour must be unchanged.
    Plain,
}

/// Servers of a cluster.
const SERVERS: u16 = 3;

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

/// Servers for all scripts of the process.
struct SharedCluster {
    _servers: Vec<Server>,
    store: Store,
    address: String,
}

/// Returns addresses whose ports were free a moment ago.
fn free_addresses() -> std::io::Result<Vec<Address>> {
    let listeners = (0..SERVERS).map(|_| std::net::TcpListener::bind("127.0.0.1:0"));
    let listeners: Vec<_> = listeners.collect::<Result<_, _>>()?;
    let address = |port: u16| Address::Tcp { host: "127.0.0.1".to_owned(), port };
    listeners.iter().map(|listener| Ok(address(listener.local_addr()?.port()))).collect()
}

fn start_cluster(addresses: &[Address]) -> Result<SharedCluster, Error> {
    let mut servers = Vec::new();
    for (number, own) in (0..).zip(addresses) {
        let others = (0..).map(ServerId).zip(addresses.iter().cloned());
        let peers = PeerOptions {
            servers: others.filter(|(other, _)| other.0 != number).collect(),
            ..PeerOptions::default()
        };
        let listen = ListenOptions { addresses: vec![own.clone()], peers, ..ListenOptions::default() };
        let settings = EngineSettings { server: ServerId(number), ..EngineSettings::default() };
        servers.push(Server::start(None, settings, LogOptions::default(), listen)?);
    }
    let store = Store::connect_any(addresses, SocketOptions::default())?;
    let address = addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
    Ok(SharedCluster { _servers: servers, store, address })
}

static CLUSTER: LazyLock<SharedCluster> = LazyLock::new(|| {
    let addresses = free_addresses().unwrap_or_else(|error| panic!("no ports on loopback: {error}"));
    start_cluster(&addresses).unwrap_or_else(|error| panic!("no cluster can be started: {error}"))
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
        matches!(self.place, ScriptTrees::Folder | ScriptTrees::Served | ScriptTrees::Cluster)
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
            ScriptTrees::Cluster => {
                let (address, name) = (&CLUSTER.address, self.database(name));
                format!("file:yesquel://{address}/{name}?ahead=300&placement=tables")
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

    /// The store of the servers.
    fn store(&self) -> Option<&'static Store> {
        match self.place {
            ScriptTrees::Served => Some(&SERVED.store),
            ScriptTrees::Cluster => Some(&CLUSTER.store),
            _ => None,
        }
    }

    /// Returns the number of a database's tables and indexes, if it is at servers.
    pub(crate) fn trees(&self, database: &Database) -> Option<usize> {
        self.store()?;
        match database.maps() {
            // The others are the schema, and the meta values at each group.
            Ok(maps) => Some(maps.len() - 1 - database.groups().len()),
            Err(error) => panic!("the server says: {error}"),
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for name in ["main", "tree"] {
            // It may not exist.
            self.store().map(|store| store.drop_database(&self.database(name)));
        }
    }
}
