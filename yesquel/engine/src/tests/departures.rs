//! Ranges that move to nodes of other groups: writers wait, readers do not, and the adopting node
//! refuses what it cannot check.

use super::{Server, create, new, node, of, put, txn};
use crate::Now;
use yesquel_model::{
    Conflict, DepartedContent, KeyRange, LocalId, NodeId, Refusal, ServerId, StayReason, Timestamp,
};
use yesquel_wire::{
    Answer, ByteWriter, Decision, Expect, NodeOperation, Operations, Question, Questions, Reply, Request,
    Scan, WriteOperation,
};

/// The node at another group that adopts the lower half.
const TARGET: fn() -> NodeId = || NodeId { server: ServerId(1), local: LocalId(77), ..node(0) };

fn low() -> KeyRange {
    KeyRange { low: [].into(), high: Some((*b"m").into()) }
}

/// A leaf with two cells.
fn filled() -> Server {
    let mut server = Server::new();
    server.committed(2, &[create(5)]);
    server.committed(3, &[put(5, b"a"), put(5, b"x")]);
    server
}

/// The part of the move at the source.
fn departure() -> [NodeOperation<'static>; 2] {
    let high = KeyRange::from(*b"m");
    [of(5, WriteOperation::Move { range: low(), to: TARGET() }), of(5, WriteOperation::Reshape(new(high)))]
}

impl Server {
    fn begin_departure(&mut self) -> Result<DepartedContent, StayReason> {
        let begun = self.engine.begin_departure(self.now, node(5), &[(low(), TARGET())]);
        begun.map(|mut contents| contents.remove(0))
    }

    /// Returns why a commit is refused at a snapshot.
    pub(super) fn refused_at(
        &mut self,
        number: u64,
        snapshot: Timestamp,
        operations: &[NodeOperation<'_>],
    ) -> Refusal {
        let bytes = Operations::encode(operations);
        let operations = Operations::decode(&bytes).unwrap();
        let (snapshot, seen) = (Some(snapshot), Timestamp::ZERO);
        let (txn, birth) = (txn(number), Timestamp::ZERO);
        self.send(&Request::Commit { txn, birth, snapshot, seen, lease: 0, staged: None, operations });
        match Reply::decode(&self.answers()[0].1) {
            Ok(Reply::Refused { refusal, .. }) => refusal,
            reply => panic!("{reply:?}"),
        }
    }

    /// The part of the move at the target.
    fn adopts(&mut self, number: u64, content: &DepartedContent) -> Result<(), Refusal> {
        let target = |write| NodeOperation { node: NodeId { server: ServerId(0), ..TARGET() }, write };
        let DepartedContent { floor, items, .. } = content;
        let adopt = WriteOperation::Adopt { floor: *floor, items };
        let request = self.commit(number, &[target(WriteOperation::Create(new(low()))), target(adopt)]);
        match &self.answers()[..] {
            [(answered, bytes)] if *answered == request => match Reply::decode(bytes).unwrap() {
                Reply::Committed(_) => Ok(()),
                Reply::Refused { refusal, .. } => Err(refusal),
                reply => panic!("{reply:?}"),
            },
            answers => panic!("{answers:?}"),
        }
    }
}

#[test]
fn writers_wait_for_the_move_and_are_sent_on() {
    let mut server = filled();
    server.begin_departure().unwrap();
    let waiting = server.commit(4, &[put(5, b"b")]);
    assert_eq!(server.answers(), [], "the content that was copied has changed");
    let at = server.prepared(5, &departure());
    let answers = server.decide(5, Decision::Commit(at));
    let (_, bytes) = answers.iter().find(|(request, _)| *request == waiting).unwrap();
    let refused = Reply::Refused { operation: Some(0), refusal: Refusal::Moved(node(5)) };
    assert_eq!(Reply::decode(bytes).unwrap(), refused);
    // What stays is written as before.
    server.committed(6, &[put(5, b"y")]);
}

#[test]
fn a_departure_ends_by_itself() {
    let mut server = filled();
    server.begin_departure().unwrap();
    let waiting = server.commit(4, &[put(5, b"b")]);
    let Now { wall_ms, uptime_ms } = server.now;
    server.now = Now { wall_ms: wall_ms + 499, uptime_ms: uptime_ms + 499 };
    server.engine.tick(server.now, &mut server.effects);
    assert!(server.answers().iter().all(|(request, _)| *request != waiting));
    server.now = Now { wall_ms: wall_ms + 500, uptime_ms: uptime_ms + 500 };
    server.engine.tick(server.now, &mut server.effects);
    assert!(server.answers().iter().any(|(request, _)| *request == waiting));
    // The content is not the present one any more.
    assert_eq!(server.refused(5, &departure()), Conflict::Node { node: node(5) }.into());
}

#[test]
fn a_move_needs_its_own_departure() {
    let mut server = filled();
    let conflict = Refusal::from(Conflict::Node { node: node(5) });
    assert_eq!(server.refused(4, &departure()), conflict);
    server.begin_departure().unwrap();
    let other = NodeId { local: LocalId(78), ..TARGET() };
    assert_eq!(server.refused(5, &[of(5, WriteOperation::Move { range: low(), to: other })]), conflict);
    // Nothing would adopt the range.
    assert_eq!(server.refused(6, &departure()), Refusal::Unfit(TARGET()));
    let another = server.engine.begin_departure(server.now, node(5), &[(low(), other)]);
    assert_eq!(another, Err(StayReason::Unfit));
    server.engine.end_departure(node(5));
    assert!(server.engine.begin_departure(server.now, node(5), &[(low(), other)]).is_ok());
}

/// A parent at another group may lead to a node before the node's group knows that it adopts the keys.
#[test]
fn reads_wait_for_an_undecided_adoption() {
    let mut server = Server::new();
    let create = WriteOperation::Create(new(KeyRange::from(*b"m")));
    server.committed(2, &[of(5, create)]);
    let adopt = WriteOperation::Adopt { floor: Timestamp::ZERO, items: &[] };
    let adoption = [of(5, WriteOperation::Reshape(new(KeyRange::all()))), of(5, adopt)];
    let at = server.prepared(3, &adoption);
    let lookup = server.lookup(5, b"b");
    let near = Some((*b"b").into());
    let mut bytes = Vec::new();
    let scan = Scan { near, ..Scan::all() }.into();
    Question::Scan { node: node(5), scan }.write(&mut ByteWriter(&mut bytes));
    let questions = Questions::decode(&bytes).unwrap();
    let scan = server.send(&Request::Read { snapshot: None, seen: Timestamp::ZERO, questions });
    assert_eq!(server.answers(), []);
    let answers = server.decide(3, Decision::Commit(at));
    for request in [lookup, scan] {
        let (_, bytes) = answers.iter().find(|(answered, _)| *answered == request).unwrap();
        let Reply::Answers { answers, .. } = Reply::decode(bytes).unwrap() else { panic!("{bytes:?}") };
        let answer = answers.iter().next().unwrap();
        assert!(matches!(answer, Answer::Absent | Answer::Cells(_)), "{answer:?}");
    }
}

#[test]
fn a_prepared_transaction_is_not_left_behind() {
    let mut server = filled();
    server.prepared(4, &[put(5, b"x")]);
    assert_eq!(server.begin_departure(), Err(StayReason::Prepared));
    server.decide(4, Decision::Abort);
    assert!(server.begin_departure().is_ok());
}

#[test]
fn the_adopting_node_refuses_what_it_cannot_check() {
    let mut server = filled();
    server.committed(4, &[of(5, WriteOperation::Delete { key: b"a", expect: Expect::Any })]);
    let content = server.begin_departure().unwrap();
    let floor = Timestamp(content.clock.0);
    server.adopts(5, &DepartedContent { floor, ..content.clone() }).unwrap();
    let target = |write| NodeOperation { node: NodeId { server: ServerId(0), ..TARGET() }, write };
    let write = target(WriteOperation::Delete { key: b"k", expect: Expect::Any });
    let below = Timestamp(floor.0 - 1);
    let refusal = server.refused_at(6, below, &[write]);
    assert_eq!(refusal, Refusal::SnapshotTooOld { snapshot: below, oldest: floor });
    // The deleted cell came along: a transaction that has not seen the deletion conflicts with it.
    let mut early = filled();
    let snapshot = early.engine.last_timestamp();
    early.committed(4, &[of(5, WriteOperation::Delete { key: b"a", expect: Expect::Any })]);
    let content = early.begin_departure().unwrap();
    early.adopts(5, &content).unwrap();
    let write = target(WriteOperation::Delete { key: b"a", expect: Expect::Any });
    let id = write.node;
    assert_eq!(early.refused_at(6, snapshot, &[write]), Conflict::Cell { node: id }.into());
}

#[test]
fn wrong_content_is_refused() {
    let mut server = filled();
    let content = server.begin_departure().unwrap();
    let id = NodeId { server: ServerId(0), ..TARGET() };
    let late = Timestamp(u64::MAX);
    for wrong in [
        DepartedContent { items: vec![255; 9], ..content.clone() },
        DepartedContent { items: [&content.items[..], &content.items].concat(), ..content.clone() },
        DepartedContent { floor: late, ..content.clone() },
    ] {
        assert_eq!(server.adopts(4, &wrong), Err(Refusal::Unfit(id)), "{wrong:?}");
    }
    server.adopts(5, &content).unwrap();
}

#[test]
fn replay_gives_the_same_state() {
    let mut server = filled();
    let content = server.begin_departure().unwrap();
    server.adopts(4, &content).unwrap();
    server.comes_back();
    let at = server.prepared(5, &departure());
    server.comes_back();
    server.decide(5, Decision::Commit(at));
    server.comes_back();
    server.time_passes();
    server.comes_back();
}
