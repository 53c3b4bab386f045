//! Writing the log.

use crate::{
    LogError, LogIdentity, LogPoint,
    disk::{Disk, DiskFile, is_no_space},
    format::{BatchNumbers, FILE_HEAD, first_of, put_batch, segment_head, segment_name},
    log_end::LogEnd,
    shutdown_marker,
};
use std::fmt;

/// Default size of a segment in bytes; the next one begins beyond it.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// A log open for further records.
pub struct SegmentWriter<D: Disk> {
    disk: D,
    identity: LogIdentity,
    file: Option<D::File>,
    /// First record of the open segment.
    first: u64,
    /// Bytes of its head and its complete batches; zero until the first batch is written, with the
    /// head.
    length: u64,
    /// Length of its file, including preallocated zeros and a batch that did not fit on the disk.
    room: u64,
    /// First record and bytes of each closed segment.
    closed: Vec<(u64, u64)>,
    segment_bytes_max: u64,
    /// Zeros to write when the preallocated ones are used up.
    preallocate: u64,
    /// Position of the next record.
    next: u64,
    /// Position of the last durable record.
    synced: u64,
    /// The last record that has an index.
    last: LogPoint,
    /// Index of the last durable record.
    synced_index: u64,
    /// A write or sync has failed for another reason than lack of space, so that the state of the
    /// disk is unknown.
    failed: bool,
    buffer: Vec<u8>,
}

impl<D: Disk> fmt::Debug for SegmentWriter<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("next", &self.next)
            .field("synced", &self.synced)
            .finish_non_exhaustive()
    }
}

impl<D: Disk> SegmentWriter<D> {
    /// Begins the log of an empty folder, after the last record that a checkpoint will cover.
    pub fn begin(disk: D, identity: LogIdentity, after: LogPoint) -> Result<SegmentWriter<D>, LogError> {
        SegmentWriter::resume(disk, identity, LogEnd::of_nothing(after))
    }

    /// Continues the last segment, whose complete batches have this length; begins a new one if
    /// there is none, or if it has no complete batch.
    pub(crate) fn resume(disk: D, identity: LogIdentity, end: LogEnd) -> Result<SegmentWriter<D>, LogError> {
        let LogEnd { next, last, last_indexed, mut segments, .. } = end;
        // It is reopened or deleted.
        segments.retain(|(first, _)| last.is_none_or(|(last, _)| last != *first));
        let mut writer = SegmentWriter {
            disk,
            identity,
            file: None,
            first: next,
            length: 0,
            room: 0,
            closed: segments,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            preallocate: 0,
            next,
            synced: next - 1,
            last: last_indexed,
            synced_index: last_indexed.index,
            failed: false,
            buffer: Vec::new(),
        };
        match last {
            Some((first, length)) if length > FILE_HEAD as u64 => {
                let name = segment_name(first);
                let opened = writer.disk.open_cut(&name, length);
                let mut file =
                    opened.map_err(LogError::io(writer.disk.path().join(&name), "it cannot be opened"))?;
                // What was read may not have been durable.
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

    /// Sets the size of segments from now on.
    pub fn segment_bytes_max(&mut self, bytes: u64) {
        self.segment_bytes_max = bytes;
    }

    /// Preallocates so many zeros whenever none are left, since a file system takes longer to sync
    /// a file that has grown than bytes that existed. Each byte is then written twice: this is for
    /// logs that are synced often.
    pub fn preallocate(&mut self, bytes: u64) {
        self.preallocate = bytes;
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|(_, bytes)| bytes).sum();
        closed + if self.file.is_some() { self.room } else { 0 }
    }

    /// Position of the next record.
    pub fn next_position(&self) -> u64 {
        self.next
    }

    /// Position of the last durable record.
    pub fn synced_position(&self) -> u64 {
        self.synced
    }

    /// The last record that has an index.
    pub fn last(&self) -> LogPoint {
        self.last
    }

    /// Index of the last durable record that has one.
    pub fn synced_index(&self) -> u64 {
        self.synced_index
    }

    /// Writes records of a term as one batch; `ends` has the end of each in `bytes`. `index` is that
    /// of the first one: an index that was written before cuts the log, so that earlier records with
    /// that index or a higher one do not count. Zero: the records have a position only. They are
    /// durable after [`sync`](Self::sync), the first ones of a segment at once.
    ///
    /// After [`LogError::NoSpace`] the records are not part of the log, whatever part of them is in
    /// the file: append the same ones again, which overwrites it. After another error nothing more
    /// can be written.
    pub fn append(&mut self, term: u64, index: u64, bytes: &[u8], ends: &[usize]) -> Result<(), LogError> {
        debug_assert!(index <= self.last.index + 1, "the log would miss records before index {index}");
        if ends.is_empty() {
            return Ok(());
        }
        self.check()?;
        if self.file.is_none() || self.length > self.segment_bytes_max {
            self.begin_segment()?;
        }
        self.buffer.clear();
        let is_first = self.length == 0;
        if is_first {
            self.buffer.extend_from_slice(&segment_head(self.identity, self.first));
        }
        let numbers = BatchNumbers { position: self.next, synced: self.synced, index, term };
        put_batch(&mut self.buffer, numbers, bytes, ends);
        let length = self.length + self.buffer.len() as u64;
        self.write(length)?;
        // A segment without it has then certainly lost it, wherever the previous segment is no
        // longer needed.
        if is_first
            && let Some(file) = &mut self.file
            && let Err(error) = file.sync()
        {
            return Err(self.fail_for_good("it cannot be synced", error));
        }
        self.length = length;
        let count = ends.len() as u64;
        self.next += count;
        if index > 0 {
            self.last = LogPoint { position: self.next - 1, index: index + count - 1, term };
        }
        if is_first {
            self.note_synced();
        }
        Ok(())
    }

    /// Writes the buffer behind the complete batches, which then end at `length`, and zeros behind it
    /// if the file grows.
    fn write(&mut self, length: u64) -> Result<(), LogError> {
        let batch = self.buffer.len();
        if length > self.room {
            let room = length + self.preallocate.min(self.segment_bytes_max.saturating_sub(length));
            self.buffer.resize((room - self.length) as usize, 0);
        }
        let Some(file) = &mut self.file else { return self.check() };
        let mut written = file.write_at(self.length, &self.buffer);
        if written.is_ok() {
            self.room = self.room.max(self.length + self.buffer.len() as u64);
            return Ok(());
        }
        if written.as_ref().is_err_and(is_no_space) && self.buffer.len() > batch {
            // There may be space for the batch without the zeros.
            written = file.write_at(self.length, &self.buffer[..batch]);
        }
        // It has grown as far as there was space.
        match file.length() {
            Ok(length) => self.room = length,
            Err(error) => return Err(self.fail_for_good("its length cannot be read", error)),
        }
        written.map_err(|error| self.fail("it cannot be written", error))
    }

    /// Makes everything written durable.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.check()?;
        if self.synced + 1 == self.next {
            return Ok(());
        }
        let Some(file) = &mut self.file else { return self.check() };
        match file.sync() {
            Ok(()) => {
                self.note_synced();
                Ok(())
            }
            Err(error) => Err(self.fail_for_good("it cannot be synced", error)),
        }
    }

    fn note_synced(&mut self) {
        (self.synced, self.synced_index) = (self.next - 1, self.last.index);
    }

    /// Makes everything written durable and truncates the preallocated zeros.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.sync()?;
        if let Some(file) = self.file.as_mut().filter(|_| self.room > self.length) {
            let cut = file.cut(self.length);
            cut.map_err(|error| self.fail_for_good("it cannot be cut", error))?;
            self.room = self.length;
        }
        Ok(())
    }

    /// Shuts down cleanly: records that the whole log is durable, so that a later loss is noticed.
    pub fn end(&mut self) -> Result<(), LogError> {
        self.close()?;
        if self.synced == 0 {
            return Ok(());
        }
        let last = LogPoint { position: self.synced, ..self.last };
        shutdown_marker::write(&self.disk, self.identity, last)
    }

    /// Deletes the segments that have only records up to a position.
    pub fn delete_up_to(&mut self, position: u64) -> Result<(), LogError> {
        // The last segment may hold only records that were not written.
        self.check()?;
        let names =
            self.disk.names().map_err(LogError::io(self.disk.path(), "its files cannot be listed"))?;
        let mut segments: Vec<u64> = names.iter().filter_map(|name| first_of(name)).collect();
        segments.sort_unstable();
        // Without a complete batch the open segment proves nothing about the one before it.
        segments.retain(|first| self.length > 0 || *first != self.first);
        for pair in segments.windows(2) {
            // The next segment begins where this one ends.
            if pair[1] <= position + 1 {
                let name = segment_name(pair[0]);
                let deleted = self.disk.delete(&name);
                deleted.map_err(LogError::io(self.disk.path().join(&name), "it cannot be deleted"))?;
                self.closed.retain(|(first, _)| *first != pair[0]);
            }
        }
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<(), LogError> {
        // A segment with a successor is complete.
        self.close()?;
        if self.file.take().is_some() {
            self.closed.push((self.first, self.room));
        }
        (self.first, self.length, self.room) = (self.next, 0, 0);
        match self.disk.create(&segment_name(self.next)) {
            Ok(file) => {
                self.file = Some(file);
                Ok(())
            }
            Err(error) => Err(self.fail("it cannot be created", error)),
        }
    }

    fn check(&self) -> Result<(), LogError> {
        if !self.failed {
            return Ok(());
        }
        let error = std::io::Error::other("an earlier write has failed");
        Err(LogError::io(self.disk.path().join(segment_name(self.first)), "it accepts no more records")(
            error,
        ))
    }

    /// The error of a write, after which the same write may be tried again if there was no space.
    fn fail(&mut self, what: &'static str, error: std::io::Error) -> LogError {
        let path = self.disk.path().join(segment_name(self.first));
        if is_no_space(&error) {
            return LogError::NoSpace { path, what, error };
        }
        self.fail_for_good(what, error)
    }

    /// The error of an operation after which the state of the disk is unknown, whatever it says.
    fn fail_for_good(&mut self, what: &'static str, error: std::io::Error) -> LogError {
        self.failed = true;
        LogError::io(self.disk.path().join(segment_name(self.first)), what)(error)
    }
}
