//! The write-ahead log: records with numbers, in batches with checksums, in
//! segments. `docs/yesquel/log.md` has the format and its laws.

pub mod checkpoint;
pub mod disk;
mod ended;
mod format;
mod reader;
mod writer;

pub use reader::{Opened, Torn, check, open};
pub use writer::Writer;

use std::{io, path::PathBuf};
use thiserror::Error;

/// Why a log cannot be read or written.
#[derive(Debug, Error)]
pub enum LogError {
    /// The system says so.
    #[error("{}: {what}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What came of it.
        error: io::Error,
    },
    /// What was on disk once is not readable any more.
    #[error(
        "{}: damaged at byte {offset}: record {lsn} was written and is not readable ({what}). Restore the folder from a \
         copy; what is before this byte is whole",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The first record that is missing.
        lsn: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A file is of another version, or none of ours.
    #[error("{}: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Files between others are missing.
    #[error("{}: records {from} to {to} are in no file: a segment or a checkpoint is missing. Restore the folder from a copy", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
        /// The first record.
        from: u64,
        /// The last.
        to: u64,
    },
    /// There is no log after a checkpoint.
    #[error(
        "{}: there is a checkpoint of record {after}, and no log after it: a file log-... that begins with record {} or \
         one before it is missing. Restore the folder from a copy",
        path.display(), after + 1
    )]
    NoLog {
        /// The folder.
        path: PathBuf,
        /// The last record of the checkpoint.
        after: u64,
    },
}

impl LogError {
    fn io(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(io::Error) -> LogError {
        let path = path.into();
        move |error| LogError::Io { path, what, error }
    }
}
