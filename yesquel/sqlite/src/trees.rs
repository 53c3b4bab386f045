//! What tools ask of the trees of a database beside SQL: what they have cost,
//! and how they look.

use yesquel::{Database, Error, Map, status::TreeNodes};

/// What a store was asked so far, by all connections of the process that share
/// it. Counts only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Costs {
    /// Requests to servers.
    pub requests: u64,
    /// How often they were waited for, one or several at a time; where the server is
    /// not in this process, each is a round trip.
    pub round_trips: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// Bytes of what was answered.
    pub bytes_received: u64,
    /// Searches in trees.
    pub searches: u64,
    /// Inner nodes that were fetched for them, because the cache did not have
    /// them.
    pub fetches: u64,
}

/// The trees of a database that a connection has open.
#[derive(Debug, Clone)]
pub struct Trees {
    database: Database,
    schema: Map,
}

impl Trees {
    pub(crate) fn new(database: Database, schema: Map) -> Trees {
        Trees { database, schema }
    }

    /// What its store was asked so far.
    pub fn costs(&self) -> Costs {
        let store = self.database.store();
        let (sent, searches) = (store.sent(), store.searches());
        Costs {
            requests: sent.requests,
            round_trips: sent.requests - sent.beside,
            bytes_sent: sent.bytes_sent,
            bytes_received: sent.bytes_received,
            searches: searches.searches,
            fetches: searches.root_fetches + searches.inner_fetches,
        }
    }

    /// The nodes of the tree that a root page stands for.
    pub fn nodes(&self, root: u32) -> Result<TreeNodes, Error> {
        let map = if root == 1 { Some(self.schema) } else { self.database.map_by_number(u64::from(root)) };
        self.database.store().nodes(map.unwrap_or(self.schema))
    }

    /// Bytes of all keys and values.
    pub fn size(&self) -> Result<u64, Error> {
        let mut size = 0;
        for (_, map) in self.database.maps()? {
            let leaves = self.database.store().nodes(map)?.nodes;
            size += leaves.iter().filter(|node| node.leaf).map(|node| node.bytes).sum::<u64>();
        }
        Ok(size)
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Whether both are at one store, whose costs they have together.
    pub fn is_beside(&self, other: &Trees) -> bool {
        self.database.store().is(other.database.store())
    }
}
