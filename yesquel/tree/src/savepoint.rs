//! Undo log of a transaction, and its savepoints.

use crate::write::BufferedWrite;
use std::{
    cell::{Cell, OnceCell, RefCell},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use yesquel_model::{Key, NodeId};

/// Action that undoes a step.
#[derive(Debug)]
pub(crate) enum Undo {
    Write(NodeId, Key, Option<BufferedWrite>),
    /// Removes the last deleted range of a tree.
    Range(NodeId),
    Guard,
    GuardAtAny,
    Create(NodeId),
    Drop,
}

/// Savepoint: a place in a transaction to roll back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    /// Id of the transaction.
    transaction: u64,
    /// Number of undo steps before it.
    depth: usize,
    /// Number of savepoints set before it, released ones included.
    number: u64,
}

/// Undo steps of a transaction since its first savepoint.
#[derive(Debug, Default)]
pub(crate) struct UndoLog {
    /// Undo steps in order.
    undo: Vec<Undo>,
    /// Numbers of the live savepoints, ascending.
    live: RefCell<Vec<u64>>,
    /// Number of savepoints set so far.
    count: Cell<u64>,
    /// Id of the transaction, once it has a savepoint.
    name: OnceCell<u64>,
}

/// Next id. Only transactions with savepoints draw one, so that the others do not contend for it.
static NEXT_NAME: AtomicU64 = AtomicU64::new(1);

impl UndoLog {
    /// Appends an undo step, built only if there is a savepoint: most transactions have none, and
    /// for large ones the steps take much memory.
    pub(crate) fn push(&mut self, undo: impl FnOnce() -> Undo) {
        if !self.live.get_mut().is_empty() {
            self.undo.push(undo());
        }
    }

    /// Drops all steps and savepoints.
    pub(crate) fn clear(&mut self) {
        *self = UndoLog::default();
    }

    /// Returns the number of savepoints set so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }

    /// Returns whether a live savepoint has this number or a higher one.
    pub(crate) fn has_since(&self, count: u64) -> bool {
        self.live.borrow().last().is_some_and(|last| *last >= count)
    }

    pub(crate) fn savepoint(&self) -> Savepoint {
        let transaction = *self.name.get_or_init(|| NEXT_NAME.fetch_add(1, Relaxed));
        let number = self.count.get();
        self.count.set(number + 1);
        self.live.borrow_mut().push(number);
        Savepoint { transaction, depth: self.undo.len(), number }
    }

    /// Returns the index of a savepoint among the live ones.
    fn place(&mut self, savepoint: Savepoint) -> Result<usize, &'static str> {
        if self.name.get() != Some(&savepoint.transaction) {
            return Err("it is another transaction's");
        }
        let place = self.live.get_mut().binary_search(&savepoint.number);
        place.map_err(|_| "it was released, or the transaction was rolled back to one before it")
    }

    /// Releases a savepoint and the later ones.
    pub(crate) fn release(&mut self, savepoint: Savepoint) -> Result<(), &'static str> {
        let place = self.place(savepoint)?;
        let live = self.live.get_mut();
        live.truncate(place);
        if live.is_empty() {
            self.undo.clear();
        }
        Ok(())
    }

    /// Releases all savepoints.
    pub(crate) fn release_all(&mut self) {
        self.live.get_mut().clear();
        self.undo.clear();
    }

    /// Returns the undo steps after a savepoint, the latest first, or why there is no way back to
    /// it. The savepoint stays live; later ones are released.
    pub(crate) fn back_to(
        &mut self,
        savepoint: Savepoint,
    ) -> Result<impl Iterator<Item = Undo> + use<>, &'static str> {
        let place = self.place(savepoint)?;
        self.live.get_mut().truncate(place + 1);
        let depth = savepoint.depth.min(self.undo.len());
        Ok(self.undo.split_off(depth).into_iter().rev())
    }
}
