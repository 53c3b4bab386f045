//! Clients for which all others wait, and which do nothing.

use std::time::Duration;

/// Time without an end of any operation after which it is said.
const PATIENCE: Duration = Duration::from_secs(60);

/// What each client has done by when, ns by the coordinator's clock.
#[derive(Debug)]
pub(crate) struct Still {
    units: Vec<u64>,
    since: Vec<u64>,
    told: bool,
}

impl Still {
    pub(crate) fn new(clients: usize, now: u64) -> Still {
        Still { units: vec![0; clients], since: vec![now; clients], told: false }
    }

    /// A client has done so many units.
    pub(crate) fn done(&mut self, client: usize, units: u64, now: u64) {
        if let (Some(known), Some(since)) = (self.units.get_mut(client), self.since.get_mut(client))
            && units > *known
        {
            (*known, *since) = (units, now);
        }
    }

    /// Those that are still at work, where others have ended and none of these has done anything for
    /// long; told once.
    pub(crate) fn look(&mut self, at_work: impl Fn(usize) -> bool, now: u64) -> Vec<usize> {
        let patience = PATIENCE.as_nanos() as u64;
        let still: Vec<usize> = (0..self.since.len()).filter(|client| at_work(*client)).collect();
        let stuck = still.len() < self.since.len()
            && still.iter().all(|client| now.saturating_sub(self.since[*client]) >= patience);
        if still.is_empty() || !stuck || std::mem::replace(&mut self.told, true) { Vec::new() } else { still }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_nothing_while_all_others_have_ended_is_named_once() {
        const SECOND: u64 = 1_000_000_000;
        let mut still = Still::new(3, 0);
        still.done(1, 5, 40 * SECOND);
        // Two are at work, of which one has done something of late.
        assert!(still.look(|client| client > 0, 61 * SECOND).is_empty());
        assert!(still.look(|_| true, 500 * SECOND).is_empty(), "nobody waits for them");
        still.done(1, 5, 99 * SECOND);
        assert_eq!(still.look(|client| client == 1, 100 * SECOND), [1]);
        assert!(still.look(|client| client == 1, 200 * SECOND).is_empty());
    }
}
