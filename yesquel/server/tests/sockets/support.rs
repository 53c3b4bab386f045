//! Server with sockets, and a client that sends arbitrary bytes.

use rustix::net;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};
use yesquel_engine::EngineSettings;
use yesquel_model::{GroupEpoch, NodeId, ServerId, Timestamp, TreeId};
use yesquel_server::{
    Core, Listener, ManualTime, SocketReplies, SocketServer, SocketServerOptions, Time, WallTime,
};
use yesquel_wire::{
    ByteWriter, Destination, Question, Request,
    frame::{Inbox, Outbox},
    greeting::{Hello, Role, VERSIONS, Welcome, name_number, watcher},
    status::ConnectionStatus,
};

pub(crate) struct Served {
    // Fields are dropped in this order.
    _sockets: SocketServer,
    pub(crate) core: Arc<Core>,
    pub(crate) address: SocketAddr,
}

/// Maximum number of clients.
pub(crate) const CLIENTS_MAX: usize = 10;

/// The birth of a transaction that begins now.
pub(crate) fn birth() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::from_ms(now.as_millis() as u64)
}

/// Starts a server for ten clients, with the system's clock.
pub(crate) fn serve(core: impl FnOnce(SocketReplies) -> Core) -> Served {
    serve_with_clock(core, WallTime::default())
}

/// Starts a server for ten clients.
pub(crate) fn serve_with_clock(
    core: impl FnOnce(SocketReplies) -> Core,
    time: impl Time + 'static,
) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (_sockets, core) = serve_at(Listener::Tcp(listener), core, time);
    Served { _sockets, core, address }
}

/// Starts a server in memory at a socket of this machine.
pub(crate) fn serve_unix(path: &Path) -> (SocketServer, Arc<Core>) {
    let core = |sink| Core::in_memory(EngineSettings::default(), WallTime::default(), sink);
    serve_at(Listener::Unix(UnixListener::bind(path).unwrap()), core, WallTime::default())
}

fn serve_at(
    listener: Listener,
    core: impl FnOnce(SocketReplies) -> Core,
    time: impl Time + 'static,
) -> (SocketServer, Arc<Core>) {
    let sink = SocketReplies::new();
    let core = Arc::new(core(sink.clone()));
    let options = SocketServerOptions {
        server: ServerId(0),
        secrets: Arc::default(),
        connections_max: CLIENTS_MAX,
        unfinished_bytes_max: 80 << 20,
    };
    let sockets =
        SocketServer::serve_with_clock(Arc::clone(&core), sink, vec![listener], options, time).unwrap();
    (sockets, core)
}

/// Starts a server in memory whose connections use a manual clock.
pub(crate) fn in_memory(clock: &ManualTime) -> Served {
    let core = |sink| Core::in_memory(EngineSettings::default(), WallTime::default(), sink);
    serve_with_clock(core, clock.clone())
}

/// Raw connection.
pub(crate) struct Raw<S = TcpStream> {
    pub(crate) stream: S,
    pub(crate) inbox: Inbox,
}

pub(crate) fn root() -> NodeId {
    NodeId::root(TreeId::new(1).unwrap(), ServerId(0))
}

pub(crate) fn lookup() -> Vec<u8> {
    let mut request = Vec::new();
    let question = Question::Lookup { node: root(), key: &[0] };
    Request::write_read(&mut ByteWriter(&mut request), None, Timestamp::ZERO, [question]);
    request
}

/// The group, as requests name it.
pub(crate) const GROUP: Destination = Destination { group: ServerId(0), epoch: GroupEpoch::FIRST };

impl Raw {
    pub(crate) fn ungreeted(stream: TcpStream) -> Raw {
        // Send without waiting for acknowledgements.
        stream.set_nodelay(true).unwrap();
        // A server that never answers fails the test.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Raw { stream, inbox: Inbox::default() }
    }

    pub(crate) fn new(address: SocketAddr, client: u64) -> Raw {
        Raw::ungreeted(TcpStream::connect(address).unwrap()).served(client)
    }
}

impl Raw<UnixStream> {
    pub(crate) fn unix(path: &Path, client: u64) -> Raw<UnixStream> {
        Raw::over(UnixStream::connect(path).unwrap(), client)
    }

    /// Connects for notices. `differs`: with another number than that of its socket's name.
    pub(crate) fn watcher(path: &Path, client: u64, differs: bool) -> Raw<UnixStream> {
        let (family, kind) = (net::AddressFamily::UNIX, net::SocketType::STREAM);
        let socket = net::socket(family, kind, None).unwrap();
        net::bind(&socket, &net::SocketAddrUnix::new_unnamed()).unwrap();
        net::connect(&socket, &net::SocketAddrUnix::new(path).unwrap()).unwrap();
        let stream = UnixStream::from(socket);
        let name = name_number(stream.local_addr().unwrap().as_abstract_name().unwrap()).unwrap();
        Raw::over(stream, watcher(client, name ^ u32::from(differs)))
    }

    fn over(stream: UnixStream, client: u64) -> Raw<UnixStream> {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Raw { stream, inbox: Inbox::default() }.served(client)
    }
}

impl<S: Read + Write> Raw<S> {
    fn served(mut self, client: u64) -> Raw<S> {
        let hello = Hello { versions: VERSIONS, client, credential: b"", role: Role::Client, cluster: None };
        assert!(matches!(self.greet(&hello), Welcome::Served { .. }));
        self
    }

    pub(crate) fn greet(&mut self, hello: &Hello<'_>) -> Welcome {
        self.stream.write_all(&hello.encode()).unwrap();
        loop {
            if let Some((welcome, length)) = Welcome::decode(self.inbox.unread()).unwrap() {
                self.inbox.skip(length);
                return welcome;
            }
            self.inbox.read_from(&mut self.stream).unwrap();
        }
    }

    pub(crate) fn send(&mut self, requests: impl IntoIterator<Item = (u64, Vec<u8>)>) {
        let (mut outbox, mut bytes) = (Outbox::default(), Vec::new());
        for (number, request) in requests {
            outbox.push_after(number, GROUP.encode().bytes(), &request);
        }
        while outbox.fill(&mut bytes) {}
        self.stream.write_all(&bytes).unwrap();
    }

    /// Reads `count` replies.
    pub(crate) fn replies(&mut self, count: usize, mut each: impl FnMut(u64, &[u8])) {
        let mut found = 0;
        while found < count {
            let (bytes, _) = self.inbox.read_from(&mut self.stream).unwrap();
            assert!(bytes > 0, "the server has closed the connection after {found} of {count}");
            self.inbox
                .take(|number, reply| {
                    found += 1;
                    each(number, reply);
                })
                .unwrap();
        }
        assert_eq!(found, count);
    }

    pub(crate) fn ask(&mut self, request: Vec<u8>) -> Vec<u8> {
        self.ask_at(GROUP, &request)
    }

    pub(crate) fn ask_at(&mut self, destination: Destination, request: &[u8]) -> Vec<u8> {
        let (mut outbox, mut bytes) = (Outbox::default(), Vec::new());
        outbox.push_after(1, destination.encode().bytes(), request);
        while outbox.fill(&mut bytes) {}
        self.stream.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        self.replies(1, |_, reply| answer = reply.to_vec());
        answer
    }
}

impl Served {
    pub(crate) fn connections(&self) -> ConnectionStatus {
        self.core.status().connections
    }

    /// Waits for the server's thread.
    #[track_caller]
    pub(crate) fn until(&self, missing: &str, is_done: impl Fn(&ConnectionStatus) -> bool) {
        let begun = Instant::now();
        loop {
            let status = self.connections();
            if is_done(&status) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{missing}: {status:?}");
            thread::yield_now();
        }
    }
}
