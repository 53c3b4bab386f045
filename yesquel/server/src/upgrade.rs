//! Conversion of a data folder of format 1.
//!
//! `docs/yesquel/cluster/directory.md` has the steps. New files are written into a folder whose name
//! the old release takes for one of its own files, so that it opens the folder as before until it is
//! told not to.

use crate::{
    DataFolder, DataFolderError,
    folder::{OWNER, OWNER_UNFINISHED, Owner, is_of_format_1},
    folder_error::FORMAT,
    machine_file::{GROUP_PREFIX, MACHINE, MACHINE_UNFINISHED, MachineFile, group_folder, write_file},
    recovery::identity,
};
use std::{io, ops::ControlFlow, path::Path};
use thiserror::Error;
use yesquel_engine::{Engine, EngineSettings, LogRecord};
use yesquel_log::{
    LogError, LogPoint, SegmentWriter, checkpoint,
    disk::{DiskTree, Folder},
    v1,
};
use yesquel_model::{ClusterId, ClusterMembership, ServerId};
use yesquel_node::OpenError;

/// Folder of the new files until step 4, after which the old release refuses the data folder.
const UPGRADE: &str = "checkpoint-upgrade";
/// Bytes between two calls of the progress function.
const PROGRESS_BYTES: u64 = 1 << 20;
/// Term of all records of format 1.
const FIRST_TERM: u64 = 1;

/// Reason for which a folder could not be upgraded. It can be tried again.
#[derive(Debug, Error)]
pub enum UpgradeError {
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] DataFolderError),
    /// Its log or checkpoint cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The progress function has stopped it.
    #[error("interrupted")]
    Interrupted,
}

impl From<LogError> for UpgradeError {
    fn from(error: LogError) -> UpgradeError {
        UpgradeError::Open(error.into())
    }
}

/// What an upgrade has found and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeOutcome {
    /// There is nothing to upgrade: the folder is empty.
    Empty,
    /// The folder had the new format. Old files were left by an interrupted upgrade, which this one
    /// has ended by deleting so many.
    Current {
        /// Number of files deleted.
        deleted: u64,
    },
    /// The folder was converted.
    Upgraded {
        /// UUID of the cluster that it is now.
        cluster: ClusterId,
        /// Number of the server, which is now that of the home group.
        group: ServerId,
        /// Number of the last log record that was read.
        records: u64,
        /// Number of nodes.
        nodes: u64,
        /// Bytes of the new checkpoint.
        bytes: u64,
    },
}

/// Receives bytes done and bytes in all, about every megabyte; may stop the upgrade.
pub type UpgradeProgress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// Converts a data folder of format 1, of a server or of an embedded store, to the format of this
/// version. May be interrupted at any moment, and then continues when it is called again.
pub fn upgrade(path: &Path, progress: &mut UpgradeProgress<'_>) -> Result<UpgradeOutcome, UpgradeError> {
    if let Err(error) = path.read_dir() {
        return Err(DataFolderError::Io { path: path.into(), error }.into());
    }
    let folder = DataFolder::take(path)?;
    Upgrade::new(&Folder::new(folder.path()), progress).run()
}

/// An upgrade under way.
struct Upgrade<'a, 'b, D> {
    disk: &'a D,
    progress: &'a mut UpgradeProgress<'b>,
    /// Bytes read and written so far, of an estimate.
    done: u64,
    all: u64,
    told: u64,
    /// Bytes between two calls of `progress`.
    interval: u64,
}

/// State of an old folder.
struct OldState {
    engine: Engine,
    /// The last log record.
    lsn: u64,
}

impl<'a, 'b, D: DiskTree + Clone> Upgrade<'a, 'b, D> {
    fn new(disk: &'a D, progress: &'a mut UpgradeProgress<'b>) -> Self {
        Upgrade { disk, progress, done: 0, all: 0, told: 0, interval: PROGRESS_BYTES }
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> DataFolderError + use<D> {
        let path = self.disk.path().to_owned();
        move |error| DataFolderError::Io { path, error }
    }

    fn names(&self) -> Result<Vec<String>, DataFolderError> {
        self.disk.names().map_err(self.failed())
    }

    /// Adds to what is done.
    fn advance(&mut self, bytes: u64) -> Result<(), UpgradeError> {
        self.done += bytes;
        if self.done < self.told + self.interval {
            return Ok(());
        }
        self.told = self.done;
        match (self.progress)(self.done.min(self.all), self.all) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(UpgradeError::Interrupted),
        }
    }

    fn run(mut self) -> Result<UpgradeOutcome, UpgradeError> {
        // Step 1.
        if MachineFile::read(self.disk)?.is_some() {
            let deleted = self.delete_old_files()?;
            return Ok(UpgradeOutcome::Current { deleted });
        }
        if !self.names()?.iter().any(|name| is_of_format_1(name)) {
            return Ok(UpgradeOutcome::Empty);
        }
        let (state, machine) = self.load()?;
        // Steps 2 and 3.
        let new = self.disk.subfolder(UPGRADE);
        self.disk.create_folder(UPGRADE).map_err(self.failed())?;
        machine.write(&new)?;
        let nodes = state.engine.nodes_by_server().values().sum();
        let bytes = self.write_group(&new, &machine, &state)?;
        // Step 4: from here on the old release refuses the folder.
        write_file(self.disk, OWNER_UNFINISHED, OWNER, format!("format {FORMAT}\n").as_bytes())?;
        // Step 5.
        for name in [group_folder(machine.membership.home_group), MACHINE.to_owned()] {
            let renamed = self.disk.rename(&format!("{UPGRADE}/{name}"), &name);
            renamed.map_err(self.failed())?;
        }
        // Step 6.
        self.delete_old_files()?;
        let ClusterMembership { cluster, home_group: group } = machine.membership;
        Ok(UpgradeOutcome::Upgraded { cluster, group, records: state.lsn, nodes, bytes })
    }

    /// Reads the old state, and decides what the file `machine` will state.
    fn load(&mut self) -> Result<(OldState, MachineFile), UpgradeError> {
        let upgraded = self.disk.subfolder(UPGRADE);
        // It was not synced, or an upgrade was not begun.
        let begun = MachineFile::read(&upgraded).ok().flatten();
        let path = self.disk.path().join(OWNER);
        let has_owner = self.names()?.iter().any(|name| name == OWNER);
        let owner = if has_owner {
            let bytes = self.disk.read(OWNER).map_err(self.failed())?;
            let text = String::from_utf8(bytes).unwrap_or_default();
            Some(Owner::parse(&text).ok_or(DataFolderError::NoOwner { path: path.clone() })?)
        } else {
            None
        };
        let server = match (owner, &begun) {
            (Some(Owner { format: 1, server: Some(server) }), _) => Some(server),
            // The upgrade had come to step 4.
            (Some(Owner { format: FORMAT, .. }), Some(begun)) => Some(begun.membership.home_group),
            (Some(Owner { format, .. }), _) if format > FORMAT => {
                return Err(DataFolderError::OtherFormat { path, format }.into());
            }
            (Some(_), _) => return Err(DataFolderError::NoOwner { path }.into()),
            (None, _) => None,
        };
        let mut state = self.load_engine(server.unwrap_or_default())?;
        let server = match server {
            Some(server) => server,
            None => {
                let server = infer_owner(&state.engine);
                if server != ServerId::default() {
                    state = self.load_engine(server)?;
                }
                server
            }
        };
        let machine = match begun.filter(|begun| begun.membership.home_group == server) {
            Some(begun) => begun,
            None => MachineFile::of_new_cluster(server, 1).map_err(self.failed())?,
        };
        Ok((state, machine))
    }

    /// Reads checkpoint and log.
    fn load_engine(&mut self, server: ServerId) -> Result<OldState, UpgradeError> {
        let disk = self.disk;
        let checkpoints = v1::list_checkpoints(disk)?;
        let last = checkpoints.last().copied();
        let mut sizes = 0;
        for name in self.names()?.iter().filter(|name| name.starts_with("log-")) {
            sizes += disk.size(name).map_err(self.failed())?;
        }
        if let Some(last) = last {
            sizes += disk.size(&v1::checkpoint_name(last)).map_err(self.failed())?;
        }
        // As much is written as is read, about.
        self.all = self.done + 2 * sizes;
        let mut engine = Engine::new(EngineSettings { server, ..EngineSettings::default() });
        let mut stopped = None;
        let mut replay = |engine: &mut Engine, lsn: u64, bytes: &[u8]| {
            let replayed = match LogRecord::decode(bytes) {
                Ok(record) => {
                    engine.replay(&record);
                    self.advance(bytes.len() as u64)
                }
                Err(malformed) => {
                    Err(OpenError::Record { folder: disk.path().into(), lsn, malformed }.into())
                }
            };
            replayed.map_err(|error| {
                stopped = Some(error);
                LogError::Foreign { path: disk.path().into(), what: "not read further" }
            })
        };
        let mut read = || {
            if let Some(lsn) = last {
                v1::read_checkpoint(disk, lsn, |record| replay(&mut engine, lsn, record))?;
                engine.restored(lsn);
            }
            v1::read_log(disk, last.unwrap_or(0), |lsn, record| replay(&mut engine, lsn, record))
        };
        let read = read();
        if let Some(error) = stopped {
            return Err(error);
        }
        let lsn = read?;
        engine.replayed();
        engine.name_owners();
        Ok(OldState { engine, lsn })
    }

    /// Writes the folder of the group. Returns the bytes of its checkpoint.
    fn write_group(&mut self, new: &D, machine: &MachineFile, state: &OldState) -> Result<u64, UpgradeError> {
        for parent in [self.disk, new] {
            let names = parent.names().map_err(self.failed())?;
            for name in names.iter().filter(|name| name.starts_with(GROUP_PREFIX)) {
                delete_folder(parent, name).map_err(self.failed())?;
            }
        }
        let name = group_folder(machine.membership.home_group);
        new.create_folder(&name).map_err(self.failed())?;
        let OldState { engine, lsn } = state;
        if *lsn == 0 {
            return Ok(0);
        }
        let (group, identity) =
            (new.subfolder(&name), identity(machine.membership.cluster, machine.membership.home_group));
        let last = LogPoint { position: *lsn, index: *lsn, term: FIRST_TERM };
        // The log after a checkpoint begins with a record.
        let mut record = Vec::new();
        LogRecord::Ceiling(engine.ceiling()).write(&mut record);
        let mut log = SegmentWriter::begin(group.clone(), identity, last)?;
        log.append(FIRST_TERM, lsn + 1, &record, &[record.len()])?;
        let mut stopped = None;
        let bytes = checkpoint::write(&group, identity, last, |take| {
            engine.checkpoint().write(|record| {
                take(record)?;
                self.advance(record.len() as u64).map_err(|error| {
                    stopped = Some(error);
                    io::ErrorKind::Interrupted.into()
                })
            })
        });
        if let Some(error) = stopped {
            return Err(error);
        }
        let bytes = bytes?;
        log.end()?;
        Ok(bytes)
    }

    /// Deletes the files of format 1, the owner's last. Returns their number.
    fn delete_old_files(&self) -> Result<u64, UpgradeError> {
        let names = self.names()?;
        if names.iter().any(|name| name == UPGRADE) {
            delete_folder(self.disk, UPGRADE).map_err(self.failed())?;
        }
        let is_old = |name: &&String| is_of_format_1(name) && *name != UPGRADE && *name != OWNER;
        let old: Vec<&String> = names.iter().filter(is_old).collect();
        let owner = names.iter().filter(|name| *name == OWNER);
        let mut deleted = 0;
        for name in old.into_iter().chain(owner) {
            self.disk.delete(name).map_err(self.failed())?;
            deleted += 1;
        }
        if names.iter().any(|name| name == MACHINE_UNFINISHED) {
            self.disk.delete(MACHINE_UNFINISHED).map_err(self.failed())?;
        }
        Ok(deleted)
    }
}

/// Deletes a folder and its files.
fn delete_folder<D: DiskTree>(parent: &D, name: &str) -> io::Result<()> {
    let folder = parent.subfolder(name);
    for file in folder.names()? {
        folder.delete(&file)?;
    }
    parent.delete_folder(name)
}

/// Infers the server of a folder that does not state it: the one with the most nodes, for a start
/// with a wrong number leaves only an empty catalog. On a tie it is the one with the lowest number.
fn infer_owner(engine: &Engine) -> ServerId {
    let nodes = engine.nodes_by_server();
    let most = nodes.iter().max_by_key(|(server, count)| (**count, std::cmp::Reverse(server.0)));
    most.map_or(ServerId::default(), |(server, _)| *server)
}

#[cfg(test)]
mod tests;
