//! Data folder, which belongs to one server, and is locked by one process at a time.

use crate::{
    folder_error::DataFolderError,
    machine_file::{MACHINE, MACHINE_UNFINISHED, MachineFile, group_folder},
};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::fd::AsFd,
    path::{Path, PathBuf},
};
use yesquel_fork::CloseOnFork;
use yesquel_log::{
    disk::{Disk as _, DiskTree as _, Folder},
    v1,
};
use yesquel_model::ServerId;

/// Data folder, locked until this is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// A forked child does not share the lock.
    _fork: CloseOnFork,
    /// Holds the lock.
    _lock: File,
}

const LOCK: &str = "lock";
/// File of a folder of format 1 that states the format and the server.
pub(crate) const OWNER: &str = "server";
/// Name of that file while it is written.
pub(crate) const OWNER_UNFINISHED: &str = "server-unfinished";
/// Prefix of the names of groups' folders.
pub(crate) const GROUP_PREFIX: &str = "group-";

fn failed(of: &Path) -> impl FnOnce(io::Error) -> DataFolderError {
    let path = of.to_owned();
    move |error| DataFolderError::Io { path, error }
}

/// Returns whether a file of this name belongs to a folder of format 1.
pub(crate) fn is_of_format_1(name: &str) -> bool {
    [OWNER, OWNER_UNFINISHED].contains(&name) || v1::is_log_file(name)
}

/// Content of the owner file.
pub(crate) struct Owner {
    pub(crate) format: u32,
    /// None in a later format.
    pub(crate) server: Option<ServerId>,
}

impl Owner {
    pub(crate) fn parse(text: &str) -> Option<Owner> {
        let mut lines = text.lines();
        let format = lines.next()?.strip_prefix("format ")?.parse().ok()?;
        let server = lines.next().and_then(|line| line.strip_prefix("server ")?.parse().ok());
        Some(Owner { format, server: server.map(ServerId) })
    }
}

impl DataFolder {
    /// Locks a folder; creates it if it does not exist.
    pub fn take(path: impl Into<PathBuf>) -> Result<DataFolder, DataFolderError> {
        let path = path.into();
        fs::create_dir_all(&path).map_err(failed(&path))?;
        let ours = |name: &str| {
            [LOCK, MACHINE, MACHINE_UNFINISHED].contains(&name)
                || name.starts_with(GROUP_PREFIX)
                || is_of_format_1(name)
        };
        for entry in fs::read_dir(&path).map_err(failed(&path))? {
            let name = entry.map_err(failed(&path))?.file_name().to_string_lossy().into_owned();
            if !ours(&name) {
                return Err(DataFolderError::Foreign { path, file: name });
            }
        }
        let file = path.join(LOCK);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
        let mut lock = opened.map_err(failed(&file))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            // The text only makes the error message better.
            let _ = lock.read_to_string(&mut holder);
            let holder = holder.lines().next().filter(|line| !line.is_empty()).unwrap_or("another process");
            return Err(DataFolderError::InUse { path, holder: holder.to_owned() });
        }
        let written = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "process {}", std::process::id()));
        written.map_err(failed(&file))?;
        Ok(DataFolder { path, _fork: CloseOnFork::new(lock.as_fd()), _lock: lock })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads whose the folder is; `None`: it is new.
    pub(crate) fn machine(&self) -> Result<Option<MachineFile>, DataFolderError> {
        let disk = Folder::new(&self.path);
        if let Some(file) = MachineFile::read(&disk)? {
            let group = disk.subfolder(&group_folder(file.home_group));
            return if group.path().is_dir() {
                Ok(Some(file))
            } else {
                Err(DataFolderError::NoGroup { path: group.path().to_owned() })
            };
        }
        let names = disk.names().map_err(failed(&self.path))?;
        if names.iter().any(|name| is_of_format_1(name)) {
            let owner = disk.read(OWNER).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let format = owner.and_then(|text| Owner::parse(&text)).map_or(1, |owner| owner.format);
            return Err(DataFolderError::OldFormat { path: self.path.clone(), is_interrupted: format > 1 });
        }
        for name in names.iter().filter(|name| name.starts_with(GROUP_PREFIX)) {
            let group = disk.subfolder(name);
            // A start creates the folder of the group first, and was interrupted.
            if !group.names().map_err(failed(group.path()))?.is_empty() {
                return Err(DataFolderError::NoMachine { path: self.path.join(MACHINE) });
            }
        }
        Ok(None)
    }

    /// Checks that the folder belongs to this server.
    pub(crate) fn check(&self, owner: ServerId, asked: ServerId) -> Result<(), DataFolderError> {
        if owner == asked {
            return Ok(());
        }
        Err(DataFolderError::OtherServer { path: self.path.clone(), owner, asked })
    }

    /// Prepares a new folder for a group.
    pub(crate) fn create_group(&self, file: &MachineFile) -> Result<(), DataFolderError> {
        let disk = Folder::new(&self.path);
        disk.create_folder(&group_folder(file.home_group)).map_err(failed(&self.path))?;
        file.write(&disk)
    }
}
