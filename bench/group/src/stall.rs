//! Stalled clients: all others have ended and wait for them.

use std::time::Duration;

/// Time without a finished operation after which a client is stalled.
const PATIENCE: Duration = Duration::from_secs(60);

/// Units of each client and the instant of its last progress, ns of the coordinator's clock.
#[derive(Debug)]
pub(crate) struct StallDetector {
    units: Vec<u64>,
    since: Vec<u64>,
    is_reported: bool,
}

impl StallDetector {
    pub(crate) fn new(clients: usize, now: u64) -> StallDetector {
        StallDetector { units: vec![0; clients], since: vec![now; clients], is_reported: false }
    }

    /// Notes how many units a client has finished.
    pub(crate) fn done(&mut self, client: usize, units: u64, now: u64) {
        if let (Some(known), Some(since)) = (self.units.get_mut(client), self.since.get_mut(client))
            && units > *known
        {
            (*known, *since) = (units, now);
        }
    }

    /// Returns the clients that are still at work, if others have ended and none of these has made
    /// progress for a minute; each stall is returned once.
    pub(crate) fn stalled(&mut self, at_work: impl Fn(usize) -> bool, now: u64) -> Vec<usize> {
        let patience = PATIENCE.as_nanos() as u64;
        let still: Vec<usize> = (0..self.since.len()).filter(|client| at_work(*client)).collect();
        let stuck = still.len() < self.since.len()
            && still.iter().all(|client| now.saturating_sub(self.since[*client]) >= patience);
        if still.is_empty() || !stuck || std::mem::replace(&mut self.is_reported, true) {
            Vec::new()
        } else {
            still
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_nothing_while_all_others_have_ended_is_named_once() {
        const SECOND: u64 = 1_000_000_000;
        let mut still = StallDetector::new(3, 0);
        still.done(1, 5, 40 * SECOND);
        // Two are at work, and one of them has made progress lately.
        assert!(still.stalled(|client| client > 0, 61 * SECOND).is_empty());
        assert!(still.stalled(|_| true, 500 * SECOND).is_empty(), "no client that has ended waits for these");
        still.done(1, 5, 99 * SECOND);
        assert_eq!(still.stalled(|client| client == 1, 100 * SECOND), [1]);
        assert!(still.stalled(|client| client == 1, 200 * SECOND).is_empty());
    }
}
