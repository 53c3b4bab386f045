//! A tree whose nodes form a cycle, as after damage: every search reports the damage, and none
//! loops forever.

use yesquel_client::{Client, Writes};
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::EngineSettings;
use yesquel_model::{KeyRange, LocalId, NodeId, ServerId};
use yesquel_server::ManualTime;
use yesquel_transport::block_on;
use yesquel_tree::{Tree, TreeError, Trees};
use yesquel_wire::{NewNode, NodeKind, NodeOperation, WriteOperation};

/// Returns a tree whose root leads to an inner node that leads to itself.
fn in_a_circle() -> (Trees<EmbeddedServer>, Tree) {
    let server = EmbeddedServer::in_memory(EngineSettings::default(), ManualTime::default());
    let trees = Trees::new(Client::new(server, 1));
    let tree = block_on(trees.new_tree(ServerId(0))).unwrap();
    let child = NodeId { local: LocalId(1 << 16), ..tree.root() };
    let mut writes = Writes::new();
    for node in [tree.root(), child] {
        let new = NewNode { kind: NodeKind::Inner, fence: KeyRange::all() };
        writes.push(&NodeOperation { node, write: WriteOperation::Create(new) });
        writes.push(&NodeOperation { node, write: WriteOperation::Link { key: b"", child } });
    }
    block_on(trees.client().commit(None, &writes)).unwrap();
    (trees, tree)
}

fn assert_reported<Found: std::fmt::Debug>(outcome: Result<Found, TreeError>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, TreeError::Damaged(..)), "{error}");
    assert!(error.to_string().contains("in circles"), "{error}");
}

#[test]
fn cycles_of_nodes_are_reported() {
    let (trees, tree) = in_a_circle();
    // With an empty cache, and with one that contains the cycle.
    for _ in 0..2 {
        assert_reported(block_on(trees.get(tree, b"key")));
        let mut transaction = trees.begin();
        assert_reported(block_on(transaction.get(tree, b"key")));
        let mut cursor = transaction.cursor(tree);
        assert_reported(block_on(cursor.first(&mut transaction)));
        assert_reported(block_on(cursor.last(&mut transaction)));
        let mut writer = trees.begin();
        writer.put(tree, b"key", b"value").unwrap();
        assert_reported(block_on(writer.commit()));
    }
}
