//! How a request reaches a server: the [`Transport`] trait, and [`Sockets`], its implementation for
//! servers at addresses. `yesquel-embedded` has the one for a server in the same process.

mod socket;
mod wait;

pub use socket::{Address, AddressError, ConnectError, ConnectStep, DEFAULT_PORT, SocketOptions, Sockets};
pub use wait::{Patience, Patient, block_on, gives_up, has_given_up, take_cancelled};

use std::{future::Future, sync::Arc};
use thiserror::Error;
use yesquel_model::ServerId;
use yesquel_wire::ClientHeartbeat;

/// No answer will come: whether the request was done is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{place}{}{why}", cause.before(), cause.after())]
pub struct Lost {
    /// Whose: the address of the server, mostly.
    pub place: String,
    /// What kind of thing happened.
    pub cause: Cause,
    /// What happened.
    pub why: String,
}

/// Why no answer will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The connection has ended, as it does when a server is started anew: another
    /// one may be had.
    Ended,
    /// Whoever asked does not wait any more (see [`Patience`]).
    GivenUp,
    /// Something else: nobody can be reached, or nobody answers in time.
    Other,
}

impl Cause {
    fn before(self) -> &'static str {
        if self == Cause::GivenUp { "interrupted while " } else { "the connection to " }
    }

    fn after(self) -> &'static str {
        if self == Cause::GivenUp { " was waited for" } else { " was lost: " }
    }
}

impl Lost {
    /// Whoever asked does not wait any more.
    pub fn given_up(place: String) -> Lost {
        Lost { place, cause: Cause::GivenUp, why: String::new() }
    }
}

/// The reason given to a child process that uses what its parent has opened.
pub const OPENED_BEFORE_FORK: &str =
    "it was opened before fork(), by another process, which has it: open one in this process";

/// What a client must tell its servers of itself.
pub trait HeartbeatSource: Send + Sync {
    /// Its number, which no other client has.
    fn client(&self) -> u64;
    /// What there is to tell.
    fn heartbeat(&self) -> ClientHeartbeat;
}

/// A way to servers.
pub trait Transport {
    /// Sends a request and brings back the bytes of its reply. It is sent at once,
    /// not when the reply is waited for.
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, Lost>> + use<'a, Self>;

    /// The same for one that may overtake others which were sent before it, or be
    /// overtaken, also where its reply was lost: a question, which changes nothing.
    fn call_beside(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>> {
        self.call(server, request)
    }

    /// Whom to ask, now and then, what servers must know of the client.
    fn set_heartbeat_source(&self, _holdings: Arc<dyn HeartbeatSource>) {}
}

impl<'b, T: Transport> Transport for &'b T {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, Lost>> + use<'a, 'b, T> {
        (**self).call(server, request)
    }

    fn call_beside(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>> {
        (**self).call_beside(server, request)
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        (**self).set_heartbeat_source(heartbeats);
    }
}
