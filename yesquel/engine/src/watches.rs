//! Watches: clients that have read a node and get a notice when it changes, so that they can use
//! what they have read until then. Like leases, they are no part of the replicated state.

use crate::settings::EngineSettings;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use yesquel_model::{LocalId, NodeId, ServerId, Timestamp, TreeId};
use yesquel_wire::{Notice, WriteOperation};

#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Connections that may watch, and the nodes that they watch.
    watchers: FxHashMap<u64, FxHashSet<NodeId>>,
    by_node: BTreeMap<NodeId, Vec<u64>>,
    /// Number of watches.
    count: usize,
    /// Nodes that one connection may watch.
    nodes_max: usize,
    /// Most watches.
    count_max: usize,
    /// No watch is granted any more.
    is_closed: bool,
    /// Notices to send, by connection.
    notices: Vec<(u64, Notice)>,
}

impl Watches {
    pub(crate) fn new(settings: &EngineSettings) -> Watches {
        Watches {
            nodes_max: settings.watched_nodes_max,
            count_max: settings.watches_max,
            ..Watches::default()
        }
    }

    /// Lets a connection watch.
    pub(crate) fn admit(&mut self, connection: u64) {
        self.watchers.entry(connection).or_default();
    }

    /// Adds a watch. Returns false if the connection may not watch, or has too many watches.
    pub(crate) fn add(&mut self, connection: u64, node: NodeId) -> bool {
        let Some(nodes) = self.watchers.get_mut(&connection) else { return false };
        if nodes.contains(&node) {
            return true;
        }
        if self.is_closed || nodes.len() >= self.nodes_max || self.count >= self.count_max {
            return false;
        }
        nodes.insert(node);
        self.by_node.entry(node).or_default().push(connection);
        self.count += 1;
        true
    }

    /// Notes an operation that changes a node at a time, or will not change it before.
    #[inline]
    pub(crate) fn changes(&mut self, at: Timestamp, node: NodeId, write: &WriteOperation<'_>) {
        if self.count > 0 {
            self.ends(at, node, write);
        }
    }

    fn ends(&mut self, at: Timestamp, node: NodeId, write: &WriteOperation<'_>) {
        match write {
            WriteOperation::Guard(_) => {}
            WriteOperation::DropTree => self.end_tree(at, node.tree),
            WriteOperation::Move { to, .. } => {
                self.end(at, node);
                self.end(at, *to);
            }
            _ => self.end(at, node),
        }
    }

    fn end(&mut self, at: Timestamp, node: NodeId) {
        for connection in self.by_node.remove(&node).unwrap_or_default() {
            self.count -= 1;
            if let Some(nodes) = self.watchers.get_mut(&connection) {
                nodes.remove(&node);
            }
            self.notices.push((connection, Notice { node, at }));
        }
    }

    fn end_tree(&mut self, at: Timestamp, tree: TreeId) {
        let first = NodeId { tree, server: ServerId(0), local: LocalId(0) };
        let nodes: Vec<NodeId> =
            self.by_node.range(first..).map(|(node, _)| *node).take_while(|node| node.tree == tree).collect();
        nodes.into_iter().for_each(|node| self.end(at, node));
    }

    /// Ends all watches; there will be no others.
    pub(crate) fn close(&mut self, at: Timestamp) {
        self.is_closed = true;
        while let Some(node) = self.by_node.keys().next().copied() {
            self.end(at, node);
        }
    }

    /// Ends the watches of a connection, without notices.
    pub(crate) fn disconnected(&mut self, connection: u64) {
        for node in self.watchers.remove(&connection).unwrap_or_default() {
            self.count -= 1;
            if let Some(watchers) = self.by_node.get_mut(&node) {
                watchers.retain(|watcher| *watcher != connection);
                if watchers.is_empty() {
                    self.by_node.remove(&node);
                }
            }
        }
    }

    /// Takes the notices to send.
    pub(crate) fn take_notices(&mut self) -> Vec<(u64, Notice)> {
        std::mem::take(&mut self.notices)
    }
}
