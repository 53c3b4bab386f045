//! Recovery of a server from the checkpoint and log of its folder.

use crate::{
    DataFolder,
    options::{CoreError, Durability, LogOptions},
    state::{DiskUsage, LastCheckpoint},
};
use std::{fs, ops::RangeInclusive, time::SystemTime};
use yesquel_engine::{Engine, EngineSettings, LogRecord};
use yesquel_log::{
    LogError, SegmentWriter, TornTail, check, checkpoint,
    disk::{Disk as _, Folder},
    open,
};
use yesquel_model::ServerId;

/// Range of log segment sizes, in bytes, for frequent and rare checkpoints: log before a checkpoint
/// is deleted in whole segments.
const SEGMENT_BYTES: RangeInclusive<u64> = 64 << 10..=64 << 20;
/// Bytes preallocated as zeros in a log that is synced before each reply: enough that few syncs
/// wait for the file to grow, few enough that growing it takes no noticeable time.
const PREALLOCATED_BYTES: u64 = 512 << 10;

/// Recovered engine, and the log positioned at its end.
pub(crate) struct Recovered {
    pub(crate) engine: Engine,
    pub(crate) writer: SegmentWriter<Folder>,
    pub(crate) disk: Folder,
    /// Bytes of log since the checkpoint.
    pub(crate) bytes_since_checkpoint: u64,
    pub(crate) disk_usage: DiskUsage,
}

/// Recovers a folder, which must belong to this server.
pub(crate) fn recover(
    folder: &DataFolder,
    settings: EngineSettings,
    options: &LogOptions,
) -> Result<Recovered, CoreError> {
    let owner = folder.owner()?;
    if let Some(owner) = owner {
        folder.check(owner, settings.server)?;
    }
    let disk = Folder::new(folder.path());
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
    if let Some(TornTail { path, offset, bytes }) = &opened.torn {
        tracing::warn!(
            file = %path.display(),
            offset,
            bytes,
            "the log's end was not whole and is cut off. A server that fell while it wrote leaves such an end, in which \
             is nothing that was acknowledged with durability sync, unless the file was damaged afterwards"
        );
    }
    let (least, most) = SEGMENT_BYTES.into_inner();
    opened.writer.segment_bytes_max(options.checkpoint_bytes.clamp(least, most));
    if options.durability == Durability::Sync {
        opened.writer.preallocate(PREALLOCATED_BYTES);
    }
    if let Some((lsn, malformed)) = faulty {
        return Err(CoreError::Record { folder: folder.path().into(), lsn, malformed });
    }
    if owner.is_none() {
        folder.check(infer_owner(&engine, settings.server), settings.server)?;
        // Before the folder holds data of this server.
        folder.write_owner(settings.server)?;
    }
    engine.replayed();
    let checkpoint = last.and_then(|lsn| last_checkpoint(folder, lsn));
    let disk_usage = DiskUsage { log_bytes: opened.writer.bytes(), checkpoint };
    Ok(Recovered { engine, writer: opened.writer, disk, bytes_since_checkpoint, disk_usage })
}

/// Returns size and time of a checkpoint, if the file system reports them. This is for the status
/// only.
fn last_checkpoint(folder: &DataFolder, lsn: u64) -> Option<LastCheckpoint> {
    let file = fs::metadata(folder.path().join(checkpoint::name(lsn))).ok()?;
    let at = file.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(LastCheckpoint { lsn, bytes: file.len(), at_ms: at.as_millis() as u64 })
}

/// Finds out whether everything in a damaged checkpoint also exists outside it, as after a crash
/// before the previous checkpoint was deleted. The user decides about a damaged folder.
fn damaged_checkpoint(disk: &Folder, error: LogError, older: Option<u64>) -> CoreError {
    let LogError::Damaged { path, offset, lsn, what } = error else { return error.into() };
    let is_older_whole = older.is_none_or(|older| checkpoint::read(disk, older, |_| Ok(())).is_ok());
    if is_older_whole && check(disk, older.unwrap_or(0)).is_ok_and(|last| last >= lsn) {
        let older = older.map(|older| disk.path().join(checkpoint::name(older)));
        return CoreError::Checkpoint { path, offset, what, older };
    }
    LogError::Damaged { path, offset, lsn, what }.into()
}

/// Infers the owner of a folder that does not state it: the server with the most nodes, for a start
/// with a wrong number leaves only an empty catalog. On a tie it is the starting server if it is
/// among them.
fn infer_owner(engine: &Engine, asked: ServerId) -> ServerId {
    let nodes = engine.nodes_by_server();
    let most = nodes.iter().max_by_key(|(server, count)| (**count, **server == asked));
    most.map_or(asked, |(server, _)| *server)
}
