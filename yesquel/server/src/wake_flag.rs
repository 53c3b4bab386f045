//! Flag that wakes a waiting thread.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Flag that one thread sets and another waits for. It stays set until a wait consumes it, so that
/// no wake-up is lost.
#[derive(Debug, Default)]
pub(crate) struct WakeFlag {
    is_set: Mutex<bool>,
    woken: Condvar,
}

impl WakeFlag {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the flag and wakes the waiting thread.
    pub(crate) fn wake(&self) {
        let mut is_set = self.lock();
        if !*is_set {
            *is_set = true;
            self.woken.notify_one();
        }
    }

    /// Waits for the flag and clears it.
    pub(crate) fn wait(&self) {
        let waited = self.woken.wait_while(self.lock(), |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Like [`wait`](Self::wait), until `end` at most. Returns whether the flag was set.
    pub(crate) fn wait_until(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let waited = self.woken.wait_timeout_while(self.lock(), left, |is_set| !*is_set);
        let (mut is_set, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *is_set, false)
    }

    /// Like [`wait`](Self::wait), for `time` at most. Returns whether the flag was set.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        self.wait_until(Instant::now() + time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_wake_is_seen_once() {
        let wake_flag = WakeFlag::default();
        wake_flag.wake();
        wake_flag.wake();
        wake_flag.wait();
        assert!(!wake_flag.wait_for(Duration::ZERO));
        thread::scope(|scope| {
            scope.spawn(|| wake_flag.wake());
            wake_flag.wait();
        });
        assert!(!wake_flag.wait_for(Duration::ZERO));
    }
}
