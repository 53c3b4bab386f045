//! Recovery of prepared transactions: a server asks the other participants by the age of the
//! transaction, for a request that waits, and when the client's connection has ended.

use yesquel_engine::{Caller, Effects, Engine, EngineSettings, Now, VoteQuery};
use yesquel_model::{KeyRange, NodeId, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{
    ByteWriter, Decision, Expect, HorizonReport, NewNode, NodeKind, NodeOperation, Operations, Participants,
    Question, Questions, Reply, Request, Vote, WriteOperation,
    status::{RecoveryCounts, RecoveryStatus},
};

const CLIENT: u64 = 7;
const CONNECTION: u64 = 3;
const TXN: TxnId = TxnId { client: CLIENT, number: 2 };

struct Server {
    engine: Engine,
    uptime_ms: u64,
    requests: u64,
}

fn root() -> NodeId {
    NodeId::root(TreeId::new(1).unwrap(), ServerId(0))
}

impl Server {
    /// A server that has prepared a transaction of two servers, without a reader.
    fn in_doubt() -> Server {
        let engine = Engine::new(EngineSettings::default());
        let mut server = Server { engine, uptime_ms: 0, requests: 0 };
        let (snapshot, seen) = (None, Timestamp::ZERO);
        let (birth, lease, staged) = (Timestamp::from_ms(server.now().wall_ms), 0, None);
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        let create =
            Operations::encode(&[NodeOperation { node: root(), write: WriteOperation::Create(new) }]);
        let operations = Operations::decode(&create).unwrap();
        let txn = TxnId { number: 1, ..TXN };
        server.ask(&Request::Commit { txn, birth, snapshot, seen, lease, staged, operations });
        server.prepare(TXN, b"k");
        assert_eq!(server.engine.undecided().collect::<Vec<_>>(), [TXN]);
        server
    }

    /// Prepares a write of a key, at this server and another one.
    fn prepare(&mut self, txn: TxnId, key: &[u8]) {
        let put = WriteOperation::Put { key, value: b"v", is_large: false, expect: Expect::Any };
        let put = Operations::encode(&[NodeOperation { node: root(), write: put }]);
        let participants = Participants::encode(&[ServerId(0), ServerId(1)]);
        self.ask(&Request::Prepare {
            txn,
            birth: Timestamp::from_ms(self.now().wall_ms),
            waits: false,
            snapshot: None,
            seen: Timestamp::ZERO,
            participants: Participants::decode(&participants).unwrap(),
            lease: 0,
            staged: None,
            operations: Operations::decode(&put).unwrap(),
        });
    }

    fn now(&self) -> Now {
        Now { wall_ms: 1_700_000_000_000 + self.uptime_ms, uptime_ms: self.uptime_ms }
    }

    fn ask(&mut self, request: &Request<'_>) {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        self.requests += 1;
        let caller = Caller { connection: CONNECTION, request: self.requests };
        let mut effects = Effects::default();
        self.engine.handle(self.now(), caller, &bytes, &mut effects).unwrap();
        assert!(effects.vote_queries.is_empty());
    }

    fn recoveries(&mut self) -> RecoveryStatus {
        let now = self.now();
        self.engine.status(now).commit_protocol.recoveries
    }

    /// A reader that waits for the transaction.
    fn read(&mut self) {
        let mut bytes = Vec::new();
        Question::Lookup { node: root(), key: b"k" }.write(&mut ByteWriter(&mut bytes));
        let questions = Questions::decode(&bytes).unwrap();
        self.ask(&Request::Read { snapshot: None, seen: Timestamp::ZERO, questions });
    }

    /// Times of the questions to the other server until a time, with ticks of 50 ms.
    fn queries_until(&mut self, until_ms: u64) -> Vec<u64> {
        let mut times = Vec::new();
        while self.uptime_ms < until_ms {
            self.uptime_ms += 50;
            let mut effects = Effects::default();
            self.engine.tick(self.now(), &mut effects);
            for query in effects.vote_queries {
                assert_eq!((query.server, query.txn), (ServerId(1), TXN));
                times.push(self.uptime_ms);
            }
        }
        times
    }
}

#[test]
fn a_transaction_that_nothing_waits_for_is_recovered_by_its_age() {
    let mut server = Server::in_doubt();
    let times = server.queries_until(30_000);
    assert_eq!(times[0], 2_000);
    // Pauses of 0.5, 1, 2 and then 4 seconds, a quarter more or less, in ticks.
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, wanted) in pauses.iter().zip([500, 1_000, 2_000, 4_000, 4_000, 4_000]) {
        assert!((wanted * 3 / 4..=wanted * 5 / 4 + 50).contains(pause), "{pauses:?}");
    }
    assert!(pauses.len() >= 8, "{times:?}");
    let counts = server.recoveries();
    assert_eq!([counts.waiter, counts.connection, counts.age].map(|counts| counts.started), [0, 0, 1]);
}

#[test]
fn requests_that_wait_hasten_one_attempt() {
    let mut server = Server::in_doubt();
    server.queries_until(100);
    for _ in 0..20 {
        server.read();
    }
    assert_eq!(server.queries_until(800), [600]);
    // The first cause counts.
    server.engine.disconnected(CONNECTION);
    server.queries_until(5_000);
    let counts = server.recoveries();
    assert_eq!([counts.waiter, counts.connection, counts.age].map(|counts| counts.started), [1, 0, 0]);
}

#[test]
fn the_end_of_the_clients_connection_starts_an_attempt() {
    let mut server = Server::in_doubt();
    server.engine.disconnected(CONNECTION + 1);
    assert_eq!(server.queries_until(500), []);
    server.engine.disconnected(CONNECTION);
    assert_eq!(server.queries_until(600), [550]);
    let counts = server.recoveries();
    assert_eq!([counts.waiter, counts.connection, counts.age].map(|counts| counts.started), [0, 1, 0]);
}

/// Who asks for the present gets a clock above the commits of all that had voted before.
#[test]
fn the_present_is_after_the_ends_of_what_has_voted() {
    let mut server = Server::in_doubt();
    let mut bytes = Vec::new();
    let caller = Caller { connection: CONNECTION + 1, request: 1 };
    let mut effects = Effects::default();
    // If all participants are asked, the largest clock suffices.
    let both = Participants::encode(&[ServerId(0), ServerId(1)]);
    let (asked, seen) = (Participants::decode(&both).unwrap(), Timestamp::ZERO);
    Request::Present { asked, seen, votes_until: None }.write(&mut ByteWriter(&mut bytes));
    server.engine.handle(server.now(), caller, &bytes, &mut effects).unwrap();
    assert_eq!(effects.replies.len(), 1);
    let one = Participants::encode(&[ServerId(0)]);
    let request = Request::Present { asked: Participants::decode(&one).unwrap(), seen, votes_until: None };
    bytes.clear();
    request.write(&mut ByteWriter(&mut bytes));
    let mut effects = Effects::default();
    server.engine.handle(server.now(), caller, &bytes, &mut effects).unwrap();
    assert!(effects.replies.is_empty(), "a transaction is in doubt");
    // It waits, so that recovery begins soon.
    assert_eq!(server.queries_until(550), [500]);
    // What votes now is not waited for.
    let birth = Timestamp::from_ms(server.now().wall_ms);
    server.prepare(TxnId { number: 9, ..TXN }, b"other");
    let at = Timestamp::from_ms(server.now().wall_ms + 300);
    let decide =
        Request::Decide { txn: TXN, birth, participants: Participants::NONE, decision: Decision::Commit(at) };
    let (mut bytes, mut effects) = (Vec::new(), Effects::default());
    decide.write(&mut ByteWriter(&mut bytes));
    let other = Caller { connection: CONNECTION, request: 99 };
    server.engine.handle(server.now(), other, &bytes, &mut effects).unwrap();
    let reply = effects.replies.iter().find(|reply| reply.caller == caller).expect("a reply");
    match Reply::decode(&effects.bytes[reply.bytes.clone()]) {
        Ok(Reply::Present(clock)) => assert!(clock >= at, "{clock:?} is before the commit at {at:?}"),
        reply => panic!("{reply:?}"),
    }
    assert_eq!(server.engine.undecided().count(), 1);
}

/// Pauses grow while a server cannot be reached. When it has returned, its first report ends them.
#[test]
fn a_participant_that_returns_is_asked_at_once() {
    let mut server = Server::in_doubt();
    let before = server.queries_until(12_000);
    let last = before[before.len() - 1];
    assert!((400..3_000).contains(&(12_000 - last)), "{before:?}");
    server.engine.on_report(ServerId(2), HorizonReport::default());
    assert_eq!(server.queries_until(12_050), [], "the report of another server");
    server.engine.on_report(ServerId(1), HorizonReport::default());
    assert_eq!(server.queries_until(12_100), [12_100]);
    // The question or its answer is lost: the next report repeats it, not each one.
    let mut after = Vec::new();
    for until_ms in (12_200..14_000).step_by(100) {
        server.engine.on_report(ServerId(1), HorizonReport::default());
        after.extend(server.queries_until(until_ms));
    }
    assert_eq!(after, [12_500, 12_900, 13_300, 13_700]);
    assert_eq!(server.queries_until(14_150), [14_100]);
    // It has forgotten the transaction, and cannot help.
    let mut effects = Effects::default();
    let participants = [ServerId(0), ServerId(1)].into();
    let birth = Timestamp::from_ms(1_700_000_000_000);
    let query = VoteQuery { server: ServerId(1), txn: TXN, birth, participants };
    server.engine.on_vote(server.now(), &query, &Vote::Forgotten, &mut effects);
    server.engine.on_report(ServerId(1), HorizonReport::default());
    assert_eq!(server.queries_until(15_000), []);
}

/// The age of a transaction in doubt, and who ends it, are counted.
#[test]
fn ages_and_ends_are_counted() {
    let mut server = Server::in_doubt();
    let ages = |server: &mut Server| {
        let now = server.now();
        let by_age = server.engine.status(now).commit_protocol.undecided_by_age;
        let place = by_age.iter().position(|bucket| bucket.count == 1);
        (place.map(|place| by_age[place].up_to), by_age.iter().map(|bucket| bucket.count).sum::<u64>())
    };
    assert_eq!(ages(&mut server), (Some(500), 1));
    server.queries_until(1_950);
    assert_eq!(ages(&mut server), (Some(2_000), 1));
    server.queries_until(70_000);
    assert_eq!(ages(&mut server), (Some(u64::MAX), 1));
    let birth = Timestamp::from_ms(server.now().wall_ms);
    let (participants, decision) = (Participants::NONE, Decision::Abort);
    server.ask(&Request::Decide { txn: TXN, birth, participants, decision });
    assert_eq!(ages(&mut server), (None, 0));
    let age = RecoveryCounts { started: 1, by_client: 1, ..RecoveryCounts::default() };
    assert_eq!(server.recoveries(), RecoveryStatus { age, ..RecoveryStatus::default() });
    // Another one, that recovery ends.
    let mut server = Server::in_doubt();
    server.engine.disconnected(CONNECTION);
    let (mut effects, now) = (Effects::default(), server.now());
    server.engine.tick(now, &mut effects);
    let query = effects.vote_queries.pop().unwrap();
    server.engine.on_vote(now, &query, &Vote::No, &mut effects);
    let connection = RecoveryCounts { started: 1, aborted: 1, ..RecoveryCounts::default() };
    assert_eq!(server.recoveries(), RecoveryStatus { connection, ..RecoveryStatus::default() });
}

/// A vote that is not on disk may be lost with the server, which then votes no: another participant
/// would abort what was read here as committed.
#[test]
fn recovery_counts_the_own_vote_when_it_is_on_disk() {
    let mut server = Server::in_doubt();
    server.engine.note_synced(server.engine.lsn() - 1);
    server.engine.disconnected(CONNECTION);
    let attempt = |server: &mut Server, until_ms| {
        let mut effects = Effects::default();
        let query = loop {
            let now = server.now();
            server.engine.tick(now, &mut effects);
            match effects.vote_queries.pop() {
                Some(query) => break query,
                None => assert!(server.uptime_ms < until_ms, "no attempt before {until_ms} ms"),
            }
            server.uptime_ms += 50;
        };
        let vote = Vote::Yes { at: Timestamp::from_ms(1), participants: Participants::NONE };
        server.engine.on_vote(server.now(), &query, &vote, &mut effects);
        server.engine.undecided().count()
    };
    assert_eq!(attempt(&mut server, 5_000), 1);
    server.engine.note_synced(server.engine.lsn());
    // The next attempt need not ask any more.
    let (mut effects, until_ms) = (Effects::default(), server.uptime_ms + 10_000);
    while server.engine.undecided().count() > 0 {
        assert!(server.uptime_ms < until_ms);
        server.uptime_ms += 50;
        let now = server.now();
        server.engine.tick(now, &mut effects);
    }
    assert_eq!(server.recoveries().connection.committed, 1);
}
