//! Counts of the connections by sockets.

use std::sync::atomic::AtomicU64;

/// What the sockets have seen, for whoever watches.
#[derive(Debug, Default)]
pub struct SocketCounters {
    /// Connections that are open.
    pub open: AtomicU64,
    /// Connections that were taken.
    pub accepted: AtomicU64,
    /// Connections that were not served, or were closed for what they did.
    pub refused: AtomicU64,
    /// Times that one was read no further, for it had not taken its replies.
    pub paused: AtomicU64,
    /// The most bytes of replies that ever waited for one.
    pub queued_most: AtomicU64,
    /// Bytes of messages that have come in part.
    pub unfinished: AtomicU64,
}
