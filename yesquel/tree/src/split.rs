//! Splits (sections 4.2, 4.5): a node that is too large gives the lower half of its cells to a new
//! node, or all but the last part to several, in a transaction of its own.
//!
//! The new nodes are the left ones ("right split"), so that ascending inserts stay in the same
//! node. The engine moves cells with their versions and prepared operations, so that no other
//! transaction notices.

use crate::{Tree, TreeError, Trees, cache::Goal, search::Fetched};
use yesquel_client::{CommitError, Writes};
use yesquel_model::{
    Conflict, Key, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, limits, separator,
};
use yesquel_transport::Transport;
use yesquel_wire::{
    Answer, CellValue, Cells, NewNode, NodeKind, NodeOperation, Question, Scan, WriteOperation,
};

/// Splits the nodes of one server. Each node's process has its own splitter, so that splits do not
/// contend.
#[derive(Debug)]
pub struct Splitter {
    server: ServerId,
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
        Splitter { server, is_left: false }
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
        let spec = SplitSpec { at, parts: 2, server: self.server, is_left: self.is_left };
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
        let parts = parts.clamp(2, PARTS_MAX);
        let is_left = is_left || self.is_left;
        let spec = SplitSpec { at: None, parts, server: self.server, is_left };
        Splitter::again(async || self.try_split(trees, node, spec).await).await
    }

    /// Retries a limited number of times when another transaction was first.
    async fn again(act: impl AsyncFn() -> Result<bool, TreeError>) -> Result<bool, TreeError> {
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
        trees.client.commit(snapshot, &split.writes()).await?;
        Ok(true)
    }

    /// Removes an empty leaf: a neighbor below the same parent gets its range. Returns whether it
    /// did.
    pub async fn remove<T: Transport>(&self, trees: &Trees<T>, node: NodeId) -> Result<bool, TreeError> {
        Splitter::again(async || self.try_remove(trees, node).await).await
    }

    async fn try_remove<T: Transport>(&self, trees: &Trees<T>, node: NodeId) -> Result<bool, TreeError> {
        let mut snapshot = None;
        let Fetched::Leaf(page) = trees.fetch(&mut snapshot, node).await? else { return Ok(false) };
        if !page.cells.is_empty() || node.local == LocalId::ROOT {
            return Ok(false);
        }
        let parent = trees.parent(&mut snapshot, node, &page.fence.low).await?;
        let Fetched::Inner(inner) = trees.fetch(&mut snapshot, parent).await? else { return Ok(false) };
        let Some(place) = inner.children.iter().position(|(_, child)| *child == node) else {
            return Ok(false);
        };
        // The next sibling, or the previous one for the last leaf.
        let is_last = place + 1 == inner.children.len();
        let other = if is_last { place.checked_sub(1) } else { Some(place + 1) };
        // An only child stays, for its parent would be left without children.
        let Some((_, heir)) = other.map(|other| &inner.children[other]) else { return Ok(false) };
        let Fetched::Leaf(neighbour) = trees.fetch(&mut snapshot, *heir).await? else {
            return Ok(false);
        };
        let (first, second) =
            if is_last { (&neighbour.fence, &page.fence) } else { (&page.fence, &neighbour.fence) };
        let both = KeyRange { low: first.low.clone(), high: second.high.clone() };
        let mut writes = Writes::new();
        let mut push = |node: NodeId, write: WriteOperation<'_>| writes.push(&NodeOperation { node, write });
        push(*heir, WriteOperation::Reshape(NewNode { kind: NodeKind::Leaf, fence: both }));
        // Guards and prepared writes in the range move along.
        push(node, WriteOperation::Move { range: page.fence.clone(), to: *heir });
        push(node, WriteOperation::Drop);
        push(parent, WriteOperation::Unlink { key: &second.low });
        if !is_last {
            push(parent, WriteOperation::Link { key: &first.low, child: *heir });
        }
        trees.client.commit(snapshot, &writes).await?;
        Ok(true)
    }
}

/// How a node is to be split.
#[derive(Clone, Copy)]
struct SplitSpec<'a> {
    /// Split key; `None`: equal numbers of cells.
    at: Option<&'a [u8]>,
    /// Number of parts without a split key, at least two.
    parts: usize,
    /// Server of the new nodes.
    server: ServerId,
    /// Whether the upper part moves.
    is_left: bool,
}

/// Planned split of a node.
#[derive(Debug)]
pub(crate) struct Split {
    node: NodeId,
    kind: NodeKind,
    fence: KeyRange,
    /// The parts and their owners: the node itself keeps one, or none if it is a root.
    parts: Vec<(KeyRange, NodeId)>,
    parent: NodeId,
}

impl Split {
    /// Returns the operations of the split.
    pub(crate) fn operations(&self) -> impl Iterator<Item = NodeOperation<'_>> {
        let Split { node, kind, fence, parts, parent } = self;
        let moved = parts.iter().filter(move |(_, id)| id != node).flat_map(move |(part, id)| {
            let new = NewNode { kind: *kind, fence: part.clone() };
            let range = part.clone();
            [(*id, WriteOperation::Create(new)), (*node, WriteOperation::Move { range, to: *id })]
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
    async fn plan_split(
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
        let (first, server) = (self.issue(count as u64).await?, spec.server);
        let mut new = (first.0..).map(|local| NodeId { tree: node.tree, server, local: LocalId(local) });
        let parent = match kept {
            None => node,
            Some(_) => self.parent(snapshot, node, &fence.low).await?,
        };
        let lows = std::iter::once(&fence.low).chain(&cuts).cloned();
        let highs = cuts.iter().map(Some).chain([fence.high.as_ref()]).map(Option::<&Key>::cloned);
        let parts = lows.zip(highs).enumerate().filter_map(|(place, (low, high))| {
            let whose = if kept == Some(place) { node } else { new.next()? };
            Some((KeyRange { low, high }, whose))
        });
        let parts = parts.collect();
        Ok(Some(Split { node, kind, fence, parts, parent }))
    }

    /// Returns the parent of the node whose least key is `low`.
    async fn parent(
        &self,
        snapshot: &mut Option<Timestamp>,
        node: NodeId,
        low: &[u8],
    ) -> Result<NodeId, TreeError> {
        let root = Tree::at(NodeId::root(node.tree, node.server)).root;
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
    ) -> Result<Split, TreeError> {
        let spec = SplitSpec { at: None, parts: 2, server: full.server, is_left: false };
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
