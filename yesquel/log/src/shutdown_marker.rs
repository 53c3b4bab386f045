//! The marker of a clean shutdown: it states where the log ended, so that a tail that is lost
//! afterwards is noticed.
//!
//! It is never removed: records that were durable once must exist ever after, however the log goes
//! on.

use crate::{
    LogError, LogIdentity, LogPoint,
    disk::{Disk, DiskFile},
    format::{FILE_HEAD, HeadFault, check_head, head_of, number},
};

const MAGIC: &[u8; 8] = b"YQLEND02";
/// The file's name.
pub(crate) const NAME: &str = "ended";
/// Its name until it is complete.
const UNFINISHED: &str = "ended-unfinished";

/// Records durably that all records up to this one are durable.
pub(crate) fn write<D: Disk>(disk: &D, identity: LogIdentity, last: LogPoint) -> Result<(), LogError> {
    let failed = |what| LogError::io(disk.path().join(UNFINISHED), what);
    if disk.names().map_err(failed("its folder cannot be listed"))?.iter().any(|name| name == UNFINISHED) {
        disk.delete(UNFINISHED).map_err(failed("it cannot be deleted"))?;
    }
    let mut file = disk.create(UNFINISHED).map_err(failed("it cannot be created"))?;
    let written = file.write_at(0, &head_of(MAGIC, identity, last)).and_then(|()| file.sync());
    written.map_err(failed("it cannot be written"))?;
    disk.rename(UNFINISHED, NAME).map_err(failed("it cannot be renamed"))
}

/// Position up to which all records were durable at the last clean shutdown; zero: there was none.
pub(crate) fn read<D: Disk>(disk: &D, identity: LogIdentity, names: &[String]) -> Result<u64, LogError> {
    if !names.iter().any(|name| name == NAME) {
        return Ok(0);
    }
    let path = disk.path().join(NAME);
    let bytes = disk.read(NAME).map_err(LogError::io(&path, "it cannot be read"))?;
    let position = number(&bytes, 32).map_or(0, u64::from_le_bytes);
    match check_head(&bytes, MAGIC, identity, position) {
        Ok(last) if bytes.len() == FILE_HEAD => Ok(last.position),
        Err(HeadFault::Foreign(what)) => Err(LogError::Foreign { path, what }),
        _ => Err(LogError::Foreign { path, what: NOT_UNDERSTOOD }),
    }
}

/// Fault: the marker is damaged.
pub(crate) const NOT_UNDERSTOOD: &str = "damaged: it does not say where the log ended. Other files may be damaged, too: restore the \
                              folder from a copy, or delete this file to start without what it says";
