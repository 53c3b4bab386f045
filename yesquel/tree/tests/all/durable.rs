//! Trees on a data folder.

use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Engine, EngineSettings};
use yesquel_model::ServerId;
use yesquel_server::{DataFolder, LogOptions, WallTime};
use yesquel_transport::block_on;
use yesquel_tree::{Splitter, Trees};

#[test]
fn a_tree_and_its_splits_survive_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let settings = EngineSettings { node_cells_max: 8, ..EngineSettings::default() };
    let open = |client: u64| {
        let folder = DataFolder::take(place.path()).unwrap();
        let options = LogOptions { checkpoint_bytes: 20_000, ..LogOptions::default() };
        let server = EmbeddedServer::open(folder, settings, options, WallTime::default()).unwrap();
        (server.clone(), Trees::new(Client::new(server, client)))
    };
    let (server, trees) = open(1);
    let tree = block_on(trees.create(ServerId(0))).unwrap();
    drop((server, trees));
    for round in 0..3u64 {
        let (server, trees) = open(round + 2);
        let splitter = Splitter::new(ServerId(0));
        for number in 0..40u64 {
            let mut txn = trees.begin();
            for part in 0..5u64 {
                let key = (number * 5 + part) * 3 + round;
                txn.insert(tree, &key.to_be_bytes(), &round.to_be_bytes()).unwrap();
            }
            block_on(txn.commit()).unwrap();
            for node in server.with_engine(Engine::take_full) {
                block_on(splitter.split(&trees, node)).unwrap();
            }
        }
        drop((server, trees));
        let (server, trees) = open(round + 100);
        server.with_engine(|engine| engine.audit()).unwrap();
        let (mut txn, mut found) = (trees.begin(), Vec::new());
        let mut cursor = txn.cursor(tree);
        block_on(async {
            let mut next = cursor.first(&mut txn).await.unwrap();
            while let Some((key, _)) = next {
                found.push(u64::from_be_bytes(key[..].try_into().unwrap()));
                next = cursor.next(&mut txn).await.unwrap();
            }
        });
        let expected: Vec<u64> = (0..600).filter(|key| key % 3 <= round).collect();
        assert_eq!(found, expected, "round {round}");
    }
}
