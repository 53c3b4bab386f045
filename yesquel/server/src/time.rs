//! Clocks of a server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Instant, SystemTime},
};
use yesquel_engine::Now;

/// Clock of a server.
pub trait Time: Send + Sync {
    /// Returns the time.
    fn now(&mut self) -> Now;

    /// Returns whether the millisecond of `then` is over.
    fn is_over(&self, _then: Now) -> bool {
        true
    }
}

/// The system's clocks.
#[derive(Debug, Clone, Copy)]
pub struct WallTime {
    start: Instant,
    /// The last result.
    last: Option<Now>,
}

impl Default for WallTime {
    fn default() -> Self {
        WallTime { start: Instant::now(), last: None }
    }
}

impl Time for WallTime {
    fn now(&mut self) -> Now {
        let uptime_ms = self.start.elapsed().as_millis() as u64;
        // Skip the second clock while the first shows the same millisecond: every request reads the
        // time.
        if let Some(last) = self.last.filter(|last| last.uptime_ms == uptime_ms) {
            return last;
        }
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = Now { wall_ms: wall.as_millis() as u64, uptime_ms };
        self.last = Some(now);
        now
    }

    fn is_over(&self, then: Now) -> bool {
        self.start.elapsed().as_millis() as u64 != then.uptime_ms
    }
}

/// Clock that tests advance by hand. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ManualTime(Arc<AtomicU64>);

impl ManualTime {
    /// Its wall time at the start, in milliseconds.
    const BEGAN_MS: u64 = 1_700_000_000_000;

    /// Advances the clock.
    pub fn pass(&self, ms: u64) {
        self.0.fetch_add(ms, SeqCst);
    }
}

impl Time for ManualTime {
    fn now(&mut self) -> Now {
        let uptime_ms = self.0.load(SeqCst);
        Now { wall_ms: ManualTime::BEGAN_MS + uptime_ms, uptime_ms }
    }

    fn is_over(&self, then: Now) -> bool {
        self.0.load(SeqCst) != then.uptime_ms
    }
}
