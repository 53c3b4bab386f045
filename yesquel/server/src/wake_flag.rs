//! Waking a thread that waits for something.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Rung when there is something to look at. It goes on until somebody hears it:
/// what it tells of may be looked at before it is waited for, and after.
#[derive(Debug, Default)]
pub(crate) struct WakeFlag {
    is_set: Mutex<bool>,
    woken: Condvar,
}

impl WakeFlag {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits, or the next who does.
    pub(crate) fn wake(&self) {
        let mut is_set = self.lock();
        if !*is_set {
            *is_set = true;
            self.woken.notify_one();
        }
    }

    /// Waits until it rings.
    pub(crate) fn wait(&self) {
        let waited = self.woken.wait_while(self.lock(), |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// The same, but no longer than until then; whether it rang.
    pub(crate) fn wait_until(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let waited = self.woken.wait_timeout_while(self.lock(), left, |is_set| !*is_set);
        let (mut is_set, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *is_set, false)
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
