//! The network: connections that keep the order of their messages, delay them, break and wait.
//! Messages of two connections can overtake each other.

use super::{ClientProcess, Cluster, OBSERVER, Partition, SimulationEvent, peer_of_server};
use crate::{
    ProtocolPath,
    fault::{PEERS, PROCESSES},
};
use std::task::Waker;
use yesquel_engine::{Caller, Now};
use yesquel_model::{ServerId, Timestamp};
use yesquel_node::{LOCAL_CONNECTION, PeerQuery};
use yesquel_transport::{Attempt, LossCause, LostCall, ReplyHandler};
use yesquel_wire::{ClientHeartbeat, Correction, Reply, Request};

/// The connection number of a server's calls to itself.
pub(super) const OWN: u64 = LOCAL_CONNECTION;

/// Interval at which a message checks whether the one before it has arrived.
const FIRST_POLL_US: u64 = 50;

/// The number by which a server knows a connection.
pub(super) fn connection_of(link: usize) -> u64 {
    link as u64 + 1
}

/// The connection of a number.
pub(super) fn link_of(connection: u64) -> usize {
    connection as usize - 1
}

/// A message to a server.
pub(crate) enum MessageBody {
    Request { call: u64, bytes: Vec<u8> },
    Heartbeat { client: u64, heartbeat: ClientHeartbeat },
}

/// A message that arrives again.
pub(crate) enum Copied {
    Request { call: u64, bytes: Vec<u8> },
    Reply { call: u64, bytes: Vec<u8> },
}

/// One direction of a connection.
#[derive(Debug)]
struct OneWay {
    sent: u64,
    arrived: u64,
    last_us: u64,
    /// Messages after this one are lost.
    limit: u64,
}

impl OneWay {
    fn new() -> OneWay {
        OneWay { sent: 0, arrived: 0, last_us: 0, limit: u64::MAX }
    }

    /// Loses all messages in flight but the first quarters.
    fn cut(&mut self, quarters: u64) {
        self.limit = self.limit.min(self.arrived + ((self.sent - self.arrived) * quarters).div_ceil(4));
    }
}

/// A connection.
pub(crate) struct SimulatedConnection {
    pub(super) peer: usize,
    pub(super) server: usize,
    /// The server's incarnation.
    epoch: u64,
    /// Whether the peer still uses it.
    is_open: bool,
    /// Whether the server has learned that it has ended.
    has_ended: bool,
    requests: OneWay,
    replies: OneWay,
    /// Unanswered calls.
    calls: Vec<u64>,
    heartbeat: Option<ClientHeartbeat>,
}

/// A call of a server to another one.
#[derive(Debug)]
pub(crate) struct PeerCall {
    server: usize,
    /// The incarnation of the calling server.
    epoch: u64,
    content: PeerCallContent,
}

#[derive(Debug)]
enum PeerCallContent {
    /// A question for a vote.
    Query(PeerQuery),
    /// A report to a server that was sent at a time.
    Report { to: ServerId, sent: Now },
}

impl PeerCallContent {
    /// The group that is asked.
    fn group(&self) -> ServerId {
        match self {
            PeerCallContent::Query(query) => query.server(),
            PeerCallContent::Report { to, .. } => *to,
        }
    }
}

/// A request in flight.
#[derive(Default)]
pub(crate) struct PendingRequest {
    pub(super) reply: Option<Result<Vec<u8>, ()>>,
    pub(super) waker: Option<Waker>,
    /// The task that has sent it.
    task: Option<usize>,
    /// Set if a server calls another one.
    by_server: Option<PeerCall>,
    /// Takes the reply if no task waits for it.
    pub(super) handler: Option<ReplyHandler>,
}

impl Cluster {
    /// The end of the longest partition between two, if there is one.
    fn partitioned_until(&self, peer: usize, server: usize) -> Option<u64> {
        self.partitions_between(peer, server).map(|partition| partition.until_us).max()
    }

    fn partitions_between(&self, peer: usize, server: usize) -> impl Iterator<Item = &Partition> {
        let server = peer_of_server(server);
        let now_us = self.now_us();
        self.partitions.iter().filter(move |partition| {
            let is_between = |one: usize, other: usize| {
                one == peer_of_server(partition.server) && other < PEERS && partition.peers >> other & 1 == 1
            };
            partition.until_us > now_us && (is_between(server, peer) || is_between(peer, server))
        })
    }

    /// The open connection between two, made if it can be.
    pub(super) fn link(&mut self, peer: usize, server: usize) -> Option<usize> {
        if let Some(link) = self.open.get(&(peer, server)) {
            return Some(*link);
        }
        let is_cut_off = self.partitions_between(peer, server).any(|partition| partition.breaks);
        if self.servers[server].running.is_none() || is_cut_off {
            return None;
        }
        self.links.push(SimulatedConnection {
            peer,
            server,
            epoch: self.servers[server].epoch,
            is_open: true,
            has_ended: false,
            requests: OneWay::new(),
            replies: OneWay::new(),
            calls: Vec::new(),
            heartbeat: None,
        });
        let link = self.links.len() - 1;
        self.open.insert((peer, server), link);
        self.servers[server].outgoing.add(connection_of(link));
        self.greeted(peer, server);
        Some(link)
    }

    /// Sends a request and returns the number of the call.
    pub(super) fn call(
        &mut self,
        peer: usize,
        server: usize,
        bytes: Vec<u8>,
        by_server: Option<PeerCall>,
    ) -> u64 {
        let is_by_server = by_server.is_some();
        let number = self.new_call(by_server);
        if !is_by_server && !self.count_call(peer) {
            return number;
        }
        self.note_request(ServerId(server as u16), &bytes);
        if let Some(call) = self.calls.get_mut(&number) {
            call.task = self.current_task;
        }
        let (target, _) = self.route(peer, server);
        match self.link(peer, target) {
            Some(link) => {
                // The greeting may have told more.
                let (_, destination) = self.route(peer, server);
                let bytes = [destination.encode().bytes(), &bytes].concat();
                self.links[link].calls.push(number);
                self.send(link, MessageBody::Request { call: number, bytes });
                let ClientProcess { calls, ref cuts, .. } = self.processes[peer];
                let cut = cuts.iter().find(|(call, ..)| !is_by_server && *call == calls);
                if let Some((_, after_us, cut)) = cut.copied() {
                    self.after(after_us, SimulationEvent::Cut { link, cut });
                }
            }
            None => {
                let us = self.takes([1, peer as u64, server as u64, number]);
                self.after(us, SimulationEvent::Lost { call: number });
            }
        }
        number
    }

    /// Notes a request of the task that is being polled.
    pub(super) fn note_request(&mut self, server: ServerId, bytes: &[u8]) {
        let (Some(task), Ok(request)) = (self.current_task, Request::decode(bytes)) else { return };
        if let Request::Read { snapshot, .. } = request
            && let Some(given) = self.given.remove(&task)
            && snapshot.is_some_and(|snapshot| snapshot < given)
        {
            self.count_path(ProtocolPath::AskedBeforeChange);
        }
        if let Some(on_request) = &mut self.on_request {
            on_request(task, server, &request);
        }
    }

    /// Notes the snapshot of a reply to the task that is being polled.
    pub(super) fn note_given(&mut self, snapshot: Timestamp) {
        if let Some(task) = self.current_task {
            self.given.insert(task, snapshot);
        }
    }

    pub(super) fn new_call(&mut self, by_server: Option<PeerCall>) -> u64 {
        self.last_call += 1;
        self.calls.insert(self.last_call, PendingRequest { by_server, ..PendingRequest::default() });
        self.last_call
    }

    /// Counts a client's call. Returns whether it is sent.
    pub(super) fn count_call(&mut self, peer: usize) -> bool {
        let process = &mut self.processes[peer];
        process.calls += 1;
        let calls = process.calls;
        if let Some((_, us)) = process.stops.iter().find(|(call, _)| *call == calls).copied() {
            self.processes[peer].stopped_until_us = self.now_us() + us;
            self.after(us, SimulationEvent::GoesOn);
        }
        match self.processes[peer].deaths.iter().find(|(call, _)| *call == calls) {
            Some((_, sent)) => {
                self.dying.push(peer);
                *sent
            }
            None => true,
        }
    }

    fn send(&mut self, link: usize, body: MessageBody) {
        let SimulatedConnection { peer, server, ref requests, .. } = self.links[link];
        let us = self.takes([2 << 32 | link as u64, peer as u64, server as u64, requests.sent]);
        let now_us = self.now_us();
        let lane = &mut self.links[link].requests;
        lane.sent += 1;
        lane.last_us = lane.last_us.max(now_us + us);
        let (index, us) = (lane.sent, lane.last_us - now_us);
        if let MessageBody::Request { call, bytes } = &body
            && let Some(later_us) =
                self.copied_after([7 << 32 | link as u64, peer as u64, server as u64, index])
        {
            let copy = Copied::Request { call: *call, bytes: bytes.clone() };
            self.after(us + later_us, SimulationEvent::Copy { link, index, copy });
        }
        self.after(us, SimulationEvent::Message { link, index, body });
    }

    /// Delivers a message again, if it has arrived and its connection has not ended.
    pub(super) fn copied(&mut self, link: usize, index: u64, copy: Copied) {
        let SimulatedConnection {
            peer, server, epoch, is_open, has_ended, ref requests, ref replies, ..
        } = self.links[link];
        let (lane, goes_on) = match copy {
            Copied::Request { .. } => (requests, !has_ended && self.is_up(server, epoch)),
            Copied::Reply { .. } => (replies, is_open),
        };
        if index > lane.limit || !goes_on {
            return;
        }
        let has_first = lane.arrived >= index;
        if let Some(until_us) = self.partitioned_until(peer, server) {
            return self.after(until_us - self.now_us(), SimulationEvent::Copy { link, index, copy });
        }
        if !has_first {
            return self.after(FIRST_POLL_US, SimulationEvent::Copy { link, index, copy });
        }
        self.counts.copies += 1;
        match copy {
            Copied::Request { call, bytes } => {
                let caller = Caller { connection: connection_of(link), request: call };
                self.handle_message(server, caller, &bytes);
            }
            Copied::Reply { call, bytes } => self.complete(call, Ok(bytes)),
        }
    }

    /// Delivers a message to its server, unless it is lost or must wait.
    pub(super) fn arrive(&mut self, link: usize, index: u64, body: MessageBody) {
        let SimulatedConnection { peer, server, epoch, ref requests, .. } = self.links[link];
        if index > requests.limit || !self.is_up(server, epoch) {
            return;
        }
        if let Some(until_us) = self.partitioned_until(peer, server) {
            return self.after(until_us - self.now_us(), SimulationEvent::Message { link, index, body });
        }
        if index > requests.arrived + 1 {
            // Earlier messages are still waiting.
            return self.after(FIRST_POLL_US, SimulationEvent::Message { link, index, body });
        }
        self.links[link].requests.arrived = index;
        let connection = connection_of(link);
        match body {
            MessageBody::Request { call, bytes } => {
                self.handle_message(server, Caller { connection, request: call }, &bytes)
            }
            MessageBody::Heartbeat { client, heartbeat } => {
                self.on_news(server, connection, client, heartbeat)
            }
        }
    }

    /// Sends a server's reply.
    pub(super) fn reply(&mut self, caller: Caller, bytes: Vec<u8>) {
        if caller.connection == OWN {
            return self.complete(caller.request, Ok(bytes));
        }
        let link = link_of(caller.connection);
        let SimulatedConnection { peer, server, ref replies, .. } = self.links[link];
        let us = self.takes([3 << 32 | link as u64, peer as u64, server as u64, replies.sent]);
        let now_us = self.now_us();
        let lane = &mut self.links[link].replies;
        lane.sent += 1;
        lane.last_us = lane.last_us.max(now_us + us);
        let (index, us, call) = (lane.sent, lane.last_us - now_us, caller.request);
        if let Some(later_us) = self.copied_after([8 << 32 | link as u64, peer as u64, server as u64, index])
        {
            let copy = Copied::Reply { call, bytes: bytes.clone() };
            self.after(us + later_us, SimulationEvent::Copy { link, index, copy });
        }
        self.after(us, SimulationEvent::Reply { link, index, call, bytes });
    }

    /// Delivers a reply to its caller, unless it is lost or must wait.
    pub(super) fn replied(&mut self, link: usize, index: u64, call: u64, bytes: Vec<u8>) {
        let SimulatedConnection { peer, server, is_open, ref replies, .. } = self.links[link];
        if index > replies.limit || !is_open {
            return;
        }
        if let Some(until_us) = self.partitioned_until(peer, server) {
            return self.after(until_us - self.now_us(), SimulationEvent::Reply { link, index, call, bytes });
        }
        if index > replies.arrived + 1 {
            return self.after(FIRST_POLL_US, SimulationEvent::Reply { link, index, call, bytes });
        }
        self.links[link].replies.arrived = index;
        self.links[link].calls.retain(|waiting| *waiting != call);
        self.complete(call, Ok(bytes));
    }

    /// Ends a call with a reply, or with a failure.
    pub(super) fn complete(&mut self, call: u64, reply: Result<Vec<u8>, ()>) {
        let Some(known) = self.calls.get_mut(&call) else { return };
        if let Some(PeerCall { server, epoch, content }) = known.by_server.take() {
            self.calls.remove(&call);
            if let (Ok(reply), true) = (reply, self.is_up(server, epoch)) {
                if let Some(correction) = Correction::of(&reply) {
                    self.correct(peer_of_server(server), content.group(), &correction, Attempt::First);
                }
                match content {
                    PeerCallContent::Query(query) => self.on_peer_reply(server, &query, &reply),
                    PeerCallContent::Report { sent, .. } => self.on_report(server, sent, &reply),
                }
            }
            return;
        }
        if let Some(handler) = known.handler.take() {
            self.calls.remove(&call);
            return handler(reply.as_deref().map_err(|()| lost(ServerId::default())));
        }
        if let (Some(task), Ok(bytes)) = (known.task, &reply)
            && let Ok(Reply::Answers { snapshot, .. }) = Reply::decode(bytes)
        {
            self.given.insert(task, snapshot);
        }
        known.reply.get_or_insert(reply);
        known.waker.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn is_open(&self, link: usize) -> bool {
        self.links[link].is_open
    }

    /// Delays all requests in flight.
    pub(super) fn hold_back(&mut self, link: usize, us: u64) {
        let of_link = |event: &SimulationEvent| matches!(event, SimulationEvent::Message { link: of, .. } if *of == link);
        for event in self.schedule.extract(of_link) {
            self.after(us, event);
        }
        let until_us = self.now_us() + us;
        let lane = &mut self.links[link].requests;
        lane.last_us = lane.last_us.max(until_us);
    }

    /// Breaks a connection. The peer learns of it at once, the server after the last request that
    /// still arrives.
    pub(super) fn cut(&mut self, link: usize, requests: u64, replies: u64) {
        self.counts.cuts += 1;
        self.links[link].requests.cut(requests);
        self.links[link].replies.cut(replies);
        let of_link =
            |event: &SimulationEvent| matches!(event, SimulationEvent::Reply { link: of, .. } if *of == link);
        for event in self.schedule.extract(of_link) {
            if let SimulationEvent::Reply { index, call, bytes, .. } = event
                && index <= self.links[link].replies.limit
            {
                self.links[link].calls.retain(|waiting| *waiting != call);
                self.complete(call, Ok(bytes));
            }
        }
        let SimulatedConnection { peer, server, ref requests, .. } = self.links[link];
        let after = requests.last_us.saturating_sub(self.now_us()) + 1;
        self.links[link].is_open = false;
        self.open.remove(&(peer, server));
        for call in std::mem::take(&mut self.links[link].calls) {
            self.complete(call, Err(()));
        }
        self.after(after, SimulationEvent::Disconnected { link });
    }

    /// Breaks the open connections that a predicate of peer and server chooses.
    pub(crate) fn cut_all(&mut self, is_meant: impl Fn(usize, usize) -> bool, requests: u64, replies: u64) {
        let open = self.open.iter().filter(|((peer, server), _)| is_meant(*peer, *server));
        let open: Vec<usize> = open.map(|(_, link)| *link).collect();
        open.into_iter().for_each(|link| self.cut(link, requests, replies));
    }

    /// Tells a server that a connection has ended, once all its requests have arrived.
    pub(super) fn disconnected(&mut self, link: usize) {
        let SimulatedConnection { peer, server, epoch, ref requests, .. } = self.links[link];
        if !self.is_up(server, epoch) {
            return;
        }
        if let Some(until_us) = self.partitioned_until(peer, server) {
            return self.after(until_us - self.now_us() + 1, SimulationEvent::Disconnected { link });
        }
        if requests.arrived < requests.limit.min(requests.sent) {
            return self.after(FIRST_POLL_US, SimulationEvent::Disconnected { link });
        }
        self.links[link].has_ended = true;
        self.servers[server].laws.on_disconnected(connection_of(link));
        self.servers[server].outgoing.remove(connection_of(link));
        if let Some(running) = &mut self.servers[server].running {
            running.core.disconnected(connection_of(link));
        }
    }

    /// Sends the heartbeat of each client on each of its connections, if it has changed.
    pub(super) fn send_heartbeats(&mut self) {
        for peer in (0..PROCESSES).chain([OBSERVER]) {
            if self.processes[peer].stopped_until_us > self.now_us() {
                continue;
            }
            let heartbeats = self.processes[peer].heartbeats.as_ref().and_then(std::sync::Weak::upgrade);
            let Some(heartbeats) = heartbeats else { continue };
            self.poll_notices(peer, &*heartbeats);
            let (client, heartbeat) = (heartbeats.client(), heartbeats.heartbeat());
            // Servers that the client has not called yet must keep its snapshots too.
            for server in 0..self.servers.len() {
                let Some(link) = self.link(peer, server) else { continue };
                if self.links[link].heartbeat.as_ref() != Some(&heartbeat) {
                    self.links[link].heartbeat = Some(heartbeat.clone());
                    self.send(link, MessageBody::Heartbeat { client, heartbeat: heartbeat.clone() });
                }
            }
        }
    }

    /// Sends a server's question for another one's vote.
    pub(super) fn ask(&mut self, server: usize, query: PeerQuery) {
        let (bytes, other) = (query.bytes(), usize::from(query.server().0));
        self.call_server(server, other, bytes, PeerCallContent::Query(query));
    }

    /// Sends the reports of a server to the others.
    pub(super) fn send_reports(&mut self, server: usize) {
        for other in (0..self.servers.len()).filter(|other| *other != server) {
            let (sent, _) = (self.wall_clock(server), self.clock(server));
            let Some(running) = &mut self.servers[server].running else { return };
            let report = running.core.begin_report();
            let to = ServerId(other as u16);
            self.call_server(server, other, report, PeerCallContent::Report { to, sent });
        }
    }

    fn call_server(&mut self, server: usize, other: usize, bytes: Vec<u8>, content: PeerCallContent) {
        let epoch = self.servers[server].epoch;
        let call = PeerCall { server, epoch, content };
        self.call(peer_of_server(server), other, bytes, Some(call));
    }
}

/// A call that is lost.
pub(crate) fn lost(server: ServerId) -> LostCall {
    let (place, why) = (format!("server {}", server.0), "simulated".to_owned());
    LostCall { place, cause: LossCause::Other, why }
}
