//! What all connections together hold of messages that have come in part.

use crate::socket_counters::SocketCounters;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Connections with messages that are not whole yet. When they hold as much as
/// they may, only one of them is read on, until there is room again: so all of
/// them come to their ends, one after the other, and none has to be closed for
/// what another one holds.
#[derive(Debug)]
pub(super) struct PartialMessages {
    bytes_max: usize,
    bytes: usize,
    of: BTreeMap<u64, usize>,
    counters: Arc<SocketCounters>,
}

impl PartialMessages {
    pub(super) fn new(bytes_max: usize, counters: Arc<SocketCounters>) -> PartialMessages {
        PartialMessages { bytes_max, bytes: 0, of: BTreeMap::new(), counters }
    }

    /// What a connection holds now.
    pub(super) fn holds(&mut self, connection: u64, bytes: usize) {
        let before = match bytes {
            0 if self.of.is_empty() => return,
            0 => self.of.remove(&connection),
            _ => self.of.insert(connection, bytes),
        };
        self.bytes = self.bytes - before.unwrap_or(0) + bytes;
        self.counters.unfinished.store(self.bytes as u64, Relaxed);
    }

    /// Whether a connection is to wait until others have ended theirs. Who holds
    /// nothing does not: what it says next may be short.
    pub(super) fn waits(&self, connection: u64) -> bool {
        self.bytes >= self.bytes_max
            && self.of.contains_key(&connection)
            && self.of.first_key_value().is_some_and(|(first, _)| *first != connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_room_one_goes_on() {
        let mut partial_messages = PartialMessages::new(100, Arc::default());
        partial_messages.holds(5, 60);
        partial_messages.holds(3, 39);
        assert!(![3, 4, 5].iter().any(|connection| partial_messages.waits(*connection)));
        partial_messages.holds(7, 1);
        assert_eq!(
            [3, 4, 5, 7].map(|connection| partial_messages.waits(connection)),
            [false, false, true, true]
        );
        assert_eq!(partial_messages.counters.unfinished.load(Relaxed), 100);
        // It has ended: the next one, or all if there is room.
        partial_messages.holds(3, 0);
        assert!(!partial_messages.waits(5) && !partial_messages.waits(7));
        partial_messages.holds(7, 50);
        assert!(!partial_messages.waits(5) && partial_messages.waits(7));
        partial_messages.holds(5, 0);
        partial_messages.holds(7, 0);
        assert_eq!(partial_messages.counters.unfinished.load(Relaxed), 0);
    }
}
