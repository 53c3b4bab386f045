//! The clock of a run: the only place where the runner reads the time.

use rustix::time::{ClockId, Timespec, clock_gettime};
pub use serval_model::properties::units::nanoseconds;
use std::time::{Duration, SystemTime};

/// The clock of the run's conductor: the system's or a virtual one.
pub(crate) trait ConductorClock {
    /// Returns the time on the run's clock, ns. Never goes back.
    fn now(&self) -> u64;
    /// Returns the CPU time of this process.
    fn cpu(&self) -> Duration;
    /// Returns the time of day.
    fn date(&self) -> SystemTime;
}

/// The system's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemClock;

impl ConductorClock for SystemClock {
    fn now(&self) -> u64 {
        now()
    }
    fn cpu(&self) -> Duration {
        process_cpu()
    }
    fn date(&self) -> SystemTime {
        SystemTime::now()
    }
}

fn of_timespec(t: Timespec) -> u64 {
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Returns the time on the system's monotonic clock (`CLOCK_MONOTONIC`), ns. Takes 20 ns and no
/// system call, never goes back, and is the same for all threads.
#[inline]
pub fn now() -> u64 {
    of_timespec(clock_gettime(ClockId::Monotonic))
}

/// Returns the CPU time of all threads of this process.
pub fn process_cpu() -> Duration {
    Duration::from_nanos(of_timespec(clock_gettime(ClockId::ProcessCPUTime)))
}
