//! Ranges of leaves that move to nodes of other groups: the source copies the content, and keeps
//! writers waiting until the move is decided. `docs/yesquel/cluster/moves.md` has the rules.
//!
//! A departure is no promise to other groups, and no part of the replicated state. If its transaction
//! is not prepared in time, the engine forgets it, and writers of the node continue.

use super::Engine;
use crate::{
    effects::{Effects, Now, Stop},
    node::Node,
    node_record::{NodeItem, NodeItemWriter, NodeItems},
    write_target::MarkKind,
};
use std::collections::BTreeMap;
use yesquel_model::{Conflict, DepartedContent, KeyRange, NodeId, Refusal, StayReason, Timestamp, TxnId};
use yesquel_wire::{NodeKind, WriteOperation};

/// How long a departure lasts at most before its transaction is prepared, in milliseconds.
const DEPARTURE_MS_MAX: u64 = 500;

/// Bytes of content above which ranges do not move: the node is split first.
const CONTENT_BYTES_MAX: usize = 4 << 20;

/// Client number of the names under which requests wait for departures. No client has it.
const NO_CLIENT: u64 = 0;

/// A node of which ranges are about to move.
#[derive(Debug)]
struct Departure {
    /// The ranges, each with the node that adopts it.
    parts: Vec<(KeyRange, NodeId)>,
    until_ms: u64,
    /// The name under which requests wait.
    name: TxnId,
}

/// The departures of a group.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    by_node: BTreeMap<NodeId, Departure>,
    count: u64,
    /// Names of departures that have ended since the last tick. Requests may wait under them.
    ended: Vec<TxnId>,
}

impl Departures {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }
}

impl Engine {
    /// Begins the departure of ranges of a leaf to nodes of other groups, and returns their contents.
    /// Until the move is decided, or half a second has passed, writers of the node wait.
    pub fn begin_departure(
        &mut self,
        now: Now,
        id: NodeId,
        parts: &[(KeyRange, NodeId)],
    ) -> Result<Vec<DepartedContent>, StayReason> {
        if self.departures.by_node.contains_key(&id) {
            return Err(StayReason::Unfit);
        }
        // Writers do not wait while a transaction is prepared: its client may take long.
        let contents = self.contents(id, parts)?;
        self.departures.count += 1;
        let name = TxnId { client: NO_CLIENT, number: self.departures.count };
        let until_ms = now.uptime_ms + DEPARTURE_MS_MAX;
        self.departures.by_node.insert(id, Departure { parts: parts.to_vec(), until_ms, name });
        Ok(contents)
    }

    /// Copies the contents of ranges of a leaf.
    fn contents(&self, id: NodeId, parts: &[(KeyRange, NodeId)]) -> Result<Vec<DepartedContent>, StayReason> {
        let node = self.store.get(id).filter(|_| self.store.tree_end(id.tree).is_none());
        let shape = node.and_then(Node::shape).filter(|shape| shape.kind == NodeKind::Leaf);
        let is_fit = |(range, to): &(KeyRange, NodeId)| {
            shape.is_some_and(|shape| shape.fence.covers(range)) && to.server != id.server
        };
        let Some(node) = node.filter(|_| parts.iter().all(is_fit) && self.check_disk().is_ok()) else {
            return Err(StayReason::Unfit);
        };
        if node.is_prepared() {
            return Err(StayReason::Prepared);
        }
        // The group of its leaf removes a long value with the last version that refers to it.
        if parts.iter().any(|(range, _)| !node.long_values_in(range).is_empty()) {
            return Err(StayReason::Unfit);
        }
        let low = self.snapshots.readable().low;
        let (floor, clock, mut bytes) = (node.floor().max(low), self.clock.last(), 0);
        let contents = parts.iter().map(|(range, _)| {
            let (mut writer, mut has_values) = (NodeItemWriter::default(), false);
            node.content(range, low, |item| {
                writer.push(&item);
                has_values |= matches!(item, NodeItem::Version { value: Some(_), .. });
                let is_much = bytes + writer.bytes.len() > CONTENT_BYTES_MAX;
                if is_much { Err(StayReason::Unfit) } else { Ok(()) }
            })?;
            bytes += writer.bytes.len();
            Ok(DepartedContent { floor, items: writer.bytes, clock, has_values })
        });
        contents.collect()
    }

    /// Ends the departure of a node whose move was not prepared. The requests that wait for it are
    /// answered at the next [`tick`](Self::tick).
    pub fn end_departure(&mut self, id: NodeId) {
        let ended = self.departures.by_node.remove(&id);
        self.departures.ended.extend(ended.map(|departure| departure.name));
    }

    /// Ends the departures that have lasted too long, and answers the requests that wait for an ended
    /// one.
    pub(super) fn tick_departures(&mut self, now: Now, effects: &mut Effects) {
        let Departures { by_node, ended, .. } = &mut self.departures;
        let late = by_node.extract_if(.., |_, departure| departure.until_ms <= now.uptime_ms);
        ended.extend(late.map(|(_, departure)| departure.name));
        for name in std::mem::take(ended) {
            self.after_end(now, name, effects);
        }
    }

    /// Notes that the move of a node is prepared: requests that wait for the departure wait for the
    /// transaction from now on.
    pub(super) fn departure_prepared(&mut self, id: NodeId, txn: TxnId) {
        let Some(departure) = self.departures.by_node.remove(&id) else { return };
        if let Some(waiting) = self.waiting.remove(&departure.name) {
            self.waiting.entry(txn).or_default().extend(waiting);
        }
    }

    /// Checks an operation on a node against its departure. `departs`: the transaction has moved a
    /// range of the node to another group before.
    pub(super) fn check_departure(
        &self,
        id: NodeId,
        write: &WriteOperation<'_>,
        departs: bool,
    ) -> Result<(), Stop> {
        let departure = self.departures.by_node.get(&id);
        match (write, departure) {
            // Without this departure the node may have changed since its content was copied.
            (WriteOperation::Move { range, to }, known) if to.server != id.server => match known {
                Some(departure) if departure.parts.iter().any(|part| (&part.0, &part.1) == (range, to)) => {
                    Ok(())
                }
                _ => Err(Refusal::from(Conflict::Node { node: id }).into()),
            },
            // A root that becomes an inner node gets links to its parts.
            (
                WriteOperation::Move { .. }
                | WriteOperation::Reshape(_)
                | WriteOperation::Drop
                | WriteOperation::Link { .. },
                Some(_),
            ) if departs => Ok(()),
            (_, Some(departure)) => Err(Stop::Wait(departure.name)),
            (_, None) => Ok(()),
        }
    }

    /// Checks content that a node of a transaction adopts. `is_new`: the transaction creates the node.
    pub(super) fn check_content(
        &self,
        id: NodeId,
        fence: &KeyRange,
        is_new: bool,
        (floor, items): (Timestamp, &[u8]),
    ) -> Result<(), Refusal> {
        let unfit = Refusal::Unfit(id);
        let items = NodeItems::decode(items).map_err(|_| unfit)?;
        let newest = self.clock.last();
        let (mut last, mut marked): (Option<&[u8]>, Timestamp) = (None, Timestamp::ZERO);
        for item in items.iter() {
            let is_fit = match item {
                NodeItem::Version { key, at, value } => {
                    let is_next = last.is_none_or(|last| last < key);
                    last = Some(key);
                    // A leaf that is about to be removed has nothing but deleted cells.
                    (is_new || value.is_none())
                        && is_next
                        && at <= newest
                        && fence.contains(key)
                        && value.is_none_or(|value| !value.is_large)
                }
                NodeItem::Mark(MarkKind::Deleted | MarkKind::Guarded, range, at) => {
                    let is_next = marked <= at;
                    marked = at;
                    is_next && at <= newest && at > Timestamp::ZERO && fence.covers(&range)
                }
                NodeItem::Shape(..)
                | NodeItem::Attribute { .. }
                | NodeItem::Move(..)
                | NodeItem::Floor(_) => false,
            };
            if !is_fit {
                return Err(unfit);
            }
        }
        if floor <= newest { Ok(()) } else { Err(unfit) }
    }
}
