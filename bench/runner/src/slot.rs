//! What a client is doing at this moment, readable from other threads: the only way to learn of an
//! operation that never ends.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Bits of the word that hold an instant, ns: 146 years.
const INSTANT_BITS: u32 = 62;

/// Latest instant that a slot can hold. A run does not last until then.
const INSTANT_MAX: u64 = (1 << INSTANT_BITS) - 1;

const IDLE: u64 = 0;
const WAITING: u64 = 1 << INSTANT_BITS;
const IN_FLIGHT: u64 = 2 << INSTANT_BITS;

/// One client's state, written by that client only. On cache lines of its
/// own, since it is written twice an operation.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Slot {
    /// The kind of state in the two highest bits, the intended start in the others. One word, so
    /// that a reader never combines the state of one operation with the start of another.
    state: AtomicU64,
    last_end: AtomicU64,
}

/// A client's state as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Between operations, or finished.
    Idle,
    /// Holds an operation that is not sent; its intended start.
    Waiting(u64),
    /// Waits for an outcome; the intended start.
    InFlight(u64),
}

impl Slot {
    /// The client holds an operation and waits for its intended start.
    pub(crate) fn wait(&self, intended: u64) {
        self.set(WAITING | intended.min(INSTANT_MAX));
    }

    /// The client sends an operation.
    #[inline]
    pub(crate) fn begin(&self, intended: u64) {
        self.set(IN_FLIGHT | intended.min(INSTANT_MAX));
    }

    /// The outcome is known.
    #[inline]
    pub(crate) fn end(&self, now: u64) {
        self.last_end.store(now, Relaxed);
        self.set(IDLE);
    }

    /// Pairs with the load in [`seen`](Self::seen): a reader that sees a state sees the end of the
    /// operation before it.
    #[inline]
    fn set(&self, state: u64) {
        self.state.store(state, Release);
    }

    /// When the last operation ended; 0 when none has.
    pub(crate) fn last_end(&self) -> u64 {
        self.last_end.load(Relaxed)
    }

    pub(crate) fn seen(&self) -> Seen {
        let state = self.state.load(Acquire);
        let intended = state & INSTANT_MAX;
        match state & !INSTANT_MAX {
            WAITING => Seen::Waiting(intended),
            IN_FLIGHT => Seen::InFlight(intended),
            _ => Seen::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Operations with even intended starts are sent at once, those with odd ones are waited for.
    #[test]
    fn a_state_is_never_seen_with_the_start_of_another_operation() {
        const OPERATIONS: u64 = 10_000_000;
        let slot = Slot::default();
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                for intended in (0..OPERATIONS).step_by(2) {
                    slot.begin(intended);
                    slot.end(intended);
                    slot.wait(intended + 1);
                }
            });
            while !client.is_finished() {
                match slot.seen() {
                    Seen::Idle => {}
                    Seen::InFlight(intended) => assert_eq!(intended % 2, 0, "in flight since {intended}"),
                    Seen::Waiting(intended) => assert_eq!(intended % 2, 1, "waiting for {intended}"),
                }
            }
        });
        assert_eq!(slot.seen(), Seen::Waiting(OPERATIONS - 1));
        assert_eq!(slot.last_end(), OPERATIONS - 2);
    }

    #[test]
    fn an_instant_that_never_comes_leaves_the_state_as_it_is() {
        let slot = Slot::default();
        slot.wait(u64::MAX);
        assert_eq!(slot.seen(), Seen::Waiting(INSTANT_MAX));
        slot.begin(u64::MAX);
        assert_eq!(slot.seen(), Seen::InFlight(INSTANT_MAX));
        slot.end(7);
        assert_eq!((slot.seen(), slot.last_end()), (Seen::Idle, 7));
    }
}
