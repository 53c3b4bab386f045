//! What things cost in round trips, and how seldom a root is fetched: the
//! paper's figure 10, on one server.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

use yesquel_client::Client;
use yesquel_engine::{Engine, Settings};
use yesquel_model::{KeyRange, ServerId};
use yesquel_server::WallTime;
use yesquel_transport::{Embedded, block_on};
use yesquel_tree::{Splitter, Tree, Trees};

const SERVER: ServerId = ServerId(0);

struct Place {
    server: Embedded,
    splitting: Trees<Embedded>,
    splitter: Splitter,
    tree: Tree,
    clients: u64,
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

impl Place {
    fn new(settings: Settings) -> Place {
        let server = Embedded::in_memory(settings, WallTime::default());
        let splitting = Trees::new(Client::new(server.clone(), 0));
        let tree = block_on(splitting.create(SERVER)).unwrap();
        Place { server, splitting, splitter: Splitter::new(SERVER), tree, clients: 0 }
    }

    /// A client that knows nothing.
    fn client(&mut self) -> Trees<Embedded> {
        self.clients += 1;
        Trees::new(Client::new(self.server.clone(), self.clients))
    }

    fn split(&self) {
        loop {
            let full = self.server.with_engine(Engine::take_full);
            if full.is_empty() {
                return;
            }
            for node in full {
                block_on(self.splitter.split(&self.splitting, node)).unwrap();
            }
        }
    }

    fn load(&mut self, keys: u64) -> Trees<Embedded> {
        let client = self.client();
        for number in 0..keys {
            let mut txn = client.begin();
            txn.insert(self.tree, &key(number), b"value").unwrap();
            block_on(txn.commit()).unwrap();
            self.split();
        }
        client
    }
}

/// Requests that something takes.
fn requests<T>(client: &Trees<Embedded>, act: impl FnOnce() -> T) -> u64 {
    let before = client.client().counters().counts().requests;
    act();
    client.client().counters().counts().requests - before
}

#[test]
fn everyday_things_take_the_round_trips_that_the_design_allows() {
    let mut place = Place::new(Settings::default());
    let client = place.load(2_000);
    let tree = place.tree;
    // All inner nodes are known after a walk.
    block_on(async {
        let mut txn = client.begin();
        let mut cursor = txn.cursor(tree);
        let mut found = cursor.first(&mut txn).await.unwrap();
        while found.is_some() {
            found = cursor.next(&mut txn).await.unwrap();
        }
    });
    let read = requests(&client, || {
        let mut txn = client.begin();
        assert!(block_on(txn.get(tree, &key(777))).unwrap().is_some());
        block_on(txn.commit()).unwrap();
    });
    assert_eq!(read, 1, "a point read");
    let update = requests(&client, || {
        let mut txn = client.begin();
        assert!(block_on(txn.get(tree, &key(777))).unwrap().is_some());
        txn.put(tree, &key(777), b"new").unwrap();
        block_on(txn.commit()).unwrap();
    });
    assert_eq!(update, 2, "an update: the read and the commit");
    let insert = requests(&client, || {
        let mut txn = client.begin();
        txn.insert(tree, &key(5_000), b"new").unwrap();
        block_on(txn.commit()).unwrap();
    });
    assert_eq!(insert, 1, "an insert: the commit");
    let scan = requests(&client, || {
        block_on(async {
            let mut txn = client.begin();
            let mut cursor = txn.cursor(tree);
            cursor.seek(&mut txn, &key(1_000)).await.unwrap().unwrap();
            for _ in 0..5 {
                cursor.next(&mut txn).await.unwrap().unwrap();
            }
        });
    });
    assert!(scan <= 2, "a scan within a leaf, or two: {scan}");
    let many = requests(&client, || {
        let mut txn = client.begin();
        for number in 0..50 {
            txn.put(tree, &key(number * 40), b"many").unwrap();
        }
        txn.delete_range(tree, &KeyRange::new(key(101), key(119)));
        block_on(txn.commit()).unwrap();
    });
    assert_eq!(many, 1, "many writes: the commit");
}

#[test]
fn a_client_that_only_reads_learns_the_tree_once() {
    let mut place = Place::new(Settings::default());
    drop(place.load(2_000));
    let (client, tree) = (place.client(), place.tree);
    let read = |number| {
        requests(&client, || assert!(block_on(client.begin().get(tree, &key(number))).unwrap().is_some()))
    };
    // The root is no leaf, is fetched, and then the leaf.
    assert_eq!(read(0), 3);
    for number in (0..2_000).step_by(7) {
        assert_eq!(read(number), 1, "{number}");
    }
    assert_eq!(client.counters().counts().root_fetches, 1);
}

#[test]
fn a_root_is_hardly_ever_fetched() {
    let settings = Settings { node_cells_max: 32, ..Settings::default() };
    let mut place = Place::new(settings);
    drop(place.load(5_000));
    let tree = place.tree;
    let clients: Vec<Trees<Embedded>> = (0..50).map(|_| place.client()).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let root_fetches = |clients: &[Trees<Embedded>]| -> u64 {
        clients.iter().map(|client| client.counters().counts().root_fetches).sum()
    };
    // Each has to learn the tree once.
    for client in &clients {
        for number in (0..5_000).step_by(10) {
            assert!(block_on(client.begin().get(tree, &key(number))).unwrap().is_some());
        }
    }
    let learned = root_fetches(&clients);
    const OPERATIONS: u64 = 40_000;
    for number in 0..OPERATIONS {
        let client = &clients[(number % 50) as usize];
        let mut txn = client.begin();
        let key = key(next(5_000));
        block_on(txn.get(tree, &key)).unwrap();
        if number % 2 == 0 {
            txn.put(tree, &key, b"updated").unwrap();
        }
        block_on(txn.commit()).unwrap();
    }
    assert_eq!(root_fetches(&clients), learned, "reads and updates");
    for number in 0..OPERATIONS {
        let client = &clients[(number % 50) as usize];
        let mut txn = client.begin();
        txn.put(tree, &key(next(1 << 40)), b"inserted").unwrap();
        block_on(txn.commit()).unwrap();
        place.split();
    }
    let inserts = root_fetches(&clients) - learned;
    println!("{inserts} root fetches of {OPERATIONS} inserts");
    assert!(inserts * 500 < OPERATIONS, "{inserts} of {OPERATIONS} inserts, which is not under 0.2 %");
}
