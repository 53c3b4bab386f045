//! Long values: the cells that refer to them, and the owners that their first nodes name.

use super::Node;
use crate::{
    cell::{VersionRef, VersionValue},
    snapshots::Readable,
};
use yesquel_model::{KeyRange, NodeId, ServerId, Timestamp, TxnId};
use yesquel_wire::{LargeValue, NodeKind, ValueOwner};

impl Node {
    /// Notes the location of a long value that a cell refers to. Returns whether the value is at
    /// another group.
    pub(crate) fn note_large(&mut self, location: &[u8]) -> bool {
        let is_remote = LargeValue::decode(location).is_ok_and(|large| large.server != self.id.server);
        self.has_remote |= is_remote;
        is_remote
    }

    /// The long values to which versions of cells in a range refer.
    pub(crate) fn long_values_in(&self, range: &KeyRange) -> Vec<LargeValue> {
        let versions = self.cells.range(self.cells.covered(range)).flat_map(|cell| cell.versions());
        let long = versions.filter_map(|(_, value)| value.filter(|value| value.is_large));
        long.filter_map(|value| LargeValue::decode(value.bytes).ok()).collect()
    }

    /// The owner that it names as the first node of a long value.
    pub(crate) fn owner(&self) -> Option<ValueOwner> {
        let shape = self.shape().filter(|shape| shape.kind == NodeKind::Value)?;
        ValueOwner::of(|id| shape.attribute(id))
    }

    /// Passes each version that refers to a long value to `each`, with its key and the time at which
    /// it was superseded, if it was. Copies of cells that have moved are left out.
    ///
    /// With a mark, older versions that a collection by it removes are left out, also as the ends of
    /// those before them: so the times do not depend on what was collected.
    fn large_versions(
        &self,
        readable: Option<Readable>,
        mut each: impl FnMut(&[u8], LargeValue, Timestamp, Option<Timestamp>),
    ) {
        let Some(shape) = self.shape().filter(|shape| shape.kind == NodeKind::Leaf) else { return };
        for cell in self.cells.range(self.cells.covered(&shape.fence)) {
            let mut pass = |value: Option<VersionValue<'_>>, at, until| {
                let large = value.filter(|value| value.is_large);
                if let Some(Ok(large)) = large.map(|value| LargeValue::decode(value.bytes)) {
                    each(cell.key, large, at, until);
                }
            };
            let older: Vec<VersionRef> = match readable {
                Some(readable) => cell.older_seen(readable).collect(),
                None => cell.older.to_vec(),
            };
            let ends = older.iter().skip(1).map(|next| next.at).chain([cell.at]);
            older.iter().zip(ends).for_each(|(version, end)| {
                pass(cell.value_of(*version), version.at, Some(end));
            });
            pass(cell.newest, cell.at, None);
        }
    }

    /// Passes each version that refers to a long value at another group to `each`, with the time at
    /// which it was superseded, if it was; with a mark, those that a collection by it leaves.
    pub(crate) fn remote_versions(
        &self,
        readable: Option<Readable>,
        mut each: impl FnMut(LargeValue, Timestamp, Option<Timestamp>),
    ) {
        if self.has_remote {
            self.large_versions(readable, |_, large, at, until| {
                if large.server != self.id.server {
                    each(large, at, until);
                }
            });
        }
    }

    /// Passes the keys and locations of the long values at this group to `each`.
    pub(crate) fn local_values(&self, mut each: impl FnMut(&[u8], LargeValue)) {
        self.large_versions(None, |key, large, _, _| {
            if large.server == self.id.server {
                each(key, large);
            }
        });
    }

    /// Whether a version of a cell that a readable snapshot sees, or the newest one, refers to a long
    /// value.
    pub(crate) fn refers_to(&self, key: &[u8], value: NodeId, readable: Readable) -> bool {
        let Some(cell) = self.cells.get(key) else { return false };
        let older = cell.older_seen(readable).filter_map(|version| cell.value_of(version));
        let mut larges = cell.newest.into_iter().chain(older).filter(|seen| seen.is_large);
        larges.any(|seen| {
            LargeValue::decode(seen.bytes).is_ok_and(|large| large.first_node(self.id.tree) == value)
        })
    }

    /// A transaction that has prepared a change of a key here.
    pub(crate) fn prepared_on(&self, key: &[u8]) -> Option<TxnId> {
        self.prepared.iter().find(|prepared| prepared.target.changes_key(key)).map(|prepared| prepared.txn)
    }

    /// Names the owner of the long value that begins here, unless it has one.
    pub(crate) fn name_owner(&mut self, server: ServerId, key: &[u8], nodes: u64) {
        let Some((at, Some(shape))) = self.shapes.last() else { return };
        if shape.kind == NodeKind::Value && self.owner().is_none() {
            let at = *at;
            for (id, value) in (ValueOwner { server, nodes, key: key.into() }).attributes() {
                self.set(at, id, Some(&value));
            }
        }
    }
}
