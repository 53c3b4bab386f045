//! Simulated time: a queue of events in the order of their times.
//!
//! The unit of time is the user's: microseconds in the simulated cluster.

use std::collections::BTreeMap;

/// Events by time and, at one time, in the order in which they were added.
pub struct EventQueue<E> {
    now: u64,
    events: BTreeMap<(u64, u64), E>,
    added: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue { now: 0, events: BTreeMap::new(), added: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Time since the start of the run.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Adds an event that happens after a delay.
    pub fn after(&mut self, delay: u64, event: E) {
        self.added += 1;
        self.events.insert((self.now + delay, self.added), event);
    }

    /// Removes the next event and advances the time to it.
    #[expect(clippy::should_implement_trait, reason = "events are added between two calls")]
    pub fn next(&mut self) -> Option<E> {
        let ((at, _), event) = self.events.pop_first()?;
        self.now = self.now.max(at);
        Some(event)
    }

    /// Removes the events that satisfy a predicate, in their order.
    pub fn extract(&mut self, is_meant: impl Fn(&E) -> bool) -> Vec<E> {
        self.events.extract_if(.., |_, event| is_meant(event)).map(|(_, event)| event).collect()
    }
}
