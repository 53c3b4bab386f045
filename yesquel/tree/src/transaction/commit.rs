//! Commit of a transaction: sends its writes to the leaves that the cache names, and again where
//! one was wrong.

use super::{DroppedTree, TreeTransaction};
use crate::{
    Tree, TreeError,
    attributes::encode_groups,
    cache::{Goal, Guess},
    guard::GuardAtAny,
    large::{LargeValues, PlacedValue, operations_of},
    split::Split,
    write::BufferedWrite,
};
use std::{borrow::Cow, collections::BTreeMap};
use yesquel_client::{CommitError, StagedWrites, Writes};
use yesquel_model::{Conflict, Key, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, limits};
use yesquel_transport::Transport;
use yesquel_wire::{Attribute, GROUPS_ATTRIBUTE, NewNode, NodeKind, NodeOperation, WriteOperation};

/// Maximum number of times a commit is sent again because a key has moved.
const MOVES_MAX: usize = 1000;
/// After this many single moves the leaves of all operations are searched.
const MOVES_FOUND_SINGLY: usize = 2;

impl<T: Transport> TreeTransaction<'_, T> {
    /// Allocates the node names of the large values.
    pub(super) async fn larges(&self) -> Result<LargeValues, TreeError> {
        let mut larges = LargeValues::new();
        for (root, writes) in self.writes.iter() {
            for (key, write) in writes {
                let length = write.value.as_ref().map_or(0, |value| value.len());
                if length > limits::CELL_VALUE_BYTES_MAX {
                    let owner = self.trees.leaf(*root, key).server;
                    let large = self.trees.name(Tree::at(*root), key, length as u64, owner).await?;
                    larges.insert((*root, key.clone()), large);
                }
            }
        }
        Ok(larges)
    }

    pub(super) async fn stage(&self, larges: &LargeValues) -> Result<StagedWrites, TreeError> {
        let value = |root: &NodeId, key: &Key| self.writes.get(root)?.get(key)?.value.as_deref();
        self.trees.stage_larges(larges, value).await
    }

    pub(super) async fn commit_staged(
        &self,
        snapshot: Option<Timestamp>,
        larges: &mut LargeValues,
        staging: &mut StagedWrites,
    ) -> Result<Timestamp, TreeError> {
        let client = &self.trees.client;
        // Leaves found because the cache was wrong.
        let (mut found, mut moves) = (LeafMap::default(), 0);
        // Splits of full leaves that the server leaves to the client.
        let (mut snapshot, mut splits) = (snapshot, Vec::new());
        for _ in 0..MOVES_MAX {
            if staging.is_spent() {
                let spent = std::mem::replace(staging, self.stage(larges).await?);
                client.unstage(spent).await;
            }
            let (writes, goals) = self.addressed(&splits, &found, larges);
            if let Some(placed) = self.place_again(&goals, larges).await? {
                *larges = placed;
                let misplaced = std::mem::replace(staging, self.stage(larges).await?);
                client.unstage(misplaced).await;
                continue;
            }
            let outcome = client.commit_staged(snapshot, &writes, staging).await;
            let (server, operation, refusal) = match outcome {
                Ok(at) => {
                    self.has_sent_commit.set(!writes.is_empty());
                    if self.lease.is_some() {
                        self.committed_at.get_or_init(|| writes.servers().collect());
                    }
                    return Ok(at);
                }
                Err(CommitError::Refused { server, operation, refusal }) => (server, operation, refusal),
                Err(error) => return Err(error.into()),
            };
            // The server counts operations from the first staged one.
            let operation = operation.map(|number| number.checked_sub(staged_operations(larges, server)));
            match (refusal, operation.flatten()) {
                (Refusal::Moved(node) | Refusal::Unfit(node), _) if !splits.is_empty() => {
                    // Another transaction has split it, or an ancestor.
                    let refusal = Conflict::Node { node }.into();
                    return Err(CommitError::Refused { server, operation: None, refusal }.into());
                }
                (Refusal::Moved(_), Some(number)) => {
                    // Nothing was done: find the right leaf and send everything again, at the same
                    // snapshot.
                    let mut of_server = goals.iter().filter(|goal| goal.leaf.server == server);
                    let Some(goal) = usize::try_from(number).ok().and_then(|number| of_server.nth(number))
                    else {
                        return Err(yesquel_client::RequestError::UnexpectedAnswer.into());
                    };
                    // The node may say where the key is, or be no leaf any more.
                    self.find(goal, &mut found).await?;
                    moves += 1;
                    if moves >= MOVES_FOUND_SINGLY {
                        self.find_all(&goals, &mut found).await?;
                    }
                }
                (Refusal::Full(leaf), _) => {
                    let root = goals.iter().find(|goal| goal.leaf == leaf).map_or(leaf, |goal| goal.root);
                    splits.push(self.trees.own_split(&mut snapshot, leaf, root.server).await?);
                }
                // The nodes of large values disappear with their tree only.
                (Refusal::Moved(node), None) if operation.is_some() => {
                    return Err(TreeError::NoTree(node.tree));
                }
                (Refusal::Exists(_), _) => return Err(TreeError::Exists),
                (refusal, operation) => {
                    return Err(CommitError::Refused { server, operation, refusal }.into());
                }
            }
        }
        let tree = self.writes.keys().next().map_or_else(Default::default, |root| root.tree);
        Err(TreeError::Damaged(tree, "its keys move faster than they can be followed"))
    }

    /// Names large values anew whose leaves are at other groups than expected, because the group of its
    /// leaf owns a value. `None`: there are none.
    async fn place_again(
        &self,
        goals: &[Addressed<'_>],
        larges: &LargeValues,
    ) -> Result<Option<LargeValues>, TreeError> {
        if larges.is_empty() {
            return Ok(None);
        }
        let mut placed = None;
        // The drop of a tree also removes its long values, wherever they are.
        let remains = |goal: &&Addressed<'_>| !self.drops.iter().any(|dropped| dropped.root == goal.root);
        for Addressed { root, key, leaf } in goals.iter().filter(remains) {
            let of = (*root, Key::from(&**key));
            if let Some(PlacedValue { large, .. }) =
                larges.get(&of).filter(|known| known.owner != leaf.server)
            {
                let named = self.trees.name(Tree::at(*root), key, large.length, leaf.server).await?;
                placed.get_or_insert_with(|| larges.clone()).insert(of, named);
            }
        }
        Ok(placed)
    }

    /// Finds the leaf of an operation, regardless of the cached answer.
    async fn find(&self, goal: &Addressed<'_>, found: &mut LeafMap) -> Result<(), TreeError> {
        // Searches for other operations may have updated the cache.
        let guess = self.trees.guess_again(goal.root, Goal::At(&goal.key));
        let (leaf, fence) = self.trees.leaf_from(goal.root, &goal.key, guess.path, guess.leaf).await?;
        found.put(goal.root, fence, leaf);
        Ok(())
    }

    /// Finds the leaves of all operations: a refusal reports only one, and every attempt sends all.
    async fn find_all(&self, goals: &[Addressed<'_>], found: &mut LeafMap) -> Result<(), TreeError> {
        let mut fresh = LeafMap::default();
        for goal in goals.iter().filter(|goal| !self.is_created_by_commit(goal.root)) {
            if fresh.get(goal.root, &goal.key).is_none() {
                self.find(goal, &mut fresh).await?;
            }
        }
        *found = fresh;
        Ok(())
    }

    /// Returns all operations in order, addressed to the expected leaves, and the target of each.
    fn addressed(
        &self,
        splits: &[Split],
        found: &LeafMap,
        larges: &LargeValues,
    ) -> (Writes, Vec<Addressed<'_>>) {
        let count = self.guarded().count() + self.writes.values().map(BTreeMap::len).sum::<usize>();
        let (mut writes, mut goals) = (Writes::new(), Vec::with_capacity(count));
        self.lease.iter().for_each(|lease| writes.within_lease(lease));
        let guess = |of: NodeId, key: &[u8]| {
            let guess = self.trees.guess(of, Goal::At(key));
            match found.get(of, key) {
                Some((fence, leaf)) => Guess { path: guess.path, leaf: *leaf, fence: fence.clone() },
                None => guess,
            }
        };
        for (root, groups) in self.trees_to_create() {
            let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
            writes.push(&NodeOperation { node: root, write: WriteOperation::Create(new) });
            if let Some(groups) = encode_groups(groups) {
                let write = WriteOperation::Set(Attribute { id: GROUPS_ATTRIBUTE, value: Some(&groups) });
                writes.push(&NodeOperation { node: root, write });
                goals.push(Addressed { root, key: Cow::default(), leaf: root });
            }
            goals.push(Addressed { root, key: Cow::default(), leaf: root });
        }
        let ranges = self.ranges.iter().map(|(root, range)| ((root, range), true));
        // No other client knows a bulk-loaded tree.
        let guards = self.guarded().filter(|(root, _)| !self.is_bulk_loaded(**root));
        for ((root, range), deletes) in ranges.chain(guards.map(|range| (range, false))) {
            if !deletes && range.is_single() {
                // The common case: one leaf holds the range.
                let leaf = found.get(*root, &range.low).map(|(_, leaf)| *leaf);
                let leaf = leaf.unwrap_or_else(|| self.trees.leaf(*root, &range.low));
                writes.push(&NodeOperation { node: leaf, write: WriteOperation::Guard(range.clone()) });
                goals.push(Addressed { root: *root, key: Cow::Borrowed(&range.low), leaf });
                continue;
            }
            // One operation for each leaf.
            let mut rest = range.clone();
            while !rest.is_empty() {
                let guess = guess(*root, &rest.low);
                let part = rest.intersection(&guess.fence);
                let key = Cow::Owned(rest.low.to_vec());
                let next = if rest.covers(&guess.fence) || part.high != rest.high {
                    part.high.clone()
                } else {
                    None
                };
                let write =
                    if deletes { WriteOperation::DeleteRange(part) } else { WriteOperation::Guard(part) };
                writes.push(&NodeOperation { node: guess.leaf, write });
                goals.push(Addressed { root: *root, key, leaf: guess.leaf });
                match next {
                    Some(next) => rest.low = next,
                    None => break,
                }
            }
        }
        for (root, all) in self.writes.iter() {
            for (key, BufferedWrite { value, expect }) in all {
                let leaf = match found.get(*root, key) {
                    Some((_, leaf)) => *leaf,
                    None => self.trees.leaf(*root, key),
                };
                // Mostly there are none.
                let large = if larges.is_empty() { None } else { larges.get(&(*root, key.clone())) };
                let large = large.map(|placed| placed.large.encode());
                let write = match (value, &large) {
                    (_, Some(large)) => {
                        WriteOperation::Put { key, value: large, expect: *expect, is_large: true }
                    }
                    (Some(value), None) => {
                        WriteOperation::Put { key, value, expect: *expect, is_large: false }
                    }
                    (None, None) => WriteOperation::Delete { key, expect: *expect },
                };
                writes.push(&NodeOperation { node: leaf, write });
                goals.push(Addressed { root: *root, key: Cow::Borrowed(key), leaf });
            }
        }
        for GuardAtAny { copies, preferred, range } in &self.guards_at_any {
            let is_written = |copy: &NodeId| goals.iter().any(|goal| goal.leaf.server == copy.server);
            let written = std::iter::once(preferred).chain(copies.iter()).copied().find(is_written);
            let root = written.unwrap_or(*preferred);
            // Each consists of one leaf.
            let leaf = found.get(root, &range.low).map_or(root, |(_, leaf)| *leaf);
            writes.push(&NodeOperation { node: leaf, write: WriteOperation::Guard(range.clone()) });
            goals.push(Addressed { root, key: Cow::Borrowed(&range.low), leaf });
        }
        for DroppedTree { root, groups } in self.drops.iter().filter(|own| !self.is_bulk_loaded(own.root)) {
            let others = groups.iter().filter(|group| **group != root.server);
            let others = others.map(|group| NodeId { server: *group, local: LocalId::ALL, ..*root });
            for node in std::iter::once(*root).chain(others) {
                writes.push(&NodeOperation { node, write: WriteOperation::DropTree });
                goals.push(Addressed { root: *root, key: Cow::default(), leaf: node });
            }
        }
        // Last: the written cells are checked first and then move with the rest of the leaf.
        splits.iter().flat_map(Split::operations).for_each(|operation| writes.push(&operation));
        (writes, goals)
    }
}

/// Returns the number of operations of large values at a server, which come first.
fn staged_operations(larges: &LargeValues, server: ServerId) -> u64 {
    let here = larges.iter().filter(|(_, placed)| placed.large.server == server);
    here.map(|((_, key), placed)| operations_of(&placed.large, key)).sum()
}

/// Leaves found, by root and least key.
#[derive(Debug, Default)]
struct LeafMap(BTreeMap<(NodeId, Key), (KeyRange, NodeId)>);

impl LeafMap {
    fn get(&self, root: NodeId, key: &[u8]) -> Option<&(KeyRange, NodeId)> {
        if self.0.is_empty() {
            return None;
        }
        let (.., found) = self.0.range((root, Key::default())..=(root, key.into())).next_back()?;
        Some(found).filter(|(fence, _)| fence.contains(key))
    }

    /// Adds a leaf in place of the leaves that it was split from or has absorbed.
    fn put(&mut self, root: NodeId, fence: KeyRange, leaf: NodeId) {
        self.0.retain(|(own, _), (other, _)| *own != root || !other.overlaps(&fence));
        self.0.insert((root, fence.low.clone()), (fence, leaf));
    }
}

/// Target of an operation.
struct Addressed<'a> {
    root: NodeId,
    key: Cow<'a, [u8]>,
    leaf: NodeId,
}
