//! What a client has sent: the tests of what round trips cost.

use yesquel_model::ShardedCounter;

/// Counts that only grow.
#[derive(Debug, Default)]
pub struct Counters {
    requests: ShardedCounter,
    beside: ShardedCounter,
    bytes_sent: ShardedCounter,
    bytes_received: ShardedCounter,
}

/// The counts of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests that were sent.
    pub requests: u64,
    /// Of them, those that were sent beside another one, and waited for with it: all
    /// others are round trips.
    pub beside: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// Bytes of the replies.
    pub bytes_received: u64,
}

impl Counters {
    pub(crate) fn sent(&self, bytes: usize) {
        self.requests.add();
        self.bytes_sent.add_many(bytes as u64);
    }

    /// A request is sent beside the next one.
    pub(crate) fn beside(&self) {
        self.beside.add();
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_received.add_many(bytes as u64);
    }

    /// What they are now.
    pub fn counts(&self) -> Counts {
        Counts {
            beside: self.beside.count(),
            requests: self.requests.count(),
            bytes_sent: self.bytes_sent.count(),
            bytes_received: self.bytes_received.count(),
        }
    }
}
