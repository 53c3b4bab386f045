//! Waiting for leases: turns in the order of arrival, for holders and for writes without a lease.

use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};
use yesquel::{Database, Map, Store};

const MINUTE: Duration = Duration::from_secs(60);
const KEY: &[u8] = b"key";

fn database() -> (Store, Database, Map) {
    let store = Store::in_memory().unwrap();
    let database = store.create_database("turns").unwrap();
    let map = database.map("map").unwrap();
    database.put(map, KEY, b"0").unwrap();
    (store, database, map)
}

/// Waits until so many requests wait at the server.
fn await_waiting(store: &Store, count: u64) {
    let begun = Instant::now();
    while store.status().unwrap().transactions.waiting != count {
        assert!(begun.elapsed() < MINUTE, "{:?}", store.status().unwrap().transactions);
        thread::yield_now();
    }
}

#[test]
fn eight_writers_take_turns() {
    const WRITERS: usize = 8;
    let (store, database, map) = database();
    let turns = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, database, turns) = (&store, &database, &turns);
            scope.spawn(move || {
                for turn in 0..20 {
                    let lease = database.lease(map, KEY..=KEY, MINUTE, MINUTE).unwrap();
                    turns.lock().unwrap().push(writer);
                    if turn < 19 {
                        // Until all others wait again, so that the next holder is known.
                        await_waiting(store, WRITERS as u64 - 1);
                    }
                    let mut transaction = database.begin();
                    transaction.releases(&lease);
                    transaction.put(map, KEY, &[writer as u8]).unwrap();
                    transaction.commit().unwrap();
                    lease.forget();
                }
            });
        }
    });
    let turns = turns.into_inner().unwrap();
    for (at, others) in turns.windows(WRITERS).enumerate().take(WRITERS * 19) {
        let mut others = others.to_vec();
        others.sort_unstable();
        assert_eq!(others, (0..WRITERS).collect::<Vec<_>>(), "from turn {at}: {turns:?}");
    }
    assert_eq!(store.status().unwrap().transactions.leases, 0);
}

/// A write that meets a lease queues like a request for one: later holders do not overtake it.
#[test]
fn writes_have_their_turn_before_later_holders() {
    let write: [fn(&Database, Map); 2] = [
        |database, map| assert!(database.put(map, KEY, b"written").is_ok()),
        |database, map| {
            let written = database.run(|transaction| {
                let found = transaction.get(map, KEY)?;
                transaction.put(map, KEY, b"written")?;
                Ok(found)
            });
            // It ran again after the first holder's commit.
            assert_eq!(written.unwrap().as_deref(), Some(&b"1"[..]));
        },
    ];
    for write in write {
        let (store, database, map) = database();
        let first = database.lease(map, KEY..=KEY, MINUTE, MINUTE).unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(|| write(&database, map));
            await_waiting(&store, 1);
            let second = scope.spawn(|| {
                let lease = database.lease(map, KEY..=KEY, MINUTE, MINUTE).unwrap();
                assert_eq!(lease.begin().get(map, KEY).unwrap().as_deref(), Some(&b"written"[..]));
            });
            await_waiting(&store, 2);
            let mut transaction = database.begin();
            transaction.releases(&first);
            transaction.put(map, KEY, b"1").unwrap();
            transaction.commit().unwrap();
            first.forget();
            writer.join().unwrap();
            second.join().unwrap();
        });
        assert_eq!(store.status().unwrap().transactions.leases, 0);
        assert_eq!(store.status().unwrap().transactions.waiting, 0);
    }
}

#[test]
fn a_wait_that_is_over_leaves_no_lease() {
    let (store, database, map) = database();
    let first = database.lease(map, KEY..=KEY, MINUTE, MINUTE).unwrap();
    let mut second = database.lease_to_take([(map, KEY..=KEY)]).unwrap();
    assert!(second.take(MINUTE, Duration::from_millis(1)).is_err());
    drop(first);
    assert_eq!(store.status().unwrap().transactions.leases, 0);
    second.take(MINUTE, Duration::ZERO).unwrap();
    drop(second);
    assert_eq!(store.status().unwrap().transactions.leases, 0);
}
