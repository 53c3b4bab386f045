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
    abandoned: bool,
    on_end: Option<Box<dyn FnOnce() + Send>>,
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

    /// Has this called, on another thread, when the load must end; at once if it must
    /// already.
    pub fn on_end(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.ended {
            drop(state);
            call();
        } else {
            state.on_end = Some(Box::new(call));
        }
    }

    /// When the measured part begins, ns by this machine's clock, if the group has
    /// said so.
    pub fn measure(&self) -> Option<u64> {
        self.state().measure
    }

    /// Whether nobody wants to know what it saw.
    pub fn abandoned(&self) -> bool {
        self.state().abandoned
    }

    pub(super) fn go(&self, at: u64) {
        self.state().start = Some(at);
        self.0.changed.notify_all();
    }

    pub(super) fn end(&self, abandon: bool) {
        let mut state = self.state();
        state.ended = true;
        state.abandoned |= abandon;
        let call = state.on_end.take();
        drop(state);
        self.0.changed.notify_all();
        if let Some(call) = call {
            call();
        }
    }
}
