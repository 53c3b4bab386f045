//! A connection as bytes both ways, plain or encrypted. One thread at a time
//! sends, and one receives.

use super::{Address, ConnectError, SocketOptions, failure::Step};
use rustix::net;
use rustls::{ClientConnection, pki_types::ServerName};
use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};
use yesquel_wire::frame::Inbox;

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
            Socket::Unix(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Socket::Tcp(stream) => (&mut &*stream).read(room),
                Socket::Unix(stream) => (&mut &*stream).read(room),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).write(bytes),
            Socket::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that is read and written up to a moment, however little comes at a
/// time; without one, as long as its own timeouts let it.
struct Limited<'a> {
    socket: &'a Socket,
    until: Option<Instant>,
}

impl Limited<'_> {
    fn limit(&self) -> io::Result<()> {
        match self.until {
            Some(until) => self.socket.timeouts(Some(left(until)?)),
            None => Ok(()),
        }
    }
}

impl Read for Limited<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        let mut socket = self.socket;
        socket.read(room)
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        let mut socket = self.socket;
        socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time up to a moment, of which there must be some.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[derive(Debug)]
pub(super) struct Channel {
    socket: Socket,
    tls: Option<Mutex<ClientConnection>>,
}

/// The addresses of a host. Whoever finds them cannot be told when to stop, and
/// is left to himself after that.
fn resolve(host: &str, port: u16, until: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (found, finds) = mpsc::channel();
    let host = host.to_owned();
    thread::Builder::new().name("yesquel-resolve".to_owned()).spawn(move || {
        // Nobody may wait for it any more.
        let _ = found.send((host.as_str(), port).to_socket_addrs().map(Iterator::collect));
    })?;
    finds.recv_timeout(left(until)?).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// The first of some addresses that takes a connection.
fn connect_tcp(addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (at, address) in addresses.iter().enumerate() {
        // One that nobody answers at leaves some time to the others.
        let share = left(until)? / (addresses.len() - at) as u32;
        match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket at a file. A server that takes no connections lets others wait.
fn connect_unix(path: &Path, until: Instant) -> io::Result<UnixStream> {
    let socket =
        net::socket_with(net::AddressFamily::UNIX, net::SocketType::STREAM, net::SocketFlags::CLOEXEC, None)?;
    net::sockopt::set_socket_timeout(&socket, net::sockopt::Timeout::Send, Some(left(until)?))?;
    net::connect(&socket, &net::SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

impl Channel {
    /// Connects, and agrees on encryption, up to a moment.
    pub(super) fn connect(
        address: &Address,
        options: &SocketOptions,
        until: Instant,
    ) -> Result<Channel, ConnectError> {
        let failed = |step| move |error| ConnectError::at(address, options, step, error);
        let socket = match address {
            Address::Tcp { host, port } => {
                let addresses = resolve(host, *port, until).map_err(failed(Step::Resolve))?;
                let stream = connect_tcp(&addresses, until).map_err(failed(Step::Connect))?;
                // Requests leave when they are there.
                stream.set_nodelay(true).map_err(failed(Step::Connect))?;
                Socket::Tcp(stream)
            }
            Address::Unix(path) => Socket::Unix(connect_unix(path, until).map_err(failed(Step::Connect))?),
        };
        let tls = match (address, &options.tls) {
            (Address::Tcp { host, .. }, Some(config)) => {
                let failed = failed(Step::Encrypt);
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|error| failed(io::Error::other(error)))?;
                let made = ClientConnection::new(Arc::clone(config), name);
                let mut tls = made.map_err(|error| failed(io::Error::other(error)))?;
                // What is to be sent is bounded by whoever sends.
                tls.set_buffer_limit(None);
                let mut limited = Limited { socket: &socket, until: Some(until) };
                while tls.is_handshaking() {
                    tls.complete_io(&mut limited).map_err(&failed)?;
                }
                Some(Mutex::new(tls))
            }
            _ => None,
        };
        Ok(Channel { socket, tls })
    }

    /// How long a read or a write may bring nothing.
    pub(super) fn timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.timeouts(Some(timeout))
    }

    fn lock(tls: &Mutex<ClientConnection>) -> MutexGuard<'_, ClientConnection> {
        tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends all of it, and what encryption itself has to say.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_until(bytes, None)
    }

    pub(super) fn send_until(&self, bytes: &[u8], until: Option<Instant>) -> io::Result<()> {
        let mut socket = Limited { socket: &self.socket, until };
        let Some(tls) = &self.tls else { return socket.write_all(bytes) };
        let mut sealed = Vec::new();
        {
            let mut tls = Channel::lock(tls);
            tls.writer().write_all(bytes)?;
            while tls.wants_write() {
                tls.write_tls(&mut sealed)?;
            }
        }
        socket.write_all(&sealed)
    }

    /// Waits for bytes; whether encryption itself has something to say.
    pub(super) fn receive(&self, inbox: &mut Inbox) -> io::Result<bool> {
        self.receive_until(inbox, None)
    }

    pub(super) fn receive_until(&self, inbox: &mut Inbox, until: Option<Instant>) -> io::Result<bool> {
        let mut socket = Limited { socket: &self.socket, until };
        let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed it");
        let Some(tls) = &self.tls else {
            return match inbox.read_from(&mut socket)? {
                (0, _) => Err(ended()),
                _ => Ok(false),
            };
        };
        loop {
            // Not under the lock, for whoever sends needs it.
            let mut sealed = [0; 16 << 10];
            let count = socket.read(&mut sealed)?;
            let (mut sealed, mut tls) = (&sealed[..count], Channel::lock(tls));
            let mut came = false;
            while !sealed.is_empty() || count == 0 {
                tls.read_tls(&mut sealed)?;
                tls.process_new_packets().map_err(io::Error::other)?;
                loop {
                    match inbox.read_from(&mut tls.reader()) {
                        Ok((0, _)) => return Err(ended()),
                        Ok(_) => came = true,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
                if count == 0 {
                    return Err(ended());
                }
            }
            if came || tls.wants_write() {
                return Ok(tls.wants_write());
            }
        }
    }

    /// Ends it: whoever receives is told.
    pub(super) fn close(&self) {
        // It may have ended by itself.
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}
