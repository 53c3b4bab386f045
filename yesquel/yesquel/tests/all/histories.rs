//! Histories of threads that append to lists while leaves are split and removed, checked in real
//! time, which one server guarantees: against snapshot isolation, and against serializability.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
};
use yesquel::{
    Address, Database, EngineSettings, Error, ListenOptions, LogOptions, Map, Server, SocketOptions, Store,
    Transaction,
};
use yesquel_histories::{AnomalyKind, ConsistencyModel, ListOperation, RecordedOutcome, check};
use yesquel_seeds::Random;

/// Number of lists, each with leaves of other keys around it.
const LISTS: u64 = 6;
const THREADS: u64 = 6;
const TRANSACTIONS: u64 = 400;

fn key(list: u64) -> [u8; 4] {
    (((list as u32) << 16) | 0x8000).to_be_bytes()
}

fn elements(value: Option<Box<[u8]>>) -> Vec<u64> {
    let value = value.unwrap_or_default();
    value.chunks_exact(8).map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())).collect()
}

/// Runs one transaction and records its operations.
fn act(
    transaction: &mut Transaction<'_>,
    map: Map,
    random: &mut Random,
    element: &mut u64,
    seen: &mut Vec<ListOperation>,
) -> Result<(), Error> {
    for _ in 0..1 + random.next(4) {
        // Otherwise an embedded thread would run whole transactions without interruption.
        std::thread::yield_now();
        let list = random.next(LISTS);
        match random.next(5) {
            0..2 => {
                let found = transaction.get(map, &key(list))?;
                seen.push(ListOperation::read(list, elements(found)));
            }
            2..4 => {
                let mut value = transaction.get(map, &key(list))?.unwrap_or_default().into_vec();
                let before: Vec<u64> = elements(Some(value.clone().into()));
                value.extend_from_slice(&element.to_be_bytes());
                transaction.put(map, &key(list), &value)?;
                seen.extend([ListOperation::read(list, before), ListOperation::append(list, *element)]);
                *element += 1;
            }
            _ => {
                // Some of them in one scan, the others one by one.
                let (from, to) = (key(list), key(LISTS));
                let mut found = std::collections::BTreeMap::new();
                for entry in transaction.range(map, &from[..]..&to[..]).take(300) {
                    let (key, value) = entry?;
                    found.insert(key, value);
                }
                let last = found.last_key_value().map(|(key, _)| key.clone());
                for list in list..LISTS {
                    if last.as_ref().is_some_and(|last| key(list)[..] <= last[..]) {
                        let value = found.remove(&key(list)[..]);
                        seen.push(ListOperation::read(list, elements(value)));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Inserts keys between the lists and deletes them, so that leaves are split and removed.
fn fill(database: &Database, map: Map, random: &mut Random) {
    let list = random.next(LISTS) as u32;
    let outcome = if random.next(2) == 0 {
        database.run(|transaction| {
            (0..150u32)
                .try_for_each(|at| transaction.put(map, &((list << 16) | (at * 7)).to_be_bytes(), &[0; 40]))
        })
    } else {
        let range = (list << 16).to_be_bytes()..((list << 16) | 0x7fff).to_be_bytes();
        database.run(|transaction| {
            transaction.delete_range(map, range.clone());
            Ok(())
        })
    };
    outcome.unwrap();
}

fn history(
    databases: &[Database],
    is_serializable: bool,
    seed: u64,
) -> Vec<yesquel_histories::RecordedTransaction> {
    let (clock, history) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let now = || clock.fetch_add(1, SeqCst);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (history, now) = (&history, &now);
            let database = &databases[thread as usize % databases.len()];
            scope.spawn(move || {
                let map = database.map("lists").unwrap();
                let mut random = Random::new(seed * THREADS + thread);
                let mut element = (thread + 1) << 32;
                for number in 0..TRANSACTIONS {
                    if number % 16 == thread {
                        fill(database, map, &mut random);
                    }
                    let (begun, mut seen) = (now(), Vec::new());
                    let mut transaction = database.begin();
                    if is_serializable {
                        transaction.serializable();
                    }
                    let done = act(&mut transaction, map, &mut random, &mut element, &mut seen);
                    let outcome = match done.and_then(|()| transaction.commit()) {
                        Ok(_) => RecordedOutcome::Committed,
                        Err(error) if error.is_retryable() => RecordedOutcome::Aborted,
                        Err(error) => panic!("{error}"),
                    };
                    let transaction =
                        yesquel_histories::RecordedTransaction::committed(thread, begun, now(), seen);
                    history.lock().unwrap().push(transaction.with_outcome(outcome));
                }
            });
        }
    });
    // All lists, at the end.
    let (map, begun) = (databases[0].map("lists").unwrap(), now());
    let mut transaction = databases[0].begin();
    let last = (0..LISTS).map(|list| {
        let found = transaction.get(map, &key(list)).unwrap();
        ListOperation::read(list, elements(found))
    });
    let last =
        yesquel_histories::RecordedTransaction::committed(THREADS, begun, now(), last.collect::<Vec<_>>());
    let mut history = history.into_inner().unwrap();
    history.push(last);
    history
}

/// Checks serializable transactions: in the order of their times, and by real time.
fn have_an_order(databases: &[Database], seed: u64) {
    let history = history(databases, true, seed);
    let report = check(&history, ConsistencyModel::StrictSerializable).unwrap();
    assert!(report.is_clean(), "{report}");
    let committed = |outcome| history.iter().filter(|one| one.outcome == outcome).count() as u64;
    assert!(committed(RecordedOutcome::Committed) > THREADS * TRANSACTIONS / 10);
    assert!(committed(RecordedOutcome::Aborted) > 0);
}

fn hold(databases: &[Database], seed: u64) {
    let history = history(databases, false, seed);
    let report = check(&history, ConsistencyModel::StrongSnapshotIsolation).unwrap();
    assert!(report.is_clean(), "{report}");
    // The threads were concurrent: there are anomalies that snapshot isolation allows and
    // serializability does not.
    let report = check(&history, ConsistencyModel::Serializable).unwrap();
    assert!(report.found(AnomalyKind::G2Item), "{report}");
}

fn settings() -> EngineSettings {
    EngineSettings { node_cells_max: 16, ..EngineSettings::default() }
}

/// Runs a check with threads of one process.
fn in_one_process(check: impl Fn(&[Database], u64)) {
    let listen = ListenOptions::default();
    let server = Server::start(None, settings(), LogOptions::default(), listen).unwrap();
    let store = Store::of_host(server.host().clone());
    check(&[store.create_database("lists").unwrap()], 1);
}

/// Runs a check with clients of a server whose commits are on disk.
fn by_clients(check: impl Fn(&[Database], u64)) {
    let place = tempfile::tempdir().unwrap();
    let socket = Address::Unix(place.path().join("socket"));
    let listen = ListenOptions { addresses: vec![socket.clone()], ..ListenOptions::default() };
    let options = LogOptions { checkpoint_bytes: 1 << 20, ..LogOptions::default() };
    let data = place.path().join("data");
    let _server = Server::start(Some(&data), settings(), options, listen).unwrap();
    let connect = |_| Store::connect(&socket, SocketOptions::default()).unwrap();
    let stores: Vec<Store> = (0..3).map(connect).collect();
    let databases: Vec<Database> =
        stores.iter().map(|store| store.database_or_create("lists").unwrap()).collect();
    check(&databases, 2);
}

#[test]
fn threads_of_one_process_see_snapshots() {
    in_one_process(hold);
}

#[test]
fn clients_of_a_server_see_snapshots_whose_commits_are_on_disk() {
    by_clients(hold);
}

#[test]
fn serializable_threads_of_one_process_have_an_order() {
    in_one_process(have_an_order);
}

#[test]
fn serializable_clients_of_a_server_have_an_order() {
    by_clients(have_an_order);
}
