//! Listening sockets.

use super::stream::ServerSocket;
use mio::{Interest, Registry, Token, net};
use std::{
    io::{self, Read, Write},
    os::unix::net::SocketAddr as UnixAddress,
};
use yesquel_wire::greeting::{Denial, Welcome};

/// Listening socket.
#[derive(Debug)]
pub enum Listener {
    /// Internet address.
    Tcp(std::net::TcpListener),
    /// File.
    Unix(std::os::unix::net::UnixListener),
}

pub(super) enum AnyListener {
    Tcp(net::TcpListener),
    /// With the name of the file, since its clients have no address.
    Unix(net::UnixListener, Box<str>),
}

fn name(address: &UnixAddress) -> Box<str> {
    let path = address.as_pathname();
    path.map_or_else(|| "unix".to_owned(), |path| format!("unix:{}", path.display())).into()
}

impl AnyListener {
    pub(super) fn new(listener: Listener) -> io::Result<AnyListener> {
        match listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Ok(AnyListener::Tcp(net::TcpListener::from_std(listener)))
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                let name = name(&listener.local_addr()?);
                Ok(AnyListener::Unix(net::UnixListener::from_std(listener), name))
            }
        }
    }

    /// Accepts a connection. Returns the client's address for the log.
    pub(super) fn accept(&self) -> io::Result<(ServerSocket, Box<str>)> {
        match self {
            AnyListener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                // Send replies without delay.
                stream.set_nodelay(true)?;
                Ok((ServerSocket::Tcp(stream), peer.to_string().into()))
            }
            AnyListener::Unix(listener, name) => {
                listener.accept().map(|(stream, _)| (ServerSocket::Unix(stream), name.clone()))
            }
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            AnyListener::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            AnyListener::Unix(listener, _) => registry.register(listener, token, Interest::READABLE),
        }
    }
}

/// Refuses a connection because there are too many, without reading a greeting.
pub(super) fn turn_away(socket: &mut ServerSocket, clients_max: usize) {
    // Read what has arrived: closing a socket with unread bytes may discard the answer. Neither
    // call blocks, and the result does not matter.
    let _ = socket.read(&mut [0; 4096]);
    let _ = socket.write(&Welcome::Refused(Denial::TooManyConnections(clients_max as u32)).encode());
}
