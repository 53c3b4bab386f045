//! Cases that no correct client produces, and cases found by fuzzing.

mod departures;
mod full_disk;
mod inner_nodes;
mod watches;

use crate::{Caller, Effects, Engine, EngineSettings, LogRecord, Now, ReplyDurability};
use yesquel_model::{Conflict, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{
    Answer, Attribute, ByteWriter, Decision, Expect, LargeValue, NewNode, NodeKind, NodeOperation,
    OWNER_ATTRIBUTE, Operations, Participants, Question, Questions, Reply, Request, Staged, WriteOperation,
};

/// An engine, and everything that it has logged.
struct Server {
    engine: Engine,
    effects: Effects,
    now: Now,
    log: Vec<Vec<u8>>,
    requests: u64,
    /// Highest timestamp that the clients have seen.
    seen: Timestamp,
}

const SETTINGS: fn() -> EngineSettings = || EngineSettings { grace_ms: 100, ..EngineSettings::default() };

fn txn(number: u64) -> TxnId {
    TxnId { client: 7, number }
}

fn node(local: u64) -> NodeId {
    NodeId { tree: TreeId::new(1).unwrap(), server: ServerId(0), local: LocalId(local) }
}

fn new(fence: KeyRange) -> NewNode {
    NewNode { kind: NodeKind::Leaf, fence }
}

fn create(local: u64) -> NodeOperation<'static> {
    NodeOperation { node: node(local), write: WriteOperation::Create(new(KeyRange::all())) }
}

fn put(local: u64, key: &'static [u8]) -> NodeOperation<'static> {
    let write = WriteOperation::Put { key, value: b"value", expect: Expect::Any, is_large: false };
    NodeOperation { node: node(local), write }
}

/// Moves everything of a node to a new one; the old one keeps keys from `z` on.
fn move_all(from: u64, to: u64) -> [NodeOperation<'static>; 3] {
    let (low, high) = (KeyRange { low: [].into(), high: Some((*b"z").into()) }, KeyRange::from(*b"z"));
    [
        NodeOperation { node: node(to), write: WriteOperation::Create(new(low.clone())) },
        NodeOperation { node: node(from), write: WriteOperation::Move { range: low, to: node(to) } },
        NodeOperation { node: node(from), write: WriteOperation::Reshape(new(high)) },
    ]
}

fn of(local: u64, write: WriteOperation<'static>) -> NodeOperation<'static> {
    NodeOperation { node: node(local), write }
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

    /// Sends a request and returns its number.
    fn send(&mut self, request: &Request<'_>) -> u64 {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        self.requests += 1;
        let caller = Caller { connection: 1, request: self.requests };
        self.engine.handle(self.now, caller, &bytes, &mut self.effects).unwrap();
        self.requests
    }

    /// Takes the replies since the last call.
    fn answers(&mut self) -> Vec<(u64, Vec<u8>)> {
        let effects = std::mem::take(&mut self.effects);
        self.log.extend(effects.records().map(<[u8]>::to_vec));
        let bytes = |reply: &crate::AddressedReply| effects.bytes[reply.bytes.clone()].to_vec();
        effects.replies.iter().map(|reply| (reply.caller.request, bytes(reply))).collect()
    }

    fn commit(&mut self, number: u64, operations: &[NodeOperation<'_>]) -> u64 {
        let bytes = Operations::encode(operations);
        let operations = Operations::decode(&bytes).unwrap();
        let seen = Timestamp::ZERO;
        self.send(&Request::Commit {
            txn: txn(number),
            birth: Timestamp::ZERO,
            snapshot: None,
            seen,
            lease: 0,
            staged: None,
            operations,
        })
    }

    fn refused(&mut self, number: u64, operations: &[NodeOperation<'_>]) -> Refusal {
        let request = self.commit(number, operations);
        let answers = self.answers();
        assert_eq!(answers.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [request]);
        match Reply::decode(&answers[0].1) {
            Ok(Reply::Refused { refusal, .. }) => refusal,
            reply => panic!("{reply:?}"),
        }
    }

    fn committed(&mut self, number: u64, operations: &[NodeOperation<'_>]) {
        let request = self.commit(number, operations);
        let answers = self.answers();
        let [(to, bytes)] = &answers[..] else { panic!("{answers:?}") };
        assert!(matches!(Reply::decode(bytes), Ok(Reply::Committed(_))), "{:?}", Reply::decode(bytes));
        assert_eq!(*to, request);
        self.engine.audit().unwrap();
    }

    /// Prepares and returns the vote.
    fn prepared(&mut self, number: u64, operations: &[NodeOperation<'_>]) -> Timestamp {
        let bytes = Operations::encode(operations);
        let operations = Operations::decode(&bytes).unwrap();
        let (seen, participants) = (Timestamp::ZERO, Participants::NONE);
        let txn = txn(number);
        self.send(&Request::Prepare {
            txn,
            birth: Timestamp::ZERO,
            waits: false,
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
        let (txn, birth, participants) = (txn(number), Timestamp::ZERO, Participants::NONE);
        self.send(&Request::Decide { txn, birth, participants, decision });
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
        Question::Lookup { node: node(local), key }.write(&mut ByteWriter(&mut bytes));
        let questions = Questions::decode(&bytes).unwrap();
        self.send(&Request::Read { snapshot, seen: self.seen, questions })
    }

    /// Raises the mark above everything so far, and collects.
    fn time_passes(&mut self) {
        for _ in 0..4 {
            self.now.uptime_ms += 60;
            self.now.wall_ms += 60;
            let mut effects = Effects::default();
            self.engine.tick(self.now, &mut effects);
            self.log.extend(effects.records().map(<[u8]>::to_vec));
            self.engine.audit().unwrap();
        }
    }

    /// Checks that an engine that replays the log has the same nodes.
    fn comes_back(&self) {
        let mut engine = Engine::new(SETTINGS());
        self.log.iter().for_each(|record| engine.replay(&LogRecord::decode(record).unwrap()));
        engine.replayed();
        engine.audit().unwrap();
        assert!(engine.canonical() == self.engine.canonical());
    }
}

/// A commit that names more parts than there are is refused, and changes nothing: no record says
/// that the parts are gone.
#[test]
fn a_refused_commit_leaves_staged_parts() {
    let mut server = Server::new();
    let bytes = Operations::encode(&[put(0, b"a")]);
    let operations = Operations::decode(&bytes).unwrap();
    let name = txn(2);
    server.send(&Request::Stage { name, part: 0, operations });
    server.send(&Request::Commit {
        txn: txn(3),
        birth: Timestamp::from_ms(server.now.wall_ms),
        snapshot: None,
        seen: Timestamp::ZERO,
        lease: 0,
        staged: Some(Staged { number: 2, parts: 2 }),
        operations: Operations::NONE,
    });
    let answers = server.answers();
    let refused = Reply::Refused { operation: None, refusal: Refusal::GivenUp(name) };
    assert_eq!(Reply::decode(&answers[1].1), Ok(refused));
    server.comes_back();
}

/// A decision's caller gets its own reply, and not those of the requests that waited.
#[test]
fn a_decision_does_not_mix_up_replies() {
    let mut server = Server::new();
    let at = server.prepared(2, &[put(0, b"k")]);
    let read = server.lookup(0, b"k");
    assert_eq!(server.answers(), []);
    let answers = server.decide(2, Decision::Commit(at));
    assert_eq!(answers[1].0, read);
    assert!(matches!(Reply::decode(&answers[1].1), Ok(Reply::Answers { .. })));
}

/// After a disk failure no outcome can be recorded, so no request may wait.
#[test]
fn waiting_requests_are_refused_after_a_disk_failure() {
    let mut server = Server::new();
    server.prepared(2, &[put(0, b"k")]);
    server.engine.freeze(server.engine.lsn(), None, &mut server.effects);
    let read = server.lookup(0, b"k");
    let refused = Reply::Refused { operation: None, refusal: Refusal::DiskFailed };
    let answers = server.answers();
    assert_eq!((answers.len(), answers[0].0), (1, read));
    assert_eq!(Reply::decode(&answers[0].1), Ok(refused));
}

/// Acknowledged changes of a node are readable and unacknowledged ones are not, however long the
/// server continues.
#[test]
fn a_node_with_lost_changes_is_read_as_before_them() {
    let mut server = Server::new();
    server.committed(2, &[put(0, b"a")]);
    let synced = server.engine.lsn();
    server.committed(3, &[of(0, WriteOperation::Delete { key: b"a", expect: Expect::Any }), put(0, b"b")]);
    let lost = match LogRecord::decode(&server.log[synced as usize]) {
        Ok(LogRecord::Commit { at, .. }) => at,
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

/// A piece of a long value may be collected at any time, so it never becomes another kind of node.
#[test]
fn a_piece_keeps_its_kind() {
    let mut server = Server::new();
    let piece = NewNode { kind: NodeKind::Value, fence: KeyRange::all() };
    server.committed(2, &[of(5, WriteOperation::Create(piece))]);
    let refused = server.refused(3, &[of(5, WriteOperation::Reshape(new(KeyRange::all())))]);
    assert_eq!(refused, Refusal::Unfit(node(5)));
}

#[test]
fn a_node_is_created_once() {
    let mut server = Server::new();
    let at = server.prepared(2, &[create(5), put(5, b"a")]);
    let waits = server.commit(3, &[create(5)]);
    // Also for a client that uses another one's number.
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
fn a_node_id_can_be_reused() {
    let mut server = Server::new();
    server.committed(2, &[create(5), put(5, b"a")]);
    server.committed(3, &[of(5, WriteOperation::Drop)]);
    server.time_passes();
    server.committed(4, &[create(5), put(5, b"b")]);
    server.comes_back();
    server.time_passes();
}

#[test]
fn a_tree_id_can_be_reused() {
    let mut server = Server::new();
    server.committed(2, &[put(0, b"a"), create(5), put(5, b"a"), put(5, b"b")]);
    // The node has garbage when the tree is dropped.
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

/// A checkpoint may have more records than the log had: reads of its nodes need no record that is
/// yet to be written.
#[test]
fn checkpointed_state_is_durable() {
    let mut server = Server::new();
    server.committed(2, &[create(5), create(6), create(7), put(7, b"a")]);
    let mut checkpoint = server.engine.checkpoint();
    server.engine = Engine::new(SETTINGS());
    let written: Result<(), ()> = checkpoint.write(|record| {
        server.engine.replay(&LogRecord::decode(record).unwrap());
        Ok(())
    });
    written.unwrap();
    assert!(server.engine.lsn() > checkpoint.lsn());
    server.engine.restored(checkpoint.lsn());
    server.engine.replayed();
    server.lookup(7, b"a");
    assert_eq!(server.effects.replies[0].needs_lsn, 0);
}

/// A shrinking fence leaves nothing behind, and moved cells are not written any more.
#[test]
fn splits_lose_no_cells() {
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
fn a_cell_can_replace_another_when_it_moves() {
    let mut server = Server::new();
    server.committed(2, &[put(0, b"a")]);
    let [create, moves, reshapes] = move_all(0, 5);
    server.committed(3, &[create, put(5, b"a"), put(5, b"b"), moves, reshapes]);
    server.time_passes();
    server.comes_back();
}

/// An operation prepared before a split and decided for a time after it belongs to the new node
/// alone, also if it is decided first.
#[test]
fn a_split_can_be_decided_late() {
    let mut server = Server::new();
    server.committed(2, &[put(0, b"a")]);
    server.prepared(3, &[put(0, b"a"), put(0, b"b")]);
    let split = server.prepared(4, &move_all(0, 5));
    server.decide(3, Decision::Commit(Timestamp(split.0 + 5)));
    server.decide(4, Decision::Commit(split));
    server.time_passes();
    server.comes_back();
}

/// A request for a node that is prepared to be created waits, as for a cell.
#[test]
fn requests_wait_for_a_node_being_created() {
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
    // A read below the vote does not wait: the node does not exist for it.
    server.prepared(4, &[create(10)]);
    let before = Timestamp(vote.0 - 1);
    server.lookup_at(Some(before), 10, b"a");
    assert_eq!(server.answers().len(), 1);
}

/// A server whose disk has failed issues no snapshot that lacks changes that the client has seen
/// elsewhere.
#[test]
fn a_frozen_server_issues_no_snapshot_older_than_its_client() {
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

/// A long value of one piece, and the cell that refers to it.
fn long_value(local: u64, piece: u64, key: &'static [u8], cell: &[u8]) -> [NodeOperation<'static>; 3] {
    let value: &'static [u8] = cell.to_vec().leak();
    let expect = Expect::Any;
    let new = NewNode { kind: NodeKind::Value, fence: KeyRange::all() };
    let stored = WriteOperation::Put { key: &[0; 4], value: b"piece", expect, is_large: false };
    let names = WriteOperation::Put { key, value, expect, is_large: true };
    [of(piece, WriteOperation::Create(new)), of(piece, stored), of(local, names)]
}

fn large(piece: u64) -> Vec<u8> {
    LargeValue { length: 40_000, server: ServerId(0), first: LocalId(piece) }.encode()
}

/// A growing root keeps its id and all keys: its moved cells are only copies.
#[test]
fn a_growing_root_keeps_its_long_values() {
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
    // The piece goes with the cell.
    server.committed(4, &[of(5, WriteOperation::Delete { key: b"a", expect: Expect::Any })]);
    server.time_passes();
    assert!(server.engine.store.get(node(100)).is_none());
}

/// A checkpoint has the pieces of long values that older versions refer to, as long as snapshots see
/// those; pieces that no cell refers to are removed when it is loaded.
#[test]
fn orphan_pieces_are_collected_after_a_checkpoint() {
    let mut server = Server::new();
    // A transaction writes the cell twice.
    let twice = [long_value(0, 100, b"a", &large(100)), long_value(0, 101, b"a", &large(101))].concat();
    server.committed(2, &twice);
    server.committed(3, &long_value(0, 102, b"a", &large(102)));
    let pieces =
        |server: &Server| [100, 101, 102].map(|piece| server.engine.store.get(node(piece)).is_some());
    assert_eq!(pieces(&server), [true; 3]);
    let mut checkpoint = server.engine.checkpoint();
    server.engine = Engine::new(SETTINGS());
    let written: Result<(), ()> = checkpoint.write(|record| {
        server.engine.replay(&LogRecord::decode(record).unwrap());
        Ok(())
    });
    written.unwrap();
    server.engine.restored(checkpoint.lsn());
    server.engine.replayed();
    server.engine.audit().unwrap();
    assert_eq!(pieces(&server), [false, true, true]);
    server.time_passes();
    assert_eq!(pieces(&server), [false, false, true]);
}

/// Clients may have read the state before the vote.
#[test]
fn a_commit_waits_for_its_vote() {
    let mut server = Server::new();
    let early = server.prepared(2, &[put(0, b"a")]);
    server.decide(2, Decision::Abort);
    server.committed(3, &[of(0, WriteOperation::Delete { key: b"a", expect: Expect::Any })]);
    let vote = server.prepared(4, &[put(0, b"a")]);
    server.decide(4, Decision::Commit(early));
    let Ok(LogRecord::Decide { decision, .. }) = LogRecord::decode(&server.log[server.log.len() - 1]) else {
        panic!()
    };
    assert_eq!(decision, Decision::Commit(vote));
}

/// A prepared move conflicts with another move, and is not moved along.
#[test]
fn a_prepared_move_blocks_another() {
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

/// Under every durability: a power failure must not give a number of the cluster out again.
#[test]
fn numbers_of_the_cluster_are_durable_before_they_are_told() {
    let mut engine = Engine::new(EngineSettings::default());
    for (tree, durability) in
        [(TreeId::default(), ReplyDurability::SyncedNow), (TreeId::MAX, ReplyDurability::Configured)]
    {
        let node = NodeId { tree, server: ServerId(0), local: LocalId(2) };
        let (mut request, mut effects) = (Vec::new(), Effects::default());
        Request::Take { node, count: 64, above: 0 }.write(&mut ByteWriter(&mut request));
        let caller = Caller { connection: 1, request: 1 };
        engine.handle(Now { wall_ms: 1_000, uptime_ms: 0 }, caller, &request, &mut effects).unwrap();
        let reply = &effects.replies[0];
        assert_eq!(Reply::decode(&effects.bytes[reply.bytes.clone()]), Ok(Reply::Taken(1)));
        assert_eq!((reply.durability, reply.needs_lsn), (durability, engine.lsn()));
    }
}

#[test]
fn counter_overflow_is_refused_and_changes_nothing() {
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
    // A tree that never existed, and one that was dropped.
    let other = NodeId { tree: TreeId::new(2).unwrap(), ..root };
    assert_eq!(take(&mut server, other, 1, 0), Err(Refusal::Moved(other)));
    server.committed(2, &[of(0, WriteOperation::DropTree)]);
    assert_eq!(take(&mut server, root, 1, 0), Err(Refusal::Moved(root)));
    // Counters of no tree have no nodes.
    let names = NodeId { tree: TreeId::default(), server: ServerId(0), local: LocalId(16) };
    assert_eq!(take(&mut server, names, 1, 0), Ok(1));
}

/// A piece of a long value is complete when it is created: later it may have been collected.
#[test]
fn an_attribute_of_an_existing_piece_is_not_set() {
    let mut server = Server::new();
    let piece = NewNode { kind: NodeKind::Value, fence: KeyRange::all() };
    server.committed(2, &[of(5, WriteOperation::Create(piece))]);
    let owner = Attribute { id: OWNER_ATTRIBUTE, value: Some(&[1, 2, 3]) };
    assert_eq!(server.refused(3, &[of(5, WriteOperation::Set(owner))]), Refusal::Unfit(node(5)));
}
