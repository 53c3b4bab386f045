//! Thread of a group that advances its time and splits its nodes.

use crate::{
    any_transport::AnyTransport, client_number::client_number, split_work::SplitWork, stop_flag::StopFlag,
};
use std::{
    ops::ControlFlow,
    sync::mpsc::{SyncSender, TrySendError},
    thread,
    time::Duration,
};
use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{EngineSettings, SplitPlan};
use yesquel_model::{DepartedContent, KeyRange, NodeId, ServerId, StayReason};
use yesquel_node::{Maintainer, MaintenanceStep, PeerQuery, SplitSource};
use yesquel_transport::block_on;
use yesquel_tree::{DepartureSource, GroupLoad, LeafPlacement, TreeError};

/// Interval between ticks of the engine.
const TICK: Duration = Duration::from_millis(50);

/// The server as the source of splits.
struct OwnNodes<'a>(&'a EmbeddedServer);

impl DepartureSource for OwnNodes<'_> {
    fn begin(&self, node: NodeId, parts: &[(KeyRange, NodeId)]) -> Result<Vec<DepartedContent>, StayReason> {
        self.0.core().begin_departure(node, parts)
    }

    fn end(&self, node: NodeId) {
        self.0.with_engine(|engine| engine.end_departure(node));
    }
}

impl SplitSource for OwnNodes<'_> {
    fn plan(&self, node: NodeId) -> SplitPlan {
        self.0.with_engine(|engine| engine.split_plan(node))
    }

    fn loads(&self) -> Vec<(ServerId, GroupLoad)> {
        self.0.core().loads()
    }
}

/// Ticks a group until the server stops. Another thread splits large nodes, because a split may wait for other
/// groups. Announces that the server serves, until the receiver is gone.
pub(crate) fn maintain(
    embedded: &EmbeddedServer,
    (transport, placement): (AnyTransport, LeafPlacement),
    settings: &EngineSettings,
    asks: impl Fn(Vec<PeerQuery>),
    ending: &StopFlag,
    mut serving: Option<SyncSender<()>>,
) {
    let client = Client::new(transport, client_number());
    let mut maintainer = Maintainer::new(client, settings.server, settings.techniques, placement);
    let split_work = &SplitWork::default();
    thread::scope(|scope| {
        let splits = move || {
            // A call to another group ends early when the server stops.
            let _guard = ending.cancel_calls();
            while let Some(work) = split_work.take() {
                let done = |step, node, done| log_failure(step, node, done, ending);
                if block_on(maintainer.perform(work, &OwnNodes(embedded), done)).is_break() {
                    return;
                }
            }
        };
        let spawned = thread::Builder::new().name("yesquel-splits".to_owned()).spawn_scoped(scope, splits);
        if let Err(error) = &spawned {
            tracing::error!(%error, "the thread for splits cannot be started, so nodes grow without limit: restart the server");
        }
        while !ending.is_set() {
            let work = embedded.core().wait_for_work(TICK);
            embedded.tick();
            serving = serving.take().filter(|serving| {
                !embedded.core().clock_state().serves()
                    || serving.try_send(()) != Err(TrySendError::Disconnected(()))
            });
            asks(embedded.core().take_queries());
            split_work.add(work);
        }
        split_work.end();
    });
}

/// Logs a failed split or removal. Breaks if the server is stopping.
fn log_failure(
    step: MaintenanceStep,
    node: NodeId,
    done: Result<bool, TreeError>,
    ending: &StopFlag,
) -> ControlFlow<()> {
    let ends = ending.is_set();
    match (done, ends) {
        (Err(error), false) if step == MaintenanceStep::SplitAway => {
            tracing::warn!(%node, %error, "a leaf cannot be split over several groups; it is split at this one");
        }
        // The engine will report the node again.
        (Err(error), false) => tracing::warn!(%node, %error, "a node was neither split nor removed"),
        _ => {}
    }
    if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
