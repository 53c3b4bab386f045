//! Splits of a server's nodes, by a client of its own, as in production.

use crate::{
    cluster::{Origin, SharedCluster},
    network::VirtualNetwork,
};
use std::{future::poll_fn, ops::ControlFlow, task::Poll};
use yesquel_client::Client;
use yesquel_engine::{SplitPlan, Techniques};
use yesquel_model::{DepartedContent, KeyRange, NodeId, ServerId, StayReason};
use yesquel_node::{GroupWork, Maintainer, SplitSource};
use yesquel_tree::{DepartureSource, GroupLoad, LeafPlacement};

/// Number of the first server's own client.
const CLIENTS: u64 = 1 << 32;

/// The nodes of a server.
struct OwnNodes {
    cluster: SharedCluster,
    server: usize,
}

impl DepartureSource for OwnNodes {
    fn begin(&self, node: NodeId, parts: &[(KeyRange, NodeId)]) -> Result<Vec<DepartedContent>, StayReason> {
        let mut cluster = self.cluster.borrow_mut();
        let clocks = cluster.clocks();
        let (engine, now) = cluster.server(self.server).engine(clocks);
        engine.begin_departure(now, node, parts)
    }

    fn end(&self, node: NodeId) {
        let mut cluster = self.cluster.borrow_mut();
        let clocks = cluster.clocks();
        cluster.server(self.server).engine(clocks).0.end_departure(node);
    }
}

impl SplitSource for OwnNodes {
    fn plan(&self, node: NodeId) -> SplitPlan {
        let mut cluster = self.cluster.borrow_mut();
        let clocks = cluster.clocks();
        cluster.server(self.server).engine(clocks).0.split_plan(node)
    }

    fn loads(&self) -> Vec<(ServerId, GroupLoad)> {
        let mut cluster = self.cluster.borrow_mut();
        let clocks = cluster.clocks();
        cluster.server(self.server).loads(clocks)
    }
}

/// Waits until a server has work.
async fn next_work(cluster: &SharedCluster, server: usize) -> GroupWork {
    poll_fn(|context| {
        let mut cluster = cluster.borrow_mut();
        let of = cluster.server(server);
        match of.take_work() {
            Some(work) => Poll::Ready(work),
            None => {
                of.maintenance = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

/// Splits nodes of a server and removes empty ones, without end.
pub(crate) async fn maintain(cluster: SharedCluster, server: usize, techniques: Techniques) {
    let network = VirtualNetwork::new(&cluster, Origin::Server(server));
    let client = Client::new(network, CLIENTS + server as u64);
    let own = ServerId(server as u16);
    let mut maintainer = Maintainer::new(client, own, techniques, LeafPlacement::default());
    let nodes = OwnNodes { cluster: SharedCluster::clone(&cluster), server };
    loop {
        let work = next_work(&cluster, server).await;
        // The engine reports a node again that could not be changed.
        let _ = maintainer.perform(work, &nodes, |_, _, _| ControlFlow::Continue(())).await;
    }
}
