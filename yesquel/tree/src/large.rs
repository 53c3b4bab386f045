//! Values that are too long for a cell: their pieces stand in nodes of their
//! own, which are made with the cell and go with it.

use crate::{Transaction, Tree, TreeError, Trees, page::Value};
use std::collections::BTreeMap;
use yesquel_client::{Error, Staging, Writes};
use yesquel_model::{Key, KeyRange, LocalId, NodeId};
use yesquel_transport::Transport;
use yesquel_wire::{
    Answer, CellValue, Expect, LargeValue, NODE_PIECES, NewNode, NodeKind, Operation, PIECE_BYTES, Question,
    Scan, WriteOperation,
};

/// Nodes that are asked for at a time: some megabytes.
const NODES_AT_ONCE: usize = 8;

/// Where the long values of a transaction are going to be, by root and key.
pub(crate) type Larges = BTreeMap<(NodeId, Key), LargeValue>;

impl<T: Transport> Trees<T> {
    /// Names the nodes of a long value.
    pub(crate) async fn name(&self, tree: Tree, length: usize) -> Result<LargeValue, TreeError> {
        let (length, server) = (length as u64, tree.root.server);
        let first: LocalId = self.issue(&self.issuers, server, LargeValue::nodes_for(length)).await?;
        Ok(LargeValue { length, server, first })
    }

    /// Sends the pieces of long values before the commit that makes them.
    pub(crate) async fn stage_larges<'v>(
        &self,
        larges: &Larges,
        value: impl Fn(&NodeId, &Key) -> Option<&'v [u8]>,
    ) -> Result<Staging, TreeError> {
        let mut staging = self.client.staging();
        for ((root, key), large) in larges {
            let Some(value) = value(root, key) else { continue };
            let nodes = large.ids(root.tree).zip(value.chunks(PIECE_BYTES * NODE_PIECES));
            // A part at a time: the value is not there twice.
            let mut writes = Writes::new();
            for (node, bytes) in nodes {
                let new = NewNode { kind: NodeKind::Value, fence: KeyRange::all() };
                writes.push(&Operation { node, write: WriteOperation::Create(new) });
                for (number, piece) in (0u32..).zip(bytes.chunks(PIECE_BYTES)) {
                    let (key, expect) = (number.to_be_bytes(), Expect::Any);
                    let write = WriteOperation::Put { key: &key, value: piece, expect, is_large: false };
                    writes.push(&Operation { node, write });
                }
                if writes.has_full_part() {
                    self.send(&mut staging, std::mem::take(&mut writes)).await?;
                }
            }
            self.send(&mut staging, writes).await?;
        }
        Ok(staging)
    }

    async fn send(&self, staging: &mut Staging, writes: Writes) -> Result<(), TreeError> {
        for (server, part) in writes.into_parts() {
            self.client.stage(staging, server, &part).await?;
        }
        Ok(())
    }
}

impl<T: Transport> Transaction<'_, T> {
    /// A value as it is, wherever it stands.
    pub(crate) async fn value(&mut self, tree: Tree, value: Value<'_>) -> Result<Box<[u8]>, TreeError> {
        match value {
            Value::Whole(value) => Ok(value.into()),
            // Seldom, and the way there is long.
            Value::Large(large) => Box::pin(self.large(tree, large)).await,
        }
    }

    /// A long value, put together.
    pub(crate) async fn large(&mut self, tree: Tree, large: LargeValue) -> Result<Box<[u8]>, TreeError> {
        let damaged = || TreeError::Damaged(tree.root.tree, "a piece of a long value is missing");
        let mut value = Vec::with_capacity(usize::try_from(large.length).map_err(|_| damaged())?);
        let nodes: Vec<NodeId> = large.ids(tree.root.tree).collect();
        for nodes in nodes.chunks(NODES_AT_ONCE) {
            let question = |node: &NodeId| Question::Scan { node: *node, scan: Scan::all().into() };
            let questions: Vec<Question<'_>> = nodes.iter().map(question).collect();
            let reading = self.read(tree, large.server, &questions).await?;
            for answer in reading.answers().ok_or(Error::Unfit)?.iter() {
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
