//! The log from what is on disk.

use crate::{
    ReplicationError,
    membership::Membership,
    message::{number, put_entries, read_entries},
    replica_log::{ReplicaLog, checkpoint_of},
};
use raft::eraftpb::{Entry, HardState};
use yesquel_wire::{ByteReader, ByteWriter};

/// What a checkpoint says of the log that it covers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointHead {
    /// Index of the last entry that it covers.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// The replicas at that entry.
    pub membership: Membership,
    /// Term and vote when it was written: records before it are deleted.
    pub vote: (u64, u64),
}

impl CheckpointHead {
    /// The checkpoint with which a group begins, at all its first replicas: the first membership is in
    /// no entry, so a log from the start would not do for a replica that joins.
    pub fn first(voters: impl IntoIterator<Item = u64>) -> CheckpointHead {
        CheckpointHead { index: 1, term: 1, membership: Membership::of_voters(voters), vote: (1, 0) }
    }

    /// Encodes the head.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = ByteWriter(&mut bytes);
        writer.number(self.index).number(self.term).number(self.vote.0).number(self.vote.1);
        self.membership.put(&mut writer);
        bytes
    }

    /// Decodes a head.
    pub fn decode(bytes: &[u8]) -> Result<CheckpointHead, ReplicationError> {
        let mut reader = ByteReader::new(bytes);
        let (index, term) = (number(&mut reader)?, number(&mut reader)?);
        let vote = (number(&mut reader)?, number(&mut reader)?);
        let membership = Membership::read(&mut reader)?;
        reader.finish()?;
        Ok(CheckpointHead { index, term, membership, vote })
    }
}

/// Encodes a record: term, vote and commit index, and entries.
///
/// The commit index is in the same record as the entries that came with it. A replica that had
/// applied a membership must not campaign under an older one after a restart, and the crate applies
/// a membership only when it knows that its entry is committed.
pub(crate) fn encode_record(hard: &HardState, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ByteWriter(&mut bytes);
    writer.number(hard.term).number(hard.vote).number(hard.commit);
    put_entries(&mut writer, entries);
    bytes
}

/// A log that is being recovered: a checkpoint, then the records after it in their order.
#[derive(Debug, Default)]
pub struct RecoveredLog {
    replica: u64,
    log: ReplicaLog,
}

impl RecoveredLog {
    /// A replica that has nothing. A leader sends it a checkpoint.
    pub fn empty(replica: u64) -> RecoveredLog {
        RecoveredLog { replica, log: ReplicaLog::default() }
    }

    /// A replica with a checkpoint.
    pub fn after(replica: u64, head: &CheckpointHead, data: Vec<u8>) -> RecoveredLog {
        let mut log = ReplicaLog::default();
        log.restore(&checkpoint_of(head.index, head.term, &head.membership, data));
        (log.hard.term, log.hard.vote) = head.vote;
        log.hard.commit = head.index;
        RecoveredLog { replica, log }
    }

    /// Adds a record. One that begins at or below the last index cuts what was there. Returns the
    /// first and last index of its entries.
    pub fn replay(&mut self, record: &[u8]) -> Result<Option<(u64, u64)>, ReplicationError> {
        let mut reader = ByteReader::new(record);
        let (term, vote) = (number(&mut reader)?, number(&mut reader)?);
        let commit = number(&mut reader)?;
        let mut entries = read_entries(&mut reader)?;
        reader.finish()?;
        let inconsistent = |what| ReplicationError::Inconsistent { replica: self.replica, what };
        if entries.windows(2).any(|pair| pair[1].index != pair[0].index + 1 || pair[1].term < pair[0].term) {
            return Err(inconsistent("the entries of a record do not continue each other"));
        }
        // A record from before the checkpoint was written may hold entries that it covers.
        entries.retain(|entry| entry.index > self.log.before.0);
        if entries.first().is_some_and(|first| first.index > self.log.last() + 1) {
            return Err(inconsistent("entries are missing"));
        }
        self.log.append(&entries);
        // The checkpoint may hold a later vote than the records after its position.
        let hard = &mut self.log.hard;
        if term > hard.term || (term == hard.term && vote != 0) {
            (hard.term, hard.vote) = (term, vote);
        }
        hard.commit = hard.commit.max(commit);
        if hard.commit > self.log.last() {
            return Err(inconsistent("an entry that was committed is missing"));
        }
        Ok(entries.first().map(|first| (first.index, self.log.last())))
    }

    /// Index of the last entry.
    pub fn last(&self) -> u64 {
        self.log.last()
    }

    /// Index of the last entry that a checkpoint covers.
    pub fn covered(&self) -> u64 {
        self.log.before.0
    }

    pub(crate) fn into_parts(self) -> (u64, ReplicaLog) {
        (self.replica, self.log)
    }
}
