//! Splits (sections 4.2, 4.5): a node that is too large gives the lower half
//! of its cells to a new one, in a transaction of its own.
//!
//! The new node is the left one ("right split"): keys that grow go on landing
//! in the same node. Moving is the engine's own operation, which takes along
//! versions and prepared operations, so that no other transaction notices.

use crate::{Issuers, Tree, TreeError, Trees, cache::Goal, search::Fetched};
use yesquel_client::{CommitError, Writes};
use yesquel_model::{Key, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, TreeId};
use yesquel_transport::Transport;
use yesquel_wire::{NewNode, NodeKind, Operation, WriteOperation};

/// Splits nodes of one server. There is one for each node, so that splits do
/// not get in each other's way.
#[derive(Debug)]
pub struct Splitter {
    server: ServerId,
    issuers: Issuers,
}

/// Times that a split is tried before it is left for later.
const ATTEMPTS_MAX: usize = 8;

impl Splitter {
    /// For the nodes of a server.
    pub fn new(server: ServerId) -> Splitter {
        Splitter { server, issuers: Issuers::default() }
    }

    /// A name for a new node of a tree.
    async fn issue<T: Transport>(&self, trees: &Trees<T>, tree: TreeId) -> Result<NodeId, TreeError> {
        let local = trees.issue(&self.issuers, self.server, 1).await?;
        Ok(NodeId { tree, server: self.server, local })
    }

    /// Splits a node in two of the same size, if it is there and has two cells.
    /// Whether it was.
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
        Splitter::again(async || self.try_split(trees, node, at).await).await
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
        at: Option<&[u8]>,
    ) -> Result<bool, TreeError> {
        let mut snapshot = None;
        let (kind, fence, keys) = match trees.fetch(&mut snapshot, node, None).await? {
            Fetched::Leaf(page) => {
                (NodeKind::Leaf, page.fence, page.cells.into_iter().map(|(key, _)| key).collect())
            }
            Fetched::Inner(inner) => {
                let keys: Vec<Key> = inner.children.iter().map(|(key, _)| key.clone()).collect();
                (NodeKind::Inner, inner.fence.clone(), keys)
            }
            Fetched::Moved(_) => return Ok(false),
        };
        let middle: Key = match at {
            // An inner node has a child for each of its keys only.
            Some(at) if kind == NodeKind::Leaf && fence.contains(at) && *fence.low < *at => at.into(),
            Some(_) => return Ok(false),
            None if keys.len() < 2 => return Ok(false),
            None => keys[keys.len() / 2].clone(),
        };
        let low = KeyRange { low: fence.low.clone(), high: Some(middle.clone()) };
        let high = KeyRange { low: middle, high: fence.high.clone() };
        let mut writes = Writes::new();
        let mut push = |node: NodeId, write: WriteOperation<'_>| writes.push(&Operation { node, write });
        let new = |kind: NodeKind, fence: &KeyRange| NewNode { kind, fence: fence.clone() };
        let left = self.issue(trees, node.tree).await?;
        push(left, WriteOperation::Create(new(kind, &low)));
        push(node, WriteOperation::Move { range: low.clone(), to: left });
        if node.local == LocalId::ROOT {
            // The root stays where it is, one floor higher.
            let right = self.issue(trees, node.tree).await?;
            push(right, WriteOperation::Create(new(kind, &high)));
            push(node, WriteOperation::Move { range: high.clone(), to: right });
            push(node, WriteOperation::Reshape(new(NodeKind::Inner, &fence)));
            push(node, WriteOperation::Link { key: &low.low, child: left });
            push(node, WriteOperation::Link { key: &high.low, child: right });
        } else {
            let parent = self.parent(trees, &mut snapshot, node, &fence.low).await?;
            push(node, WriteOperation::Reshape(new(kind, &high)));
            push(parent, WriteOperation::Link { key: &low.low, child: left });
            push(parent, WriteOperation::Link { key: &high.low, child: node });
        }
        trees.client.commit(snapshot, &writes).await?;
        Ok(true)
    }

    /// The node that leads to one whose least key is `low`.
    async fn parent<T: Transport>(
        &self,
        trees: &Trees<T>,
        snapshot: &mut Option<Timestamp>,
        node: NodeId,
        low: &[u8],
    ) -> Result<NodeId, TreeError> {
        let root = Tree::at(NodeId::root(node.tree, node.server)).root;
        let damaged = |what| TreeError::Damaged(node.tree, what);
        // From where the cache thinks it is, and from the root if that is wrong.
        let guess = trees.guess(root, Goal::At(low));
        for start in guess.path.last().copied().into_iter().chain([root]) {
            let mut at = start;
            while let Fetched::Inner(inner) = trees.fetch(snapshot, at, None).await? {
                match inner.child(Goal::At(low)) {
                    Some((child, _)) if child == node => return Ok(at),
                    Some((child, _)) if child != at => at = child,
                    _ => break,
                }
            }
        }
        Err(damaged("a node has no parent"))
    }

    /// Takes a leaf away in which nothing is left: a neighbour below the same
    /// parent gets its keys. Whether it was.
    pub async fn remove<T: Transport>(&self, trees: &Trees<T>, node: NodeId) -> Result<bool, TreeError> {
        Splitter::again(async || self.try_remove(trees, node).await).await
    }

    async fn try_remove<T: Transport>(&self, trees: &Trees<T>, node: NodeId) -> Result<bool, TreeError> {
        let mut snapshot = None;
        let Fetched::Leaf(page) = trees.fetch(&mut snapshot, node, None).await? else { return Ok(false) };
        if !page.cells.is_empty() || node.local == LocalId::ROOT {
            return Ok(false);
        }
        let parent = self.parent(trees, &mut snapshot, node, &page.fence.low).await?;
        let Fetched::Inner(inner) = trees.fetch(&mut snapshot, parent, None).await? else { return Ok(false) };
        let Some(place) = inner.children.iter().position(|(_, child)| *child == node) else {
            return Ok(false);
        };
        // The one after it, or, for the last one, the one before.
        let is_last = place + 1 == inner.children.len();
        let other = if is_last { place.checked_sub(1) } else { Some(place + 1) };
        // An only child stays: its parent would be left without any.
        let Some((_, heir)) = other.map(|other| &inner.children[other]) else { return Ok(false) };
        let Fetched::Leaf(neighbour) = trees.fetch(&mut snapshot, *heir, None).await? else {
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
