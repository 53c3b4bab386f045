//! What a client has sent: the tests of what round trips cost.

use yesquel_model::Tally;

/// Counts that only grow.
#[derive(Debug, Default)]
pub struct Counters {
    requests: Tally,
    bytes_sent: Tally,
    bytes_received: Tally,
}

/// The counts of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests that were sent.
    pub requests: u64,
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

    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_received.add_many(bytes as u64);
    }

    /// What they are now.
    pub fn counts(&self) -> Counts {
        Counts {
            requests: self.requests.count(),
            bytes_sent: self.bytes_sent.count(),
            bytes_received: self.bytes_received.count(),
        }
    }
}
