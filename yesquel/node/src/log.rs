//! The log of a group: what is written, synced and checkpointed, and when.

use crate::{
    GroupCore, ReplySink,
    core::{LastCheckpoint, SyncWanted},
    options::{Durability, LogOptions},
    records::RecordBatch,
};
use std::{io, ops::RangeInclusive, time::Duration};
use yesquel_engine::{Checkpoint, Now};
use yesquel_log::{LogError, LogIdentity, LogPoint, SegmentWriter, checkpoint, disk::Disk};

/// Term of the records of a group with one replica, which elects no leader.
const ONLY_TERM: u64 = 1;

/// Range of log segment sizes, in bytes, for frequent and rare checkpoints: log before a checkpoint
/// is deleted in whole segments.
const SEGMENT_BYTES: RangeInclusive<u64> = 64 << 10..=64 << 20;
/// Bytes preallocated as zeros in a log that is synced before each reply: enough that few syncs
/// wait for the file to grow, few enough that growing it takes no noticeable time.
const PREALLOCATED_BYTES: u64 = 512 << 10;

/// Sizes of a log's files.
#[derive(Debug, Clone, Copy)]
pub struct LogSizes {
    /// Bytes of a segment.
    pub segment_bytes_max: u64,
    /// Bytes preallocated as zeros.
    pub preallocated_bytes: u64,
}

impl LogSizes {
    /// Returns the sizes that suit some options.
    pub fn of(options: &LogOptions) -> LogSizes {
        let (least, most) = SEGMENT_BYTES.into_inner();
        let is_sync = options.durability == Durability::Sync;
        LogSizes {
            segment_bytes_max: options.checkpoint_bytes.clamp(least, most),
            preallocated_bytes: if is_sync { PREALLOCATED_BYTES } else { 0 },
        }
    }
}

/// A disk operation failed. Reads go on, and nothing is written until a restart.
#[derive(Debug)]
pub struct LogFailure {
    /// The error.
    pub error: LogError,
    /// Index of the last record that counts as durable.
    reached: u64,
}

/// An attempt to write records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum WriteAttempt {
    /// They are written.
    Written,
    /// The disk is full. They are kept, and [`GroupLog::append`] writes them again.
    DiskFull,
}

/// A checkpoint that was written.
#[derive(Debug, Clone, Copy)]
pub struct WrittenCheckpoint {
    last: LogPoint,
    bytes: u64,
}

/// Checkpoint to be written, perhaps by another thread.
#[derive(Debug)]
pub struct CheckpointWriter<D> {
    disk: D,
    identity: LogIdentity,
    /// The last record that it covers.
    last: LogPoint,
    state: Checkpoint,
}

impl<D: Disk> CheckpointWriter<D> {
    /// Writes the checkpoint.
    pub fn write(mut self) -> Result<WrittenCheckpoint, LogError> {
        let CheckpointWriter { disk, identity, last, state } = &mut self;
        let bytes = checkpoint::write(disk, *identity, *last, |take| state.write(take))?;
        Ok(WrittenCheckpoint { last: *last, bytes })
    }
}

/// Writer of a group's log. Its driver calls, in turn, [`take`](Self::take),
/// [`append`](Self::append), [`sync`](Self::sync) if [`must_sync`](Self::must_sync), and
/// [`release`](Self::release); after that it begins a checkpoint if one
/// [is due](Self::is_checkpoint_due). If the disk is full, it pauses and does the same again.
#[derive(Debug)]
pub struct GroupLog<D: Disk> {
    writer: SegmentWriter<D>,
    disk: D,
    identity: LogIdentity,
    options: LogOptions,
    /// The records being written.
    batch: RecordBatch,
    /// Index of the last record before these.
    before_batch: u64,
    bytes_since_checkpoint: u64,
    last_checkpoint_bytes: u64,
    is_checkpoint_running: bool,
    /// What replies want beyond the durability.
    sync_wanted: Option<SyncWanted>,
    /// The error of the last attempt to write the records, if the disk was full.
    full: Option<String>,
}

impl<D: Disk + Clone> GroupLog<D> {
    pub(crate) fn new(
        writer: SegmentWriter<D>,
        disk: D,
        identity: LogIdentity,
        options: LogOptions,
        bytes_since_checkpoint: u64,
        last_checkpoint_bytes: u64,
    ) -> GroupLog<D> {
        GroupLog {
            before_batch: writer.last().index,
            writer,
            disk,
            identity,
            options,
            batch: RecordBatch::default(),
            bytes_since_checkpoint,
            last_checkpoint_bytes,
            is_checkpoint_running: false,
            sync_wanted: None,
            full: None,
        }
    }

    /// Takes the records that the group has made, unless there are others still to be written.
    pub fn take(&mut self, core: &mut GroupCore) {
        if self.full.is_none() {
            core.take_records(&mut self.batch);
        }
        self.sync_wanted = self.sync_wanted.max(core.take_sync_wanted());
        self.before_batch = self.writer.last().index;
    }

    /// Index of the last record that counts as durable: without syncs, one that is written.
    fn reached(&self) -> u64 {
        match self.options.durability {
            Durability::None => self.writer.last().index,
            _ => self.writer.synced_index(),
        }
    }

    fn failure(&self, error: LogError) -> LogFailure {
        let reached = match self.options.durability {
            // Of these records it is not known whether they are written.
            Durability::None => self.before_batch,
            _ => self.writer.synced_index(),
        };
        LogFailure { error, reached }
    }

    /// Writes the records that were taken.
    pub fn append(&mut self) -> Result<WriteAttempt, LogFailure> {
        let written = self.writer.append(ONLY_TERM, self.before_batch + 1, &self.batch.log, &self.batch.ends);
        match written {
            Ok(()) => {
                self.bytes_since_checkpoint += self.batch.log.len() as u64;
                self.full = None;
                Ok(WriteAttempt::Written)
            }
            // Without a sync for each record, clients know of records that are in memory only.
            Err(error @ LogError::NoSpace { .. }) if self.options.durability == Durability::Sync => {
                self.full = Some(error.to_string());
                Ok(WriteAttempt::DiskFull)
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Gives up records that cannot be written because the disk is full, for the server ends.
    pub fn give_up(&self) -> LogFailure {
        let error = io::Error::from(io::ErrorKind::StorageFull);
        let what = "the server ends while it is full";
        self.failure(LogError::NoSpace { path: self.disk.path().into(), what, error })
    }

    /// Whether the records must be synced; `is_last` says that there will be no others, or that a
    /// reply has waited for a second.
    pub fn must_sync(&self, is_last: bool) -> bool {
        is_last || self.options.durability != Durability::None || self.sync_wanted == Some(SyncWanted::Now)
    }

    /// Whether what was written must be synced within a second.
    pub fn is_sync_wanted(&self) -> bool {
        self.sync_wanted.is_some()
    }

    /// Makes what was written durable.
    pub fn sync(&mut self) -> Result<(), LogFailure> {
        self.writer.sync().map_err(|error| self.failure(error))?;
        // What cannot be written yet must be synced as soon.
        if self.full.is_none() {
            self.sync_wanted = None;
        }
        Ok(())
    }

    /// Releases the replies that waited for what is written, and tells the group whether the disk is
    /// full.
    pub fn release(&self, core: &mut GroupCore, sink: &dyn ReplySink) {
        core.release(self.writer.synced_index(), self.reached(), self.writer.bytes(), sink);
        match &self.full {
            Some(error) => core.note_full(error, self.reached(), &self.batch),
            None => core.note_space(),
        }
    }

    /// Tells the group that nothing becomes durable any more.
    pub fn fail(&self, failure: &LogFailure, core: &mut GroupCore, sink: &dyn ReplySink) {
        core.fail(failure.error.to_string(), failure.reached, &self.batch, sink);
    }

    /// Time in which records accumulate before the next ones are written.
    pub fn pause(&self) -> Option<Duration> {
        match self.options.durability {
            Durability::Interval(ms) => Some(Duration::from_millis(ms)),
            _ => None,
        }
    }

    /// Whether a checkpoint should begin. A checkpoint contains all data, so that the interval grows
    /// with its size: checkpoints write at most twice as much as the log, and a restart reads at
    /// most half as much log as checkpoint.
    pub fn is_checkpoint_due(&self) -> bool {
        let after = self.options.checkpoint_bytes.max(self.last_checkpoint_bytes / 2);
        // A checkpoint must not be ahead of a log that has no record yet, and needs space itself.
        self.bytes_since_checkpoint >= after && !self.is_checkpoint_running && self.full.is_none()
    }

    /// Begins a checkpoint. The group only collects references to its nodes, and goes on while the
    /// checkpoint is written.
    pub fn begin_checkpoint(&mut self, core: &GroupCore) -> CheckpointWriter<D> {
        self.bytes_since_checkpoint = 0;
        self.is_checkpoint_running = true;
        let state = core.checkpoint();
        // Records that are not written yet get the next positions, since each has an index.
        let written = self.writer.last();
        let position = self.writer.next_position() - 1 + state.lsn() - written.index;
        let last = LogPoint { position, index: state.lsn(), term: ONLY_TERM };
        CheckpointWriter { disk: self.disk.clone(), identity: self.identity, last, state }
    }

    /// Ends a checkpoint: deletes the log that it replaces. `None`: it was given up. The log is
    /// complete without it, and a later one may succeed.
    pub fn end_checkpoint(
        &mut self,
        written: Option<Result<WrittenCheckpoint, LogError>>,
        now: Now,
        core: &mut GroupCore,
        sink: &dyn ReplySink,
    ) -> Result<(), LogError> {
        self.is_checkpoint_running = false;
        let Some(written) = written else { return Ok(()) };
        let WrittenCheckpoint { last, bytes } = written?;
        self.last_checkpoint_bytes = bytes;
        core.last_checkpoint = Some(LastCheckpoint { lsn: last.index, bytes, at_ms: now.wall_ms });
        // The checkpoint may be ahead of the log, which must contain what follows it.
        let deleted = self.writer.delete_up_to(last.position.min(self.writer.synced_position()));
        self.release(core, sink);
        deleted
    }

    /// Closes the log in order.
    pub fn end(&mut self) -> Result<(), LogError> {
        self.writer.end()
    }
}
