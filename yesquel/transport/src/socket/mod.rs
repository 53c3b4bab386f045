//! Servers at addresses: one connection each, which all threads of a process share.
//! `docs/yesquel/wire.md` has the roles.
//!
//! The futures wait for the network when they are polled: they are for
//! [`block_on`](crate::block_on), not for an event loop.

mod address;
mod channel;
mod connect_error;
mod connection;
mod lanes;
mod lost_connection;
mod reply_slots;

pub use address::{Address, AddressError, DEFAULT_PORT};
pub use connect_error::{ConnectError, ConnectStep};

use crate::{
    HeartbeatSource, LostCall, OPENED_BEFORE_FORK, ReplyHandler, Transport,
    wait::{CHECK_EVERY, check_cancelled, was_cancelled},
};
use connection::ServerConnection;
use lanes::{LANES, LaneGuard, Lanes};
use lost_connection::LostConnection;
use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};
use yesquel_fork as fork;
use yesquel_model::{ServerId, Timestamp};
use yesquel_wire::greeting::Role;

/// Options of connections.
#[derive(Clone)]
pub struct SocketOptions {
    /// The shared secret.
    pub credential: Box<[u8]>,
    /// What the connections are for; the credential is that of the role.
    pub role: Role,
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
            credential: Box::default(),
            role: Role::Client,
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

/// Pause between attempts to reconnect.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Interval in which a silent client checks for a changed heartbeat.
const REPORT_EVERY: Duration = Duration::from_millis(300);

/// A server and the connection to it.
struct ServerLink {
    address: Address,
    server: ServerId,
    connection: Mutex<Arc<ServerConnection>>,
    connecting: Mutex<Connecting>,
    /// Signals that a connection attempt has ended.
    tried: Condvar,
    /// Further connections, for few threads.
    lanes: Lanes,
}

/// One thread connects for all.
#[derive(Default)]
struct Connecting {
    is_taken: bool,
    /// Why the last attempt failed, since the last success.
    failed: Option<String>,
}

impl ServerLink {
    fn connection(&self) -> Arc<ServerConnection> {
        Arc::clone(&self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn connecting(&self) -> MutexGuard<'_, Connecting> {
        self.connecting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an open connection, connecting if necessary. Other waiting threads do not make a
    /// thread wait longer: the mutex is not held while connecting, since it would go to a thread
    /// that has just given up and tries again.
    fn alive(&self, shared: &SharedLinks) -> Result<Arc<ServerConnection>, String> {
        let connection = self.connection();
        if !connection.is_closed() {
            return Ok(connection);
        }
        let until = Instant::now() + shared.options.connect_timeout;
        let mut connecting = self.connecting();
        while connecting.is_taken {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let silent = || format!("{}: it does not answer", self.address);
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
        let connection = self.connection();
        if !connection.is_closed() {
            return Ok(connection);
        }
        connecting.is_taken = true;
        drop(connecting);
        let connected = self.connect(shared, until);
        let failed = connected.as_ref().err().cloned();
        *self.connecting() = Connecting { is_taken: false, failed };
        self.tried.notify_all();
        connected
    }

    /// Connects; tries until a deadline, and at least once.
    fn connect(&self, shared: &SharedLinks, until: Instant) -> Result<Arc<ServerConnection>, String> {
        loop {
            let connected = ServerConnection::connect(&self.address, shared.client, &shared.options);
            let connected = connected.and_then(|connection| match connection.server {
                now if now == self.server => Ok(connection),
                now => Err(ConnectError::Another { address: self.address.clone(), before: self.server, now }),
            });
            match connected {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&connection);
                    // The lanes ended with the old connection, and no thread reads there.
                    self.lanes.forget_free();
                    return Ok(connection);
                }
                // The server may be restarting.
                Err(ref error)
                    if Instant::now() + AGAIN_AFTER < until && error.may_pass() && !check_cancelled() =>
                {
                    self.connecting().failed = connected.err().map(|error| error.to_string());
                    thread::sleep(AGAIN_AFTER);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

struct SharedLinks {
    links: Vec<ServerLink>,
    /// The process that made it, see [`fork`].
    generation: u32,
    client: u64,
    options: SocketOptions,
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
        f.debug_struct("SocketTransport").field("client", &self.0.0.client).finish_non_exhaustive()
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
        let until = Instant::now() + self.0.options.close_timeout;
        self.0.links.iter().for_each(|link| link.connection().finish(until));
        for link in &self.0.links {
            link.connection().close_with(LostConnection::other("it was closed"));
            link.lanes.end();
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
                shared.links.iter().for_each(|link| link.connection().report(heartbeats));
            }
            // Threads that wait for a reply take the others along; perhaps none does.
            shared.links.iter().for_each(|link| link.connection().receive_handled());
            // Lanes must not delay the heartbeats of other servers.
            let connect_timeout = shared.options.connect_timeout.min(REPORT_EVERY);
            for link in &shared.links {
                link.lanes.provide(shared.options.lanes, |number| {
                    let number = lanes::number(shared.client, number);
                    let options = SocketOptions { connect_timeout, ..shared.options.clone() };
                    let connection = ServerConnection::connect(&link.address, number, &options).ok()?;
                    (connection.server == link.server).then_some(connection)
                });
            }
        }
    }
}

impl SocketTransport {
    /// Connects to servers as a client with a unique number.
    pub fn connect(
        addresses: &[Address],
        client: u64,
        options: SocketOptions,
    ) -> Result<SocketTransport, ConnectError> {
        let link = |address: &Address| {
            let connection = ServerConnection::connect(address, client, &options)?;
            let server = connection.server;
            let (address, connection) = (address.clone(), Mutex::new(Arc::new(connection)));
            Ok(ServerLink {
                address,
                server,
                connection,
                connecting: Mutex::default(),
                tried: Condvar::new(),
                lanes: Lanes::default(),
            })
        };
        let links: Result<Vec<ServerLink>, ConnectError> = addresses.iter().map(link).collect();
        let (heartbeats, ended) = (OnceLock::new(), Mutex::new(false));
        let shared = Arc::new(SharedLinks {
            links: links?,
            generation: fork::generation(),
            client,
            options,
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

    /// The servers, in the order of the addresses.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.0.0.links.iter().map(|link| link.server)
    }

    /// The latest clock of the servers at the greetings.
    pub fn now(&self) -> Timestamp {
        self.0.0.links.iter().map(|link| link.connection().now).max().unwrap_or_default()
    }
}

/// The place of a server in error messages.
fn place(link: Option<&ServerLink>, server: ServerId) -> String {
    link.map_or_else(|| format!("server {}", server.0), |link| link.address.to_string())
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
        let link = shared.links.iter().find(|link| link.server == server);
        let is_ours = shared.generation == fork::generation();
        let mut taken = None;
        let call = match link.filter(|_| is_ours).map(|link| (link, link.alive(shared))) {
            Some((link, Ok(connection))) => {
                taken = if may_overtake && shared.options.lanes > 0 {
                    link.lanes.take(&connection)
                } else {
                    None
                };
                let own = taken.as_ref().and_then(LaneGuard::connection);
                // It may be full of cancelled requests.
                let by_own = own.and_then(|own| own.call(request, None).ok());
                by_own.map_or_else(|| connection.call(request, shared.heartbeats.get()), Ok)
            }
            Some((_, Err(_))) if was_cancelled() => Err(LostConnection::cancelled()),
            Some((_, Err(why))) => Err(LostConnection::other(why)),
            None if !is_ours => Err(LostConnection::other(OPENED_BEFORE_FORK)),
            None => Err(LostConnection::other("no address is known")),
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
        let link = shared.links.iter().find(|link| link.server == server);
        if shared.generation != fork::generation() {
            return handler(Err(LostConnection::other(OPENED_BEFORE_FORK).at(place(link, server))));
        }
        let refused = match link {
            Some(link) => link.connection().send(request, shared.heartbeats.get(), handler).err(),
            None => Some(handler),
        };
        if let Some(handler) = refused {
            handler(Err(LostConnection::other("it is not connected").at(place(link, server))));
        }
    }

    fn clock(&self) -> Timestamp {
        self.now()
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        // A client has one source.
        let _ = self.0.0.heartbeats.set(heartbeats);
    }
}
