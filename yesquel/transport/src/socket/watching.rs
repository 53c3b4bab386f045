//! The connection by which a client watches nodes of a server: the server sends its notices there.
//!
//! It is a Unix socket. What the server has written to one is in the client's hands before the
//! server goes on, and so before it answers anyone else: a client that has read everything from the
//! socket knows of every change that was acknowledged before.

use super::{
    ServerLink, SharedLinks,
    channel::{Channel, is_late},
    connection::ServerConnection,
    lanes,
};
use crate::{Address, WatchEvent, wait::check_cancelled};
use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use yesquel_wire::{
    Notice,
    frame::{Inbox, Outbox},
};

/// Pause after a connection has failed.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

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

/// The connection of a link, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Watching(Mutex<WatchState>);

fn foreign() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl WatchConnection {
    fn connect(link: &ServerLink, shared: &SharedLinks) -> Option<WatchConnection> {
        let number = lanes::watching_number(shared.client);
        let connection = ServerConnection::connect(&link.address, number, &shared.options).ok()?;
        if connection.server != link.server {
            return None;
        }
        let (channel, inbox) = connection.into_parts();
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
        request: &[u8],
        timeout: Duration,
        see: &mut dyn FnMut(WatchEvent),
    ) -> io::Result<Vec<u8>> {
        self.requests += 1;
        let (mut outbox, mut bytes) = (Outbox::default(), Vec::new());
        outbox.push(self.requests, request);
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

impl Watching {
    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for its reply. `None`: there is no such connection now.
    pub(super) fn ask(
        &self,
        link: &ServerLink,
        shared: &SharedLinks,
        request: &[u8],
        see: &mut dyn FnMut(WatchEvent),
    ) -> Option<Vec<u8>> {
        if !matches!(link.address, Address::Unix(_)) {
            return None;
        }
        let mut state = self.lock();
        if state.connection.is_none() {
            let now = Instant::now();
            if state.later.is_some_and(|later| now < later) {
                return None;
            }
            state.later = Some(now + AGAIN_AFTER);
            state.connection = WatchConnection::connect(link, shared);
        }
        match state.connection.as_mut()?.ask(request, shared.options.timeout, see) {
            Ok(reply) => Some(reply),
            Err(_) => {
                state.connection = None;
                see(WatchEvent::Lost);
                None
            }
        }
    }

    /// Delivers all notices that the server has written.
    pub(super) fn poll(&self, see: &mut dyn FnMut(WatchEvent)) {
        let mut state = self.lock();
        if let Some(connection) = &mut state.connection
            && connection.poll(see).is_err()
        {
            state.connection = None;
            see(WatchEvent::Lost);
        }
    }

    /// Closes the connection, which ends all watches.
    pub(super) fn end(&self, see: &mut dyn FnMut(WatchEvent)) {
        let mut state = self.lock();
        (state.connection, state.later) = (None, None);
        see(WatchEvent::Lost);
    }
}
