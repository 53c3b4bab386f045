//! Leases: ranges in which only the holder writes for a limited time. `docs/yesquel/leases.md`
//! describes the protocol.

use crate::{Client, RequestError};
use std::time::Duration;
use yesquel_model::{KeyRange, ServerId, TreeId, TxnId};
use yesquel_transport::Transport;
use yesquel_wire::{ENDS_LEASE, Reply, Request};

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
        ranges: Vec<(TreeId, KeyRange)>,
        time: Duration,
        wait: Duration,
    ) -> Result<(), RequestError> {
        let ms_of = |time: Duration| u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let (ms, wait_ms) = (ms_of(time), ms_of(wait));
        let request = Request::Lease { holder: holder.id, ranges, ms, wait_ms, seen: self.seen() };
        // Repeating the request extends the same lease.
        match Reply::decode(&self.call_idempotent(server, &Client::<T>::bytes_of(&request)).await?)? {
            Reply::Leased(at) => {
                self.note_seen(at);
                Ok(())
            }
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(RequestError::UnexpectedAnswer),
        }
    }

    /// Releases all leases of the holder at one server.
    pub async fn release(&self, server: ServerId, holder: &LeaseHolder) -> Result<(), RequestError> {
        match Reply::decode(&self.call(server, &Request::Release { holder: holder.id }).await?)? {
            Reply::Done => Ok(()),
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(RequestError::UnexpectedAnswer),
        }
    }
}
