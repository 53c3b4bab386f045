//! A storage server: the core of a group in memory, driven as the thread of the sockets drives it in
//! `yesquel-server`. It wakes up, takes all messages that have arrived, handles them, and then writes
//! the replies.

use crate::{
    costs::{ServerCosts, nanoseconds},
    processor::Processor,
};
use std::{cell::RefCell, collections::BTreeSet, sync::Weak, task::Waker};
use yesquel_engine::{Caller, Engine, EngineSettings, Now, Techniques};
use yesquel_model::ServerId;
use yesquel_node::{GroupCore, GroupWork, LOCAL_CONNECTION, PeerQuery, ReplySink};
use yesquel_transport::HeartbeatSource;
use yesquel_tree::GroupLoad;
use yesquel_wire::{ClientHeartbeat, Reply, Request};

/// How long a snapshot stays readable at a server of several, as in `yesquel serve`, in milliseconds.
const GRACE_MS: u64 = 2_000;

/// What a server has asked another one.
#[derive(Debug)]
pub(crate) enum PeerCall {
    /// A question.
    Query(PeerQuery),
    /// A report that was sent at a time.
    Report { sent: Now },
}

/// What arrives at a server.
#[derive(Debug)]
pub(crate) enum Incoming {
    Request {
        caller: Caller,
        bytes: Vec<u8>,
    },
    Heartbeat {
        connection: u64,
        client: u64,
        heartbeat: ClientHeartbeat,
    },
    Answer {
        connection: u64,
        call: PeerCall,
        bytes: Vec<u8>,
    },
    /// Time has passed.
    Tick,
}

impl Incoming {
    /// The connection on which it arrives.
    fn connection(&self) -> Option<u64> {
        match self {
            Incoming::Request { caller, .. } => Some(caller.connection),
            Incoming::Heartbeat { connection, .. } | Incoming::Answer { connection, .. } => Some(*connection),
            Incoming::Tick => None,
        }
    }
}

/// What a server has done within the measured time.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ServerCounts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Bytes of reads and writes, with their replies.
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    /// Times that it has taken messages, and connections that had some, summed over these times.
    pub(crate) batches: u64,
    pub(crate) connections: u64,
}

/// Processor times in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerTimes {
    pub(crate) wake: u64,
    connection: u64,
    read: u64,
    write: u64,
    pub(crate) message: u64,
    kib: f64,
}

impl ServerTimes {
    pub(crate) fn of(costs: &ServerCosts) -> ServerTimes {
        ServerTimes {
            wake: nanoseconds(costs.wake_us),
            connection: nanoseconds(costs.connection_us),
            read: nanoseconds(costs.read_us),
            write: nanoseconds(costs.write_us),
            message: nanoseconds(costs.message_us),
            kib: costs.kib_us * 1e3,
        }
    }

    fn bytes(&self, bytes: usize) -> u64 {
        (bytes as f64 / 1024.0 * self.kib).round() as u64
    }
}

/// Kind of a message, by its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Read,
    Write,
    Other,
}

fn kind_of(request: &[u8]) -> MessageKind {
    match Request::decode(request) {
        Ok(Request::Read { .. }) => MessageKind::Read,
        Ok(Request::Commit { .. } | Request::Prepare { .. } | Request::Decide { .. }) => MessageKind::Write,
        _ => MessageKind::Other,
    }
}

/// What the messages of a batch have led to.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) replies: Vec<(Caller, Vec<u8>)>,
    pub(crate) queries: Vec<PeerQuery>,
    pub(crate) work_ns: u64,
}

#[derive(Default)]
struct Replies(RefCell<Vec<(Caller, Vec<u8>)>>);

impl ReplySink for Replies {
    fn deliver(&self, caller: Caller, reply: &[u8]) {
        self.0.borrow_mut().push((caller, reply.to_vec()));
    }
}

/// A server on a machine of its own.
pub(crate) struct VirtualServer {
    core: GroupCore,
    pub(crate) processor: Processor,
    /// What it sends.
    pub(crate) link: Processor,
    pub(crate) inbox: Vec<Incoming>,
    /// Whether it is awake.
    pub(crate) is_awake: bool,
    /// The task that splits its nodes, while it waits for work.
    pub(crate) maintenance: Option<Waker>,
    /// What that task holds.
    pub(crate) heartbeats: Option<Weak<dyn HeartbeatSource>>,
    pub(crate) counts: ServerCounts,
}

impl VirtualServer {
    /// Creates a server of several.
    pub(crate) fn new(number: usize, count: usize, techniques: Techniques) -> VirtualServer {
        let server = ServerId(number as u16);
        let grace_ms = if count > 1 { GRACE_MS } else { EngineSettings::default().grace_ms };
        let settings = EngineSettings { server, grace_ms, techniques, ..EngineSettings::default() };
        let mut core = GroupCore::in_memory(Engine::new(settings));
        if count > 1 {
            core.compare_with(server, count - 1);
        }
        core.set_address(&number.to_string());
        for other in (0..count).filter(|other| *other != number) {
            core.set_location(ServerId(other as u16), &other.to_string());
        }
        VirtualServer {
            core,
            processor: Processor::new(1),
            link: Processor::new(1),
            inbox: Vec::new(),
            is_awake: false,
            maintenance: None,
            heartbeats: None,
            counts: ServerCounts::default(),
        }
    }

    /// Handles all messages that have arrived.
    pub(crate) fn handle_all(&mut self, clocks: Now, times: &ServerTimes) -> Batch {
        let now = self.core.machine_time(clocks);
        let (mut batch, mut connections) = (Batch::default(), BTreeSet::new());
        for incoming in std::mem::take(&mut self.inbox) {
            connections.extend(incoming.connection().filter(|connection| *connection != LOCAL_CONNECTION));
            batch.work_ns += self.handle(now, incoming, times, &mut batch.replies);
        }
        batch.work_ns += times.connection * connections.len() as u64;
        batch.queries = self.core.take_queries();
        self.counts.batches += 1;
        self.counts.connections += connections.len() as u64;
        if self.core.has_work() {
            self.maintenance.take().into_iter().for_each(Waker::wake);
        }
        batch
    }

    /// Handles a message. Returns the processor time that it takes.
    fn handle(
        &mut self,
        now: Now,
        incoming: Incoming,
        times: &ServerTimes,
        replies: &mut Vec<(Caller, Vec<u8>)>,
    ) -> u64 {
        let (sink, mut kind, mut bytes) = (Replies::default(), MessageKind::Other, 0);
        match incoming {
            Incoming::Request { caller, bytes: request } => {
                (kind, bytes) = (kind_of(&request), request.len());
                if Request::inspects(&request) {
                    self.inspect(now, caller, &request, &sink);
                } else if let Err(malformed) = self.core.handle(now, caller, &request, None, &sink) {
                    // It comes from our own client.
                    panic!("malformed request: {malformed}");
                }
            }
            Incoming::Heartbeat { connection, client, heartbeat } => {
                self.core.on_heartbeat(connection, client, &heartbeat);
            }
            Incoming::Answer { call: PeerCall::Query(query), bytes, .. } => {
                self.core.on_peer_reply(now, &query, &bytes, &sink);
            }
            Incoming::Answer { call: PeerCall::Report { sent }, bytes, .. } => {
                self.core.end_report(now, sent, &bytes);
            }
            Incoming::Tick => {
                if let Some(own) = self.heartbeats.as_ref().and_then(Weak::upgrade) {
                    self.core.on_heartbeat(LOCAL_CONNECTION, own.client(), &own.heartbeat());
                }
                self.core.tick(now, &sink);
            }
        }
        let delivered = sink.0.into_inner();
        bytes += delivered.iter().map(|(_, reply)| reply.len()).sum::<usize>();
        replies.extend(delivered);
        times.bytes(bytes)
            + match kind {
                MessageKind::Read => {
                    self.counts.reads += 1;
                    self.counts.read_bytes += bytes as u64;
                    times.read
                }
                MessageKind::Write => {
                    self.counts.writes += 1;
                    self.counts.write_bytes += bytes as u64;
                    times.write
                }
                MessageKind::Other => times.message,
            }
    }

    /// Answers a question about trees, the directory, or the server.
    fn inspect(&mut self, now: Now, caller: Caller, request: &[u8], sink: &Replies) {
        let report = match self.core.inspect(request) {
            Ok(Some(report)) => report,
            // Numbers and strings always convert to JSON.
            Ok(None) => serde_json::to_vec(&self.core.status(now)).unwrap_or_default(),
            Err(malformed) => panic!("malformed question: {malformed}"),
        };
        let mut reply = Vec::new();
        Reply::Report(&report).write(&mut reply);
        sink.deliver(caller, &reply);
    }

    /// Returns the report to another server, and the time at which it is made.
    pub(crate) fn begin_report(&mut self, clocks: Now) -> Vec<u8> {
        self.core.machine_time(clocks);
        self.core.begin_report()
    }

    /// Takes the work for maintenance; `None`: there is none.
    pub(crate) fn take_work(&mut self) -> Option<GroupWork> {
        self.core.has_work().then(|| self.core.take_work())
    }

    /// Returns the engine, and the machine time.
    pub(crate) fn engine(&mut self, clocks: Now) -> (&mut Engine, Now) {
        let now = self.core.machine_time(clocks);
        (self.core.engine_mut(), now)
    }

    /// Returns the loads of this server and of those that have reported to it.
    pub(crate) fn loads(&mut self, clocks: Now) -> Vec<(ServerId, GroupLoad)> {
        let now = self.core.machine_time(clocks);
        self.core.loads(now)
    }
}
