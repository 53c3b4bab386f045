//! Prepared transactions.

use crate::recovery_timer::RecoveryTimer;
use crate::snapshots::Readable;
use crate::write_target::WriteTarget;
use std::sync::Arc;
use yesquel_model::{Key, KeyRange, NodeId, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{Attribute, Decision, Expect, NewNode, NodeOperation, WriteOperation};

/// An owned [`WriteOperation`].
#[derive(Debug, Clone)]
enum OwnedWrite {
    Put(Key, Box<[u8]>, bool),
    Delete(Key),
    DeleteRange(KeyRange),
    Guard(KeyRange),
    Link(Key, NodeId),
    Unlink(Key),
    Set(u16, Option<Box<[u8]>>),
    Create(NewNode),
    Drop,
    DropTree,
    Move(KeyRange, NodeId),
    Adopt(Timestamp, Box<[u8]>),
    Reshape(NewNode),
}

/// An operation of a prepared transaction.
#[derive(Debug, Clone)]
pub(crate) struct PendingWrite {
    pub(crate) node: NodeId,
    change: OwnedWrite,
    /// Also apply here if the commit precedes this time, when the cell moved to another node. There
    /// it is applied in any case.
    until: Timestamp,
}

impl PendingWrite {
    pub(crate) fn new(operation: &NodeOperation<'_>) -> PendingWrite {
        let change = match &operation.write {
            WriteOperation::Put { key, value, is_large, .. } => {
                OwnedWrite::Put((*key).into(), (*value).into(), *is_large)
            }
            WriteOperation::Delete { key, .. } => OwnedWrite::Delete((*key).into()),
            WriteOperation::DeleteRange(range) => OwnedWrite::DeleteRange(range.clone()),
            WriteOperation::Guard(range) => OwnedWrite::Guard(range.clone()),
            WriteOperation::Link { key, child } => OwnedWrite::Link((*key).into(), *child),
            WriteOperation::Unlink { key } => OwnedWrite::Unlink((*key).into()),
            WriteOperation::Set(attribute) => OwnedWrite::Set(attribute.id, attribute.value.map(Into::into)),
            WriteOperation::Create(new) => OwnedWrite::Create(new.clone()),
            WriteOperation::Drop => OwnedWrite::Drop,
            WriteOperation::DropTree => OwnedWrite::DropTree,
            WriteOperation::Move { range, to } => OwnedWrite::Move(range.clone(), *to),
            WriteOperation::Adopt { floor, items } => OwnedWrite::Adopt(*floor, (*items).into()),
            WriteOperation::Reshape(new) => OwnedWrite::Reshape(new.clone()),
        };
        PendingWrite { node: operation.node, change, until: Timestamp::MAX }
    }

    /// The operation to apply for a commit at this time, if a readable snapshot sees it.
    pub(crate) fn operation(&self, at: Timestamp, readable: Readable) -> Option<WriteOperation<'_>> {
        (at < self.until && readable.sees(at, self.until)).then(|| self.write())
    }

    fn write(&self) -> WriteOperation<'_> {
        let expect = Expect::Any;
        match &self.change {
            OwnedWrite::Put(key, value, is_large) => {
                WriteOperation::Put { key, value, expect, is_large: *is_large }
            }
            OwnedWrite::Delete(key) => WriteOperation::Delete { key, expect },
            OwnedWrite::DeleteRange(range) => WriteOperation::DeleteRange(range.clone()),
            OwnedWrite::Guard(range) => WriteOperation::Guard(range.clone()),
            OwnedWrite::Link(key, child) => WriteOperation::Link { key, child: *child },
            OwnedWrite::Unlink(key) => WriteOperation::Unlink { key },
            OwnedWrite::Set(id, value) => WriteOperation::Set(Attribute { id: *id, value: value.as_deref() }),
            OwnedWrite::Create(new) => WriteOperation::Create(new.clone()),
            OwnedWrite::Drop => WriteOperation::Drop,
            OwnedWrite::DropTree => WriteOperation::DropTree,
            OwnedWrite::Move(range, to) => WriteOperation::Move { range: range.clone(), to: *to },
            OwnedWrite::Adopt(floor, items) => WriteOperation::Adopt { floor: *floor, items },
            OwnedWrite::Reshape(new) => WriteOperation::Reshape(new.clone()),
        }
    }

    /// The operation, unless its cell has moved and it is applied elsewhere.
    pub(crate) fn pending(&self) -> Option<NodeOperation<'_>> {
        (self.until == Timestamp::MAX).then(|| NodeOperation { node: self.node, write: self.write() })
    }

    /// When its cell moved away, and the operation, if it did.
    pub(crate) fn departed(&self) -> Option<(Timestamp, NodeOperation<'_>)> {
        let operation = || (self.until, NodeOperation { node: self.node, write: self.write() });
        (self.until < Timestamp::MAX).then(operation)
    }

    /// An operation whose cell has moved away at a time.
    pub(crate) fn departed_at(operation: &NodeOperation<'_>, until: Timestamp) -> PendingWrite {
        PendingWrite { until, ..PendingWrite::new(operation) }
    }

    /// The key and the time its cell moved away, if it did.
    pub(crate) fn moved_away(&self) -> Option<(&[u8], Timestamp)> {
        let (OwnedWrite::Put(key, ..)
        | OwnedWrite::Delete(key)
        | OwnedWrite::Link(key, _)
        | OwnedWrite::Unlink(key)) = &self.change
        else {
            return None;
        };
        (self.until < Timestamp::MAX).then_some((key, self.until))
    }

    /// Whether it drops a tree.
    pub(crate) fn drops_tree(&self) -> bool {
        matches!(self.change, OwnedWrite::DropTree)
    }

    /// Whether it writes or guards keys of a range of a tree, which it protects until the
    /// transaction ends.
    pub(crate) fn overlaps(&self, tree: TreeId, range: &KeyRange) -> bool {
        let is_met = match &self.change {
            OwnedWrite::Put(key, ..) | OwnedWrite::Delete(key) => range.contains(key),
            OwnedWrite::DeleteRange(own) | OwnedWrite::Guard(own) => own.overlaps(range),
            OwnedWrite::DropTree => true,
            _ => false,
        };
        is_met && self.node.tree == tree
    }

    /// Whether a range of its node moves to another group.
    pub(crate) fn departs(&self) -> bool {
        matches!(self.change, OwnedWrite::Move(_, to) if to.server != self.node.server)
    }

    /// Whether it creates its node.
    pub(crate) fn creates(&self) -> bool {
        matches!(self.change, OwnedWrite::Create(_))
    }

    /// Targets that it will change.
    pub(crate) fn target(&self) -> WriteTarget {
        WriteTarget::of(&self.write())
    }

    /// Its counterpart in a node to which a range moves.
    fn moved(&mut self, at: Timestamp, range: &KeyRange, to: NodeId) -> Option<PendingWrite> {
        let change = match &self.change {
            OwnedWrite::Put(key, ..)
            | OwnedWrite::Delete(key)
            | OwnedWrite::Link(key, _)
            | OwnedWrite::Unlink(key)
                if range.contains(key) && self.until == Timestamp::MAX =>
            {
                let change = self.change.clone();
                self.until = at;
                change
            }
            OwnedWrite::DeleteRange(own) if own.overlaps(range) => {
                OwnedWrite::DeleteRange(own.intersection(range))
            }
            OwnedWrite::Guard(own) if own.overlaps(range) => OwnedWrite::Guard(own.intersection(range)),
            _ => return None,
        };
        Some(PendingWrite { node: to, change, until: Timestamp::MAX })
    }
}

/// A transaction that has voted yes here.
#[derive(Debug, Clone)]
pub(crate) struct PreparedTxn {
    /// Record of the vote.
    pub(crate) lsn: u64,
    /// Lower bound of the commit time.
    pub(crate) at: Timestamp,
    pub(crate) birth: Timestamp,
    /// Its client asks the participants one after the other.
    pub(crate) waits: bool,
    /// All participants, in order.
    pub(crate) participants: Arc<[ServerId]>,
    pub(crate) pending: Vec<PendingWrite>,
    /// Memory that it holds, and will need when it commits.
    pub(crate) bytes: usize,
    /// Votes that recovery has learned.
    pub(crate) yes: Vec<(ServerId, Timestamp)>,
    pub(crate) recovery: RecoveryTimer,
    /// Holder whose leases its commit releases; leases do not survive a restart.
    pub(crate) ends_lease: Option<TxnId>,
}

impl PreparedTxn {
    /// Follows cells that move to another node.
    pub(crate) fn moved(&mut self, at: Timestamp, from: NodeId, range: &KeyRange, to: NodeId) {
        let here = self.pending.iter_mut().filter(|pending| pending.node == from);
        let there: Vec<PendingWrite> = here.filter_map(|pending| pending.moved(at, range, to)).collect();
        self.pending.extend(there);
    }
}

/// State of a transaction of several servers at one of them.
pub(crate) enum KnownVote {
    Yes(Timestamp),
    No,
    Decided(Decision),
    /// It is queued, and its client is alive.
    Waiting,
    /// There is no vote and no outcome, and there will be none.
    Forgotten,
}
