//! The way to one group: its address, its connection and its lanes.

use super::{
    Address, SocketOptions,
    connect_error::{ConnectError, KnownCluster},
    connection::ServerConnection,
    lanes::Lanes,
    lost_connection::LostConnection,
    watching::{WatchedServer, Watching},
};
use crate::{
    GroupRoute, LossCause, SeeEvent,
    wait::{CHECK_EVERY, check_cancelled},
};
use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel_model::{ClusterMembership, ServerId};
use yesquel_wire::{Correction, EncodedDestination, greeting};

/// Pause between attempts to reconnect.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What a client is at its servers.
pub(super) struct ClientIdentity {
    pub(super) client: u64,
    pub(super) options: SocketOptions,
    /// The cluster of the servers, and the address at which it was met first.
    known: OnceLock<(ClusterMembership, KnownCluster)>,
}

impl ClientIdentity {
    pub(super) fn new(client: u64, options: SocketOptions) -> ClientIdentity {
        ClientIdentity { client, options, known: OnceLock::new() }
    }

    /// The servers must belong to a cluster.
    pub(super) fn belong(&self, membership: ClusterMembership) {
        self.note(membership, "this machine".to_owned());
    }

    fn note(&self, membership: ClusterMembership, at: String) {
        // The first one counts.
        let _ = self.known.set((membership, KnownCluster { cluster: membership.cluster, at }));
    }

    pub(super) fn membership(&self) -> ClusterMembership {
        self.known.get().map(|(membership, _)| *membership).unwrap_or_default()
    }

    /// Connects to an address; `client` is the client's number, or that of a lane.
    pub(super) fn connect(
        &self,
        address: &Address,
        client: u64,
        options: &SocketOptions,
    ) -> Result<ServerConnection, ConnectError> {
        self.met(address, |known| ServerConnection::connect(address, client, options, known))
    }

    /// Connects to an address within a time.
    pub(super) fn connect_within(
        &self,
        address: &Address,
        connect_timeout: Duration,
    ) -> Result<ServerConnection, ConnectError> {
        let options = SocketOptions { connect_timeout, ..self.options.clone() };
        self.connect(address, self.client, &options)
    }

    /// Connects for notices, at a Unix socket.
    pub(super) fn connect_watcher(&self, address: &Address) -> Result<ServerConnection, ConnectError> {
        self.met(address, |known| {
            ServerConnection::connect_watcher(address, self.client, &self.options, known)
        })
    }

    /// Makes a connection, which must be to the known cluster if there is one.
    fn met(
        &self,
        address: &Address,
        connect: impl FnOnce(Option<&KnownCluster>) -> Result<ServerConnection, ConnectError>,
    ) -> Result<ServerConnection, ConnectError> {
        let at = || "the client".to_owned();
        let given = self.options.cluster.map(|cluster| KnownCluster { cluster, at: at() });
        let known = self.known.get().map(|(_, known)| known).or(given.as_ref());
        let connection = connect(known)?;
        if self.known.get().is_none() {
            self.note(connection.membership, address.to_string());
        }
        Ok(connection)
    }
}

/// The group, as requests name it, and the connection.
struct LinkState {
    route: GroupRoute<Address>,
    destination: EncodedDestination,
    connection: Option<Arc<ServerConnection>>,
}

/// A group and the connection to it.
pub(super) struct ServerLink {
    pub(super) server: ServerId,
    state: Mutex<LinkState>,
    connecting: Mutex<Connecting>,
    /// Signals that a connection attempt has ended.
    tried: Condvar,
    /// Whether the group is at a Unix socket. Reads look at it without the lock.
    is_at_unix_socket: AtomicBool,
    /// Further connections, for few threads.
    pub(super) lanes: Lanes,
    pub(super) watching: Watching,
    /// The next one of the client.
    next: OnceLock<Box<ServerLink>>,
}

/// One thread connects for all.
#[derive(Default)]
struct Connecting {
    is_taken: bool,
    /// Why the last attempt failed, since the last success.
    failed: Option<String>,
}

fn is_unix_socket(route: &GroupRoute<Address>) -> bool {
    matches!(route.address(), Some(Address::Unix(_)))
}

impl ServerLink {
    /// Creates a link that is not connected.
    pub(super) fn to_group(server: ServerId, address: Option<Address>) -> ServerLink {
        let route = GroupRoute::new(server, address);
        let destination = route.destination().encode();
        ServerLink {
            server,
            is_at_unix_socket: is_unix_socket(&route).into(),
            state: Mutex::new(LinkState { route, destination, connection: None }),
            connecting: Mutex::default(),
            tried: Condvar::new(),
            lanes: Lanes::default(),
            watching: Watching::default(),
            next: OnceLock::new(),
        }
    }

    /// Connects to the server at an address.
    pub(super) fn connect(address: &Address, identity: &ClientIdentity) -> Result<ServerLink, ConnectError> {
        let connection = identity.connect(address, identity.client, &identity.options)?;
        Ok(ServerLink::connected(address, connection))
    }

    /// Creates a link with a connection to an address.
    fn connected(address: &Address, connection: ServerConnection) -> ServerLink {
        let link = ServerLink::to_group(connection.server, Some(address.clone()));
        link.state().connected(Arc::new(connection));
        link
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt to connect has failed.
    fn failed(&self) {
        let mut state = self.state();
        state.route.failed();
        self.is_at_unix_socket.store(is_unix_socket(&state.route), Relaxed);
    }

    fn connecting(&self) -> MutexGuard<'_, Connecting> {
        self.connecting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connection(&self) -> Option<Arc<ServerConnection>> {
        self.state().connection.clone()
    }

    /// Returns the connection, if it is open.
    pub(super) fn open(&self) -> Option<(Arc<ServerConnection>, EncodedDestination)> {
        let state = self.state();
        let connection = state.connection.as_ref().filter(|connection| !connection.is_closed())?;
        Some((Arc::clone(connection), state.destination))
    }

    pub(super) fn destination(&self) -> EncodedDestination {
        self.state().destination
    }

    /// Whether the group is at a Unix socket.
    pub(super) fn is_at_unix_socket(&self) -> bool {
        self.is_at_unix_socket.load(Relaxed)
    }

    pub(super) fn address(&self) -> Option<Address> {
        self.state().route.address().cloned()
    }

    /// Takes the correction of a request. Returns whether the link knows more than before.
    pub(super) fn correct(&self, correction: &Correction<'_>) -> bool {
        let mut state = self.state();
        let is_connected = state.connection.as_ref().is_some_and(|connection| !connection.is_closed());
        let before = state.route.address().cloned();
        let knows_more = state.route.correct(correction, is_connected);
        state.destination = state.route.destination().encode();
        self.is_at_unix_socket.store(is_unix_socket(&state.route), Relaxed);
        let has_moved = state.route.address() != before.as_ref();
        let left = if has_moved { state.connection.take() } else { None };
        drop(state);
        if let Some(left) = left {
            let why = "the group has moved to another address".to_owned();
            left.close_with(LostConnection { cause: LossCause::Disconnected, why });
            self.lanes.forget_free();
        }
        knows_more
    }

    /// Closes the connection if its secrets were replaced and no request uses it. The next request
    /// connects again.
    pub(super) fn renew(&self, identity: &ClientIdentity) {
        let mut state = self.state();
        // Requests that wait for a reply, also those that begin now, have a handle from this state.
        let left = state.connection.take_if(|connection| {
            let secrets = identity.options.secrets.as_ref().zip(connection.made_with.as_ref());
            let is_outdated = secrets.is_some_and(|(secrets, made_with)| secrets.is_outdated(made_with));
            is_outdated && Arc::strong_count(connection) == 1 && !connection.slots.has_handlers()
        });
        drop(state);
        if let Some(left) = left {
            let why = "its credential or authority was replaced".to_owned();
            left.close_with(LostConnection { cause: LossCause::Disconnected, why });
            self.lanes.forget_free();
        }
    }

    /// Returns an open connection, connecting if necessary. Other waiting threads do not make a
    /// thread wait longer: the mutex is not held while connecting, since it would go to a thread
    /// that has just given up and tries again. With `has_others` it makes one attempt, since other
    /// machines may know a better address.
    pub(super) fn alive(
        &self,
        identity: &ClientIdentity,
        has_others: bool,
    ) -> Result<(Arc<ServerConnection>, EncodedDestination), String> {
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let until = Instant::now() + identity.options.connect_timeout;
        let mut connecting = self.connecting();
        while connecting.is_taken {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let place = self.address().map_or_else(String::new, |address| format!("{address}: "));
                let silent = || format!("{place}it does not answer");
                return Err(connecting.failed.clone().unwrap_or_else(silent));
            }
            let waited = self.tried.wait_timeout(connecting, left.min(CHECK_EVERY));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            // Without the lock, which others need.
            let is_cancelled = check_cancelled();
            connecting = self.connecting();
            if is_cancelled && connecting.is_taken {
                return Err("it is being connected to".to_owned());
            }
        }
        if let Some(open) = self.open() {
            return Ok(open);
        }
        connecting.is_taken = true;
        drop(connecting);
        let connected = self.reconnect(identity, if has_others { Instant::now() } else { until });
        let failed = connected.as_ref().err().cloned();
        *self.connecting() = Connecting { is_taken: false, failed };
        self.tried.notify_all();
        connected
    }

    /// Connects; tries until a deadline, and at least once.
    fn reconnect(
        &self,
        identity: &ClientIdentity,
        until: Instant,
    ) -> Result<(Arc<ServerConnection>, EncodedDestination), String> {
        loop {
            let Some(address) = self.address() else { return Err("no address is known".to_owned()) };
            let connected = identity.connect(&address, identity.client, &identity.options);
            let connected = connected.and_then(|connection| match connection.server {
                now if now == self.server => Ok(connection),
                now => Err(ConnectError::Another { address, before: self.server, now }),
            });
            match connected {
                Ok(connection) => {
                    let found = self.state().connected(Arc::new(connection));
                    // The lanes ended with the old connection, and no thread reads there.
                    self.lanes.forget_free();
                    return Ok(found);
                }
                // The server may be restarting.
                Err(ref error)
                    if Instant::now() + AGAIN_AFTER < until && error.may_pass() && !check_cancelled() =>
                {
                    self.failed();
                    self.connecting().failed = connected.err().map(|error| error.to_string());
                    thread::sleep(AGAIN_AFTER);
                }
                Err(error) => {
                    self.failed();
                    return Err(error.to_string());
                }
            }
        }
    }

    /// Sends a question on the connection by which the client watches nodes.
    pub(super) fn ask_watching(
        &self,
        identity: &ClientIdentity,
        request: &[u8],
        see: SeeEvent<'_>,
    ) -> Option<Vec<u8>> {
        let connect = || {
            let connection = identity.connect_watcher(&self.address()?).ok()?;
            (connection.server == self.server).then_some(connection)
        };
        let server = WatchedServer {
            destination: self.destination(),
            timeout: identity.options.timeout,
            is_alive: &|| self.connection().is_some_and(|connection| connection.is_alive()),
            connect: &connect,
        };
        self.watching.ask(&server, request, see)
    }

    /// Connects a lane if one was missed, within a time.
    pub(super) fn provide_lane(&self, identity: &ClientIdentity, timeout: Duration) {
        let connect_timeout = identity.options.connect_timeout.min(timeout);
        self.lanes.provide(identity.options.lanes, |number| {
            let number = greeting::lane(identity.client, number);
            let options = SocketOptions { connect_timeout, ..identity.options.clone() };
            let connection = identity.connect(&self.address()?, number, &options).ok()?;
            (connection.server == self.server).then_some(connection)
        });
    }
}

impl LinkState {
    /// Takes a connection to the group.
    fn connected(
        &mut self,
        connection: Arc<ServerConnection>,
    ) -> (Arc<ServerConnection>, EncodedDestination) {
        self.route.greeted(connection.epoch);
        self.destination = self.route.destination().encode();
        self.connection = Some(Arc::clone(&connection));
        (connection, self.destination)
    }
}

/// The links of a client. More are added when groups become known, and none is removed, so that
/// calls need no lock to find one.
#[derive(Default)]
pub(super) struct LinkList {
    first: OnceLock<Box<ServerLink>>,
}

impl LinkList {
    pub(super) fn iter(&self) -> impl Iterator<Item = &ServerLink> {
        std::iter::successors(self.first.get(), |link| link.next.get()).map(|link| &**link)
    }

    /// Returns the link to a group.
    pub(super) fn find(&self, group: ServerId) -> Option<&ServerLink> {
        self.iter().find(|link| link.server == group)
    }

    /// Adds a link, unless there is one to the same group. Returns the one to the group.
    pub(super) fn add(&self, link: ServerLink) -> &ServerLink {
        let (group, mut new, mut place) = (link.server, Some(Box::new(link)), &self.first);
        loop {
            // Another thread may be first.
            if place.get().is_none()
                && let Some(link) = new.take()
                && let Err(link) = place.set(link)
            {
                new = Some(link);
            }
            match place.get() {
                Some(there) if there.server == group => return there,
                Some(there) => place = &there.next,
                None => {}
            }
        }
    }

    /// Adds a connection to an address, unless there is one to the same group.
    pub(super) fn add_connection(&self, address: &Address, connection: ServerConnection) {
        match self.find(connection.server) {
            None => {
                self.add(ServerLink::connected(address, connection));
            }
            Some(link) if link.open().is_some() => {}
            Some(link) => {
                link.state().connected(Arc::new(connection));
                link.lanes.forget_free();
            }
        }
    }

    /// Iterates over the connections.
    pub(super) fn connections(&self) -> impl Iterator<Item = Arc<ServerConnection>> {
        self.iter().filter_map(ServerLink::connection)
    }

    /// Iterates over the open connections to other groups.
    pub(super) fn connections_but(&self, group: ServerId) -> impl Iterator<Item = Arc<ServerConnection>> {
        self.iter()
            .filter(move |link| link.server != group)
            .filter_map(ServerLink::open)
            .map(|(connection, _)| connection)
    }
}
