//! The steps of a run: faults, and acts of the clients' tasks.

use yesquel_model::limits;
use yesquel_simulation::InjectedFault;
use yesquel_wire::{NODE_PIECES, PIECE_BYTES};

/// Trees that are never dropped, some at each server.
pub(crate) const PERMANENT: usize = 4;
/// All slots for trees; the trees in the others are dropped and created anew.
pub(crate) const SLOTS: usize = PERMANENT + 2;
/// Different keys.
pub(crate) const KEYS: u64 = 30;

/// An act of a task. It begins a transaction if none is open.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Get {
        slot: usize,
        key: u64,
    },
    /// Moves a cursor from a key, or from an end, so many steps.
    Walk {
        slot: usize,
        key: Option<u64>,
        steps: u64,
        down: bool,
    },
    /// Reads all trees.
    Audit,
    Put {
        slot: usize,
        key: u64,
        value: Value,
    },
    Insert {
        slot: usize,
        key: u64,
        value: Value,
    },
    Delete {
        slot: usize,
        key: u64,
    },
    DeleteRange {
        slot: usize,
        from: u64,
        to: u64,
    },
    Guard {
        slot: usize,
        from: u64,
        to: u64,
    },
    /// Drops a tree and creates another one with one key in its slot.
    Replace {
        slot: usize,
        server: usize,
        key: u64,
        value: Value,
    },
    /// Begins a transaction that uses watched leaves of the server of a tree, if none is open.
    UseWatched {
        slot: usize,
        only_reads: bool,
    },
    /// Waits for other tasks that come to the same place, but not for long.
    Meet {
        number: usize,
        tasks: usize,
    },
    Savepoint,
    RollbackTo,
    Rollback,
    Commit,
}

impl Act {
    /// Whether it makes a transaction one that writes.
    pub(crate) fn writes(&self) -> bool {
        match self {
            Act::Put { .. }
            | Act::Insert { .. }
            | Act::Delete { .. }
            | Act::DeleteRange { .. }
            | Act::Guard { .. }
            | Act::Replace { .. } => true,
            Act::Get { .. }
            | Act::Walk { .. }
            | Act::Audit
            | Act::UseWatched { .. }
            | Act::Meet { .. }
            | Act::Savepoint
            | Act::RollbackTo
            | Act::Rollback
            | Act::Commit => false,
        }
    }
}

/// A value by its number and length, from which its bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) number: u32,
    pub(crate) length: usize,
}

impl Value {
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.number.to_le_bytes().into_iter().cycle().take(self.length).collect()
    }

    /// Number of nodes of its own that it takes.
    pub(crate) fn nodes(self) -> u64 {
        let is_long = self.length > limits::CELL_VALUE_BYTES_MAX;
        if is_long { self.length.div_ceil(PIECE_BYTES * NODE_PIECES) as u64 } else { 0 }
    }
}

/// A step of a run. Steps are independent, so that a failing list can be shortened.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Something goes wrong.
    Fault(InjectedFault),
    /// A task of a client does something.
    Act { task: usize, pause_us: u64, act: Act },
}
