//! Memory that incomplete messages of all connections use.

use crate::socket_counters::SocketCounters;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Connections with incomplete messages. When these reach the limit, only one of them is read until
/// there is room again. So all of them finish one after the other, and none must be closed.
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

    /// Sets the bytes that a connection holds now.
    pub(super) fn holds(&mut self, connection: u64, bytes: usize) {
        let before = match bytes {
            0 if self.of.is_empty() => return,
            0 => self.of.remove(&connection),
            _ => self.of.insert(connection, bytes),
        };
        self.bytes = self.bytes - before.unwrap_or(0) + bytes;
        self.counters.unfinished.store(self.bytes as u64, Relaxed);
    }

    /// Returns whether a connection must wait until others have finished. One that holds nothing
    /// need not: its next message may be short.
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
    fn without_room_one_message_at_a_time_continues() {
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
        // Finished: the next one continues, or all of them if there is room.
        partial_messages.holds(3, 0);
        assert!(!partial_messages.waits(5) && !partial_messages.waits(7));
        partial_messages.holds(7, 50);
        assert!(!partial_messages.waits(5) && partial_messages.waits(7));
        partial_messages.holds(5, 0);
        partial_messages.holds(7, 0);
        assert_eq!(partial_messages.counters.unfinished.load(Relaxed), 0);
    }
}
