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
///
/// Its wall time passes by itself, too: clients count the time since a server's last timestamp by
/// their own clock, and a transaction that is born ahead of the server's clock waits until then.
#[derive(Debug, Clone)]
pub struct ManualTime {
    passed_ms: Arc<AtomicU64>,
    began: Instant,
}

impl Default for ManualTime {
    fn default() -> ManualTime {
        ManualTime { passed_ms: Arc::default(), began: Instant::now() }
    }
}

impl ManualTime {
    /// Its wall time at the start, in milliseconds.
    const BEGAN_MS: u64 = 1_700_000_000_000;

    /// Advances the clock.
    pub fn pass(&self, ms: u64) {
        self.passed_ms.fetch_add(ms, SeqCst);
    }
}

impl Time for ManualTime {
    fn now(&mut self) -> Now {
        let uptime_ms = self.passed_ms.load(SeqCst);
        let own_ms = self.began.elapsed().as_millis() as u64;
        Now { wall_ms: ManualTime::BEGAN_MS + uptime_ms + own_ms, uptime_ms }
    }

    fn is_over(&self, then: Now) -> bool {
        self.passed_ms.load(SeqCst) != then.uptime_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A client that has heard the clock's first time is not ahead of it, however slow the test is.
    #[test]
    fn births_by_the_clients_clock_are_not_ahead_of_a_manual_clock() {
        let mut clock = ManualTime::default();
        let (heard, since) = (clock.now(), Instant::now());
        while since.elapsed() < Duration::from_millis(5) {
            std::thread::yield_now();
        }
        let birth_ms = heard.wall_ms + since.elapsed().as_millis() as u64;
        let now = clock.now();
        assert!(birth_ms <= now.wall_ms, "{birth_ms} is ahead of {now:?}");
        assert_eq!(now.uptime_ms, 0, "all else waits for the test");
    }
}
