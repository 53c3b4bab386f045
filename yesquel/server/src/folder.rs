//! Data folder, which belongs to one server, and is locked by one process at a time.

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::fd::AsFd,
    path::{Path, PathBuf},
    thread,
    time::Duration,
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

/// Attempts to lock a folder, and the pause between two: a second in all. A process that was killed
/// holds its lock until the system has torn it down, which may be after its successor's start.
const LOCK_ATTEMPTS: u32 = 21;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

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

/// Returns the process that a lock file names. The text only makes the error message better.
fn holder_of(lock: &mut File) -> String {
    let mut text = String::new();
    let _ = lock.rewind().and_then(|()| lock.read_to_string(&mut text));
    text.lines().next().filter(|line| !line.is_empty()).unwrap_or("another process").to_owned()
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
    /// Locks a folder; creates it if it does not exist. Waits a second for another process to end.
    pub fn take(path: impl Into<PathBuf>) -> Result<DataFolder, DataFolderError> {
        DataFolder::take_waiting(path.into(), thread::sleep)
    }

    /// Locks a folder, and waits by a function between two attempts.
    fn take_waiting(path: PathBuf, mut wait: impl FnMut(Duration)) -> Result<DataFolder, DataFolderError> {
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
        let own = format!("process {}", std::process::id());
        for attempt in 1.. {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(failed(&file)(error.into())),
            }
            let holder = holder_of(&mut lock);
            // This process itself does not end meanwhile.
            if attempt == LOCK_ATTEMPTS || holder == own {
                return Err(DataFolderError::InUse { path, holder });
            }
            wait(LOCK_PAUSE);
        }
        let written = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| writeln!(lock, "{own}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that a process has locked.
    fn locked_by(process: &str) -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK), format!("process {process}\n")).unwrap();
        let lock = File::open(folder.path().join(LOCK)).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        (folder, lock)
    }

    #[test]
    fn a_lock_of_a_process_that_is_ending_is_waited_for() {
        let (folder, lock) = locked_by("4000000000");
        let (mut lock, mut waits) = (Some(lock), 0);
        let taken = DataFolder::take_waiting(folder.path().into(), |_| {
            waits += 1;
            if waits == 3 {
                lock = None;
            }
        });
        assert!(taken.is_ok(), "{taken:?}");
        assert_eq!(waits, 3);
        let holder = fs::read_to_string(folder.path().join(LOCK)).unwrap();
        assert_eq!(holder, format!("process {}\n", std::process::id()));
    }

    #[test]
    fn a_lock_that_stays_is_reported_after_a_second() {
        let (folder, _lock) = locked_by("4000000000");
        let mut waited = Duration::ZERO;
        let error =
            DataFolder::take_waiting(folder.path().into(), |pause| waited += pause).unwrap_err().to_string();
        assert!(error.contains("in use by process 4000000000"), "{error}");
        assert_eq!(waited, Duration::from_secs(1));
    }

    #[test]
    fn a_lock_of_this_process_is_reported_at_once() {
        let (folder, _lock) = locked_by(&std::process::id().to_string());
        let taken = DataFolder::take_waiting(folder.path().into(), |_| panic!("it waits"));
        assert!(matches!(taken, Err(DataFolderError::InUse { .. })), "{taken:?}");
    }
}
