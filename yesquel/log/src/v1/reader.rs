//! The log of a folder of format 1.

use super::format::{BatchOfFormat1, END_MAGIC, FILE_HEAD, SEGMENT_MAGIC, head_of};
use crate::{
    LogError,
    disk::Disk,
    format::{first_of, number, segment_name},
};
use std::path::Path;

/// The file that states where the log ended.
const ENDED: &str = "ended";

/// Returns whether a file of this name belongs to a log, or to its checkpoints.
pub fn is_log_file(name: &str) -> bool {
    ["log-", "checkpoint-", ENDED].iter().any(|kind| name.starts_with(kind))
}

/// Reads all records after `after`, in order, and passes each with its number to `each`. Returns
/// the number of the last one. What a power failure left behind the last complete batch does not
/// count.
pub fn read_log<D: Disk>(
    disk: &D,
    after: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), LogError>,
) -> Result<u64, LogError> {
    let names = disk.names().map_err(LogError::io(disk.path(), "its files cannot be listed"))?;
    let ended = read_end(disk, &names)?;
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
    let mut known = ended;
    match segments.first() {
        None if after > 0 => return Err(LogError::NoLog { path: disk.path().into(), after }),
        Some(first) if after > 0 && needed == 0 => known = known.max(*first),
        _ => {}
    }
    for (position, first) in segments.iter().copied().enumerate().skip(needed) {
        let name = segment_name(first);
        let path = disk.path().join(&name);
        if first < next {
            return Err(LogError::Foreign { path, what: "it overlaps the previous segment" });
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
            return Err(LogError::Damaged { path, offset: end as u64, position: next, what });
        }
    }
    if segments.is_empty() && next <= ended {
        return Err(missing(next, ended));
    }
    // A checkpoint may be ahead of the log.
    Ok(next.max(after + 1) - 1)
}

/// The record up to which all were durable at the last orderly shutdown; zero: there was none.
fn read_end<D: Disk>(disk: &D, names: &[String]) -> Result<u64, LogError> {
    if !names.iter().any(|name| name == ENDED) {
        return Ok(0);
    }
    let path = disk.path().join(ENDED);
    let bytes = disk.read(ENDED).map_err(LogError::io(&path, "it cannot be read"))?;
    let lsn = number(&bytes, 8).map_or(0, u64::from_le_bytes);
    if bytes != head_of(END_MAGIC, lsn) {
        return Err(LogError::Foreign { path, what: crate::shutdown_marker::NOT_UNDERSTOOD });
    }
    Ok(lsn)
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
) -> Result<usize, LogError> {
    let damaged = |offset: usize, position: u64, what| {
        Err(LogError::Damaged { path: path.into(), offset: offset as u64, position, what })
    };
    if !bytes.starts_with(&head_of(SEGMENT_MAGIC, first)) {
        // The segment may have been begun but not synced before a power failure.
        if first > known && !BatchOfFormat1::proves(bytes, first) {
            return Ok(0);
        }
        return damaged(0, first, "its header is incomplete");
    }
    let (mut at, mut next) = (FILE_HEAD, first);
    while at < bytes.len() {
        let batch = BatchOfFormat1::read(&bytes[at..]);
        let Some(batch) = batch.filter(|batch| batch.first == next && batch.count > 0) else {
            if next > known && !BatchOfFormat1::proves(&bytes[at..], next) {
                return Ok(at);
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
    Ok(at)
}
