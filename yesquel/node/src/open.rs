//! Opening a group: its engine from checkpoint and log.

use crate::{GroupCore, GroupLog, LogSizes, core::LastCheckpoint, options::LogOptions};
use std::path::PathBuf;
use thiserror::Error;
use yesquel_engine::{Engine, EngineSettings, LogRecord};
use yesquel_log::{
    LogError, LogEvent, LogIdentity, LogPoint, StoredRecord, TornTail, check, checkpoint, disk::Disk, open,
};
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

/// State of a group while it is read.
struct LoadedEngine {
    engine: Engine,
    /// The first record that is not understood: its index, and why.
    faulty: Option<(u64, Malformed)>,
    log_bytes: u64,
}

impl LoadedEngine {
    fn replay(&mut self, index: u64, bytes: &[u8]) {
        match LogRecord::decode(bytes) {
            Ok(record) => self.engine.replay(&record),
            Err(malformed) => self.faulty = self.faulty.or(Some((index, malformed))),
        }
    }
}

/// Loads the checkpoint at a position, if there is one. Returns the last record that it covers.
fn load_checkpoint<D: Disk>(
    disk: &D,
    identity: LogIdentity,
    settings: EngineSettings,
    position: Option<u64>,
) -> Result<(LoadedEngine, LogPoint), LogError> {
    let mut loaded = LoadedEngine { engine: Engine::new(settings), faulty: None, log_bytes: 0 };
    let Some(position) = position else { return Ok((loaded, LogPoint::default())) };
    let last = checkpoint::read(disk, identity, position, |record| {
        loaded.replay(position, record);
        Ok(())
    })?;
    loaded.engine.restored(last.index);
    Ok((loaded, last))
}

/// Opens a group: loads its checkpoint, and then the log after it.
pub fn open_group<D: Disk + Clone>(
    disk: D,
    identity: LogIdentity,
    settings: EngineSettings,
    options: LogOptions,
    sizes: LogSizes,
) -> Result<OpenedGroup<D>, OpenError> {
    let checkpoints = checkpoint::list(&disk)?;
    let newest = checkpoints.last().copied();
    let (mut loaded, last) = load_checkpoint(&disk, identity, settings, newest).map_err(|error| {
        let older = checkpoints.iter().rev().nth(1).copied();
        damaged_checkpoint(&disk, identity, error, older)
    })?;
    let mut opened = open(disk.clone(), identity, last, |event| {
        match event {
            LogEvent::Record(StoredRecord { point, bytes }) => {
                loaded.log_bytes += bytes.len() as u64;
                loaded.replay(point.index, bytes);
            }
            // The state contains records that were cut.
            LogEvent::Restart => loaded = load_checkpoint(&disk, identity, settings, newest)?.0,
        }
        Ok(())
    })?;
    let LoadedEngine { mut engine, faulty, log_bytes: bytes_since_checkpoint } = loaded;
    if let Some((index, malformed)) = faulty {
        return Err(OpenError::Record { folder: disk.path().into(), lsn: index, malformed });
    }
    opened.writer.segment_bytes_max(sizes.segment_bytes_max);
    if sizes.preallocated_bytes > 0 {
        opened.writer.preallocate(sizes.preallocated_bytes);
    }
    engine.replayed();
    // The size is for the status and the time of the next checkpoint only.
    let size = |position: u64| disk.size(&checkpoint::name(position)).unwrap_or(0);
    let last_checkpoint =
        newest.map(|position| LastCheckpoint { lsn: last.index, bytes: size(position), at_ms: 0 });
    let (synced, log_bytes) = (opened.writer.synced_index(), opened.writer.bytes());
    let mut core = GroupCore::new(engine, Some(options.durability), synced, log_bytes);
    core.last_checkpoint = last_checkpoint;
    let last_bytes = last_checkpoint.map_or(0, |last| last.bytes);
    let log = GroupLog::new(opened.writer, disk, identity, options, bytes_since_checkpoint, last_bytes);
    Ok(OpenedGroup { core, log, torn: opened.torn })
}

/// Finds out whether everything in a damaged checkpoint also exists outside it, as after a crash
/// before the previous checkpoint was deleted. The user decides about a damaged folder.
fn damaged_checkpoint<D: Disk>(
    disk: &D,
    identity: LogIdentity,
    error: LogError,
    older: Option<u64>,
) -> OpenError {
    let LogError::Damaged { path, offset, position, what } = error else { return error.into() };
    let older_point = match older {
        None => Some(LogPoint::default()),
        Some(older) => checkpoint::read(disk, identity, older, |_| Ok(())).ok(),
    };
    let is_log_whole =
        older_point.is_some_and(|older| check(disk, identity, older).is_ok_and(|last| last >= position));
    if is_log_whole {
        let older = older.map(|older| disk.path().join(checkpoint::name(older)));
        return OpenError::Checkpoint { path, offset, what, older };
    }
    LogError::Damaged { path, offset, position, what }.into()
}
