//! YDBT, the distributed balanced tree (SOSP'15, section 4): ordered maps with
//! transactions, over nodes.
//!
//! `docs/yesquel/tree.md` says how a tree is made of nodes and how it is
//! searched.

mod ahead;
mod cache;
mod counters;
mod cursor;
mod gap;
mod large;
mod page;
mod pages;
mod proof;
mod savepoint;
mod search;
mod split;
mod stored;
mod transaction;
mod write;

pub use ahead::{Entry as UnderWayEntry, UnderWay};
pub use counters::{Counters, Counts};
pub use cursor::Cursor;
pub use proof::Proof;
pub use savepoint::Savepoint;
pub use split::Splitter;
pub use transaction::Transaction;

use cache::Cache;
use crossbeam_utils::sync::ShardedLock;
use rustc_hash::FxHashMap;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use thiserror::Error;
use yesquel_client::{Client, CommitError, Writes};
use yesquel_model::{Issuer, KeyRange, LocalId, NodeId, Refusal, ServerId, TreeId};
use yesquel_transport::Transport;
use yesquel_wire::{NewNode, NodeKind, Operation, WriteOperation};

/// Why an operation on trees failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TreeError {
    /// A server was asked in vain.
    #[error(transparent)]
    Client(#[from] yesquel_client::Error),
    /// A transaction was not committed, or may not have been.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The key to insert is there.
    #[error("the key exists already")]
    Exists,
    /// There is no such tree at the snapshot.
    #[error("there is no tree {0}")]
    NoTree(TreeId),
    /// A key or value is too long.
    #[error("{what} of {bytes} bytes is longer than the {bytes_max} that are taken")]
    TooLong {
        /// A key, or a value.
        what: &'static str,
        /// How long.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// It was tried to commit the transaction, and is not known whether it was.
    #[error(
        "it is not known whether the transaction was committed: there is nothing more to be done with it"
    )]
    Abandoned,
    /// A savepoint that the transaction cannot come back to.
    #[error("not a savepoint to roll back to: {0}")]
    Savepoint(&'static str),
    /// The nodes of a tree lead nowhere.
    #[error("tree {0} is damaged: {1}")]
    Damaged(TreeId, &'static str),
}

impl TreeError {
    /// Whether another transaction was first, so that this one may be begun
    /// again.
    pub fn is_conflict(&self) -> bool {
        let refusal = match self {
            TreeError::Commit(CommitError::Refused { refusal, .. }) => refusal,
            TreeError::Client(yesquel_client::Error::Refused(refusal)) => refusal,
            _ => return false,
        };
        matches!(refusal, Refusal::Conflict(_) | Refusal::SnapshotTooOld { .. } | Refusal::GivenUp(_))
    }
}

/// A tree: the id of its root, which never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tree {
    root: NodeId,
}

impl Tree {
    /// The tree with this root.
    pub fn at(root: NodeId) -> Tree {
        Tree { root }
    }

    /// Its root.
    pub fn root(self) -> NodeId {
        self.root
    }
}

/// Whose counters give out the numbers of trees and of issuers.
const TREE_NUMBERS: LocalId = LocalId(1);
const ISSUER_NUMBERS: LocalId = LocalId(2);

/// Trees of one client, with what it has learned of their inner nodes.
/// Threads may share it.
#[derive(Debug)]
pub struct Trees<T> {
    client: Client<T>,
    cache: ShardedLock<Cache>,
    counters: Counters,
    /// For the nodes of long values.
    issuers: Issuers,
    /// What a transaction gathers for trees that it makes.
    ahead_bytes: AtomicUsize,
}

/// Whoever names new nodes, for each server, which count theirs by themselves.
pub(crate) type Issuers = Mutex<FxHashMap<ServerId, Issuer>>;

impl<T: Transport> Trees<T> {
    /// Trees by way of a client.
    pub fn new(client: Client<T>) -> Trees<T> {
        Trees {
            client,
            cache: ShardedLock::default(),
            counters: Counters::default(),
            issuers: Issuers::default(),
            ahead_bytes: AtomicUsize::new(ahead::AHEAD_BYTES),
        }
    }

    /// How many bytes transactions that begin now gather for trees that they make
    /// before they send them [ahead](Transaction::send_ahead) of the commit.
    pub fn set_ahead_bytes(&self, bytes: usize) {
        self.ahead_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn ahead_bytes(&self) -> usize {
        self.ahead_bytes.load(Relaxed)
    }

    /// The client.
    pub fn client(&self) -> &Client<T> {
        &self.client
    }

    /// What searches have cost.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Begins a transaction. Nothing is asked of a server.
    pub fn begin(&self) -> Transaction<'_, T> {
        Transaction::new(self)
    }

    /// The first of so many names for new nodes of a server, which follow each
    /// other.
    async fn issue(&self, issuers: &Issuers, server: ServerId, count: u64) -> Result<LocalId, TreeError> {
        loop {
            let issued = {
                let mut issuers = issuers.lock().unwrap_or_else(PoisonError::into_inner);
                issuers.get_mut(&server).and_then(|issuer| issuer.issue(count))
            };
            if let Some(first) = issued {
                return Ok(first);
            }
            let numbers = NodeId { tree: TreeId::default(), server, local: ISSUER_NUMBERS };
            let number = self.client.take(numbers, 1, 0).await?;
            let spent = TreeError::Damaged(TreeId::default(), "there are no names for nodes left");
            let fresh = Issuer::new(number).ok_or(spent)?;
            issuers.lock().unwrap_or_else(PoisonError::into_inner).insert(server, fresh);
        }
    }

    /// Makes a tree whose root is named already, empty, if it is not there.
    pub async fn create_if_missing(&self, tree: Tree) -> Result<(), TreeError> {
        match self.make(tree.root).await {
            Err(TreeError::Commit(CommitError::Refused { refusal: Refusal::Conflict(_), .. })) => Ok(()),
            made => made,
        }
    }

    async fn make(&self, root: NodeId) -> Result<(), TreeError> {
        let create = WriteOperation::Create(NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() });
        let mut writes = Writes::new();
        writes.push(&Operation { node: root, write: create });
        self.client.commit(None, &writes).await?;
        Ok(())
    }

    /// A number from a counter of a server that nobody else gets. Counters
    /// below 16 are the trees' own.
    pub async fn number(&self, server: ServerId, counter: u16) -> Result<u64, TreeError> {
        let node = NodeId { tree: TreeId::default(), server, local: LocalId(u64::from(counter)) };
        Ok(self.client.take(node, 1, 0).await?)
    }

    /// Makes a tree at a server, empty.
    pub async fn create(&self, server: ServerId) -> Result<Tree, TreeError> {
        let tree = self.fresh(server).await?;
        self.make(tree.root).await?;
        Ok(tree)
    }

    /// A tree of a server that nobody else gets, for a transaction to
    /// [make](Transaction::create_tree).
    pub async fn fresh(&self, server: ServerId) -> Result<Tree, TreeError> {
        let numbers = NodeId { tree: TreeId::default(), server, local: TREE_NUMBERS };
        let number = self.client.take(numbers, 1, 0).await?;
        let Some(tree) = TreeId::new(number) else {
            return Err(TreeError::Damaged(TreeId::MAX, "there are no numbers for trees left"));
        };
        Ok(Tree { root: NodeId::root(tree, server) })
    }
}
