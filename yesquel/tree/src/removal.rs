//! Removal of empty leaves: a neighbor below the same parent gets the range.

use crate::{
    Splitter, TreeError, Trees,
    departure::{DepartureSource, depart},
    search::Fetched,
};
use yesquel_client::Writes;
use yesquel_model::{KeyRange, LocalId, NodeId};
use yesquel_transport::Transport;
use yesquel_wire::{NewNode, NodeKind, NodeOperation, WriteOperation};

impl Splitter {
    /// Removes an empty leaf: a neighbor below the same parent gets its range. Returns whether it
    /// did.
    pub async fn remove<T: Transport>(
        &self,
        trees: &Trees<T>,
        node: NodeId,
        source: &impl DepartureSource,
    ) -> Result<bool, TreeError> {
        Splitter::again(async || {
            let removed = self.try_remove(trees, node, source).await;
            if !matches!(removed, Ok(true)) {
                source.end(node);
            }
            removed
        })
        .await
    }

    async fn try_remove<T: Transport>(
        &self,
        trees: &Trees<T>,
        node: NodeId,
        source: &impl DepartureSource,
    ) -> Result<bool, TreeError> {
        let mut snapshot = None;
        let Fetched::Leaf(page) = trees.fetch(&mut snapshot, node).await? else { return Ok(false) };
        if !page.cells.is_empty() || node.local == LocalId::ROOT {
            return Ok(false);
        }
        let parent = trees.parent(&mut snapshot, node, &page.fence.low, self.home).await?;
        let Fetched::Inner(inner) = trees.fetch(&mut snapshot, parent).await? else { return Ok(false) };
        let Some(place) = inner.children.iter().position(|(_, child)| *child == node) else {
            return Ok(false);
        };
        // An only child stays, for its parent would be left without children.
        let beside = |place: Option<usize>| inner.children.get(place?).map(|(_, child)| *child);
        let (before, after) = (beside(place.checked_sub(1)), beside(Some(place + 1)));
        // A neighbor at the same group needs no copy of the marks.
        let is_near = |heir: &Option<NodeId>| heir.is_some_and(|heir| heir.server == node.server);
        let is_last = after.is_none() || (is_near(&before) && !is_near(&after));
        let Some(heir) = (if is_last { before } else { after }) else { return Ok(false) };
        let Fetched::Leaf(neighbor) = trees.fetch(&mut snapshot, heir).await? else {
            return Ok(false);
        };
        let (first, second) =
            if is_last { (&neighbor.fence, &page.fence) } else { (&page.fence, &neighbor.fence) };
        let both = KeyRange { low: first.low.clone(), high: second.high.clone() };
        let content = match heir.server == node.server {
            true => None,
            false => match depart(trees, source, node, &[(page.fence.clone(), heir)]).await? {
                // It may have got a cell meanwhile.
                Some(contents) if contents.iter().any(|content| content.has_values) => return Ok(false),
                Some(mut contents) => contents.pop(),
                None => return Ok(false),
            },
        };
        let mut writes = Writes::new();
        let mut push = |node: NodeId, write: WriteOperation<'_>| writes.push(&NodeOperation { node, write });
        push(heir, WriteOperation::Reshape(NewNode { kind: NodeKind::Leaf, fence: both }));
        if let Some(content) = &content {
            push(heir, WriteOperation::Adopt { floor: content.floor, items: &content.items });
        }
        // Guards and prepared writes in the range move along.
        push(node, WriteOperation::Move { range: page.fence.clone(), to: heir });
        push(node, WriteOperation::Drop);
        push(parent, WriteOperation::Unlink { key: &second.low });
        if !is_last {
            push(parent, WriteOperation::Link { key: &first.low, child: heir });
        }
        trees.client.commit_voting_last(snapshot, &writes, self.server).await?;
        Ok(true)
    }
}
