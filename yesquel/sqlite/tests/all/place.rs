//! A server in the test's process, with a database of SQL.

#![expect(unsafe_code, reason = "connections are identified by their pointers")]

use rusqlite::Connection;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server, Store};
use yesquel_sqlite::DatabaseTrees;

pub(crate) struct Place {
    /// Dropped before its folder.
    _server: Server,
    folder: TempDir,
}

impl Place {
    /// Starts a server on a socket, and creates the database with this schema.
    pub(crate) fn new(schema: &str) -> Place {
        assert!(yesquel_sqlite::is_linked());
        let folder = TempDir::new().unwrap();
        let listen =
            ListenOptions { addresses: vec![Place::address(folder.path())], ..ListenOptions::default() };
        let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
        let place = Place { _server: server, folder };
        place.open("").execute_batch(schema).unwrap();
        place
    }

    fn address(folder: &Path) -> Address {
        Address::Unix(folder.join("server"))
    }

    /// Path for a file or socket of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("server")
    }

    /// Opens the database, with these options of its address.
    pub(crate) fn open(&self, options: &str) -> Connection {
        self.open_named("shop", options)
    }

    /// Opens a database.
    pub(crate) fn open_named(&self, name: &str, options: &str) -> Connection {
        Connection::open(format!("file:yesquel://{}/{name}?{options}", self.socket().display())).unwrap()
    }

    /// A client of its own at the server.
    pub(crate) fn store(&self) -> Store {
        Store::connect(&Place::address(self.folder.path()), Default::default()).unwrap()
    }
}

/// Round trips of a connection's store, which connections with the same address share.
pub(crate) fn round_trips(connection: &Connection) -> u64 {
    // SAFETY: it is open.
    unsafe { DatabaseTrees::of(connection.handle(), "main") }.unwrap().costs().round_trips
}
