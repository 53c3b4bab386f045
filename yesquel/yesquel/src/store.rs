//! Where databases are: in this process, or at servers.

use crate::{
    Error, Map,
    any_transport::AnyTransport,
    host::{Host, client_number},
    identity::Identity,
};
use serde::de::DeserializeOwned;
use std::{path::Path, sync::Arc};
use yesquel_client::{Client, Counts as SentCounts};
use yesquel_engine::Caller;
use yesquel_engine::Settings;
use yesquel_model::{NodeId, ServerId};
use yesquel_server::{DataFolder, Options, ReplySink, WallTime};
use yesquel_transport::{Address, SocketOptions, Sockets, block_on};
use yesquel_tree::{Counts as SearchCounts, Tree, Trees};
use yesquel_wire::status::{Status, TreeNodes};

/// There are no sockets.
struct NoSockets;

impl ReplySink for NoSockets {
    fn deliver(&self, _: Caller, _: &[u8]) {}
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) trees: Trees<AnyTransport>,
    pub(crate) server: ServerId,
    pub(crate) identity: Identity,
    /// The server itself, where it is in this process. After the trees, so
    /// that it goes last.
    host: Option<Arc<Host>>,
}

/// A place where databases are. Clones are the same one; threads may share it.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

/// What a server's report says.
fn understood<T: DeserializeOwned>(json: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(json)
        .map_err(|error| Error::Internal(format!("the server's report is not understood: {error}")))
}

impl Store {
    /// In the memory of this process: what it holds goes with it.
    pub fn in_memory() -> Result<Store, Error> {
        Ok(Store::of_host(Arc::new(Host::in_memory(Settings::default(), WallTime::default(), NoSockets)?)))
    }

    /// In a folder, which is made if it is not there. What was committed is on
    /// disk. Another process that has the folder is named in the error.
    pub fn open(folder: impl AsRef<Path>) -> Result<Store, Error> {
        Store::open_with(folder, Options::default())
    }

    /// In a folder, with a choice of when what was committed is on disk.
    pub fn open_with(folder: impl AsRef<Path>, options: Options) -> Result<Store, Error> {
        let folder = DataFolder::take(folder.as_ref())?;
        Ok(Store::of_host(Arc::new(Host::open(
            folder,
            Settings::default(),
            options,
            WallTime::default(),
            NoSockets,
        )?)))
    }

    /// By way of a server in this process that others may share.
    pub fn of_host(host: Arc<Host>) -> Store {
        let (server, transport) = (host.server(), AnyTransport::Embedded(host.transport().clone()));
        let trees = Trees::new(Client::new(transport, client_number()));
        Store { inner: Arc::new(Inner { trees, server, identity: host.identity, host: Some(host) }) }
    }

    /// At a server. All threads of a process share one connection to it.
    pub fn connect(address: &Address, options: SocketOptions) -> Result<Store, Error> {
        let client = client_number();
        let sockets = Sockets::connect(std::slice::from_ref(address), client, options)?;
        let server = sockets.servers().next().unwrap_or_default();
        let trees = Trees::new(Client::new(AnyTransport::Sockets(sockets), client));
        Ok(Store {
            inner: Arc::new(Inner { trees, server, identity: Identity::at(address, server), host: None }),
        })
    }

    /// The server, where it is in this process.
    pub fn host(&self) -> Option<&Arc<Host>> {
        self.inner.host.as_ref()
    }

    /// Whether it is the same one: a clone, or what it is a clone of.
    pub fn is(&self, other: &Store) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// How many bytes a transaction that begins now gathers for maps that it makes
    /// before it sends them ahead of its commit; 32 MiB if nothing is said.
    pub fn set_ahead_bytes(&self, bytes: usize) {
        self.inner.trees.set_ahead_bytes(bytes);
    }

    /// What searches of trees have cost: how often what was known of them was
    /// not so any more.
    pub fn searches(&self) -> SearchCounts {
        self.inner.trees.counters().counts()
    }

    /// What was sent to servers so far, and has come back.
    pub fn sent(&self) -> SentCounts {
        self.inner.trees.client().counters().counts()
    }

    /// What the server tells of itself.
    pub fn status(&self) -> Result<Status, Error> {
        understood(&block_on(self.inner.trees.client().inspect(self.inner.server, None))?)
    }

    /// The nodes of a map, as its server tells of them.
    ///
    /// Those of a large map come in several answers of the server, one after
    /// the other, and each is of its own moment: of a node that was split
    /// between two of them one half may be missing, with the keys that went
    /// there, and one that was taken away may be named by its parent.
    pub fn nodes(&self, map: Map) -> Result<TreeNodes, Error> {
        let (client, server) = (self.inner.trees.client(), self.inner.server);
        let tree = self.tree_of(map)?.root().tree;
        let first = block_on(client.inspect(server, Some(tree)))?;
        let mut all: TreeNodes = understood(&first)?;
        while all.more {
            let last = all.nodes.last().and_then(|node| u128::from_str_radix(&node.id, 16).ok());
            let Some(last) = last.map(NodeId::from_bits) else {
                return Err(Error::Internal("the server tells of more nodes than it names".to_owned()));
            };
            let next: TreeNodes = understood(&block_on(client.inspect_after(server, last))?)?;
            // Ids in hexadecimal have all the same length.
            let goes_on =
                next.nodes.first().zip(all.nodes.last()).is_none_or(|(next, last)| next.id > last.id);
            if !goes_on {
                return Err(Error::Internal("the server tells of the same nodes again".to_owned()));
            }
            all.more = next.more && !next.nodes.is_empty();
            all.nodes.extend(next.nodes);
        }
        Ok(all)
    }

    /// The tree of a map, if it is of this store: another one may have given
    /// the same number to something else.
    pub(crate) fn tree_of(&self, map: Map) -> Result<Tree, Error> {
        if map.store == self.inner.identity { Ok(map.tree) } else { Err(Error::OtherStore) }
    }

    pub(crate) fn map_of(&self, tree: Tree) -> Map {
        Map { tree, store: self.inner.identity }
    }
}
