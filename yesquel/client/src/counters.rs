//! What a client has sent: the tests of what round trips cost.

use yesquel_model::Tally;

/// Counts that only grow.
#[derive(Debug, Default)]
pub struct Counters {
    requests: Tally,
}

/// The counts of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests that were sent.
    pub requests: u64,
}

impl Counters {
    pub(crate) fn sent(&self) {
        self.requests.add();
    }

    /// What they are now.
    pub fn counts(&self) -> Counts {
        Counts { requests: self.requests.count() }
    }
}
