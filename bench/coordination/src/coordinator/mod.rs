//! Coordinator of a group: passes the events of ZooKeeper, connections and time to a [`Group`].
//!
//! One task owns all state and never blocks. A request to ZooKeeper, a greeting or
//! a write to a slow client is a task of its own, which sends its result to the
//! first. The coordinator has a thread of its own, so that no other work delays
//! the requests for clients' times.

mod barriers;
mod connections;
mod task;

use crate::{
    clock::{Asking, ClockOffset, ClockTrack},
    directory::{Directory, DirectoryError, EpochWatch, Leader},
    group::{Group, GroupSettings, LostClient, PhaseEnd},
    message::{ClientFacts, Frame, ToClient, ToCoordinator, Work},
    recruiting::Arrival,
};
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self as blocking, Receiver},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{
        OwnedSemaphorePermit,
        mpsc::{self, UnboundedSender},
    },
    task::JoinSet,
};

/// Time limit for a connection to identify itself.
const GREETING: Duration = Duration::from_secs(5);

/// Maximum number of unidentified connections. Each may send
/// [`HELLO_MAX`](crate::message::HELLO_MAX) bytes, 64 MiB in all. Others wait in the system's backlog.
const GREETINGS_MAX: usize = 1024;

/// Number of clock exchanges with a client as soon as it has joined, one after the other.
const FIRST_EXCHANGES: usize = 16;

/// Pause before a failed request to ZooKeeper is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Options of a coordinator.
#[derive(Debug, Clone)]
pub struct Leading {
    /// ZooKeeper's address.
    pub cluster: String,
    /// Node below which Serval keeps all its nodes.
    pub root: String,
    /// The group's name.
    pub group: String,
    /// Address to listen at; `None` for a free port of the address by which this
    /// machine reaches ZooKeeper.
    pub listen: Option<SocketAddr>,
    /// Whether to call agents; otherwise clients join by themselves.
    pub calls_agents: bool,
    /// Number of clients and time limits.
    pub settings: GroupSettings,
    /// Monotonic clock, ns.
    pub clock: fn() -> u64,
}

/// Report of a coordinator.
#[derive(Debug)]
pub enum CoordinatorReport {
    /// A client has joined.
    Joined {
        /// Number of the client.
        client: usize,
        /// Description of the client.
        facts: ClientFacts,
    },
    /// All clients have joined.
    Complete,
    /// The phase begins at this instant of the coordinator's clock, ns.
    Starts(u64),
    /// An interval of a client, as the client encoded it.
    Interval(usize, Vec<u8>),
    /// A client's result of the phase, as the client encoded it.
    Result(usize, Vec<u8>),
    /// A client was lost.
    Lost(LostClient),
    /// The phase is over.
    Over(PhaseEnd),
    /// A problem that does not end the group.
    Trouble(String),
    /// The group ends with the running phase, for this reason. Results are still reported.
    Ending(String),
    /// The group is over; the reason, if it is a failure.
    Disbanded(Option<String>),
}

#[derive(Debug)]
enum CoordinatorCommand {
    Phase { works: Vec<Option<Work>>, length_max: Option<Duration> },
    Measure(u64),
    Finish(Vec<usize>),
    Stop,
    Farewell,
}

/// A group's coordinator. Dropping it ends the group.
#[derive(Debug)]
pub struct Coordinator {
    commands: UnboundedSender<CoordinatorCommand>,
    reports: Receiver<CoordinatorReport>,
    leader: Leader,
    tracks: Arc<Mutex<Vec<ClockTrack>>>,
    thread: Option<JoinHandle<()>>,
}

/// Error of starting a coordinator.
#[derive(Debug, thiserror::Error)]
pub enum LeadError {
    /// ZooKeeper failed.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The address is in use, or is not an address of this machine.
    #[error(
        "cannot listen for clients at {address}: {error}. Set coordination.listen to an address of this machine"
    )]
    Listen {
        /// The address that was tried.
        address: SocketAddr,
        /// The system's message.
        error: io::Error,
    },
    /// The system refused a resource, such as a thread.
    #[error("cannot start the coordinator: {0}")]
    System(#[from] io::Error),
}

/// Returns the address by which this machine reaches ZooKeeper. Clients reach
/// ZooKeeper too, so most likely they can reach this address.
fn address_towards(cluster: &str) -> IpAddr {
    let first = cluster.split([',', '/']).next().unwrap_or_default();
    let target = if first.contains(':') { first.to_owned() } else { format!("{first}:2181") };
    let local = || {
        let target = target.to_socket_addrs().ok()?.next()?;
        let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { "::".parse().ok()? };
        // Connecting a datagram socket sends nothing; it chooses the route.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(target).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    local().unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// Returns 128 random bits, in hexadecimal.
fn token() -> io::Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Coordinator {
    /// Becomes the coordinator of a group and waits for clients on a thread of its own.
    ///
    /// # Errors
    ///
    /// ZooKeeper cannot be reached, the group has a coordinator, or the address cannot be listened at.
    pub fn open(leading: Leading, name: &str) -> Result<Coordinator, LeadError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let timeout = Duration::from_nanos(leading.settings.timeout);
        let secret = token()?;
        let (listener, directory, leader, watch) = runtime.block_on(async {
            let directory = Directory::open(&leading.cluster, &leading.root, timeout).await?;
            let wanted =
                leading.listen.unwrap_or_else(|| SocketAddr::new(address_towards(&leading.cluster), 0));
            let failed = |error| LeadError::Listen { address: wanted, error };
            let listener = TcpListener::bind(wanted).await.map_err(failed)?;
            let mut address = listener.local_addr().map_err(failed)?;
            if address.ip().is_unspecified() {
                // Clients cannot connect to the unspecified address.
                address.set_ip(address_towards(&leading.cluster));
            }
            let address = address.to_string();
            let leader = directory
                .lead(&leading.group, |epoch| Leader {
                    group: leading.group.clone(),
                    epoch,
                    address: address.clone(),
                    token: secret.clone(),
                    name: name.to_owned(),
                })
                .await?;
            let watch = directory.epoch(&leading.group, leader.epoch).watch().await?;
            Ok::<_, LeadError>((listener, directory, leader, watch))
        })?;
        let (commands, requested) = mpsc::unbounded_channel();
        let (report, reports) = blocking::channel();
        let led = leader.clone();
        let tracks = Arc::new(Mutex::new(Vec::new()));
        let task_tracks = Arc::clone(&tracks);
        let thread = thread::Builder::new().name("coordinator".to_owned()).spawn(move || {
            let (incoming, events) = mpsc::unbounded_channel();
            let now = (leading.clock)();
            let task = CoordinatorTask {
                group: Group::new(leading.settings.clone(), now),
                connections: HashMap::new(),
                by_client: Vec::new(),
                next_connection: 0,
                phase: 0,
                works: Vec::new(),
                done: false,
                zookeeper_lost: false,
                arrivals: None,
                asking: Asking::default(),
                writers: JoinSet::new(),
                leading,
                leader,
                directory,
                incoming,
                report,
                tracks: task_tracks,
            };
            runtime.block_on(task.run(listener, events, requested, watch));
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
        Ok(Coordinator { commands, reports, leader: led, tracks, thread: Some(thread) })
    }

    /// Returns the description of this coordinator that clients find in ZooKeeper.
    pub fn leader(&self) -> &Leader {
        &self.leader
    }

    /// Returns, for each client by number, its clock's offsets since it joined: instants of its
    /// clock, ns, in rising order, and the offset at each.
    pub fn clocks(&self) -> Vec<Vec<(u64, ClockOffset)>> {
        let tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        tracks.iter().map(ClockTrack::offsets).collect()
    }

    /// Waits for the next report. Returns `None` once the coordinator has ended.
    pub fn next(&self) -> Option<CoordinatorReport> {
        self.reports.recv().ok()
    }

    /// Waits for the next report for at most `span`.
    ///
    /// # Errors
    ///
    /// There was none, or there will be no more.
    pub fn next_within(&self, span: Duration) -> Result<CoordinatorReport, blocking::RecvTimeoutError> {
        self.reports.recv_timeout(span)
    }

    /// Starts a phase with each client's work, by number; clients without work take no part. It
    /// lasts at most `length_max` from its start.
    pub fn phase(&self, works: Vec<Option<Work>>, length_max: Option<Duration>) {
        let _ = self.commands.send(CoordinatorCommand::Phase { works, length_max });
    }

    /// Sets the instant at which the measured part starts, ns of the coordinator's clock.
    pub fn measure(&self, at: u64) {
        let _ = self.commands.send(CoordinatorCommand::Measure(at));
    }

    /// Asks some clients to end their part of the phase and send their results; the phase and
    /// the group continue.
    pub fn finish(&self, clients: Vec<usize>) {
        let _ = self.commands.send(CoordinatorCommand::Finish(clients));
    }

    /// Ends the phase early; results are still reported. Between phases, ends the group.
    pub fn stop(&self) {
        let _ = self.commands.send(CoordinatorCommand::Stop);
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.commands.send(CoordinatorCommand::Farewell);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection of a client.
struct Connection {
    /// The client's number.
    client: usize,
    facts: ClientFacts,
    out: UnboundedSender<Frame<ToClient>>,
    /// Whether the client's result of the phase has arrived.
    result_received: bool,
    /// Whether the client is at the barrier at the end of the phase. A client has left the phase when
    /// this and `result_received` are true.
    at_barrier: bool,
    /// Number of initial clock exchanges left.
    first_exchanges: usize,
}

/// Events of the coordinator's task.
enum Incoming {
    Greeted {
        facts: ClientFacts,
        stream: TcpStream,
    },
    Received {
        connection: u64,
        at: u64,
        frame: Frame<ToCoordinator>,
    },
    Ended {
        connection: u64,
        how: String,
    },
    /// A connection was accepted; `place` is one of the [`GREETINGS_MAX`].
    Connected {
        stream: TcpStream,
        place: OwnedSemaphorePermit,
    },
    PhaseOpened {
        phase: u64,
        opened: Result<(), DirectoryError>,
    },
    AtBarrier {
        place: String,
        clients: Vec<u64>,
    },
    StartWritten(Result<(), DirectoryError>),
    Watching(EpochWatch),
}

struct CoordinatorTask {
    group: Group,
    connections: HashMap<u64, Connection>,
    by_client: Vec<Option<u64>>,
    next_connection: u64,
    /// Number of the current phase, or of the next between phases.
    phase: u64,
    works: Vec<Option<Work>>,
    done: bool,
    /// Whether the ZooKeeper session is over, so that barriers cannot be seen.
    zookeeper_lost: bool,
    /// Sends the clients that joined to the task that calls agents; `None` once the group is complete.
    arrivals: Option<UnboundedSender<Arrival>>,
    asking: Asking,
    /// Tasks that send to clients.
    writers: JoinSet<()>,
    leading: Leading,
    leader: Leader,
    directory: Directory,
    incoming: UnboundedSender<Incoming>,
    report: blocking::Sender<CoordinatorReport>,
    /// Each client's clock since it joined.
    tracks: Arc<Mutex<Vec<ClockTrack>>>,
}
