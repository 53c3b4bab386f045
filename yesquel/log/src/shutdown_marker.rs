//! The marker of a clean shutdown: it states where the log ended, so that a tail that is lost
//! afterwards is noticed.
//!
//! It is never removed: records that were durable once must exist ever after, however the log goes
//! on.

use crate::{
    LogError,
    disk::{Disk, DiskFile},
    format::{SEGMENT_HEAD, head_of},
};

const MAGIC: &[u8; 8] = b"YQLEND01";
/// The file's name.
pub(crate) const NAME: &str = "ended";
/// Its name until it is complete.
const UNFINISHED: &str = "ended-unfinished";

/// Records durably that all records up to this one are durable.
pub(crate) fn write<D: Disk>(disk: &D, lsn: u64) -> Result<(), LogError> {
    let failed = |what| LogError::io(disk.path().join(UNFINISHED), what);
    if disk.names().map_err(failed("its folder cannot be listed"))?.iter().any(|name| name == UNFINISHED) {
        disk.delete(UNFINISHED).map_err(failed("it cannot be deleted"))?;
    }
    let mut file = disk.create(UNFINISHED).map_err(failed("it cannot be created"))?;
    let written = file.write_at(0, &head_of(MAGIC, lsn)).and_then(|()| file.sync());
    written.map_err(failed("it cannot be written"))?;
    disk.rename(UNFINISHED, NAME).map_err(failed("it cannot be renamed"))
}

/// The record up to which all were durable at the last clean shutdown; zero: there was none.
pub(crate) fn read<D: Disk>(disk: &D, names: &[String]) -> Result<u64, LogError> {
    if !names.iter().any(|name| name == NAME) {
        return Ok(0);
    }
    let path = disk.path().join(NAME);
    let bytes = disk.read(NAME).map_err(LogError::io(&path, "it cannot be read"))?;
    let lsn =
        bytes.get(8..16).and_then(|bytes| bytes.first_chunk()).map_or(0, |lsn| u64::from_le_bytes(*lsn));
    if bytes.len() != SEGMENT_HEAD || bytes != head_of(MAGIC, lsn) {
        return Err(LogError::Foreign { path, what: NOT_UNDERSTOOD });
    }
    Ok(lsn)
}

const NOT_UNDERSTOOD: &str = "damaged: it does not say where the log ended. Other files may be damaged, too: restore the \
                              folder from a copy, or delete this file to start without what it says";
