//! Transport to an embedded server or to servers at addresses.

use std::{future::Future, sync::Arc, time::Duration};
use yesquel_embedded::EmbeddedServer;
use yesquel_model::{ServerId, Timestamp};
use yesquel_transport::{HeartbeatSource, LostCall, ReplyHandler, SocketTransport, Transport, WatchEvent};
use yesquel_wire::Correction;

#[derive(Debug)]
pub(crate) enum AnyTransport {
    Embedded(EmbeddedServer),
    Sockets(SocketTransport),
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
        let call = match self {
            AnyTransport::Embedded(embedded) => EitherCall::Embedded(embedded.call(server, request)),
            AnyTransport::Sockets(sockets) => EitherCall::Sockets(sockets.call(server, request)),
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
        let call = match self {
            AnyTransport::Embedded(embedded) => {
                EitherCall::Embedded(embedded.call_unordered(server, request))
            }
            AnyTransport::Sockets(sockets) => EitherCall::Sockets(sockets.call_unordered(server, request)),
        };
        async move {
            match call {
                EitherCall::Embedded(call) => call.await,
                EitherCall::Sockets(call) => call.await,
            }
        }
    }

    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler) {
        match self {
            AnyTransport::Embedded(embedded) => embedded.send(server, request, handler),
            AnyTransport::Sockets(sockets) => sockets.send(server, request, handler),
        }
    }

    fn can_watch(&self, server: ServerId) -> bool {
        match self {
            // Its reads cost no round trip.
            AnyTransport::Embedded(_) => false,
            AnyTransport::Sockets(sockets) => sockets.can_watch(server),
        }
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>) -> bool {
        match self {
            AnyTransport::Embedded(embedded) => embedded.correct(group, correction),
            AnyTransport::Sockets(sockets) => sockets.correct(group, correction),
        }
    }

    fn home_group(&self) -> ServerId {
        match self {
            AnyTransport::Embedded(embedded) => embedded.home_group(),
            AnyTransport::Sockets(sockets) => sockets.home_group(),
        }
    }

    fn ask_watching(
        &self,
        server: ServerId,
        request: &[u8],
        see: &mut dyn FnMut(WatchEvent),
    ) -> Option<Vec<u8>> {
        match self {
            AnyTransport::Embedded(_) => None,
            AnyTransport::Sockets(sockets) => sockets.ask_watching(server, request, see),
        }
    }

    fn take_notices(&self, server: ServerId, waits: bool, see: &mut dyn FnMut(WatchEvent)) -> bool {
        match self {
            AnyTransport::Embedded(_) => false,
            AnyTransport::Sockets(sockets) => sockets.take_notices(server, waits, see),
        }
    }

    fn end_watches(&self, server: ServerId, see: &mut dyn FnMut(WatchEvent)) {
        if let AnyTransport::Sockets(sockets) = self {
            sockets.end_watches(server, see);
        }
    }

    fn is_connected(&self) -> bool {
        match self {
            AnyTransport::Embedded(_) => true,
            AnyTransport::Sockets(sockets) => sockets.is_connected(),
        }
    }

    fn uptime(&self) -> Duration {
        match self {
            AnyTransport::Embedded(embedded) => embedded.uptime(),
            AnyTransport::Sockets(sockets) => sockets.uptime(),
        }
    }

    fn clock(&self) -> Timestamp {
        match self {
            AnyTransport::Embedded(embedded) => embedded.clock(),
            AnyTransport::Sockets(sockets) => sockets.clock(),
        }
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        match self {
            AnyTransport::Embedded(embedded) => embedded.set_heartbeat_source(heartbeats),
            AnyTransport::Sockets(sockets) => sockets.set_heartbeat_source(heartbeats),
        }
    }
}
