//! Leases: ranges in which only the holder writes for a limited time. `docs/yesquel/leases.md`
//! describes the protocol.

use crate::{Client, RequestError};
use std::time::Duration;
use yesquel_model::{KeyRange, ServerId, TreeId, TxnId};
use yesquel_transport::{LossCause, Transport};
use yesquel_wire::{ENDS_LEASE, Reply, Request};

/// Ranges of trees at one server.
pub type LeaseRanges = Vec<(TreeId, KeyRange)>;

fn ms_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Identity under which a client leases ranges. A transaction writes inside a leased range only if
/// it names the holder: [`Writes::within_lease`](crate::Writes::within_lease).
///
/// The value carries no state. A lease ends with [`Client::release`] or when it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    pub(crate) id: TxnId,
}

impl LeaseHolder {
    /// Returns the holder for a transaction whose commit also releases the leases at the servers
    /// that it writes to, in the same message.
    #[must_use]
    pub fn ending(&self) -> LeaseHolder {
        LeaseHolder { id: TxnId { number: self.id.number | ENDS_LEASE, ..self.id } }
    }
}

impl<T: Transport> Client<T> {
    /// Returns a new, unique lease holder, without contacting a server.
    pub fn new_lease_holder(&self) -> LeaseHolder {
        // The number is unique, for no transaction uses it.
        LeaseHolder { id: self.in_flight.draw_number() }
    }

    /// Leases ranges of trees at one server, all at once, or extends the lease, for `time` from the
    /// return of this call (at most a minute). Until then no other holder changes what this client
    /// reads there at new snapshots.
    ///
    /// The request waits at the server for `wait` at most, in the order of arrival, while one of the
    /// ranges overlaps another lease. [`Refusal::Leased`](yesquel_model::Refusal::Leased) says that it did
    /// not get its turn, and when the other lease expires at the latest. It keeps its place for a
    /// second: a longer wait consists of several requests.
    ///
    /// To lease at several servers, take the leases in one global order, to avoid deadlock. After a cancelled
    /// wait, [`release`](Self::release) the lease, which may have been granted.
    pub async fn lease(
        &self,
        server: ServerId,
        holder: &LeaseHolder,
        ranges: LeaseRanges,
        time: Duration,
        wait: Duration,
    ) -> Result<(), RequestError> {
        let (ms, wait_ms) = (ms_of(time), ms_of(wait));
        let request = Request::Lease { holder: holder.id, ranges, ms, wait_ms, seen: self.seen() };
        // Repeating the request extends the same lease.
        self.leased(&self.call_idempotent(server, &Client::<T>::bytes_of(&request)).await?)
    }

    /// Takes the reply to a request for a lease.
    fn leased(&self, reply: &[u8]) -> Result<(), RequestError> {
        match Reply::decode(reply)? {
            Reply::Leased(at) => {
                self.note_seen(at);
                Ok(())
            }
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(RequestError::UnexpectedAnswer),
        }
    }

    /// Like [`lease`](Self::lease) at several servers, which are asked in parallel. No request waits
    /// in a queue, so that two clients that ask the same servers do not wait for each other. Returns
    /// the outcomes in the order of the servers: some may have granted it, and others not.
    pub async fn lease_at_all(
        &self,
        holder: &LeaseHolder,
        asked: Vec<(ServerId, LeaseRanges)>,
        time: Duration,
    ) -> Vec<Result<(), RequestError>> {
        let mut sent = Vec::with_capacity(asked.len());
        for (server, ranges) in asked {
            let request =
                Request::Lease { holder: holder.id, ranges, ms: ms_of(time), wait_ms: 0, seen: self.seen() };
            let request = Client::<T>::bytes_of(&request);
            if !sent.is_empty() {
                self.counters.overlapping();
            }
            // Sent now, and awaited below.
            sent.push((server, self.send(server, request.clone()), request));
        }
        let mut outcomes = Vec::with_capacity(sent.len());
        for (server, reply, request) in sent {
            let reply = match reply.await {
                // Repeating the request extends the same lease.
                Err(lost) if lost.cause == LossCause::Disconnected => self.send(server, request).await,
                reply => reply,
            };
            outcomes.push(reply.map_err(RequestError::from).and_then(|reply| self.leased(&reply)));
        }
        outcomes
    }

    /// Releases all leases of the holder at one server.
    pub async fn release(&self, server: ServerId, holder: &LeaseHolder) -> Result<(), RequestError> {
        released_by(&self.call(server, &Request::Release { holder: holder.id }).await?)
    }

    /// Like [`release`](Self::release) at several servers, in parallel. Returns the first error.
    pub async fn release_at_all(
        &self,
        servers: impl IntoIterator<Item = ServerId>,
        holder: &LeaseHolder,
    ) -> Result<(), RequestError> {
        let mut sent = Vec::new();
        for server in servers {
            if !sent.is_empty() {
                self.counters.overlapping();
            }
            sent.push(self.send(server, Client::<T>::bytes_of(&Request::Release { holder: holder.id })));
        }
        let mut released = Ok(());
        for reply in sent {
            let outcome = match reply.await.map(|reply| released_by(&reply)) {
                Ok(outcome) => outcome,
                Err(lost) => Err(lost.into()),
            };
            released = released.and(outcome);
        }
        released
    }

    /// Like [`release`](Self::release), without waiting. If the request is lost, the lease ends with
    /// the connection or expires.
    pub fn release_in_background(&self, server: ServerId, holder: &LeaseHolder) {
        let request = Client::<T>::bytes_of(&Request::Release { holder: holder.id });
        self.counters.sent(request.len());
        self.counters.overlapping();
        self.transport.send(server, &request, Box::new(|_| {}));
    }
}

/// Decodes the reply to a `Release`.
fn released_by(reply: &[u8]) -> Result<(), RequestError> {
    match Reply::decode(reply)? {
        Reply::Done => Ok(()),
        Reply::Refused { refusal, .. } => Err(refusal.into()),
        _ => Err(RequestError::UnexpectedAnswer),
    }
}
