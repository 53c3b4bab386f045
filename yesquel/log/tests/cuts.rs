//! Cuts of a log, and records without index, on a disk that loses power: what is read is what a
//! plain list has. `SEEDS=from..to` chooses seeds.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use yesquel_log::{LogError, LogEvent, LogIdentity, LogPoint, SegmentWriter, StoredRecord, checkpoint, open};
use yesquel_seeds::{Random, check_seeds};
use yesquel_simulation::disk::SimulatedDisk;

const IDENTITY: LogIdentity = LogIdentity { cluster: [9; 16], group: 0, era: 0 };

type Stored = (LogPoint, Vec<u8>);

/// A log as a list of all records that were ever written, also of those that were cut.
#[derive(Default)]
struct ReferenceLog {
    written: Vec<Stored>,
    /// Every record up to this position is durable.
    synced: u64,
    /// The last record of the checkpoint, which no cut reaches.
    after: LogPoint,
}

impl ReferenceLog {
    /// Returns the records that count, after the checkpoint.
    fn counting(&self) -> Vec<Stored> {
        let mut counting: Vec<Stored> = Vec::new();
        for (point, bytes) in &self.written {
            if point.index > 0 {
                counting.retain(|(earlier, _)| earlier.index < point.index);
            }
            counting.push((*point, bytes.clone()));
        }
        counting.retain(|(point, _)| point.position > self.after.position);
        counting
    }

    /// The last record that has an index.
    fn last(&self) -> LogPoint {
        self.written.iter().rev().map(|(point, _)| *point).find(|point| point.index > 0).unwrap_or_default()
    }
}

/// Reads a log.
fn read(
    disk: &SimulatedDisk,
    after: LogPoint,
) -> Result<(Vec<Stored>, bool, SegmentWriter<SimulatedDisk>), LogError> {
    let (mut found, mut has_restarted) = (Vec::new(), false);
    let opened = open(disk.clone(), IDENTITY, after, |event| {
        match event {
            LogEvent::Record(StoredRecord { point, bytes }) => found.push((point, bytes.to_vec())),
            LogEvent::Restart => {
                assert!(!has_restarted, "it restarts once");
                has_restarted = true;
                found.clear();
            }
        }
        Ok(())
    })?;
    Ok((found, has_restarted, opened.writer))
}

/// Opens the log after a fall and compares it with the list.
fn reopened(disk: &SimulatedDisk, log: &mut ReferenceLog) -> SegmentWriter<SimulatedDisk> {
    let (found, _, writer) = read(disk, log.after).unwrap();
    let next = writer.next_position();
    assert!(next > log.synced, "records from {next} to {} are lost", log.synced);
    log.written.retain(|(point, _)| point.position < next);
    assert_eq!(found, log.counting());
    assert_eq!(writer.last(), log.last());
    log.synced = writer.synced_position();
    writer
}

/// Appends records, with an index that may cut, or without. Returns whether the disk took them.
fn append(writer: &mut SegmentWriter<SimulatedDisk>, log: &mut ReferenceLog, random: &mut Random) -> bool {
    let last = log.last();
    let cuttable = last.index - log.after.index;
    let (term, index) = match random.next(8) {
        0 => (last.term + 1, 0),
        1 | 2 if cuttable > 0 => (last.term + 1, last.index + 1 - (1 + random.next(cuttable))),
        _ => (last.term.max(1), last.index + 1),
    };
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for number in 0..1 + random.next(4) {
        let position = writer.next_position() + number;
        let index = if index > 0 { index + number } else { 0 };
        let record = vec![position as u8; random.next(100) as usize];
        bytes.extend_from_slice(&record);
        ends.push(bytes.len());
        log.written.push((LogPoint { position, index, term }, record));
    }
    writer.append(term, index, &bytes, &ends).is_ok()
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let random = &mut random;
    let (disk, mut log) = (SimulatedDisk::new(), ReferenceLog::default());
    for _ in 0..1 + random.next(5) {
        let mut writer = reopened(&disk, &mut log);
        writer.segment_bytes_max(200 + random.next(2_000));
        writer.preallocate(random.next(2) * random.next(2_000));
        if random.next(3) == 0 {
            disk.lose_power_after(random.next(40), seed);
        }
        for _ in 0..random.next(40) {
            let went_well = match random.next(16) {
                0..10 => append(&mut writer, &mut log, random),
                10..14 => writer.sync().is_ok(),
                _ => {
                    // A checkpoint of durable records. Later ones may be cut.
                    let durable = log.counting().into_iter().map(|(point, _)| point);
                    let durable = durable.filter(|point| point.position <= writer.synced_position());
                    let last = durable.filter(|point| point.index > 0).max_by_key(|point| point.position);
                    last.is_none_or(|last| {
                        log.after = last;
                        writer.delete_up_to(last.position).is_ok()
                    })
                }
            };
            if !went_well {
                break;
            }
            log.synced = log.synced.max(writer.synced_position());
        }
        if random.next(4) == 0 && writer.end().is_ok() {
            log.synced = log.synced.max(writer.synced_position());
        }
        drop(writer);
        if disk.power_is_lost() || random.next(2) == 0 {
            disk.crash(random);
        }
        disk.repair();
    }
    drop(reopened(&disk, &mut log));
}

#[test]
fn a_log_with_cuts_equals_a_list() {
    check_seeds(5_000, run);
}

/// Writes records 1 to 5 of term 1, and then 3 and 4 of term 2.
fn cut_log(disk: &SimulatedDisk) -> SegmentWriter<SimulatedDisk> {
    let mut writer = read(disk, LogPoint::default()).unwrap().2;
    writer.append(1, 1, b"abcde", &[1, 2, 3, 4, 5]).unwrap();
    writer.append(2, 3, b"xy", &[1, 2]).unwrap();
    writer
}

#[test]
fn a_cut_is_no_hole() {
    let disk = SimulatedDisk::new();
    let mut writer = cut_log(&disk);
    assert_eq!(writer.last(), LogPoint { position: 7, index: 4, term: 2 });
    writer.sync().unwrap();
    assert_eq!((writer.synced_position(), writer.synced_index()), (7, 4));
    writer.end().unwrap();
    let (found, has_restarted, writer) = read(&disk, LogPoint::default()).unwrap();
    let shown: Vec<(u64, u64, &[u8])> =
        found.iter().map(|(point, bytes)| (point.position, point.index, &bytes[..])).collect();
    assert_eq!(shown, [(1, 1, &b"a"[..]), (2, 2, b"b"), (6, 3, b"x"), (7, 4, b"y")]);
    assert!(has_restarted);
    assert_eq!(writer.last(), LogPoint { position: 7, index: 4, term: 2 });
    // From a checkpoint within, nothing that was passed is cut.
    let (found, has_restarted, _) = read(&disk, LogPoint { position: 7, index: 4, term: 2 }).unwrap();
    assert_eq!((found.len(), has_restarted), (0, false));
}

/// The batch of a cut that is torn is a torn tail: what it cut is back.
#[test]
fn a_torn_cut_cuts_nothing() {
    let disk = SimulatedDisk::new();
    drop(cut_log(&disk));
    let name = "log-00000000000000000001";
    disk.tamper(name, |bytes| bytes.truncate(bytes.len() - 1));
    let (found, has_restarted, writer) = read(&disk, LogPoint::default()).unwrap();
    assert_eq!((found.len(), has_restarted), (5, false));
    assert_eq!(writer.last(), LogPoint { position: 5, index: 5, term: 1 });
}

#[test]
fn a_cut_of_the_checkpoint_is_damage() {
    let disk = SimulatedDisk::new();
    drop(cut_log(&disk));
    let error = read(&disk, LogPoint { position: 4, index: 4, term: 1 }).unwrap_err();
    assert!(error.to_string().contains("cuts records that the checkpoint has"), "{error}");
}

/// Files of another cluster or group, or of a later era, are refused by name.
#[test]
fn a_file_in_the_wrong_folder_is_refused() {
    let disk = SimulatedDisk::new();
    let mut writer = cut_log(&disk);
    let last = writer.last();
    writer.end().unwrap();
    checkpoint::write(&disk, IDENTITY, last, |take| take(b"state")).unwrap();
    for (identity, what) in [
        (LogIdentity { cluster: [8; 16], ..IDENTITY }, "another cluster or group"),
        (LogIdentity { group: 1, ..IDENTITY }, "another cluster or group"),
    ] {
        let refused = |error: LogError, name: &str| {
            let is_it = matches!(&error, LogError::Foreign { path, .. } if path.ends_with(name));
            assert!(is_it && error.to_string().contains(what), "{error}");
        };
        refused(open(disk.clone(), identity, last, |_| Ok(())).unwrap_err(), "ended");
        let error = checkpoint::read(&disk, identity, last.position, |_| Ok(())).unwrap_err();
        refused(error, &checkpoint::name(last.position));
        let ended = disk.take("ended").unwrap();
        refused(open(disk.clone(), identity, last, |_| Ok(())).unwrap_err(), "log-00000000000000000001");
        disk.tamper("ended", |bytes| *bytes = ended);
    }
    // Files of an earlier era are the group's own.
    let later = LogIdentity { era: 1, ..IDENTITY };
    open(disk.clone(), later, last, |_| Ok(())).unwrap();
    checkpoint::read(&disk, later, last.position, |_| Ok(())).unwrap();
}
