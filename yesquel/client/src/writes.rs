//! Writes of a transaction, in parts that fit into messages.

use crate::LeaseHolder;
use yesquel_model::{NodeId, ServerId, SmallMap};
use yesquel_wire::{NodeOperation, Operations};

/// Size in bytes of operations at which a part ends.
pub const PART_BYTES: usize = 8 << 20;

/// Initial capacity of a part, in bytes.
const FIRST_BYTES: usize = 256;

/// Writes of a transaction, grouped by server.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    pub(crate) servers: SmallMap<ServerId, ServerWrites>,
    /// Number of the lease holder that writes; zero: none.
    pub(crate) lease: u64,
}

/// Writes at one server, in parts that fit into messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerWrites {
    pub(crate) full: Vec<Vec<u8>>,
    last: Vec<u8>,
    /// Number of operations in `last`.
    last_count: usize,
    last_node: Option<NodeId>,
}

impl ServerWrites {
    pub(crate) fn last(&self) -> Operations<'_> {
        Operations::written(&self.last, self.last_count)
    }
}

impl Writes {
    /// Returns an empty set of writes.
    pub fn new() -> Writes {
        Writes::default()
    }

    /// The servers to which there are writes, in order.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.servers.keys().copied()
    }

    /// Declares that all writes are within the ranges of a lease holder.
    pub fn within_lease(&mut self, holder: &LeaseHolder) {
        self.lease = holder.id.number;
    }

    /// Appends an operation. Operations on one server are applied in their order.
    pub fn push(&mut self, operation: &NodeOperation<'_>) {
        let ServerWrites { full, last, last_count, last_node } =
            self.servers.or_default(operation.node.server);
        if last.len() > PART_BYTES {
            full.push(std::mem::take(last));
            (*last_count, *last_node) = (0, None);
        }
        if last.capacity() == 0 {
            // Most transactions write a few cells.
            last.reserve(FIRST_BYTES);
        }
        Operations::push(last, last_node, operation);
        *last_count += 1;
    }

    /// Returns whether the writes exceed one message.
    pub fn has_full_part(&self) -> bool {
        self.servers.values().any(|parts| !parts.full.is_empty() || parts.last.len() > PART_BYTES)
    }

    /// Returns the parts of each server, to be staged before the commit.
    pub fn into_parts(self) -> impl Iterator<Item = (ServerId, Vec<u8>)> {
        self.servers.into_iter().flat_map(|(server, parts)| {
            parts.full.into_iter().chain([parts.last]).map(move |part| (server, part))
        })
    }

    /// Returns whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}
