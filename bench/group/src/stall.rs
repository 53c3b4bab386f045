//! Detection of stalled clients: clients that make no progress while all others have ended.

use std::time::Duration;

/// Time without a finished operation after which a client is stalled.
const STALL_AFTER: Duration = Duration::from_secs(60);

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

    /// Records the number of units that a client has finished.
    pub(crate) fn record(&mut self, client: usize, units: u64, now: u64) {
        if let (Some(known), Some(since)) = (self.units.get_mut(client), self.since.get_mut(client))
            && units > *known
        {
            (*known, *since) = (units, now);
        }
    }

    /// Returns the clients that still work, if others have ended and none of these has made progress for a minute.
    /// Returns a stall only once.
    pub(crate) fn stalled(&mut self, works: impl Fn(usize) -> bool, now: u64) -> Vec<usize> {
        let limit = STALL_AFTER.as_nanos() as u64;
        let working: Vec<usize> = (0..self.since.len()).filter(|client| works(*client)).collect();
        let stalled = working.len() < self.since.len()
            && working.iter().all(|client| now.saturating_sub(self.since[*client]) >= limit);
        if working.is_empty() || !stalled || std::mem::replace(&mut self.is_reported, true) {
            Vec::new()
        } else {
            working
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_progress_is_reported_once_after_all_others_have_ended() {
        const SECOND: u64 = 1_000_000_000;
        let mut detector = StallDetector::new(3, 0);
        detector.record(1, 5, 40 * SECOND);
        // Two clients work, and one of them has made progress lately.
        assert!(detector.stalled(|client| client > 0, 61 * SECOND).is_empty());
        assert!(detector.stalled(|_| true, 500 * SECOND).is_empty(), "no ended client waits for these");
        detector.record(1, 5, 99 * SECOND);
        assert_eq!(detector.stalled(|client| client == 1, 100 * SECOND), [1]);
        assert!(detector.stalled(|client| client == 1, 200 * SECOND).is_empty());
    }
}
