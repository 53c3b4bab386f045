//! The log in memory, as the crate reads it.

use crate::membership::Membership;
use raft::{
    Error, GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{Entry, HardState, Snapshot, SnapshotMetadata},
};
use std::{cell::Cell, collections::VecDeque};

/// The entries after the last checkpoint that is kept, and that checkpoint.
///
/// All of it is in memory. What a leader no longer has here it sends as a checkpoint.
#[derive(Debug, Default)]
pub struct ReplicaLog {
    pub(crate) hard: HardState,
    /// The membership at the start; later ones are the crate's.
    pub(crate) membership: Membership,
    /// Index and term of the entry before the first.
    pub(crate) before: (u64, u64),
    pub(crate) entries: VecDeque<Entry>,
    /// The checkpoint that a replica gets whose entries are gone here.
    pub(crate) checkpoint: Option<Snapshot>,
    /// Whether a replica needs a newer checkpoint than there is.
    pub(crate) wants_checkpoint: Cell<bool>,
}

impl ReplicaLog {
    /// Index of the last entry.
    pub fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    /// The entry of an index, if it is here.
    pub fn entry(&self, index: u64) -> Option<&Entry> {
        let at = index.checked_sub(self.before.0 + 1)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// The term of an index, if it is known here.
    pub fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.before.0 {
            return Some(self.before.1);
        }
        self.entry(index).map(|entry| entry.term)
    }

    /// Adds entries, and removes those with their indexes and above. Returns the first index
    /// removed. The entries continue the log or overlap it; otherwise `None` and nothing changes.
    pub(crate) fn append(&mut self, entries: &[Entry]) -> Option<u64> {
        let first = entries.first()?.index;
        let keep = usize::try_from(first.checked_sub(self.before.0 + 1)?).ok()?;
        debug_assert!(keep <= self.entries.len(), "entry {first} leaves a gap");
        let cut = (keep < self.entries.len()).then_some(first);
        self.entries.truncate(keep);
        self.entries.extend(entries.iter().cloned());
        cut
    }

    /// Replaces everything by a checkpoint.
    pub(crate) fn restore(&mut self, checkpoint: &Snapshot) {
        let head = checkpoint.get_metadata();
        self.before = (head.index, head.term);
        self.entries.clear();
        self.membership = Membership::from_crate(head.get_conf_state());
        self.checkpoint = Some(checkpoint.clone());
    }

    /// Keeps a checkpoint to be sent, and removes entries up to an index that it covers.
    pub(crate) fn compact(&mut self, checkpoint: Snapshot, up_to: u64) {
        let up_to = up_to.min(checkpoint.get_metadata().index);
        if let Some(term) = self.term_of(up_to)
            && up_to > self.before.0
        {
            self.entries.drain(..(up_to - self.before.0) as usize);
            self.before = (up_to, term);
        }
        self.checkpoint = Some(checkpoint);
        self.wants_checkpoint.set(false);
    }
}

/// Makes a checkpoint of the crate.
pub(crate) fn checkpoint_of(index: u64, term: u64, membership: &Membership, data: Vec<u8>) -> Snapshot {
    let mut head = SnapshotMetadata { index, term, ..SnapshotMetadata::default() };
    head.set_conf_state(membership.to_crate());
    let mut checkpoint = Snapshot { data: data.into(), ..Snapshot::default() };
    checkpoint.set_metadata(head);
    checkpoint
}

impl Storage for ReplicaLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.membership.to_crate()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.before.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let range = (low - self.before.0 - 1) as usize..(high - self.before.0 - 1) as usize;
        let (limit, mut bytes) = (max_size.into().unwrap_or(u64::MAX), 0);
        let fitting = self.entries.range(range).take_while(|entry| {
            let is_first = bytes == 0;
            bytes += (entry.data.len() + entry.context.len() + 16) as u64;
            is_first || bytes <= limit
        });
        Ok(fitting.cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = if index < self.before.0 { StorageError::Compacted } else { StorageError::Unavailable };
        self.term_of(index).ok_or(Error::Store(missing))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.before.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// The crate sends this to a replica whose next entry is gone. A checkpoint whose membership
    /// does not name the receiver would be refused there, each time.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let is_enough = |checkpoint: &&Snapshot| {
            let head = checkpoint.get_metadata();
            head.index >= request_index.max(self.before.0)
                && Membership::from_crate(head.get_conf_state()).contains(to)
        };
        let found = self.checkpoint.as_ref().filter(is_enough).cloned();
        found.ok_or_else(|| {
            self.wants_checkpoint.set(true);
            Error::Store(StorageError::SnapshotTemporarilyUnavailable)
        })
    }
}
