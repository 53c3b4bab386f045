//! The connection by which a client watches nodes of a server: the server sends its notices there.
//!
//! It is a Unix socket. What the server has written to one is in the client's hands before the
//! server goes on, and so before it answers anyone else: a client that has read everything from the
//! socket knows of every change that was acknowledged before.

use super::{
    channel::{Channel, is_late},
    connection::ServerConnection,
};
use crate::{WatchEvent, wait::check_cancelled};
use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};
use yesquel_wire::{
    Correction, EncodedDestination, Notice,
    frame::{Inbox, Outbox},
};

/// Pause after a connection has failed.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How long a reply is waited for, before the question is asked in the usual way.
const WAIT_MOST: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct WatchConnection {
    channel: Channel,
    inbox: Inbox,
    /// Number of the last request.
    requests: u64,
}

#[derive(Debug, Default)]
struct WatchState {
    connection: Option<WatchConnection>,
    /// Earliest time for the next connection attempt.
    later: Option<Instant>,
}

/// The server that a connection is made to.
pub(super) struct WatchedServer<'a> {
    pub(super) destination: EncodedDestination,
    pub(super) timeout: Duration,
    /// Whether the link's own connection is alive.
    pub(super) is_alive: &'a dyn Fn() -> bool,
    pub(super) connect: &'a dyn Fn() -> Option<ServerConnection>,
}

/// The connection of a link, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Watching {
    state: Mutex<WatchState>,
    /// Whether a thread waits for a reply, and holds the lock.
    is_asking: AtomicBool,
}

fn foreign() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl WatchConnection {
    fn connect(server: &WatchedServer<'_>) -> Option<WatchConnection> {
        let (channel, inbox) = (server.connect)()?.into_parts();
        Some(WatchConnection { channel, inbox, requests: 0 })
    }

    /// Delivers the messages that have come. Returns the reply to the last request.
    fn take(&mut self, see: &mut dyn FnMut(WatchEvent)) -> io::Result<Option<Vec<u8>>> {
        let (mut reply, mut is_foreign, requests) = (None, false, self.requests);
        let taken = self.inbox.take(|number, message| match number {
            Notice::NUMBER => match Notice::decode(message) {
                Ok(notice) => see(WatchEvent::Changed(notice)),
                Err(_) => is_foreign = true,
            },
            number if number == requests => reply = Some(message.to_vec()),
            _ => is_foreign = true,
        });
        taken.map_err(io::Error::other)?;
        if is_foreign { Err(foreign()) } else { Ok(reply) }
    }

    fn ask(
        &mut self,
        destination: &EncodedDestination,
        request: &[u8],
        timeout: Duration,
        see: &mut dyn FnMut(WatchEvent),
    ) -> io::Result<Vec<u8>> {
        self.requests += 1;
        let (mut outbox, mut bytes) = (Outbox::default(), Vec::new());
        outbox.push_after(self.requests, destination.bytes(), request);
        while outbox.fill(&mut bytes) {}
        let until = Instant::now() + timeout;
        let mut unsent = &bytes[..];
        while !unsent.is_empty() {
            let sent = self.channel.send_some(unsent)?;
            unsent = unsent.get(sent..).unwrap_or_default();
        }
        loop {
            if let Some(reply) = self.take(see)? {
                return Ok(reply);
            }
            match self.channel.receive(&mut self.inbox) {
                Ok(_) => {}
                Err(error) if is_late(&error) && Instant::now() < until && !check_cancelled() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes all notices that have come.
    fn poll(&mut self, see: &mut dyn FnMut(WatchEvent)) -> io::Result<()> {
        while self.channel.take_received(&mut self.inbox)? {
            if self.take(see)?.is_some() {
                return Err(foreign());
            }
        }
        Ok(())
    }
}

impl WatchState {
    fn ask(
        &mut self,
        server: &WatchedServer<'_>,
        request: &[u8],
        see: &mut dyn FnMut(WatchEvent),
    ) -> Option<Vec<u8>> {
        if self.connection.is_none() {
            let now = Instant::now();
            if self.later.is_some_and(|later| now < later) {
                return None;
            }
            // If the other connection has ended, the next request there makes a new one. A transaction
            // must not have a snapshot by then: it could not go on.
            if !(server.is_alive)() {
                return None;
            }
            self.later = Some(now + AGAIN_AFTER);
            self.connection = WatchConnection::connect(server);
        }
        let (destination, timeout) = (server.destination, server.timeout.min(WAIT_MOST));
        let reply = self.connection.as_mut()?.ask(&destination, request, timeout, see).ok();
        if reply.is_none() {
            self.connection = None;
            see(WatchEvent::Lost);
        }
        reply
    }
}

impl Watching {
    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state, unless a thread waits for a reply.
    fn try_lock(&self) -> Option<MutexGuard<'_, WatchState>> {
        loop {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(state)) => return Some(state.into_inner()),
                Err(TryLockError::WouldBlock) if self.is_asking.load(Acquire) => return None,
                // Another thread takes its notices, and waits for nothing.
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
    }

    /// Sends a request and waits for its reply. `None`: there is no such connection now, or another
    /// thread waits there.
    pub(super) fn ask(
        &self,
        server: &WatchedServer<'_>,
        request: &[u8],
        see: &mut dyn FnMut(WatchEvent),
    ) -> Option<Vec<u8>> {
        let mut state = self.try_lock()?;
        self.is_asking.store(true, Release);
        let reply = state.ask(server, request, see);
        self.is_asking.store(false, Release);
        // The other way repeats the request where the group is.
        reply.filter(|reply| Correction::of(reply).is_none())
    }

    /// Delivers all notices that the server has written. Returns false if another thread waits for
    /// a reply there; `waits`: waits for it instead.
    pub(super) fn poll(&self, waits: bool, see: &mut dyn FnMut(WatchEvent)) -> bool {
        let state = if waits { Some(self.lock()) } else { self.try_lock() };
        let Some(mut state) = state else { return false };
        if let Some(connection) = &mut state.connection
            && connection.poll(see).is_err()
        {
            state.connection = None;
            see(WatchEvent::Lost);
        }
        true
    }

    /// Closes the connection, which ends all watches.
    pub(super) fn end(&self, see: &mut dyn FnMut(WatchEvent)) {
        let mut state = self.lock();
        (state.connection, state.later) = (None, None);
        see(WatchEvent::Lost);
    }
}
