//! Access of tools to the trees of a database: their costs and their structure.

use crate::size::DatabaseSize;
use rustc_hash::FxHashSet;
use yesquel::{Database, Error, Map, status::TreeNodes};

/// Root page of the schema table.
const SCHEMA_ROOT: u32 = 1;

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

    /// Returns the map of a root page; `None` if no map can have the number.
    pub fn map(&self, root: u32) -> Option<Map> {
        if root == SCHEMA_ROOT { Some(self.schema) } else { self.schema.with_number(u64::from(root)) }
    }

    /// Returns the nodes of the tree with a root page.
    pub fn nodes(&self, root: u32) -> Result<TreeNodes, Error> {
        self.database.store().nodes(self.map(root).unwrap_or(self.schema))
    }

    /// Returns the number of bytes of all keys and values, and of tables and indexes.
    pub(crate) fn size(&self, cookies: Map) -> Result<DatabaseSize, Error> {
        let maps = self.database.maps()?;
        let own: FxHashSet<u64> = maps.iter().map(|(_, map)| map.tree()).collect();
        let status = self.database.store().status_of(self.schema.group())?;
        let bytes = status.trees.iter().filter(|tree| own.contains(&tree.tree)).map(|tree| tree.bytes).sum();
        // The tree of meta values is a part of SQLite's first page; a file without tables has none.
        let tables = maps.iter().filter(|(_, map)| *map != self.schema && *map != cookies).count() as u64;
        Ok(DatabaseSize { bytes, trees: tables + u64::from(tables > 0) })
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
