//! Leases: for some time only one client may write within a range of a tree, so that its
//! transactions do not lose. `docs/yesquel/leases.md` has the laws.

use crate::{effects::Caller, wanted_lease::WantedLease};
use rustc_hash::FxHashMap;
use yesquel_model::{KeyRange, Refusal, TreeId, TxnId, limits};
use yesquel_wire::{NodeKind, WriteOperation};

/// A range in which only the holder may write.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) holder: TxnId,
    pub(crate) range: KeyRange,
    /// By the uptime clock.
    pub(crate) until_ms: u64,
    /// The connection that took it, with which it ends.
    pub(crate) connection: u64,
}

impl HeldLease {
    fn is_of(&self, holder: TxnId, range: &KeyRange) -> bool {
        self.holder == holder && self.range == *range
    }
}

/// Time for which a request keeps its place after its wait is over, for the holder's next attempt.
const KEPT_PLACE_MS: u64 = 1_000;

/// A request in the queue.
#[derive(Debug)]
pub(crate) struct QueuedLease {
    pub(crate) wanted: WantedLease,
    /// The request that waits. `None`: its wait is over, and it keeps its place until its holder
    /// asks again. It then delays no other request.
    request: Option<(Caller, Box<[u8]>)>,
    /// End of the wait, or of the kept place, by the uptime clock.
    until_ms: u64,
}

/// Turn of a request in the queue.
pub(crate) enum LeaseTurn {
    /// It takes its lease now.
    Take(WantedLease, Caller, Box<[u8]>),
    /// Its wait is over; other leases last for at most so many milliseconds more.
    Refuse(Caller, u64),
}

/// The leases of a server, and the requests that wait for them in the order of their arrival.
///
/// They are not persistent: they spare transactions conflicts, and protect no data.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    trees: FxHashMap<TreeId, Vec<HeldLease>>,
    count: usize,
    queue: Vec<QueuedLease>,
    /// Requests that their holders have released or replaced, to be refused.
    withdrawn: Vec<Caller>,
    /// A lease or a place in the queue has ended, and another request may have its turn.
    is_freed: bool,
}

impl Leases {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Drops expired leases.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        if self.count > 0 {
            self.keep(|lease| lease.until_ms > now_ms);
        }
    }

    /// Ends all leases of a holder, and its requests in the queue.
    pub(crate) fn release(&mut self, holder: TxnId) {
        self.keep(|lease| lease.holder != holder);
        let Leases { queue, withdrawn, .. } = self;
        queue.retain(|queued| {
            let is_own = queued.wanted.holder == holder;
            if is_own {
                withdrawn.extend(queued.request.as_ref().map(|(caller, _)| *caller));
            }
            !is_own
        });
        self.is_freed = true;
    }

    /// Ends the leases and requests of a connection.
    pub(crate) fn disconnected(&mut self, connection: u64) {
        let is_own = |(caller, _): &(Caller, _)| caller.connection == connection;
        self.queue.retain(|queued| !queued.request.as_ref().is_some_and(is_own));
        self.keep(|lease| lease.connection != connection);
        self.is_freed = true;
    }

    fn keep(&mut self, is_kept: impl Fn(&HeldLease) -> bool) {
        for leases in self.trees.values_mut() {
            leases.retain(&is_kept);
        }
        self.trees.retain(|_, leases| !leases.is_empty());
        self.count = self.trees.values().map(Vec::len).sum();
    }

    /// Number of requests that wait in the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.iter().filter(|queued| queued.request.is_some()).count()
    }

    /// Whether the queue must be served: a lease or a place has ended.
    pub(crate) fn is_freed(&self) -> bool {
        self.is_freed
    }

    /// Refuses a request whose holder has released what it asks for.
    pub(crate) fn withdraw(&mut self, caller: Caller) {
        self.withdrawn.push(caller);
    }

    /// Takes the requests of released holders.
    pub(crate) fn take_withdrawn(&mut self) -> Vec<Caller> {
        std::mem::take(&mut self.withdrawn)
    }

    /// Takes all requests that wait.
    pub(crate) fn take_waiting(&mut self) -> impl Iterator<Item = Caller> + use<> {
        let queue = std::mem::take(&mut self.queue);
        let waiting = queue.into_iter().filter_map(|queued| queued.request).map(|(caller, _)| caller);
        self.take_withdrawn().into_iter().chain(waiting)
    }

    /// Milliseconds, at most, until the leases end that a request must wait for: those that others
    /// hold, and those of overlapping requests before `place` in the queue.
    fn ms_before(&self, now_ms: u64, place: usize, wanted: &WantedLease) -> Option<u64> {
        let WantedLease { holder, ranges, .. } = wanted;
        let held_by_others = |(tree, range): &(TreeId, KeyRange)| {
            self.wait_ms(*tree, now_ms, *holder, |other| other.overlaps(range))
        };
        let held = ranges.iter().filter_map(held_by_others).max();
        // The requests before it may wait for a lease that the same holder has: waiting for them
        // would be a deadlock.
        if held.is_some() || ranges.iter().any(|(tree, _)| self.is_holder(*tree, *holder, now_ms)) {
            return held;
        }
        let before = self.queue.iter().take(place).filter(|queued| {
            let other = &queued.wanted;
            let is_met = ranges.iter().any(|(tree, range)| other.overlaps(*tree, range));
            queued.request.is_some() && other.holder != *holder && is_met
        });
        before.map(|queued| queued.wanted.ms.clamp(1, limits::LEASE_MS_MAX)).max()
    }

    fn is_holder(&self, tree: TreeId, holder: TxnId, now_ms: u64) -> bool {
        let is_own = |lease: &HeldLease| lease.holder == holder && lease.until_ms > now_ms;
        self.trees.get(&tree).is_some_and(|leases| leases.iter().any(is_own))
    }

    /// The request's place in the queue; the end if it has none.
    fn place_of(&self, wanted: &WantedLease) -> usize {
        let is_same = |queued: &QueuedLease| {
            let other = &queued.wanted;
            other.holder == wanted.holder && other.ranges == wanted.ranges
        };
        self.queue.iter().position(is_same).unwrap_or(self.queue.len())
    }

    /// Milliseconds, at most, until a request has its turn; `None`: now.
    pub(crate) fn turn_ms(&self, now_ms: u64, wanted: &WantedLease) -> Option<u64> {
        self.ms_before(now_ms, self.place_of(wanted), wanted)
    }

    /// Whether a request may wait in the queue.
    pub(crate) fn has_place(&self, wanted: &WantedLease) -> bool {
        self.place_of(wanted) < self.queue.len() || self.count + self.queue.len() < limits::LEASES_MAX
    }

    /// Puts a request into the queue, or back into its place there. Returns the request that it
    /// replaces.
    pub(crate) fn enqueue(
        &mut self,
        now_ms: u64,
        wanted: WantedLease,
        caller: Caller,
        bytes: &[u8],
    ) -> Option<Caller> {
        let until_ms = now_ms.saturating_add(wanted.wait_ms.min(limits::LEASE_MS_MAX));
        let place = self.place_of(&wanted);
        let queued = QueuedLease { wanted, request: Some((caller, bytes.into())), until_ms };
        match self.queue.get_mut(place) {
            Some(before) => std::mem::replace(before, queued).request.map(|(caller, _)| caller),
            None => {
                self.queue.push(queued);
                None
            }
        }
    }

    /// The next request in the queue, from `place` on, whose turn or end has come.
    pub(crate) fn next_turn(&mut self, now_ms: u64, place: &mut usize) -> Option<LeaseTurn> {
        while let Some(queued) = self.queue.get(*place) {
            let is_late = queued.until_ms <= now_ms;
            let before_ms = self.ms_before(now_ms, *place, &queued.wanted);
            match (&queued.request, before_ms) {
                (None, _) if is_late => drop(self.queue.remove(*place)),
                (Some(_), None) => {
                    let QueuedLease { wanted, request, .. } = self.queue.remove(*place);
                    return request.map(|(caller, bytes)| LeaseTurn::Take(wanted, caller, bytes));
                }
                (Some((caller, _)), Some(ms)) if is_late => {
                    let turn = LeaseTurn::Refuse(*caller, ms);
                    if let Some(queued) = self.queue.get_mut(*place) {
                        queued.request = None;
                        queued.until_ms = now_ms + KEPT_PLACE_MS;
                    }
                    *place += 1;
                    return Some(turn);
                }
                _ => *place += 1,
            }
        }
        self.is_freed = false;
        None
    }

    /// Milliseconds until the other leases end that satisfy `is_met`.
    pub(crate) fn wait_ms(
        &self,
        tree: TreeId,
        now_ms: u64,
        own: TxnId,
        is_met: impl Fn(&KeyRange) -> bool,
    ) -> Option<u64> {
        let is_others =
            |lease: &&HeldLease| lease.holder != own && lease.until_ms > now_ms && is_met(&lease.range);
        self.trees.get(&tree)?.iter().filter(is_others).map(|lease| lease.until_ms - now_ms).max()
    }

    /// Takes or renews a lease, whose turn has come.
    pub(crate) fn take(&mut self, now_ms: u64, wanted: WantedLease, connection: u64) -> Result<(), Refusal> {
        let place = self.place_of(&wanted);
        if place < self.queue.len() {
            let before = self.queue.remove(place);
            self.withdrawn.extend(before.request.map(|(caller, _)| caller));
            self.is_freed = true;
        }
        let WantedLease { holder, ranges, ms, .. } = wanted;
        if self.count + ranges.len() > limits::LEASES_MAX && !self.renews(holder, &ranges) {
            return Err(Refusal::TooManyLeases);
        }
        let until_ms = now_ms.saturating_add(ms.min(limits::LEASE_MS_MAX));
        for (tree, range) in ranges {
            let lease = HeldLease { holder, range, until_ms, connection };
            let leases = self.trees.entry(tree).or_default();
            match leases.iter_mut().find(|own| own.is_of(holder, &lease.range)) {
                Some(own) => *own = lease,
                None => {
                    leases.push(lease);
                    self.count += 1;
                }
            }
        }
        Ok(())
    }

    /// Whether a holder has leases of all these ranges.
    fn renews(&self, holder: TxnId, ranges: &[(TreeId, KeyRange)]) -> bool {
        ranges.iter().all(|(tree, range)| {
            self.trees.get(tree).is_some_and(|leases| leases.iter().any(|own| own.is_of(holder, range)))
        })
    }

    /// Checks that an operation on a node of some kind is not within another client's lease.
    pub(crate) fn check(
        &self,
        now_ms: u64,
        own: TxnId,
        tree: TreeId,
        kind: NodeKind,
        write: &WriteOperation<'_>,
    ) -> Result<(), Refusal> {
        let is_met = |range: &KeyRange| match write {
            // Keys of pieces are not keys of the tree.
            _ if kind == NodeKind::Value => false,
            WriteOperation::Put { key, .. } | WriteOperation::Delete { key, .. } => range.contains(key),
            WriteOperation::DeleteRange(own) | WriteOperation::Guard(own) => own.overlaps(range),
            WriteOperation::DropTree => true,
            // Splits change nothing that a read sees.
            _ => false,
        };
        match self.wait_ms(tree, now_ms, own, is_met) {
            Some(ms) => Err(Refusal::Leased { ms }),
            None => Ok(()),
        }
    }
}
