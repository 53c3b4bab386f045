//! SentCounts of the messages a client has sent, from which tests derive round trips.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use yesquel_model::ShardedCounter;

/// Monotonic counters of a client.
#[derive(Debug, Default)]
pub struct SentCounters {
    requests: ShardedCounter,
    overlapping: ShardedCounter,
    repeated: AtomicU64,
    bytes_sent: ShardedCounter,
    bytes_received: ShardedCounter,
}

/// Values of [`SentCounters`] at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SentCounts {
    /// Requests sent.
    pub requests: u64,
    /// Requests that overlapped another one: all other requests are round trips of their own.
    pub overlapping: u64,
    /// Of the requests, those that were repeated since they had come to the wrong place.
    pub repeated: u64,
    /// Bytes of the requests.
    pub bytes_sent: u64,
    /// Bytes of the replies.
    pub bytes_received: u64,
}

impl SentCounters {
    pub(crate) fn sent(&self, bytes: usize) {
        self.requests.add();
        self.bytes_sent.add_many(bytes as u64);
    }

    /// SentCounts a request that is sent together with the next one.
    pub(crate) fn overlapping(&self) {
        self.overlapping.add();
    }

    /// Counts a request that is sent again, to another place.
    pub(crate) fn repeated(&self, bytes: usize) {
        self.sent(bytes);
        self.repeated.fetch_add(1, Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_received.add_many(bytes as u64);
    }

    /// Returns the present values.
    pub fn counts(&self) -> SentCounts {
        SentCounts {
            overlapping: self.overlapping.count(),
            requests: self.requests.count(),
            repeated: self.repeated.load(Relaxed),
            bytes_sent: self.bytes_sent.count(),
            bytes_received: self.bytes_received.count(),
        }
    }
}
