//! The engine against a plain reference: a list of all that was committed.
//!
//! The reference knows no nodes' insides, no versions and no marks. What a
//! snapshot sees is found by going through the list, what is in a
//! transaction's way by the table of `docs/yesquel/nodes.md`. Nodes are only
//! a map of who answers for which keys since when, so that a split must be
//! invisible but for `Moved`.
//!
//! A seed makes a list of steps; `SEEDS=from..to` chooses seeds. A failing
//! list is shortened before it is shown.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

use std::collections::BTreeMap;
use yesquel_engine::{Ask, Asker, Effects, Engine, Now, Record, Settings};
use yesquel_model::{Conflict, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{
    Answer, CellValue, Decision, Direction, Ended, Expect, NewNode, NodeKind, Operation, Operations,
    Participants, Question, Questions, Reply, Request, Scan, Vote, WriteOperation, Writer,
};

const US: ServerId = ServerId(0);
const OTHER: ServerId = ServerId(1);
const KEYS: u8 = 12;

/// xorshift64*: the steps of a seed are a promise.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Do {
    Put(u8, u8, Expect),
    Delete(u8, Expect),
    DeleteRange(u8, u8),
    Guard(u8, u8),
}

#[derive(Debug, Clone)]
enum Step {
    /// Takes a snapshot and holds it.
    Begin,
    /// Reads a key, or all of a node, at one of the snapshots.
    Read {
        snapshot: usize,
        key: u8,
    },
    Scan {
        snapshot: usize,
        key: u8,
        down: bool,
        cells: u64,
    },
    /// Commits at a snapshot, or without one; some operations go to a node
    /// that may not be the right one.
    Commit {
        snapshot: Option<usize>,
        writes: Vec<Do>,
        astray: bool,
    },
    Prepare {
        snapshot: usize,
        writes: Vec<Do>,
    },
    /// Decides one of the prepared, by the client or by recovery.
    Decide {
        which: usize,
        commit: bool,
        late: u64,
        recovery: bool,
    },
    /// Splits the node of a key at it, to the left or the right.
    Split {
        key: u8,
        right: bool,
    },
    /// Asks how a transaction ended, of this server alone or of both, and
    /// sends it again.
    Again {
        which: usize,
        several: bool,
    },
    /// Asks about a transaction that is yet to come, which then must not.
    Unborn {
        several: bool,
    },
    /// Lets go of a snapshot.
    End {
        snapshot: usize,
    },
    Time {
        ms: u64,
        jump: i64,
    },
    /// The engine falls and comes back from its last checkpoint and its log.
    Restart,
    Checkpoint,
}

fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let random = &mut random;
    let key = |random: &mut Random| random.next(KEYS.into()) as u8;
    let expect = |random: &mut Random| match random.next(6) {
        0 => Expect::Absent,
        1 => Expect::Present,
        _ => Expect::Any,
    };
    let writes = |random: &mut Random| {
        let count = 1 + random.next(3);
        (0..count)
            .map(|_| match random.next(9) {
                8 => Do::DeleteRange(key(random), 1 + random.next(5) as u8),
                0..4 => Do::Put(key(random), random.next(200) as u8, expect(random)),
                4..6 => Do::Delete(key(random), expect(random)),
                6 => Do::DeleteRange(key(random), random.next(5) as u8),
                _ => Do::Guard(key(random), random.next(5) as u8),
            })
            .collect::<Vec<_>>()
    };
    let count = 20 + random.next(100);
    (0..count)
        .map(|_| match random.next(46) {
            0..6 => Step::Begin,
            6..12 => Step::Read { snapshot: random.next(100) as usize, key: key(random) },
            12..16 => Step::Scan {
                snapshot: random.next(100) as usize,
                key: key(random),
                down: random.next(2) == 0,
                cells: 1 + random.next(5),
            },
            16..24 => Step::Commit {
                snapshot: (random.next(4) > 0).then(|| random.next(100) as usize),
                writes: writes(random),
                astray: random.next(8) == 0,
            },
            24..28 => Step::Prepare { snapshot: random.next(100) as usize, writes: writes(random) },
            28..32 => Step::Decide {
                which: random.next(100) as usize,
                commit: random.next(3) > 0,
                late: random.next(4),
                recovery: random.next(2) == 0,
            },
            32..34 => {
                Step::Split { key: 1 + random.next(u64::from(KEYS) - 1) as u8, right: random.next(2) == 0 }
            }
            34..36 => Step::End { snapshot: random.next(100) as usize },
            36..39 => Step::Time { ms: random.next(80), jump: random.next(2000) as i64 - 1000 },
            39..42 => Step::Again { which: random.next(100) as usize, several: random.next(2) == 0 },
            42 => Step::Unborn { several: random.next(2) == 0 },
            43 => Step::Checkpoint,
            _ => Step::Restart,
        })
        .collect()
}

/// What is committed or prepared, without nodes.
#[derive(Debug, Clone, PartialEq)]
enum Effect {
    Write(Vec<u8>, Option<u8>),
    Clear(KeyRange),
    Guard(KeyRange),
}

impl Effect {
    fn meets(&self, other: &Effect) -> bool {
        use Effect::{Clear, Guard, Write};
        match (self, other) {
            (Write(a, _), Write(b, _)) => a == b,
            (Write(key, _), Clear(range) | Guard(range)) | (Clear(range) | Guard(range), Write(key, _)) => {
                range.contains(key)
            }
            (Guard(_), Guard(_)) => false,
            (Clear(a) | Guard(a), Clear(b) | Guard(b)) => a.meets(b),
        }
    }

    fn changes(&self, range: &KeyRange) -> bool {
        match self {
            Effect::Write(key, _) => range.contains(key),
            Effect::Clear(own) => own.meets(range),
            Effect::Guard(_) => false,
        }
    }
}

#[derive(Debug, Clone)]
struct PreparedTxn {
    txn: TxnId,
    at: Timestamp,
    effects: Vec<Effect>,
}

#[derive(Debug, Clone)]
enum Asked {
    Read { snapshot: Timestamp, node: NodeId, key: Vec<u8> },
    Scan { snapshot: Timestamp, node: NodeId, scan: Scan },
    Commit { txn: TxnId, snapshot: Option<Timestamp>, writes: Vec<(NodeId, Do)> },
}

struct Run {
    engine: Engine,
    effects: Effects,
    log: Vec<Vec<u8>>,
    /// Records of the last checkpoint, and the log's length then.
    checkpoint: (Vec<Vec<u8>>, usize),
    now: Now,
    next_request: u64,
    next_txn: u64,
    next_node: u64,
    /// Commits in the order of their times, and of the list where those are
    /// the same.
    committed: Vec<(Timestamp, Vec<Effect>)>,
    prepared: Vec<PreparedTxn>,
    snapshots: Vec<Timestamp>,
    /// The nodes by the low end of their fences, since when.
    owners: Vec<(Timestamp, BTreeMap<Vec<u8>, NodeId>)>,
    /// Requests without a reply yet, in their order, and those of whom each
    /// waits for one.
    parked: Vec<(u64, Vec<TxnId>, Asked)>,
    /// The highest time that was given out.
    highest: Timestamp,
    /// Snapshots below this are from before a restart.
    restarted_at: Timestamp,
    /// How transactions ended, of this server alone and of both.
    ended: [Vec<(TxnId, Decision)>; 2],
}

fn node(local: u64) -> NodeId {
    let tree = TreeId::new(1).unwrap();
    NodeId { tree, server: US, local: LocalId(local) }
}

fn key(number: u8) -> Vec<u8> {
    // Of several lengths, so that prefixes of one another are among them.
    vec![b'k'; 1 + usize::from(number) % 3].into_iter().chain([number]).collect()
}

/// Keys in their order, for ranges.
fn range(first: u8, length: u8) -> KeyRange {
    let mut keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    keys.sort();
    let (first, last) = (usize::from(first), usize::from(first) + usize::from(length));
    KeyRange { low: keys[first].clone().into(), high: keys.get(last).map(|key| key.clone().into()) }
}

impl Run {
    fn new() -> Run {
        let settings = Settings { grace_ms: 100, recover_after_ms: 50, ..Settings::default() };
        let mut run = Run {
            engine: Engine::new(settings),
            effects: Effects::default(),
            log: Vec::new(),
            checkpoint: (Vec::new(), 0),
            now: Now { wall_ms: 1_000_000, uptime_ms: 0 },
            next_request: 0,
            next_txn: 0,
            next_node: 1,
            committed: Vec::new(),
            prepared: Vec::new(),
            snapshots: Vec::new(),
            owners: Vec::new(),
            parked: Vec::new(),
            highest: Timestamp::ZERO,
            restarted_at: Timestamp::ZERO,
            ended: [Vec::new(), Vec::new()],
        };
        let create = WriteOperation::Create(NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() });
        let at = run.structure(&[Operation { node: node(0), write: create }]);
        run.owners.push((at, BTreeMap::from([(Vec::new(), node(0))])));
        run
    }

    fn txn(&mut self) -> TxnId {
        self.next_txn += 1;
        TxnId { client: 1, number: self.next_txn }
    }

    /// Sends a request; whether there is a reply, and what follows from it, is
    /// the caller's.
    fn send(&mut self, request: &Request<'_>) -> u64 {
        let mut bytes = Vec::new();
        request.write(&mut Writer(&mut bytes));
        self.next_request += 1;
        let asker = Asker { connection: 1, request: self.next_request };
        self.engine.handle(self.now, asker, &bytes, &mut self.effects).unwrap();
        self.next_request
    }

    /// The replies so far, and the log of them.
    fn replies(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut effects = std::mem::take(&mut self.effects);
        self.log.extend(effects.records().map(<[u8]>::to_vec));
        assert_eq!(self.engine.lsn(), self.log.len() as u64);
        let replies = effects.replies.iter();
        let replies = replies
            .map(|reply| {
                assert!(reply.needs_lsn <= self.engine.lsn());
                (reply.asker.request, effects.bytes[reply.bytes.clone()].to_vec())
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

    /// Commits a change of nodes, which nothing may refuse.
    fn structure(&mut self, operations: &[Operation<'_>]) -> Timestamp {
        let txn = self.txn();
        let bytes = Operations::encode(operations);
        let operations = Operations::decode(&bytes).unwrap();
        let request = self.send(&Request::Commit { txn, snapshot: None, seen: Timestamp::ZERO, operations });
        let reply = self.one_reply(request);
        let Reply::Committed(at) = Reply::decode(&reply).unwrap() else {
            panic!("a split is refused: {:?}", Reply::decode(&reply))
        };
        assert!(at > self.highest);
        self.highest = at;
        at
    }

    // The reference.

    /// Who answers for a key, and its fence, at some time.
    fn owner(&self, at: Timestamp, key: &[u8]) -> Option<(NodeId, KeyRange)> {
        let (_, owners) = self.owners.iter().rev().find(|(since, _)| *since <= at)?;
        let (low, node) = owners.range(..=key.to_vec()).next_back()?;
        let high = owners.range(key.to_vec()..).find(|(low, _)| low.as_slice() > key).map(|(low, _)| low);
        let fence = KeyRange { low: low.clone().into(), high: high.map(|high| high.clone().into()) };
        Some((*node, fence))
    }

    fn fence_of(&self, at: Timestamp, node: NodeId) -> Option<KeyRange> {
        let (_, owners) = self.owners.iter().rev().find(|(since, _)| *since <= at)?;
        let low = owners.iter().find(|(_, known)| **known == node)?.0.clone();
        self.owner(at, &low).map(|(_, fence)| fence)
    }

    fn seen(&self, snapshot: Timestamp, key: &[u8]) -> Option<u8> {
        let mut value = None;
        for (_, effects) in self.committed.iter().filter(|(at, _)| *at <= snapshot) {
            for effect in effects {
                match effect {
                    Effect::Write(written, new) if written == key => value = *new,
                    Effect::Clear(range) if range.contains(key) => value = None,
                    _ => {}
                }
            }
        }
        value
    }

    fn commit_in_model(&mut self, at: Timestamp, effects: Vec<Effect>) {
        let position = self.committed.partition_point(|(known, _)| *known <= at);
        self.committed.insert(position, (at, effects));
    }

    fn waits_for(&self, snapshot: Timestamp, range: &KeyRange) -> Option<Vec<TxnId>> {
        let waits: Vec<TxnId> = self
            .prepared
            .iter()
            .filter(|prepared| prepared.at <= snapshot)
            .filter(|prepared| prepared.effects.iter().any(|effect| effect.changes(range)))
            .map(|prepared| prepared.txn)
            .collect();
        (!waits.is_empty()).then_some(waits)
    }

    fn effect_of(write: &Do) -> Effect {
        match write {
            Do::Put(number, value, _) => Effect::Write(key(*number), Some(*value)),
            Do::Delete(number, _) => Effect::Write(key(*number), None),
            Do::DeleteRange(first, length) => Effect::Clear(range(*first, *length)),
            Do::Guard(first, length) => Effect::Guard(range(*first, *length)),
        }
    }

    /// What must come of a transaction: `Ok(None)` it commits, `Ok(Some)` it
    /// waits for one of these.
    fn judge(
        &self,
        snapshot: Timestamp,
        writes: &[(NodeId, Do)],
    ) -> Result<Option<Vec<TxnId>>, (u64, &'static str)> {
        for (number, (node, write)) in writes.iter().enumerate() {
            let refuse = |why| Err((number as u64, why));
            let effect = Run::effect_of(write);
            let covered = match &effect {
                Effect::Write(key, _) => KeyRange::only(key),
                Effect::Clear(range) | Effect::Guard(range) => range.clone(),
            };
            let Some(fence) = self.fence_of(Timestamp::MAX, *node) else { return refuse("moved") };
            let within = match &effect {
                Effect::Write(key, _) => fence.contains(key),
                _ => fence.covers(&covered),
            };
            if !within {
                return refuse("moved");
            }
            let waits: Vec<TxnId> = self
                .prepared
                .iter()
                .filter(|prepared| prepared.effects.iter().any(|other| other.meets(&effect)))
                .map(|prepared| prepared.txn)
                .collect();
            if !waits.is_empty() {
                return Ok(Some(waits));
            }
            let newer = self.committed.iter().filter(|(at, _)| *at > snapshot);
            if newer.flat_map(|(_, effects)| effects).any(|other| other.meets(&effect)) {
                return refuse("conflict");
            }
            if let (Do::Put(number, _, expect) | Do::Delete(number, expect), _) = (write, ()) {
                match (expect, self.seen(Timestamp::MAX, &key(*number)).is_some()) {
                    (Expect::Absent, true) => return refuse("exists"),
                    (Expect::Present, false) => return refuse("missing"),
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    fn encode(writes: &[(NodeId, Do)]) -> Vec<u8> {
        let (mut bytes, mut last) = (Vec::new(), None);
        for (node, write) in writes {
            let (name, value);
            let write = match write {
                Do::Put(number, written, expect) => {
                    (name, value) = (key(*number), [*written]);
                    WriteOperation::Put { key: &name, value: &value, expect: *expect }
                }
                Do::Delete(number, expect) => {
                    name = key(*number);
                    WriteOperation::Delete { key: &name, expect: *expect }
                }
                Do::DeleteRange(first, length) => WriteOperation::DeleteRange(range(*first, *length)),
                Do::Guard(first, length) => WriteOperation::Guard(range(*first, *length)),
            };
            Operations::push(&mut bytes, &mut last, &Operation { node: *node, write });
        }
        bytes
    }

    /// The node for each write; those that lie across nodes are left out.
    fn address(&self, writes: &[Do], astray: bool) -> Vec<(NodeId, Do)> {
        let mut all = Vec::new();
        for write in writes {
            // Twice the same target in one transaction is the client's to put together.
            let effect = Run::effect_of(write);
            if all.iter().any(|(_, other)| Run::effect_of(other).meets(&effect)) {
                continue;
            }
            let first = match &effect {
                Effect::Write(key, _) => key.clone(),
                Effect::Clear(range) | Effect::Guard(range) => range.low.to_vec(),
            };
            let Some((node, fence)) = self.owner(Timestamp::MAX, &first) else { continue };
            let whole = match &effect {
                Effect::Write(..) => true,
                Effect::Clear(range) | Effect::Guard(range) => fence.covers(range),
            };
            let node = if astray { self.owners[0].1[&Vec::new()] } else { node };
            if whole || astray {
                all.push((node, write.clone()));
            }
        }
        all
    }

    // What comes back.

    /// Looks at a reply, or finds that there is rightly none.
    fn settle(&mut self, request: u64, asked: Asked, reply: Option<&[u8]>) {
        let reply = reply.map(|bytes| Reply::decode(bytes).unwrap());
        let low = self.engine.oldest_snapshot();
        match &asked {
            Asked::Read { snapshot, .. } | Asked::Scan { snapshot, .. } if *snapshot < low => {
                let refused =
                    matches!(reply, Some(Reply::Refused { refusal: Refusal::SnapshotTooOld { .. }, .. }));
                assert!(refused, "{asked:?} below {low}: {reply:?}");
            }
            Asked::Commit { snapshot: Some(snapshot), .. } if *snapshot < low => {
                let refused =
                    matches!(reply, Some(Reply::Refused { refusal: Refusal::SnapshotTooOld { .. }, .. }));
                assert!(refused, "{asked:?} below {low}: {reply:?}");
            }
            Asked::Read { snapshot, node, key } => {
                let fence = self.fence_of(*snapshot, *node).filter(|fence| fence.contains(key));
                let waits = self.waits_for(*snapshot, &KeyRange::only(key)).filter(|_| fence.is_some());
                let Some(reply) = reply else { return self.park(request, asked.clone(), waits) };
                assert_eq!(waits, None, "{asked:?}: {reply:?}");
                let Reply::Answers { snapshot: at, answers } = reply else { panic!("{asked:?}: {reply:?}") };
                assert_eq!(at, *snapshot);
                let value = self.seen(*snapshot, key).map(|value| [value]);
                let expected = match (&fence, &value) {
                    // Where to is a help only.
                    (None, _) => {
                        let answers: Vec<_> = answers.iter().collect();
                        assert!(matches!(answers[..], [Answer::Moved(_)]), "{asked:?}: {answers:?}");
                        return;
                    }
                    (_, None) => Answer::Absent,
                    (_, Some(value)) => Answer::Value(value),
                };
                assert_eq!(answers.iter().collect::<Vec<_>>(), [expected], "{asked:?}");
            }
            Asked::Scan { snapshot, node, scan } => {
                let fence = self.fence_of(*snapshot, *node);
                let covered = fence.as_ref().map(|fence| scan.range.intersection(fence));
                let waits = covered.as_ref().and_then(|covered| self.waits_for(*snapshot, covered));
                let Some(reply) = reply else { return self.park(request, asked.clone(), waits) };
                assert_eq!(waits, None, "{asked:?}: {reply:?}");
                let Reply::Answers { answers, .. } = reply else { panic!("{asked:?}: {reply:?}") };
                let all: Vec<_> = answers.iter().collect();
                let (Some(fence), Some(covered)) = (fence, covered) else {
                    assert_eq!(all, [Answer::Moved(None)]);
                    return;
                };
                let [Answer::Cells(cells)] = &all[..] else { panic!("{asked:?}: {all:?}") };
                assert_eq!(cells.fence, fence);
                let mut keys: Vec<Vec<u8>> = (0..KEYS).map(key).filter(|key| covered.contains(key)).collect();
                keys.sort();
                if scan.direction == Direction::Down {
                    keys.reverse();
                }
                let seen = keys.iter().filter_map(|key| Some((key.clone(), self.seen(*snapshot, key)?)));
                let seen: Vec<_> = seen.collect();
                assert_eq!(cells.more, seen.len() as u64 > scan.cells_max, "{asked:?}");
                let found: Vec<(Vec<u8>, u8)> = cells
                    .iter()
                    .map(|(key, value)| match value {
                        CellValue::Bytes([value]) => (key.to_vec(), *value),
                        other => panic!("{other:?}"),
                    })
                    .collect();
                assert_eq!(found, seen[..seen.len().min(scan.cells_max as usize)], "{asked:?}");
            }
            Asked::Commit { txn, snapshot, writes } => {
                let verdict = self.judge(snapshot.unwrap_or(Timestamp::MAX), writes);
                match (reply, verdict) {
                    (None, Ok(waits)) => self.park(request, asked.clone(), waits),
                    (Some(Reply::Committed(at)), Ok(None)) => {
                        assert!(at > self.highest, "{at} is not above {}", self.highest);
                        self.highest = at;
                        let effects = writes.iter().map(|(_, write)| Run::effect_of(write)).collect();
                        self.ended[0].push((*txn, Decision::Commit(at)));
                        self.commit_in_model(at, effects);
                    }
                    (Some(Reply::Refused { operation, refusal }), Err((number, why))) => {
                        assert_eq!(operation, Some(number), "{asked:?}: {refusal:?}");
                        assert_eq!(word(&refusal), why, "{asked:?}: {refusal:?}");
                    }
                    (reply, verdict) => panic!("{asked:?}: {reply:?}, but should {verdict:?}"),
                }
            }
        }
    }

    fn park(&mut self, request: u64, asked: Asked, waits: Option<Vec<TxnId>>) {
        let waits = waits.unwrap_or_else(|| panic!("{asked:?} waits for nobody"));
        self.parked.push((request, waits, asked));
    }

    fn ask(&mut self, request: &Request<'_>, asked: Asked) {
        let number = self.send(request);
        let replies = self.replies();
        assert!(replies.len() <= 1);
        let reply = replies.first().map(|(answered, bytes)| {
            assert_eq!(*answered, number);
            bytes.as_slice()
        });
        self.settle(number, asked, reply);
    }

    fn question(&mut self, snapshot: Timestamp, question: &Question<'_>, asked: Asked) {
        let mut bytes = Vec::new();
        question.write(&mut Writer(&mut bytes));
        let questions = Questions::decode(&bytes).unwrap();
        self.ask(&Request::Read { snapshot: Some(snapshot), seen: Timestamp::ZERO, questions }, asked);
    }

    /// Replies to what was parked: each must be right at the moment it comes.
    fn unpark(&mut self, decided: TxnId) {
        // Those who are answered did what they do in the order of the replies.
        for (request, reply) in self.replies() {
            let position = self.parked.iter().position(|(parked, ..)| *parked == request);
            let (_, _, asked) = self.parked.remove(position.expect("a reply to somebody"));
            self.settle(request, asked, Some(&reply));
        }
        for (request, mut waits, asked) in std::mem::take(&mut self.parked) {
            waits.retain(|txn| *txn != decided);
            if waits.is_empty()
                && let Asked::Commit { writes, .. } = &asked
            {
                // It was looked at in the midst of those above, some of which
                // may now be in its way; it waits if it met one that still is.
                let met = |other: &Effect| writes.iter().any(|(_, write)| Run::effect_of(write).meets(other));
                let prepared = self.prepared.iter().filter(|prepared| prepared.effects.iter().any(met));
                waits = prepared.map(|prepared| prepared.txn).collect();
            }
            if waits.is_empty() {
                self.settle(request, asked, None);
            } else {
                self.parked.push((request, waits, asked));
            }
        }
    }

    fn step(&mut self, step: &Step) {
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
                    self.owner(if number % 2 == 0 { snapshot } else { Timestamp::MAX }, &key)
                else {
                    return;
                };
                let asked = Asked::Read { snapshot, node, key: key.clone() };
                self.question(snapshot, &Question::Lookup { node, key: &key }, asked);
            }
            Step::Scan { snapshot, key: number, down, cells } => {
                let Some(snapshot) = self.pick(*snapshot) else { return };
                let Some((node, _)) = self.owner(snapshot, &key(*number)) else { return };
                let direction = if *down { Direction::Down } else { Direction::Up };
                let scan = Scan {
                    range: if number % 2 == 0 { KeyRange::all() } else { range(*number, 4) },
                    direction,
                    cells_max: *cells,
                    bytes_max: u64::MAX,
                    value_bytes_max: 100,
                    near: None,
                };
                let asked = Asked::Scan { snapshot, node, scan: scan.clone() };
                self.question(snapshot, &Question::Scan { node, scan }, asked);
            }
            Step::Commit { snapshot, writes, astray } => {
                let snapshot = match snapshot {
                    None => None,
                    Some(which) => match self.pick(*which) {
                        None => return,
                        snapshot => snapshot,
                    },
                };
                let writes = self.address(writes, *astray);
                let bytes = Run::encode(&writes);
                let operations = Operations::decode(&bytes).unwrap();
                let txn = self.txn();
                let request = Request::Commit { txn, snapshot, seen: Timestamp::ZERO, operations };
                self.ask(&request, Asked::Commit { txn, snapshot, writes });
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
                // Nobody answers: those who wait go on waiting.
                self.effects.asks.clear();
                assert!(self.replies().is_empty());
                let held = self.snapshots.iter().filter(|snapshot| **snapshot >= self.restarted_at).min();
                let low = self.engine.oldest_snapshot();
                assert!(held.is_none_or(|held| low <= *held), "{low} is above {held:?}, which is held");
            }
            Step::Checkpoint => self.take_checkpoint(),
            Step::Again { which, several } => self.again(*which, *several),
            Step::Unborn { several } => self.unborn(*several),
            Step::Restart => {
                let mut engine =
                    Engine::new(Settings { grace_ms: 100, recover_after_ms: 50, ..Settings::default() });
                let (records, lsn) = &self.checkpoint;
                for record in records {
                    engine.replay(&Record::decode(record).unwrap());
                }
                engine.restored(*lsn as u64);
                for record in &self.log[*lsn..] {
                    engine.replay(&Record::decode(record).unwrap());
                }
                engine.replayed();
                assert_eq!(engine.lsn(), self.engine.lsn());
                self.engine = engine;
                self.parked.clear();
                self.now.uptime_ms = 0;
                self.restarted_at = self.engine.oldest_snapshot();
                self.hold();
            }
        }
    }

    fn take_checkpoint(&mut self) {
        let mut records = Vec::new();
        let checkpoint = self.engine.checkpoint();
        let written: Result<(), ()> = checkpoint.write(|record| {
            records.push(record.to_vec());
            Ok(())
        });
        written.unwrap();
        self.checkpoint = (records, checkpoint.lsn() as usize);
    }

    fn hold(&mut self) {
        self.engine.hold(1, self.snapshots.iter().min().copied());
    }

    fn pick(&self, which: usize) -> Option<Timestamp> {
        self.snapshots.get(which.checked_rem(self.snapshots.len())?).copied()
    }

    fn prepare(&mut self, snapshot: usize, writes: &[Do]) {
        let Some(snapshot) = self.pick(snapshot) else { return };
        let writes = self.address(writes, false);
        let bytes = Run::encode(&writes);
        let operations = Operations::decode(&bytes).unwrap();
        let participants = Participants::encode(&[US, OTHER]);
        let participants = Participants::decode(&participants).unwrap();
        let (txn, seen) = (self.txn(), Timestamp::ZERO);
        let verdict = self.judge(snapshot, &writes);
        let too_old = snapshot < self.engine.oldest_snapshot();
        let request =
            self.send(&Request::Prepare { txn, snapshot: Some(snapshot), seen, participants, operations });
        let reply = self.one_reply(request);
        match (Reply::decode(&reply).unwrap(), verdict) {
            (Reply::Refused { refusal: Refusal::SnapshotTooOld { .. }, .. }, _) => assert!(too_old),
            (Reply::Voted(at), Ok(None)) => {
                assert!(!too_old && at > self.highest);
                self.highest = at;
                let effects = writes.iter().map(|(_, write)| Run::effect_of(write)).collect();
                self.prepared.push(PreparedTxn { txn, at, effects });
            }
            (
                Reply::Refused { refusal: Refusal::Conflict(Conflict::Prepared { by, .. }), .. },
                Ok(Some(waits)),
            ) => {
                assert!(waits.contains(&by));
            }
            (Reply::Refused { operation, refusal }, Err((number, why))) => {
                assert_eq!((operation, word(&refusal)), (Some(number), why));
            }
            (reply, verdict) => panic!("{writes:?}: {reply:?}, but should {verdict:?}"),
        }
    }

    fn decide(&mut self, which: usize, commit: bool, late: u64, recovery: bool) {
        if self.prepared.is_empty() {
            return;
        }
        let PreparedTxn { txn, at, effects } = self.prepared.remove(which % self.prepared.len());
        // The other server's vote may be for later.
        let at = Timestamp(at.0 + late);
        if recovery {
            self.engine.recover(self.now, txn, &mut self.effects);
            let ask = Ask { server: OTHER, txn };
            assert_eq!(self.effects.asks, [ask]);
            self.effects.asks.clear();
            let vote = if commit { Vote::Yes { at, participants: Participants::NONE } } else { Vote::No };
            self.engine.learn(self.now, ask, &vote, &mut self.effects);
        } else {
            let decision = if commit { Decision::Commit(at) } else { Decision::Abort };
            let request = self.send(&Request::Decide { txn, decision });
            let reply = self.effects.replies.iter().position(|reply| reply.asker.request == request).unwrap();
            self.effects.replies.remove(reply);
        }
        self.ended[1].push((txn, if commit { Decision::Commit(at) } else { Decision::Abort }));
        if commit {
            self.highest = self.highest.max(at);
            self.commit_in_model(at, effects);
        }
        self.unpark(txn);
    }

    /// Sends nothing that writes, as one who has lost the answer may.
    fn reply_to(&mut self, request: &Request<'_>) -> Vec<u8> {
        let number = self.send(request);
        self.one_reply(number)
    }

    fn again(&mut self, which: usize, several: bool) {
        let ended = &self.ended[usize::from(several)];
        let Some((txn, decision)) = which.checked_rem(ended.len()).map(|which| ended[which]) else { return };
        let (seen, operations) = (Timestamp::ZERO, Operations::NONE);
        let (question, again) = if several {
            let participants = Participants::NONE;
            let prepare = Request::Prepare { txn, snapshot: None, seen, participants, operations };
            (Request::Resolve { txn }, prepare)
        } else {
            (Request::Outcome { txn }, Request::Commit { txn, snapshot: None, seen, operations })
        };
        let reply = self.reply_to(&question);
        let expected = if several {
            Reply::Vote(Vote::Decided(decision))
        } else {
            Reply::Ended(Ended::Decided(decision))
        };
        assert_eq!(Reply::decode(&reply).unwrap(), expected);
        let reply = self.reply_to(&again);
        let reply = Reply::decode(&reply).unwrap();
        match decision {
            Decision::Commit(at) => {
                assert!([Reply::Committed(at), Reply::Voted(at)].contains(&reply), "{reply:?}")
            }
            Decision::Abort => assert!(given_up(&reply), "{reply:?}"),
        }
    }

    fn unborn(&mut self, several: bool) {
        let txn = self.txn();
        let question = if several { Request::Resolve { txn } } else { Request::Outcome { txn } };
        let reply = self.reply_to(&question);
        let no = [Reply::Vote(Vote::No), Reply::Ended(Ended::Decided(Decision::Abort))];
        assert_eq!(Reply::decode(&reply).unwrap(), no[usize::from(!several)]);
        let (seen, operations, participants) = (Timestamp::ZERO, Operations::NONE, Participants::NONE);
        let request = if several {
            Request::Prepare { txn, snapshot: None, seen, participants, operations }
        } else {
            Request::Commit { txn, snapshot: None, seen, operations }
        };
        let reply = self.reply_to(&request);
        assert!(given_up(&Reply::decode(&reply).unwrap()));
    }

    fn split(&mut self, key: &[u8], right: bool) {
        let Some((old, fence)) = self.owner(Timestamp::MAX, key) else { return };
        if *fence.low == *key {
            return;
        }
        let new = node(self.next_node);
        self.next_node += 1;
        let low = KeyRange { low: fence.low.clone(), high: Some(key.into()) };
        let high = KeyRange { low: key.into(), high: fence.high.clone() };
        let (stays, moves) = if right { (high, low) } else { (low, high) };
        let leaf = |fence: &KeyRange| NewNode { kind: NodeKind::Leaf, fence: fence.clone() };
        let operations = [
            Operation { node: new, write: WriteOperation::Create(leaf(&moves)) },
            Operation { node: old, write: WriteOperation::Move { range: moves.clone(), to: new } },
            Operation { node: old, write: WriteOperation::Reshape(leaf(&stays)) },
        ];
        let at = self.structure(&operations);
        let mut owners = self.owners.last().unwrap().1.clone();
        owners.remove(&fence.low.to_vec());
        owners.insert(stays.low.to_vec(), old);
        owners.insert(moves.low.to_vec(), new);
        self.owners.push((at, owners));
    }
}

impl Run {
    /// Everybody goes; nothing is left that nobody sees.
    fn end(&mut self) {
        while !self.prepared.is_empty() {
            self.decide(0, self.prepared.len().is_multiple_of(2), 1, false);
        }
        assert!(self.parked.is_empty());
        self.snapshots.clear();
        self.hold();
        for _ in 0..10 {
            self.step(&Step::Time { ms: 50, jump: 0 });
            self.engine.audit().unwrap();
        }
        // All that was written is below the mark now.
        let written = self.committed.iter().map(|(at, _)| *at).max().unwrap_or_default();
        assert!(self.engine.oldest_snapshot() >= written);
        assert_eq!(self.engine.undecided().count(), 0);
    }
}

fn given_up(reply: &Reply<'_>) -> bool {
    matches!(reply, Reply::Refused { refusal: Refusal::GivenUp(_), .. })
}

fn word(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Conflict(Conflict::Prepared { .. }) => "prepared",
        Refusal::Conflict(_) => "conflict",
        Refusal::Moved(_) => "moved",
        Refusal::Exists(_) => "exists",
        Refusal::Missing(_) => "missing",
        _ => "other",
    }
}

fn run(steps: &[Step]) -> Result<(), String> {
    let outcome = std::panic::catch_unwind(|| {
        let mut run = Run::new();
        for step in steps {
            run.step(step);
        }
        run.end();
    });
    outcome.map_err(|panic| match panic.downcast::<String>() {
        Ok(words) => *words,
        Err(panic) => {
            panic.downcast::<&str>().map_or_else(|_| "panicked".to_owned(), |words| (*words).to_owned())
        }
    })
}

/// Leaves out what the failure does not need.
fn shrink(mut steps: Vec<Step>) -> Vec<Step> {
    let mut piece = steps.len();
    while piece > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + piece).min(fewer.len()));
            if run(&fewer).is_err() {
                steps = fewer;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    steps
}

#[test]
fn every_seed_does_as_the_reference() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    let seeds: std::ops::Range<u64> = seeds.unwrap_or(0..10_000);
    std::panic::set_hook(Box::new(|_| {}));
    let failed = seeds.into_iter().find(|seed| run(&steps(*seed)).is_err());
    let shrunk = failed.map(|seed| shrink(steps(seed)));
    let words = shrunk.as_ref().map(|steps| run(steps).unwrap_err());
    drop(std::panic::take_hook());
    if let (Some(seed), Some(steps), Some(words)) = (failed, shrunk, words) {
        let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
        panic!("seed {seed} (SEEDS={seed}..{}): {words}\nafter\n{}", seed + 1, steps.join("\n"));
    }
}
