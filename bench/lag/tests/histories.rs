//! Analysis of short histories written by hand.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_lag::{
    analysis::{LagSettings, OffsetSample, PartClock, ProcessJournal, analyse, result},
    journal::{Item, Journal, PolledKey, Read, Write, WriteKind},
    stamp::Stamp,
};
use serval_result::lag::{Behind, LagResult, Survival, Violations};

const WRITER: u64 = 1000;

/// Returns a journal with the only key and field of all histories.
fn journal(writer: u64) -> Journal {
    let mut journal = Journal::new(writer);
    journal.keys.number("user1");
    journal.field("field0");
    journal
}

/// Adds a write of the journal's process, acknowledged 10 after it was sent.
fn write(journal: &mut Journal, version: u64, sent: u64) {
    let kind = WriteKind::Update;
    let acknowledged = Some(sent + 10);
    journal.writes.push(Write { key: 0, fields: 1, kind, client: 0, version, sent, acknowledged });
}

/// Adds a read, answered 1 after it was sent.
fn read(journal: &mut Journal, sent: u64, seen: Stamp) {
    let answered = sent + 1;
    let seen = vec![(0, seen)];
    journal.reads.push(Read { key: 0, reader: 0, sent, answered, there: true, seen, own: None });
}

fn judged(parts: &[ProcessJournal]) -> LagResult {
    result(parts, LagSettings { consumers: 1, ..LagSettings::default() })
}

fn part(journal: Journal, clock: PartClock) -> ProcessJournal {
    ProcessJournal { journal, clock, lost: false }
}

#[test]
fn a_read_of_an_older_version_violates_both_guarantees_once() {
    let mut journal = journal(WRITER);
    let stamp = |version| Stamp { writer: WRITER, version };
    write(&mut journal, 1, 10);
    write(&mut journal, 2, 30);
    // The second and the third are older than the first. The third is not older than the second.
    for (sent, version) in [(50, 2), (60, 1), (70, 1), (80, 2)] {
        read(&mut journal, sent, stamp(version));
    }
    let versions = judged(&[part(journal, PartClock::Common)]).versions.unwrap();
    assert_eq!(versions.monotonic_reads, Violations { checked: 3, violations: 2, undecided: 0 });
    assert_eq!(versions.monotonic_writes, Violations { checked: 4, violations: 2, undecided: 0 });
    assert_eq!(versions.behind, [(0, 2), (1, 2)].map(|(versions, reads)| Behind { versions, reads }));
    // Acknowledged at 40, and missed by a read sent at 70.
    assert_eq!(versions.last_stale.unwrap().max_ns, 30);
}

#[test]
fn versions_of_an_unknown_clock_leave_staleness_undecided() {
    let mut reader = journal(WRITER);
    write(&mut reader, 1, 1000);
    read(&mut reader, 2000, Stamp { writer: WRITER, version: 1 });
    let mut other = journal(WRITER + 1);
    // Long before by its own clock, whose offset is unknown.
    write(&mut other, 1, 10);
    let alone = judged(&[part(reader.clone(), PartClock::Common)]).versions.unwrap();
    assert_eq!((alone.undecided, alone.stale()), (0, (1, 0)));
    for clock in [PartClock::Unknown, PartClock::Known(Vec::new())] {
        let parts = [part(reader.clone(), PartClock::Common), part(other.clone(), clock)];
        let versions = judged(&parts).versions.unwrap();
        assert_eq!((versions.undecided, versions.stale()), (1, (0, 0)));
    }
}

#[test]
fn every_write_stamps_all_fields_that_are_long_enough() {
    let mut all = Journal::new(WRITER);
    all.keys.number("user1");
    for field in 0..64 {
        all.field(&format!("field{field}"));
    }
    for version in [1, 2] {
        write(&mut all, version, 100 * version);
        all.writes.last_mut().unwrap().fields = u64::MAX;
    }
    let seen = (0..64).map(|field| (field, Stamp { writer: WRITER, version: 1 })).collect();
    all.reads.push(Read { key: 0, reader: 0, sent: 300, answered: 301, there: true, seen, own: None });
    let versions = judged(&[part(all, PartClock::Common)]).versions.unwrap();
    // One version is missed, whatever the number of its fields.
    assert_eq!(versions.behind, [Behind { versions: 1, reads: 1 }]);
}

#[test]
fn a_value_too_short_for_a_stamp_does_not_prove_staleness() {
    let mut short = journal(WRITER);
    write(&mut short, 1, 10);
    // The value of a write without a stamp.
    short.reads.push(Read {
        key: 0,
        reader: 0,
        sent: 50,
        answered: 51,
        there: true,
        seen: vec![],
        own: None,
    });
    let stale = judged(&[part(short.clone(), PartClock::Common)]).versions.unwrap();
    assert_eq!((stale.stale(), stale.undecided), ((1, 1), 0));
    short.counts.too_short = 1;
    let open = judged(&[part(short, PartClock::Common)]).versions.unwrap();
    assert_eq!((open.stale(), open.undecided), ((0, 0), 1));
}

#[test]
fn guarantees_are_checked_only_for_known_versions() {
    let mut reader = journal(WRITER);
    let other = Stamp { writer: WRITER + 1, version: 1 };
    for sent in [50, 60] {
        read(&mut reader, sent, other);
    }
    // Of an unknown writer.
    let versions =
        judged(&[part(reader, PartClock::Common), ProcessJournal::lost(0, PartClock::Unknown)]).versions;
    let versions = versions.unwrap_or_default();
    assert_eq!((versions.monotonic_reads.checked, versions.monotonic_writes.checked), (0, 0), "{versions:?}");
}

/// A lost process loses its journal, but not its items in the queue, nor what is known of its clock.
#[test]
fn keys_of_a_lost_writer_keep_their_bounds_if_its_clock_is_known() {
    const LOST: u64 = WRITER + 1;
    const STRANGER: u64 = WRITER + 2;
    let mut reader = journal(WRITER);
    let trial = |key: &str, writer, sent, in_vain: Option<u64>, found| {
        let item = Item {
            key: key.to_owned(),
            field: "field0".to_owned(),
            stamp: Stamp { writer, version: 1 },
            kind: WriteKind::Insert,
            client: 0,
            sent,
            acknowledged: sent + 10,
        };
        let reads = 1 + u64::from(in_vain.is_some());
        PolledKey {
            item,
            first: 1020,
            last_in_vain: in_vain,
            found: Some(found),
            found_by: Some(found - 1),
            reads,
        }
    };
    // The clock of the lost process is 5000 ahead, give or take 2.
    reader.trials.push(trial("user1", LOST, 6000, Some(1030), 1040));
    reader.trials.push(trial("user2", LOST, 6000, None, 1021));
    reader.trials.push(trial("user3", STRANGER, 7, Some(1030), 1050));
    let clock = PartClock::Known(vec![OffsetSample { at: 6000, ahead: 5000.0, error: 2.0, drift: 0.0 }]);
    let judged =
        |parts: &[ProcessJournal]| analyse(parts, LagSettings { consumers: 1, ..LagSettings::default() });
    let (with, lines) = judged(&[part(reader.clone(), PartClock::Common), ProcessJournal::lost(LOST, clock)]);
    assert_eq!(
        lines.iter().map(|line| (line.acknowledged_ns, line.lower_ns, line.upper_ns)).collect::<Vec<_>>(),
        [(Some(1010), Some(18), Some(32)), (Some(1010), Some(0), Some(13)), (None, None, None)]
    );
    let visible = with.visible.unwrap();
    assert_eq!((visible.without, visible.upper.unwrap().count, visible.clock_error_ns), (1, 2, 2));
    let survival = with.survival.unwrap();
    assert_eq!((survival.since.as_str(), Survival::at(&survival.upper, 31)), ("acknowledgement", 0.5));
    // The paper's lag needs no clock offsets.
    assert_eq!((with.keys.later, with.keys.at_once, with.lag.unwrap().count), (2, 1, 2));

    let (without, _) = judged(&[part(reader, PartClock::Common)]);
    assert!(without.visible.is_none());
    assert_eq!(without.survival.unwrap().since, "first read");
}

/// Of two concurrent writes either may be the last, so missing the later one is not lag.
#[test]
fn a_write_possibly_overwritten_by_its_own_process_is_undecided() {
    let tried = |earlier_acknowledged| {
        let mut journal = journal(WRITER);
        write(&mut journal, 1, 10);
        journal.writes[0].acknowledged = Some(earlier_acknowledged);
        write(&mut journal, 2, 20);
        write(&mut journal, 3, 100);
        let item = Item {
            key: "user1".to_owned(),
            field: "field0".to_owned(),
            stamp: Stamp { writer: WRITER, version: 2 },
            kind: WriteKind::Update,
            client: 0,
            sent: 20,
            acknowledged: 30,
        };
        // Found when a third one was already there.
        let (found, found_by) = (Some(121), Some(120));
        journal.trials.push(PolledKey { item, first: 50, last_in_vain: Some(50), found, found_by, reads: 2 });
        judged(&[part(journal, PartClock::Common)]).keys
    };
    assert_eq!((tried(40).undecided, tried(40).later), (1, 0));
    assert_eq!((tried(15).undecided, tried(15).later), (0, 1));
}

#[test]
fn keys_put_into_the_queue_and_taken_by_no_consumer_are_counted() {
    let mut journal = journal(WRITER);
    write(&mut journal, 1, 10);
    journal.counts.carried = 5;
    let item = Item {
        key: "user1".to_owned(),
        field: "field0".to_owned(),
        stamp: Stamp { writer: WRITER, version: 1 },
        kind: WriteKind::Update,
        client: 0,
        sent: 10,
        acknowledged: 20,
    };
    let trial =
        PolledKey { item, first: 30, last_in_vain: None, found: Some(31), found_by: Some(30), reads: 1 };
    journal.trials.push(trial.clone());
    journal.trials.push(PolledKey { first: 0, found: None, found_by: None, reads: 0, ..trial });
    journal.counts.trials_not_noted = 1;
    let parts = [part(journal, PartClock::Common)];
    let keys = judged(&parts).keys;
    assert_eq!((keys.tried, keys.unread, keys.not_taken), (1, 1, 2));
    // Consumers of another result have counts of their own.
    assert_eq!(result(&parts, LagSettings::default()).keys.not_taken, 0);
}
