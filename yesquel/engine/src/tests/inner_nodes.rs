//! Inner nodes that are split while a child below them goes.

use super::{Server, node, of};
use yesquel_model::{Conflict, KeyRange};
use yesquel_wire::{Decision, NewNode, NodeKind, NodeOperation, Reply, WriteOperation};

fn inner(fence: KeyRange) -> NewNode {
    NewNode { kind: NodeKind::Inner, fence }
}

fn link(local: u64, key: &'static [u8], child: u64) -> NodeOperation<'static> {
    of(local, WriteOperation::Link { key, child: node(child) })
}

fn unlink(local: u64, key: &'static [u8]) -> NodeOperation<'static> {
    of(local, WriteOperation::Unlink { key })
}

/// An inner node with children for three ranges.
fn filled() -> Server {
    let mut server = Server::new();
    server.committed(2, &[of(5, WriteOperation::Create(inner(KeyRange::all())))]);
    server.committed(3, &[link(5, b"", 11), link(5, b"c", 12), link(5, b"f", 13)]);
    server
}

/// Moves the children below `c` to a new node.
fn split() -> [NodeOperation<'static>; 3] {
    let low = KeyRange { low: [].into(), high: Some((*b"c").into()) };
    [
        of(6, WriteOperation::Create(inner(low.clone()))),
        of(5, WriteOperation::Move { range: low, to: node(6) }),
        of(5, WriteOperation::Reshape(inner(KeyRange::from(*b"c")))),
    ]
}

/// A transaction that has read the node before its split does not remove what is its first child now.
#[test]
fn the_first_child_is_not_unlinked() {
    let mut server = filled();
    let before = server.engine.last_timestamp();
    server.committed(4, &split());
    let refusal = server.refused_at(5, before, &[unlink(5, b"c")]);
    assert_eq!(refusal, Conflict::Node { node: node(5) }.into());
    server.committed(6, &[unlink(5, b"f")]);
}

/// A split that began before does not make a child the first one that has gone, or whose removal is
/// prepared.
#[test]
fn a_removed_child_does_not_become_the_first() {
    let conflict = Conflict::Node { node: node(5) }.into();
    let mut server = filled();
    let before = server.engine.last_timestamp();
    server.committed(4, &[unlink(5, b"c")]);
    assert_eq!(server.refused_at(5, before, &split()), conflict);
    let mut server = filled();
    let at = server.prepared(4, &[unlink(5, b"c")]);
    let waiting = server.commit(5, &split());
    assert_eq!(server.answers(), []);
    let answers = server.decide(4, Decision::Commit(at));
    let (_, bytes) = answers.iter().find(|(request, _)| *request == waiting).unwrap();
    assert_eq!(Reply::decode(bytes), Ok(Reply::Refused { operation: Some(2), refusal: conflict }));
    // A removal elsewhere moves along.
    let mut server = filled();
    let at = server.prepared(4, &[unlink(5, b"f")]);
    server.committed(5, &split());
    server.decide(4, Decision::Commit(at));
}
