//! The transports of client processes, and of servers for their own work.

use crate::cluster::{Origin, SharedCluster, wait_until};
use std::{
    future::{Future, poll_fn, ready},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use yesquel_model::{ClusterId, ClusterMembership, ServerId, Timestamp};
use yesquel_simulation::{SimulatedCall, SimulatedTransport};
use yesquel_transport::{Attempt, HeartbeatSource, LossCause, LostCall, ReplyHandler, Transport};
use yesquel_wire::Correction;

/// The group that has the catalog and counters: the founder's.
const HOME_GROUP: ServerId = ServerId(0);

/// The transport of a machine.
#[derive(Clone)]
pub(crate) struct VirtualNetwork {
    cluster: SharedCluster,
    origin: Origin,
}

fn no_server(group: ServerId) -> LostCall {
    let (place, why) = (format!("server {}", group.0), "there is no such server".to_owned());
    LostCall { place, cause: LossCause::Misdirected, why }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl VirtualNetwork {
    pub(crate) fn new(cluster: &SharedCluster, origin: Origin) -> VirtualNetwork {
        VirtualNetwork { cluster: Rc::clone(cluster), origin }
    }

    fn begin(
        &self,
        group: ServerId,
        request: &[u8],
        handler: Option<ReplyHandler>,
    ) -> Result<u64, Option<ReplyHandler>> {
        let (mut cluster, server) = (self.cluster.borrow_mut(), usize::from(group.0));
        if server >= cluster.server_count() {
            return Err(handler);
        }
        Ok(cluster.call(self.origin, server, request.to_vec(), handler))
    }
}

impl Transport for VirtualNetwork {
    fn call<'a>(
        &'a self,
        group: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        let begun = self.begin(group, request, None);
        async move {
            let call = begun.map_err(|_| no_server(group))?;
            Ok(poll_fn(|context| self.cluster.borrow_mut().take_reply(call, context.waker())).await)
        }
    }

    fn send(&self, group: ServerId, request: &[u8], handler: ReplyHandler) {
        if let Err(Some(handler)) = self.begin(group, request, Some(handler)) {
            handler(Err(no_server(group)));
        }
    }

    async fn pause(&self, time: Duration) {
        let until_ns = self.cluster.borrow().now_ns() + nanoseconds(time);
        wait_until(&self.cluster, until_ns).await;
    }

    fn home_group(&self) -> ServerId {
        HOME_GROUP
    }

    fn uptime(&self) -> Duration {
        Duration::from_nanos(self.cluster.borrow().now_ns())
    }

    fn clock(&self) -> Timestamp {
        Timestamp::from_ms(self.cluster.borrow().clocks().wall_ms)
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        self.cluster.borrow_mut().set_heartbeat_source(self.origin, Arc::downgrade(&heartbeats));
    }
}

impl SimulatedTransport for VirtualNetwork {
    fn call(self: Rc<Self>, group: ServerId, request: Vec<u8>) -> SimulatedCall<Result<Vec<u8>, LostCall>> {
        Box::pin(async move { Transport::call(&*self, group, &request).await })
    }

    fn send(&self, group: ServerId, request: &[u8], handler: ReplyHandler) {
        Transport::send(self, group, request, handler);
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool {
        Transport::correct(self, group, correction, attempt)
    }

    fn pause(self: Rc<Self>, time: Duration) -> SimulatedCall<()> {
        Box::pin(async move { Transport::pause(&*self, time).await })
    }

    fn compute(self: Rc<Self>, time: Duration) -> SimulatedCall<()> {
        let Origin::Client(process) = self.origin else { return Box::pin(ready(())) };
        let done_ns = self.cluster.borrow_mut().compute(process, nanoseconds(time));
        Box::pin(async move { wait_until(&self.cluster, done_ns).await })
    }

    fn membership(&self) -> ClusterMembership {
        ClusterMembership { cluster: ClusterId::from_random([1; 16]), home_group: HOME_GROUP }
    }

    fn uptime(&self) -> Duration {
        Transport::uptime(self)
    }

    fn clock(&self) -> Timestamp {
        Transport::clock(self)
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        Transport::set_heartbeat_source(self, heartbeats);
    }
}
