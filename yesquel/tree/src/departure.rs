//! Splits of which parts go to other groups (section 4.3: new nodes at the least-loaded server).
//! `docs/yesquel/cluster/moves.md` has the argument.

use crate::{
    Splitter, TreeError, Trees,
    split::{SplitCut, SplitSpec},
};
use std::time::Duration;
use yesquel_client::Writes;
use yesquel_model::{DepartedContent, KeyRange, NodeId, ServerId, StayReason};
use yesquel_transport::Transport;
use yesquel_wire::{NodeOperation, WriteOperation};

/// The group of the nodes that a [`Splitter`] splits.
pub trait DepartureSource {
    /// Copies the contents of ranges of a node, and keeps writers of the node waiting until the move
    /// of these ranges to other groups is decided, or until it [ends](Self::end).
    fn begin(&self, node: NodeId, parts: &[(KeyRange, NodeId)]) -> Result<Vec<DepartedContent>, StayReason>;

    /// The ranges do not move.
    fn end(&self, node: NodeId);
}

/// A source of nodes that never move to another group.
#[derive(Debug, Clone, Copy)]
pub struct NoDepartures;

impl DepartureSource for NoDepartures {
    fn begin(&self, _: NodeId, _: &[(KeyRange, NodeId)]) -> Result<Vec<DepartedContent>, StayReason> {
        Err(StayReason::Unfit)
    }

    fn end(&self, _: NodeId) {}
}

/// Pause while transactions are prepared on the node, and the number of attempts: 0.1 s.
const PREPARED_PAUSE: Duration = Duration::from_millis(5);
const ATTEMPTS_MAX: usize = 20;

/// Begins the departure of ranges, once no transaction is prepared on the node. `None`: they stay.
pub(crate) async fn depart<T: Transport>(
    trees: &Trees<T>,
    source: &impl DepartureSource,
    node: NodeId,
    parts: &[(KeyRange, NodeId)],
) -> Result<Option<Vec<DepartedContent>>, TreeError> {
    for _ in 0..ATTEMPTS_MAX {
        match source.begin(node, parts) {
            Ok(contents) => {
                // The votes of the others must be above all times in it.
                contents.iter().for_each(|content| trees.client.note_seen(content.clock));
                return Ok(Some(contents));
            }
            Err(StayReason::Prepared) => trees.client.pause(PREPARED_PAUSE).await,
            Err(StayReason::Unfit) => break,
        }
    }
    Ok(None)
}

impl Splitter {
    /// Splits a leaf like [`split_into`](Self::split_into), or in two at a key, and gives the parts
    /// that leave the node to new nodes of some groups, in turn. Returns `false` if nothing was done:
    /// the node is no leaf, has long values or too much content, or other transactions are prepared on
    /// it.
    pub async fn split_away<T: Transport>(
        &self,
        trees: &Trees<T>,
        node: NodeId,
        cut: SplitCut<'_>,
        targets: &[ServerId],
        source: &impl DepartureSource,
    ) -> Result<bool, TreeError> {
        let spec = self.spec(cut, targets);
        Splitter::again(async || {
            let split = self.try_split_away(trees, node, spec, source).await;
            if !matches!(split, Ok(true)) {
                source.end(node);
            }
            split
        })
        .await
    }

    async fn try_split_away<T: Transport>(
        &self,
        trees: &Trees<T>,
        node: NodeId,
        spec: SplitSpec<'_>,
        source: &impl DepartureSource,
    ) -> Result<bool, TreeError> {
        let mut snapshot = None;
        let Some(split) = trees.plan_split(&mut snapshot, node, spec).await? else { return Ok(false) };
        let parts = split.departing();
        if parts.is_empty() {
            return Ok(false);
        }
        let Some(contents) = depart(trees, source, node, &parts).await? else { return Ok(false) };
        let mut writes = Writes::new();
        split.operations().for_each(|operation| writes.push(&operation));
        for ((_, to), DepartedContent { floor, items, .. }) in parts.iter().zip(&contents) {
            writes.push(&NodeOperation { node: *to, write: WriteOperation::Adopt { floor: *floor, items } });
        }
        trees.client.commit_voting_last(snapshot, &writes, self.server).await?;
        Ok(true)
    }
}
