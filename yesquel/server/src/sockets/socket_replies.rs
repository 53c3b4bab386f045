//! Replies queued for connections.

use crate::ReplySink;
use mio::Waker;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use yesquel_engine::Caller;
use yesquel_node::{ConnectionReplies, Filled, ReplyQueues};

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
        self.lock().add(connection);
    }

    pub(super) fn remove(&self, connection: u64) {
        self.lock().remove(connection);
    }

    /// Accesses a connection's replies.
    pub(super) fn with<T>(
        &self,
        connection: u64,
        act: impl FnOnce(&mut ConnectionReplies) -> T,
    ) -> Option<T> {
        self.lock().of(connection).map(act)
    }

    /// Appends a connection's queued replies to a buffer. While notices wait, no reply leaves, and
    /// the connection counts as one that just got replies.
    pub(super) fn fill(&self, connection: u64, out: &mut Vec<u8>) -> bool {
        let filled = self.lock().fill(connection, out);
        if filled == Filled::NoticesFirst {
            self.wake();
        }
        filled == Filled::Replies
    }

    /// Takes the notices and their connections.
    pub(super) fn take_notices(&self) -> Vec<(u64, Vec<u8>)> {
        self.lock().take_notices()
    }

    /// Takes the connections that got replies since the last call.
    pub(super) fn take_dirty(&self, dirty: &mut Vec<u64>) {
        self.lock().take_dirty(dirty);
    }
}

impl ReplySink for SocketReplies {
    fn deliver(&self, caller: Caller, reply: &[u8]) {
        self.lock().deliver(caller, reply);
    }

    fn notify(&self, connection: u64, notice: &[u8]) {
        self.lock().notify(connection, notice);
    }

    fn reply_held(&self, caller: Caller, bytes: usize) {
        self.lock().hold(caller.connection, bytes);
    }

    fn reply_released(&self, caller: Caller, bytes: usize) {
        self.lock().release(caller.connection, bytes);
    }

    fn flush(&self) {
        // Not under the lock, which the woken thread needs.
        let is_needed = self.lock().is_flush_needed();
        if is_needed {
            self.wake();
        }
    }
}
