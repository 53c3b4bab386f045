//! Writes that wait for leases of others: after a refusal they queue for leases of their own.

use crate::{
    Database, Error, Transaction,
    lease::{leases_of, wait_for_leases},
};
use std::{collections::BTreeMap, time::Duration};
use yesquel_client::LeaseHolder;
use yesquel_model::{KeyRange, NodeId, ServerId};
use yesquel_transport::block_on;

/// Time that [`Database::run`] and [`Database::put`] wait for leases of others.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Duration of a write's own leases. A write that takes longer goes on without them.
const TURN_TIME: Duration = Duration::from_secs(1);

/// The leases of one write, released when this is dropped.
struct WriteTurn<'a> {
    database: &'a Database,
    holder: LeaseHolder,
    /// Where it holds them.
    servers: Vec<ServerId>,
}

impl<'a> WriteTurn<'a> {
    /// Waits for leases of the given ranges until an uptime of the client.
    fn wait(
        database: &'a Database,
        ranges: BTreeMap<NodeId, KeyRange>,
        until: Duration,
    ) -> Result<WriteTurn<'a>, Error> {
        let leases = leases_of(database, ranges)?;
        let (client, servers) = (database.trees().client(), leases.keys().copied().collect());
        let turn = WriteTurn { database, holder: client.new_lease_holder(), servers };
        let rest = until.saturating_sub(client.uptime());
        wait_for_leases(database, leases, &turn.holder, TURN_TIME, rest)?;
        Ok(turn)
    }

    /// Notes a commit, which has released the leases at the servers that it was sent to.
    fn committed(&mut self, transaction: &Transaction<'_>) {
        let released = transaction.inner.committed_at();
        self.servers.retain(|server| !released.contains(server));
    }
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        for server in &self.servers {
            // If the server misses this, the leases expire.
            let _ = block_on(self.database.trees().client().release(*server, &self.holder));
        }
    }
}

/// Runs a transaction that `act` commits; again while leases of others refuse it, for five seconds at
/// most. Each time it first queues for leases of what it was about to write, so that it has its turn
/// however many others write there.
pub(crate) fn retry_write<T>(
    database: &Database,
    mut act: impl FnMut(&mut Transaction<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let (mut until, mut turn) = (None, None::<WriteTurn<'_>>);
    loop {
        let mut transaction = database.begin();
        if let Some(turn) = &turn {
            transaction.inner.within_lease(&turn.holder.ending());
        }
        let error = match act(&mut transaction) {
            Err(error @ Error::Leased(_)) => error,
            outcome => {
                if let (Ok(_), Some(turn)) = (&outcome, &mut turn) {
                    turn.committed(&transaction);
                }
                if outcome.is_err() {
                    transaction.rollback();
                }
                return outcome;
            }
        };
        let touched = transaction.inner.touched();
        transaction.rollback();
        // Before it waits for others.
        drop(turn.take());
        let now = database.trees().client().uptime();
        let until = *until.get_or_insert(now.saturating_add(LEASE_TIMEOUT));
        // Without a range to queue for, another transaction of the caller was refused.
        if touched.is_empty() || now >= until {
            return Err(error);
        }
        turn = Some(WriteTurn::wait(database, touched, until)?);
    }
}
