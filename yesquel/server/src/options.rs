//! Durability options of a server, and reasons for which it cannot start.

use crate::DataFolderError;
use std::{fmt, path::PathBuf};
use thiserror::Error;
use yesquel_log::LogError;
use yesquel_wire::Malformed;

/// When a committed write is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before its reply is sent.
    #[default]
    Sync,
    /// Within this many milliseconds: a crash loses up to that much.
    Interval(u64),
    /// When the operating system writes it.
    None,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Sync => f.write_str("sync"),
            Durability::Interval(ms) => write!(f, "interval {ms}"),
            Durability::None => f.write_str("none"),
        }
    }
}

/// Options of a server's log.
#[derive(Debug, Clone, Copy)]
pub struct LogOptions {
    /// When a committed write is on disk.
    pub durability: Durability,
    /// Bytes of log after which a checkpoint is made, but not before the log is half as large as
    /// the last checkpoint.
    pub checkpoint_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { durability: Durability::Sync, checkpoint_bytes: 64 << 20 }
    }
}

/// Reason for which a server cannot start or has stopped accepting writes.
#[derive(Debug, Error)]
pub enum CoreError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Folder(#[from] DataFolderError),
    /// The log or a checkpoint failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A damaged checkpoint, which is not needed.
    #[error(
        "{}: damaged at byte {offset} ({what}). {} what was in it: move it out of the folder, and start again; the \
         start takes longer, and nothing is lost",
        path.display(),
        older.as_ref().map_or_else(
            || "All of the log is there and has".to_owned(),
            |older| format!("The one before it, {}, and all of the log after that are there and have", older.display())
        )
    )]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// Position of the damage.
        offset: u64,
        /// Kind of the damage.
        what: &'static str,
        /// The previous checkpoint; `None`: the log is complete.
        older: Option<PathBuf>,
    },
    /// A log record is intact, but this version does not know it.
    #[error("{}: record {lsn} of the log is not understood ({malformed}): was it written by a newer version?", folder.display())]
    Record {
        /// The data folder.
        folder: PathBuf,
        /// Number of the record.
        lsn: u64,
        /// What is unknown.
        malformed: Malformed,
    },
}
