//! YDBT, the distributed balanced tree (SOSP'15, section 4): ordered maps with transactions, over
//! nodes.
//!
//! `docs/yesquel/tree.md` describes how a tree consists of nodes and how it is searched.

mod attributes;
mod bulk_load;
mod cache;
mod check;
mod counters;
mod cursor;
mod departure;
mod gap;
mod guard;
mod large;
mod numbers;
mod page;
mod pages;
mod placement;
mod proof;
mod reads;
mod removal;
mod savepoint;
mod search;
mod spare_numbers;
mod split;
mod stored;
mod transaction;
mod watch;
mod watched;
mod write;

pub use attributes::REPLIT_BITS;
pub use bulk_load::{LoadRegistration, UnfinishedLoad};
pub use check::{TreeCheck, TreeCounts, TreeFault};
pub use counters::{SearchCounters, SearchCounts};
pub use cursor::TreeCursor;
pub use departure::{DepartureSource, NoDepartures};
pub use large::ValuePlacement;
pub use placement::{BalancedLoad, GroupLoad, LeafPlacement, LeafPlacer};
pub use proof::Proof;
pub use savepoint::Savepoint;
pub use split::{SplitCut, Splitter};
pub use transaction::TreeTransaction;
pub use watched::WatchLimits;

use cache::Cache;
use crossbeam_utils::sync::ShardedLock;
use numbers::NumberRange;
use rustc_hash::FxHashMap;
use spare_numbers::SpareSource;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};
use thiserror::Error;
use watched::WatchedLeaves;
use yesquel_client::{Client, CommitError, Writes};
use yesquel_model::{Issuer, KeyRange, LocalId, NodeId, Refusal, ServerId, TreeId};
use yesquel_transport::Transport;
use yesquel_wire::{NewNode, NodeKind, NodeOperation, WriteOperation};

/// Reason for which an operation on trees failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TreeError {
    /// A request to a server failed.
    #[error(transparent)]
    Client(#[from] yesquel_client::RequestError),
    /// The transaction did not commit, or may not have.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The key to insert exists.
    #[error("the key exists already")]
    Exists,
    /// The tree does not exist at the snapshot.
    #[error("there is no tree {0}")]
    NoTree(TreeId),
    /// A key or value is too long.
    #[error("{what} of {bytes} bytes is longer than the {bytes_max} that are taken")]
    TooLong {
        /// "key" or "value".
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The commit was attempted, and its outcome is unknown.
    #[error(
        "it is not known whether the transaction was committed: there is nothing more to be done with it"
    )]
    Abandoned,
    /// The transaction cannot roll back to this savepoint.
    #[error("not a savepoint to roll back to: {0}")]
    Savepoint(&'static str),
    /// The nodes of a tree are inconsistent.
    #[error("tree {0} is damaged: {1}")]
    Damaged(TreeId, &'static str),
}

impl TreeError {
    /// Returns whether another transaction was first, so that the caller may retry this one.
    pub fn is_conflict(&self) -> bool {
        let refusal = match self {
            TreeError::Commit(CommitError::Refused { refusal, .. }) => refusal,
            TreeError::Client(yesquel_client::RequestError::Refused(refusal)) => refusal,
            _ => return false,
        };
        matches!(refusal, Refusal::Conflict(_) | Refusal::SnapshotTooOld { .. } | Refusal::GivenUp(_))
    }
}

/// Tree, identified by its root node, whose id never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tree {
    root: NodeId,
}

impl Tree {
    /// Returns the tree with this root.
    pub fn at(root: NodeId) -> Tree {
        Tree { root }
    }

    /// Returns the id of the root.
    pub fn root(self) -> NodeId {
        self.root
    }
}

/// Counters of the cluster that number trees and issuers.
const TREE_NUMBERS: LocalId = LocalId(1);
const ISSUER_NUMBERS: LocalId = LocalId(2);

/// Trees of one client, with its cache of inner nodes. Threads may share it.
#[derive(Debug)]
pub struct Trees<T> {
    client: Client<T>,
    cache: ShardedLock<Cache>,
    /// Whether inner nodes are cached.
    caches: AtomicBool,
    counters: SearchCounters,
    tree_numbers: NumberRange,
    issuer_numbers: NumberRange,
    /// Issuer of ids for new nodes.
    issuer: Mutex<Option<Issuer>>,
    spare_source: SpareSource,
    watched: WatchedLeaves,
    /// Groups of trees with several, and empty ones of others, as far as they were asked for.
    groups: Mutex<FxHashMap<TreeId, Arc<[ServerId]>>>,
    /// Bytes that a transaction buffers for trees that it creates.
    bulk_load_bytes: AtomicUsize,
    /// `None`: the nodes of a long value are created at the group of its leaf.
    value_placement: Option<ValuePlacement>,
}

impl<T: Transport> Trees<T> {
    /// Creates an empty cache over a client.
    pub fn new(client: Client<T>) -> Trees<T> {
        Trees {
            client,
            cache: ShardedLock::default(),
            caches: AtomicBool::new(true),
            counters: SearchCounters::default(),
            tree_numbers: NumberRange::new(TREE_NUMBERS),
            issuer_numbers: NumberRange::new(ISSUER_NUMBERS),
            issuer: Mutex::default(),
            spare_source: SpareSource::default(),
            watched: WatchedLeaves::default(),
            groups: Mutex::default(),
            bulk_load_bytes: AtomicUsize::new(bulk_load::BULK_LOAD_BYTES),
            value_placement: None,
        }
    }

    /// Sets how many bytes later transactions buffer for trees that they create before they
    /// [send](TreeTransaction::flush_bulk_loads) them.
    pub fn set_bulk_load_bytes(&self, bytes: usize) {
        self.bulk_load_bytes.store(bytes, Relaxed);
    }

    /// Sets whether inner nodes that are fetched from now on are cached. Default: yes. Without, each
    /// search begins at the root, as in a tree without caches at clients: for research.
    pub fn cache_inner_nodes(&self, caches: bool) {
        self.caches.store(caches, Relaxed);
    }

    pub(crate) fn caches_inner_nodes(&self) -> bool {
        self.caches.load(Relaxed)
    }

    /// Limits the leaves that the client watches.
    pub fn limit_watched(&self, limits: WatchLimits) {
        self.watched.limit(limits);
    }

    /// Sets where the nodes of long values are created. Default: at the group of the leaf.
    pub fn place_values(&mut self, placement: ValuePlacement) {
        self.value_placement = Some(placement);
    }

    /// Sets whether later transactions use leaves that the client watches. Default: yes.
    pub fn set_watching(&self, watches: bool) {
        self.watched.set_used(watches);
    }

    pub(crate) fn bulk_load_bytes(&self) -> usize {
        self.bulk_load_bytes.load(Relaxed)
    }

    /// Returns the client.
    pub fn client(&self) -> &Client<T> {
        &self.client
    }

    /// Returns the counters of searches.
    pub fn counters(&self) -> &SearchCounters {
        &self.counters
    }

    /// Begins a transaction, without contacting a server.
    pub fn begin(&self) -> TreeTransaction<'_, T> {
        TreeTransaction::new(self)
    }

    /// Returns the first of `count` consecutive new node ids, for any server.
    async fn issue(&self, count: u64) -> Result<LocalId, TreeError> {
        loop {
            if let Some(first) = self.issuer().as_mut().and_then(|issuer| issuer.issue(count)) {
                return Ok(first);
            }
            // The home group was not reached a while ago, and may still be down.
            let number = match self.spare_number().await {
                Ok(Some(number)) => number,
                Ok(None) | Err(_) => self.issuer_numbers.next(&self.client).await?,
            };
            let spent = TreeError::Damaged(TreeId::default(), "there are no names for nodes left");
            *self.issuer() = Some(Issuer::new(number).ok_or(spent)?);
        }
    }

    fn issuer(&self) -> MutexGuard<'_, Option<Issuer>> {
        self.issuer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an empty tree with a given root if it does not exist.
    pub async fn create_if_missing(&self, tree: Tree) -> Result<(), TreeError> {
        match self.make(tree.root).await {
            Err(TreeError::Commit(CommitError::Refused { refusal: Refusal::Conflict(_), .. })) => Ok(()),
            made => made,
        }
    }

    async fn make(&self, root: NodeId) -> Result<(), TreeError> {
        let create = WriteOperation::Create(NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() });
        let mut writes = Writes::new();
        writes.push(&NodeOperation { node: root, write: create });
        self.client.commit(None, &writes).await?;
        Ok(())
    }

    /// Returns a unique number from a counter of the cluster. Counters below 16 are reserved for
    /// trees.
    pub async fn number(&self, counter: u16) -> Result<u64, TreeError> {
        let counter = numbers::counter(&self.client, LocalId(u64::from(counter)));
        Ok(self.client.take(counter, 1, 0).await?)
    }

    /// Creates an empty tree at a server.
    pub async fn create(&self, server: ServerId) -> Result<Tree, TreeError> {
        self.create_over(server, &[]).await
    }

    /// Creates an empty tree with its root at a server, whose leaves may be at some groups.
    pub async fn create_over(&self, server: ServerId, groups: &[ServerId]) -> Result<Tree, TreeError> {
        let tree = self.new_tree(server).await?;
        let mut transaction = self.begin();
        transaction.create_tree(tree, groups);
        transaction.commit().await?;
        Ok(tree)
    }

    /// Returns a new tree at a server, for a transaction to [create](TreeTransaction::create_tree).
    /// Its number is unique in the cluster.
    pub async fn new_tree(&self, server: ServerId) -> Result<Tree, TreeError> {
        let number = self.tree_numbers.next(&self.client).await?;
        let Some(tree) = TreeId::new(number) else {
            return Err(TreeError::Damaged(TreeId::MAX, "there are no numbers for trees left"));
        };
        Ok(Tree { root: NodeId::root(tree, server) })
    }
}
