//! A connection that threads share, with two roles: the sender also sends the other threads'
//! requests, and the receiver hands out the replies of the other threads. Neither waits for the
//! other.

mod connect;
mod finish;

use super::{
    channel::{Channel, is_late},
    lanes::{LaneConnection, Lanes},
    lost_connection::LostConnection,
    reply_slots::{Delivered, ReplySlots},
};
use crate::{
    HeartbeatSource, ReplyHandler,
    wait::{self, CHECK_EVERY},
};
use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};
use yesquel_fork::UnansweredMessages;
use yesquel_model::{ClusterMembership, GroupEpoch, ServerId, Timestamp};
use yesquel_secrets::PresentedSecrets;
use yesquel_wire::{
    ClientHeartbeat, EncodedDestination,
    frame::{Inbox, Outbox},
};

/// Maximum age of the heartbeat when something is sent, well below the grace time of snapshots at
/// servers.
const HEARTBEAT_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
struct SendQueue {
    outbox: Outbox,
    /// Whether a thread has the role.
    is_taken: bool,
    /// Whether encryption itself must send something.
    flush: bool,
    /// A sent buffer, for reuse.
    spare: Vec<u8>,
    /// The unsent rest of a buffer whose sender has cancelled; it is sent first.
    rest: Vec<u8>,
    heartbeat: ClientHeartbeat,
    news_at: Option<Instant>,
    /// Whether a request without a waiting caller was left to another thread, which has not sent it
    /// yet.
    leaves_unsent: bool,
}

#[derive(Debug)]
struct Receiving {
    inbox: Inbox,
    wakers: Vec<Waker>,
    /// Since when nothing has come although a reply is due, if that is long.
    quiet: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct ServerConnection {
    channel: Channel,
    pub(super) server: ServerId,
    pub(super) membership: ClusterMembership,
    /// The groups that the machine hosts, `server` first, and their epochs at the greeting.
    groups: Vec<(ServerId, GroupEpoch)>,
    /// The server's clock at the greeting.
    pub(super) now: Timestamp,
    pub(super) slots: ReplySlots,
    /// Further connections of the client to the machine, for few threads.
    pub(super) lanes: Lanes<ServerConnection>,
    /// For the exit of the process.
    unanswered: UnansweredMessages,
    sending: Mutex<SendQueue>,
    /// Whether a thread has the receiving role. It alone locks `receiving`.
    has_receiver: AtomicBool,
    receiving: Mutex<Receiving>,
    /// No thread has waited for a while: the server's silence before does not count.
    has_rested: AtomicBool,
    /// Threads that were woken with a reply and will probably send the next request.
    expected: AtomicU32,
    /// Requests whose replies were not taken yet.
    under_way: AtomicU32,
    /// The rest of a buffer waits for the next sender.
    is_cut: AtomicBool,
    /// Why the connection is closed.
    lost: OnceLock<LostConnection>,
    timeout: Duration,
    /// What it has presented and trusted, if that may be replaced.
    pub(super) made_with: Option<PresentedSecrets>,
}

/// The receiving role of a thread. Dropping it passes the role on, on every path: a thread that has
/// found the role taken sleeps until it is woken.
struct ReceivingRole<'a> {
    connection: &'a ServerConnection,
    /// The slot of the thread's own call.
    own: Option<u32>,
    /// Present until the role is dropped.
    receiving: Option<MutexGuard<'a, Receiving>>,
}

impl Drop for ReceivingRole<'_> {
    fn drop(&mut self) {
        drop(self.receiving.take());
        self.connection.has_receiver.store(false, SeqCst);
        self.connection.pass_on(self.own);
    }
}

/// A request in flight. Polling it may receive for all threads.
pub(super) struct InFlightCall {
    connection: Arc<ServerConnection>,
    slot: u32,
    is_cancelled: bool,
}

impl Future for InFlightCall {
    type Output = Result<Vec<u8>, LostConnection>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = self.connection.poll(self.slot, context.waker());
        self.is_cancelled |= matches!(reply, Poll::Ready(Ok(_)));
        reply
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.connection.under_way.fetch_sub(1, Relaxed);
        if !self.is_cancelled {
            self.connection.slots.abandon(self.slot);
            // This thread may have been the next receiver.
            self.connection.pass_on(None);
            self.connection.rest();
        }
    }
}

impl ServerConnection {
    /// Takes a connection apart that only one thread uses.
    pub(super) fn into_parts(self) -> (Channel, Inbox) {
        (self.channel, self.receiving.into_inner().unwrap_or_else(PoisonError::into_inner).inbox)
    }

    fn lock(&self) -> MutexGuard<'_, SendQueue> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Closes the connection and fails all requests.
    pub(super) fn close_with(&self, why: LostConnection) {
        // The first reason counts.
        let _ = self.lost.set(why.clone());
        self.channel.close();
        self.slots.all_waiting().into_iter().for_each(Waker::wake);
        self.slots.fail_handlers(&why);
    }

    /// Sends a request; the future returns its reply.
    pub(super) fn call(
        self: &Arc<ServerConnection>,
        destination: &EncodedDestination,
        request: &[u8],
        heartbeats: Option<&Arc<dyn HeartbeatSource>>,
    ) -> Result<InFlightCall, LostConnection> {
        let full = || LostConnection::other("as many requests are under way as a connection may have");
        let slot = self.slots.open().ok_or_else(full)?;
        self.under_way.fetch_add(1, Relaxed);
        self.queue(slot, destination, request, heartbeats, false);
        Ok(InFlightCall { connection: Arc::clone(self), slot, is_cancelled: false })
    }

    /// Sends a request whose reply a handler takes.
    pub(super) fn send(
        &self,
        destination: &EncodedDestination,
        request: &[u8],
        heartbeats: Option<&Arc<dyn HeartbeatSource>>,
        handler: ReplyHandler,
    ) -> Result<(), ReplyHandler> {
        if self.is_closed() {
            return Err(handler);
        }
        let slot = self.slots.open_handled(handler)?;
        self.queue(slot, destination, request, heartbeats, true);
        if let Some(why) = self.lost.get() {
            // It may have been closed before the slot was opened.
            self.slots.fail_handlers(why);
        }
        Ok(())
    }

    /// Queues a request, and sends it unless another thread does.
    fn queue(
        &self,
        slot: u32,
        destination: &EncodedDestination,
        request: &[u8],
        heartbeats: Option<&Arc<dyn HeartbeatSource>>,
        is_handled: bool,
    ) {
        let mut sending = self.lock();
        sending.outbox.push_after(u64::from(slot) + 1, destination.bytes(), request);
        let expected = self.expected.load(Relaxed);
        if expected > 0 {
            // Only a hint: if it is wrong, a frame is sent too early or too late.
            self.expected.store(expected - 1, Relaxed);
        }
        if !sending.is_taken {
            sending.is_taken = true;
            if expected > 1 {
                // Other threads have got their replies at the same time: their next requests can go
                // along.
                drop(sending);
                thread::yield_now();
                sending = self.lock();
            }
            self.send_all(sending, heartbeats);
        } else if is_handled {
            sending.leaves_unsent = true;
            self.unanswered.set_unsent(true);
        }
    }

    /// Returns the reply if it has come; otherwise receives, unless another thread does.
    fn poll(&self, slot: u32, waker: &Waker) -> Poll<Result<Vec<u8>, LostConnection>> {
        // Taken in any case: a cancellation concerns this call only.
        let is_to_end = wait::take_cancelled();
        loop {
            if let Some(reply) = self.slots.take(slot, waker) {
                return Poll::Ready(Ok(reply));
            }
            if let Some(why) = self.lost.get() {
                return Poll::Ready(Err(why.clone()));
            }
            let Some(role) = self.take_role(Some(slot)) else {
                let cancelled = || Poll::Ready(Err(LostConnection::cancelled()));
                return if is_to_end { cancelled() } else { Poll::Pending };
            };
            // Outside of the role: the check may call servers itself.
            if !self.receive(role) && wait::check_cancelled() {
                return Poll::Ready(Err(LostConnection::cancelled()));
            }
        }
    }

    /// As the sender: sends until nothing is queued.
    fn send_all<'a>(
        &'a self,
        mut sending: MutexGuard<'a, SendQueue>,
        heartbeats: Option<&Arc<dyn HeartbeatSource>>,
    ) {
        let mut buffer = std::mem::take(&mut sending.spare);
        let mut rest = std::mem::take(&mut sending.rest);
        loop {
            if !rest.is_empty() {
                drop(sending);
                let left = self.send_sealed(&rest);
                sending = self.lock();
                if let Some(left) = left {
                    sending.rest = left;
                    break;
                }
                rest.clear();
            }
            if let Some(heartbeats) = heartbeats {
                sending.report(&**heartbeats);
            }
            if !sending.outbox.fill(&mut buffer) && !std::mem::take(&mut sending.flush) {
                if std::mem::take(&mut sending.leaves_unsent) {
                    self.unanswered.set_unsent(false);
                }
                break;
            }
            drop(sending);
            let left = match self.channel.sealed(&buffer) {
                Ok(sealed) => self.send_sealed(&sealed),
                Err(error) => {
                    self.close_with(LostConnection::of(&error));
                    None
                }
            };
            buffer.clear();
            sending = self.lock();
            if let Some(left) = left {
                // The next sender goes on with it.
                sending.rest = left;
                break;
            }
        }
        sending.spare = buffer;
        sending.is_taken = false;
    }

    /// Sends sealed bytes. Returns the rest if the thread is cancelled because the server takes
    /// nothing.
    fn send_sealed(&self, mut sealed: &[u8]) -> Option<Vec<u8>> {
        let mut quiet = None;
        while !sealed.is_empty() && !self.is_closed() {
            match self.channel.send_some(sealed) {
                Ok(0) => self.close_with(LostConnection::of(&io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    sealed = sealed.get(count..).unwrap_or_default();
                    quiet = None;
                }
                Err(error) if is_late(&error) => {
                    if self.is_quiet(&mut quiet) {
                        self.close_with(self.silent());
                    } else if wait::check_cancelled() {
                        self.is_cut.store(true, Relaxed);
                        return Some(sealed.to_vec());
                    }
                }
                Err(error) => self.close_with(LostConnection::of(&error)),
            }
        }
        None
    }

    /// After the socket's timeout: whether the server's time is up.
    fn is_quiet(&self, quiet: &mut Option<Instant>) -> bool {
        let now = Instant::now();
        let look = self.timeout.min(CHECK_EVERY);
        let since = *quiet.get_or_insert_with(|| now.checked_sub(look).unwrap_or(now));
        now.duration_since(since) >= self.timeout
    }

    fn silent(&self) -> LostConnection {
        LostConnection::other(format!("no answer for {} s", self.timeout.as_secs_f32()))
    }

    /// Sends the heartbeat if it has changed, although no request is to be sent.
    pub(super) fn report(&self, heartbeats: &Arc<dyn HeartbeatSource>) {
        let mut sending = self.lock();
        if !sending.is_taken && !self.is_closed() {
            sending.is_taken = true;
            self.send_all(sending, Some(heartbeats));
        }
    }

    /// Takes the replies that no thread waits for, unless another thread receives. Returns whether it
    /// has waited for one.
    pub(super) fn receive_handled(&self) -> bool {
        match self.slots.has_handlers().then(|| self.take_role(None)).flatten() {
            Some(role) => {
                self.receive(role);
                // It may have left the role to a thread that waits.
                !self.slots.is_awaited()
            }
            None => false,
        }
    }

    /// Whether the server has not closed it, while no reply is due.
    pub(super) fn is_alive(&self) -> bool {
        !self.is_closed() && !self.channel.has_ended()
    }

    /// Takes the receiving role for a call, or for handlers, if it is free.
    fn take_role(&self, own: Option<u32>) -> Option<ReceivingRole<'_>> {
        if self.has_receiver.swap(true, SeqCst) {
            return None;
        }
        let receiving = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        Some(ReceivingRole { connection: self, own, receiving: Some(receiving) })
    }

    /// As the receiver: hands out replies until the own one has come; without an own one, until
    /// handlers have taken all, or a thread waits that can receive. Returns false if nothing came
    /// for a while.
    fn receive(&self, mut role: ReceivingRole<'_>) -> bool {
        let own = role.own;
        let Some(Receiving { inbox, wakers, quiet }) = role.receiving.as_deref_mut() else { return true };
        let is_done = || match own {
            Some(own) => self.slots.is_done(own),
            None => !self.slots.has_handlers() || self.slots.is_awaited(),
        };
        while !is_done() && !self.is_closed() {
            match self.channel.receive(inbox) {
                Ok(false) => {}
                Ok(true) => self.flush(),
                Err(error) if is_late(&error) && !self.is_receiver_quiet(quiet) => return false,
                Err(error) => {
                    self.close_with(if is_late(&error) { self.silent() } else { LostConnection::of(&error) });
                    break;
                }
            }
            *quiet = None;
            let mut unexpected = false;
            let taken = inbox.take(|number, reply| {
                let slot = number.checked_sub(1).and_then(|slot| u32::try_from(slot).ok());
                match slot.map_or(Delivered::Unexpected, |slot| self.slots.deliver(slot, reply)) {
                    Delivered::Stored(waker) if slot != own => wakers.extend(waker),
                    Delivered::Stored(_) | Delivered::Unwanted => {}
                    Delivered::Unexpected => unexpected = true,
                }
            });
            match taken {
                Err(error) => {
                    self.close_with(LostConnection::other(format!(
                        "the server does not follow the protocol: {error}"
                    )));
                }
                Ok(()) if unexpected => {
                    self.close_with(LostConnection::other("the server answers what was not asked"))
                }
                Ok(()) => {}
            }
            self.expected.store(wakers.len() as u32 + u32::from(own.is_some()), Relaxed);
            wakers.drain(..).for_each(Waker::wake);
        }
        true
    }

    /// Like [`is_quiet`](Self::is_quiet), for the receiver.
    fn is_receiver_quiet(&self, quiet: &mut Option<Instant>) -> bool {
        if self.has_rested.swap(false, Relaxed) {
            *quiet = None;
        }
        self.is_quiet(quiet)
    }

    /// While no thread waits, the server's silence does not count.
    fn rest(&self) {
        if !self.slots.is_awaited() {
            self.has_rested.store(true, Relaxed);
        }
    }

    /// Wakes a waiting thread to receive, other than that of a slot, if no thread does. A thread
    /// announces that it waits before it finds the role taken; the receiver gives the role up before
    /// it looks for waiting threads.
    fn pass_on(&self, own: Option<u32>) {
        if !self.has_receiver.load(SeqCst)
            && let Some(waker) = self.slots.any_waiting(own)
        {
            waker.wake();
        }
    }

    /// Sends what encryption itself must send, through the sender.
    fn flush(&self) {
        let mut sending = self.lock();
        sending.flush = true;
        if !sending.is_taken {
            sending.is_taken = true;
            // As the receiver: a cancel check might call servers itself, and wait for this thread.
            wait::without_cancellation(|| self.send_all(sending, None));
        }
    }
}

impl SendQueue {
    /// Adds the heartbeat if it has changed and some time has passed.
    fn report(&mut self, heartbeats: &dyn HeartbeatSource) {
        let now = Instant::now();
        if self.news_at.is_some_and(|at| now.duration_since(at) < HEARTBEAT_EVERY) {
            return;
        }
        self.news_at = Some(now);
        let heartbeat = heartbeats.heartbeat();
        if heartbeat != self.heartbeat {
            self.outbox.push(ClientHeartbeat::NUMBER, &heartbeat.encode());
            self.heartbeat = heartbeat;
        }
    }
}

impl LaneConnection for ServerConnection {
    fn lanes(&self) -> &Lanes<ServerConnection> {
        &self.lanes
    }

    fn under_way(&self) -> u32 {
        self.under_way.load(Relaxed)
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Relaxed)
    }

    fn close_with(&self, why: LostConnection) {
        self.close_with(why);
    }
}

#[cfg(test)]
mod tests;
