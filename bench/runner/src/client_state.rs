//! State of a client, readable from other threads. This is the only way to learn
//! of an operation that never ends.

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

/// State of one client, written by that client only. Has cache lines of its own, because it is
/// written twice per operation.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ClientStatus {
    /// The state in the two highest bits, the intended start in the others. One word, so that a
    /// reader never combines the state of one operation with the start of another.
    word: AtomicU64,
    last_end: AtomicU64,
}

/// State of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientState {
    /// Is between operations, or has finished.
    Idle,
    /// Waits for the intended start of its next operation, ns.
    Waiting(u64),
    /// Waits for the outcome of an operation with this intended start, ns.
    InFlight(u64),
}

impl ClientStatus {
    /// Notes that the client waits for the intended start of an operation.
    pub(crate) fn wait(&self, intended: u64) {
        self.set(WAITING | intended.min(INSTANT_MAX));
    }

    /// Notes that the client sends an operation.
    #[inline]
    pub(crate) fn begin(&self, intended: u64) {
        self.set(IN_FLIGHT | intended.min(INSTANT_MAX));
    }

    /// Notes that the operation has ended.
    #[inline]
    pub(crate) fn end(&self, now: u64) {
        self.last_end.store(now, Relaxed);
        self.set(IDLE);
    }

    /// Pairs with the load in [`state`](Self::state): a reader of a state also sees the end of the
    /// operation before it.
    #[inline]
    fn set(&self, state: u64) {
        self.word.store(state, Release);
    }

    /// Returns the end of the last operation, ns; 0 if no operation has ended.
    pub(crate) fn last_end(&self) -> u64 {
        self.last_end.load(Relaxed)
    }

    /// Returns what the client does.
    pub(crate) fn state(&self) -> ClientState {
        let state = self.word.load(Acquire);
        let intended = state & INSTANT_MAX;
        match state & !INSTANT_MAX {
            WAITING => ClientState::Waiting(intended),
            IN_FLIGHT => ClientState::InFlight(intended),
            _ => ClientState::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Operations with even intended starts are sent; the client waits for those with odd ones.
    #[test]
    fn a_state_is_never_read_with_the_start_of_another_operation() {
        const OPERATIONS: u64 = 10_000_000;
        let status = ClientStatus::default();
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                for intended in (0..OPERATIONS).step_by(2) {
                    status.begin(intended);
                    status.end(intended);
                    status.wait(intended + 1);
                }
            });
            while !client.is_finished() {
                match status.state() {
                    ClientState::Idle => {}
                    ClientState::InFlight(intended) => {
                        assert_eq!(intended % 2, 0, "in flight since {intended}")
                    }
                    ClientState::Waiting(intended) => assert_eq!(intended % 2, 1, "waiting for {intended}"),
                }
            }
        });
        assert_eq!(status.state(), ClientState::Waiting(OPERATIONS - 1));
        assert_eq!(status.last_end(), OPERATIONS - 2);
    }

    #[test]
    fn an_instant_beyond_the_range_does_not_change_the_state() {
        let status = ClientStatus::default();
        status.wait(u64::MAX);
        assert_eq!(status.state(), ClientState::Waiting(INSTANT_MAX));
        status.begin(u64::MAX);
        assert_eq!(status.state(), ClientState::InFlight(INSTANT_MAX));
        status.end(7);
        assert_eq!((status.state(), status.last_end()), (ClientState::Idle, 7));
    }
}
