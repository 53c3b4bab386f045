//! Checkpoint files.

use crate::{
    LogError,
    disk::{Disk, DiskFile},
    format::{BATCH_HEAD, Batch, SEGMENT_HEAD, head_of, number_of, put_batch},
};
use std::{
    io::{self, Read},
    sync::mpsc::{self, Receiver},
    thread,
};

const MAGIC: &[u8; 8] = b"YQLCKP01";
const END: &[u8] = b"end";
/// Bytes of records that are written together.
const BATCH_BYTES: usize = 1 << 20;
/// What a file is called until it is whole.
const UNFINISHED: &str = "checkpoint-unfinished";

/// The name of the checkpoint of this record.
pub fn name(lsn: u64) -> String {
    format!("checkpoint-{lsn:020}")
}

fn lsn_of(name: &str) -> Option<u64> {
    name.strip_prefix("checkpoint-").and_then(number_of)
}

/// The checkpoints of a folder, the oldest first.
pub fn list<D: Disk>(disk: &D) -> Result<Vec<u64>, LogError> {
    let names = disk.names().map_err(LogError::io(disk.path(), "its files cannot be listed"))?;
    let mut all: Vec<u64> = names.iter().filter_map(|name| lsn_of(name)).collect();
    all.sort_unstable();
    Ok(all)
}

/// Records on their way into a checkpoint.
struct Filling<F> {
    file: F,
    /// Bytes of it that are written.
    length: u64,
    number: u64,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    out: Vec<u8>,
}

impl<F: DiskFile> Filling<F> {
    fn send(&mut self) -> std::io::Result<()> {
        if self.ends.is_empty() {
            return Ok(());
        }
        self.out.clear();
        put_batch(&mut self.out, self.number, 0, &self.bytes, &self.ends);
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

/// Writes a checkpoint as of a record of the log: `records` is given what
/// takes each of them. It is durable when this returns, and the older ones are
/// deleted. Returns the file's length.
pub fn write<D: Disk>(
    disk: &D,
    lsn: u64,
    records: impl FnOnce(&mut dyn FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()>,
) -> Result<u64, LogError> {
    let failed = |what| LogError::io(disk.path().join(UNFINISHED), what);
    if disk.names().map_err(failed("its folder cannot be listed"))?.iter().any(|name| name == UNFINISHED) {
        disk.delete(UNFINISHED).map_err(failed("it cannot be deleted"))?;
    }
    let mut file = disk.create(UNFINISHED).map_err(failed("it cannot be made"))?;
    file.write_at(0, &head_of(MAGIC, lsn)).map_err(failed("it cannot be written"))?;
    let (length, number) = (SEGMENT_HEAD as u64, 1);
    let mut filling = Filling { file, length, number, bytes: Vec::new(), ends: Vec::new(), out: Vec::new() };
    let filled = records(&mut |record| filling.push(record)).and_then(|()| {
        filling.send()?;
        filling.push(END)?;
        filling.send()?;
        filling.file.sync()
    });
    filled.map_err(failed("it cannot be written"))?;
    disk.rename(UNFINISHED, &name(lsn)).map_err(failed("it cannot be renamed"))?;
    for older in list(disk)?.into_iter().filter(|older| *older < lsn) {
        disk.delete(&name(older)).map_err(failed("an older one cannot be deleted"))?;
    }
    Ok(filling.length)
}

/// Batches that are read ahead of the records that are worked off.
const AHEAD: usize = 4;

/// A batch, checked, and where it begins.
struct Piece {
    at: u64,
    bytes: Vec<u8>,
    /// Nothing comes after it.
    is_last: bool,
}

/// What is wrong with a checkpoint, and where.
enum Fault {
    Io(io::Error),
    Damaged(u64, &'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Io(error)
    }
}

/// Appends as many bytes as there are, up to a limit; memory is asked for as
/// they come, whatever a damaged file says.
fn fill(file: &mut dyn Read, bytes: &mut Vec<u8>, limit: usize) -> io::Result<usize> {
    if limit <= 2 * BATCH_BYTES {
        bytes.reserve(limit);
    }
    file.take(limit as u64).read_to_end(bytes)
}

/// Reads a file batch by batch, checks each, and gives it away. `spent` are
/// buffers that nobody needs any more.
fn read_batches(
    file: &mut dyn Read,
    lsn: u64,
    spent: &Receiver<Vec<u8>>,
    give: &mut dyn FnMut(Piece) -> bool,
) -> Result<(), Fault> {
    let (mut bytes, mut at) = (Vec::new(), SEGMENT_HEAD as u64);
    fill(file, &mut bytes, SEGMENT_HEAD)?;
    if bytes != head_of(MAGIC, lsn) {
        return Err(Fault::Damaged(0, "its beginning is not whole"));
    }
    bytes.clear();
    fill(file, &mut bytes, BATCH_HEAD)?;
    let mut next = 1;
    while !bytes.is_empty() {
        let damaged = Err(Fault::Damaged(at, "no whole batch begins there"));
        let Some(length) = Batch::length_told(&bytes) else { return damaged };
        fill(file, &mut bytes, length - BATCH_HEAD)?;
        let Some(batch) = Batch::read(&bytes).filter(|batch| batch.first == next) else { return damaged };
        next += u64::from(batch.count);
        let mut following = spent.try_recv().unwrap_or_default();
        following.clear();
        fill(file, &mut following, BATCH_HEAD)?;
        let length = length as u64;
        if !give(Piece { at, bytes, is_last: following.is_empty() }) {
            return Ok(());
        }
        (bytes, at) = (following, at + length);
    }
    Ok(())
}

/// Reads the records of a checkpoint. A thread of its own reads and checks
/// what comes, some batches ahead of the records that are worked off.
pub fn read<D: Disk>(
    disk: &D,
    lsn: u64,
    mut each: impl FnMut(&[u8]) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let path = disk.path().join(name(lsn));
    let failed = || LogError::io(&path, "it cannot be read");
    let mut file = disk.reader(&name(lsn)).map_err(failed())?;
    let damaged = |offset: u64, what| LogError::Damaged { path: path.clone(), offset, lsn, what };
    let (give, pieces) = mpsc::sync_channel(AHEAD);
    let (give_back, spent) = mpsc::channel();
    thread::scope(|scope| {
        let reading = move || {
            let mut give = |piece| give.send(piece).is_ok();
            read_batches(&mut *file, lsn, &spent, &mut give)
        };
        let reader = thread::Builder::new().name("yesquel-reader".to_owned()).spawn_scoped(scope, reading);
        let reader = reader.map_err(failed())?;
        let (mut ended, mut end) = (false, SEGMENT_HEAD as u64);
        for Piece { at, bytes, is_last } in pieces {
            // It was read there, and is whole.
            let batch =
                Batch::of_checked(&bytes).ok_or_else(|| damaged(at, "no whole batch begins there"))?;
            for record in batch.records() {
                ended = is_last && batch.count == 1 && record == END;
                if !ended {
                    each(record)?;
                }
            }
            end = at + batch.length() as u64;
            // It may have gone, with all it wanted.
            let _ = give_back.send(bytes);
        }
        match reader.join() {
            Ok(Ok(())) if ended => Ok(()),
            Ok(Ok(())) => Err(damaged(end, "its end is missing")),
            Ok(Err(Fault::Damaged(offset, what))) => Err(damaged(offset, what)),
            Ok(Err(Fault::Io(error))) => Err(failed()(error)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
