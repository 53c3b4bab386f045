//! The reference: committed and prepared effects as lists, and the node of each key.

use crate::steps::{Do, key, range};
use std::collections::BTreeMap;
use yesquel_model::{KeyRange, NodeId, Timestamp, TxnId};
use yesquel_wire::Expect;

/// A committed or prepared effect, without nodes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    Write(Vec<u8>, Option<u8>),
    Clear(KeyRange),
    Guard(KeyRange),
}

impl Effect {
    pub(crate) fn of(write: &Do) -> Effect {
        match write {
            Do::Put(number, value, _) => Effect::Write(key(*number), Some(*value)),
            Do::Delete(number, _) => Effect::Write(key(*number), None),
            Do::DeleteRange(first, length) => Effect::Clear(range(*first, *length)),
            Do::Guard(first, length) => Effect::Guard(range(*first, *length)),
        }
    }

    pub(crate) fn of_all(writes: &[(NodeId, Do)]) -> Vec<Effect> {
        writes.iter().map(|(_, write)| Effect::of(write)).collect()
    }

    pub(crate) fn overlaps(&self, other: &Effect) -> bool {
        use Effect::{Clear, Guard, Write};
        match (self, other) {
            (Write(a, _), Write(b, _)) => a == b,
            (Write(key, _), Clear(range) | Guard(range)) | (Clear(range) | Guard(range), Write(key, _)) => {
                range.contains(key)
            }
            (Guard(_), Guard(_)) => false,
            (Clear(a) | Guard(a), Clear(b) | Guard(b)) => a.overlaps(b),
        }
    }

    fn changes(&self, range: &KeyRange) -> bool {
        match self {
            Effect::Write(key, _) => range.contains(key),
            Effect::Clear(own) => own.overlaps(range),
            Effect::Guard(_) => false,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct PreparedTxn {
    pub(crate) txn: TxnId,
    pub(crate) at: Timestamp,
    pub(crate) effects: Vec<Effect>,
}

/// The required result of a transaction.
#[derive(Debug)]
pub(crate) enum Verdict {
    Commits,
    /// It waits for one of these.
    Waits(Vec<TxnId>),
    /// The index of the refused operation, and the reason.
    Refused(u64, &'static str),
}

#[derive(Debug, Default)]
pub(crate) struct Reference {
    /// Commits in the order of their times, then of the list.
    committed: Vec<(Timestamp, Vec<Effect>)>,
    pub(crate) prepared: Vec<PreparedTxn>,
    /// The nodes by the lower bounds of their fences, over time.
    owners: Vec<(Timestamp, BTreeMap<Vec<u8>, NodeId>)>,
}

impl Reference {
    /// The node that answers for a key at some time, and its fence.
    pub(crate) fn owner(&self, at: Timestamp, key: &[u8]) -> Option<(NodeId, KeyRange)> {
        let (_, owners) = self.owners.iter().rev().find(|(since, _)| *since <= at)?;
        let (low, node) = owners.range(..=key.to_vec()).next_back()?;
        let high = owners.range(key.to_vec()..).find(|(low, _)| low.as_slice() > key).map(|(low, _)| low);
        let fence = KeyRange { low: low.clone().into(), high: high.map(|high| high.clone().into()) };
        Some((*node, fence))
    }

    pub(crate) fn fence_of(&self, at: Timestamp, node: NodeId) -> Option<KeyRange> {
        let (_, owners) = self.owners.iter().rev().find(|(since, _)| *since <= at)?;
        let low = owners.iter().find(|(_, known)| **known == node)?.0.clone();
        self.owner(at, &low).map(|(_, fence)| fence)
    }

    pub(crate) fn seen(&self, snapshot: Timestamp, key: &[u8]) -> Option<u8> {
        let mut value = None;
        for (_, effects) in self.committed.iter().filter(|(at, _)| *at <= snapshot) {
            for effect in effects {
                match effect {
                    Effect::Write(written, new) if written == key => value = *new,
                    Effect::Clear(range) if range.contains(key) => value = None,
                    _ => {}
                }
            }
        }
        value
    }

    pub(crate) fn commit(&mut self, at: Timestamp, effects: Vec<Effect>) {
        let position = self.committed.partition_point(|(known, _)| *known <= at);
        self.committed.insert(position, (at, effects));
    }

    /// The prepared transactions that may change what a snapshot sees in a range.
    pub(crate) fn waits_for(&self, snapshot: Timestamp, range: &KeyRange) -> Option<Vec<TxnId>> {
        let waits: Vec<TxnId> = self
            .prepared
            .iter()
            .filter(|prepared| prepared.at <= snapshot)
            .filter(|prepared| prepared.effects.iter().any(|effect| effect.changes(range)))
            .map(|prepared| prepared.txn)
            .collect();
        (!waits.is_empty()).then_some(waits)
    }

    /// The prepared transactions that conflict with some effects.
    pub(crate) fn prepared_against(&self, effects: &[Effect]) -> Vec<TxnId> {
        let overlaps = |other: &Effect| effects.iter().any(|effect| other.overlaps(effect));
        let prepared = self.prepared.iter().filter(|prepared| prepared.effects.iter().any(overlaps));
        prepared.map(|prepared| prepared.txn).collect()
    }

    pub(crate) fn judge(&self, snapshot: Timestamp, writes: &[(NodeId, Do)]) -> Verdict {
        for (number, (node, write)) in writes.iter().enumerate() {
            let refuse = |why| Verdict::Refused(number as u64, why);
            let effect = Effect::of(write);
            let covered = match &effect {
                Effect::Write(key, _) => KeyRange::single(key),
                Effect::Clear(range) | Effect::Guard(range) => range.clone(),
            };
            let Some(fence) = self.fence_of(Timestamp::MAX, *node) else { return refuse("moved") };
            let within = match &effect {
                Effect::Write(key, _) => fence.contains(key),
                _ => fence.covers(&covered),
            };
            if !within {
                return refuse("moved");
            }
            let waits = self.prepared_against(std::slice::from_ref(&effect));
            if !waits.is_empty() {
                return Verdict::Waits(waits);
            }
            let newer = self.committed.iter().filter(|(at, _)| *at > snapshot);
            if newer.flat_map(|(_, effects)| effects).any(|other| other.overlaps(&effect)) {
                return refuse("conflict");
            }
            if let Do::Put(number, _, expect) | Do::Delete(number, expect) = write {
                match (expect, self.seen(Timestamp::MAX, &key(*number)).is_some()) {
                    (Expect::Absent, true) => return refuse("exists"),
                    (Expect::Present, false) => return refuse("missing"),
                    _ => {}
                }
            }
        }
        Verdict::Commits
    }

    /// The node of each write; writes across nodes are left out.
    pub(crate) fn address(&self, writes: &[Do], astray: bool) -> Vec<(NodeId, Do)> {
        let mut all = Vec::new();
        for write in writes {
            // A client does not send the same target twice in one transaction.
            let effect = Effect::of(write);
            if all.iter().any(|(_, other)| Effect::of(other).overlaps(&effect)) {
                continue;
            }
            let first = match &effect {
                Effect::Write(key, _) => key.clone(),
                Effect::Clear(range) | Effect::Guard(range) => range.low.to_vec(),
            };
            let Some((node, fence)) = self.owner(Timestamp::MAX, &first) else { continue };
            let whole = match &effect {
                Effect::Write(..) => true,
                Effect::Clear(range) | Effect::Guard(range) => fence.covers(range),
            };
            let node = if astray { self.owners[0].1[&Vec::new()] } else { node };
            if whole || astray {
                all.push((node, write.clone()));
            }
        }
        all
    }

    /// From `at` on these nodes answer for the keys from these bounds on.
    pub(crate) fn place(&mut self, at: Timestamp, nodes: &[(&KeyRange, NodeId)]) {
        let mut owners = self.owners.last().map(|(_, owners)| owners.clone()).unwrap_or_default();
        owners.extend(nodes.iter().map(|(fence, node)| (fence.low.to_vec(), *node)));
        self.owners.push((at, owners));
    }

    /// Time of the last commit that changed something.
    pub(crate) fn last_change(&self) -> Timestamp {
        let mut changes = self.committed.iter().rev().filter(|(_, effects)| !effects.is_empty());
        changes.next().map(|(at, _)| *at).unwrap_or_default()
    }
}
