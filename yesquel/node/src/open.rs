//! Opening a group: its engine from checkpoint and log.

use crate::{GroupCore, GroupLog, LogSizes, core::LastCheckpoint, options::LogOptions};
use std::path::PathBuf;
use thiserror::Error;
use yesquel_engine::{Engine, EngineSettings, LogRecord};
use yesquel_log::{LogError, TornTail, check, checkpoint, disk::Disk, open};
use yesquel_wire::Malformed;

/// Reason for which a group's files cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The log or a checkpoint failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A damaged checkpoint, which is not needed.
    #[error(
        "{}: damaged at byte {offset} ({what}). {} what was in it: move it out of the folder, and start again; the \
         start takes longer, and nothing is lost",
        path.display(),
        older.as_ref().map_or_else(
            || "All of the log is there and has".to_owned(),
            |older| format!("The one before it, {}, and all of the log after that are there and have", older.display())
        )
    )]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// Position of the damage.
        offset: u64,
        /// Kind of the damage.
        what: &'static str,
        /// The previous checkpoint; `None`: the log is complete.
        older: Option<PathBuf>,
    },
    /// A log record is intact, but this version does not know it.
    #[error("{}: record {lsn} of the log is not understood ({malformed}): was it written by a newer version?", folder.display())]
    Record {
        /// The data folder.
        folder: PathBuf,
        /// Number of the record.
        lsn: u64,
        /// What is unknown.
        malformed: Malformed,
    },
}

/// An opened group, and its log positioned at the end.
#[derive(Debug)]
pub struct OpenedGroup<D: Disk> {
    /// The group.
    pub core: GroupCore,
    /// Its log.
    pub log: GroupLog<D>,
    /// The log's end, if it was not whole.
    pub torn: Option<TornTail>,
}

impl<D: Disk> OpenedGroup<D> {
    /// Notes when the last checkpoint was written, for the status.
    pub fn checkpoint_written_at(&mut self, at_ms: u64) {
        if let Some(last) = &mut self.core.last_checkpoint {
            last.at_ms = at_ms;
        }
    }
}

/// Opens a group: loads its checkpoint, and then the log after it.
pub fn open_group<D: Disk + Clone>(
    disk: D,
    settings: EngineSettings,
    options: LogOptions,
    sizes: LogSizes,
) -> Result<OpenedGroup<D>, OpenError> {
    let mut engine = Engine::new(settings);
    let mut faulty = None;
    let mut replay = |engine: &mut Engine, lsn: u64, bytes: &[u8]| match LogRecord::decode(bytes) {
        Ok(record) => engine.replay(&record),
        Err(malformed) => faulty = faulty.or(Some((lsn, malformed))),
    };
    let checkpoints = checkpoint::list(&disk)?;
    let last = checkpoints.last().copied();
    if let Some(lsn) = last {
        let read = checkpoint::read(&disk, lsn, |record| {
            replay(&mut engine, lsn, record);
            Ok(())
        });
        let older = checkpoints.iter().rev().nth(1).copied();
        read.map_err(|error| damaged_checkpoint(&disk, error, older))?;
        engine.restored(lsn);
    }
    let mut bytes_since_checkpoint = 0;
    let mut opened = open(disk.clone(), last.unwrap_or(0), |lsn, record| {
        bytes_since_checkpoint += record.len() as u64;
        replay(&mut engine, lsn, record);
        Ok(())
    })?;
    if let Some((lsn, malformed)) = faulty {
        return Err(OpenError::Record { folder: disk.path().into(), lsn, malformed });
    }
    opened.writer.segment_bytes_max(sizes.segment_bytes_max);
    if sizes.preallocated_bytes > 0 {
        opened.writer.preallocate(sizes.preallocated_bytes);
    }
    engine.replayed();
    // The size is for the status and the time of the next checkpoint only.
    let size = |lsn: u64| disk.size(&checkpoint::name(lsn)).unwrap_or(0);
    let last = last.map(|lsn| LastCheckpoint { lsn, bytes: size(lsn), at_ms: 0 });
    let (synced, log_bytes) = (opened.writer.synced_lsn(), opened.writer.bytes());
    let mut core = GroupCore::new(engine, Some(options.durability), synced, log_bytes);
    core.last_checkpoint = last;
    let last_bytes = last.map_or(0, |last| last.bytes);
    let log = GroupLog::new(opened.writer, disk, options, bytes_since_checkpoint, last_bytes);
    Ok(OpenedGroup { core, log, torn: opened.torn })
}

/// Finds out whether everything in a damaged checkpoint also exists outside it, as after a crash
/// before the previous checkpoint was deleted. The user decides about a damaged folder.
fn damaged_checkpoint<D: Disk>(disk: &D, error: LogError, older: Option<u64>) -> OpenError {
    let LogError::Damaged { path, offset, lsn, what } = error else { return error.into() };
    let is_older_whole = older.is_none_or(|older| checkpoint::read(disk, older, |_| Ok(())).is_ok());
    if is_older_whole && check(disk, older.unwrap_or(0)).is_ok_and(|last| last >= lsn) {
        let older = older.map(|older| disk.path().join(checkpoint::name(older)));
        return OpenError::Checkpoint { path, offset, what, older };
    }
    LogError::Damaged { path, offset, lsn, what }.into()
}
