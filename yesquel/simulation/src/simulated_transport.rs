//! The transport of a simulation as an object, for threads that take turns with it.

use std::{future::Future, pin::Pin, rc::Rc, sync::Arc, time::Duration};
use yesquel_model::{ClusterMembership, ServerId, Timestamp};
use yesquel_transport::{Attempt, HeartbeatSource, LostCall, ReplyHandler};
use yesquel_wire::Correction;

/// Something that ends at a simulated time.
pub type SimulatedCall<T> = Pin<Box<dyn Future<Output = T>>>;

/// A transport on the simulation's thread.
///
/// The methods have the meaning of those of [`Transport`](yesquel_transport::Transport), which cannot
/// be an object. Its futures own the transport, because threads wait for several at the same time.
pub trait SimulatedTransport {
    /// Sends a request, and returns the bytes of its reply later.
    fn call(self: Rc<Self>, group: ServerId, request: Vec<u8>) -> SimulatedCall<Result<Vec<u8>, LostCall>>;

    /// Sends a request whose reply the caller does not wait for.
    fn send(&self, group: ServerId, request: &[u8], handler: ReplyHandler);

    /// Takes the correction of a request to a group. Returns whether the transport knows more of where
    /// the group is than when it sent the request.
    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool;

    /// Waits for a simulated time.
    fn pause(self: Rc<Self>, time: Duration) -> SimulatedCall<()>;

    /// Uses a processor of the client's machine for a time, as soon as one is free.
    ///
    /// Default: returns at once, for computation takes no simulated time.
    fn compute(self: Rc<Self>, _time: Duration) -> SimulatedCall<()> {
        Box::pin(std::future::ready(()))
    }

    /// The cluster, and the group that has its catalog and counters.
    fn membership(&self) -> ClusterMembership;

    /// The simulated time since the start of the run.
    fn uptime(&self) -> Duration;

    /// The latest clock of the servers.
    fn clock(&self) -> Timestamp;

    /// Sets the source of the heartbeats that servers receive now and then.
    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>);
}
