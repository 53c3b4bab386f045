//! Costs in round trips, and how rarely a root is fetched: the paper's figure 10, on one server.

use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Engine, EngineSettings};
use yesquel_model::{KeyRange, ServerId};
use yesquel_seeds::Random;
use yesquel_server::ManualTime;
use yesquel_transport::block_on;
use yesquel_tree::{Splitter, Tree, Trees};

const SERVER: ServerId = ServerId(0);

struct Place {
    server: EmbeddedServer,
    splitting: Trees<EmbeddedServer>,
    splitter: Splitter,
    tree: Tree,
    clients: u64,
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

impl Place {
    fn new(settings: EngineSettings) -> Place {
        let server = EmbeddedServer::in_memory(settings, ManualTime::default());
        let splitting = Trees::new(Client::new(server.clone(), 0));
        let tree = block_on(splitting.create(SERVER)).unwrap();
        Place { server, splitting, splitter: Splitter::new(SERVER), tree, clients: 0 }
    }

    /// Returns a client with an empty cache.
    fn client(&mut self) -> Trees<EmbeddedServer> {
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

    fn load(&mut self, keys: u64) -> Trees<EmbeddedServer> {
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

/// Returns the number of requests of an action.
fn requests<T>(client: &Trees<EmbeddedServer>, act: impl FnOnce() -> T) -> u64 {
    let before = client.client().counters().counts().requests;
    act();
    client.client().counters().counts().requests - before
}

#[test]
fn common_operations_take_the_round_trips_of_the_design() {
    let mut place = Place::new(EngineSettings::default());
    let client = place.load(2_000);
    let tree = place.tree;
    // A scan has cached all inner nodes.
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
    assert!(scan <= 2, "a scan within one or two leaves: {scan}");
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

/// Returns the number of requests to read entries from a key on, with a limit announced.
fn walk(
    client: &Trees<EmbeddedServer>,
    tree: Tree,
    from: u64,
    (down, limit): (bool, u64),
    steps: u64,
) -> u64 {
    requests(client, || {
        block_on(async {
            let mut txn = client.begin();
            let mut cursor = txn.cursor(tree);
            cursor.limit(limit);
            let mut found = match down {
                true => cursor.seek_back(&mut txn, &key(from)).await.unwrap(),
                false => cursor.seek(&mut txn, &key(from)).await.unwrap(),
            };
            for step in 0..steps {
                assert_eq!(*found.unwrap().0, key(if down { from - step } else { from + step }));
                if step + 1 == steps {
                    return;
                }
                found = match down {
                    true => cursor.previous(&mut txn).await.unwrap(),
                    false => cursor.next(&mut txn).await.unwrap(),
                };
            }
        });
    })
}

#[test]
fn a_hinted_range_is_fetched_at_once_and_not_exceeded() {
    let mut place = Place::new(EngineSettings::default());
    let (client, tree) = (place.load(2_000), place.tree);
    for number in 0..2_000 {
        block_on(client.get(tree, &key(number))).unwrap();
    }
    walk(&client, tree, 0, (false, u64::MAX), 2_000);
    for down in [false, true] {
        // The keys from 1,000 to 1,009 are in one or two leaves.
        let froms = 1_000..1_010;
        let client = &client;
        let trips =
            |limit, steps| froms.clone().map(move |from| walk(client, tree, from, (down, limit), steps));
        assert_eq!(trips(1, 1).max(), Some(1), "down: {down}");
        assert!(trips(3, 3).max() <= Some(2) && trips(3, 3).min() == Some(1), "down: {down}");
        assert!(trips(3, 4).min() >= Some(2), "more than the hinted range, down: {down}");
        assert_eq!(trips(u64::MAX, 4).min(), Some(1), "down: {down}");
    }
}

#[test]
fn a_client_that_only_reads_learns_the_tree_once() {
    let mut place = Place::new(EngineSettings::default());
    drop(place.load(2_000));
    let (client, tree) = (place.client(), place.tree);
    let read = |number| {
        requests(&client, || assert!(block_on(client.begin().get(tree, &key(number))).unwrap().is_some()))
    };
    // The root is fetched because it is no leaf any more, and then the leaf.
    assert_eq!(read(0), 3);
    for number in (0..2_000).step_by(7) {
        assert_eq!(read(number), 1, "{number}");
    }
    assert_eq!(client.counters().counts().root_fetches, 1);
}

/// Figure 10 with fewer operations: 200,000 of 50 clients, whose first fetches of the root count,
/// too. `cargo xtask bench yesquel-roots` runs millions.
#[test]
fn a_root_is_rarely_fetched() {
    const CLIENTS: u64 = 50;
    const KEYS: u64 = 5_000;
    const OPERATIONS: u64 = 200_000;
    let settings = EngineSettings { node_cells_max: 32, ..EngineSettings::default() };
    let mut place = Place::new(settings);
    drop(place.load(KEYS));
    let tree = place.tree;
    let clients: Vec<Trees<EmbeddedServer>> = (0..CLIENTS).map(|_| place.client()).collect();
    let mut random = Random::new(10);
    let root_fetches =
        || -> u64 { clients.iter().map(|client| client.counters().counts().root_fetches).sum() };
    let turns = |count: u64| clients.iter().cycle().take(count as usize);
    for client in turns(OPERATIONS / 4) {
        assert!(block_on(client.begin().get(tree, &key(random.next(KEYS)))).unwrap().is_some());
    }
    assert_eq!(root_fetches(), CLIENTS, "reads: once per client, with an empty cache");
    for client in turns(OPERATIONS / 4) {
        let (mut txn, key) = (client.begin(), key(random.next(KEYS)));
        block_on(txn.get(tree, &key)).unwrap();
        txn.put(tree, &key, b"updated").unwrap();
        block_on(txn.commit()).unwrap();
    }
    assert_eq!(root_fetches(), CLIENTS, "updates");
    let inserts = OPERATIONS / 2;
    for client in turns(inserts) {
        let mut txn = client.begin();
        txn.put(tree, &key(random.next(1 << 40)), b"inserted").unwrap();
        block_on(txn.commit()).unwrap();
        place.split();
    }
    let fetched = root_fetches() - CLIENTS;
    println!("{fetched} root fetches of {inserts} inserts");
    assert!(fetched * 500 < inserts, "{fetched} of {inserts} inserts, which is not under 0.2 %");
}

/// Quadratic work in the size of a transaction would be millions of steps here.
#[test]
fn a_cursor_passes_each_buffered_write_once() {
    const KEYS: u64 = 3_000;
    let mut place = Place::new(EngineSettings::default());
    let client = place.load(KEYS);
    let tree = place.tree;
    let passed = || client.counters().counts().passed;
    block_on(async {
        let mut txn = client.begin();
        let mut cursor = txn.cursor(tree);
        // Each entry is written, found again from the cursor's position, and passed.
        while let Some((key, _)) = cursor.next(&mut txn).await.unwrap() {
            txn.put(tree, &key, b"another").unwrap();
            let mut again = txn.cursor(tree);
            assert_eq!(again.seek(&mut txn, &key).await.unwrap().unwrap().1[..], *b"another");
        }
        assert_eq!(passed(), 0, "buffered writes are found");

        let full = txn.savepoint();
        // A queue, consumed from both ends, whose last keys return.
        for number in 0..KEYS {
            let mut cursor = txn.cursor(tree);
            let found =
                if number % 2 == 0 { cursor.first(&mut txn).await } else { cursor.last(&mut txn).await };
            let of = if number % 2 == 0 { number / 2 } else { KEYS - 1 - number / 2 };
            assert_eq!(*found.unwrap().unwrap().0, key(of));
            txn.delete(tree, &key(of)).unwrap();
        }
        let mut cursor = txn.cursor(tree);
        assert_eq!(cursor.first(&mut txn).await.unwrap(), None);
        txn.put(tree, &key(7), b"back").unwrap();
        assert_eq!(*cursor.first(&mut txn).await.unwrap().unwrap().0, key(7));
        assert_eq!(*cursor.last(&mut txn).await.unwrap().unwrap().0, key(7));
        txn.rollback_to(full).unwrap();
        assert_eq!(*cursor.first(&mut txn).await.unwrap().unwrap().0, key(0));
        assert_eq!(*cursor.last(&mut txn).await.unwrap().unwrap().0, key(KEYS - 1));
    });
    assert!(passed() < 3 * KEYS, "{} keys were passed by", passed());
}
