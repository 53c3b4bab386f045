//! Clients that come while the home group is down: they find databases by the copies of names at the
//! other machines.

use crate::cluster::Cluster;
use std::os::unix::net::UnixListener;
use yesquel::{Address, Database, Error, Placement, ServerId, Store};

const LONG: &[u8] = &[7; 1 << 20];

/// Waits until the copies at some groups have all names.
fn await_copies(store: &Store, groups: &[u16]) {
    for group in groups {
        while !store.is_name_copy_current(ServerId(*group)).unwrap() {
            std::thread::yield_now();
        }
    }
}

/// Creates a database with a map at each of the groups 1 and 2.
fn create_shop(store: &Store) -> Database {
    let placement: Placement = "1,2".parse().unwrap();
    let shop = store.create_database_at("shop", &placement).unwrap();
    let maps = ["a", "b"].map(|name| shop.map(name).unwrap());
    assert_eq!(maps.map(|map| map.group()), [2, 1].map(ServerId));
    shop.run(|transaction| maps.iter().try_for_each(|map| transaction.put(*map, b"key", b"value"))).unwrap();
    shop
}

fn is_unreachable<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::HomeGroupUnreachable(_))), "{outcome:?}");
}

/// Reads and writes the maps as a new client.
fn use_shop(store: &Store, own: &[u8]) {
    let shop = store.database("shop").unwrap();
    let maps = ["a", "b"].map(|name| shop.map(name).unwrap());
    for map in maps {
        assert_eq!(shop.get(map, b"key").unwrap().as_deref(), Some(&b"value"[..]));
        shop.put(map, own, b"1").unwrap();
    }
    // At both groups, and with nodes for long values, whose numbers the home group issues.
    shop.run(|transaction| {
        transaction.delete(maps[0], own)?;
        maps.iter().try_for_each(|map| transaction.put(*map, &[own, b"-long"].concat(), LONG))
    })
    .unwrap();
    assert_eq!(shop.get(maps[0], own).unwrap(), None);
    assert_eq!(shop.row_ids(maps[1], 1, 0).unwrap().count(), 1);
}

#[test]
fn new_clients_use_maps_while_the_home_group_is_down() {
    let mut cluster = Cluster::start();
    let before = cluster.connect(&[0]).unwrap();
    create_shop(&before);
    await_copies(&before, &[1, 2]);
    cluster.stop(0);
    // By an address of another machine, and by a list whose first one is down.
    let stores = [&[2][..], &[0, 1], &[1]].map(|servers| cluster.connect(servers).unwrap());
    for (number, store) in stores.iter().enumerate() {
        use_shop(store, &[number as u8]);
    }
    let [store, ..] = stores;
    let shop = store.database("shop").unwrap();
    assert!(shop.is_from_copy());
    let long: Vec<_> = (0..3).map(|number| [&[number][..], b"-long"].concat()).collect();
    for (key, map) in long.iter().zip(["b", "a", "b"]) {
        assert_eq!(shop.get(shop.map(map).unwrap(), key).unwrap().as_deref(), Some(LONG));
    }
    // A copy does not say that something does not exist.
    is_unreachable(store.database("other"));
    is_unreachable(store.database_or_create("other"));
    is_unreachable(store.database_with_maps("shop", ["a", "new"]));
    is_unreachable(shop.existing_map("new"));
    // What needs the home group says so.
    is_unreachable(shop.map("new"));
    is_unreachable(shop.drop_map("a"));
    is_unreachable(store.drop_database("shop"));
    is_unreachable(store.databases());
    cluster.restart(0);
    let new = shop.map("new").unwrap();
    shop.put(new, b"key", b"value").unwrap();
    while store.database("shop").unwrap().is_from_copy() {
        std::thread::yield_now();
    }
    assert_eq!(store.databases().unwrap(), ["shop"]);
}

/// A client that has changed names takes no copy from before.
#[test]
fn a_client_uses_no_copy_from_before_its_own_change() {
    let mut cluster = Cluster::start();
    let own = cluster.connect(&[0, 1, 2]).unwrap();
    create_shop(&own);
    await_copies(&own, &[1, 2]);
    for server in [1, 2] {
        cluster.stop(server);
    }
    own.create_database_at("other", &"0".parse().unwrap()).unwrap();
    cluster.stop(0);
    for server in [1, 2] {
        cluster.restart(server);
    }
    use_shop(&cluster.connect(&[2]).unwrap(), b"another");
    is_unreachable(own.database("shop"));
}

/// A machine that accepts connections and does not answer is asked for a limited time.
#[test]
fn a_home_group_that_hangs_is_not_waited_for() {
    let mut cluster = Cluster::start();
    let before = cluster.connect(&[0]).unwrap();
    create_shop(&before);
    await_copies(&before, &[1, 2]);
    cluster.stop(0);
    let [Address::Unix(path)] = &cluster.addresses(&[0])[..] else { panic!() };
    let _listener = UnixListener::bind(path).unwrap();
    let store = cluster.connect(&[1]).unwrap();
    use_shop(&store, b"own");
    assert!(!yesquel::was_cancelled());
}

/// The home group's answer counts, though copies still name what was dropped.
#[test]
fn an_answer_of_the_home_group_counts() {
    let cluster = Cluster::start();
    let store = cluster.connect(&[0, 1]).unwrap();
    let shop = create_shop(&store);
    await_copies(&store, &[1, 2]);
    shop.drop_map("a").unwrap();
    let other = cluster.connect(&[1]).unwrap();
    // However slow this machine is.
    other.set_home_patience(std::time::Duration::from_secs(3_600));
    assert_eq!(other.database("shop").unwrap().existing_map("a").unwrap(), None);
    store.drop_database("shop").unwrap();
    assert!(matches!(other.database("shop"), Err(Error::NoDatabase(_))));
    await_copies(&store, &[1, 2]);
}

/// A machine that starts while the home group is down has its copy in its folder, and the copy is old.
#[test]
fn an_old_copy_names_no_wrong_data() {
    let mut cluster = Cluster::start();
    let own = cluster.connect(&[0, 1, 2]).unwrap();
    let placement: Placement = "2".parse().unwrap();
    let create = |value: &[u8]| {
        let shop = own.create_database_at("shop", &placement).unwrap();
        shop.put(shop.map("a").unwrap(), b"key", value).unwrap();
    };
    create(b"old");
    await_copies(&own, &[1, 2]);
    cluster.stop(1);
    own.drop_database("shop").unwrap();
    create(b"new");
    await_copies(&own, &[2]);
    cluster.stop(0);
    cluster.restart(1);
    // A client that asks machine 1 first.
    let other = cluster.connect(&[1]).unwrap();
    let shop = other.database("shop").unwrap();
    assert!(shop.is_from_copy());
    let gone = shop.map("a").unwrap();
    let read = shop.get(gone, b"key");
    assert!(matches!(read, Err(Error::NoMap(_))), "{read:?}");
    let written = shop.put(gone, b"key", b"lost");
    assert!(matches!(written, Err(Error::NoMap(_))), "{written:?}");
    cluster.restart(0);
    await_copies(&own, &[1, 2]);
    // Now all sources agree.
    let shop = other.database("shop").unwrap();
    assert_eq!(shop.get(shop.map("a").unwrap(), b"key").unwrap().as_deref(), Some(&b"new"[..]));
}
