//! Where databases are: in this process, or at servers.

use crate::{
    Database, Error, Map,
    any::Any,
    catalog::Catalog,
    host::{Host, client_number},
};
use serde::de::DeserializeOwned;
use std::{path::Path, sync::Arc};
use yesquel_client::Client;
use yesquel_engine::Asker;
use yesquel_engine::Settings;
use yesquel_model::{ServerId, TreeId};
use yesquel_server::{DataFolder, Deliver, Options};
use yesquel_transport::{Address, SocketOptions, Sockets, block_on};
use yesquel_tree::{Counts as SearchCounts, Trees};
use yesquel_wire::status::{Status, TreeNodes};

/// There are no sockets.
struct Nobody;

impl Deliver for Nobody {
    fn deliver(&self, _: Asker, _: &[u8]) {}
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) trees: Trees<Any>,
    pub(crate) server: ServerId,
    /// The server itself, where it is in this process. After the trees, so
    /// that it goes last.
    host: Option<Arc<Host>>,
}

/// A place where databases are. Clones are the same one; threads may share it.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

impl Store {
    /// In the memory of this process: what it holds goes with it.
    pub fn in_memory() -> Result<Store, Error> {
        Ok(Store::of_host(Arc::new(Host::in_memory(Settings::default(), Nobody)?)))
    }

    /// In a folder, which is made if it is not there. What was committed is on
    /// disk. Another process that has the folder is named in the error.
    pub fn open(folder: impl AsRef<Path>) -> Result<Store, Error> {
        Store::open_with(folder, Options::default())
    }

    /// In a folder, with a choice of when what was committed is on disk.
    pub fn open_with(folder: impl AsRef<Path>, options: Options) -> Result<Store, Error> {
        let folder = DataFolder::take(folder.as_ref())?;
        Ok(Store::of_host(Arc::new(Host::open(folder, Settings::default(), options, Nobody)?)))
    }

    /// By way of a server in this process that others may share.
    pub fn of_host(host: Arc<Host>) -> Store {
        let (server, transport) = (host.server(), Any::Embedded(host.transport().clone()));
        let trees = Trees::new(Client::new(transport, client_number()));
        Store { inner: Arc::new(Inner { trees, server, host: Some(host) }) }
    }

    /// At a server. All threads of a process share one connection to it.
    pub fn connect(address: &Address, options: SocketOptions) -> Result<Store, Error> {
        let client = client_number();
        let sockets = Sockets::connect(std::slice::from_ref(address), client, options)?;
        let server = sockets.servers().next().unwrap_or_default();
        let trees = Trees::new(Client::new(Any::Sockets(sockets), client));
        Ok(Store { inner: Arc::new(Inner { trees, server, host: None }) })
    }

    /// The server, where it is in this process.
    pub fn host(&self) -> Option<&Arc<Host>> {
        self.inner.host.as_ref()
    }

    /// What searches of trees have cost: how often what was known of them was
    /// not so any more.
    pub fn searches(&self) -> SearchCounts {
        self.inner.trees.counters().counts()
    }

    /// What the server tells of itself.
    pub fn status(&self) -> Result<Status, Error> {
        self.report(None)
    }

    fn report<T: DeserializeOwned>(&self, tree: Option<TreeId>) -> Result<T, Error> {
        let json = block_on(self.inner.trees.client().inspect(self.inner.server, tree))?;
        serde_json::from_slice(&json)
            .map_err(|error| Error::Internal(format!("the server's report is not understood: {error}")))
    }

    /// The nodes of a map, as its server tells of them.
    pub fn nodes(&self, map: Map) -> Result<TreeNodes, Error> {
        self.report(Some(map.tree.root().tree))
    }

    fn catalog(&self) -> Catalog<'_> {
        Catalog { trees: &self.inner.trees, server: self.inner.server }
    }

    /// The names of the databases, in order.
    pub fn databases(&self) -> Result<Vec<String>, Error> {
        let all = block_on(self.catalog().databases())?;
        Ok(all.into_iter().map(|(name, _)| name).collect())
    }

    /// Makes a database.
    pub fn create_database(&self, name: &str) -> Result<Database, Error> {
        let number = block_on(self.catalog().create_database(name))?;
        Ok(Database::new(self.clone(), name, number))
    }

    /// A database.
    pub fn database(&self, name: &str) -> Result<Database, Error> {
        let number = block_on(self.catalog().database(name))?;
        Ok(Database::new(self.clone(), name, number))
    }

    /// A database, which is made if it is not there.
    pub fn database_or_create(&self, name: &str) -> Result<Database, Error> {
        match self.database(name) {
            Err(Error::NoDatabase(_)) => match self.create_database(name) {
                Err(Error::DatabaseExists(_)) => self.database(name),
                made => made,
            },
            found => found,
        }
    }

    /// Takes a database away, with all its maps.
    pub fn drop_database(&self, name: &str) -> Result<(), Error> {
        block_on(self.catalog().drop_database(name))
    }
}
