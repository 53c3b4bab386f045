//! What a client has read at a snapshot stays true of it, under every durability and whatever a crash
//! has lost: the snapshot shows the same, or it is refused.

use crate::support::{Group, node};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use yesquel_model::{Refusal, Timestamp};
use yesquel_node::Durability;
use yesquel_seeds::{Random, check_steps};
use yesquel_wire::{Answer, ByteWriter, Expect, Question, Questions, Reply, Request, WriteOperation};

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

/// A client's transaction: what it has read.
#[derive(Debug, Default)]
struct OpenTransaction {
    snapshot: Option<Timestamp>,
    values: BTreeMap<u64, Option<u64>>,
}

struct Clients {
    group: Group,
    transactions: Vec<OpenTransaction>,
    /// The highest timestamp that they know.
    given: Timestamp,
    /// Transactions that were refused because of a restart.
    refused: u64,
}

impl Clients {
    fn new() -> Clients {
        let transactions = (0..CLIENTS).map(|_| OpenTransaction::default()).collect();
        Clients { group: Group::new(), transactions, given: Timestamp::ZERO, refused: 0 }
    }

    /// Reads a key in a client's transaction; returns whether its snapshot is served.
    fn read(&mut self, client: u64, key: u64) -> bool {
        let mut questions = Vec::new();
        Question::Lookup { node: node(), key: &[key as u8] }.write(&mut ByteWriter(&mut questions));
        let questions = Questions::decode(&questions).unwrap();
        let (snapshot, seen) = (self.transactions[client as usize].snapshot, self.given);
        let reply = self.group.ask(&Request::Read { snapshot, seen, questions });
        let transaction = &mut self.transactions[client as usize];
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

    /// Writes a key and commits a client's transaction.
    fn commit(&mut self, client: u64, key: u64) {
        let keys: Vec<u64> = self.transactions[client as usize].values.keys().copied().collect();
        let is_served = keys.into_iter().all(|key| self.read(client, key));
        let snapshot = std::mem::take(&mut self.transactions[client as usize]).snapshot;
        let value = (self.group.requests + 1).to_le_bytes();
        let (key, expect) = (&[key as u8][..], Expect::Any);
        let write = WriteOperation::Put { key, value: &value, expect, is_large: false };
        let outcome = self.group.commit(snapshot, self.given, write);
        assert!(is_served || outcome.is_err(), "committed at a snapshot that is not served");
        self.refused += u64::from(!is_served);
        if let Ok(at) = outcome {
            assert!(at > self.given, "a commit at {at}, after {} was given out", self.given);
            self.given = at;
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read { client, key } => {
                if !self.read(client, key) {
                    self.refused += 1;
                    self.transactions[client as usize] = OpenTransaction::default();
                }
            }
            Step::Commit { client, key } => self.commit(client, key),
            Step::Write => self.group.write(),
            Step::Checkpoint => self.group.checkpoint(),
            Step::Tick { ms } => self.group.tick(ms),
            Step::Crash { power, durability } => self.group.crash(power, DURABILITIES[durability]),
            Step::Stop { durability } => self.group.stop(DURABILITIES[durability]),
        }
    }
}

#[test]
fn a_snapshot_shows_the_same_after_a_restart_or_is_refused() {
    let (runs, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    check_steps(200, steps, |steps: &[Step]| {
        let mut clients = Clients::new();
        steps.iter().for_each(|step| clients.step(step));
        runs.fetch_add(1, Relaxed);
        refused.fetch_add(clients.refused, Relaxed);
    });
    let (runs, refused) = (runs.into_inner(), refused.into_inner());
    println!("{runs} runs, {refused} snapshots refused");
    assert!(runs < 200 || refused > 200, "{refused} snapshots refused");
}

/// A crash that loses nothing refuses nothing, whatever the durability after it.
#[test]
fn snapshots_outlive_a_crash_of_a_server_that_syncs() {
    for durability in DURABILITIES {
        let mut clients = Clients::new();
        assert!(clients.read(0, 0));
        clients.group.crash(Some(7), durability);
        assert!(clients.read(0, 0), "{durability:?}");
        assert_eq!(clients.refused, 0);
    }
}
