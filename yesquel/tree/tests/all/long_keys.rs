//! Keys up to the maximum length: their trees stay flat and complete.

use std::collections::BTreeMap;
use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Engine, EngineSettings, Now};
use yesquel_model::{KeyRange, ServerId, limits::KEY_BYTES_MAX};
use yesquel_server::ManualTime;
use yesquel_transport::block_on;
use yesquel_tree::{Splitter, Tree, TreeError, Trees};
use yesquel_wire::status::NodeStatus;

const SERVER: ServerId = ServerId(0);

struct Place {
    server: EmbeddedServer,
    trees: Trees<EmbeddedServer>,
    tree: Tree,
}

impl Place {
    fn new() -> Place {
        let server = EmbeddedServer::in_memory(EngineSettings::default(), ManualTime::default());
        let trees = Trees::new(Client::new(server.clone(), 1));
        let tree = block_on(trees.create(SERVER)).unwrap();
        Place { server, trees, tree }
    }

    /// Splits full nodes until there are none.
    fn split(&self) {
        let splitter = Splitter::new(SERVER);
        for _ in 0..100 {
            let full = self.server.with_engine(Engine::take_full);
            if full.is_empty() {
                return;
            }
            for node in full {
                block_on(splitter.split(&self.trees, node)).unwrap();
            }
        }
        panic!("splits do not end");
    }

    fn put(&self, keys: &[Vec<u8>]) {
        for key in keys {
            let mut transaction = self.trees.begin();
            transaction.put(self.tree, key, &key.len().to_be_bytes()).unwrap();
            block_on(transaction.commit()).unwrap();
            self.split();
        }
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        self.server.with_engine(|engine| engine.nodes_of(self.tree.root().tree, None)).nodes
    }

    /// Checks all access paths, with a warm and with an empty cache.
    fn check(&self, keys: &[Vec<u8>]) {
        self.server.with_engine(|engine| engine.audit()).unwrap();
        let all: BTreeMap<&[u8], usize> = keys.iter().map(|key| (&**key, key.len())).collect();
        let fresh = Trees::new(Client::new(self.server.clone(), 2));
        for trees in [&self.trees, &fresh] {
            for (key, length) in &all {
                let value = block_on(trees.get(self.tree, key)).unwrap();
                assert_eq!(value.as_deref(), Some(&length.to_be_bytes()[..]));
            }
            let mut transaction = trees.begin();
            let mut cursor = transaction.cursor(self.tree);
            let (mut up, mut down) = (Vec::new(), Vec::new());
            let mut next = block_on(cursor.first(&mut transaction)).unwrap();
            while let Some((key, _)) = next {
                up.push(key);
                next = block_on(cursor.next(&mut transaction)).unwrap();
            }
            let mut next = block_on(cursor.last(&mut transaction)).unwrap();
            while let Some((key, _)) = next {
                down.push(key);
                next = block_on(cursor.previous(&mut transaction)).unwrap();
            }
            assert!(up.iter().map(|key| &**key).eq(all.keys().copied()));
            assert!(down.iter().rev().map(|key| &**key).eq(all.keys().copied()));
        }
    }
}

/// Returns keys that differ in their last bytes only, so that splits cannot shorten them.
fn keys(count: u32, bytes: usize) -> Vec<Vec<u8>> {
    let key =
        |number: u32| [&vec![b'k'; bytes - 4][..], &number.wrapping_mul(0x9e37_79b1).to_be_bytes()].concat();
    (0..count).map(key).collect()
}

#[test]
fn trees_of_long_keys_stay_flat() {
    for (count, bytes) in [(3, 33_000), (20, 33_000), (60, 20_000), (10, 100_000), (9, KEY_BYTES_MAX)] {
        let place = Place::new();
        let keys = keys(count, bytes);
        place.put(&keys);
        place.check(&keys);
        let number = place.tree.root().tree.number();
        let status = place.server.with_engine(|engine| engine.status(Now::default()));
        let tree = status.trees.into_iter().find(|tree| tree.tree == number).unwrap();
        // Each inner node has at least two children.
        let is_flat = tree.leaves <= u64::from(count) && tree.inner < tree.leaves;
        assert!(tree.leaves > 1 && is_flat, "{count} of {bytes}: {tree:?}");
    }
}

#[test]
fn separators_in_inner_nodes_are_short() {
    let place = Place::new();
    let keys: Vec<Vec<u8>> = (0..40u8).map(|number| vec![number; 30_000]).collect();
    place.put(&keys);
    place.check(&keys);
    let nodes = place.nodes();
    assert!(nodes.iter().filter(|node| node.leaf).count() > 10);
    assert_eq!(nodes.iter().filter(|node| !node.leaf).count(), 1);
    let root = nodes.iter().find(|node| !node.leaf).unwrap();
    assert!(root.bytes < 100 * root.cells, "{root:?}");
}

#[test]
fn too_long_keys_are_refused_and_too_long_bounds_are_not() {
    let place = Place::new();
    let longest = keys(6, KEY_BYTES_MAX);
    place.put(&longest);
    let beyond = [&longest[0][..], &[0; 9]].concat();
    let is_refused = |error: TreeError| matches!(error, TreeError::TooLong { what: "a key", .. });
    assert!(block_on(place.trees.get(place.tree, &beyond)).is_err_and(is_refused));
    let mut transaction = place.trees.begin();
    assert!(block_on(transaction.get(place.tree, &beyond)).is_err_and(is_refused));
    assert!(transaction.put(place.tree, &beyond, b"").is_err_and(is_refused));
    assert!(transaction.insert(place.tree, &beyond, b"").is_err_and(is_refused));
    assert!(transaction.delete(place.tree, &beyond).is_err_and(is_refused));
    // As if there were such a key.
    let mut sorted = longest.clone();
    sorted.sort();
    let at = sorted.iter().position(|key| *key == longest[0]).unwrap();
    let mut cursor = transaction.cursor(place.tree);
    let found = block_on(cursor.seek(&mut transaction, &beyond)).unwrap();
    assert_eq!(found.map(|(key, _)| key.to_vec()), sorted.get(at + 1).cloned());
    let found = block_on(cursor.seek_back(&mut transaction, &beyond)).unwrap();
    assert_eq!(found.map(|(key, _)| key.to_vec()), Some(longest[0].clone()));
    // After the longest key itself.
    block_on(cursor.seek(&mut transaction, &longest[0])).unwrap();
    let next = block_on(cursor.next(&mut transaction)).unwrap();
    assert_eq!(next.map(|(key, _)| key.to_vec()), sorted.get(at + 1).cloned());
    transaction.guard(place.tree, KeyRange::from(&*beyond));
    transaction.delete_range(place.tree, &KeyRange { low: Box::default(), high: Some(beyond.into()) });
    block_on(transaction.commit()).unwrap();
    place.check(&sorted[at + 1..]);
}
