//! What nobody asks who follows the protocol, and what a fuzzer did ask.

use crate::{Asker, Effects, Engine, Now, Record, Settings};
use yesquel_model::{KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{
    Decision, Expect, NewNode, NodeKind, Operation, Operations, Participants, Question, Questions, Reply,
    Request, WriteOperation, Writer,
};

/// An engine, and all that it has logged.
struct Server {
    engine: Engine,
    effects: Effects,
    now: Now,
    log: Vec<Vec<u8>>,
    requests: u64,
}

const SETTINGS: fn() -> Settings = || Settings { grace_ms: 100, ..Settings::default() };

fn txn(number: u64) -> TxnId {
    TxnId { client: 7, number }
}

fn node(local: u64) -> NodeId {
    NodeId { tree: TreeId::new(1).unwrap(), server: ServerId(0), local: LocalId(local) }
}

fn new(fence: KeyRange) -> NewNode {
    NewNode { kind: NodeKind::Leaf, fence }
}

fn create(local: u64) -> Operation<'static> {
    Operation { node: node(local), write: WriteOperation::Create(new(KeyRange::all())) }
}

fn put(local: u64, key: &'static [u8]) -> Operation<'static> {
    let write = WriteOperation::Put { key, value: b"value", expect: Expect::Any };
    Operation { node: node(local), write }
}

impl Server {
    fn new() -> Server {
        let mut server = Server {
            engine: Engine::new(SETTINGS()),
            effects: Effects::default(),
            now: Now { wall_ms: 1_000, uptime_ms: 0 },
            log: Vec::new(),
            requests: 0,
        };
        server.committed(1, &[create(0)]);
        server
    }

    /// The number of the request.
    fn send(&mut self, request: &Request<'_>) -> u64 {
        let mut bytes = Vec::new();
        request.write(&mut Writer(&mut bytes));
        self.requests += 1;
        let asker = Asker { connection: 1, request: self.requests };
        self.engine.handle(self.now, asker, &bytes, &mut self.effects).unwrap();
        self.requests
    }

    /// The answers that there are since this was asked last.
    fn answers(&mut self) -> Vec<(u64, Vec<u8>)> {
        let effects = std::mem::take(&mut self.effects);
        self.log.extend(effects.records().map(<[u8]>::to_vec));
        let bytes = |reply: &crate::ReplyTo| effects.bytes[reply.bytes.clone()].to_vec();
        effects.replies.iter().map(|reply| (reply.asker.request, bytes(reply))).collect()
    }

    fn commit(&mut self, number: u64, operations: &[Operation<'_>]) -> u64 {
        let bytes = Operations::encode(operations);
        let operations = Operations::decode(&bytes).unwrap();
        let seen = Timestamp::ZERO;
        self.send(&Request::Commit { txn: txn(number), snapshot: None, seen, operations })
    }

    fn committed(&mut self, number: u64, operations: &[Operation<'_>]) {
        let request = self.commit(number, operations);
        let answers = self.answers();
        let [(to, bytes)] = &answers[..] else { panic!("{answers:?}") };
        assert!(matches!(Reply::decode(bytes), Ok(Reply::Committed(_))), "{:?}", Reply::decode(bytes));
        assert_eq!(*to, request);
        self.engine.audit().unwrap();
    }

    /// The vote.
    fn prepared(&mut self, number: u64, operations: &[Operation<'_>]) -> Timestamp {
        let bytes = Operations::encode(operations);
        let operations = Operations::decode(&bytes).unwrap();
        let (seen, participants) = (Timestamp::ZERO, Participants::NONE);
        let txn = txn(number);
        self.send(&Request::Prepare { txn, snapshot: None, seen, participants, operations });
        let answers = self.answers();
        match Reply::decode(&answers[0].1) {
            Ok(Reply::Voted(at)) => at,
            reply => panic!("{reply:?}"),
        }
    }

    fn decide(&mut self, number: u64, decision: Decision) -> Vec<(u64, Vec<u8>)> {
        self.send(&Request::Decide { txn: txn(number), decision });
        let answers = self.answers();
        assert_eq!(Reply::decode(&answers[0].1), Ok(Reply::Done));
        self.engine.audit().unwrap();
        answers
    }

    fn lookup(&mut self, local: u64, key: &[u8]) -> u64 {
        let mut bytes = Vec::new();
        Question::Lookup { node: node(local), key }.write(&mut Writer(&mut bytes));
        let questions = Questions::decode(&bytes).unwrap();
        self.send(&Request::Read { snapshot: None, seen: Timestamp::ZERO, questions })
    }
}

/// Whoever decides gets his own reply, and not the replies of those who waited.
#[test]
fn replies_are_kept_apart() {
    let mut server = Server::new();
    let at = server.prepared(2, &[put(0, b"k")]);
    let read = server.lookup(0, b"k");
    assert_eq!(server.answers(), []);
    let answers = server.decide(2, Decision::Commit(at));
    assert_eq!(answers[1].0, read);
    assert!(matches!(Reply::decode(&answers[1].1), Ok(Reply::Answers { .. })));
}

/// Nothing is decided any more when the disk has failed, so nobody may wait.
#[test]
fn whoever_would_wait_is_refused_when_the_disk_has_failed() {
    let mut server = Server::new();
    server.prepared(2, &[put(0, b"k")]);
    server.engine.freeze(server.engine.lsn(), &mut server.effects);
    let read = server.lookup(0, b"k");
    let refused = Reply::Refused { operation: None, refusal: Refusal::DiskFailed };
    let answers = server.answers();
    assert_eq!((answers.len(), answers[0].0), (1, read));
    assert_eq!(Reply::decode(&answers[0].1), Ok(refused));
}

/// A checkpoint may have more records than the log had: whoever reads its
/// nodes needs nothing that is yet to be written.
#[test]
fn what_is_in_a_checkpoint_is_on_disk() {
    let mut server = Server::new();
    server.committed(2, &[create(5), create(6), create(7), put(7, b"a")]);
    let checkpoint = server.engine.checkpoint();
    server.engine = Engine::new(SETTINGS());
    let written: Result<(), ()> = checkpoint.write(|record| {
        server.engine.replay(&Record::decode(record).unwrap());
        Ok(())
    });
    written.unwrap();
    assert!(server.engine.lsn() > checkpoint.lsn());
    server.engine.restored(checkpoint.lsn());
    server.engine.replayed();
    server.lookup(7, b"a");
    assert_eq!(server.effects.replies[0].needs_lsn, 0);
}
