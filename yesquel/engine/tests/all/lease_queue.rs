//! Lease requests wait in the order of their arrival. Each has its turn in the same step as the end
//! of the lease before it, however that ends, and no request that has its turn goes on waiting.
//!
//! `SEEDS=from..to` chooses seeds.

use std::collections::BTreeMap;
use yesquel_engine::{Caller, Effects, Engine, EngineSettings, Now};
use yesquel_model::{KeyRange, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId};
use yesquel_seeds::{Random, check_seeds};
use yesquel_wire::{
    ByteWriter, Decision, ENDS_LEASE, Expect, NewNode, NodeKind, NodeOperation, Operations, Participants,
    Reply, Request, WriteOperation,
};

/// Milliseconds for which a request keeps its place after its wait.
const KEPT_MS: u64 = 1_000;
const LONG: u64 = 30_000;

/// Reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Leased,
    Refused,
    Done,
}

struct Server {
    engine: Engine,
    now: Now,
    numbers: u64,
}

fn leaf() -> NodeId {
    NodeId::root(TreeId::new(3).unwrap(), ServerId(0))
}

fn holder(client: u64) -> TxnId {
    TxnId { client, number: 1 }
}

impl Server {
    fn new() -> Server {
        let (engine, now) = (Engine::new(EngineSettings::default()), Now { wall_ms: 1 << 40, uptime_ms: 0 });
        let mut server = Server { engine, now, numbers: 100 };
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        assert_eq!(server.commit(99, WriteOperation::Create(new), 0), [(99, Answer::Done)]);
        server
    }

    /// Sends a request on the client's connection. Returns the replies of the step, by client.
    fn send(&mut self, client: u64, request: &Request<'_>) -> Vec<(u64, Answer)> {
        let (mut bytes, mut effects) = (Vec::new(), Effects::default());
        request.write(&mut ByteWriter(&mut bytes));
        self.numbers += 1;
        let caller = Caller { connection: client, request: self.numbers };
        self.engine.handle(self.now, caller, &bytes, &mut effects).unwrap();
        replies(&effects)
    }

    fn lease(&mut self, client: u64, keys: (u8, u8), ms: u64, wait_ms: u64) -> Vec<(u64, Answer)> {
        self.lease_of(client, &[keys], ms, wait_ms)
    }

    fn lease_of(&mut self, client: u64, keys: &[(u8, u8)], ms: u64, wait_ms: u64) -> Vec<(u64, Answer)> {
        let range = |(from, to): &(u8, u8)| (leaf().tree, KeyRange::new([*from], [*to]));
        let (holder, seen) = (holder(client), Timestamp::ZERO);
        let ranges = keys.iter().map(range).collect();
        self.send(client, &Request::Lease { holder, ranges, ms, wait_ms, seen })
    }

    fn release(&mut self, client: u64) -> Vec<(u64, Answer)> {
        self.send(client, &Request::Release { holder: holder(client) })
    }

    fn commit(&mut self, client: u64, write: WriteOperation<'_>, lease: u64) -> Vec<(u64, Answer)> {
        let bytes = Operations::encode([&NodeOperation { node: leaf(), write }]);
        self.numbers += 1;
        let (txn, operations) = (TxnId { client, number: self.numbers }, Operations::decode(&bytes).unwrap());
        let birth = Timestamp::from_ms(self.now.wall_ms);
        let (snapshot, seen, staged) = (None, Timestamp::ZERO, None);
        self.send(client, &Request::Commit { txn, birth, snapshot, seen, lease, staged, operations })
    }

    /// Prepares a write of a key. Returns the transaction.
    fn prepare(&mut self, client: u64, key: u8, lease: u64) -> TxnId {
        let bytes = Operations::encode([&NodeOperation { node: leaf(), write: put(&[key]) }]);
        self.numbers += 1;
        let txn = TxnId { client, number: self.numbers };
        let operations = Operations::decode(&bytes).unwrap();
        let participants = Participants::encode(&[ServerId(0), ServerId(1)]);
        let participants = Participants::decode(&participants).unwrap();
        let (snapshot, seen, staged) = (None, Timestamp::ZERO, None);
        let birth = Timestamp::from_ms(self.now.wall_ms);
        let waits = false;
        let request =
            Request::Prepare { txn, birth, waits, snapshot, seen, participants, lease, staged, operations };
        assert_eq!(self.send(client, &request), [(client, Answer::Done)]);
        txn
    }

    fn decide(&mut self, txn: TxnId, is_committed: bool) -> Vec<(u64, Answer)> {
        let at = self.engine.clock(self.now);
        let decision = if is_committed { Decision::Commit(at) } else { Decision::Abort };
        self.send(
            txn.client,
            &Request::Decide { txn, birth: Timestamp::ZERO, participants: Participants::NONE, decision },
        )
    }

    fn after(&mut self, ms: u64) -> Vec<(u64, Answer)> {
        self.now.uptime_ms += ms;
        self.now.wall_ms += ms;
        let mut effects = Effects::default();
        self.engine.tick(self.now, &mut effects);
        replies(&effects)
    }
}

fn replies(effects: &Effects) -> Vec<(u64, Answer)> {
    let answer = |bytes: &[u8]| match Reply::decode(bytes).unwrap() {
        Reply::Leased(_) => Answer::Leased,
        Reply::Refused { refusal: Refusal::Leased { .. }, .. } => Answer::Refused,
        Reply::Done | Reply::Committed(_) | Reply::Voted(_) => Answer::Done,
        other => panic!("{other:?}"),
    };
    let reply = |reply: &yesquel_engine::AddressedReply| {
        (reply.caller.connection, answer(&effects.bytes[reply.bytes.clone()]))
    };
    effects.replies.iter().map(reply).collect()
}

fn put(key: &[u8]) -> WriteOperation<'_> {
    WriteOperation::Put { key, value: b"v", expect: Expect::Any, is_large: false }
}

#[test]
fn requests_have_their_turns_in_the_order_of_arrival() {
    let mut server = Server::new();
    assert_eq!(server.lease(1, (0, 9), LONG, 0), [(1, Answer::Leased)]);
    for client in [4, 2, 3] {
        assert_eq!(server.lease(client, (0, 9), LONG, LONG), []);
    }
    assert_eq!(server.lease(5, (0, 9), LONG, 0), [(5, Answer::Refused)]);
    assert_eq!(server.release(1), [(1, Answer::Done), (4, Answer::Leased)]);
    // The holder's renewal comes before all requests, for they wait for it.
    assert_eq!(server.lease(4, (0, 9), LONG, 0), [(4, Answer::Leased)]);
    assert_eq!(server.release(4), [(4, Answer::Done), (2, Answer::Leased)]);
    // An expiry is as good as a release.
    assert_eq!(server.after(LONG - 1), []);
    assert_eq!(server.lease(6, (0, 9), LONG, LONG), []);
    // Client 3 has waited for as long, but has its turn now.
    assert_eq!(server.after(1), [(3, Answer::Leased)]);
    assert_eq!(server.release(3), [(3, Answer::Done), (6, Answer::Leased)]);
}

/// A request that arrives after the expiry, before time has advanced by a tick, does not overtake.
#[test]
fn a_late_request_does_not_overtake_at_an_expiry() {
    let mut server = Server::new();
    assert_eq!(server.lease(1, (0, 9), 100, 0), [(1, Answer::Leased)]);
    assert_eq!(server.lease(2, (0, 9), LONG, LONG), []);
    server.now.uptime_ms += 100;
    assert_eq!(server.lease(3, (0, 9), LONG, 0), [(2, Answer::Leased), (3, Answer::Refused)]);
}

#[test]
fn requests_wait_behind_overlapping_ones_only() {
    let mut server = Server::new();
    assert_eq!(server.lease(1, (0, 2), LONG, 0), [(1, Answer::Leased)]);
    assert_eq!(server.lease(2, (1, 4), LONG, LONG), []);
    // Free, but client 2 came first: else wide ranges would starve.
    assert_eq!(server.lease(3, (3, 6), LONG, LONG), []);
    assert_eq!(server.lease(4, (3, 4), LONG, 0), [(4, Answer::Refused)]);
    assert_eq!(server.lease(5, (6, 7), LONG, LONG), [(5, Answer::Leased)]);
    // A holder does not wait behind a request that may wait for it.
    assert_eq!(server.lease(1, (2, 3), LONG, LONG), [(1, Answer::Leased)]);
    assert_eq!(server.release(1), [(1, Answer::Done), (2, Answer::Leased)]);
    assert_eq!(server.release(2), [(2, Answer::Done), (3, Answer::Leased)]);
}

#[test]
fn the_commit_of_the_holder_begins_the_next_turn() {
    let mut server = Server::new();
    let ending = ENDS_LEASE | 1;
    assert_eq!(server.lease(1, (0, 9), LONG, 0), [(1, Answer::Leased)]);
    assert_eq!(server.lease(2, (0, 9), LONG, LONG), []);
    assert_eq!(server.lease(3, (0, 9), LONG, LONG), []);
    // A commit that does not end it, and one that fails.
    assert_eq!(server.commit(1, put(&[1]), 1), [(1, Answer::Done)]);
    assert_eq!(server.commit(1, put(&[9]), ending), [(1, Answer::Done), (2, Answer::Leased)]);
    assert_eq!(server.commit(1, put(&[1]), ending), [(1, Answer::Refused)]);
    // In two phases the decision ends it. After a rollback the holder may try again.
    let txn = server.prepare(2, 1, ending);
    assert_eq!(server.decide(txn, false), [(2, Answer::Done)]);
    let txn = server.prepare(2, 1, ending);
    assert_eq!(server.decide(txn, true), [(2, Answer::Done), (3, Answer::Leased)]);
}

#[test]
fn a_connection_that_ends_leaves_no_lease_and_no_place() {
    let mut server = Server::new();
    assert_eq!(server.lease(1, (0, 9), LONG, 0), [(1, Answer::Leased)]);
    assert_eq!(server.lease(2, (0, 9), LONG, LONG), []);
    assert_eq!(server.lease(3, (0, 9), LONG, LONG), []);
    server.engine.disconnected(2);
    server.engine.disconnected(1);
    assert_eq!(server.after(1), [(3, Answer::Leased)]);
    server.engine.disconnected(3);
    // Any request serves the queue.
    assert_eq!(server.commit(4, put(&[1]), 0), [(4, Answer::Done)]);
}

#[test]
fn a_released_holder_waits_no_longer() {
    let mut server = Server::new();
    assert_eq!(server.lease(1, (0, 9), LONG, 0), [(1, Answer::Leased)]);
    assert_eq!(server.lease(2, (0, 9), LONG, LONG), []);
    assert_eq!(server.lease(3, (0, 9), LONG, LONG), []);
    assert_eq!(server.release(2), [(2, Answer::Done), (2, Answer::Refused)]);
    assert_eq!(server.release(1), [(1, Answer::Done), (3, Answer::Leased)]);
    assert_eq!(server.release(3), [(3, Answer::Done)]);
    // The same while the request waits for a vote.
    let txn = server.prepare(1, 1, 0);
    assert_eq!(server.lease(2, (0, 9), LONG, LONG), []);
    assert_eq!(server.release(2), [(2, Answer::Done), (2, Answer::Refused)]);
    assert_eq!(server.decide(txn, true), [(1, Answer::Done)]);
    assert_eq!(server.lease(3, (0, 9), LONG, 0), [(3, Answer::Leased)]);
}

#[test]
fn a_request_keeps_its_place_between_two_attempts() {
    let mut server = Server::new();
    assert_eq!(server.lease(1, (0, 9), LONG, 0), [(1, Answer::Leased)]);
    assert_eq!(server.lease(2, (0, 9), LONG, 100), []);
    assert_eq!(server.lease(3, (0, 9), LONG, LONG), []);
    assert_eq!(server.lease(4, (0, 9), LONG, LONG), []);
    assert_eq!(server.after(100), [(2, Answer::Refused)]);
    assert_eq!(server.lease(2, (0, 9), LONG, 100), []);
    assert_eq!(server.release(1), [(1, Answer::Done), (2, Answer::Leased)]);
    // It is passed over while its holder does not ask, and loses the place after a second.
    assert_eq!(server.lease(5, (0, 9), LONG, 100), []);
    assert_eq!(server.lease(6, (0, 9), LONG, LONG), []);
    assert_eq!(server.after(100), [(5, Answer::Refused)]);
    assert_eq!(server.after(KEPT_MS), []);
    assert_eq!(server.lease(5, (0, 9), LONG, LONG), []);
    for (ends, next) in [(2, 3), (3, 4), (4, 6), (6, 5)] {
        assert_eq!(server.release(ends), [(ends, Answer::Done), (next, Answer::Leased)]);
    }
}

/// Eight writers ask again as soon as they have finished. None waits for longer than the other
/// seven hold their leases.
#[test]
fn the_longest_wait_is_the_sum_of_the_holds() {
    check_seeds(300, |seed| {
        let (mut random, mut server) = (Random::new(seed), Server::new());
        let holds: Vec<u64> = (0..8).map(|_| 1 + random.next(200)).collect();
        let (mut asked_at, mut turns) = ([0; 8], [0; 8]);
        let mut holder = None;
        for client in 0..8u64 {
            for (granted, answer) in server.lease(client, (0, 9), LONG, LONG) {
                assert_eq!((granted, answer), (client, Answer::Leased));
                holder = Some(client);
            }
        }
        for _ in 0..200 {
            let client = holder.take().unwrap() as usize;
            let waited = server.now.uptime_ms - asked_at[client];
            let others: u64 = holds.iter().sum::<u64>() - holds[client];
            assert!(waited <= others, "writer {client} waited for {waited} ms, the others hold for {others}");
            turns[client] += 1;
            assert_eq!(server.after(holds[client]), []);
            for (granted, answer) in server.release(client as u64) {
                if answer == Answer::Leased {
                    holder = Some(granted);
                }
            }
            asked_at[client] = server.now.uptime_ms;
            assert_eq!(server.lease(client as u64, (0, 9), LONG, LONG), []);
        }
        assert_eq!(turns, [25; 8]);
    });
}

/// A request for several ranges has its turn when all are free, and holds none of them before.
#[test]
fn several_ranges_are_granted_at_once() {
    let mut server = Server::new();
    let (a, b) = ((0, 1), (2, 3));
    assert_eq!(server.lease(1, b, LONG, 0), [(1, Answer::Leased)]);
    assert_eq!(server.lease_of(2, &[a, b], LONG, 0), [(2, Answer::Refused)]);
    assert_eq!(server.lease_of(2, &[a, b], LONG, LONG), []);
    // In the other order; and one that wants a range of the requests before it.
    assert_eq!(server.lease_of(3, &[b, a], LONG, LONG), []);
    assert_eq!(server.lease(4, a, LONG, LONG), []);
    assert_eq!(server.release(1), [(1, Answer::Done), (2, Answer::Leased)]);
    assert_eq!(server.commit(5, put(&[0]), 0), [(5, Answer::Refused)]);
    assert_eq!(server.commit(5, put(&[2]), 0), [(5, Answer::Refused)]);
    // Renewing them changes nothing.
    assert_eq!(server.lease_of(2, &[a, b], LONG, 0), [(2, Answer::Leased)]);
    assert_eq!(server.release(2), [(2, Answer::Done), (3, Answer::Leased)]);
    assert_eq!(server.release(3), [(3, Answer::Done), (4, Answer::Leased)]);
}

/// What the queue must be, from the requests and replies alone.
#[derive(Default)]
struct Expected {
    held: BTreeMap<u64, (Vec<(u8, u8)>, u64)>,
    /// In the order of arrival, with the end of the wait.
    queue: Vec<(u64, Vec<(u8, u8)>, u64, u64)>,
}

/// Whether one of these ranges overlaps one of the others.
fn overlap(these: &[(u8, u8)], others: &[(u8, u8)]) -> bool {
    these.iter().any(|one| others.iter().any(|other| one.0 < other.1 && other.0 < one.1))
}

impl Expected {
    /// Ends what is over, and begins the turns that have come.
    fn serve(&mut self, now_ms: u64) -> Vec<(u64, Answer)> {
        self.held.retain(|_, (_, until_ms)| *until_ms > now_ms);
        let (mut replies, mut place) = (Vec::new(), 0);
        while let Some((client, keys, ms, until_ms)) = self.queue.get(place).cloned() {
            let is_held = self.held.values().any(|(held, _)| overlap(held, &keys));
            let is_behind = self.queue[..place].iter().any(|(_, before, ..)| overlap(before, &keys));
            if !is_held && !is_behind {
                self.queue.remove(place);
                self.held.insert(client, (keys, now_ms + ms));
                replies.push((client, Answer::Leased));
            } else if until_ms <= now_ms {
                self.queue.remove(place);
                replies.push((client, Answer::Refused));
            } else {
                place += 1;
            }
        }
        replies
    }
}

#[test]
fn no_request_waits_once_it_has_its_turn() {
    check_seeds(2_000, |seed| {
        let (mut random, mut server, mut expected) = (Random::new(seed), Server::new(), Expected::default());
        for _ in 0..100 {
            let client = random.next(8);
            let is_idle = !expected.held.contains_key(&client)
                && expected.queue.iter().all(|(queued, ..)| *queued != client);
            let (came, mut due) = match random.next(8) {
                0..5 if is_idle => {
                    // Ranges that one request asks for do not overlap here.
                    let (low, high) = (random.next(4) as u8, 8 + random.next(4) as u8);
                    let mut keys = vec![(low, low + 1 + random.next(4) as u8), (high, high + 1)];
                    keys.truncate(1 + random.next(2) as usize);
                    let (ms, wait_ms) = (1 + random.next(300), random.next(400));
                    // A new holder, which has no place from before.
                    let mut due = expected.serve(server.now.uptime_ms);
                    expected.queue.push((client, keys.clone(), ms, server.now.uptime_ms + wait_ms));
                    due.extend(expected.serve(server.now.uptime_ms));
                    (server.lease_of(client, &keys, ms, wait_ms), due)
                }
                5 => {
                    server.engine.disconnected(client);
                    expected.held.remove(&client);
                    expected.queue.retain(|(queued, ..)| *queued != client);
                    (server.after(0), expected.serve(server.now.uptime_ms))
                }
                6 => {
                    expected.held.remove(&client);
                    let is_queued = expected.queue.iter().any(|(queued, ..)| *queued == client);
                    expected.queue.retain(|(queued, ..)| *queued != client);
                    let mut due = vec![(client, Answer::Done)];
                    due.extend(is_queued.then_some((client, Answer::Refused)));
                    due.extend(expected.serve(server.now.uptime_ms));
                    (server.release(client), due)
                }
                _ => {
                    let ms = random.next(100);
                    (server.after(ms), expected.serve(server.now.uptime_ms))
                }
            };
            due.sort_by_key(|(client, _)| *client);
            let mut came = came;
            came.sort_by_key(|(client, _)| *client);
            assert_eq!(came, due);
            // Kept places have a test of their own.
            for (client, answer) in came {
                if answer == Answer::Refused {
                    let _ = server.release(client);
                }
            }
        }
    });
}
