//! What a client is doing right now, for whoever looks from outside: the only
//! way to know of an operation that never ends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

const IDLE: u64 = 0;
const WAITING: u64 = 1;
const IN_FLIGHT: u64 = 2;

/// One client's state, written by that client only. On cache lines of its
/// own, since it is written twice an operation.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Slot {
    state: AtomicU64,
    intended: AtomicU64,
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
        self.intended.store(intended, Relaxed);
        self.state.store(WAITING, Relaxed);
    }

    /// The client sends an operation.
    #[inline]
    pub(crate) fn begin(&self, intended: u64) {
        self.intended.store(intended, Relaxed);
        self.state.store(IN_FLIGHT, Relaxed);
    }

    /// The outcome is known.
    #[inline]
    pub(crate) fn end(&self, now: u64) {
        self.last_end.store(now, Relaxed);
        self.state.store(IDLE, Release);
    }

    /// When the last operation ended; 0 when none has.
    pub(crate) fn last_end(&self) -> u64 {
        self.last_end.load(Relaxed)
    }

    pub(crate) fn seen(&self) -> Seen {
        let intended = self.intended.load(Relaxed);
        match self.state.load(Relaxed) {
            WAITING => Seen::Waiting(intended),
            IN_FLIGHT => Seen::InFlight(intended),
            _ => Seen::Idle,
        }
    }
}
