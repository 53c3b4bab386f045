//! Waking a thread that waits for something.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Rung when there is something to look at. It goes on until somebody hears it:
/// what it tells of may be looked at before it is waited for, and after.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rings: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits, or the next who does.
    pub(crate) fn ring(&self) {
        let mut rings = self.lock();
        if !*rings {
            *rings = true;
            self.rung.notify_one();
        }
    }

    /// Waits until it rings.
    pub(crate) fn wait(&self) {
        let waited = self.rung.wait_while(self.lock(), |rings| !*rings);
        *waited.unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// The same, but no longer than until then; whether it rang.
    pub(crate) fn wait_until(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let waited = self.rung.wait_timeout_while(self.lock(), left, |rings| !*rings);
        let (mut rings, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *rings, false)
    }

    /// The same, but no longer than that.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        self.wait_until(Instant::now() + time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_ring_is_heard_once_before_or_after() {
        let bell = Bell::default();
        bell.ring();
        bell.ring();
        bell.wait();
        assert!(!bell.wait_for(Duration::ZERO));
        thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            bell.wait();
        });
        assert!(!bell.wait_for(Duration::ZERO));
    }
}
