//! Servers at addresses: one connection each, which all threads of a process
//! share. `docs/yesquel/wire.md` has the roles.
//!
//! The futures wait for the network when they are polled: they are for
//! [`block_on`](crate::block_on), not for an event loop.

mod address;
mod channel;
mod failure;
mod lanes;
mod line;
mod slots;

pub use address::{Address, AddressError, DEFAULT_PORT};
pub use failure::{ConnectError, Step as ConnectStep};

use crate::{
    HeartbeatSource, Lost, OPENED_BEFORE_FORK, Transport,
    wait::{LOOK_EVERY, gives_up, has_given_up},
};
use lanes::{LANES, Lanes, Taken};
use line::{Dead, Line};
use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};
use yesquel_fork as fork;
use yesquel_model::{ServerId, Timestamp};

/// How servers are connected to.
#[derive(Clone)]
pub struct SocketOptions {
    /// What shows that one may.
    pub credential: Box<[u8]>,
    /// Encryption, on TCP.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// How long a connection may take in all (finding the address, connecting,
    /// encryption, the greeting), a day at most, and how long it is tried for again
    /// after one was lost.
    pub connect_timeout: Duration,
    /// How long a server may be silent while it is waited for.
    pub timeout: Duration,
    /// Connections that a process has to a server beside the one that its threads
    /// share, at most: where few threads wait at a time each has one to itself.
    /// More than four are never made.
    pub lanes: u32,
}

impl Default for SocketOptions {
    fn default() -> Self {
        SocketOptions {
            credential: Box::default(),
            tls: None,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            lanes: LANES,
        }
    }
}

impl fmt::Debug for SocketOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the credential.
        f.debug_struct("SocketOptions").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// How long to wait before a lost connection is tried for again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// How often a silent client looks whether its server must know something.
const REPORT_EVERY: Duration = Duration::from_millis(300);

/// A server and the connection to it.
struct Link {
    address: Address,
    server: ServerId,
    line: Mutex<Arc<Line>>,
    connecting: Mutex<Connecting>,
    /// There is a connection, or whoever tried for one has given up.
    tried: Condvar,
    /// More of them, for few threads.
    lanes: Lanes,
}

/// One thread connects for all who wait.
#[derive(Default)]
struct Connecting {
    is_taken: bool,
    /// Why the last try failed, since there was a connection.
    failed: Option<String>,
}

impl Link {
    fn line(&self) -> Arc<Line> {
        Arc::clone(&self.line.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn connecting(&self) -> MutexGuard<'_, Connecting> {
        self.connecting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that is alive, if one can be had. Nobody waits for longer
    /// because others wait too: the mutex is not held while one connects, for
    /// it would go to whoever has just given up and begins again.
    fn alive(&self, shared: &Shared) -> Result<Arc<Line>, String> {
        let line = self.line();
        if !line.is_dead() {
            return Ok(line);
        }
        let until = Instant::now() + shared.options.connect_timeout;
        let mut connecting = self.connecting();
        while connecting.is_taken {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let silent = || format!("{}: it does not answer", self.address);
                return Err(connecting.failed.clone().unwrap_or_else(silent));
            }
            let waited = self.tried.wait_timeout(connecting, left.min(LOOK_EVERY));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            // Not while others are kept from it.
            let is_over = gives_up();
            connecting = self.connecting();
            if is_over && connecting.is_taken {
                return Err("it is being connected to".to_owned());
            }
        }
        let line = self.line();
        if !line.is_dead() {
            return Ok(line);
        }
        connecting.is_taken = true;
        drop(connecting);
        let connected = self.connect(shared, until);
        let failed = connected.as_ref().err().cloned();
        *self.connecting() = Connecting { is_taken: false, failed };
        self.tried.notify_all();
        connected
    }

    /// Connects; tries for so long, and once in any case.
    fn connect(&self, shared: &Shared, until: Instant) -> Result<Arc<Line>, String> {
        loop {
            let connected = Line::connect(&self.address, shared.client, &shared.options);
            let connected = connected.and_then(|line| match line.server {
                now if now == self.server => Ok(line),
                now => Err(ConnectError::Another { address: self.address.clone(), before: self.server, now }),
            });
            match connected {
                Ok(line) => {
                    let line = Arc::new(line);
                    *self.line.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&line);
                    // The lanes have ended with the old one, and nobody reads there.
                    self.lanes.forget_free();
                    return Ok(line);
                }
                // It may be about to start anew.
                Err(ref error) if Instant::now() + AGAIN_AFTER < until && error.may_pass() && !gives_up() => {
                    self.connecting().failed = connected.err().map(|error| error.to_string());
                    thread::sleep(AGAIN_AFTER);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

struct Shared {
    links: Vec<Link>,
    /// The process that has them, see [`fork`].
    generation: u32,
    client: u64,
    options: SocketOptions,
    heartbeats: OnceLock<Arc<dyn HeartbeatSource>>,
    /// Whether the last handle is gone, for the thread that reports.
    ended: Mutex<bool>,
    end: Condvar,
}

/// Servers at addresses. Clones share the connections.
#[derive(Clone)]
pub struct Sockets(Arc<Handle>);

/// Ends the reporting thread when the last one goes.
struct Handle(Arc<Shared>);

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("client", &self.0.0.client).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.0.generation != fork::generation() {
            // Another process goes on with it.
            return;
        }
        *self.0.ended() = true;
        self.0.end.notify_all();
        for link in &self.0.links {
            link.line().die(Dead::other("it was closed"));
            link.lanes.end();
        }
    }
}

impl Shared {
    fn ended(&self) -> MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells servers now and then what they must know, for one who says
    /// nothing else, and connects more often to those where it is wanted.
    fn report(shared: &Weak<Shared>) {
        while let Some(shared) = shared.upgrade() {
            let waited = shared.end.wait_timeout_while(shared.ended(), REPORT_EVERY, |ended| !*ended);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
            if let Some(heartbeats) = shared.heartbeats.get() {
                shared.links.iter().for_each(|link| link.line().report(heartbeats));
            }
            // Servers must not wait long for news because of them.
            let connect_timeout = shared.options.connect_timeout.min(REPORT_EVERY);
            for link in &shared.links {
                link.lanes.provide(shared.options.lanes, |number| {
                    let number = lanes::number(shared.client, number);
                    let options = SocketOptions { connect_timeout, ..shared.options.clone() };
                    let line = Line::connect(&link.address, number, &options).ok()?;
                    (line.server == link.server).then_some(line)
                });
            }
        }
    }
}

impl Sockets {
    /// Connects to servers, as a client with a number that no other has.
    pub fn connect(
        addresses: &[Address],
        client: u64,
        options: SocketOptions,
    ) -> Result<Sockets, ConnectError> {
        let link = |address: &Address| {
            let line = Line::connect(address, client, &options)?;
            let server = line.server;
            let (address, line) = (address.clone(), Mutex::new(Arc::new(line)));
            Ok(Link {
                address,
                server,
                line,
                connecting: Mutex::default(),
                tried: Condvar::new(),
                lanes: Lanes::default(),
            })
        };
        let links: Result<Vec<Link>, ConnectError> = addresses.iter().map(link).collect();
        let (heartbeats, ended) = (OnceLock::new(), Mutex::new(false));
        let shared = Arc::new(Shared {
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
        let spawned = thread.spawn(move || Shared::report(&weak));
        if let (Err(error), Some(address)) = (spawned, addresses.first()) {
            return Err(ConnectError::Io { address: address.clone(), error });
        }
        Ok(Sockets(Arc::new(Handle(shared))))
    }

    /// The servers, in the order of the addresses.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.0.0.links.iter().map(|link| link.server)
    }

    /// What the clocks of the servers said, the latest of them.
    pub fn now(&self) -> Timestamp {
        self.0.0.links.iter().map(|link| link.line().now).max().unwrap_or_default()
    }
}

impl Sockets {
    /// Sends a request now, not when the reply is waited for.
    fn send<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
        may_overtake: bool,
    ) -> impl Future<Output = Result<Vec<u8>, Lost>> + use<'a> {
        let shared = &self.0.0;
        let link = shared.links.iter().find(|link| link.server == server);
        let is_ours = shared.generation == fork::generation();
        let mut taken = None;
        let call = match link.filter(|_| is_ours).map(|link| (link, link.alive(shared))) {
            Some((link, Ok(line))) => {
                taken = if may_overtake && shared.options.lanes > 0 { link.lanes.take(&line) } else { None };
                let own = taken.as_ref().and_then(Taken::line);
                // Many may be under way there that nobody waits for any more.
                let by_own = own.and_then(|own| own.call(request, None).ok());
                by_own.map_or_else(|| line.call(request, shared.heartbeats.get()), Ok)
            }
            Some((_, Err(_))) if has_given_up() => Err(Dead::given_up()),
            Some((_, Err(why))) => Err(Dead::other(why)),
            None if !is_ours => Err(Dead::other(OPENED_BEFORE_FORK)),
            None => Err(Dead::other("no address is known")),
        };
        async move {
            // As long as its reply is waited for.
            let _taken = taken;
            let reply = match call {
                Ok(call) => call.await,
                Err(dead) => Err(dead),
            };
            reply.map_err(|Dead { cause, why }| {
                let place =
                    link.map_or_else(|| format!("server {}", server.0), |link| link.address.to_string());
                // Why there is none may begin with it, too.
                let why = why.strip_prefix(&format!("{place}: ")).map(str::to_owned).unwrap_or(why);
                Lost { place, cause, why }
            })
        }
    }
}

impl Transport for Sockets {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, Lost>> + use<'a> {
        self.send(server, request, false)
    }

    fn call_beside(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>> {
        self.send(server, request, true)
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        // A client has one.
        let _ = self.0.0.heartbeats.set(heartbeats);
    }
}
