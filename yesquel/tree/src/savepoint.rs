//! What a transaction has done step by step, and places in it to come back to.

use crate::write::Write;
use std::{
    cell::{Cell, OnceCell, RefCell},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use yesquel_model::{Key, NodeId};

/// What undoes a step.
#[derive(Debug)]
pub(crate) enum Undo {
    Write(NodeId, Key, Option<Write>),
    /// The last range of a tree that was deleted.
    Range(NodeId),
    Guard,
    Create(NodeId),
    Drop,
}

/// A place in a transaction to come back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    /// Whose it is.
    transaction: u64,
    /// Steps before it.
    depth: usize,
    /// Savepoints before it, those that are no more among them.
    number: u64,
}

/// The steps of a transaction since its first savepoint.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// What undoes each.
    undo: Vec<Undo>,
    /// The numbers of those that can be come back to, in their order.
    live: RefCell<Vec<u64>>,
    /// Savepoints so far.
    count: Cell<u64>,
    /// The transaction's name, once it has savepoints.
    name: OnceCell<u64>,
}

/// The next name of a transaction. Only those get one that have savepoints: the
/// others need not meet here.
static NEXT_NAME: AtomicU64 = AtomicU64::new(1);

impl Steps {
    /// A step is done. What undoes it is kept, and made, only if there is a place to
    /// come back to: most transactions have none, and large ones need the room.
    pub(crate) fn push(&mut self, undo: impl FnOnce() -> Undo) {
        if !self.live.get_mut().is_empty() {
            self.undo.push(undo());
        }
    }

    /// All was taken back, savepoints too.
    pub(crate) fn clear(&mut self) {
        *self = Steps::default();
    }

    /// How many savepoints there were so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }

    /// Whether there is one that was set when there were so many, or later.
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

    /// Where a savepoint is among those that can be come back to.
    fn place(&mut self, savepoint: Savepoint) -> Result<usize, &'static str> {
        if self.name.get() != Some(&savepoint.transaction) {
            return Err("it is another transaction's");
        }
        let place = self.live.get_mut().binary_search(&savepoint.number);
        place.map_err(|_| "it was released, or the transaction was rolled back to one before it")
    }

    /// Forgets a savepoint, and those after it.
    pub(crate) fn release(&mut self, savepoint: Savepoint) -> Result<(), &'static str> {
        let place = self.place(savepoint)?;
        let live = self.live.get_mut();
        live.truncate(place);
        if live.is_empty() {
            self.undo.clear();
        }
        Ok(())
    }

    /// Forgets all of them.
    pub(crate) fn release_all(&mut self) {
        self.live.get_mut().clear();
        self.undo.clear();
    }

    /// What undoes the steps after a savepoint, the last one first, or why it
    /// cannot be come back to. It stays, and those after it are no more.
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
