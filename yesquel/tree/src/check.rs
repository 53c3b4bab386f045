//! Check of a tree at one snapshot, beside writers: each key is in one leaf, and long values have
//! their pieces.
//!
//! It walks from the root. A node must have the range of keys for which its parent leads to it, and
//! an inner node cuts its own range among its children. So the leaves cover all keys once.

mod fault;
mod node;
mod values;

pub use fault::{TreeCounts, TreeFault};

use crate::{Tree, TreeError, Trees};
use node::{CellCheck, FoundCells, LargeCell};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use yesquel_client::{ReadReply, RequestError};
use yesquel_model::{KeyRange, NodeId, ServerId, Timestamp};
use yesquel_transport::Transport;
use yesquel_wire::{Answer, Cells, Question, Scan};

/// Nodes that are read in one request. With [`NODE_BYTES`] and one key of the largest size in each
/// answer, a reply stays below the limit of a message.
const NODES_AT_ONCE: usize = 8;
/// Bytes of keys that are read of a node at once.
const NODE_BYTES: u64 = 256 << 10;
/// Bytes read of a value: the id of a child. The check needs no longer ones.
const CHILD_BYTES: u64 = 16;
/// Questions whether nodes exist, in one request.
const QUESTIONS_AT_ONCE: usize = 64;

/// Node that is still to be read.
#[derive(Debug)]
struct OpenNode {
    node: NodeId,
    /// The inner node that leads to it.
    parent: Option<NodeId>,
    /// Keys for which the parent leads to it.
    expected: KeyRange,
    /// The check of the cells that were read already, if the node is a long one.
    begun: Option<CellCheck>,
}

impl OpenNode {
    /// The keys that are still to be read.
    fn rest(&self) -> KeyRange {
        let low = self.begun.as_ref().and_then(CellCheck::next_key).unwrap_or_default();
        KeyRange { low, high: None }
    }
}

/// Check of one tree, which its caller drives by [steps](TreeCheck::step). The caller holds the
/// snapshot.
#[derive(Debug)]
pub struct TreeCheck<'t, T> {
    trees: &'t Trees<T>,
    tree: Tree,
    snapshot: Option<Timestamp>,
    /// Nodes that are still to be read, the next one last.
    open: Vec<OpenNode>,
    reached: FxHashSet<NodeId>,
    counts: TreeCounts,
    /// Nodes other than those of long values, by server.
    nodes: BTreeMap<ServerId, u64>,
    faults: Vec<TreeFault>,
}

impl<'t, T: Transport> TreeCheck<'t, T> {
    /// Begins to check a tree at a snapshot.
    pub fn new(trees: &'t Trees<T>, tree: Tree, snapshot: Timestamp) -> TreeCheck<'t, T> {
        let root = OpenNode { node: tree.root, parent: None, expected: KeyRange::all(), begun: None };
        TreeCheck {
            trees,
            tree,
            snapshot: Some(snapshot),
            open: vec![root],
            reached: FxHashSet::default(),
            counts: TreeCounts::default(),
            nodes: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    /// Reads some nodes and checks them. Returns whether there are more.
    ///
    /// Fails with [`TreeError::NoTree`] if the root does not exist.
    pub async fn step(&mut self) -> Result<bool, TreeError> {
        let batch = self.next_batch();
        let Some(server) = batch.first().map(|open| open.node.server) else { return Ok(false) };
        let questions: Vec<Question<'_>> = batch
            .iter()
            .map(|open| {
                let (bytes_max, value_bytes_max) = (NODE_BYTES, CHILD_BYTES);
                let scan = Scan { range: open.rest(), bytes_max, value_bytes_max, ..Scan::all() };
                Question::Scan { node: open.node, scan: scan.into() }
            })
            .collect();
        let reply = self.read(server, &questions).await?;
        let mut answers = reply.answers().ok_or(RequestError::UnexpectedAnswer)?.iter();
        let mut larges = Vec::new();
        for open in batch {
            match answers.next() {
                Some(Answer::Cells(cells)) => self.node(open, &cells, &mut larges),
                Some(Answer::Moved(_)) if open.node == self.tree.root => {
                    return Err(TreeError::NoTree(self.tree.root.tree));
                }
                Some(Answer::Moved(_)) => {
                    self.faults.push(TreeFault::Missing { node: open.node, parent: open.parent });
                }
                _ => return Err(RequestError::UnexpectedAnswer.into()),
            }
        }
        self.check_values(larges).await?;
        Ok(!self.open.is_empty())
    }

    /// Takes the faults that were found since the last call.
    pub fn take_faults(&mut self) -> Vec<TreeFault> {
        std::mem::take(&mut self.faults)
    }

    /// Returns what was checked so far.
    pub fn counts(&self) -> TreeCounts {
        self.counts
    }

    /// Returns the number of nodes reached at a server, without those of long values.
    pub fn nodes_at(&self, server: ServerId) -> u64 {
        self.nodes.get(&server).copied().unwrap_or_default()
    }

    /// Returns the nodes of a list that exist at the snapshot although the tree does not lead to
    /// them. Call it after the last step.
    pub async fn unreached(&self, nodes: impl IntoIterator<Item = NodeId>) -> Result<Vec<NodeId>, TreeError> {
        let candidates: Vec<NodeId> = nodes.into_iter().filter(|node| !self.reached.contains(node)).collect();
        let mut unreached = Vec::new();
        for same_server in candidates.chunk_by(|one, other| one.server == other.server) {
            for nodes in same_server.chunks(QUESTIONS_AT_ONCE) {
                let scan = Scan { cells_max: 0, ..Scan::all() };
                let questions: Vec<Question<'_>> = nodes
                    .iter()
                    .map(|node| Question::Scan { node: *node, scan: scan.clone().into() })
                    .collect();
                let reply = self.read(nodes[0].server, &questions).await?;
                let answers = reply.answers().ok_or(RequestError::UnexpectedAnswer)?;
                let existing = nodes.iter().zip(answers.iter());
                let existing = existing.filter(|(_, answer)| matches!(answer, Answer::Cells(_)));
                unreached.extend(existing.map(|(node, _)| *node));
            }
        }
        Ok(unreached)
    }

    /// Takes the next nodes, all of one server.
    fn next_batch(&mut self) -> Vec<OpenNode> {
        let mut batch: Vec<OpenNode> = Vec::with_capacity(NODES_AT_ONCE);
        while batch.len() < NODES_AT_ONCE {
            let server = batch.first().map(|open| open.node.server);
            match self.open.pop_if(|open| server.is_none_or(|server| open.node.server == server)) {
                // A long node is read alone.
                Some(open) if open.begun.is_some() && !batch.is_empty() => {
                    self.open.push(open);
                    break;
                }
                Some(open) => {
                    let is_long = open.begun.is_some();
                    batch.push(open);
                    if is_long {
                        break;
                    }
                }
                None => break,
            }
        }
        batch
    }

    async fn read(&self, server: ServerId, questions: &[Question<'_>]) -> Result<ReadReply, TreeError> {
        let mut snapshot = self.snapshot;
        Ok(self.trees.client.read(&mut snapshot, server, questions).await?)
    }

    /// Checks cells of a node, and opens its children.
    fn node(&mut self, mut open: OpenNode, cells: &Cells<'_>, larges: &mut Vec<LargeCell>) {
        let mut check = match open.begun.take() {
            Some(check) => check,
            None => {
                if !self.reached.insert(open.node) {
                    // Its children were opened the first time, so that circles end.
                    self.faults.push(TreeFault::ReachedTwice { node: open.node, parent: open.parent });
                    return;
                }
                *self.nodes.entry(open.node.server).or_default() += 1;
                CellCheck::begin(open.node, cells, &open.expected, &mut self.faults)
            }
        };
        let (mut found, before) = (FoundCells::default(), check.next_key());
        check.cells(cells, &mut found, &mut self.faults);
        larges.append(&mut found.larges);
        self.counts.keys += found.keys;
        // Not for ever, should the server send the same part again.
        if cells.more && check.next_key() > before {
            open.begun = Some(check);
            self.open.push(open);
            return;
        }
        let children = check.end(&mut self.faults);
        if check.is_inner() {
            self.counts.inner_nodes += 1;
        } else {
            self.counts.leaves += 1;
        }
        let node = open.node;
        self.open.extend(children.into_iter().rev().map(|(expected, child)| OpenNode {
            node: child,
            parent: Some(node),
            expected,
            begun: None,
        }));
    }
}
