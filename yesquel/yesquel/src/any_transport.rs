//! Transport to an embedded server, to servers at addresses, or the program's own.

use std::{future::Future, sync::Arc, time::Duration};
use yesquel_embedded::EmbeddedServer;
use yesquel_model::{ServerId, Timestamp};
use yesquel_transport::{
    Address, Attempt, HeartbeatSource, LostCall, ObjectCall, ReplyHandler, SeeEvent, SocketTransport,
    Transport, TransportObject,
};
use yesquel_wire::Correction;

#[derive(Debug, Clone)]
pub(crate) enum AnyTransport {
    Embedded(EmbeddedServer),
    Sockets(SocketTransport),
    Machine(MachineTransport),
    Object(Arc<dyn TransportObject>),
}

/// Transport to the groups of this process and to those of other machines.
#[derive(Debug, Clone)]
pub(crate) struct MachineTransport {
    first: EmbeddedServer,
    others: Arc<[EmbeddedServer]>,
    /// `None`: there are no other machines.
    sockets: Option<SocketTransport>,
}

impl MachineTransport {
    fn groups(&self) -> impl Iterator<Item = &EmbeddedServer> {
        std::iter::once(&self.first).chain(&*self.others)
    }
}

/// The transport to a group.
enum Way<'a> {
    Embedded(&'a EmbeddedServer),
    Sockets(&'a SocketTransport),
    Object(&'a dyn TransportObject),
}

impl AnyTransport {
    /// Creates a transport to groups of this process, and to those of other machines.
    pub(crate) fn of_machine(
        first: &EmbeddedServer,
        others: &[EmbeddedServer],
        sockets: Option<SocketTransport>,
    ) -> AnyTransport {
        let first = first.clone();
        match (others, &sockets) {
            ([], None) => AnyTransport::Embedded(first),
            _ => AnyTransport::Machine(MachineTransport { first, others: others.into(), sockets }),
        }
    }

    /// Takes the address of a group of another machine.
    pub(crate) fn learn(&self, group: ServerId, address: &Address) {
        if let AnyTransport::Machine(MachineTransport { sockets: Some(sockets), .. }) = self {
            sockets.add_group(group, address);
        }
    }

    /// Whether it knows a machine beside that of a group, at which copies of names may be.
    pub(crate) fn has_others(&self, group: ServerId) -> bool {
        match self {
            AnyTransport::Embedded(_) | AnyTransport::Object(_) => false,
            AnyTransport::Sockets(sockets) => sockets.has_others(group),
            AnyTransport::Machine(machine) => machine.groups().all(|own| own.server() != group),
        }
    }

    /// Returns the groups that it knows, without those at the machine of a group. The ones that are likely
    /// to answer come first.
    pub(crate) fn others(&self, group: ServerId) -> Vec<ServerId> {
        match self {
            AnyTransport::Embedded(_) | AnyTransport::Object(_) => Vec::new(),
            AnyTransport::Sockets(sockets) => sockets.others(group),
            AnyTransport::Machine(machine) => machine.groups().map(EmbeddedServer::server).collect(),
        }
    }

    fn to(&self, group: ServerId) -> Way<'_> {
        match self {
            AnyTransport::Embedded(embedded) => Way::Embedded(embedded),
            AnyTransport::Sockets(sockets) => Way::Sockets(sockets),
            AnyTransport::Machine(machine) => {
                let own = machine.groups().find(|own| own.server() == group);
                match (own, &machine.sockets) {
                    (Some(own), _) => Way::Embedded(own),
                    (None, Some(sockets)) => Way::Sockets(sockets),
                    // The first group answers `WrongGroup`.
                    (None, None) => Way::Embedded(&machine.first),
                }
            }
            AnyTransport::Object(object) => Way::Object(&**object),
        }
    }

    /// The transport that the client belongs to.
    fn own(&self) -> Way<'_> {
        match self {
            AnyTransport::Embedded(embedded) => Way::Embedded(embedded),
            AnyTransport::Machine(machine) => Way::Embedded(&machine.first),
            AnyTransport::Sockets(sockets) => Way::Sockets(sockets),
            AnyTransport::Object(object) => Way::Object(&**object),
        }
    }
}

/// Call by any of the transports.
enum AnyCall<'a, A, B> {
    Embedded(A),
    Sockets(B),
    Object(ObjectCall<'a>),
}

impl Transport for AnyTransport {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        // The request is sent now, not when the future is first polled.
        let call = match self.to(server) {
            Way::Embedded(embedded) => AnyCall::Embedded(embedded.call(server, request)),
            Way::Sockets(sockets) => AnyCall::Sockets(sockets.call(server, request)),
            Way::Object(object) => AnyCall::Object(object.call(server, request)),
        };
        async move {
            match call {
                AnyCall::Embedded(call) => call.await,
                AnyCall::Sockets(call) => call.await,
                AnyCall::Object(call) => call.await,
            }
        }
    }

    fn call_unordered(
        &self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> {
        let call = match self.to(server) {
            Way::Embedded(embedded) => AnyCall::Embedded(embedded.call_unordered(server, request)),
            Way::Sockets(sockets) => AnyCall::Sockets(sockets.call_unordered(server, request)),
            Way::Object(object) => AnyCall::Object(object.call(server, request)),
        };
        async move {
            match call {
                AnyCall::Embedded(call) => call.await,
                AnyCall::Sockets(call) => call.await,
                AnyCall::Object(call) => call.await,
            }
        }
    }

    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler) {
        match self.to(server) {
            Way::Embedded(embedded) => embedded.send(server, request, handler),
            Way::Sockets(sockets) => sockets.send(server, request, handler),
            Way::Object(object) => object.send(server, request, handler),
        }
    }

    fn can_watch(&self, server: ServerId) -> bool {
        match self.to(server) {
            // Its reads cost no round trip.
            Way::Embedded(_) => false,
            Way::Object(_) => false,
            Way::Sockets(sockets) => sockets.can_watch(server),
        }
    }

    async fn ask_watching(&self, server: ServerId, request: &[u8], see: SeeEvent<'_>) -> Option<Vec<u8>> {
        match self.to(server) {
            Way::Embedded(_) | Way::Object(_) => None,
            Way::Sockets(sockets) => sockets.ask_watching(server, request, see).await,
        }
    }

    fn take_notices(&self, server: ServerId, see: SeeEvent<'_>) -> bool {
        match self.to(server) {
            Way::Embedded(_) | Way::Object(_) => false,
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
            Way::Embedded(_) | Way::Object(_) => true,
            Way::Sockets(sockets) => sockets.is_connected(),
        }
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool {
        match self.to(group) {
            Way::Embedded(embedded) => embedded.correct(group, correction, attempt),
            Way::Sockets(sockets) => sockets.correct(group, correction, attempt),
            Way::Object(object) => object.correct(group, correction, attempt),
        }
    }

    async fn pause(&self, time: Duration) {
        match self.own() {
            Way::Embedded(embedded) => embedded.pause(time).await,
            Way::Sockets(sockets) => sockets.pause(time).await,
            Way::Object(object) => object.pause(time).await,
        }
    }

    fn home_group(&self) -> ServerId {
        match self.own() {
            Way::Embedded(embedded) => embedded.home_group(),
            Way::Sockets(sockets) => sockets.home_group(),
            Way::Object(object) => object.membership().home_group,
        }
    }

    fn uptime(&self) -> Duration {
        match self.own() {
            Way::Embedded(embedded) => embedded.uptime(),
            Way::Sockets(sockets) => sockets.uptime(),
            Way::Object(object) => object.uptime(),
        }
    }

    fn clock(&self) -> Timestamp {
        if let AnyTransport::Machine(machine) = self {
            return machine.groups().map(Transport::clock).max().unwrap_or_default();
        }
        match self.own() {
            Way::Embedded(embedded) => embedded.clock(),
            Way::Sockets(sockets) => sockets.clock(),
            Way::Object(object) => object.clock(),
        }
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        // Each group keeps what the clients of its machine hold, and reports it to other machines.
        if let AnyTransport::Machine(machine) = self {
            return machine.groups().for_each(|group| group.set_heartbeat_source(Arc::clone(&heartbeats)));
        }
        match self.own() {
            Way::Embedded(embedded) => embedded.set_heartbeat_source(heartbeats),
            Way::Sockets(sockets) => sockets.set_heartbeat_source(heartbeats),
            Way::Object(object) => object.set_heartbeat_source(heartbeats),
        }
    }
}
