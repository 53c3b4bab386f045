//! How a request reaches a server: [`Transport`]; [`Embedded`], a server in
//! this process; [`Sockets`], servers at addresses.

mod embedded;
mod numbers;
mod socket;
mod wait;

pub use embedded::Embedded;
pub use socket::{Address, AddressError, ConnectError, ConnectStep, DEFAULT_PORT, SocketOptions, Sockets};
pub use wait::block_on;

use std::{future::Future, sync::Arc};
use thiserror::Error;
use yesquel_model::ServerId;
use yesquel_wire::News;

/// No answer will come: whether the request was done is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the connection to server {} was lost: {why}", server.0)]
pub struct Lost {
    /// Whose.
    pub server: ServerId,
    /// What happened.
    pub why: String,
}

/// What a client must tell its servers of itself.
pub trait Holdings: Send + Sync {
    /// Its number, which no other client has.
    fn client(&self) -> u64;
    /// What there is to tell.
    fn news(&self) -> News;
}

/// A way to servers.
pub trait Transport {
    /// Sends a request and brings back the bytes of its reply.
    fn call(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>>;

    /// Whom to ask, now and then, what servers must know of the client.
    fn attend(&self, _holdings: Arc<dyn Holdings>) {}
}

impl<T: Transport> Transport for &T {
    fn call(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>> {
        (**self).call(server, request)
    }

    fn attend(&self, holdings: Arc<dyn Holdings>) {
        (**self).attend(holdings);
    }
}
