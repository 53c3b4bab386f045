//! Martin Kleppmann's Hermitage (<https://github.com/ept/hermitage>) over ordered maps: the
//! anomalies that snapshot isolation with first-committer-wins prevents, and those that it allows
//! and that guards or serializable transactions prevent.
//!
//! Hermitage's table `test (id, value)` is a map with the rows 1 → 10 and 2 → 20, and tests have
//! Hermitage's names. A statement that updates or deletes rows reads them first, as in SQL; a
//! transaction's snapshot is that of its first read.
//!
//! Where Hermitage's SQL *blocks* at a write, because an open transaction has written the row, a
//! write returns at once here, since writes are deferred to the commit. A statement that blocks
//! there and then fails is a conflict at the commit here.

use std::{array, sync::Arc, thread};
use yesquel::{
    Address, Database, EngineSettings, Error, ListenOptions, LogOptions, Map, Server, SocketOptions, Store,
    Transaction,
};

/// Three clients of a server with Hermitage's table.
struct World {
    clients: [Database; 3],
    map: Map,
}

fn row(id: u32) -> [u8; 4] {
    id.to_be_bytes()
}

impl World {
    fn new(stores: [Store; 3]) -> World {
        let first = stores[0].create_database("hermitage").unwrap();
        let map = first.map("test").unwrap();
        first
            .run(|transaction| {
                put(transaction, map, 1, 10);
                put(transaction, map, 2, 20);
                Ok(())
            })
            .unwrap();
        World { clients: stores.map(|store| store.database("hermitage").unwrap()), map }
    }

    fn begin(&self) -> [Transaction<'_>; 3] {
        self.clients.each_ref().map(Database::begin)
    }

    /// Inserts filler rows until the table's own two are in two leaves.
    fn scatter(&self) {
        let (first, map) = (&self.clients[0], self.map);
        let filler = |number: u8| [&row(1)[..], &[number]].concat();
        first
            .run(|transaction| (0..8).try_for_each(|number| transaction.put(map, &filler(number), b"")))
            .unwrap();
        let is_between = |low: &str| low.starts_with("00000001") && low.len() > 8;
        while !first.store().nodes(map).unwrap().nodes.iter().any(|node| node.leaf && is_between(&node.low)) {
            // The server splits in the background.
            thread::yield_now();
        }
    }

    /// Returns the present rows.
    fn rows(&self) -> Vec<(u32, i64)> {
        select(&mut self.clients[2].begin(), self.map, |_| true)
    }
}

fn get(transaction: &mut Transaction<'_>, map: Map, id: u32) -> i64 {
    number(&transaction.get(map, &row(id)).unwrap().unwrap())
}

fn number(value: &[u8]) -> i64 {
    i64::from_be_bytes(value.try_into().unwrap())
}

/// Writes without reading, unlike any `UPDATE` of SQL.
fn put(transaction: &mut Transaction<'_>, map: Map, id: u32, value: i64) {
    transaction.put(map, &row(id), &value.to_be_bytes()).unwrap();
}

/// `UPDATE test SET value = … WHERE id = …`.
fn update(transaction: &mut Transaction<'_>, map: Map, id: u32, value: i64) {
    get(transaction, map, id);
    put(transaction, map, id, value);
}

/// `SELECT * FROM test WHERE …`
fn select(transaction: &mut Transaction<'_>, map: Map, is_wanted: impl Fn(i64) -> bool) -> Vec<(u32, i64)> {
    transaction
        .range::<&[u8]>(map, ..)
        .map(Result::unwrap)
        // Longer keys are fillers.
        .filter_map(|(key, value)| Some((u32::from_be_bytes((*key).try_into().ok()?), number(&value))))
        .filter(|(_, value)| is_wanted(*value))
        .collect()
}

/// `DELETE FROM test WHERE …`; returns the deleted rows.
fn delete(transaction: &mut Transaction<'_>, map: Map, is_wanted: impl Fn(i64) -> bool) -> Vec<u32> {
    let rows = select(transaction, map, is_wanted);
    rows.iter().for_each(|(id, _)| transaction.delete(map, &row(*id)).unwrap());
    rows.into_iter().map(|(id, _)| id).collect()
}

#[track_caller]
fn assert_conflict(transaction: Transaction<'_>) {
    let error = transaction.commit().unwrap_err();
    assert!(matches!(error, Error::Conflict(_)) && error.is_retryable(), "{error:?}");
}

/// Runs a case with clients in the server's process, with connections by a Unix socket, with one
/// connection that all share, and with the rows in two leaves.
fn each(case: impl Fn(&World)) {
    let store = Store::in_memory().unwrap();
    let host = store.host().unwrap();
    case(&World::new(array::from_fn(|_| Store::of_host(Arc::clone(host)))));

    let start = |settings| {
        let place = tempfile::tempdir().unwrap();
        let addresses = vec![Address::Unix(place.path().join("socket"))];
        let listen = ListenOptions { addresses, ..ListenOptions::default() };
        let folder = place.path().join("data");
        (Server::start(Some(&folder), settings, LogOptions::default(), listen).unwrap(), place)
    };
    let connect = |server: &Server| Store::connect(&server.addresses()[0], SocketOptions::default()).unwrap();
    let (server, _place) = start(EngineSettings::default());
    case(&World::new(array::from_fn(|_| connect(&server))));

    let (server, _place) = start(EngineSettings::default());
    let store = connect(&server);
    case(&World::new(array::from_fn(|_| store.clone())));

    let (server, _place) = start(EngineSettings { node_cells_max: 2, ..EngineSettings::default() });
    let world = World::new(array::from_fn(|_| connect(&server)));
    world.scatter();
    case(&world);
}

/// Write cycles. Hermitage's second `UPDATE` of row 1 blocks until the first transaction has ended.
#[test]
fn g0_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        update(&mut first, map, 1, 11);
        update(&mut second, map, 1, 12);
        update(&mut first, map, 2, 21);
        first.commit().unwrap();
        assert_eq!(world.rows(), [(1, 11), (2, 21)]);
        update(&mut second, map, 2, 22);
        assert_conflict(second);
        assert_eq!(world.rows(), [(1, 11), (2, 21)]);
    });
}

/// The same without reads: a transaction without reads cannot conflict, and is simply later as a
/// whole.
#[test]
fn g0_prevented_without_reads() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        put(&mut first, map, 1, 11);
        put(&mut second, map, 1, 12);
        put(&mut first, map, 2, 21);
        put(&mut second, map, 2, 22);
        first.commit().unwrap();
        assert_eq!(world.rows(), [(1, 11), (2, 21)]);
        second.commit().unwrap();
        assert_eq!(world.rows(), [(1, 12), (2, 22)]);
    });
}

/// Aborted reads.
#[test]
fn g1a_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        update(&mut first, map, 1, 101);
        assert_eq!(select(&mut second, map, |_| true), [(1, 10), (2, 20)]);
        first.rollback();
        assert_eq!(select(&mut second, map, |_| true), [(1, 10), (2, 20)]);
        second.commit().unwrap();
        assert_eq!(world.rows(), [(1, 10), (2, 20)]);
    });
}

/// Intermediate reads.
#[test]
fn g1b_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        update(&mut first, map, 1, 101);
        assert_eq!(select(&mut second, map, |_| true), [(1, 10), (2, 20)]);
        update(&mut first, map, 1, 11);
        first.commit().unwrap();
        // Read committed would see 11, but never 101.
        assert_eq!(select(&mut second, map, |_| true), [(1, 10), (2, 20)]);
        second.commit().unwrap();
        assert_eq!(world.rows(), [(1, 11), (2, 20)]);
    });
}

/// Circular information flow.
#[test]
fn g1c_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        update(&mut first, map, 1, 11);
        update(&mut second, map, 2, 22);
        assert_eq!(get(&mut first, map, 2), 20);
        assert_eq!(get(&mut second, map, 1), 10);
        first.commit().unwrap();
        second.commit().unwrap();
        assert_eq!(world.rows(), [(1, 11), (2, 22)]);
    });
}

/// Observed transaction vanishes. Hermitage's second transaction blocks at its first `UPDATE`.
#[test]
fn otv_prevented() {
    each(|world| {
        let ([mut first, mut second, mut third], map) = (world.begin(), world.map);
        update(&mut first, map, 1, 11);
        update(&mut first, map, 2, 19);
        update(&mut second, map, 1, 12);
        first.commit().unwrap();
        assert_eq!(get(&mut third, map, 1), 11);
        update(&mut second, map, 2, 18);
        assert_eq!(get(&mut third, map, 2), 19);
        assert_conflict(second);
        assert_eq!(select(&mut third, map, |_| true), [(1, 11), (2, 19)]);
        third.commit().unwrap();
    });
}

/// The same with a second transaction that has read nothing and therefore commits: transactions
/// that the third has observed do not vanish for it.
#[test]
fn otv_prevented_without_reads() {
    each(|world| {
        let ([mut first, mut second, mut third], map) = (world.begin(), world.map);
        put(&mut first, map, 1, 11);
        put(&mut first, map, 2, 19);
        put(&mut second, map, 1, 12);
        first.commit().unwrap();
        assert_eq!(get(&mut third, map, 1), 11);
        put(&mut second, map, 2, 18);
        second.commit().unwrap();
        assert_eq!(get(&mut third, map, 2), 19);
        assert_eq!(select(&mut third, map, |_| true), [(1, 11), (2, 19)]);
        third.commit().unwrap();
        assert_eq!(world.rows(), [(1, 12), (2, 18)]);
    });
}

/// Predicate-many-preceders, read predicates.
#[test]
fn pmp_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        assert_eq!(select(&mut first, map, |value| value == 30), []);
        second.insert(map, &row(3), &30i64.to_be_bytes()).unwrap();
        second.commit().unwrap();
        assert_eq!(select(&mut first, map, |value| value % 3 == 0), []);
        first.commit().unwrap();
        assert_eq!(world.rows(), [(1, 10), (2, 20), (3, 30)]);
    });
}

/// Predicate-many-preceders, write predicates. Hermitage's `DELETE` blocks at the row that the
/// `UPDATE` has written.
#[test]
fn pmp_of_writes_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        for (id, value) in select(&mut first, map, |_| true) {
            put(&mut first, map, id, value + 10);
        }
        // The row that will be 30, and not the one that will be 20.
        assert_eq!(delete(&mut second, map, |value| value == 20), [2]);
        first.commit().unwrap();
        assert_conflict(second);
        assert_eq!(world.rows(), [(1, 20), (2, 30)]);
    });
}

/// The same with the operation that deletes a range without reading it. After a read it conflicts
/// with later writes in the range; without one it is ordered after them.
#[test]
fn pmp_of_ranges_prevented() {
    for reads in [true, false] {
        each(|world| {
            let ([mut first, mut second, _], map) = (world.begin(), world.map);
            if reads {
                assert_eq!(get(&mut second, map, 1), 10);
            }
            second.delete_range(map, row(2)..row(9));
            first.insert(map, &row(3), &30i64.to_be_bytes()).unwrap();
            first.commit().unwrap();
            if reads {
                assert_conflict(second);
                assert_eq!(world.rows(), [(1, 10), (2, 20), (3, 30)]);
            } else {
                second.commit().unwrap();
                assert_eq!(world.rows(), [(1, 10)]);
            }
        });
    }
}

/// Lost update. Hermitage's second `UPDATE` blocks.
#[test]
fn p4_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        assert_eq!(get(&mut first, map, 1), 10);
        assert_eq!(get(&mut second, map, 1), 10);
        put(&mut first, map, 1, 11);
        put(&mut second, map, 1, 11);
        first.commit().unwrap();
        // The transaction cannot know that it would write the same value.
        assert_conflict(second);
    });
}

/// Read skew.
#[test]
fn g_single_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        assert_eq!(get(&mut first, map, 1), 10);
        assert_eq!(get(&mut second, map, 1), 10);
        assert_eq!(get(&mut second, map, 2), 20);
        update(&mut second, map, 1, 12);
        update(&mut second, map, 2, 18);
        second.commit().unwrap();
        assert_eq!(get(&mut first, map, 2), 20);
        first.commit().unwrap();
    });
}

/// Read skew by predicates.
#[test]
fn g_single_dependencies_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        assert_eq!(select(&mut first, map, |value| value % 5 == 0), [(1, 10), (2, 20)]);
        let tens = select(&mut second, map, |value| value == 10);
        tens.iter().for_each(|(id, _)| put(&mut second, map, *id, 12));
        second.commit().unwrap();
        assert_eq!(select(&mut first, map, |value| value % 3 == 0), []);
        first.commit().unwrap();
        assert_eq!(world.rows(), [(1, 12), (2, 20)]);
    });
}

/// Read skew by a predicate of a write: the row to be deleted has changed.
#[test]
fn g_single_write_1_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        assert_eq!(get(&mut first, map, 1), 10);
        assert_eq!(select(&mut second, map, |_| true), [(1, 10), (2, 20)]);
        update(&mut second, map, 1, 12);
        update(&mut second, map, 2, 18);
        second.commit().unwrap();
        assert_eq!(delete(&mut first, map, |value| value == 20), [2]);
        assert_conflict(first);
        assert_eq!(world.rows(), [(1, 12), (2, 18)]);
    });
}

/// The same, and the transaction that has read first rolls back. Hermitage's second `UPDATE` blocks
/// until then.
#[test]
fn g_single_write_2_prevented() {
    each(|world| {
        let ([mut first, mut second, _], map) = (world.begin(), world.map);
        assert_eq!(get(&mut first, map, 1), 10);
        assert_eq!(select(&mut second, map, |_| true), [(1, 10), (2, 20)]);
        update(&mut second, map, 1, 12);
        assert_eq!(delete(&mut first, map, |value| value == 20), [2]);
        update(&mut second, map, 2, 18);
        first.rollback();
        second.commit().unwrap();
        assert_eq!(world.rows(), [(1, 12), (2, 18)]);
    });
}

/// Which of two transactions guards its reads.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Guarded {
    Nobody,
    First,
    Second,
    Both,
}

const GUARDED: [Guarded; 4] = [Guarded::Nobody, Guarded::First, Guarded::Second, Guarded::Both];

impl Guarded {
    fn first(self) -> bool {
        matches!(self, Guarded::First | Guarded::Both)
    }

    fn second(self) -> bool {
        matches!(self, Guarded::Second | Guarded::Both)
    }

    /// Commits the one and then the other, which must conflict if either guards: guards conflict
    /// with writes of others both ways.
    #[track_caller]
    fn commit(self, transactions: [Transaction<'_>; 2]) {
        let [one, other] = transactions;
        one.commit().unwrap();
        if self == Guarded::Nobody {
            other.commit().unwrap();
        } else {
            assert_conflict(other);
        }
    }
}

/// Write skew: allowed, unless the reads are guarded.
#[test]
fn g2_item_prevented_by_guards() {
    for (guarded, is_swapped) in GUARDED.into_iter().flat_map(|guarded| [(guarded, false), (guarded, true)]) {
        each(|world| {
            let ([mut first, mut second, _], map) = (world.begin(), world.map);
            for transaction in [&mut first, &mut second] {
                assert_eq!((get(transaction, map, 1), get(transaction, map, 2)), (10, 20));
            }
            put(&mut first, map, 1, 11);
            put(&mut second, map, 2, 21);
            // Only keys that the other one writes: own writes conflict anyway.
            if guarded.first() {
                first.guard(map, row(2)..=row(2));
            }
            if guarded.second() {
                second.guard(map, row(1)..=row(1));
            }
            guarded.commit(if is_swapped { [second, first] } else { [first, second] });
            let (is_first, is_second) = match (guarded, is_swapped) {
                (Guarded::Nobody, _) => (true, true),
                (_, is_swapped) => (!is_swapped, is_swapped),
            };
            let value = |own: i64, is_done: bool| own + i64::from(is_done);
            assert_eq!(world.rows(), [(1, value(10, is_first)), (2, value(20, is_second))]);
        });
    }
}

/// Anti-dependency cycles, by absent rows: allowed, unless their range is guarded.
#[test]
fn g2_prevented_by_guards() {
    for guarded in GUARDED {
        each(|world| {
            let ([mut first, mut second, _], map) = (world.begin(), world.map);
            assert_eq!(select(&mut first, map, |value| value % 3 == 0), []);
            assert_eq!(select(&mut second, map, |value| value % 3 == 0), []);
            first.insert(map, &row(3), &30i64.to_be_bytes()).unwrap();
            second.insert(map, &row(4), &42i64.to_be_bytes()).unwrap();
            if guarded.first() {
                first.guard::<&[u8]>(map, ..);
            }
            if guarded.second() {
                second.guard::<&[u8]>(map, ..);
            }
            guarded.commit([first, second]);
            let both: &[(u32, i64)] = &[(3, 30), (4, 42)];
            let expected = if guarded == Guarded::Nobody { both } else { &both[..1] };
            assert_eq!(world.rows()[2..], *expected);
        });
    }
}

/// Anti-dependency cycles of two edges (Fekete et al., 2004): a read-only transaction sees a state
/// that no order of the two writers gives.
#[test]
fn g2_two_edges_prevented_by_guards() {
    for is_guarded in [false, true] {
        each(|world| {
            let ([mut first, mut second, mut third], map) = (world.begin(), world.map);
            assert_eq!(select(&mut first, map, |_| true), [(1, 10), (2, 20)]);
            let value = get(&mut second, map, 2);
            put(&mut second, map, 2, value + 5);
            second.commit().unwrap();
            assert_eq!(select(&mut third, map, |_| true), [(1, 10), (2, 25)]);
            third.commit().unwrap();
            update(&mut first, map, 1, 0);
            if is_guarded {
                first.guard::<&[u8]>(map, ..);
                assert_conflict(first);
                assert_eq!(world.rows(), [(1, 10), (2, 25)]);
            } else {
                first.commit().unwrap();
                assert_eq!(world.rows(), [(1, 0), (2, 25)]);
            }
        });
    }
}

/// Begins serializable transactions.
fn begin_serializable(world: &World) -> [Transaction<'_>; 3] {
    let mut transactions = world.begin();
    transactions.iter_mut().for_each(Transaction::serializable);
    transactions
}

/// Commits one of two transactions, and then the other, which conflicts.
#[track_caller]
fn commit_one([first, second]: [Transaction<'_>; 2], is_swapped: bool) {
    let (one, other) = if is_swapped { (second, first) } else { (first, second) };
    one.commit().unwrap();
    assert_conflict(other);
}

/// The anti-dependency cycles above with serializable transactions: the one that commits last fails.
#[test]
fn g2_prevented_by_serializable_transactions() {
    for is_swapped in [false, true] {
        each(|world| {
            let ([mut first, mut second, _], map) = (begin_serializable(world), world.map);
            for transaction in [&mut first, &mut second] {
                assert_eq!((get(transaction, map, 1), get(transaction, map, 2)), (10, 20));
            }
            put(&mut first, map, 1, 11);
            put(&mut second, map, 2, 21);
            commit_one([first, second], is_swapped);
        });
        each(|world| {
            let ([mut first, mut second, _], map) = (begin_serializable(world), world.map);
            assert_eq!(select(&mut first, map, |value| value % 3 == 0), []);
            assert_eq!(select(&mut second, map, |value| value % 3 == 0), []);
            first.insert(map, &row(3), &30i64.to_be_bytes()).unwrap();
            second.insert(map, &row(4), &42i64.to_be_bytes()).unwrap();
            commit_one([first, second], is_swapped);
        });
        // A row that is absent, and reads before a savepoint.
        each(|world| {
            let ([mut first, mut second, _], map) = (begin_serializable(world), world.map);
            let savepoint = first.savepoint();
            assert_eq!(first.get_many(&[(map, &row(4)), (map, &row(1))]).unwrap()[0], None);
            put(&mut first, map, 1, 12);
            first.rollback_to(savepoint).unwrap();
            assert_eq!(second.get_near(map, &row(3)).unwrap(), None);
            put(&mut first, map, 3, 30);
            put(&mut second, map, 4, 42);
            commit_one([first, second], is_swapped);
        });
    }
}

/// A read-only transaction sees a state of the writers' order.
#[test]
fn g2_two_edges_prevented_by_serializable_transactions() {
    each(|world| {
        let ([mut first, mut second, mut third], map) = (begin_serializable(world), world.map);
        assert_eq!(select(&mut first, map, |_| true), [(1, 10), (2, 20)]);
        let value = get(&mut second, map, 2);
        put(&mut second, map, 2, value + 5);
        second.commit().unwrap();
        assert_eq!(select(&mut third, map, |_| true), [(1, 10), (2, 25)]);
        third.try_commit().unwrap();
        assert!(!third.has_sent_commit());
        update(&mut first, map, 1, 0);
        assert_conflict(first);
        assert_eq!(world.rows(), [(1, 10), (2, 25)]);
    });
}

/// Transactions whose reads and writes do not meet commit, also beside those in the same leaf.
#[test]
fn serializable_transactions_conflict_by_keys() {
    each(|world| {
        let ([mut first, mut second, mut third], map) = (begin_serializable(world), world.map);
        update(&mut first, map, 1, 11);
        update(&mut second, map, 2, 21);
        assert_eq!(third.range(map, row(3)..row(9)).count(), 0);
        third.insert(map, &row(9), &90i64.to_be_bytes()).unwrap();
        [first, second, third].into_iter().for_each(|transaction| _ = transaction.commit().unwrap());
        assert_eq!(world.rows(), [(1, 11), (2, 21), (9, 90)]);
    });
}
