//! Splits (sections 4.2, 4.5): a node that is too large gives the lower half of its cells to a new
//! node, or all but the last part to several, in a transaction of its own.
//!
//! The new nodes are the left ones ("right split"), so that ascending inserts stay in the same
//! node. The engine moves cells with their versions and prepared operations, so that no other
//! transaction notices.

use crate::{TreeError, Trees, cache::Goal, search::Fetched};
use yesquel_client::{CommitError, Writes};
use yesquel_model::{
    Conflict, Key, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, limits, separator,
};
use yesquel_transport::Transport;
use yesquel_wire::{
    Answer, Attribute, CellValue, Cells, HOME_ATTRIBUTE, NewNode, NodeKind, NodeOperation, Question, Scan,
    WriteOperation,
};

/// Splits the nodes of one server. Each node's process has its own splitter, so that splits do not
/// contend.
#[derive(Debug, Clone, Copy)]
pub struct Splitter {
    pub(crate) server: ServerId,
    /// Group of the roots of the trees.
    pub(crate) home: ServerId,
    /// Whether the upper half moves, for research.
    is_left: bool,
}

/// Bytes fetched of a value: a child's id. Values of leaves, mostly longer, are not needed.
const CHILD_BYTES: u64 = 16;
/// Bytes of keys fetched, which covers all keys unless one transaction has overfilled the node. Its
/// first keys suffice then: at least four, which an inner node needs for a split.
const KEYS_BYTES: u64 = 4 * limits::KEY_BYTES_MAX as u64;

/// Reads cells of a node, if it exists. Nothing is cached.
async fn look<T: Transport, Seen>(
    trees: &Trees<T>,
    snapshot: &mut Option<Timestamp>,
    node: NodeId,
    range: KeyRange,
    see: impl FnOnce(&Cells<'_>) -> Seen,
) -> Result<Option<Seen>, TreeError> {
    let scan = Scan { range, bytes_max: KEYS_BYTES, value_bytes_max: CHILD_BYTES, ..Scan::all() };
    let reading =
        trees.client.read(snapshot, node.server, &[Question::Scan { node, scan: scan.into() }]).await?;
    match reading.answers().and_then(|answers| answers.iter().next()) {
        Some(Answer::Cells(cells)) => Ok(Some(see(&cells))),
        Some(Answer::Moved(_)) => Ok(None),
        _ => Err(yesquel_client::RequestError::UnexpectedAnswer.into()),
    }
}

/// Maximum number of nodes that one split creates, for its commit is processed in one go.
const PARTS_MAX: usize = 64;

/// Minimum number of children of each part of an inner node. A part with a single child would give
/// the parent as many children as before, and the parent would then be split in the same way
/// without end.
const CHILDREN_MIN: usize = 2;

/// Attempts for a split before it is left for later.
const ATTEMPTS_MAX: usize = 8;

impl Splitter {
    /// Creates a splitter for the nodes of a server.
    pub fn new(server: ServerId) -> Splitter {
        Splitter { server, home: server, is_left: false }
    }

    /// Returns a splitter for the nodes that the server has of trees with their roots at another group.
    pub fn of_home(self, home: ServerId) -> Splitter {
        Splitter { home, ..self }
    }

    /// Creates a splitter that moves the upper half. For research only: the paper measures that it
    /// is worse (section 6.1.4).
    pub fn left(server: ServerId) -> Splitter {
        Splitter { is_left: true, ..Splitter::new(server) }
    }

    /// Splits a node in two halves if it exists and has two cells (an inner node: four). Returns
    /// whether it did.
    pub async fn split<T: Transport>(&self, trees: &Trees<T>, node: NodeId) -> Result<bool, TreeError> {
        self.split_at(trees, node, None).await
    }

    /// Splits a node at a key, or in the middle, if it exists and the key is within its fence.
    /// Returns whether it did.
    pub async fn split_at<T: Transport>(
        &self,
        trees: &Trees<T>,
        node: NodeId,
        at: Option<&[u8]>,
    ) -> Result<bool, TreeError> {
        let cut = at.map_or(SplitCut::Parts { parts: 2, is_left: false }, SplitCut::At);
        let spec = self.spec(cut, &[]);
        Splitter::again(async || self.try_split(trees, node, spec).await).await
    }

    /// Splits a node into `parts` parts with equal numbers of cells, if it exists. This is for a
    /// node that is many times too large: no cell moves more than once. An inner node gets fewer
    /// parts if some would have less than two children.
    ///
    /// With `is_left` the node keeps its lowest part instead of its highest: the old versions of
    /// cells that moved away stay with it, away from where inserts continue. Returns whether it
    /// did.
    pub async fn split_into<T: Transport>(
        &self,
        trees: &Trees<T>,
        node: NodeId,
        parts: usize,
        is_left: bool,
    ) -> Result<bool, TreeError> {
        let spec = self.spec(SplitCut::Parts { parts, is_left }, &[]);
        Splitter::again(async || self.try_split(trees, node, spec).await).await
    }

    pub(crate) fn spec<'a>(&self, cut: SplitCut<'a>, targets: &'a [ServerId]) -> SplitSpec<'a> {
        let (at, parts, is_left) = match cut {
            SplitCut::At(key) => (Some(key), 2, false),
            SplitCut::Parts { parts, is_left } => (None, parts.clamp(2, PARTS_MAX), is_left),
        };
        SplitSpec { at, parts, targets, home: self.home, is_left: is_left || self.is_left }
    }

    /// Retries a limited number of times when another transaction was first.
    pub(crate) async fn again(act: impl AsyncFn() -> Result<bool, TreeError>) -> Result<bool, TreeError> {
        for _ in 0..ATTEMPTS_MAX {
            match act().await {
                Err(TreeError::Commit(CommitError::Refused {
                    refusal: Refusal::Conflict(_) | Refusal::Moved(_),
                    ..
                })) => {}
                outcome => return outcome,
            }
        }
        Ok(false)
    }

    async fn try_split<T: Transport>(
        &self,
        trees: &Trees<T>,
        node: NodeId,
        spec: SplitSpec<'_>,
    ) -> Result<bool, TreeError> {
        let mut snapshot = None;
        let Some(split) = trees.plan_split(&mut snapshot, node, spec).await? else { return Ok(false) };
        trees.client.commit_voting_last(snapshot, &split.writes(), self.server).await?;
        Ok(true)
    }
}

/// Where a node is to be split.
#[derive(Debug, Clone, Copy)]
pub enum SplitCut<'a> {
    /// In two, at a key.
    At(&'a [u8]),
    /// Into parts with equal numbers of cells.
    Parts {
        /// Their number.
        parts: usize,
        /// The node keeps its lowest part instead of its highest.
        is_left: bool,
    },
}

/// How a node is to be split.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SplitSpec<'a> {
    /// Split key; `None`: equal numbers of cells.
    pub(crate) at: Option<&'a [u8]>,
    /// Number of parts without a split key, at least two.
    pub(crate) parts: usize,
    /// Groups of the new leaves, in turn; none: that of the node. New inner nodes are there, too.
    pub(crate) targets: &'a [ServerId],
    /// Group of the tree's root.
    pub(crate) home: ServerId,
    /// Whether the upper part moves.
    pub(crate) is_left: bool,
}

/// Planned split of a node.
#[derive(Debug)]
pub(crate) struct Split {
    node: NodeId,
    pub(crate) kind: NodeKind,
    fence: KeyRange,
    /// The parts and their owners: the node itself keeps one, or none if it is a root.
    parts: Vec<(KeyRange, NodeId)>,
    parent: NodeId,
    /// The group of the root, as new nodes at other groups name it.
    home: [u8; 2],
}

/// Returns the attribute that names the group of the root, if a node is at another group.
fn home_of(node: NodeId, home: &[u8; 2]) -> Option<WriteOperation<'_>> {
    let attribute = Attribute { id: HOME_ATTRIBUTE, value: Some(home) };
    (node.server.0.to_le_bytes() != *home).then_some(WriteOperation::Set(attribute))
}

impl Split {
    /// Returns the operations of the split.
    pub(crate) fn operations(&self) -> impl Iterator<Item = NodeOperation<'_>> {
        let Split { node, kind, fence, parts, parent, home } = self;
        // Those that leave the group come first: the others are then known to be of the same transaction.
        let leaves = move |id: &NodeId| id.server != node.server;
        let away = parts.iter().filter(move |(_, id)| leaves(id));
        let here = parts.iter().filter(move |(_, id)| id != node && !leaves(id));
        let moved = away.chain(here).flat_map(move |(part, id)| {
            let new = NewNode { kind: *kind, fence: part.clone() };
            let home = home_of(*id, home).map(|home| (*id, home));
            let create = [(*id, WriteOperation::Create(new))].into_iter().chain(home);
            create.chain([(*node, WriteOperation::Move { range: part.clone(), to: *id })])
        });
        let kept = parts.iter().find(|(_, id)| id == node);
        let shape = match kept {
            Some((part, _)) => NewNode { kind: *kind, fence: part.clone() },
            // The root stays, one level higher.
            None => NewNode { kind: NodeKind::Inner, fence: fence.clone() },
        };
        let links = parts.iter().map(move |(part, id)| {
            let link = WriteOperation::Link { key: &part.low, child: *id };
            (*parent, link)
        });
        let all = moved.chain([(*node, WriteOperation::Reshape(shape))]).chain(links);
        all.map(|(node, write)| NodeOperation { node, write })
    }

    /// Returns the parts that go to other groups, and their new nodes.
    pub(crate) fn departing(&self) -> Vec<(KeyRange, NodeId)> {
        self.parts.iter().filter(|(_, id)| id.server != self.node.server).cloned().collect()
    }

    fn writes(&self) -> Writes {
        let mut writes = Writes::new();
        self.operations().for_each(|operation| writes.push(&operation));
        writes
    }
}

/// Returns the keys at which the parts begin, but for the first; fewer if there are not enough
/// cells, or not two children for each part.
fn cuts(cells: &Cells<'_>, parts: usize) -> Vec<Key> {
    let count = cells.iter().count();
    let parts = match cells.kind {
        NodeKind::Inner => parts.min(count / CHILDREN_MIN),
        _ => parts,
    };
    let mut places = (1..parts).map(|part| part * count / parts).filter(|place| *place > 0).peekable();
    let (mut cuts, mut before) = (Vec::new(), None);
    for (place, (key, _)) in cells.iter().enumerate() {
        let is_cut = places.peek() == Some(&place);
        if let Some(before) = before.filter(|_| is_cut) {
            cuts.push(match cells.kind {
                NodeKind::Leaf => separator(before, key).into(),
                // An inner node splits only at keys of its children.
                _ => key.into(),
            });
            while places.next_if_eq(&place).is_some() {}
        }
        before = Some(key);
    }
    cuts
}

impl<T: Transport> Trees<T> {
    /// Plans the split of a node, if it exists, has two cells, and the split key is within its
    /// fence.
    pub(crate) async fn plan_split(
        &self,
        snapshot: &mut Option<Timestamp>,
        node: NodeId,
        spec: SplitSpec<'_>,
    ) -> Result<Option<Split>, TreeError> {
        let looked = look(self, snapshot, node, KeyRange::all(), |cells| {
            (cells.kind, cells.fence.clone(), cuts(cells, spec.parts))
        });
        let Some((kind, fence, cuts)) = looked.await? else { return Ok(None) };
        let mut cuts: Vec<Key> = match spec.at {
            // An inner node has a child for each of its keys only.
            Some(at) if kind != NodeKind::Leaf || !fence.contains(at) => return Ok(None),
            Some(at) => vec![at.into()],
            None => cuts,
        };
        // No part may be empty at the low end.
        cuts.retain(|cut| *cut > fence.low);
        if cuts.is_empty() {
            return Ok(None);
        }
        let is_root = node.local == LocalId::ROOT;
        let (count, kept) = match (is_root, spec.is_left) {
            (true, _) => (cuts.len() + 1, None),
            (false, true) => (cuts.len(), Some(0)),
            (false, false) => (cuts.len(), Some(cuts.len())),
        };
        let first = self.issue(count as u64).await?;
        let targets = if kind == NodeKind::Leaf { spec.targets } else { &[] };
        let own = std::slice::from_ref(&node.server);
        let targets = if targets.is_empty() { own } else { targets }.iter().cycle();
        let mut new = (first.0..).zip(targets);
        let mut new = std::iter::from_fn(|| {
            let (local, server) = new.next()?;
            Some(NodeId { tree: node.tree, server: *server, local: LocalId(local) })
        });
        let parent = match kept {
            None => node,
            Some(_) => self.parent(snapshot, node, &fence.low, spec.home).await?,
        };
        let lows = std::iter::once(&fence.low).chain(&cuts).cloned();
        let highs = cuts.iter().map(Some).chain([fence.high.as_ref()]).map(Option::<&Key>::cloned);
        let parts = lows.zip(highs).enumerate().filter_map(|(place, (low, high))| {
            let whose = if kept == Some(place) { node } else { new.next()? };
            Some((KeyRange { low, high }, whose))
        });
        let parts = parts.collect();
        Ok(Some(Split { node, kind, fence, parts, parent, home: spec.home.0.to_le_bytes() }))
    }

    /// Returns the parent of the node whose least key is `low`, in a tree with its root at `home`.
    pub(crate) async fn parent(
        &self,
        snapshot: &mut Option<Timestamp>,
        node: NodeId,
        low: &[u8],
        home: ServerId,
    ) -> Result<NodeId, TreeError> {
        let root = NodeId::root(node.tree, home);
        let damaged = |what| TreeError::Damaged(node.tree, what);
        // Start where the cache expects it; that one cell suffices.
        let guess = self.guess(root, Goal::At(low));
        if let Some(parent) = guess.path.last() {
            let looked = look(self, snapshot, *parent, KeyRange::single(low), |cells| {
                let is_child = |value: CellValue<'_>| match value {
                    CellValue::Bytes(bytes) => *bytes == node.to_bits().to_le_bytes(),
                    CellValue::Length(_) | CellValue::Large(_) => false,
                };
                cells.kind == NodeKind::Inner && cells.iter().next().is_some_and(|(_, child)| is_child(child))
            });
            if looked.await? == Some(true) {
                return Ok(*parent);
            }
        }
        // Otherwise search from the root.
        let mut at = root;
        while let Fetched::Inner(inner) = self.fetch(snapshot, at).await? {
            match inner.child(Goal::At(low)) {
                Some((child, _)) if child == node => return Ok(at),
                Some((child, _)) if child != at => at = child,
                _ => break,
            }
        }
        Err(damaged("a node has no parent"))
    }

    /// Plans the client's split of a node that the server has reported full without splitting it:
    /// the split of a leaf becomes part of the client's own transaction.
    ///
    /// Returns a retryable error if the node is no longer as the snapshot sees it. A full inner
    /// node is split at once, in a transaction of its own, with the same result.
    pub(crate) async fn own_split(
        &self,
        snapshot: &mut Option<Timestamp>,
        full: NodeId,
        home: ServerId,
    ) -> Result<Split, TreeError> {
        let spec = SplitSpec { at: None, parts: 2, targets: &[], home, is_left: false };
        let again = CommitError::Refused {
            server: full.server,
            operation: None,
            refusal: Conflict::Node { node: full }.into(),
        };
        match self.plan_split(snapshot, full, spec).await? {
            Some(split) if split.kind == NodeKind::Leaf => return Ok(split),
            Some(_) => {}
            None => return Err(again.into()),
        }
        let mut node = full;
        for _ in 0..ATTEMPTS_MAX {
            let mut present = None;
            let Some(split) = self.plan_split(&mut present, node, spec).await? else { break };
            match self.client.commit(present, &split.writes()).await {
                Err(CommitError::Refused { refusal: Refusal::Full(parent), .. }) => node = parent,
                // Another transaction may also have split it, or an ancestor.
                Ok(_) => break,
                Err(CommitError::Refused {
                    refusal: Refusal::Conflict(_) | Refusal::Moved(_) | Refusal::Unfit(_),
                    ..
                }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Err(again.into())
    }
}
