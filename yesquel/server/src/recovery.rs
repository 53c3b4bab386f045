//! Recovery of a server from its data folder.

use crate::{DataFolder, error::CoreError};
use std::{fs, time::SystemTime};
use yesquel_engine::{Engine, EngineSettings};
use yesquel_log::{TornTail, checkpoint, disk::Folder};
use yesquel_model::ServerId;
use yesquel_node::{LogOptions, LogSizes, OpenedGroup, open_group};

/// Recovers a folder, which must belong to this server.
pub(crate) fn recover(
    folder: &DataFolder,
    settings: EngineSettings,
    options: LogOptions,
) -> Result<OpenedGroup<Folder>, CoreError> {
    let owner = folder.owner()?;
    if let Some(owner) = owner {
        folder.check(owner, settings.server)?;
    }
    let disk = Folder::new(folder.path());
    let mut opened = open_group(disk, settings, options, LogSizes::of(&options))?;
    if let Some(TornTail { path, offset, bytes }) = &opened.torn {
        tracing::warn!(
            file = %path.display(),
            offset,
            bytes,
            "the log's end was not whole and is cut off. A server that fell while it wrote leaves such an end, in which \
             is nothing that was acknowledged with durability sync, unless the file was damaged afterwards"
        );
    }
    if owner.is_none() {
        folder.check(infer_owner(opened.core.engine(), settings.server), settings.server)?;
        // Before the folder holds data of this server.
        folder.write_owner(settings.server)?;
    }
    if let Some(last) = opened.core.last_checkpoint() {
        opened.checkpoint_written_at(written_at_ms(folder, last.lsn).unwrap_or(0));
    }
    Ok(opened)
}

/// Returns when a checkpoint was written, if the file system says so.
fn written_at_ms(folder: &DataFolder, lsn: u64) -> Option<u64> {
    let file = fs::metadata(folder.path().join(checkpoint::name(lsn))).ok()?;
    let at = file.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(at.as_millis() as u64)
}

/// Infers the owner of a folder that does not state it: the server with the most nodes, for a start
/// with a wrong number leaves only an empty catalog. On a tie it is the starting server if it is
/// among them.
fn infer_owner(engine: &Engine, asked: ServerId) -> ServerId {
    let nodes = engine.nodes_by_server();
    let most = nodes.iter().max_by_key(|(server, count)| (**count, **server == asked));
    most.map_or(asked, |(server, _)| *server)
}
