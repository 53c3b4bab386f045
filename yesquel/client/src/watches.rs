//! Nodes that the client watches: the server sends a notice before it acknowledges their change to
//! anyone. `docs/yesquel/tree.md` has the rules.

use crate::{Client, RequestError};
use rustc_hash::FxHashMap;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};
use yesquel_model::{NodeId, Refusal, ServerId, Timestamp};
use yesquel_transport::{Transport, WatchEvent};

/// What was read of a node is valid as long as no notice has come.
const VALID: u64 = 0;
/// The end of a watch whose connection was lost: nothing is known of its node any more.
const LOST: u64 = 1;

/// A watch of a node.
#[derive(Debug, Clone)]
pub struct Watch {
    server: ServerId,
    /// Time of the change, once a notice has come.
    ended_at: Arc<AtomicU64>,
}

impl Watch {
    /// Returns whether no notice has come.
    pub fn is_valid(&self) -> bool {
        self.ended_at.load(Acquire) == VALID
    }

    /// Returns whether what was read when the watch began, at or before the snapshot, is right at
    /// the snapshot. [`Client::take_notices`] must have been called since the snapshot was given.
    pub fn covers(&self, snapshot: Timestamp) -> bool {
        let ended_at = self.ended_at.load(Acquire);
        ended_at == VALID || ended_at > snapshot.0
    }
}

/// The watches of a client, by node.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<FxHashMap<NodeId, Arc<AtomicU64>>>);

impl Watches {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<NodeId, Arc<AtomicU64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_event(&self, server: ServerId, event: WatchEvent) {
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
    }

    /// Returns the watch of a node, which is begun if there is none: a notice that comes before the
    /// reply ends it.
    pub(crate) fn begin(&self, node: NodeId) -> Watch {
        let ended_at = Arc::clone(self.lock().entry(node).or_default());
        Watch { server: node.server, ended_at }
    }

    /// Forgets a watch that the server has not granted, unless other threads use it: they have it
    /// from an earlier question.
    pub(crate) fn refused(&self, watch: &Watch, node: NodeId) {
        let mut watches = self.lock();
        if Arc::strong_count(&watch.ended_at) <= 2 {
            watches.remove(&node);
            watch.ended_at.store(LOST, Release);
        }
    }
}

/// Watched nodes that a transaction without a snapshot has used.
#[derive(Debug, Default)]
pub(crate) struct UsedWatches(Vec<Watch>);

impl UsedWatches {
    /// Adds a watch that is valid. Returns false if it does not fit the others: it is at another
    /// server, or one of them has ended. The node of the new one may have been read after that.
    pub(crate) fn add(&mut self, watch: &Watch) -> bool {
        let fits = self.server().is_none_or(|server| server == watch.server) && self.ended_at().is_none();
        if fits {
            self.0.push(watch.clone());
        }
        fits
    }

    /// The server of the watches, if there are any.
    pub(crate) fn server(&self) -> Option<ServerId> {
        self.0.first().map(|watch| watch.server)
    }

    /// The least time at which one of them has ended.
    fn ended_at(&self) -> Option<u64> {
        let ended = self.0.iter().map(|watch| watch.ended_at.load(Acquire));
        ended.filter(|ended_at| *ended_at != VALID).min()
    }

    /// Returns the snapshot at which to read instead, if what was used has changed at or before
    /// `at`, which a server has given.
    pub(crate) fn earlier(&self, at: Timestamp) -> Result<Option<Timestamp>, RequestError> {
        match self.ended_at() {
            Some(LOST) => Err(Refusal::SnapshotTooOld { snapshot: Timestamp::ZERO, oldest: at }.into()),
            Some(ended_at) if ended_at <= at.0 => Ok(Some(Timestamp(ended_at - 1))),
            _ => Ok(None),
        }
    }
}

impl<T: Transport> Client<T> {
    /// Takes the notices of all changes at a server that were acknowledged to any client before
    /// this call. Costs no round trip. Returns false if another thread waits for a reply there.
    pub fn take_notices(&self, server: ServerId) -> bool {
        self.transport.take_notices(server, false, &mut |event| self.watches.on_event(server, event))
    }

    /// Like [`take_notices`](Self::take_notices), after the other thread.
    pub(crate) fn wait_for_notices(&self, server: ServerId) {
        self.transport.take_notices(server, true, &mut |event| self.watches.on_event(server, event));
    }

    /// Whether nodes of a server can be watched.
    pub fn can_watch(&self, server: ServerId) -> bool {
        self.transport.can_watch(server)
    }

    /// Ends all watches at a server.
    pub fn end_watches(&self, server: ServerId) {
        self.transport.end_watches(server, &mut |event| self.watches.on_event(server, event));
    }

    /// Sends a question by the connection for watches; `None` if there is none.
    pub(crate) fn ask_watching(&self, server: ServerId, request: &[u8]) -> Option<Vec<u8>> {
        let reply = self
            .transport
            .ask_watching(server, request, &mut |event| self.watches.on_event(server, event))?;
        self.counters.sent(request.len());
        self.counters.received(reply.len());
        Some(reply)
    }
}
