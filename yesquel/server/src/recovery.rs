//! Recovery of a server from its data folder.

use crate::{
    DataFolder, DataFolderError,
    error::CoreError,
    folder::{FolderGroups, is_of_format_1},
    machine_file::{MachineFile, MachineIdentity, group_folder},
};
use std::{io, time::SystemTime};
use yesquel_engine::EngineSettings;
use yesquel_log::{
    LogIdentity, TornTail, checkpoint,
    disk::{Disk as _, DiskTree as _, Folder},
};
use yesquel_model::{ClusterId, ServerId};
use yesquel_node::{LogOptions, LogSizes, OpenedGroup, open_group};

/// Era of a group whose replicas were never lost.
pub(crate) const FIRST_ERA: u32 = 0;

/// A machine whose groups are recovered.
pub(crate) struct RecoveredMachine {
    pub(crate) identity: MachineIdentity,
    /// The groups, the lowest first.
    pub(crate) groups: Vec<OpenedGroup<Folder>>,
}

/// Recovers a folder, which must belong to this server, or creates its groups: a number of them if it
/// founds a cluster.
pub(crate) fn recover(
    folder: &mut DataFolder,
    settings: EngineSettings,
    options: LogOptions,
    groups_of_new: u16,
) -> Result<RecoveredMachine, CoreError> {
    let disk = Folder::new(folder.path());
    let path = folder.path().to_owned();
    let failed = |error: io::Error| DataFolderError::Io { path: path.clone(), error };
    let former = folder.machine()?;
    let is_new = former.is_none();
    let (mut machine, groups) = match former {
        Some((former, groups)) => {
            folder.check(groups.first, settings.server)?;
            (former.next_start().map_err(failed)?, groups)
        }
        None => {
            let first = settings.server;
            let machine = match folder.joined() {
                Some(membership) => MachineFile::of_group(first, membership),
                None => MachineFile::of_new_cluster(first, groups_of_new),
            };
            let machine = machine.map_err(failed)?;
            let groups = FolderGroups { first, others: machine.groups.iter().skip(1).copied().collect() };
            folder.create_groups(&machine, &groups)?;
            (machine, groups)
        }
    };
    let cluster = machine.membership.cluster;
    let opened: Result<Vec<_>, CoreError> = groups
        .all()
        .map(|group| recover_group(&disk, cluster, EngineSettings { server: group, ..settings }, options))
        .collect();
    let opened = opened?;
    if !is_new {
        let log_ends: Vec<(ServerId, u64)> =
            opened.iter().map(|opened| (opened.core.engine().server(), opened.core.synced())).collect();
        if let Some(start) = folder.admit(&log_ends)? {
            machine.start = start;
        }
        // A folder that cannot be opened stays as it is.
        machine.write(&disk)?;
        folder.report_other_groups(&groups)?;
        if disk.names().map_err(failed)?.iter().any(|name| is_of_format_1(name)) {
            tracing::warn!(
                folder = %folder.path().display(),
                "files of format 1 are left: yesquel upgrade deletes them"
            );
        }
    }
    Ok(RecoveredMachine { identity: machine.identity(groups.first), groups: opened })
}

/// Recovers the folder of a group.
pub(crate) fn recover_group(
    disk: &Folder,
    cluster: ClusterId,
    settings: EngineSettings,
    options: LogOptions,
) -> Result<OpenedGroup<Folder>, CoreError> {
    let group = disk.subfolder(&group_folder(settings.server));
    let identity = identity(cluster, settings.server);
    let mut opened = open_group(group.clone(), identity, settings, options, LogSizes::of(&options))?;
    if let Some(TornTail { path, offset, bytes }) = &opened.torn {
        tracing::warn!(
            file = %path.display(),
            offset,
            bytes,
            "the log's end was not whole and is cut off. A server that fell while it wrote leaves such an end, in which \
             is nothing that was acknowledged with durability sync, unless the file was damaged afterwards"
        );
    }
    if let Some(at_ms) = checkpoint_written_at_ms(&group) {
        opened.checkpoint_written_at(at_ms);
    }
    Ok(opened)
}

/// Returns what files of a group state.
pub(crate) fn identity(cluster: ClusterId, group: ServerId) -> LogIdentity {
    LogIdentity { cluster: cluster.0, group: group.0, era: FIRST_ERA }
}

/// Returns when the last checkpoint was written, if the file system says so.
fn checkpoint_written_at_ms(group: &Folder) -> Option<u64> {
    let last = checkpoint::list(group).ok()?.pop()?;
    let file = std::fs::metadata(group.path().join(checkpoint::name(last))).ok()?;
    let at = file.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(at.as_millis() as u64)
}
