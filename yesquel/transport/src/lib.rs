//! How a request reaches a server: [`Transport`], and [`Embedded`], a server in
//! this process.

mod embedded;
mod wait;

pub use embedded::Embedded;
pub use wait::block_on;

use std::future::Future;
use thiserror::Error;
use yesquel_model::ServerId;

/// No answer will come: whether the request was done is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the connection to server {} was lost: {why}", server.0)]
pub struct Lost {
    /// Whose.
    pub server: ServerId,
    /// What happened.
    pub why: String,
}

/// A way to servers.
pub trait Transport {
    /// Sends a request and brings back the bytes of its reply.
    fn call(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>>;
}

impl<T: Transport> Transport for &T {
    fn call(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>> {
        (**self).call(server, request)
    }
}
