//! Background work of a simulated server.

use std::ops::ControlFlow;
use yesquel_client::{Client, CommitError, RequestError};
use yesquel_engine::Techniques;
use yesquel_model::{Refusal, ServerId};
use yesquel_node::{Maintainer, MaintenanceStep};
use yesquel_simulation::{LocalTransport, SharedCluster, next_work};
use yesquel_tree::TreeError;

/// Rounds of background work without a wait, after which splits count as endless.
const ROUNDS_MAX: usize = 200;

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
    let maintainer = Maintainer::new(client, ServerId(server as u16), Techniques::default());
    let plan = |node| {
        let plan = cluster.borrow_mut().engine(server).map(|engine| engine.split_plan(node));
        plan.unwrap_or_default()
    };
    let mut rounds = 0;
    loop {
        let (work, waited) = next_work(&cluster, server).await;
        rounds = if waited { 0 } else { rounds + 1 };
        assert!(rounds < ROUNDS_MAX, "server {server}: splits do not end");
        let performed = maintainer.perform(work, plan, |step, _, result| {
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
            // The home group, which numbers the new nodes.
            RequestError::Lost(_)
                | RequestError::Refused(
                    Refusal::DiskFailed
                        | Refusal::DiskFull
                        | Refusal::DiskLost
                        | Refusal::ClockDiffers { .. }
                )
        )
    };
    let is_expected = match &error {
        TreeError::Client(error) | TreeError::Commit(CommitError::Unknown(error)) => serves_nothing(error),
        TreeError::Commit(CommitError::Refused { refusal, .. }) => {
            matches!(
                refusal,
                Refusal::DiskFailed | Refusal::DiskFull | Refusal::DiskLost | Refusal::ClockDiffers { .. }
            )
        }
        _ => false,
    };
    assert!(is_expected || error.is_conflict(), "a split fails: {error}");
    false
}
