//! Attributes of trees.

use yesquel_client::{Client, Writes};
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::EngineSettings;
use yesquel_model::ServerId;
use yesquel_server::ManualTime;
use yesquel_transport::block_on;
use yesquel_tree::{REPLIT_BITS, Tree, TreeError, Trees};
use yesquel_wire::{Attribute, NodeOperation, WriteOperation};

/// A tree without the attribute, as all from before it, has no random bits.
#[test]
fn random_bits_are_an_attribute_of_the_tree() {
    let server = EmbeddedServer::in_memory(EngineSettings::default(), ManualTime::default());
    let trees = Trees::new(Client::new(server, 1));
    let tree = block_on(trees.create(ServerId(0))).unwrap();
    let set = |bits: &[u8]| {
        let mut writes = Writes::new();
        let write = WriteOperation::Set(Attribute { id: REPLIT_BITS, value: Some(bits) });
        writes.push(&NodeOperation { node: tree.root(), write });
        block_on(trees.client().commit(None, &writes)).unwrap();
    };
    let bits = |tree: Tree| block_on(trees.replit_bits(tree));
    assert_eq!(bits(tree), Ok(0));
    for (value, expected) in [(3, Some(3)), (8, Some(8)), (9, None), (0, Some(0))] {
        set(&[value]);
        assert_eq!(bits(tree).ok(), expected);
    }
    set(b"");
    assert!(matches!(bits(tree), Err(TreeError::Damaged(..))));
    let absent = block_on(trees.new_tree(ServerId(0))).unwrap();
    assert_eq!(bits(absent), Err(TreeError::NoTree(absent.root().tree)));
}
