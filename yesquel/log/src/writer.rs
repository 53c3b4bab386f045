//! Writing a log.

use crate::{
    LogError,
    disk::{Disk, DiskFile},
    ended,
    format::{SEGMENT_HEAD, first_of, put_batch, segment_head, segment_name},
};
use std::fmt;

/// Bytes of a segment beyond which the next one begins, unless told otherwise.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// A log that is open for more records.
pub struct Writer<D: Disk> {
    disk: D,
    file: Option<D::File>,
    /// The segment's first record.
    first: u64,
    /// Bytes of it that are written.
    length: u64,
    /// The file's length: zeros follow what is written.
    room: u64,
    /// The first record and the bytes of each segment but the one that is open.
    closed: Vec<(u64, u64)>,
    segment_bytes_max: u64,
    /// Zeros that are written when the room is used up.
    ahead: u64,
    /// The number of the next record.
    next: u64,
    /// All up to this one are durable.
    synced: u64,
    /// A write or a sync has failed: nobody knows what is on disk.
    failed: bool,
    buffer: Vec<u8>,
}

impl<D: Disk> fmt::Debug for Writer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("next", &self.next)
            .field("synced", &self.synced)
            .finish_non_exhaustive()
    }
}

impl<D: Disk> Writer<D> {
    /// Goes on with the last segment, whose whole part has this length; a new
    /// one begins if there is none, or if not even its first batch is whole.
    pub(crate) fn resume(
        disk: D,
        next: u64,
        last: Option<(u64, u64)>,
        mut segments: Vec<(u64, u64)>,
    ) -> Result<Writer<D>, LogError> {
        // It is open, or deleted.
        segments.retain(|(first, _)| last.is_none_or(|(last, _)| last != *first));
        let mut writer = Writer {
            disk,
            file: None,
            first: next,
            length: 0,
            room: 0,
            closed: segments,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            ahead: 0,
            next,
            synced: next - 1,
            failed: false,
            buffer: Vec::new(),
        };
        match last {
            Some((first, length)) if length > SEGMENT_HEAD as u64 => {
                let name = segment_name(first);
                let opened = writer.disk.open_cut(&name, length);
                let mut file =
                    opened.map_err(LogError::io(writer.disk.path().join(&name), "it cannot be opened"))?;
                // What was read may not have been synced before.
                file.sync().map_err(LogError::io(writer.disk.path().join(&name), "it cannot be synced"))?;
                (writer.file, writer.first) = (Some(file), first);
                (writer.length, writer.room) = (length, length);
            }
            Some((first, _)) => {
                let name = segment_name(first);
                let deleted = writer.disk.delete(&name);
                deleted.map_err(LogError::io(writer.disk.path().join(&name), "it cannot be deleted"))?;
            }
            None => {}
        }
        Ok(writer)
    }

    /// Segments end at this size from now on.
    pub fn segment_bytes_max(&mut self, bytes: u64) {
        self.segment_bytes_max = bytes;
    }

    /// So many zeros are written behind the records whenever there are none
    /// left, for a sync of a file that has grown takes the file system longer
    /// than one of bytes that were there. Each byte is written twice then: this
    /// is for logs that are synced often.
    pub fn ahead(&mut self, bytes: u64) {
        self.ahead = bytes;
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|(_, bytes)| bytes).sum();
        closed + if self.file.is_some() { self.room } else { 0 }
    }

    /// The number of the next record.
    pub fn next_lsn(&self) -> u64 {
        self.next
    }

    /// All records up to this one are durable.
    pub fn synced_lsn(&self) -> u64 {
        self.synced
    }

    /// Writes records that came together: `bytes`, in which each ends where
    /// `ends` says. They are durable after [`sync`](Self::sync), the first ones
    /// of a segment at once.
    ///
    /// After an error nothing more can be written.
    pub fn append(&mut self, bytes: &[u8], ends: &[usize]) -> Result<(), LogError> {
        if ends.is_empty() {
            return Ok(());
        }
        self.check()?;
        if self.file.is_none() || self.length > self.segment_bytes_max {
            self.begin_segment()?;
        }
        self.buffer.clear();
        put_batch(&mut self.buffer, self.next, self.synced, bytes, ends);
        let length = self.length + self.buffer.len() as u64;
        if length > self.room {
            self.room = length + self.ahead.min(self.segment_bytes_max.saturating_sub(length));
            self.buffer.resize((self.room - self.length) as usize, 0);
        }
        let Some(file) = &mut self.file else { return self.check() };
        if let Err(error) = file.write_at(self.length, &self.buffer) {
            return Err(self.fail("it cannot be written", error));
        }
        // Whoever finds a segment without it may then be sure that it was lost,
        // wherever the one before is not needed any more.
        let is_first = self.length == SEGMENT_HEAD as u64;
        if is_first && let Err(error) = file.sync() {
            return Err(self.fail("it cannot be synced", error));
        }
        self.length = length;
        self.next += ends.len() as u64;
        if is_first {
            self.synced = self.next - 1;
        }
        Ok(())
    }

    /// Waits until all that was written is durable.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.check()?;
        if self.synced + 1 == self.next {
            return Ok(());
        }
        let Some(file) = &mut self.file else { return self.check() };
        match file.sync() {
            Ok(()) => {
                self.synced = self.next - 1;
                Ok(())
            }
            Err(error) => Err(self.fail("it cannot be synced", error)),
        }
    }

    /// Waits until all that was written is durable, and takes the zeros behind
    /// it away.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.sync()?;
        if let Some(file) = self.file.as_mut().filter(|_| self.room > self.length) {
            let cut = file.cut(self.length);
            cut.map_err(|error| self.fail("it cannot be cut", error))?;
            self.room = self.length;
        }
        Ok(())
    }

    /// Closes it for good, as far as this process goes: that all of it is there
    /// is written down, so that it is missed if it ever is not.
    pub fn end(&mut self) -> Result<(), LogError> {
        self.close()?;
        if self.synced == 0 { Ok(()) } else { ended::write(&self.disk, self.synced) }
    }

    /// Deletes the segments that hold nothing but records up to `lsn`.
    pub fn forget_up_to(&mut self, lsn: u64) -> Result<(), LogError> {
        // What was not written may be all that there is in the last one.
        self.check()?;
        let names =
            self.disk.names().map_err(LogError::io(self.disk.path(), "its files cannot be listed"))?;
        let mut segments: Vec<u64> = names.iter().filter_map(|name| first_of(name)).collect();
        segments.sort_unstable();
        for pair in segments.windows(2) {
            // The next one begins where this one ends.
            if pair[1] <= lsn + 1 {
                let name = segment_name(pair[0]);
                let deleted = self.disk.delete(&name);
                deleted.map_err(LogError::io(self.disk.path().join(&name), "it cannot be deleted"))?;
                self.closed.retain(|(first, _)| *first != pair[0]);
            }
        }
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<(), LogError> {
        // A segment that another follows is whole.
        self.close()?;
        if self.file.take().is_some() {
            self.closed.push((self.first, self.room));
        }
        let name = segment_name(self.next);
        let made = self.disk.create(&name).and_then(|mut file| {
            file.write_at(0, &segment_head(self.next))?;
            Ok(file)
        });
        match made {
            Ok(file) => {
                self.file = Some(file);
                (self.first, self.length) = (self.next, SEGMENT_HEAD as u64);
                self.room = self.length;
                Ok(())
            }
            Err(error) => {
                self.first = self.next;
                Err(self.fail("it cannot be made", error))
            }
        }
    }

    fn check(&self) -> Result<(), LogError> {
        if !self.failed {
            return Ok(());
        }
        let error = std::io::Error::other("an earlier write has failed");
        Err(LogError::io(self.disk.path().join(segment_name(self.first)), "it takes no more")(error))
    }

    fn fail(&mut self, what: &'static str, error: std::io::Error) -> LogError {
        self.failed = true;
        LogError::io(self.disk.path().join(segment_name(self.first)), what)(error)
    }
}
