//! Long values whose cells and nodes are at two groups: the messages between these.

use super::Engine;
use crate::{
    effects::{Effects, Now, ValueMessage, ValueQuery},
    record::LogRecord,
    snapshots::Readable,
    store::{LeafSearch, nodes_of},
};
use yesquel_model::{NodeId, Timestamp, TxnId};
use yesquel_wire::{Reply, ValueUse};

impl Engine {
    /// Sets the low-water mark, as a record says. Values at other groups that no snapshot sees any
    /// more become orphans, and values here go whose times the mark has passed.
    pub(crate) fn move_mark(&mut self, low: Timestamp, next: Timestamp) {
        let before = self.snapshots.readable();
        self.snapshots.set(low, next);
        let after = self.snapshots.readable();
        let unseen = self.store.newly_unseen(before, after);
        self.values.add_orphans(unseen, self.lsn);
        if self.values.waits_for_mark() {
            for (value, nodes) in self.values.take_passed(after.low) {
                self.store.remove_value(value, nodes);
            }
        }
    }

    /// Makes orphans of the values that a late decision has superseded below the readable snapshots.
    pub(crate) fn orphans_of_decision(&mut self, at: Timestamp, nodes: impl Iterator<Item = NodeId>) {
        let readable = self.snapshots.readable();
        if at <= readable.next && self.store.has_remote_values() {
            let unseen = self.store.unseen_since(at, nodes, readable);
            self.values.add_orphans(unseen, self.lsn);
        }
    }

    /// Notes that no snapshot from a time on sees a value here.
    pub(crate) fn apply_drop_value(&mut self, value: NodeId, nodes: u64, since: Timestamp) {
        self.values.drop_value(value, nodes, since);
        if let Some(nodes) = self.values.take_if_passed(value, self.snapshots.low()) {
            self.store.remove_value(value, nodes);
        }
    }

    fn log_drop_value(&mut self, value: NodeId, nodes: u64, since: Timestamp, effects: &mut Effects) {
        self.log(&LogRecord::DropValue { value, nodes, since }, effects);
        self.apply_drop_value(value, nodes, since);
    }

    /// Handles the message that no snapshot from a time on sees a value here.
    pub(super) fn drop_value<'r>(
        &mut self,
        now: Now,
        (value, nodes): (NodeId, u64),
        since: Timestamp,
        effects: &mut Effects,
    ) -> Reply<'r> {
        // The owner's group knows of the commit, and this one does not yet.
        let creating = nodes_of(value, nodes).find_map(|id| self.creating.get(&id).copied());
        if let Some(txn) = creating {
            return self.is_undecided(now, txn);
        }
        if self.store.has_value(value, nodes) && !self.values.is_dropped(value, since) {
            self.log_drop_value(value, nodes, since, effects);
        }
        Reply::Done
    }

    fn is_undecided<'r>(&mut self, now: Now, txn: TxnId) -> Reply<'r> {
        self.hasten_recovery(now, txn);
        Reply::ValueUse(ValueUse::Undecided)
    }

    /// Answers whether a version of a cell here refers to a value at another group.
    pub(super) fn value_use<'r>(&mut self, now: Now, root: NodeId, key: &[u8], value: NodeId) -> Reply<'r> {
        let readable = self.snapshots.readable();
        let Readable { next, .. } = readable;
        let unused = |since| Reply::ValueUse(ValueUse::Unused { since });
        if let Some(orphan) = self.values.orphan(value) {
            return unused(orphan.since);
        }
        if root.server != self.settings.server || root.tree != value.tree {
            return Reply::ValueUse(ValueUse::Undecided);
        }
        let prepared = match self.store.leaf_of(root, key) {
            LeafSearch::Found(leaf) if leaf.refers_to(key, value, readable) => {
                return Reply::ValueUse(ValueUse::Used);
            }
            LeafSearch::Found(leaf) => leaf.prepared_on(key),
            LeafSearch::NoTree(Some(dropped)) => return unused(dropped),
            LeafSearch::NoTree(None) => self.creating.get(&root).copied(),
            LeafSearch::Prepared(txn) => Some(txn),
            LeafSearch::Lost => return Reply::ValueUse(ValueUse::Undecided),
        };
        match prepared {
            // It may be what refers to the value.
            Some(txn) => self.is_undecided(now, txn),
            // Snapshots between the mark and the next one are not readable.
            None => unused(next),
        }
    }

    /// Makes the messages that are due: about orphans to the groups of their nodes, and questions to
    /// the owners of values here.
    pub(super) fn tick_values(&mut self, now: Now, effects: &mut Effects) {
        for (value, orphan) in self.values.due_orphans(now.uptime_ms) {
            let message = ValueMessage::Drop { nodes: orphan.nodes, since: orphan.since };
            let (server, needs_lsn) = (value.server, orphan.lsn);
            effects.value_queries.push(ValueQuery { server, value, message, needs_lsn });
        }
        for value in self.values.due_questions(now.uptime_ms) {
            let Some(owner) = self.store.foreign_owner(value) else {
                self.values.end_questions(value);
                continue;
            };
            let (server, message) = (owner.server, ValueMessage::Use { owner });
            effects.value_queries.push(ValueQuery { server, value, message, needs_lsn: 0 });
        }
    }

    /// Handles the reply to a [`ValueQuery`]. The engine repeats the query after any other reply.
    pub fn on_value_reply(&mut self, query: &ValueQuery, reply: &Reply<'_>, effects: &mut Effects) {
        let value = query.value;
        match (&query.message, reply) {
            (ValueMessage::Drop { since, .. }, Reply::Done)
                if self.values.orphan(value).is_some_and(|orphan| orphan.since == *since) =>
            {
                self.log(&LogRecord::ValueDropped { value }, effects);
                self.values.remove_orphan(value);
            }
            (ValueMessage::Use { .. }, Reply::ValueUse(ValueUse::Used)) => {
                self.values.end_questions(value);
            }
            (ValueMessage::Use { owner }, Reply::ValueUse(ValueUse::Unused { since })) => {
                let is_first = self.values.end_questions(value);
                if is_first && self.store.has_value(value, owner.nodes) {
                    self.log_drop_value(value, owner.nodes, *since, effects);
                }
            }
            _ => {}
        }
    }

    /// Names the owners of the long values whose cells and nodes are both here. It makes no records:
    /// a checkpoint of the state must follow.
    pub fn name_owners(&mut self) {
        self.store.name_owners();
    }

    /// Returns the numbers of orphans, of values here that wait for the low-water mark, and of values
    /// here whose owners are asked.
    pub fn pending_values(&self) -> [usize; 3] {
        self.values.counts()
    }
}
