//! What nobody asks who follows the protocol, and what a fuzzer did ask.

use crate::{Asker, Effects, Engine, Now, Record, Settings};
use yesquel_model::{Conflict, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{
    Answer, Decision, Expect, Large, NewNode, NodeKind, Operation, Operations, Participants, Question,
    Questions, Reply, Request, WriteOperation, Writer,
};

/// An engine, and all that it has logged.
struct Server {
    engine: Engine,
    effects: Effects,
    now: Now,
    log: Vec<Vec<u8>>,
    requests: u64,
    /// What whoever reads has seen.
    seen: Timestamp,
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
    let write = WriteOperation::Put { key, value: b"value", expect: Expect::Any, is_large: false };
    Operation { node: node(local), write }
}

/// Everything of a node goes to another one that is made; it keeps keys from
/// `z` on.
fn move_all(from: u64, to: u64) -> [Operation<'static>; 3] {
    let (low, high) = (KeyRange { low: [].into(), high: Some((*b"z").into()) }, KeyRange::from(*b"z"));
    [
        Operation { node: node(to), write: WriteOperation::Create(new(low.clone())) },
        Operation { node: node(from), write: WriteOperation::Move { range: low, to: node(to) } },
        Operation { node: node(from), write: WriteOperation::Reshape(new(high)) },
    ]
}

fn of(local: u64, write: WriteOperation<'static>) -> Operation<'static> {
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
            seen: Timestamp::ZERO,
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
        self.send(&Request::Commit {
            txn: txn(number),
            snapshot: None,
            seen,
            lease: 0,
            staged: None,
            operations,
        })
    }

    fn refused(&mut self, number: u64, operations: &[Operation<'_>]) -> Refusal {
        let request = self.commit(number, operations);
        let answers = self.answers();
        assert_eq!(answers.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [request]);
        match Reply::decode(&answers[0].1) {
            Ok(Reply::Refused { refusal, .. }) => refusal,
            reply => panic!("{reply:?}"),
        }
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
        self.send(&Request::Prepare {
            txn,
            snapshot: None,
            seen,
            participants,
            lease: 0,
            staged: None,
            operations,
        });
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
        self.lookup_at(None, local, key)
    }

    fn lookup_at(&mut self, snapshot: Option<Timestamp>, local: u64, key: &[u8]) -> u64 {
        let mut bytes = Vec::new();
        Question::Lookup { node: node(local), key }.write(&mut Writer(&mut bytes));
        let questions = Questions::decode(&bytes).unwrap();
        self.send(&Request::Read { snapshot, seen: self.seen, questions })
    }

    /// Everything so far is below the mark, and collected.
    fn time_passes(&mut self) {
        for _ in 0..4 {
            self.now.uptime_ms += 60;
            self.now.wall_ms += 60;
            self.engine.tick(self.now, &mut self.effects);
            self.engine.audit().unwrap();
        }
    }

    /// An engine that does the log again has the same nodes.
    fn comes_back(&self) {
        let mut engine = Engine::new(SETTINGS());
        self.log.iter().for_each(|record| engine.replay(&Record::decode(record).unwrap()));
        engine.replayed();
        engine.audit().unwrap();
        let nodes = |engine: &Engine| {
            let mut all = Vec::new();
            let written: Result<(), ()> = engine.checkpoint().write(|record| {
                if let Record::Commit { operations, .. } = Record::decode(record).unwrap() {
                    all.push(operations.bytes().to_vec());
                }
                Ok(())
            });
            written.unwrap();
            all.sort();
            all
        };
        assert_eq!(nodes(&engine), nodes(&self.engine));
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
    server.engine.freeze(server.engine.lsn(), None, &mut server.effects);
    let read = server.lookup(0, b"k");
    let refused = Reply::Refused { operation: None, refusal: Refusal::DiskFailed };
    let answers = server.answers();
    assert_eq!((answers.len(), answers[0].0), (1, read));
    assert_eq!(Reply::decode(&answers[0].1), Ok(refused));
}

/// What was acknowledged in the same node is there, and what was not is not,
/// however long the server lives on.
#[test]
fn a_node_of_which_something_is_lost_is_read_as_it_was() {
    let mut server = Server::new();
    server.committed(2, &[put(0, b"a")]);
    let synced = server.engine.lsn();
    server.committed(3, &[of(0, WriteOperation::Delete { key: b"a", expect: Expect::Any }), put(0, b"b")]);
    let lost = match Record::decode(&server.log[synced as usize]) {
        Ok(Record::Commit { at, .. }) => at,
        record => panic!("{record:?}"),
    };
    server.engine.freeze(synced, Some(lost), &mut server.effects);
    for _ in 0..3 {
        for (key, is_there) in [(&b"a"[..], true), (b"b", false)] {
            let read = server.lookup(0, key);
            let needed: Vec<u64> = server.effects.replies.iter().map(|reply| reply.needs_lsn).collect();
            assert!(needed.iter().all(|needs| *needs <= synced), "{needed:?}");
            let answers = server.answers();
            assert_eq!(answers[0].0, read);
            let Ok(Reply::Answers { answers, .. }) = Reply::decode(&answers[0].1) else { panic!() };
            let answer = answers.iter().next().unwrap();
            assert_eq!(matches!(answer, yesquel_wire::Answer::Value(_)), is_there, "{answer:?}");
        }
        server.now.uptime_ms += 100_000;
        server.now.wall_ms += 100_000;
        server.engine.tick(server.now, &mut server.effects);
    }
}

/// A piece of a long value may go at any time: it is no other kind of node
/// later on.
#[test]
fn a_piece_stays_one() {
    let mut server = Server::new();
    let piece = NewNode { kind: NodeKind::Value, fence: KeyRange::all() };
    server.committed(2, &[of(5, WriteOperation::Create(piece))]);
    let refused = server.refused(3, &[of(5, WriteOperation::Reshape(new(KeyRange::all())))]);
    assert_eq!(refused, Refusal::Unfit(node(5)));
}

#[test]
fn a_node_is_made_once() {
    let mut server = Server::new();
    let at = server.prepared(2, &[create(5), put(5, b"a")]);
    let waits = server.commit(3, &[create(5)]);
    // Also one who takes the other's number.
    let posing = server.commit(2, &[create(5)]);
    assert_eq!(server.answers(), []);
    let answers = server.decide(2, Decision::Commit(at));
    let exists = Reply::Refused { operation: Some(0), refusal: Conflict::Node { node: node(5) }.into() };
    for (number, request) in [(1, waits), (2, posing)] {
        assert_eq!((answers[number].0, Reply::decode(&answers[number].1)), (request, Ok(exists)));
    }
    server.comes_back();
}

#[test]
fn a_node_may_come_again() {
    let mut server = Server::new();
    server.committed(2, &[create(5), put(5, b"a")]);
    server.committed(3, &[of(5, WriteOperation::Drop)]);
    server.time_passes();
    server.committed(4, &[create(5), put(5, b"b")]);
    server.comes_back();
    server.time_passes();
}

#[test]
fn a_tree_may_come_again() {
    let mut server = Server::new();
    server.committed(2, &[put(0, b"a"), create(5), put(5, b"a"), put(5, b"b")]);
    // There is something to collect of it when it goes.
    server.committed(3, &[put(5, b"b"), of(0, WriteOperation::DropTree)]);
    server.time_passes();
    server.committed(4, &[create(0), put(0, b"b"), create(5), put(5, b"c")]);
    server.committed(5, &[put(5, b"c"), put(0, b"b")]);
    server.comes_back();
    server.committed(6, &[of(0, WriteOperation::DropTree)]);
    server.time_passes();
    server.prepared(7, &[create(0), of(0, WriteOperation::DropTree)]);
    server.comes_back();
    server.decide(7, Decision::Abort);
    server.comes_back();
    server.time_passes();
}

/// A checkpoint may have more records than the log had: whoever reads its
/// nodes needs nothing that is yet to be written.
#[test]
fn what_is_in_a_checkpoint_is_on_disk() {
    let mut server = Server::new();
    server.committed(2, &[create(5), create(6), create(7), put(7, b"a")]);
    let mut checkpoint = server.engine.checkpoint();
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

/// A fence that shrinks leaves nothing behind, and what has moved is not
/// written any more.
#[test]
fn cells_do_not_get_lost_in_a_split() {
    let mut server = Server::new();
    server.committed(2, &[put(0, b"a"), put(0, b"x")]);
    let shrunk = of(0, WriteOperation::Reshape(new(KeyRange::from(*b"k"))));
    assert_eq!(server.refused(3, std::slice::from_ref(&shrunk)), Refusal::Unfit(node(0)));
    let inner = NewNode { kind: NodeKind::Inner, fence: KeyRange::all() };
    assert_eq!(server.refused(4, &[of(0, WriteOperation::Reshape(inner))]), Refusal::Unfit(node(0)));
    let [create, moves, reshapes] = move_all(0, 5);
    let late = [create.clone(), moves.clone(), put(0, b"a"), reshapes.clone()];
    assert_eq!(server.refused(5, &late), Refusal::Moved(node(0)));
    server.committed(6, &[create, moves, reshapes]);
    server.time_passes();
    server.comes_back();
}

#[test]
fn a_cell_may_move_to_where_one_is() {
    let mut server = Server::new();
    server.committed(2, &[put(0, b"a")]);
    let [create, moves, reshapes] = move_all(0, 5);
    server.committed(3, &[create, put(5, b"a"), put(5, b"b"), moves, reshapes]);
    server.time_passes();
    server.comes_back();
}

/// What was prepared before a split and is decided for a time after it is the
/// new node's alone, also where it is decided first.
#[test]
fn a_split_may_be_decided_late() {
    let mut server = Server::new();
    server.committed(2, &[put(0, b"a")]);
    server.prepared(3, &[put(0, b"a"), put(0, b"b")]);
    let split = server.prepared(4, &move_all(0, 5));
    server.decide(3, Decision::Commit(Timestamp(split.0 + 5)));
    server.decide(4, Decision::Commit(split));
    server.time_passes();
    server.comes_back();
}

/// Whoever comes to a node that is about to be made waits, as for a cell.
#[test]
fn a_node_that_is_about_to_be_made_is_waited_for() {
    let mut server = Server::new();
    let vote = server.prepared(2, &[create(9), put(9, b"a")]);
    let read = server.lookup(9, b"a");
    let wrote = server.commit(3, &[put(9, b"b")]);
    assert_eq!(server.answers(), []);
    let answers = server.decide(2, Decision::Commit(vote));
    let reply = |to: u64| {
        let (_, bytes) = answers.iter().find(|(request, _)| *request == to).unwrap();
        Reply::decode(bytes).unwrap()
    };
    let Reply::Answers { answers, .. } = reply(read) else { panic!() };
    assert_eq!(answers.iter().next(), Some(Answer::Value(b"value")));
    assert!(matches!(reply(wrote), Reply::Committed(_)));
    // Who reads below the vote does not wait: it is not there for him.
    server.prepared(4, &[create(10)]);
    let before = Timestamp(vote.0 - 1);
    server.lookup_at(Some(before), 10, b"a");
    assert_eq!(server.answers().len(), 1);
}

/// A server whose disk has failed gives no snapshot that lacks what the client
/// has seen at another one.
#[test]
fn a_frozen_server_does_not_go_back_behind_its_client() {
    let mut server = Server::new();
    server.engine.freeze(0, None, &mut Effects::default());
    server.lookup(0, b"a");
    let answers = server.answers();
    let Ok(Reply::Answers { snapshot, .. }) = Reply::decode(&answers[0].1) else { panic!() };
    server.seen = Timestamp(snapshot.0 + 1);
    server.lookup(0, b"a");
    let answers = server.answers();
    let refused = Reply::Refused { operation: None, refusal: Refusal::DiskFailed };
    assert_eq!(Reply::decode(&answers[0].1), Ok(refused));
}

/// A long value in one piece, and the cell that names it.
fn long_value(local: u64, piece: u64, key: &'static [u8], cell: &[u8]) -> [Operation<'static>; 3] {
    let value: &'static [u8] = cell.to_vec().leak();
    let expect = Expect::Any;
    let new = NewNode { kind: NodeKind::Value, fence: KeyRange::all() };
    let stored = WriteOperation::Put { key: &[0; 4], value: b"piece", expect, is_large: false };
    let names = WriteOperation::Put { key, value, expect, is_large: true };
    [of(piece, WriteOperation::Create(new)), of(piece, stored), of(local, names)]
}

fn large(piece: u64) -> Vec<u8> {
    Large { length: 40_000, server: ServerId(0), first: LocalId(piece) }.encode()
}

/// A root keeps its name and all keys when it grows: what it has of moved
/// cells are copies all the same.
#[test]
fn the_long_values_of_a_root_stay_when_it_grows() {
    let mut server = Server::new();
    server.committed(2, &long_value(0, 100, b"a", &large(100)));
    let grow = |kind: NodeKind, fence: KeyRange| NewNode { kind, fence };
    let (low, high) = (KeyRange { low: [].into(), high: Some((*b"k").into()) }, KeyRange::from(*b"k"));
    server.committed(
        3,
        &[
            of(5, WriteOperation::Create(grow(NodeKind::Leaf, low.clone()))),
            of(6, WriteOperation::Create(grow(NodeKind::Leaf, high.clone()))),
            of(0, WriteOperation::Move { range: low, to: node(5) }),
            of(0, WriteOperation::Move { range: high, to: node(6) }),
            of(0, WriteOperation::Reshape(grow(NodeKind::Inner, KeyRange::all()))),
            of(0, WriteOperation::Link { key: b"", child: node(5) }),
            of(0, WriteOperation::Link { key: b"k", child: node(6) }),
        ],
    );
    server.time_passes();
    assert!(server.engine.store.get(node(100)).is_some());
    // It goes with the cell.
    server.committed(4, &[of(5, WriteOperation::Delete { key: b"a", expect: Expect::Any })]);
    server.time_passes();
    assert!(server.engine.store.get(node(100)).is_none());
}

/// A checkpoint has the pieces of long values that older versions name, and
/// not those versions.
#[test]
fn pieces_that_nothing_names_go_after_a_checkpoint() {
    let mut server = Server::new();
    server.committed(2, &long_value(0, 100, b"a", &large(100)));
    server.committed(3, &long_value(0, 101, b"a", &large(101)));
    let mut checkpoint = server.engine.checkpoint();
    server.engine = Engine::new(SETTINGS());
    let written: Result<(), ()> = checkpoint.write(|record| {
        server.engine.replay(&Record::decode(record).unwrap());
        Ok(())
    });
    written.unwrap();
    server.engine.restored(checkpoint.lsn());
    server.engine.replayed();
    server.engine.audit().unwrap();
    let pieces = [100, 101].map(|piece| server.engine.store.get(node(piece)).is_some());
    assert_eq!(pieces, [false, true]);
}

/// Others may have been told by now what there was before the vote.
#[test]
fn nothing_commits_before_its_vote() {
    let mut server = Server::new();
    let early = server.prepared(2, &[put(0, b"a")]);
    server.decide(2, Decision::Abort);
    server.committed(3, &[of(0, WriteOperation::Delete { key: b"a", expect: Expect::Any })]);
    let vote = server.prepared(4, &[put(0, b"a")]);
    server.decide(4, Decision::Commit(early));
    let Ok(Record::Decide { decision, .. }) = Record::decode(&server.log[server.log.len() - 1]) else {
        panic!()
    };
    assert_eq!(decision, Decision::Commit(vote));
}

/// A move that is not decided is in the way of another one: it is not taken
/// along.
#[test]
fn a_prepared_move_does_not_move() {
    let mut server = Server::new();
    let [create, moves, _] = move_all(0, 5);
    let at = server.prepared(2, &[create, moves]);
    server.commit(3, &move_all(0, 6));
    assert_eq!(server.answers(), []);
    let answers = server.decide(2, Decision::Commit(at));
    assert!(matches!(Reply::decode(&answers[1].1), Ok(Reply::Committed(_))));
    server.committed(4, &[put(6, b"a")]);
    server.comes_back();
}

#[test]
fn numbers_that_do_not_fit_are_refused_and_change_nothing() {
    let mut server = Server::new();
    let take = |server: &mut Server, node: NodeId, count: u64, above: u64| {
        server.send(&Request::Take { node, count, above });
        let answers = server.answers();
        match Reply::decode(&answers[0].1) {
            Ok(Reply::Taken(first)) => Ok(first),
            Ok(Reply::Refused { refusal, .. }) => Err(refusal),
            reply => panic!("{reply:?}"),
        }
    };
    let root = node(0);
    assert_eq!(take(&mut server, root, 2, 0), Ok(1));
    let logged = server.log.len();
    for (count, above) in [(u64::MAX, 0), (u64::MAX - 2, 0), (1, u64::MAX), (1, u64::MAX - 1), (0, u64::MAX)]
    {
        assert_eq!(take(&mut server, root, count, above), Err(Refusal::Unfit(root)), "{count} above {above}");
    }
    assert_eq!(server.log.len(), logged);
    assert_eq!(take(&mut server, root, 1, 0), Ok(3));
    // A tree that was never there, and one that is there no more.
    let other = NodeId { tree: TreeId::new(2).unwrap(), ..root };
    assert_eq!(take(&mut server, other, 1, 0), Err(Refusal::Moved(other)));
    server.committed(2, &[of(0, WriteOperation::DropTree)]);
    assert_eq!(take(&mut server, root, 1, 0), Err(Refusal::Moved(root)));
    // Counters of no tree have no nodes.
    let names = NodeId { tree: TreeId::default(), server: ServerId(0), local: LocalId(16) };
    assert_eq!(take(&mut server, names, 1, 0), Ok(1));
}
