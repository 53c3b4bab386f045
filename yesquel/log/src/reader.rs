//! Reading the log after a restart.

use crate::{
    LogError, LogIdentity, LogPoint, SegmentWriter,
    cuts::CutList,
    disk::Disk,
    format::{
        Batch, BatchNumbers, FILE_HEAD, HeadFault, NOT_WHOLE, SEGMENT_MAGIC, check_head, first_of,
        segment_name,
    },
    log_end::{LogEnd, TornTail},
    shutdown_marker,
};
use std::path::Path;

/// A log that was read.
#[derive(Debug)]
pub struct OpenedLog<D: Disk> {
    /// Appends further records.
    pub writer: SegmentWriter<D>,
    /// The torn tail, if there was one.
    pub torn: Option<TornTail>,
}

/// A record of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRecord<'a> {
    /// Its position, index (zero: it has none) and term.
    pub point: LogPoint,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// What a reader of the log receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEvent<'a> {
    /// The next record.
    Record(StoredRecord<'a>),
    /// Records that were passed before were cut by a later batch: all of them follow once more from
    /// the first one on, without those. Happens at most once.
    Restart,
}

/// Receives each event.
type Each<'a> = dyn FnMut(LogEvent<'_>) -> Result<(), LogError> + 'a;

/// Reads all records after a checkpoint, in order, without those that were cut, and opens the log
/// for more. `after` is the last record that the checkpoint covers.
pub fn open<D: Disk>(
    disk: D,
    identity: LogIdentity,
    after: LogPoint,
    mut each: impl FnMut(LogEvent<'_>) -> Result<(), LogError>,
) -> Result<OpenedLog<D>, LogError> {
    let mut end = read(&disk, identity, after, &mut each)?;
    let torn = end.torn.take();
    let writer = SegmentWriter::resume(disk, identity, end)?;
    Ok(OpenedLog { writer, torn })
}

/// Checks that all records after `after` are readable, without changing anything. Returns the last
/// position.
pub fn check<D: Disk>(disk: &D, identity: LogIdentity, after: LogPoint) -> Result<u64, LogError> {
    Ok(read(disk, identity, after, &mut |_| Ok(()))?.next - 1)
}

fn read<D: Disk>(
    disk: &D,
    identity: LogIdentity,
    after: LogPoint,
    each: &mut Each<'_>,
) -> Result<LogEnd, LogError> {
    let mut cuts = CutList::default();
    let mut pass = Pass::new(after, &mut cuts, each);
    let end = read_segments(disk, identity, after, &mut pass)?;
    if !pass.has_passed_cut {
        return Ok(end);
    }
    each(LogEvent::Restart)?;
    let mut pass = Pass { is_second: true, ..Pass::new(after, &mut cuts, each) };
    read_segments(disk, identity, after, &mut pass)
}

/// Reads the segments from the one that follows `after`.
fn read_segments<D: Disk>(
    disk: &D,
    identity: LogIdentity,
    after: LogPoint,
    pass: &mut Pass<'_, '_>,
) -> Result<LogEnd, LogError> {
    let names = disk.names().map_err(LogError::io(disk.path(), "its files cannot be listed"))?;
    let shutdown_marker = shutdown_marker::read(disk, identity, &names)?;
    let mut segments: Vec<u64> = names.iter().filter_map(|name| first_of(name)).collect();
    segments.sort_unstable();
    let LogPoint { position: after_position, .. } = after;
    // Skips segments that the checkpoint covers.
    let needed = segments.partition_point(|first| *first <= after_position + 1).saturating_sub(1);
    pass.next = segments.get(needed).copied().unwrap_or(after_position + 1);
    let missing = |from: u64, to: u64| LogError::Missing { path: disk.path().into(), from, to };
    if pass.next > after_position + 1 {
        return Err(missing(after_position + 1, pass.next - 1));
    }
    if pass.next == after_position + 1 {
        pass.last = Some(after);
    }
    // Before a checkpoint exists, or a segment is deleted, the first batch of the next segment is
    // durable.
    // What the checkpoint has may be missing from the log.
    let mut known = if shutdown_marker > after_position { shutdown_marker } else { 0 };
    match segments.first() {
        None if after_position > 0 => {
            return Err(LogError::NoLog { path: disk.path().into(), after: after_position });
        }
        Some(first) if after_position > 0 && needed == 0 => known = known.max(*first),
        _ => {}
    }
    let mut torn = None;
    let mut last: Option<(u64, u64)> = None;
    for (number, first) in segments.iter().copied().enumerate().skip(needed) {
        let name = segment_name(first);
        let path = disk.path().join(&name);
        if first < pass.next {
            return Err(LogError::Foreign { path, what: OVERLAPS });
        }
        if first > pass.next {
            return Err(missing(pass.next, first - 1));
        }
        let bytes = disk.read(&name).map_err(LogError::io(&path, "it cannot be read"))?;
        let is_last = number + 1 == segments.len();
        let known = if is_last { known } else { u64::MAX };
        let end = pass.read_segment(&path, &bytes, identity, known)?;
        if is_last && pass.next <= known {
            let what = "the file ends there";
            return Err(LogError::Damaged { path, offset: end, position: pass.next, what });
        }
        // Preallocated zeros follow the records.
        let tail = &bytes[end as usize..];
        let cut = tail.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        torn =
            Some(TornTail { path, offset: end, bytes: cut }).filter(|_| cut > 0 || end <= FILE_HEAD as u64);
        last = Some((first, end));
    }
    if segments.is_empty() && pass.next <= shutdown_marker {
        return Err(missing(pass.next, shutdown_marker));
    }
    // A checkpoint may be ahead of the log. The next record then does not continue the last
    // segment.
    let last = last.filter(|_| pass.next > after_position);
    let last_indexed = pass.last.filter(|_| pass.next > after_position).unwrap_or(after);
    let sized = |first: u64| {
        let name = segment_name(first);
        let size =
            disk.size(&name).map_err(LogError::io(disk.path().join(&name), "its metadata cannot be read"))?;
        Ok((first, size))
    };
    let segments = segments.into_iter().map(sized).collect::<Result<_, LogError>>()?;
    Ok(LogEnd { next: pass.next.max(after_position + 1), last_indexed, last, segments, torn })
}

/// Fault: the segment begins before the previous one ends.
const OVERLAPS: &str = "it overlaps the previous segment";
/// Fault: there are indexes between two batches.
const SKIPS: &str = "the indexes of its records do not follow those before";
/// Fault: a batch says that the checkpoint has records that were cut.
const CUTS_CHECKPOINT: &str = "a batch cuts records that the checkpoint has";

/// One pass over the log.
struct Pass<'a, 'b> {
    after: LogPoint,
    /// Position of the next record.
    next: u64,
    /// The last record with an index; `None`: it is in an earlier segment.
    last: Option<LogPoint>,
    /// All cuts, in the second pass.
    cuts: &'a mut CutList,
    is_second: bool,
    /// Highest index that was passed.
    passed: u64,
    /// A record was passed that was cut later.
    has_passed_cut: bool,
    each: &'a mut Each<'b>,
}

impl<'a, 'b> Pass<'a, 'b> {
    fn new(after: LogPoint, cuts: &'a mut CutList, each: &'a mut Each<'b>) -> Pass<'a, 'b> {
        let (next, passed) = (0, 0);
        Pass { after, next, last: None, cuts, is_second: false, passed, has_passed_cut: false, each }
    }

    /// Reads a segment to its end, or to its torn tail, which has no records `known` to have been
    /// durable. Returns the end of the complete batches.
    fn read_segment(
        &mut self,
        path: &Path,
        bytes: &[u8],
        identity: LogIdentity,
        known: u64,
    ) -> Result<u64, LogError> {
        let damaged = |offset: usize, position: u64, what| {
            Err(LogError::Damaged { path: path.into(), offset: offset as u64, position, what })
        };
        let first = self.next;
        match check_head(bytes, SEGMENT_MAGIC, identity, first) {
            Ok(_) => {}
            Err(HeadFault::Foreign(what)) => return Err(LogError::Foreign { path: path.into(), what }),
            // The segment may have been begun but not synced before a power failure.
            Err(HeadFault::Damaged) if first > known && !Batch::proves(bytes, first) => return Ok(0),
            Err(HeadFault::Damaged) => return damaged(0, first, NOT_WHOLE),
        }
        let mut at = FILE_HEAD;
        while at < bytes.len() {
            let follows =
                |batch: &Batch<'_>| batch.numbers.position == self.next && is_countable(batch, self.next);
            let Some(batch) = Batch::read(&bytes[at..]).filter(follows) else {
                if self.next > known && !Batch::proves(&bytes[at..], self.next) {
                    return Ok(at as u64);
                }
                return damaged(at, self.next, "no complete batch starts there");
            };
            if let Err(what) = self.begin_batch(batch.numbers) {
                return damaged(at, self.next, what);
            }
            let mut count = 0;
            for record in batch.records() {
                self.pass_record(batch.numbers, u64::from(count), record)?;
                count += 1;
            }
            if count != batch.count {
                return damaged(at, self.next, "a batch has fewer records than it states");
            }
            at += batch.length();
        }
        Ok(at as u64)
    }

    /// Checks the index of a batch, and notes what it cuts.
    fn begin_batch(&mut self, numbers: BatchNumbers) -> Result<(), &'static str> {
        let BatchNumbers { position, index, .. } = numbers;
        let Some(last) = self.last.filter(|_| index > 0) else { return Ok(()) };
        if index > last.index + 1 {
            return Err(SKIPS);
        }
        if index > last.index {
            return Ok(());
        }
        if position > self.after.position && index <= self.after.index {
            return Err(CUTS_CHECKPOINT);
        }
        if !self.is_second {
            self.cuts.push(position, index);
            self.has_passed_cut |= index <= self.passed;
        }
        Ok(())
    }

    /// Passes a record on, unless the checkpoint has it or a later batch cuts it.
    fn pass_record(&mut self, numbers: BatchNumbers, nth: u64, bytes: &[u8]) -> Result<(), LogError> {
        let index = if numbers.index > 0 { numbers.index + nth } else { 0 };
        let point = LogPoint { position: self.next, index, term: numbers.term };
        self.next += 1;
        if index > 0 {
            self.last = Some(point);
        }
        let is_cut = self.is_second && index > 0 && self.cuts.removes(point.position, index);
        if point.position <= self.after.position || is_cut || self.has_passed_cut {
            return Ok(());
        }
        self.passed = self.passed.max(index);
        (self.each)(LogEvent::Record(StoredRecord { point, bytes }))
    }
}

/// Whether a batch has records, and numbers for all of them.
fn is_countable(batch: &Batch<'_>, next: u64) -> bool {
    let count = u64::from(batch.count);
    let has_numbers = |first: u64| first.checked_add(count).is_some_and(|end| end < u64::MAX);
    count > 0 && has_numbers(next) && has_numbers(batch.numbers.index)
}
