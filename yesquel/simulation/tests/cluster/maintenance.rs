//! Background work of a simulated server.

use std::ops::ControlFlow;
use yesquel_client::{Client, CommitError, RequestError};
use yesquel_engine::{SplitPlan, Techniques};
use yesquel_model::{DepartedContent, KeyRange, NodeId, Refusal, ServerId, StayReason};
use yesquel_node::{Maintainer, MaintenanceStep, SplitSource};
use yesquel_simulation::{LocalTransport, SharedCluster, next_work};
use yesquel_tree::{DepartureSource, GroupLoad, LeafPlacement, TreeError};

/// Rounds of background work without a wait, after which splits count as endless.
const ROUNDS_MAX: usize = 200;

/// A server of the cluster.
struct Source {
    cluster: SharedCluster,
    server: usize,
}

impl DepartureSource for Source {
    fn begin(&self, node: NodeId, parts: &[(KeyRange, NodeId)]) -> Result<Vec<DepartedContent>, StayReason> {
        let mut cluster = self.cluster.borrow_mut();
        let now = cluster.clock(self.server);
        let engine = cluster.engine(self.server).ok_or(StayReason::Unfit)?;
        engine.begin_departure(now, node, parts)
    }

    fn end(&self, node: NodeId) {
        if let Some(engine) = self.cluster.borrow_mut().engine(self.server) {
            engine.end_departure(node);
        }
    }
}

impl SplitSource for Source {
    fn plan(&self, node: NodeId) -> SplitPlan {
        let plan = self.cluster.borrow_mut().engine(self.server).map(|engine| engine.split_plan(node));
        plan.unwrap_or_default()
    }

    fn loads(&self) -> Vec<(ServerId, GroupLoad)> {
        self.cluster.borrow_mut().loads(self.server)
    }
}

/// Splits nodes of a server and removes empty ones, as its maintenance thread does. `count` takes each
/// change.
pub(crate) async fn maintain(
    cluster: SharedCluster,
    server: usize,
    transport: LocalTransport,
    client: u64,
    count: impl Fn(MaintenanceStep),
) {
    let client = Client::new(transport, client);
    let (own, techniques) = (ServerId(server as u16), Techniques::default());
    let mut maintainer = Maintainer::new(client, own, techniques, LeafPlacement::Spread);
    let source = Source { cluster: SharedCluster::clone(&cluster), server };
    let mut rounds = 0;
    loop {
        let (work, waited) = next_work(&cluster, server).await;
        rounds = if waited { 0 } else { rounds + 1 };
        assert!(rounds < ROUNDS_MAX, "server {server}: splits do not end");
        let performed = maintainer.perform(work, &source, |step, _, result| {
            if is_done(result) {
                count(step);
            }
            ControlFlow::Continue(())
        });
        let _ = performed.await;
    }
}

/// Returns whether something has changed. Nodes that cannot change now are left for later.
fn is_done(done: Result<bool, TreeError>) -> bool {
    let error = match done {
        Ok(done) => return done,
        Err(error) => error,
    };
    let serves_nothing = |error: &RequestError| {
        matches!(
            error,
            // Another group: the home group numbers the new nodes, and parents and new leaves may be elsewhere.
            RequestError::Lost(_)
                | RequestError::Refused(
                    Refusal::DiskFailed
                        | Refusal::DiskFull
                        | Refusal::DiskLost
                        | Refusal::ClockDiffers { .. }
                        | Refusal::TooFarAhead(_)
                )
        )
    };
    let is_expected = match &error {
        TreeError::Client(error)
        | TreeError::Commit(CommitError::Unknown(error) | CommitError::Failed(error)) => {
            serves_nothing(error)
        }
        TreeError::Commit(CommitError::Refused { refusal, .. }) => {
            matches!(
                refusal,
                Refusal::DiskFailed
                    | Refusal::DiskFull
                    | Refusal::DiskLost
                    | Refusal::ClockDiffers { .. }
                    | Refusal::TooFarAhead(_)
            )
        }
        _ => false,
    };
    assert!(is_expected || error.is_conflict(), "a split fails: {error}");
    false
}
