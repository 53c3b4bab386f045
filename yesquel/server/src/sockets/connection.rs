//! One connection: greeting, frames in, frames out.

use super::{
    GREETING_MS, PATIENCE_MS,
    partial_messages::PartialMessages,
    socket_replies::{Replies, SocketReplies},
    stream::{Came, Stream},
};
use crate::core::Session;
use mio::event::Event;
use std::io;
use subtle::ConstantTimeEq;
use thiserror::Error;
use yesquel_engine::Caller;
use yesquel_model::ServerId;
use yesquel_wire::{
    ClientHeartbeat, Malformed,
    frame::{FrameError, Inbox},
    greeting::{Denial, GreetingError, Hello, LANE, VERSIONS, Welcome, common_version},
};

/// Requests that a connection may have under way. It is read no further while
/// it has as many.
pub const REQUESTS_MAX: usize = 4096;
/// Bytes of replies that may wait for a connection before it is read no
/// further.
const REPLY_BYTES_MAX: usize = 16 << 20;
/// Reads of one connection before the others have their turn.
const READS_MAX: usize = 4;

/// Why a connection is closed.
#[derive(Debug, Error)]
pub(super) enum CloseReason {
    #[error("its client has closed it")]
    Closed,
    #[error("it has not greeted for {} s", GREETING_MS / 1_000)]
    Ungreeted,
    #[error("it has not greeted, and others wait for its place")]
    Crowded,
    #[error("it has taken nothing of what waits for it for {} s", PATIENCE_MS / 1_000)]
    Silent,
    #[error("it has begun a message and not gone on with it for {} s", PATIENCE_MS / 1_000)]
    Stalled,
    #[error("there was no room for the rest of its messages for {} s", PATIENCE_MS / 1_000)]
    NoRoom,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    #[error("it was refused: {0}")]
    Denied(#[from] Denial),
    #[error(
        "it was refused: it speaks versions {} to {} of the protocol, this server {} to {}",
        theirs.0, theirs.1, VERSIONS.0, VERSIONS.1
    )]
    Version { theirs: (u16, u16) },
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// Which. Numbers of connections are not used again.
    pub(super) number: u64,
    pub(super) stream: Stream,
    /// From where it comes.
    pub(super) peer: Box<str>,
    inbox: Inbox,
    /// Bytes to be written, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// The client, once it has greeted.
    pub(super) client: Option<u64>,
    /// There may be more to be read.
    pub(super) is_readable: bool,
    /// Its client sends nothing more: what is there is read up to the end, of
    /// which the system tells once.
    has_ended: bool,
    /// Since when it has taken nothing of what waits for it, or has not
    /// greeted: milliseconds of uptime.
    pub(super) waiting_since_ms: Option<u64>,
    /// When it was read last, or could not be: the same.
    heard_ms: u64,
}

/// Whether a connection of which so much is being sent is to take replies
/// first.
fn waits(of: &Replies, sending: usize) -> bool {
    of.under_way >= REQUESTS_MAX || of.bytes() + sending > REPLY_BYTES_MAX
}

/// What greetings are judged by.
#[derive(Debug)]
pub(super) struct AdmissionPolicy {
    pub(super) server: ServerId,
    pub(super) credential: Option<Box<[u8]>>,
    pub(super) clients_max: usize,
}

impl AdmissionPolicy {
    /// Lets a client in, or says why not; `clients` are served already.
    fn judge(&self, hello: &Hello<'_>, clients: usize) -> Result<u16, Denial> {
        let version = common_version(hello.versions)?;
        // What clients can do without takes no more than half of the places.
        let is_lane = hello.client & LANE != 0;
        let clients_max = if is_lane { self.clients_max / 2 } else { self.clients_max };
        if clients >= clients_max {
            return Err(Denial::TooManyConnections(self.clients_max as u32));
        }
        // In constant time: how long a refusal takes must not tell how near it was.
        let is_known = self.credential.as_ref().is_none_or(|own| own.ct_eq(hello.credential).into());
        if is_known { Ok(version) } else { Err(Denial::Credential) }
    }
}

impl Connection {
    pub(super) fn new(number: u64, stream: Stream, peer: Box<str>, now_ms: u64) -> Connection {
        Connection {
            number,
            stream,
            peer,
            inbox: Inbox::default(),
            out: Vec::new(),
            written: 0,
            client: None,
            is_readable: false,
            has_ended: false,
            waiting_since_ms: Some(now_ms),
            heard_ms: now_ms,
        }
    }

    /// Says why it is not served.
    fn deny(&mut self, denial: Denial) {
        self.out = Welcome::Refused(denial).encode();
        self.written = 0;
    }

    /// Takes note of what the system says of it; whether it is to be read now
    /// and was not before.
    pub(super) fn is_told(&mut self, event: &Event) -> bool {
        let before = self.is_readable;
        self.has_ended |= event.is_read_closed() || event.is_error();
        self.is_readable |= event.is_readable() || self.has_ended;
        self.is_readable && !before
    }

    /// Reads what has come.
    pub(super) fn read(&mut self, now_ms: u64) -> Result<(), CloseReason> {
        self.heard_ms = now_ms;
        for _ in 0..READS_MAX {
            match self.stream.read_into(&mut self.inbox)? {
                Came::Bytes { more: true } => {}
                // The end has come along with these bytes, and no event will
                // tell of it again.
                Came::Bytes { more: false } if self.has_ended => {}
                Came::Bytes { more: false } | Came::Nothing => {
                    self.is_readable = false;
                    return Ok(());
                }
                Came::End => return Err(CloseReason::Closed),
            }
        }
        Ok(())
    }

    /// Whether its requests are taken now, or wait until it has taken replies.
    pub(super) fn is_open(&self, sink: &SocketReplies) -> bool {
        let sending = self.out.len() - self.written;
        !sink.with(self.number, |of| waits(of, sending)).unwrap_or(false)
    }

    /// Bytes of messages that have come in part.
    pub(super) fn unfinished(&self) -> usize {
        self.inbox.unfinished()
    }

    /// Why it is to be closed now, if it has waited for too long, or has had
    /// others wait.
    pub(super) fn is_late(
        &mut self,
        partial_messages: &PartialMessages,
        is_blocked: bool,
        now_ms: u64,
    ) -> Option<CloseReason> {
        let is_over = |since_ms: u64, patience_ms: u64| since_ms + patience_ms <= now_ms;
        match self.waiting_since_ms {
            Some(since_ms) if self.client.is_none() => {
                return is_over(since_ms, GREETING_MS).then_some(CloseReason::Ungreeted);
            }
            Some(since_ms) if is_over(since_ms, PATIENCE_MS) => return Some(CloseReason::Silent),
            _ => {}
        }
        let has_no_room = partial_messages.waits(self.number);
        if is_blocked && !has_no_room {
            // What it has said is not looked at before it takes replies.
            self.heard_ms = now_ms;
        }
        let is_stalled = self.inbox.is_amid() && is_over(self.heard_ms, PATIENCE_MS);
        is_stalled.then_some(if has_no_room { CloseReason::NoRoom } else { CloseReason::Stalled })
    }

    /// Bytes of replies that it has not taken.
    pub(super) fn queued(&self, sink: &SocketReplies) -> usize {
        sink.with(self.number, |of| of.bytes()).unwrap_or(0) + self.out.len() - self.written
    }

    /// The greeting, if it is whole now. A client that is to be served has
    /// said which it is.
    pub(super) fn greet(
        &mut self,
        admission: &AdmissionPolicy,
        clients: usize,
        session: &mut Session<'_>,
    ) -> Result<Option<u64>, CloseReason> {
        let Some((hello, length)) = Hello::decode(self.inbox.unread())? else { return Ok(None) };
        let client = hello.client;
        match admission.judge(&hello, clients) {
            Ok(version) => {
                let (server, now) = (admission.server, session.clock());
                let requests_max = REQUESTS_MAX as u32;
                self.out = Welcome::Served { version, server, requests_max, now }.encode();
                self.inbox.skip(length);
                self.client = Some(client);
                self.waiting_since_ms = None;
                Ok(Some(client))
            }
            Err(denial) => {
                let is_by_version = matches!(denial, Denial::Version { .. });
                let theirs = hello.versions;
                self.deny(denial.clone());
                Err(if is_by_version { CloseReason::Version { theirs } } else { denial.into() })
            }
        }
    }

    /// Hands the requests that have come to the core, until too many replies
    /// wait to be taken; whether that is so.
    pub(super) fn handle(
        &mut self,
        sink: &SocketReplies,
        session: &mut Session<'_>,
    ) -> Result<bool, CloseReason> {
        let (Some(client), connection) = (self.client, self.number) else { return Ok(false) };
        let sending = self.out.len() - self.written;
        let (mut malformed, mut is_paused) = (None, false);
        self.inbox.take_while(|request, bytes| {
            let outcome = if request == ClientHeartbeat::NUMBER {
                ClientHeartbeat::decode(bytes)
                    .map(|heartbeat| session.on_heartbeat(connection, client, heartbeat))
            } else {
                sink.with(connection, |of| of.under_way += 1);
                let handled = session.handle(Caller { connection, request }, bytes);
                // A few short requests may have long replies.
                is_paused = sink.with(connection, |of| waits(of, sending)).unwrap_or(false);
                handled
            };
            malformed = outcome.err();
            malformed.is_none() && !is_paused
        })?;
        malformed.map_or(Ok(is_paused), |malformed| Err(malformed.into()))
    }

    /// Sends the replies that there are, as far as the socket takes them.
    pub(super) fn send(&mut self, sink: &SocketReplies, now_ms: u64) -> Result<(), CloseReason> {
        let mut has_taken = false;
        loop {
            if !self.write(&mut has_taken)? {
                // Since it last took something.
                if has_taken || self.waiting_since_ms.is_none() {
                    self.waiting_since_ms = Some(now_ms);
                }
                return Ok(());
            }
            if self.client.is_none() {
                // It is still to greet, since it came.
                return Ok(());
            }
            // A piece of each long reply at a time: what the socket does not
            // take now is not copied yet.
            let out = &mut self.out;
            if !sink.with(self.number, |of| of.out.fill(out)).unwrap_or(false) {
                self.waiting_since_ms = None;
                return Ok(());
            }
        }
    }

    /// Sends what is ready, as far as the socket takes it at once, for the last
    /// time.
    pub(super) fn part(&mut self) {
        // It is closed in any case.
        let _ = self.write(&mut false);
    }

    /// Writes what the socket takes; whether it has taken all.
    fn write(&mut self, has_taken: &mut bool) -> Result<bool, CloseReason> {
        while self.written < self.out.len() {
            let taken = self.stream.write(&self.out[self.written..])?;
            self.written += taken;
            if taken == 0 {
                return Ok(false);
            }
            *has_taken = true;
        }
        self.out.clear();
        self.written = 0;
        Ok(self.stream.flush()?)
    }
}
