//! Check of the cells of one node.

use super::fault::TreeFault;
use yesquel_model::{Key, KeyRange, LocalId, NodeId, ServerId};
use yesquel_wire::{CellValue, Cells, LargeValue, NodeKind};

/// Cell that refers to a long value.
#[derive(Debug)]
pub(super) struct LargeCell {
    pub(super) key: Key,
    pub(super) large: LargeValue,
    /// Group of the leaf, which owns the value.
    pub(super) owner: ServerId,
}

/// What one part of a node holds.
#[derive(Debug, Default)]
pub(super) struct FoundCells {
    /// Keys of a leaf.
    pub(super) keys: u64,
    pub(super) larges: Vec<LargeCell>,
}

/// Check of the cells of a node, which come in one part or several.
#[derive(Debug)]
pub(super) struct CellCheck {
    node: NodeId,
    is_inner: bool,
    fence: KeyRange,
    last: Option<Key>,
    children: Vec<(Key, NodeId)>,
}

impl CellCheck {
    /// Begins with the shape of a node.
    pub(super) fn begin(
        node: NodeId,
        cells: &Cells<'_>,
        expected: &KeyRange,
        faults: &mut Vec<TreeFault>,
    ) -> CellCheck {
        let fence = cells.fence.clone();
        if fence != *expected {
            faults.push(TreeFault::Fence { node, fence: fence.clone(), expected: expected.clone() });
        }
        CellCheck { node, is_inner: cells.kind == NodeKind::Inner, fence, last: None, children: Vec::new() }
    }

    pub(super) fn is_inner(&self) -> bool {
        self.is_inner
    }

    /// Returns the least key that was not read yet, once something was read.
    pub(super) fn next_key(&self) -> Option<Key> {
        KeyRange::single(self.last.as_deref()?).high
    }

    /// Checks the next cells.
    pub(super) fn cells(&mut self, cells: &Cells<'_>, found: &mut FoundCells, faults: &mut Vec<TreeFault>) {
        for (key, value) in cells.iter() {
            self.cell(key, value, found, faults);
        }
    }

    fn cell(
        &mut self,
        key: &[u8],
        value: CellValue<'_>,
        found: &mut FoundCells,
        faults: &mut Vec<TreeFault>,
    ) {
        let node = self.node;
        if self.last.as_deref().is_some_and(|last| last >= key) {
            faults.push(TreeFault::Order { node, key: key.into() });
        }
        if !self.fence.contains(key) {
            faults.push(TreeFault::Outside { node, key: key.into() });
        }
        if self.last.as_deref().is_none_or(|last| last < key) {
            self.last = Some(key.into());
        }
        match value {
            CellValue::Bytes(bytes) if self.is_inner => {
                let child = bytes.try_into().map(|bits| NodeId::from_bits(u128::from_le_bytes(bits))).ok();
                match child.filter(|child| is_child(node, *child)) {
                    Some(child) => self.children.push((key.into(), child)),
                    None => faults.push(TreeFault::Link { node, key: key.into() }),
                }
            }
            _ if self.is_inner => faults.push(TreeFault::Link { node, key: key.into() }),
            CellValue::Large(large) => {
                found.keys += 1;
                found.larges.push(LargeCell { key: key.into(), large, owner: node.server });
            }
            CellValue::Bytes(_) | CellValue::Length(_) => found.keys += 1,
        }
    }

    /// Ends the check. Returns the children with the keys for which the node leads to them.
    pub(super) fn end(&mut self, faults: &mut Vec<TreeFault>) -> Vec<(KeyRange, NodeId)> {
        let (node, children) = (self.node, std::mem::take(&mut self.children));
        if !self.is_inner {
            return Vec::new();
        }
        match children.first() {
            None => faults.push(TreeFault::NoChild { node }),
            Some((key, _)) if *key != self.fence.low => {
                faults.push(TreeFault::Gap { node, key: key.clone(), low: self.fence.low.clone() });
            }
            Some(_) => {}
        }
        let highs: Vec<Option<Key>> = children
            .iter()
            .skip(1)
            .map(|(low, _)| Some(low.clone()))
            .chain([self.fence.high.clone()])
            .collect();
        let children = children.into_iter().zip(highs);
        children.map(|((low, child), high)| (KeyRange { low, high }, child)).collect()
    }
}

/// Whether an id can be that of a child: of the same tree, and not the root.
fn is_child(parent: NodeId, child: NodeId) -> bool {
    child.tree == parent.tree && child.local != LocalId::ROOT
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel_model::TreeId;
    use yesquel_wire::{Answer, AnswerWriter, Answers, ByteWriter};

    const NODE: NodeId = NodeId { tree: TreeId::MAX, server: ServerId(3), local: LocalId(0x1_0000) };

    /// Returns the faults of a node with these cells, and its children.
    fn check(
        kind: NodeKind,
        fence: &KeyRange,
        cells: &[(&[u8], CellValue<'_>)],
    ) -> (Vec<TreeFault>, Vec<(KeyRange, NodeId)>) {
        let (mut buffer, mut bytes) = (Vec::new(), Vec::new());
        cells.iter().for_each(|(key, value)| AnswerWriter::cell(&mut buffer, key, *value));
        AnswerWriter(ByteWriter(&mut bytes)).cells(kind, fence, false, &buffer);
        let answers = Answers::decode(&bytes).unwrap();
        let Some(Answer::Cells(cells)) = answers.iter().next() else { panic!("no cells") };
        let (mut faults, mut found) = (Vec::new(), FoundCells::default());
        let mut check = CellCheck::begin(NODE, &cells, fence, &mut faults);
        check.cells(&cells, &mut found, &mut faults);
        let children = check.end(&mut faults);
        (faults, children)
    }

    /// A server sends no such cells; a damaged one might.
    #[test]
    fn keys_out_of_order_and_outside_are_faults() {
        let fence = KeyRange::new(*b"b", *b"f");
        let whole = |key| (key, CellValue::Bytes(b"v"));
        let faults = |cells: &[(&[u8], CellValue<'_>)]| check(NodeKind::Leaf, &fence, cells).0;
        assert!(faults(&[whole(&b"b"[..]), whole(b"c"), whole(b"ez")]).is_empty());
        let order = |key: &[u8]| TreeFault::Order { node: NODE, key: key.into() };
        let outside = |key: &[u8]| TreeFault::Outside { node: NODE, key: key.into() };
        assert_eq!(faults(&[whole(&b"c"[..]), whole(b"b"), whole(b"b")]), [order(b"b"), order(b"b")]);
        assert_eq!(faults(&[whole(&b"a"[..]), whole(b"f")]), [outside(b"a"), outside(b"f")]);
    }

    #[test]
    fn an_inner_node_cuts_its_range_among_its_children() {
        let fence = KeyRange::new(*b"b", *b"f");
        let ids = [1, 2].map(|local| NodeId { local: LocalId(local), ..NODE }.to_bits().to_le_bytes());
        let [first, second] = ids.each_ref().map(|id| CellValue::Bytes(id));
        let (faults, children) = check(NodeKind::Inner, &fence, &[(b"b", first), (b"d", second)]);
        let ranges: Vec<KeyRange> = children.into_iter().map(|(range, _)| range).collect();
        assert_eq!(
            (faults, ranges),
            (vec![], vec![KeyRange::new(*b"b", *b"d"), KeyRange::new(*b"d", *b"f")])
        );
        let (faults, _) = check(NodeKind::Inner, &fence, &[(b"c", first)]);
        assert_eq!(faults, [TreeFault::Gap { node: NODE, key: (*b"c").into(), low: (*b"b").into() }]);
        assert_eq!(check(NodeKind::Inner, &fence, &[]).0, [TreeFault::NoChild { node: NODE }]);
        let root = NodeId { local: LocalId::ROOT, ..NODE }.to_bits().to_le_bytes();
        for wrong in [CellValue::Bytes(b"short"), CellValue::Length(17), CellValue::Bytes(&root)] {
            let (faults, _) = check(NodeKind::Inner, &fence, &[(b"b", first), (b"c", wrong)]);
            assert_eq!(faults, [TreeFault::Link { node: NODE, key: (*b"c").into() }]);
        }
    }
}
