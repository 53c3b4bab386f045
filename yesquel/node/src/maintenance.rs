//! Changes of the trees' shape that a group's engine asks for: splits, and removals of empty nodes.

use std::ops::ControlFlow;
use yesquel_client::Client;
use yesquel_engine::{SplitPlan, Techniques};
use yesquel_model::{Key, NodeId, ServerId};
use yesquel_transport::Transport;
use yesquel_tree::{
    BalancedLoad, DepartureSource, GroupLoad, LeafPlacement, LeafPlacer, SplitCut, Splitter, Tree, TreeError,
    Trees,
};

/// Work that an engine cannot do itself.
#[derive(Debug, Default)]
pub struct GroupWork {
    /// Nodes over the size limit.
    pub full: Vec<NodeId>,
    /// Nodes over the load limit, and the keys to split them at.
    pub hot: Vec<(NodeId, Key)>,
    /// Empty leaves.
    pub empty: Vec<NodeId>,
}

impl GroupWork {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.full.is_empty() && self.hot.is_empty() && self.empty.is_empty()
    }
}

/// The group whose nodes a [`Maintainer`] changes.
pub trait SplitSource: DepartureSource {
    /// Returns how to split a node now.
    fn plan(&self, node: NodeId) -> SplitPlan;

    /// Returns the loads of this group and of those that answer.
    fn loads(&self) -> Vec<(ServerId, GroupLoad)>;
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintenanceStep {
    /// A split of a node over the size limit.
    Split,
    /// A split of a node over the load limit.
    LoadSplit,
    /// A split whose new leaves go to several groups. If nothing was done, a split at this group
    /// follows.
    SplitAway,
    /// Removal of an empty leaf.
    Removal,
}

/// Performs a group's work in transactions of its own, as a client of the group.
#[derive(Debug)]
pub struct Maintainer<T> {
    trees: Trees<T>,
    splitter: Splitter,
    placer: LeafPlacer,
    /// Whether servers split nodes; clients do otherwise, for research.
    splits: bool,
}

/// Most groups that one split chooses.
const TARGETS_MAX: usize = 64;

impl<T: Transport> Maintainer<T> {
    /// Creates a maintainer of a server's nodes.
    pub fn new(
        client: Client<T>,
        server: ServerId,
        techniques: Techniques,
        placement: LeafPlacement,
    ) -> Maintainer<T> {
        let splitter = if techniques.right_splits { Splitter::new(server) } else { Splitter::left(server) };
        let (trees, placer) = (Trees::new(client), LeafPlacer::new(placement));
        Maintainer { trees, splitter, placer, splits: techniques.delegated_splits }
    }

    /// Performs work, one change after the other. `done` takes the result of each change, whether the
    /// node changed, and says whether to go on. A node that could not be changed is reported by the
    /// engine again.
    pub async fn perform(
        &mut self,
        work: GroupWork,
        group: &impl SplitSource,
        mut done: impl FnMut(MaintenanceStep, NodeId, Result<bool, TreeError>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let splits = self.splits;
        for node in work.full.into_iter().filter(|_| splits) {
            let plan = group.plan(node);
            let SplitPlan { parts, mostly_obsolete: is_left, home, .. } = plan;
            // It was split since it was reported.
            if parts < 2 {
                continue;
            }
            let splitter = self.splitter.of_home(home);
            let targets = self.targets(node, plan, BalancedLoad::Memory, group).await;
            if !targets.is_empty() {
                let cut = SplitCut::Parts { parts, is_left };
                let split = splitter.split_away(&self.trees, node, cut, &targets, group).await;
                let has_split = split == Ok(true);
                done(MaintenanceStep::SplitAway, node, split)?;
                if has_split {
                    continue;
                }
            }
            let split = splitter.split_into(&self.trees, node, parts, is_left).await;
            done(MaintenanceStep::Split, node, split)?;
        }
        for (node, key) in work.hot.into_iter().filter(|_| splits) {
            let plan = SplitPlan { parts: 2, ..group.plan(node) };
            let splitter = self.splitter.of_home(plan.home);
            let targets = self.targets(node, plan, BalancedLoad::Requests, group).await;
            if !targets.is_empty() {
                let cut = SplitCut::At(&key);
                let split = splitter.split_away(&self.trees, node, cut, &targets, group).await;
                let has_split = split == Ok(true);
                done(MaintenanceStep::SplitAway, node, split)?;
                if has_split {
                    continue;
                }
            }
            let split = splitter.split_at(&self.trees, node, Some(&key)).await;
            done(MaintenanceStep::LoadSplit, node, split)?;
        }
        for node in work.empty {
            let splitter = self.splitter.of_home(group.plan(node).home);
            done(MaintenanceStep::Removal, node, splitter.remove(&self.trees, node, group).await)?;
        }
        ControlFlow::Continue(())
    }

    /// Chooses the groups of the new leaves of a split; none: all stay at this group.
    async fn targets(
        &mut self,
        node: NodeId,
        SplitPlan { parts, home, bytes, .. }: SplitPlan,
        balanced: BalancedLoad,
        group: &impl SplitSource,
    ) -> Vec<ServerId> {
        let own = node.server;
        if !self.placer.is_distributing() {
            return Vec::new();
        }
        let mut loads = group.loads();
        if loads.len() < 2 {
            return Vec::new();
        }
        // If the home group does not answer, no leaf can be linked there either.
        let groups = self.trees.groups(Tree::at(NodeId::root(node.tree, home))).await.unwrap_or_default();
        loads.retain(|(group, _)| groups.contains(group));
        if loads.len() < 2 {
            return Vec::new();
        }
        let count = parts.clamp(1, TARGETS_MAX);
        let part_bytes = (bytes / count) as u64;
        let targets = (0..count).map(|_| {
            let target = self.placer.choose(own, &loads, balanced);
            if let Some((_, load)) = loads.iter_mut().find(|(group, _)| *group == target) {
                load.memory_bytes += part_bytes;
            }
            target
        });
        let targets: Vec<ServerId> = targets.collect();
        if targets.iter().all(|target| *target == own) { Vec::new() } else { targets }
    }
}
