//! The law of numbers: no two clients use the same number of a tree or of an issuer.

use std::collections::BTreeMap;
use yesquel_model::{LocalId, NodeId, TreeId};
use yesquel_wire::{Operations, Request, WriteOperation};

/// What a number belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NumberKind {
    Tree,
    Issuer,
}

/// Numbers by the clients that have created nodes with them, at any server.
#[derive(Debug, Default)]
pub(crate) struct UsedNumbers(BTreeMap<(NumberKind, u64), u64>);

impl UsedNumbers {
    /// Notes the numbers that a request uses.
    ///
    /// # Panics
    ///
    /// If another client has used one of them.
    pub(super) fn note(&mut self, request: &[u8]) {
        match Request::decode(request) {
            Ok(Request::Commit { txn, operations, .. } | Request::Prepare { txn, operations, .. }) => {
                self.note_operations(txn.client, &operations);
            }
            Ok(Request::Stage { name, operations, .. }) => self.note_operations(name.client, &operations),
            _ => {}
        }
    }

    fn note_operations(&mut self, client: u64, operations: &Operations<'_>) {
        for operation in operations.iter() {
            if matches!(operation.write, WriteOperation::Create(_)) {
                self.note_node(client, operation.node);
            }
        }
    }

    fn note_node(&mut self, client: u64, node: NodeId) {
        let used = match node.local {
            LocalId::ROOT if node.tree == TreeId::default() => return,
            LocalId::ROOT => (NumberKind::Tree, node.tree.number()),
            LocalId(local) => (NumberKind::Issuer, local >> 16),
        };
        let first = *self.0.entry(used).or_insert(client);
        assert_eq!(first, client, "two clients use {used:?}, the second for node {node}");
    }
}
