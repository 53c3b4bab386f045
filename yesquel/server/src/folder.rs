//! A data folder, which one server at a time has.

use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
};
use thiserror::Error;

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
}

/// A data folder that is ours until this is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

const LOCK: &str = "lock";

impl DataFolder {
    /// Takes a folder, which is made if it is not there.
    pub fn take(path: impl Into<PathBuf>) -> Result<DataFolder, FolderError> {
        let path = path.into();
        let failed = |of: &Path| {
            let path = of.to_owned();
            move |error| FolderError::Io { path, error }
        };
        fs::create_dir_all(&path).map_err(failed(&path))?;
        let ours = |name: &str| name == LOCK || name.starts_with("log-") || name.starts_with("checkpoint-");
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
        Ok(DataFolder { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
