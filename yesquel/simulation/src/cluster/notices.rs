//! Connections by which client processes watch nodes. They are Unix sockets: what a server writes is
//! in the client's hands at once, and neither partitions nor delays meet it.

use super::{Cluster, SimulationEvent};
use crate::{ProtocolPath, fault::PROCESSES};
use std::{cell::RefCell, collections::BTreeMap, io, rc::Rc, task::Waker};
use yesquel_engine::Caller;
use yesquel_model::{NodeId, ServerId};
use yesquel_transport::{HeartbeatSource, WatchChannel, WatchEvent, WatchLink};
use yesquel_wire::{Answer, Question, Reply, Request, frame::Inbox};

/// Servers know these connections by numbers from here on.
const FIRST: u64 = 1 << 40;

/// The bytes between a client and a server.
#[derive(Debug, Default)]
pub(crate) struct NoticePipe {
    /// What the client has sent, and the network has not taken.
    sent: Vec<u8>,
    /// What the server has written, and the client has not taken.
    written: Vec<u8>,
    /// The server has closed its end, or its process has ended.
    has_ended: bool,
    /// The client has closed its end.
    is_closed: bool,
    /// The task that waits for a reply.
    pub(super) reader: Option<Waker>,
}

/// A pipe, as both ends share it.
pub(crate) type SharedPipe = Rc<RefCell<NoticePipe>>;

/// The client's end of a pipe.
#[derive(Debug)]
pub(crate) struct ClientEnd(SharedPipe);

impl ClientEnd {
    pub(super) fn new(pipe: SharedPipe) -> ClientEnd {
        ClientEnd(pipe)
    }

    /// Takes what has come, if anything has.
    pub(super) fn take(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        self.take_received(inbox).map(drop)
    }
}

impl WatchChannel for ClientEnd {
    fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut pipe = self.0.borrow_mut();
        if pipe.has_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        pipe.sent.extend_from_slice(bytes);
        Ok(())
    }

    fn take_received(&mut self, inbox: &mut Inbox) -> io::Result<bool> {
        let mut pipe = self.0.borrow_mut();
        let written = std::mem::take(&mut pipe.written);
        if written.is_empty() {
            return if pipe.has_ended { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(false) };
        }
        inbox.feed(&written);
        Ok(true)
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.0.borrow_mut().is_closed = true;
    }
}

/// The watching of a client process at a server.
#[derive(Debug)]
pub(super) struct ServerWatch {
    pub(super) link: WatchLink<ClientEnd>,
    /// The pipe of the connection that was made last.
    pub(super) pipe: Option<SharedPipe>,
    /// Whether a task waits for a reply.
    pub(super) is_asking: bool,
    /// Tasks that wait until it has its reply.
    pub(super) waiting: Vec<Waker>,
}

/// The watching of a client process, by server.
pub(super) type ProcessWatches = RefCell<BTreeMap<usize, ServerWatch>>;

/// A connection for notices, as the network sees it.
pub(crate) struct NoticeConnection {
    process: usize,
    server: usize,
    /// The server's incarnation.
    epoch: u64,
    pipe: SharedPipe,
    /// What the server has received.
    inbox: Inbox,
    /// When the last request arrives.
    last_us: u64,
    requests: u64,
    /// The node that the last request wants to watch.
    asked: Option<NodeId>,
    /// Whether the server knows of no end.
    is_open: bool,
}

/// The place of a connection, by its number at the server.
pub(super) fn place_of(connection: u64) -> Option<usize> {
    connection.checked_sub(FIRST).map(|place| place as usize)
}

fn number_of(place: usize) -> u64 {
    FIRST + place as u64
}

fn watched(request: &[u8]) -> Option<NodeId> {
    let Ok(Request::Read { questions, .. }) = Request::decode(request) else { return None };
    questions.iter().find_map(|question| match question {
        Question::Watch { node } => Some(node),
        _ => None,
    })
}

impl Cluster {
    /// Whether client processes can watch nodes of a server.
    pub(super) fn is_watchable(&self, server: usize) -> bool {
        self.watchable >> server & 1 == 1
    }

    /// Whether a process has a connection to a server, which is not known to have ended.
    pub(super) fn is_connected(&self, peer: usize, server: usize) -> bool {
        self.open.contains_key(&(peer, server))
    }

    /// Makes a connection for notices. The server's greeting takes no time.
    pub(super) fn connect_watcher(&mut self, process: usize, server: usize) -> Option<SharedPipe> {
        let SimulatedServerState { epoch, is_up } = self.server_state(server);
        if !is_up || !self.is_watchable(server) {
            return None;
        }
        let pipe = SharedPipe::default();
        let number = number_of(self.notices.len());
        self.notices.push(NoticeConnection {
            process,
            server,
            epoch,
            pipe: Rc::clone(&pipe),
            inbox: Inbox::default(),
            last_us: 0,
            requests: 0,
            asked: None,
            is_open: true,
        });
        let of = &mut self.servers[server];
        of.outgoing.add(number);
        of.running.as_mut()?.core.admit_watcher(number);
        Some(pipe)
    }

    fn server_state(&self, server: usize) -> SimulatedServerState {
        let of = &self.servers[server];
        let is_up = of.running.is_some() && of.frozen_until_us <= self.now_us();
        SimulatedServerState { epoch: of.epoch, is_up }
    }

    /// Sends what a client has put into its pipe.
    pub(super) fn send_watch_request(&mut self, pipe: &SharedPipe) {
        let Some(place) = self.notices.iter().rposition(|notices| Rc::ptr_eq(&notices.pipe, pipe)) else {
            return;
        };
        let NoticeConnection { process, server, requests, .. } = self.notices[place];
        let us = self.takes([9 << 32 | place as u64, process as u64, server as u64, requests]) / 4;
        let now_us = self.now_us();
        let connection = &mut self.notices[place];
        connection.requests += 1;
        connection.last_us = connection.last_us.max(now_us + us);
        let (us, bytes) = (connection.last_us - now_us, std::mem::take(&mut pipe.borrow_mut().sent));
        self.after(us, SimulationEvent::WatchRequest { connection: place, bytes });
    }

    /// The server that a connection for notices is to.
    pub(super) fn server_of_notices(&self, place: usize) -> usize {
        self.notices[place].server
    }

    /// Delivers a request on a connection for notices.
    pub(super) fn watch_request(&mut self, place: usize, bytes: &[u8]) {
        let NoticeConnection { server, epoch, is_open, .. } = self.notices[place];
        if !is_open || !self.is_up(server, epoch) {
            return;
        }
        let (connection, mut messages) = (&mut self.notices[place], Vec::new());
        connection.inbox.feed(bytes);
        let taken = connection.inbox.take(|request, message| messages.push((request, message.to_vec())));
        assert_eq!(taken, Ok(()), "the frames of a client");
        for (request, message) in messages {
            let decoded = yesquel_wire::Destination::split(&message);
            self.notices[place].asked = decoded.ok().and_then(|(_, request)| watched(request));
            self.handle_message(server, Caller { connection: number_of(place), request }, &message);
        }
    }

    /// Counts the answer to a request to watch.
    pub(super) fn note_watch_reply(&mut self, place: usize, reply: &[u8]) {
        let NoticeConnection { server, asked, .. } = self.notices[place];
        let (Some(node), Ok(Reply::Answers { answers, .. })) = (asked, Reply::decode(reply)) else { return };
        // Behind the question for its cells.
        match answers.iter().nth(1) {
            Some(Answer::Same) => self.count_path(ProtocolPath::WatchGranted),
            Some(Answer::Absent) if self.engine(server).is_some_and(|engine| engine.has_prepared(node)) => {
                self.count_path(ProtocolPath::WatchRefused);
            }
            _ => {}
        }
    }

    /// Writes to a connection's pipe. Notices must leave at once, while it has room. Fails if it has
    /// not, or if the client has closed its end.
    pub(super) fn write_to_pipe(&mut self, place: usize, bytes: &[u8], is_notices: bool) -> Result<(), ()> {
        let room = self.notice_room;
        let us = self.takes([10 << 32, place as u64, self.now_us(), bytes.len() as u64]) / 4;
        let mut pipe = self.notices[place].pipe.borrow_mut();
        if pipe.is_closed || (is_notices && pipe.written.len() + bytes.len() > room) {
            return Err(());
        }
        pipe.written.extend_from_slice(bytes);
        let reader = pipe.reader.take();
        drop(pipe);
        // The bytes are there; the thread that waits for them is not running yet.
        reader.into_iter().for_each(|reader| self.after(us, SimulationEvent::Wake(reader)));
        Ok(())
    }

    /// Closes the server's end of a connection for notices.
    pub(super) fn close_notices(&mut self, place: usize) {
        let NoticeConnection { server, epoch, is_open, .. } = self.notices[place];
        if !is_open {
            return;
        }
        self.notices[place].is_open = false;
        let mut pipe = self.notices[place].pipe.borrow_mut();
        pipe.has_ended = true;
        let reader = pipe.reader.take();
        drop(pipe);
        reader.into_iter().for_each(|reader| self.after(0, SimulationEvent::Wake(reader)));
        if self.is_up(server, epoch) {
            let of = &mut self.servers[server];
            of.outgoing.remove(number_of(place));
            of.running.iter_mut().for_each(|running| running.core.disconnected(number_of(place)));
        }
    }

    /// Closes the connections for notices that a predicate of process and server chooses.
    pub(super) fn close_all_notices(&mut self, is_meant: impl Fn(usize, usize) -> bool) {
        for place in 0..self.notices.len() {
            let NoticeConnection { process, server, .. } = self.notices[place];
            if is_meant(process, server) {
                self.close_notices(place);
            }
        }
    }

    /// A server learns which clients have closed their ends.
    pub(super) fn find_closed_notices(&mut self, server: usize) {
        for place in 0..self.notices.len() {
            let connection = &self.notices[place];
            if connection.server == server && connection.is_open && connection.pipe.borrow().is_closed {
                self.close_notices(place);
            }
        }
    }

    /// Takes the notices of a process for its heartbeat.
    pub(super) fn poll_notices(&mut self, process: usize, heartbeats: &dyn HeartbeatSource) {
        if process >= PROCESSES {
            return;
        }
        let watches = self.processes[process].watches.as_ref().and_then(std::rc::Weak::upgrade);
        let Some(watches) = watches else { return };
        for (server, watch) in watches.borrow_mut().iter_mut().filter(|(_, watch)| !watch.is_asking) {
            let server = ServerId(*server as u16);
            let mut see = |event: WatchEvent| heartbeats.on_watch_event(server, event);
            watch.link.poll(&mut see);
        }
    }
}

/// What a connection attempt finds.
struct SimulatedServerState {
    epoch: u64,
    is_up: bool,
}
