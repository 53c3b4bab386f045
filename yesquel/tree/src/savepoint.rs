//! What a transaction has done step by step, and places in it to come back to.

use crate::transaction::Write;
use std::{
    cell::OnceCell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use yesquel_model::{Key, NodeId};

/// What undoes a step.
#[derive(Debug)]
pub(crate) enum Undo {
    Write(NodeId, Key, Option<Write>),
    Range,
    Guard,
    Create,
    Drop,
}

/// A place in a transaction to come back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    /// Whose it is.
    transaction: u64,
    /// Steps before it.
    depth: usize,
    /// The number of the last of them: if it is another one now, the savepoint
    /// was taken back.
    step: u64,
}

/// The steps of a transaction since its first savepoint.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// What undoes each, and its number, which no other step gets.
    undo: Vec<(u64, Undo)>,
    /// Steps that were kept so far, those that were taken back among them.
    count: u64,
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
        if self.name.get().is_some() {
            self.count += 1;
            self.undo.push((self.count, undo()));
        }
    }

    /// All was taken back, savepoints too.
    pub(crate) fn clear(&mut self) {
        *self = Steps::default();
    }

    /// The number of the last step before a depth; 0: there is none.
    fn step_before(&self, depth: usize) -> u64 {
        depth.checked_sub(1).map_or(0, |last| self.undo[last].0)
    }

    pub(crate) fn savepoint(&self) -> Savepoint {
        let transaction = *self.name.get_or_init(|| NEXT_NAME.fetch_add(1, Relaxed));
        let depth = self.undo.len();
        Savepoint { transaction, depth, step: self.step_before(depth) }
    }

    /// What undoes the steps after a savepoint, the last one first, or why it
    /// cannot be come back to.
    pub(crate) fn back_to(
        &mut self,
        savepoint: Savepoint,
    ) -> Result<impl Iterator<Item = Undo> + use<>, &'static str> {
        if self.name.get() != Some(&savepoint.transaction) {
            return Err("it is another transaction's");
        }
        if savepoint.depth > self.undo.len() || self.step_before(savepoint.depth) != savepoint.step {
            return Err("the transaction was rolled back to one before it");
        }
        Ok(self.undo.split_off(savepoint.depth).into_iter().rev().map(|(_, undo)| undo))
    }
}
