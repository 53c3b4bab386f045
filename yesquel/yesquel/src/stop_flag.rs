//! Flag that ends the waits of background threads.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel_transport::{CancelCheck, CancelGuard};

/// Whether a server stops. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopFlag(Arc<AtomicBool>);

/// Interval in which a pause looks at the flag.
const CHECK_EVERY: Duration = Duration::from_millis(50);

thread_local! {
    /// The flag of this thread's server.
    static STOPPING: RefCell<StopFlag> = RefCell::default();
}

impl StopFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Waits, but not much longer than until the flag is set.
    pub(crate) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_set() && Instant::now() < until {
            thread::sleep(time.min(CHECK_EVERY));
        }
    }

    /// Cancels the calls of the calling thread once the flag is set, until the result is dropped.
    pub(crate) fn cancel_calls(&self) -> CancelGuard {
        STOPPING.set(self.clone());
        let is_cancelled = |_| STOPPING.with_borrow(StopFlag::is_set);
        CancelCheck { is_cancelled, argument: 0 }.begin()
    }
}
