//! Questions to other servers, by a thread for each of them.

use crate::{Error, stop_flag::StopFlag};
use std::{
    fmt,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use yesquel_model::ServerId;
use yesquel_node::PeerQuery;
use yesquel_server::{Core, DataFolderError};
use yesquel_transport::{
    Address, ConnectError, LostCall, SocketOptions, SocketTransport, Transport, block_on,
};
use yesquel_wire::greeting::Role;

/// Questions that wait for one server. More are dropped: the engine asks again.
const QUEUED_MAX: usize = 1 << 12;
/// Time limits of a connection and of a reply. A server asks again after a pause anyway.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the reports.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// Other servers, and how they are reached.
#[derive(Clone, Default)]
pub struct PeerOptions {
    /// Their numbers and addresses.
    pub servers: Vec<(ServerId, Address)>,
    /// Credential that servers present to each other; `None`: none.
    pub credential: Option<Box<[u8]>>,
    /// Encryption, on TCP.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

impl fmt::Debug for PeerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the credential.
        f.debug_struct("PeerOptions").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// A server and the thread that asks it.
struct PeerLink {
    server: ServerId,
    queries: Option<SyncSender<PeerQuery>>,
    thread: Option<JoinHandle<()>>,
}

/// The other servers. Dropping it ends its threads.
pub(crate) struct Peers {
    links: Vec<PeerLink>,
    ending: StopFlag,
}

impl Peers {
    /// Starts a thread for each server.
    pub(crate) fn start(core: &Arc<Core>, client: u64, options: &PeerOptions) -> Result<Peers, Error> {
        let mut peers = Peers { links: Vec::new(), ending: StopFlag::default() };
        for (server, address) in &options.servers {
            let options = SocketOptions {
                credential: options.credential.clone().unwrap_or_default(),
                role: Role::Peer,
                tls: options.tls.clone(),
                connect_timeout: CONNECT_TIMEOUT,
                timeout: TIMEOUT,
                close_timeout: Duration::ZERO,
                lanes: 0,
            };
            let (queries, receiver) = sync_channel(QUEUED_MAX);
            let asker = PeerAsker {
                core: Arc::clone(core),
                server: *server,
                address: address.clone(),
                client,
                options,
                connection: None,
                failed: None,
            };
            let ending = peers.ending.clone();
            let thread = thread::Builder::new().name(format!("yesquel-peer-{}", server.0));
            let thread = thread.spawn(move || asker.run(&receiver, &ending));
            let thread = thread
                .map_err(|error| DataFolderError::Io { path: "a thread for a peer".into(), error })
                .map_err(Error::from)?;
            peers.links.push(PeerLink { server: *server, queries: Some(queries), thread: Some(thread) });
        }
        Ok(peers)
    }

    /// Sends questions. Those to unknown servers are dropped: the transaction stays undecided.
    pub(crate) fn ask(&self, queries: Vec<PeerQuery>) {
        for query in queries {
            let link = self.links.iter().find(|link| link.server == query.server());
            match link.and_then(|link| link.queries.as_ref()) {
                // The engine asks again if the queue is full.
                Some(queue) => drop(queue.try_send(query)),
                None => tracing::warn!(
                    server = query.server().0,
                    "transactions stay undecided: the address of a participant is not known (--peer)"
                ),
            }
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.ending.set();
        for link in &mut self.links {
            link.queries = None;
            if let Some(thread) = link.thread.take() {
                // Nothing could receive a panic's message now.
                let _ = thread.join();
            }
        }
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
        let reply = block_on(connection.call(self.server, &report))?;
        self.core.end_report(sent, &reply);
        Ok(())
    }

    fn connect(&mut self) -> Result<(), ConnectError> {
        if self.connection.is_some() {
            return Ok(());
        }
        let connection =
            SocketTransport::connect(std::slice::from_ref(&self.address), self.client, self.options.clone())?;
        let now = connection.servers().next().unwrap_or_default();
        if now != self.server {
            return Err(ConnectError::Another { address: self.address.clone(), before: self.server, now });
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// Sends all questions, then takes the replies.
    fn ask(&self, batch: &[PeerQuery]) -> Result<(), LostCall> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let mut lost = Ok(());
        let calls: Vec<_> =
            batch.iter().map(|query| (query, connection.call(self.server, &query.bytes()))).collect();
        for (query, call) in calls {
            match block_on(call) {
                Ok(reply) => self.core.on_peer_reply(query, &reply),
                Err(error) => lost = Err(error),
            }
        }
        lost
    }

    fn note_failure(&mut self, error: String) {
        if self.failed.is_none() {
            tracing::warn!(server = self.server.0, %error, "another server cannot be reached");
        }
        self.failed = Some(error);
    }
}
