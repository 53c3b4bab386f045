//! Checkpoints and replay: the state as records, and records as state.

use super::{
    Engine,
    commit::{PreparedVote, owned},
};
use crate::{
    checkpoint::Checkpoint,
    outcomes::TransactionEnd,
    record::{LogRecord, NO_TXN},
    snapshots::Readable,
    staging::OperationScript,
    store::{TreeEnd, UnseenValue},
    transaction::{PendingWrite, PreparedTxn},
    values::{DroppedValue, Orphan},
    write_target::PreparedOperation,
};
use rustc_hash::FxHashSet;
use yesquel_model::{GroupEpoch, HybridClock, NodeId, Timestamp, TxnId};
use yesquel_wire::{Decision, NodeOperation, Operations, Participants};

/// Records one after the other, and the end of each.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    fn push(&mut self, record: &LogRecord<'_>) {
        record.write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Encodes operations, and passes them on to be pushed.
    fn operations(
        &mut self,
        operations: &[NodeOperation<'_>],
        push: impl FnOnce(&mut Records, Operations<'_>),
    ) {
        let bytes = Operations::encode(operations);
        push(self, Operations::written(&bytes, operations.len()));
    }
}

impl Engine {
    /// Returns the present state, to be written while the engine goes on. Visits each node.
    pub fn checkpoint(&self) -> Checkpoint {
        self.checkpoint_of(self.replicated_records(), FxHashSet::default())
    }

    /// Returns the replicated state in its canonical form: the records of a checkpoint, each after
    /// its length. Two engines have applied the same records if and only if these are equal,
    /// whatever they have collected; what a leader alone knows is not part of it. Copies all data.
    pub fn canonical(&self) -> Vec<u8> {
        let orphans = self.store.orphans(self.snapshots.readable());
        let mut bytes = Vec::new();
        let mut checkpoint = self.checkpoint_of(self.replicated_records(), orphans);
        let written: Result<(), std::convert::Infallible> = checkpoint.write(|record| {
            bytes.extend_from_slice(&(record.len() as u64).to_le_bytes());
            bytes.extend_from_slice(record);
            Ok(())
        });
        match written {
            Ok(()) => bytes,
        }
    }

    fn checkpoint_of(&self, rest: Records, orphans: FxHashSet<NodeId>) -> Checkpoint {
        let readable = self.snapshots.readable();
        let (nodes, checkpoint_copies) = self.store.share(readable.low);
        let Records { bytes, ends } = rest;
        Checkpoint {
            lsn: self.lsn,
            readable,
            nodes,
            checkpoint_copies,
            orphans,
            rest: bytes,
            rest_ends: ends,
        }
    }

    /// Records of everything that records have made, but the nodes, in a fixed order.
    fn replicated_records(&self) -> Records {
        let mut records = Records::default();
        let Readable { low, next } = self.snapshots.readable();
        records.push(&LogRecord::LowWater { low, next });
        records.push(&LogRecord::Ceiling(self.ceiling));
        if !self.is_synced {
            records.push(&LogRecord::Synced(false));
        }
        if self.epoch != GroupEpoch::FIRST {
            records.push(&LogRecord::Group { epoch: self.epoch });
        }
        let mut counters: Vec<_> = self.counters.iter().collect();
        counters.sort_unstable();
        for (node, next) in counters {
            records.push(&LogRecord::Counter { node: *node, next: *next });
        }
        for (tree, at) in self.store.dropped_after(low) {
            records.push(&LogRecord::TreeDropped { tree, at });
        }
        for (value, Orphan { nodes, since, .. }) in self.values.orphans() {
            records.push(&LogRecord::ValueOrphaned { value, nodes: *nodes, since: *since });
        }
        for (value, DroppedValue { nodes, since }) in self.values.dropped() {
            records.push(&LogRecord::DropValue { value, nodes: *nodes, since: *since });
        }
        self.outcome_records(&mut records);
        let mut prepared: Vec<TxnId> = self.prepared.keys().copied().collect();
        prepared.sort_unstable();
        prepared.into_iter().for_each(|txn| self.prepared_records(txn, &mut records));
        let mut staged: Vec<_> = self.staging.iter().collect();
        staged.sort_unstable_by_key(|(name, part, _)| (*name, *part));
        for (name, part, operations) in staged {
            records.push(&LogRecord::Stage { name, part, operations });
        }
        records
    }

    /// Records of the ends of transactions, and of what is covered.
    fn outcome_records(&self, records: &mut Records) {
        // First, for they drop what they cover: the ends that are left are kept all the same.
        records.push(&LogRecord::Horizon(self.outcomes.horizon()));
        let mut settled: Vec<_> = self.outcomes.all_settled().collect();
        settled.sort_unstable_by_key(|(client, _)| *client);
        for (client, report) in settled {
            records.push(&LogRecord::Settled { client, report: report.clone() });
        }
        let mut commits: Vec<_> = self.outcomes.commits().collect();
        commits.sort_unstable();
        for (txn, birth, at) in commits {
            records.push(&LogRecord::Commit { txn, birth, at, staged: None, operations: Operations::NONE });
        }
        let mut given_up: Vec<_> = self.outcomes.all_given_up().collect();
        given_up.sort_unstable();
        for (txn, birth) in given_up {
            records.push(&LogRecord::GiveUp { txn, birth });
        }
        let mut ended: Vec<_> = self.outcomes.ended().collect();
        ended.sort_unstable_by_key(|(txn, _)| *txn);
        for (txn, TransactionEnd { decision, birth, participants }) in ended {
            let participants = Participants::encode(participants);
            // They were encoded just now.
            let participants = Participants::decode(&participants).unwrap_or(Participants::NONE);
            records.push(&LogRecord::Decide { txn, birth: *birth, participants, decision: *decision });
        }
    }

    /// Records of a prepared transaction: first the operations that apply wherever it commits, then
    /// those at nodes that their cells have left.
    fn prepared_records(&self, txn: TxnId, records: &mut Records) {
        let Some(prepared) = self.prepared.get(&txn) else { return };
        let participants = Participants::encode(&prepared.participants);
        // They were encoded just now.
        let participants = Participants::decode(&participants).unwrap_or(Participants::NONE);
        let operations: Vec<NodeOperation<'_>> =
            prepared.pending.iter().filter_map(PendingWrite::pending).collect();
        records.operations(&operations, |records, operations| {
            let PreparedTxn { at, birth, waits, .. } = *prepared;
            let staged = None;
            records.push(&LogRecord::Prepare { txn, birth, waits, at, participants, staged, operations });
        });
        let mut departed: Vec<_> = prepared.pending.iter().filter_map(PendingWrite::departed).collect();
        // After a checkpoint those that have moved again come before the others.
        departed.sort_by_key(|(until, _)| *until);
        for same in departed.chunk_by(|(a, _), (b, _)| a == b) {
            let operations: Vec<NodeOperation<'_>> = same.iter().map(|(_, write)| write.clone()).collect();
            records.operations(&operations, |records, operations| {
                records.push(&LogRecord::Departed { txn, until: same[0].0, operations });
            });
        }
    }

    /// Finishes loading a checkpoint that covers the log up to this record.
    pub fn restored(&mut self, lsn: u64) {
        self.lsn = lsn;
        if std::mem::take(&mut self.has_newest_only) {
            self.snapshots.set(self.ceiling, self.ceiling);
        }
        self.store.restored(self.snapshots.readable());
    }

    /// Applies a log record, in log order.
    pub fn replay(&mut self, record: &LogRecord<'_>) {
        self.lsn += 1;
        let mut highest = Timestamp::ZERO;
        match record {
            LogRecord::Commit { txn, birth, at, staged, operations } => {
                // In a checkpoint of an earlier version, which has the newest versions only.
                self.has_newest_only |= *txn == NO_TXN;
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
            LogRecord::Group { epoch } => self.epoch = *epoch,
            LogRecord::Forget { txn } => self.outcomes.forget(*txn),
            LogRecord::Ceiling(at) => {
                // A later ceiling may be lower: the server was shut down cleanly.
                self.ceiling = *at;
                self.ceiling_before = *at;
            }
            LogRecord::Counter { node, next } => drop(self.counters.insert(*node, *next)),
            LogRecord::LowWater { low, next } => self.move_mark(*low, *next),
            LogRecord::DropValue { value, nodes, since } => self.apply_drop_value(*value, *nodes, *since),
            LogRecord::ValueDropped { value } => self.values.remove_orphan(*value),
            LogRecord::ValueOrphaned { value, nodes, since } => {
                let unseen = UnseenValue { value: *value, nodes: *nodes, since: *since };
                // It is on disk.
                self.values.add_orphans([unseen], 0);
            }
            LogRecord::Synced(is_synced) => self.is_synced = *is_synced,
            LogRecord::Node { node, items } => {
                self.last_change = self.last_change.max(self.store.restore(*node, *items));
            }
            LogRecord::Departed { txn, until, operations } => self.departed(*txn, *until, operations),
            LogRecord::TreeDropped { tree, at } => {
                self.store.end_tree(*tree, Some(TreeEnd::Dropped(*at)));
                self.last_change = self.last_change.max(*at);
            }
        }
        self.ceiling = self.ceiling.max(highest);
        self.clock = HybridClock::above(self.clock.last().max(highest));
    }

    /// Adds operations to a prepared transaction, at nodes that their cells have left.
    fn departed(&mut self, txn: TxnId, until: Timestamp, operations: &Operations<'_>) {
        let Some(prepared) = self.prepared.get_mut(&txn) else { return };
        for operation in operations.iter() {
            let (pending, at) = (PendingWrite::departed_at(&operation, until), prepared.at);
            let target = pending.target();
            self.store.change(pending.node, |node| node.prepare(PreparedOperation { txn, at, target }));
            prepared.pending.push(pending);
        }
    }

    /// Finishes the replay. The low-water mark is where the log has it.
    pub fn replayed(&mut self) {
        let start = self.clock.last().max(self.ceiling);
        self.clock = HybridClock::above(start);
        self.snapshots.after_restart(start, self.settings.return_ms);
        self.store.look_for_empty();
        self.values.ask_about(self.store.foreign_values());
        self.no_client_is_connected();
    }
}
