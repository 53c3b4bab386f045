//! Checkpoints and replay: the state as records, and records as state.

use super::{
    Engine,
    commit::{PreparedVote, owned},
};
use crate::{
    checkpoint::Checkpoint, outcomes::TransactionEnd, record::LogRecord, snapshots::Snapshots,
    staging::OperationScript, transaction::PendingWrite,
};
use yesquel_model::{HybridClock, Timestamp};
use yesquel_wire::{Decision, NodeOperation, Operations, Participants};

impl Engine {
    /// Returns the present state, to be written while the engine goes on. Visits each node.
    pub fn checkpoint(&self) -> Checkpoint {
        let (mut rest, mut rest_ends) = (Vec::new(), Vec::new());
        let mut push = |record: LogRecord<'_>| {
            record.write(&mut rest);
            rest_ends.push(rest.len());
        };
        push(LogRecord::Ceiling(self.ceiling.max(self.clock.last())));
        for (node, next) in &self.counters {
            push(LogRecord::Counter { node: *node, next: *next });
        }
        // First, for they drop what they cover: the ends that are left are kept all the same.
        push(LogRecord::Horizon(self.outcomes.horizon()));
        for (client, report) in self.outcomes.all_settled() {
            push(LogRecord::Settled { client, report: report.clone() });
        }
        for (txn, birth, at) in self.outcomes.commits() {
            push(LogRecord::Commit { txn, birth, at, staged: None, operations: Operations::NONE });
        }
        for (txn, birth) in self.outcomes.all_given_up() {
            push(LogRecord::GiveUp { txn, birth });
        }
        for (txn, TransactionEnd { decision, birth, participants }) in self.outcomes.ended() {
            let participants = Participants::encode(participants);
            if let Ok(participants) = Participants::decode(&participants) {
                push(LogRecord::Decide { txn, birth: *birth, participants, decision: *decision });
            }
        }
        for (txn, prepared) in &self.prepared {
            let operations: Vec<NodeOperation<'_>> =
                prepared.pending.iter().filter_map(PendingWrite::pending).collect();
            let (operations, participants) =
                (Operations::encode(&operations), Participants::encode(&prepared.participants));
            let decoded = (Operations::decode(&operations), Participants::decode(&participants));
            // They were encoded just now.
            if let (Ok(operations), Ok(participants)) = decoded {
                push(LogRecord::Prepare {
                    txn: *txn,
                    birth: prepared.birth,
                    waits: prepared.waits,
                    at: prepared.at,
                    participants,
                    staged: None,
                    operations,
                });
            }
        }
        for (name, part, operations) in self.staging.iter() {
            push(LogRecord::Stage { name, part, operations });
        }
        // A prepared transaction may yet commit at its vote, and must then be newer than the
        // checkpoint's cells.
        let first_vote = self.prepared.values().map(|prepared| prepared.at).min();
        let at = first_vote.map_or(self.clock.last(), |vote| Timestamp(vote.0.saturating_sub(1)));
        let (nodes, checkpoint_copies) = self.store.share();
        Checkpoint { lsn: self.lsn, at, nodes, checkpoint_copies, rest, rest_ends }
    }

    /// Finishes loading a checkpoint that covers the log up to this record.
    pub fn restored(&mut self, lsn: u64) {
        self.lsn = lsn;
        self.store.collect_orphans();
        self.store.on_disk();
    }

    /// Applies a log record, in log order.
    pub fn replay(&mut self, record: &LogRecord<'_>) {
        self.lsn += 1;
        let mut highest = Timestamp::ZERO;
        match record {
            LogRecord::Commit { txn, birth, at, staged, operations } => {
                // Records before this one have staged the parts.
                let parts = self.staging.take(txn.client, *staged).unwrap_or_default();
                self.apply_commit(*txn, (*birth, *at), OperationScript::new(parts.as_ref(), *operations));
                highest = *at;
            }
            LogRecord::Prepare { txn, birth, waits, at, participants, staged, operations } => {
                let parts = self.staging.take(txn.client, *staged).unwrap_or_default();
                let participants = owned(participants);
                let vote = PreparedVote { at: *at, birth: *birth, waits: *waits, participants };
                // Its age counts from the start.
                self.apply_prepare(0, *txn, vote, OperationScript::new(parts.as_ref(), *operations));
                highest = *at;
            }
            LogRecord::Stage { name, operations, .. } => self.staging.push(*name, operations, 0),
            LogRecord::Unstage { name } => drop(self.staging.remove(*name)),
            LogRecord::Decide { txn, birth, participants, decision } => {
                let (decision, birth, participants) = (*decision, *birth, owned(participants));
                self.apply_decision(*txn, TransactionEnd { decision, birth, participants });
            }
            LogRecord::Refuse { txn, birth, participants } => {
                let (decision, birth, participants) = (Decision::Abort, *birth, owned(participants));
                self.apply_decision(*txn, TransactionEnd { decision, birth, participants });
            }
            LogRecord::GiveUp { txn, birth } => self.outcomes.give_up(*txn, *birth),
            LogRecord::Settled { client, report } => self.outcomes.settle(*client, report),
            LogRecord::Horizon(horizon) => self.outcomes.raise(*horizon, self.settings.server),
            LogRecord::Forget { txn } => self.outcomes.forget(*txn),
            LogRecord::Ceiling(at) => {
                // A later ceiling may be lower: the server was shut down cleanly.
                self.ceiling = *at;
                self.ceiling_before = *at;
            }
            LogRecord::Counter { node, next } => drop(self.counters.insert(*node, *next)),
        }
        self.clock = HybridClock::above(self.clock.last().max(highest));
    }

    /// Finishes the replay: no snapshot from before the restart is held.
    pub fn replayed(&mut self) {
        let low = self.clock.last().max(self.ceiling);
        self.clock = HybridClock::above(low);
        self.snapshots = Snapshots::new(self.settings.grace_ms, self.settings.snapshot_age_ms_max, low);
        self.store.look_for_empty();
    }
}
