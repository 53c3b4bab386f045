//! The state of a run: servers, processes, connections, and the events to come.

mod counts;
mod laws;
mod network;
mod notices;
mod numbers;
mod outgoing;
mod routes;
mod server;
mod transports;

pub use counts::EventCounts;
pub(crate) use network::lost;
pub use server::{LogFact, next_work};
pub use transports::{LocalTransport, Network};

use crate::{
    ProtocolPath,
    fault::{InjectedFault, PEERS, PROCESSES, SERVERS_MAX, TASKS, process_of, server_count},
    schedule::EventQueue,
};
use network::{Copied, MessageBody, PendingRequest, SimulatedConnection};
use notices::{NoticeConnection, ProcessWatches};
use numbers::UsedNumbers;
use server::SimulatedServer;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::poll_fn,
    rc::{Rc, Weak as LocalWeak},
    sync::Weak,
    task::{Poll, Waker},
};
use yesquel_engine::{Engine, Now};
use yesquel_model::{ServerId, Timestamp};
use yesquel_node::Durability;
use yesquel_seeds::Random;
use yesquel_transport::{GroupRoute, HeartbeatSource};
use yesquel_tree::GroupLoad;
use yesquel_wire::Request;

/// The cluster, as tasks and transports share it.
pub type SharedCluster = Rc<RefCell<Cluster>>;

/// Called with each request that a task sends: the task, the server, the request.
type OnRequest = Box<dyn FnMut(usize, ServerId, &Request<'_>)>;

/// Milliseconds since 1970 at the start of a run.
const START_MS: u64 = 1_000_000;
/// Bytes that a connection for notices holds, as a Unix socket does.
const NOTICE_ROOM: usize = 200 << 10;
/// Interval of the clients' heartbeats.
const HEARTBEAT_EVERY_US: u64 = 200_000;
/// The peer that sets up a run and reads at its end; no fault meets it.
pub(crate) const OBSERVER: usize = PEERS;

const _: () = assert!(PEERS == PROCESSES + SERVERS_MAX);

/// The peer that a server is, when it calls another server.
fn peer_of_server(server: usize) -> usize {
    PROCESSES + server
}

pub(crate) enum SimulationEvent {
    /// A message of a connection arrives at the server.
    Message { link: usize, index: u64, body: MessageBody },
    /// A reply arrives at its caller.
    Reply { link: usize, index: u64, call: u64, bytes: Vec<u8> },
    /// A message of a connection arrives again.
    Copy { link: usize, index: u64, copy: Copied },
    /// A call fails.
    Lost { call: u64 },
    /// A server learns that a connection has ended.
    Disconnected { link: usize },
    /// Clients send heartbeats.
    Heartbeats,
    /// Log records go to a server's disk.
    Write { server: usize, epoch: u64 },
    /// What was written becomes durable.
    Sync { server: usize, epoch: u64 },
    /// A checkpoint is written.
    Checkpoint { server: usize, epoch: u64 },
    /// A server's engine ticks.
    Tick { server: usize, epoch: u64 },
    /// A server reports to the others.
    Report { server: usize, epoch: u64 },
    /// A server starts.
    Start { server: usize },
    /// The thread of a server's sockets writes.
    Sockets { server: usize, epoch: u64 },
    /// A request on a connection for notices arrives.
    WatchRequest { connection: usize, bytes: Vec<u8> },
    /// A full disk has space again.
    Space { server: usize },
    /// A fault begins.
    Fault(InjectedFault),
    /// A connection breaks.
    Cut { link: usize, cut: Cut },
    /// A task's pause ends.
    Wake(Waker),
    /// A client process goes on.
    GoesOn,
}

/// How a connection breaks, as in [`InjectedFault::Cut`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    requests: u64,
    late_us: u64,
    replies: u64,
}

/// A client process over all its lives.
#[derive(Default)]
pub(crate) struct ClientProcess {
    pub(crate) lives: u64,
    /// Calls of this life.
    calls: u64,
    /// The calls in which it dies, and whether they are sent.
    deaths: Vec<(u64, bool)>,
    /// The calls whose connections break, how long after the call, and how.
    cuts: Vec<(u64, u64, Cut)>,
    /// The calls after which it is stopped, and for how long.
    stops: Vec<(u64, u64)>,
    /// It is stopped until then.
    pub(crate) stopped_until_us: u64,
    heartbeats: Option<Weak<dyn HeartbeatSource>>,
    watches: Option<LocalWeak<ProcessWatches>>,
    /// What it knows of the groups.
    pub(crate) routes: BTreeMap<usize, GroupRoute<usize>>,
}

/// A partition: a server that some peers cannot reach.
struct Partition {
    server: usize,
    peers: u32,
    until_us: u64,
    breaks: bool,
}

/// The distribution of delays.
#[derive(Debug, Clone, Copy)]
struct DelayDistribution {
    seed: u64,
    late_in: u64,
    late_us: u64,
}

/// The generator of an action.
fn mixed(seed: u64, action: [u64; 4]) -> Random {
    let mixed = action.iter().fold(seed, |mixed, part| {
        (mixed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(23).wrapping_mul(0xff51_afd7_ed55_8ccd)
    });
    Random::new(mixed ^ mixed >> 31)
}

/// Servers, processes, network and time of one run.
pub struct Cluster {
    schedule: EventQueue<SimulationEvent>,
    latency: Option<DelayDistribution>,
    /// Seed, frequency and longest delay of copies.
    copies: Option<(u64, u64, u64)>,
    pub(crate) servers: Vec<SimulatedServer>,
    pub(crate) processes: Vec<ClientProcess>,
    links: Vec<SimulatedConnection>,
    /// The open connection between a peer and a server.
    open: BTreeMap<(usize, usize), usize>,
    calls: BTreeMap<u64, PendingRequest>,
    last_call: u64,
    /// Connections by which processes watch nodes, also those that have ended.
    notices: Vec<NoticeConnection>,
    /// Servers that can be watched, as a bit set, and the room of a connection for notices.
    watchable: u32,
    notice_room: usize,
    /// By task: the snapshot of the reply that came last, until the next read.
    given: BTreeMap<usize, Timestamp>,
    partitions: Vec<Partition>,
    /// The task that is being polled.
    pub(crate) current_task: Option<usize>,
    on_request: Option<OnRequest>,
    numbers: Option<UsedNumbers>,
    /// Processes that have just died.
    pub(crate) dying: Vec<usize>,
    /// Servers that have just stopped or started: their background tasks end or begin.
    pub(crate) changed: Vec<usize>,
    /// Nothing goes wrong any more.
    is_healed: bool,
    pub(crate) counts: EventCounts,
}

impl Cluster {
    pub(crate) fn new(faults: &[InjectedFault]) -> Cluster {
        let mut cluster = Cluster {
            schedule: EventQueue::default(),
            latency: None,
            copies: None,
            servers: (0..server_count(faults)).map(SimulatedServer::new).collect(),
            processes: (0..=PEERS).map(|_| ClientProcess::default()).collect(),
            links: Vec::new(),
            open: BTreeMap::new(),
            calls: BTreeMap::new(),
            last_call: 0,
            notices: Vec::new(),
            watchable: 0,
            notice_room: NOTICE_ROOM,
            given: BTreeMap::new(),
            partitions: Vec::new(),
            current_task: None,
            on_request: None,
            numbers: None,
            dying: Vec::new(),
            changed: Vec::new(),
            is_healed: false,
            counts: EventCounts::default(),
        };
        for fault in faults {
            match *fault {
                InjectedFault::Latency { seed, late_in, late_us } => {
                    cluster.latency = Some(DelayDistribution { seed, late_in, late_us });
                }
                InjectedFault::Copies { seed, one_in, late_us } => {
                    cluster.copies = Some((seed, one_in, late_us));
                }
                InjectedFault::LogSizes { checkpoint_bytes, segment_bytes } => {
                    for server in &mut cluster.servers {
                        (server.checkpoint_bytes, server.segment_bytes) = (checkpoint_bytes, segment_bytes);
                    }
                }
                InjectedFault::Relaxed { interval_ms } => {
                    for server in &mut cluster.servers {
                        server.durability = interval_ms.map_or(Durability::None, Durability::Interval);
                    }
                }
                InjectedFault::Horizon { kept_ms } => {
                    for server in &mut cluster.servers {
                        server.kept_ms = kept_ms;
                    }
                }
                InjectedFault::Watching { servers } => cluster.watchable = servers,
                InjectedFault::NoticeRoom { bytes } => cluster.notice_room = bytes,
                InjectedFault::CutCall { process, call, after_us, requests, late_us, replies } => {
                    let cut = Cut { requests, late_us, replies };
                    cluster.processes[process].cuts.push((call, after_us, cut));
                }
                InjectedFault::Stop { process, call, us } => {
                    cluster.processes[process].stops.push((call, us))
                }
                InjectedFault::Die { process, call, sent } => {
                    cluster.processes[process].deaths.push((call, sent))
                }
                _ => {}
            }
        }
        cluster.after(HEARTBEAT_EVERY_US, SimulationEvent::Heartbeats);
        cluster
    }

    /// Starts the timed faults.
    pub(crate) fn begin_faults(&mut self, faults: &[InjectedFault]) {
        for fault in faults {
            match fault {
                InjectedFault::Cut { at_us, .. }
                | InjectedFault::Partition { at_us, .. }
                | InjectedFault::Crash { at_us, .. }
                | InjectedFault::PowerLoss { at_us, .. }
                | InjectedFault::SyncFailure { at_us, .. }
                | InjectedFault::DiskFull { at_us, .. }
                | InjectedFault::Freeze { at_us, .. }
                | InjectedFault::Reconfigure { at_us, .. }
                | InjectedFault::Move { at_us, .. }
                | InjectedFault::EndNotices { at_us, .. }
                | InjectedFault::Clock { at_us, .. } => {
                    self.after(*at_us, SimulationEvent::Fault(fault.clone()))
                }
                InjectedFault::Latency { .. }
                | InjectedFault::Watching { .. }
                | InjectedFault::NoticeRoom { .. }
                | InjectedFault::Copies { .. }
                | InjectedFault::Servers { .. }
                | InjectedFault::LogSizes { .. }
                | InjectedFault::Horizon { .. }
                | InjectedFault::Relaxed { .. }
                | InjectedFault::Die { .. }
                | InjectedFault::Stop { .. }
                | InjectedFault::CutCall { .. } => {}
            }
        }
    }

    /// Calls a function for each request that a task sends, at the time it is sent.
    pub fn on_request(&mut self, call: impl FnMut(usize, ServerId, &Request<'_>) + 'static) {
        self.on_request = Some(Box::new(call));
    }

    /// Checks from now on that no two clients use the same number of a tree or an issuer.
    pub fn check_numbers(&mut self) {
        self.numbers = Some(UsedNumbers::default());
    }

    /// Microseconds since the start of the run.
    pub fn now_us(&self) -> u64 {
        self.schedule.now()
    }

    /// A server's machine time.
    pub fn clock(&mut self, server: usize) -> Now {
        let clocks = self.wall_clock(server);
        let running = self.servers[server].running.as_mut();
        running.map_or(clocks, |running| running.core.machine_time(clocks))
    }

    /// Real time, in milliseconds since 1970.
    fn real_ms(&self) -> u64 {
        START_MS + self.now_us() / 1_000
    }

    /// A machine's wall clock.
    fn wall_clock(&self, server: usize) -> Now {
        let SimulatedServer { ahead_ms, started_us, .. } = &self.servers[server];
        Now {
            wall_ms: self.real_ms().saturating_add_signed(*ahead_ms),
            uptime_ms: (self.now_us() - started_us) / 1_000,
        }
    }

    /// A server's engine, while the server is up.
    pub fn engine(&mut self, server: usize) -> Option<&mut Engine> {
        self.servers[server].running.as_mut().map(|running| running.core.engine_mut())
    }

    /// The loads of a server and of those that have reported to it.
    pub fn loads(&mut self, server: usize) -> Vec<(ServerId, GroupLoad)> {
        let now = self.clock(server);
        let running = self.servers[server].running.as_ref();
        running.map_or_else(Vec::new, |running| running.core.loads(now))
    }

    /// What the log of each server states.
    pub fn logs(&self) -> Vec<Vec<LogFact>> {
        self.servers.iter().map(|server| server.facts().cloned().collect()).collect()
    }

    /// Number of starts of a server.
    pub fn epoch(&self, server: usize) -> u64 {
        self.servers[server].epoch
    }

    /// What has happened.
    pub(crate) fn counts(&self) -> EventCounts {
        let mut counts = self.counts;
        self.servers.iter().for_each(|server| counts.paths.add_all(&server.laws.paths));
        counts
    }

    /// Counts a path that was taken.
    pub fn count_path(&mut self, path: ProtocolPath) {
        self.counts.paths.add(path);
    }

    pub(crate) fn after(&mut self, us: u64, event: SimulationEvent) {
        self.schedule.after(us, event);
    }

    /// Removes the next event and advances the time to it.
    pub(crate) fn next(&mut self) -> Option<SimulationEvent> {
        self.schedule.next()
    }

    /// How much later than a message its copy arrives, if it is copied.
    fn copied_after(&self, action: [u64; 4]) -> Option<u64> {
        let (seed, one_in, late_us) = self.copies.filter(|_| !self.is_healed)?;
        let mut random = mixed(seed, action);
        (random.next(one_in) == 0).then(|| random.next(late_us))
    }

    /// The generator of an action, in runs whose messages take varying times.
    fn drawn(&self, action: [u64; 4]) -> Option<Random> {
        self.latency.map(|latency| mixed(latency.seed, action))
    }

    /// How long an action takes. It depends on nothing but the action, so that leaving out a fault
    /// changes little else.
    fn takes(&self, action: [u64; 4]) -> u64 {
        let Some(DelayDistribution { seed, late_in, late_us }) = self.latency else { return 200 };
        let mut random = mixed(seed, action);
        if late_in > 0 && !self.is_healed && random.next(late_in) == 0 {
            random.next(late_us)
        } else {
            50 + random.next(2_000)
        }
    }

    pub(crate) fn handle_event(&mut self, event: SimulationEvent) {
        if let Some(until_us) = self.frozen_until(&event) {
            return self.after(until_us - self.now_us(), event);
        }
        match event {
            SimulationEvent::Message { link, index, body } => self.arrive(link, index, body),
            SimulationEvent::Reply { link, index, call, bytes } => self.replied(link, index, call, bytes),
            SimulationEvent::Copy { link, index, copy } => self.copied(link, index, copy),
            SimulationEvent::Lost { call } => self.complete(call, Err(())),
            SimulationEvent::Disconnected { link } => self.disconnected(link),
            SimulationEvent::Heartbeats => {
                self.send_heartbeats();
                self.after(HEARTBEAT_EVERY_US, SimulationEvent::Heartbeats);
            }
            SimulationEvent::Write { server, epoch } => self.write(server, epoch),
            SimulationEvent::Sync { server, epoch } => self.sync(server, epoch),
            SimulationEvent::Checkpoint { server, epoch } => self.write_checkpoint(server, epoch),
            SimulationEvent::Tick { server, epoch } => self.tick(server, epoch),
            SimulationEvent::Report { server, epoch } => self.report(server, epoch),
            SimulationEvent::Start { server } => self.start(server),
            SimulationEvent::Sockets { server, epoch } => self.sockets(server, epoch),
            SimulationEvent::WatchRequest { connection, bytes } => self.watch_request(connection, &bytes),
            SimulationEvent::Space { server } => self.servers[server].disk.limit_space(usize::MAX),
            SimulationEvent::Fault(fault) => self.fault(&fault),
            SimulationEvent::Cut { link, cut: Cut { requests, late_us, replies } } => {
                if self.is_open(link) {
                    self.hold_back(link, late_us);
                    self.cut(link, requests, replies);
                }
            }
            SimulationEvent::Wake(waker) => waker.wake(),
            // Its tasks are polled after each event.
            SimulationEvent::GoesOn => {}
        }
    }

    /// Number of servers.
    pub fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// The end of a freeze of the server, or the client process, that an event concerns.
    fn frozen_until(&self, event: &SimulationEvent) -> Option<u64> {
        let server = match event {
            SimulationEvent::Message { link, .. }
            | SimulationEvent::Copy { link, copy: Copied::Request { .. }, .. }
            | SimulationEvent::Disconnected { link } => self.links[*link].server,
            SimulationEvent::Reply { link, .. } | SimulationEvent::Copy { link, .. } => {
                let peer = self.links[*link].peer;
                if let Some(process) = self.processes.get(peer).filter(|_| peer < PROCESSES) {
                    return Some(process.stopped_until_us).filter(|until_us| *until_us > self.now_us());
                }
                // A reply to a server.
                peer - PROCESSES
            }
            SimulationEvent::Write { server, .. }
            | SimulationEvent::Sync { server, .. }
            | SimulationEvent::Checkpoint { server, .. }
            | SimulationEvent::Tick { server, .. }
            | SimulationEvent::Sockets { server, .. }
            | SimulationEvent::Report { server, .. } => *server,
            SimulationEvent::WatchRequest { connection, .. } => self.server_of_notices(*connection),
            _ => return None,
        };
        let until_us = self.servers.get(server)?.frozen_until_us;
        Some(until_us).filter(|until_us| *until_us > self.now_us())
    }

    fn fault(&mut self, fault: &InjectedFault) {
        // Leaving out the condition of how many servers there are changes that.
        if self.is_healed || fault.server().is_some_and(|server| server >= self.servers.len()) {
            return;
        }
        match *fault {
            InjectedFault::Cut { peer, server, requests, late_us, replies, .. } => {
                if let Some(link) = self.open.get(&(peer, server)).copied() {
                    self.handle_event(SimulationEvent::Cut { link, cut: Cut { requests, late_us, replies } });
                }
            }
            InjectedFault::Partition { us, server, peers, breaks, .. } => {
                let until_us = self.now_us() + us;
                self.partitions.push(Partition { server, peers, until_us, breaks });
                if breaks {
                    let is_meant = |peer: usize| peer < PEERS && peers >> peer & 1 == 1;
                    self.cut_all(|peer, of| of == server && is_meant(peer), 2, 2);
                    let own = peer_of_server(server);
                    self.cut_all(|peer, of| peer == own && is_meant(peer_of_server(of)), 2, 2);
                }
            }
            InjectedFault::Crash { server, power, down_us, ahead_ms, .. } => {
                if let Some(ahead_ms) = ahead_ms {
                    self.servers[server].ahead_ms = ahead_ms;
                }
                self.stop(server, power, down_us);
            }
            InjectedFault::PowerLoss { server, operations, seed, down_us, .. } => {
                let of = &mut self.servers[server];
                of.outage = (seed, down_us);
                of.disk.lose_power_after(operations, seed);
            }
            InjectedFault::SyncFailure { server, power, until_us, at_us } => {
                self.servers[server].disk.fail_syncs(true);
                let (at_us, down_us) = (until_us - at_us, 1_000);
                let crash = InjectedFault::Crash { at_us, server, power, down_us, ahead_ms: None };
                self.after(at_us, SimulationEvent::Fault(crash));
            }
            InjectedFault::DiskFull { server, free, restarts, power, until_us, at_us } => {
                self.servers[server].disk.limit_space(free);
                let (at_us, down_us) = (until_us - at_us, 1_000);
                let end = match restarts {
                    true => SimulationEvent::Fault(InjectedFault::Crash {
                        at_us,
                        server,
                        power,
                        down_us,
                        ahead_ms: None,
                    }),
                    false => SimulationEvent::Space { server },
                };
                self.after(at_us, end);
            }
            InjectedFault::Clock { server, ahead_ms, .. } => {
                let server = &mut self.servers[server];
                server.ahead_ms = ahead_ms;
                server.was_ahead |= ahead_ms > 1_000;
            }
            InjectedFault::Reconfigure { server, .. } => self.raise_epoch(server),
            InjectedFault::Move { server, down_us, .. } => {
                self.move_away(server);
                self.stop(server, None, down_us);
                self.counts.moves += 1;
            }
            InjectedFault::Freeze { server, us, .. } => {
                self.servers[server].frozen_until_us = self.now_us() + us;
                self.counts.freezes += 1;
            }
            InjectedFault::EndNotices { process, server, .. } => {
                self.close_all_notices(|of, at| of == process && at == server);
            }
            InjectedFault::Latency { .. }
            | InjectedFault::Watching { .. }
            | InjectedFault::NoticeRoom { .. }
            | InjectedFault::Copies { .. }
            | InjectedFault::Servers { .. }
            | InjectedFault::LogSizes { .. }
            | InjectedFault::Horizon { .. }
            | InjectedFault::Relaxed { .. }
            | InjectedFault::Die { .. }
            | InjectedFault::Stop { .. }
            | InjectedFault::CutCall { .. } => {}
        }
    }

    /// Ends all faults; servers that are down come back.
    pub(crate) fn heal(&mut self) {
        self.is_healed = true;
        self.notice_room = NOTICE_ROOM;
        self.partitions.clear();
        for process in &mut self.processes {
            process.deaths.clear();
            process.cuts.clear();
            process.stops.clear();
            process.stopped_until_us = 0;
        }
        for server in 0..self.servers.len() {
            let of = &mut self.servers[server];
            of.ahead_ms = 0;
            of.frozen_until_us = 0;
            match &of.running {
                Some(running) if running.core.failure().is_some() => self.stop(server, None, 1_000),
                _ => of.disk.repair(),
            }
        }
    }

    /// Whether the process of a task is stopped.
    pub(crate) fn is_stopped(&self, task: usize) -> bool {
        task < TASKS && self.processes[process_of(task)].stopped_until_us > self.now_us()
    }

    /// The process of the task that is being polled, if it is a client's.
    pub fn current_process(&self) -> Option<usize> {
        self.current_task.filter(|task| *task < TASKS).map(process_of)
    }
}

/// Waits until so much simulated time has passed.
pub async fn pause(cluster: &SharedCluster, us: u64) {
    let until_us = cluster.borrow().now_us() + us;
    poll_fn(|context| {
        let mut cluster = cluster.borrow_mut();
        if cluster.now_us() >= until_us {
            return Poll::Ready(());
        }
        let left = until_us - cluster.now_us();
        cluster.after(left, SimulationEvent::Wake(context.waker().clone()));
        Poll::Pending
    })
    .await;
}
