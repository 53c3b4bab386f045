//! Watches of nodes: the server sends a notice before it acknowledges their change to anyone.
//! `docs/yesquel/tree.md` has the rules.

use crate::{
    Client, RequestError,
    in_flight::InFlight,
    watches::{LOST, VALID, first_end},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Acquire},
    },
    time::Duration,
};
use yesquel_model::{NodeId, Refusal, ServerId, Timestamp};
use yesquel_transport::{Transport, WatchEvent};

/// A watch of a node.
#[derive(Debug, Clone)]
pub struct Watch {
    in_flight: Arc<InFlight>,
    server: ServerId,
    /// Time of the change, once a notice has come.
    ended_at: Arc<AtomicU64>,
}

impl Watch {
    /// Begins the watch of a node that the server is asked for next.
    pub(crate) fn begin(in_flight: &Arc<InFlight>, node: NodeId) -> Watch {
        let ended_at = in_flight.watches.begin(node);
        Watch { in_flight: Arc::clone(in_flight), server: node.server, ended_at }
    }

    /// Ends the watch of a node that the server has not granted.
    pub(crate) fn refused(&self, node: NodeId) {
        self.in_flight.watches.refused(node, &self.ended_at);
    }

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

/// Watched nodes that a transaction without a snapshot has used.
#[derive(Debug, Default)]
pub(crate) struct UsedWatches {
    watches: Vec<Watch>,
    /// The highest timestamp that the client had seen when it used the first one.
    seen: Timestamp,
    /// Number of the read at the client.
    read: Option<u64>,
}

impl Drop for UsedWatches {
    fn drop(&mut self) {
        if let Some((in_flight, read)) = self.registered() {
            in_flight.watches.end(read, &in_flight.snapshots);
        }
    }
}

impl UsedWatches {
    fn registered(&self) -> Option<(&InFlight, u64)> {
        Some((&self.watches.first()?.in_flight, self.read?))
    }

    /// Adds a watch that is valid, of a client that has seen timestamps up to `seen`. Returns false if
    /// it does not fit the others: it is at another server, or one of them has ended. The node of the
    /// new one may have been read after that.
    pub(crate) fn add(&mut self, watch: &Watch, seen: Timestamp) -> bool {
        let fits = self.server().is_none_or(|server| server == watch.server) && self.ended_at().is_none();
        if fits {
            if self.watches.is_empty() {
                self.seen = seen;
            }
            let in_flight = &watch.in_flight;
            self.read = Some(in_flight.watches.use_in(self.read, &watch.ended_at, &in_flight.snapshots));
            self.watches.push(watch.clone());
        }
        fits
    }

    /// Notes that the transaction has a snapshot, which its own hold keeps.
    pub(crate) fn decided(&self) {
        if let Some((in_flight, read)) = self.registered() {
            in_flight.watches.decided(read);
        }
    }

    /// The server of the watches, if there are any.
    pub(crate) fn server(&self) -> Option<ServerId> {
        self.watches.first().map(|watch| watch.server)
    }

    fn ended_at(&self) -> Option<u64> {
        first_end(self.watches.iter().map(|watch| &watch.ended_at))
    }

    /// Returns the snapshot at which to read instead, if what was used has changed at or before
    /// `at`, which a server has given.
    ///
    /// It is not below what the client had seen: that may be a commit of its own, at several servers,
    /// whose time this server had not reached when the leaf changed.
    pub(crate) fn earlier(&self, at: Timestamp) -> Result<Option<Timestamp>, RequestError> {
        let too_old = |snapshot| Err(Refusal::SnapshotTooOld { snapshot, oldest: at }.into());
        match self.ended_at() {
            Some(LOST) => too_old(Timestamp::ZERO),
            Some(ended_at) if ended_at <= self.seen.0 => too_old(Timestamp(ended_at - 1)),
            Some(ended_at) if ended_at <= at.0 => Ok(Some(Timestamp(ended_at - 1))),
            _ => Ok(None),
        }
    }
}

impl<T: Transport> Client<T> {
    /// Takes the notices of all changes at a server that were acknowledged to any client before
    /// this call. Costs no round trip. Returns false if another thread waits for a reply there.
    pub fn take_notices(&self, server: ServerId) -> bool {
        self.transport.take_notices(server, &mut |event| self.on_watch_event(server, event))
    }

    /// Like [`take_notices`](Self::take_notices), after the other thread.
    pub(crate) async fn wait_for_notices(&self, server: ServerId) {
        self.transport.wait_for_notices(server, &mut |event| self.on_watch_event(server, event)).await;
    }

    /// Waits for a time, by the transport's clock.
    pub async fn pause(&self, time: Duration) {
        self.transport.pause(time).await;
    }

    /// The time of a monotonic clock.
    pub fn uptime(&self) -> Duration {
        self.transport.uptime()
    }

    /// Whether nodes of a server can be watched.
    pub fn can_watch(&self, server: ServerId) -> bool {
        self.transport.can_watch(server)
    }

    /// Ends all watches at a server.
    pub fn end_watches(&self, server: ServerId) {
        self.transport.end_watches(server, &mut |event| self.on_watch_event(server, event));
    }

    /// Sends a question by the connection for watches; `None` if there is none.
    pub(crate) async fn ask_watching(&self, server: ServerId, request: &[u8]) -> Option<Vec<u8>> {
        let mut see = |event| self.on_watch_event(server, event);
        let reply = self.transport.ask_watching(server, request, &mut see).await?;
        self.counters.sent(request.len());
        self.counters.received(reply.len());
        Some(reply)
    }

    fn on_watch_event(&self, server: ServerId, event: WatchEvent) {
        self.in_flight.watches.on_event(server, event, &self.in_flight.snapshots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel_model::TreeId;
    use yesquel_wire::Notice;

    /// Returns the snapshot of a transaction that used a leaf when its client had seen `seen`, after
    /// the leaf has changed at 60 and the server has given 120.
    fn snapshot_after_change(seen: u64) -> Result<Option<Timestamp>, RequestError> {
        let in_flight = Arc::new(InFlight::new(1, Timestamp::ZERO, Duration::ZERO));
        let node = NodeId::root(TreeId::MAX, ServerId(0));
        let mut used = UsedWatches::default();
        assert!(used.add(&Watch::begin(&in_flight, node), Timestamp(seen)));
        assert_eq!(used.earlier(Timestamp(120)), Ok(None));
        let changed = WatchEvent::Changed(Notice { node, at: Timestamp(60) });
        in_flight.watches.on_event(ServerId(0), changed, &in_flight.snapshots);
        used.earlier(Timestamp(120))
    }

    #[test]
    fn a_used_leaf_that_changes_moves_the_snapshot_before_the_change() {
        assert_eq!(snapshot_after_change(59), Ok(Some(Timestamp(59))));
    }

    /// A commit at several servers may be later than what one of them has reached: its client must
    /// see it, although a leaf that it has used changed before that time.
    #[test]
    fn the_snapshot_before_a_change_shows_what_the_client_has_seen() {
        for seen in [60, 100, 120] {
            let outcome = snapshot_after_change(seen);
            let is_refused = matches!(outcome, Err(RequestError::Refused(Refusal::SnapshotTooOld { .. })));
            assert!(is_refused, "{seen}: {outcome:?}");
        }
    }
}
