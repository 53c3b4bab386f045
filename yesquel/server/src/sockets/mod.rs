//! The server's side of connections: one thread for all of them, which reads
//! what has come, has the core handle it, and writes the replies, of all
//! requests that came together in one go. `docs/yesquel/wire.md` says what
//! travels.

mod connection;
mod listener;
mod partial_messages;
mod socket_replies;
mod stream;

pub use connection::REQUESTS_MAX;
pub use listener::Listener;
pub use socket_replies::SocketReplies;

use crate::{Core, Time, WallTime, core::Session, socket_counters::SocketCounters};
use connection::{AdmissionPolicy, CloseReason, Connection};
use listener::AnyListener;
use mio::{Events, Poll, Token, Waker};
use partial_messages::PartialMessages;
use rustc_hash::FxHashMap;
use rustls::{ServerConfig, ServerConnection};
use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use stream::{Socket, Stream};
use yesquel_model::ServerId;

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
    /// Bytes of messages that have come in part, of all clients together, above
    /// which they are taken one after the other.
    pub unfinished_bytes_max: usize,
}

/// Connections beyond the limit, which are not served.
const DENIED_MAX: usize = 64;
/// How long a connection may take to greet.
const GREETING_MS: u64 = 10_000;
/// How long it may, where others have no place because of it: whoever greets
/// does so at once.
const GREETING_AMONG_MANY_MS: u64 = 1_000;
/// How long it may take to take anything of what waits for it, or to go on with
/// a message.
const PATIENCE_MS: u64 = 60_000;
/// How often the log says what may happen for every connection of very many.
const TELL_EVERY_MS: u64 = 5_000;
/// How often those are looked for that have spent the patience.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const WAKE: Token = Token(0);
/// Listeners have the next tokens, connections those from here on.
const FIRST_CONNECTION: u64 = 1 << 16;

/// The thread of the sockets. Dropping it closes all connections.
#[derive(Debug)]
pub struct Sockets {
    stopping: Arc<AtomicBool>,
    sink: SocketReplies,
    counters: Arc<SocketCounters>,
    thread: Option<JoinHandle<()>>,
}

impl Sockets {
    /// Serves connections to a core whose replies to them go to the sink.
    pub fn serve(
        core: Arc<Core>,
        sink: SocketReplies,
        listeners: Vec<Listener>,
        options: SocketOptions,
    ) -> io::Result<Sockets> {
        Sockets::serve_with_clock(core, sink, listeners, options, WallTime::default())
    }

    /// The same by a clock that is not the system's, for those who do not want
    /// to wait: what connections may take in time goes by it.
    pub fn serve_with_clock(
        core: Arc<Core>,
        sink: SocketReplies,
        listeners: Vec<Listener>,
        options: SocketOptions,
        time: impl Time + 'static,
    ) -> io::Result<Sockets> {
        let poll = Poll::new()?;
        sink.wake_with(Waker::new(poll.registry(), WAKE)?);
        let listeners: io::Result<Vec<AnyListener>> = listeners.into_iter().map(AnyListener::new).collect();
        let mut listeners = listeners?;
        for (number, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), Token(number + 1))?;
        }
        let (stopping, counters) = (Arc::<AtomicBool>::default(), Arc::<SocketCounters>::default());
        core.count_sockets(Arc::clone(&counters));
        let SocketOptions { server, credential, tls, connections_max, unfinished_bytes_max } = options;
        let thread = Server {
            poll,
            core,
            sink: sink.clone(),
            admission: AdmissionPolicy { server, credential, clients_max: connections_max },
            tls,
            listeners,
            accept_again: false,
            blocked: BTreeSet::new(),
            connections: FxHashMap::default(),
            clients: FxHashMap::default(),
            ungreeted: BTreeSet::new(),
            partial_messages: PartialMessages::new(unfinished_bytes_max, Arc::clone(&counters)),
            turned_away: 0,
            told_ms: None,
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
    sink: SocketReplies,
    admission: AdmissionPolicy,
    tls: Option<Arc<ServerConfig>>,
    listeners: Vec<AnyListener>,
    /// A connection could not be taken for want of something.
    accept_again: bool,
    /// Connections that are read no further until they have taken replies.
    blocked: BTreeSet<u64>,
    connections: FxHashMap<u64, Connection>,
    /// The connection of each client.
    clients: FxHashMap<u64, u64>,
    /// Connections that have not greeted, the oldest first.
    ungreeted: BTreeSet<u64>,
    /// What is held of messages that are not whole.
    partial_messages: PartialMessages,
    /// Connections that were turned away since the log has told of it.
    turned_away: u64,
    /// When the log has told last of what may happen very often.
    told_ms: Option<u64>,
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
            let (mut socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    self.accept_again = true;
                    if self.may_tell() {
                        tracing::warn!(%error, "a connection could not be taken");
                    }
                    return;
                }
            };
            self.counters.accepted.fetch_add(1, Relaxed);
            if !self.has_place() {
                self.counters.refused.fetch_add(1, Relaxed);
                self.turned_away += 1;
                if matches!(socket, Socket::Unix(_)) || self.tls.is_none() {
                    listener::turn_away(&mut socket, self.admission.clients_max);
                }
                continue;
            }
            if let Err(error) = self.begin(socket, &peer) {
                tracing::warn!(%peer, %error, "a connection could not be begun");
            }
        }
    }

    /// Whether there is a place for one more connection; one that has not
    /// greeted may have to leave.
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

    /// Whether the log may tell of something that may happen very often.
    fn may_tell(&mut self) -> bool {
        let now_ms = self.time.now().uptime_ms;
        let may = self.told_ms.is_none_or(|told_ms| told_ms + TELL_EVERY_MS <= now_ms);
        if may {
            self.told_ms = Some(now_ms);
        }
        may
    }

    fn begin(&mut self, socket: Socket, peer: &str) -> io::Result<()> {
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
        let now_ms = self.time.now().uptime_ms;
        self.connections.insert(number, Connection::new(number, stream, peer.into(), now_ms));
        self.ungreeted.insert(number);
        self.counters.open.store(self.connections.len() as u64, Relaxed);
        Ok(())
    }

    /// Reads from all that are ready, and has what came handled in one session.
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
            // What came before its end is still to be done.
            if let Err(end) = connection.read(now_ms) {
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
    fn take_from(&mut self, number: u64, session: &mut Session<'_>) -> Result<bool, CloseReason> {
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
                // What is unread there is never read.
                session.disconnected(older);
                self.sink.remove(older);
                self.connections.remove(&older);
                self.partial_messages.holds(older, 0);
            }
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            // What is left of what was read is for when it has taken replies.
            let is_paused = connection.handle(&self.sink, session)?;
            self.partial_messages.holds(number, connection.unfinished());
            if is_paused && self.blocked.insert(number) {
                self.counters.paused.fetch_add(1, Relaxed);
            }
        }
        Ok(is_new)
    }

    /// Closes a connection. Nothing else knows of one that has not greeted.
    fn remove(&mut self, number: u64, end: &CloseReason) -> Option<Connection> {
        let mut connection = self.connections.remove(&number)?;
        self.ungreeted.remove(&number);
        self.partial_messages.holds(number, 0);
        connection.part();
        let peer = &connection.peer;
        match end {
            CloseReason::Closed | CloseReason::Io(_) => {
                tracing::debug!(connection = number, %peer, reason = %end, "connection closed")
            }
            // Told together.
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

    fn end(&mut self, number: u64, end: &CloseReason, session: &mut Session<'_>) {
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
            let is_open = connection.is_open(&self.sink) && !self.partial_messages.waits(*number);
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
        if self.turned_away > 0 && self.may_tell() {
            tracing::warn!(
                turned_away = self.turned_away,
                clients = self.clients.len(),
                clients_max = self.admission.clients_max,
                "more connections than this server takes: some were closed before they were heard; --clients-max tells how many clients it serves"
            );
            self.turned_away = 0;
        }
        let Server { connections, blocked, partial_messages, .. } = self;
        let late = connections.values_mut().filter_map(|connection| {
            let number = connection.number;
            Some((number, connection.is_late(partial_messages, blocked.contains(&number), now_ms)?))
        });
        let late: Vec<(u64, CloseReason)> = late.collect();
        if !late.is_empty() {
            let core = Arc::clone(&self.core);
            let mut session = core.session();
            for (number, end) in late {
                self.end(number, &end, &mut session);
            }
        }
    }
}
