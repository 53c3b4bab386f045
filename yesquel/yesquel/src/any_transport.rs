//! A server in this process, or servers at addresses.

use std::{future::Future, sync::Arc};
use yesquel_embedded::EmbeddedServer;
use yesquel_model::ServerId;
use yesquel_transport::{HeartbeatSource, Lost, Sockets, Transport};

#[derive(Debug)]
pub(crate) enum AnyTransport {
    Embedded(EmbeddedServer),
    Sockets(Sockets),
}

/// A call by the one way or the other.
enum Call<A, B> {
    Embedded(A),
    Sockets(B),
}

impl Transport for AnyTransport {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, Lost>> + use<'a> {
        // What is called now is sent now, whenever it is polled.
        let call = match self {
            AnyTransport::Embedded(embedded) => Call::Embedded(embedded.call(server, request)),
            AnyTransport::Sockets(sockets) => Call::Sockets(sockets.call(server, request)),
        };
        async move {
            match call {
                Call::Embedded(call) => call.await,
                Call::Sockets(call) => call.await,
            }
        }
    }

    fn call_beside(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>> {
        let call = match self {
            AnyTransport::Embedded(embedded) => Call::Embedded(embedded.call_beside(server, request)),
            AnyTransport::Sockets(sockets) => Call::Sockets(sockets.call_beside(server, request)),
        };
        async move {
            match call {
                Call::Embedded(call) => call.await,
                Call::Sockets(call) => call.await,
            }
        }
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        match self {
            AnyTransport::Embedded(embedded) => embedded.set_heartbeat_source(heartbeats),
            AnyTransport::Sockets(sockets) => sockets.set_heartbeat_source(heartbeats),
        }
    }
}
