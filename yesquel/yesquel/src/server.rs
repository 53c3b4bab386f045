//! A storage server that others reach by sockets.

use crate::{Error, Host, Settings};
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
use yesquel_server::{
    DataFolder, Listener, Options, SocketCounters, SocketOptions, SocketReplies, Sockets, Time, WallTime,
};
use yesquel_transport::Address;
use yesquel_wire::{frame::UNFINISHED_BYTES_MAX, status::Status};

/// Clients that a server takes if it is not told otherwise.
pub const CLIENTS_MAX: usize = 1_000;

/// Connections to a Unix socket that wait to be taken.
const BACKLOG: i32 = 4096;

/// The mode of a Unix socket that its owner may connect to, and nobody else.
pub const SOCKET_MODE: u32 = 0o600;

/// How a server is reached, and by whom. By default nowhere; a server that has
/// addresses besides takes [`CLIENTS_MAX`] clients without a credential, on Unix
/// sockets those of its own user.
///
/// ```
/// let reach = yesquel::Reach { addresses: vec!["./yesquel.sock".parse()?], ..Default::default() };
/// # Ok::<(), yesquel::AddressError>(())
/// ```
#[derive(Debug)]
pub struct Reach {
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// Who may connect to its Unix sockets: [`SOCKET_MODE`], or the mode of a
    /// file that others may write too.
    pub socket_mode: u32,
    /// Encryption, on TCP. Without it and a credential it listens on this
    /// machine only.
    pub tls: Option<Arc<ServerConfig>>,
    /// What clients must say; `None`: nothing.
    pub credential: Option<Box<[u8]>>,
    /// Clients at a time.
    pub clients_max: usize,
}

impl Default for Reach {
    fn default() -> Reach {
        Reach {
            addresses: Vec::new(),
            socket_mode: SOCKET_MODE,
            tls: None,
            credential: None,
            clients_max: CLIENTS_MAX,
        }
    }
}

/// A storage server. Dropping it ends it in order: connections first, the log
/// last.
#[derive(Debug)]
pub struct Server {
    // Dropped in this order.
    sockets: Sockets,
    host: Arc<Host>,
    addresses: Vec<Address>,
    /// Files of sockets, which go with it.
    files: Vec<PathBuf>,
}

impl Drop for Server {
    fn drop(&mut self) {
        for file in &self.files {
            // It may be gone, or the folder may.
            let _ = fs::remove_file(file);
        }
    }
}

fn wrong(address: &Address, what: impl ToString) -> Error {
    Error::Location { location: address.to_string(), what: what.to_string() }
}

/// A socket at a file with a mode, whatever the process gives other files.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    // The file is made with the socket's mode, less the process's mask: at no
    // moment may anybody connect who must not. Where the system knows nothing of
    // it, what follows the bind does it.
    let _ = rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode as RawMode));
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// A socket at a file. One that a server has left behind which is no more is
/// taken away first.
fn listen_unix(address: &Address, path: &Path, mode: u32) -> Result<UnixListener, Error> {
    match bind_unix(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket = fs::symlink_metadata(path).is_ok_and(|known| known.file_type().is_socket());
            if !is_socket || std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(wrong(address, "somebody listens there, or it is no socket"));
            }
            fs::remove_file(path).and_then(|()| bind_unix(path, mode)).map_err(|error| wrong(address, error))
        }
        bound => bound.map_err(|error| wrong(address, error)),
    }
}

/// Where a server listens.
#[derive(Default)]
struct Listening {
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
    files: Vec<PathBuf>,
}

impl Reach {
    /// Listens everywhere, or nowhere.
    fn listen(&self) -> Result<Listening, Error> {
        let mut listening = Listening::default();
        let Listening { listeners, addresses: bound, files } = &mut listening;
        for address in &self.addresses {
            match address {
                Address::Unix(path) => {
                    listeners.push(Listener::Unix(listen_unix(address, path, self.socket_mode)?));
                    bound.push(address.clone());
                    files.push(path.clone());
                }
                Address::Tcp { host, port } => {
                    let found = (host.as_str(), *port).to_socket_addrs();
                    for found in found.map_err(|error| wrong(address, error))? {
                        self.check(address, found.ip())?;
                        let listener = TcpListener::bind(found).map_err(|error| wrong(address, error))?;
                        let own = listener.local_addr().map_err(|error| wrong(address, error))?;
                        bound.push(Address::Tcp { host: own.ip().to_string(), port: own.port() });
                        listeners.push(Listener::Tcp(listener));
                    }
                }
            }
        }
        Ok(listening)
    }

    /// Whoever can be reached from elsewhere must know who asks, and what is
    /// said must not be read on the way.
    fn check(&self, address: &Address, ip: IpAddr) -> Result<(), Error> {
        if ip.is_loopback() || (self.tls.is_some() && self.credential.is_some()) {
            return Ok(());
        }
        let missing = match (&self.tls, &self.credential) {
            (None, None) => "a certificate with its key and a credential",
            (None, Some(_)) => "a certificate with its key",
            _ => "a credential",
        };
        Err(wrong(
            address,
            format!(
                "others could reach this server, so it needs {missing}; without, it listens on 127.0.0.1 and ::1 only"
            ),
        ))
    }
}

impl Server {
    /// On a data folder, or, without one, in memory only.
    pub fn start(
        folder: Option<&Path>,
        settings: Settings,
        options: Options,
        reach: Reach,
    ) -> Result<Server, Error> {
        Server::start_with_clock(folder, settings, options, reach, WallTime::default())
    }

    /// The same by a clock that is not the system's, for those who do not want
    /// to wait: what is counted in milliseconds goes by it.
    pub fn start_with_clock(
        folder: Option<&Path>,
        settings: Settings,
        options: Options,
        reach: Reach,
        time: impl Time + 'static,
    ) -> Result<Server, Error> {
        // The folder first: it is who would be harmed by a second server.
        let folder = folder.map(DataFolder::take).transpose()?;
        let Listening { listeners, addresses, files } = reach.listen()?;
        let sink = SocketReplies::new();
        let host = match folder {
            Some(folder) => Host::open(folder, settings, options, time, sink.clone())?,
            None => Host::in_memory(settings, time, sink.clone())?,
        };
        let options = SocketOptions {
            server: settings.server,
            credential: reach.credential,
            tls: reach.tls,
            connections_max: reach.clients_max,
            // A part of the budget where there is one, and room for one client's
            // in any case.
            unfinished_bytes_max: (settings.memory_bytes_max / 4).max(UNFINISHED_BYTES_MAX),
        };
        let core = Arc::clone(host.transport().core());
        let sockets = Sockets::serve(core, sink, listeners, options);
        let sockets =
            sockets.map_err(|error| Error::Internal(format!("no sockets can be served: {error}")))?;
        addresses.iter().for_each(|address| host.identity.is_at(address, settings.server));
        Ok(Server { sockets, host: Arc::new(host), addresses, files })
    }

    /// Where it listens, ports that were left to the system among them.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The server without its sockets.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// What it tells of itself.
    pub fn status(&self) -> Status {
        self.host.transport().core().status()
    }

    /// What its sockets have seen.
    pub fn sockets(&self) -> &Arc<SocketCounters> {
        self.sockets.counters()
    }
}
