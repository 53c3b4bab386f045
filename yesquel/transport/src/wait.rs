//! Waiting for a future on the calling thread, until its caller cancels.

use std::{
    cell::Cell,
    future::Future,
    marker::PhantomData,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// How long a thread waits before it asks whether it is cancelled, and how often it asks then.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Decides whether a thread that waits for a server is cancelled.
#[derive(Debug, Clone, Copy)]
pub struct CancelCheck {
    /// Returns whether to cancel. Called every 50 ms, on the waiting thread.
    pub is_cancelled: fn(usize) -> bool,
    /// The argument of the call.
    pub argument: usize,
}

thread_local! {
    static CANCEL_CHECK: Cell<Option<CancelCheck>> = const { Cell::new(None) };
    /// Whether a check has returned true since it was installed.
    static WAS_CANCELLED: Cell<bool> = const { Cell::new(false) };
    /// Whether a check has returned true, until the polled future takes note of it.
    static CANCELS_FUTURE: Cell<bool> = const { Cell::new(false) };
    /// When the thread's waits end, see [`Patience`].
    static PATIENCE_ENDS: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Whether the last cancellation came from the end of the patience, and not from the check.
    static HAS_LOST_PATIENCE: Cell<bool> = const { Cell::new(false) };
}

/// Cancels the calling thread's waits for servers at a time, beside its check, until it is dropped. The
/// thread can then ask another server.
#[derive(Debug)]
pub struct Patience {
    before: Option<Instant>,
    cancelled_before: bool,
    /// It belongs to its thread.
    of_thread: PhantomData<*const ()>,
}

impl Patience {
    /// Limits the waits that begin now to a time in all.
    pub fn begin(time: Duration) -> Patience {
        let before = PATIENCE_ENDS.replace(Instant::now().checked_add(time));
        HAS_LOST_PATIENCE.set(false);
        Patience { before, cancelled_before: WAS_CANCELLED.get(), of_thread: PhantomData }
    }

    /// Whether a wait was cancelled because the time was over. The thread's check has not cancelled.
    pub fn is_lost(&self) -> bool {
        HAS_LOST_PATIENCE.get()
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        PATIENCE_ENDS.set(self.before);
        if HAS_LOST_PATIENCE.replace(false) {
            // For the caller, the thread goes on.
            WAS_CANCELLED.set(self.cancelled_before);
        }
    }
}

/// Keeps a check installed for the calling thread until it is dropped.
#[derive(Debug)]
pub struct CancelGuard {
    before: Option<CancelCheck>,
    cancelled_before: bool,
    /// It belongs to its thread.
    of_thread: PhantomData<*const ()>,
}

impl CancelCheck {
    /// Installs the check for the calling thread.
    pub fn begin(self) -> CancelGuard {
        let before = CANCEL_CHECK.replace(Some(self));
        let cancelled_before = WAS_CANCELLED.replace(false);
        CancelGuard { before, cancelled_before, of_thread: PhantomData }
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        let own = CANCEL_CHECK.replace(self.before);
        // The outer check is the same as the inner one.
        let is_within = self.before.map(|before| before.argument) == own.map(|own| own.argument);
        let cancelled = self.cancelled_before || (WAS_CANCELLED.get() && is_within);
        WAS_CANCELLED.set(cancelled);
    }
}

/// Whether the thread's check has cancelled since it was installed.
pub fn was_cancelled() -> bool {
    WAS_CANCELLED.get()
}

/// Asks the thread's check, after a wait, and whether its [`Patience`] has ended.
pub fn check_cancelled() -> bool {
    // The check may wait for something itself.
    let (check, patience_ends) = (CANCEL_CHECK.take(), PATIENCE_ENDS.take());
    let is_cancelled = check.is_some_and(|check| (check.is_cancelled)(check.argument));
    CANCEL_CHECK.set(check);
    PATIENCE_ENDS.set(patience_ends);
    let loses_patience = !is_cancelled && patience_ends.is_some_and(|end| Instant::now() >= end);
    if is_cancelled || loses_patience {
        WAS_CANCELLED.set(true);
        HAS_LOST_PATIENCE.set(loses_patience);
    }
    is_cancelled || loses_patience
}

/// Whether [`check_cancelled`] may cancel.
fn may_be_cancelled() -> bool {
    CANCEL_CHECK.get().is_some() || PATIENCE_ENDS.get().is_some()
}

/// Sleeps until the time has passed or the thread's check cancels.
pub(crate) fn sleep(time: Duration) {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        thread::sleep(left.min(CHECK_EVERY));
        if left <= CHECK_EVERY || check_cancelled() {
            return;
        }
    }
}

/// Runs something without the check, where calling it is not allowed.
pub(crate) fn without_cancellation<R>(does: impl FnOnce() -> R) -> R {
    let (check, patience_ends) = (CANCEL_CHECK.take(), PATIENCE_ENDS.take());
    let result = does();
    CANCEL_CHECK.set(check);
    PATIENCE_ENDS.set(patience_ends);
    result
}

/// Takes the request to end the future that is being polled: true if its caller has cancelled. A
/// [`Transport`](crate::Transport) asks once a poll.
pub fn take_cancelled() -> bool {
    CANCELS_FUTURE.take()
}

struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to completion; the thread sleeps while the future is pending.
pub fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Parked(thread::current())));
    }
    let mut future = pin!(future);
    WAKER.with(|waker| {
        let mut context = Context::from_waker(waker);
        let mut ask_at = None;
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => return output,
                Poll::Pending if !may_be_cancelled() => thread::park(),
                Poll::Pending => {
                    // Spurious wakeups do not make it ask more often.
                    let now = Instant::now();
                    let until = *ask_at.get_or_insert(now + CHECK_EVERY);
                    thread::park_timeout(until.saturating_duration_since(now));
                    if Instant::now() >= until {
                        ask_at = None;
                        if check_cancelled() {
                            CANCELS_FUTURE.set(true);
                        }
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };

    static ASKED: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn a_cancelled_caller_stops_waiting() {
        let never = || block_on(poll_fn(|_| if take_cancelled() { Poll::Ready(()) } else { Poll::Pending }));
        let outer = CancelCheck { is_cancelled: |times| ASKED.fetch_add(1, Relaxed) >= times, argument: 2 };
        let guard = outer.begin();
        never();
        assert_eq!(ASKED.load(Relaxed), 3);
        assert!(was_cancelled());
        {
            // An inner check does not inherit it.
            let _inner = CancelCheck { is_cancelled: |_| true, argument: 0 }.begin();
            assert!(!was_cancelled());
            never();
            assert!(was_cancelled());
        }
        drop(guard);
        assert!(!was_cancelled());
        assert!(!check_cancelled());
    }

    #[test]
    fn spurious_wakeups_do_not_call_the_check() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let _guard = CancelCheck { is_cancelled: |_| ASKED.fetch_add(1, Relaxed) > 0, argument: 0 }.begin();
        let mut polled = 0;
        block_on(poll_fn(|context| {
            polled += 1;
            context.waker().wake_by_ref();
            if take_cancelled() { Poll::Ready(()) } else { Poll::Pending }
        }));
        // The check was called twice, after long waits, and the future polled much more often.
        assert_eq!(ASKED.load(Relaxed), 2);
        assert!(polled > 10, "{polled}");
    }

    #[test]
    fn the_check_is_not_called_without_cancellation() {
        let _guard = CancelCheck { is_cancelled: |_| true, argument: 0 }.begin();
        assert!(!without_cancellation(check_cancelled));
        assert!(check_cancelled());
    }

    #[test]
    fn patience_ends_a_wait_and_nothing_else() {
        let never = || block_on(poll_fn(|_| if take_cancelled() { Poll::Ready(()) } else { Poll::Pending }));
        let patience = Patience::begin(Duration::ZERO);
        assert!(!patience.is_lost());
        assert!(!without_cancellation(check_cancelled));
        never();
        assert!(patience.is_lost() && was_cancelled());
        drop(patience);
        assert!(!was_cancelled() && !check_cancelled());
        // The caller's own check has cancelled.
        let _guard = CancelCheck { is_cancelled: |_| true, argument: 0 }.begin();
        let patience = Patience::begin(Duration::ZERO);
        never();
        assert!(!patience.is_lost());
        drop(patience);
        assert!(was_cancelled());
    }

    #[test]
    fn the_check_may_wait_itself() {
        let asks = |_| {
            assert!(!check_cancelled());
            true
        };
        let _guard = CancelCheck { is_cancelled: asks, argument: 0 }.begin();
        assert!(check_cancelled());
    }
}
