//! The state as records, and records as state: checkpoints and replay.

use super::Engine;
use crate::{
    checkpoint::Checkpoint, record::Record, snapshots::Snapshots, staging::Script, transaction::Planned,
};
use yesquel_model::{Clock, Timestamp};
use yesquel_wire::{Decision, Operation, Operations, Participants};

impl Engine {
    /// The state of this moment, to be written while the engine goes on. Takes
    /// a look at each node.
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
        for (txn, decision, alone) in self.ends.iter() {
            match decision {
                Decision::Commit(at) if alone => {
                    push(Record::Commit { txn, at, staged: None, operations: Operations::NONE });
                }
                decision => push(Record::Decide { txn, decision }),
            }
        }
        for (txn, voted) in &self.voted {
            let operations: Vec<Operation<'_>> = voted.planned.iter().filter_map(Planned::pending).collect();
            let (operations, participants) =
                (Operations::encode(&operations), Participants::encode(&voted.participants));
            let decoded = (Operations::decode(&operations), Participants::decode(&participants));
            // Put together just now.
            if let (Ok(operations), Ok(participants)) = decoded {
                push(Record::Prepare { txn: *txn, at: voted.at, participants, staged: None, operations });
            }
        }
        for (name, part, operations) in self.staging.iter() {
            push(Record::Stage { name, part, operations });
        }
        // What has voted may yet commit at its vote, and must then be newer.
        let first_vote = self.voted.values().map(|voted| voted.at).min();
        let at = first_vote.map_or(self.clock.last(), |vote| Timestamp(vote.0.saturating_sub(1)));
        let (nodes, copies) = self.store.share();
        Checkpoint { lsn: self.lsn, at, nodes, copies, rest, rest_ends }
    }

    /// After the last record of a checkpoint, which was of this record of the
    /// log.
    pub fn restored(&mut self, lsn: u64) {
        self.lsn = lsn;
        self.store.remove_unnamed();
        self.store.on_disk();
    }

    /// Does again what a record of the log says, in its order.
    pub fn replay(&mut self, record: &Record<'_>) {
        self.lsn += 1;
        let mut highest = Timestamp::ZERO;
        match record {
            Record::Commit { txn, at, staged, operations } => {
                // What it speaks of was staged by records before it.
                let parts = self.staging.take(txn.client, *staged).unwrap_or_default();
                self.do_commit(0, *txn, *at, Script::new(parts.as_ref(), *operations));
                highest = *at;
            }
            Record::Prepare { txn, at, participants, staged, operations } => {
                let parts = self.staging.take(txn.client, *staged).unwrap_or_default();
                self.do_prepare(*txn, *at, participants, Script::new(parts.as_ref(), *operations));
                highest = *at;
            }
            Record::Stage { name, operations, .. } => self.staging.push(*name, operations, 0),
            Record::Unstage { name } => drop(self.staging.remove(*name)),
            Record::Decide { txn, decision } => self.do_decide(*txn, *decision),
            Record::Forget { txn } => drop(self.ends.forget(*txn)),
            Record::Ceiling(at) => {
                // One that comes later may be lower: the server ended in order.
                self.ceiling = *at;
                self.ceiling_before = *at;
            }
            Record::Counter { node, next } => drop(self.counters.insert(*node, *next)),
        }
        self.clock = Clock::above(self.clock.last().max(highest));
    }

    /// After the last record: no snapshot from before is alive.
    pub fn replayed(&mut self) {
        let low = self.clock.last().max(self.ceiling);
        self.clock = Clock::above(low);
        self.snapshots = Snapshots::new(self.settings.grace_ms, self.settings.snapshot_age_ms_max, low);
        self.store.look_for_empty();
    }
}
