//! Flag that ends the waits of background threads.

use std::{
    cell::RefCell,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use yesquel_transport::{CancelCheck, CancelGuard};

#[derive(Debug, Default)]
struct StopState {
    is_set: AtomicBool,
    /// Held while the flag is set, so that no pause misses that.
    setting: Mutex<()>,
    was_set: Condvar,
}

/// Whether a server stops. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<StopState>);

thread_local! {
    /// The flag of this thread's server.
    static STOPPING: RefCell<StopFlag> = RefCell::default();
}

impl StopFlag {
    /// Sets it.
    pub fn set(&self) {
        let setting = self.0.setting.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.is_set.store(true, Relaxed);
        drop(setting);
        self.0.was_set.notify_all();
    }

    /// Returns whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Relaxed)
    }

    /// Waits until the flag is set, at most for a time.
    pub(crate) fn pause(&self, time: Duration) {
        let setting = self.0.setting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.was_set.wait_timeout_while(setting, time, |()| !self.is_set()));
    }

    /// Cancels the calls of the calling thread once the flag is set, until the result is dropped.
    pub(crate) fn cancel_calls(&self) -> CancelGuard {
        STOPPING.set(self.clone());
        let is_cancelled = |_| STOPPING.with_borrow(StopFlag::is_set);
        CancelCheck { is_cancelled, argument: 0 }.begin()
    }
}
