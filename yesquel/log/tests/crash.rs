//! The log on a disk that loses unsynced bytes in part and in any order, fills up, fails to sync,
//! and corrupts bytes.
//!
//! After every crash all synced records exist, every record was written, records are in order, and
//! the log continues. `SEEDS=from..to` chooses seeds.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::Path;
use yesquel_log::{
    LogError, LogEvent, LogIdentity, LogPoint, OpenedLog, SegmentWriter, StoredRecord, TornTail, checkpoint,
    disk::{Disk, Folder},
};
use yesquel_seeds::{Random, check_seeds};
use yesquel_simulation::disk::SimulatedDisk;

const IDENTITY: LogIdentity = LogIdentity { cluster: [7; 16], group: 3, era: 1 };

/// Opens a log without cuts, in which positions and indexes are equal.
fn open<D: Disk>(
    disk: D,
    after: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), LogError>,
) -> Result<OpenedLog<D>, LogError> {
    yesquel_log::open(disk, IDENTITY, uncut(after), |event| match event {
        LogEvent::Record(StoredRecord { point, bytes }) => {
            assert_eq!(point, uncut(point.position));
            each(point.position, bytes)
        }
        LogEvent::Restart => panic!("nothing was cut"),
    })
}

/// The record at a position in a log without cuts.
fn uncut(position: u64) -> LogPoint {
    LogPoint { position, index: position, term: u64::from(position > 0) }
}

/// Appends to a log without cuts.
fn append<D: Disk>(writer: &mut SegmentWriter<D>, bytes: &[u8], ends: &[usize]) -> Result<(), LogError> {
    writer.append(1, writer.next_position(), bytes, ends)
}

fn record(lsn: u64, random: &mut Random) -> Vec<u8> {
    let mut record = lsn.to_le_bytes().to_vec();
    record.resize(8 + random.next(200) as usize, lsn as u8);
    record
}

/// Opens the log and compares its records with those written.
fn reopened(
    disk: &SimulatedDisk,
    after: u64,
    written: &[Vec<u8>],
    synced: u64,
) -> Result<SegmentWriter<SimulatedDisk>, LogError> {
    let mut expected = after + 1;
    let OpenedLog { writer, .. } = open(disk.clone(), after, |lsn, record| {
        assert_eq!(lsn, expected);
        assert_eq!(record, written[lsn as usize - 1], "record {lsn}");
        expected += 1;
        Ok(())
    })?;
    assert!(expected > synced, "records from {expected} to {synced} are lost");
    assert_eq!(writer.next_position(), expected);
    Ok(writer)
}

fn crashes(seed: u64) {
    let mut random = Random::new(seed);
    let random = &mut random;
    let disk = SimulatedDisk::new();
    let (mut written, mut synced, mut after): (Vec<Vec<u8>>, u64, u64) = (Vec::new(), 0, 0);
    for _ in 0..1 + random.next(6) {
        let mut writer = reopened(&disk, after, &written, synced).unwrap();
        // Lost unsynced records count as never written.
        written.truncate(writer.next_position() as usize - 1);
        synced = synced.max(writer.synced_position());
        writer.segment_bytes_max(200 + random.next(3000));
        writer.preallocate(random.next(2) * random.next(2000));
        for _ in 0..random.next(40) {
            match random.next(20) {
                0..12 => {
                    let (mut bytes, mut ends, mut records) = (Vec::new(), Vec::new(), Vec::new());
                    for number in 0..random.next(4) {
                        let record = record(writer.next_position() + number, random);
                        bytes.extend_from_slice(&record);
                        ends.push(bytes.len());
                        records.push(record);
                    }
                    let mut appended = append(&mut writer, &bytes, &ends);
                    if matches!(appended, Err(LogError::NoSpace { .. })) && random.next(2) == 0 {
                        disk.limit_space(usize::MAX);
                        appended = append(&mut writer, &bytes, &ends);
                    }
                    if let Err(error) = appended {
                        // Some of it may be on disk.
                        written.truncate(writer.next_position() as usize - 1);
                        written.extend(records);
                        if !matches!(error, LogError::NoSpace { .. }) {
                            let again = append(&mut writer, b"x", &[1]);
                            assert!(again.is_err(), "an append succeeds after a failure");
                            assert!(writer.sync().is_err());
                        }
                        break;
                    }
                    written.extend(records);
                }
                12..17 => {
                    if writer.sync().is_err() {
                        assert!(
                            append(&mut writer, b"x", &[1]).is_err(),
                            "an append succeeds after a failure"
                        );
                        break;
                    }
                }
                17 => disk.limit_space(random.next(500) as usize),
                18 if random.next(2) == 0 => writer.segment_bytes_max(200 + random.next(3000)),
                18 => disk.fail_syncs(random.next(3) == 0),
                _ => {
                    // A checkpoint of the durable records.
                    after = after.max(writer.synced_position());
                    writer.delete_up_to(after).unwrap();
                }
            }
            synced = synced.max(writer.synced_position());
            assert_eq!(writer.bytes(), disk.bytes_of("log-"));
        }
        if random.next(4) == 0 && writer.end().is_ok() {
            synced = synced.max(writer.synced_position());
        }
        drop(writer);
        if random.next(2) == 0 {
            disk.crash(random);
        }
        disk.repair();
    }
    drop(reopened(&disk, after, &written, synced).unwrap());
}

#[test]
fn synced_records_survive_any_crash() {
    check_seeds(10_000, crashes);
}

/// A changed byte of a synced log is detected, except in the last batch, of which the disk does not
/// show that it was synced.
#[test]
fn damage_is_reported_with_its_offset() {
    let disk = SimulatedDisk::new();
    let mut writer = open(disk.clone(), 0, |_, _| Ok(())).unwrap().writer;
    writer.segment_bytes_max(300);
    for lsn in 1..=20u64 {
        append(&mut writer, &lsn.to_le_bytes().repeat(3), &[24]).unwrap();
        writer.sync().unwrap();
    }
    drop(writer);
    let names = disk.names().unwrap();
    assert!(names.len() > 2, "{names:?}");
    for name in &names {
        let length = disk.read(name).unwrap().len();
        for at in 0..length {
            let change = |bits: u8| disk.tamper(name, |bytes| bytes[at] ^= bits);
            change(0x41);
            let mut last = 0;
            let outcome = open(disk.clone(), 0, |lsn, record| {
                assert_eq!(record, lsn.to_le_bytes().repeat(3));
                last = lsn;
                Ok(())
            });
            let is_last_batch = Some(name) == names.last() && at >= length - 76;
            match outcome {
                Ok(OpenedLog { torn, .. }) => {
                    let torn = torn.unwrap();
                    assert!(
                        torn.path.ends_with(name) && torn.offset == length as u64 - 76 && torn.bytes > 30
                    );
                    assert!(is_last_batch && last == 19, "{name}, byte {at}: {last} records, {torn:?}");
                }
                Err(LogError::Damaged { path, offset, position: lsn, .. }) => {
                    assert!(
                        path.ends_with(name) && offset <= at as u64 && lsn == last + 1,
                        "{path:?} {offset} {lsn}"
                    );
                }
                Err(error) => panic!("{name}, byte {at}: {error}"),
            }
            if is_last_batch {
                return;
            }
            change(0x41);
        }
        // A missing segment.
        let segment = disk.take(name).unwrap();
        if Some(name) != names.last() {
            let error = open(disk.clone(), 0, |_, _| Ok(())).unwrap_err();
            assert!(matches!(error, LogError::Missing { .. }), "{error}");
        }
        disk.tamper(name, |bytes| *bytes = segment);
    }
}

/// A segment of another log, for example of a copy that continued separately.
#[test]
fn overlapping_segments_are_reported() {
    let logs = [SimulatedDisk::new(), SimulatedDisk::new()];
    for (disk, before) in logs.iter().zip([0, 4]) {
        let mut writer = synced_log(disk, before);
        writer.segment_bytes_max(100);
        append(&mut writer, b"abcdef", &[1, 2, 3, 4, 5, 6]).unwrap();
        writer.sync().unwrap();
    }
    let [disk, other] = logs;
    let name = other.names().unwrap().pop().unwrap();
    let segment = other.read(&name).unwrap();
    disk.tamper(&name, |bytes| *bytes = segment);
    let error = open(disk, 0, |_, _| Ok(())).unwrap_err();
    assert!(matches!(&error, LogError::Foreign { path, .. } if path.ends_with(&name)), "{error}");
}

#[test]
fn records_in_a_real_folder_persist() {
    let folder = tempfile::tempdir().unwrap();
    let disk = || Folder::new(folder.path());
    let mut writer = open(disk(), 0, |_, _| Ok(())).unwrap().writer;
    writer.segment_bytes_max(1 << 10);
    for lsn in 1..=100u64 {
        append(&mut writer, &lsn.to_le_bytes().repeat(8), &[8, 64]).unwrap();
    }
    writer.sync().unwrap();
    assert_eq!((writer.next_position(), writer.synced_position()), (201, 200));
    writer.delete_up_to(100).unwrap();
    drop(writer);
    let mut count = 0;
    let opened = open(disk(), 100, |_, _| {
        count += 1;
        Ok(())
    });
    assert_eq!((opened.unwrap().torn, count), (None, 100));
    // Records in the missing segment are reported.
    let error = open(disk(), 10, |_, _| Ok(())).unwrap_err().to_string();
    assert!(error.contains("records 11 to "), "{error}");
}

#[test]
fn a_checkpoint_is_read_completely_or_its_damage_is_located() {
    let disk = SimulatedDisk::new();
    let records: Vec<Vec<u8>> = (0..5u8).map(|number| vec![number; 600_000]).collect();
    for lsn in [3, 9] {
        let written = checkpoint::write(&disk, IDENTITY, uncut(lsn), |take| {
            records.iter().try_for_each(|record| take(record))
        });
        assert_eq!(written.unwrap(), disk.bytes_of(&checkpoint::name(lsn)));
    }
    assert_eq!(checkpoint::list(&disk).unwrap(), [9], "the older checkpoint is removed");
    let read = || {
        let mut found = Vec::new();
        let outcome = checkpoint::read(&disk, IDENTITY, 9, |record| {
            found.push(record.to_vec());
            Ok(())
        });
        outcome.map(|last| {
            assert_eq!(last, uncut(9));
            found
        })
    };
    assert!(read().unwrap() == records);
    let name = "checkpoint-00000000000000000009";
    let length = disk.read(name).unwrap().len();
    for at in (0..length).step_by(9_973).chain(length - 70..length) {
        disk.tamper(name, |bytes| bytes[at] ^= 1);
        let error = read().unwrap_err();
        assert!(
            matches!(error, LogError::Damaged { offset, position: 9, .. } if offset <= at as u64),
            "{at}: {error}"
        );
        disk.tamper(name, |bytes| bytes[at] ^= 1);
    }
    // Cut at the end of a batch: no torn tail.
    disk.tamper(name, |bytes| bytes.truncate(length - 55));
    assert!(read().unwrap_err().to_string().contains("its end is missing"));
}

#[test]
fn a_log_continues_after_a_checkpoint_that_is_ahead() {
    let disk = SimulatedDisk::new();
    let mut writer = open(disk.clone(), 0, |_, _| Ok(())).unwrap().writer;
    append(&mut writer, b"abc", &[1, 2, 3]).unwrap();
    writer.sync().unwrap();
    drop(writer);
    let mut writer = open(disk.clone(), 7, |_, _| Ok(())).unwrap().writer;
    assert_eq!(writer.next_position(), 8);
    append(&mut writer, b"de", &[1, 2]).unwrap();
    writer.sync().unwrap();
    drop(writer);
    let mut found = Vec::new();
    open(disk, 7, |lsn, record| {
        found.push((lsn, record.to_vec()));
        Ok(())
    })
    .unwrap();
    assert_eq!(found, [(8, b"d".to_vec()), (9, b"e".to_vec())]);
}

/// A log whose unsynced end is lost, which a checkpoint has, is ended in order before anything else is
/// written: its end is the checkpoint's.
#[test]
fn a_log_ends_in_order_after_a_checkpoint_that_is_ahead() {
    let disk = SimulatedDisk::new();
    let mut writer = synced_log(&disk, 3);
    append(&mut writer, &[7; 24], &[24]).unwrap();
    drop(writer);
    cut(&disk, FIRST, 64 + 3 * 76 + 20);
    let mut writer = open(disk.clone(), 4, |_, _| Ok(())).unwrap().writer;
    assert_eq!(writer.next_position(), 5);
    writer.end().unwrap();
    drop(writer);
    let torn = outcome(&disk, 4).0.unwrap().unwrap();
    assert!(torn.path.ends_with(FIRST) && torn.offset == 64 + 3 * 76, "{torn:?}");
    // Without the checkpoint it is damaged.
    assert!(matches!(outcome(&disk, 0).0, Err(LogError::Damaged { position: 4, .. })));
}

/// Returns the error or torn tail of a damaged log, and how far it was read.
fn outcome(disk: &SimulatedDisk, after: u64) -> (Result<Option<TornTail>, LogError>, u64) {
    let mut last = after;
    let opened = open(disk.clone(), after, |lsn, _| {
        last = lsn;
        Ok(())
    });
    (opened.map(|opened| opened.torn), last)
}

/// Writes a log of batches with one record of 24 bytes each, all synced: 76 bytes a batch.
fn synced_log(disk: &SimulatedDisk, records: u64) -> SegmentWriter<SimulatedDisk> {
    let mut writer = open(disk.clone(), 0, |_, _| Ok(())).unwrap().writer;
    for _ in 0..records {
        append(&mut writer, &[7; 24], &[24]).unwrap();
        writer.sync().unwrap();
    }
    writer
}

fn cut(disk: &SimulatedDisk, name: &str, length: usize) {
    disk.tamper(name, |bytes| bytes.truncate(length));
}

const FIRST: &str = "log-00000000000000000001";

/// A log that was closed cleanly and then cut at any position is detected.
#[test]
fn a_missing_end_of_a_cleanly_closed_log_is_reported() {
    let disk = SimulatedDisk::new();
    let mut writer = synced_log(&disk, 5);
    writer.end().unwrap();
    drop(writer);
    let whole = disk.read(FIRST).unwrap();
    for length in (0..whole.len()).rev() {
        cut(&disk, FIRST, length);
        let (error, last) = outcome(&disk, 0);
        let whole_batches = (length.saturating_sub(64) / 76) as u64;
        let expected = if length < 64 { 0 } else { 64 + 76 * whole_batches };
        match error.unwrap_err() {
            LogError::Damaged { path, offset, position: lsn, .. } => {
                assert!(
                    path.ends_with(FIRST) && offset == expected && lsn == last + 1,
                    "{length}: {offset} {lsn}"
                );
                assert_eq!(last, whole_batches, "{length}");
            }
            error => panic!("{length}: {error}"),
        }
        assert_eq!(disk.read(FIRST).unwrap().len(), length, "the file changed");
    }
    disk.take(FIRST).unwrap();
    let error = outcome(&disk, 0).0.unwrap_err();
    assert!(matches!(error, LogError::Missing { from: 1, to: 5, .. }), "{error}");
    // Continue and crash: records up to the clean end must still exist.
    disk.tamper(FIRST, |bytes| *bytes = whole);
    let mut writer = open(disk.clone(), 0, |_, _| Ok(())).unwrap().writer;
    append(&mut writer, &[7; 24], &[24]).unwrap();
    drop(writer);
    cut(&disk, FIRST, 64 + 5 * 76 + 20);
    let torn = outcome(&disk, 0).0.unwrap().unwrap();
    assert!(torn.path.ends_with(FIRST) && torn.offset == 64 + 5 * 76 && torn.bytes > 0, "{torn:?}");
    cut(&disk, FIRST, 64 + 4 * 76 + 20);
    assert!(matches!(outcome(&disk, 0).0, Err(LogError::Damaged { position: 5, .. })));
    // The marker itself must be intact.
    cut(&disk, "ended", 63);
    let error = outcome(&disk, 0).0.unwrap_err().to_string();
    assert!(error.contains("ended: damaged: it does not say where the log ended"), "{error}");
}

/// The log after a checkpoint begins with a batch that was on disk before the older log was
/// deleted.
#[test]
fn a_gap_between_checkpoint_and_log_is_reported() {
    let disk = SimulatedDisk::new();
    let mut writer = synced_log(&disk, 5);
    writer.segment_bytes_max(100);
    // Not synced by the writer.
    append(&mut writer, &[7; 24], &[24]).unwrap();
    assert_eq!(writer.synced_position(), 6);
    writer.delete_up_to(5).unwrap();
    drop(writer);
    disk.crash(&mut Random::new(1));
    assert!(matches!(outcome(&disk, 5), (Ok(None), 6)));
    let name = "log-00000000000000000006";
    let whole = disk.read(name).unwrap();
    for length in (0..whole.len()).rev() {
        cut(&disk, name, length);
        let error = outcome(&disk, 5).0.unwrap_err();
        let expected = if length < 64 { 0 } else { 64 };
        assert!(
            matches!(error, LogError::Damaged { offset, position: 6, .. } if offset == expected),
            "{error}"
        );
        assert_eq!(disk.read(name).unwrap().len(), length, "the file changed");
    }
    disk.take(name).unwrap();
    let error = outcome(&disk, 5).0.unwrap_err().to_string();
    assert!(error.contains("a checkpoint of record 5 but no log after it"), "{error}");
    assert!(error.contains("begins with record 6 or an earlier one"), "{error}");
}

/// A segment that was begun when the power failed, with the previous one complete.
#[test]
fn an_empty_segment_is_reported_and_rewritten() {
    let disk = SimulatedDisk::new();
    drop(synced_log(&disk, 5));
    let name = "log-00000000000000000006";
    for after in [0, 5] {
        disk.tamper(name, |_| {});
        let (said, last) = outcome(&disk, after);
        let torn = TornTail { path: Path::new("simulated").join(name), offset: 0, bytes: 0 };
        assert_eq!((said.unwrap(), last), (Some(torn), 5));
        assert_eq!(disk.names().unwrap(), [FIRST]);
    }
}
