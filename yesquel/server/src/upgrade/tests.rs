//! Upgrades that lose power at every operation.

use super::*;
use std::{collections::BTreeMap, fs, path::PathBuf};
use yesquel_log::disk::Disk as _;
use yesquel_node::{LogOptions, LogSizes, open_group};
use yesquel_seeds::Random;
use yesquel_simulation::disk::SimulatedDisk;

/// Files of a folder that the last version with format 1 wrote.
fn old_files(name: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/format-1").join(name);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    files
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .chain([("lock".to_owned(), b"process 1\n".to_vec())])
        .collect()
}

fn disk_with(files: &BTreeMap<String, Vec<u8>>) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for (name, content) in files {
        disk.tamper(name, |bytes| bytes.clone_from(content));
    }
    disk
}

/// What the last version with format 1 finds in a folder: its server's number and all records. `None`: it refuses
/// the folder.
fn opened_by_old_release(disk: &SimulatedDisk) -> Option<(u16, Vec<Vec<u8>>)> {
    for name in disk.names().unwrap() {
        let is_known = ["lock", "server", "server-unfinished"].contains(&name.as_str())
            || ["log-", "checkpoint-", "ended"].iter().any(|kind| name.starts_with(kind));
        assert!(is_known || !is_old(disk), "{name} is foreign to it");
    }
    if !is_old(disk) {
        return None;
    }
    let owner = String::from_utf8(disk.read("server").unwrap()).unwrap();
    let server = owner.lines().nth(1).unwrap().strip_prefix("server ").unwrap().parse().unwrap();
    let (mut records, last) = (Vec::new(), v1::list_checkpoints(disk).unwrap().pop());
    let mut push = |record: &[u8]| {
        records.push(record.to_vec());
        Ok(())
    };
    if let Some(lsn) = last {
        v1::read_checkpoint(disk, lsn, &mut push).unwrap();
    }
    v1::read_log(disk, last.unwrap_or(0), |_, record| push(record)).unwrap();
    Some((server, records))
}

/// Whether the first line of `server` is that of format 1. With another one, the last version with format 1 refuses
/// the folder.
fn is_old(disk: &SimulatedDisk) -> bool {
    disk.read("server").is_ok_and(|owner| owner.starts_with(b"format 1\n"))
}

fn run(disk: &SimulatedDisk) -> Result<UpgradeOutcome, UpgradeError> {
    Upgrade::new(disk, &mut |_, _| ControlFlow::Continue(())).run()
}

/// The state of an engine, as records in any order.
fn state_of(engine: &Engine) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let written = engine.checkpoint().write(|record| {
        records.push(record.to_vec());
        Ok::<(), ()>(())
    });
    written.unwrap();
    records.sort();
    records
}

/// The state of a folder of format 1.
fn old_state(files: &BTreeMap<String, Vec<u8>>, server: u16) -> (Vec<Vec<u8>>, u64) {
    let disk = disk_with(files);
    let mut progress = |_, _| ControlFlow::Continue(());
    let state = Upgrade::new(&disk, &mut progress).load_engine(ServerId(server)).unwrap();
    (state_of(&state.engine), state.lsn)
}

/// Checks a folder that was upgraded. Returns what its file `machine` states.
fn check_new(disk: &SimulatedDisk, server: u16, expected: &(Vec<Vec<u8>>, u64)) -> MachineFile {
    let machine = MachineFile::read(disk).unwrap().unwrap();
    assert_eq!(machine.membership.home_group, ServerId(server));
    let group = group_folder(machine.membership.home_group);
    assert_eq!(disk.names().unwrap(), [&group, "lock", MACHINE]);
    let settings = EngineSettings { server: ServerId(server), ..EngineSettings::default() };
    let options = LogOptions::default();
    let sizes = LogSizes::of(&options);
    let opened = open_group(
        disk.subfolder(&group),
        identity(machine.membership.cluster, machine.membership.home_group),
        settings,
        options,
        sizes,
    )
    .unwrap();
    let engine = opened.core.engine();
    engine.audit().unwrap();
    // The log after the checkpoint has one record.
    assert_eq!(engine.lsn(), expected.1 + 1);
    assert!(state_of(engine) == expected.0, "the state differs");
    machine
}

/// Upgrades with a power failure in the operation after so many, and then again until it succeeds.
/// Returns whether the power failed.
fn interrupted(server: u16, files: &BTreeMap<String, Vec<u8>>, operations: u64, seed: u64) -> bool {
    let mut random = Random::new(seed);
    let before = opened_by_old_release(&disk_with(files)).unwrap();
    let disk = disk_with(files);
    disk.lose_power_after(operations, seed);
    let is_ended = run(&disk).is_ok();
    let has_failed = disk.power_is_lost();
    assert!(is_ended || has_failed);
    disk.repair();
    if random.next(4) > 0 {
        disk.crash(&mut random);
    }
    let begun = MachineFile::read(&disk.subfolder(UPGRADE)).unwrap_or_default();
    if let Some(found) = opened_by_old_release(&disk) {
        assert!(found == before, "the old release finds something else");
    }
    for attempt in 0.. {
        disk.lose_power_after(random.next(60) + 20 * attempt, seed + attempt);
        match run(&disk) {
            Ok(_) => break,
            Err(error) => assert!(disk.power_is_lost(), "{error}"),
        }
        disk.repair();
        disk.crash(&mut random);
    }
    disk.repair();
    let machine = check_new(&disk, server, &old_state(files, server));
    assert!(begun.is_none_or(|begun| begun.membership == machine.membership), "it has another UUID");
    assert_eq!(run(&disk).unwrap(), UpgradeOutcome::Current { deleted: 0 });
    has_failed
}

#[test]
fn an_upgrade_survives_a_power_failure_at_every_operation() {
    for (name, server) in [("server-0", 0), ("server-3", 3)] {
        let files = old_files(name);
        let mut operations = 0;
        // Ends when no operation is left for the power failure.
        while (0..4).all(|seed| interrupted(server, &files, operations, seed)) {
            operations += 1;
        }
        assert!(operations > 20, "{operations} operations");
    }
}

/// The old release goes on after an upgrade that was interrupted: what it writes is upgraded, too.
#[test]
fn what_the_old_release_writes_after_an_interruption_counts() {
    let whole = old_files("server-0");
    let log = "log-00000000000000000027";
    let mut before = whole.clone();
    before.remove("ended").unwrap();
    let content = before.get_mut(log).unwrap();
    content.truncate(content.len() / 2);
    let expected = old_state(&whole, 0);
    assert!(old_state(&before, 0).1 < expected.1);
    for operations in 0.. {
        let disk = disk_with(&before);
        disk.lose_power_after(operations, operations);
        let _ = run(&disk);
        disk.repair();
        if opened_by_old_release(&disk).is_none() {
            assert!(operations > 10);
            break;
        }
        for name in [log, "ended"] {
            disk.tamper(name, |bytes| bytes.clone_from(&whole[name]));
        }
        run(&disk).unwrap();
        check_new(&disk, 0, &expected);
    }
}

/// The first node of each old long value names its cell.
#[test]
fn the_owners_of_old_values_are_named() {
    let disk = disk_with(&old_files("server-0"));
    run(&disk).unwrap();
    let machine = check_new(&disk, 0, &old_state(&old_files("server-0"), 0));
    let group = disk.subfolder(&group_folder(machine.membership.home_group));
    let last = checkpoint::list(&group).unwrap().pop().unwrap();
    let identity = identity(machine.membership.cluster, machine.membership.home_group);
    let (mut owned, mut referred) = (0, 0);
    checkpoint::read(&group, identity, last, |record| {
        // A node of pieces is one record, or begins with one.
        let record = format!("{:?}", LogRecord::decode(record).unwrap());
        referred += record.matches("is_large: true").count();
        owned += usize::from(record.contains("kind: Value") && record.contains("Attribute { id: 1"));
        Ok(())
    })
    .unwrap();
    assert!(owned > 0 && owned == referred, "{owned} of {referred} values name their cells");
}

/// Folders of early versions do not state their server.
#[test]
fn a_folder_without_owner_is_that_of_its_nodes() {
    let mut files = old_files("server-3");
    files.remove("server").unwrap();
    let disk = disk_with(&files);
    assert!(matches!(run(&disk).unwrap(), UpgradeOutcome::Upgraded { group: ServerId(3), nodes: 1, .. }));
    check_new(&disk, 3, &old_state(&files, 3));
}

#[test]
fn an_upgrade_is_stopped_by_its_progress() {
    let files = old_files("server-0");
    let disk = disk_with(&files);
    let mut calls = 0;
    let mut progress = |done: u64, all: u64| {
        assert!(done <= all && all > 0);
        calls += 1;
        ControlFlow::Continue(())
    };
    let mut upgrade = Upgrade::new(&disk, &mut progress);
    // The folder is smaller than the usual interval.
    upgrade.interval = 10_000;
    upgrade.run().unwrap();
    assert!(calls > 5, "{calls}");
    for last in 0..calls {
        let disk = disk_with(&files);
        let mut left = last;
        let mut progress = |_, _| {
            left -= 1;
            if left < 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut upgrade = Upgrade::new(&disk, &mut progress);
        upgrade.interval = 10_000;
        let error = upgrade.run().unwrap_err();
        assert!(matches!(error, UpgradeError::Interrupted), "{error}");
        assert!(opened_by_old_release(&disk) == opened_by_old_release(&disk_with(&files)));
    }
}

#[test]
fn damage_is_reported_and_nothing_changes() {
    let mut files = old_files("server-0");
    for (name, what) in [
        ("log-00000000000000000027", "log-00000000000000000027: damaged at byte"),
        ("checkpoint-00000000000000000028", "checkpoint-00000000000000000028: damaged at byte"),
        ("ended", "ended: damaged"),
        ("server", "server: damaged: it does not say whose the folder is"),
    ] {
        let whole = files[name].clone();
        files.get_mut(name).unwrap()[whole.len() / 2] ^= 0x81;
        let disk = disk_with(&files);
        let error = run(&disk).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        for (name, content) in &files {
            assert!(disk.read(name).unwrap() == *content, "{name}");
        }
        assert_eq!(disk.names().unwrap().len(), files.len());
        files.insert(name.to_owned(), whole);
    }
}
