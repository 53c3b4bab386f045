//! The server's side of connections: one thread for all of them, which reads
//! what has come, has the core handle it, and writes the replies, of all
//! requests that came together in one go. `docs/yesquel/wire.md` says what
//! travels.

mod connection;
mod sink;
mod stream;

pub use connection::REQUESTS_MAX;
pub use sink::Sink;

use crate::{Core, Time, WallTime, core::Session};
use connection::{Connection, End, Gate};
use mio::{Events, Interest, Poll, Token, Waker, event::Source, net};
use rustc_hash::FxHashMap;
use rustls::{ServerConfig, ServerConnection};
use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use stream::{Socket, Stream};
use yesquel_model::ServerId;

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    /// An address of the network.
    Tcp(std::net::TcpListener),
    /// A file.
    Unix(std::os::unix::net::UnixListener),
}

/// How connections are served.
#[derive(Debug)]
pub struct SocketOptions {
    /// Who serves them.
    pub server: ServerId,
    /// What a client must say to be served; `None`: nothing.
    pub credential: Option<Box<[u8]>>,
    /// Encryption, on TCP.
    pub tls: Option<Arc<ServerConfig>>,
    /// Clients that are served at a time.
    pub connections_max: usize,
}

/// Connections beyond the limit that are told so; more are closed unheard.
const DENIED_MAX: usize = 64;
/// How long a connection may take to greet, or to take anything of what waits
/// for it.
const PATIENCE_MS: u64 = 60_000;
/// How often those are looked for that have spent the patience.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const WAKE: Token = Token(0);
/// Listeners have the next tokens, connections those from here on.
const FIRST_CONNECTION: u64 = 1 << 16;

/// What the sockets have seen, for whoever watches.
#[derive(Debug, Default)]
pub struct SocketCounters {
    /// Connections that are open.
    pub open: AtomicU64,
    /// Connections that were taken.
    pub accepted: AtomicU64,
    /// Connections that were not served, or were closed for what they did.
    pub refused: AtomicU64,
    /// Times that one was read no further, for it had not taken its replies.
    pub paused: AtomicU64,
    /// The most bytes of replies that ever waited for one.
    pub queued_most: AtomicU64,
}

/// The thread of the sockets. Dropping it closes all connections.
#[derive(Debug)]
pub struct Sockets {
    stopping: Arc<AtomicBool>,
    sink: Sink,
    counters: Arc<SocketCounters>,
    thread: Option<JoinHandle<()>>,
}

enum AnyListener {
    Tcp(net::TcpListener),
    Unix(net::UnixListener),
}

impl AnyListener {
    fn new(listener: Listener) -> io::Result<AnyListener> {
        match listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Ok(AnyListener::Tcp(net::TcpListener::from_std(listener)))
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Ok(AnyListener::Unix(net::UnixListener::from_std(listener)))
            }
        }
    }

    fn accept(&self) -> io::Result<Socket> {
        match self {
            AnyListener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                // Replies leave when they are there.
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            AnyListener::Unix(listener) => listener.accept().map(|(stream, _)| Socket::Unix(stream)),
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            AnyListener::Tcp(listener) => listener,
            AnyListener::Unix(listener) => listener,
        }
    }
}

impl Sockets {
    /// Serves connections to a core whose replies to them go to the sink.
    pub fn serve(
        core: Arc<Core>,
        sink: Sink,
        listeners: Vec<Listener>,
        options: SocketOptions,
    ) -> io::Result<Sockets> {
        Sockets::serve_with_clock(core, sink, listeners, options, WallTime::default())
    }

    /// The same by a clock that is not the system's, for those who do not want
    /// to wait: what connections may take in time goes by it.
    pub fn serve_with_clock(
        core: Arc<Core>,
        sink: Sink,
        listeners: Vec<Listener>,
        options: SocketOptions,
        time: impl Time + 'static,
    ) -> io::Result<Sockets> {
        let poll = Poll::new()?;
        sink.wake_with(Waker::new(poll.registry(), WAKE)?);
        let listeners: io::Result<Vec<AnyListener>> = listeners.into_iter().map(AnyListener::new).collect();
        let mut listeners = listeners?;
        for (number, listener) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener.source(), Token(number + 1), Interest::READABLE)?;
        }
        let (stopping, counters) = (Arc::<AtomicBool>::default(), Arc::<SocketCounters>::default());
        core.count_sockets(Arc::clone(&counters));
        let SocketOptions { server, credential, tls, connections_max } = options;
        let thread = Server {
            poll,
            core,
            sink: sink.clone(),
            gate: Gate { server, credential, clients_max: connections_max },
            tls,
            listeners,
            accept_again: false,
            blocked: BTreeSet::new(),
            connections: FxHashMap::default(),
            clients: FxHashMap::default(),
            next: FIRST_CONNECTION,
            time: Box::new(time),
            looked_at_ms: 0,
            stopping: Arc::clone(&stopping),
            counters: Arc::clone(&counters),
        };
        let thread = thread::Builder::new().name("yesquel-sockets".to_owned()).spawn(move || thread.run())?;
        Ok(Sockets { stopping, sink, counters, thread: Some(thread) })
    }

    /// What they have seen.
    pub fn counters(&self) -> &Arc<SocketCounters> {
        &self.counters
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.stopping.store(true, Relaxed);
        self.sink.wake();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that anybody could hear now.
            let _ = thread.join();
        }
    }
}

struct Server {
    poll: Poll,
    core: Arc<Core>,
    sink: Sink,
    gate: Gate,
    tls: Option<Arc<ServerConfig>>,
    listeners: Vec<AnyListener>,
    /// A connection could not be taken for want of something.
    accept_again: bool,
    /// Connections that are read no further until they have taken replies.
    blocked: BTreeSet<u64>,
    connections: FxHashMap<u64, Connection>,
    /// The connection of each client.
    clients: FxHashMap<u64, u64>,
    next: u64,
    time: Box<dyn Time>,
    looked_at_ms: u64,
    stopping: Arc<AtomicBool>,
    counters: Arc<SocketCounters>,
}

impl Server {
    fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let (mut dirty, mut ready) = (Vec::new(), Vec::new());
        while !self.stopping.load(Relaxed) {
            // What was left for later is for now.
            let timeout = if ready.is_empty() { LOOK_EVERY } else { Duration::ZERO };
            if let Err(error) = self.poll.poll(&mut events, Some(timeout)) {
                if error.kind() != io::ErrorKind::Interrupted {
                    tracing::error!(%error, "the sockets cannot be waited for");
                }
                continue;
            }
            let mut writable = Vec::new();
            for event in &events {
                let token = event.token().0 as u64;
                if event.token() == WAKE {
                    continue;
                } else if token < FIRST_CONNECTION {
                    self.accept(event.token().0 - 1);
                } else if let Some(connection) = self.connections.get_mut(&token) {
                    if connection.is_told(event) {
                        ready.push(token);
                    }
                    if event.is_writable() && connection.waiting_since_ms.is_some() {
                        writable.push(token);
                    }
                }
            }
            self.take_requests(&mut ready, &mut writable);
            self.sink.take_dirty(&mut dirty);
            for number in dirty.iter().chain(&writable) {
                self.send(*number);
            }
            self.look_after(&mut ready);
        }
    }

    fn accept(&mut self, listener: usize) {
        self.accept_again = false;
        loop {
            let accepted = self.listeners[listener].accept();
            let socket = match accepted {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    self.accept_again = true;
                    return;
                }
            };
            self.counters.accepted.fetch_add(1, Relaxed);
            if self.connections.len() >= self.gate.clients_max + DENIED_MAX {
                self.counters.refused.fetch_add(1, Relaxed);
                continue;
            }
            if let Err(error) = self.begin(socket) {
                tracing::warn!(%error, "a connection could not be begun");
            }
        }
    }

    fn begin(&mut self, socket: Socket) -> io::Result<()> {
        let tls = match (&socket, &self.tls) {
            (Socket::Tcp(_), Some(config)) => {
                Some(ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?)
            }
            _ => None,
        };
        let mut stream = Stream::new(socket, tls);
        let number = self.next;
        self.next += 1;
        stream.register(self.poll.registry(), Token(number as usize))?;
        self.connections.insert(number, Connection::new(number, stream, self.time.now().uptime_ms));
        self.counters.open.store(self.connections.len() as u64, Relaxed);
        Ok(())
    }

    /// Reads from all that are ready, and has what came handled in one session.
    fn take_requests(&mut self, ready: &mut Vec<u64>, greeted: &mut Vec<u64>) {
        let (mut ended, sink) = (Vec::new(), self.sink.clone());
        ready.retain(|number| {
            let Some(connection) = self.connections.get_mut(number) else { return false };
            if !connection.is_open(&sink) {
                if self.blocked.insert(*number) {
                    self.counters.paused.fetch_add(1, Relaxed);
                }
                return false;
            }
            // What came before its end is still to be done.
            if let Err(end) = connection.read() {
                ended.push((*number, end));
            }
            true
        });
        if ready.is_empty() {
            return;
        }
        let core = Arc::clone(&self.core);
        let mut session = core.session();
        for number in ready.iter() {
            match self.take_from(*number, &mut session) {
                Ok(true) => greeted.push(*number),
                Ok(false) => {}
                Err(end) => ended.push((*number, end)),
            }
        }
        for (number, end) in ended {
            self.end(number, &end, &mut session);
        }
        drop(session);
        // Those that gave as much as they may at a time are still ready.
        ready.retain(|number| self.connections.get(number).is_some_and(|connection| connection.is_readable));
    }

    /// Has what came by a connection handled; whether it is greeted just now.
    fn take_from(&mut self, number: u64, session: &mut Session<'_>) -> Result<bool, End> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(false) };
        let mut is_new = false;
        if connection.client.is_none() {
            let Some(client) = connection.greet(&self.gate, self.clients.len(), session)? else {
                return Ok(false);
            };
            is_new = true;
            self.sink.add(number);
            if let Some(older) = self.clients.insert(client, number) {
                // What is unread there is never read.
                session.disconnected(older);
                self.sink.remove(older);
                self.connections.remove(&older);
            }
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            // What is left of what was read is for when it has taken replies.
            if connection.handle(&self.sink, session)? && self.blocked.insert(number) {
                self.counters.paused.fetch_add(1, Relaxed);
            }
        }
        Ok(is_new)
    }

    fn end(&mut self, number: u64, end: &End, session: &mut Session<'_>) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        connection.part();
        match end {
            End::Closed | End::Io(_) => {
                tracing::debug!(connection = number, reason = %end, "connection closed")
            }
            _ => {
                self.counters.refused.fetch_add(1, Relaxed);
                tracing::warn!(connection = number, reason = %end, "connection closed");
            }
        }
        if let Some(client) = connection.client {
            session.disconnected(number);
            self.sink.remove(number);
            if self.clients.get(&client) == Some(&number) {
                self.clients.remove(&client);
            }
        }
        self.counters.open.store(self.connections.len() as u64, Relaxed);
    }

    fn send(&mut self, number: u64) {
        let now_ms = self.time.now().uptime_ms;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        self.counters.queued_most.fetch_max(connection.queued(&self.sink) as u64, Relaxed);
        if let Err(end) = connection.send(&self.sink, now_ms) {
            let core = Arc::clone(&self.core);
            self.end(number, &end, &mut core.session());
        }
    }

    /// What is to be done now and then: those that wait for room, and those
    /// that have waited too long.
    fn look_after(&mut self, ready: &mut Vec<u64>) {
        let now_ms = self.time.now().uptime_ms;
        self.blocked.retain(|number| {
            let Some(connection) = self.connections.get(number) else { return false };
            let is_open = connection.is_open(&self.sink);
            if is_open {
                ready.push(*number);
            }
            !is_open
        });
        if now_ms < self.looked_at_ms + LOOK_EVERY.as_millis() as u64 {
            return;
        }
        self.looked_at_ms = now_ms;
        if self.accept_again {
            (0..self.listeners.len()).for_each(|listener| self.accept(listener));
        }
        let late = |since_ms: Option<u64>| since_ms.is_some_and(|since_ms| since_ms + PATIENCE_MS <= now_ms);
        let late = self.connections.values().filter(|connection| late(connection.waiting_since_ms));
        let late: Vec<u64> = late.map(|connection| connection.number).collect();
        if !late.is_empty() {
            let core = Arc::clone(&self.core);
            let mut session = core.session();
            for number in late {
                self.end(number, &End::Silent, &mut session);
            }
        }
    }
}
