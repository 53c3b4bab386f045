//! The engine: requests in, replies and log records out.

mod budget;
mod check;
mod commit;
mod departures;
mod forget;
mod handle;
mod lease;
mod peek;
mod peer_holds;
mod recovery;
mod refusals;
mod replay;
mod status;
mod suspension;
mod time;
mod values;
mod votes;

use crate::{
    answer::{AnswerBuffers, ReadContext},
    commit_counts::CommitCounts,
    effects::{Caller, Effects, Now, Stop},
    leases::Leases,
    load::HotKeySamples,
    node::{NodeLimits, Undecided},
    outcomes::OutcomeTable,
    queue::PrepareQueue,
    record::LogRecord,
    refused::RefusedNumbers,
    settings::EngineSettings,
    snapshots::Snapshots,
    staging::Staging,
    store::{NodeStore, TreeEnd},
    transaction::PreparedTxn,
    values::ValueTable,
    watches::Watches,
    write_target::WriteTarget,
};
use departures::Departures;
use forget::ForgetState;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use suspension::ReadBounds;
use yesquel_model::{
    GroupEpoch, HybridClock, Key, LocalId, NodeId, Refusal, ServerId, ShardedCounter, Timestamp, TreeId,
    TxnId,
};
use yesquel_wire::{Notice, Operations, Question, Questions, Reply};

/// Nodes that one [`Engine::tick`] collects: some milliseconds of work.
const COLLECT_NODES_MAX: usize = 512;

/// Nodes that one [`Engine::tick`] checks for dropped trees: about a millisecond of work.
const SWEEP_NODES_MAX: usize = 16 << 10;

/// A request that waits for the outcome of a transaction.
#[derive(Debug)]
struct WaitingRequest {
    caller: Caller,
    request: Box<[u8]>,
    /// Its place among the prepares that are queued.
    arrival: u64,
}

/// A request that waits until its timestamp is near enough.
#[derive(Debug)]
pub(crate) struct DelayedRequest {
    pub(crate) caller: Caller,
    pub(crate) request: Box<[u8]>,
    /// Physical time, in milliseconds, from which on it is.
    pub(crate) fits_at_ms: u64,
}

/// The multi-version node store of one server, as a state machine.
///
/// `docs/yesquel/nodes.md` has its laws, `docs/yesquel/commit.md` those of transactions.
#[derive(Debug)]
pub struct Engine {
    pub(crate) settings: EngineSettings,
    pub(crate) clock: HybridClock,
    /// Upper bound of the timestamps given out; the previous one, and the record that must be
    /// durable before a timestamp above that is given.
    pub(crate) ceiling: Timestamp,
    pub(crate) ceiling_before: Timestamp,
    pub(crate) ceiling_lsn: u64,
    /// Whether replies wait until the records that they depend on are on disk, by the log.
    pub(crate) is_synced: bool,
    /// The last record that is known to be durable.
    pub(crate) durable_lsn: u64,
    /// Records up to this one are on disk, whatever the durability; without a disk, all.
    pub(crate) synced_lsn: u64,
    /// Set once the log takes no more records: no snapshot above it is given.
    pub(crate) frozen: Option<ReadBounds>,
    /// Set while the disk is full: new writes are refused, and reads see this without waiting.
    pub(crate) suspended: Option<ReadBounds>,
    pub(crate) store: NodeStore,
    pub(crate) prepared: FxHashMap<TxnId, PreparedTxn>,
    /// Memory that prepared transactions hold, and will need when they commit.
    pub(crate) reserved_bytes: usize,
    /// Nodes that prepared transactions will create.
    pub(crate) creating: FxHashMap<NodeId, TxnId>,
    pub(crate) outcomes: OutcomeTable,
    pub(crate) staging: Staging,
    pub(crate) leases: Leases,
    pub(crate) watches: Watches,
    waiting: FxHashMap<TxnId, Vec<WaitingRequest>>,
    pub(crate) delayed: Vec<DelayedRequest>,
    pub(crate) queue: PrepareQueue,
    pub(crate) departures: Departures,
    pub(crate) refused: RefusedNumbers,
    /// What the prepare that must wait writes.
    pub(crate) queue_targets: Vec<(NodeId, WriteTarget)>,
    /// What a request for the clock is to be when it has waited.
    present_after_wait: Option<Vec<u8>>,
    pub(crate) forget: ForgetState,
    pub(crate) values: ValueTable,
    pub(crate) counters: FxHashMap<NodeId, u64>,
    /// Epoch of the group.
    pub(crate) epoch: GroupEpoch,
    /// The record of the epoch, which must be durable before an answer names the epoch.
    pub(crate) epoch_lsn: u64,
    pub(crate) snapshots: Snapshots,
    /// Uptime in milliseconds of each server's last report.
    pub(crate) peers_heard_ms: BTreeMap<ServerId, u64>,
    /// Time of the newest change of a node.
    pub(crate) last_change: Timestamp,
    /// When the low-water mark was last raised, by uptime.
    pub(crate) raised_at_ms: Option<u64>,
    /// The checkpoint being loaded has the newest versions only.
    pub(crate) has_newest_only: bool,
    pub(crate) lsn: u64,
    /// Scratch space for parts of an answer.
    pub(crate) buffers: AnswerBuffers,
    pub(crate) samples: HotKeySamples,
    /// Nodes over the load limit, and the keys to split them at.
    hot: Vec<(NodeId, Key)>,
    pub(crate) counts: EngineCounts,
    pub(crate) commit_counts: CommitCounts,
    /// Read requests that threads answered concurrently.
    pub(crate) lookups: ShardedCounter,
    /// Questions in these beyond the first of each request.
    pub(crate) extra_questions: ShardedCounter,
}

/// How to split a full node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SplitPlan {
    /// Number of parts; below two there is nothing to split.
    pub parts: usize,
    /// Most of its cells exist only for older snapshots. The lowest part should then stay in the node:
    /// the obsolete cells would slow down each later split where keys grow.
    pub mostly_obsolete: bool,
    /// Group of the tree's root.
    pub home: ServerId,
    /// Bytes of its keys and values.
    pub bytes: usize,
}

/// Requests so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EngineCounts {
    pub(crate) reads: u64,
    pub(crate) questions: u64,
    pub(crate) commits: u64,
    pub(crate) prepares: u64,
    pub(crate) conflicts: u64,
    pub(crate) moved: u64,
    pub(crate) waits: u64,
    pub(crate) recoveries: u64,
    pub(crate) refused_memory: u64,
    /// Prepares that were queued.
    pub(crate) queued: u64,
    /// Transactions whose end recovery has found.
    pub(crate) recovered: u64,
    /// Decisions that contradict the end.
    pub(crate) contradictions: u64,
}

impl Engine {
    /// Creates an empty engine.
    pub fn new(settings: EngineSettings) -> Engine {
        Engine {
            snapshots: Snapshots::new(settings.grace_ms, settings.snapshot_age_ms_max, Timestamp::ZERO),
            settings,
            clock: HybridClock::default(),
            ceiling: Timestamp::ZERO,
            ceiling_before: Timestamp::ZERO,
            ceiling_lsn: 0,
            is_synced: true,
            durable_lsn: 0,
            synced_lsn: u64::MAX,
            frozen: None,
            suspended: None,
            store: NodeStore::new(NodeLimits {
                cells_max: settings.node_cells_max,
                bytes_max: settings.node_bytes_max,
            }),
            prepared: FxHashMap::default(),
            reserved_bytes: 0,
            creating: FxHashMap::default(),
            outcomes: OutcomeTable::default(),
            staging: Staging::default(),
            leases: Leases::default(),
            watches: Watches::new(&settings),
            waiting: FxHashMap::default(),
            delayed: Vec::new(),
            queue: PrepareQueue::default(),
            departures: Departures::default(),
            refused: RefusedNumbers::default(),
            queue_targets: Vec::new(),
            present_after_wait: None,
            forget: ForgetState::default(),
            values: ValueTable::default(),
            counters: FxHashMap::default(),
            epoch: GroupEpoch::FIRST,
            epoch_lsn: 0,
            peers_heard_ms: BTreeMap::new(),
            last_change: Timestamp::ZERO,
            raised_at_ms: None,
            has_newest_only: false,
            lsn: 0,
            buffers: AnswerBuffers::default(),
            samples: HotKeySamples::default(),
            hot: Vec::new(),
            counts: EngineCounts::default(),
            commit_counts: CommitCounts::default(),
            lookups: ShardedCounter::default(),
            extra_questions: ShardedCounter::default(),
        }
    }

    /// The server's id.
    pub fn server(&self) -> ServerId {
        self.settings.server
    }

    /// Epoch of the group's configuration.
    #[inline]
    pub fn epoch(&self) -> GroupEpoch {
        self.epoch
    }

    /// The record that must be durable before an answer names the epoch.
    pub fn epoch_lsn(&self) -> u64 {
        self.epoch_lsn
    }

    /// Begins a new configuration of the group. An epoch that is not above the present one has no
    /// effect.
    pub fn raise_epoch(&mut self, epoch: GroupEpoch, effects: &mut Effects) {
        if epoch > self.epoch && self.frozen.is_none() {
            self.log(&LogRecord::Group { epoch }, effects);
            (self.epoch, self.epoch_lsn) = (epoch, self.lsn);
        }
    }

    /// Number of the last log record, made or replayed.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Oldest readable snapshot.
    pub fn oldest_snapshot(&self) -> Timestamp {
        self.snapshots.oldest_served()
    }

    /// Number of ends of transactions of several servers that are remembered.
    pub fn ends(&self) -> usize {
        self.outcomes.ends()
    }

    /// Whether a snapshot may be read: it is the oldest held one, or not below the next held one.
    pub fn is_kept(&self, snapshot: Timestamp) -> bool {
        self.snapshots.serves(snapshot)
    }

    /// Highest timestamp that was given out or seen.
    pub fn last_timestamp(&self) -> Timestamp {
        self.clock.last()
    }

    /// Since when the prepare of a transaction is queued, by uptime, if it is.
    pub fn queued_since_ms(&self, txn: TxnId) -> Option<u64> {
        self.queue.get(txn).map(|queued| queued.since_ms)
    }

    /// Prepared transactions without an outcome.
    pub fn undecided(&self) -> impl Iterator<Item = TxnId> {
        self.prepared.keys().copied()
    }

    fn read(
        &mut self,
        now: Now,
        connection: u64,
        snapshot: Option<Timestamp>,
        questions: Questions<'_>,
        effects: &mut Effects,
    ) -> Result<u64, Stop> {
        let snapshot = self.snapshot(now, snapshot)?;
        let mut needs_lsn = self.under_ceiling(snapshot, effects);
        let is_whole = self.read_bounds().is_some_and(|bounds| snapshot <= bounds.whole);
        let (store, buffers, lsn) = (&self.store, &mut self.buffers, self.lsn);
        let all = ReadContext { store, snapshot, second: self.samples.second };
        // The undecided transaction that may have created a node at or below the snapshot.
        let maker = |node: NodeId| {
            let txn = self.creating.get(&node)?;
            self.prepared.get(txn).filter(|prepared| prepared.at <= snapshot).map(|_| *txn)
        };
        let (samples, load_max) = (&mut self.samples, self.settings.load_max());
        let (watches, is_newest) = (&mut self.watches, snapshot >= self.last_change && self.frozen.is_none());
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
                        // Depends on whatever dropped the node.
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
                if let Question::Watch { node: id } = question {
                    // What is prepared may commit at or below the snapshot's successor.
                    // A leaf away from its root could move without a reply through the thread that
                    // writes the notices.
                    let is_home = node.home() == id.server;
                    let is_settled = is_newest && !node.is_prepared() && store.tree_end(id.tree).is_none();
                    if is_settled && is_home && watches.add(connection, id) {
                        writer.same()
                    } else {
                        writer.absent()
                    }
                    continue;
                }
                match all.write(node, &question, buffers, &mut writer) {
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
            // Only later changes of the nodes are lost, or not durable yet.
            None if is_whole => Ok(0),
            None => Ok(needs_lsn),
        }
    }

    /// Stages a part of a transaction.
    fn stage(
        &mut self,
        now: Now,
        name: TxnId,
        part: u64,
        operations: &Operations<'_>,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if self.staging.expects(name, part)? {
            self.check_disk()?;
            self.fits_part(operations.bytes().len())?;
            self.log(&LogRecord::Stage { name, part, operations: *operations }, effects);
            self.staging.push(name, operations, now.uptime_ms);
        }
        Ok(())
    }

    /// Takes numbers from a counter, logged before they are given out. A refused request changes
    /// nothing: numbers that are too large would leave none for others.
    fn take(&mut self, node: NodeId, count: u64, above: u64, effects: &mut Effects) -> Result<u64, Refusal> {
        self.check_disk()?;
        // A tree's counter goes with the tree; counters of no tree have no nodes.
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
        self.log(&LogRecord::Counter { node, next }, effects);
        Ok(first)
    }

    /// Sets the oldest two snapshots that a connection holds, in order; `more` says whether it
    /// holds others above them.
    pub fn hold(&mut self, connection: u64, oldest: [Option<Timestamp>; 2], more: bool) {
        self.snapshots.hold(connection, oldest, more);
    }

    /// Lets a connection watch nodes. Its driver passes on notices before any reply of a later
    /// step.
    pub fn admit_watcher(&mut self, connection: u64) {
        self.watches.admit(connection);
    }

    /// Ends all watches, and grants none any more: clients in the server's process get replies that
    /// no notice can precede.
    pub fn close_watches(&mut self) {
        self.watches.close(Timestamp(self.clock.last().0.saturating_add(1)));
    }

    /// Whether a transaction is prepared on a node.
    pub fn has_prepared(&self, node: NodeId) -> bool {
        self.store.get(node).is_some_and(|node| node.is_prepared())
    }

    /// Takes the notices for connections that watch nodes.
    pub fn take_notices(&mut self) -> Vec<(u64, Notice)> {
        self.watches.take_notices()
    }

    /// Ends a connection: its snapshots and leases are released and its waiting requests dropped.
    /// The transactions that have voted on it are recovered at the next [`tick`](Self::tick).
    pub fn disconnected(&mut self, connection: u64) {
        self.snapshots.hold(connection, [None; 2], false);
        self.leases.disconnected(connection);
        self.watches.disconnected(connection);
        self.refused.disconnected(connection);
        for waiting in self.waiting.values_mut() {
            waiting.retain(|waiting| waiting.caller.connection != connection);
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        self.queue.remove(|queued| queued.caller.connection == connection);
        self.delayed.retain(|delayed| delayed.caller.connection != connection);
        self.recover_of_connection(connection);
        self.client_disconnected(connection);
    }

    /// Advances time: raises the low-water mark, collects garbage, and recovers undecided
    /// transactions that requests have waited for too long. Call it about every 50 ms.
    pub fn tick(&mut self, now: Now, effects: &mut Effects) {
        if self.frozen.is_some() {
            // All reads use the same snapshots: none of their versions may be collected.
            return;
        }
        let last = self.clock.now(now.wall_ms);
        self.expire_peers(now);
        let proposed = self.snapshots.tick(now.uptime_ms, last);
        // While the disk is full all reads use the same snapshots: none of their versions may be
        // collected.
        if self.suspended.is_none() {
            self.raise_low_water(now, proposed, effects);
            self.relieve_memory(effects);
        }
        let second = (now.uptime_ms / 1_000) as u16;
        if second != self.samples.second {
            self.samples.second = second;
            let store = &self.store;
            // A node with one cell cannot be split.
            let node = |node| store.get(node).filter(|node| node.cells().len() > 1);
            let fence = |id| node(id)?.shape().map(|shape| shape.fence.clone());
            self.hot.extend(self.samples.take(fence));
        }
        self.collect(last, COLLECT_NODES_MAX);
        self.store.sweep(self.snapshots.low(), SWEEP_NODES_MAX);
        self.serve_leases(now, effects);
        self.tick_forgetting(now, last, effects);
        self.tick_values(now, effects);
        for name in self.staging.late(now.uptime_ms) {
            // Parts of a queued transaction do not expire.
            if self.queue.iter().any(|queued| queued.staged == Some(name)) {
                continue;
            }
            self.staging.remove(name);
            self.log(&LogRecord::Unstage { name }, effects);
        }
        self.tick_departures(now, effects);
        self.advance_queue(now, effects);
        self.recover_due(now, effects);
        self.answer_delayed(now, effects);
    }

    /// Number of requests that wait for an outcome or a lease.
    pub fn waiting_count(&self) -> usize {
        self.leases.waiting() + self.waiting.values().map(Vec::len).sum::<usize>()
    }

    /// Takes the nodes that have exceeded the size limit since the last call.
    pub fn take_full(&mut self) -> Vec<NodeId> {
        self.store.take_full()
    }

    /// How to split a node that exceeds the size limit.
    pub fn split_plan(&self, id: NodeId) -> SplitPlan {
        self.store.get(id).map_or_else(SplitPlan::default, |node| SplitPlan {
            parts: self.store.parts(node),
            mostly_obsolete: node.mostly_obsolete(),
            home: node.home(),
            bytes: node.size().1,
        })
    }

    /// Takes the nodes over the load limit, and the keys to split them at.
    pub fn take_hot(&mut self) -> Vec<(NodeId, Key)> {
        std::mem::take(&mut self.hot)
    }

    /// Takes the leaves that have become empty since the last call.
    pub fn take_empty(&mut self) -> Vec<NodeId> {
        self.store.take_empty()
    }

    /// Whether there is any of this work.
    pub fn has_work(&self) -> bool {
        self.store.has_full() || self.store.has_empty() || !self.hot.is_empty()
    }

    /// Checks the invariants of all nodes, for tests.
    pub fn audit(&self) -> Result<(), String> {
        self.store.audit(self.snapshots.low())
    }
}
