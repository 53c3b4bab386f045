//! A server in this process, or servers at addresses.

use std::{future::Future, sync::Arc};
use yesquel_embedded::Embedded;
use yesquel_model::ServerId;
use yesquel_transport::{Holdings, Lost, Sockets, Transport};

#[derive(Debug)]
pub(crate) enum Any {
    Embedded(Embedded),
    Sockets(Sockets),
}

/// A call by the one way or the other.
enum Call<A, B> {
    Embedded(A),
    Sockets(B),
}

impl Transport for Any {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, Lost>> + use<'a> {
        // What is called now is sent now, whenever it is polled.
        let call = match self {
            Any::Embedded(embedded) => Call::Embedded(embedded.call(server, request)),
            Any::Sockets(sockets) => Call::Sockets(sockets.call(server, request)),
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
            Any::Embedded(embedded) => Call::Embedded(embedded.call_beside(server, request)),
            Any::Sockets(sockets) => Call::Sockets(sockets.call_beside(server, request)),
        };
        async move {
            match call {
                Call::Embedded(call) => call.await,
                Call::Sockets(call) => call.await,
            }
        }
    }

    fn attend(&self, holdings: Arc<dyn Holdings>) {
        match self {
            Any::Embedded(embedded) => embedded.attend(holdings),
            Any::Sockets(sockets) => sockets.attend(holdings),
        }
    }
}
