//! Large values, which exceed a cell. Their pieces are stored in nodes of their own, which are
//! created and deleted together with the cell.

use crate::{Tree, TreeError, TreeTransaction, Trees, page::PageValue};
use std::collections::BTreeMap;
use yesquel_client::{RequestError, StagedWrites, Writes};
use yesquel_model::{Key, KeyRange, LocalId, NodeId, ServerId};
use yesquel_transport::Transport;
use yesquel_wire::{
    Answer, Attribute, CellValue, Expect, LargeValue, NODE_PIECES, NewNode, NodeKind, NodeOperation,
    PIECE_BYTES, Question, Scan, ValueOwner, WriteOperation,
};

/// Chooses the group of a long value's nodes, by the tree and key of its cell.
pub type ValuePlacement = fn(Tree, &[u8]) -> ServerId;

/// Nodes read in one request: some megabytes.
const NODES_AT_ONCE: usize = 8;

/// Names of the nodes of a large value, and the group of its leaf, which owns it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedValue {
    pub(crate) large: LargeValue,
    pub(crate) owner: ServerId,
}

/// Large values of a transaction, by root and key.
pub(crate) type LargeValues = BTreeMap<(NodeId, Key), PlacedValue>;

impl<T: Transport> Trees<T> {
    /// Allocates the names of the nodes of a large value whose leaf is at the group `owner`. They are
    /// there, too: otherwise the two groups exchange messages about the value.
    pub(crate) async fn name(
        &self,
        tree: Tree,
        key: &[u8],
        length: u64,
        owner: ServerId,
    ) -> Result<PlacedValue, TreeError> {
        let server = self.value_placement.map_or(owner, |placement| placement(tree, key));
        let first: LocalId = self.issue(LargeValue::nodes_for(length)).await?;
        Ok(PlacedValue { large: LargeValue { length, server, first }, owner })
    }

    /// Sends the pieces of large values before the commit that creates them.
    pub(crate) async fn stage_larges<'v>(
        &self,
        larges: &LargeValues,
        value: impl Fn(&NodeId, &Key) -> Option<&'v [u8]>,
    ) -> Result<StagedWrites, TreeError> {
        let mut staging = self.client.staging();
        for ((root, key), PlacedValue { large, owner }) in larges {
            let Some(value) = value(root, key) else { continue };
            let nodes = large.ids(root.tree).zip(value.chunks(PIECE_BYTES * NODE_PIECES));
            // One part at a time, to avoid a second copy of the value.
            let mut writes = Writes::new();
            for (node, bytes) in nodes {
                let new = NewNode { kind: NodeKind::Value, fence: KeyRange::all() };
                writes.push(&NodeOperation { node, write: WriteOperation::Create(new) });
                if node.local == large.first {
                    let owner = ValueOwner { server: *owner, nodes: large.nodes(), key: key.clone() };
                    for (id, value) in owner.attributes() {
                        let write = WriteOperation::Set(Attribute { id, value: Some(&value) });
                        writes.push(&NodeOperation { node, write });
                    }
                }
                for (number, piece) in (0u32..).zip(bytes.chunks(PIECE_BYTES)) {
                    let (key, expect) = (number.to_be_bytes(), Expect::Any);
                    let write = WriteOperation::Put { key: &key, value: piece, expect, is_large: false };
                    writes.push(&NodeOperation { node, write });
                }
                if writes.has_full_part() {
                    self.send(&mut staging, std::mem::take(&mut writes)).await?;
                }
            }
            self.send(&mut staging, writes).await?;
        }
        Ok(staging)
    }

    async fn send(&self, staging: &mut StagedWrites, writes: Writes) -> Result<(), TreeError> {
        for (server, part) in writes.into_parts() {
            self.client.stage(staging, server, &part).await?;
        }
        Ok(())
    }
}

/// Returns the number of staged operations of a long value.
pub(crate) fn operations_of(large: &LargeValue, key: &[u8]) -> u64 {
    large.nodes() + ValueOwner::attributes_for(key) + large.length.div_ceil(PIECE_BYTES as u64)
}

impl<T: Transport> TreeTransaction<'_, T> {
    /// Returns a value, inline or large.
    pub(crate) async fn value(&mut self, tree: Tree, value: PageValue<'_>) -> Result<Box<[u8]>, TreeError> {
        match value {
            PageValue::Whole(value) => Ok(value.into()),
            // Boxed because it is rare and its future is large.
            PageValue::Large(large) => Box::pin(self.large(tree, large)).await,
        }
    }

    /// Reads and assembles a large value.
    pub(crate) async fn large(&mut self, tree: Tree, large: LargeValue) -> Result<Box<[u8]>, TreeError> {
        let damaged = || TreeError::Damaged(tree.root.tree, "a piece of a long value is missing");
        let mut value = Vec::with_capacity(usize::try_from(large.length).map_err(|_| damaged())?);
        let nodes: Vec<NodeId> = large.ids(tree.root.tree).collect();
        for nodes in nodes.chunks(NODES_AT_ONCE) {
            let question = |node: &NodeId| Question::Scan { node: *node, scan: Scan::all().into() };
            let questions: Vec<Question<'_>> = nodes.iter().map(question).collect();
            let reading = self.read(tree, large.server, &questions).await?;
            let answers = reading.answers().ok_or(RequestError::UnexpectedAnswer)?;
            // Answers to proofs of the read view follow.
            for answer in answers.iter().take(questions.len()) {
                let Answer::Cells(cells) = answer else { return Err(damaged()) };
                for (_, piece) in cells.iter() {
                    let CellValue::Bytes(piece) = piece else { return Err(damaged()) };
                    value.extend_from_slice(piece);
                }
            }
        }
        if value.len() as u64 == large.length { Ok(value.into()) } else { Err(damaged()) }
    }
}
