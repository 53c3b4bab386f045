//! Sockets of connections, plain or encrypted.

use mio::{Interest, Registry, Token, event::Source, net};
use rustls::ServerConnection;
use std::{
    io::{self, Read, Write},
    os::linux::net::SocketAddrExt,
};
use yesquel_wire::greeting::name_number;

/// Socket of either kind.
#[derive(Debug)]
pub(super) enum ServerSocket {
    Tcp(net::TcpStream),
    Unix(net::UnixStream),
}

impl ServerSocket {
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            ServerSocket::Tcp(stream) => stream.register(registry, token, interest),
            ServerSocket::Unix(stream) => stream.register(registry, token, interest),
        }
    }
}

impl Read for ServerSocket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            ServerSocket::Tcp(stream) => stream.read(room),
            ServerSocket::Unix(stream) => stream.read(room),
        }
    }
}

impl Write for ServerSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ServerSocket::Tcp(stream) => stream.write(bytes),
            ServerSocket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Socket with optional encryption. It never blocks.
#[derive(Debug)]
pub(super) struct SocketStream {
    socket: ServerSocket,
    tls: Option<Box<ServerConnection>>,
}

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// Some bytes; `more`: there may be more.
    Bytes { more: bool },
    /// Nothing at present.
    Nothing,
    /// The other side has closed the connection.
    End,
}

impl SocketStream {
    pub(super) fn new(socket: ServerSocket, tls: Option<ServerConnection>) -> SocketStream {
        SocketStream { socket, tls: tls.map(Box::new) }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.socket.register(registry, token)
    }

    /// Returns the number in the name of the peer's socket, if Linux has given it one. What is
    /// written to such a socket is in the peer's hands when the call returns.
    pub(super) fn peer_name(&self) -> Option<u32> {
        match &self.socket {
            ServerSocket::Tcp(_) => None,
            ServerSocket::Unix(stream) => name_number(stream.peer_addr().ok()?.as_abstract_name()?),
        }
    }

    /// Reads once into an inbox.
    pub(super) fn read_into(&mut self, inbox: &mut yesquel_wire::frame::Inbox) -> io::Result<ReadOutcome> {
        let Some(tls) = &mut self.tls else { return came(inbox.read_from(&mut self.socket)) };
        if tls.wants_read() {
            match tls.read_tls(&mut self.socket) {
                Ok(0) => return Ok(ReadOutcome::End),
                Ok(_) => {}
                Err(error) if is_for_later(&error) => return Ok(ReadOutcome::Nothing),
                Err(error) => return Err(error),
            }
        }
        let processed = tls.process_new_packets().map(drop);
        // Send the handshake's answer, or its error.
        self.flush()?;
        processed.map_err(io::Error::other)?;
        let Some(tls) = &mut self.tls else { return Ok(ReadOutcome::Nothing) };
        match came(inbox.read_from(&mut tls.reader()))? {
            // The record belonged to the handshake, or was incomplete.
            ReadOutcome::Nothing => Ok(ReadOutcome::Bytes { more: true }),
            ReadOutcome::Bytes { .. } => Ok(ReadOutcome::Bytes { more: true }),
            ReadOutcome::End => Ok(ReadOutcome::End),
        }
    }

    /// Takes bytes to send. Returns how many it took.
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

    /// Sends encrypted bytes. Returns whether all are sent.
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

fn came(read: io::Result<(usize, bool)>) -> io::Result<ReadOutcome> {
    match read {
        Ok((0, _)) => Ok(ReadOutcome::End),
        Ok((_, more)) => Ok(ReadOutcome::Bytes { more }),
        // A signal came first; the bytes are still there.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(ReadOutcome::Bytes { more: true }),
        Err(error) if is_for_later(&error) => Ok(ReadOutcome::Nothing),
        Err(error) => Err(error),
    }
}
