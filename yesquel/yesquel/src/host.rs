//! Groups of a machine in this process, with the threads that serve them.

use crate::{
    Error,
    any_transport::AnyTransport,
    catalog::{Catalog, catalog_tree},
    client_number::client_number,
    directory::Directory,
    directory_starts::{GrownGroup, lacking},
    directory_thread::{DirectoryOptions, DirectoryThread},
    group_maintenance::maintain,
    peers::{GRACE_MS, PeerAccess, Peers, founded, transport_to_others},
    stop_flag::StopFlag,
};
use std::{
    fmt, io,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use yesquel_client::Client;
use yesquel_embedded::{EmbeddedMachine, EmbeddedServer};
use yesquel_engine::EngineSettings;
use yesquel_fork as fork;
use yesquel_model::ServerId;
use yesquel_server::{DataFolder, DataFolderError, LogOptions, MachineIdentity, ReplySink, Time};
use yesquel_transport::block_on;
use yesquel_tree::{TreeError, Trees};

/// Time in milliseconds for which the home group waits for clocks of other machines.
const HOME_WAIT_MS: u64 = 1_000;

/// Pause before numbers of further groups are asked for again.
const GROW_AGAIN: Duration = Duration::from_secs(1);

/// Pause before databases are moved to the catalog of the cluster again.
const ADOPT_AGAIN: Duration = Duration::from_secs(1);

/// Returns the settings of a server that has peers.
fn with_peers(settings: EngineSettings, peers: &PeerAccess) -> EngineSettings {
    let grace_ms = if peers.servers.is_empty() { settings.grace_ms } else { settings.grace_ms.max(GRACE_MS) };
    EngineSettings { grace_ms, ..settings }
}

/// Groups of one machine in this process, mostly one. Dropping it stops them cleanly.
pub struct Host {
    /// The groups, the lowest first.
    groups: Arc<[EmbeddedServer]>,
    /// The first one, which speaks for the machine.
    first: EmbeddedServer,
    /// The way of its own clients.
    pub(crate) transport: AnyTransport,
    ending: StopFlag,
    /// One for each group.
    maintenance: Vec<JoinHandle<()>>,
    /// Creates the catalogs, if that must wait.
    catalog: Option<JoinHandle<()>>,
    /// Keeps the copy of the directory.
    directory: Option<JoinHandle<()>>,
    peers: Option<Arc<Peers>>,
    /// Fork generation of the process that owns it, see [`fork`].
    generation: u32,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("server", &self.server()).finish_non_exhaustive()
    }
}

impl Host {
    /// Creates a server in memory. `others` takes the replies to requests from sockets.
    pub fn in_memory(
        settings: EngineSettings,
        time: impl Time + Clone + 'static,
        others: impl ReplySink + Clone + Send + Sync + 'static,
    ) -> Result<Host, Error> {
        Host::in_memory_with_peers(settings, 1, time, others, &PeerAccess::default())
    }

    /// Like [`in_memory`](Self::in_memory), for a machine with so many groups that shares transactions
    /// with others.
    pub(crate) fn in_memory_with_peers(
        settings: EngineSettings,
        groups: u16,
        time: impl Time + Clone + 'static,
        others: impl ReplySink + Clone + Send + Sync + 'static,
        peers: &PeerAccess,
    ) -> Result<Host, Error> {
        check_growth(groups, peers, false)?;
        let settings = with_peers(settings, peers);
        let founded = founded(settings.server, client_number(), peers)?;
        let groups = EmbeddedServer::machine_in_memory(settings, groups, time, others);
        if let (Some(membership), Some(first)) = (founded, groups.first()) {
            first.core().join(membership);
        }
        Host::around(groups, settings, peers, false)
    }

    /// Opens a server on a data folder; creates the folder if it does not exist.
    pub fn open(
        folder: DataFolder,
        settings: EngineSettings,
        options: LogOptions,
        time: impl Time + Clone + 'static,
        others: impl ReplySink + Clone + Send + Sync + 'static,
    ) -> Result<Host, Error> {
        Host::open_with_peers(folder, (settings, options), 1, time, others, &PeerAccess::default())
    }

    /// Like [`open`](Self::open), for a machine with so many groups at least that shares transactions
    /// with others.
    pub(crate) fn open_with_peers(
        mut folder: DataFolder,
        (settings, options): (EngineSettings, LogOptions),
        groups_min: u16,
        time: impl Time + Clone + 'static,
        others: impl ReplySink + Clone + Send + Sync + 'static,
        peers: &PeerAccess,
    ) -> Result<Host, Error> {
        let settings = with_peers(settings, peers);
        let has_directory = folder.cluster_files().directory()?.is_some();
        check_growth(groups_min, peers, has_directory)?;
        if folder.is_new()?
            && let Some(membership) = founded(settings.server, client_number(), peers)?
        {
            folder.join(membership);
        }
        // Machines of a directory start when the home group serves: those that are not up have no clock
        // to compare with.
        let identity = folder.identity()?;
        let is_home = identity.is_none_or(|machine| machine.membership.home_group == machine.group);
        let is_waited_for = is_home && identity.is_some() && has_directory;
        let path = folder.path().to_owned();
        let (mut machine, mut groups) =
            EmbeddedMachine::open(folder, settings, options, groups_min, (time, others))?;
        let count = usize::from(groups_min);
        if groups.len() < count {
            if !is_home {
                return Err(Error::NoDirectory);
            }
            // The numbers of further groups come from the home group, which must serve for that.
            let host = Host::around(groups.clone(), settings, peers, is_waited_for)?;
            let grown = host.grow_when_served(count, peers)?;
            drop(host);
            let own: Vec<ServerId> = groups.iter().map(EmbeddedServer::server).collect();
            groups.extend(machine.add_groups(&lacking(&path, &own, &grown)?)?);
        }
        if groups.len() > count {
            tracing::info!(
                groups = groups.len(),
                asked = count,
                "the machine hosts all groups of its data folder"
            );
        }
        Host::around(groups, settings, peers, is_waited_for)
    }

    fn around(
        groups: Vec<EmbeddedServer>,
        settings: EngineSettings,
        peers: &PeerAccess,
        is_waited_for: bool,
    ) -> Result<Host, Error> {
        fork::watch();
        // A machine has at least one group.
        let Some((first, others)) = groups.split_first() else {
            return Err(Error::NoGroup(settings.server.0));
        };
        let (first, server, membership) = (first.clone(), first.server(), first.core().membership());
        let machines = peers.machines().len();
        for group in &groups {
            group.core().join(membership);
            group.core().compare_with(server, machines);
            if is_waited_for {
                group.core().wait_for_clocks(HOME_WAIT_MS);
            }
            for other in groups.iter().filter(|other| other.server() != group.server()) {
                group.core().set_location(other.server(), "");
            }
        }
        let sockets = transport_to_others(client_number(), membership, peers)?;
        let transport = AnyTransport::of_machine(&first, others, sockets);
        let (placement, has_peers) = (peers.placement, machines > 0);
        let groups: Arc<[EmbeddedServer]> = groups.into();
        let peers = Arc::new(Peers::start(&groups, client_number(), peers)?);
        let mut host = Host {
            groups,
            first,
            transport,
            ending: StopFlag::default(),
            maintenance: Vec::new(),
            catalog: None,
            directory: None,
            peers: Some(Arc::clone(&peers)),
            generation: fork::generation(),
        };
        let (mut serving, mut serves) = (Vec::new(), Vec::new());
        for _ in &*host.groups {
            let (sender, receiver) = mpsc::sync_channel(1);
            serving.push(Some(sender).filter(|_| has_peers));
            serves.push(receiver);
        }
        for (index, serving) in serving.into_iter().enumerate() {
            let (groups, by, peers) = (Arc::clone(&host.groups), host.transport.clone(), Arc::clone(&peers));
            let ending = host.ending.clone();
            let thread = thread::Builder::new().name("yesquel-maintenance".to_owned());
            let maintenance = move || {
                if let Some(group) = groups.get(index) {
                    let settings = EngineSettings { server: group.server(), ..settings };
                    let asks = |queries| peers.ask(index, queries);
                    maintain(group, (by, placement), &settings, asks, &ending, serving);
                }
            };
            host.maintenance.push(thread.spawn(maintenance).map_err(thread_error)?);
        }
        if has_peers {
            host.groups.iter().for_each(|group| group.core().admit_clients(false));
            // The server serves nothing before it has compared its clock, which needs its sockets.
            let (groups, by, ends) = (Arc::clone(&host.groups), host.transport.clone(), host.ending.clone());
            let thread = thread::Builder::new().name("yesquel-catalog".to_owned());
            let thread = thread.spawn(move || {
                for (group, serves) in groups.iter().zip(&serves) {
                    create_catalog_later(group, &ends, serves);
                }
                if membership.home_group != server {
                    give_up_catalog(by, server, membership.home_group, &ends);
                }
            });
            host.catalog = Some(thread.map_err(thread_error)?);
        } else {
            for group in &*host.groups {
                create_catalog(group)?;
            }
        }
        Ok(host)
    }

    /// Like [`grow`](Self::grow). A wrong clock does not end the process: it waits until the clock is right,
    /// or the server is to stop.
    fn grow_when_served(&self, count: usize, peers: &PeerAccess) -> Result<Vec<GrownGroup>, Error> {
        let (_guard, mut has_told) = (peers.ending.cancel_calls(), false);
        loop {
            match self.grow(count, peers) {
                Err(error @ Error::ClockDiffers(_)) if !peers.ending.is_set() => {
                    if !std::mem::replace(&mut has_told, true) {
                        tracing::warn!(%error, "the machine gets no further groups until its clock is right");
                    }
                    peers.ending.pause(GROW_AGAIN);
                }
                grown => return grown,
            }
        }
    }

    /// Takes numbers for further groups of the home group's machine until it has so many.
    fn grow(&self, count: usize, peers: &PeerAccess) -> Result<Vec<GrownGroup>, Error> {
        let MachineIdentity { membership, machine, .. } = self.first.core().identity();
        let trees = Trees::new(Client::new(self.transport.clone(), client_number()));
        let secrets = peers.secrets.get();
        let catalog = Catalog::new(&trees, membership.home_group);
        let cluster = membership.cluster;
        let directory = Directory { catalog, cluster, credentials: secrets.peers.as_ref() };
        let own: Vec<ServerId> = self.groups.iter().map(EmbeddedServer::server).collect();
        let known: Vec<ServerId> = peers.servers.iter().map(|(group, _)| *group).collect();
        Ok(block_on(directory.grow(machine, &own, (count, &known)))?)
    }

    /// Starts the thread that keeps the copy of the directory and performs commands for machines.
    pub(crate) fn serve_directory(&mut self, options: DirectoryOptions) -> Result<(), Error> {
        let Some(peers) = self.peers.clone() else { return Ok(()) };
        let trees = Trees::new(Client::new(self.transport.clone(), client_number()));
        let groups = Arc::clone(&self.groups);
        let directory =
            DirectoryThread::new((groups, self.first.clone(), self.transport.clone()), trees, peers, options);
        let ending = self.ending.clone();
        let thread = thread::Builder::new().name("yesquel-directory".to_owned());
        self.directory = Some(thread.spawn(move || directory.run(&ending)).map_err(thread_error)?);
        Ok(())
    }

    /// Sets the address at which others reach the groups.
    pub(crate) fn set_address(&self, address: &str) {
        for group in &*self.groups {
            group.core().set_address(address);
            let siblings = self.groups.iter().filter(|sibling| sibling.server() != group.server());
            siblings.for_each(|sibling| group.core().set_location(sibling.server(), address));
        }
    }

    /// Returns the id of the first group.
    pub fn server(&self) -> ServerId {
        self.first.server()
    }

    /// Returns the transport to the first group.
    pub fn transport(&self) -> &EmbeddedServer {
        &self.first
    }

    /// Returns the transports to all groups, the first one first.
    pub fn groups(&self) -> &[EmbeddedServer] {
        &self.groups
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // A fork does not copy threads: joining would wait forever.
            std::mem::forget((
                std::mem::take(&mut self.maintenance),
                self.catalog.take(),
                self.directory.take(),
            ));
            std::mem::forget(self.peers.take());
            return;
        }
        self.ending.set();
        for group in &*self.groups {
            group.core().wake_work();
            group.core().wake_commands();
        }
        let threads = std::mem::take(&mut self.maintenance).into_iter();
        for thread in threads.chain(self.catalog.take()).chain(self.directory.take()) {
            // Nothing could receive a panic's message now.
            let _ = thread.join();
        }
    }
}

/// Checks whether a machine may have so many groups: those that know others by `--peer` do not learn
/// which machine has further ones.
fn check_growth(groups_min: u16, peers: &PeerAccess, has_directory: bool) -> Result<(), Error> {
    if groups_min > 1 && !peers.servers.is_empty() && !has_directory {
        return Err(Error::NoDirectory);
    }
    Ok(())
}

fn thread_error(error: io::Error) -> Error {
    DataFolderError::Io { path: "a thread of the server".into(), error }.into()
}

fn create_catalog(embedded: &EmbeddedServer) -> Result<(), TreeError> {
    let trees = Trees::new(Client::new(embedded.clone(), client_number()));
    block_on(trees.create_if_missing(catalog_tree(embedded.server())))?;
    Ok(())
}

/// Creates the catalog as soon as the server serves, which the channel announces.
fn create_catalog_later(embedded: &EmbeddedServer, ending: &StopFlag, serves: &Receiver<()>) {
    let _guard = ending.cancel_calls();
    while !ending.is_set() {
        match create_catalog(embedded).map_err(Error::from) {
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
    let [from, to] = [own, home].map(|group| Catalog::new(&trees, group));
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
