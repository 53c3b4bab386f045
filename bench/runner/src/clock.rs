//! The one clock of a run. Time is handed in here, at the edge.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::{Duration, SystemTime};

/// The time that whoever conducts a run is handed: the system's, or a virtual
/// one.
pub(crate) trait Clock {
    /// Nanoseconds of the run's clock, never backwards.
    fn now(&self) -> u64;
    /// CPU time that this process has used.
    fn cpu(&self) -> Duration;
    /// The time of day.
    fn date(&self) -> SystemTime;
}

/// The system's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
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

/// A span in ns; at most `u64::MAX`, which is never reached.
pub(crate) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn of_timespec(t: Timespec) -> u64 {
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds on the system's monotonic clock (`CLOCK_MONOTONIC`): 20 ns a
/// reading, no system call, never backwards, the same for all threads.
#[inline]
pub fn now() -> u64 {
    of_timespec(clock_gettime(ClockId::Monotonic))
}

/// CPU time that all threads of this process have used.
pub fn process_cpu() -> Duration {
    Duration::from_nanos(of_timespec(clock_gettime(ClockId::ProcessCPUTime)))
}
