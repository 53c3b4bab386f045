//! The one clock of a run.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

fn nanoseconds(t: Timespec) -> u64 {
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds on the system's monotonic clock (`CLOCK_MONOTONIC`): 20 ns a
/// reading, no system call, never backwards, the same for all threads.
#[inline]
pub fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time that all threads of this process have used.
pub fn process_cpu() -> Duration {
    Duration::from_nanos(nanoseconds(clock_gettime(ClockId::ProcessCPUTime)))
}
