//! Long values whose cells and nodes are at two groups: the messages that are due.
//! `docs/yesquel/cluster/directory.md` has the rules.

use crate::store::UnseenValue;
use std::{collections::BTreeMap, ops::Bound};
use yesquel_model::{NodeId, Timestamp};

/// A message about a value is repeated after this time.
const REPEAT_MS: u64 = 1_000;
/// Messages of each kind that one tick makes.
const MESSAGES_MAX: usize = 64;

/// A value at another group that no snapshot of this one sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Orphan {
    pub(crate) nodes: u64,
    /// The time from which on no snapshot sees it.
    pub(crate) since: Timestamp,
    /// The record that made it; it must be durable before the other group learns of it.
    pub(crate) lsn: u64,
    due_ms: u64,
}

/// A value here that no snapshot from a time on sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DroppedValue {
    pub(crate) nodes: u64,
    pub(crate) since: Timestamp,
}

/// Orphans, dropped values, and values whose owners are asked.
#[derive(Debug, Default)]
pub(crate) struct ValueTable {
    /// Values at other groups, by their first nodes.
    orphans: BTreeMap<NodeId, Orphan>,
    /// Values here that go when the low-water mark has passed their times.
    dropped: BTreeMap<NodeId, DroppedValue>,
    /// Values here whose owners are asked since the start, and when next, by uptime.
    asked: BTreeMap<NodeId, u64>,
    /// The last orphan, and the last value, that a tick has looked at.
    last: (NodeId, NodeId),
}

/// Passes over a part of a map, after the key where the last pass has ended.
fn next_part<T>(map: &mut BTreeMap<NodeId, T>, last: &mut NodeId, mut take: impl FnMut(NodeId, &mut T)) {
    let mut seen = 0;
    for (value, entry) in map.range_mut((Bound::Excluded(*last), Bound::Unbounded)).take(MESSAGES_MAX) {
        (*last, seen) = (*value, seen + 1);
        take(*value, entry);
    }
    if seen < MESSAGES_MAX {
        *last = NodeId::default();
    }
}

impl ValueTable {
    /// Adds orphans that a record has made.
    pub(crate) fn add_orphans(&mut self, unseen: impl IntoIterator<Item = UnseenValue>, lsn: u64) {
        for UnseenValue { value, nodes, since } in unseen {
            let known = self.orphans.entry(value).or_insert(Orphan { nodes, since, lsn, due_ms: 0 });
            // Only a wrong client refers to a value twice.
            known.nodes = known.nodes.max(nodes);
            known.since = known.since.max(since);
            known.lsn = known.lsn.max(lsn);
        }
    }

    pub(crate) fn orphan(&self, value: NodeId) -> Option<Orphan> {
        self.orphans.get(&value).copied()
    }

    pub(crate) fn remove_orphan(&mut self, value: NodeId) {
        self.orphans.remove(&value);
    }

    pub(crate) fn orphans(&self) -> impl Iterator<Item = (NodeId, &Orphan)> {
        self.orphans.iter().map(|(value, orphan)| (*value, orphan))
    }

    /// Returns the orphans whose messages are due.
    pub(crate) fn due_orphans(&mut self, uptime_ms: u64) -> Vec<(NodeId, Orphan)> {
        let mut due = Vec::new();
        next_part(&mut self.orphans, &mut self.last.0, |value, orphan| {
            if orphan.due_ms <= uptime_ms {
                orphan.due_ms = uptime_ms + REPEAT_MS;
                due.push((value, *orphan));
            }
        });
        due
    }

    /// Notes that a value here goes when the mark has passed a time.
    pub(crate) fn drop_value(&mut self, value: NodeId, nodes: u64, since: Timestamp) {
        let known = self.dropped.entry(value).or_insert(DroppedValue { nodes, since });
        known.nodes = known.nodes.max(nodes);
        known.since = known.since.max(since);
        self.asked.remove(&value);
    }

    pub(crate) fn dropped(&self) -> impl Iterator<Item = (NodeId, &DroppedValue)> {
        self.dropped.iter().map(|(value, dropped)| (*value, dropped))
    }

    /// Whether it is noted that a value goes, not before this time.
    pub(crate) fn is_dropped(&self, value: NodeId, since: Timestamp) -> bool {
        self.dropped.get(&value).is_some_and(|dropped| dropped.since >= since)
    }

    /// Whether values wait for the low-water mark.
    pub(crate) fn waits_for_mark(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Takes a value if the mark has passed its time. Returns the number of its nodes.
    pub(crate) fn take_if_passed(&mut self, value: NodeId, low: Timestamp) -> Option<u64> {
        let is_passed = self.dropped.get(&value).is_some_and(|dropped| dropped.since <= low);
        is_passed.then(|| self.dropped.remove(&value)).flatten().map(|dropped| dropped.nodes)
    }

    /// Takes the values whose times the mark has passed.
    pub(crate) fn take_passed(&mut self, low: Timestamp) -> Vec<(NodeId, u64)> {
        let mut passed = Vec::new();
        self.dropped.retain(|value, dropped| {
            let stays = dropped.since > low;
            if !stays {
                passed.push((*value, dropped.nodes));
            }
            stays
        });
        passed
    }

    /// After a start: the owners of these values are to be asked, except of those that go anyway.
    pub(crate) fn ask_about(&mut self, values: impl Iterator<Item = NodeId>) {
        let dropped = &self.dropped;
        self.asked = values.filter(|value| !dropped.contains_key(value)).map(|value| (value, 0)).collect();
    }

    /// Ends the questions about a value. Returns whether there were any.
    pub(crate) fn end_questions(&mut self, value: NodeId) -> bool {
        self.asked.remove(&value).is_some()
    }

    /// Returns the values whose questions are due.
    pub(crate) fn due_questions(&mut self, uptime_ms: u64) -> Vec<NodeId> {
        let mut due = Vec::new();
        next_part(&mut self.asked, &mut self.last.1, |value, due_ms| {
            if *due_ms <= uptime_ms {
                *due_ms = uptime_ms + REPEAT_MS;
                due.push(value);
            }
        });
        due
    }

    /// Numbers of orphans, of values that wait for the mark, and of those whose owners are asked.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [self.orphans.len(), self.dropped.len(), self.asked.len()]
    }
}
