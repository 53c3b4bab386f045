//! Fuzz target for the log's files.

use crate::{damage::damage, disk::MemoryDisk, input::Input};
use yesquel_log::{
    LogError, LogEvent, LogIdentity, LogPoint, OpenedLog, SegmentWriter, StoredRecord, disk::Disk, open, v1,
};

type StoredRecords = Vec<(LogPoint, Vec<u8>)>;

/// Writes a folder and changes it, as the input says. It must open with the written records in
/// order, without those that were cut, and continue after them, or be refused with the position.
pub fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let disk = MemoryDisk::default();
    let is_raw = input.below(4) == 3;
    let written = if is_raw { Vec::new() } else { write(&disk, &mut input) };
    let position = u64::from(input.byte()) % (written.len() as u64 + 3);
    // A checkpoint may be ahead of the log.
    let known = written.iter().rev().map(|(point, _)| *point).find(|point| point.position <= position);
    let known = known.unwrap_or_default();
    let after = LogPoint { position, index: known.index + position - known.position, term: known.term };
    let is_forged = damage(&disk, &mut input, name) | is_raw;
    if is_raw {
        // Use the whole folder.
        for _ in 0..1 + input.below(3) {
            let (name, length) = (name(&mut input), input.short());
            disk.files().insert(name, input.bytes(length).to_vec());
        }
        read_as_format_1(&disk, position);
    }
    let (found, last, torn) = match read(&disk, after) {
        Ok((found, OpenedLog { mut writer, torn })) => {
            let last = (writer.next_position() - 1, writer.last());
            continue_log(&mut writer);
            (found, last, torn)
        }
        Err(error) => return check_error(&disk, &error),
    };
    if !is_forged {
        assert_eq!(found, counting(&written, after, last.0));
    }
    let (again, opened) =
        read(&disk, after).unwrap_or_else(|error| panic!("what was opened is not: {error}"));
    let more = [&b"m"[..], b"ore", b""].into_iter().zip(1..).map(|(bytes, number)| {
        let (position, LogPoint { index, term, .. }) = (last.0 + number, last.1);
        (LogPoint { position, index: index + number, term }, bytes.to_vec())
    });
    let expected: StoredRecords = found.into_iter().chain(more).collect();
    assert!(again == expected, "{torn:?} was cut: {again:?}, not {expected:?}");
    assert_eq!(opened.torn, None, "the tail is still there");
}

/// Appends three records to a log that was opened.
fn continue_log(writer: &mut SegmentWriter<MemoryDisk>) {
    let (next, last) = (writer.next_position(), writer.last());
    assert_eq!((writer.synced_position(), writer.synced_index()), (next - 1, last.index));
    writer.append(last.term, last.index + 1, b"more", &[1, 4]).expect("the disk takes it");
    writer.append(last.term, last.index + 3, b"", &[0]).expect("the disk takes it");
    writer.sync().expect("the disk takes it");
    assert_eq!((writer.next_position(), writer.synced_position()), (next + 3, next + 2));
    assert_eq!(writer.last(), LogPoint { position: next + 2, index: last.index + 3, term: last.term });
}

/// Returns the records up to a position that count, after a checkpoint.
fn counting(written: &StoredRecords, after: LogPoint, last: u64) -> StoredRecords {
    let mut counting = StoredRecords::new();
    for (point, bytes) in written.iter().filter(|(point, _)| point.position <= last) {
        if point.index > 0 {
            counting.retain(|(earlier, _)| earlier.index < point.index);
        }
        counting.push((*point, bytes.clone()));
    }
    counting.retain(|(point, _)| point.position > after.position);
    counting
}

/// Reads arbitrary files as those of format 1, which refuses them or not.
fn read_as_format_1(disk: &MemoryDisk, after: u64) {
    let mut next = after + 1;
    let read = v1::read_log(disk, after, |lsn, _| {
        assert_eq!(lsn, next);
        next += 1;
        Ok(())
    });
    match read {
        Ok(last) => assert_eq!(last, next - 1),
        Err(error) => check_error(disk, &error),
    }
    let checkpoints = MemoryDisk::default();
    for (name, bytes) in disk.files().iter() {
        checkpoints.files().insert(name.replacen("log-", "checkpoint-", 1), bytes.clone());
    }
    for lsn in v1::list_checkpoints(&checkpoints).expect("the disk has them") {
        if let Err(error) = v1::read_checkpoint(&checkpoints, lsn, |_| Ok(())) {
            check_error(&checkpoints, &error);
        }
    }
}

/// Opens a log. Returns its records, which must be in order.
fn read(disk: &MemoryDisk, after: LogPoint) -> Result<(StoredRecords, OpenedLog<MemoryDisk>), LogError> {
    let mut found = StoredRecords::new();
    let opened = open(disk.clone(), LogIdentity::default(), after, |event| {
        match event {
            LogEvent::Record(StoredRecord { point, bytes }) => {
                let before = found.last().map_or(after.position, |(last, _)| last.position);
                assert!(point.position > before);
                found.push((point, bytes.to_vec()));
            }
            LogEvent::Restart => found.clear(),
        }
        Ok(())
    })?;
    Ok((found, opened))
}

/// An error must name the position.
pub(crate) fn check_error(disk: &MemoryDisk, error: &LogError) {
    match error {
        LogError::Damaged { path, offset, .. } => {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a file is named");
            let files = disk.files();
            let bytes = files.get(name).unwrap_or_else(|| panic!("there is no {name}"));
            assert!(*offset <= bytes.len() as u64, "{error}");
        }
        LogError::Foreign { path, .. } => assert!(path.starts_with(disk.path()), "{error}"),
        LogError::Missing { from, to, .. } => assert!(from <= to && *from > 0, "{error}"),
        LogError::NoLog { after, .. } => {
            assert!(*after > 0 && !disk.files().keys().any(|name| name == &format!("log-{:020}", after + 1)));
        }
        LogError::Io { .. } | LogError::NoSpace { .. } => panic!("this disk has no errors: {error}"),
    }
}

/// Writes a log. Returns its records, also those that were cut.
fn write(disk: &MemoryDisk, input: &mut Input<'_>) -> StoredRecords {
    let mut written = StoredRecords::new();
    let opened = |next: usize| {
        let opened = open(disk.clone(), LogIdentity::default(), LogPoint::default(), |_| Ok(()));
        let opened = opened.unwrap_or_else(|error| panic!("a whole log: {error}"));
        assert_eq!((opened.torn, opened.writer.next_position()), (None, next as u64 + 1));
        opened.writer
    };
    let mut writer = opened(0);
    writer.segment_bytes_max(input.one_of(&[100, 300, 1 << 20]));
    for _ in 0..input.below(20) {
        match input.below(8) {
            0..5 => {
                let last = writer.last();
                let (term, index) = match input.below(8) {
                    0 => (last.term, 0),
                    1 => (last.term + 1, last.index + 1 - input.below(4).min(last.index as usize) as u64),
                    _ => (last.term, last.index + 1),
                };
                let (mut bytes, mut ends) = (Vec::new(), Vec::new());
                for number in 0..input.below(4) as u64 {
                    let record = vec![written.len() as u8; input.one_of(&[0, 1, 5, 40, 40, 300])];
                    bytes.extend_from_slice(&record);
                    ends.push(bytes.len());
                    let index = if index > 0 { index + number } else { 0 };
                    written.push((LogPoint { position: written.len() as u64 + 1, index, term }, record));
                }
                writer.append(term, index, &bytes, &ends).expect("the disk takes it");
            }
            5 | 6 => writer.sync().expect("the disk takes it"),
            _ => {
                // Reopening must lose nothing.
                writer = opened(written.len());
                writer.segment_bytes_max(input.one_of(&[100, 300, 1 << 20]));
            }
        }
    }
    written
}

/// Draws the name of a segment, or a similar one.
fn name(input: &mut Input<'_>) -> String {
    match input.below(8) {
        0..5 => format!("log-{:020}", input.byte()),
        5 => format!("log-+{:019}", input.byte()),
        6 => format!("log-{:020}", u64::MAX - u64::from(input.byte())),
        _ => format!("log-{}", input.byte()),
    }
}
