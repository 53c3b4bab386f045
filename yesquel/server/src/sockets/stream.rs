//! The sockets of connections, plain or encrypted.

use mio::{Interest, Registry, Token, event::Source, net};
use rustls::ServerConnection;
use std::io::{self, Read, Write};

/// A socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(net::TcpStream),
    Unix(net::UnixStream),
}

impl Socket {
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Socket::Tcp(stream) => stream.register(registry, token, interest),
            Socket::Unix(stream) => stream.register(registry, token, interest),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(room),
            Socket::Unix(stream) => stream.read(room),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket with what stands between it and the frames. Neither of its halves
/// ever blocks.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    tls: Option<Box<ServerConnection>>,
}

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// Some bytes, and whether there may be more.
    Bytes { more: bool },
    /// Nothing now.
    Nothing,
    /// The other side has ended.
    End,
}

impl Stream {
    pub(super) fn new(socket: Socket, tls: Option<ServerConnection>) -> Stream {
        Stream { socket, tls: tls.map(Box::new) }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.socket.register(registry, token)
    }

    /// Reads what there is into an inbox, once.
    pub(super) fn read_into(&mut self, inbox: &mut yesquel_wire::frame::Inbox) -> io::Result<Came> {
        let Some(tls) = &mut self.tls else { return came(inbox.read_from(&mut self.socket)) };
        if tls.wants_read() {
            match tls.read_tls(&mut self.socket) {
                Ok(0) => return Ok(Came::End),
                Ok(_) => {}
                Err(error) if is_for_later(&error) => return Ok(Came::Nothing),
                Err(error) => return Err(error),
            }
        }
        let processed = tls.process_new_packets().map(drop);
        // The answers of the handshake, or why there is none.
        self.flush()?;
        processed.map_err(io::Error::other)?;
        let Some(tls) = &mut self.tls else { return Ok(Came::Nothing) };
        match came(inbox.read_from(&mut tls.reader()))? {
            // The record was of the protocol itself, or not whole.
            Came::Nothing => Ok(Came::Bytes { more: true }),
            Came::Bytes { .. } => Ok(Came::Bytes { more: true }),
            Came::End => Ok(Came::End),
        }
    }

    /// Takes bytes to be sent; returns how many it has taken.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => later(self.socket.write(bytes)),
            Some(tls) => {
                let taken = tls.writer().write(bytes)?;
                self.flush()?;
                Ok(taken)
            }
        }
    }

    /// Sends what encryption has made; whether all of it is gone.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if is_for_later(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn later(count: io::Result<usize>) -> io::Result<usize> {
    match count {
        Err(error) if is_for_later(&error) => Ok(0),
        count => count,
    }
}

fn came(read: io::Result<(usize, bool)>) -> io::Result<Came> {
    match read {
        Ok((0, _)) => Ok(Came::End),
        Ok((_, more)) => Ok(Came::Bytes { more }),
        // A signal has come before the bytes, which are there.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Came::Bytes { more: true }),
        Err(error) if is_for_later(&error) => Ok(Came::Nothing),
        Err(error) => Err(error),
    }
}
