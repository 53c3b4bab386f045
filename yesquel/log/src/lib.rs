//! The write-ahead log: numbered records, in batches with checksums, in segments.
//! `docs/yesquel/log.md` has the format and its laws.

pub mod checkpoint;
mod cuts;
pub mod disk;
mod format;
mod log_end;
mod reader;
mod shutdown_marker;
pub mod v1;
mod writer;

pub use format::{LogIdentity, LogPoint};
pub use log_end::TornTail;
pub use reader::{LogEvent, OpenedLog, StoredRecord, check, open};
pub use writer::SegmentWriter;

use std::{io, path::PathBuf};
use thiserror::Error;

/// Why a log cannot be read or written.
#[derive(Debug, Error)]
pub enum LogError {
    /// The operating system reports an error.
    #[error("{}: {what}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
    /// A write found no space on the disk. Nothing else is known to be wrong with it.
    #[error("{}: {what}: {error}", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
    /// Durable data is no longer readable.
    #[error(
        "{}: damaged at byte {offset}: record {position} was written and is not readable ({what}). Restore the folder from a \
         copy; everything before this byte is intact",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset.
        offset: u64,
        /// Position of the first missing record; of a checkpoint, its own.
        position: u64,
        /// The fault.
        what: &'static str,
    },
    /// A file is of another version or group, or not part of this log.
    #[error("{}: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The fault.
        what: &'static str,
    },
    /// Files in the middle are missing.
    #[error("{}: records {from} to {to} are in no file: a segment or a checkpoint is missing. Restore the folder from a copy", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
        /// The first missing record.
        from: u64,
        /// The last missing record.
        to: u64,
    },
    /// The log after a checkpoint is missing.
    #[error(
        "{}: there is a checkpoint of record {after} but no log after it: a file log-... that begins with record {} or \
         an earlier one is missing. Restore the folder from a copy",
        path.display(), after + 1
    )]
    NoLog {
        /// The folder.
        path: PathBuf,
        /// The last record that the checkpoint covers.
        after: u64,
    },
}

impl LogError {
    fn io(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(io::Error) -> LogError {
        let path = path.into();
        move |error| LogError::Io { path, what, error }
    }
}
