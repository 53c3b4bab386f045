//! Reading the log after a restart.

use crate::{
    LogError, SegmentWriter,
    disk::Disk,
    format::{Batch, OTHER_VERSION, OVERLAPS, SEGMENT_HEAD, check_head, first_of, segment_name},
    shutdown_marker,
};
use std::path::{Path, PathBuf};

/// A log that was read.
#[derive(Debug)]
pub struct OpenedLog<D: Disk> {
    /// Appends further records.
    pub writer: SegmentWriter<D>,
    /// The torn tail, if there was one.
    pub torn: Option<TornTail>,
}

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
struct LogEnd {
    /// Number of the next record.
    next: u64,
    /// First record of the last segment and the end of its complete batches, unless the next record
    /// begins another segment.
    last: Option<(u64, u64)>,
    /// First record and bytes of each segment.
    segments: Vec<(u64, u64)>,
    torn: Option<TornTail>,
}

/// Reads all records after `after`, in order, and opens the log for more. Passes each record with
/// its number to `each`.
pub fn open<D: Disk>(
    disk: D,
    after: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), LogError>,
) -> Result<OpenedLog<D>, LogError> {
    let LogEnd { next, last, segments, torn } = read(&disk, after, &mut each)?;
    let writer = SegmentWriter::resume(disk, next, last, segments)?;
    Ok(OpenedLog { writer, torn })
}

/// Checks that all records after `after` are readable, without changing anything. Returns the last
/// one.
pub fn check<D: Disk>(disk: &D, after: u64) -> Result<u64, LogError> {
    Ok(read(disk, after, &mut |_, _| Ok(()))?.next - 1)
}

fn read<D: Disk>(disk: &D, after: u64, each: &mut Each<'_>) -> Result<LogEnd, LogError> {
    let names = disk.names().map_err(LogError::io(disk.path(), "its files cannot be listed"))?;
    let shutdown_marker = shutdown_marker::read(disk, &names)?;
    let mut segments: Vec<u64> = names.iter().filter_map(|name| first_of(name)).collect();
    segments.sort_unstable();
    // Skips segments that the checkpoint covers.
    let needed = segments.partition_point(|first| *first <= after + 1).saturating_sub(1);
    let mut next = segments.get(needed).copied().unwrap_or(after + 1);
    let missing = |from: u64, to: u64| LogError::Missing { path: disk.path().into(), from, to };
    if next > after + 1 {
        return Err(missing(after + 1, next - 1));
    }
    // Before a checkpoint exists, or a segment is deleted, the first batch of the next segment is
    // durable.
    let mut known = shutdown_marker;
    match segments.first() {
        None if after > 0 => return Err(LogError::NoLog { path: disk.path().into(), after }),
        Some(first) if after > 0 && needed == 0 => known = known.max(*first),
        _ => {}
    }
    let mut torn = None;
    let mut last: Option<(u64, u64)> = None;
    for (position, first) in segments.iter().copied().enumerate().skip(needed) {
        let name = segment_name(first);
        let path = disk.path().join(&name);
        if first < next {
            return Err(LogError::Foreign { path, what: OVERLAPS });
        }
        if first > next {
            return Err(missing(next, first - 1));
        }
        let bytes = disk.read(&name).map_err(LogError::io(&path, "it cannot be read"))?;
        let is_last = position + 1 == segments.len();
        let known = if is_last { known } else { u64::MAX };
        let end = read_segment(&path, &bytes, first, known, &mut |lsn, record| {
            next = lsn + 1;
            if lsn > after { each(lsn, record) } else { Ok(()) }
        })?;
        if is_last && next <= known {
            let what = "the file ends there";
            return Err(LogError::Damaged { path, offset: end, lsn: next, what });
        }
        // Preallocated zeros follow the records.
        let tail = &bytes[end as usize..];
        let cut = tail.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        torn = Some(TornTail { path, offset: end, bytes: cut })
            .filter(|_| cut > 0 || end <= SEGMENT_HEAD as u64);
        last = Some((first, end));
    }
    if segments.is_empty() && next <= shutdown_marker {
        return Err(missing(next, shutdown_marker));
    }
    // A checkpoint may be ahead of the log. The next record then does not continue the last
    // segment.
    let last = last.filter(|_| next > after);
    let sized = |first: u64| {
        let name = segment_name(first);
        let size =
            disk.size(&name).map_err(LogError::io(disk.path().join(&name), "its metadata cannot be read"))?;
        Ok((first, size))
    };
    let segments = segments.into_iter().map(sized).collect::<Result<_, LogError>>()?;
    Ok(LogEnd { next: next.max(after + 1), last, segments, torn })
}

/// Receives each record with its number.
type Each<'a> = dyn FnMut(u64, &[u8]) -> Result<(), LogError> + 'a;

/// Reads a segment to its end, or to its torn tail, which has no records `known` to have been
/// durable. Returns the end of the complete batches.
fn read_segment(
    path: &Path,
    bytes: &[u8],
    first: u64,
    known: u64,
    each: &mut Each<'_>,
) -> Result<u64, LogError> {
    let damaged = |offset: usize, lsn: u64, what| {
        Err(LogError::Damaged { path: path.into(), offset: offset as u64, lsn, what })
    };
    if let Err(what) = check_head(bytes, first) {
        if what == OTHER_VERSION {
            return Err(LogError::Foreign { path: path.into(), what });
        }
        // The segment may have been begun but not synced before a power failure.
        if first > known && !Batch::proves(bytes, first) {
            return Ok(0);
        }
        return damaged(0, first, what);
    }
    let (mut at, mut next) = (SEGMENT_HEAD, first);
    while at < bytes.len() {
        let batch = Batch::read(&bytes[at..]);
        let Some(batch) = batch.filter(|batch| batch.first == next && batch.count > 0) else {
            if next > known && !Batch::proves(&bytes[at..], next) {
                return Ok(at as u64);
            }
            return damaged(at, next, "no complete batch starts there");
        };
        let mut count = 0;
        for record in batch.records() {
            each(next, record)?;
            next += 1;
            count += 1;
        }
        if count != batch.count {
            return damaged(at, next, "a batch has fewer records than it states");
        }
        at += batch.length();
    }
    Ok(at as u64)
}
