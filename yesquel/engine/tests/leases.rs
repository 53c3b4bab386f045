//! Leases: a holder's commits never conflict within its lease, no other client writes in its range,
//! and every lease ends.
//!
//! Random transactions, leases and votes, compared with a list of the holders and their deadlines.
//! `SEEDS=from..to` chooses seeds.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::BTreeMap;
use yesquel_engine::{Caller, Effects, Engine, EngineSettings, Now};
use yesquel_model::{KeyRange, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId};
use yesquel_seeds::{Random, check_seeds};
use yesquel_wire::{
    ByteWriter, Decision, Expect, NewNode, NodeKind, NodeOperation, Operations, Participants, Question,
    Questions, Reply, Request, WriteOperation,
};

const CLIENTS: u64 = 4;

struct Held {
    range: KeyRange,
    until_ms: u64,
    /// A snapshot taken during the lease; all commits of others in the range are older.
    snapshot: Option<Timestamp>,
}

struct World {
    engine: Engine,
    effects: Effects,
    now: Now,
    requests: u64,
    numbers: u64,
    /// By client; each leases under the number 1.
    held: BTreeMap<u64, Held>,
    /// Lease requests that wait for votes.
    waiting: BTreeMap<u64, (u64, KeyRange, u64)>,
    voted: Vec<(TxnId, KeyRange)>,
    counts: Counts,
}

#[derive(Default, Debug)]
struct Counts {
    leased: u64,
    waited: u64,
    refused: u64,
    within: u64,
    expired: u64,
}

fn leaf() -> NodeId {
    NodeId::root(TreeId::new(3).unwrap(), ServerId(0))
}

fn range(random: &mut Random) -> KeyRange {
    let low = random.next(8) as u8;
    let high = low + 1 + random.next(3) as u8;
    KeyRange::new([low], [high])
}

impl World {
    fn send(&mut self, request: &Request<'_>) -> u64 {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        self.requests += 1;
        let caller = Caller { connection: 1, request: self.requests };
        self.engine.handle(self.now, caller, &bytes, &mut self.effects).unwrap();
        self.requests
    }

    /// The answer to a request, if there is one; waiting requests are recorded.
    fn answer(&mut self, request: u64) -> Option<Result<Timestamp, Refusal>> {
        let effects = std::mem::take(&mut self.effects);
        let mut own = None;
        for reply in &effects.replies {
            let said = match Reply::decode(&effects.bytes[reply.bytes.clone()]).unwrap() {
                Reply::Leased(at) | Reply::Committed(at) | Reply::Voted(at) => Ok(at),
                Reply::Answers { snapshot, .. } => Ok(snapshot),
                Reply::Done => Ok(Timestamp::ZERO),
                Reply::Refused { refusal, .. } => Err(refusal),
                other => panic!("{other:?}"),
            };
            if reply.caller.request == request {
                own = Some(said);
            } else if let Some((client, _)) =
                self.waiting.iter().find(|(_, (number, ..))| *number == reply.caller.request)
            {
                let client = *client;
                let (_, range, ms) = self.waiting.remove(&client).unwrap();
                match said {
                    // The lease starts now.
                    Ok(_) => {
                        let until_ms = self.now.uptime_ms + ms;
                        self.held.insert(client, Held { range, until_ms, snapshot: None });
                    }
                    // It had waited for too long.
                    Err(refusal) => assert!(matches!(refusal, Refusal::Leased { .. }), "{refusal:?}"),
                }
            }
        }
        own
    }

    /// The other holder of part of a range.
    fn holder(&self, range: &KeyRange, but: u64) -> Option<u64> {
        let mut held = self.held.iter().filter(|(_, held)| held.until_ms > self.now.uptime_ms);
        held.find(|(client, held)| **client != but && held.range.overlaps(range)).map(|(client, _)| *client)
    }

    /// Whether another client waits for part of a range, and may hold it meanwhile.
    fn is_awaited(&self, range: &KeyRange, but: u64) -> bool {
        self.waiting.iter().any(|(client, (_, own, _))| *client != but && own.overlaps(range))
    }

    fn lease(&mut self, random: &mut Random, client: u64) {
        if self.waiting.contains_key(&client) || self.held.contains_key(&client) {
            return;
        }
        let (range, ms) = (range(random), 1 + random.next(200));
        let holder = TxnId { client, number: 1 };
        let (ranges, seen) = (vec![(leaf().tree, range.clone())], Timestamp::ZERO);
        let request = self.send(&Request::Lease { holder, ranges, ms, wait_ms: 0, seen });
        let other = self.holder(&range, client);
        let until_ms = self.now.uptime_ms + ms;
        match self.answer(request) {
            Some(Ok(_)) => {
                assert_eq!(other, None);
                assert!(
                    !self.voted.iter().any(|(_, voted)| voted.overlaps(&range)),
                    "somebody has voted there"
                );
                self.counts.leased += 1;
                self.held.insert(client, Held { range, until_ms, snapshot: None });
            }
            Some(Err(Refusal::Leased { ms })) => {
                assert!(
                    other.is_some() || self.is_awaited(&range, client),
                    "nobody holds anything there: {range:?} {:?} {:?} {} {ms}",
                    self.held.iter().map(|(c, h)| (*c, h.range.clone(), h.until_ms)).collect::<Vec<_>>(),
                    self.waiting,
                    self.now.uptime_ms
                );
                let until_ms = other.map_or(0, |other| self.held[&other].until_ms);
                assert!(ms > 0 && self.now.uptime_ms + ms >= until_ms, "{ms}");
                self.counts.refused += 1;
            }
            None => {
                assert!(
                    self.voted.iter().any(|(_, voted)| voted.overlaps(&range)),
                    "it waits without a prepared transaction"
                );
                self.counts.waited += 1;
                self.waiting.insert(client, (request, range, ms));
            }
            other => panic!("{other:?}"),
        }
    }

    /// A write or a guard, in one phase or two.
    fn write(&mut self, random: &mut Random, client: u64) {
        let own = self.held.get(&client).filter(|held| held.until_ms > self.now.uptime_ms);
        // Usually within the own lease.
        let range = match own {
            Some(held) if random.next(4) > 0 => KeyRange::single(&held.range.low),
            _ => range(random),
        };
        let is_within = own.is_some_and(|held| held.range.covers(&range));
        let snapshot = own.and_then(|held| held.snapshot).filter(|_| is_within);
        let write = match random.next(3) {
            0 => WriteOperation::Put {
                key: &range.low.clone(),
                value: b"v",
                expect: Expect::Any,
                is_large: false,
            }
            .into_owned_bytes(),
            1 => WriteOperation::DeleteRange(range.clone()).into_owned_bytes(),
            _ => WriteOperation::Guard(range.clone()).into_owned_bytes(),
        };
        let operations = Operations::decode(&write).unwrap();
        let touched =
            if operations.iter().any(|operation| matches!(operation.write, WriteOperation::Put { .. })) {
                KeyRange::single(&range.low)
            } else {
                range
            };
        self.numbers += 1;
        let txn = TxnId { client, number: self.numbers };
        let (seen, lease, staged) = (Timestamp::ZERO, u64::from(is_within), None);
        let birth = Timestamp::from_ms(self.now.wall_ms);
        let in_two = random.next(3) == 0;
        let request = if in_two {
            let participants = Participants::encode(&[ServerId(0), ServerId(1)]);
            let participants = Participants::decode(&participants).unwrap();
            self.send(&Request::Prepare {
                txn,
                birth,
                waits: false,
                snapshot,
                seen,
                participants,
                lease,
                staged,
                operations,
            })
        } else {
            self.send(&Request::Commit { txn, birth, snapshot, seen, lease, staged, operations })
        };
        let by = if is_within { client } else { u64::MAX };
        let other = self.holder(&touched, by);
        match self.answer(request) {
            Some(Ok(_)) => {
                assert_eq!(other, None, "a write of {client} in {touched:?}");
                if is_within {
                    self.counts.within += 1;
                    // The client's next write must not lose to this one.
                    self.held.get_mut(&client).unwrap().snapshot = None;
                }
                if in_two {
                    self.voted.push((txn, touched));
                }
            }
            Some(Err(Refusal::Leased { .. })) => {
                assert!(other.is_some() || self.is_awaited(&touched, by), "no lease in this range");
                self.counts.refused += 1;
            }
            // It has lost, or waits for a vote.
            lost => {
                let by_own_vote = self.voted.iter().any(|(_, voted)| voted.overlaps(&touched));
                assert!(!is_within || by_own_vote, "{lost:?} within a lease");
                if lost.is_none() {
                    // No request waits any more.
                    self.engine.disconnected(1);
                    self.waiting.clear();
                    self.release_all();
                }
            }
        }
    }

    fn release_all(&mut self) {
        for client in 0..CLIENTS {
            let request = self.send(&Request::Release { holder: TxnId { client, number: 1 } });
            assert!(self.answer(request).is_some());
        }
        self.held.clear();
    }

    fn step(&mut self, random: &mut Random) {
        let client = random.next(CLIENTS);
        match random.next(12) {
            0..3 => self.lease(random, client),
            3..8 => self.write(random, client),
            8 => {
                let mut asked = Vec::new();
                Question::Lookup { node: leaf(), key: b"x" }.write(&mut ByteWriter(&mut asked));
                let questions = Questions::decode(&asked).unwrap();
                let read = Request::Read { snapshot: None, seen: Timestamp::ZERO, questions };
                let request = self.send(&read);
                if let (Some(Ok(at)), Some(held)) = (self.answer(request), self.held.get_mut(&client)) {
                    held.snapshot = Some(at);
                }
            }
            9 if !self.voted.is_empty() => {
                let at = random.next(self.voted.len() as u64) as usize;
                let (txn, _) = self.voted.swap_remove(at);
                let decision = if random.next(2) == 0 {
                    Decision::Commit(self.engine.clock(self.now))
                } else {
                    Decision::Abort
                };
                let (birth, participants) = (Timestamp::ZERO, Participants::NONE);
                let request = self.send(&Request::Decide { txn, birth, participants, decision });
                assert!(self.answer(request).is_some());
                // A client with a lease there has voted itself.
                self.held.values_mut().for_each(|held| held.snapshot = None);
            }
            10 if random.next(2) == 0 => {
                let request = self.send(&Request::Release { holder: TxnId { client, number: 1 } });
                assert!(self.answer(request).is_some());
                self.held.remove(&client);
            }
            _ => {
                let step = random.next(60);
                self.now.uptime_ms += step;
                // The wall clock jumps, and ends no lease.
                self.now.wall_ms = self.now.wall_ms.saturating_add(step) - random.next(20);
                let now_ms = self.now.uptime_ms;
                let before = self.held.len();
                self.held.retain(|_, held| held.until_ms > now_ms);
                self.counts.expired += (before - self.held.len()) as u64;
            }
        }
    }
}

/// One operation on the leaf, encoded.
trait IntoBytes {
    fn into_owned_bytes(self) -> Vec<u8>;
}

impl IntoBytes for WriteOperation<'_> {
    fn into_owned_bytes(self) -> Vec<u8> {
        Operations::encode([&NodeOperation { node: leaf(), write: self }])
    }
}

fn run(seed: u64) -> Counts {
    let mut random = Random::new(seed);
    let mut world = World {
        engine: Engine::new(EngineSettings::default()),
        effects: Effects::default(),
        now: Now { wall_ms: 1 << 40, uptime_ms: 0 },
        requests: 0,
        numbers: 100,
        held: BTreeMap::new(),
        waiting: BTreeMap::new(),
        voted: Vec::new(),
        counts: Counts::default(),
    };
    let made = WriteOperation::Create(NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() });
    let made = made.into_owned_bytes();
    let (txn, operations) = (TxnId { client: 9, number: 1 }, Operations::decode(&made).unwrap());
    let (seen, staged) = (Timestamp::ZERO, None);
    let request =
        world.send(&Request::Commit { txn, birth: seen, snapshot: None, seen, lease: 0, staged, operations });
    assert!(matches!(world.answer(request), Some(Ok(_))));
    for _ in 0..random.next(200) {
        world.step(&mut random);
    }
    world.engine.audit().unwrap();
    world.counts
}

#[test]
fn a_lease_holder_never_conflicts_within_its_lease() {
    check_seeds(3_000, |seed| {
        run(seed);
    });
    // Every case occurs.
    let mut all = Counts::default();
    for seed in 0..300 {
        let Counts { leased, waited, refused, within, expired } = run(seed);
        all.leased += leased;
        all.waited += waited;
        all.refused += refused;
        all.within += within;
        all.expired += expired;
    }
    let Counts { leased, waited, refused, within, expired } = all;
    assert!([leased, waited, refused, within, expired].iter().all(|count| *count > 50), "{all:?}");
}
