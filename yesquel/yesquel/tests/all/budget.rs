//! A server whose memory budget is exhausted, as its clients see it.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};
use yesquel::{
    Address, CheckObserver, CheckProgress, Database, Durability, EngineSettings, Error, FoundFault,
    ListenOptions, LogOptions, ManualTime, Map, Server, SocketOptions, Store, status::ServerStatus,
};

const BUDGET: usize = 4 << 20;

/// Time limit after which a wait counts as endless, on any machine.
const EVER: Duration = Duration::from_secs(60);

/// Advances the time until no memory is held for recent reads or for a checkpoint.
fn pass(clock: &ManualTime, server: &Server) {
    // A checkpoint in progress keeps garbage, and a split may cause one meanwhile.
    for _ in 0..2 {
        until(server, "no checkpoint ends", |status| status.memory.copies == 0);
        for _ in 0..30 {
            clock.pass(50);
            server.host().transport().tick();
        }
    }
    until(server, "no checkpoint ends", |status| status.memory.copies == 0);
}

/// Waits for the server's threads.
#[track_caller]
fn until(server: &Server, missing: &str, is_done: impl Fn(&ServerStatus) -> bool) {
    let begun = Instant::now();
    while !is_done(&server.status()) {
        assert!(begun.elapsed() < EVER, "{missing}: {:?}", server.status());
        thread::yield_now();
    }
}

fn start(folder: &Path, clock: &ManualTime) -> Server {
    let settings = EngineSettings { memory_bytes_max: BUDGET, ..EngineSettings::default() };
    let options = LogOptions { durability: Durability::None, checkpoint_bytes: 16 << 10 };
    let addresses = vec![Address::Unix(folder.join("socket"))];
    let listen = ListenOptions { addresses, ..ListenOptions::default() };
    let folder = folder.join("data");
    Server::start_with_clock(Some(&folder), settings, options, listen, clock.clone()).unwrap()
}

fn connect(server: &Server) -> Store {
    Store::connect(&server.addresses()[0], SocketOptions::default()).unwrap()
}

/// Checks that the reported memory stays within the budget.
#[track_caller]
fn holds(server: &Server) {
    let memory = server.status().memory;
    assert!(memory.bytes <= BUDGET as u64, "{memory:?}");
}

/// Writes with retries as the errors advise.
#[track_caller]
fn persists<T>(server: &Server, clock: &ManualTime, mut write: impl FnMut() -> Result<T, Error>) -> usize {
    let (begun, mut refused) = (Instant::now(), 0);
    while begun.elapsed() < EVER {
        holds(server);
        match write() {
            Ok(_) => return refused,
            Err(Error::OutOfMemory(_)) => pass(clock, server),
            Err(error) => panic!("{error}"),
        }
        refused += 1;
    }
    panic!("always refused: {:?}", server.status().memory);
}

fn fill(database: &Database, map: Map, from: u32) -> (u32, Error) {
    for number in from..from + 20_000 {
        if let Err(error) = database.put(map, &number.to_be_bytes(), &[7; 1_000]) {
            return (number, error);
        }
    }
    panic!("five times the budget is accepted")
}

fn last_checkpoint(folder: &Path) -> Option<String> {
    let names = fs::read_dir(folder.join("data/group-00000")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("checkpoint-0")).max()
}

#[test]
fn a_full_server_refuses_growth_and_recovers() {
    let place = tempfile::tempdir().unwrap();
    let clock = ManualTime::default();
    let mut server = start(place.path(), &clock);
    let store = connect(&server);
    let database = store.create_database("shop").unwrap();
    let map = database.map("stock").unwrap();
    // A checkpoint in progress takes memory, and so do versions that splits keep for a second. The
    // budget is exhausted if it still is after both. Their threads may be delayed by other work.
    let (begun, mut taken, mut said, mut still) = (Instant::now(), 0, String::new(), 0);
    while still < 5 || taken <= 2_500 && begun.elapsed() < EVER {
        pass(&clock, &server);
        let (count, error) = fill(&database, map, taken);
        still = if count > taken { 0 } else { still + 1 };
        (taken, said) = (count, error.to_string());
        holds(&server);
    }
    assert!(taken > 2_500, "{taken}, {:?}", server.status().memory);
    for word in ["memory budget is spent", "delete something", "--memory"] {
        assert!(said.contains(word), "{said}");
    }
    let status = store.status().unwrap();
    assert!(status.memory.refused > 0 && status.memory.bytes > BUDGET as u64 / 4 * 3, "{:?}", status.memory);
    // Reads still work.
    assert_eq!(database.get(map, &5u32.to_be_bytes()).unwrap().unwrap().len(), 1_000);
    let mut transaction = database.begin();
    assert_eq!(transaction.range::<&[u8]>(map, ..).filter(|entry| entry.is_ok()).count(), taken as usize);
    drop(transaction);
    // Deletes and overwrites of equal length still work; and checkpoints are written when the log
    // has half the size of the last one.
    let before = last_checkpoint(place.path());
    for number in 0..taken / 2 {
        persists(&server, &clock, || {
            database.run(|transaction| transaction.delete(map, &number.to_be_bytes()))
        });
    }
    for number in taken / 2..taken {
        persists(&server, &clock, || database.put(map, &number.to_be_bytes(), &[9; 1_000]));
    }
    until(&server, "no checkpoint is written", |_| last_checkpoint(place.path()) > before);
    // Deletes have made room.
    for number in 0..taken / 4 {
        persists(&server, &clock, || database.put(map, &number.to_be_bytes(), &[8; 1_000]));
    }
    drop((database, store, server));
    server = start(place.path(), &clock);
    holds(&server);
    let store = connect(&server);
    let database = store.database("shop").unwrap();
    let map = database.map("stock").unwrap();
    let mut transaction = database.begin();
    let keys = transaction.range::<&[u8]>(map, ..).filter(|entry| entry.is_ok()).count() as u32;
    assert_eq!(keys, taken / 4 + (taken - taken / 2));
}

#[test]
fn a_forgotten_snapshot_does_not_stop_all_writers() {
    let place = tempfile::tempdir().unwrap();
    let clock = ManualTime::default();
    let server = start(place.path(), &clock);
    let (store, other) = (connect(&server), connect(&server));
    let database = store.create_database("shop").unwrap();
    let map = database.map("stock").unwrap();
    let put = |number: u32, byte: u8| database.put(map, &number.to_be_bytes(), &[byte; 1_000]);
    for number in 0..1_000 {
        put(number, 0).unwrap();
    }
    let theirs = other.database("shop").unwrap();
    let mut forgotten = theirs.begin();
    assert_eq!(forgotten.get(map, &7u32.to_be_bytes()).unwrap().unwrap()[0], 0);
    until(&server, "no client holds a snapshot", |status| status.snapshots.holders > 0);
    // Each round writes a quarter of the budget. While the snapshot is held, all versions are kept.
    let mut refused = 0;
    for round in 1..=8 {
        for number in 0..1_000 {
            refused += persists(&server, &clock, || put(number, round));
        }
    }
    let status = server.status();
    assert!(status.snapshots.cancelled >= 1, "{:?}, refused {refused}", status.snapshots);
    match forgotten.get(map, &900u32.to_be_bytes()) {
        Err(error @ Error::SnapshotTooOld(_)) => assert!(error.is_retryable()),
        other => panic!("{:?}", other.map(|value| value.map(|value| value[0]))),
    }
    // A new transaction sees the present state.
    assert_eq!(theirs.begin().get(map, &900u32.to_be_bytes()).unwrap().unwrap()[0], 8);
}

/// Acts once, in the middle of a tree.
struct ActsOnce<F>(Option<F>);

impl<F: FnOnce()> CheckObserver for ActsOnce<F> {
    fn fault(&mut self, found: &FoundFault) {
        panic!("{found:?}");
    }

    fn progress(&mut self, progress: &CheckProgress) -> bool {
        if progress.keys > 100
            && let Some(act) = self.0.take()
        {
            act();
        }
        true
    }
}

#[test]
fn a_check_whose_snapshot_is_dropped_goes_on_at_a_new_one() {
    let place = tempfile::tempdir().unwrap();
    let clock = ManualTime::default();
    let server = start(place.path(), &clock);
    let (store, checked) = (connect(&server), connect(&server));
    let database = store.create_database("shop").unwrap();
    let map = database.map("stock").unwrap();
    let put = |number: u32, byte: u8| database.put(map, &number.to_be_bytes(), &[byte; 1_000]);
    for number in 0..1_000 {
        put(number, 0).unwrap();
    }
    let mut observer = ActsOnce(Some(|| {
        until(&server, "no client holds a snapshot", |status| status.snapshots.holders > 0);
        // As above: the server cannot keep all versions.
        for round in 1..=8 {
            for number in 0..1_000 {
                persists(&server, &clock, || put(number, round));
            }
        }
        assert!(server.status().snapshots.cancelled >= 1);
    }));
    let summary = checked.check(None, &mut observer).unwrap();
    assert_eq!((summary.faults, summary.snapshots, summary.databases), (0, 1, 1));
    // The keys of the stock, and those of the catalog, each once.
    assert_eq!(summary.counts.keys, 1_000 + 2);
}
