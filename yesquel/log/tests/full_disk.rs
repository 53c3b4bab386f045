//! The log on a disk that fills up within any operation and has space again later: the records that
//! did not fit are written then, at their place, and nothing synced is lost meanwhile.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use yesquel_log::{
    LogError, LogEvent, LogIdentity, LogPoint, SegmentWriter, StoredRecord, check, disk::Disk, open,
};
use yesquel_seeds::Random;
use yesquel_simulation::disk::SimulatedDisk;

const IDENTITY: LogIdentity = LogIdentity { cluster: [7; 16], group: 3, era: 1 };
/// Bytes of a file before its batches.
const FILE_HEAD: usize = 64;

/// Opens a log without cuts. Returns its records and the writer.
fn opened(disk: &SimulatedDisk, after: u64) -> (Vec<Vec<u8>>, SegmentWriter<SimulatedDisk>) {
    let mut records = Vec::new();
    let after = LogPoint { position: after, index: after, term: u64::from(after > 0) };
    let opened = open(disk.clone(), IDENTITY, after, |event| {
        if let LogEvent::Record(StoredRecord { bytes, .. }) = event {
            records.push(bytes.to_vec());
        }
        Ok(())
    });
    (records, opened.unwrap().writer)
}

/// Appends two records, each of this byte.
fn append(writer: &mut SegmentWriter<SimulatedDisk>, byte: u8) -> Result<(), LogError> {
    writer.append(1, writer.next_position(), &[byte; 60], &[20, 60])
}

fn records(byte: u8) -> [Vec<u8>; 2] {
    [vec![byte; 20], vec![byte; 40]]
}

fn is_full(outcome: &Result<(), LogError>) -> bool {
    matches!(outcome, Err(LogError::NoSpace { .. }))
}

/// Appends to a log of one synced batch while the disk has so many bytes left. Returns the disk and
/// the writer, and whether the disk was full.
fn filled(
    free: usize,
    preallocated: u64,
    segment_bytes_max: u64,
) -> (SimulatedDisk, SegmentWriter<SimulatedDisk>, bool) {
    let disk = SimulatedDisk::new();
    let (_, mut writer) = opened(&disk, 0);
    writer.segment_bytes_max(segment_bytes_max);
    append(&mut writer, 1).unwrap();
    writer.sync().unwrap();
    writer.preallocate(preallocated);
    disk.limit_space(free);
    let outcome = append(&mut writer, 2);
    assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
    let is_full = is_full(&outcome);
    (disk, writer, is_full)
}

/// Segment sizes with which the second batch is in the first segment, or begins another one.
const SEGMENTS: [u64; 2] = [10_000, 100];

#[test]
fn records_that_did_not_fit_are_written_when_there_is_space() {
    for (segment_bytes_max, preallocated) in SEGMENTS.into_iter().flat_map(|size| [(size, 0), (size, 500)]) {
        let mut full_disks = 0;
        for free in 0..FILE_HEAD + 130 {
            let (disk, mut writer, was_full) = filled(free, preallocated, segment_bytes_max);
            let place = format!("{free} bytes free, segments of {segment_bytes_max}");
            full_disks += usize::from(was_full);
            assert_eq!(writer.bytes(), disk.bytes_of("log-"), "{place}");
            if was_full {
                // They are not part of the log, and the log is not damaged.
                assert_eq!((writer.next_position(), writer.synced_position()), (3, 2), "{place}");
                assert!(is_full(&append(&mut writer, 2)), "{place}");
                writer.sync().unwrap();
                disk.limit_space(usize::MAX);
                append(&mut writer, 2).unwrap();
            }
            disk.limit_space(usize::MAX);
            assert_eq!(writer.bytes(), disk.bytes_of("log-"), "{place}");
            append(&mut writer, 3).unwrap();
            writer.end().unwrap();
            drop(writer);
            let (found, _) = opened(&disk, 0);
            assert_eq!(found, [records(1), records(2), records(3)].concat(), "{place}");
        }
        assert!(full_disks >= 100, "{full_disks} full disks");
    }
}

/// The zeros that are written ahead need more space than the batch.
#[test]
fn a_batch_is_written_without_zeros_if_they_do_not_fit() {
    let batch = 48 + 60 + 8;
    assert!(filled(batch - 1, 500, 10_000).2);
    assert!(!filled(batch, 500, 10_000).2);
}

#[test]
fn a_crash_of_a_full_disk_loses_nothing_synced() {
    for (segment_bytes_max, preallocated) in SEGMENTS.into_iter().flat_map(|size| [(size, 0), (size, 500)]) {
        for free in 0..FILE_HEAD + 130 {
            for seed in 0..3 {
                let (disk, writer, was_full) = filled(free, preallocated, segment_bytes_max);
                drop(writer);
                if seed > 0 {
                    disk.crash(&mut Random::new(seed));
                }
                disk.repair();
                let (found, mut writer) = opened(&disk, 0);
                let is_kept = found == records(1) || found == [records(1), records(2)].concat();
                assert!(is_kept, "{free} bytes free: {found:?}");
                assert!(!was_full || found == records(1), "{free} bytes free: they were not written");
                append(&mut writer, 4).unwrap();
                drop(writer);
                assert_eq!(opened(&disk, 0).0, [&found[..], &records(4)].concat());
            }
        }
    }
}

/// A segment proves that the one before it is complete only once it has a batch.
#[test]
fn the_segment_before_one_without_a_batch_is_kept() {
    for free in 0..FILE_HEAD + 100 {
        let (disk, mut writer, was_full) = filled(free, 0, 100);
        assert!(was_full);
        writer.delete_up_to(2).unwrap();
        assert_eq!(writer.bytes(), disk.bytes_of("log-"));
        let after = LogPoint { position: 2, index: 2, term: 1 };
        assert_eq!(check(&disk, IDENTITY, after).unwrap(), 2, "{free} bytes free");
        // With the batch, it can go.
        disk.limit_space(usize::MAX);
        append(&mut writer, 2).unwrap();
        writer.delete_up_to(2).unwrap();
        assert_eq!(disk.names().unwrap(), ["log-00000000000000000003"]);
        assert_eq!(opened(&disk, 2).0, records(2));
    }
}

/// After a failed sync the state of the disk is unknown, whatever the error says.
#[test]
fn a_failed_sync_ends_the_log_also_on_a_full_disk() {
    let (disk, mut writer, was_full) = filled(usize::MAX, 0, 10_000);
    assert!(!was_full);
    disk.fail_syncs(true);
    assert!(matches!(writer.sync(), Err(LogError::Io { .. })));
    disk.repair();
    assert!(matches!(append(&mut writer, 3), Err(LogError::Io { .. })));
}
