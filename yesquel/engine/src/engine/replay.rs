//! Checkpoints and replay: the state as records, and records as state.

use super::Engine;
use crate::{
    checkpoint::Checkpoint, record::Record, snapshots::Snapshots, staging::OperationScript,
    transaction::PendingWrite,
};
use yesquel_model::{Clock, Timestamp};
use yesquel_wire::{Decision, Operation, Operations, Participants};

impl Engine {
    /// Returns the present state, to be written while the engine goes on. Visits each node.
    pub fn checkpoint(&self) -> Checkpoint {
        let (mut rest, mut rest_ends) = (Vec::new(), Vec::new());
        let mut push = |record: Record<'_>| {
            record.write(&mut rest);
            rest_ends.push(rest.len());
        };
        push(Record::Ceiling(self.ceiling.max(self.clock.last())));
        for (node, next) in &self.counters {
            push(Record::Counter { node: *node, next: *next });
        }
        for (txn, decision, alone) in self.outcomes.iter() {
            match decision {
                Decision::Commit(at) if alone => {
                    push(Record::Commit { txn, at, staged: None, operations: Operations::NONE });
                }
                decision => push(Record::Decide { txn, decision }),
            }
        }
        for (txn, prepared) in &self.prepared {
            let operations: Vec<Operation<'_>> =
                prepared.pending.iter().filter_map(PendingWrite::pending).collect();
            let (operations, participants) =
                (Operations::encode(&operations), Participants::encode(&prepared.participants));
            let decoded = (Operations::decode(&operations), Participants::decode(&participants));
            // They were encoded just now.
            if let (Ok(operations), Ok(participants)) = decoded {
                push(Record::Prepare { txn: *txn, at: prepared.at, participants, staged: None, operations });
            }
        }
        for (name, part, operations) in self.staging.iter() {
            push(Record::Stage { name, part, operations });
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
    pub fn replay(&mut self, record: &Record<'_>) {
        self.lsn += 1;
        let mut highest = Timestamp::ZERO;
        match record {
            Record::Commit { txn, at, staged, operations } => {
                // Records before this one have staged the parts.
                let parts = self.staging.take(txn.client, *staged).unwrap_or_default();
                self.apply_commit(0, *txn, *at, OperationScript::new(parts.as_ref(), *operations));
                highest = *at;
            }
            Record::Prepare { txn, at, participants, staged, operations } => {
                let parts = self.staging.take(txn.client, *staged).unwrap_or_default();
                self.apply_prepare(
                    *txn,
                    *at,
                    participants,
                    OperationScript::new(parts.as_ref(), *operations),
                );
                highest = *at;
            }
            Record::Stage { name, operations, .. } => self.staging.push(*name, operations, 0),
            Record::Unstage { name } => drop(self.staging.remove(*name)),
            Record::Decide { txn, decision } => self.apply_decision(*txn, *decision),
            Record::Forget { txn } => drop(self.outcomes.forget(*txn)),
            Record::Ceiling(at) => {
                // A later ceiling may be lower: the server was shut down cleanly.
                self.ceiling = *at;
                self.ceiling_before = *at;
            }
            Record::Counter { node, next } => drop(self.counters.insert(*node, *next)),
        }
        self.clock = Clock::above(self.clock.last().max(highest));
    }

    /// Finishes the replay: no snapshot from before the restart is held.
    pub fn replayed(&mut self) {
        let low = self.clock.last().max(self.ceiling);
        self.clock = Clock::above(low);
        self.snapshots = Snapshots::new(self.settings.grace_ms, self.settings.snapshot_age_ms_max, low);
        self.store.look_for_empty();
    }
}
