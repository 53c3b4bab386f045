//! Effects of the paper's techniques (section 4.5), seen by leaving them out.

use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Engine, EngineSettings, Techniques};
use yesquel_model::ServerId;
use yesquel_server::WallTime;
use yesquel_transport::block_on;
use yesquel_tree::{Splitter, Tree, TreeError, Trees};

const SERVER: ServerId = ServerId(0);
const CELLS_MAX: usize = 8;
const CLIENTS: u64 = 8;

struct Place {
    server: EmbeddedServer,
    splitting: Trees<EmbeddedServer>,
    splitter: Splitter,
    techniques: Techniques,
    clients: Vec<Trees<EmbeddedServer>>,
    tree: Tree,
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

impl Place {
    fn new(techniques: Techniques) -> Place {
        let settings = EngineSettings { node_cells_max: CELLS_MAX, techniques, ..EngineSettings::default() };
        let server = EmbeddedServer::in_memory(settings, WallTime::default());
        let client = |number| Trees::new(Client::new(server.clone(), number));
        let splitting = client(99);
        let tree = block_on(splitting.create(SERVER)).unwrap();
        let splitter = if techniques.right_splits { Splitter::new(SERVER) } else { Splitter::left(SERVER) };
        let clients = (1..=CLIENTS).map(client).collect();
        Place { server, splitting, splitter, techniques, clients, tree }
    }

    /// Does the server's background work.
    fn split(&self) {
        loop {
            let full = self.server.with_engine(Engine::take_full);
            if full.is_empty() || !self.techniques.delegated_splits {
                return;
            }
            for node in full {
                block_on(self.splitter.split(&self.splitting, node)).unwrap();
            }
        }
    }

    /// Inserts increasing keys from all clients at the same time: each begins and reads that its
    /// key is absent, then each commits, and retries after a conflict. Returns the number of
    /// conflicts.
    fn insert(&self, keys: u64) -> u64 {
        let mut aborts = 0;
        let mut left: Vec<u64> = (0..keys).rev().collect();
        while !left.is_empty() {
            let numbers: Vec<u64> = (0..CLIENTS).filter_map(|_| left.pop()).collect();
            let mut open = Vec::new();
            for (client, number) in self.clients.iter().zip(&numbers) {
                let mut txn = client.begin();
                assert!(block_on(txn.get(self.tree, &key(*number))).unwrap().is_none());
                txn.insert(self.tree, &key(*number), b"value").unwrap();
                open.push((*number, txn));
            }
            for (number, txn) in open {
                match block_on(txn.commit()) {
                    Ok(_) => {}
                    Err(error) if error.is_conflict() => {
                        aborts += 1;
                        left.push(number);
                    }
                    Err(error) => panic!("{error}"),
                }
                self.split();
            }
        }
        aborts
    }

    /// Checks that all keys exist, in leaves of limited size.
    fn check(&self, keys: u64) {
        self.server.with_engine(|engine| engine.audit()).unwrap();
        let leaves = self.server.with_engine(|engine| engine.leaves_of(self.tree.root().tree));
        assert!(leaves.len() as u64 >= keys / (CELLS_MAX as u64 + 1), "{} leaves", leaves.len());
        let mut txn = self.splitting.begin();
        let mut cursor = txn.cursor(self.tree);
        block_on(async {
            let mut found = cursor.first(&mut txn).await.unwrap();
            for number in 0..keys {
                assert_eq!(found.map(|(key, _)| Vec::from(key)), Some(key(number).to_vec()));
                found = cursor.next(&mut txn).await.unwrap();
            }
            assert!(found.is_none());
        });
    }

    fn forward_steps(&self) -> u64 {
        self.clients.iter().map(|client| client.counters().counts().forward_steps).sum()
    }
}

const KEYS: u64 = 1_000;

#[test]
fn with_all_techniques_no_insert_aborts_and_no_leaf_is_missed() {
    let place = Place::new(Techniques::default());
    assert_eq!(place.insert(KEYS), 0);
    place.check(KEYS);
    // The growing leaf stays where it is.
    assert_eq!(place.forward_steps(), 0);
}

#[test]
fn without_right_splits_clients_miss_the_growing_leaf() {
    let place = Place::new(Techniques { right_splits: false, ..Techniques::default() });
    assert_eq!(place.insert(KEYS), 0);
    place.check(KEYS);
    // Every client, at every split.
    let splits = KEYS / CELLS_MAX as u64;
    assert!(place.forward_steps() > splits * CLIENTS / 2, "{} steps", place.forward_steps());
}

#[test]
fn without_delegated_splits_splitting_clients_conflict() {
    let place = Place::new(Techniques { delegated_splits: false, ..Techniques::default() });
    let aborts = place.insert(KEYS);
    place.check(KEYS);
    // At least one other client at each split.
    assert!(aborts >= KEYS / CELLS_MAX as u64, "{aborts}");
}

#[test]
fn without_commutative_operations_one_writer_a_node_commits() {
    let place = Place::new(Techniques { commutative_operations: false, ..Techniques::default() });
    let aborts = place.insert(KEYS);
    place.check(KEYS);
    // Of the concurrent inserts into one leaf, all but one conflict.
    assert!(aborts > KEYS * (CLIENTS - 1) / 2, "{aborts}");
}

/// Each client inserts without reads, as fast as possible: another client may already have split
/// the full leaf.
#[test]
fn concurrent_splits_lose_no_insert() {
    let place = Place::new(Techniques { delegated_splits: false, ..Techniques::default() });
    std::thread::scope(|scope| {
        for (client, first) in place.clients.iter().zip(0..) {
            let tree = place.tree;
            scope.spawn(move || {
                for number in (first..KEYS).step_by(CLIENTS as usize) {
                    loop {
                        let mut txn = client.begin();
                        txn.insert(tree, &key(number), b"value").unwrap();
                        match block_on(txn.commit()) {
                            Ok(_) => break,
                            Err(error) => assert!(error.is_conflict(), "{error}"),
                        }
                    }
                }
            });
        }
    });
    place.check(KEYS);
}

/// Two keys of one leaf, written at the same time.
#[test]
fn commutative_operations_conflict_by_key_and_others_by_node() {
    for commutative_operations in [true, false] {
        let place = Place::new(Techniques { commutative_operations, ..Techniques::default() });
        let tree = place.tree;
        let [a, b] = [0, 1].map(|number| {
            let mut txn = place.clients[number].begin();
            block_on(txn.get(tree, &key(7))).unwrap();
            txn.put(tree, &key(number as u64), b"value").unwrap();
            txn
        });
        assert!(block_on(a.commit()).is_ok());
        let second = block_on(b.commit());
        assert_eq!(second.is_err_and(|error: TreeError| error.is_conflict()), !commutative_operations);
    }
}

#[test]
fn without_a_cache_each_search_begins_at_the_root() {
    let place = Place::new(Techniques::default());
    place.insert(10 * CELLS_MAX as u64);
    place.split();
    for caches in [true, false] {
        let client = Trees::new(Client::new(place.server.clone(), 100 + u64::from(caches)));
        client.cache_inner_nodes(caches);
        let read = |number: u64| block_on(client.begin().get(place.tree, &key(number))).unwrap();
        (0..10).for_each(|number| assert!(read(number).is_some()));
        let fetches = client.counters().counts().root_fetches;
        assert_eq!(fetches, if caches { 1 } else { 10 });
    }
}
