//! Checkpoint files.

use crate::{
    LogError, LogIdentity, LogPoint,
    disk::{Disk, DiskFile},
    format::{
        BATCH_HEAD, Batch, BatchNumbers, FILE_HEAD, HeadFault, NOT_WHOLE, check_head, head_of, number_of,
        put_batch,
    },
};
use std::{
    io::{self, Read},
    sync::mpsc::{self, Receiver},
    thread,
};

const MAGIC: &[u8; 8] = b"YQLCKP02";
const END: &[u8] = b"end";
/// Bytes of records in one batch.
const BATCH_BYTES: usize = 1 << 20;
/// Name of a file until it is complete.
const UNFINISHED: &str = "checkpoint-unfinished";

/// Name of the checkpoint of the log up to a position.
pub fn name(position: u64) -> String {
    format!("checkpoint-{position:020}")
}

fn position_of(name: &str) -> Option<u64> {
    name.strip_prefix("checkpoint-").and_then(number_of)
}

/// Lists the positions of a folder's checkpoints, the oldest first.
pub fn list<D: Disk>(disk: &D) -> Result<Vec<u64>, LogError> {
    let names = disk.names().map_err(LogError::io(disk.path(), "its files cannot be listed"))?;
    let mut all: Vec<u64> = names.iter().filter_map(|name| position_of(name)).collect();
    all.sort_unstable();
    Ok(all)
}

/// A checkpoint that is being written.
struct CheckpointWriter<F> {
    file: F,
    /// Bytes written so far.
    length: u64,
    number: u64,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    out: Vec<u8>,
}

impl<F: DiskFile> CheckpointWriter<F> {
    fn send(&mut self) -> std::io::Result<()> {
        if self.ends.is_empty() {
            return Ok(());
        }
        self.out.clear();
        let numbers = BatchNumbers { position: self.number, synced: 0, index: 0, term: 0 };
        put_batch(&mut self.out, numbers, &self.bytes, &self.ends);
        self.number += self.ends.len() as u64;
        self.bytes.clear();
        self.ends.clear();
        self.file.write_at(self.length, &self.out)?;
        self.length += self.out.len() as u64;
        Ok(())
    }

    fn push(&mut self, record: &[u8]) -> std::io::Result<()> {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
        if self.bytes.len() > BATCH_BYTES { self.send() } else { Ok(()) }
    }
}

/// Writes a checkpoint of the log up to a record: `records` is called with a function that takes
/// each record. On return the checkpoint is durable and older ones are deleted. Returns the file's
/// length.
pub fn write<D: Disk>(
    disk: &D,
    identity: LogIdentity,
    last: LogPoint,
    records: impl FnOnce(&mut dyn FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()>,
) -> Result<u64, LogError> {
    let failed = |what| LogError::io(disk.path().join(UNFINISHED), what);
    if disk.names().map_err(failed("its folder cannot be listed"))?.iter().any(|name| name == UNFINISHED) {
        disk.delete(UNFINISHED).map_err(failed("it cannot be deleted"))?;
    }
    let mut file = disk.create(UNFINISHED).map_err(failed("it cannot be created"))?;
    file.write_at(0, &head_of(MAGIC, identity, last)).map_err(failed("it cannot be written"))?;
    let (length, number) = (FILE_HEAD as u64, 1);
    let mut filling =
        CheckpointWriter { file, length, number, bytes: Vec::new(), ends: Vec::new(), out: Vec::new() };
    let filled = records(&mut |record| filling.push(record)).and_then(|()| {
        filling.send()?;
        filling.push(END)?;
        filling.send()?;
        filling.file.sync()
    });
    filled.map_err(failed("it cannot be written"))?;
    disk.rename(UNFINISHED, &name(last.position)).map_err(failed("it cannot be renamed"))?;
    for older in list(disk)?.into_iter().filter(|older| *older < last.position) {
        disk.delete(&name(older)).map_err(failed("an older one cannot be deleted"))?;
    }
    Ok(filling.length)
}

/// Batches read ahead of the records being processed.
const AHEAD: usize = 4;

/// A verified batch, and its offset.
struct VerifiedBatch {
    at: u64,
    bytes: Vec<u8>,
    /// No batch follows.
    is_last: bool,
}

/// A fault in a checkpoint, and where.
enum ReadFault {
    Io(io::Error),
    Damaged(u64, &'static str),
    Foreign(&'static str),
}

impl From<io::Error> for ReadFault {
    fn from(error: io::Error) -> ReadFault {
        ReadFault::Io(error)
    }
}

/// Appends up to `limit` bytes. Memory grows as bytes arrive, whatever a damaged file states.
fn fill(file: &mut dyn Read, bytes: &mut Vec<u8>, limit: usize) -> io::Result<usize> {
    if limit <= 2 * BATCH_BYTES {
        bytes.reserve(limit);
    }
    file.take(limit as u64).read_to_end(bytes)
}

/// Reads a file batch by batch, verifies each and sends it. `spent` returns buffers for reuse.
fn read_batches(
    file: &mut dyn Read,
    spent: &Receiver<Vec<u8>>,
    give: &mut dyn FnMut(VerifiedBatch) -> bool,
) -> Result<(), ReadFault> {
    let (mut bytes, mut at) = (Vec::new(), FILE_HEAD as u64);
    fill(file, &mut bytes, BATCH_HEAD)?;
    let mut next = 1;
    while !bytes.is_empty() {
        let damaged = Err(ReadFault::Damaged(at, "no complete batch starts there"));
        let Some(length) = Batch::stated_length(&bytes) else { return damaged };
        fill(file, &mut bytes, length - BATCH_HEAD)?;
        let Some(batch) = Batch::read(&bytes).filter(|batch| batch.numbers.position == next) else {
            return damaged;
        };
        next += u64::from(batch.count);
        let mut following = spent.try_recv().unwrap_or_default();
        following.clear();
        fill(file, &mut following, BATCH_HEAD)?;
        let length = length as u64;
        if !give(VerifiedBatch { at, bytes, is_last: following.is_empty() }) {
            return Ok(());
        }
        (bytes, at) = (following, at + length);
    }
    Ok(())
}

/// Reads the head of a checkpoint. Returns the last record that it covers.
fn read_head(file: &mut dyn Read, identity: LogIdentity, position: u64) -> Result<LogPoint, ReadFault> {
    let mut bytes = Vec::new();
    fill(file, &mut bytes, FILE_HEAD)?;
    check_head(&bytes, MAGIC, identity, position).map_err(|fault| match fault {
        HeadFault::Damaged => ReadFault::Damaged(0, NOT_WHOLE),
        HeadFault::Foreign(what) => ReadFault::Foreign(what),
    })
}

/// Reads the records of a checkpoint. Another thread reads and verifies some batches ahead. Returns
/// the last record of the log that it covers.
pub fn read<D: Disk>(
    disk: &D,
    identity: LogIdentity,
    position: u64,
    mut each: impl FnMut(&[u8]) -> Result<(), LogError>,
) -> Result<LogPoint, LogError> {
    let path = disk.path().join(name(position));
    let failed = || LogError::io(&path, "it cannot be read");
    let mut file = disk.reader(&name(position)).map_err(failed())?;
    let damaged = |offset: u64, what| LogError::Damaged { path: path.clone(), offset, position, what };
    let faulty = |fault| match fault {
        ReadFault::Damaged(offset, what) => damaged(offset, what),
        ReadFault::Foreign(what) => LogError::Foreign { path: path.clone(), what },
        ReadFault::Io(error) => failed()(error),
    };
    let last = read_head(&mut *file, identity, position).map_err(faulty)?;
    let (give, pieces) = mpsc::sync_channel(AHEAD);
    let (give_back, spent) = mpsc::channel();
    thread::scope(|scope| {
        let reading = move || {
            let mut give = |piece| give.send(piece).is_ok();
            read_batches(&mut *file, &spent, &mut give)
        };
        let reader = thread::Builder::new().name("yesquel-reader".to_owned()).spawn_scoped(scope, reading);
        let reader = reader.map_err(failed())?;
        let (mut shutdown_marker, mut end) = (false, FILE_HEAD as u64);
        for VerifiedBatch { at, bytes, is_last } in pieces {
            // The other thread has verified it.
            let batch =
                Batch::from_verified(&bytes).ok_or_else(|| damaged(at, "no complete batch starts there"))?;
            for record in batch.records() {
                shutdown_marker = is_last && batch.count == 1 && record == END;
                if !shutdown_marker {
                    each(record)?;
                }
            }
            end = at + batch.length() as u64;
            // The other thread may have ended, with nothing left to read.
            let _ = give_back.send(bytes);
        }
        match reader.join() {
            Ok(Ok(())) if shutdown_marker => Ok(last),
            Ok(Ok(())) => Err(damaged(end, "its end is missing")),
            Ok(Err(fault)) => Err(faulty(fault)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
