//! A connection as bytes both ways, plain or encrypted. One thread at a time
//! sends, and one receives.

use super::{Address, ConnectError, SocketOptions};
use rustls::{ClientConnection, pki_types::ServerName};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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

#[derive(Debug)]
pub(super) struct Channel {
    socket: Socket,
    tls: Option<Mutex<ClientConnection>>,
}

/// The first address of a host that takes a connection.
fn connect_tcp(host: &str, port: u16, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Channel {
    pub(super) fn connect(address: &Address, options: &SocketOptions) -> Result<Channel, ConnectError> {
        let failed = |error| ConnectError::Io { address: address.clone(), error };
        let until = Instant::now() + options.connect_timeout;
        let socket = match address {
            Address::Tcp { host, port } => {
                let stream = connect_tcp(host, *port, until).map_err(failed)?;
                // Requests leave when they are there.
                stream.set_nodelay(true).map_err(failed)?;
                Socket::Tcp(stream)
            }
            Address::Unix(path) => Socket::Unix(UnixStream::connect(path).map_err(failed)?),
        };
        socket.timeouts(Some(options.connect_timeout)).map_err(failed)?;
        let tls = match (address, &options.tls) {
            (Address::Tcp { host, .. }, Some(config)) => {
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|error| failed(io::Error::other(error)))?;
                let made = ClientConnection::new(Arc::clone(config), name);
                let mut tls = made.map_err(|error| failed(io::Error::other(error)))?;
                // What is to be sent is bounded by whoever sends.
                tls.set_buffer_limit(None);
                while tls.is_handshaking() {
                    tls.complete_io(&mut &socket).map_err(failed)?;
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
        let Some(tls) = &self.tls else { return (&self.socket).write_all(bytes) };
        let mut sealed = Vec::new();
        {
            let mut tls = Channel::lock(tls);
            tls.writer().write_all(bytes)?;
            while tls.wants_write() {
                tls.write_tls(&mut sealed)?;
            }
        }
        (&self.socket).write_all(&sealed)
    }

    /// Waits for bytes; whether encryption itself has something to say.
    pub(super) fn receive(&self, inbox: &mut Inbox) -> io::Result<bool> {
        let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed it");
        let Some(tls) = &self.tls else {
            return match inbox.read_from(&mut &self.socket)? {
                (0, _) => Err(ended()),
                _ => Ok(false),
            };
        };
        loop {
            // Not under the lock, for whoever sends needs it.
            let mut sealed = [0; 16 << 10];
            let count = (&self.socket).read(&mut sealed)?;
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
