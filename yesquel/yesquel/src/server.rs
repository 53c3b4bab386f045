//! Storage server that listens on sockets.

use crate::{
    EngineSettings, Error, Host, JoinOptions, PeerOptions, StopFlag,
    directory_thread::DirectoryOptions,
    fatal::FatalError,
    peers::PeerAccess,
    secret_reload::{ReloadSummary, SecretReloader},
    server_start::{ServerStart, StartOptions, reason},
};
use rustix::{
    fs::{Mode, RawMode},
    io::FdFlags,
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};
use rustls::ServerConfig;
use std::{
    fs, io,
    net::{IpAddr, TcpListener, ToSocketAddrs},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::Arc,
};
use yesquel_secrets::{Credentials, PresentSecrets, SecretFiles, Secrets};
use yesquel_server::{
    DataFolder, GROUPS_MAX, Listener, LogOptions, MachineCores, SocketCounters, SocketReplies, SocketServer,
    SocketServerOptions, Time, WallTime,
};
use yesquel_transport::Address;
use yesquel_tree::LeafPlacement;
use yesquel_wire::{frame::UNFINISHED_BYTES_MAX, status::ServerStatus};

/// Default maximum number of clients.
pub const CLIENTS_MAX: usize = 1_000;

/// Length of the accept queue of a Unix socket.
const BACKLOG: i32 = 4096;

/// Mode of a Unix socket that only its owner may connect to.
pub const SOCKET_MODE: u32 = 0o600;

/// Addresses of a server, and the clients that it admits. By default there are none. With addresses
/// only, a server admits [`CLIENTS_MAX`] clients without a credential, on Unix sockets those of its
/// own user.
///
/// ```
/// let options = yesquel::ListenOptions { addresses: vec!["./yesquel.sock".parse()?], ..Default::default() };
/// # Ok::<(), yesquel::AddressError>(())
/// ```
#[derive(Debug)]
pub struct ListenOptions {
    /// Addresses to listen on.
    pub addresses: Vec<Address>,
    /// Mode of the Unix sockets' files: [`SOCKET_MODE`], or one that also allows others to write.
    pub socket_mode: u32,
    /// Encryption of TCP connections. Without it and a credential the server accepts loopback
    /// addresses only.
    pub tls: Option<Arc<ServerConfig>>,
    /// When its certificate expires, in seconds of Unix time, for the status.
    pub certificate_expires_s: Option<u64>,
    /// Credentials of which clients must present one; `None`: none.
    pub credential: Option<Credentials>,
    /// The other servers that take part in transactions. Their credential is also required of
    /// servers that connect here.
    pub peers: PeerOptions,
    /// Maximum number of clients.
    pub clients_max: usize,
    /// Address by which clients and other servers reach the server; `None`: the one of `addresses`
    /// that most can reach.
    pub advertised: Option<Address>,
    /// The cluster that a new data folder joins; `None`: it founds one, or joins that of its peers.
    pub join: Option<JoinOptions>,
    /// Whether the server has the group of its data folder, whatever [`EngineSettings`] say.
    pub has_group_of_folder: bool,
    /// Where new leaves of databases with several groups are created.
    pub placement: LeafPlacement,
    /// Whether the server starts though the directory of its cluster has seen a later end of its log.
    pub accepts_loss: bool,
    /// Number of groups that the machine hosts at least, each with a log of its own; it keeps those that
    /// it has. At most [`GROUPS_MAX`](crate::GROUPS_MAX).
    pub groups: u16,
    /// Interrupts the start, which may wait for other servers.
    pub ending: StopFlag,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            addresses: Vec::new(),
            socket_mode: SOCKET_MODE,
            tls: None,
            certificate_expires_s: None,
            credential: None,
            peers: PeerOptions::default(),
            clients_max: CLIENTS_MAX,
            advertised: None,
            join: None,
            has_group_of_folder: false,
            placement: LeafPlacement::default(),
            accepts_loss: false,
            groups: 1,
            ending: StopFlag::default(),
        }
    }
}

/// Storage server. Dropping it stops it cleanly: first the connections, at last the log.
#[derive(Debug)]
pub struct Server {
    // Fields are dropped in this order.
    sockets: SocketServer,
    host: Arc<Host>,
    addresses: Vec<Address>,
    fatal: FatalError,
    reloader: SecretReloader,
    /// Socket files to delete at the end.
    files: Vec<PathBuf>,
}

impl Drop for Server {
    fn drop(&mut self) {
        for file in &self.files {
            // The file or its folder may be gone.
            let _ = fs::remove_file(file);
        }
    }
}

fn invalid(address: &Address, what: impl ToString) -> Error {
    Error::Location { location: address.to_string(), what: what.to_string() }
}

/// Binds a Unix socket with a mode, regardless of the umask.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    // The file gets the socket's mode minus the umask, so that it never allows more than it should.
    // Systems that ignore a socket's mode are handled after the bind.
    let _ = rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode as RawMode));
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Listens on a file, which is deleted first if no server listens there.
fn listen_unix(address: &Address, path: &Path, mode: u32) -> Result<UnixListener, Error> {
    match bind_unix(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket = fs::symlink_metadata(path).is_ok_and(|known| known.file_type().is_socket());
            if !is_socket || std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(invalid(address, "a process listens there, or it is no socket"));
            }
            fs::remove_file(path)
                .and_then(|()| bind_unix(path, mode))
                .map_err(|error| invalid(address, error))
        }
        bound => bound.map_err(|error| invalid(address, error)),
    }
}

/// Sockets on which a server listens.
#[derive(Default)]
struct Listening {
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
    /// The same, with the hosts' names as they were given, which certificates may name.
    named: Vec<Address>,
    files: Vec<PathBuf>,
}

impl ListenOptions {
    /// Listens on all addresses or on none.
    fn listen(&self) -> Result<Listening, Error> {
        let mut listening = Listening::default();
        let Listening { listeners, addresses: bound, named, files } = &mut listening;
        for address in &self.addresses {
            match address {
                Address::Unix(path) => {
                    listeners.push(Listener::Unix(listen_unix(address, path, self.socket_mode)?));
                    bound.push(address.clone());
                    named.push(address.clone());
                    files.push(path.clone());
                }
                Address::Tcp { host, port } => {
                    let found = (host.as_str(), *port).to_socket_addrs();
                    for found in found.map_err(|error| invalid(address, error))? {
                        self.check(address, found.ip())?;
                        let listener = TcpListener::bind(found).map_err(|error| invalid(address, error))?;
                        let own = listener.local_addr().map_err(|error| invalid(address, error))?;
                        bound.push(Address::Tcp { host: own.ip().to_string(), port: own.port() });
                        named.push(Address::Tcp { host: host.clone(), port: own.port() });
                        listeners.push(Listener::Tcp(listener));
                    }
                }
            }
        }
        Ok(listening)
    }

    /// Puts the secrets in force.
    fn peer_access(&self) -> Result<PeerAccess, Error> {
        let PeerOptions { servers, credential, tls } = self.peers.clone();
        let secrets = PresentSecrets::new(Secrets {
            tls: self.tls.clone(),
            certificate_expires_s: self.certificate_expires_s,
            clients: self.credential.clone(),
            peers: credential,
            peer_tls: tls,
            peer_signers: None,
        })?;
        let (secrets, placement) = (Arc::new(secrets), self.placement);
        let ending = self.ending.clone();
        Ok(PeerAccess { servers, secrets, placement, has_sockets: true, ending })
    }

    /// Checks that a server reachable from other machines authenticates and encrypts.
    fn check(&self, address: &Address, ip: IpAddr) -> Result<(), Error> {
        if ip.is_loopback() || (self.tls.is_some() && self.credential.is_some()) {
            return Ok(());
        }
        let missing = match (&self.tls, &self.credential) {
            (None, None) => "a certificate with its key and a credential",
            (None, Some(_)) => "a certificate with its key",
            _ => "a credential",
        };
        Err(invalid(
            address,
            format!(
                "others could reach this server, so it needs {missing}; without, it listens on 127.0.0.1 and ::1 only"
            ),
        ))
    }
}

/// Returns the address to tell other machines: one that they can reach, if there is one.
fn reachable(addresses: &[Address]) -> Option<&Address> {
    let rank = |address: &&Address| match address {
        Address::Tcp { host, .. } => match host.parse::<IpAddr>() {
            // It says on which interfaces the server listens, not where it is.
            Ok(ip) if ip.is_unspecified() => 0,
            Ok(ip) if ip.is_loopback() => 2,
            Err(_) if host == "localhost" => 2,
            _ => 3,
        },
        Address::Unix(_) => 1,
    };
    // The first one of the best kind.
    addresses.iter().rev().max_by_key(rank).filter(|address| rank(address) > 0)
}

impl Server {
    /// Starts a server on a data folder, or in memory without one.
    pub fn start(
        folder: Option<&Path>,
        settings: EngineSettings,
        options: LogOptions,
        listen: ListenOptions,
    ) -> Result<Server, Error> {
        Server::start_with_clock(folder, settings, options, listen, WallTime::default())
    }

    /// Like [`start`](Self::start), with a clock for everything that is counted in milliseconds.
    pub fn start_with_clock(
        folder: Option<&Path>,
        settings: EngineSettings,
        options: LogOptions,
        listen: ListenOptions,
        time: impl Time + Clone + 'static,
    ) -> Result<Server, Error> {
        let last = settings.server.0.checked_add(listen.groups.saturating_sub(1));
        if !(1..=GROUPS_MAX).contains(&listen.groups) || last.is_none() {
            return Err(Error::GroupCount(listen.groups));
        }
        let peers = listen.peer_access()?;
        // Lock the folder first, for a second server on it would do the harm.
        let folder = folder.map(DataFolder::take).transpose()?;
        let starting = StartOptions {
            join: listen.join.as_ref(),
            has_group_of_folder: listen.has_group_of_folder,
            accepts_loss: listen.accepts_loss,
            groups: listen.groups,
            ending: &listen.ending,
        };
        let mut start = ServerStart::new(folder, settings, &peers, &starting)?;
        let Listening { listeners, addresses, named, files } = listen.listen()?;
        let address = listen.advertised.as_ref().or_else(|| reachable(&named)).cloned();
        start.enter(&starting, address.as_ref())?;
        let ServerStart { folder, settings, peers, refused, .. } = start;
        let (sink, has_peers) = (SocketReplies::new(), !peers.servers.is_empty());
        let cluster_files = folder.as_ref().map(DataFolder::cluster_files);
        let host = match folder {
            Some(folder) => {
                let by = (settings, options);
                Host::open_with_peers(folder, by, listen.groups, time, sink.clone(), &peers)
            }
            None => Host::in_memory_with_peers(settings, listen.groups, time, sink.clone(), &peers),
        };
        let mut host = host.map_err(|error| reason(&refused, error))?;
        let (secrets, fatal) = (peers.secrets, FatalError::default());
        let has_stored = listen.peers.credential.is_none() && secrets.get().peers.is_some();
        let options = SocketServerOptions {
            server: host.server(),
            secrets: Arc::clone(&secrets),
            connections_max: listen.clients_max,
            // A quarter of the memory budget, but enough for one client.
            unfinished_bytes_max: (settings.memory_bytes_max / 4).max(UNFINISHED_BYTES_MAX),
        };
        // Before clients come.
        host.transport().core().take_commands();
        let first = Arc::clone(host.transport().core());
        let others = host.groups().iter().skip(1).map(|group| Arc::clone(group.core()));
        let cores = MachineCores::new(first, others.collect());
        let sockets = SocketServer::serve(cores, sink, listeners, options);
        let sockets =
            sockets.map_err(|error| Error::Internal(format!("no sockets can be served: {error}")))?;
        match &address {
            Some(address) => host.set_address(&address.to_string()),
            None if has_peers => tracing::warn!(
                "others cannot find this server: it listens on all interfaces, so give the address at which they \
                 reach it (--advertise)"
            ),
            None => {}
        }
        host.serve_directory(DirectoryOptions {
            address: address.map(|address| address.to_string()),
            secrets: Arc::clone(&secrets),
            files: cluster_files.clone(),
            fatal: fatal.clone(),
        })?;
        let (stored, revocations) = (cluster_files.filter(|_| has_stored), sockets.revocations().clone());
        let reloader = SecretReloader { secrets, stored, revocations };
        Ok(Server { sockets, host: Arc::new(host), addresses, fatal, reloader, files })
    }

    /// Reads the files of certificates and credentials again, see [`SecretReloader::reload`].
    pub fn reload(&self, files: &SecretFiles) -> Result<ReloadSummary, Error> {
        self.reloader.reload(files)
    }

    /// Returns what reads the files of certificates and credentials again, without the server.
    pub fn reloader(&self) -> &SecretReloader {
        &self.reloader
    }

    /// Sets what takes the error after which the server must end: its machine was removed from the
    /// cluster, or started again with a copy of its data folder.
    pub fn on_fatal(&self, handler: impl FnOnce(Error) + Send + 'static) {
        self.fatal.handle(Box::new(handler));
    }

    /// Returns the addresses, with the ports that the system has chosen.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns the server without its sockets.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Returns the status of the first group.
    pub fn status(&self) -> ServerStatus {
        self.host.transport().core().status()
    }

    /// Returns the status of each group.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        self.host.groups().iter().map(|group| group.core().status()).collect()
    }

    /// Returns the counters of its sockets.
    pub fn sockets(&self) -> &Arc<SocketCounters> {
        self.sockets.counters()
    }
}
