//! The steps of a run: faults, and the transactions of the clients' tasks.

use yesquel_simulation::InjectedFault;

/// Tables of lists.
pub(crate) const LISTS: usize = 3;
/// Lists of a table.
pub(crate) const KEYS: i64 = 3;
/// Tables whose columns change.
pub(crate) const WIDE: usize = 2;

/// How a transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Each statement is a transaction of its own.
    Autocommit,
    Deferred,
    Immediate,
}

/// A statement, or a few that belong together.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Append {
        table: usize,
        key: i64,
    },
    Read {
        table: usize,
        key: i64,
    },
    /// Reads all lists of a table.
    ReadAll {
        table: usize,
    },
    /// Compares the columns of a table with the row that counts them.
    CompareColumns {
        table: usize,
    },
    /// Changes the first column of all rows of a table whose columns change, and notes the value.
    UpdateWide {
        table: usize,
    },
    /// Adds a column, and counts it.
    AddColumn {
        table: usize,
    },
    /// Drops the newest column, and counts it.
    DropColumn {
        table: usize,
    },
    /// Drops a table and creates it with its first columns.
    Recreate {
        table: usize,
    },
    /// Creates an index, or drops it, and notes that: of a table whose columns change, or of the rows.
    ChangeIndex {
        table: Option<usize>,
        create: bool,
    },
    /// All groups of the cluster join the database, which has begun with fewer.
    AddGroups,
    InsertRow {
        value: i64,
    },
    UpdateRows {
        value: i64,
    },
    DeleteRow {
        value: i64,
    },
    /// Counts rows by the table and by each index.
    CompareIndexes,
    Savepoint,
    RollbackTo,
}

/// A transaction of a task.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) task: usize,
    pub(crate) pause_us: u64,
    pub(crate) begin: Begin,
    pub(crate) acts: Vec<Act>,
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
