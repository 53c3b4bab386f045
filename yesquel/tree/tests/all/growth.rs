//! Splits terminate: after a while no node is too large, whatever was written at once and however
//! small the limit.

use std::collections::HashMap;
use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Engine, EngineSettings, SplitPlan};
use yesquel_model::ServerId;
use yesquel_server::WallTime;
use yesquel_transport::block_on;
use yesquel_tree::{Splitter, Tree, Trees};
use yesquel_wire::status::NodeStatus;

const SERVER: ServerId = ServerId(0);

struct Place {
    server: EmbeddedServer,
    trees: Trees<EmbeddedServer>,
    tree: Tree,
    splitter: Splitter,
}

impl Place {
    fn new(settings: EngineSettings) -> Place {
        let settings = EngineSettings { report_bytes_max: usize::MAX, ..settings };
        let server = EmbeddedServer::in_memory(settings, WallTime::default());
        let trees = Trees::new(Client::new(server.clone(), 1));
        let tree = block_on(trees.create(SERVER)).unwrap();
        Place { server, trees, tree, splitter: Splitter::new(SERVER) }
    }

    fn put(&self, keys: &[Vec<u8>]) {
        let mut transaction = self.trees.begin();
        keys.iter().for_each(|key| transaction.put(self.tree, key, b"").unwrap());
        block_on(transaction.commit()).unwrap();
    }

    /// Splits full nodes as a server does until there are none. Returns the number of rounds;
    /// `None` if the splits do not end.
    fn split(&self) -> Option<usize> {
        (0..100).find(|_| {
            let full = self.server.with_engine(Engine::take_full);
            for node in &full {
                let SplitPlan { parts, mostly_obsolete, .. } =
                    self.server.with_engine(|engine| engine.split_plan(*node));
                block_on(self.splitter.split_into(&self.trees, *node, parts, mostly_obsolete)).unwrap();
            }
            full.is_empty()
        })
    }

    fn nodes(&self) -> HashMap<String, NodeStatus> {
        let report = self.server.with_engine(|engine| engine.nodes_of(self.tree.root().tree, None));
        assert!(!report.more);
        report.nodes.into_iter().map(|node| (node.id.clone(), node)).collect()
    }

    /// Returns the number of nodes from the root to a leaf, which is uniform.
    fn height(&self) -> usize {
        let nodes = self.nodes();
        let root = format!("{:032x}", self.tree.root().to_bits());
        let (mut floor, mut height) = (vec![&nodes[&root]], 1);
        while floor.iter().any(|node| !node.leaf) {
            assert!(floor.iter().all(|node| node.children.len() >= 2), "{nodes:?}");
            floor = floor.iter().flat_map(|node| &node.children).map(|child| &nodes[child]).collect();
            height += 1;
            assert!(height <= nodes.len(), "its nodes form a cycle: {nodes:?}");
        }
        height
    }

    /// Checks that a client with an empty cache finds everything.
    fn check(&self, keys: &[Vec<u8>]) {
        self.server.with_engine(|engine| engine.audit()).unwrap();
        let fresh = Trees::new(Client::new(self.server.clone(), 2));
        for key in keys {
            assert!(block_on(fresh.get(self.tree, key)).unwrap().is_some());
        }
    }
}

/// Returns keys of a length that differ in their last bytes only.
fn keys(count: u32, bytes: usize) -> Vec<Vec<u8>> {
    let key =
        |number: u32| [&vec![b'k'; bytes - 4][..], &number.wrapping_mul(0x9e37_79b1).to_be_bytes()].concat();
    (0..count).map(key).collect()
}

/// Returns the maximum height for a number of leaves: each inner node has at least two children.
fn height_max(leaves: usize) -> usize {
    1 + leaves.ilog2() as usize
}

#[test]
fn trees_stop_growing_with_any_limit_of_cells() {
    for cells_max in 0..=9 {
        for count in [2, 3, 4, 5, 10, 17, 64, 300] {
            let place = Place::new(EngineSettings { node_cells_max: cells_max, ..EngineSettings::default() });
            let keys = keys(count, 4);
            // Most keys in one commit, the others one by one.
            let (first, rest) = keys.split_at(keys.len() - keys.len() / 4);
            place.put(first);
            assert!(place.split().is_some(), "{count} in nodes of {cells_max} grow without end");
            for key in rest {
                place.put(std::slice::from_ref(key));
                assert!(place.split().is_some(), "{count} in nodes of {cells_max} grow without end");
            }
            let leaves = place.nodes().values().filter(|node| node.leaf).count();
            let height = place.height();
            assert!(height <= height_max(leaves), "{count} in nodes of {cells_max}: {height} floors");
            place.check(&keys);
        }
    }
}

/// Four children with long keys exceed a node's size limit: parts within it would have one child
/// each.
#[test]
fn trees_stop_growing_with_keys_of_any_length() {
    for (count, bytes) in [(9, 50_000), (9, 1 << 20), (4, 17_000), (20, 33_000), (60, 20_000)] {
        let place = Place::new(EngineSettings::default());
        let keys = keys(count, bytes);
        // Several keys a commit, within the message size.
        for keys in keys.chunks(5) {
            place.put(keys);
            assert!(place.split().is_some(), "{count} of {bytes} bytes grow without end");
        }
        let leaves = place.nodes().values().filter(|node| node.leaf).count();
        let height = place.height();
        assert!(leaves > 1 && height <= height_max(leaves), "{count} of {bytes} bytes: {height} floors");
        place.check(&keys);
    }
}
