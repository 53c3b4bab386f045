//! Where the time comes from.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Instant, SystemTime},
};
use yesquel_engine::Now;

/// A source of the time.
pub trait Time: Send + Sync {
    /// What it is.
    fn now(&mut self) -> Now;

    /// Whether another millisecond has begun since it was `then`.
    fn is_over(&self, _then: Now) -> bool {
        true
    }
}

/// The system's clocks.
#[derive(Debug, Clone, Copy)]
pub struct WallTime {
    start: Instant,
    /// What was said last.
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
        // One of the clocks is enough to know that the other has not moved by
        // a millisecond: every request asks.
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

/// A clock that goes on when it is told to, for tests that do not want to wait.
/// Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct ManualTime(Arc<AtomicU64>);

impl ManualTime {
    /// What it says of the years before it began, in milliseconds.
    const BEGAN_MS: u64 = 1_700_000_000_000;

    /// So many milliseconds pass.
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
