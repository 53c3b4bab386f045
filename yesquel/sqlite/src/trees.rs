//! Access of tools to the trees of a database: their costs and their structure.

use crate::size::DatabaseSize;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use yesquel::{Database, Error, Map, MapCopies, ServerId, TreeId, status::TreeNodes};

/// Root page of the schema table.
pub(crate) const SCHEMA_ROOT: u32 = 1;

/// Prefix of the names of the maps of tables and indexes.
const MAP_PREFIX: &str = "sql/";

/// Returns the name of the map of a root page.
pub(crate) fn map_name(root: u64) -> String {
    format!("{MAP_PREFIX}{root}")
}

/// Returns the root page of a map; `None` if it is not that of a table or index.
pub(crate) fn root_of(map_name: &str) -> Option<u32> {
    map_name.strip_prefix(MAP_PREFIX)?.parse().ok()
}

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

    /// Returns the map of a root page. Fails with [`Error::NoMap`] if there is none.
    pub fn map(&self, root: u32) -> Result<Map, Error> {
        let number = u64::from(root);
        let found = match self.database.groups() {
            _ if root == SCHEMA_ROOT => Some(self.schema),
            [_] => self.schema.with_number(number),
            _ => {
                let name = map_name(number);
                match self.database.cached_map(&name) {
                    None => self.database.existing_map(&name)?,
                    found => found,
                }
            }
        };
        found.ok_or(Error::NoMap(TreeId::new(number).unwrap_or_default()))
    }

    /// Returns the nodes of the tree with a root page.
    pub fn nodes(&self, root: u32) -> Result<TreeNodes, Error> {
        self.database.store().nodes(self.map(root)?)
    }

    /// Returns the number of bytes of all keys and values, and of tables and indexes.
    pub(crate) fn size(&self, cookies: &MapCopies) -> Result<DatabaseSize, Error> {
        let maps = self.database.known_maps()?;
        let own: FxHashSet<u64> = maps.iter().map(|(_, map)| map.tree()).collect();
        let groups: BTreeSet<ServerId> = maps.iter().map(|(_, map)| map.group()).collect();
        let mut bytes = 0;
        for group in groups {
            let status = self.database.store().status_of(group)?;
            let here = status.trees.iter().filter(|tree| own.contains(&tree.tree));
            bytes += here.map(|tree| tree.bytes).sum::<u64>();
        }
        // The tree of meta values is a part of SQLite's first page; a file without tables has none.
        let is_table = |map: &Map| *map != self.schema && !cookies.all().contains(map);
        let tables = maps.iter().filter(|(_, map)| is_table(map)).count() as u64;
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
