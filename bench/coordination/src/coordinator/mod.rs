//! A coordinator at work: ZooKeeper, connections and time drive a [`Group`].
//!
//! One task owns everything and never waits for anybody: what takes time (a
//! request to ZooKeeper, a greeting, a write to a slow client) is a task of its own that
//! tells it of the end. It lives on a thread of its own, so that what clients are
//! asked is timed by nobody else's work.

mod barriers;
mod connections;
mod desk;

use crate::{
    calling::Coming,
    clock::{Asking, ClockTrack, Offset},
    directory::{Directory, DirectoryError, EpochWatch, Leader},
    group::{Group, Lost, PhaseEnd, Settings},
    message::{ClientFacts, Frame, ToClient, ToCoordinator, Work},
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

/// Time in which a connection must have said who it is.
const GREETING: Duration = Duration::from_secs(5);

/// Connections that are greeted at a time. Whoever knocks may be anybody, and may say
/// [`HELLO_MAX`](crate::message::HELLO_MAX) before it is known who it is: 64 MiB in all. Others wait in the system's queue.
const GREETINGS_MAX: usize = 1024;

/// Exchanges about the clock that are made as soon as a client has joined, one after
/// the other.
const FIRST_EXCHANGES: usize = 16;

/// Pause before ZooKeeper is asked again.
const AGAIN: Duration = Duration::from_millis(200);

/// How to lead a group.
#[derive(Debug, Clone)]
pub struct Leading {
    /// ZooKeeper's address.
    pub cluster: String,
    /// The node that everything is below.
    pub root: String,
    /// The group's name.
    pub group: String,
    /// Where to listen; `None` for a free port of the address that leads to
    /// ZooKeeper.
    pub listen: Option<SocketAddr>,
    /// Whether agents are called; else clients come by themselves.
    pub calls_agents: bool,
    /// How the group goes about it.
    pub settings: Settings,
    /// The monotonic clock, ns.
    pub clock: fn() -> u64,
}

/// What a coordinator tells whoever leads by it.
#[derive(Debug)]
pub enum Report {
    /// A client has joined.
    Joined {
        /// Its number.
        client: usize,
        /// Who it is.
        facts: ClientFacts,
    },
    /// All have joined.
    Complete,
    /// The phase begins at this instant of the coordinator's clock, ns.
    Starts(u64),
    /// An interval of a client, as it made it.
    Interval(usize, Vec<u8>),
    /// What a client saw in the phase.
    Result(usize, Vec<u8>),
    /// A client was lost.
    Lost(Lost),
    /// The phase is over.
    Over(PhaseEnd),
    /// Something that is no failure yet.
    Trouble(String),
    /// The group ends with the phase that runs; why. What was measured is still reported.
    Ending(String),
    /// The group is no more; why, if it was for a failure.
    Disbanded(Option<String>),
}

#[derive(Debug)]
enum Command {
    Phase { works: Vec<Option<Work>>, length_max: Option<Duration> },
    Measure(u64),
    Finish(Vec<usize>),
    Stop,
    Farewell,
}

/// A group's coordinator. Dropping it ends the group.
#[derive(Debug)]
pub struct Coordinator {
    commands: UnboundedSender<Command>,
    reports: Receiver<Report>,
    leader: Leader,
    tracks: Arc<Mutex<Vec<ClockTrack>>>,
    thread: Option<JoinHandle<()>>,
}

/// Why a group cannot be led.
#[derive(Debug, thiserror::Error)]
pub enum LeadError {
    /// ZooKeeper.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The address.
    #[error(
        "cannot listen for clients at {address}: {error}. Set coordination.listen to an address of this machine"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's words.
        error: io::Error,
    },
    /// The system.
    #[error("cannot start the coordinator: {0}")]
    System(#[from] io::Error),
}

/// The address of this machine from which ZooKeeper is reached: clients, which reach
/// ZooKeeper too, most likely reach it.
fn address_towards(cluster: &str) -> IpAddr {
    let first = cluster.split([',', '/']).next().unwrap_or_default();
    let target = if first.contains(':') { first.to_owned() } else { format!("{first}:2181") };
    let local = || {
        let target = target.to_socket_addrs().ok()?.next()?;
        let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { "::".parse().ok()? };
        // Nothing is sent: connecting a datagram socket chooses the way.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(target).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    local().unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// 128 bits that nobody guesses, from the system.
fn token() -> io::Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Coordinator {
    /// Takes the lead of a group, and waits for clients on a thread of its own.
    ///
    /// # Errors
    ///
    /// That ZooKeeper cannot be reached, that somebody leads the group already, that
    /// nobody can be listened to.
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
                // All of this machine's: nobody finds it by that.
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
            let watch = directory.watch(&leading.group, leader.epoch).await?;
            Ok::<_, LeadError>((listener, directory, leader, watch))
        })?;
        let (commands, asked) = mpsc::unbounded_channel();
        let (report, reports) = blocking::channel();
        let led = leader.clone();
        let tracks = Arc::new(Mutex::new(Vec::new()));
        let desk_tracks = Arc::clone(&tracks);
        let thread = thread::Builder::new().name("coordinator".to_owned()).spawn(move || {
            let (incoming, come) = mpsc::unbounded_channel();
            let now = (leading.clock)();
            let desk = Desk {
                group: Group::new(leading.settings.clone(), now),
                lines: HashMap::new(),
                by_client: Vec::new(),
                next_line: 0,
                phase: 0,
                works: Vec::new(),
                done: false,
                blind: false,
                coming: None,
                asking: Asking::default(),
                writers: JoinSet::new(),
                leading,
                leader,
                directory,
                incoming,
                report,
                tracks: desk_tracks,
            };
            runtime.block_on(desk.run(listener, come, asked, watch));
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
        Ok(Coordinator { commands, reports, leader: led, tracks, thread: Some(thread) })
    }

    /// Where clients find it.
    pub fn leader(&self) -> &Leader {
        &self.leader
    }

    /// Of each client, by its number: instants of its clock, ns, in rising order, and its offset at
    /// each, from when it joined until now.
    pub fn clocks(&self) -> Vec<Vec<(u64, Offset)>> {
        let tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        tracks.iter().map(ClockTrack::offsets).collect()
    }

    /// What has happened, waiting for it. `None` once the coordinator has ended.
    pub fn next(&self) -> Option<Report> {
        self.reports.recv().ok()
    }

    /// What has happened, waiting so long at most.
    ///
    /// # Errors
    ///
    /// That nothing has, or never will.
    pub fn next_within(&self, span: Duration) -> Result<Report, blocking::RecvTimeoutError> {
        self.reports.recv_timeout(span)
    }

    /// Begins a phase: each client's work, by its number; those without take no part. It
    /// lasts `length_max` at most once it has begun.
    pub fn phase(&self, works: Vec<Option<Work>>, length_max: Option<Duration>) {
        let _ = self.commands.send(Command::Phase { works, length_max });
    }

    /// Has the measured part begin at an instant of the coordinator's clock, ns.
    pub fn measure(&self, at: u64) {
        let _ = self.commands.send(Command::Measure(at));
    }

    /// Tells some clients to end their part of the phase and hand over what they saw; the phase and
    /// the group go on.
    pub fn finish(&self, clients: Vec<usize>) {
        let _ = self.commands.send(Command::Finish(clients));
    }

    /// Ends the phase early; what was measured is reported. Between phases, ends the
    /// group.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Farewell);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection that has said who it is.
struct Line {
    /// Its client's number, until it is lost.
    client: usize,
    facts: ClientFacts,
    out: UnboundedSender<Frame<ToClient>>,
    /// Whether its result of the phase is there, and whether it stands at the
    /// barrier: it has left when both are so.
    handed_over: bool,
    at_barrier: bool,
    /// Exchanges about its clock that are still to be made.
    first_exchanges: usize,
}

/// What comes to the desk.
enum Incoming {
    Greeted {
        facts: ClientFacts,
        stream: TcpStream,
    },
    Came {
        line: u64,
        at: u64,
        frame: Frame<ToCoordinator>,
    },
    Ended {
        line: u64,
        how: String,
    },
    /// Somebody has connected, and has a place among those that are greeted.
    Knocked {
        stream: TcpStream,
        place: OwnedSemaphorePermit,
    },
    PhaseOpened {
        phase: u64,
        opened: Result<(), DirectoryError>,
    },
    Standing {
        place: String,
        clients: Vec<u64>,
    },
    StartWritten(Result<(), DirectoryError>),
    Watching(EpochWatch),
}

struct Desk {
    group: Group,
    lines: HashMap<u64, Line>,
    by_client: Vec<Option<u64>>,
    next_line: u64,
    /// The number of the present phase, or of the next.
    phase: u64,
    works: Vec<Option<Work>>,
    done: bool,
    /// Whether ZooKeeper is gone for good: who stands at a barrier is not seen any more.
    blind: bool,
    /// Who calls agents, as long as places are free.
    coming: Option<UnboundedSender<Coming>>,
    asking: Asking,
    /// What sends to clients.
    writers: JoinSet<()>,
    leading: Leading,
    leader: Leader,
    directory: Directory,
    incoming: UnboundedSender<Incoming>,
    report: blocking::Sender<Report>,
    /// Each client's clock all through.
    tracks: Arc<Mutex<Vec<ClockTrack>>>,
}
