//! Large values: pieces in nodes of their own, which are collected when no snapshot sees them.

use std::{
    path::Path,
    time::{Duration, Instant},
};
use yesquel::{
    Address, Database, EngineSettings, Error, ListenOptions, LogOptions, Map, Server, SocketOptions, Store,
    limits,
};

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 7) as u8).collect()
}

/// Returns the memory of the server's nodes.
fn memory(database: &Database) -> u64 {
    database.store().status().unwrap().memory.bytes
}

fn lengths() -> Vec<usize> {
    let piece = limits::CELL_VALUE_BYTES_MAX;
    vec![piece, piece + 1, 16 * piece, 16 * piece + 1, 5_000_000, 30_000_000]
}

fn check(database: &Database, map: Map) {
    for (number, length) in lengths().into_iter().enumerate() {
        let found = database.get(map, &[number as u8]).unwrap().unwrap();
        assert!(*found == bytes(length, number as u64), "{length}");
    }
}

fn write(database: &Database, map: Map) {
    for (number, length) in lengths().into_iter().enumerate() {
        database.put(map, &[number as u8], &bytes(length, number as u64)).unwrap();
    }
}

#[test]
fn large_values_are_read_by_key_by_scan_and_by_their_transaction() {
    let database = Store::in_memory().unwrap().create_database("large").unwrap();
    let map = database.map("map").unwrap();
    write(&database, map);
    check(&database, map);
    let mut transaction = database.begin();
    transaction.put(map, b"z", &bytes(100_000, 9)).unwrap();
    let all: Vec<usize> = transaction.range::<&[u8]>(map, ..).map(|entry| entry.unwrap().1.len()).collect();
    assert_eq!(all, [lengths(), vec![100_000]].concat());
    // After a scan its leaf is cached, and a large value must still be fetched.
    assert_eq!(transaction.get(map, &[4]).unwrap().unwrap().len(), 5_000_000);
    transaction.rollback();
    assert_eq!(database.get(map, b"z").unwrap(), None);
    let status = database.store().status().unwrap();
    let tree = status.trees.iter().find(|tree| tree.tree == map.tree()).unwrap();
    assert_eq!((tree.leaves, tree.cells), (1, lengths().len() as u64), "pieces are no cells of the tree");
    let too_long = vec![0; limits::VALUE_BYTES_MAX as usize + 1];
    assert!(matches!(database.put(map, b"z", &too_long), Err(Error::TooLong { .. })));
}

/// Waits until the memory has shrunk as far as it should.
fn wait_for(database: &Database, enough: impl Fn(u64) -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !enough(memory(database)) {
        assert!(Instant::now() < until, "{} bytes are left", memory(database));
        std::thread::yield_now();
    }
}

#[test]
fn invisible_large_values_take_no_memory() {
    let database = Store::in_memory().unwrap().create_database("large").unwrap();
    let map = database.map("map").unwrap();
    let empty = memory(&database);
    database.put(map, b"a", &bytes(2_000_000, 1)).unwrap();
    let one = memory(&database);
    assert!(one > empty + 2_000_000);
    let mut reader = database.begin();
    reader.get(map, b"other").unwrap();
    for seed in 2..6 {
        database.put(map, b"a", &bytes(2_000_000, seed)).unwrap();
    }
    // An older transaction sees the old state, and later versions are kept, too.
    assert!(memory(&database) > one + 4 * 2_000_000);
    assert!(*reader.get(map, b"a").unwrap().unwrap() == bytes(2_000_000, 1));
    drop(reader);
    wait_for(&database, |memory| memory < one + 100_000);
    assert!(*database.get(map, b"a").unwrap().unwrap() == bytes(2_000_000, 5));
    database.run(|transaction| transaction.delete(map, b"a")).unwrap();
    wait_for(&database, |memory| memory < empty + 10_000);
    // The same with everything in a map.
    write(&database, map);
    database.drop_map("map").unwrap();
    wait_for(&database, |memory| memory < empty + 10_000);
}

#[test]
fn splits_do_not_move_large_values() {
    let database = Store::in_memory().unwrap().create_database("large").unwrap();
    let map = database.map("map").unwrap();
    for number in 0..300u32 {
        database.put(map, &number.to_be_bytes(), &bytes(40_000, u64::from(number))).unwrap();
    }
    let before = memory(&database);
    let mut transaction = database.begin();
    for (number, entry) in (0..300u32).zip(transaction.range::<&[u8]>(map, ..)) {
        let (key, value) = entry.unwrap();
        assert!(*key == number.to_be_bytes() && *value == bytes(40_000, u64::from(number)));
    }
    drop(transaction);
    // Leaves were split, and their garbage is collected by now or soon; the values that it named
    // are not.
    for number in 0..300u32 {
        database.put(map, &number.to_be_bytes(), &bytes(40_000, u64::from(number) + 1)).unwrap();
    }
    wait_for(&database, |memory| memory < before + 1_000_000);
    for number in 0..300u32 {
        let found = database.get(map, &number.to_be_bytes()).unwrap().unwrap();
        assert!(*found == bytes(40_000, u64::from(number) + 1));
    }
}

fn serve(folder: &Path, checkpoint_bytes: u64, socket: &Address) -> Server {
    let listen = ListenOptions { addresses: vec![socket.clone()], ..ListenOptions::default() };
    let options = LogOptions { checkpoint_bytes, ..LogOptions::default() };
    Server::start(Some(folder), EngineSettings::default(), options, listen).unwrap()
}

#[test]
fn large_values_survive_a_restart_with_and_without_checkpoints() {
    for checkpoint_bytes in [1, 1 << 40] {
        let place = tempfile::tempdir().unwrap();
        let (folder, socket) = (place.path().join("data"), Address::Unix(place.path().join("socket")));
        let server = serve(&folder, checkpoint_bytes, &socket);
        let store = Store::connect(&socket, SocketOptions::default()).unwrap();
        let database = store.create_database("large").unwrap();
        let map = database.map("map").unwrap();
        write(&database, map);
        drop((server, store));
        let _server = serve(&folder, checkpoint_bytes, &socket);
        let store = Store::connect(&socket, SocketOptions::default()).unwrap();
        let database = store.database("large").unwrap();
        check(&database, database.map("map").unwrap());
    }
}

#[test]
fn a_transaction_with_many_writes_is_staged() {
    let database = Store::in_memory().unwrap().create_database("many").unwrap();
    let map = database.map("map").unwrap();
    // Forty megabytes in values that are not large.
    let value = bytes(20_000, 3);
    database
        .run(|transaction| {
            (0..2_000u32).try_for_each(|number| transaction.put(map, &number.to_be_bytes(), &value))
        })
        .unwrap();
    let mut transaction = database.begin();
    let all =
        transaction.range::<&[u8]>(map, ..).inspect(|entry| assert!(*entry.as_ref().unwrap().1 == value));
    assert_eq!(all.count(), 2_000);
    // Again, into leaves that have been split meanwhile.
    database
        .run(|transaction| {
            (0..2_000u32).try_for_each(|number| transaction.put(map, &number.to_be_bytes(), b"short"))
        })
        .unwrap();
    assert_eq!(database.get(map, &1_999u32.to_be_bytes()).unwrap().as_deref(), Some(&b"short"[..]));
}
