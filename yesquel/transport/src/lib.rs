//! How a request reaches a server: the [`Transport`] trait, and [`SocketTransport`], its
//! implementation for servers at addresses. `yesquel-embedded` has the one for a server in the same
//! process.

mod group_route;
mod object;
mod socket;
mod wait;
mod watch_link;

pub use group_route::{Attempt, GroupRoute, repeat_corrected};
pub use object::{ObjectCall, TransportObject};
pub use socket::{
    Address, AddressError, Addresses, ConnectError, ConnectStep, DEFAULT_PORT, KnownCluster, SocketOptions,
    SocketTransport,
};
pub use wait::{
    CancelCheck, CancelGuard, Patience, block_on, check_cancelled, take_cancelled, was_cancelled,
};
pub use watch_link::{SeeEvent, WatchChannel, WatchLink, WatchRequest};

use std::{
    future::Future,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};
use thiserror::Error;
use yesquel_model::{ServerId, Timestamp};
use yesquel_wire::{ClientHeartbeat, Correction, Notice};

/// No reply will come; it is not known whether the request was done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{place}{}{why}", cause.before(), cause.after())]
pub struct LostCall {
    /// The server, usually its address.
    pub place: String,
    /// The kind of failure.
    pub cause: LossCause,
    /// The failure in words.
    pub why: String,
}

/// Why no reply will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// The connection has ended, as after a restart of the server: a new one can be made.
    Disconnected,
    /// The caller has cancelled the call (see [`CancelCheck`]).
    Cancelled,
    /// No machine that was asked serves the group. The request was examined nowhere.
    Misdirected,
    /// Another reason: the server cannot be reached, or does not answer in time.
    Other,
}

impl LossCause {
    fn before(self) -> &'static str {
        match self {
            LossCause::Cancelled => "interrupted while waiting for ",
            LossCause::Misdirected => "",
            LossCause::Disconnected | LossCause::Other => "the connection to ",
        }
    }

    fn after(self) -> &'static str {
        match self {
            LossCause::Cancelled => "",
            LossCause::Misdirected => " was not found: ",
            LossCause::Disconnected | LossCause::Other => " was lost: ",
        }
    }
}

impl LostCall {
    /// The caller has cancelled the call.
    pub fn cancelled(place: String) -> LostCall {
        LostCall { place, cause: LossCause::Cancelled, why: String::new() }
    }
}

/// The reason given to a child process that uses what its parent has opened.
pub const OPENED_BEFORE_FORK: &str =
    "it was opened before fork(), by another process: open one in this process";

/// A client's state that servers must know.
pub trait HeartbeatSource: Send + Sync {
    /// The client's number, which is unique.
    fn client(&self) -> u64;
    /// The heartbeat to send now.
    fn heartbeat(&self) -> ClientHeartbeat;
    /// Takes note of what has happened to watched nodes while the client was silent.
    fn on_watch_event(&self, _server: ServerId, _event: WatchEvent) {}
}

/// Takes the reply to a request that no caller waits for, or the reason for which none will come. It
/// runs on any thread that uses the transport, and must not use the transport itself.
pub type ReplyHandler = Box<dyn FnOnce(Result<&[u8], LostCall>) + Send>;

/// What a client learns about the nodes that it watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEvent {
    /// One of them changes.
    Changed(Notice),
    /// All watches at the server have ended.
    Lost,
}

/// The start of the process, or the first time that it was of interest.
pub(crate) static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A way to servers.
pub trait Transport {
    /// Sends a request and returns the bytes of its reply. The request is sent at once, not when
    /// the future is polled.
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a, Self>;

    /// Like [`call`](Self::call), for a request that may overtake earlier ones or be overtaken,
    /// also if its reply was lost: a question, which changes nothing.
    fn call_unordered(
        &self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> {
        self.call(server, request)
    }

    /// Sends a request whose reply the caller does not wait for. It returns when the request has
    /// been handed to the operating system, or to a thread that sends at the moment, in order after
    /// those that [`call`](Self::call) has sent before, or when it is lost: it does not connect. If
    /// the process exits, it waits until the server's machine has the request.
    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler);

    /// Whether nodes of a server can be watched.
    fn can_watch(&self, _server: ServerId) -> bool {
        false
    }

    /// Takes the correction of a request to a group. Returns whether the transport knows more of where
    /// the group is than when it sent the request, which can then be repeated at once.
    fn correct(&self, _group: ServerId, _correction: &Correction<'_>, _attempt: Attempt) -> bool {
        false
    }

    /// Waits before a request is repeated.
    fn pause(&self, time: Duration) -> impl Future<Output = ()> {
        async move { wait::sleep(time) }
    }

    /// The group that has the counters of the cluster.
    fn home_group(&self) -> ServerId;

    /// Sends a question on the connection by which the client watches nodes, and waits for its
    /// reply. `None`: the server cannot be watched now, and another way must be taken.
    fn ask_watching(
        &self,
        _server: ServerId,
        _request: &[u8],
        _see: SeeEvent<'_>,
    ) -> impl Future<Output = Option<Vec<u8>>> {
        async { None }
    }

    /// Delivers the notices of all changes that the server has acknowledged to any client before
    /// this call. Sends nothing. Returns false if it would have to wait for the reply to another
    /// caller of [`ask_watching`](Self::ask_watching).
    fn take_notices(&self, _server: ServerId, _see: SeeEvent<'_>) -> bool {
        false
    }

    /// Like [`take_notices`](Self::take_notices), after that reply.
    fn wait_for_notices(&self, _server: ServerId, _see: SeeEvent<'_>) -> impl Future<Output = ()> {
        async {}
    }

    /// Ends all watches at a server.
    fn end_watches(&self, _server: ServerId, _see: SeeEvent<'_>) {}

    /// Whether no connection is known to have ended. Sends nothing.
    fn is_connected(&self) -> bool {
        true
    }

    /// The time of a monotonic clock.
    fn uptime(&self) -> Duration {
        START.elapsed()
    }

    /// The latest clock of the servers when they were connected to.
    fn clock(&self) -> Timestamp {
        Timestamp::ZERO
    }

    /// Sets the source of the heartbeats that servers receive now and then.
    fn set_heartbeat_source(&self, _heartbeats: Arc<dyn HeartbeatSource>) {}
}

impl<'b, T: Transport> Transport for &'b T {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a, 'b, T> {
        (**self).call(server, request)
    }

    fn call_unordered(
        &self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> {
        (**self).call_unordered(server, request)
    }

    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler) {
        (**self).send(server, request, handler);
    }

    fn can_watch(&self, server: ServerId) -> bool {
        (**self).can_watch(server)
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool {
        (**self).correct(group, correction, attempt)
    }

    fn pause(&self, time: Duration) -> impl Future<Output = ()> {
        (**self).pause(time)
    }

    fn home_group(&self) -> ServerId {
        (**self).home_group()
    }

    fn ask_watching(
        &self,
        server: ServerId,
        request: &[u8],
        see: SeeEvent<'_>,
    ) -> impl Future<Output = Option<Vec<u8>>> {
        (**self).ask_watching(server, request, see)
    }

    fn take_notices(&self, server: ServerId, see: SeeEvent<'_>) -> bool {
        (**self).take_notices(server, see)
    }

    fn wait_for_notices(&self, server: ServerId, see: SeeEvent<'_>) -> impl Future<Output = ()> {
        (**self).wait_for_notices(server, see)
    }

    fn end_watches(&self, server: ServerId, see: SeeEvent<'_>) {
        (**self).end_watches(server, see);
    }

    fn is_connected(&self) -> bool {
        (**self).is_connected()
    }

    fn uptime(&self) -> Duration {
        (**self).uptime()
    }

    fn clock(&self) -> Timestamp {
        (**self).clock()
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        (**self).set_heartbeat_source(heartbeats);
    }
}
