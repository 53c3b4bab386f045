//! Recovery of prepared transactions: when the other participants are asked for their votes.
//!
//! A participant asks because a request waits for the outcome, because the connection of the
//! transaction's client has ended, or because of the transaction's age: a client that only writes
//! never waits, and must not leave its transactions undecided.

use super::Engine;
use crate::effects::{Effects, Now};
use yesquel_model::TxnId;

impl Engine {
    /// Notes the connection on which a transaction was prepared.
    pub(crate) fn prepared_by(&mut self, txn: TxnId, connection: u64) {
        if let Some(prepared) = self.prepared.get_mut(&txn) {
            prepared.recovery.connection.get_or_insert(connection);
        }
    }

    /// A request waits for a transaction.
    pub(crate) fn hasten_recovery(&mut self, now: Now, txn: TxnId) {
        let due_ms = now.uptime_ms + self.settings.recover_after_ms;
        if let Some(prepared) = self.prepared.get_mut(&txn) {
            prepared.recovery.hasten(due_ms);
        }
    }

    /// A connection has ended: its client cannot decide what it prepared there.
    pub(crate) fn recover_of_connection(&mut self, connection: u64) {
        for prepared in self.prepared.values_mut() {
            if prepared.recovery.connection == Some(connection) {
                prepared.recovery.hasten(0);
            }
        }
    }

    /// Milliseconds since the oldest prepared transaction voted.
    pub(crate) fn oldest_undecided_ms(&self, now: Now) -> u64 {
        let since_ms = self.prepared.values().map(|prepared| prepared.recovery.since_ms).min();
        since_ms.map_or(0, |since_ms| now.uptime_ms.saturating_sub(since_ms))
    }

    /// Makes the attempts that are due.
    pub(crate) fn recover_due(&mut self, now: Now, effects: &mut Effects) {
        let due = self.prepared.iter_mut().filter(|(_, prepared)| prepared.recovery.due_ms <= now.uptime_ms);
        let attempted = due.map(|(txn, prepared)| {
            prepared.recovery.attempted(now.uptime_ms, *txn);
            *txn
        });
        let mut attempted: Vec<TxnId> = attempted.collect();
        attempted.sort_unstable();
        for txn in attempted {
            self.counts.recoveries += 1;
            self.recover(now, txn, effects);
        }
    }
}
