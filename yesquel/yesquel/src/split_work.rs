//! Work for the thread that splits nodes, each node once, until the thread takes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};
use yesquel_model::{Key, NodeId};
use yesquel_node::GroupWork;

#[derive(Debug, Default)]
struct PendingWork {
    full: BTreeSet<NodeId>,
    hot: BTreeMap<NodeId, Key>,
    empty: BTreeSet<NodeId>,
    has_ended: bool,
}

/// The work, as both threads share it.
#[derive(Debug, Default)]
pub(crate) struct SplitWork {
    pending: Mutex<PendingWork>,
    changed: Condvar,
}

impl SplitWork {
    fn pending(&self) -> MutexGuard<'_, PendingWork> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds work.
    pub(crate) fn add(&self, work: GroupWork) {
        if work.is_empty() {
            return;
        }
        let mut pending = self.pending();
        pending.full.extend(work.full);
        pending.hot.extend(work.hot);
        pending.empty.extend(work.empty);
        self.changed.notify_one();
    }

    /// There will be no more work.
    pub(crate) fn end(&self) {
        self.pending().has_ended = true;
        self.changed.notify_one();
    }

    /// Waits for work, and takes all of it. `None`: there will be none.
    pub(crate) fn take(&self) -> Option<GroupWork> {
        let mut pending = self.pending();
        loop {
            if pending.has_ended {
                return None;
            }
            let PendingWork { full, hot, empty, .. } = std::mem::take(&mut *pending);
            let work = GroupWork {
                full: full.into_iter().collect(),
                hot: hot.into_iter().collect(),
                empty: empty.into_iter().collect(),
            };
            if !work.is_empty() {
                return Some(work);
            }
            pending = self.changed.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
