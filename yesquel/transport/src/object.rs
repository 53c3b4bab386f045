//! A transport as an object, for programs with one of their own.

use crate::{Attempt, HeartbeatSource, LostCall, ReplyHandler};
use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};
use yesquel_model::{ClusterMembership, ServerId, Timestamp};
use yesquel_wire::Correction;

/// Reply to a call, or the reason for which none will come.
pub type ObjectCall<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, LostCall>> + Send + 'a>>;

/// A program's own transport to the groups of a cluster, such as the network of a simulation.
///
/// The methods have the meaning of those of [`Transport`](crate::Transport), which cannot be an object.
/// Nodes are not watched over it.
pub trait TransportObject: fmt::Debug + Send + Sync {
    /// Sends a request now, and returns the bytes of its reply later.
    fn call<'a>(&'a self, group: ServerId, request: &[u8]) -> ObjectCall<'a>;

    /// Sends a request whose reply the caller does not wait for.
    fn send(&self, group: ServerId, request: &[u8], handler: ReplyHandler);

    /// Takes the correction of a request to a group. Returns whether the transport has learned where
    /// the group is.
    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool;

    /// Waits before a request is repeated.
    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// The cluster, and the group that has its catalog and counters.
    fn membership(&self) -> ClusterMembership;

    /// The time of a monotonic clock.
    fn uptime(&self) -> Duration;

    /// The latest clock of the servers when they were connected to.
    fn clock(&self) -> Timestamp;

    /// Sets the source of the heartbeats that servers receive now and then.
    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>);
}
