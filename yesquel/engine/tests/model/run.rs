//! Runs the engine and the reference side by side, step by step.

mod answers;
mod decisions;

use crate::{
    canonical::same,
    common,
    reference::Reference,
    steps::{Step, encode, key, range},
};
use answers::SentRequest;
use yesquel_engine::{Caller, Effects, Engine, EngineSettings, LogRecord, Now};
use yesquel_model::{KeyRange, LocalId, NodeId, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{
    ByteWriter, Decision, Direction, NewNode, NodeKind, NodeOperation, Operations, Question, Questions,
    Reply, Request, Scan, WriteOperation,
};

const US: ServerId = ServerId(0);
const OTHER: ServerId = ServerId(1);

pub(crate) struct Run {
    engine: Engine,
    effects: Effects,
    log: Vec<Vec<u8>>,
    /// Records of the last checkpoint, and the log's length then.
    checkpoint: common::Written,
    /// Engines made from the log alone, and from the last checkpoint and the log after it.
    from_log: Engine,
    from_checkpoint: Engine,
    steps: u64,
    now: Now,
    next_request: u64,
    next_txn: u64,
    next_node: u64,
    reference: Reference,
    snapshots: Vec<Timestamp>,
    /// Requests without a reply, in order, and the transactions that each waits for.
    parked: Vec<(u64, Vec<TxnId>, SentRequest)>,
    /// The highest timestamp issued.
    highest: Timestamp,
    /// Snapshots below this are from before a restart.
    restarted_at: Timestamp,
    /// Outcomes of transactions, of this server alone and of both.
    ended: [Vec<(TxnId, Decision)>; 2],
}

fn node(local: u64) -> NodeId {
    let tree = TreeId::new(1).unwrap();
    NodeId { tree, server: US, local: LocalId(local) }
}

fn settings() -> EngineSettings {
    EngineSettings { grace_ms: 100, return_ms: 100, recover_after_ms: 50, ..EngineSettings::default() }
}

fn leaf(fence: &KeyRange) -> NewNode {
    NewNode { kind: NodeKind::Leaf, fence: fence.clone() }
}

impl Run {
    pub(crate) fn new() -> Run {
        let mut run = Run {
            engine: Engine::new(settings()),
            effects: Effects::default(),
            log: Vec::new(),
            checkpoint: (Vec::new(), 0),
            from_log: Engine::new(settings()),
            from_checkpoint: Engine::new(settings()),
            steps: 0,
            now: Now { wall_ms: 1_000_000, uptime_ms: 0 },
            next_request: 0,
            next_txn: 0,
            next_node: 1,
            reference: Reference::default(),
            snapshots: Vec::new(),
            parked: Vec::new(),
            highest: Timestamp::ZERO,
            restarted_at: Timestamp::ZERO,
            ended: [Vec::new(), Vec::new()],
        };
        let create = WriteOperation::Create(leaf(&KeyRange::all()));
        let at = run.structure(&[NodeOperation { node: node(0), write: create }]);
        run.reference.place(at, &[(&KeyRange::all(), node(0))]);
        run
    }

    fn txn(&mut self) -> TxnId {
        self.next_txn += 1;
        TxnId { client: 1, number: self.next_txn }
    }

    /// The birth of a transaction that begins to commit.
    fn birth(&self) -> Timestamp {
        Timestamp::from_ms(self.now.wall_ms)
    }

    /// Sends a request. The caller handles its reply.
    fn send(&mut self, request: &Request<'_>) -> u64 {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        self.next_request += 1;
        let caller = Caller { connection: 1, request: self.next_request };
        self.engine.handle(self.now, caller, &bytes, &mut self.effects).unwrap();
        self.next_request
    }

    /// Takes the replies so far, and logs the records.
    fn replies(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut effects = std::mem::take(&mut self.effects);
        for record in effects.records() {
            self.log.push(record.to_vec());
            let record = LogRecord::decode(record).unwrap();
            self.from_log.replay(&record);
            self.from_checkpoint.replay(&record);
        }
        assert_eq!(self.engine.lsn(), self.log.len() as u64);
        let replies = effects.replies.iter();
        let replies = replies
            .map(|reply| {
                assert!(reply.needs_lsn <= self.engine.lsn());
                (reply.caller.request, effects.bytes[reply.bytes.clone()].to_vec())
            })
            .collect();
        effects.clear();
        self.effects = effects;
        replies
    }

    fn one_reply(&mut self, request: u64) -> Vec<u8> {
        let mut replies = self.replies();
        assert_eq!(replies.len(), 1, "one reply to {request}");
        let (answered, bytes) = replies.remove(0);
        assert_eq!(answered, request);
        bytes
    }

    /// Commits a change of nodes, which must not be refused.
    fn structure(&mut self, operations: &[NodeOperation<'_>]) -> Timestamp {
        let txn = self.txn();
        let bytes = Operations::encode(operations);
        let operations = Operations::decode(&bytes).unwrap();
        let request = self.send(&Request::Commit {
            txn,
            birth: self.birth(),
            snapshot: None,
            seen: Timestamp::ZERO,
            lease: 0,
            staged: None,
            operations,
        });
        let reply = self.one_reply(request);
        let Reply::Committed(at) = Reply::decode(&reply).unwrap() else {
            panic!("a split is refused: {:?}", Reply::decode(&reply))
        };
        assert!(at > self.highest);
        self.highest = at;
        at
    }

    pub(crate) fn step(&mut self, step: &Step) {
        self.act(step);
        same("made from the log", &self.from_log, &self.engine);
        same("made from checkpoint and log", &self.from_checkpoint, &self.engine);
        self.steps += 1;
        if self.steps.is_multiple_of(8) {
            let engine = common::restore(settings(), &common::write(&mut self.engine.checkpoint()));
            same("made from a checkpoint", &engine, &self.engine);
        }
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::Begin => {
                let questions = Questions::decode(&[]).unwrap();
                let request = self.send(&Request::Read { snapshot: None, seen: Timestamp::ZERO, questions });
                let reply = self.one_reply(request);
                let Reply::Answers { snapshot, .. } = Reply::decode(&reply).unwrap() else { panic!() };
                assert!(snapshot >= self.highest);
                self.highest = snapshot;
                self.snapshots.push(snapshot);
                self.hold();
            }
            Step::Read { snapshot, key: number } => {
                let Some(snapshot) = self.pick(*snapshot) else { return };
                let key = key(*number);
                let Some((node, _)) =
                    self.reference.owner(if number % 2 == 0 { snapshot } else { Timestamp::MAX }, &key)
                else {
                    return;
                };
                let asked = SentRequest::Read { snapshot, node, key: key.clone() };
                self.question(snapshot, &Question::Lookup { node, key: &key }, asked);
            }
            Step::Scan { snapshot, key: number, down, cells } => {
                let Some(snapshot) = self.pick(*snapshot) else { return };
                let Some((node, _)) = self.reference.owner(snapshot, &key(*number)) else { return };
                let direction = if *down { Direction::Down } else { Direction::Up };
                let scan = Scan {
                    range: if number % 2 == 0 { KeyRange::all() } else { range(*number, 4) },
                    direction,
                    cells_max: *cells,
                    bytes_max: u64::MAX,
                    value_bytes_max: 100,
                    near: None,
                };
                let asked = SentRequest::Scan { snapshot, node, scan: scan.clone() };
                self.question(snapshot, &Question::Scan { node, scan: scan.into() }, asked);
            }
            Step::Commit { snapshot, writes, astray } => {
                let snapshot = match snapshot {
                    None => None,
                    Some(which) => match self.pick(*which) {
                        None => return,
                        snapshot => snapshot,
                    },
                };
                let writes = self.reference.address(writes, *astray);
                let bytes = encode(&writes);
                let operations = Operations::decode(&bytes).unwrap();
                let txn = self.txn();
                let request = Request::Commit {
                    txn,
                    birth: self.birth(),
                    snapshot,
                    seen: Timestamp::ZERO,
                    lease: 0,
                    staged: None,
                    operations,
                };
                self.ask(&request, SentRequest::Commit { txn, snapshot, writes });
            }
            Step::Prepare { snapshot, writes } => self.prepare(*snapshot, writes),
            Step::Decide { which, commit, late, recovery } => self.decide(*which, *commit, *late, *recovery),
            Step::Split { key: number, right } => self.split(&key(*number), *right),
            Step::End { snapshot } => {
                if !self.snapshots.is_empty() {
                    let which = *snapshot % self.snapshots.len();
                    self.snapshots.remove(which);
                    self.hold();
                }
            }
            Step::Time { ms, jump } => {
                self.now.uptime_ms += ms;
                self.now.wall_ms = (self.now.wall_ms + ms).saturating_add_signed(*jump);
                self.engine.tick(self.now, &mut self.effects);
                // No server answers: waiting requests keep waiting.
                self.effects.vote_queries.clear();
                assert!(self.replies().is_empty());
                let mut held = self.snapshots.iter().filter(|snapshot| **snapshot >= self.restarted_at);
                let gone = held.find(|held| !self.engine.is_kept(**held));
                assert_eq!(gone, None, "{} and some later are kept", self.engine.oldest_snapshot());
            }
            Step::Checkpoint => self.take_checkpoint(),
            Step::Again { which, several } => self.again(*which, *several),
            Step::Unborn { several } => self.unborn(*several),
            Step::Restart => self.restart(),
        }
    }

    fn take_checkpoint(&mut self) {
        self.checkpoint = common::write(&mut self.engine.checkpoint());
        self.from_checkpoint = common::restore(settings(), &self.checkpoint);
    }

    fn restart(&mut self) {
        let engine = common::start(settings(), &self.checkpoint, &self.log);
        assert_eq!(engine.lsn(), self.engine.lsn());
        self.engine = engine;
        self.parked.clear();
        self.now.uptime_ms = 0;
        self.restarted_at = self.engine.oldest_snapshot();
        self.hold();
    }

    fn hold(&mut self) {
        let mut oldest: Vec<Timestamp> = self.snapshots.clone();
        oldest.sort_unstable();
        oldest.dedup();
        let more = oldest.len() > 2;
        self.engine.hold(1, [oldest.first().copied(), oldest.get(1).copied()], more);
    }

    fn pick(&self, which: usize) -> Option<Timestamp> {
        self.snapshots.get(which.checked_rem(self.snapshots.len())?).copied()
    }

    fn split(&mut self, key: &[u8], right: bool) {
        let Some((old, fence)) = self.reference.owner(Timestamp::MAX, key) else { return };
        if *fence.low == *key {
            return;
        }
        let new = node(self.next_node);
        self.next_node += 1;
        let low = KeyRange { low: fence.low.clone(), high: Some(key.into()) };
        let high = KeyRange { low: key.into(), high: fence.high.clone() };
        let (stays, moves) = if right { (high, low) } else { (low, high) };
        let operations = [
            NodeOperation { node: new, write: WriteOperation::Create(leaf(&moves)) },
            NodeOperation { node: old, write: WriteOperation::Move { range: moves.clone(), to: new } },
            NodeOperation { node: old, write: WriteOperation::Reshape(leaf(&stays)) },
        ];
        let at = self.structure(&operations);
        self.reference.place(at, &[(&stays, old), (&moves, new)]);
    }

    /// All clients leave; no garbage remains.
    pub(crate) fn end(&mut self) {
        while !self.reference.prepared.is_empty() {
            self.decide(0, self.reference.prepared.len().is_multiple_of(2), 1, false);
        }
        assert!(self.parked.is_empty());
        self.snapshots.clear();
        self.hold();
        for _ in 0..10 {
            self.step(&Step::Time { ms: 50, jump: 0 });
            self.engine.audit().unwrap();
        }
        // All writes are below the mark now.
        assert!(self.engine.oldest_snapshot() >= self.reference.last_change());
        assert_eq!(self.engine.undecided().count(), 0);
    }
}
