//! Leaves that a client watches, which its transactions share: a leaf that was read again and again
//! is fetched whole, and read without asking until the server says that it changes.

use crate::{cache::Goal, page::Page};
use rustc_hash::FxHashMap;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use yesquel_client::{ReadView, Watch};
use yesquel_model::{NodeId, Timestamp};

/// Leaves whose reads are counted. Beyond that, counting begins anew.
const COUNTED_MAX: usize = 16 << 10;
/// Reads of a leaf from which it is watched.
const READS_FIRST: u32 = 2;

/// Which watched leaves a transaction may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum WatchUse {
    /// None.
    #[default]
    Never,
    /// Those that are right at its snapshot, once a server has given it.
    AtSnapshot,
    /// Also those that are right now, before it has a snapshot.
    AtPresent,
}

/// Limits of a client's watched leaves.
#[derive(Debug, Clone, Copy)]
pub struct WatchLimits {
    /// Bytes that it keeps. Then it watches no more, and in the end begins anew.
    pub bytes_max: usize,
    /// Leaves that it watches, fewer than a server allows.
    pub leaves_max: usize,
    /// How long full watched leaves are kept before others take their place.
    pub kept_for: Duration,
    /// A leaf that changes is watched after twice as many reads each time, up to this number.
    pub reads_max: u32,
}

impl Default for WatchLimits {
    fn default() -> WatchLimits {
        WatchLimits {
            bytes_max: 16 << 20,
            leaves_max: 4_000,
            kept_for: Duration::from_secs(10),
            reads_max: 64,
        }
    }
}

/// Leaf that the client watches.
#[derive(Debug)]
pub(crate) struct WatchedLeaf {
    pub(crate) page: Arc<Page>,
    /// Snapshot at which it was read.
    pub(crate) since: Timestamp,
    pub(crate) watch: Watch,
}

/// Reads of a leaf that asked a server.
#[derive(Debug, Clone, Copy)]
struct LeafReads {
    count: u32,
    /// Count from which the leaf is watched.
    enough: u32,
}

#[derive(Debug, Default)]
struct Leaves {
    by_node: FxHashMap<NodeId, WatchedLeaf>,
    bytes: usize,
    reads: FxHashMap<NodeId, LeafReads>,
    limits: WatchLimits,
    /// Uptime when there was no more room.
    full_since: Option<Duration>,
}

/// The watched leaves of a client.
#[derive(Debug, Default)]
pub(crate) struct WatchedLeaves {
    leaves: Mutex<Leaves>,
    /// Number of leaves; mostly read without the lock.
    count: AtomicUsize,
    /// Whether transactions must not use them.
    is_unused: AtomicBool,
}

impl Leaves {
    fn remove(&mut self, node: NodeId) {
        if let Some(leaf) = self.by_node.remove(&node) {
            self.bytes -= leaf.page.cells.weight();
        }
    }

    /// Counts a read that asks a server. Returns whether the leaf should be watched.
    fn is_read_often(&mut self, node: NodeId) -> bool {
        if self.reads.len() >= COUNTED_MAX {
            self.reads.clear();
        }
        let reads = self.reads.entry(node).or_insert(LeafReads { count: 0, enough: READS_FIRST });
        reads.count += 1;
        reads.count >= reads.enough
    }

    /// Returns whether there is room for another leaf. Drops all of them if they have had their time.
    fn has_room(&mut self, now: Duration) -> bool {
        let WatchLimits { bytes_max, leaves_max, kept_for, .. } = self.limits;
        if self.bytes < bytes_max && self.by_node.len() < leaves_max {
            return true;
        }
        let is_over = now.saturating_sub(*self.full_since.get_or_insert(now)) >= kept_for;
        if is_over {
            (self.by_node, self.bytes, self.full_since) = (FxHashMap::default(), 0, None);
        }
        is_over
    }

    /// Notes that a watched leaf has changed.
    fn changed(&mut self, node: NodeId) {
        self.remove(node);
        if let Some(reads) = self.reads.get_mut(&node) {
            *reads = LeafReads { count: 0, enough: (reads.enough * 2).min(self.limits.reads_max) };
        }
    }
}

impl WatchedLeaves {
    fn lock(&self) -> MutexGuard<'_, Leaves> {
        self.leaves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limit(&self, limits: WatchLimits) {
        self.lock().limits = limits;
    }

    pub(crate) fn set_used(&self, is_used: bool) {
        self.is_unused.store(!is_used, Relaxed);
    }

    pub(crate) fn is_used(&self) -> bool {
        !self.is_unused.load(Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Returns a leaf for a read view, if the goal is in it. `may_use_now`: the view needs no
    /// snapshot. The client has seen timestamps up to `seen`.
    pub(crate) fn get(
        &self,
        view: &mut ReadView,
        (may_use_now, seen): (bool, Timestamp),
        node: NodeId,
        goal: Goal<'_>,
    ) -> Option<Arc<Page>> {
        let mut leaves = self.lock();
        let leaf = leaves.by_node.get(&node)?;
        let is_right = match view.snapshot {
            Some(snapshot) => {
                view.is_given_by(node.server) && leaf.since <= snapshot && leaf.watch.covers(snapshot)
            }
            None => {
                may_use_now
                    && leaf.watch.is_valid()
                    && goal.is_in(&leaf.page.fence)
                    && view.use_watched(&leaf.watch, seen)
            }
        };
        let page = (is_right && goal.is_in(&leaf.page.fence)).then(|| Arc::clone(&leaf.page));
        if !leaf.watch.is_valid() {
            leaves.changed(node);
            self.count.store(leaves.by_node.len(), Relaxed);
        }
        page
    }

    /// Counts a read that asks a server. Returns whether the leaf should be watched. Those of a
    /// server end first if there are too many.
    pub(crate) fn is_wanted(&self, node: NodeId, uptime: Duration, end_all: impl FnOnce()) -> bool {
        let mut leaves = self.lock();
        let is_wanted = leaves.is_read_often(node) && leaves.has_room(uptime);
        if is_wanted && leaves.by_node.is_empty() && !self.is_empty() {
            self.count.store(0, Relaxed);
            end_all();
        }
        is_wanted
    }

    pub(crate) fn keep(&self, leaf: WatchedLeaf) {
        let mut leaves = self.lock();
        let node = leaf.page.node;
        leaves.remove(node);
        leaves.bytes += leaf.page.cells.weight();
        leaves.by_node.insert(node, leaf);
        self.count.store(leaves.by_node.len(), Relaxed);
    }
}
