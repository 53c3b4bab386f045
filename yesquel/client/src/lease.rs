//! Leases: ranges in which for a while nobody else writes.
//! `docs/yesquel/leases.md` has their laws.

use crate::{Client, Error};
use std::time::Duration;
use yesquel_model::{KeyRange, ServerId, TreeId, TxnId};
use yesquel_transport::Transport;
use yesquel_wire::{Reply, Request};

/// The name under which ranges are leased. Transactions that say it
/// ([`Writes::under`](crate::Writes::under)) write in them, and no others do.
///
/// It is no more than a name: what was leased is let go by
/// [`Client::release`], or when its time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub(crate) holder: TxnId,
}

impl<T: Transport> Client<T> {
    /// A name for leases that no other one has. Nothing is asked of a server.
    pub fn new_lease(&self) -> Lease {
        // No transaction has its number.
        Lease { holder: self.ledger.attempt().txn }
    }

    /// Leases a range of a tree at a server, or leases it for longer: from when
    /// this returns on, for the time given and a minute at most. What this
    /// client reads at new snapshots is then as nobody else will change it.
    ///
    /// Whoever would take several must take them in the same order as others
    /// do. [`Refusal::Leased`](yesquel_model::Refusal::Leased) says that
    /// another one holds some of it, and for how long at most.
    pub async fn lease(
        &self,
        server: ServerId,
        lease: &Lease,
        (tree, range): (TreeId, KeyRange),
        time: Duration,
    ) -> Result<(), Error> {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Lease { holder: lease.holder, tree, range, ms, seen: self.seen() };
        // For the same holder it is the same lease.
        match Reply::decode(&self.ask(server, &Client::<T>::bytes_of(&request)).await?)? {
            Reply::Leased(at) => {
                self.saw(at);
                Ok(())
            }
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(Error::Unfit),
        }
    }

    /// Lets all go at a server that was leased under a name.
    pub async fn release(&self, server: ServerId, lease: &Lease) -> Result<(), Error> {
        match Reply::decode(&self.call(server, &Request::Release { holder: lease.holder }).await?)? {
            Reply::Done => Ok(()),
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(Error::Unfit),
        }
    }
}
