//! Requests in, replies and log records out.

use crate::{
    answer,
    checkpoint::Checkpoint,
    node::{Node, Prepared, Undecided},
    record::Record,
    snapshots::Snapshots,
    store::{NodeLimits, Store},
    transaction::{Ends, Planned, Voted},
};
use rustc_hash::FxHashMap;
use yesquel_model::{Clock, Conflict, KeyRange, NodeId, Refusal, ServerId, Timestamp, TxnId};
use yesquel_wire::{
    Decision, Ended, Malformed, NewNode, NodeKind, Operation, Operations, Participants, Questions, Reply,
    Request, Vote, WriteOperation,
};

/// How far the ceiling of timestamps is put above the clock, and how near the
/// clock may come to it before it is put higher.
const CEILING_MS: u64 = 4_000;
const CEILING_NEAR_MS: u64 = 2_000;

/// Nodes that one [`Engine::tick`] collects at most: some milliseconds.
const COLLECT_NODES_MAX: usize = 512;

/// The transaction of what is in a checkpoint: nobody will ask about it.
pub(crate) const NOBODY: TxnId = TxnId { client: 0, number: 0 };

/// What an engine goes by.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Who it is.
    pub server: ServerId,
    /// How long a snapshot can be read by one who has not said that he holds
    /// it, in milliseconds.
    pub grace_ms: u64,
    /// The age that a snapshot may have, in milliseconds.
    pub snapshot_age_ms_max: u64,
    /// After how long somebody who waits for an undecided transaction has its
    /// participants asked, in milliseconds.
    pub recover_after_ms: u64,
    /// How long it is known how a transaction ended whose client is not heard
    /// of, in milliseconds.
    pub ends_kept_ms: u64,
    /// Bytes of memory that nodes may take.
    pub memory_bytes_max: usize,
    /// Cells of a node beyond which it is to be split.
    pub node_cells_max: usize,
    /// Bytes of a node's cells beyond which it is to be split.
    pub node_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            server: ServerId(0),
            grace_ms: 1_000,
            snapshot_age_ms_max: 3_600_000,
            recover_after_ms: 500,
            ends_kept_ms: 600_000,
            memory_bytes_max: usize::MAX,
            node_cells_max: 128,
            node_bytes_max: 64 << 10,
        }
    }
}

/// The time, as whoever runs the engine knows it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Now {
    /// Milliseconds since 1970, which may jump.
    pub wall_ms: u64,
    /// Milliseconds since some start, which never go back.
    pub uptime_ms: u64,
}

/// Who asks: a connection, and the number of the request on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Asker {
    /// The connection.
    pub connection: u64,
    /// The request.
    pub request: u64,
}

/// A reply, whose bytes stand in [`Effects::bytes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyTo {
    /// Whose request it answers.
    pub asker: Asker,
    /// The log must be on disk up to this record, counted from one, before
    /// anybody may see it.
    pub needs_lsn: u64,
    /// Where in the bytes.
    pub bytes: std::ops::Range<usize>,
}

/// A server that is to be asked how it has voted; the answer goes to
/// [`Engine::learn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Whom.
    pub server: ServerId,
    /// About which transaction.
    pub txn: TxnId,
}

/// What is to be done after a step. The buffers are reused.
#[derive(Debug, Default)]
pub struct Effects {
    /// Bytes of all replies.
    pub bytes: Vec<u8>,
    /// The replies.
    pub replies: Vec<ReplyTo>,
    /// Bytes of all records.
    pub log: Vec<u8>,
    /// Where in them each record ends; record n of the log, counted from one,
    /// is the first here if [`Engine::lsn`] was n - 1 before.
    pub record_ends: Vec<usize>,
    /// Whom to ask for votes.
    pub asks: Vec<Ask>,
}

impl Effects {
    /// Empties the buffers and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.replies.clear();
        self.log.clear();
        self.record_ends.clear();
        self.asks.clear();
    }

    /// The bytes of each record.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.record_ends.iter().copied());
        starts.zip(&self.record_ends).map(|(start, end)| &self.log[start..*end])
    }
}

/// A request that waits for a transaction's end.
#[derive(Debug)]
struct Waiting {
    asker: Asker,
    request: Box<[u8]>,
    since_ms: u64,
}

/// Why a request cannot be answered yet, or not at all.
enum Stop {
    Wait(TxnId),
    Refuse(Option<u64>, Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refuse(None, refusal)
    }
}

/// The multi-version node store of one server, as a state machine.
///
/// `docs/yesquel/nodes.md` has its laws, `docs/yesquel/commit.md` those of
/// transactions.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    clock: Clock,
    /// No timestamp above it is given out; the one before, and the record that
    /// must be on disk for a timestamp above that.
    ceiling: Timestamp,
    ceiling_before: Timestamp,
    ceiling_lsn: u64,
    store: Store,
    voted: FxHashMap<TxnId, Voted>,
    ends: Ends,
    waiting: FxHashMap<TxnId, Vec<Waiting>>,
    counters: FxHashMap<NodeId, u64>,
    snapshots: Snapshots,
    lsn: u64,
    /// For cells of an answer.
    cells: Vec<u8>,
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
            store: Store::default(),
            voted: FxHashMap::default(),
            ends: Ends::default(),
            waiting: FxHashMap::default(),
            counters: FxHashMap::default(),
            lsn: 0,
            cells: Vec::new(),
        }
    }

    /// Records that it has made or been given.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Bytes that nodes take.
    pub fn memory(&self) -> usize {
        self.store.memory()
    }

    /// The oldest snapshot that may be read.
    pub fn oldest_snapshot(&self) -> Timestamp {
        self.snapshots.low()
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
        let request = Request::decode(bytes)?;
        let start = effects.bytes.len();
        let outcome = self.answer(now, request, effects);
        match outcome {
            Ok(needs_lsn) => self.reply(asker, start, needs_lsn, effects),
            Err(Stop::Wait(txn)) => {
                effects.bytes.truncate(start);
                let waiting = Waiting { asker, request: bytes.into(), since_ms: now.uptime_ms };
                self.waiting.entry(txn).or_default().push(waiting);
            }
            Err(Stop::Refuse(operation, refusal)) => {
                effects.bytes.truncate(start);
                Reply::Refused { operation, refusal }.write(&mut effects.bytes);
                // A refusal tells what it has seen, too.
                self.reply(asker, start, self.lsn, effects);
            }
        }
        Ok(())
    }

    fn reply(&self, asker: Asker, start: usize, needs_lsn: u64, effects: &mut Effects) {
        effects.replies.push(ReplyTo { asker, needs_lsn, bytes: start..effects.bytes.len() });
    }

    /// Writes the reply to the end of the effects' bytes and returns the
    /// record that it needs.
    fn answer(&mut self, now: Now, request: Request<'_>, effects: &mut Effects) -> Result<u64, Stop> {
        let reply = match request {
            Request::Read { snapshot, seen, questions } => {
                self.witness(now, seen)?;
                return self.read(now, snapshot, questions, effects);
            }
            Request::Commit { txn, snapshot, seen, operations } => {
                self.witness(now, seen)?;
                Reply::Committed(self.commit(now, txn, snapshot, &operations, effects)?)
            }
            Request::Prepare { txn, snapshot, seen, participants, operations } => {
                self.witness(now, seen)?;
                Reply::Voted(self.prepare(now, txn, snapshot, &participants, &operations, effects)?)
            }
            Request::Decide { txn, decision } => {
                self.decide(now, txn, decision, effects);
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
            Request::Take { node, count, above } => Reply::Taken(self.take(node, count, above, effects)),
        };
        reply.write(&mut effects.bytes);
        Ok(self.lsn)
    }

    fn witness(&mut self, now: Now, seen: Timestamp) -> Result<(), Refusal> {
        Ok(self.clock.witness(seen, now.wall_ms)?)
    }

    fn log(&mut self, record: &Record<'_>, effects: &mut Effects) {
        record.write(&mut effects.log);
        effects.record_ends.push(effects.log.len());
        self.lsn += 1;
    }

    /// Sees to it that a timestamp that is given out is below a ceiling in the
    /// log; returns the record that must be on disk before.
    fn under_ceiling(&mut self, given: Timestamp, effects: &mut Effects) -> u64 {
        if given.ms() + CEILING_NEAR_MS > self.ceiling.ms() {
            self.ceiling_before = self.ceiling;
            self.ceiling = Timestamp::from_ms(given.ms() + CEILING_MS);
            self.log(&Record::Ceiling(self.ceiling), effects);
            self.ceiling_lsn = self.lsn;
        }
        if given > self.ceiling_before { self.ceiling_lsn } else { 0 }
    }

    /// The snapshot of a request: its own, which must not be too old, or now.
    fn snapshot(&mut self, now: Now, snapshot: Option<Timestamp>) -> Result<Timestamp, Refusal> {
        let Some(snapshot) = snapshot else { return Ok(self.clock.now(now.wall_ms)) };
        // A later commit must be above it.
        self.clock.witness(snapshot, now.wall_ms)?;
        let oldest = self.snapshots.low();
        if snapshot < oldest { Err(Refusal::SnapshotTooOld { snapshot, oldest }) } else { Ok(snapshot) }
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
        let (store, cells) = (&self.store, &mut self.cells);
        let mut undecided = None;
        Reply::write_answers(&mut effects.bytes, snapshot, |mut writer| {
            for question in questions.iter() {
                let Some(node) = store.get(question.node()) else {
                    writer.moved(None);
                    continue;
                };
                needs_lsn = needs_lsn.max(node.changed_at_lsn);
                if let Err(Undecided(txn)) = answer::write(node, snapshot, &question, cells, &mut writer) {
                    undecided = Some(txn);
                    return;
                }
            }
        });
        match undecided {
            Some(txn) => Err(Stop::Wait(txn)),
            None => Ok(needs_lsn),
        }
    }

    /// Looks at each operation in turn; nothing is changed.
    fn check(&self, txn: TxnId, snapshot: Timestamp, operations: &Operations<'_>) -> Result<(), Stop> {
        let spent = self.store.memory() >= self.settings.memory_bytes_max;
        // What the transaction itself makes of nodes before it goes on.
        let mut made: Vec<(NodeId, Option<NewNode>)> = Vec::new();
        for (number, Operation { node: id, write }) in operations.iter().enumerate() {
            let refuse = |refusal: Refusal| match refusal {
                Refusal::Conflict(Conflict::Prepared { by, .. }) => Stop::Wait(by),
                refusal => Stop::Refuse(Some(number as u64), refusal),
            };
            let node = self.store.get(id);
            let own = made.iter().rev().find(|(known, _)| *known == id).map(|(_, made)| made);
            let shape = match own {
                Some(made) => made.as_ref().map(|new| (new.kind, &new.fence)),
                None => node.and_then(Node::shape).map(|shape| (shape.kind, &shape.fence)),
            };
            if let WriteOperation::Create(new) = &write {
                if node.is_some() || own.is_some() {
                    return Err(refuse(Conflict::Node { node: id }.into()));
                }
                made.push((id, Some(new.clone())));
                continue;
            }
            let Some((kind, fence)) = shape else { return Err(refuse(Refusal::Moved(id))) };
            if !holds(kind, fence, &write) {
                return Err(refuse(Refusal::Moved(id)));
            }
            if spent && matches!(write, WriteOperation::Put { .. }) {
                return Err(refuse(Refusal::OutOfMemory));
            }
            if let Some(node) = node {
                node.check(txn, snapshot, &write).map_err(refuse)?;
            }
            match write {
                WriteOperation::Move { range, to } => {
                    let target = made.iter().rev().find(|(known, _)| *known == to);
                    let fits = target.is_some_and(|(_, new)| {
                        new.as_ref().is_some_and(|new| new.kind == kind && new.fence.covers(&range))
                    });
                    if !fits || to == id {
                        return Err(refuse(Refusal::Unfit(to)));
                    }
                }
                WriteOperation::Reshape(new) => made.push((id, Some(new))),
                WriteOperation::Drop => made.push((id, None)),
                _ => {}
            }
        }
        Ok(())
    }

    fn commit(
        &mut self,
        now: Now,
        txn: TxnId,
        snapshot: Option<Timestamp>,
        operations: &Operations<'_>,
        effects: &mut Effects,
    ) -> Result<Timestamp, Stop> {
        match self.ends.of_one(txn) {
            None => {}
            // It was sent again.
            Some(Some(Decision::Commit(at))) => return Ok(at),
            Some(_) => return Err(Refusal::GivenUp(txn).into()),
        }
        let snapshot = self.snapshot(now, snapshot)?;
        self.check(txn, snapshot, operations)?;
        let at = self.clock.tick(now.wall_ms);
        self.under_ceiling(at, effects);
        self.log(&Record::Commit { txn, at, operations: *operations }, effects);
        self.do_commit(now.uptime_ms, txn, at, operations);
        Ok(at)
    }

    fn do_commit(&mut self, uptime_ms: u64, txn: TxnId, at: Timestamp, operations: &Operations<'_>) {
        for Operation { node, write } in operations.iter() {
            self.apply_operation(at, node, &write);
        }
        if txn != NOBODY {
            self.ends.committed(txn, at, uptime_ms);
        }
    }

    fn apply_operation(&mut self, at: Timestamp, node: NodeId, write: &WriteOperation<'_>) {
        if let WriteOperation::Move { range, to } = write {
            // Rare: splits only, and there are seldom many that have voted.
            for voted in self.voted.values_mut() {
                voted.moved(at, node, range, *to);
            }
        }
        let Settings { node_cells_max: cells_max, node_bytes_max: bytes_max, .. } = self.settings;
        self.store.apply((at, self.lsn), NodeLimits { cells_max, bytes_max }, node, write);
    }

    fn prepare(
        &mut self,
        now: Now,
        txn: TxnId,
        snapshot: Option<Timestamp>,
        participants: &Participants<'_>,
        operations: &Operations<'_>,
        effects: &mut Effects,
    ) -> Result<Timestamp, Stop> {
        if let Some(voted) = self.voted.get(&txn) {
            return Ok(voted.at);
        }
        match self.ends.of_several(txn) {
            None => {}
            Some(Decision::Commit(at)) => return Ok(at),
            Some(Decision::Abort) => return Err(Refusal::GivenUp(txn).into()),
        }
        let snapshot = self.snapshot(now, snapshot)?;
        // Nobody who has votes elsewhere waits here, for the other might wait
        // there for him.
        self.check(txn, snapshot, operations).map_err(|stop| match stop {
            Stop::Wait(by) => {
                let node = operations.iter().next().map_or(NodeId::default(), |operation| operation.node);
                Stop::Refuse(None, Conflict::Prepared { node, by }.into())
            }
            stop => stop,
        })?;
        let at = self.clock.tick(now.wall_ms);
        self.under_ceiling(at, effects);
        let record = Record::Prepare { txn, at, participants: *participants, operations: *operations };
        self.log(&record, effects);
        self.do_prepare(txn, at, participants, operations);
        Ok(at)
    }

    fn do_prepare(
        &mut self,
        txn: TxnId,
        at: Timestamp,
        participants: &Participants<'_>,
        operations: &Operations<'_>,
    ) {
        let planned: Vec<Planned> = operations.iter().map(|operation| Planned::new(&operation)).collect();
        for planned in &planned {
            let target = planned.target();
            self.store.change(planned.node, |node| node.prepare(Prepared { txn, at, target }));
        }
        let participants = participants.iter().collect();
        let voted = Voted { at, participants, planned, yes: Vec::new() };
        self.voted.insert(txn, voted);
    }

    fn decide(&mut self, now: Now, txn: TxnId, decision: Decision, effects: &mut Effects) {
        if self.voted.contains_key(&txn) {
            self.log(&Record::Decide { txn, decision }, effects);
            self.do_decide(txn, decision);
            self.wake(now, txn, effects);
        } else if decision == Decision::Abort && self.ends.of_several(txn).is_none() {
            // It has not voted and is not to: a prepare may be on its way.
            self.log(&Record::Decide { txn, decision }, effects);
            self.do_decide(txn, decision);
        }
    }

    fn do_decide(&mut self, txn: TxnId, decision: Decision) {
        if let Some(voted) = self.voted.remove(&txn) {
            for planned in &voted.planned {
                self.store.change(planned.node, |node| node.decided(txn));
            }
            if let Decision::Commit(at) = decision {
                self.clock = Clock::above(self.clock.last().max(at));
                let low = self.snapshots.low();
                for planned in &voted.planned {
                    if let Some(write) = planned.operation(at, low) {
                        self.apply_operation(at, planned.node, &write);
                        if let Some((key, moved_at)) = planned.moved_away() {
                            self.store.change(planned.node, |node| node.end_at(moved_at, key));
                        }
                    }
                }
            }
        }
        self.ends.decide(txn, decision);
    }

    /// Asks anew what waited for a transaction's end.
    fn wake(&mut self, now: Now, txn: TxnId, effects: &mut Effects) {
        for Waiting { asker, request, .. } in self.waiting.remove(&txn).unwrap_or_default() {
            // It was a request when it came.
            let handled = self.handle(now, asker, &request, effects);
            debug_assert!(handled.is_ok());
        }
    }

    /// How this server has voted; if it has not, it now votes no.
    fn vote_of(&mut self, txn: TxnId, effects: &mut Effects) -> (Known, Vec<ServerId>) {
        if let Some(decision) = self.ends.of_several(txn) {
            return (Known::Decided(decision), Vec::new());
        }
        if let Some(voted) = self.voted.get(&txn) {
            return (Known::Yes(voted.at), voted.participants.clone());
        }
        self.log(&Record::Decide { txn, decision: Decision::Abort }, effects);
        self.do_decide(txn, Decision::Abort);
        (Known::No, Vec::new())
    }

    fn outcome(&mut self, now: Now, txn: TxnId) -> Ended {
        match self.ends.of_one(txn) {
            Some(Some(decision)) => Ended::Decided(decision),
            Some(None) => Ended::Forgotten,
            None => {
                self.ends.give_up(txn, now.uptime_ms);
                Ended::Decided(Decision::Abort)
            }
        }
    }

    /// Numbers that are logged as given out before they are.
    fn take(&mut self, node: NodeId, count: u64, above: u64, effects: &mut Effects) -> u64 {
        let next = self.counters.get(&node).copied().unwrap_or(1);
        let first = next.max(above.saturating_add(1));
        let next = first.saturating_add(count);
        self.counters.insert(node, next);
        self.log(&Record::Counter { node, next }, effects);
        first
    }

    /// A server's answer to an [`Ask`].
    pub fn learn(&mut self, now: Now, ask: Ask, vote: &Vote<'_>, effects: &mut Effects) {
        let Some(voted) = self.voted.get_mut(&ask.txn) else { return };
        let decision = match vote {
            Vote::Decided(decision) => *decision,
            Vote::No => Decision::Abort,
            Vote::Yes { at, .. } => {
                if !voted.yes.iter().any(|(server, _)| *server == ask.server) {
                    voted.yes.push((ask.server, *at));
                }
                let known = |server: &ServerId| voted.yes.iter().any(|(yes, _)| yes == server);
                if !voted.participants.iter().all(known) {
                    return;
                }
                let last = voted.yes.iter().map(|(_, at)| *at).max();
                Decision::Commit(last.unwrap_or(voted.at))
            }
        };
        self.decide(now, ask.txn, decision, effects);
    }

    /// A connection holds snapshots from this one on, or none.
    pub fn hold(&mut self, connection: u64, oldest: Option<Timestamp>) {
        self.snapshots.hold(connection, oldest);
    }

    /// A connection has ended: what it held is let go and what it waits for is
    /// forgotten.
    pub fn disconnected(&mut self, connection: u64) {
        self.snapshots.hold(connection, None);
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
        let last = self.clock.now(now.wall_ms);
        if self.store.memory() >= self.settings.memory_bytes_max {
            self.snapshots.cancel_held();
        }
        self.snapshots.tick(now.uptime_ms, last);
        self.store.collect(self.snapshots.low(), last, COLLECT_NODES_MAX);
        self.ends.expire(now.uptime_ms.saturating_sub(self.settings.ends_kept_ms));
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

    /// Nodes that have grown too large since this was asked last, for whoever
    /// splits them.
    pub fn take_full(&mut self) -> Vec<NodeId> {
        self.store.take_full()
    }

    /// Looks through all nodes and says what is wrong, for tests.
    pub fn audit(&self) -> Result<(), String> {
        self.store.audit(self.snapshots.low())
    }

    /// Has the participants of an undecided transaction asked.
    pub fn recover(&mut self, now: Now, txn: TxnId, effects: &mut Effects) {
        let Some(voted) = self.voted.get(&txn) else { return };
        let (us, at) = (self.settings.server, voted.at);
        let others = voted.participants.iter().filter(|server| **server != us);
        effects.asks.extend(others.map(|server| Ask { server: *server, txn }));
        let vote = Vote::Yes { at, participants: Participants::NONE };
        self.learn(now, Ask { server: us, txn }, &vote, effects);
    }

    /// The state of this moment, to be written while the engine goes on. Takes
    /// a look at each node.
    pub fn checkpoint(&self) -> Checkpoint {
        let (mut rest, mut rest_ends) = (Vec::new(), Vec::new());
        let mut push = |record: Record<'_>| {
            record.write(&mut rest);
            rest_ends.push(rest.len());
        };
        push(Record::Ceiling(self.ceiling.max(self.clock.last())));
        for (node, next) in &self.counters {
            push(Record::Counter { node: *node, next: *next });
        }
        for (txn, decision, alone) in self.ends.iter() {
            match decision {
                Decision::Commit(at) if alone => {
                    push(Record::Commit { txn, at, operations: Operations::NONE });
                }
                decision => push(Record::Decide { txn, decision }),
            }
        }
        for (txn, voted) in &self.voted {
            let operations: Vec<Operation<'_>> = voted.planned.iter().filter_map(Planned::pending).collect();
            let (operations, participants) =
                (Operations::encode(&operations), Participants::encode(&voted.participants));
            let decoded = (Operations::decode(&operations), Participants::decode(&participants));
            // Put together just now.
            if let (Ok(operations), Ok(participants)) = decoded {
                push(Record::Prepare { txn: *txn, at: voted.at, participants, operations });
            }
        }
        // What has voted may yet commit at its vote, and must then be newer.
        let first_vote = self.voted.values().map(|voted| voted.at).min();
        let at = first_vote.map_or(self.clock.last(), |vote| Timestamp(vote.0.saturating_sub(1)));
        let nodes = self.store.share();
        Checkpoint { lsn: self.lsn, at, nodes, rest, rest_ends }
    }

    /// After the last record of a checkpoint, which was of this record of the
    /// log.
    pub fn restored(&mut self, lsn: u64) {
        self.lsn = lsn;
    }

    /// Does again what a record of the log says, in its order.
    pub fn replay(&mut self, record: &Record<'_>) {
        self.lsn += 1;
        let mut highest = Timestamp::ZERO;
        match record {
            Record::Commit { txn, at, operations } => {
                self.do_commit(0, *txn, *at, operations);
                highest = *at;
            }
            Record::Prepare { txn, at, participants, operations } => {
                self.do_prepare(*txn, *at, participants, operations);
                highest = *at;
            }
            Record::Decide { txn, decision } => self.do_decide(*txn, *decision),
            Record::Forget { txn } => drop(self.ends.forget(*txn)),
            Record::Ceiling(at) => {
                self.ceiling = *at;
                self.ceiling_before = *at;
                highest = *at;
            }
            Record::Counter { node, next } => drop(self.counters.insert(*node, *next)),
        }
        self.clock = Clock::above(self.clock.last().max(highest));
    }

    /// After the last record: no snapshot from before is alive.
    pub fn replayed(&mut self) {
        let low = self.clock.last();
        self.snapshots = Snapshots::new(self.settings.grace_ms, self.settings.snapshot_age_ms_max, low);
    }
}

/// What a server knows of a transaction of several.
enum Known {
    Yes(Timestamp),
    No,
    Decided(Decision),
}

/// Whether an operation is for a node of this kind and fence.
fn holds(kind: NodeKind, fence: &KeyRange, write: &WriteOperation<'_>) -> bool {
    match write {
        WriteOperation::Put { key, .. } | WriteOperation::Delete { key, .. } => {
            kind == NodeKind::Leaf && fence.contains(key)
        }
        WriteOperation::Link { key, .. } | WriteOperation::Unlink { key } => {
            kind == NodeKind::Inner && fence.contains(key)
        }
        WriteOperation::DeleteRange(range) | WriteOperation::Guard(range) => {
            kind == NodeKind::Leaf && fence.covers(range)
        }
        WriteOperation::Move { range, .. } => fence.covers(range),
        WriteOperation::Set(_) | WriteOperation::Drop | WriteOperation::Reshape(_) => true,
        WriteOperation::Create(_) => false,
    }
}
