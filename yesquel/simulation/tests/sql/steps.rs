//! The steps of a run: faults, and the transactions of the clients' tasks.

use yesquel_simulation::InjectedFault;
use yesquel_sql_histories::{BeginMode, SqlAct};

/// Tables of lists.
pub(crate) const LISTS: usize = 3;
/// Lists of a table.
pub(crate) const KEYS: i64 = 3;
/// Tables whose columns change.
pub(crate) const WIDE: usize = 2;

/// A transaction of a task.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) task: usize,
    pub(crate) pause_us: u64,
    pub(crate) begin: BeginMode,
    pub(crate) acts: Vec<SqlAct>,
    /// Instead of these, all groups of the cluster join the database, which has begun with fewer.
    pub(crate) adds_groups: bool,
    pub(crate) commits: bool,
    /// Whether the connection is opened anew before.
    pub(crate) reopens: bool,
}

/// Guarantees that all connections of a run ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Session,
    Strict,
    Serializable,
}

/// A step of a run. Steps are independent, so that a failing list can be shortened.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Something goes wrong.
    Fault(InjectedFault),
    /// All connections ask for other guarantees than usual.
    Level(Level),
    /// The database begins at so many groups, not at all.
    Groups(usize),
    /// A task of a client runs a transaction.
    Work(Work),
}
