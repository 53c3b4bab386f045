//! Transport to an embedded server or to servers at addresses.

use std::{future::Future, sync::Arc, time::Duration};
use yesquel_embedded::EmbeddedServer;
use yesquel_model::{ServerId, Timestamp};
use yesquel_transport::{HeartbeatSource, LostCall, ReplyHandler, SeeEvent, SocketTransport, Transport};
use yesquel_wire::Correction;

#[derive(Debug, Clone)]
pub(crate) enum AnyTransport {
    Embedded(EmbeddedServer),
    Sockets(SocketTransport),
    /// A server in this process, and the others of its cluster.
    Member(EmbeddedServer, SocketTransport),
}

/// The transport to a group.
enum Way<'a> {
    Embedded(&'a EmbeddedServer),
    Sockets(&'a SocketTransport),
}

impl AnyTransport {
    fn to(&self, group: ServerId) -> Way<'_> {
        match self {
            AnyTransport::Embedded(embedded) => Way::Embedded(embedded),
            AnyTransport::Member(embedded, _) if embedded.server() == group => Way::Embedded(embedded),
            AnyTransport::Sockets(sockets) | AnyTransport::Member(_, sockets) => Way::Sockets(sockets),
        }
    }

    /// The transport that the client belongs to.
    fn own(&self) -> Way<'_> {
        match self {
            AnyTransport::Embedded(embedded) | AnyTransport::Member(embedded, _) => Way::Embedded(embedded),
            AnyTransport::Sockets(sockets) => Way::Sockets(sockets),
        }
    }
}

/// Call by either transport.
enum EitherCall<A, B> {
    Embedded(A),
    Sockets(B),
}

impl Transport for AnyTransport {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        // The request is sent now, not when the future is first polled.
        let call = match self.to(server) {
            Way::Embedded(embedded) => EitherCall::Embedded(embedded.call(server, request)),
            Way::Sockets(sockets) => EitherCall::Sockets(sockets.call(server, request)),
        };
        async move {
            match call {
                EitherCall::Embedded(call) => call.await,
                EitherCall::Sockets(call) => call.await,
            }
        }
    }

    fn call_unordered(
        &self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> {
        let call = match self.to(server) {
            Way::Embedded(embedded) => EitherCall::Embedded(embedded.call_unordered(server, request)),
            Way::Sockets(sockets) => EitherCall::Sockets(sockets.call_unordered(server, request)),
        };
        async move {
            match call {
                EitherCall::Embedded(call) => call.await,
                EitherCall::Sockets(call) => call.await,
            }
        }
    }

    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler) {
        match self.to(server) {
            Way::Embedded(embedded) => embedded.send(server, request, handler),
            Way::Sockets(sockets) => sockets.send(server, request, handler),
        }
    }

    fn can_watch(&self, server: ServerId) -> bool {
        match self.to(server) {
            // Its reads cost no round trip.
            Way::Embedded(_) => false,
            Way::Sockets(sockets) => sockets.can_watch(server),
        }
    }

    async fn ask_watching(&self, server: ServerId, request: &[u8], see: SeeEvent<'_>) -> Option<Vec<u8>> {
        match self.to(server) {
            Way::Embedded(_) => None,
            Way::Sockets(sockets) => sockets.ask_watching(server, request, see).await,
        }
    }

    fn take_notices(&self, server: ServerId, see: SeeEvent<'_>) -> bool {
        match self.to(server) {
            Way::Embedded(_) => false,
            Way::Sockets(sockets) => sockets.take_notices(server, see),
        }
    }

    async fn wait_for_notices(&self, server: ServerId, see: SeeEvent<'_>) {
        if let Way::Sockets(sockets) = self.to(server) {
            sockets.wait_for_notices(server, see).await;
        }
    }

    fn end_watches(&self, server: ServerId, see: SeeEvent<'_>) {
        if let Way::Sockets(sockets) = self.to(server) {
            sockets.end_watches(server, see);
        }
    }

    fn is_connected(&self) -> bool {
        match self.own() {
            Way::Embedded(_) => true,
            Way::Sockets(sockets) => sockets.is_connected(),
        }
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>) -> bool {
        match self.to(group) {
            Way::Embedded(embedded) => embedded.correct(group, correction),
            Way::Sockets(sockets) => sockets.correct(group, correction),
        }
    }

    fn home_group(&self) -> ServerId {
        match self.own() {
            Way::Embedded(embedded) => embedded.home_group(),
            Way::Sockets(sockets) => sockets.home_group(),
        }
    }

    fn uptime(&self) -> Duration {
        match self.own() {
            Way::Embedded(embedded) => embedded.uptime(),
            Way::Sockets(sockets) => sockets.uptime(),
        }
    }

    fn clock(&self) -> Timestamp {
        match self.own() {
            Way::Embedded(embedded) => embedded.clock(),
            Way::Sockets(sockets) => sockets.clock(),
        }
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        // A server reports to the others what its clients hold.
        match self.own() {
            Way::Embedded(embedded) => embedded.set_heartbeat_source(heartbeats),
            Way::Sockets(sockets) => sockets.set_heartbeat_source(heartbeats),
        }
    }
}
