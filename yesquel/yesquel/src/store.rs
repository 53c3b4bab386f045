//! Store: the place of databases, in this process or at a server.

use crate::{
    Error, Map, any_transport::AnyTransport, catalog::catalog_tree, client_number::client_number, host::Host,
    name_knowledge::NameKnowledge,
};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use yesquel_client::{Client, SentCounts};
use yesquel_engine::Caller;
use yesquel_engine::EngineSettings;
use yesquel_model::{ClusterId, ClusterMembership, NodeId, ServerId, TreeId};
use yesquel_server::{DataFolder, LogOptions, ReplySink, WallTime};
use yesquel_transport::{Address, SocketOptions, SocketTransport, TransportObject, block_on};
use yesquel_tree::{SearchCounts, Tree, Trees};
use yesquel_wire::{
    machines::{MachineCommand, ManagementReply},
    status::{DirectoryStatus, ServerStatus, TreeNodes},
};

/// The sink of a server without sockets.
#[derive(Clone)]
struct NoSocketReplies;

impl ReplySink for NoSocketReplies {
    fn deliver(&self, _: Caller, _: &[u8]) {}
}

#[derive(Debug)]
pub(crate) struct StoreInner {
    pub(crate) trees: Trees<AnyTransport>,
    /// The group of the machine that answered first.
    pub(crate) server: ServerId,
    pub(crate) membership: ClusterMembership,
    pub(crate) names: NameKnowledge,
    /// The server, if it is in this process. Declared after the trees, to be dropped after them.
    host: Option<Arc<Host>>,
    /// The client's number, and how many numbers were drawn from it.
    drawn: (u64, AtomicU64),
}

/// Place of databases. Clones share it, also between threads.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<StoreInner>,
}

/// Decodes a server's status.
fn decode_status<T: DeserializeOwned>(json: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(json)
        .map_err(|error| Error::Internal(format!("the server's report is not understood: {error}")))
}

impl Store {
    /// Creates a store in memory.
    pub fn in_memory() -> Result<Store, Error> {
        Ok(Store::of_host(Arc::new(Host::in_memory(
            EngineSettings::default(),
            WallTime::default(),
            NoSocketReplies,
        )?)))
    }

    /// Opens a store in a folder; creates the folder if it does not exist. A commit returns when it
    /// is on disk. If another process uses the folder, the error names it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Store, Error> {
        Store::open_with(folder, LogOptions::default())
    }

    /// Opens a store in a folder with a choice of durability.
    pub fn open_with(folder: impl AsRef<Path>, options: LogOptions) -> Result<Store, Error> {
        let folder = DataFolder::take(folder.as_ref())?;
        Ok(Store::of_host(Arc::new(Host::open(
            folder,
            EngineSettings::default(),
            options,
            WallTime::default(),
            NoSocketReplies,
        )?)))
    }

    /// Creates a store on a server in this process, which other stores may share.
    pub fn of_host(host: Arc<Host>) -> Store {
        host.groups().iter().for_each(|group| group.core().close_watches());
        let (server, transport) = (host.server(), host.transport.clone());
        let membership = host.transport().core().membership();
        Store::around(transport, client_number(), server, membership, Some(host))
    }

    /// Connects to a server, and by it to its cluster. All threads of the process share one
    /// connection to each server.
    pub fn connect(address: &Address, options: SocketOptions) -> Result<Store, Error> {
        Store::connect_any(std::slice::from_ref(address), options)
    }

    /// Connects to a cluster by the first of these addresses at which a server answers, and learns
    /// the other servers from it. The others serve if that server cannot be reached later.
    pub fn connect_any(addresses: &[Address], options: SocketOptions) -> Result<Store, Error> {
        let client = client_number();
        let sockets = SocketTransport::connect_any(addresses, client, options)?;
        let server = sockets.servers().next().unwrap_or_default();
        let membership = sockets.membership();
        Ok(Store::around(AnyTransport::Sockets(sockets), client, server, membership, None))
    }

    /// Creates a store over a program's own transport, as the client of a number, which no other client,
    /// past or present, may have.
    pub fn with_transport(transport: Arc<dyn TransportObject>, client: u64) -> Store {
        let membership = transport.membership();
        Store::around(AnyTransport::Object(transport), client, membership.home_group, membership, None)
    }

    fn around(
        transport: AnyTransport,
        client: u64,
        server: ServerId,
        membership: ClusterMembership,
        host: Option<Arc<Host>>,
    ) -> Store {
        let (trees, drawn) = (Trees::new(Client::new(transport, client)), (client, AtomicU64::new(0)));
        let names = NameKnowledge::default();
        Store { inner: Arc::new(StoreInner { trees, server, membership, names, host, drawn }) }
    }

    /// Sets whether the client caches inner nodes that it fetches from now on. Default: yes. For
    /// research.
    #[doc(hidden)]
    pub fn cache_inner_nodes(&self, caches: bool) {
        self.inner.trees.cache_inner_nodes(caches);
    }

    /// Draws a number that no client draws again, except by chance: 64 bits that follow from the
    /// client's number. They are no secret.
    pub fn draw_number(&self) -> u64 {
        let (client, drawn) = &self.inner.drawn;
        // A hash with a fixed key, so that a simulated run follows from its seed.
        let mut hasher = DefaultHasher::new();
        (client, drawn.fetch_add(1, Relaxed)).hash(&mut hasher);
        hasher.finish()
    }

    /// Creates the catalog of the cluster at its home group, if it does not exist. Servers do that when
    /// they start.
    pub fn create_catalog(&self) -> Result<(), Error> {
        Ok(block_on(self.inner.trees.create_if_missing(catalog_tree(self.home_group())))?)
    }

    /// Returns the server, if it is in this process.
    pub fn host(&self) -> Option<&Arc<Host>> {
        self.inner.host.as_ref()
    }

    /// Returns the cluster.
    pub fn cluster(&self) -> ClusterId {
        self.inner.membership.cluster
    }

    /// Returns the group that has the names of the cluster's databases.
    pub fn home_group(&self) -> ServerId {
        self.inner.membership.home_group
    }

    /// Returns whether both are the same store, or clones of it.
    pub fn is(&self, other: &Store) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Sets whether later transactions use and begin watches; see
    /// [`Transaction::use_watched`](crate::Transaction::use_watched). Default: yes.
    pub fn set_watching(&self, watches: bool) {
        self.inner.trees.set_watching(watches);
    }

    /// Returns whether the connection to the server has not ended, as far as this process can know
    /// without asking.
    pub fn is_connected(&self) -> bool {
        self.inner.trees.client().is_connected()
    }

    /// Sets how many bytes later transactions buffer for maps that they create before they send
    /// them ahead of the commit. Default: 32 MiB.
    pub fn set_bulk_load_bytes(&self, bytes: usize) {
        self.inner.trees.set_bulk_load_bytes(bytes);
    }

    /// Returns the costs of searches in trees: how often cached nodes were stale.
    pub fn searches(&self) -> SearchCounts {
        self.inner.trees.counters().counts()
    }

    /// Returns the number and sizes of the messages exchanged with servers.
    pub fn sent(&self) -> SentCounts {
        self.inner.trees.client().counters().counts()
    }

    /// Returns the time of the monotonic clock by which leases and timeouts are counted.
    pub fn uptime(&self) -> Duration {
        self.inner.trees.client().uptime()
    }

    /// Returns the status of the server that was connected to.
    pub fn status(&self) -> Result<ServerStatus, Error> {
        self.status_of(self.inner.server)
    }

    /// Returns the status of the server that serves a group.
    pub fn status_of(&self, group: ServerId) -> Result<ServerStatus, Error> {
        decode_status(&block_on(self.inner.trees.client().inspect(group, None))?)
    }

    /// After this call, new transactions and reads of this store see all commits at these groups that
    /// were acknowledged, to any client, before the call. Costs a round trip: the groups are asked in
    /// parallel. Each answers once the transactions have ended that were prepared there.
    ///
    /// Without it, what other clients have committed may be missing for a moment: that of several
    /// groups, and that of another group than the one that is read first.
    pub fn catch_up(&self, groups: &[ServerId]) -> Result<(), Error> {
        Ok(block_on(self.inner.trees.client().catch_up(groups))?)
    }

    /// Returns the groups of the cluster, as the server that was connected to knows them.
    pub fn directory(&self) -> Result<DirectoryStatus, Error> {
        decode_status(&block_on(self.inner.trees.client().directory(self.inner.server))?)
    }

    /// Issues a token with which one machine may join the cluster until it expires, as a text. The
    /// connection must be an operator's.
    pub fn add_machine(&self, expires_in: Duration) -> Result<String, Error> {
        let expires_in_ms = u64::try_from(expires_in.as_millis()).unwrap_or(u64::MAX);
        match self.manage(&MachineCommand::Add { expires_in_ms })? {
            ManagementReply::Token(token) => Ok(token),
            reply => Err(Error::Internal(format!("the server has answered {reply:?}"))),
        }
    }

    /// Removes a machine from the cluster. Its group must have no database. The connection must be an
    /// operator's.
    pub fn remove_machine(&self, machine: u32) -> Result<(), Error> {
        match self.manage(&MachineCommand::Remove { machine })? {
            ManagementReply::Removed => Ok(()),
            reply => Err(Error::Internal(format!("the server has answered {reply:?}"))),
        }
    }

    fn manage(&self, command: &MachineCommand) -> Result<ManagementReply, Error> {
        let client = self.inner.trees.client();
        // Numbers always convert to JSON.
        let command = serde_json::to_vec(command).unwrap_or_default();
        match decode_status(&block_on(client.manage(self.inner.server, &command))?)? {
            ManagementReply::Refused(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }

    /// Returns the number of databases at each group that has any.
    pub fn databases_by_group(&self) -> Result<BTreeMap<ServerId, usize>, Error> {
        block_on(self.catalog().databases_by_group())
    }

    pub(crate) fn groups(&self) -> Result<Vec<ServerId>, Error> {
        Ok(self.directory()?.groups.iter().map(|known| ServerId(known.group)).collect())
    }

    /// Returns the nodes of a map, from the server's status.
    ///
    /// The nodes of a large map come in several answers, each as of another time. A node that was
    /// split meanwhile may lack a half, and a node that was removed may still be named by its
    /// parent.
    pub fn nodes(&self, map: Map) -> Result<TreeNodes, Error> {
        let NodeId { server, tree, .. } = self.tree_of(map)?.root();
        let mut all = TreeNodes::default();
        self.node_pages(server, tree, |page| {
            all.nodes.extend(page.nodes);
            Ok(())
        })?;
        Ok(all)
    }

    /// Passes on the nodes of a tree at a group, answer by answer.
    pub(crate) fn node_pages(
        &self,
        group: ServerId,
        tree: TreeId,
        mut see: impl FnMut(TreeNodes) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let client = self.inner.trees.client();
        let mut page: TreeNodes = decode_status(&block_on(client.inspect(group, Some(tree)))?)?;
        loop {
            if !page.more {
                return see(page);
            }
            let last = page.nodes.last().map(|node| node.id.clone()).unwrap_or_default();
            let Some(after) = u128::from_str_radix(&last, 16).ok().map(NodeId::from_bits) else {
                return Err(Error::Internal("the server announced more nodes and listed none".to_owned()));
            };
            see(page)?;
            page = decode_status(&block_on(client.inspect_after(group, after))?)?;
            // Ids in hexadecimal have equal lengths.
            if page.nodes.first().is_some_and(|first| first.id <= last) {
                return Err(Error::Internal("the server listed the same nodes again".to_owned()));
            }
        }
    }

    /// Returns the tree of a map if the map belongs to this store: another store may use the same
    /// number for another map.
    pub(crate) fn tree_of(&self, map: Map) -> Result<Tree, Error> {
        if map.cluster == self.cluster() { Ok(map.tree) } else { Err(Error::OtherStore) }
    }

    pub(crate) fn map_of(&self, tree: Tree) -> Map {
        Map { tree, cluster: self.cluster() }
    }
}
