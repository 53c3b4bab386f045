//! Replies queued for connections.

use crate::ReplySink;
use mio::Waker;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use yesquel_engine::Caller;
use yesquel_wire::{Notice, frame::Outbox};

/// Replies of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionReplies {
    out: Outbox,
    /// Notices, which leave before all replies.
    notices: Outbox,
    /// Number of requests without a reply.
    pub(super) in_flight: usize,
    /// Bytes of replies that wait for the disk.
    held: usize,
    /// Whether the connection is in the dirty list.
    is_dirty: bool,
}

impl ConnectionReplies {
    /// Bytes that are queued or will be.
    pub(super) fn bytes(&self) -> usize {
        self.out.held() + self.held
    }

    fn mark_dirty(&mut self, connection: u64, dirty: &mut Vec<u64>) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            dirty.push(connection);
        }
    }
}

#[derive(Debug, Default)]
struct ReplyQueues {
    of: FxHashMap<u64, ConnectionReplies>,
    /// Connections with something to send.
    dirty: Vec<u64>,
    /// Connections with notices to send.
    noticed: Vec<u64>,
}

#[derive(Debug, Default)]
struct SharedQueues {
    all: Mutex<ReplyQueues>,
    /// Wakes the thread that writes to sockets.
    waker: OnceLock<Waker>,
}

/// Sink of the replies to socket requests. Clones share it.
#[derive(Debug, Default, Clone)]
pub struct SocketReplies(Arc<SharedQueues>);

impl SocketReplies {
    /// Creates an empty sink.
    pub fn new() -> SocketReplies {
        SocketReplies::default()
    }

    fn lock(&self) -> MutexGuard<'_, ReplyQueues> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake_with(&self, waker: Waker) {
        // A sink has one writing thread, which sets the waker once.
        let _ = self.0.waker.set(waker);
    }

    pub(super) fn wake(&self) {
        // A waker fails only if the system is out of memory.
        if let Some(Err(error)) = self.0.waker.get().map(Waker::wake) {
            tracing::error!(%error, "the thread of the sockets could not be woken");
        }
    }

    pub(super) fn add(&self, connection: u64) {
        self.lock().of.insert(connection, ConnectionReplies::default());
    }

    pub(super) fn remove(&self, connection: u64) {
        self.lock().of.remove(&connection);
    }

    /// Accesses a connection's replies.
    pub(super) fn with<T>(
        &self,
        connection: u64,
        act: impl FnOnce(&mut ConnectionReplies) -> T,
    ) -> Option<T> {
        self.lock().of.get_mut(&connection).map(act)
    }

    /// Appends a connection's queued replies to a buffer, as [`Outbox::fill`] does. While notices
    /// wait, no reply leaves, and the connection counts as one that just got replies.
    pub(super) fn fill(&self, connection: u64, out: &mut Vec<u8>) -> bool {
        let mut locked = self.lock();
        let ReplyQueues { of: all, dirty, noticed } = &mut *locked;
        let Some(of) = all.get_mut(&connection) else { return false };
        if noticed.is_empty() {
            return of.out.fill(out);
        }
        of.mark_dirty(connection, dirty);
        drop(locked);
        self.wake();
        false
    }

    /// Takes the notices and their connections.
    pub(super) fn take_notices(&self) -> Vec<(u64, Vec<u8>)> {
        let mut locked = self.lock();
        let ReplyQueues { of: all, noticed, .. } = &mut *locked;
        let taken = noticed.drain(..).filter_map(|connection| {
            let mut bytes = Vec::new();
            let of = all.get_mut(&connection)?;
            of.notices.fill(&mut bytes).then_some((connection, bytes))
        });
        taken.collect()
    }

    /// Takes the connections that got replies since the last call.
    pub(super) fn take_dirty(&self, dirty: &mut Vec<u64>) {
        dirty.clear();
        let mut all = self.lock();
        std::mem::swap(&mut all.dirty, dirty);
        for connection in dirty {
            if let Some(of) = all.of.get_mut(connection) {
                of.is_dirty = false;
            }
        }
    }
}

impl ReplySink for SocketReplies {
    fn deliver(&self, caller: Caller, reply: &[u8]) {
        let mut locked = self.lock();
        let ReplyQueues { of: all, dirty, .. } = &mut *locked;
        // The connection has ended.
        let Some(of) = all.get_mut(&caller.connection) else { return };
        of.out.push(caller.request, reply);
        of.in_flight = of.in_flight.saturating_sub(1);
        of.mark_dirty(caller.connection, dirty);
    }

    fn notify(&self, connection: u64, notice: &[u8]) {
        let mut locked = self.lock();
        let ReplyQueues { of: all, noticed, .. } = &mut *locked;
        let Some(of) = all.get_mut(&connection) else { return };
        if of.notices.is_empty() {
            noticed.push(connection);
        }
        of.notices.push(Notice::NUMBER, notice);
    }

    fn reply_held(&self, caller: Caller, bytes: usize) {
        self.with(caller.connection, |of| of.held += bytes);
    }

    fn reply_released(&self, caller: Caller, bytes: usize) {
        self.with(caller.connection, |of| of.held = of.held.saturating_sub(bytes));
    }

    fn flush(&self) {
        let locked = self.lock();
        let is_needed = !locked.dirty.is_empty() || !locked.noticed.is_empty();
        drop(locked);
        if is_needed {
            self.wake();
        }
    }
}
