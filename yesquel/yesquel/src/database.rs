//! Databases and their maps.

use crate::{
    Error, Map, Placement, Store,
    any_transport::AnyTransport,
    catalog::{Catalog, OpenedDatabase},
    name_knowledge::NameSource,
};
use std::{
    collections::HashMap,
    fmt,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use yesquel_model::{LocalId, NodeId, Refusal, ServerId};
use yesquel_transport::block_on;
use yesquel_tree::{Tree, Trees};

/// Database: maps by name. Clones share it, also between threads.
///
/// It is identified by its name: after another client has dropped and created it again, this is the
/// new one. Cached maps are forgotten when an operation fails with [`Error::NoMap`]; request them
/// again then.
///
/// ```
/// # fn main() -> Result<(), yesquel::Error> {
/// let database = yesquel::Store::in_memory()?.create_database("shop")?;
/// let stock = database.map("stock")?;
/// database.run(|transaction| {
///     transaction.put(stock, b"apples", b"7")?;
///     transaction.put(stock, b"pears", b"3")
/// })?;
/// let mut transaction = database.begin();
/// assert_eq!(transaction.get(stock, b"apples")?.as_deref(), Some(&b"7"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Database {
    store: Store,
    name: Arc<str>,
    groups: Arc<[ServerId]>,
    /// Where they were read.
    source: NameSource,
    maps: Arc<Mutex<HashMap<String, Map>>>,
}

impl Database {
    fn new(store: Store, name: &str, groups: Vec<ServerId>, source: NameSource) -> Database {
        Database { store, name: name.into(), groups: groups.into(), source, maps: Arc::default() }
    }

    /// Returns whether the handle comes from a copy of the names at another machine, because the home
    /// group could not be reached. It may lack changes of the last seconds before that.
    pub fn is_from_copy(&self) -> bool {
        self.source == NameSource::Copy
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the groups at which its maps are created, as they were when this handle was made.
    /// [Others](crate::Transaction::add_groups) may have joined since.
    pub fn groups(&self) -> &[ServerId] {
        &self.groups
    }

    /// Returns the store that holds the database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn trees(&self) -> &Trees<AnyTransport> {
        &self.store.inner.trees
    }

    pub(crate) fn catalog(&self) -> Catalog<'_> {
        self.store.catalog()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Map>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the map of a name; creates it if it does not exist. The result is cached: a second
    /// call asks no server.
    pub fn map(&self, name: &str) -> Result<Map, Error> {
        if let Some(map) = self.known().get(name) {
            return Ok(*map);
        }
        let map = match self.create_map(name) {
            // It may exist.
            Err(error @ Error::HomeGroupUnreachable(_)) => self.existing_map(name)?.ok_or(error)?,
            created => created?,
        };
        self.known().insert(name.to_owned(), map);
        Ok(map)
    }

    fn create_map(&self, name: &str) -> Result<Map, Error> {
        if self.is_from_copy()
            && let Some(map) = self.existing_map(name)?
        {
            return Ok(map);
        }
        let tree = block_on(self.catalog().create_map(&self.name, name))?;
        Ok(self.store.map_of(tree))
    }

    /// Returns the maps of some names, which differ. Creates those that do not exist in one
    /// transaction, at the given groups.
    pub fn maps_at(&self, maps: &[(&str, ServerId)]) -> Result<Vec<Map>, Error> {
        let maps: Vec<_> = maps.iter().map(|(name, group)| (*name, Some(*group))).collect();
        let trees = block_on(self.catalog().create_maps(&self.name, Some(&self.groups), &maps))?;
        self.remember(maps.iter().map(|(name, _)| (*name).to_owned()).zip(trees.iter().copied()));
        Ok(trees.into_iter().map(|tree| self.store.map_of(tree)).collect())
    }

    /// Returns the map of a name if this handle has found it before, without asking a server.
    pub fn cached_map(&self, name: &str) -> Option<Map> {
        self.known().get(name).copied()
    }

    /// Caches maps.
    pub(crate) fn remember(&self, maps: impl IntoIterator<Item = (String, Tree)>) {
        self.known().extend(maps.into_iter().map(|(name, tree)| (name, self.store.map_of(tree))));
    }

    /// Returns the map of a name, if it exists. While the home group cannot be reached, it finds maps that
    /// another machine has a copy of, and fails for others.
    pub fn existing_map(&self, name: &str) -> Result<Option<Map>, Error> {
        let read = async |catalog: Catalog<'_>| catalog.map(&self.name, name).await;
        let (found, _) = self.store.read_names(read, Option::is_some)?;
        Ok(found.map(|tree| self.store.map_of(tree)))
    }

    /// Returns the maps that are known, by name: all, or while the home group cannot be reached those in
    /// the copy of another machine, which may lack the newest.
    pub fn known_maps(&self) -> Result<Vec<(String, Map)>, Error> {
        let read = async |catalog: Catalog<'_>| catalog.maps(&self.name).await;
        let (all, _) = self.store.read_names(read, |_| true)?;
        Ok(all.into_iter().map(|(name, tree)| (name, self.store.map_of(tree))).collect())
    }

    /// Returns the maps, in order of their names.
    pub fn maps(&self) -> Result<Vec<(String, Map)>, Error> {
        let all = block_on(self.catalog().maps(&self.name))?;
        Ok(all.into_iter().map(|(name, tree)| (name, self.store.map_of(tree))).collect())
    }

    /// Drops a map with its content; returns whether it existed. Later writes to it fail with
    /// [`Error::NoMap`].
    pub fn drop_map(&self, name: &str) -> Result<bool, Error> {
        self.known().remove(name);
        block_on(self.catalog().drop_map(&self.name, name))
    }

    /// Converts the result of an operation. A missing map is dropped from the cache, for it may
    /// exist again under another number.
    pub(crate) fn checked<T>(&self, outcome: Result<T, impl Into<Error>>) -> Result<T, Error> {
        outcome.map_err(|error| {
            let error = error.into();
            if let Error::NoMap(gone) = &error {
                self.known().retain(|_, map| map.tree.root().tree != *gone);
            }
            error
        })
    }

    /// Returns the value of a key, in a transaction of its own.
    pub fn get(&self, map: Map, key: &[u8]) -> Result<Option<Box<[u8]>>, Error> {
        self.checked(block_on(self.trees().get(self.store.tree_of(map)?, key)))
    }

    /// Takes `count` consecutive, unique numbers above `above` from a counter of a map; with
    /// `count` 0, returns where the next would begin. A map has any number of counters, which exist
    /// independently of transactions and survive a restart of the server.
    pub fn numbers(&self, map: Map, counter: u64, count: u64, above: u64) -> Result<Range<u64>, Error> {
        let node = NodeId { local: LocalId(counter.max(1)), ..self.store.tree_of(map)?.root() };
        numbers_of(block_on(self.trees().client().take(node, count, above)), count)
    }

    /// Like [`numbers`](Self::numbers), requested at once and awaited later, so that it overlaps
    /// other requests.
    pub fn numbers_unordered(
        &self,
        map: Map,
        counter: u64,
        count: u64,
        above: u64,
    ) -> Result<PendingNumbers<'_>, Error> {
        let node = NodeId { local: LocalId(counter.max(1)), ..self.store.tree_of(map)?.root() };
        let reply = Box::pin(self.trees().client().take_unordered(node, count, above));
        Ok(PendingNumbers { count, reply })
    }

    /// Takes `count` consecutive, unique row numbers above `above` from a counter at the server
    /// that begins at one. Unused numbers are lost; a caller with many rows should take many at a
    /// time. Fails with [`Error::NoRowIds`], without effect, if the numbers would exceed
    /// `u64::MAX`.
    pub fn row_ids(&self, map: Map, count: u64, above: u64) -> Result<Range<u64>, Error> {
        let root = self.store.tree_of(map)?.root();
        match block_on(self.trees().client().take(root, count, above)) {
            Ok(first) => Ok(first..first.checked_add(count).ok_or(Error::NoRowIds)?),
            Err(yesquel_client::RequestError::Refused(Refusal::Unfit(_))) => Err(Error::NoRowIds),
            Err(yesquel_client::RequestError::Refused(Refusal::Moved(_))) => {
                self.checked(Err(Error::NoMap(root.tree)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Store {
    pub(crate) fn catalog(&self) -> Catalog<'_> {
        Catalog::new(&self.inner.trees, self.home_group()).noting_changes(&self.inner.names.changed)
    }

    /// Returns the names of the databases, in order.
    pub fn databases(&self) -> Result<Vec<String>, Error> {
        block_on(self.catalog().databases())
    }

    /// Creates a database. Its name is text of up to [`NAME_BYTES_MAX`] bytes without control
    /// characters and `/`. Names of maps may contain `/`.
    ///
    /// [`NAME_BYTES_MAX`]: crate::NAME_BYTES_MAX
    pub fn create_database(&self, name: &str) -> Result<Database, Error> {
        self.create_database_at(name, &Placement::default())
    }

    /// Like [`create_database`](Self::create_database), with a choice of the groups at which the
    /// maps of the database are created.
    pub fn create_database_at(&self, name: &str, placement: &Placement) -> Result<Database, Error> {
        let groups = self.place(placement)?;
        block_on(self.catalog().create_database(name, groups.clone()))?;
        Ok(Database::new(self.clone(), name, groups, NameSource::Home))
    }

    /// Returns a database, which must exist. While the home group cannot be reached, its entry is read
    /// in the copy of another machine.
    pub fn database(&self, name: &str) -> Result<Database, Error> {
        let read = async |catalog: Catalog<'_>| catalog.groups(name).await;
        let (groups, source) = self.read_names(read, |_| true)?;
        Ok(Database::new(self.clone(), name, groups, source))
    }

    /// Returns a database, which must exist, and maps of it, as far as they exist. This costs fewer
    /// round trips than one call for each. All maps of a database with several groups are
    /// [cached](Database::cached_map).
    ///
    /// While the home group cannot be reached, the copy of another machine is read. It fails then if the
    /// copy does not have all of the maps, because others may exist.
    pub fn database_with_maps<const N: usize>(
        &self,
        name: &str,
        maps: [&str; N],
    ) -> Result<(Database, [Option<Map>; N]), Error> {
        self.database_with_groups(name, maps, 0)
    }

    /// Like [`database_with_maps`](Self::database_with_maps), for a caller that knows that the database
    /// has so many groups at least: a copy that has fewer is too old.
    pub fn database_with_groups<const N: usize>(
        &self,
        name: &str,
        maps: [&str; N],
        groups_min: usize,
    ) -> Result<(Database, [Option<Map>; N]), Error> {
        let read = async |catalog: Catalog<'_>| catalog.open(name, maps).await;
        let has_all = |opened: &OpenedDatabase<N>| {
            opened.maps.iter().all(Option::is_some) && opened.groups.len() >= groups_min
        };
        let (OpenedDatabase { groups, maps, all }, source) = self.read_names(read, has_all)?;
        let database = Database::new(self.clone(), name, groups, source);
        database.remember(all);
        Ok((database, maps.map(|tree| tree.map(|tree| self.map_of(tree)))))
    }

    /// Returns a database; creates it if it does not exist.
    pub fn database_or_create(&self, name: &str) -> Result<Database, Error> {
        self.database_or_create_at(name, &Placement::default())
    }

    /// Like [`database_or_create`](Self::database_or_create), with a choice of the groups at which
    /// the maps of a new database are created.
    pub fn database_or_create_at(&self, name: &str, placement: &Placement) -> Result<Database, Error> {
        match self.database(name) {
            Err(Error::NoDatabase(_)) => match self.create_database_at(name, placement) {
                Err(Error::DatabaseExists(_)) => self.database(name),
                made => made,
            },
            found => found,
        }
    }

    /// Drops a database with all its maps.
    pub fn drop_database(&self, name: &str) -> Result<(), Error> {
        block_on(self.catalog().drop_database(name))
    }
}

/// Numbers requested by [`Database::numbers_unordered`]. If they are not awaited they are lost.
pub struct PendingNumbers<'a> {
    count: u64,
    reply: Pin<Box<dyn Future<Output = Result<u64, yesquel_client::RequestError>> + Send + 'a>>,
}

impl fmt::Debug for PendingNumbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingNumbers").field("count", &self.count).finish_non_exhaustive()
    }
}

impl PendingNumbers<'_> {
    /// Waits for the numbers. The request is not repeated if the connection was lost.
    pub fn wait(self) -> Result<Range<u64>, Error> {
        numbers_of(block_on(self.reply), self.count)
    }
}

/// Converts the reply of a counter.
fn numbers_of(first: Result<u64, yesquel_client::RequestError>, count: u64) -> Result<Range<u64>, Error> {
    match first {
        Ok(first) => Ok(first..first.checked_add(count).ok_or(Error::NoRowIds)?),
        Err(yesquel_client::RequestError::Refused(Refusal::Unfit(_))) => Err(Error::NoRowIds),
        Err(error) => Err(error.into()),
    }
}
