//! Waiting: for a future on the calling thread, and no longer than whoever
//! waits wants to.

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

/// How long a thread waits before it asks whether it is to go on, and how often
/// it asks then.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Who says whether a thread that waits for a server is to go on.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Asked every 50 ms, on the thread that waits; whether it is to give up.
    pub is_over: fn(usize) -> bool,
    /// What it is told.
    pub of: usize,
}

thread_local! {
    static PATIENCE: Cell<Option<Patience>> = const { Cell::new(None) };
    /// It has said so, since the patience began.
    static GAVE_UP: Cell<bool> = const { Cell::new(false) };
    /// It has said so to whoever polls a future, which ends by it.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// As long as it is there the thread's patience is this one.
#[derive(Debug)]
pub struct Patient {
    before: Option<Patience>,
    gave_up_before: bool,
    /// It is of its thread.
    of_thread: PhantomData<*const ()>,
}

impl Patience {
    /// From now on it is the calling thread's.
    pub fn begin(self) -> Patient {
        let before = PATIENCE.replace(Some(self));
        let gave_up_before = GAVE_UP.replace(false);
        Patient { before, gave_up_before, of_thread: PhantomData }
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        let own = PATIENCE.replace(self.before);
        // Within the same one it is the same.
        let is_within = self.before.map(|before| before.of) == own.map(|own| own.of);
        let gave_up = self.gave_up_before || (GAVE_UP.get() && is_within);
        GAVE_UP.set(gave_up);
    }
}

/// Whether the thread's patience was over, since it began.
pub fn has_given_up() -> bool {
    GAVE_UP.get()
}

/// Asks, after having waited, whether the thread is to give up.
pub fn gives_up() -> bool {
    // Whoever is asked may wait for something of his own.
    let Some(patience) = PATIENCE.take() else { return false };
    let is_over = (patience.is_over)(patience.of);
    PATIENCE.set(Some(patience));
    if is_over {
        GAVE_UP.set(true);
    }
    is_over
}

/// Does something meanwhile that is not given up: where nobody may be asked.
pub(crate) fn unasked<R>(does: impl FnOnce() -> R) -> R {
    let patience = PATIENCE.take();
    let result = does();
    PATIENCE.set(patience);
    result
}

/// Takes the request to end the future that is being polled: true if its caller has given up
/// waiting. A [`Transport`](crate::Transport) asks once a poll.
pub fn take_cancelled() -> bool {
    ENDS.take()
}

struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end; the thread sleeps while there is nothing to do.
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
                Poll::Pending if PATIENCE.get().is_none() => thread::park(),
                Poll::Pending => {
                    // One who is woken for nothing, time and again, asks no more often.
                    let now = Instant::now();
                    let until = *ask_at.get_or_insert(now + LOOK_EVERY);
                    thread::park_timeout(until.saturating_duration_since(now));
                    if Instant::now() >= until {
                        ask_at = None;
                        if gives_up() {
                            ENDS.set(true);
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
    fn one_who_waits_gives_up_when_he_is_told() {
        let never = || block_on(poll_fn(|_| if take_cancelled() { Poll::Ready(()) } else { Poll::Pending }));
        let outer = Patience { is_over: |times| ASKED.fetch_add(1, Relaxed) >= times, of: 2 };
        let patient = outer.begin();
        never();
        assert_eq!(ASKED.load(Relaxed), 3);
        assert!(has_given_up());
        {
            // Another one is not told of it.
            let _inner = Patience { is_over: |_| true, of: 0 }.begin();
            assert!(!has_given_up());
            never();
            assert!(has_given_up());
        }
        drop(patient);
        assert!(!has_given_up());
        assert!(!gives_up());
    }

    #[test]
    fn one_who_is_woken_for_nothing_is_not_asked_for_it() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let _patient = Patience { is_over: |_| ASKED.fetch_add(1, Relaxed) > 0, of: 0 }.begin();
        let mut polled = 0;
        block_on(poll_fn(|context| {
            polled += 1;
            context.waker().wake_by_ref();
            if take_cancelled() { Poll::Ready(()) } else { Poll::Pending }
        }));
        // It was asked twice, after having waited for long, and polled much more often.
        assert_eq!(ASKED.load(Relaxed), 2);
        assert!(polled > 10, "{polled}");
    }

    #[test]
    fn nobody_is_asked_where_nothing_may_be_given_up() {
        let _patient = Patience { is_over: |_| true, of: 0 }.begin();
        assert!(!unasked(gives_up));
        assert!(gives_up());
    }

    #[test]
    fn whoever_is_asked_may_wait_himself() {
        let asks = |_| {
            assert!(!gives_up());
            true
        };
        let _patient = Patience { is_over: asks, of: 0 }.begin();
        assert!(gives_up());
    }
}
