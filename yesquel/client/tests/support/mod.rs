//! A leaf on each server of a simulated cluster.

use yesquel_client::{Client, Writes};
use yesquel_model::{KeyRange, NodeId, ServerId, TreeId};
use yesquel_simulation::Network;
use yesquel_wire::{NewNode, NodeKind, NodeOperation, WriteOperation};

/// The leaf of a server.
pub(crate) fn node(server: usize) -> NodeId {
    NodeId::root(TreeId::new(1).unwrap(), ServerId(server as u16))
}

/// Creates the leaves of that many servers in one transaction, which is on disk under every
/// durability; `fill` adds each one's cells.
pub(crate) async fn create_leaves(network: Network, servers: usize, fill: impl Fn(&mut Writes, usize)) {
    let client = Client::new(network, 1_000_000);
    let mut writes = Writes::new();
    for server in 0..servers {
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        writes.push(&NodeOperation { node: node(server), write: WriteOperation::Create(new) });
        fill(&mut writes, server);
    }
    client.commit(None, &writes).await.unwrap();
}
