//! The end of a log, as a reader finds it and a writer continues it.

use crate::LogPoint;
use std::path::PathBuf;

/// The bytes after the last complete batch, which were cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub path: PathBuf,
    /// End of the last complete batch. A file without any is deleted.
    pub offset: u64,
    /// Bytes that were cut off, without preallocated zeros.
    pub bytes: u64,
}

/// The end of a log.
pub(crate) struct LogEnd {
    /// Position of the next record.
    pub(crate) next: u64,
    /// The last record that has an index.
    pub(crate) last_indexed: LogPoint,
    /// First record of the last segment and the end of its complete batches, unless the next record
    /// begins another segment.
    pub(crate) last: Option<(u64, u64)>,
    /// First record and bytes of each segment.
    pub(crate) segments: Vec<(u64, u64)>,
    pub(crate) torn: Option<TornTail>,
}

impl LogEnd {
    /// The end of a log without records, after a checkpoint.
    pub(crate) fn of_nothing(after: LogPoint) -> LogEnd {
        let next = after.position + 1;
        LogEnd { next, last_indexed: after, last: None, segments: Vec::new(), torn: None }
    }
}
