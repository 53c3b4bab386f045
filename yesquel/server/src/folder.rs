//! A data folder, which one server at a time has, and always the same one.

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

/// Why a data folder cannot be had.
#[derive(Debug, Error)]
pub enum FolderError {
    /// The system says so.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process has it.
    #[error("{}: in use by {holder}: stop that, or name another folder", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who says it has it.
        holder: String,
    },
    /// It holds other things.
    #[error("{}: has files that are not Yesquel's, such as '{file}': name another folder", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// One of them.
        file: String,
    },
    /// It is another server's.
    #[error(
        "{}: is the folder of server {}, and this is server {}: its databases would not be found. Start it with \
         --server {}, or name another folder",
        path.display(), owner.0, asked.0, owner.0
    )]
    OtherServer {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: ServerId,
        /// Who asks for it.
        asked: ServerId,
    },
    /// A newer version has made it.
    #[error("{}: the folder has format {format}, and this version of Yesquel knows {FORMAT}", path.display())]
    OtherFormat {
        /// The file that says so.
        path: PathBuf,
        /// Which.
        format: u32,
    },
    /// The file that says whose it is says nothing that is understood.
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

/// A data folder that is ours until this is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// A child has no part in the lock.
    _fork: CloseOnFork,
    /// Locked as long as it is open.
    _lock: File,
}

const LOCK: &str = "lock";
/// Says whose the folder is, and in which format.
const OWNER: &str = "server";
/// What that file is called until it is whole.
const OWNER_UNFINISHED: &str = "server-unfinished";
/// Of the folder as a whole: which files there are, and what they are for.
const FORMAT: u32 = 1;

fn failed(of: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = of.to_owned();
    move |error| FolderError::Io { path, error }
}

/// What the owner's file says.
struct Owner {
    format: u32,
    /// Missing in a format that this version does not know.
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
    /// Takes a folder, which is made if it is not there.
    pub fn take(path: impl Into<PathBuf>) -> Result<DataFolder, FolderError> {
        let path = path.into();
        fs::create_dir_all(&path).map_err(failed(&path))?;
        let ours = |name: &str| {
            [LOCK, OWNER, OWNER_UNFINISHED].contains(&name)
                || ["log-", "checkpoint-", "ended"].iter().any(|kind| name.starts_with(kind))
        };
        for entry in fs::read_dir(&path).map_err(failed(&path))? {
            let name = entry.map_err(failed(&path))?.file_name().to_string_lossy().into_owned();
            if !ours(&name) {
                return Err(FolderError::Foreign { path, file: name });
            }
        }
        let file = path.join(LOCK);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
        let mut lock = opened.map_err(failed(&file))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            // What it says of itself is a help, and no more.
            let _ = lock.read_to_string(&mut holder);
            let holder = holder.lines().next().filter(|line| !line.is_empty()).unwrap_or("another process");
            return Err(FolderError::InUse { path, holder: holder.to_owned() });
        }
        let written = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "process {}", std::process::id()));
        written.map_err(failed(&file))?;
        Ok(DataFolder { path, _fork: CloseOnFork::new(lock.as_fd()), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is. One that is new says nothing yet, and one that was made
    /// before folders did neither.
    pub(crate) fn owner(&self) -> Result<Option<ServerId>, FolderError> {
        let path = self.path.join(OWNER);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed(&path))?,
        };
        match std::str::from_utf8(&bytes).ok().and_then(Owner::parse) {
            Some(Owner { format: FORMAT, server: Some(server) }) => Ok(Some(server)),
            Some(Owner { format, .. }) if format > FORMAT => Err(FolderError::OtherFormat { path, format }),
            _ => Err(FolderError::NoOwner { path }),
        }
    }

    /// Sees to it that nobody but this server has it.
    pub(crate) fn check(&self, owner: ServerId, asked: ServerId) -> Result<(), FolderError> {
        if owner == asked {
            return Ok(());
        }
        Err(FolderError::OtherServer { path: self.path.clone(), owner, asked })
    }

    /// Writes down whose it is. The file is there whole or not at all.
    pub(crate) fn belongs_to(&self, server: ServerId) -> Result<(), FolderError> {
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
