//! Watches: a notice comes at the step that changes the node, or that votes to.

use super::{Server, create, move_all, node, of, put};
use crate::Caller;
use yesquel_model::{KeyRange, NodeId, Timestamp, TreeId};
use yesquel_wire::{
    Answer, ByteWriter, Decision, Notice, Question, Questions, Reply, Request, WriteOperation,
};

/// Connection that may watch; that of `Server` may not.
const WATCHER: u64 = 5;

impl Server {
    /// Asks on a connection to watch nodes. Returns which are.
    fn watch_on(&mut self, connection: u64, nodes: &[NodeId], snapshot: Option<Timestamp>) -> Vec<bool> {
        let mut questions = Vec::new();
        nodes.iter().for_each(|node| {
            Question::Watch { node: *node }.write(&mut ByteWriter(&mut questions));
        });
        let (questions, seen) = (Questions::decode(&questions).unwrap(), Timestamp::ZERO);
        let mut bytes = Vec::new();
        Request::Read { snapshot, seen, questions }.write(&mut ByteWriter(&mut bytes));
        let caller = Caller { connection, request: 1 };
        self.engine.handle(self.now, caller, &bytes, &mut self.effects).unwrap();
        let answers = self.answers();
        let [(_, bytes)] = &answers[..] else { panic!("{answers:?}") };
        let Ok(Reply::Answers { answers, .. }) = Reply::decode(bytes) else { panic!("{bytes:?}") };
        answers.iter().map(|answer| answer == Answer::Same).collect()
    }

    fn watch(&mut self, local: u64) -> bool {
        self.watch_on(WATCHER, &[node(local)], None) == [true]
    }

    /// Nodes of the notices since the last call.
    fn noticed(&mut self) -> Vec<(NodeId, Timestamp)> {
        let notices = self.engine.take_notices();
        notices
            .into_iter()
            .map(|(connection, Notice { node, at })| {
                assert_eq!(connection, WATCHER);
                (node, at)
            })
            .collect()
    }
}

fn watched() -> Server {
    let mut server = Server::new();
    server.engine.admit_watcher(WATCHER);
    server
}

#[test]
fn a_commit_ends_a_watch_once() {
    let mut server = watched();
    assert!(server.watch(0));
    // Of a node that is not there, and by a connection that may not.
    assert_eq!(server.watch_on(WATCHER, &[node(9)], None), [false]);
    assert_eq!(server.watch_on(1, &[node(0)], None), [false]);
    server.committed(2, &[of(0, WriteOperation::Guard(KeyRange::all()))]);
    assert_eq!(server.noticed(), [], "a guard changes nothing");
    let before = server.engine.clock.last();
    server.committed(3, &[put(0, b"a")]);
    let at = server.engine.clock.last();
    assert!(at > before);
    assert_eq!(server.noticed(), [(node(0), at)]);
    server.committed(4, &[put(0, b"b")]);
    assert_eq!(server.noticed(), []);
    assert_eq!(server.watch_on(WATCHER, &[node(0)], Some(at)), [false], "it has changed since");
    assert!(server.watch(0));
}

/// The client may answer COMMIT as soon as all have voted.
#[test]
fn a_vote_ends_a_watch() {
    let mut server = watched();
    assert!(server.watch(0));
    let at = server.prepared(2, &[put(0, b"a")]);
    assert_eq!(server.noticed(), [(node(0), at)]);
    assert!(!server.watch(0), "it is undecided");
    server.decide(2, Decision::Commit(Timestamp(at.0 + 7)));
    assert_eq!(server.noticed(), []);
    assert!(server.watch(0));
    let at = server.prepared(3, &[of(0, WriteOperation::DropTree)]);
    assert_eq!(server.noticed(), [(node(0), at)]);
    server.decide(3, Decision::Abort);
    assert!(server.watch(0));
}

#[test]
fn splits_and_drops_end_watches() {
    let mut server = watched();
    server.committed(2, &[put(0, b"a"), create(5), put(5, b"a")]);
    assert_eq!(server.watch_on(WATCHER, &[node(0), node(5)], None), [true, true]);
    server.committed(3, &move_all(0, 1));
    let noticed: Vec<NodeId> = server.noticed().into_iter().map(|(node, _)| node).collect();
    assert_eq!(noticed, [node(0)]);
    let other = NodeId { tree: TreeId::new(2).unwrap(), ..node(0) };
    server.committed(
        4,
        &[{
            let mut operation = create(0);
            operation.node = other;
            operation
        }],
    );
    assert_eq!(server.watch_on(WATCHER, &[node(0), node(1), node(5), other], None), [true; 4]);
    server.committed(5, &[of(0, WriteOperation::DropTree)]);
    let mut noticed: Vec<NodeId> = server.noticed().into_iter().map(|(node, _)| node).collect();
    noticed.sort_unstable();
    assert_eq!(noticed, [node(0), node(1), node(5)]);
    assert!(!server.watch(1));
}

#[test]
fn a_connection_ends_with_its_watches() {
    let mut server = watched();
    assert!(server.watch(0));
    server.engine.disconnected(WATCHER);
    server.committed(2, &[put(0, b"a")]);
    assert_eq!(server.noticed(), []);
    assert!(!server.watch(0));
    server.engine.admit_watcher(WATCHER);
    assert!(server.watch(0));
    server.engine.close_watches();
    let last = server.engine.clock.last();
    assert_eq!(server.noticed(), [(node(0), Timestamp(last.0 + 1))]);
    assert!(!server.watch(0));
}
