//! Storage server in this process, with the thread that advances its time and splits its nodes.

use crate::{
    Error,
    any_transport::AnyTransport,
    catalog::{Catalog, catalog_tree},
    directory_thread::{DirectoryOptions, DirectoryThread},
    peers::{GRACE_MS, PeerAccess, Peers, founded, transport_home},
    split_work::SplitWork,
    stop_flag::StopFlag,
};
use std::{
    fmt, io,
    ops::ControlFlow,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{EngineSettings, SplitPlan};
use yesquel_fork as fork;
use yesquel_model::{DepartedContent, KeyRange, NodeId, ServerId, StayReason};
use yesquel_node::{Maintainer, MaintenanceStep, SplitSource};
use yesquel_server::{DataFolder, DataFolderError, LogOptions, ReplySink, Time};
use yesquel_transport::block_on;
use yesquel_tree::{DepartureSource, GroupLoad, LeafPlacement, TreeError, Trees};

/// Interval between ticks of the engine.
const TICK: Duration = Duration::from_millis(50);

/// Time in milliseconds for which the home group waits for clocks of other machines.
const HOME_WAIT_MS: u64 = 1_000;

/// Pause before databases are moved to the catalog of the cluster again.
const ADOPT_AGAIN: Duration = Duration::from_secs(1);

/// Returns the settings of a server that has peers.
fn with_peers(settings: EngineSettings, peers: &PeerAccess) -> EngineSettings {
    let grace_ms = if peers.servers.is_empty() { settings.grace_ms } else { settings.grace_ms.max(GRACE_MS) };
    EngineSettings { grace_ms, ..settings }
}

/// Returns a unique client number.
pub(crate) fn client_number() -> u64 {
    let mut bytes = [0; 8];
    // The kernel fails only before its random generator is ready, at boot. Any number is better
    // then than zero, which means no client.
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // The highest bit marks lanes, which are additional connections of a client.
    let number = u64::from_le_bytes(bytes) & !yesquel_wire::greeting::LANE;
    if filled == Ok(8) && number != 0 { number } else { u64::from(std::process::id()) << 32 | 1 }
}

/// Storage server in this process. Dropping it stops it cleanly.
pub struct Host {
    embedded: EmbeddedServer,
    /// The way of its own clients.
    pub(crate) transport: AnyTransport,
    server: ServerId,
    ending: StopFlag,
    maintenance: Option<JoinHandle<()>>,
    /// Creates the catalog, if that must wait.
    catalog: Option<JoinHandle<()>>,
    /// Keeps the copy of the directory.
    directory: Option<JoinHandle<()>>,
    peers: Option<Arc<Peers>>,
    /// Fork generation of the process that owns it, see [`fork`].
    generation: u32,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Host {
    /// Creates a server in memory. `others` takes the replies to requests from sockets.
    pub fn in_memory(
        settings: EngineSettings,
        time: impl Time + 'static,
        others: impl ReplySink + Send + Sync + 'static,
    ) -> Result<Host, Error> {
        Host::in_memory_with_peers(settings, time, others, &PeerAccess::default())
    }

    /// Like [`in_memory`](Self::in_memory), for a server that shares transactions with others.
    pub(crate) fn in_memory_with_peers(
        settings: EngineSettings,
        time: impl Time + 'static,
        others: impl ReplySink + Send + Sync + 'static,
        peers: &PeerAccess,
    ) -> Result<Host, Error> {
        let settings = with_peers(settings, peers);
        let founded = founded(settings.server, client_number(), peers)?;
        let embedded = EmbeddedServer::in_memory_with(settings, time, others);
        if let Some(membership) = founded {
            embedded.core().join(membership);
        }
        embedded.core().compare_with(peers.servers.len());
        Host::around(embedded, settings, peers)
    }

    /// Opens a server on a data folder; creates the folder if it does not exist.
    pub fn open(
        folder: DataFolder,
        settings: EngineSettings,
        options: LogOptions,
        time: impl Time + 'static,
        others: impl ReplySink + Send + Sync + 'static,
    ) -> Result<Host, Error> {
        Host::open_with_peers(folder, settings, options, time, others, &PeerAccess::default())
    }

    /// Like [`open`](Self::open), for a server that shares transactions with others.
    pub(crate) fn open_with_peers(
        mut folder: DataFolder,
        settings: EngineSettings,
        options: LogOptions,
        time: impl Time + 'static,
        others: impl ReplySink + Send + Sync + 'static,
        peers: &PeerAccess,
    ) -> Result<Host, Error> {
        let settings = with_peers(settings, peers);
        if folder.is_new()?
            && let Some(membership) = founded(settings.server, client_number(), peers)?
        {
            folder.join(membership);
        }
        // Machines of a directory start when the home group serves: those that are not up have no clock
        // to compare with.
        let identity = folder.identity()?;
        let is_home = identity.is_some_and(|machine| machine.membership.home_group == machine.group);
        let is_waited_for = is_home && folder.cluster_files().directory()?.is_some();
        let embedded = EmbeddedServer::open_with(folder, settings, options, time, others)?;
        embedded.core().compare_with(peers.servers.len());
        if is_waited_for {
            embedded.core().wait_for_clocks(HOME_WAIT_MS);
        }
        Host::around(embedded, settings, peers)
    }

    fn around(embedded: EmbeddedServer, settings: EngineSettings, peers: &PeerAccess) -> Result<Host, Error> {
        fork::watch();
        let has_peers = !peers.servers.is_empty();
        let server = settings.server;
        let membership = embedded.core().membership();
        let transport = match transport_home(server, client_number(), membership, peers)? {
            Some(others) => AnyTransport::Member(embedded.clone(), others),
            None => AnyTransport::Embedded(embedded.clone()),
        };
        let placement = peers.placement;
        let peers = Arc::new(Peers::start(embedded.core(), client_number(), peers)?);
        let ending = StopFlag::default();
        let (served, by, ends) = (embedded.clone(), transport.clone(), ending.clone());
        let (serving, serves) = mpsc::sync_channel(1);
        let serving = Some(serving).filter(|_| has_peers);
        let thread = thread::Builder::new().name("yesquel-maintenance".to_owned());
        let asked = Arc::clone(&peers);
        let maintenance =
            thread.spawn(move || maintain(&served, (by, placement), &settings, &asked, &ends, serving));
        let maintenance = maintenance.map_err(thread_error)?;
        let mut host = Host {
            embedded,
            transport,
            server,
            ending,
            maintenance: Some(maintenance),
            catalog: None,
            directory: None,
            peers: Some(peers),
            generation: fork::generation(),
        };
        if has_peers {
            host.embedded.core().admit_clients(false);
            // The server serves nothing before it has compared its clock, which needs its sockets.
            let (served, by, ends) = (host.embedded.clone(), host.transport.clone(), host.ending.clone());
            let thread = thread::Builder::new().name("yesquel-catalog".to_owned());
            let thread = thread.spawn(move || {
                create_catalog_later(&served, server, &ends, &serves);
                if membership.home_group != server {
                    give_up_catalog(by, server, membership.home_group, &ends);
                }
            });
            host.catalog = Some(thread.map_err(thread_error)?);
        } else {
            create_catalog(&host.embedded, server)?;
        }
        Ok(host)
    }

    /// Starts the thread that keeps the copy of the directory and performs commands for machines.
    pub(crate) fn serve_directory(&mut self, options: DirectoryOptions) -> Result<(), Error> {
        let Some(peers) = self.peers.clone() else { return Ok(()) };
        let trees = Trees::new(Client::new(self.transport.clone(), client_number()));
        let directory = DirectoryThread::new(self.embedded.clone(), trees, peers, options);
        let ending = self.ending.clone();
        let thread = thread::Builder::new().name("yesquel-directory".to_owned());
        self.directory = Some(thread.spawn(move || directory.run(&ending)).map_err(thread_error)?);
        Ok(())
    }

    /// Returns the server's id.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Returns the transport to the server.
    pub fn transport(&self) -> &EmbeddedServer {
        &self.embedded
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // A fork does not copy threads: joining would wait forever.
            std::mem::forget((self.maintenance.take(), self.catalog.take(), self.directory.take()));
            std::mem::forget(self.peers.take());
            return;
        }
        self.ending.set();
        self.embedded.core().wake_work();
        self.embedded.core().wake_commands();
        let threads = [self.maintenance.take(), self.catalog.take(), self.directory.take()];
        for thread in threads.into_iter().flatten() {
            // Nothing could receive a panic's message now.
            let _ = thread.join();
        }
    }
}

fn thread_error(error: io::Error) -> Error {
    DataFolderError::Io { path: "a thread of the server".into(), error }.into()
}

fn create_catalog(embedded: &EmbeddedServer, server: ServerId) -> Result<(), TreeError> {
    let trees = Trees::new(Client::new(embedded.clone(), client_number()));
    block_on(trees.create_if_missing(catalog_tree(server)))?;
    Ok(())
}

/// Creates the catalog as soon as the server serves, which the channel announces.
fn create_catalog_later(
    embedded: &EmbeddedServer,
    server: ServerId,
    ending: &StopFlag,
    serves: &Receiver<()>,
) {
    let _guard = ending.cancel_calls();
    while !ending.is_set() {
        match create_catalog(embedded, server).map_err(Error::from) {
            Err(error @ Error::ClockDiffers(_)) => {
                tracing::warn!(%error, "the server serves nothing until its clock is right");
                if serves.recv().is_err() {
                    return;
                }
            }
            Err(error) => return tracing::error!(%error, "the catalog cannot be created"),
            Ok(()) => return embedded.core().admit_clients(true),
        }
    }
}

/// Moves the names of databases to the catalog of the cluster. Earlier releases had a catalog at each
/// server.
fn give_up_catalog(transport: AnyTransport, own: ServerId, home: ServerId, ending: &StopFlag) {
    let _guard = ending.cancel_calls();
    let trees = Trees::new(Client::new(transport, client_number()));
    let [from, to] = [own, home].map(|group| Catalog { trees: &trees, group });
    while !ending.is_set() {
        match block_on(to.adopt_first(&from)) {
            Ok(None) => return,
            Ok(Some(name)) => {
                tracing::info!(%name, "a database of this server is in the catalog of the cluster now");
            }
            Err(Error::Conflict(_) | Error::Exists) => {}
            Err(error) => {
                tracing::warn!(%error, "databases of this server are not in the catalog of the cluster yet");
                ending.pause(ADOPT_AGAIN);
            }
        }
    }
}

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

/// Ticks until the server stops. Another thread splits large nodes, because a split may wait for other
/// groups. Announces that the server serves, until the receiver is gone.
fn maintain(
    embedded: &EmbeddedServer,
    (transport, placement): (AnyTransport, LeafPlacement),
    settings: &EngineSettings,
    peers: &Peers,
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
            peers.ask(embedded.core().take_queries());
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
