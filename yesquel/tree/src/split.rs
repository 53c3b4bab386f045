//! Splits (sections 4.2, 4.5): a node that is too large gives the lower half
//! of its cells to a new one, or all but the last part to several, in a
//! transaction of its own.
//!
//! The new nodes are the left ones ("right split"): keys that grow go on landing
//! in the same node. Moving is the engine's own operation, which takes along
//! versions and prepared operations, so that no other transaction notices.

use crate::{Issuers, Tree, TreeError, Trees, cache::Goal, search::Fetched};
use yesquel_client::{CommitError, Writes};
use yesquel_model::{
    Conflict, Key, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, limits, separator,
};
use yesquel_transport::Transport;
use yesquel_wire::{Answer, CellValue, Cells, NewNode, NodeKind, Operation, Question, Scan, WriteOperation};

/// Splits nodes of one server. There is one for each node, so that splits do
/// not get in each other's way.
#[derive(Debug)]
pub struct Splitter {
    server: ServerId,
    issuers: Issuers,
    /// Whether the upper half of a node goes, for research.
    is_left: bool,
}

/// Bytes of the name of a child. Values of leaves, which are longer mostly, are
/// of no interest.
const CHILD_BYTES: u64 = 16;
/// Bytes of keys that are looked at: all of them, but where one transaction has
/// put much more into a node than it should have. Its first keys will do then:
/// four at least, which no inner node is split without.
const KEYS_BYTES: u64 = 4 * limits::KEY_BYTES_MAX as u64;

/// Looks at cells of a node, if it is there; nothing of it goes into the cache.
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
        _ => Err(yesquel_client::Error::Unfit.into()),
    }
}

/// Nodes that one split makes at most: what it commits is done at once.
const PARTS_MAX: usize = 64;

/// Children of each part of an inner node at least. One of a single child would
/// only lead on, and its parent would get as many children as it had: where that is
/// too many it would be split the same way, and so on without end.
const CHILDREN_MIN: usize = 2;

/// Times that a split is tried before it is left for later.
const ATTEMPTS_MAX: usize = 8;

impl Splitter {
    /// For the nodes of a server.
    pub fn new(server: ServerId) -> Splitter {
        Splitter { server, issuers: Issuers::default(), is_left: false }
    }

    /// One that moves the upper half of a node away: research only, for the
    /// paper has measured that it is worse (section 6.1.4).
    pub fn left(server: ServerId) -> Splitter {
        Splitter { is_left: true, ..Splitter::new(server) }
    }

    /// Splits a node in two of the same size, if it is there and has two cells; an
    /// inner one if it has four. Whether it was.
    pub async fn split<T: Transport>(&self, trees: &Trees<T>, node: NodeId) -> Result<bool, TreeError> {
        self.split_at(trees, node, None).await
    }

    /// Splits a node in two at a key, or in the middle of its cells, if it is
    /// there and the key within its fence. Whether it was.
    pub async fn split_at<T: Transport>(
        &self,
        trees: &Trees<T>,
        node: NodeId,
        at: Option<&[u8]>,
    ) -> Result<bool, TreeError> {
        let way = Way { at, parts: 2, names: (self.server, &self.issuers), is_left: self.is_left };
        Splitter::again(async || self.try_split(trees, node, way).await).await
    }

    /// Splits a node in so many of as many cells each, if it is there: one that is
    /// many times too large, so that no cell is moved more than once. An inner one is
    /// split in fewer if some would not have two children. `is_left` has
    /// the node keep its lowest part and not its highest: what older snapshots
    /// still see of cells that have moved away stays with it, where nobody goes on
    /// inserting. Whether it was.
    pub async fn split_into<T: Transport>(
        &self,
        trees: &Trees<T>,
        node: NodeId,
        parts: usize,
        is_left: bool,
    ) -> Result<bool, TreeError> {
        let parts = parts.clamp(2, PARTS_MAX);
        let is_left = is_left || self.is_left;
        let way = Way { at: None, parts, names: (self.server, &self.issuers), is_left };
        Splitter::again(async || self.try_split(trees, node, way).await).await
    }

    /// Tries as often as somebody else was first, but not for ever.
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
        way: Way<'_>,
    ) -> Result<bool, TreeError> {
        let mut snapshot = None;
        let Some(split) = trees.plan_split(&mut snapshot, node, way).await? else { return Ok(false) };
        trees.client.commit(snapshot, &split.writes()).await?;
        Ok(true)
    }

    /// Takes a leaf away in which nothing is left: a neighbour below the same
    /// parent gets its keys. Whether it was.
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
        // The one after it, or, for the last one, the one before.
        let is_last = place + 1 == inner.children.len();
        let other = if is_last { place.checked_sub(1) } else { Some(place + 1) };
        // An only child stays: its parent would be left without any.
        let Some((_, heir)) = other.map(|other| &inner.children[other]) else { return Ok(false) };
        let Fetched::Leaf(neighbour) = trees.fetch(&mut snapshot, *heir).await? else {
            return Ok(false);
        };
        let (first, second) =
            if is_last { (&neighbour.fence, &page.fence) } else { (&page.fence, &neighbour.fence) };
        let both = KeyRange { low: first.low.clone(), high: second.high.clone() };
        let mut writes = Writes::new();
        let mut push = |node: NodeId, write: WriteOperation<'_>| writes.push(&Operation { node, write });
        push(*heir, WriteOperation::Reshape(NewNode { kind: NodeKind::Leaf, fence: both }));
        // What is guarded there, or about to be written, goes along.
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
struct Way<'a> {
    /// Where; `None`: at cells that are as many apart.
    at: Option<&'a [u8]>,
    /// Else in so many parts, two at least.
    parts: usize,
    /// Where the new nodes will be, and who names them.
    names: (ServerId, &'a Issuers),
    /// Whether the upper part goes.
    is_left: bool,
}

/// A node that is about to be several.
#[derive(Debug)]
pub(crate) struct Split {
    node: NodeId,
    kind: NodeKind,
    fence: KeyRange,
    /// Its parts, and whose they will be: the node itself keeps one, or, if
    /// it is a root, none.
    parts: Vec<(KeyRange, NodeId)>,
    parent: NodeId,
}

impl Split {
    /// What makes it so.
    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        let Split { node, kind, fence, parts, parent } = self;
        let moved = parts.iter().filter(move |(_, id)| id != node).flat_map(move |(part, id)| {
            let new = NewNode { kind: *kind, fence: part.clone() };
            let range = part.clone();
            [(*id, WriteOperation::Create(new)), (*node, WriteOperation::Move { range, to: *id })]
        });
        let kept = parts.iter().find(|(_, id)| id == node);
        let shape = match kept {
            Some((part, _)) => NewNode { kind: *kind, fence: part.clone() },
            // The root stays where it is, one floor higher.
            None => NewNode { kind: NodeKind::Inner, fence: fence.clone() },
        };
        let links = parts.iter().map(move |(part, id)| {
            let link = WriteOperation::Link { key: &part.low, child: *id };
            (*parent, link)
        });
        let all = moved.chain([(*node, WriteOperation::Reshape(shape))]).chain(links);
        all.map(|(node, write)| Operation { node, write })
    }

    fn writes(&self) -> Writes {
        let mut writes = Writes::new();
        self.operations().for_each(|operation| writes.push(&operation));
        writes
    }
}

/// Where so many parts of as many cells each begin, but for the first; fewer, if
/// there are not as many cells, or not two children for each.
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
                // An inner node has children for its keys and none between.
                _ => key.into(),
            });
            while places.next_if_eq(&place).is_some() {}
        }
        before = Some(key);
    }
    cuts
}

impl<T: Transport> Trees<T> {
    /// How a node is split, if it is there, has two cells, and the key where to
    /// is within its fence.
    async fn plan_split(
        &self,
        snapshot: &mut Option<Timestamp>,
        node: NodeId,
        way: Way<'_>,
    ) -> Result<Option<Split>, TreeError> {
        let looked = look(self, snapshot, node, KeyRange::all(), |cells| {
            (cells.kind, cells.fence.clone(), cuts(cells, way.parts))
        });
        let Some((kind, fence, cuts)) = looked.await? else { return Ok(None) };
        let mut cuts: Vec<Key> = match way.at {
            // An inner node has a child for each of its keys only.
            Some(at) if kind != NodeKind::Leaf || !fence.contains(at) => return Ok(None),
            Some(at) => vec![at.into()],
            None => cuts,
        };
        // Nothing is below it.
        cuts.retain(|cut| *cut > fence.low);
        if cuts.is_empty() {
            return Ok(None);
        }
        let is_root = node.local == LocalId::ROOT;
        let (server, issuer) = way.names;
        let (count, kept) = match (is_root, way.is_left) {
            (true, _) => (cuts.len() + 1, None),
            (false, true) => (cuts.len(), Some(0)),
            (false, false) => (cuts.len(), Some(cuts.len())),
        };
        let first = self.issue(issuer, server, count as u64).await?;
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

    /// The node that leads to one whose least key is `low`.
    async fn parent(
        &self,
        snapshot: &mut Option<Timestamp>,
        node: NodeId,
        low: &[u8],
    ) -> Result<NodeId, TreeError> {
        let root = Tree::at(NodeId::root(node.tree, node.server)).root;
        let damaged = |what| TreeError::Damaged(node.tree, what);
        // Where the cache thinks it is, of which the one cell is enough.
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
        // And from the root if that is wrong.
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

    /// A client's own split of a node of which the server has said that it is
    /// full and that it will not split it: a leaf's is for the client's own
    /// transaction, beside what that writes.
    ///
    /// An error of the kind that has a transaction begin again if the node is
    /// not as the snapshot saw it. So it is after an inner node was full, which
    /// is split at once and alone.
    pub(crate) async fn own_split(
        &self,
        snapshot: &mut Option<Timestamp>,
        full: NodeId,
    ) -> Result<Split, TreeError> {
        let way = Way { at: None, parts: 2, names: (full.server, &self.issuers), is_left: false };
        let again = CommitError::Refused {
            server: full.server,
            operation: None,
            refusal: Conflict::Node { node: full }.into(),
        };
        match self.plan_split(snapshot, full, way).await? {
            Some(split) if split.kind == NodeKind::Leaf => return Ok(split),
            Some(_) => {}
            None => return Err(again.into()),
        }
        let mut node = full;
        for _ in 0..ATTEMPTS_MAX {
            let mut present = None;
            let Some(split) = self.plan_split(&mut present, node, way).await? else { break };
            match self.client.commit(present, &split.writes()).await {
                Err(CommitError::Refused { refusal: Refusal::Full(parent), .. }) => node = parent,
                // Or somebody else has split it, or a node above it.
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
