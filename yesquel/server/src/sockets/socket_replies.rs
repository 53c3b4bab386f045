//! Replies queued for connections.

use crate::ReplySink;
use mio::Waker;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use yesquel_engine::Caller;
use yesquel_wire::frame::Outbox;

/// Replies of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionReplies {
    pub(super) out: Outbox,
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
}

#[derive(Debug, Default)]
struct ReplyQueues {
    of: FxHashMap<u64, ConnectionReplies>,
    /// Connections with something to send.
    dirty: Vec<u64>,
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
        let ReplyQueues { of: all, dirty } = &mut *locked;
        // The connection has ended.
        let Some(of) = all.get_mut(&caller.connection) else { return };
        of.out.push(caller.request, reply);
        of.in_flight = of.in_flight.saturating_sub(1);
        if !of.is_dirty {
            of.is_dirty = true;
            dirty.push(caller.connection);
        }
    }

    fn reply_held(&self, caller: Caller, bytes: usize) {
        self.with(caller.connection, |of| of.held += bytes);
    }

    fn reply_released(&self, caller: Caller, bytes: usize) {
        self.with(caller.connection, |of| of.held = of.held.saturating_sub(bytes));
    }

    fn flush(&self) {
        if !self.lock().dirty.is_empty() {
            self.wake();
        }
    }
}
