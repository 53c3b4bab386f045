//! What a check of a store finds.

use thiserror::Error;
use yesquel_model::ServerId;
use yesquel_tree::{TreeCounts, TreeFault};

/// Fault of a store.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreFault {
    /// A tree is damaged.
    #[error(transparent)]
    Tree(#[from] TreeFault),
    /// The tree of a map does not exist.
    #[error("its tree does not exist")]
    NoTree,
    /// The tree of a map is that of another map too, or the catalog's.
    #[error("its tree has another name too")]
    SameTree,
    /// Two databases have one number, so that they share their maps.
    #[error("the databases '{name}' and '{other}' have the same number")]
    SameDatabase {
        /// Name of one database.
        name: String,
        /// Name of the other one.
        other: String,
    },
    /// A map belongs to no database.
    #[error("the map '{map}' is of database number {database}, which has no name")]
    NoDatabase {
        /// Number of the database.
        database: u64,
        /// Name of the map.
        map: String,
    },
    /// An entry of the catalog cannot be read.
    #[error("the entry \"{key}\" of the catalog cannot be read")]
    Entry {
        /// The key, with escapes.
        key: String,
    },
    /// A tree has no name.
    #[error("the tree has {nodes} nodes at group {} and no name", group.0)]
    Unnamed {
        /// A group with nodes of it.
        group: ServerId,
        /// Number of its nodes there, without those of long values.
        nodes: u64,
    },
    /// A group does not answer.
    #[error("group {} does not answer, so that its trees are not checked: {why}", group.0)]
    NoAnswer {
        /// The group.
        group: ServerId,
        /// The reason.
        why: String,
    },
    /// A tree could not be checked.
    #[error("it is not checked: {why}")]
    Unchecked {
        /// The reason.
        why: String,
    },
}

impl StoreFault {
    /// Returns a name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            StoreFault::Tree(fault) => fault.code(),
            StoreFault::NoTree => "no_tree",
            StoreFault::SameTree => "same_tree",
            StoreFault::SameDatabase { .. } => "same_database",
            StoreFault::NoDatabase { .. } => "no_database",
            StoreFault::Entry { .. } => "unreadable_entry",
            StoreFault::Unnamed { .. } => "unnamed_tree",
            StoreFault::NoAnswer { .. } => "no_answer",
            StoreFault::Unchecked { .. } => "not_checked",
        }
    }
}

/// A fault and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFault {
    /// Name of the database, if it is in a map.
    pub database: Option<String>,
    /// Name of the map.
    pub map: Option<String>,
    /// Number of the tree.
    pub tree: Option<u64>,
    /// The fault.
    pub fault: StoreFault,
}

/// How far a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckProgress {
    /// Maps that were checked.
    pub trees_done: u64,
    /// Maps to check.
    pub trees_all: u64,
    /// Nodes that were read.
    pub nodes: u64,
    /// Keys that were read.
    pub keys: u64,
}

/// What was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckSummary {
    /// Databases.
    pub databases: u64,
    /// Trees, with those of catalogs.
    pub trees: u64,
    /// What the trees hold.
    pub counts: TreeCounts,
    /// Faults.
    pub faults: u64,
    /// How often a new snapshot was taken, because servers had dropped the one before.
    pub snapshots: u64,
}

/// Receives what a check finds.
pub trait CheckObserver {
    /// Takes a fault.
    fn fault(&mut self, found: &FoundFault);
    /// Learns how far the check has come. Returns whether it goes on; otherwise it ends with
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    fn progress(&mut self, progress: &CheckProgress) -> bool;
}
