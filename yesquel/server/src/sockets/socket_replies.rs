//! Replies on their way to connections.

use crate::ReplySink;
use mio::Waker;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use yesquel_engine::Caller;
use yesquel_wire::frame::Outbox;

/// What one connection is to be sent.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) out: Outbox,
    /// Requests that have no reply yet.
    pub(super) under_way: usize,
    /// Bytes of replies that wait for the disk.
    held: usize,
    /// Whether it stands among the dirty.
    is_dirty: bool,
}

impl Replies {
    /// Bytes that wait to be taken, or will.
    pub(super) fn bytes(&self) -> usize {
        self.out.held() + self.held
    }
}

#[derive(Debug, Default)]
struct ReplyQueues {
    of: FxHashMap<u64, Replies>,
    /// Connections with something to be sent.
    dirty: Vec<u64>,
}

#[derive(Debug, Default)]
struct SharedQueues {
    all: Mutex<ReplyQueues>,
    /// Wakes the thread that writes to sockets.
    waker: OnceLock<Waker>,
}

/// Takes the replies to requests that came by sockets. Clones are the same one.
#[derive(Debug, Default, Clone)]
pub struct SocketReplies(Arc<SharedQueues>);

impl SocketReplies {
    /// None yet.
    pub fn new() -> SocketReplies {
        SocketReplies::default()
    }

    fn lock(&self) -> MutexGuard<'_, ReplyQueues> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake_with(&self, waker: Waker) {
        // A sink has one thread that writes, which sets it once.
        let _ = self.0.waker.set(waker);
    }

    pub(super) fn wake(&self) {
        // A waker fails only where the system is out of memory.
        if let Some(Err(error)) = self.0.waker.get().map(Waker::wake) {
            tracing::error!(%error, "the thread of the sockets could not be woken");
        }
    }

    pub(super) fn add(&self, connection: u64) {
        self.lock().of.insert(connection, Replies::default());
    }

    pub(super) fn remove(&self, connection: u64) {
        self.lock().of.remove(&connection);
    }

    /// Does something with a connection's replies.
    pub(super) fn with<T>(&self, connection: u64, act: impl FnOnce(&mut Replies) -> T) -> Option<T> {
        self.lock().of.get_mut(&connection).map(act)
    }

    /// Connections that have got replies since this was asked last.
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
        // Whoever has gone takes nothing more.
        let Some(of) = all.get_mut(&caller.connection) else { return };
        of.out.push(caller.request, reply);
        of.under_way = of.under_way.saturating_sub(1);
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
