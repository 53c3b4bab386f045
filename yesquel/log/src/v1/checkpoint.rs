//! Checkpoints of folders of format 1.

use super::format::{BATCH_HEAD, BatchOfFormat1, CHECKPOINT_MAGIC, FILE_HEAD, head_of};
use crate::{LogError, checkpoint, disk::Disk};
use std::io::{self, Read};

const END: &[u8] = b"end";
/// Size up to which memory for a batch is reserved at once, whatever a damaged file states.
const RESERVED_BYTES_MAX: usize = 2 << 20;

/// Name of the checkpoint of a log record.
pub fn checkpoint_name(lsn: u64) -> String {
    checkpoint::name(lsn)
}

/// Lists the checkpoints of a folder, the oldest first.
pub fn list_checkpoints<D: Disk>(disk: &D) -> Result<Vec<u64>, LogError> {
    checkpoint::list(disk)
}

fn fill(file: &mut dyn Read, bytes: &mut Vec<u8>, limit: usize) -> io::Result<usize> {
    if limit <= RESERVED_BYTES_MAX {
        bytes.reserve(limit);
    }
    file.take(limit as u64).read_to_end(bytes)
}

/// Reads the records of a checkpoint.
pub fn read_checkpoint<D: Disk>(
    disk: &D,
    lsn: u64,
    mut each: impl FnMut(&[u8]) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let path = disk.path().join(checkpoint_name(lsn));
    let failed = || LogError::io(&path, "it cannot be read");
    let damaged =
        |offset: u64, what| Err(LogError::Damaged { path: path.clone(), offset, position: lsn, what });
    let mut file = disk.reader(&checkpoint_name(lsn)).map_err(failed())?;
    let mut bytes = Vec::new();
    fill(&mut *file, &mut bytes, FILE_HEAD).map_err(failed())?;
    if bytes != head_of(CHECKPOINT_MAGIC, lsn) {
        return damaged(0, "its header is incomplete");
    }
    let (mut at, mut next, mut has_end) = (FILE_HEAD as u64, 1, false);
    loop {
        bytes.clear();
        if fill(&mut *file, &mut bytes, BATCH_HEAD).map_err(failed())? == 0 {
            break;
        }
        let no_batch = "no complete batch starts there";
        let Some(length) = BatchOfFormat1::stated_length(&bytes) else { return damaged(at, no_batch) };
        fill(&mut *file, &mut bytes, length - BATCH_HEAD).map_err(failed())?;
        let batch = BatchOfFormat1::read(&bytes);
        let Some(batch) = batch.filter(|batch| batch.first == next && !has_end) else {
            return damaged(at, no_batch);
        };
        for record in batch.records() {
            has_end = batch.count == 1 && record == END;
            if !has_end {
                each(record)?;
            }
        }
        next += u64::from(batch.count);
        at += length as u64;
    }
    if has_end { Ok(()) } else { damaged(at, "its end is missing") }
}
