//! Machines at addresses: one connection each, which all threads of a process share, whatever number of
//! groups a machine hosts.
//! `docs/yesquel/wire.md` has the roles.
//!
//! The futures wait for the network when they are polled: they are for
//! [`block_on`](crate::block_on), not for an event loop.

mod address;
mod channel;
mod connect_error;
mod connection;
mod lanes;
mod link;
mod link_list;
mod lost_connection;
mod reply_slots;
mod watching;

pub use address::{Address, AddressError, Addresses, DEFAULT_PORT};
pub use connect_error::{ConnectError, ConnectStep, KnownCluster};

use crate::{
    Attempt, HeartbeatSource, LostCall, OPENED_BEFORE_FORK, ReplyHandler, SeeEvent, Transport,
    wait::was_cancelled,
};
use connection::ServerConnection;
use lanes::{LANES, LaneGuard, Lanes};
use link::{ClientIdentity, NO_ADDRESS, ServerLink};
use link_list::LinkList;
use lost_connection::LostConnection;
use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};
use yesquel_fork as fork;
use yesquel_model::{ClusterId, ClusterMembership, GroupEpoch, ServerId, Timestamp};
use yesquel_secrets::{ConnectionSecrets, PresentedSecrets};
use yesquel_wire::{Correction, Destination, EncodedDestination, greeting::Role};

/// Options of connections.
#[derive(Clone)]
pub struct SocketOptions {
    /// What connections present and trust, read for each new one; `None`: the two following fields,
    /// which are ignored otherwise.
    pub secrets: Option<Arc<dyn ConnectionSecrets>>,
    /// The shared secret.
    pub credential: Box<[u8]>,
    /// What the connections are for; the credential is that of the role.
    pub role: Role,
    /// The cluster that the servers must belong to; `None`: any, but all to one.
    pub cluster: Option<ClusterId>,
    /// Encryption, on TCP.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Time limit for a connection in all (resolving, connecting, encryption, greetings), a day at
    /// most, and for reconnecting after a loss.
    pub connect_timeout: Duration,
    /// How long a server may be silent while a reply is due.
    pub timeout: Duration,
    /// How long closing, or the exit of the process, may wait for what was sent to arrive.
    pub close_timeout: Duration,
    /// Connections to a server beside the shared one, for few concurrent threads; at most 16 are
    /// made.
    pub lanes: u32,
}

impl Default for SocketOptions {
    fn default() -> Self {
        SocketOptions {
            secrets: None,
            credential: Box::default(),
            role: Role::Client,
            cluster: None,
            tls: None,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            close_timeout: Duration::from_millis(100),
            lanes: LANES,
        }
    }
}

impl fmt::Debug for SocketOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the credential.
        f.debug_struct("SocketOptions").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl SocketOptions {
    /// Returns the options of a connection that presents these secrets, or else its own.
    fn presenting(&self, secrets: Option<&PresentedSecrets>) -> SocketOptions {
        let mut options = SocketOptions { secrets: None, ..self.clone() };
        if let Some(PresentedSecrets { credential, tls }) = secrets.cloned() {
            (options.credential, options.tls) = (credential, tls);
        }
        options
    }
}

/// Interval in which a silent client checks for a changed heartbeat.
const REPORT_EVERY: Duration = Duration::from_millis(300);

struct SharedLinks {
    links: LinkList,
    /// The process that made it, see [`fork`].
    generation: u32,
    identity: ClientIdentity,
    /// Addresses of the cluster that were given first, of whatever groups.
    seeds: Vec<Address>,
    /// Held while a thread connects to one of them because no connection is left.
    seeding: Mutex<()>,
    heartbeats: OnceLock<Arc<dyn HeartbeatSource>>,
    /// Whether the last handle is gone, for the heartbeat thread.
    ended: Mutex<bool>,
    end: Condvar,
}

/// Transport by sockets to servers at addresses. Clones share the connections.
#[derive(Clone)]
pub struct SocketTransport(Arc<SocketHandle>);

/// Ends the heartbeat thread when the last one is dropped.
struct SocketHandle(Arc<SharedLinks>);

impl fmt::Debug for SocketTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketTransport").field("client", &self.0.0.identity.client).finish_non_exhaustive()
    }
}

impl Drop for SocketHandle {
    fn drop(&mut self) {
        if self.0.generation != fork::generation() {
            // The parent process goes on using it.
            return;
        }
        *self.0.ended() = true;
        self.0.end.notify_all();
        // A process may exit right after a commit: its decisions must arrive, for readers wait for
        // them.
        let until = Instant::now() + self.0.identity.options.close_timeout;
        let machines = self.0.links.machines();
        machines.iter().for_each(|(_, connection)| connection.finish(until));
        for (_, connection) in machines {
            connection.close_with(LostConnection::other("it was closed"));
            connection.lanes.end();
        }
    }
}

impl SharedLinks {
    fn ended(&self) -> MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends heartbeats of a silent client now and then, and connects the lanes that were missed.
    fn report(shared: &Weak<SharedLinks>) {
        while let Some(shared) = shared.upgrade() {
            let waited = shared.end.wait_timeout_while(shared.ended(), REPORT_EVERY, |ended| !*ended);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
            if let Some(heartbeats) = shared.heartbeats.get() {
                for link in shared.links.iter() {
                    // Reads that are not finished may need snapshots before changes.
                    let mut see = |event| heartbeats.on_watch_event(link.server, event);
                    link.watching.poll(&mut see);
                }
                shared.links.machines().iter().for_each(|(_, connection)| connection.report(heartbeats));
            }
            // Threads that wait for a reply take the others along; perhaps none does.
            for (_, connection) in shared.links.machines() {
                connection.receive_handled();
            }
            shared.links.renew(&shared.identity);
            // Lanes must not delay the heartbeats of other servers.
            shared.links.provide_lanes(&shared.identity, REPORT_EVERY);
        }
    }
}

impl SocketTransport {
    /// Closes the connections whose secrets were replaced, except those that have requests in flight.
    /// Their next requests connect again. A thread does this now and then, too.
    pub fn renew(&self) {
        self.0.0.links.renew(&self.0.0.identity);
    }

    /// Connects to servers as a client with a unique number. All must belong to one cluster.
    pub fn connect(
        addresses: &[Address],
        client: u64,
        options: SocketOptions,
    ) -> Result<SocketTransport, ConnectError> {
        let identity = ClientIdentity::new(client, options);
        let links = LinkList::default();
        for address in addresses {
            links.connect(address, &identity)?;
        }
        SocketTransport::around(links, identity, addresses)
    }

    /// Connects to a cluster by the first of these addresses at which a server answers. All of them
    /// share the time limit of a connection. The transport learns from a server where the others
    /// are, and takes the other addresses when it has no connection left.
    pub fn connect_any(
        addresses: &[Address],
        client: u64,
        options: SocketOptions,
    ) -> Result<SocketTransport, ConnectError> {
        let identity = ClientIdentity::new(client, options);
        let links = LinkList::default();
        connect_first(&links, addresses, &identity)?;
        SocketTransport::around(links, identity, addresses)
    }

    /// Creates a transport to groups at addresses, which are connected to when they are called.
    pub fn to_groups<'a>(
        groups: impl IntoIterator<Item = (ServerId, &'a Address)>,
        client: u64,
        membership: ClusterMembership,
        options: SocketOptions,
    ) -> Result<SocketTransport, ConnectError> {
        let options = SocketOptions { cluster: Some(membership.cluster), ..options };
        let identity = ClientIdentity::new(client, options);
        identity.belong(membership);
        let (links, mut addresses) = (LinkList::default(), Vec::new());
        for (group, address) in groups {
            links.add(ServerLink::to_group(group, Some(address.clone())));
            addresses.push(address.clone());
        }
        SocketTransport::around(links, identity, &addresses)
    }

    fn around(
        links: LinkList,
        identity: ClientIdentity,
        addresses: &[Address],
    ) -> Result<SocketTransport, ConnectError> {
        let (heartbeats, ended) = (OnceLock::new(), Mutex::new(false));
        let shared = Arc::new(SharedLinks {
            links,
            generation: fork::generation(),
            identity,
            seeds: addresses.to_vec(),
            seeding: Mutex::default(),
            heartbeats,
            ended,
            end: Condvar::new(),
        });
        let weak = Arc::downgrade(&shared);
        let thread = thread::Builder::new().name("yesquel-news".to_owned());
        let spawned = thread.spawn(move || SharedLinks::report(&weak));
        if let (Err(error), Some(address)) = (spawned, addresses.first()) {
            return Err(ConnectError::Io { address: address.clone(), error });
        }
        Ok(SocketTransport(Arc::new(SocketHandle(shared))))
    }

    /// The groups, in the order of the addresses; of a machine with several, its first one comes first.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.0.0.links.iter().map(|link| link.server)
    }

    /// Returns the groups that are not at the machine of a group, as far as it knows them. Those with an
    /// open connection come first.
    pub fn others(&self, group: ServerId) -> Vec<ServerId> {
        let links = &self.0.0.links;
        let own = links.find(group).and_then(ServerLink::connection);
        let is_elsewhere = |link: &&ServerLink| {
            link.server != group && own.as_ref().is_none_or(|connection| !connection.hosts(link.server))
        };
        let mut others: Vec<&ServerLink> = links.iter().filter(is_elsewhere).collect();
        others.sort_by_cached_key(|link| link.open().is_none());
        others.into_iter().map(|link| link.server).collect()
    }

    /// Whether it knows a machine beside that of a group.
    pub fn has_others(&self, group: ServerId) -> bool {
        self.0.0.seeds.len() > 1 || !self.others(group).is_empty()
    }

    /// Takes the address of a group, unless one is known.
    pub fn add_group(&self, group: ServerId, address: &Address) {
        self.0.0.links.add(ServerLink::to_group(group, Some(address.clone()))).found(address);
    }

    /// The link to a server, unless it belongs to the parent of this process.
    fn own_link(&self, server: ServerId) -> Option<&ServerLink> {
        let shared = &self.0.0;
        shared.links.find(server).filter(|_| shared.generation == fork::generation())
    }

    /// The latest clock of the servers at the greetings.
    pub fn now(&self) -> Timestamp {
        self.0.0.links.connections().map(|connection| connection.now).max().unwrap_or_default()
    }

    /// The cluster of the servers.
    pub fn membership(&self) -> ClusterMembership {
        self.0.0.identity.membership()
    }
}

/// The place of a server in error messages.
fn place(link: Option<&ServerLink>, server: ServerId) -> String {
    let address = link.and_then(ServerLink::address);
    address.map_or_else(|| format!("server {}", server.0), |address| address.to_string())
}

/// Connects to the first of some addresses at which a server answers.
fn connect_first(
    links: &LinkList,
    addresses: &[Address],
    identity: &ClientIdentity,
) -> Result<(), ConnectError> {
    let until = Instant::now() + identity.options.connect_timeout;
    let mut left = identity.options.connect_timeout;
    let mut failed = Vec::new();
    for (tried, address) in addresses.iter().enumerate() {
        // A machine that is down may not even refuse the connection: leave time for the others.
        let share = left / (addresses.len() - tried) as u32;
        match identity.connect_within(address, share) {
            Ok(connection) => {
                links.add_connection(address, connection);
                return Ok(());
            }
            Err(error) => failed.push(error),
        }
        left = until.saturating_duration_since(Instant::now());
        if was_cancelled() {
            break;
        }
    }
    Err(match failed.len() {
        1 => failed.remove(0),
        _ => ConnectError::NoneAnswers(failed),
    })
}

/// Where a request goes.
struct Route {
    connection: Arc<ServerConnection>,
    destination: EncodedDestination,
    /// Whether it may go by a lane of the connection.
    has_lanes: bool,
}

impl SharedLinks {
    /// Returns the connection to a group, with its lanes, or one to another machine, which answers
    /// where the group is.
    fn route(&self, server: ServerId, link: Option<&ServerLink>) -> Result<Route, String> {
        if let Some(link) = link
            && let Some((connection, destination)) = link.open()
        {
            return Ok(Route { connection, destination, has_lanes: true });
        }
        let has_others = self.links.connections_but(server).next().is_some();
        let failed = match link {
            Some(link) => match self.links.alive(link, &self.identity, has_others) {
                Ok((connection, destination)) => {
                    return Ok(Route { connection, destination, has_lanes: true });
                }
                Err(why) => why,
            },
            None => NO_ADDRESS.to_owned(),
        };
        if was_cancelled() {
            return Err(failed);
        }
        let reached = || {
            let own = self.links.find(server).and_then(ServerLink::open);
            let own =
                own.map(|(connection, destination)| Route { connection, destination, has_lanes: false });
            own.or_else(|| self.detour(server))
        };
        if let Some(route) = reached() {
            return Ok(route);
        }
        // With one address there is no other way.
        if self.seeds.len() < 2 {
            return Err(failed);
        }
        // One thread connects for all: a server ends the former connection of a client.
        let _connecting = self.seeding.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(route) = reached() {
            return Ok(route);
        }
        match connect_first(&self.links, &self.seeds, &self.identity) {
            Ok(()) => reached().ok_or(failed),
            Err(_) => Err(failed),
        }
    }

    /// Returns a connection to another machine, which answers where a group is.
    fn detour(&self, server: ServerId) -> Option<Route> {
        let destination = Destination { group: server, epoch: GroupEpoch::UNKNOWN }.encode();
        let connection = self.links.connections_but(server).next()?;
        Some(Route { connection, destination, has_lanes: false })
    }
}

impl SocketTransport {
    /// Sends a request now, not when the future is polled.
    fn call_by<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
        may_overtake: bool,
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        let shared = &self.0.0;
        let link = shared.links.find(server);
        let mut taken = None;
        let call = if shared.generation != fork::generation() {
            Err(LostConnection::other(OPENED_BEFORE_FORK))
        } else {
            match shared.route(server, link) {
                Ok(Route { connection, destination, has_lanes }) => {
                    let has_lanes = has_lanes && may_overtake && shared.identity.options.lanes > 0;
                    taken = has_lanes.then(|| Lanes::take(&connection)).flatten();
                    let own = taken.as_ref().and_then(LaneGuard::connection);
                    // It may be full of cancelled requests.
                    let by_own = own.and_then(|own| own.call(&destination, request, None).ok());
                    by_own.map_or_else(|| connection.call(&destination, request, shared.heartbeats.get()), Ok)
                }
                Err(_) if was_cancelled() => Err(LostConnection::cancelled()),
                Err(why) => Err(LostConnection::other(why)),
            }
        };
        async move {
            // Kept until the reply has come.
            let _taken = taken;
            let reply = match call {
                Ok(call) => call.await,
                Err(lost) => Err(lost),
            };
            reply.map_err(|lost| lost.at(place(link, server)))
        }
    }
}

impl Transport for SocketTransport {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        self.call_by(server, request, false)
    }

    fn call_unordered(
        &self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> {
        self.call_by(server, request, true)
    }

    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler) {
        let shared = &self.0.0;
        let link = shared.links.find(server);
        if shared.generation != fork::generation() {
            return handler(Err(LostConnection::other(OPENED_BEFORE_FORK).at(place(link, server))));
        }
        let refused = match link.and_then(ServerLink::open) {
            Some((connection, destination)) => {
                connection.send(&destination, request, shared.heartbeats.get(), handler).err()
            }
            None => Some(handler),
        };
        if let Some(handler) = refused {
            handler(Err(LostConnection::other("it is not connected").at(place(link, server))));
        }
    }

    fn can_watch(&self, server: ServerId) -> bool {
        self.own_link(server).is_some_and(ServerLink::is_at_unix_socket)
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool {
        let links = &self.0.0.links;
        match (links.find(group), correction) {
            (Some(link), _) => link.correct(correction, attempt),
            (None, Correction::WrongGroup(Some(location))) if location.group == group => {
                let link = links.add(ServerLink::to_group(group, None));
                link.correct(correction, attempt)
            }
            (None, _) => false,
        }
    }

    fn home_group(&self) -> ServerId {
        self.membership().home_group
    }

    async fn ask_watching(&self, server: ServerId, request: &[u8], see: SeeEvent<'_>) -> Option<Vec<u8>> {
        let link = self.own_link(server)?;
        link.ask_watching(&self.0.0.identity, request, see)
    }

    fn take_notices(&self, server: ServerId, see: SeeEvent<'_>) -> bool {
        self.own_link(server).is_some_and(|link| link.watching.poll(see))
    }

    async fn wait_for_notices(&self, server: ServerId, see: SeeEvent<'_>) {
        if let Some(link) = self.own_link(server) {
            link.watching.wait_and_poll(see);
        }
    }

    fn end_watches(&self, server: ServerId, see: SeeEvent<'_>) {
        if let Some(link) = self.own_link(server) {
            link.watching.end(see);
        }
    }

    fn is_connected(&self) -> bool {
        self.0.0.links.connections().all(|connection| connection.is_alive())
    }

    fn clock(&self) -> Timestamp {
        self.now()
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        // A client has one source.
        let _ = self.0.0.heartbeats.set(heartbeats);
    }
}
