//! Replies and notices that wait to be written to connections, and the order in which they leave: no
//! reply leaves before the notices of all steps so far.

use rustc_hash::FxHashMap;
use yesquel_engine::Caller;
use yesquel_wire::{Notice, frame::Outbox};

/// Replies of one connection.
#[derive(Debug, Default)]
pub struct ConnectionReplies {
    out: Outbox,
    /// Notices, which leave before all replies.
    notices: Outbox,
    /// Number of requests without a reply.
    pub in_flight: usize,
    /// Bytes of replies that wait for the disk.
    held: usize,
    /// Whether the connection is in the dirty list.
    is_dirty: bool,
}

impl ConnectionReplies {
    /// Bytes that are queued or will be.
    pub fn bytes(&self) -> usize {
        self.out.held() + self.held
    }

    fn mark_dirty(&mut self, connection: u64, dirty: &mut Vec<u64>) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            dirty.push(connection);
        }
    }
}

/// What [`ReplyQueues::fill`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// It has appended replies.
    Replies,
    /// No reply waits.
    Nothing,
    /// Notices must be written first. The connection counts as one that just got replies.
    NoticesFirst,
}

/// Replies and notices by connection. One thread writes to all connections.
#[derive(Debug, Default)]
pub struct ReplyQueues {
    of: FxHashMap<u64, ConnectionReplies>,
    /// Connections with something to send.
    dirty: Vec<u64>,
    /// Connections with notices to send.
    noticed: Vec<u64>,
}

impl ReplyQueues {
    /// Adds a connection.
    pub fn add(&mut self, connection: u64) {
        self.of.insert(connection, ConnectionReplies::default());
    }

    /// Removes a connection, with what waits for it.
    pub fn remove(&mut self, connection: u64) {
        self.of.remove(&connection);
    }

    /// Returns the replies of a connection.
    pub fn of(&mut self, connection: u64) -> Option<&mut ConnectionReplies> {
        self.of.get_mut(&connection)
    }

    /// Adds a reply.
    pub fn deliver(&mut self, caller: Caller, reply: &[u8]) {
        // Otherwise the connection has ended.
        if let Some(of) = self.of.get_mut(&caller.connection) {
            of.out.push(caller.request, reply);
            of.in_flight = of.in_flight.saturating_sub(1);
            of.mark_dirty(caller.connection, &mut self.dirty);
        }
    }

    /// Adds a notice. It leaves before all replies that are added from now on.
    pub fn notify(&mut self, connection: u64, notice: &[u8]) {
        if let Some(of) = self.of.get_mut(&connection) {
            if of.notices.is_empty() {
                self.noticed.push(connection);
            }
            of.notices.push(Notice::NUMBER, notice);
        }
    }

    /// Counts bytes of a reply that waits for the disk.
    pub fn hold(&mut self, connection: u64, bytes: usize) {
        self.of(connection).into_iter().for_each(|of| of.held += bytes);
    }

    /// Counts bytes of a reply that no longer waits.
    pub fn release(&mut self, connection: u64, bytes: usize) {
        self.of(connection).into_iter().for_each(|of| of.held = of.held.saturating_sub(bytes));
    }

    /// Whether something waits to be written.
    pub fn is_flush_needed(&self) -> bool {
        !self.dirty.is_empty() || !self.noticed.is_empty()
    }

    /// Appends a connection's queued replies to a buffer, as [`Outbox::fill`] does. While notices
    /// wait, no reply leaves.
    pub fn fill(&mut self, connection: u64, out: &mut Vec<u8>) -> Filled {
        let Some(of) = self.of.get_mut(&connection) else { return Filled::Nothing };
        if !self.noticed.is_empty() {
            of.mark_dirty(connection, &mut self.dirty);
            return Filled::NoticesFirst;
        }
        if of.out.fill(out) { Filled::Replies } else { Filled::Nothing }
    }

    /// Takes the notices and their connections. Call [`write_notices`] with them before
    /// [`fill`](Self::fill).
    pub fn take_notices(&mut self) -> Vec<(u64, Vec<u8>)> {
        let taken = self.noticed.drain(..).filter_map(|connection| {
            let mut bytes = Vec::new();
            let of = self.of.get_mut(&connection)?;
            of.notices.fill(&mut bytes).then_some((connection, bytes))
        });
        taken.collect()
    }

    /// Takes the connections that got replies since the last call.
    pub fn take_dirty(&mut self, dirty: &mut Vec<u64>) {
        dirty.clear();
        std::mem::swap(&mut self.dirty, dirty);
        for connection in dirty {
            if let Some(of) = self.of.get_mut(connection) {
                of.is_dirty = false;
            }
        }
    }
}

/// The connections to which notices are written.
pub trait NoticeSockets {
    /// Why a connection does not take its notices.
    type Failure;

    /// Writes notices at once. Fails unless the connection takes all of them.
    fn write_notices(&mut self, connection: u64, notices: Vec<u8>) -> Result<(), Self::Failure>;

    /// Ends a connection, so that its client knows that it gets no notices.
    fn close(&mut self, connection: u64, failure: Self::Failure);
}

/// Writes the notices of the steps so far, before any of their replies. A watcher that has no room
/// for its notices is disconnected: it finds the end of its connection where it would find them.
pub fn write_notices(notices: Vec<(u64, Vec<u8>)>, sockets: &mut impl NoticeSockets) {
    for (connection, bytes) in notices {
        if let Err(failure) = sockets.write_notices(connection, bytes) {
            sockets.close(connection, failure);
        }
    }
}
