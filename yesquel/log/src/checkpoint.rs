//! Checkpoint files.

use crate::{
    LogError,
    disk::{Disk, DiskFile},
    format::{Batch, SEGMENT_HEAD, head_of, number_of, put_batch},
};

const MAGIC: &[u8; 8] = b"YQLCKP01";
const END: &[u8] = b"end";
/// Bytes of records that are written together.
const BATCH_BYTES: usize = 1 << 20;
/// What a file is called until it is whole.
const UNFINISHED: &str = "checkpoint-unfinished";

fn name(lsn: u64) -> String {
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
/// deleted.
pub fn write<D: Disk>(
    disk: &D,
    lsn: u64,
    records: impl FnOnce(&mut dyn FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()>,
) -> Result<(), LogError> {
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
    Ok(())
}

/// Reads the records of a checkpoint.
pub fn read<D: Disk>(
    disk: &D,
    lsn: u64,
    mut each: impl FnMut(&[u8]) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let path = disk.path().join(name(lsn));
    let bytes = disk.read(&name(lsn)).map_err(LogError::io(&path, "it cannot be read"))?;
    let damaged =
        |offset: usize, what| LogError::Damaged { path: path.clone(), offset: offset as u64, lsn, what };
    if bytes.get(..SEGMENT_HEAD) != Some(&head_of(MAGIC, lsn)[..]) {
        return Err(damaged(0, "its beginning is not whole"));
    }
    let (mut at, mut next, mut ended) = (SEGMENT_HEAD, 1, false);
    while at < bytes.len() {
        let batch = Batch::read(&bytes[at..]).filter(|batch| batch.first == next && !ended);
        let batch = batch.ok_or_else(|| damaged(at, "no whole batch begins there"))?;
        at += batch.length();
        next += u64::from(batch.count);
        let is_last = at == bytes.len();
        for record in batch.records() {
            ended = is_last && batch.count == 1 && record == END;
            if !ended {
                each(record)?;
            }
        }
    }
    if ended { Ok(()) } else { Err(damaged(at, "its end is missing")) }
}
