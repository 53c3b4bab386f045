//! Timestamps over restarts: they never decrease, servers that shut down cleanly continue where
//! they stopped, and servers that crash advance by no more than other servers tolerate.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use yesquel_engine::{Caller, Effects, Engine, EngineSettings, Now};
use yesquel_model::{
    KeyRange, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId,
    limits::{CLOCK_AHEAD_MS_MAX, CLOCK_HELD_MS_MAX},
};
use yesquel_seeds::{Random, check_seeds};
use yesquel_wire::{
    ByteWriter, Expect, NewNode, NodeKind, NodeOperation, Operations, Question, Questions, Reply, Request,
    WriteOperation,
};

/// A server with its log; records are durable at once.
struct Server {
    engine: Engine,
    effects: Effects,
    log: Vec<Vec<u8>>,
    checkpoint: common::Written,
    now: Now,
    asked: u64,
    /// The highest timestamp that it has issued.
    highest: Timestamp,
}

fn root() -> NodeId {
    NodeId::root(TreeId::new(1).unwrap(), ServerId(0))
}

impl Server {
    fn new() -> Server {
        let mut server = Server {
            engine: Engine::new(EngineSettings::default()),
            effects: Effects::default(),
            log: Vec::new(),
            checkpoint: (Vec::new(), 0),
            now: Now { wall_ms: 100_000_000, uptime_ms: 0 },
            asked: 0,
            highest: Timestamp::ZERO,
        };
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        server.commit(WriteOperation::Create(new));
        server
    }

    fn keep(&mut self) {
        self.log.extend(self.effects.records().map(<[u8]>::to_vec));
        self.effects.clear();
    }

    fn ask(&mut self, request: &Request<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        self.asked += 1;
        let caller = Caller { connection: 1, request: self.asked };
        self.engine.handle(self.now, caller, &bytes, &mut self.effects).unwrap();
        let reply = self.effects.bytes[self.effects.replies[0].bytes.clone()].to_vec();
        self.keep();
        reply
    }

    /// Takes a snapshot; no earlier commit has a higher timestamp.
    fn read(&mut self) {
        let mut bytes = Vec::new();
        Question::Lookup { node: root(), key: b"key" }.write(&mut ByteWriter(&mut bytes));
        let questions = Questions::decode(&bytes).unwrap();
        let reply = self.ask(&Request::Read { snapshot: None, seen: Timestamp::ZERO, questions });
        let Ok(Reply::Answers { snapshot, .. }) = Reply::decode(&reply) else { panic!() };
        assert!(snapshot >= self.highest, "{snapshot} after {}", self.highest);
        self.highest = snapshot;
    }

    /// A commit is above every earlier snapshot.
    fn commit(&mut self, write: WriteOperation<'_>) {
        let bytes = Operations::encode(&[NodeOperation { node: root(), write }]);
        let (txn, operations) =
            (TxnId { client: 1, number: self.asked + 1 }, Operations::decode(&bytes).unwrap());
        let (seen, birth) = (Timestamp::ZERO, Timestamp::from_ms(self.now.wall_ms));
        let reply = self.ask(&Request::Commit {
            txn,
            birth,
            snapshot: None,
            seen,
            lease: 0,
            staged: None,
            operations,
        });
        let Ok(Reply::Committed(at)) = Reply::decode(&reply) else { panic!("{:?}", Reply::decode(&reply)) };
        assert!(at > self.highest, "{at} after {}", self.highest);
        self.highest = at;
    }

    fn put(&mut self) {
        self.commit(WriteOperation::Put {
            key: b"key",
            value: b"value",
            expect: Expect::Any,
            is_large: false,
        });
    }

    fn pass(&mut self, ms: u64) {
        self.now.wall_ms += ms;
        self.now.uptime_ms += ms;
        self.engine.tick(self.now, &mut self.effects);
        self.keep();
    }

    fn take_checkpoint(&mut self) {
        self.checkpoint = common::write(&mut self.engine.checkpoint());
    }

    /// Restarts from the log. Returns how long it waited.
    fn start(&mut self) -> u64 {
        self.engine = common::start(EngineSettings::default(), &self.checkpoint, &self.log);
        self.now.uptime_ms = 0;
        let waited = self.engine.wait_ms(self.now);
        self.now.wall_ms += waited;
        waited
    }

    fn end(&mut self) {
        self.engine.end(&mut self.effects);
        self.keep();
    }

    fn ahead_ms(&mut self) -> u64 {
        self.engine.clock(self.now).ms() - self.now.wall_ms
    }
}

#[test]
fn a_hundred_clean_restarts_keep_the_clock() {
    for checkpoints in [false, true] {
        let mut server = Server::new();
        for _ in 0..100 {
            server.put();
            server.read();
            if checkpoints {
                // Its ceiling is above the one of the shutdown.
                server.take_checkpoint();
            }
            server.end();
            assert_eq!(server.start(), 0, "no wait");
            assert_eq!(server.ahead_ms(), 0);
            server.put();
            server.pass(10);
        }
    }
}

/// Each crash may advance the clock by the tolerance, and takes less than a second.
#[test]
fn a_hundred_crashes_keep_the_clock_within_the_tolerance() {
    let (mut server, mut waited) = (Server::new(), 0);
    for crash in 0..100 {
        server.put();
        server.read();
        server.take_checkpoint();
        waited = server.start().max(waited);
        assert!(server.ahead_ms() <= CLOCK_AHEAD_MS_MAX, "after {crash} crashes");
    }
    assert!(waited <= 1_000, "{waited} ms");
    // An occasional crash costs hardly any wait.
    server.pass(10_000);
    server.read();
    assert!(server.start() <= 500);
    server.put();
}

/// A clock set back by an hour: the server does not wait for it, and issues no timestamp twice.
#[test]
fn a_server_does_not_wait_for_a_clock_that_was_set_back() {
    let mut server = Server::new();
    server.put();
    server.now.wall_ms -= 3_600_000;
    assert_eq!(server.start(), 0);
    server.put();
    server.end();
    assert_eq!(server.start(), 0);
    server.read();
    server.put();
}

#[test]
fn an_ended_engine_refuses_commits_and_writes_no_record() {
    let mut server = Server::new();
    server.put();
    server.end();
    let records = server.log.len();
    let (seen, bytes) = (Timestamp::ZERO, Operations::encode(&[]));
    let (txn, operations) = (TxnId { client: 1, number: 9 }, Operations::decode(&bytes).unwrap());
    let reply = server.ask(&Request::Commit {
        txn,
        birth: seen,
        snapshot: None,
        seen,
        lease: 0,
        staged: None,
        operations,
    });
    assert!(matches!(Reply::decode(&reply), Ok(Reply::Refused { .. })));
    server.pass(10_000);
    server.end();
    assert_eq!(server.log.len(), records, "no record after the end");
}

/// The cost: two records a second under constant reads; without, the horizon once a minute.
#[test]
fn records_of_clock_ceilings_are_few() {
    let mut server = Server::new();
    let before = server.log.len();
    for _ in 0..10_000 {
        server.pass(1);
        server.read();
    }
    let records = server.log.len() - before;
    assert!((15..=20).contains(&records), "{records} in ten seconds");
    server.pass(60_000);
    let horizons = server.log.len() - before - records;
    assert!(horizons <= 1, "{horizons}");
}

/// For any sequence of events, timestamps never go back.
#[test]
fn timestamps_never_decrease_for_any_seed() {
    check_seeds(1_000, |seed| {
        let (mut random, mut server) = (Random::new(seed), Server::new());
        for _ in 0..100 {
            match random.next(9) {
                0..=1 => server.put(),
                2..=3 => server.read(),
                4 => server.pass(random.next(1_500)),
                5 => server.take_checkpoint(),
                6 => server.now.wall_ms -= random.next(2_000),
                7 => {
                    server.end();
                    if random.next(2) > 0 {
                        server.take_checkpoint();
                    }
                    server.start();
                }
                _ => drop(server.start()),
            }
        }
    });
}

impl Server {
    /// Reads with a timestamp so far ahead of physical time. Returns the reply, unless the request
    /// is held.
    fn read_ahead(&mut self, ahead_ms: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        Question::Lookup { node: root(), key: b"key" }.write(&mut ByteWriter(&mut bytes));
        let questions = Questions::decode(&bytes).unwrap();
        let seen = Timestamp::from_ms(self.now.wall_ms + ahead_ms);
        let mut bytes = Vec::new();
        Request::Read { snapshot: None, seen, questions }.write(&mut ByteWriter(&mut bytes));
        let caller = Caller { connection: 1, request: 1 };
        self.engine.handle(self.now, caller, &bytes, &mut self.effects).unwrap();
        self.take_reply()
    }

    fn take_reply(&mut self) -> Option<Vec<u8>> {
        let reply = self.effects.replies.first();
        let reply = reply.map(|reply| self.effects.bytes[reply.bytes.clone()].to_vec());
        self.keep();
        reply
    }

    /// Lets time pass in ticks of 50 ms until a held request is answered. Returns the time.
    fn wait_for_reply(&mut self) -> u64 {
        for ticks in 1..100 {
            self.now.wall_ms += 50;
            self.now.uptime_ms += 50;
            self.engine.tick(self.now, &mut self.effects);
            if self.take_reply().is_some() {
                return ticks * 50;
            }
        }
        panic!("the request is held for ever");
    }
}

#[test]
fn requests_a_little_too_far_ahead_are_held_until_they_fit() {
    let mut server = Server::new();
    assert!(server.read_ahead(CLOCK_AHEAD_MS_MAX).is_some());
    let mut server = Server::new();
    assert_eq!(server.read_ahead(900), None);
    assert_eq!(server.wait_for_reply(), 400);
    // The clock did not move further than the timestamp.
    assert!(server.ahead_ms() <= CLOCK_AHEAD_MS_MAX);
    // Beyond a second it is refused at once, with the server's time.
    let reply = server.read_ahead(CLOCK_HELD_MS_MAX + 1).unwrap();
    let Ok(Reply::Refused { refusal: Refusal::TooFarAhead(ahead), .. }) = Reply::decode(&reply) else {
        panic!("{:?}", Reply::decode(&reply))
    };
    assert_eq!(ahead.ours, Timestamp::from_ms(server.now.wall_ms));
    // A held request ends with its connection.
    assert_eq!(server.read_ahead(900), None);
    server.engine.disconnected(1);
    server.pass(2_000);
    assert_eq!(server.take_reply(), None);
}

#[test]
fn repeated_timestamps_ahead_do_not_drag_the_clock_away() {
    let mut server = Server::new();
    for _ in 0..50 {
        let ahead = server.ahead_ms();
        server.read_ahead(ahead + CLOCK_AHEAD_MS_MAX - 1);
        server.keep();
        assert!(server.ahead_ms() <= CLOCK_AHEAD_MS_MAX, "{} ms", server.ahead_ms());
    }
}
