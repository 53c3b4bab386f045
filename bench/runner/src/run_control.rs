//! State that all clients of a run share.

use crate::pacing::Schedule;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// State that all clients of a run share. Instants are on the run's clock, ns.
#[derive(Debug)]
pub(crate) struct RunControl {
    /// Start of the run and of its schedule.
    pub(crate) start: u64,
    /// End of the warm-up: operations that end later are measured. Moves to an earlier instant
    /// once if the warm-up lasts until steady state.
    pub(crate) measure_from: AtomicU64,
    /// Instant from which no unit begins. An interruption moves it.
    pub(crate) end_at: AtomicU64,
    /// Intended starts of a paced run.
    pub(crate) schedule: Option<Schedule>,
    /// Time after the end in which an operation that was due before the end may still start,
    /// because its client was asleep, ns.
    pub(crate) allowance: u64,
    /// Lateness from which an idle client counts as late, ns.
    pub(crate) late_from: u64,
    /// Whether the verification of data is timed.
    pub(crate) verifies: bool,
    /// Whether a client stopped because of a failure.
    pub(crate) gave_up: AtomicBool,
    /// Instants at which the first and the last client woke for the start.
    pub(crate) woke: (AtomicU64, AtomicU64),
}

impl RunControl {
    /// Returns the end of the warm-up.
    #[inline]
    pub(crate) fn measure_from(&self) -> u64 {
        self.measure_from.load(Relaxed)
    }

    /// Returns the instant from which no unit begins.
    #[inline]
    pub(crate) fn end_at(&self) -> u64 {
        self.end_at.load(Relaxed)
    }

    pub(crate) fn woke(&self, now: u64) {
        self.woke.0.fetch_min(now, Relaxed);
        self.woke.1.fetch_max(now, Relaxed);
    }

    /// Returns the instants at which the first and the last client began.
    pub(crate) fn began(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.woke.0.load(Relaxed), self.woke.1.load(Relaxed));
        (first <= last).then_some((first, last))
    }
}
