//! What a client has read at a snapshot stays true of it, under every durability and whatever a crash
//! has lost: the snapshot shows the same, or it is refused.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use yesquel_engine::{Caller, EngineSettings, Now};
use yesquel_log::LogIdentity;
use yesquel_model::{KeyRange, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId};
use yesquel_node::{Durability, GroupCore, GroupLog, LogOptions, LogSizes, ReplySink, open_group};
use yesquel_seeds::{Random, check_steps};
use yesquel_simulation::disk::SimulatedDisk;
use yesquel_wire::{
    Answer, ByteWriter, Expect, NewNode, NodeKind, NodeOperation, Operations, Question, Questions, Reply,
    Request, WriteOperation,
};

const CLIENTS: u64 = 3;
const KEYS: u64 = 3;
const DURABILITIES: [Durability; 3] = [Durability::Sync, Durability::Interval(100), Durability::None];

#[derive(Debug, Clone)]
enum Step {
    Read {
        client: u64,
        key: u64,
    },
    /// Writes a key and commits.
    Commit {
        client: u64,
        key: u64,
    },
    /// Writes what the group has logged, and syncs it if its durability says so.
    Write,
    Checkpoint,
    Tick {
        ms: u64,
    },
    /// The process ends, perhaps because the power goes; it starts again with another durability.
    Crash {
        power: Option<u64>,
        durability: usize,
    },
    /// It ends in order.
    Stop {
        durability: usize,
    },
}

fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let step = |_| {
        let (client, key) = (random.next(CLIENTS), random.next(KEYS));
        let durability = random.next(3) as usize;
        match random.next(20) {
            0..8 => Step::Read { client, key },
            8..13 => Step::Commit { client, key },
            13..15 => Step::Write,
            15 => Step::Checkpoint,
            16..18 => Step::Tick { ms: random.next(700) },
            18 => Step::Crash { power: (random.next(3) > 0).then_some(random.next(1 << 32)), durability },
            _ => Step::Stop { durability },
        }
    };
    (0..120).map(step).collect()
}

#[derive(Default)]
struct Replies(RefCell<BTreeMap<u64, Vec<u8>>>);

impl ReplySink for Replies {
    fn deliver(&self, caller: Caller, reply: &[u8]) {
        self.0.borrow_mut().insert(caller.request, reply.to_vec());
    }
}

/// A client's transaction: what it has read.
#[derive(Debug, Default)]
struct OpenTransaction {
    snapshot: Option<Timestamp>,
    values: BTreeMap<u64, Option<u64>>,
}

struct Group {
    disk: SimulatedDisk,
    core: GroupCore,
    log: GroupLog<SimulatedDisk>,
    replies: Replies,
    now: Now,
    requests: u64,
    clients: Vec<OpenTransaction>,
    /// The highest timestamp that clients know.
    given: Timestamp,
    /// Transactions that were refused because of a restart.
    refused: u64,
}

fn node() -> NodeId {
    NodeId::root(TreeId::new(1).unwrap(), ServerId(0))
}

fn start(disk: &SimulatedDisk, durability: usize) -> (GroupCore, GroupLog<SimulatedDisk>) {
    let settings = EngineSettings { return_ms: 10_000, ..EngineSettings::default() };
    let options = LogOptions { durability: DURABILITIES[durability], ..LogOptions::default() };
    let sizes = LogSizes { segment_bytes_max: 4 << 10, preallocated_bytes: 0 };
    let opened = open_group(disk.clone(), LogIdentity::default(), settings, options, sizes).unwrap();
    (opened.core, opened.log)
}

impl Group {
    fn new() -> Group {
        let disk = SimulatedDisk::new();
        let (core, log) = start(&disk, 0);
        let mut group = Group {
            disk,
            core,
            log,
            replies: Replies::default(),
            now: Now { wall_ms: 10_000_000, uptime_ms: 0 },
            requests: 0,
            clients: (0..CLIENTS).map(|_| OpenTransaction::default()).collect(),
            given: Timestamp::ZERO,
            refused: 0,
        };
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        assert!(group.commit(None, WriteOperation::Create(new)).is_ok());
        group
    }

    fn restart(&mut self, durability: usize) {
        (self.core, self.log) = start(&self.disk, durability);
        // The clock runs on; a start takes some milliseconds, and waits as a server does.
        self.now = Now { wall_ms: self.now.wall_ms + 2, uptime_ms: 0 };
        self.now.wall_ms += self.core.engine().wait_ms(self.now);
    }

    fn write(&mut self) {
        self.log.take(&mut self.core);
        self.log.append().unwrap();
        if self.log.must_sync(false) {
            self.log.sync().unwrap();
        }
        self.log.release(&mut self.core, &self.replies);
    }

    /// Sends a request, and waits for the answer.
    fn ask(&mut self, request: &Request<'_>) -> Vec<u8> {
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        request.write(&mut ByteWriter(&mut bytes));
        if self.core.peek(self.now, &bytes, &mut reply) {
            return reply;
        }
        self.requests += 1;
        let caller = Caller { connection: 1, request: self.requests };
        self.core.handle(self.now, caller, &bytes, None, &self.replies).unwrap();
        for _ in 0..2_000 {
            if let Some(reply) = self.replies.0.borrow_mut().remove(&self.requests) {
                return reply;
            }
            self.write();
            self.step(&Step::Tick { ms: 1 });
        }
        panic!("no answer to {request:?}");
    }

    fn commit(
        &mut self,
        snapshot: Option<Timestamp>,
        write: WriteOperation<'_>,
    ) -> Result<Timestamp, Refusal> {
        let operations = Operations::encode(&[NodeOperation { node: node(), write }]);
        let operations = Operations::decode(&operations).unwrap();
        let txn = TxnId { client: 1, number: self.requests + 1 };
        let (birth, seen) = (Timestamp::from_ms(self.now.wall_ms), self.given);
        let request = Request::Commit { txn, birth, snapshot, seen, lease: 0, staged: None, operations };
        match Reply::decode(&self.ask(&request)).unwrap() {
            Reply::Committed(at) => {
                assert!(at > self.given, "a commit at {at}, after {} was given out", self.given);
                self.given = at;
                Ok(at)
            }
            Reply::Refused { refusal, .. } => Err(refusal),
            reply => panic!("{reply:?}"),
        }
    }

    /// Reads a key in a client's transaction; returns whether its snapshot is served.
    fn read(&mut self, client: u64, key: u64) -> bool {
        let mut questions = Vec::new();
        Question::Lookup { node: node(), key: &[key as u8] }.write(&mut ByteWriter(&mut questions));
        let questions = Questions::decode(&questions).unwrap();
        let (snapshot, seen) = (self.clients[client as usize].snapshot, self.given);
        let reply = self.ask(&Request::Read { snapshot, seen, questions });
        let transaction = &mut self.clients[client as usize];
        match Reply::decode(&reply).unwrap() {
            Reply::Answers { snapshot, answers } => {
                let value = match answers.iter().next().unwrap() {
                    Answer::Absent => None,
                    Answer::Value(value) => Some(u64::from_le_bytes(value.try_into().unwrap())),
                    answer => panic!("{answer:?}"),
                };
                transaction.snapshot = Some(snapshot);
                self.given = self.given.max(snapshot);
                let before = *transaction.values.entry(key).or_insert(value);
                assert_eq!(value, before, "key {key} at {snapshot}: it has changed");
                true
            }
            Reply::Refused { refusal: Refusal::SnapshotTooOld { .. }, .. } => false,
            reply => panic!("{reply:?}"),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read { client, key } => {
                if !self.read(client, key) {
                    self.refused += 1;
                    self.clients[client as usize] = OpenTransaction::default();
                }
            }
            Step::Commit { client, key } => {
                let keys: Vec<u64> = self.clients[client as usize].values.keys().copied().collect();
                let is_served = keys.into_iter().all(|key| self.read(client, key));
                let snapshot = std::mem::take(&mut self.clients[client as usize]).snapshot;
                let value = (self.requests + 1).to_le_bytes();
                let (key, expect) = (&[key as u8][..], Expect::Any);
                let write = WriteOperation::Put { key, value: &value, expect, is_large: false };
                let outcome = self.commit(snapshot, write);
                assert!(is_served || outcome.is_err(), "committed at a snapshot that is not served");
                self.refused += u64::from(!is_served);
            }
            Step::Write => self.write(),
            Step::Checkpoint => {
                self.write();
                let written = self.log.begin_checkpoint(&self.core).write();
                let core = &mut self.core;
                self.log.end_checkpoint(Some(written), self.now, core, &self.replies).unwrap();
            }
            Step::Tick { ms } => {
                self.now.wall_ms += ms;
                self.now.uptime_ms += ms;
                self.core.tick(self.now, &self.replies);
            }
            Step::Crash { power, durability } => {
                if let Some(seed) = power {
                    self.disk.crash(&mut Random::new(seed));
                }
                self.restart(durability);
            }
            Step::Stop { durability } => {
                self.core.end(&self.replies);
                self.write();
                self.log.sync().unwrap();
                self.log.end().unwrap();
                self.restart(durability);
            }
        }
    }
}

#[test]
fn a_snapshot_shows_the_same_after_a_restart_or_is_refused() {
    let (runs, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    check_steps(200, steps, |steps: &[Step]| {
        let mut group = Group::new();
        steps.iter().for_each(|step| group.step(step));
        runs.fetch_add(1, Relaxed);
        refused.fetch_add(group.refused, Relaxed);
    });
    let (runs, refused) = (runs.into_inner(), refused.into_inner());
    println!("{runs} runs, {refused} snapshots refused");
    assert!(runs < 200 || refused > 200, "{refused} snapshots refused");
}

/// A crash that loses nothing refuses nothing, whatever the durability after it.
#[test]
fn snapshots_outlive_a_crash_of_a_server_that_syncs() {
    for durability in 0..DURABILITIES.len() {
        let mut group = Group::new();
        assert!(group.read(0, 0));
        group.step(&Step::Crash { power: Some(7), durability });
        assert!(group.read(0, 0), "{:?}", DURABILITIES[durability]);
        assert_eq!(group.refused, 0);
    }
}
