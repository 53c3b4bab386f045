//! Sleep until an absolute instant, on a thread and on an event loop.

use crate::clock;
use rustix::{
    thread::set_current_timer_slack,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::BinaryHeap,
    future::poll_fn,
    io,
    num::NonZeroU64,
    os::fd::OwnedFd,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    task::{Poll, Waker},
    time::Duration,
};
use tokio::io::{Interest, unix::AsyncFd};

/// The clock of one client.
pub(crate) trait Sleeper {
    /// Returns the time on the run's clock, ns.
    fn now(&self) -> u64;
    /// Sleeps until an instant on the run's clock. Returns `false` if the run was stopped
    /// meanwhile.
    async fn until(&self, instant: u64) -> bool;
}

/// Sleeps by parking the client's own thread.
#[derive(Debug)]
pub(crate) struct ThreadSleeper<'a> {
    stopping: &'a AtomicBool,
}

impl<'a> ThreadSleeper<'a> {
    /// Creates the sleeper of the current thread. To end a sleep early, `stopping` is set and then
    /// the thread unparked.
    pub(crate) fn new(stopping: &'a AtomicBool) -> Self {
        // The default slack adds 50 us to every sleep. If it cannot be lowered, the lateness shows
        // it.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        ThreadSleeper { stopping }
    }
}

impl Sleeper for ThreadSleeper<'_> {
    #[inline]
    fn now(&self) -> u64 {
        clock::now()
    }

    async fn until(&self, instant: u64) -> bool {
        loop {
            if self.stopping.load(Ordering::Acquire) {
                return false;
            }
            let now = clock::now();
            if now >= instant {
                return true;
            }
            std::thread::park_timeout(Duration::from_nanos(instant - now));
        }
    }
}

/// The sleepers of one event loop in a heap by instant, and one timer of the operating system for
/// the earliest. `docs/pacing.md` explains the slack, and why the loop's own timers are not exact
/// enough.
#[derive(Debug)]
pub(crate) struct LoopTimers {
    heap: RefCell<BinaryHeap<Reverse<(u64, usize)>>>,
    wakers: RefCell<Vec<Option<Waker>>>,
    /// Instant for which the timer is set; `u64::MAX` if it is not set.
    armed: Cell<u64>,
    timer: AsyncFd<OwnedFd>,
    slack: u64,
    stopped: Cell<bool>,
}

impl LoopTimers {
    /// Creates the timers of clients with numbers below `clients`. Clients due within `slack` ns
    /// wake together. Needs a running event loop.
    pub(crate) fn new(clients: usize, slack: u64) -> io::Result<Rc<Self>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: the `OwnedFd` that goes in owns the descriptor, stays inside the `AsyncFd`, is
        // only borrowed, and always returns the same descriptor.
        #[allow(unsafe_code)]
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?;
        Ok(Rc::new(LoopTimers {
            heap: RefCell::default(),
            wakers: RefCell::new(vec![None; clients]),
            armed: Cell::new(u64::MAX),
            timer,
            slack,
            stopped: Cell::new(false),
        }))
    }

    /// Wakes sleepers when they are due. Runs for as long as the event loop.
    pub(crate) async fn drive(self: Rc<Self>) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            // Readiness is edge-triggered and setting the timer resets it: there is nothing to
            // read.
            ready.clear_ready();
            drop(ready);
            self.armed.set(u64::MAX);
            self.wake_due(clock::now());
            self.arm()?;
        }
    }

    fn wake_due(&self, now: u64) {
        loop {
            let mut heap = self.heap.borrow_mut();
            let Some(Reverse((instant, client))) = heap.peek().copied() else { return };
            if instant > now {
                return;
            }
            heap.pop();
            drop(heap);
            self.wake(client);
        }
    }

    fn wake(&self, client: usize) {
        let waker = self.wakers.borrow_mut()[client].take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends all sleeps, present and future.
    pub(crate) fn stop(&self) {
        self.stopped.set(true);
        self.heap.borrow_mut().clear();
        let clients = self.wakers.borrow().len();
        (0..clients).for_each(|client| self.wake(client));
    }

    fn arm(&self) -> io::Result<()> {
        let Some(Reverse((earliest, _))) = self.heap.borrow().peek().copied() else { return Ok(()) };
        let instant = earliest.saturating_add(self.slack);
        if instant >= self.armed.get() {
            return Ok(());
        }
        let value =
            Timespec { tv_sec: (instant / 1_000_000_000) as _, tv_nsec: (instant % 1_000_000_000) as _ };
        let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: interval, it_value: value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &setting)?;
        self.armed.set(instant);
        Ok(())
    }
}

/// Sleeps for one client of an event loop.
#[derive(Debug)]
pub(crate) struct LoopSleeper {
    timers: Rc<LoopTimers>,
    client: usize,
}

impl LoopSleeper {
    /// Creates the sleeper of the client with this number within its loop.
    pub(crate) fn new(timers: Rc<LoopTimers>, client: usize) -> Self {
        LoopSleeper { timers, client }
    }
}

impl Sleeper for LoopSleeper {
    #[inline]
    fn now(&self) -> u64 {
        clock::now()
    }

    async fn until(&self, instant: u64) -> bool {
        let mut queued = false;
        poll_fn(|context| {
            let timers = &self.timers;
            if timers.stopped.get() {
                return Poll::Ready(false);
            }
            if clock::now() >= instant {
                return Poll::Ready(true);
            }
            if !queued {
                queued = true;
                timers.heap.borrow_mut().push(Reverse((instant, self.client)));
            }
            timers.wakers.borrow_mut()[self.client] = Some(context.waker().clone());
            // If the timer cannot be set, the client polls: wasteful, but correct.
            if timers.arm().is_err() {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{runtime, task};

    fn on_a_loop<F: Future>(future: F) -> F::Output {
        let runtime = runtime::Builder::new_current_thread().enable_io().build().unwrap();
        task::LocalSet::new().block_on(&runtime, future)
    }

    #[test]
    fn sleepers_wake_in_order_and_never_early() {
        let command = on_a_loop(async {
            let timers = LoopTimers::new(5, 0).unwrap();
            task::spawn_local(Rc::clone(&timers).drive());
            let start = clock::now();
            let command = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = [40u64, 10, 30, 20, 0]
                .into_iter()
                .enumerate()
                .map(|(client, ms)| {
                    let sleeper = LoopSleeper::new(Rc::clone(&timers), client);
                    let command = Rc::clone(&command);
                    task::spawn_local(async move {
                        let instant = start + ms * 1_000_000;
                        assert!(sleeper.until(instant).await);
                        assert!(clock::now() >= instant);
                        command.borrow_mut().push(ms);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            command.take()
        });
        assert_eq!(command, [0, 10, 20, 30, 40]);
    }

    #[test]
    fn stopping_ends_every_sleep() {
        on_a_loop(async {
            let timers = LoopTimers::new(2, 0).unwrap();
            task::spawn_local(Rc::clone(&timers).drive());
            let sleeper = LoopSleeper::new(Rc::clone(&timers), 0);
            let sleeping = task::spawn_local(async move { sleeper.until(u64::MAX - 1).await });
            task::yield_now().await;
            timers.stop();
            assert!(!sleeping.await.unwrap());
            let late = LoopSleeper::new(Rc::clone(&timers), 1);
            assert!(!late.until(u64::MAX - 1).await);
        });
    }

    /// An operation of a slow schedule may be due after the last instant of 64 bits.
    #[test]
    fn a_sleep_past_the_last_instant_with_slack_does_not_end() {
        on_a_loop(async {
            let timers = LoopTimers::new(1, 1000).unwrap();
            task::spawn_local(Rc::clone(&timers).drive());
            let sleeper = LoopSleeper::new(Rc::clone(&timers), 0);
            let sleeping = task::spawn_local(async move { sleeper.until(u64::MAX - 999).await });
            task::yield_now().await;
            assert_eq!(timers.armed.get(), u64::MAX);
            timers.stop();
            assert!(!sleeping.await.unwrap());
        });
    }

    #[test]
    fn a_thread_sleeps_until_the_instant_or_a_stop() {
        static STOPPING: AtomicBool = AtomicBool::new(false);
        let handle = std::thread::spawn(|| {
            let sleeper = ThreadSleeper::new(&STOPPING);
            let runtime = runtime::Builder::new_current_thread().build().unwrap();
            let instant = clock::now() + 5_000_000;
            assert!(runtime.block_on(sleeper.until(instant)));
            assert!(clock::now() >= instant);
            runtime.block_on(sleeper.until(u64::MAX - 1))
        });
        STOPPING.store(true, Ordering::Release);
        handle.thread().unpark();
        // The stop may have ended the first sleep too.
        let _ = handle.join();
    }
}
