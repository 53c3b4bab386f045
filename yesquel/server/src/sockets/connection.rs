//! One connection: greeting, incoming and outgoing frames.

use super::{
    GREETING_MS, STALL_MS,
    admission::{AdmissionPolicy, Admitted},
    partial_messages::PartialMessages,
    socket_replies::SocketReplies,
    stream::{ReadOutcome, SocketStream},
};
use crate::machine_cores::MachineSession;
use mio::event::Event;
use std::io;
use thiserror::Error;
use yesquel_engine::Caller;
use yesquel_model::Timestamp;
use yesquel_node::{ClockState, ConnectionReplies};
use yesquel_wire::{
    ClientHeartbeat, Destination, Malformed, Request,
    frame::{FrameError, Inbox},
    greeting::{Denial, GreetingError, Hello, LANE, Role, VERSIONS, Welcome, is_watcher},
};

/// Maximum number of requests in flight on a connection. At this number it is not read any further.
pub const REQUESTS_MAX: usize = 4096;
/// Bytes of queued replies at which a connection is not read any further.
const REPLY_BYTES_MAX: usize = 16 << 20;
/// Reads of one connection before the others get their turn.
const READS_MAX: usize = 4;

/// Reason for which a connection is closed.
#[derive(Debug, Error)]
pub(super) enum CloseReason {
    #[error("its client has closed it")]
    Closed,
    #[error("it has not greeted for {} s", GREETING_MS / 1_000)]
    Ungreeted,
    #[error("it has not greeted, and others wait for its place")]
    Crowded,
    #[error("it has taken nothing of what waits for it for {} s", STALL_MS / 1_000)]
    Silent,
    #[error("it has begun a message and not gone on with it for {} s", STALL_MS / 1_000)]
    Stalled,
    #[error("it had no room for the notice of a change")]
    NoticesBlocked,
    #[error("there was no room for the rest of its messages for {} s", STALL_MS / 1_000)]
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
    #[error("its credential was removed")]
    Revoked,
    #[error("it has sent a request that its role does not permit")]
    NotPermitted,
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Connection of a client.
#[derive(Debug)]
pub(super) struct ClientConnection {
    /// Unique number, never reused.
    pub(super) number: u64,
    pub(super) stream: SocketStream,
    /// Address of the client.
    pub(super) peer: Box<str>,
    inbox: Inbox,
    /// Outgoing bytes, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// Number of the client, once it has greeted.
    pub(super) client: Option<u64>,
    /// What it may send, and why; `None`: it has not greeted.
    pub(super) admitted: Option<Admitted>,
    /// Whether the socket may have more to read.
    pub(super) is_readable: bool,
    /// Whether the client has closed its side. The system reports this once; the bytes before the
    /// end are still read.
    has_ended: bool,
    /// Uptime in milliseconds since when the client has read none of its replies, or has not
    /// greeted.
    pub(super) waiting_since_ms: Option<u64>,
    /// Uptime in milliseconds of the last read, or of the last time reading was paused.
    read_at_ms: u64,
}

/// Returns whether the client must read replies before the connection is read any further, with
/// `sending` bytes in its output buffer.
fn waits(of: &ConnectionReplies, sending: usize) -> bool {
    of.in_flight >= REQUESTS_MAX || of.bytes() + sending > REPLY_BYTES_MAX
}

impl ClientConnection {
    pub(super) fn new(number: u64, stream: SocketStream, peer: Box<str>, now_ms: u64) -> ClientConnection {
        ClientConnection {
            number,
            stream,
            peer,
            inbox: Inbox::default(),
            out: Vec::new(),
            written: 0,
            client: None,
            admitted: None,
            is_readable: false,
            has_ended: false,
            waiting_since_ms: Some(now_ms),
            read_at_ms: now_ms,
        }
    }

    /// Queues the refusal of the client.
    fn deny(&mut self, denial: Denial) {
        self.out = Welcome::Refused(denial).encode();
        self.written = 0;
    }

    /// Handles a readiness event. Returns whether the connection has become readable.
    pub(super) fn note_event(&mut self, event: &Event) -> bool {
        let before = self.is_readable;
        self.has_ended |= event.is_read_closed() || event.is_error();
        self.is_readable |= event.is_readable() || self.has_ended;
        self.is_readable && !before
    }

    /// Reads the available bytes.
    pub(super) fn read(&mut self, now_ms: u64) -> Result<(), CloseReason> {
        self.read_at_ms = now_ms;
        for _ in 0..READS_MAX {
            match self.stream.read_into(&mut self.inbox)? {
                ReadOutcome::Bytes { more: true } => {}
                // The end arrived with these bytes, and there will be no further event.
                ReadOutcome::Bytes { more: false } if self.has_ended => {}
                ReadOutcome::Bytes { more: false } | ReadOutcome::Nothing => {
                    self.is_readable = false;
                    return Ok(());
                }
                ReadOutcome::End => return Err(CloseReason::Closed),
            }
        }
        Ok(())
    }

    /// Returns whether requests are taken now, or only after the client has read replies.
    pub(super) fn is_open(&self, sink: &SocketReplies) -> bool {
        let sending = self.out.len() - self.written;
        !sink.with(self.number, |of| waits(of, sending)).unwrap_or(false)
    }

    /// Bytes of an incomplete message.
    pub(super) fn unfinished(&self) -> usize {
        self.inbox.unfinished()
    }

    /// Returns the reason to close the connection if it has exceeded a time limit.
    pub(super) fn overdue_reason(
        &mut self,
        partial_messages: &PartialMessages,
        is_blocked: bool,
        now_ms: u64,
    ) -> Option<CloseReason> {
        let is_over = |since_ms: u64, limit_ms: u64| since_ms + limit_ms <= now_ms;
        match self.waiting_since_ms {
            Some(since_ms) if self.client.is_none() => {
                return is_over(since_ms, GREETING_MS).then_some(CloseReason::Ungreeted);
            }
            Some(since_ms) if is_over(since_ms, STALL_MS) => return Some(CloseReason::Silent),
            _ => {}
        }
        let has_no_room = partial_messages.waits(self.number);
        if is_blocked && !has_no_room {
            // Time while reading is paused does not count against the client.
            self.read_at_ms = now_ms;
        }
        let is_stalled = self.inbox.is_amid() && is_over(self.read_at_ms, STALL_MS);
        is_stalled.then_some(if has_no_room { CloseReason::NoRoom } else { CloseReason::Stalled })
    }

    /// Bytes of replies that the client has not read.
    pub(super) fn queued(&self, sink: &SocketReplies) -> usize {
        sink.with(self.number, |of| of.bytes()).unwrap_or(0) + self.out.len() - self.written
    }

    /// Processes the greeting if it is complete. Returns the client's number if it is admitted.
    pub(super) fn greet(
        &mut self,
        admission: &AdmissionPolicy,
        clients: usize,
        session: &mut MachineSession<'_>,
    ) -> Result<Option<u64>, CloseReason> {
        let Some((hello, length)) = Hello::decode(self.inbox.unread())? else { return Ok(None) };
        let client = hello.client;
        let admitted = admission.judge(&hello, clients).and_then(|by| match session.clock() {
            Ok(now) => Ok((by, now)),
            // A server may compare its clock here; requests of clients are held or refused.
            Err(ClockState::Comparing) => Ok((by, Timestamp::ZERO)),
            Err(_) if hello.role == Role::Peer => Ok((by, Timestamp::ZERO)),
            Err(state) => Err(Denial::NotReady(state.to_string())),
        });
        match admitted {
            Ok(((version, admitted), now)) => {
                if client & LANE != 0 && is_watcher(client, self.stream.peer_name()) {
                    session.admit_watcher(self.number);
                }
                let (server, membership) = (admission.server, admission.membership);
                let (epoch, others) = (session.epoch(), session.other_groups());
                self.admitted = Some(admitted);
                let requests_max = REQUESTS_MAX as u32;
                let welcome =
                    Welcome::Served { version, server, requests_max, now, membership, epoch, others };
                self.out = welcome.encode();
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

    /// Hands the received requests to the core until too many replies are queued. Returns whether
    /// they are.
    pub(super) fn handle(
        &mut self,
        sink: &SocketReplies,
        session: &mut MachineSession<'_>,
    ) -> Result<bool, CloseReason> {
        let (Some(client), Some(admitted)) = (self.client, &self.admitted) else { return Ok(false) };
        let (connection, role) = (self.number, admitted.role);
        let sending = self.out.len() - self.written;
        let (mut malformed, mut is_paused, mut is_permitted) = (None, false, true);
        self.inbox.take_while(|request, bytes| {
            let outcome = if request == ClientHeartbeat::NUMBER {
                ClientHeartbeat::decode(bytes)
                    .map(|heartbeat| session.on_heartbeat(connection, client, &heartbeat))
            } else {
                Destination::split(bytes).and_then(|(destination, bytes)| {
                    if !Request::is_permitted(bytes, role, client) {
                        is_permitted = false;
                        return Ok(());
                    }
                    sink.with(connection, |of| of.in_flight += 1);
                    let handled = session.handle(Caller { connection, request }, destination, bytes);
                    // Few short requests may have long replies.
                    is_paused = sink.with(connection, |of| waits(of, sending)).unwrap_or(false);
                    handled
                })
            };
            malformed = outcome.err();
            malformed.is_none() && !is_paused && is_permitted
        })?;
        if !is_permitted {
            return Err(CloseReason::NotPermitted);
        }
        malformed.map_or(Ok(is_paused), |malformed| Err(malformed.into()))
    }

    /// Sends queued replies as far as the socket accepts them.
    pub(super) fn send(&mut self, sink: &SocketReplies, now_ms: u64) -> Result<(), CloseReason> {
        let mut has_taken = false;
        loop {
            if !self.write(&mut has_taken)? {
                // Counts from the last progress.
                if has_taken || self.waiting_since_ms.is_none() {
                    self.waiting_since_ms = Some(now_ms);
                }
                return Ok(());
            }
            if self.client.is_none() {
                // An ungreeted connection counts from its start.
                return Ok(());
            }
            // Copies one piece of each long reply at a time, when the socket accepts it.
            let out = &mut self.out;
            if !sink.fill(self.number, out) {
                self.waiting_since_ms = None;
                return Ok(());
            }
        }
    }

    /// Sends notices. They must leave at once: a connection that has no room for them is closed.
    pub(super) fn send_notices(&mut self, notices: Vec<u8>) -> Result<(), CloseReason> {
        if self.written < self.out.len() {
            return Err(CloseReason::NoticesBlocked);
        }
        (self.out, self.written) = (notices, 0);
        if self.write(&mut false)? { Ok(()) } else { Err(CloseReason::NoticesBlocked) }
    }

    /// Sends the output buffer as far as the socket accepts it, before the connection is closed.
    pub(super) fn send_last(&mut self) {
        // The connection is closed in any case.
        let _ = self.write(&mut false);
    }

    /// Writes as much as the socket accepts. Returns whether that was everything.
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
