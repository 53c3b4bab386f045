//! Bulk-loaded maps: after a commit, after a rollback, and after the death of the process.

use std::sync::Arc;
use yesquel::{
    Caller, Database, EngineSettings, Error, Host, ManualTime, Map, ReplySink, Store, Transaction,
};

/// Sink of a server without sockets.
#[derive(Clone)]
struct Nobody;

impl ReplySink for Nobody {
    fn deliver(&self, _: Caller, _: &[u8]) {}
}

/// Clients of one server, with a manual clock.
struct Place {
    host: Arc<Host>,
    clock: ManualTime,
}

impl Place {
    fn new() -> Place {
        let clock = ManualTime::default();
        let host = Host::in_memory(EngineSettings::default(), clock.clone(), Nobody).unwrap();
        Place { host: Arc::new(host), clock }
    }

    /// Returns a client that flushes as early as possible.
    fn client(&self) -> Store {
        let store = Store::of_host(Arc::clone(&self.host));
        store.set_bulk_load_bytes(1);
        store
    }

    /// Advances the clock.
    fn pass(&self, ms: u64) {
        for _ in 0..ms / 50 {
            self.clock.pass(50);
            self.host.transport().tick();
        }
    }

    /// Returns the trees at the server.
    fn trees(&self) -> Vec<u64> {
        let status = self.client().status().unwrap();
        status.trees.iter().map(|tree| tree.tree).filter(|tree| *tree > 0).collect()
    }
}

fn filled<'a>(database: &'a Database, name: &str) -> (Transaction<'a>, Map) {
    let mut transaction = database.begin();
    let map = transaction.create_map(database, |_| name.to_owned()).unwrap();
    for number in 0..100_u32 {
        transaction.insert(map, &number.to_be_bytes(), &[7; 100]).unwrap();
    }
    (transaction, map)
}

fn count(database: &Database, map: Map) -> usize {
    database.begin().range::<&[u8]>(map, ..).map(Result::unwrap).count()
}

#[test]
fn a_new_map_is_visible_to_others_after_the_commit_only() {
    let place = Place::new();
    let (ours, theirs) = (place.client(), place.client());
    let database = ours.create_database("shop").unwrap();
    let (mut transaction, map) = filled(&database, "goods");
    assert_eq!(place.trees(), [map.tree()], "it is at the server before the commit");
    let other = theirs.database("shop").unwrap();
    assert_eq!(other.existing_map("goods").unwrap(), None);
    assert_eq!(other.maps().unwrap().len(), 0);
    // An insert of a flushed key fails at once, and flushed keys are visible.
    let sent = transaction.insert(map, &7_u32.to_be_bytes(), b"");
    assert!(matches!(sent, Err(Error::Exists)), "{sent:?}");
    transaction.delete(map, &7_u32.to_be_bytes()).unwrap();
    assert_eq!(transaction.get(map, &7_u32.to_be_bytes()).unwrap(), None);
    assert_eq!(transaction.range::<&[u8]>(map, ..).count(), 99);
    transaction.commit().unwrap();
    let map = other.existing_map("goods").unwrap().unwrap();
    assert_eq!(count(&other, map), 99);
}

#[test]
fn rolled_back_and_conflicting_loads_leave_nothing() {
    let place = Place::new();
    let store = place.client();
    let database = store.create_database("shop").unwrap();
    let (transaction, _) = filled(&database, "goods");
    assert_eq!(place.trees().len(), 1);
    transaction.rollback();
    place.pass(5_000);
    assert!(place.trees().is_empty());
    // Another transaction takes the name meanwhile.
    let (transaction, _) = filled(&database, "goods");
    let theirs = database.map("goods").unwrap();
    let lost = transaction.commit();
    assert!(matches!(lost, Err(Error::Conflict(_) | Error::Exists)), "{lost:?}");
    place.pass(5_000);
    assert_eq!(place.trees(), [theirs.tree()]);
}

#[test]
fn loads_of_dead_processes_are_collected_and_those_of_live_ones_are_not() {
    let place = Place::new();
    let (ours, theirs) = (place.client(), place.client());
    let database = ours.create_database("shop").unwrap();
    let other = theirs.database("shop").unwrap();
    let (alive, kept) = filled(&other, "kept");
    let (dead, left) = filled(&database, "left");
    // Like a killed process: without any message.
    drop(dead);
    place.pass(1_000);
    assert_eq!(place.trees(), [kept.tree(), left.tree()]);
    // Its snapshot is not the oldest one held, so that it may be readable.
    let (transaction, _) = filled(&database, "next");
    transaction.rollback();
    assert!(place.trees().contains(&left.tree()));
    alive.commit().unwrap();
    place.pass(5_000);
    let (transaction, next) = filled(&database, "next");
    transaction.commit().unwrap();
    place.pass(5_000);
    assert_eq!(place.trees(), [kept.tree(), next.tree()]);
    assert_eq!((count(&other, kept), count(&database, next)), (100, 100));
}

#[test]
fn a_load_in_progress_is_dropped_with_its_database() {
    let place = Place::new();
    let (ours, theirs) = (place.client(), place.client());
    let database = ours.create_database("shop").unwrap();
    let (transaction, _) = filled(&database, "goods");
    theirs.drop_database("shop").unwrap();
    let lost = transaction.commit();
    assert!(lost.is_err(), "{lost:?}");
    place.pass(5_000);
    assert!(place.trees().is_empty());
}
