//! Trees that a transaction makes itself, and what it writes to them: that is
//! sent ahead of the commit when it is much (`docs/yesquel/tree.md`).

use crate::{Tree, TreeError, savepoint::Steps};
use yesquel_client::{ReadView, SnapshotHold};
use yesquel_model::{Key, KeyRange, NodeId, Timestamp};

/// What a transaction gathers for trees that it makes, unless it is told
/// otherwise ([`Trees::set_ahead_bytes`]).
pub(crate) const AHEAD_BYTES: usize = 32 << 20;
/// Less than this part of it is not worth a tree's entry in a list.
const WORTH: usize = 512;
/// As many times as much waits of a tree in which is looked for keys.
const PATIENCE: usize = 32;
/// So many writes for each look, and the looks may cost a round trip each.
const WRITES_PER_LOOK: u64 = 8;
/// What a write takes beside its key and value, about.
const WRITE_BYTES: usize = 128;

/// Where a tree is entered while it is filled ahead of the commit that names it:
/// a list of trees under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnderWay {
    /// The list.
    pub list: Tree,
    /// What it stands under there.
    pub key: Key,
}

/// An entry of such a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The tree.
    pub tree: Tree,
    /// The snapshot of the transaction that makes it.
    pub snapshot: Timestamp,
}

impl Entry {
    pub(crate) fn encode(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.snapshot.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.tree.root.to_bits().to_be_bytes());
        bytes
    }

    /// The entry that a value of a list is.
    pub fn decode(value: &[u8]) -> Option<Entry> {
        let (snapshot, root) = value.split_first_chunk::<8>()?;
        let root = u128::from_be_bytes(root.try_into().ok()?);
        Some(Entry {
            tree: Tree::at(NodeId::from_bits(root)),
            snapshot: Timestamp(u64::from_be_bytes(*snapshot)),
        })
    }
}

/// A tree that the transaction makes.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) root: NodeId,
    /// Without it the tree is not filled ahead.
    pub(crate) under_way: Option<UnderWay>,
    /// Savepoints that there were before.
    pub(crate) savepoints: u64,
    /// Bytes that wait, about, and how often was written and looked for a key.
    pub(crate) waiting: usize,
    pub(crate) writes: u64,
    pub(crate) looks: u64,
    /// It is at its server, and no key from this one on.
    pub(crate) beyond: Option<Key>,
}

/// The trees that a transaction makes.
#[derive(Debug)]
pub(crate) struct Makes<'a> {
    pub(crate) all: Vec<Made>,
    /// Those at servers that were taken back.
    pub(crate) given_up: Vec<(NodeId, UnderWay)>,
    /// Bytes written since anything was sent.
    pub(crate) since: usize,
    /// So many are sent.
    pub(crate) limit: usize,
    /// The moment of the last commit ahead.
    pub(crate) view: ReadView,
    pub(crate) held: Option<SnapshotHold<'a>>,
    /// It is not known what of it is there.
    pub(crate) broken: Option<TreeError>,
}

impl Makes<'_> {
    pub(crate) fn new(limit: usize) -> Self {
        Makes {
            all: Vec::new(),
            given_up: Vec::new(),
            since: 0,
            limit,
            view: ReadView::default(),
            held: None,
            broken: None,
        }
    }

    pub(crate) fn of(&self, root: NodeId) -> Option<&Made> {
        self.all.iter().find(|made| made.root == root)
    }

    /// Something is written to a tree. Whether what undoes it is to be kept: not
    /// if it goes back with the tree.
    pub(crate) fn write(&mut self, root: NodeId, bytes: usize, steps: &Steps) -> bool {
        let Some(made) = self.all.iter_mut().find(|made| made.root == root) else { return true };
        let bytes = bytes + WRITE_BYTES;
        made.writes += 1;
        made.waiting += bytes;
        if made.under_way.is_some() {
            self.since += bytes;
        }
        steps.has_since(made.savepoints)
    }

    /// The trees that are to be sent ahead now.
    pub(crate) fn due(&self, steps: &Steps, limit: usize) -> Vec<NodeId> {
        let is_due = |made: &&Made| {
            made.under_way.is_some()
                && made.waiting >= limit / WORTH
                && !steps.has_since(made.savepoints)
                && (made.beyond.is_some()
                    || made.looks.saturating_mul(WRITES_PER_LOOK) < made.writes
                    || made.waiting >= limit.saturating_mul(PATIENCE))
        };
        self.all.iter().filter(is_due).map(|made| made.root).collect()
    }
}

/// The part of a tree of which it is known that there is nothing at its server.
pub(crate) fn nothing_from(beyond: &Key) -> KeyRange {
    KeyRange { low: beyond.clone(), high: None }
}
