//! Questions to other groups: by a thread for each other machine, and by one for the groups of this
//! machine.

mod asker;
mod own_groups;

use crate::{Error, stop_flag::StopFlag};
use asker::PeerAsker;
use own_groups::{OwnGroups, OwnTask};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use yesquel_embedded::EmbeddedServer;
use yesquel_model::{ClusterId, ClusterMembership, ServerId};
use yesquel_node::PeerQuery;
use yesquel_secrets::{Credentials, PeerSecrets, PresentSecrets};
use yesquel_server::DataFolderError;
use yesquel_transport::{Address, ConnectError, SocketOptions, SocketTransport};
use yesquel_tree::LeafPlacement;
use yesquel_wire::greeting::Role;

/// Questions that wait for one server. More are dropped: the engine asks again.
const QUEUED_MAX: usize = 1 << 12;
/// Time limits of a connection and of a reply. A server asks again after a pause anyway.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time in milliseconds in which a snapshot is reported to all servers: 300 by its client, 200 by
/// the server that the client reports to, and the rest for two messages.
pub(crate) const GRACE_MS: u64 = 2_000;
/// Interval of the reports.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// Other servers, and how they are reached.
#[derive(Clone, Default)]
pub struct PeerOptions {
    /// Their numbers and addresses.
    pub servers: Vec<(ServerId, Address)>,
    /// Credentials that servers present to each other; `None`: none. The first one is presented, all are
    /// accepted.
    pub credential: Option<Credentials>,
    /// Encryption, on TCP.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

impl fmt::Debug for PeerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the credential.
        f.debug_struct("PeerOptions").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// The other servers, and the secrets that are in force.
#[derive(Debug, Clone, Default)]
pub(crate) struct PeerAccess {
    pub(crate) servers: Vec<(ServerId, Address)>,
    pub(crate) secrets: Arc<PresentSecrets>,
    /// Where new leaves of trees with several groups are created.
    pub(crate) placement: LeafPlacement,
    /// Whether the server has sockets, so that other machines may join it.
    pub(crate) has_sockets: bool,
    /// Interrupts the start.
    pub(crate) ending: StopFlag,
}

impl PeerAccess {
    /// Returns the other machines: the groups at each address, the lowest first.
    pub(crate) fn machines(&self) -> BTreeMap<ServerId, (Vec<ServerId>, Address)> {
        let mut at: BTreeMap<String, (Vec<ServerId>, Address)> = BTreeMap::new();
        for (group, address) in &self.servers {
            let place = at.entry(address.to_string());
            place.or_insert_with(|| (Vec::new(), address.clone())).0.push(*group);
        }
        let machines = at.into_values().filter_map(|(mut groups, address)| {
            groups.sort_unstable();
            Some((*groups.first()?, (groups, address)))
        });
        machines.collect()
    }
}

/// How long a new server waits for the founder of its cluster.
const FOUNDER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between attempts to reach the founder.
const FOUNDER_PAUSE: Duration = Duration::from_millis(50);

/// Returns the options of a connection to another server.
/// Each connection presents the secrets that are in force when it is made.
pub(crate) fn socket_options(access: &PeerAccess, cluster: Option<ClusterId>) -> SocketOptions {
    SocketOptions {
        secrets: Some(Arc::new(PeerSecrets(Arc::clone(&access.secrets)))),
        credential: Box::default(),
        role: Role::Peer,
        cluster,
        tls: None,
        connect_timeout: CONNECT_TIMEOUT,
        timeout: TIMEOUT,
        close_timeout: Duration::ZERO,
        lanes: 0,
    }
}

/// Asks for the cluster that a new server joins; `None`: it founds one. Of servers that know each
/// other the one with the lowest number is the founder.
pub(crate) fn founded(
    own: ServerId,
    client: u64,
    access: &PeerAccess,
) -> Result<Option<ClusterMembership>, Error> {
    let founder = access.servers.iter().min_by_key(|(server, _)| *server);
    let Some((founder, address)) = founder.filter(|(founder, _)| *founder < own) else { return Ok(None) };
    let until = Instant::now() + FOUNDER_TIMEOUT;
    loop {
        let options = socket_options(access, None);
        match SocketTransport::connect(std::slice::from_ref(address), client, options) {
            Ok(connection) => {
                let now = connection.servers().next().unwrap_or_default();
                if now != *founder {
                    let (address, before) = (address.clone(), *founder);
                    return Err(ConnectError::Another { address, before, now }.into());
                }
                if connection.servers().any(|group| group == own) {
                    return Err(Error::GroupTaken { group: own.0, place: address.to_string() });
                }
                return Ok(Some(connection.membership()));
            }
            Err(error) if error.is_final() || Instant::now() >= until => {
                return Err(Error::NoFounder { server: founder.0, error });
            }
            Err(_) => thread::sleep(FOUNDER_PAUSE),
        }
    }
}

/// Returns a transport to the groups of other machines; `None`: there are none, and none can join.
pub(crate) fn transport_to_others(
    client: u64,
    membership: ClusterMembership,
    access: &PeerAccess,
) -> Result<Option<SocketTransport>, ConnectError> {
    if access.servers.is_empty() && !access.has_sockets {
        return Ok(None);
    }
    let groups = access.servers.iter().map(|(group, address)| (*group, address));
    let options = socket_options(access, None);
    SocketTransport::to_groups(groups, client, membership, options).map(Some)
}

/// A question, and the index of the group of this machine that asks it.
type AskedQuery = (usize, PeerQuery);

/// The thread that asks the groups of a machine.
struct PeerLink<T> {
    tasks: Option<SyncSender<T>>,
    thread: Option<JoinHandle<()>>,
    ending: StopFlag,
}

impl<T> Drop for PeerLink<T> {
    fn drop(&mut self) {
        self.ending.set();
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // Nothing could receive a panic's message now.
            let _ = thread.join();
        }
    }
}

/// The other machines.
#[derive(Default)]
struct PeerLinks {
    /// By the first group of the machine.
    machines: BTreeMap<ServerId, PeerLink<AskedQuery>>,
    /// First group of the machine of each group.
    first_of: BTreeMap<ServerId, ServerId>,
}

/// The groups of this machine, and those of others. Dropping it ends its threads.
pub(crate) struct Peers {
    groups: Arc<[EmbeddedServer]>,
    client: u64,
    access: PeerAccess,
    links: Mutex<PeerLinks>,
    /// `None`: the machine has one group.
    own: Option<PeerLink<OwnTask>>,
}

fn thread_error(error: std::io::Error) -> Error {
    DataFolderError::Io { path: "a thread for a peer".into(), error }.into()
}

impl Peers {
    /// Starts a thread for each other machine. `groups` are those of this one, of which there is at least
    /// one.
    pub(crate) fn start(
        groups: &Arc<[EmbeddedServer]>,
        client: u64,
        access: &PeerAccess,
    ) -> Result<Peers, Error> {
        let (groups, access) = (Arc::clone(groups), access.clone());
        let own = (groups.len() > 1).then(|| OwnGroups::start(&groups)).transpose().map_err(thread_error)?;
        let peers = Peers { groups, client, access, links: Mutex::default(), own };
        for (group, address) in &peers.access.servers {
            peers.groups.iter().for_each(|own| own.core().set_location(*group, &address.to_string()));
        }
        for (groups, address) in peers.access.machines().values() {
            peers.add(groups, address)?;
        }
        Ok(peers)
    }

    fn links(&self) -> MutexGuard<'_, PeerLinks> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread for a machine that has joined, unless there is one. Its groups are in order.
    pub(crate) fn add(&self, groups: &[ServerId], address: &Address) -> Result<(), Error> {
        let (Some(first), Some(own)) = (groups.first(), self.groups.first()) else { return Ok(()) };
        let mut links = self.links();
        links.first_of.extend(groups.iter().map(|group| (*group, *first)));
        if links.machines.contains_key(first) {
            return Ok(());
        }
        let (tasks, receiver) = sync_channel(QUEUED_MAX);
        let cores = self.groups.iter().map(|group| Arc::clone(group.core())).collect();
        let options = socket_options(&self.access, Some(own.core().membership().cluster));
        let asker = PeerAsker::new(cores, *first, address, (self.client, options));
        let ending = StopFlag::default();
        let ends = ending.clone();
        let thread = thread::Builder::new().name(format!("yesquel-peer-{}", first.0));
        let thread = thread.spawn(move || asker.run(&receiver, &ends)).map_err(thread_error)?;
        links.machines.insert(*first, PeerLink { tasks: Some(tasks), thread: Some(thread), ending });
        Ok(())
    }

    /// Ends the thread of a machine that was removed.
    pub(crate) fn remove(&self, first: ServerId) {
        let mut links = self.links();
        let link = links.machines.remove(&first);
        links.first_of.retain(|_, known| *known != first);
        drop(links);
        // It waits for the thread, without the lock.
        drop(link);
    }

    /// Number of the other machines.
    pub(crate) fn count(&self) -> usize {
        self.links().machines.len()
    }

    /// Sends the questions of a group of this machine, by its index. Those to unknown groups are dropped:
    /// the transaction stays undecided.
    pub(crate) fn ask(&self, asker: usize, queries: Vec<PeerQuery>) {
        if queries.is_empty() {
            return;
        }
        let links = self.links();
        for query in queries {
            let group = query.server();
            // The engine asks again if a queue is full.
            if let Some(own) = self.own.as_ref().and_then(|own| own.tasks.as_ref())
                && self.groups.iter().any(|own| own.server() == group)
            {
                drop(own.try_send(OwnTask::Ask(asker, query)));
                continue;
            }
            let first = links.first_of.get(&group);
            let link = first.and_then(|first| links.machines.get(first));
            match link.and_then(|link| link.tasks.as_ref()) {
                Some(queue) => drop(queue.try_send((asker, query))),
                None => tracing::warn!(
                    group = group.0,
                    "{}: the address of a group is not known",
                    match query {
                        PeerQuery::Vote(_) | PeerQuery::Ended(_) => "transactions stay undecided",
                        PeerQuery::Value(_) => "pieces of long values stay uncollected",
                    }
                ),
            }
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let links = std::mem::take(&mut *self.links());
        // All end at the same time.
        links.machines.values().for_each(|link| link.ending.set());
        if let Some(own) = &self.own
            && let Some(tasks) = &own.tasks
        {
            own.ending.set();
            // If the queue is full, the thread is awake.
            drop(tasks.try_send(OwnTask::End));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_at_one_address_are_one_machine() {
        let at = |group: u16, host: &str| (ServerId(group), format!("{host}:7411").parse().unwrap());
        let servers = vec![at(4, "b"), at(2, "a"), at(1, "b"), at(0, "c")];
        let machines = PeerAccess { servers, ..PeerAccess::default() }.machines();
        let groups: Vec<Vec<u16>> =
            machines.values().map(|(groups, _)| groups.iter().map(|group| group.0).collect()).collect();
        assert_eq!(groups, [vec![0], vec![1, 4], vec![2]]);
        assert_eq!(machines.keys().map(|first| first.0).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
