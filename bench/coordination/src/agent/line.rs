//! How a load hears from its group, and tells it what it sees.

use super::FromWorker;
use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::mpsc::UnboundedSender;

#[derive(Default)]
pub(super) struct LineState {
    start: Option<u64>,
    pub(super) measure: Option<u64>,
    ended: bool,
    /// Whether at once.
    pub(super) hurry: bool,
    on_end: Option<Arc<dyn Fn(bool) + Send + Sync>>,
}

struct LineInner {
    state: Mutex<LineState>,
    changed: Condvar,
    out: UnboundedSender<FromWorker>,
}

/// How a load hears from its group, and tells it what it sees.
#[derive(Clone)]
pub struct Line(Arc<LineInner>);

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

impl Line {
    pub(super) fn new(out: UnboundedSender<FromWorker>) -> Line {
        Line(Arc::new(LineInner { state: Mutex::default(), changed: Condvar::new(), out }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LineState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that all is ready, and waits for the instant at which the group begins, ns
    /// by this machine's clock. `None` if it does not.
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

    /// Says when the load really began, ns by this machine's clock.
    pub fn began(&self, at: u64) {
        let _ = self.0.out.send(FromWorker::Began(at));
    }

    /// Hands over what an interval saw.
    pub fn interval(&self, bytes: Vec<u8>) {
        let _ = self.0.out.send(FromWorker::Interval(bytes));
    }

    /// Has this called, on another thread, when the load must end, and whenever it is told so again; at once if
    /// it must already. It is told whether there is no time to finish what is left.
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

    /// When the measured part begins, ns by this machine's clock, if the group has
    /// said so.
    pub fn measure(&self) -> Option<u64> {
        self.state().measure
    }

    pub(super) fn go(&self, at: u64) {
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
