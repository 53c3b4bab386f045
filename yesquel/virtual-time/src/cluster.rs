//! The machines of a run, what travels between them, and the events to come. Times are nanoseconds.

use crate::{
    costs::{CostModel, nanoseconds},
    plan::VirtualPlan,
    processor::{Processor, Quota},
    server::{Batch, Incoming, PeerCall, ServerCounts, ServerTimes, VirtualServer},
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::poll_fn,
    ops::Range,
    rc::Rc,
    sync::Weak,
    task::{Poll, Waker},
};
use yesquel_engine::{Caller, Now};
use yesquel_node::{LOCAL_CONNECTION, PeerQuery};
use yesquel_simulation::EventQueue;
use yesquel_transport::{HeartbeatSource, ReplyHandler};
use yesquel_wire::ClientHeartbeat;

/// The cluster, as tasks and transports share it.
pub(crate) type SharedCluster = Rc<RefCell<VirtualCluster>>;

const MILLISECOND: u64 = 1_000_000;
/// Milliseconds since 1970 at the start of a run.
const START_MS: u64 = 1_000_000;
/// Interval between ticks of a server, as in production.
const TICK_NS: u64 = 50 * MILLISECOND;
/// Interval between reports of a server to another one, as in production.
const REPORT_NS: u64 = 200 * MILLISECOND;
/// Interval between heartbeats of a client, as in production.
const HEARTBEAT_NS: u64 = 200 * MILLISECOND;
/// Number of the first connection between servers.
const PEER_CONNECTIONS: u64 = 1 << 40;

/// The machine that makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// A client process.
    Client(usize),
    /// A server.
    Server(usize),
}

impl Origin {
    /// The number by which a server knows the connection.
    fn connection(self, server: usize) -> u64 {
        match self {
            Origin::Client(process) => process as u64 + 1,
            Origin::Server(own) if own == server => LOCAL_CONNECTION,
            Origin::Server(other) => PEER_CONNECTIONS + other as u64,
        }
    }
}

pub(crate) enum VirtualEvent {
    /// Something arrives at a server.
    Arrived { server: usize, incoming: Incoming },
    /// A server is awake.
    Awake { server: usize },
    /// A server has handled what had arrived.
    Handled { server: usize, batch: Batch },
    /// A reply arrives at the machine of the caller.
    Replied { call: u64, bytes: Vec<u8> },
    /// The caller's machine has taken the reply.
    Taken { call: u64, bytes: Vec<u8> },
    /// A server's time advances.
    Tick { server: usize },
    /// A server reports to the others.
    Report { server: usize },
    /// Clients send heartbeats.
    Heartbeats,
    /// The wait of a task ends.
    Wake(Waker),
}

/// A request without a reply.
struct PendingCall {
    origin: Origin,
    server: usize,
    reply: Option<Vec<u8>>,
    waker: Option<Waker>,
    /// Takes the reply if no task waits for it.
    handler: Option<ReplyHandler>,
    /// Set if a server asks another one.
    by_server: Option<PeerCall>,
}

/// The machine of a client process.
struct ClientMachine {
    processor: Processor,
    link: Processor,
    heartbeats: Option<Weak<dyn HeartbeatSource>>,
    last_heartbeat: Option<ClientHeartbeat>,
}

/// Machines, network and time of a run.
pub(crate) struct VirtualCluster {
    events: EventQueue<VirtualEvent>,
    times: ServerTimes,
    /// A client's time for half a request.
    half_request_ns: u64,
    one_way_ns: u64,
    ns_per_byte: f64,
    servers: Vec<VirtualServer>,
    clients: Vec<ClientMachine>,
    calls: BTreeMap<u64, PendingCall>,
    last_call: u64,
    /// When the last message of a connection arrives.
    last_arrivals: BTreeMap<(Origin, usize), u64>,
}

impl VirtualCluster {
    /// Creates the servers of a plan, and the machines of so many client processes.
    pub(crate) fn new(plan: &VirtualPlan, costs: &CostModel, processes: usize) -> VirtualCluster {
        let server = |number| VirtualServer::new(number, plan.servers, plan.techniques);
        let client = |_| ClientMachine {
            processor: Processor::new(plan.client_processors),
            link: Processor::new(1),
            heartbeats: None,
            last_heartbeat: None,
        };
        let mut cluster = VirtualCluster {
            events: EventQueue::default(),
            times: ServerTimes::of(&costs.server),
            half_request_ns: nanoseconds(costs.client.request_us) / 2,
            one_way_ns: nanoseconds(costs.network.one_way_us),
            ns_per_byte: 8e3 / costs.network.megabits_per_second,
            servers: (0..plan.servers).map(server).collect(),
            clients: (0..processes).map(client).collect(),
            calls: BTreeMap::new(),
            last_call: 0,
            last_arrivals: BTreeMap::new(),
        };
        for server in 0..plan.servers {
            // Machines do not tick together.
            let offset = |interval: u64| interval * server as u64 / plan.servers as u64;
            cluster.events.after(offset(TICK_NS), VirtualEvent::Tick { server });
            cluster.events.after(offset(REPORT_NS), VirtualEvent::Report { server });
        }
        cluster.events.after(HEARTBEAT_NS, VirtualEvent::Heartbeats);
        cluster
    }

    /// Time since the start of the run.
    pub(crate) fn now_ns(&self) -> u64 {
        self.events.now()
    }

    pub(crate) fn server_count(&self) -> usize {
        self.servers.len()
    }

    pub(crate) fn server(&mut self, server: usize) -> &mut VirtualServer {
        &mut self.servers[server]
    }

    /// The clocks of all machines, which agree.
    pub(crate) fn clocks(&self) -> Now {
        let ms = self.now_ns() / MILLISECOND;
        Now { wall_ms: START_MS + ms, uptime_ms: ms }
    }

    /// Holds the servers to a quota from now on. Its periods begin at different times.
    pub(crate) fn limit_servers(&mut self, quota: Quota, mut draw: impl FnMut(u64) -> u64) {
        let now_ns = self.now_ns();
        for server in &mut self.servers {
            server.processor.limit(quota, now_ns.saturating_sub(draw(quota.period_ns)));
        }
    }

    /// Counts within a range of time what the machines do.
    pub(crate) fn count_within(&mut self, range: &Range<u64>) {
        let servers = self.servers.iter_mut().map(|server| &mut server.processor);
        let clients = self.clients.iter_mut().map(|client| &mut client.processor);
        servers.chain(clients).for_each(|processor| processor.count_within(range.clone()));
    }

    /// Forgets what the servers have counted so far.
    pub(crate) fn reset_counts(&mut self) {
        self.servers.iter_mut().for_each(|server| server.counts = ServerCounts::default());
    }

    /// Counts and processor times of the servers.
    pub(crate) fn server_counts(&self) -> impl Iterator<Item = (ServerCounts, u64)> {
        self.servers.iter().map(|server| (server.counts, server.processor.busy_ns()))
    }

    /// Processor time of a client process.
    pub(crate) fn client_busy_ns(&self, process: usize) -> u64 {
        self.clients[process].processor.busy_ns()
    }

    pub(crate) fn set_heartbeat_source(&mut self, origin: Origin, heartbeats: Weak<dyn HeartbeatSource>) {
        match origin {
            Origin::Client(process) => self.clients[process].heartbeats = Some(heartbeats),
            Origin::Server(server) => self.servers[server].heartbeats = Some(heartbeats),
        }
    }

    fn at(&mut self, at_ns: u64, event: VirtualEvent) {
        let delay = at_ns.saturating_sub(self.now_ns());
        self.events.after(delay, event);
    }

    /// Adds work of a client process. Returns when it is done.
    pub(crate) fn compute(&mut self, process: usize, work_ns: u64) -> u64 {
        let now_ns = self.now_ns();
        self.clients[process].processor.work(now_ns, work_ns)
    }

    /// Sends so many bytes from a machine, as soon as they are ready. Returns when they arrive.
    fn transmit(&mut self, from: Origin, ready_ns: u64, bytes: usize) -> u64 {
        let link = match from {
            Origin::Client(process) => &mut self.clients[process].link,
            Origin::Server(server) => &mut self.servers[server].link,
        };
        let takes_ns = (bytes as f64 * self.ns_per_byte).round() as u64;
        link.work(ready_ns, takes_ns) + self.one_way_ns
    }

    /// Sends a request. Returns the number of the call.
    pub(crate) fn call(
        &mut self,
        origin: Origin,
        server: usize,
        bytes: Vec<u8>,
        handler: Option<ReplyHandler>,
    ) -> u64 {
        self.call_with(origin, server, bytes, handler, None)
    }

    fn call_with(
        &mut self,
        origin: Origin,
        server: usize,
        bytes: Vec<u8>,
        handler: Option<ReplyHandler>,
        by_server: Option<PeerCall>,
    ) -> u64 {
        self.last_call += 1;
        let (call, now_ns) = (self.last_call, self.now_ns());
        let pending = PendingCall { origin, server, reply: None, waker: None, handler, by_server };
        self.calls.insert(call, pending);
        let caller = Caller { connection: origin.connection(server), request: call };
        let arrives_ns = match origin {
            Origin::Client(process) => {
                let ready_ns = self.compute(process, self.half_request_ns);
                self.transmit(origin, ready_ns, bytes.len())
            }
            Origin::Server(own) if own == server => now_ns,
            Origin::Server(_) => self.transmit(origin, now_ns, bytes.len()),
        };
        // A connection keeps the order of its messages.
        let last = self.last_arrivals.entry((origin, server)).or_default();
        *last = (*last).max(arrives_ns);
        let arrives_ns = *last;
        self.at(arrives_ns, VirtualEvent::Arrived { server, incoming: Incoming::Request { caller, bytes } });
        call
    }

    /// Takes the reply to a call, or leaves a waker to be woken when it has come.
    pub(crate) fn take_reply(&mut self, call: u64, waker: &Waker) -> Poll<Vec<u8>> {
        let Some(pending) = self.calls.get_mut(&call) else { panic!("call {call} is not known") };
        match pending.reply.take() {
            Some(reply) => {
                self.calls.remove(&call);
                Poll::Ready(reply)
            }
            None => {
                pending.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Wakes a task at a time.
    pub(crate) fn wake_at(&mut self, at_ns: u64, waker: &Waker) {
        self.at(at_ns, VirtualEvent::Wake(waker.clone()));
    }

    /// Lets the next event happen. Returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(event) = self.events.next() else { return false };
        match event {
            VirtualEvent::Arrived { server, incoming } => self.arrived(server, incoming),
            VirtualEvent::Awake { server } => self.handle(server),
            VirtualEvent::Handled { server, batch } => self.handled(server, batch),
            VirtualEvent::Replied { call, bytes } => self.replied(call, bytes),
            VirtualEvent::Taken { call, bytes } => self.complete(call, bytes),
            VirtualEvent::Tick { server } => {
                self.arrived(server, Incoming::Tick);
                self.events.after(TICK_NS, VirtualEvent::Tick { server });
            }
            VirtualEvent::Report { server } => {
                self.send_reports(server);
                self.events.after(REPORT_NS, VirtualEvent::Report { server });
            }
            VirtualEvent::Heartbeats => {
                self.send_heartbeats();
                self.events.after(HEARTBEAT_NS, VirtualEvent::Heartbeats);
            }
            VirtualEvent::Wake(waker) => waker.wake(),
        }
        true
    }

    fn arrived(&mut self, server: usize, incoming: Incoming) {
        let (now_ns, wake_ns) = (self.now_ns(), self.times.wake);
        let of = &mut self.servers[server];
        of.inbox.push(incoming);
        if !std::mem::replace(&mut of.is_awake, true) {
            let awake_ns = of.processor.work(now_ns, wake_ns);
            self.at(awake_ns, VirtualEvent::Awake { server });
        }
    }

    /// A server handles what has arrived.
    fn handle(&mut self, server: usize) {
        let (now_ns, clocks, times) = (self.now_ns(), self.clocks(), self.times);
        let of = &mut self.servers[server];
        let batch = of.handle_all(clocks, &times);
        let done_ns = of.processor.work(now_ns, batch.work_ns);
        self.at(done_ns, VirtualEvent::Handled { server, batch });
    }

    /// A server writes its replies, and goes on with what has arrived meanwhile.
    fn handled(&mut self, server: usize, batch: Batch) {
        let now_ns = self.now_ns();
        for (Caller { request: call, .. }, bytes) in batch.replies {
            let is_own =
                self.calls.get(&call).is_some_and(|pending| pending.origin == Origin::Server(server));
            let arrives_ns =
                if is_own { now_ns } else { self.transmit(Origin::Server(server), now_ns, bytes.len()) };
            self.at(arrives_ns, VirtualEvent::Replied { call, bytes });
        }
        for query in batch.queries {
            self.ask(server, query);
        }
        if self.servers[server].inbox.is_empty() {
            self.servers[server].is_awake = false;
        } else {
            self.handle(server);
        }
    }

    fn ask(&mut self, server: usize, query: PeerQuery) {
        let (other, bytes) = (usize::from(query.server().0), query.bytes());
        if other < self.servers.len() {
            self.call_with(Origin::Server(server), other, bytes, None, Some(PeerCall::Query(query)));
        }
    }

    fn replied(&mut self, call: u64, bytes: Vec<u8>) {
        let Some(pending) = self.calls.get_mut(&call) else { return };
        match (pending.origin, pending.by_server.take()) {
            (Origin::Client(process), _) => {
                let taken_ns = self.compute(process, self.half_request_ns);
                self.at(taken_ns, VirtualEvent::Taken { call, bytes });
            }
            (Origin::Server(own), Some(by_server)) => {
                let connection = PEER_CONNECTIONS + pending.server as u64;
                self.calls.remove(&call);
                self.arrived(own, Incoming::Answer { connection, call: by_server, bytes });
            }
            (Origin::Server(_), None) => self.complete(call, bytes),
        }
    }

    fn complete(&mut self, call: u64, bytes: Vec<u8>) {
        let Some(pending) = self.calls.get_mut(&call) else { return };
        if let Some(handler) = pending.handler.take() {
            self.calls.remove(&call);
            return handler(Ok(&bytes));
        }
        pending.reply = Some(bytes);
        pending.waker.take().into_iter().for_each(Waker::wake);
    }

    fn send_reports(&mut self, server: usize) {
        let (clocks, count, message_ns) = (self.clocks(), self.servers.len(), self.times.message);
        for other in (0..count).filter(|other| *other != server) {
            let report = self.servers[server].begin_report(clocks);
            let now_ns = self.now_ns();
            self.servers[server].processor.work(now_ns, message_ns);
            let call = PeerCall::Report { sent: clocks };
            self.call_with(Origin::Server(server), other, report, None, Some(call));
        }
    }

    /// Sends the heartbeat of each client to all servers, if it has changed.
    fn send_heartbeats(&mut self) {
        for process in 0..self.clients.len() {
            let Some(source) = self.clients[process].heartbeats.as_ref().and_then(Weak::upgrade) else {
                continue;
            };
            let (client, heartbeat) = (source.client(), source.heartbeat());
            if self.clients[process].last_heartbeat.as_ref() == Some(&heartbeat) {
                continue;
            }
            self.clients[process].last_heartbeat = Some(heartbeat.clone());
            for server in 0..self.servers.len() {
                let origin = Origin::Client(process);
                let ready_ns = self.compute(process, self.half_request_ns);
                let arrives_ns = self.transmit(origin, ready_ns, 0);
                let (connection, heartbeat) = (origin.connection(server), heartbeat.clone());
                let incoming = Incoming::Heartbeat { connection, client, heartbeat };
                self.at(arrives_ns, VirtualEvent::Arrived { server, incoming });
            }
        }
    }
}

/// Waits until a time.
pub(crate) async fn wait_until(cluster: &SharedCluster, until_ns: u64) {
    let mut is_first = true;
    poll_fn(|context| {
        let mut cluster = cluster.borrow_mut();
        if cluster.now_ns() >= until_ns && !is_first {
            return Poll::Ready(());
        }
        is_first = false;
        cluster.wake_at(until_ns, context.waker());
        Poll::Pending
    })
    .await;
}
