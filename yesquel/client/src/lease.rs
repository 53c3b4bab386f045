//! Leases: ranges in which only the holder writes for a limited time. `docs/yesquel/leases.md`
//! describes the protocol.

use crate::{Client, RequestError};
use std::time::Duration;
use yesquel_model::{KeyRange, ServerId, TreeId, TxnId};
use yesquel_transport::Transport;
use yesquel_wire::{Reply, Request};

/// Identity under which a client leases ranges. A transaction writes inside a leased range only if
/// it names the holder: [`Writes::within_lease`](crate::Writes::within_lease).
///
/// The value carries no state. A lease ends with [`Client::release`] or when it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    pub(crate) id: TxnId,
}

impl<T: Transport> Client<T> {
    /// Returns a new, unique lease holder, without contacting a server.
    pub fn new_lease_holder(&self) -> LeaseHolder {
        // The number is unique, for no transaction uses it.
        LeaseHolder { id: self.in_flight.draw_number() }
    }

    /// Leases a range of a tree at one server, or extends the lease, for `time` from the return of
    /// this call (at most a minute). Until then no other holder changes what this client reads
    /// there at new snapshots.
    ///
    /// To lease several ranges, take them in one global order, to avoid deadlock.
    /// [`Refusal::Leased`](yesquel_model::Refusal::Leased) says that the range overlaps another
    /// lease, and when that one expires at the latest.
    pub async fn lease(
        &self,
        server: ServerId,
        holder: &LeaseHolder,
        (tree, range): (TreeId, KeyRange),
        time: Duration,
    ) -> Result<(), RequestError> {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Lease { holder: holder.id, tree, range, ms, seen: self.seen() };
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
