//! Where connections come from.

use super::stream::Socket;
use mio::{Interest, Registry, Token, net};
use std::{
    io::{self, Read, Write},
    os::unix::net::SocketAddr as UnixAddress,
};
use yesquel_wire::greeting::{Denial, Welcome};

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    /// An address of the network.
    Tcp(std::net::TcpListener),
    /// A file.
    Unix(std::os::unix::net::UnixListener),
}

pub(super) enum AnyListener {
    Tcp(net::TcpListener),
    /// With the file's name, for its clients have none.
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

    /// A connection, and from where, for those who read the log.
    pub(super) fn accept(&self) -> io::Result<(Socket, Box<str>)> {
        match self {
            AnyListener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                // Replies leave when they are there.
                stream.set_nodelay(true)?;
                Ok((Socket::Tcp(stream), peer.to_string().into()))
            }
            AnyListener::Unix(listener, name) => {
                listener.accept().map(|(stream, _)| (Socket::Unix(stream), name.clone()))
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

/// Tells a connection that is not even heard that there are too many.
pub(super) fn turn_away(socket: &mut Socket, clients_max: usize) {
    // What it has said already is taken, for a socket that is closed with
    // something unread may take its answer along. Neither waits, and nobody
    // hears how it went.
    let _ = socket.read(&mut [0; 4096]);
    let _ = socket.write(&Welcome::Refused(Denial::TooManyConnections(clients_max as u32)).encode());
}
