//! The way to one group: its address, and the connection to its machine.

use super::{
    Address, SocketOptions,
    connect_error::{ConnectError, KnownCluster},
    connection::ServerConnection,
    lost_connection::LostConnection,
    watching::{WatchedServer, Watching},
};
use crate::{Attempt, GroupRoute, LossCause, SeeEvent, wait::check_cancelled};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel_model::{ClusterMembership, GroupEpoch, ServerId};
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
pub(super) struct LinkState {
    route: GroupRoute<Address>,
    destination: EncodedDestination,
    /// The connection to the group's machine, which the links of its other groups share.
    pub(super) connection: Option<Arc<ServerConnection>>,
    /// The connection to the machine that the group has left, if others share it.
    left: Weak<ServerConnection>,
}

/// A group and the connection to it.
pub(super) struct ServerLink {
    pub(super) server: ServerId,
    state: Mutex<LinkState>,
    /// Why the last attempt to connect failed, since the last success.
    failure: Mutex<Option<String>>,
    /// Whether the group is at a Unix socket. Reads look at it without the lock.
    is_at_unix_socket: AtomicBool,
    pub(super) watching: Watching,
    /// The next one of the client.
    pub(super) next: OnceLock<Box<ServerLink>>,
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
            state: Mutex::new(LinkState { route, destination, connection: None, left: Weak::new() }),
            failure: Mutex::default(),
            watching: Watching::default(),
            next: OnceLock::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why an attempt to connect has failed; `None`: it has not.
    fn note_failure(&self, why: Option<String>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Returns why the last attempt to connect has failed.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Locks the link if it has a connection.
    pub(super) fn sharing(&self, connection: &Arc<ServerConnection>) -> Option<MutexGuard<'_, LinkState>> {
        let state = self.state();
        state.connection.as_ref().is_some_and(|own| Arc::ptr_eq(own, connection)).then_some(state)
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
    pub(super) fn correct(&self, correction: &Correction<'_>, attempt: Attempt) -> bool {
        let mut state = self.state();
        let is_connected = state.connection.as_ref().is_some_and(|connection| !connection.is_closed());
        let before = state.route.address().cloned();
        let knows_more = state.route.correct(correction, attempt, is_connected);
        state.destination = state.route.destination().encode();
        self.is_at_unix_socket.store(is_unix_socket(&state.route), Relaxed);
        let has_moved = state.route.address() != before.as_ref();
        let left = if has_moved { state.connection.take() } else { None };
        if let Some(left) = &left {
            state.left = Arc::downgrade(left);
        }
        drop(state);
        // The links of the machine's other groups use it, too.
        if let Some(left) = left.filter(|left| left.groups().len() == 1) {
            let why = "the group has moved to another address".to_owned();
            left.close_with(LostConnection { cause: LossCause::Disconnected, why });
            left.lanes.forget_free();
        }
        knows_more
    }

    /// Takes the address of the group's machine, if none is known.
    pub(super) fn found(&self, address: &Address) {
        let mut state = self.state();
        state.route.found(address);
        self.is_at_unix_socket.store(is_unix_socket(&state.route), Relaxed);
    }

    /// Takes a connection to a machine that hosts the group, unless it is connected to another one.
    /// `address` is the machine's.
    pub(super) fn take(&self, connection: &Arc<ServerConnection>, address: &Address) {
        let mut state = self.state();
        let is_of_another = |known: &Arc<ServerConnection>| {
            !known.is_closed() && known.server != connection.server && known.hosts(self.server)
        };
        if state.connection.as_ref().is_some_and(is_of_another) {
            return;
        }
        state.route.found(address);
        self.is_at_unix_socket.store(is_unix_socket(&state.route), Relaxed);
        let former = state.connected(self.server, connection);
        drop(state);
        self.note_failure(None);
        if let Some(former) = former.filter(|former| !Arc::ptr_eq(former, connection)) {
            // A server ends the former connection of a client. No thread reads from the lanes.
            let why = "the server was connected to anew".to_owned();
            former.close_with(LostConnection { cause: LossCause::Disconnected, why });
            former.lanes.forget_free();
        }
    }

    /// Takes a connection that another link has, if the group's machine is at its end. Returns whether
    /// it has.
    pub(super) fn adopt(&self, connection: &Arc<ServerConnection>) -> bool {
        let mut state = self.state();
        let is_left = std::ptr::eq(state.left.as_ptr(), Arc::as_ptr(connection));
        if is_left || !connection.hosts(self.server) {
            return false;
        }
        state.connected(self.server, connection);
        true
    }

    /// Connects; tries until a deadline, and at least once.
    pub(super) fn connect(
        &self,
        identity: &ClientIdentity,
        until: Instant,
    ) -> Result<(Address, ServerConnection), String> {
        loop {
            let Some(address) = self.address() else { return Err(NO_ADDRESS.to_owned()) };
            let connected = identity.connect(&address, identity.client, &identity.options);
            let connected = connected.and_then(|connection| match connection.server {
                _ if connection.hosts(self.server) => Ok(connection),
                now => Err(ConnectError::Another { address: address.clone(), before: self.server, now }),
            });
            match connected {
                Ok(connection) => return Ok((address, connection)),
                // The server may be restarting.
                Err(error)
                    if Instant::now() + AGAIN_AFTER < until && error.may_pass() && !check_cancelled() =>
                {
                    self.failed();
                    self.note_failure(Some(error.to_string()));
                    thread::sleep(AGAIN_AFTER);
                }
                Err(error) => {
                    self.failed();
                    let why = error.to_string();
                    self.note_failure(Some(why.clone()));
                    return Err(why);
                }
            }
        }
    }

    /// An attempt to connect has failed.
    fn failed(&self) {
        let mut state = self.state();
        state.route.failed();
        self.is_at_unix_socket.store(is_unix_socket(&state.route), Relaxed);
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
            connection.hosts(self.server).then_some(connection)
        };
        let server = WatchedServer {
            destination: self.destination(),
            timeout: identity.options.timeout,
            is_alive: &|| self.connection().is_some_and(|connection| connection.is_alive()),
            connect: &connect,
        };
        self.watching.ask(&server, request, see)
    }

    /// Connects a lane to the machine at the end of a connection if one was missed, within a time.
    pub(super) fn provide_lane(
        &self,
        connection: &ServerConnection,
        identity: &ClientIdentity,
        timeout: Duration,
    ) {
        let connect_timeout = identity.options.connect_timeout.min(timeout);
        connection.lanes.provide(identity.options.lanes, |number| {
            let number = greeting::lane(identity.client, number);
            let options = SocketOptions { connect_timeout, ..identity.options.clone() };
            let lane = identity.connect(&self.address()?, number, &options).ok()?;
            (lane.server == connection.server).then_some(lane)
        });
    }
}

impl LinkState {
    /// Takes a connection to the group's machine. Returns the former one.
    fn connected(
        &mut self,
        group: ServerId,
        connection: &Arc<ServerConnection>,
    ) -> Option<Arc<ServerConnection>> {
        self.route.greeted(connection.epoch_of(group).unwrap_or(GroupEpoch::UNKNOWN));
        self.destination = self.route.destination().encode();
        self.connection.replace(Arc::clone(connection))
    }
}

/// Why a group without an address cannot be connected to.
pub(super) const NO_ADDRESS: &str = "no address is known";
