//! Prepares that wait in group order, in the order of their arrival.

use crate::{effects::Caller, staging::OperationScript, write_target::WriteTarget};
use yesquel_model::{NodeId, TxnId};
use yesquel_wire::WriteOperation;

/// How long a queued transaction counts as waiting when recovery asks for its vote.
pub(crate) const QUEUED_MS_MAX: u64 = 2_000;

/// A prepare that waits until nothing is prepared or queued before it on the same keys.
#[derive(Debug)]
pub(crate) struct QueuedPrepare {
    pub(crate) txn: TxnId,
    pub(crate) caller: Caller,
    pub(crate) request: Box<[u8]>,
    pub(crate) since_ms: u64,
    pub(crate) arrival: u64,
    /// Name of its staged parts.
    pub(crate) staged: Option<TxnId>,
    targets: Vec<(NodeId, WriteTarget)>,
}

/// The queue of a server.
#[derive(Debug, Default)]
pub(crate) struct PrepareQueue {
    /// In the order of arrival.
    entries: Vec<QueuedPrepare>,
    arrivals: u64,
    /// Transactions that have left without a vote: requests may wait for them. With a caller, if it
    /// has no answer yet.
    left: Vec<(TxnId, Option<Caller>)>,
    /// An entry may have its turn.
    pub(crate) is_changed: bool,
}

/// What a script writes.
pub(crate) fn targets(script: OperationScript<'_>) -> Vec<(NodeId, WriteTarget)> {
    script.iter().map(|operation| (operation.node, WriteTarget::of(&operation.write))).collect()
}

impl PrepareQueue {
    /// Draws the number of a request that has to wait.
    pub(crate) fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// Adds a prepare at its place.
    pub(crate) fn push(&mut self, entry: QueuedPrepare) {
        self.entries.push(entry);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueuedPrepare> {
        self.entries.iter()
    }

    pub(crate) fn at(&mut self, place: usize) -> Option<&mut QueuedPrepare> {
        self.entries.get_mut(place)
    }

    pub(crate) fn get(&self, txn: TxnId) -> Option<&QueuedPrepare> {
        self.entries.iter().find(|entry| entry.txn == txn)
    }

    /// Removes a prepare that has got its vote.
    pub(crate) fn voted(&mut self, place: usize) {
        if place < self.entries.len() {
            self.entries.remove(place);
        }
    }

    /// Removes the prepares that a predicate chooses, which got no vote.
    pub(crate) fn remove(&mut self, is_meant: impl Fn(&QueuedPrepare) -> bool) -> Vec<QueuedPrepare> {
        let removed: Vec<QueuedPrepare> = self.entries.extract_if(.., |entry| is_meant(entry)).collect();
        self.left.extend(removed.iter().map(|entry| (entry.txn, None)));
        self.is_changed |= !removed.is_empty();
        removed
    }

    /// Removes a transaction that has ended. Its caller is answered when the present request is
    /// complete.
    pub(crate) fn end(&mut self, txn: TxnId) {
        for entry in self.entries.extract_if(.., |entry| entry.txn == txn) {
            self.left.push((txn, Some(entry.caller)));
            self.is_changed = true;
        }
    }

    /// Takes the transactions that have left without a vote.
    pub(crate) fn take_left(&mut self) -> Vec<(TxnId, Option<Caller>)> {
        std::mem::take(&mut self.left)
    }

    /// The first transaction that arrived before and has one of these targets.
    pub(crate) fn before(&self, arrival: u64, script: OperationScript<'_>) -> Option<TxnId> {
        let earlier = self.entries.iter().take_while(|entry| entry.arrival < arrival);
        let meets = |entry: &&QueuedPrepare| {
            script.iter().any(|operation| {
                // As for prepared operations: a split does not conflict with writes of cells.
                let is_split =
                    matches!(operation.write, WriteOperation::Move { .. } | WriteOperation::Reshape(_));
                let target = WriteTarget::of(&operation.write);
                entry.targets.iter().any(|(node, other)| {
                    *node == operation.node
                        && other.overlaps(&target)
                        && (!is_split || matches!(other, WriteTarget::Attribute(_) | WriteTarget::Shape))
                })
            })
        };
        earlier.into_iter().find(meets).map(|entry| entry.txn)
    }
}

impl QueuedPrepare {
    pub(crate) fn new(
        txn: TxnId,
        caller: Caller,
        request: &[u8],
        (since_ms, arrival): (u64, u64),
        (staged, targets): (Option<TxnId>, Vec<(NodeId, WriteTarget)>),
    ) -> QueuedPrepare {
        QueuedPrepare { txn, caller, request: request.into(), since_ms, arrival, staged, targets }
    }
}
