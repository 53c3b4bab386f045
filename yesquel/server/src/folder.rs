//! Data folder, which belongs to one server, and is locked by one process at a time.

use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::fd::AsFd,
    path::{Path, PathBuf},
};
use thiserror::Error;
use yesquel_fork::CloseOnFork;
use yesquel_model::ServerId;

/// Reason for which a data folder cannot be used.
#[derive(Debug, Error)]
pub enum DataFolderError {
    /// The system reported an error.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another process has locked the folder.
    #[error("{}: in use by {holder}: stop that, or name another folder", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process, as the lock file names it.
        holder: String,
    },
    /// The folder holds foreign files.
    #[error("{}: has files that are not Yesquel's, such as '{file}': name another folder", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Name of one of the files.
        file: String,
    },
    /// The folder belongs to another server.
    #[error(
        "{}: is the folder of server {}, and this is server {}: its databases would not be found. Start it with \
         --server {}, or name another folder",
        path.display(), owner.0, asked.0, owner.0
    )]
    OtherServer {
        /// The folder.
        path: PathBuf,
        /// The server it belongs to.
        owner: ServerId,
        /// The server that is starting.
        asked: ServerId,
    },
    /// A newer version has written the folder.
    #[error("{}: the folder has format {format}, and this version of Yesquel knows {FORMAT}", path.display())]
    OtherFormat {
        /// The file that states the format.
        path: PathBuf,
        /// The format.
        format: u32,
    },
    /// The file that names the owner is damaged.
    #[error(
        "{}: damaged: it does not say whose the folder is. Delete it: the next start finds the server's number in \
         what is stored, and makes it again",
        path.display()
    )]
    NoOwner {
        /// The file.
        path: PathBuf,
    },
}

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
/// File that states the format of the folder and its server.
const OWNER: &str = "server";
/// Name of that file while it is written.
const OWNER_UNFINISHED: &str = "server-unfinished";
/// Format of the folder as a whole: its files and their meaning.
const FORMAT: u32 = 1;

fn failed(of: &Path) -> impl FnOnce(io::Error) -> DataFolderError {
    let path = of.to_owned();
    move |error| DataFolderError::Io { path, error }
}

/// Content of the owner file.
struct Owner {
    format: u32,
    /// None in a format that this version does not know.
    server: Option<ServerId>,
}

impl Owner {
    fn parse(text: &str) -> Option<Owner> {
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
            [LOCK, OWNER, OWNER_UNFINISHED].contains(&name)
                || ["log-", "checkpoint-", "ended"].iter().any(|kind| name.starts_with(kind))
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

    /// Returns the server of the folder: `None` for a new folder, and for one of a version without
    /// owner files.
    pub(crate) fn owner(&self) -> Result<Option<ServerId>, DataFolderError> {
        let path = self.path.join(OWNER);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed(&path))?,
        };
        match std::str::from_utf8(&bytes).ok().and_then(Owner::parse) {
            Some(Owner { format: FORMAT, server: Some(server) }) => Ok(Some(server)),
            Some(Owner { format, .. }) if format > FORMAT => {
                Err(DataFolderError::OtherFormat { path, format })
            }
            _ => Err(DataFolderError::NoOwner { path }),
        }
    }

    /// Checks that the folder belongs to this server.
    pub(crate) fn check(&self, owner: ServerId, asked: ServerId) -> Result<(), DataFolderError> {
        if owner == asked {
            return Ok(());
        }
        Err(DataFolderError::OtherServer { path: self.path.clone(), owner, asked })
    }

    /// Writes the owner file atomically.
    pub(crate) fn write_owner(&self, server: ServerId) -> Result<(), DataFolderError> {
        let path = self.path.join(OWNER_UNFINISHED);
        let written = File::create(&path).and_then(|mut file| {
            write!(file, "format {FORMAT}\nserver {}\n", server.0)?;
            file.sync_all()?;
            fs::rename(&path, self.path.join(OWNER))?;
            File::open(&self.path)?.sync_all()
        });
        written.map_err(failed(&path))
    }
}
