//! Nodes that the client watches, and the reads that depend on them.

use crate::min_set::{MinSet, MinSlot, preferred_slot};
use rustc_hash::FxHashMap;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};
use yesquel_model::{NodeId, ServerId};
use yesquel_transport::WatchEvent;

/// What was read of a node is valid as long as no notice has come.
pub(crate) const VALID: u64 = 0;
/// The end of a watch whose connection was lost: nothing is known of its node any more.
pub(crate) const LOST: u64 = 1;

/// Transaction without a snapshot that has used watched nodes.
#[derive(Debug, Default)]
struct FloatingRead {
    /// Ends of the watches, while they decide its snapshot.
    used: Vec<Arc<AtomicU64>>,
    /// The snapshot before the first change of what it has used: it may need that.
    held: Option<MinSlot>,
}

#[derive(Debug, Default)]
struct FloatingReads {
    last: u64,
    open: FxHashMap<u64, FloatingRead>,
}

/// The watches of a client: by node, the time of the change, once a notice has come.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    by_node: Mutex<FxHashMap<NodeId, Arc<AtomicU64>>>,
    reads: Mutex<FloatingReads>,
}

/// Returns the least time at which a watch has ended.
pub(crate) fn first_end<'a>(watches: impl Iterator<Item = &'a Arc<AtomicU64>>) -> Option<u64> {
    watches.map(|ended_at| ended_at.load(Acquire)).filter(|ended_at| *ended_at != VALID).min()
}

impl FloatingRead {
    /// Holds the snapshot that the read will need if it goes on.
    fn hold_before_change(&mut self, snapshots: &MinSet) {
        if self.held.is_none()
            && let Some(ended_at) = first_end(self.used.iter()).filter(|ended_at| *ended_at != LOST)
        {
            self.held = Some(snapshots.insert(ended_at - 1, preferred_slot()));
        }
    }
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<NodeId, Arc<AtomicU64>>> {
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reads(&self) -> MutexGuard<'_, FloatingReads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a notice, or of the end of all watches at a server.
    pub(crate) fn on_event(&self, server: ServerId, event: WatchEvent, snapshots: &MinSet) {
        let mut watches = self.lock();
        match event {
            WatchEvent::Changed(notice) => {
                if let Some(ended_at) = watches.remove(&notice.node) {
                    // No commit has the times of the constants.
                    ended_at.store(notice.at.0.max(LOST), Release);
                }
            }
            WatchEvent::Lost => {
                let gone = watches.extract_if(|node, _| node.server == server);
                gone.for_each(|(_, ended_at)| ended_at.store(LOST, Release));
            }
        }
        drop(watches);
        self.reads().open.values_mut().for_each(|read| read.hold_before_change(snapshots));
    }

    /// Returns the end of the watch of a node, which is begun if there is none: a notice that comes
    /// before the reply ends it.
    pub(crate) fn begin(&self, node: NodeId) -> Arc<AtomicU64> {
        Arc::clone(self.lock().entry(node).or_default())
    }

    /// Forgets a watch that the server has not granted, unless other threads use it: they have it
    /// from an earlier question.
    pub(crate) fn refused(&self, node: NodeId, ended_at: &Arc<AtomicU64>) {
        let mut watches = self.lock();
        if Arc::strong_count(ended_at) <= 2 {
            watches.remove(&node);
            ended_at.store(LOST, Release);
        }
    }

    /// Adds a watch that a read uses; `None`: its first one. Returns the number of the read.
    pub(crate) fn use_in(&self, read: Option<u64>, ended_at: &Arc<AtomicU64>, snapshots: &MinSet) -> u64 {
        let mut reads = self.reads();
        let number = read.unwrap_or_else(|| {
            reads.last += 1;
            reads.last
        });
        let read = reads.open.entry(number).or_default();
        read.used.push(Arc::clone(ended_at));
        // Its notice may have come just now. Those of the others were seen by `on_event`.
        if ended_at.load(Acquire) != VALID {
            read.hold_before_change(snapshots);
        }
        number
    }

    /// Notes that a read has a snapshot, which its transaction holds.
    pub(crate) fn decided(&self, read: u64) {
        if let Some(read) = self.reads().open.get_mut(&read) {
            read.used.clear();
        }
    }

    /// Ends a read.
    pub(crate) fn end(&self, read: u64, snapshots: &MinSet) {
        let ended = self.reads().open.remove(&read);
        ended.and_then(|read| read.held).into_iter().for_each(|held| snapshots.remove(held));
    }
}
