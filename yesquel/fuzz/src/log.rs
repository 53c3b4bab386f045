//! Fuzz target for the log's files.

use crate::{damage::damage, disk::MemoryDisk, input::Input};
use yesquel_log::{LogError, OpenedLog, disk::Disk, open};

/// Writes a folder and changes it, as the input says. It must open with the written records in
/// order, and continue after them, or be refused with the position.
pub fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let disk = MemoryDisk::default();
    let is_raw = input.below(4) == 3;
    let mut written = if is_raw { Vec::new() } else { write(&disk, &mut input) };
    let after = u64::from(input.byte()) % (written.len() as u64 + 3);
    let is_forged = damage(&disk, &mut input, name) | is_raw;
    if is_raw {
        // Use the whole folder.
        for _ in 0..1 + input.below(3) {
            let (name, length) = (name(&mut input), input.short());
            disk.files().insert(name, input.bytes(length).to_vec());
        }
    }
    let (found, torn) = match read(&disk, after) {
        Ok((found, OpenedLog { mut writer, torn })) => {
            // Continue the log.
            let next = writer.next_lsn();
            assert_eq!(next, after + 1 + found.len() as u64);
            assert_eq!(writer.synced_lsn(), next - 1);
            writer.append(b"more", &[1, 4]).expect("the disk takes it");
            writer.append(b"", &[0]).expect("the disk takes it");
            writer.sync().expect("the disk takes it");
            assert_eq!((writer.next_lsn(), writer.synced_lsn()), (next + 3, next + 2));
            (found, torn)
        }
        Err(error) => return check_error(&disk, &error),
    };
    if !is_forged {
        assert!(
            found.len() as u64 <= (written.len() as u64).saturating_sub(after),
            "{} records",
            found.len()
        );
        for (record, old) in found.iter().zip(written.iter().skip(after as usize)) {
            assert_eq!(record, old);
        }
    }
    let (again, opened) =
        read(&disk, after).unwrap_or_else(|error| panic!("what was opened is not: {error}"));
    written = found;
    written.extend([b"m".to_vec(), b"ore".to_vec(), Vec::new()]);
    assert!(again == written, "{torn:?} was cut: {again:?}, not {written:?}");
    assert_eq!(opened.torn, None, "the tail is still there");
}

/// Opens a log. Returns its records, which must be in order.
fn read(disk: &MemoryDisk, after: u64) -> Result<(Vec<Vec<u8>>, OpenedLog<MemoryDisk>), LogError> {
    let mut found = Vec::new();
    let opened = open(disk.clone(), after, |lsn, record| {
        assert_eq!(lsn, after + 1 + found.len() as u64);
        found.push(record.to_vec());
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
        LogError::Io { .. } => panic!("this disk has no errors: {error}"),
    }
}

/// Writes a log. Returns its records.
fn write(disk: &MemoryDisk, input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let mut written: Vec<Vec<u8>> = Vec::new();
    let opened = |next: usize| {
        let opened =
            open(disk.clone(), 0, |_, _| Ok(())).unwrap_or_else(|error| panic!("a whole log: {error}"));
        assert_eq!((opened.torn, opened.writer.next_lsn()), (None, next as u64 + 1));
        opened.writer
    };
    let mut writer = opened(0);
    writer.segment_bytes_max(input.one_of(&[100, 300, 1 << 20]));
    for _ in 0..input.below(20) {
        match input.below(8) {
            0..5 => {
                let (mut bytes, mut ends) = (Vec::new(), Vec::new());
                for _ in 0..input.below(4) {
                    let record = vec![written.len() as u8; input.one_of(&[0, 1, 5, 40, 40, 300])];
                    bytes.extend_from_slice(&record);
                    ends.push(bytes.len());
                    written.push(record);
                }
                writer.append(&bytes, &ends).expect("the disk takes it");
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
