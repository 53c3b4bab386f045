//! State of the connection by which a client watches nodes of a server: when it is made, what its
//! messages mean, and when it is lost. It does no I/O of its own, so that sockets and a simulator
//! drive the same code.

use crate::WatchEvent;
use std::{fmt, io, task::Poll, time::Duration};
use yesquel_wire::{
    Correction, EncodedDestination, Notice,
    frame::{Inbox, Outbox},
};

/// Byte stream to a server. What the server has written to it is in the client's hands before the
/// server goes on.
pub trait WatchChannel {
    /// Sends all bytes.
    ///
    /// # Errors
    ///
    /// If the connection has ended, or takes nothing for too long.
    fn send_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Takes the bytes that have come, without waiting. Returns whether there were any.
    ///
    /// # Errors
    ///
    /// If the connection has ended, and all that came before was taken.
    fn take_received(&mut self, inbox: &mut Inbox) -> io::Result<bool>;
}

/// Open connection.
#[derive(Debug)]
struct WatchConnection<C> {
    channel: C,
    inbox: Inbox,
    /// Number of the last request.
    requests: u64,
}

/// Question on the connection.
#[derive(Debug)]
pub struct WatchRequest<'a> {
    /// The group that is asked.
    pub destination: EncodedDestination,
    /// The request.
    pub request: &'a [u8],
}

/// Receiver of what a client learns about the nodes that it watches.
pub type SeeEvent<'a> = &'a mut dyn FnMut(WatchEvent);

/// Connection by which a client watches nodes of a server, made when it is first needed.
pub struct WatchLink<C> {
    connection: Option<WatchConnection<C>>,
    /// Pause after an attempt to connect, until the next one.
    again_after: Duration,
    /// Earliest uptime of the next attempt.
    later: Option<Duration>,
}

impl<C> fmt::Debug for WatchLink<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchLink").field("is_connected", &self.connection.is_some()).finish_non_exhaustive()
    }
}

fn foreign() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl<C: WatchChannel> WatchConnection<C> {
    /// Delivers the messages that have come. Returns the reply to the last request.
    fn take(&mut self, see: SeeEvent<'_>) -> io::Result<Option<Vec<u8>>> {
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

    fn send(&mut self, question: &WatchRequest<'_>) -> io::Result<()> {
        self.requests += 1;
        let (mut outbox, mut bytes) = (Outbox::default(), Vec::new());
        outbox.push_after(self.requests, question.destination.bytes(), question.request);
        while outbox.fill(&mut bytes) {}
        self.channel.send_all(&bytes)
    }

    /// Takes all notices that have come.
    fn poll(&mut self, see: SeeEvent<'_>) -> io::Result<()> {
        while self.channel.take_received(&mut self.inbox)? {
            if self.take(see)?.is_some() {
                return Err(foreign());
            }
        }
        Ok(())
    }
}

impl<C: WatchChannel> WatchLink<C> {
    /// Creates a link that is not connected. It connects at most once in this time.
    pub fn new(again_after: Duration) -> WatchLink<C> {
        WatchLink { connection: None, again_after, later: None }
    }

    /// Sends a question, after connecting if necessary. Returns whether its reply may come: call
    /// [`take`](Self::take) until then.
    ///
    /// If the client's main connection has ended, it does not connect: the next request there makes
    /// a new one, and a transaction must not have a snapshot by then, for it could not go on.
    pub fn ask(
        &mut self,
        now: Duration,
        is_alive: impl FnOnce() -> bool,
        connect: impl FnOnce() -> Option<(C, Inbox)>,
        question: &WatchRequest<'_>,
        see: SeeEvent<'_>,
    ) -> bool {
        if self.connection.is_none() {
            if self.later.is_some_and(|later| now < later) || !is_alive() {
                return false;
            }
            self.later = Some(now + self.again_after);
            let connected = connect();
            self.connection =
                connected.map(|(channel, inbox)| WatchConnection { channel, inbox, requests: 0 });
        }
        let Some(connection) = &mut self.connection else { return false };
        let sent = connection.send(question);
        if sent.is_err() {
            self.lost(see);
        }
        sent.is_ok()
    }

    /// Waits for bytes, as the caller does it. An error ends the connection.
    pub fn receive(&mut self, receive: impl FnOnce(&mut C, &mut Inbox) -> io::Result<()>, see: SeeEvent<'_>) {
        if let Some(WatchConnection { channel, inbox, .. }) = &mut self.connection
            && receive(channel, inbox).is_err()
        {
            self.lost(see);
        }
    }

    /// Delivers the notices that were received. Returns the reply to the last question once it was
    /// received; `None`: there will be none, and the question must be asked in the usual way.
    pub fn take(&mut self, see: SeeEvent<'_>) -> Poll<Option<Vec<u8>>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
        match connection.take(see) {
            // The other way repeats the request where the group is.
            Ok(Some(reply)) => Poll::Ready(Some(reply).filter(|reply| Correction::of(reply).is_none())),
            Ok(None) => Poll::Pending,
            Err(_) => {
                self.lost(see);
                Poll::Ready(None)
            }
        }
    }

    /// Delivers all notices that the server has written. No question may wait for its reply.
    pub fn poll(&mut self, see: SeeEvent<'_>) {
        if let Some(connection) = &mut self.connection
            && connection.poll(see).is_err()
        {
            self.lost(see);
        }
    }

    /// Ends the connection, and all watches with it.
    pub fn lost(&mut self, see: SeeEvent<'_>) {
        self.connection = None;
        see(WatchEvent::Lost);
    }

    /// Ends all watches. The next question may connect at once.
    pub fn end(&mut self, see: SeeEvent<'_>) {
        self.later = None;
        self.lost(see);
    }
}
