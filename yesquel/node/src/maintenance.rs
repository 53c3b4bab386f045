//! Changes of the trees' shape that a group's engine asks for: splits, and removals of empty nodes.

use std::ops::ControlFlow;
use yesquel_client::Client;
use yesquel_engine::{SplitPlan, Techniques};
use yesquel_model::{Key, NodeId, ServerId};
use yesquel_transport::Transport;
use yesquel_tree::{Splitter, TreeError, Trees};

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

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintenanceStep {
    /// A split of a node over the size limit.
    Split,
    /// A split of a node over the load limit.
    LoadSplit,
    /// Removal of an empty leaf.
    Removal,
}

/// Performs a group's work in transactions of its own, as a client of the group.
#[derive(Debug)]
pub struct Maintainer<T> {
    trees: Trees<T>,
    splitter: Splitter,
    /// Whether servers split nodes; clients do otherwise, for research.
    splits: bool,
}

impl<T: Transport> Maintainer<T> {
    /// Creates a maintainer of a server's nodes.
    pub fn new(client: Client<T>, server: ServerId, techniques: Techniques) -> Maintainer<T> {
        let splitter = if techniques.right_splits { Splitter::new(server) } else { Splitter::left(server) };
        Maintainer { trees: Trees::new(client), splitter, splits: techniques.delegated_splits }
    }

    /// Performs work, one change after the other. `plan` returns how to split a node now, and `done`
    /// takes the result of each change, whether the node changed, and says whether to go on. A node
    /// that could not be changed is reported by the engine again.
    pub async fn perform(
        &self,
        work: GroupWork,
        plan: impl Fn(NodeId) -> SplitPlan,
        mut done: impl FnMut(MaintenanceStep, NodeId, Result<bool, TreeError>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Maintainer { trees, splitter, splits } = self;
        for node in work.full.into_iter().filter(|_| *splits) {
            let SplitPlan { parts, mostly_obsolete } = plan(node);
            let split = splitter.split_into(trees, node, parts, mostly_obsolete).await;
            done(MaintenanceStep::Split, node, split)?;
        }
        for (node, key) in work.hot.into_iter().filter(|_| *splits) {
            let split = splitter.split_at(trees, node, Some(&key)).await;
            done(MaintenanceStep::LoadSplit, node, split)?;
        }
        for node in work.empty {
            done(MaintenanceStep::Removal, node, splitter.remove(trees, node).await)?;
        }
        ControlFlow::Continue(())
    }
}
