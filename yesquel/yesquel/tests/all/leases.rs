//! Leases and row numbers as applications use them: in memory, in a folder and by address.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};
use yesquel::{Database, Error, Map, Store};

const MINUTE: Duration = Duration::from_secs(60);

fn database() -> (Database, Map) {
    let database = Store::in_memory().unwrap().create_database("leases").unwrap();
    let map = database.map("map").unwrap();
    (database, map)
}

fn commit(database: &Database, map: Map, key: &[u8]) -> Result<(), Error> {
    let mut transaction = database.begin();
    transaction.put(map, key, b"value")?;
    transaction.commit().map(drop)
}

#[test]
fn a_lease_blocks_other_writers_and_no_reader() {
    let (database, map) = database();
    commit(&database, map, b"c").unwrap();
    let lease = database.lease(map, &b"b"[..]..&b"d"[..], MINUTE, Duration::ZERO).unwrap();
    let error = commit(&database, map, b"c").unwrap_err();
    assert!(matches!(error, Error::Leased(_)) && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("another client holds a write lease there for at most "), "{error}");
    // Operations that cover it, guard it, or delete it with a range.
    for act in [
        |transaction: &mut yesquel::Transaction<'_>, map| transaction.delete_range::<&[u8]>(map, ..),
        |transaction: &mut yesquel::Transaction<'_>, map| transaction.guard(map, &b"a"[..]..=&b"b"[..]),
    ] {
        let mut transaction = database.begin();
        act(&mut transaction, map);
        assert!(matches!(transaction.commit(), Err(Error::Leased(_))));
    }
    assert!(matches!(database.drop_map("map"), Err(Error::Leased(_))));
    // Outside of it writes work, and so do reads everywhere.
    for key in [&b"a"[..], b"d"] {
        commit(&database, map, key).unwrap();
    }
    assert_eq!(database.get(map, b"c").unwrap().as_deref(), Some(&b"value"[..]));
    let mut transaction = database.begin();
    assert_eq!(transaction.range(map, &b"a"[..]..).count(), 3);
    // Nor does another holder get any part of it.
    let second = database.lease(map, &b"c"[..].., MINUTE, Duration::ZERO);
    assert!(matches!(second, Err(Error::Leased(_))));
    let beside = database.lease(map, &b"d"[..].., MINUTE, Duration::ZERO).unwrap();
    beside.release().unwrap();
    // The holder writes, and reads what it wrote.
    let mut transaction = lease.begin();
    transaction.delete(map, b"c").unwrap();
    transaction.commit().unwrap();
    lease.renew(MINUTE).unwrap();
    lease.release().unwrap();
    commit(&database, map, b"c").unwrap();
    // A dropped lease is released, too.
    drop(database.lease::<&[u8]>(map, .., MINUTE, Duration::ZERO).unwrap());
    commit(&database, map, b"c").unwrap();
    assert_eq!(database.store().status().unwrap().transactions.leases, 0);
}

#[test]
fn an_expired_lease_blocks_no_client_and_is_not_an_error() {
    let (database, map) = database();
    let lease = database.lease::<&[u8]>(map, .., Duration::ZERO, Duration::ZERO).unwrap();
    commit(&database, map, b"key").unwrap();
    // After that, its transactions are ordinary ones.
    let mut transaction = lease.begin();
    assert!(transaction.get(map, b"key").unwrap().is_some());
    commit(&database, map, b"key").unwrap();
    transaction.put(map, b"key", b"mine").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Conflict(_))));
    let other = database.lease::<&[u8]>(map, .., MINUTE, Duration::ZERO).unwrap();
    assert!(matches!(lease.renew(MINUTE), Err(Error::Leased(_))));
    drop(other);
    lease.renew(MINUTE).unwrap();
    assert!(matches!(commit(&database, map, b"key"), Err(Error::Leased(_))));
}

/// Leaves are split inside a lease, which changes no reads.
#[test]
fn trees_split_and_take_long_values_under_a_lease() {
    let (database, map) = database();
    let lease = database.lease::<&[u8]>(map, .., MINUTE, Duration::ZERO).unwrap();
    for part in 0..10u32 {
        let mut transaction = lease.begin();
        for number in 0..100 {
            transaction.put(map, &(part * 100 + number).to_be_bytes(), b"value").unwrap();
        }
        transaction.put(map, format!("long {part}").as_bytes(), &vec![part as u8; 200_000]).unwrap();
        transaction.commit().unwrap();
    }
    let mut transaction = database.begin();
    assert_eq!(transaction.range::<&[u8]>(map, ..).count(), 1_010);
    // Others wait until it is released.
    thread::scope(|scope| {
        let put = scope.spawn(|| database.put(map, b"late", b"value"));
        lease.release().unwrap();
        put.join().unwrap().unwrap();
    });
}

#[test]
fn increments_under_leases_never_conflict() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(place.path()).unwrap();
    let database = store.create_database("leases").unwrap();
    let map = database.map("map").unwrap();
    let conflicts = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let key = &b"counter"[..];
                    let lease = database.lease(map, key..=key, MINUTE, MINUTE).unwrap();
                    let mut transaction = lease.begin();
                    let count = transaction.get(map, key).unwrap().map_or(0, |count| count[0]);
                    transaction.put(map, key, &[count + 1]).unwrap();
                    if transaction.commit().is_err() {
                        conflicts.fetch_add(1, SeqCst);
                    }
                }
            });
        }
    });
    assert_eq!(conflicts.into_inner(), 0);
    assert_eq!(database.get(map, b"counter").unwrap().as_deref(), Some(&[100][..]));
}

#[test]
fn row_ids_are_unique_and_continue_after_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let open = || {
        let store = Store::open(place.path()).unwrap();
        let database = store.create_database("rows").or_else(|_| store.database("rows")).unwrap();
        let map = database.map("map").unwrap();
        (database, map)
    };
    let (database, map) = open();
    // A lone client gets consecutive numbers.
    assert_eq!(database.row_ids(map, 1, 0).unwrap(), 1..2);
    assert_eq!(database.row_ids(map, 1, 0).unwrap(), 2..3);
    // Explicit numbers are skipped.
    assert_eq!(database.row_ids(map, 2, 100).unwrap(), 101..103);
    let mut all: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let take = || (0..50).flat_map(|_| database.row_ids(map, 3, 0).unwrap()).collect::<Vec<_>>();
                scope.spawn(take)
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert_eq!(all, (103..703).collect::<Vec<_>>());
    // Another map counts separately.
    let other = database.map("other").unwrap();
    assert_eq!(database.row_ids(other, 1, 0).unwrap(), 1..2);
    drop(database);
    let (database, map) = open();
    assert_eq!(database.row_ids(map, 1, 0).unwrap(), 703..704);
    assert!(matches!(database.row_ids(map, 2, u64::MAX - 1), Err(Error::NoRowIds)));
}
