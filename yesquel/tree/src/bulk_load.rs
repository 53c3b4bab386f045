//! Trees that a transaction creates. A large one is bulk loaded: its writes are sent before the
//! commit (`docs/yesquel/tree.md`).

use crate::{Tree, TreeError, savepoint::UndoLog};
use yesquel_client::{ReadView, SnapshotHold};
use yesquel_model::{Key, KeyRange, NodeId, ServerId, Timestamp};

/// Default number of bytes that a transaction buffers for the trees it creates before it sends them
/// ([`Trees::set_bulk_load_bytes`]).
pub(crate) const BULK_LOAD_BYTES: usize = 32 << 20;
/// A tree with less than this fraction of the flush_bytes is not worth an entry in a list.
const MIN_FRACTION: usize = 512;
/// A tree in which keys are looked up is sent once this multiple of the flush_bytes is pending.
const LOOKUP_MULTIPLE: usize = 32;
/// Writes per lookup from which sending pays, for a lookup in a sent tree may cost a round trip.
const WRITES_PER_LOOKUP: u64 = 8;
/// Approximate overhead of a write, in bytes, on top of its key and value.
const WRITE_BYTES: usize = 128;

/// Place where a bulk-loaded tree is registered until the commit that names it: an entry in a list
/// of unfinished loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadRegistration {
    /// The list.
    pub list: Tree,
    /// Key of the tree's entry in the list.
    pub key: Key,
}

/// UnfinishedLoad of a list of unfinished bulk loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfinishedLoad {
    /// The tree.
    pub tree: Tree,
    /// Snapshot of the transaction that creates the tree.
    pub snapshot: Timestamp,
}

impl UnfinishedLoad {
    pub(crate) fn encode(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.snapshot.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.tree.root.to_bits().to_be_bytes());
        bytes
    }

    /// Decodes a value of the list.
    pub fn decode(value: &[u8]) -> Option<UnfinishedLoad> {
        let (snapshot, root) = value.split_first_chunk::<8>()?;
        let root = u128::from_be_bytes(root.try_into().ok()?);
        Some(UnfinishedLoad {
            tree: Tree::at(NodeId::from_bits(root)),
            snapshot: Timestamp(u64::from_be_bytes(*snapshot)),
        })
    }
}

/// Tree that the transaction creates.
#[derive(Debug)]
pub(crate) struct CreatedTree {
    pub(crate) root: NodeId,
    /// Groups at which it may have leaves.
    pub(crate) groups: Box<[ServerId]>,
    /// Where to register the bulk load; `None`: the tree is not bulk loaded.
    pub(crate) registration: Option<LoadRegistration>,
    /// Number of savepoints set before the tree was created.
    pub(crate) savepoints: u64,
    /// Approximate bytes not sent yet, and the numbers of writes and of lookups.
    pub(crate) pending_bytes: usize,
    pub(crate) writes: u64,
    pub(crate) lookups: u64,
    /// Set once the tree exists at its server, which has no key from this one on.
    pub(crate) empty_from: Option<Key>,
}

impl CreatedTree {
    /// Returns whether a flush has created the tree at its server.
    pub(crate) fn is_flushed(&self) -> bool {
        self.empty_from.is_some()
    }
}

/// Trees that a transaction creates.
#[derive(Debug)]
pub(crate) struct BulkLoads<'a> {
    pub(crate) trees: Vec<CreatedTree>,
    /// Sent trees whose creation was rolled back.
    pub(crate) abandoned: Vec<(NodeId, Box<[ServerId]>, LoadRegistration)>,
    /// Bytes written unflushed_bytes the last flush.
    pub(crate) unflushed_bytes: usize,
    /// Bytes at which the next flush is due.
    pub(crate) flush_bytes: usize,
    /// Read view of the last flush.
    pub(crate) view: ReadView,
    pub(crate) held: Option<SnapshotHold<'a>>,
    /// Error of a flush, after which it is unknown what the servers hold.
    pub(crate) failure: Option<TreeError>,
}

impl BulkLoads<'_> {
    pub(crate) fn new(flush_bytes: usize) -> Self {
        BulkLoads {
            trees: Vec::new(),
            abandoned: Vec::new(),
            unflushed_bytes: 0,
            flush_bytes,
            view: ReadView::default(),
            held: None,
            failure: None,
        }
    }

    pub(crate) fn of(&self, root: NodeId) -> Option<&CreatedTree> {
        self.trees.iter().find(|created| created.root == root)
    }

    /// Accounts for a write to a tree. Returns whether an undo step is needed: not if the write is
    /// undone together with the tree's creation.
    pub(crate) fn record_write(&mut self, root: NodeId, bytes: usize, undo_log: &UndoLog) -> bool {
        let Some(created) = self.trees.iter_mut().find(|created| created.root == root) else { return true };
        let bytes = bytes + WRITE_BYTES;
        created.writes += 1;
        created.pending_bytes += bytes;
        if created.registration.is_some() {
            self.unflushed_bytes += bytes;
        }
        undo_log.has_since(created.savepoints)
    }

    /// Returns the trees to flush now.
    pub(crate) fn due(&self, undo_log: &UndoLog, flush_bytes: usize) -> Vec<NodeId> {
        let is_due = |created: &&CreatedTree| {
            created.registration.is_some()
                && created.pending_bytes >= flush_bytes / MIN_FRACTION
                && !undo_log.has_since(created.savepoints)
                && (created.is_flushed()
                    || created.lookups.saturating_mul(WRITES_PER_LOOKUP) < created.writes
                    || created.pending_bytes >= flush_bytes.saturating_mul(LOOKUP_MULTIPLE))
        };
        self.trees.iter().filter(is_due).map(|created| created.root).collect()
    }
}

/// Range of a tree that is known to be empty at its server.
pub(crate) fn empty_range_from(empty_from: &Key) -> KeyRange {
    KeyRange { low: empty_from.clone(), high: None }
}
