//! Recovery of prepared transactions: when the other participants are asked for their votes.
//!
//! A participant asks because a request waits for the outcome, because the connection of the
//! transaction's client has ended, or because of the transaction's age: a client that only writes
//! never waits, and must not leave its transactions undecided.

use super::Engine;
use crate::{
    effects::{Effects, Now},
    recovery_timer::RecoveryCause,
    transaction::PreparedTxn,
};
use yesquel_model::{ServerId, TxnId};
use yesquel_wire::{
    Decision,
    status::{Bucket, UndecidedTransaction},
};

/// Bounds of the ages by which undecided transactions are counted, in milliseconds: of the waiter,
/// of the recovery by age, and beyond.
const AGES_MS: [u64; 5] = [500, 2_000, 10_000, 60_000, u64::MAX];

/// Undecided transactions that the status lists.
const LISTED_MAX: usize = 256;

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
            prepared.recovery.hasten(due_ms, RecoveryCause::Waiter);
        }
    }

    /// A server can be reached: what waits for its vote need not wait for the end of a pause.
    pub(crate) fn recover_with(&mut self, server: ServerId) {
        for prepared in self.prepared.values_mut() {
            let is_unknown = |of: &&ServerId| !prepared.yes.iter().any(|(yes, _)| yes == *of);
            // In group order only the first one is asked.
            let most = if prepared.waits { 1 } else { usize::MAX };
            let own = self.settings.server;
            let mut asked =
                prepared.participants.iter().filter(|of| **of != own).filter(is_unknown).take(most);
            if asked.any(|of| *of == server) {
                prepared.recovery.is_reachable();
            }
        }
    }

    /// A connection has ended: its client cannot decide what it prepared there.
    pub(crate) fn recover_of_connection(&mut self, connection: u64) {
        for prepared in self.prepared.values_mut() {
            if prepared.recovery.connection == Some(connection) {
                prepared.recovery.hasten(0, RecoveryCause::Connection);
            }
        }
    }

    /// Milliseconds since the oldest prepared transaction voted.
    pub(crate) fn oldest_undecided_ms(&self, now: Now) -> u64 {
        let since_ms = self.prepared.values().map(|prepared| prepared.recovery.since_ms).min();
        since_ms.map_or(0, |since_ms| now.uptime_ms.saturating_sub(since_ms))
    }

    /// Numbers of prepared transactions by milliseconds since their votes.
    pub(crate) fn undecided_by_age(&self, now: Now) -> Vec<Bucket> {
        let mut buckets = AGES_MS.map(|up_to| Bucket { up_to, count: 0 });
        for prepared in self.prepared.values() {
            let age_ms = now.uptime_ms.saturating_sub(prepared.recovery.since_ms);
            let bucket = buckets.iter_mut().find(|bucket| age_ms <= bucket.up_to);
            bucket.into_iter().for_each(|bucket| bucket.count += 1);
        }
        buckets.into()
    }

    /// The oldest undecided transactions, oldest first.
    pub(crate) fn oldest_undecided(&self, now: Now) -> Vec<UndecidedTransaction> {
        let mut all: Vec<(&TxnId, &PreparedTxn)> = self.prepared.iter().collect();
        let age = |(txn, prepared): &(&TxnId, &PreparedTxn)| (prepared.recovery.since_ms, **txn);
        if all.len() > LISTED_MAX {
            all.select_nth_unstable_by_key(LISTED_MAX, age);
            all.truncate(LISTED_MAX);
        }
        all.sort_unstable_by_key(age);
        let own = self.settings.server;
        let listed = all.into_iter().map(|(txn, prepared)| {
            let is_unknown =
                |group: &ServerId| *group != own && !prepared.yes.iter().any(|(known, _)| known == group);
            let participants = prepared.participants.iter();
            UndecidedTransaction {
                client: txn.client,
                number: txn.number,
                birth: prepared.birth.0,
                age_ms: now.uptime_ms.saturating_sub(prepared.recovery.since_ms),
                participants: participants.clone().map(|group| group.0).collect(),
                unknown: participants.copied().filter(is_unknown).map(|group| group.0).collect(),
                recovers: prepared.recovery.started().is_some(),
                waiting: self.waiting.get(txn).map_or(0, |waiting| waiting.len() as u64),
            }
        });
        listed.collect()
    }

    /// Counts the end of a recovery, before the decision is applied: `None` if it is the client's.
    pub(crate) fn count_recovery_end(&mut self, txn: TxnId, decision: Option<Decision>) {
        if let Some(cause) = self.prepared.get(&txn).and_then(|prepared| prepared.recovery.started()) {
            self.commit_counts.recovery_ended(cause, decision);
        }
    }

    /// Makes the attempts that are due.
    pub(crate) fn recover_due(&mut self, now: Now, effects: &mut Effects) {
        let due = self.prepared.iter_mut().filter(|(_, prepared)| prepared.recovery.due_ms <= now.uptime_ms);
        let counts = &mut self.commit_counts;
        let attempted = due.map(|(txn, prepared)| {
            let started = prepared.recovery.attempted(now.uptime_ms, *txn);
            started.into_iter().for_each(|cause| counts.recovery_started(cause));
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
