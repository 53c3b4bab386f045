//! Databases and maps as an application uses them.

use std::ops::Bound;
use yesquel::{Conflict, CoreError, DataFolderError, Database, Error, Refusal, Store};

fn database() -> Database {
    Store::in_memory().unwrap().create_database("test").unwrap()
}

fn keys(entries: yesquel::Entries<'_, '_>) -> Vec<String> {
    entries.map(|entry| String::from_utf8_lossy(&entry.unwrap().0).into_owned()).collect()
}

#[test]
fn databases_are_created_found_listed_and_dropped() {
    let store = Store::in_memory().unwrap();
    assert_eq!(store.databases().unwrap(), Vec::<String>::new());
    for name in ["shop", "blog"] {
        store.create_database(name).unwrap();
    }
    assert!(matches!(store.create_database("shop"), Err(Error::DatabaseExists(name)) if name == "shop"));
    assert_eq!(store.databases().unwrap(), ["blog", "shop"]);
    let shop = store.database("shop").unwrap();
    let stock = shop.map("stock").unwrap();
    shop.put(stock, b"apples", b"7").unwrap();
    store.drop_database("shop").unwrap();
    assert_eq!(store.databases().unwrap(), ["blog"]);
    assert!(matches!(store.database("shop"), Err(Error::NoDatabase(name)) if name == "shop"));
    assert!(matches!(shop.get(stock, b"apples"), Err(Error::NoMap(_))));
    assert!(matches!(shop.put(stock, b"pears", b"1"), Err(Error::NoMap(_))));
    assert!(matches!(shop.map("other"), Err(Error::NoDatabase(_))));
    // A database of the same name is another one.
    let again = store.create_database("shop").unwrap();
    assert_eq!(again.maps().unwrap(), []);
    for name in ["", "a\nb", "a/b", "/", &"x".repeat(256)] {
        assert!(matches!(store.create_database(name), Err(Error::Name { .. })), "{name}");
    }
    assert!(matches!(store.database_or_create("a/b"), Err(Error::Name { .. })));
    // An older version may have created a database with such a name, so that it can be named.
    assert!(matches!(store.drop_database("a/b"), Err(Error::NoDatabase(_))));
    again.map("a/b").unwrap();
}

#[test]
fn maps_are_created_once_and_dropped() {
    let database = database();
    let stock = database.map("stock").unwrap();
    assert_eq!(database.map("stock").unwrap(), stock);
    assert_eq!(database.existing_map("stock").unwrap(), Some(stock));
    assert_eq!(database.existing_map("prices").unwrap(), None);
    let prices = database.map("prices").unwrap();
    assert_eq!(database.maps().unwrap(), [("prices".to_owned(), prices), ("stock".to_owned(), stock)]);
    // An older reader still sees it.
    database.put(stock, b"apples", b"7").unwrap();
    let mut before = database.begin();
    assert_eq!(before.get(stock, b"pears").unwrap(), None);
    assert!(database.drop_map("stock").unwrap());
    assert!(!database.drop_map("stock").unwrap());
    assert_eq!(before.get(stock, b"apples").unwrap().as_deref(), Some(&b"7"[..]));
    before.put(stock, b"pears", b"1").unwrap();
    assert!(matches!(before.commit(), Err(Error::NoMap(_))));
    let again = database.map("stock").unwrap();
    assert_ne!(again, stock);
    assert_eq!(database.get(again, b"apples").unwrap(), None);
}

#[test]
fn a_map_recreated_by_another_client_is_found() {
    let ours = database();
    let theirs = ours.store().database("test").unwrap();
    // All operations, each of which reports that the database is dropped.
    let ways: [fn(&Database, yesquel::Map) -> Error; 6] = [
        |database, map| database.get(map, b"key").unwrap_err(),
        |database, map| database.put(map, b"key", b"old").unwrap_err(),
        |database, map| database.row_ids(map, 1, 0).unwrap_err(),
        |database, map| database.begin().get(map, b"key").unwrap_err(),
        |database, map| database.begin().range::<&[u8]>(map, ..).next().unwrap().unwrap_err(),
        |database, map| database.run(|transaction| transaction.delete(map, b"key")).unwrap_err(),
    ];
    for way in ways {
        let old = ours.map("map").unwrap();
        assert!(theirs.drop_map("map").unwrap());
        let new = theirs.map("map").unwrap();
        theirs.put(new, b"key", b"new").unwrap();
        assert!(matches!(way(&ours, old), Error::NoMap(_)));
        assert_eq!(ours.map("map").unwrap(), new);
        assert_eq!(ours.get(new, b"key").unwrap().as_deref(), Some(&b"new"[..]));
    }
}

#[test]
fn a_database_recreated_by_another_client_is_found() {
    let ours = database();
    let old = ours.map("map").unwrap();
    ours.store().drop_database("test").unwrap();
    assert!(matches!(ours.put(old, b"key", b"old"), Err(Error::NoMap(_))));
    assert!(matches!(ours.map("map"), Err(Error::NoDatabase(_))));
    assert!(matches!(ours.existing_map("map"), Err(Error::NoDatabase(_))));
    assert!(matches!(ours.maps(), Err(Error::NoDatabase(_))));
    assert!(matches!(ours.drop_map("map"), Err(Error::NoDatabase(_))));
    let new = ours.store().create_database("test").unwrap();
    assert_eq!(ours.existing_map("map").unwrap(), None);
    let map = ours.map("map").unwrap();
    assert_ne!(map, old);
    assert_eq!(new.maps().unwrap(), [("map".to_owned(), map)]);
    ours.put(map, b"key", b"new").unwrap();
}

#[test]
fn row_ids_are_issued_once_or_refused() {
    let database = database();
    let map = database.map("map").unwrap();
    assert_eq!(database.row_ids(map, 2, 0).unwrap(), 1..3);
    for (count, above) in [(u64::MAX, 0), (1, u64::MAX), (u64::MAX, u64::MAX), (2, u64::MAX - 2)] {
        let refused = database.row_ids(map, count, above);
        assert!(matches!(refused, Err(Error::NoRowIds)), "{refused:?}");
    }
    assert_eq!(database.row_ids(map, 1, 0).unwrap(), 3..4);
    assert_eq!(database.row_ids(map, 1, 41).unwrap(), 42..43);
    database.drop_map("map").unwrap();
    assert!(matches!(database.row_ids(map, 1, 0), Err(Error::NoMap(_))));
}

#[test]
fn threads_that_create_the_same_map_share_it() {
    let database = database();
    let maps: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                // Each with a cache of its own.
                let database = database.store().database("test").unwrap();
                scope.spawn(move || database.map("one").unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(maps.iter().all(|map| *map == maps[0]));
}

#[test]
fn a_transaction_is_atomic_and_sees_its_own_writes() {
    let database = database();
    let (a, b) = (database.map("a").unwrap(), database.map("b").unwrap());
    let mut transaction = database.begin();
    transaction.put(a, b"x", b"1").unwrap();
    transaction.insert(b, b"y", b"2").unwrap();
    assert_eq!(transaction.get(a, b"x").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(database.get(a, b"x").unwrap(), None);
    transaction.commit().unwrap();
    let mut transaction = database.begin();
    transaction.delete(a, b"x").unwrap();
    drop(transaction);
    let mut transaction = database.begin();
    transaction.put(a, b"z", b"3").unwrap();
    transaction.insert(b, b"y", b"4").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Exists)));
    assert_eq!(database.get(a, b"x").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(database.get(a, b"z").unwrap(), None);
}

#[test]
fn ranges_cursors_and_savepoints_work_together() {
    let database = database();
    let map = database.map("map").unwrap();
    database
        .run(|transaction| "abcdefgh".bytes().try_for_each(|key| transaction.put(map, &[key], &[key, b'!'])))
        .unwrap();
    let mut transaction = database.begin();
    assert_eq!(keys(transaction.range::<&[u8]>(map, ..)).concat(), "abcdefgh");
    assert_eq!(keys(transaction.range(map, "c".."f")).concat(), "cde");
    assert_eq!(keys(transaction.range(map, "c"..="f")).concat(), "cdef");
    for (limit, limited) in [(0, ""), (1, "c"), (3, "cde"), (9, "cdef")] {
        assert_eq!(keys(transaction.range(map, "c"..="f").limit(limit)).concat(), limited);
    }
    assert_eq!(keys(transaction.range(map, "c"..="f").limit(2).limit(9)).concat(), "cd");
    let above = (Bound::Excluded("c"), Bound::Unbounded);
    assert_eq!(keys(transaction.range::<&str>(map, above)).concat(), "defgh");
    let savepoint = transaction.savepoint();
    transaction.delete_range(map, "b".."g");
    transaction.put(map, b"e", b"new").unwrap();
    assert_eq!(keys(transaction.range::<&[u8]>(map, ..)).concat(), "aegh");
    let mut cursor = transaction.cursor(map);
    assert_eq!(&*cursor.seek(&mut transaction, b"b").unwrap().unwrap().0, b"e");
    assert_eq!(&*cursor.previous(&mut transaction).unwrap().unwrap().0, b"a");
    assert_eq!(cursor.previous(&mut transaction).unwrap(), None);
    assert_eq!(&*cursor.seek_back(&mut transaction, b"f").unwrap().unwrap().0, b"e");
    assert_eq!(&*cursor.last(&mut transaction).unwrap().unwrap().0, b"h");
    transaction.rollback_to(savepoint).unwrap();
    assert_eq!(keys(transaction.range::<&[u8]>(map, ..)).concat(), "abcdefgh");
    transaction.delete_range(map, "a"..="b");
    transaction.commit().unwrap();
    assert_eq!(keys(database.begin().range::<&[u8]>(map, ..)).concat(), "cdefgh");
}

#[test]
fn the_first_committer_wins_and_run_retries() {
    let database = database();
    let map = database.map("map").unwrap();
    database.put(map, b"n", b"0").unwrap();
    let mut late = database.begin();
    late.get(map, b"n").unwrap();
    database.put(map, b"n", b"1").unwrap();
    late.put(map, b"n", b"2").unwrap();
    let error = late.commit().unwrap_err();
    assert!(matches!(error, Error::Conflict(_)) && error.is_retryable(), "{error}");
    // Eight threads count to a thousand together.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..125 {
                    let add = |transaction: &mut yesquel::Transaction<'_>| {
                        let value = transaction.get(map, b"count")?;
                        let count: u32 =
                            value.map_or(0, |value| String::from_utf8_lossy(&value).parse().unwrap());
                        transaction.put(map, b"count", (count + 1).to_string().as_bytes())
                    };
                    while database.run(add).is_err() {}
                }
            });
        }
    });
    assert_eq!(database.get(map, b"count").unwrap().as_deref(), Some(&b"1000"[..]));
}

#[test]
fn savepoints_belong_to_their_transaction() {
    let database = database();
    let map = database.map("map").unwrap();
    let (mut ours, mut theirs) = (database.begin(), database.begin());
    ours.put(map, b"a", b"1").unwrap();
    let savepoint = ours.savepoint();
    theirs.put(map, b"b", b"1").unwrap();
    theirs.put(map, b"c", b"1").unwrap();
    // Before and after it has savepoints of its own.
    assert!(matches!(theirs.rollback_to(savepoint), Err(Error::Savepoint(_))));
    let _ = theirs.savepoint();
    assert!(matches!(theirs.rollback_to(savepoint), Err(Error::Savepoint(_))));
    theirs.commit().unwrap();
    assert_eq!(database.begin().range::<&[u8]>(map, ..).count(), 2);
    // A later savepoint that was rolled back, at a depth that is reached again.
    ours.put(map, b"d", b"1").unwrap();
    let later = ours.savepoint();
    ours.rollback_to(savepoint).unwrap();
    assert!(matches!(ours.rollback_to(later), Err(Error::Savepoint(_))));
    ours.put(map, b"e", b"1").unwrap();
    ours.put(map, b"f", b"1").unwrap();
    assert!(matches!(ours.rollback_to(later), Err(Error::Savepoint(_))));
    let again = ours.savepoint();
    ours.put(map, b"g", b"1").unwrap();
    // The target of a rollback stays valid.
    for _ in 0..2 {
        ours.rollback_to(again).unwrap();
    }
    ours.commit().unwrap();
    assert_eq!(keys(database.begin().range::<&[u8]>(map, ..)).concat(), "abcef");
}

#[test]
fn rollback_to_a_savepoint_undoes_writes_and_keeps_reads() {
    let database = database();
    let map = database.map("map").unwrap();
    database.put(map, b"a", b"before").unwrap();
    let mut ours = database.begin();
    assert_eq!(ours.get(map, b"a").unwrap().as_deref(), Some(&b"before"[..]));
    ours.put(map, b"a", b"ours").unwrap();
    let savepoint = ours.savepoint();
    ours.insert(map, b"b", b"ours").unwrap();
    ours.delete_range::<&[u8]>(map, ..);
    ours.guard(map, &b"c"[..]..=&b"c"[..]);
    ours.rollback_all();
    // It belongs to the previous transaction.
    assert!(matches!(ours.rollback_to(savepoint), Err(Error::Savepoint(_))));
    database.put(map, b"a", b"theirs").unwrap();
    database.put(map, b"c", b"theirs").unwrap();
    assert_eq!(ours.get(map, b"a").unwrap().as_deref(), Some(&b"before"[..]));
    ours.put(map, b"d", b"ours").unwrap();
    ours.commit().unwrap();
    assert_eq!(keys(database.begin().range::<&[u8]>(map, ..)).concat(), "acd");
    assert_eq!(database.get(map, b"a").unwrap().as_deref(), Some(&b"theirs"[..]));
}

#[test]
fn maps_belong_to_their_store() {
    let (ours, theirs) = (database(), database());
    let (map, other) = (ours.map("map").unwrap(), theirs.map("map").unwrap());
    // Both have the same number; only the store differs.
    assert_eq!(map.tree(), other.tree());
    assert_ne!(map, other);
    let is_refused = |error: Error| assert!(matches!(error, Error::OtherStore), "{error:?}");
    is_refused(ours.get(other, b"key").unwrap_err());
    is_refused(ours.put(other, b"key", b"").unwrap_err());
    is_refused(ours.row_ids(other, 1, 0).unwrap_err());
    is_refused(ours.store().nodes(other).unwrap_err());
    let second = std::time::Duration::from_secs(1);
    is_refused(ours.lease::<&[u8]>(other, .., second, second).unwrap_err());
    let mut transaction = ours.begin();
    is_refused(transaction.get(other, b"key").unwrap_err());
    is_refused(transaction.put(other, b"key", b"").unwrap_err());
    is_refused(transaction.insert(other, b"key", b"").unwrap_err());
    is_refused(transaction.delete(other, b"key").unwrap_err());
    is_refused(transaction.range::<&[u8]>(other, ..).next().unwrap().unwrap_err());
    is_refused(transaction.cursor(other).last(&mut transaction).unwrap_err());
    // A cursor of the other store is refused, too.
    is_refused(theirs.begin().cursor(other).first(&mut transaction).unwrap_err());
    transaction.put(map, b"key", b"").unwrap();
    transaction.delete_range::<&[u8]>(other, ..);
    is_refused(transaction.commit().unwrap_err());
    let mut transaction = ours.begin();
    transaction.guard::<&[u8]>(other, ..);
    is_refused(transaction.commit().unwrap_err());
    assert_eq!(ours.begin().range::<&[u8]>(map, ..).count(), 0);
    // At the same server in this process it is the same map, in any database.
    let host = ours.store().host().unwrap();
    let same = Store::of_host(std::sync::Arc::clone(host)).create_database("other").unwrap();
    same.put(map, b"key", b"value").unwrap();
    assert_eq!(ours.get(map, b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Error of the application, which does not contain Yesquel's.
#[derive(Debug, PartialEq)]
enum Own {
    Enough,
    Yesquel,
}

impl From<Error> for Own {
    fn from(_: Error) -> Own {
        Own::Yesquel
    }
}

#[test]
fn application_errors_roll_back_and_conflicts_retry() {
    let database = database();
    let map = database.map("map").unwrap();
    database.put(map, b"n", b"0").unwrap();
    let mut runs = 0;
    let stopped: Result<(), Own> = database.try_run(|transaction| {
        runs += 1;
        transaction.put(map, b"n", b"1")?;
        Err(Own::Enough)
    });
    assert_eq!((stopped, runs), (Err(Own::Enough), 1));
    assert_eq!(database.get(map, b"n").unwrap().as_deref(), Some(&b"0"[..]));
    // Another transaction is first, twice: the commit reports it.
    let mut runs = 0;
    let done: Result<u8, Own> = database.try_run(|transaction| {
        runs += 1;
        let value = transaction.get(map, b"n")?;
        if runs < 3 {
            database.put(map, b"n", b"9")?;
        }
        transaction.put(map, b"n", b"2")?;
        Ok(value.map_or(0, |value| value[0]))
    });
    assert_eq!((done, runs), (Ok(b'9'), 3));
    // Errors of another transaction do not count, except for `run`.
    let mut late = database.begin();
    late.get(map, b"n").unwrap();
    late.put(map, b"n", b"3").unwrap();
    database.put(map, b"n", b"4").unwrap();
    let lost = late.commit().unwrap_err();
    assert!(matches!(lost, Error::Conflict(Refusal::Conflict(Conflict::Cell { .. }))), "{lost:?}");
    let mut lost = Some(lost);
    let mut runs = 0;
    database
        .run(|_| {
            runs += 1;
            lost.take().map_or(Ok(()), Err)
        })
        .unwrap();
    assert_eq!(runs, 2);
    let missing = database.try_run(|transaction| {
        transaction.put(map, &vec![b'x'; yesquel::limits::KEY_BYTES_MAX + 1], b"")?;
        Ok(())
    });
    assert_eq!(missing, Err(Own::Yesquel));
}

#[test]
fn a_folder_keeps_its_data() {
    let place = tempfile::tempdir().unwrap();
    {
        let store = Store::open(place.path()).unwrap();
        let database = store.create_database("kept").unwrap();
        let map = database.map("map").unwrap();
        for number in 0..2_000u32 {
            database.put(map, &number.to_be_bytes(), b"value").unwrap();
        }
        let second = Store::open(place.path()).unwrap_err();
        assert!(second.to_string().contains("in use by process"), "{second}");
        let Error::InUse(CoreError::Folder(DataFolderError::InUse { path, .. })) = second else {
            panic!("{second:?}");
        };
        assert_eq!(path, place.path());
    }
    let store = Store::open(place.path()).unwrap();
    let database = store.database("kept").unwrap();
    let map = database.existing_map("map").unwrap().unwrap();
    assert_eq!(database.begin().range::<&[u8]>(map, ..).count(), 2_000);
}

#[test]
fn maps_are_created_and_dropped_by_a_transaction() {
    let store = Store::in_memory().unwrap();
    let shop = store.create_database("shop").unwrap();
    let stock = shop.map("stock").unwrap();
    let name = |number: u64| format!("n/{number}");
    let mut transaction = shop.begin();
    transaction.put(stock, b"apples", b"7").unwrap();
    let made = transaction.create_map(&shop, name).unwrap();
    // Only the transaction that creates it sees it.
    assert_eq!(transaction.get(made, b"a").unwrap(), None);
    transaction.put(made, b"a", b"1").unwrap();
    assert_eq!(transaction.get(made, b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(transaction.range::<&[u8]>(made, ..).count(), 1);
    assert_eq!(shop.existing_map(&name(made.tree())).unwrap(), None);
    assert!(matches!(shop.get(made, b"a"), Err(Error::NoMap(_))));
    transaction.rollback();
    assert_eq!(shop.maps().unwrap().len(), 1);

    let made = shop
        .run(|transaction| {
            let made = transaction.create_map(&shop, name)?;
            transaction.put(made, b"a", b"1")?;
            Ok(made)
        })
        .unwrap();
    assert_eq!(shop.existing_map(&name(made.tree())).unwrap(), Some(made));
    assert_eq!(made.with_number(made.tree()), Some(made));
    assert_eq!(shop.get(made, b"a").unwrap().as_deref(), Some(&b"1"[..]));

    let mut transaction = shop.begin();
    assert!(!transaction.drop_map(&shop, "n/0").unwrap());
    let before = transaction.savepoint();
    assert!(transaction.drop_map(&shop, &name(made.tree())).unwrap());
    transaction.rollback_to(before).unwrap();
    transaction.commit().unwrap();
    assert_eq!(shop.maps().unwrap().len(), 2);
    assert!(shop.run(|transaction| transaction.drop_map(&shop, &name(made.tree()))).unwrap());
    assert_eq!(shop.maps().unwrap(), [("stock".to_owned(), stock)]);
    assert!(matches!(shop.get(made, b"a"), Err(Error::NoMap(_))));
}

#[test]
fn a_commit_blocked_by_a_lease_can_be_retried() {
    let store = Store::in_memory().unwrap();
    let shop = store.create_database("shop").unwrap();
    let stock = shop.map("stock").unwrap();
    let minute = std::time::Duration::from_secs(60);
    let lease = shop.lease(stock, &b"a"[..]..=&b"a"[..], minute, minute).unwrap();
    let mut waiting = shop.begin();
    waiting.put(stock, b"a", b"1").unwrap();
    assert!(matches!(waiting.try_commit(), Err(Error::Leased(_))));
    let mut leased = shop.begin();
    leased.within_lease(&lease);
    leased.put(stock, b"b", b"2").unwrap();
    leased.commit().unwrap();
    assert!(matches!(waiting.try_commit(), Err(Error::Leased(_))));
    lease.release().unwrap();
    waiting.try_commit().unwrap();
    assert_eq!(shop.get(stock, b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn placing_a_cursor_costs_no_request() {
    let store = Store::in_memory().unwrap();
    let shop = store.create_database("shop").unwrap();
    let stock = shop.map("stock").unwrap();
    for key in [b"a", b"c"] {
        shop.put(stock, key, b"").unwrap();
    }
    let mut transaction = shop.begin();
    let mut cursor = transaction.cursor(stock);
    cursor.place(b"b");
    assert_eq!(cursor.key(), Some(&b"b"[..]));
    assert_eq!(transaction.snapshot(), None);
    assert_eq!(cursor.next(&mut transaction).unwrap().map(|(key, _)| key), Some((*b"c").into()));
    cursor.place(b"b");
    assert_eq!(cursor.previous(&mut transaction).unwrap().map(|(key, _)| key), Some((*b"a").into()));
}
