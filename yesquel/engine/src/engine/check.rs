//! Checks of a transaction's operations before any of them is done.

use super::Engine;
use crate::{effects::Stop, node::Node, staging::OperationScript, store::TreeEnd, transaction::PreparedTxn};
use rustc_hash::FxHashMap;
use yesquel_model::{Conflict, KeyRange, LocalId, NodeId, Refusal, Timestamp, TreeId, TxnId};
use yesquel_wire::{NewNode, NodeKind, NodeOperation, WriteOperation};

/// Moves of one transaction from nodes that it has not reshaped yet; a split makes two.
const MOVES_MAX: usize = 64;

/// A check of one transaction, with the effects of its operations so far.
struct OperationCheck<'e> {
    engine: &'e Engine,
    now_ms: u64,
    holder: TxnId,
    snapshot: Timestamp,
    /// Whether the request is a Prepare: other groups take part.
    prepares: bool,
    is_leased: bool,
    /// Nodes that the transaction has created or reshaped; `None`: dropped.
    made: FxHashMap<NodeId, Option<NewNode>>,
    /// Ranges that it has moved away from nodes that it has not reshaped yet.
    moved: Vec<(NodeId, KeyRange)>,
    /// Leaves from which the transaction moves a range to another group.
    departing: Vec<NodeId>,
    /// Full nodes that it writes to and must split itself.
    full: Vec<NodeId>,
}

impl Engine {
    /// Checks each operation in turn. Nothing is changed.
    pub(super) fn check_each(
        &self,
        now_ms: u64,
        holder: TxnId,
        snapshot: Timestamp,
        (script, prepares): (OperationScript<'_>, bool),
    ) -> Result<(), Stop> {
        let mut check = OperationCheck {
            engine: self,
            now_ms,
            holder,
            snapshot,
            prepares,
            is_leased: self.leases.count() > 0,
            made: FxHashMap::default(),
            moved: Vec::new(),
            departing: Vec::new(),
            full: Vec::new(),
        };
        for (number, operation) in script.iter().enumerate() {
            check.operation(operation).map_err(|stop| stop.of_operation(number as u64))?;
        }
        match check.full.first() {
            None => Ok(()),
            Some(node) => Err(Refusal::Full(*node).into()),
        }
    }

    /// A transaction that has prepared something in a tree.
    fn prepared_in(&self, tree: TreeId) -> Option<TxnId> {
        let of_tree =
            |prepared: &PreparedTxn| prepared.pending.iter().any(|pending| pending.node.tree == tree);
        self.prepared.iter().find(|(_, prepared)| of_tree(prepared)).map(|(by, _)| *by)
    }
}

impl<'e> OperationCheck<'e> {
    fn operation(&mut self, NodeOperation { node: id, write }: NodeOperation<'_>) -> Result<(), Stop> {
        match self.engine.store.tree_end(id.tree) {
            Some(TreeEnd::Prepared(by, _)) => return Err(Stop::Wait(by)),
            Some(TreeEnd::Dropped(_)) => return Err(Refusal::Moved(id).into()),
            _ => {}
        }
        if let WriteOperation::Create(new) = write {
            return self.create(id, new);
        }
        let node = self.engine.store.get(id);
        if write == WriteOperation::DropTree && id.local == LocalId::ALL {
            // The group may have no node of the tree.
            if self.is_leased {
                self.engine.leases.check(self.now_ms, self.holder, id.tree, NodeKind::Leaf, &write)?;
            }
            return self.conflicts(id, None, &write);
        }
        let kind = self.place(id, node, &write)?;
        if self.is_leased {
            self.engine.leases.check(self.now_ms, self.holder, id.tree, kind, &write)?;
        }
        self.conflicts(id, node, &write)?;
        if self.checks_departures(&write) {
            self.engine.check_departure(id, &write, self.departing.contains(&id))?;
        }
        match write {
            WriteOperation::Move { range, to } => self.move_range(id, kind, range, to)?,
            WriteOperation::Reshape(new) => self.reshape(id, node, kind, new)?,
            WriteOperation::Drop => drop(self.made.insert(id, None)),
            WriteOperation::Adopt { floor, items } => self.adopt(id, node, floor, items)?,
            // The piece may have been collected, and at another time than after a restart, unless the
            // transaction itself creates it.
            WriteOperation::Set(_) if kind == NodeKind::Value && !self.made.contains_key(&id) => {
                return Err(Refusal::Unfit(id).into());
            }
            // An inner node has a child for each key: the node was split since the transaction read it.
            WriteOperation::Unlink { key }
                if self.shape(id, node).is_some_and(|(_, fence)| *fence.low == *key) =>
            {
                return Err(Refusal::from(Conflict::Node { node: id }).into());
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a node of an operation may be departing.
    #[inline]
    fn checks_departures(&self, write: &WriteOperation<'_>) -> bool {
        !self.engine.departures.is_empty() || matches!(write, WriteOperation::Move { .. })
    }

    fn adopt(&self, id: NodeId, node: Option<&Node>, floor: Timestamp, items: &[u8]) -> Result<(), Stop> {
        match self.made.get(&id) {
            // A restart could bring back copies that are collected now, and the state would differ.
            Some(Some(new)) if node.is_some_and(|node| node.has_copies_in(&new.fence)) => {
                Err(Refusal::from(Conflict::Node { node: id }).into())
            }
            Some(Some(new)) => {
                Ok(self.engine.check_content(id, &new.fence, node.is_none(), (floor, items))?)
            }
            _ => Err(Refusal::Unfit(id).into()),
        }
    }

    /// Kind and fence of a node after the operations so far, if it exists.
    fn shape<'s>(&'s self, id: NodeId, node: Option<&'s Node>) -> Option<(NodeKind, &'s KeyRange)> {
        match self.made.get(&id) {
            Some(made) => made.as_ref().map(|new| (new.kind, &new.fence)),
            None => node.and_then(Node::shape).map(|shape| (shape.kind, &shape.fence)),
        }
    }

    fn has_moved(&self, from: NodeId, is_met: impl Fn(&KeyRange) -> bool) -> bool {
        self.moved.iter().any(|(node, range)| *node == from && is_met(range))
    }

    fn create(&mut self, id: NodeId, new: NewNode) -> Result<(), Stop> {
        if self.engine.store.get(id).is_some() || self.made.contains_key(&id) {
            return Err(Refusal::from(Conflict::Node { node: id }).into());
        }
        if let Some(by) = self.engine.creating.get(&id) {
            return Err(Stop::Wait(*by));
        }
        self.made.insert(id, Some(new));
        Ok(())
    }

    /// Checks that the operation belongs to this node; returns the node's kind.
    fn place(&self, id: NodeId, node: Option<&Node>, write: &WriteOperation<'_>) -> Result<NodeKind, Stop> {
        let Some((kind, fence)) = self.shape(id, node) else {
            // Another transaction may be about to create it.
            let maker = self.engine.creating.get(&id).filter(|_| !self.made.contains_key(&id));
            return Err(maker.map_or_else(|| Refusal::Moved(id).into(), |by| Stop::Wait(*by)));
        };
        let is_of_root = *write == WriteOperation::DropTree;
        if !holds(kind, fence, write)
            || self.has_moved(id, |range| touches(write, range))
            || (is_of_root && id.local != LocalId::ROOT)
        {
            return Err(Refusal::Moved(id).into());
        }
        Ok(kind)
    }

    /// Checks that no other transaction conflicts, and that the node is not too full.
    fn conflicts(
        &mut self,
        id: NodeId,
        node: Option<&'e Node>,
        write: &WriteOperation<'_>,
    ) -> Result<(), Stop> {
        let (store, techniques) = (&self.engine.store, self.engine.settings.techniques);
        if let Some(node) = node {
            if !techniques.commutative_operations {
                // As if each operation were on the whole node.
                node.check(self.snapshot, &WriteOperation::Drop)?;
            }
            node.check(self.snapshot, write)?;
            // Unless a later operation of the transaction splits it.
            let is_full = !techniques.delegated_splits && !self.made.contains_key(&id) && store.is_full(node);
            if is_full && node.grows(write) {
                self.full.push(id);
            }
        }
        if *write == WriteOperation::DropTree
            && let Some(by) = self.engine.prepared_in(id.tree)
        {
            return Err(Stop::Wait(by));
        }
        Ok(())
    }

    fn move_range(&mut self, id: NodeId, kind: NodeKind, range: KeyRange, to: NodeId) -> Result<(), Stop> {
        let target = self.made.get(&to).and_then(Option::as_ref);
        let departs = to.server != id.server;
        let fits = if departs {
            // Another group adopts the range in the same transaction.
            kind == NodeKind::Leaf && self.prepares
        } else {
            target.is_some_and(|new| new.kind == kind && new.fence.covers(&range))
        };
        let is_spent = self.moved.len() == MOVES_MAX;
        if !fits || to == id || is_spent || self.has_moved(to, |other| other.overlaps(&range)) {
            return Err(Refusal::Unfit(to).into());
        }
        self.moved.push((id, range));
        if departs {
            self.departing.push(id);
        }
        Ok(())
    }

    fn reshape(
        &mut self,
        id: NodeId,
        node: Option<&'e Node>,
        kind: NodeKind,
        new: NewNode,
    ) -> Result<(), Stop> {
        // An unreferenced piece may be collected at any time, and at another time after a restart.
        if [kind, new.kind].contains(&NodeKind::Value) {
            return Err(Refusal::Unfit(id).into());
        }
        // Whatever the node gives up must have moved to another one.
        let stays = Some(&new.fence).filter(|_| new.kind == kind);
        let goes = self.moved.iter().filter(|(from, _)| *from == id).map(|(_, range)| range);
        let is_whole = self.shape(id, node).is_some_and(|(_, fence)| fence.is_covered_by(goes.chain(stays)));
        if !is_whole {
            return Err(Refusal::Unfit(id).into());
        }
        self.moved.retain(|(from, _)| *from != id);
        self.full.retain(|full| *full != id);
        self.made.insert(id, Some(new));
        Ok(())
    }
}

/// Whether an operation touches keys of a range.
fn touches(write: &WriteOperation<'_>, range: &KeyRange) -> bool {
    match write {
        WriteOperation::Put { key, .. }
        | WriteOperation::Delete { key, .. }
        | WriteOperation::Link { key, .. }
        | WriteOperation::Unlink { key } => range.contains(key),
        WriteOperation::DeleteRange(own)
        | WriteOperation::Guard(own)
        | WriteOperation::Move { range: own, .. } => own.overlaps(range),
        _ => false,
    }
}

/// Whether an operation fits a node of this kind and fence.
fn holds(kind: NodeKind, fence: &KeyRange, write: &WriteOperation<'_>) -> bool {
    match write {
        WriteOperation::Put { key, .. } => kind != NodeKind::Inner && fence.contains(key),
        WriteOperation::Delete { key, .. } => kind == NodeKind::Leaf && fence.contains(key),
        WriteOperation::Link { key, .. } | WriteOperation::Unlink { key } => {
            kind == NodeKind::Inner && fence.contains(key)
        }
        WriteOperation::DeleteRange(range) | WriteOperation::Guard(range) => {
            kind == NodeKind::Leaf && fence.covers(range)
        }
        WriteOperation::Move { range, .. } => fence.covers(range),
        WriteOperation::Set(_) | WriteOperation::Drop | WriteOperation::Reshape(_) => true,
        WriteOperation::DropTree => true,
        WriteOperation::Adopt { .. } => kind == NodeKind::Leaf,
        WriteOperation::Create(_) => false,
    }
}
