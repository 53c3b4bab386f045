//! Handle by which running work communicates with its group.

use super::FromWorker;
use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::mpsc::UnboundedSender;

#[derive(Default)]
struct JobState {
    start: Option<u64>,
    measure: Option<u64>,
    ended: bool,
    /// Whether the work must end at once.
    hurry: bool,
    on_end: Option<Arc<dyn Fn(bool) + Send + Sync>>,
}

struct Job {
    state: Mutex<JobState>,
    changed: Condvar,
    out: UnboundedSender<FromWorker>,
}

/// Handle by which running work communicates with its group.
#[derive(Clone)]
pub struct JobHandle(Arc<Job>);

impl fmt::Debug for JobHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobHandle")
    }
}

impl JobHandle {
    pub(super) fn new(out: UnboundedSender<FromWorker>) -> JobHandle {
        JobHandle(Arc::new(Job { state: Mutex::default(), changed: Condvar::new(), out }))
    }

    fn state(&self) -> MutexGuard<'_, JobState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that the work is ready, and waits for the instant at which the group starts, ns of this machine's clock.
    /// Returns `None` if the work must end before.
    pub fn ready(&self) -> Option<u64> {
        let _ = self.0.out.send(FromWorker::Ready);
        let mut state = self.state();
        loop {
            if state.ended {
                return None;
            }
            if let Some(start) = state.start {
                return Some(start);
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reports the actual start of the work, ns of this machine's clock.
    pub fn began(&self, at: u64) {
        let _ = self.0.out.send(FromWorker::Began(at));
    }

    /// Sends the measurements of an interval.
    pub fn interval(&self, bytes: Vec<u8>) {
        let _ = self.0.out.send(FromWorker::Interval(bytes));
    }

    /// Sets the function that is called, on another thread, for each request to end the work; calls it now if there
    /// was such a request. Its argument is whether the work must end at once, without finishing its remaining keys.
    pub fn on_end(&self, call: impl Fn(bool) + Send + Sync + 'static) {
        let call: Arc<dyn Fn(bool) + Send + Sync> = Arc::new(call);
        let mut state = self.state();
        state.on_end = Some(Arc::clone(&call));
        let (ended, hurry) = (state.ended, state.hurry);
        drop(state);
        if ended {
            call(hurry);
        }
    }

    /// Returns the start of the measured part, ns of this machine's clock, if the group has set it.
    pub fn measure(&self) -> Option<u64> {
        self.state().measure
    }

    pub(super) fn set_measure(&self, at: u64) {
        self.state().measure = Some(at);
    }

    pub(super) fn set_hurry(&self) {
        self.state().hurry = true;
    }

    pub(super) fn start(&self, at: u64) {
        self.state().start = Some(at);
        self.0.changed.notify_all();
    }

    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        let (call, hurry) = (state.on_end.clone(), state.hurry);
        drop(state);
        self.0.changed.notify_all();
        if let Some(call) = call {
            call(hurry);
        }
    }
}
