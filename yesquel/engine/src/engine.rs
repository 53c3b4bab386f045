//! Requests in, replies and log records out.

mod budget;
mod check;
mod commit;
mod lease;
mod peek;
mod replay;
mod survey;
mod time;

use crate::{
    answer::{Asked, Room},
    effects::{Asker, Effects, Now, ReplyTo, Stop},
    leases::Leases,
    load::Samples,
    node::{NodeLimits, Undecided},
    record::Record,
    settings::Settings,
    snapshots::Snapshots,
    staging::{Staging, Written},
    store::{Store, TreeEnd},
    transaction::{Ends, Known, Voted},
};
use rustc_hash::FxHashMap;
use yesquel_model::{Clock, Key, LocalId, NodeId, Refusal, Tally, Timestamp, TreeId, TxnId};
use yesquel_wire::{Malformed, Operations, Participants, Questions, Reply, Request, Vote};

/// Nodes that one [`Engine::tick`] collects at most: some milliseconds.
const COLLECT_NODES_MAX: usize = 512;

/// Nodes that one [`Engine::tick`] looks at for those of dropped trees: a
/// millisecond or so.
const SWEEP_NODES_MAX: usize = 16 << 10;

/// A request that waits for a transaction's end.
#[derive(Debug)]
struct Waiting {
    asker: Asker,
    request: Box<[u8]>,
    since_ms: u64,
}

/// What can be read when the log takes no more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frozen {
    /// A restart gives no timestamp up to this one.
    pub(crate) ceiling: Timestamp,
    /// All up to here is on disk.
    pub(crate) whole: Timestamp,
}

/// The multi-version node store of one server, as a state machine.
///
/// `docs/yesquel/nodes.md` has its laws, `docs/yesquel/commit.md` those of
/// transactions.
#[derive(Debug)]
pub struct Engine {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// No timestamp above it is given out; the one before, and the record that
    /// must be on disk for a timestamp above that.
    pub(crate) ceiling: Timestamp,
    pub(crate) ceiling_before: Timestamp,
    pub(crate) ceiling_lsn: u64,
    /// The log takes no more records; no snapshot above this one is given.
    pub(crate) frozen: Option<Frozen>,
    pub(crate) store: Store,
    pub(crate) voted: FxHashMap<TxnId, Voted>,
    /// Memory that they hold, and will take when they commit.
    pub(crate) promised: usize,
    /// Nodes that are not there yet, and the undecided who make them.
    pub(crate) creating: FxHashMap<NodeId, TxnId>,
    pub(crate) ends: Ends,
    pub(crate) staging: Staging,
    pub(crate) leases: Leases,
    waiting: FxHashMap<TxnId, Vec<Waiting>>,
    pub(crate) counters: FxHashMap<NodeId, u64>,
    pub(crate) snapshots: Snapshots,
    pub(crate) lsn: u64,
    /// For parts of an answer.
    pub(crate) room: Room,
    pub(crate) samples: Samples,
    /// Nodes that are asked for too often, and where to split them.
    hot: Vec<(NodeId, Key)>,
    pub(crate) counts: Counts,
    /// Those that threads have done side by side.
    pub(crate) lookups: Tally,
    /// And their questions beyond the first.
    pub(crate) beside: Tally,
}

/// What was asked so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) questions: u64,
    pub(crate) commits: u64,
    pub(crate) prepares: u64,
    pub(crate) conflicts: u64,
    pub(crate) moved: u64,
    pub(crate) waits: u64,
    pub(crate) refused_memory: u64,
}

impl Engine {
    /// An engine that knows nothing.
    pub fn new(settings: Settings) -> Engine {
        Engine {
            snapshots: Snapshots::new(settings.grace_ms, settings.snapshot_age_ms_max, Timestamp::ZERO),
            settings,
            clock: Clock::default(),
            ceiling: Timestamp::ZERO,
            ceiling_before: Timestamp::ZERO,
            ceiling_lsn: 0,
            frozen: None,
            store: Store::new(NodeLimits {
                cells_max: settings.node_cells_max,
                bytes_max: settings.node_bytes_max,
            }),
            voted: FxHashMap::default(),
            promised: 0,
            creating: FxHashMap::default(),
            ends: Ends::default(),
            staging: Staging::default(),
            leases: Leases::default(),
            waiting: FxHashMap::default(),
            counters: FxHashMap::default(),
            lsn: 0,
            room: Room::default(),
            samples: Samples::default(),
            hot: Vec::new(),
            counts: Counts::default(),
            lookups: Tally::default(),
            beside: Tally::default(),
        }
    }

    /// Records that it has made or been given.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// The oldest snapshot that may be read.
    pub fn oldest_snapshot(&self) -> Timestamp {
        self.snapshots.low()
    }

    /// Whether a snapshot may be read: it is the oldest or in time not below the next
    /// one that somebody holds.
    pub fn is_kept(&self, snapshot: Timestamp) -> bool {
        self.snapshots.readable().contains(snapshot)
    }

    /// Transactions that have voted yes and are not decided.
    pub fn undecided(&self) -> impl Iterator<Item = TxnId> {
        self.voted.keys().copied()
    }

    /// Answers a request, or keeps it until it can be answered. Bytes that are
    /// no request are an error and change nothing.
    pub fn handle(
        &mut self,
        now: Now,
        asker: Asker,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<(), Malformed> {
        let start = effects.bytes.len();
        if let Some(needs_lsn) = self.peek(now, bytes, &mut effects.bytes) {
            self.reply(asker, start, needs_lsn, effects);
            return Ok(());
        }
        let request = Request::decode(bytes)?;
        let decided = match &request {
            Request::Decide { txn, .. } => Some(*txn),
            _ => None,
        };
        let outcome = self.answer(now, request, effects);
        match outcome {
            Ok(needs_lsn) => self.reply(asker, start, needs_lsn, effects),
            Err(Stop::Wait(_)) if self.frozen.is_some() => {
                // Nothing is decided any more.
                effects.bytes.truncate(start);
                self.refuse_for_disk(asker, effects);
            }
            Err(Stop::Wait(txn)) => {
                self.counts.waits += 1;
                effects.bytes.truncate(start);
                let waiting = Waiting { asker, request: bytes.into(), since_ms: now.uptime_ms };
                self.waiting.entry(txn).or_default().push(waiting);
            }
            Err(Stop::Refuse(operation, refusal)) => {
                match refusal {
                    Refusal::Conflict(_) => self.counts.conflicts += 1,
                    Refusal::Moved(_) => self.counts.moved += 1,
                    _ => {}
                }
                effects.bytes.truncate(start);
                Reply::Refused { operation, refusal }.write(&mut effects.bytes);
                // A refusal tells what it has seen, too, but for one that says
                // that nothing is seen any more.
                let needs_lsn = if refusal == Refusal::DiskFailed { 0 } else { self.lsn };
                self.reply(asker, start, needs_lsn, effects);
            }
        }
        if let Some(txn) = decided {
            // Behind its own reply, which is whole then.
            self.wake(now, txn, effects);
        }
        Ok(())
    }

    pub(crate) fn reply(&self, asker: Asker, start: usize, needs_lsn: u64, effects: &mut Effects) {
        effects.replies.push(ReplyTo { asker, needs_lsn, bytes: start..effects.bytes.len() });
    }

    /// Writes the reply to the end of the effects' bytes and returns the
    /// record that it needs.
    fn answer(&mut self, now: Now, request: Request<'_>, effects: &mut Effects) -> Result<u64, Stop> {
        if self.frozen.is_some() && !matches!(request, Request::Read { .. }) {
            return Err(Refusal::DiskFailed.into());
        }
        let reply = match request {
            Request::Read { snapshot, seen, questions } => {
                self.witness(now, seen)?;
                let snapshot = match self.frozen {
                    Some(frozen) if snapshot.is_none() => Some(self.frozen_snapshot(now, frozen, seen)?),
                    _ => snapshot,
                };
                return self.read(now, snapshot, questions, effects);
            }
            Request::Commit { txn, snapshot, seen, lease, staged, operations } => {
                self.witness(now, seen)?;
                let written = Written { lease, staged, operations };
                Reply::Committed(self.commit(now, txn, snapshot, written, effects)?)
            }
            Request::Prepare { txn, snapshot, seen, participants, lease, staged, operations } => {
                self.witness(now, seen)?;
                let written = Written { lease, staged, operations };
                Reply::Voted(self.prepare(now, txn, snapshot, &participants, written, effects)?)
            }
            Request::Stage { name, part, operations } => {
                self.stage(now, name, part, &operations, effects)?;
                Reply::Done
            }
            Request::Unstage { name } => {
                if self.staging.remove(name).is_some() {
                    self.log(&Record::Unstage { name }, effects);
                }
                Reply::Done
            }
            Request::Decide { txn, decision } => {
                self.decide(txn, decision, effects);
                Reply::Done
            }
            Request::Resolve { txn } => {
                let (vote, participants) = self.vote_of(txn, effects);
                let participants = Participants::encode(&participants);
                // Encoded just now, in order.
                let participants = Participants::decode(&participants).unwrap_or(Participants::NONE);
                let vote = match vote {
                    Known::Yes(at) => Vote::Yes { at, participants },
                    Known::No => Vote::No,
                    Known::Decided(decision) => Vote::Decided(decision),
                };
                Reply::Vote(vote).write(&mut effects.bytes);
                return Ok(self.lsn);
            }
            Request::Forget { txn } => {
                if self.ends.forget(txn) {
                    self.log(&Record::Forget { txn }, effects);
                }
                Reply::Done
            }
            Request::Outcome { txn } => Reply::Ended(self.outcome(now, txn)),
            Request::Lease { holder, tree, range, ms, seen } => {
                self.witness(now, seen)?;
                let (at, needs_lsn) = self.lease(now, holder, (tree, range), ms, effects)?;
                Reply::Leased(at).write(&mut effects.bytes);
                return Ok(needs_lsn);
            }
            Request::Release { holder } => {
                self.leases.release(holder);
                Reply::Done
            }
            // Whoever runs the engine knows more.
            Request::Inspect { .. } | Request::InspectAfter { .. } => Reply::Report(b"{}"),
            Request::Take { node, count, above } => Reply::Taken(self.take(node, count, above, effects)?),
        };
        reply.write(&mut effects.bytes);
        Ok(self.lsn)
    }

    pub(crate) fn log(&mut self, record: &Record<'_>, effects: &mut Effects) {
        record.write(&mut effects.log);
        effects.record_ends.push(effects.log.len());
        self.lsn += 1;
    }

    fn read(
        &mut self,
        now: Now,
        snapshot: Option<Timestamp>,
        questions: Questions<'_>,
        effects: &mut Effects,
    ) -> Result<u64, Stop> {
        let snapshot = self.snapshot(now, snapshot)?;
        let mut needs_lsn = self.under_ceiling(snapshot, effects);
        let is_whole = self.frozen.is_some_and(|frozen| snapshot <= frozen.whole);
        let (store, room, lsn) = (&self.store, &mut self.room, self.lsn);
        let all = Asked { store, snapshot, second: self.samples.second };
        // Who may yet have made a node at or below the snapshot.
        let maker = |node: NodeId| {
            let txn = self.creating.get(&node)?;
            self.voted.get(txn).filter(|voted| voted.at <= snapshot).map(|_| *txn)
        };
        let (samples, load_max) = (&mut self.samples, self.settings.load_max());
        self.counts.reads += 1;
        self.counts.questions += questions.len() as u64;
        let mut undecided = None;
        Reply::write_answers(&mut effects.bytes, snapshot, |mut writer| {
            for question in questions.iter() {
                let node = match store.seen(question.node(), snapshot) {
                    Ok(Some(node)) => node,
                    Ok(None) => {
                        undecided = maker(question.node());
                        if undecided.is_some() {
                            return;
                        }
                        // Whatever took it away.
                        needs_lsn = lsn;
                        writer.moved(None);
                        continue;
                    }
                    Err(Undecided(txn)) => {
                        undecided = Some(txn);
                        return;
                    }
                };
                needs_lsn = needs_lsn.max(node.changed_at_lsn);
                if node.load.touch(samples.second) > load_max {
                    samples.note(node.id, question.key());
                }
                match all.write(node, &question, room, &mut writer) {
                    Ok(others_lsn) => needs_lsn = needs_lsn.max(others_lsn),
                    Err(Undecided(txn)) => {
                        undecided = Some(txn);
                        return;
                    }
                }
            }
        });
        match undecided {
            Some(txn) => Err(Stop::Wait(txn)),
            // What is lost in a node came later.
            None if is_whole => Ok(0),
            None => Ok(needs_lsn),
        }
    }

    /// The log takes no more, and is on disk up to this record; the records
    /// after it do nothing before `lost`. What is there can still be read, at
    /// snapshots that a restart will be above and that see nothing of what is
    /// lost.
    pub fn freeze(&mut self, synced: u64, lost: Option<Timestamp>, effects: &mut Effects) {
        let last = if self.ceiling_lsn <= synced { self.ceiling } else { self.ceiling_before };
        let before = lost.map_or(Timestamp::MAX, |lost| Timestamp(lost.0.saturating_sub(1)));
        self.frozen = Some(Frozen { ceiling: last, whole: last.min(before) });
        let waiting = std::mem::take(&mut self.waiting);
        for Waiting { asker, .. } in waiting.into_values().flatten() {
            self.refuse_for_disk(asker, effects);
        }
    }

    fn refuse_for_disk(&self, asker: Asker, effects: &mut Effects) {
        let start = effects.bytes.len();
        Reply::Refused { operation: None, refusal: Refusal::DiskFailed }.write(&mut effects.bytes);
        self.reply(asker, start, 0, effects);
    }

    /// Asks anew what waited for a transaction's end.
    pub(crate) fn wake(&mut self, now: Now, txn: TxnId, effects: &mut Effects) {
        for Waiting { asker, request, .. } in self.waiting.remove(&txn).unwrap_or_default() {
            // It was a request when it came.
            let handled = self.handle(now, asker, &request, effects);
            debug_assert!(handled.is_ok());
        }
    }

    /// Keeps a part of a transaction.
    fn stage(
        &mut self,
        now: Now,
        name: TxnId,
        part: u64,
        operations: &Operations<'_>,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if self.staging.expects(name, part)? {
            self.fits_part(operations.bytes().len())?;
            self.log(&Record::Stage { name, part, operations: *operations }, effects);
            self.staging.push(name, operations, now.uptime_ms);
        }
        Ok(())
    }

    /// Numbers that are logged as given out before they are. What is refused
    /// changes nothing: a number that is too large would leave none to others.
    fn take(&mut self, node: NodeId, count: u64, above: u64, effects: &mut Effects) -> Result<u64, Refusal> {
        // The counter of a tree goes with the tree; those of no tree have no nodes.
        let is_of_tree = node.tree != TreeId::default() && node.local == LocalId::ROOT;
        let is_dropped = || matches!(self.store.tree_end(node.tree), Some(TreeEnd::Dropped(_)));
        let is_there = || self.store.get(node).is_some_and(|root| root.shape().is_some());
        if is_of_tree && (!is_there() || is_dropped()) {
            return Err(Refusal::Moved(node));
        }
        let next = self.counters.get(&node).copied().unwrap_or(1);
        let first = above.checked_add(1).ok_or(Refusal::Unfit(node))?.max(next);
        let next = first.checked_add(count).ok_or(Refusal::Unfit(node))?;
        self.counters.insert(node, next);
        self.log(&Record::Counter { node, next }, effects);
        Ok(first)
    }

    /// A connection holds these two snapshots, of all that it holds the oldest, the
    /// oldest first, and `more` that are younger; or one, or none.
    pub fn hold(&mut self, connection: u64, oldest: [Option<Timestamp>; 2], more: bool) {
        self.snapshots.hold(connection, oldest, more);
    }

    /// A connection has ended: what it held is let go and what it waits for is
    /// forgotten.
    pub fn disconnected(&mut self, connection: u64) {
        self.snapshots.hold(connection, [None; 2], false);
        for waiting in self.waiting.values_mut() {
            waiting.retain(|waiting| waiting.asker.connection != connection);
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }

    /// A client knows how its transactions up to a number ended.
    pub fn known(&mut self, now: Now, client: u64, number: u64) {
        self.ends.known(client, number, now.uptime_ms);
    }

    /// What time brings: the low-water mark rises, garbage goes, and for those
    /// who have waited too long the undecided are decided. To be called every
    /// 50 ms or so.
    pub fn tick(&mut self, now: Now, effects: &mut Effects) {
        if self.frozen.is_some() {
            // All reads see the same moment, of which nothing may be collected.
            return;
        }
        let last = self.clock.now(now.wall_ms);
        self.snapshots.tick(now.uptime_ms, last);
        self.make_room();
        let second = (now.uptime_ms / 1_000) as u16;
        if second != self.samples.second {
            self.samples.second = second;
            let store = &self.store;
            // One cell alone cannot be taken apart.
            let node = |node| store.get(node).filter(|node| node.cells().len() > 1);
            let fence = |id| node(id)?.shape().map(|shape| shape.fence.clone());
            self.hot.extend(self.samples.take(fence));
        }
        self.collect(last, COLLECT_NODES_MAX);
        self.store.sweep(self.snapshots.low(), SWEEP_NODES_MAX);
        self.leases.expire(now.uptime_ms);
        self.ends.expire(now.uptime_ms.saturating_sub(self.settings.ends_kept_ms));
        for name in self.staging.late(now.uptime_ms) {
            self.staging.remove(name);
            self.log(&Record::Unstage { name }, effects);
        }
        let after = self.settings.recover_after_ms;
        let late = self.waiting.iter().filter(|(txn, waiting)| {
            let waited = waiting.iter().any(|waiting| waiting.since_ms + after <= now.uptime_ms);
            waited && self.voted.contains_key(txn)
        });
        let mut late: Vec<TxnId> = late.map(|(txn, _)| *txn).collect();
        late.sort_unstable();
        for txn in late {
            self.recover(now, txn, effects);
        }
    }

    /// Requests that wait for a transaction's end.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.values().map(Vec::len).sum()
    }

    /// Nodes that have grown too large since this was asked last, for whoever
    /// splits them.
    pub fn take_full(&mut self) -> Vec<NodeId> {
        self.store.take_full()
    }

    /// In how many parts a node that has grown too large should be split; and
    /// whether it should keep the lowest of them: most of its cells are only there
    /// for older snapshots, and would else be in the way of each split to come where
    /// keys grow.
    pub fn how_full(&self, node: NodeId) -> (usize, bool) {
        self.store.get(node).map_or((0, false), |node| (self.store.parts(node), node.drags()))
    }

    /// Nodes that are asked for too often, and where to split them.
    pub fn take_hot(&mut self) -> Vec<(NodeId, Key)> {
        std::mem::take(&mut self.hot)
    }

    /// Leaves in which nothing is left since this was asked last, for whoever
    /// takes them away.
    pub fn take_empty(&mut self) -> Vec<NodeId> {
        self.store.take_empty()
    }

    /// Whether there are any of these.
    pub fn has_work(&self) -> bool {
        self.store.has_full() || self.store.has_empty() || !self.hot.is_empty()
    }

    /// Looks through all nodes and says what is wrong, for tests.
    pub fn audit(&self) -> Result<(), String> {
        self.store.audit(self.snapshots.low())
    }
}
