//! The check of a cluster's trees and of its catalog.

use crate::cluster::Cluster;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use yesquel::{
    CheckObserver, CheckProgress, CheckSummary, Error, FoundFault, NodeId, Placement, ServerId,
    SocketOptions, Store, TreeId,
};
use yesquel_client::{Client, Writes};
use yesquel_model::{KeyRange, LocalId};
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::{Tree, Trees};
use yesquel_wire::{NewNode, NodeKind, NodeOperation, WriteOperation};

/// Collects faults: their places and codes.
#[derive(Default)]
struct Faults(Vec<FoundFault>);

impl CheckObserver for Faults {
    fn fault(&mut self, found: &FoundFault) {
        self.0.push(found.clone());
    }

    fn progress(&mut self, _: &CheckProgress) -> bool {
        true
    }
}

/// Returns the faults as codes and places, in order.
fn check(store: &Store, database: Option<&str>) -> (CheckSummary, Vec<(&'static str, String)>) {
    let mut faults = Faults::default();
    let summary = store.check(database, &mut faults).unwrap();
    assert_eq!(summary.faults, faults.0.len() as u64);
    let place = |found: &FoundFault| match (&found.database, &found.map, found.tree) {
        (Some(database), Some(map), _) => format!("{database}/{map}"),
        (_, _, Some(tree)) => format!("{tree}"),
        _ => String::new(),
    };
    let mut all: Vec<_> = faults.0.iter().map(|found| (found.fault.code(), place(found))).collect();
    all.sort();
    (summary, all)
}

/// Trees over all servers of a cluster.
fn trees_of(cluster: &Cluster) -> Trees<SocketTransport> {
    let transport = SocketTransport::connect(&cluster.addresses(&[0, 1, 2]), 77, SocketOptions::default());
    Trees::new(Client::new(transport.unwrap(), 77))
}

/// Waits until each group knows how all transactions have ended.
fn settle(store: &Store) {
    let undecided = |group| store.status_of(ServerId(group)).unwrap().transactions.undecided;
    while (0..3).any(|group| undecided(group) > 0) {
        std::thread::yield_now();
    }
}

/// Stops a writer at the end of its scope, also if the test fails.
struct StopsWriter<'a>(&'a AtomicBool);

impl Drop for StopsWriter<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn catalog() -> Tree {
    Tree::at(NodeId::root(TreeId::default(), ServerId(0)))
}

fn tree_of(map: yesquel::Map) -> Tree {
    Tree::at(NodeId::root(TreeId::new(map.tree()).unwrap(), map.group()))
}

#[test]
fn a_cluster_beside_writers_has_no_faults() {
    let cluster = Cluster::start();
    let store = cluster.connect(&[1]).unwrap();
    let database = store.create_database_at("wide", &Placement::Tables).unwrap();
    let maps: Vec<_> = (0..4).map(|number| database.map(&format!("map {number}")).unwrap()).collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let theirs = cluster.connect(&[2]).unwrap();
            let database = theirs.database("wide").unwrap();
            for round in 0u64.. {
                // Keys for splits, a long value now and then, deletes, and maps that come and go.
                let outcome = database.run(|transaction| {
                    for (at, map) in maps.iter().enumerate() {
                        for key in round * 50..(round + 1) * 50 {
                            transaction.put(*map, &key.to_be_bytes(), &[at as u8; 200])?;
                        }
                    }
                    transaction.put(maps[0], b"long", &vec![round as u8; 100_000])?;
                    transaction.delete(maps[1], &(round / 2 * 50).to_be_bytes())
                });
                outcome.unwrap();
                let name = format!("other {}", round % 3);
                let _ = theirs.create_database_at(&name, &Placement::Tables).map(|other| {
                    let map = other.map("map").unwrap();
                    other.put(map, b"k", b"v").unwrap();
                });
                let _ = theirs.drop_database(&format!("other {}", (round + 1) % 3));
                if is_done.load(Relaxed) {
                    return;
                }
            }
        });
        let _stops = StopsWriter(&is_done);
        for _ in 0..10 {
            let (summary, faults) = check(&store, None);
            assert_eq!(faults, []);
            assert!(summary.databases >= 1 && summary.trees >= 3 + 4, "{summary:?}");
        }
    });
    let (summary, faults) = check(&store, Some("wide"));
    assert_eq!((faults, summary.databases, summary.counts.long_values), (vec![], 1, 1));
    assert!(matches!(store.check(Some("none"), &mut Faults::default()), Err(Error::NoDatabase(_))));
}

#[test]
fn faults_of_the_catalog_and_of_trees_are_found() {
    let cluster = Cluster::start();
    let store = cluster.connect(&[0]).unwrap();
    let database = store.create_database_at("shop", &Placement::Tables).unwrap();
    let map = |name: &str| database.map(name).unwrap();
    let (lost, twin, good) = (map("lost"), map("twin"), map("good"));
    for map in [lost, twin, good] {
        database.put(map, b"key", b"value").unwrap();
    }
    let trees = trees_of(&cluster);
    let entry = block_on(trees.begin().get(catalog(), b"dshop")).unwrap().unwrap();
    let number = u64::from_be_bytes(*entry.first_chunk().unwrap());
    let map_key = |number: u64, name: &[u8]| [b"m", &number.to_be_bytes()[..], name].concat();
    let root = |tree: Tree| tree.root().to_bits().to_be_bytes();
    let unnamed = block_on(trees.create(ServerId(1))).unwrap();
    let strange = block_on(trees.create(ServerId(2))).unwrap();
    let mut transaction = trees.begin();
    transaction.drop_tree(tree_of(lost), &[]);
    transaction.put(catalog(), &map_key(number, b"twins"), &root(tree_of(twin))).unwrap();
    transaction.put(catalog(), &map_key(999, b"map"), &root(strange)).unwrap();
    transaction.put(catalog(), b"x", b"").unwrap();
    transaction.put(catalog(), &map_key(number, b"short"), b"short").unwrap();
    transaction.put(catalog(), b"dother", &number.to_be_bytes()).unwrap();
    block_on(transaction.commit()).unwrap();
    // A node that its tree does not lead to.
    let mut writes = Writes::new();
    let node = NodeId { local: LocalId(u64::MAX), ..tree_of(good).root() };
    let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::from(*b"k") };
    writes.push(&NodeOperation { node, write: WriteOperation::Create(new) });
    block_on(trees.client().commit(None, &writes)).unwrap();
    settle(&store);
    let (summary, faults) = check(&store, None);
    let tree = |tree: Tree| tree.root().tree.number().to_string();
    let mut expected = vec![
        ("no_tree", "shop/lost".to_owned()),
        ("unreached_node", "shop/good".to_owned()),
        ("same_tree", "shop/twins".to_owned()),
        ("no_database", tree(strange)),
        ("unnamed_tree", tree(unnamed)),
        ("unreadable_entry", String::new()),
        ("unreadable_entry", String::new()),
        ("same_database", String::new()),
    ];
    expected.sort();
    assert_eq!(faults, expected);
    assert_eq!((summary.faults, summary.databases), (8, 2));
}

#[test]
fn trees_of_a_group_that_does_not_answer_are_not_checked() {
    let mut cluster = Cluster::start();
    let store = cluster.connect(&[0, 2]).unwrap();
    let database = store.create_database_at("shop", &Placement::Tables).unwrap();
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        let map = database.maps_at(&[(name, ServerId(number as u16))]).unwrap()[0];
        database.put(map, b"key", b"value").unwrap();
    }
    settle(&store);
    cluster.stop(1);
    let (summary, faults) = check(&store, None);
    assert_eq!(faults, [("no_answer", String::new()), ("not_checked", "shop/b".to_owned())]);
    // Two maps and two catalogs.
    assert_eq!((summary.trees, summary.databases), (4, 1));
}
