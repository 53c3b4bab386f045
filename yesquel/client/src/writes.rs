//! What a transaction writes, in parts that fit into messages.

use crate::Lease;
use yesquel_model::{NodeId, ServerId, SmallMap};
use yesquel_wire::{Operation, Operations};

/// Bytes of operations beyond which a part ends.
pub const PART_BYTES: usize = 8 << 20;

/// Bytes of operations that there is room for from the start.
const FIRST_BYTES: usize = 256;

/// What a transaction writes, by server.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    pub(crate) servers: SmallMap<ServerId, Parts>,
    /// The number of the lease under which it is written; zero: none.
    pub(crate) lease: u64,
}

/// What is written at one server, in parts that are not too long for a message.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    pub(crate) full: Vec<Vec<u8>>,
    last: Vec<u8>,
    /// Operations in the last one.
    last_count: usize,
    last_node: Option<NodeId>,
}

impl Parts {
    pub(crate) fn last(&self) -> Operations<'_> {
        Operations::written(&self.last, self.last_count)
    }
}

impl Writes {
    /// Nothing yet.
    pub fn new() -> Writes {
        Writes::default()
    }

    /// What is written is within a lease, and only that may be.
    pub fn under(&mut self, lease: &Lease) {
        self.lease = lease.holder.number;
    }

    /// Adds an operation; those on one server are done in their order.
    pub fn push(&mut self, operation: &Operation<'_>) {
        let Parts { full, last, last_count, last_node } = self.servers.or_default(operation.node.server);
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

    /// Whether there is more than goes into one message.
    pub fn has_full_part(&self) -> bool {
        self.servers.values().any(|parts| !parts.full.is_empty() || parts.last.len() > PART_BYTES)
    }

    /// Its parts at each server, for one who sends them before the commit.
    pub fn into_parts(self) -> impl Iterator<Item = (ServerId, Vec<u8>)> {
        self.servers.into_iter().flat_map(|(server, parts)| {
            parts.full.into_iter().chain([parts.last]).map(move |part| (server, part))
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}
