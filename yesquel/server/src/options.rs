//! How a server keeps what it knows, and why it cannot start.

use crate::FolderError;
use std::{fmt, path::PathBuf};
use thiserror::Error;
use yesquel_log::LogError;
use yesquel_wire::Malformed;

/// When what was written is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before anybody hears of it.
    #[default]
    Sync,
    /// Within so many milliseconds: so much may be lost.
    Interval(u64),
    /// When the system likes.
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

/// How a server keeps what it knows.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// When what was written is on disk.
    pub durability: Durability,
    /// Bytes of log after which a checkpoint is made, but not before the log is half
    /// as large as the last one.
    pub checkpoint_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { durability: Durability::Sync, checkpoint_bytes: 64 << 20 }
    }
}

/// Why a server cannot start, or takes no more.
#[derive(Debug, Error)]
pub enum CoreError {
    /// The data folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The log or a checkpoint.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A checkpoint is damaged that is not needed.
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
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
        /// The checkpoint before it; none: the log goes back to its beginning.
        older: Option<PathBuf>,
    },
    /// A record is whole and says nothing that this version knows.
    #[error("{}: record {lsn} of the log is not understood ({malformed}): was it written by a newer version?", folder.display())]
    Record {
        /// The data folder.
        folder: PathBuf,
        /// Which.
        lsn: u64,
        /// What is wrong.
        malformed: Malformed,
    },
}
