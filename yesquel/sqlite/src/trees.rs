//! Access of tools to the trees of a database: their costs and their structure.

use yesquel::{Database, Error, Map, status::TreeNodes};

/// Requests and searches of all connections of the process at a store. Monotonic counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TreeCosts {
    /// Requests to servers.
    pub requests: u64,
    /// Number of waits for one or several requests; each is a round trip if the server is in
    /// another process.
    pub round_trips: u64,
    /// Bytes of the requests.
    pub bytes_sent: u64,
    /// Bytes of the replies.
    pub bytes_received: u64,
    /// Searches in trees.
    pub searches: u64,
    /// Inner nodes fetched because they were not cached.
    pub fetches: u64,
}

/// Trees of a database that a connection has opened.
#[derive(Debug, Clone)]
pub struct DatabaseTrees {
    database: Database,
    schema: Map,
}

impl DatabaseTrees {
    pub(crate) fn new(database: Database, schema: Map) -> DatabaseTrees {
        DatabaseTrees { database, schema }
    }

    /// Returns the costs at its store so far.
    pub fn costs(&self) -> TreeCosts {
        let store = self.database.store();
        let (sent, searches) = (store.sent(), store.searches());
        TreeCosts {
            requests: sent.requests,
            round_trips: sent.requests - sent.overlapping,
            bytes_sent: sent.bytes_sent,
            bytes_received: sent.bytes_received,
            searches: searches.searches,
            fetches: searches.root_fetches + searches.inner_fetches,
        }
    }

    /// Returns the nodes of the tree with a root page.
    pub fn nodes(&self, root: u32) -> Result<TreeNodes, Error> {
        let map = if root == 1 { Some(self.schema) } else { self.database.map_by_number(u64::from(root)) };
        self.database.store().nodes(map.unwrap_or(self.schema))
    }

    /// Returns the number of bytes of all keys and values.
    pub fn size(&self) -> Result<u64, Error> {
        let mut size = 0;
        for (_, map) in self.database.maps()? {
            let leaves = self.database.store().nodes(map)?.nodes;
            size += leaves.iter().filter(|node| node.leaf).map(|node| node.bytes).sum::<u64>();
        }
        Ok(size)
    }

    /// Returns the database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Returns whether both are at one store, which counts their costs together.
    pub fn shares_store(&self, other: &DatabaseTrees) -> bool {
        self.database.store().is(other.database.store())
    }
}
