use super::*;
use yesquel_model::{LocalId, ServerId, TreeId};
use yesquel_seeds::{Random, check_seeds};

fn leaf() -> Node {
    let id = NodeId { tree: TreeId::new(1).unwrap(), server: ServerId(0), local: LocalId(1) };
    let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
    Node::new(id, Timestamp::from_ms(1), &new)
}

/// Guards and deletions of few ranges, at any times, conflict in the same cases, however few marks
/// are kept.
#[test]
fn conflicts_do_not_depend_on_the_number_of_marks() {
    check_seeds(2_000, |seed| {
        let mut random = Random::new(seed);
        let mut node = leaf();
        let mut all: Vec<RangeMark> = Vec::new();
        for _ in 0..random.next(40) {
            let low = random.next(5) as u8;
            let range = if random.next(2) == 0 {
                KeyRange::single(&[low])
            } else {
                KeyRange { low: [low].into(), high: Some([low + 1 + random.next(3) as u8].into()) }
            };
            let kind = if random.next(3) == 0 { MarkKind::Deleted } else { MarkKind::Guarded };
            let mark = RangeMark { kind, range, at: Timestamp::from_ms(2 + random.next(30)) };
            all.push(mark.clone());
            node.mark(mark);
        }
        assert!(node.marks.iter().is_sorted_by_key(|mark| mark.at), "{:?}", node.marks);
        for ms in 1..34 {
            let snapshot = Timestamp::from_ms(ms);
            for key in 0..9_u8 {
                let is_met = |mark: &RangeMark| mark.range.contains(&[key]);
                let expected = all.iter().any(|mark| mark.at > snapshot && is_met(mark));
                assert_eq!(
                    node.check_marks(snapshot, is_met).is_err(),
                    expected,
                    "{snapshot:?}, {key}: {all:?}"
                );
                let is_deleted = |mark: &RangeMark| mark.kind == MarkKind::Deleted && is_met(mark);
                let expected = all.iter().any(|mark| mark.at > snapshot && is_deleted(mark));
                assert_eq!(node.check_marks(snapshot, is_deleted).is_err(), expected);
            }
        }
    });
}

#[test]
fn a_range_that_every_commit_guards_has_one_mark() {
    let mut node = leaf();
    let (cookie, other) = (KeyRange::single(b"cookie"), KeyRange::single(b"other"));
    for ms in 2..1_000 {
        node.guard(Timestamp::from_ms(ms), &cookie);
        node.guard(Timestamp::from_ms(ms), &other);
    }
    assert_eq!(node.marks.len(), 2);
}

/// An inner node with one child would only add a level.
#[test]
fn parts_of_an_inner_node_have_two_children_each() {
    for (cells_max, bytes_max) in [(2, usize::MAX), (3, usize::MAX), (128, 1 << 10)] {
        let limits = NodeLimits { cells_max, bytes_max };
        for count in 4..40 {
            let mut node = leaf();
            let new = NewNode { kind: NodeKind::Inner, fence: KeyRange::all() };
            node.reshape(Timestamp::from_ms(1), &new);
            for number in 0..count {
                node.put(Timestamp::from_ms(2), &[number; 1_000], Some(VersionValue::whole(&[0; 16])));
            }
            assert!(node.is_full(limits));
            let parts = node.parts(limits);
            assert!((2..=usize::from(count) / 2).contains(&parts), "{count} children in {parts} parts");
        }
    }
}
