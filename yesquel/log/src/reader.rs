//! Reading a log again after a restart.

use crate::{
    LogError, Writer,
    disk::Disk,
    ended,
    format::{Batch, OTHER_VERSION, OVERLAPS, SEGMENT_HEAD, check_head, first_of, segment_name},
};
use std::path::{Path, PathBuf};

/// A log that was read.
#[derive(Debug)]
pub struct Opened<D: Disk> {
    /// For what comes next.
    pub writer: Writer<D>,
    /// Its end, if that was not whole.
    pub torn: Option<Torn>,
}

/// What stood behind the last whole batch and was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The file.
    pub path: PathBuf,
    /// Where the last whole batch ends. One without any is deleted.
    pub offset: u64,
    /// Bytes that were cut off, but for the zeros that nothing was written over.
    pub bytes: u64,
}

/// How far a log goes.
struct End {
    /// The number of the next record.
    next: u64,
    /// The last segment's first record, and where what is whole in it ends,
    /// unless the next record begins another one.
    last: Option<(u64, u64)>,
    /// The first record and the bytes of each segment.
    segments: Vec<(u64, u64)>,
    torn: Option<Torn>,
}

/// Reads all records after `after`, in order, and opens the log for more.
/// Each record goes to `each` with its number.
pub fn open<D: Disk>(
    disk: D,
    after: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), LogError>,
) -> Result<Opened<D>, LogError> {
    let End { next, last, segments, torn } = read(&disk, after, &mut each)?;
    let writer = Writer::resume(disk, next, last, segments)?;
    Ok(Opened { writer, torn })
}

/// Looks whether all records after `after` can be read, and changes nothing.
/// Returns the last one.
pub fn check<D: Disk>(disk: &D, after: u64) -> Result<u64, LogError> {
    Ok(read(disk, after, &mut |_, _| Ok(()))?.next - 1)
}

fn read<D: Disk>(disk: &D, after: u64, each: &mut Each<'_>) -> Result<End, LogError> {
    let names = disk.names().map_err(LogError::io(disk.path(), "its files cannot be listed"))?;
    let ended = ended::read(disk, &names)?;
    let mut segments: Vec<u64> = names.iter().filter_map(|name| first_of(name)).collect();
    segments.sort_unstable();
    // Those that hold nothing but what is in the checkpoint.
    let needed = segments.partition_point(|first| *first <= after + 1).saturating_sub(1);
    let mut next = segments.get(needed).copied().unwrap_or(after + 1);
    let missing = |from: u64, to: u64| LogError::Missing { path: disk.path().into(), from, to };
    if next > after + 1 {
        return Err(missing(after + 1, next - 1));
    }
    // Before there is a checkpoint, or a segment is deleted, the first batch of
    // the segment that goes on from there is on disk.
    let mut known = ended;
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
        // Zeros behind the records wait for more.
        let tail = &bytes[end as usize..];
        let cut = tail.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        torn = Some(Torn { path, offset: end, bytes: cut }).filter(|_| cut > 0 || end <= SEGMENT_HEAD as u64);
        last = Some((first, end));
    }
    if segments.is_empty() && next <= ended {
        return Err(missing(next, ended));
    }
    // A checkpoint may be ahead of the log: what comes next is then not what
    // the last segment would go on with.
    let last = last.filter(|_| next > after);
    let sized = |first: u64| {
        let name = segment_name(first);
        let size =
            disk.size(&name).map_err(LogError::io(disk.path().join(&name), "it cannot be looked at"))?;
        Ok((first, size))
    };
    let segments = segments.into_iter().map(sized).collect::<Result<_, LogError>>()?;
    Ok(End { next: next.max(after + 1), last, segments, torn })
}

/// What is done with a record and its number.
type Each<'a> = dyn FnMut(u64, &[u8]) -> Result<(), LogError> + 'a;

/// Reads a segment to its end, or to its tail, which has none of the records
/// that are `known` to have been on disk. Returns where what is whole ends.
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
        // It may have been begun and not synced before the power went.
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
            return damaged(at, next, "no whole batch begins there");
        };
        let mut count = 0;
        for record in batch.records() {
            each(next, record)?;
            next += 1;
            count += 1;
        }
        if count != batch.count {
            return damaged(at, next, "a batch has fewer records than it says");
        }
        at += batch.length();
    }
    Ok(at as u64)
}
