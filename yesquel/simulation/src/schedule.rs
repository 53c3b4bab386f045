//! Simulated time: a queue of events in the order of their times.

use std::collections::BTreeMap;

/// Events by time and, at one time, in the order in which they were added.
pub struct EventQueue<E> {
    now_us: u64,
    events: BTreeMap<(u64, u64), E>,
    added: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue { now_us: 0, events: BTreeMap::new(), added: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Microseconds since the start of the run.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Adds an event.
    pub fn after(&mut self, us: u64, event: E) {
        self.added += 1;
        self.events.insert((self.now_us + us, self.added), event);
    }

    /// Removes the next event and advances the time to it.
    pub fn next(&mut self) -> Option<E> {
        let ((at_us, _), event) = self.events.pop_first()?;
        self.now_us = self.now_us.max(at_us);
        Some(event)
    }

    /// Removes the events that satisfy a predicate, in their order.
    pub fn extract(&mut self, is_meant: impl Fn(&E) -> bool) -> Vec<E> {
        self.events.extract_if(.., |_, event| is_meant(event)).map(|(_, event)| event).collect()
    }
}
