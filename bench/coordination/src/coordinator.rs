//! A coordinator at work: ZooKeeper, connections and time drive a [`Group`].
//!
//! One task owns everything and never waits for anybody: what takes time (a
//! request to ZooKeeper, a greeting, a write to a slow client) is a task of its own that
//! tells it of the end. It lives on a thread of its own, so that what clients are
//! asked is timed by nobody else's work.

use crate::{
    calling::{Coming, call_agents},
    clock::{Asking, ClockTrack, Exchange, Offset},
    directory::{Change, Directory, DirectoryError, EpochWatch, Leader},
    group::{Action, Event, Group, Loss, Lost, PhaseEnd, Settings},
    message::{self, ClientFacts, Frame, PROTOCOL, ToClient, ToCoordinator, Work},
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
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf},
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
    },
    task::JoinSet,
    time::{self, Instant},
};

/// Time in which a connection must have said who it is.
const GREETING: Duration = Duration::from_secs(5);

/// Connections that are greeted at a time. Whoever knocks may be anybody, and may say
/// [`message::HELLO_MAX`] before it is known who it is: 64 MiB in all. Others wait in the system's queue.
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

/// The next connection, once fewer than [`GREETINGS_MAX`] are being greeted.
async fn accept(
    listener: &TcpListener,
    greeted: &Arc<Semaphore>,
    report: &blocking::Sender<Report>,
) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        let Ok(place) = Arc::clone(greeted).acquire_owned().await else { std::future::pending().await };
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(error) => {
                let what = format!("a connection cannot be taken: {error}");
                let _ = report.send(Report::Trouble(what));
                // Most likely there are too many, which does not change at once.
                time::sleep(AGAIN).await;
            }
        }
    }
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
            let address = listener.local_addr().map_err(failed)?.to_string();
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
    Greeted { facts: ClientFacts, stream: TcpStream },
    Came { line: u64, at: u64, frame: Frame<ToCoordinator> },
    Ended { line: u64, how: String },
    PhaseOpened(Result<(), DirectoryError>),
    Standing { place: String, clients: Vec<u64> },
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

impl Desk {
    fn now(&self) -> u64 {
        (self.leading.clock)()
    }

    fn track(&self, client: usize, change: impl FnOnce(&mut ClockTrack)) {
        let mut tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        if tracks.len() <= client {
            tracks.resize_with(client + 1, ClockTrack::default);
        }
        change(&mut tracks[client]);
    }

    fn tell(&self, report: Report) {
        // Whoever led by it may be gone; the group ends then.
        let _ = self.report.send(report);
    }

    async fn run(
        mut self,
        listener: TcpListener,
        mut come: UnboundedReceiver<Incoming>,
        mut commands: UnboundedReceiver<Command>,
        mut watch: EpochWatch,
    ) {
        let mut beat = time::interval(Duration::from_nanos(self.leading.settings.timeout / 6));
        beat.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let mut watching = true;
        let greeted = Arc::new(Semaphore::new(GREETINGS_MAX));
        if self.leading.calls_agents {
            self.call_agents();
        }
        while !self.done {
            let now = self.now();
            let wake =
                Instant::now() + Duration::from_nanos(self.group.wake_at().saturating_sub(now).min(1 << 40));
            let mut actions = Vec::new();
            tokio::select! {
                // Whoever knocks is greeted beside everything else.
                (stream, place) = accept(&listener, &greeted, &self.report) => self.greet(stream, place),
                Some(incoming) = come.recv() => match incoming {
                    Incoming::Watching(anew) => {
                        watch = anew;
                        self.look_at_barriers();
                    }
                    incoming => self.take(incoming, &mut actions),
                },
                command = commands.recv() => self.command(command.unwrap_or(Command::Farewell), &mut actions),
                change = watch.next(), if watching => {
                    watching = change != Change::Over;
                    self.changed(change, &mut actions);
                }
                _ = beat.tick() => self.beat(),
                () = time::sleep_until(wake) => self.group.tick(self.now(), &mut actions),
            }
            self.obey(actions);
        }
        self.send_all(|_| Some(ToClient::Farewell));
        // So that farewells are sent before the connections are closed.
        self.lines.clear();
        let mut writers = std::mem::take(&mut self.writers);
        let _ = time::timeout(Duration::from_secs(1), async { while writers.join_next().await.is_some() {} })
            .await;
        let resigning = self.directory.resign(&self.leading.group, self.leader.epoch);
        let _ = time::timeout(Duration::from_secs(2), resigning).await;
    }

    fn greet(&self, mut stream: TcpStream, place: OwnedSemaphorePermit) {
        let (incoming, epoch, token) = (self.incoming.clone(), self.leader.epoch, self.leader.token.clone());
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let _place = place;
            let greeting = message::read::<ToCoordinator>(&mut stream, message::HELLO_MAX);
            let Ok(Ok(Frame::Message(ToCoordinator::Hello { protocol, epoch: theirs, token: said, facts }))) =
                time::timeout(GREETING, greeting).await
            else {
                return;
            };
            let why = if said != token || theirs != epoch {
                "this coordinator leads another group, or a later epoch of it".to_owned()
            } else if protocol != PROTOCOL {
                format!(
                    "it speaks version {protocol} of the messages, and the coordinator {PROTOCOL}: use one version of Serval"
                )
            } else {
                let _ = incoming.send(Incoming::Greeted { facts, stream });
                return;
            };
            let refusal = Frame::Message(ToClient::Refused { why });
            let _ = time::timeout(GREETING, message::write(&mut stream, &refusal)).await;
        });
    }

    fn take(&mut self, incoming: Incoming, actions: &mut Vec<Action>) {
        match incoming {
            Incoming::Greeted { facts, stream } => self.join(facts, stream, actions),
            Incoming::Came { line, at, frame } => self.came(line, at, frame, actions),
            Incoming::Ended { line, how } => {
                if let Some(line) = self.lines.remove(&line) {
                    self.group.on(line.client, Event::Lost(Loss::Gone(how)), self.now(), actions);
                }
            }
            Incoming::StartWritten(Err(error)) => self.tell(Report::Trouble(error.to_string())),
            // The watch is the loop's.
            Incoming::StartWritten(Ok(())) | Incoming::Watching(_) => {}
            Incoming::PhaseOpened(Ok(())) => self.hand_out(),
            Incoming::PhaseOpened(Err(error)) => self.disband(Some(error.to_string())),
            Incoming::Standing { place, clients } => {
                for client in clients {
                    self.stands(&place, client, actions);
                }
            }
        }
    }

    fn join(&mut self, facts: ClientFacts, stream: TcpStream, actions: &mut Vec<Action>) {
        let now = self.now();
        let number = self.group.join(now, actions);
        let (out, queue) = mpsc::unbounded_channel();
        let (reading, mut writing) = stream.into_split();
        let clock = self.leading.clock;
        // Those that have ended need no place.
        while self.writers.try_join_next().is_some() {}
        self.writers.spawn(async move {
            let mut queue: UnboundedReceiver<Frame<ToClient>> = queue;
            while let Some(mut frame) = queue.recv().await {
                if let Frame::Message(ToClient::Ask { asked }) = &mut frame {
                    *asked = clock();
                }
                if message::write(&mut writing, &frame).await.is_err() {
                    break;
                }
            }
        });
        let Some(client) = number else {
            let why = "the group has all the clients that it needs".to_owned();
            let _ = out.send(Frame::Message(ToClient::Refused { why }));
            return;
        };
        let line = self.next_line;
        self.next_line += 1;
        let timeout_ms = self.leading.settings.timeout / 1_000_000;
        let _ = out.send(Frame::Message(ToClient::Welcome { client: client as u64, timeout_ms }));
        self.listen(line, reading);
        if self.by_client.len() <= client {
            self.by_client.resize(client + 1, None);
        }
        self.by_client[client] = Some(line);
        self.track(client, |track| *track = ClockTrack::default());
        self.lines.insert(
            line,
            Line {
                client,
                facts: facts.clone(),
                out,
                handed_over: false,
                at_barrier: false,
                first_exchanges: FIRST_EXCHANGES,
            },
        );
        if let Some(coming) = &self.coming {
            let _ = coming.send(Coming::Joined(facts.clone()));
        }
        self.ask_clock(client);
        self.tell(Report::Joined { client, facts });
    }

    fn listen(&self, line: u64, mut reading: OwnedReadHalf) {
        let (incoming, clock) = (self.incoming.clone(), self.leading.clock);
        tokio::spawn(async move {
            loop {
                let came = match message::read(&mut reading, message::FRAME_MAX).await {
                    Ok(frame) => Incoming::Came { line, at: clock(), frame },
                    Err(error) => {
                        let ended = matches!(
                            error.kind(),
                            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                        );
                        let how = if ended { "its connection ended".to_owned() } else { error.to_string() };
                        let _ = incoming.send(Incoming::Ended { line, how });
                        break;
                    }
                };
                if incoming.send(came).is_err() {
                    break;
                }
            }
        });
    }

    fn came(&mut self, line: u64, at: u64, frame: Frame<ToCoordinator>, actions: &mut Vec<Action>) {
        let Some(client) = self.lines.get(&line).map(|line| line.client) else { return };
        let event = match frame {
            Frame::Interval(bytes) => {
                self.tell(Report::Interval(client, bytes));
                Event::Heard
            }
            Frame::Result(bytes) => {
                self.tell(Report::Result(client, bytes));
                Event::Heard
            }
            Frame::Message(message) => match message {
                ToCoordinator::Answer { asked, answered } => {
                    let exchange = Exchange { asked, answered, received: at };
                    self.track(client, |track| track.add(exchange));
                    self.group.on(client, Event::Clock(exchange), self.now(), actions);
                    let first = self.lines.get_mut(&line).is_some_and(|line| {
                        line.first_exchanges = line.first_exchanges.saturating_sub(1);
                        line.first_exchanges > 0
                    });
                    if let Some(next) = self.asking.answered() {
                        self.send(next, ToClient::Ask { asked: 0 });
                    }
                    if first || self.group.wants_clock(client, self.now()) {
                        self.ask_clock(client);
                    }
                    return;
                }
                ToCoordinator::Agreed { attempt } => Event::Agreed(attempt),
                ToCoordinator::Began { at } => Event::Began(at),
                ToCoordinator::Late => Event::Lost(Loss::Late),
                ToCoordinator::Failed { why } => Event::Lost(Loss::Failed(why)),
                ToCoordinator::Left => {
                    if let Some(line) = self.lines.get_mut(&line) {
                        line.handed_over = true;
                    }
                    if self.has_left(client) { Event::Left } else { Event::Heard }
                }
                // Who has entered is ZooKeeper's to say.
                ToCoordinator::Entered | ToCoordinator::Beat | ToCoordinator::Hello { .. } => Event::Heard,
            },
        };
        self.group.on(client, event, self.now(), actions);
    }

    fn command(&mut self, command: Command, actions: &mut Vec<Action>) {
        match command {
            Command::Phase { works, length_max } => {
                let length = length_max.map(|length| length.as_nanos().min(u128::from(u64::MAX)) as u64);
                self.group.prepare(
                    self.now(),
                    |client| works.get(client).is_some_and(Option::is_some),
                    length,
                    actions,
                );
                self.works = works;
                for line in self.lines.values_mut() {
                    (line.handed_over, line.at_barrier) = (false, false);
                }
                self.open_phase();
            }
            Command::Measure(at) => {
                let instants: Vec<Option<u64>> = (0..self.by_client.len())
                    .map(|client| Some(self.group.offset(client, at)?.to_client(at)))
                    .collect();
                self.send_all(|client| Some(ToClient::Measure { at: (*instants.get(client)?)? }));
            }
            Command::Finish(clients) => {
                clients.into_iter().for_each(|client| self.send(client, ToClient::Stop));
            }
            Command::Stop => self.group.stop(self.now(), actions),
            Command::Farewell => self.done = true,
        }
    }

    /// Makes the barriers of the phase, as soon as ZooKeeper can.
    fn open_phase(&self) {
        let (directory, group, epoch, phase) =
            (self.directory.clone(), self.leading.group.clone(), self.leader.epoch, self.phase);
        let (incoming, patience) = (self.incoming.clone(), Duration::from_nanos(self.leading.settings.wait));
        tokio::spawn(async move {
            let until = Instant::now() + patience;
            let opened = loop {
                match directory.open_phase(&group, epoch, phase).await {
                    Err(_) if !directory.is_over() && Instant::now() < until => time::sleep(AGAIN).await,
                    done => break done,
                }
            };
            let _ = incoming.send(Incoming::PhaseOpened(opened));
        });
    }

    fn hand_out(&mut self) {
        let (works, phase) = (std::mem::take(&mut self.works), self.phase);
        for (client, work) in works.into_iter().enumerate() {
            if let Some(work) = work {
                self.send(client, ToClient::Prepare { work: Work { phase, ..work } });
            }
        }
    }

    /// Calls agents, until [`Desk::coming`] is gone.
    fn call_agents(&mut self) {
        let (said, coming) = mpsc::unbounded_channel();
        self.coming = Some(said);
        let report = self.report.clone();
        tokio::spawn(call_agents(
            self.directory.clone(),
            self.leader.clone(),
            self.leading.settings.clients,
            Duration::from_nanos(self.leading.settings.timeout),
            coming,
            move |error| {
                let _ = report.send(Report::Trouble(error.to_string()));
            },
        ));
    }

    fn changed(&mut self, change: Change, actions: &mut Vec<Action>) {
        match change {
            Change::There(path) => {
                if let Some((place, client)) = path.rsplit_once('/')
                    && let Ok(client) = client.parse()
                {
                    self.stands(place, client, actions);
                }
            }
            // A client that is well makes its node anew, and one that is not says
            // nothing by its connection either.
            Change::Gone(_) => {}
            Change::Missed => self.watch_again(),
            Change::Over => self.lose_zookeeper(actions),
        }
    }

    /// Watches anew after the connection was lost, and then looks at who stands there: so nothing that
    /// happens in between is missed, whatever has become of the watch at the server.
    fn watch_again(&self) {
        let (directory, incoming) = (self.directory.clone(), self.incoming.clone());
        let (group, epoch) = (self.leading.group.clone(), self.leader.epoch);
        tokio::spawn(async move {
            while !directory.is_over() && !incoming.is_closed() {
                match directory.watch(&group, epoch).await {
                    Ok(watch) => {
                        let _ = incoming.send(Incoming::Watching(watch));
                        break;
                    }
                    Err(_) => time::sleep(AGAIN).await,
                }
            }
        });
    }

    /// Looks at who stands at the barriers of the present phase.
    fn look_at_barriers(&self) {
        for barrier in ["entered", "left"] {
            let place = format!("{}/{barrier}", self.phase);
            let (directory, incoming) = (self.directory.clone(), self.incoming.clone());
            let (group, epoch) = (self.leading.group.clone(), self.leader.epoch);
            tokio::spawn(async move {
                while !directory.is_over() && !incoming.is_closed() {
                    match directory.standing(&group, epoch, &place).await {
                        Ok(clients) => {
                            let _ = incoming.send(Incoming::Standing { place, clients });
                            break;
                        }
                        // There is no such phase yet: it is watched from its beginning.
                        Err(error) if error.is_no_node() => break,
                        Err(_) => time::sleep(AGAIN).await,
                    }
                }
            });
        }
    }

    /// The group cannot go on. What its clients have measured they hand over by their connections, so that a
    /// phase that runs is ended in order.
    fn lose_zookeeper(&mut self, actions: &mut Vec<Action>) {
        let why = "the coordinator's session with ZooKeeper is over: it was away for longer than the timeout";
        if !self.group.is_running() {
            return self.disband(Some(why.to_owned()));
        }
        self.blind = true;
        self.tell(Report::Ending(why.to_owned()));
        self.group.stop(self.now(), actions);
        for client in 0..self.by_client.len() {
            if self.has_left(client) {
                self.group.on(client, Event::Left, self.now(), actions);
            }
        }
    }

    /// A client stands at a barrier.
    fn stands(&mut self, place: &str, client: u64, actions: &mut Vec<Action>) {
        let Some((phase, barrier)) = place.split_once('/') else { return };
        if phase.parse() != Ok(self.phase) {
            return;
        }
        let client = client as usize;
        let event = match barrier {
            "entered" => Event::Entered,
            "left" => {
                if let Some(line) = self.line_of(client) {
                    line.at_barrier = true;
                }
                if !self.has_left(client) {
                    return;
                }
                Event::Left
            }
            _ => return,
        };
        self.group.on(client, event, self.now(), actions);
    }

    fn line_of(&mut self, client: usize) -> Option<&mut Line> {
        let line = self.by_client.get(client).copied().flatten()?;
        self.lines.get_mut(&line)
    }

    fn has_left(&mut self, client: usize) -> bool {
        let blind = self.blind;
        self.line_of(client).is_some_and(|line| line.handed_over && (line.at_barrier || blind))
    }

    fn beat(&mut self) {
        self.send_all(|_| Some(ToClient::Beat));
        self.asking.forget();
        for client in 0..self.by_client.len() {
            self.ask_clock(client);
        }
    }

    /// Asks what a client's clock says, in its turn.
    fn ask_clock(&mut self, client: usize) {
        if !self.group.is_lost(client) && self.asking.want(client) {
            self.send(client, ToClient::Ask { asked: 0 });
        }
    }

    fn send(&self, client: usize, message: ToClient) {
        let line = self.by_client.get(client).copied().flatten().and_then(|line| self.lines.get(&line));
        if let Some(line) = line {
            let _ = line.out.send(Frame::Message(message));
        }
    }

    fn send_all(&self, message: impl Fn(usize) -> Option<ToClient>) {
        for line in self.lines.values().filter(|line| !self.group.is_lost(line.client)) {
            if let Some(message) = message(line.client) {
                let _ = line.out.send(Frame::Message(message));
            }
        }
    }

    fn obey(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Complete => {
                    self.coming = None;
                    self.tell(Report::Complete);
                }
                Action::Propose { attempt, at } => {
                    for client in 0..self.by_client.len() {
                        if let Some(offset) = self.group.offset(client, at) {
                            self.send(client, ToClient::Propose { attempt, at: offset.to_client(at) });
                        }
                    }
                }
                Action::AskClocks => {
                    let now = self.now();
                    self.asking.forget();
                    for client in 0..self.by_client.len() {
                        if self.group.wants_clock(client, now) {
                            self.ask_clock(client);
                        }
                    }
                }
                Action::Confirm { attempt, at } => {
                    self.send_all(|_| Some(ToClient::Confirm { attempt }));
                    self.tell(Report::Starts(at));
                    self.write_start(at);
                }
                Action::Dismiss(lost) => {
                    if let Some(line) = self.by_client.get_mut(lost.client).and_then(Option::take)
                        && let Some(line) = self.lines.remove(&line)
                    {
                        let why = format!("the coordinator has lost {}: it {}", line.facts.name(), lost.why);
                        let _ = line.out.send(Frame::Message(ToClient::Refused { why }));
                    }
                    if let Some(coming) = &self.coming {
                        let _ = coming.send(Coming::Parted);
                    }
                    self.tell(Report::Lost(lost));
                }
                Action::Stop => self.send_all(|_| Some(ToClient::Stop)),
                Action::Over(end) => {
                    self.phase += 1;
                    self.done |= !end.go_on;
                    self.tell(Report::Over(end));
                }
                Action::Disband => self.disband(None),
            }
        }
    }

    fn write_start(&self, at: u64) {
        let (directory, group, epoch, phase) =
            (self.directory.clone(), self.leading.group.clone(), self.leader.epoch, self.phase);
        let incoming = self.incoming.clone();
        tokio::spawn(async move {
            let written = directory.started(&group, epoch, phase, at).await;
            let _ = incoming.send(Incoming::StartWritten(written));
        });
    }

    fn disband(&mut self, why: Option<String>) {
        self.done = true;
        self.tell(Report::Disbanded(why));
    }
}
