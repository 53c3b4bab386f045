//! Server side of connections: one thread reads the requests of all connections, has the core
//! handle them, and writes the replies of a round together. `docs/yesquel/wire.md` describes the
//! messages.

mod admission;
mod connection;
mod listener;
mod partial_messages;
mod revocation;
mod socket_replies;
mod stream;

pub use connection::REQUESTS_MAX;
pub use listener::Listener;
pub use revocation::Revocations;
pub use socket_replies::SocketReplies;

use crate::{MachineCores, Time, WallTime, machine_cores::MachineSession, socket_counters::SocketCounters};
use admission::AdmissionPolicy;
use connection::{ClientConnection, CloseReason};
use listener::AnyListener;
use mio::{Events, Poll, Token, Waker};
use partial_messages::PartialMessages;
use revocation::RevocationRequests;
use rustc_hash::FxHashMap;
use rustls::ServerConnection;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use stream::{ServerSocket, SocketStream};
use yesquel_model::ServerId;
use yesquel_node::{NoticeSockets, write_notices};
use yesquel_secrets::PresentSecrets;
use yesquel_wire::status::AdmittedConnections;

/// Options of a socket server.
#[derive(Debug)]
pub struct SocketServerOptions {
    /// First group of the machine.
    pub server: ServerId,
    /// Encryption of TCP connections, and the credentials that clients and other servers must present.
    /// Each connection is admitted by those that are in force when it begins.
    pub secrets: Arc<PresentSecrets>,
    /// Maximum number of clients.
    pub connections_max: usize,
    /// Bytes of incomplete messages of all clients above which they are received one at a time.
    pub unfinished_bytes_max: usize,
}

/// Connections beyond the limit that are answered with a refusal.
const DENIED_MAX: usize = 64;
/// Time limit for a greeting, in milliseconds.
const GREETING_MS: u64 = 10_000;
/// Time limit for a greeting when its place is needed, in milliseconds: clients greet at once.
const GREETING_AMONG_MANY_MS: u64 = 1_000;
/// Time limit for a client to read some of its replies or to continue a message, in milliseconds.
const STALL_MS: u64 = 60_000;
/// Minimum interval between log messages that every connection may cause, in milliseconds.
const LOG_INTERVAL_MS: u64 = 5_000;
/// Interval of the checks for exceeded time limits.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

const WAKE: Token = Token(0);
/// Tokens below are those of listeners.
const FIRST_CONNECTION: u64 = 1 << 16;

/// Thread of the sockets. Dropping it closes all connections.
#[derive(Debug)]
pub struct SocketServer {
    stopping: Arc<AtomicBool>,
    sink: SocketReplies,
    counters: Arc<SocketCounters>,
    revocations: Revocations,
    thread: Option<JoinHandle<()>>,
}

impl SocketServer {
    /// Serves connections to the groups of a machine, whose replies must go to `sink`.
    pub fn serve(
        cores: impl Into<MachineCores>,
        sink: SocketReplies,
        listeners: Vec<Listener>,
        options: SocketServerOptions,
    ) -> io::Result<SocketServer> {
        SocketServer::serve_with_clock(cores, sink, listeners, options, WallTime::default())
    }

    /// Like [`serve`](Self::serve), with the clock that time limits use.
    pub fn serve_with_clock(
        cores: impl Into<MachineCores>,
        sink: SocketReplies,
        listeners: Vec<Listener>,
        options: SocketServerOptions,
        time: impl Time + 'static,
    ) -> io::Result<SocketServer> {
        let poll = Poll::new()?;
        sink.wake_with(Waker::new(poll.registry(), WAKE)?);
        let listeners: io::Result<Vec<AnyListener>> = listeners.into_iter().map(AnyListener::new).collect();
        let mut listeners = listeners?;
        for (number, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), Token(number + 1))?;
        }
        let (stopping, counters) = (Arc::<AtomicBool>::default(), Arc::<SocketCounters>::default());
        let cores = cores.into();
        let SocketServerOptions { server, secrets, connections_max, unfinished_bytes_max } = options;
        for core in cores.iter() {
            core.count_sockets(Arc::clone(&counters));
            core.show_secrets(Arc::clone(&secrets));
        }
        let (membership, (revocations, revoked)) =
            (cores.first().membership(), Revocations::new(sink.clone()));
        let thread = SocketLoop {
            poll,
            cores,
            sink: sink.clone(),
            admission: AdmissionPolicy { server, secrets, clients_max: connections_max, membership },
            revoked,
            listeners,
            accept_again: false,
            blocked: BTreeSet::new(),
            connections: FxHashMap::default(),
            clients: FxHashMap::default(),
            ungreeted: BTreeSet::new(),
            partial_messages: PartialMessages::new(unfinished_bytes_max, Arc::clone(&counters)),
            turned_away: 0,
            logged_ms: None,
            next: FIRST_CONNECTION,
            time: Box::new(time),
            checked_at_ms: 0,
            stopping: Arc::clone(&stopping),
            counters: Arc::clone(&counters),
        };
        let thread = thread::Builder::new().name("yesquel-sockets".to_owned()).spawn(move || thread.run())?;
        Ok(SocketServer { stopping, sink, counters, revocations, thread: Some(thread) })
    }

    /// Returns what closes connections whose credential was removed.
    pub fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Arc<SocketCounters> {
        &self.counters
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        self.stopping.store(true, Relaxed);
        self.sink.wake();
        if let Some(thread) = self.thread.take() {
            // Nothing could receive a panic's message now.
            let _ = thread.join();
        }
    }
}

struct SocketLoop {
    poll: Poll,
    cores: MachineCores,
    sink: SocketReplies,
    admission: AdmissionPolicy,
    /// Requests to close the connections whose credential was removed.
    revoked: RevocationRequests,
    listeners: Vec<AnyListener>,
    /// Accepting failed for want of resources, and is retried.
    accept_again: bool,
    /// Paused connections, whose clients must read replies first.
    blocked: BTreeSet<u64>,
    connections: FxHashMap<u64, ClientConnection>,
    /// Number of each client's connection.
    clients: FxHashMap<u64, u64>,
    /// Connections that have not greeted, the oldest first.
    ungreeted: BTreeSet<u64>,
    /// Incomplete messages.
    partial_messages: PartialMessages,
    /// Connections refused since the last log message about them.
    turned_away: u64,
    /// Time of the last log message that every connection may cause.
    logged_ms: Option<u64>,
    next: u64,
    time: Box<dyn Time>,
    checked_at_ms: u64,
    stopping: Arc<AtomicBool>,
    counters: Arc<SocketCounters>,
}

impl SocketLoop {
    fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let (mut dirty, mut ready) = (Vec::new(), Vec::new());
        while !self.stopping.load(Relaxed) {
            // Do not block while connections have requests left over.
            let timeout = if ready.is_empty() { CHECK_INTERVAL } else { Duration::ZERO };
            let polled = self.poll.poll(&mut events, Some(timeout));
            self.serve_revocations();
            if let Err(error) = polled {
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
                    if connection.note_event(event) {
                        ready.push(token);
                    }
                    if event.is_writable() && connection.waiting_since_ms.is_some() {
                        writable.push(token);
                    }
                }
            }
            self.take_requests(&mut ready, &mut writable);
            write_notices(self.sink.take_notices(), &mut self);
            self.sink.take_dirty(&mut dirty);
            for number in dirty.iter().chain(&writable) {
                self.send(*number);
            }
            self.check_limits(&mut ready);
        }
    }

    fn accept(&mut self, listener: usize) {
        self.accept_again = false;
        loop {
            let accepted = self.listeners[listener].accept();
            let (mut socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    self.accept_again = true;
                    if self.may_log() {
                        tracing::warn!(%error, "a connection could not be taken");
                    }
                    return;
                }
            };
            self.counters.accepted.fetch_add(1, Relaxed);
            if !self.has_place() {
                self.counters.refused.fetch_add(1, Relaxed);
                self.turned_away += 1;
                if matches!(socket, ServerSocket::Unix(_)) || self.admission.secrets.get().tls.is_none() {
                    listener::turn_away(&mut socket, self.admission.clients_max);
                }
                continue;
            }
            if let Err(error) = self.begin(socket, &peer) {
                tracing::warn!(%peer, %error, "a connection could not be begun");
            }
        }
    }

    /// Returns whether there is room for one more connection; an ungreeted one may be closed for
    /// it.
    fn has_place(&mut self) -> bool {
        if self.connections.len() < self.admission.clients_max + DENIED_MAX {
            return true;
        }
        let oldest = self.ungreeted.first().and_then(|number| self.connections.get(number));
        let Some(oldest) = oldest else { return false };
        let now_ms = self.time.now().uptime_ms;
        let is_old = |since_ms: u64| since_ms + GREETING_AMONG_MANY_MS <= now_ms;
        let is_old = oldest.waiting_since_ms.is_some_and(is_old);
        if is_old {
            let number = oldest.number;
            self.turned_away += 1;
            self.remove(number, &CloseReason::Crowded);
        }
        is_old
    }

    /// Returns whether a message that every connection may cause can be logged now.
    fn may_log(&mut self) -> bool {
        let now_ms = self.time.now().uptime_ms;
        let may = self.logged_ms.is_none_or(|logged_ms| logged_ms + LOG_INTERVAL_MS <= now_ms);
        if may {
            self.logged_ms = Some(now_ms);
        }
        may
    }

    fn begin(&mut self, socket: ServerSocket, peer: &str) -> io::Result<()> {
        let config = match &socket {
            ServerSocket::Tcp(_) => self.admission.secrets.get().tls.clone(),
            ServerSocket::Unix(_) => None,
        };
        let tls = config.map(ServerConnection::new).transpose().map_err(io::Error::other)?;
        let mut stream = SocketStream::new(socket, tls);
        let number = self.next;
        self.next += 1;
        stream.register(self.poll.registry(), Token(number as usize))?;
        let now_ms = self.time.now().uptime_ms;
        self.connections.insert(number, ClientConnection::new(number, stream, peer.into(), now_ms));
        self.ungreeted.insert(number);
        self.counters.open.store(self.connections.len() as u64, Relaxed);
        Ok(())
    }

    /// Reads from all ready connections and handles their requests in one session.
    fn take_requests(&mut self, ready: &mut Vec<u64>, greeted: &mut Vec<u64>) {
        if ready.is_empty() {
            return;
        }
        let (mut ended, sink) = (Vec::new(), self.sink.clone());
        let now_ms = self.time.now().uptime_ms;
        ready.retain(|number| {
            let Some(connection) = self.connections.get_mut(number) else { return false };
            if self.partial_messages.waits(*number) {
                self.blocked.insert(*number);
                return false;
            }
            if !connection.is_open(&sink) {
                if self.blocked.insert(*number) {
                    self.counters.paused.fetch_add(1, Relaxed);
                }
                return false;
            }
            // Requests before the end of the stream are still handled.
            if let Err(end) = connection.read(now_ms) {
                ended.push((*number, end));
            }
            true
        });
        if ready.is_empty() {
            return;
        }
        let cores = self.cores.clone();
        let mut session = cores.session();
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
        // Connections that used up their turn are still ready.
        ready.retain(|number| self.connections.get(number).is_some_and(|connection| connection.is_readable));
    }

    /// Handles the requests of a connection. Returns whether it has just greeted.
    fn take_from(&mut self, number: u64, session: &mut MachineSession<'_>) -> Result<bool, CloseReason> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(false) };
        let mut is_new = false;
        if connection.client.is_none() {
            let Some(client) = connection.greet(&self.admission, self.clients.len(), session)? else {
                return Ok(false);
            };
            is_new = true;
            self.ungreeted.remove(&number);
            self.sink.add(number);
            if let Some(older) = self.clients.insert(client, number) {
                // The old connection's unread requests are dropped.
                session.disconnected(older);
                self.sink.remove(older);
                self.connections.remove(&older);
                self.partial_messages.holds(older, 0);
            }
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            // The remaining requests wait until the client has read replies.
            let is_paused = connection.handle(&self.sink, session)?;
            self.partial_messages.holds(number, connection.unfinished());
            if is_paused && self.blocked.insert(number) {
                self.counters.paused.fetch_add(1, Relaxed);
            }
        }
        Ok(is_new)
    }

    /// Closes a connection that has not greeted, or whose state is released already.
    fn remove(&mut self, number: u64, end: &CloseReason) -> Option<ClientConnection> {
        let mut connection = self.connections.remove(&number)?;
        self.ungreeted.remove(&number);
        self.partial_messages.holds(number, 0);
        connection.send_last();
        let peer = &connection.peer;
        match end {
            CloseReason::Closed | CloseReason::Io(_) => {
                tracing::debug!(connection = number, %peer, reason = %end, "connection closed")
            }
            // Logged together.
            CloseReason::Revoked => {
                self.counters.revoked.fetch_add(1, Relaxed);
                tracing::debug!(connection = number, %peer, reason = %end, "connection closed");
            }
            CloseReason::Crowded => {
                self.counters.refused.fetch_add(1, Relaxed);
                tracing::debug!(connection = number, %peer, reason = %end, "connection closed");
            }
            _ => {
                self.counters.refused.fetch_add(1, Relaxed);
                tracing::warn!(connection = number, %peer, reason = %end, "connection closed");
            }
        }
        self.counters.open.store(self.connections.len() as u64, Relaxed);
        Some(connection)
    }

    fn end(&mut self, number: u64, end: &CloseReason, session: &mut MachineSession<'_>) {
        let Some(connection) = self.remove(number, end) else { return };
        if let Some(client) = connection.client {
            session.disconnected(number);
            self.sink.remove(number);
            if self.clients.get(&client) == Some(&number) {
                self.clients.remove(&client);
            }
        }
    }

    fn send(&mut self, number: u64) {
        let now_ms = self.time.now().uptime_ms;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        self.counters.queued_most.fetch_max(connection.queued(&self.sink) as u64, Relaxed);
        if let Err(end) = connection.send(&self.sink, now_ms) {
            let cores = self.cores.clone();
            self.end(number, &end, &mut cores.session());
        }
    }

    /// Periodic work: connections that wait for memory, and exceeded time limits.
    fn check_limits(&mut self, ready: &mut Vec<u64>) {
        let now_ms = self.time.now().uptime_ms;
        self.blocked.retain(|number| {
            let Some(connection) = self.connections.get(number) else { return false };
            let is_open = connection.is_open(&self.sink) && !self.partial_messages.waits(*number);
            if is_open {
                ready.push(*number);
            }
            !is_open
        });
        if now_ms < self.checked_at_ms + CHECK_INTERVAL.as_millis() as u64 {
            return;
        }
        self.checked_at_ms = now_ms;
        if self.accept_again {
            (0..self.listeners.len()).for_each(|listener| self.accept(listener));
        }
        if self.turned_away > 0 && self.may_log() {
            tracing::warn!(
                turned_away = self.turned_away,
                clients = self.clients.len(),
                clients_max = self.admission.clients_max,
                "more connections than this server takes: some were closed before their handshake; --clients-max sets the number of clients"
            );
            self.turned_away = 0;
        }
        let SocketLoop { connections, blocked, partial_messages, .. } = self;
        let late = connections.values_mut().filter_map(|connection| {
            let number = connection.number;
            Some((number, connection.overdue_reason(partial_messages, blocked.contains(&number), now_ms)?))
        });
        let late: Vec<(u64, CloseReason)> = late.collect();
        self.end_all(late);
        self.count_admitted();
    }

    fn end_all(&mut self, ends: Vec<(u64, CloseReason)>) {
        if ends.is_empty() {
            return;
        }
        let cores = self.cores.clone();
        let mut session = cores.session();
        for (number, end) in ends {
            self.end(number, &end, &mut session);
        }
    }

    /// Counts the connections by role and credential.
    fn count_admitted(&self) {
        let secrets = self.admission.secrets.get();
        // All credentials, so that one without connections shows 0.
        let mut counted: BTreeMap<_, u64> = admission::shown_lines(&secrets).map(|line| (line, 0)).collect();
        for admitted in self.connections.values().filter_map(|connection| connection.admitted.as_ref()) {
            let line = admitted.line(&secrets).map(|line| line as u64);
            *counted.entry((admitted.shown_role(), line)).or_default() += 1;
        }
        let counted = counted.into_iter();
        let counted = counted.map(|((role, line), open)| AdmittedConnections { role, line, open });
        self.counters.set_admitted(counted.collect());
    }
}

impl NoticeSockets for SocketLoop {
    type Failure = CloseReason;

    fn write_notices(&mut self, number: u64, notices: Vec<u8>) -> Result<(), CloseReason> {
        let connection = self.connections.get_mut(&number);
        connection.map_or(Ok(()), |connection| connection.send_notices(notices))
    }

    fn close(&mut self, number: u64, reason: CloseReason) {
        let cores = self.cores.clone();
        self.end(number, &reason, &mut cores.session());
    }
}
