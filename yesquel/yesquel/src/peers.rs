//! Questions to other servers, by a thread for each of them.

use crate::{Error, stop_flag::StopFlag};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use yesquel_model::{ClusterId, ClusterMembership, ServerId};
use yesquel_node::PeerQuery;
use yesquel_secrets::{Credentials, PeerSecrets, PresentSecrets};
use yesquel_server::{Core, DataFolderError};
use yesquel_transport::{
    Address, ConnectError, LostCall, SocketOptions, SocketTransport, Transport, block_on, repeat_corrected,
};
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
                return Ok(Some(connection.membership()));
            }
            Err(error) if error.is_final() || Instant::now() >= until => {
                return Err(Error::NoFounder { server: founder.0, error });
            }
            Err(_) => thread::sleep(FOUNDER_PAUSE),
        }
    }
}

/// Returns a transport to the other servers of a cluster, for a server that needs numbers of their
/// home group; `None`: it is the home group itself.
pub(crate) fn transport_home(
    own: ServerId,
    client: u64,
    membership: ClusterMembership,
    access: &PeerAccess,
) -> Result<Option<SocketTransport>, ConnectError> {
    if membership.home_group == own {
        return Ok(None);
    }
    let groups = access.servers.iter().map(|(group, address)| (*group, address));
    let options = socket_options(access, None);
    SocketTransport::to_groups(groups, client, membership, options).map(Some)
}

/// The thread that asks a server.
struct PeerLink {
    queries: Option<SyncSender<PeerQuery>>,
    thread: Option<JoinHandle<()>>,
    ending: StopFlag,
}

impl Drop for PeerLink {
    fn drop(&mut self) {
        self.ending.set();
        self.queries = None;
        if let Some(thread) = self.thread.take() {
            // Nothing could receive a panic's message now.
            let _ = thread.join();
        }
    }
}

/// The other servers. Dropping it ends its threads.
pub(crate) struct Peers {
    core: Arc<Core>,
    client: u64,
    access: PeerAccess,
    links: Mutex<BTreeMap<ServerId, PeerLink>>,
}

impl Peers {
    /// Starts a thread for each server.
    pub(crate) fn start(core: &Arc<Core>, client: u64, access: &PeerAccess) -> Result<Peers, Error> {
        let (core, access) = (Arc::clone(core), access.clone());
        let peers = Peers { core, client, access, links: Mutex::default() };
        for (server, address) in &peers.access.servers {
            peers.core.set_location(*server, &address.to_string());
            peers.add(*server, address)?;
        }
        Ok(peers)
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<ServerId, PeerLink>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread for a server that has joined, unless there is one.
    pub(crate) fn add(&self, server: ServerId, address: &Address) -> Result<(), Error> {
        let mut links = self.links();
        if links.contains_key(&server) {
            return Ok(());
        }
        let (queries, receiver) = sync_channel(QUEUED_MAX);
        let asker = PeerAsker {
            core: Arc::clone(&self.core),
            server,
            address: address.clone(),
            client: self.client,
            options: socket_options(&self.access, Some(self.core.membership().cluster)),
            connection: None,
            tries_told: false,
            failed: None,
        };
        let ending = StopFlag::default();
        let ends = ending.clone();
        let thread = thread::Builder::new().name(format!("yesquel-peer-{}", server.0));
        let thread = thread.spawn(move || asker.run(&receiver, &ends));
        let thread = thread
            .map_err(|error| DataFolderError::Io { path: "a thread for a peer".into(), error })
            .map_err(Error::from)?;
        links.insert(server, PeerLink { queries: Some(queries), thread: Some(thread), ending });
        Ok(())
    }

    /// Ends the thread of a server that was removed.
    pub(crate) fn remove(&self, server: ServerId) {
        let link = self.links().remove(&server);
        // It waits for the thread, without the lock.
        drop(link);
    }

    /// Number of the other servers.
    pub(crate) fn count(&self) -> usize {
        self.links().len()
    }

    /// Sends questions. Those to unknown servers are dropped: the transaction stays undecided.
    pub(crate) fn ask(&self, queries: Vec<PeerQuery>) {
        if queries.is_empty() {
            return;
        }
        let links = self.links();
        for query in queries {
            let link = links.get(&query.server());
            match link.and_then(|link| link.queries.as_ref()) {
                // The engine asks again if the queue is full.
                Some(queue) => drop(queue.try_send(query)),
                None => tracing::warn!(
                    server = query.server().0,
                    "{}: the address of a server is not known",
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
        links.values().for_each(|link| link.ending.set());
    }
}

/// Asks one server.
struct PeerAsker {
    core: Arc<Core>,
    server: ServerId,
    address: Address,
    client: u64,
    options: SocketOptions,
    connection: Option<SocketTransport>,
    /// Whether the next attempt goes to the address that the server has reported.
    tries_told: bool,
    /// Whether the last attempt failed, which is logged once.
    failed: Option<String>,
}

impl PeerAsker {
    fn run(mut self, queries: &Receiver<PeerQuery>, ending: &StopFlag) {
        // A call ends early when the server stops.
        let _guard = ending.cancel_calls();
        let mut report_at = Instant::now();
        loop {
            let first = queries.recv_timeout(report_at.saturating_duration_since(Instant::now()));
            if ending.is_set() || first == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            let batch: Vec<PeerQuery> = first.into_iter().chain(queries.try_iter()).collect();
            let is_due = report_at <= Instant::now();
            if is_due {
                report_at = Instant::now() + REPORT_EVERY;
            }
            if let Err(error) = self.connect() {
                self.note_failure(error.to_string());
                continue;
            }
            let (asked, reported) = (self.ask(&batch), if is_due { self.report() } else { Ok(()) });
            match asked.and(reported) {
                Ok(()) => self.failed = None,
                Err(lost) => {
                    self.connection = None;
                    self.note_failure(lost.to_string());
                }
            }
        }
    }

    /// Exchanges reports with the server.
    fn report(&self) -> Result<(), LostCall> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let (report, sent) = self.core.begin_report();
        let reply = block_on(self.call(connection, report))?;
        self.core.end_report(sent, &reply);
        Ok(())
    }

    fn connect(&mut self) -> Result<(), ConnectError> {
        if let Some(connection) = &self.connection {
            // No request is in flight now. The next one presents the credential that is in force.
            connection.renew();
            return Ok(());
        }
        // The server may have reported another address than the configured one.
        let told = self.core.address_of(self.server).parse::<Address>().ok();
        let told = told.filter(|told| *told != self.address && self.tries_told);
        self.tries_told = !self.tries_told;
        let address = told.as_ref().unwrap_or(&self.address);
        let connection =
            SocketTransport::connect(std::slice::from_ref(address), self.client, self.options.clone())?;
        let now = connection.servers().next().unwrap_or_default();
        if now != self.server {
            return Err(ConnectError::Another { address: address.clone(), before: self.server, now });
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// Sends all questions, then takes the replies.
    fn ask(&self, batch: &[PeerQuery]) -> Result<(), LostCall> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let mut lost = Ok(());
        let calls: Vec<_> = batch.iter().map(|query| (query, self.call(connection, query.bytes()))).collect();
        for (query, call) in calls {
            match block_on(call) {
                Ok(reply) => self.core.on_peer_reply(query, &reply),
                Err(error) => lost = Err(error),
            }
        }
        lost
    }

    /// Sends a request now, and repeats it if it came to the wrong place.
    fn call<'a>(
        &self,
        connection: &'a SocketTransport,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        let (server, reply) = (self.server, connection.call(self.server, &request));
        async move { repeat_corrected(connection, server, &request, reply.await?, || ()).await }
    }

    fn note_failure(&mut self, error: String) {
        if self.failed.is_none() {
            tracing::warn!(server = self.server.0, %error, "another server cannot be reached");
        }
        self.failed = Some(error);
    }
}
