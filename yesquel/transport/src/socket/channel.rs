//! A byte stream in both directions, plain or encrypted. One thread at a time sends, and one
//! receives.

use super::{Address, ConnectError, ConnectStep, SocketOptions};
use crate::wait::{CHECK_EVERY, check_cancelled, was_cancelled};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net,
};
use rustls::{ClientConnection, pki_types::ServerName};
use std::{
    borrow::Cow,
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd},
        linux::net::SocketAddrExt,
        unix::net::UnixStream,
    },
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};
use yesquel_fork::{CloseOnFork, UnansweredMessages, unacknowledged_bytes};
use yesquel_wire::{frame::Inbox, greeting::name_number};

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

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
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

/// Whether an error is the socket's own timeout.
pub(super) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A socket with a deadline for reading and writing, however few bytes come at a time, and with
/// cancellation; without a deadline, only with its own timeouts.
struct Limited<'a> {
    socket: &'a Socket,
    until: Option<Instant>,
}

impl Limited<'_> {
    fn limited<T>(&self, mut act: impl FnMut(&Socket) -> io::Result<T>) -> io::Result<T> {
        let Some(until) = self.until else { return act(self.socket) };
        loop {
            self.socket.timeouts(Some(left(until)?.min(CHECK_EVERY)))?;
            match act(self.socket) {
                Err(error) if is_late(&error) && !check_cancelled() => {}
                outcome => return outcome,
            }
        }
    }
}

impl Read for Limited<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.limited(|mut socket| socket.read(room))
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limited(|mut socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that is read without waiting.
struct NonBlocking<'a>(&'a Socket);

impl Read for NonBlocking<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            match net::recv(self.0.as_fd(), &mut *room, net::RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                received => return Ok(received?.0),
            }
        }
    }
}

/// Time left until a deadline; an error if none is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[derive(Debug)]
pub(super) struct Channel {
    /// Closed in a child process. Dropped before the socket.
    fork: CloseOnFork,
    socket: Socket,
    tls: Option<Mutex<ClientConnection>>,
}

/// Resolves a host. A resolver cannot be stopped, so at the deadline its thread is left alone.
fn resolve(host: &str, port: u16, until: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (found, finds) = mpsc::channel();
    let host = host.to_owned();
    thread::Builder::new().name("yesquel-resolve".to_owned()).spawn(move || {
        // The caller may have stopped waiting.
        let _ = found.send((host.as_str(), port).to_socket_addrs().map(Iterator::collect));
    })?;
    loop {
        match finds.recv_timeout(left(until)?.min(CHECK_EVERY)) {
            Ok(found) => return found,
            Err(mpsc::RecvTimeoutError::Timeout) if !check_cancelled() => {}
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Connects to the first of some addresses that accepts.
fn connect_tcp(addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (at, address) in addresses.iter().enumerate() {
        // An address that does not answer leaves time for the others.
        let share = left(until)? / (addresses.len() - at) as u32;
        match connect_to(address, Instant::now() + share) {
            Ok(stream) => return Ok(stream),
            Err(error) if was_cancelled() => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to one address by a deadline.
fn connect_to(address: &SocketAddr, until: Instant) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { net::AddressFamily::INET } else { net::AddressFamily::INET6 };
    let flags = net::SocketFlags::CLOEXEC | net::SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, net::SocketType::STREAM, flags, None)?;
    match net::connect(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => loop {
            let most = Timespec::try_from(left(until)?.min(CHECK_EVERY)).map_err(io::Error::other)?;
            let mut polled = [PollFd::new(&socket, PollFlags::OUT)];
            match poll(&mut polled, Some(&most)) {
                Ok(0) if check_cancelled() => return Err(io::ErrorKind::TimedOut.into()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => {
                    net::sockopt::socket_error(&socket)??;
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        },
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Connects to a Unix socket; `is_named`: by a socket to which Linux gives a name. Connecting blocks
/// while the server's backlog is full.
fn connect_unix(path: &Path, is_named: bool, until: Instant) -> io::Result<UnixStream> {
    let socket =
        net::socket_with(net::AddressFamily::UNIX, net::SocketType::STREAM, net::SocketFlags::CLOEXEC, None)?;
    let address = net::SocketAddrUnix::new(path)?;
    if is_named {
        net::bind(&socket, &net::SocketAddrUnix::new_unnamed())?;
    }
    loop {
        let most = left(until)?.min(CHECK_EVERY);
        net::sockopt::set_socket_timeout(&socket, net::sockopt::Timeout::Send, Some(most))?;
        match net::connect(&socket, &address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::AGAIN) if !check_cancelled() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Channel {
    /// Connects and negotiates encryption by a deadline; `is_named`: by a socket with a name.
    pub(super) fn connect(
        address: &Address,
        options: &SocketOptions,
        is_named: bool,
        until: Instant,
    ) -> Result<Channel, ConnectError> {
        let failed = |step| move |error| ConnectError::at(address, options, step, error);
        let socket = match address {
            Address::Tcp { host, port } => {
                let addresses = resolve(host, *port, until).map_err(failed(ConnectStep::Resolve))?;
                let stream = connect_tcp(&addresses, until).map_err(failed(ConnectStep::Connect))?;
                // Requests are sent at once.
                stream.set_nodelay(true).map_err(failed(ConnectStep::Connect))?;
                Socket::Tcp(stream)
            }
            Address::Unix(path) => {
                Socket::Unix(connect_unix(path, is_named, until).map_err(failed(ConnectStep::Connect))?)
            }
        };
        let tls = match (address, &options.tls) {
            (Address::Tcp { host, .. }, Some(config)) => {
                let failed = failed(ConnectStep::Encrypt);
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|error| failed(io::Error::other(error)))?;
                let made = ClientConnection::new(Arc::clone(config), name);
                let mut tls = made.map_err(|error| failed(io::Error::other(error)))?;
                // The senders bound what is queued.
                tls.set_buffer_limit(None);
                let mut limited = Limited { socket: &socket, until: Some(until) };
                while tls.is_handshaking() {
                    tls.complete_io(&mut limited).map_err(&failed)?;
                }
                Some(Mutex::new(tls))
            }
            _ => None,
        };
        let fork = CloseOnFork::new(socket.as_fd());
        Ok(Channel { fork, socket, tls })
    }

    /// The number in the socket's name.
    pub(super) fn name(&self) -> Option<u32> {
        match &self.socket {
            Socket::Tcp(_) => None,
            Socket::Unix(stream) => name_number(stream.local_addr().ok()?.as_abstract_name()?),
        }
    }

    /// Sets how long a read or write may make no progress.
    pub(super) fn timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.timeouts(Some(timeout))
    }

    fn lock(tls: &Mutex<ClientConnection>) -> MutexGuard<'_, ClientConnection> {
        tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends all bytes, and what encryption itself must send, by a deadline.
    pub(super) fn send_until(&self, bytes: &[u8], until: Instant) -> io::Result<()> {
        Limited { socket: &self.socket, until: Some(until) }.write_all(&self.sealed(bytes)?)
    }

    /// Returns the bytes as they are sent, encrypted if necessary.
    pub(super) fn sealed<'a>(&self, bytes: &'a [u8]) -> io::Result<Cow<'a, [u8]>> {
        let Some(tls) = &self.tls else { return Ok(bytes.into()) };
        let mut sealed = Vec::new();
        let mut tls = Channel::lock(tls);
        tls.writer().write_all(bytes)?;
        while tls.wants_write() {
            tls.write_tls(&mut sealed)?;
        }
        Ok(sealed.into())
    }

    /// Sends as many sealed bytes as its timeout allows.
    pub(super) fn send_some(&self, sealed: &[u8]) -> io::Result<usize> {
        loop {
            match (&self.socket).write(sealed) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }

    /// Waits for bytes. Returns whether encryption itself must send something.
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
            // Not under the lock, since the sender needs it.
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

    /// Returns the counter of messages for which the exit of the process waits.
    pub(super) fn unanswered(&self, exit_timeout: Duration) -> UnansweredMessages {
        self.fork.unanswered(exit_timeout)
    }

    /// Takes the bytes that have come, without waiting. Returns whether there were any. Only for
    /// sockets without encryption.
    pub(super) fn take_received(&self, inbox: &mut Inbox) -> io::Result<bool> {
        match inbox.read_from(&mut NonBlocking(&self.socket)) {
            Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the server has closed the stream, and everything before its end was read.
    pub(super) fn has_ended(&self) -> bool {
        let flags = net::RecvFlags::DONTWAIT | net::RecvFlags::PEEK;
        !matches!(
            net::recv(self.socket.as_fd(), &mut [0][..], flags),
            Ok((1, _)) | Err(Errno::AGAIN | Errno::INTR)
        )
    }

    /// Ends the sending side: the server gets what was sent, and then the end.
    pub(super) fn end_sending(&self) {
        // It may be closed already.
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Whether something that was sent has not reached the server's machine. What is sent by a Unix
    /// socket is there at once.
    pub(super) fn has_unacknowledged(&self) -> bool {
        match &self.socket {
            Socket::Tcp(stream) => unacknowledged_bytes(stream.as_fd()).is_ok_and(|bytes| bytes > 0),
            Socket::Unix(_) => false,
        }
    }

    /// Closes the stream: a receiving thread notices.
    pub(super) fn close(&self) {
        // It may be closed already.
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}
