//! The connection by which a client watches nodes of a server: the server sends its notices there.
//!
//! It is a Unix socket. What the server has written to one is in the client's hands before the
//! server goes on, and so before it answers anyone else: a client that has read everything from the
//! socket knows of every change that was acknowledged before.

use super::{
    channel::{Channel, is_late},
    connection::ServerConnection,
};
use crate::{
    START,
    wait::check_cancelled,
    watch_link::{SeeEvent, WatchChannel, WatchLink, WatchRequest},
};
use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    task::Poll,
    thread,
    time::{Duration, Instant},
};
use yesquel_wire::{EncodedDestination, frame::Inbox};

/// Pause after an attempt to connect.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How long a reply is waited for, before the question is asked in the usual way.
const WAIT_MOST: Duration = Duration::from_secs(1);

/// The server that a connection is made to.
pub(super) struct WatchedServer<'a> {
    pub(super) destination: EncodedDestination,
    pub(super) timeout: Duration,
    /// Whether the link's own connection is alive.
    pub(super) is_alive: &'a dyn Fn() -> bool,
    pub(super) connect: &'a dyn Fn() -> Option<ServerConnection>,
}

/// The connection of a link, made when it is first needed.
#[derive(Debug)]
pub(super) struct Watching {
    link: Mutex<WatchLink<Channel>>,
    /// Whether a thread waits for a reply, and holds the lock.
    is_asking: AtomicBool,
}

impl WatchChannel for Channel {
    fn send_all(&mut self, mut unsent: &[u8]) -> io::Result<()> {
        while !unsent.is_empty() {
            let sent = self.send_some(unsent)?;
            unsent = unsent.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    fn take_received(&mut self, inbox: &mut Inbox) -> io::Result<bool> {
        Channel::take_received(self, inbox)
    }
}

impl Default for Watching {
    fn default() -> Watching {
        Watching { link: Mutex::new(WatchLink::new(AGAIN_AFTER)), is_asking: AtomicBool::default() }
    }
}

impl WatchedServer<'_> {
    /// Sends a question and waits for its reply.
    fn ask(&self, link: &mut WatchLink<Channel>, request: &[u8], see: SeeEvent<'_>) -> Option<Vec<u8>> {
        let question = WatchRequest { destination: self.destination, request };
        let connect = || (self.connect)().map(ServerConnection::into_parts);
        let until = Instant::now() + self.timeout.min(WAIT_MOST);
        if !link.ask(START.elapsed(), self.is_alive, connect, &question, see) {
            return None;
        }
        loop {
            if let Poll::Ready(reply) = link.take(see) {
                return reply;
            }
            let receive = |channel: &mut Channel, inbox: &mut Inbox| match channel.receive(inbox) {
                Ok(_) => Ok(()),
                Err(error) if is_late(&error) && Instant::now() < until && !check_cancelled() => Ok(()),
                Err(error) => Err(error),
            };
            link.receive(receive, see);
        }
    }
}

impl Watching {
    fn lock(&self) -> MutexGuard<'_, WatchLink<Channel>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the link, unless a thread waits for a reply.
    fn try_lock(&self) -> Option<MutexGuard<'_, WatchLink<Channel>>> {
        loop {
            match self.link.try_lock() {
                Ok(link) => return Some(link),
                Err(TryLockError::Poisoned(link)) => return Some(link.into_inner()),
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
        see: SeeEvent<'_>,
    ) -> Option<Vec<u8>> {
        let mut link = self.try_lock()?;
        self.is_asking.store(true, Release);
        let reply = server.ask(&mut link, request, see);
        self.is_asking.store(false, Release);
        reply
    }

    /// Delivers all notices that the server has written. Returns false if another thread waits for
    /// a reply there.
    pub(super) fn poll(&self, see: SeeEvent<'_>) -> bool {
        let link = self.try_lock();
        link.map(|mut link| link.poll(see)).is_some()
    }

    /// Like [`poll`](Self::poll), after the other thread.
    pub(super) fn wait_and_poll(&self, see: SeeEvent<'_>) {
        self.lock().poll(see);
    }

    /// Closes the connection, which ends all watches.
    pub(super) fn end(&self, see: SeeEvent<'_>) {
        self.lock().end(see);
    }
}
