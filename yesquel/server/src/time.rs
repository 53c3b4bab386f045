//! Where the time comes from.

use std::time::{Instant, SystemTime};
use yesquel_engine::Now;

/// A source of the time.
pub trait Time: Send {
    /// What it is.
    fn now(&mut self) -> Now;
}

/// The system's clocks.
#[derive(Debug, Clone, Copy)]
pub struct WallTime {
    start: Instant,
}

impl Default for WallTime {
    fn default() -> Self {
        WallTime { start: Instant::now() }
    }
}

impl Time for WallTime {
    fn now(&mut self) -> Now {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { wall_ms: wall.as_millis() as u64, uptime_ms: self.start.elapsed().as_millis() as u64 }
    }
}
