//! Databases, their maps, and transactions over them.

use crate::{Error, Map, Store, any_transport::AnyTransport, catalog::Catalog};
use std::{
    collections::HashMap,
    fmt,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use yesquel_model::{LocalId, NodeId, Refusal, TreeId};
use yesquel_transport::block_on;
use yesquel_tree::{Tree, Trees};

/// A database: maps by name. Clones are the same one; threads may share it.
///
/// It goes by its name: after another client has dropped it and made it anew,
/// this is the new one. Maps that are remembered are forgotten when one is told
/// [`Error::NoMap`]: ask for them again.
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
    maps: Arc<Mutex<HashMap<String, Map>>>,
}

impl Database {
    fn new(store: Store, name: &str) -> Database {
        Database { store, name: name.into(), maps: Arc::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
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

    /// The map of a name, which is made if it is not there. It is remembered:
    /// asking again asks no server.
    pub fn map(&self, name: &str) -> Result<Map, Error> {
        if let Some(map) = self.known().get(name) {
            return Ok(*map);
        }
        let tree = block_on(self.catalog().create_map(&self.name, name))?;
        let map = self.store.map_of(tree);
        self.known().insert(name.to_owned(), map);
        Ok(map)
    }

    /// The map of a name, if it is there.
    pub fn existing_map(&self, name: &str) -> Result<Option<Map>, Error> {
        Ok(block_on(self.catalog().map(&self.name, name))?.map(|tree| self.store.map_of(tree)))
    }

    /// The map with a number that [`Map::tree`] has told, here or in another
    /// process. Nothing is asked: of one that is not there operations say so.
    pub fn map_by_number(&self, number: u64) -> Option<Map> {
        let tree = TreeId::new(number)?;
        Some(self.store.map_of(Tree::at(NodeId::root(tree, self.store.inner.server))))
    }

    /// Its maps, by name in order.
    pub fn maps(&self) -> Result<Vec<(String, Map)>, Error> {
        let all = block_on(self.catalog().maps(&self.name))?;
        Ok(all.into_iter().map(|(name, tree)| (name, self.store.map_of(tree))).collect())
    }

    /// Takes a map away, with all that is in it; whether it was there.
    /// Whoever writes to it afterwards is told [`Error::NoMap`].
    pub fn drop_map(&self, name: &str) -> Result<bool, Error> {
        self.known().remove(name);
        block_on(self.catalog().drop_map(&self.name, name))
    }

    /// Notes what an operation has told: a map that is not there any more may
    /// have been made anew, and is to be found.
    pub(crate) fn told<T>(&self, outcome: Result<T, impl Into<Error>>) -> Result<T, Error> {
        outcome.map_err(|error| {
            let error = error.into();
            if let Error::NoMap(gone) = &error {
                self.known().retain(|_, map| map.tree.root().tree != *gone);
            }
            error
        })
    }

    /// The value under a key, in a transaction of its own.
    pub fn get(&self, map: Map, key: &[u8]) -> Result<Option<Box<[u8]>>, Error> {
        self.told(block_on(self.trees().get(self.store.tree_of(map)?, key)))
    }

    /// Numbers of a counter of a map that nobody else gets, above `above`; of
    /// none, where the next would begin. A map has as many counters as are named;
    /// they go on whatever becomes of transactions, and survive the server.
    pub fn numbers(&self, map: Map, counter: u64, count: u64, above: u64) -> Result<Range<u64>, Error> {
        let node = NodeId { local: LocalId(counter.max(1)), ..self.store.tree_of(map)?.root() };
        numbers_of(block_on(self.trees().client().take(node, count, above)), count)
    }

    /// The same, asked for at once and waited for later: beside what is read
    /// meanwhile it costs no round trip of its own.
    pub fn numbers_beside(
        &self,
        map: Map,
        counter: u64,
        count: u64,
        above: u64,
    ) -> Result<Numbers<'_>, Error> {
        let node = NodeId { local: LocalId(counter.max(1)), ..self.store.tree_of(map)?.root() };
        let reply = Box::pin(self.trees().client().take_beside(node, count, above));
        Ok(Numbers { count, reply })
    }

    /// Numbers for new rows of a map, all above `above`, that nobody else gets:
    /// a counter at the server, from one on. Whoever asks for many at a time
    /// asks seldom; those that he does not use are used by nobody. Fails with
    /// [`Error::NoRowIds`], and gives out nothing, if they would be above
    /// `u64::MAX`.
    pub fn row_ids(&self, map: Map, count: u64, above: u64) -> Result<Range<u64>, Error> {
        let root = self.store.tree_of(map)?.root();
        match block_on(self.trees().client().take(root, count, above)) {
            Ok(first) => Ok(first..first.checked_add(count).ok_or(Error::NoRowIds)?),
            Err(yesquel_client::Error::Refused(Refusal::Unfit(_))) => Err(Error::NoRowIds),
            Err(yesquel_client::Error::Refused(Refusal::Moved(_))) => self.told(Err(Error::NoMap(root.tree))),
            Err(error) => Err(error.into()),
        }
    }
}

impl Store {
    fn catalog(&self) -> Catalog<'_> {
        Catalog { trees: &self.inner.trees, server: self.inner.server }
    }

    /// The names of the databases, in order.
    pub fn databases(&self) -> Result<Vec<String>, Error> {
        block_on(self.catalog().databases())
    }

    /// Makes a database. Its name is text of up to [`NAME_BYTES_MAX`] bytes
    /// without control characters and `/`; those of maps may have a `/`.
    ///
    /// [`NAME_BYTES_MAX`]: crate::NAME_BYTES_MAX
    pub fn create_database(&self, name: &str) -> Result<Database, Error> {
        block_on(self.catalog().create_database(name))?;
        Ok(Database::new(self.clone(), name))
    }

    /// A database.
    pub fn database(&self, name: &str) -> Result<Database, Error> {
        block_on(self.catalog().database(name))?;
        Ok(Database::new(self.clone(), name))
    }

    /// A database, which is made if it is not there.
    pub fn database_or_create(&self, name: &str) -> Result<Database, Error> {
        match self.database(name) {
            Err(Error::NoDatabase(_)) => match self.create_database(name) {
                Err(Error::DatabaseExists(_)) => self.database(name),
                made => made,
            },
            found => found,
        }
    }

    /// Takes a database away, with all its maps.
    pub fn drop_database(&self, name: &str) -> Result<(), Error> {
        block_on(self.catalog().drop_database(name))
    }
}

/// Numbers that were asked for, [`Database::numbers_beside`]. Those that are not
/// waited for are used by nobody.
pub struct Numbers<'a> {
    count: u64,
    reply: Pin<Box<dyn Future<Output = Result<u64, yesquel_client::Error>> + Send + 'a>>,
}

impl fmt::Debug for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Numbers<'_> {
    /// Them, once they have come. They are not asked for again if the connection
    /// was lost.
    pub fn wait(self) -> Result<Range<u64>, Error> {
        numbers_of(block_on(self.reply), self.count)
    }
}

/// What a counter has given.
fn numbers_of(first: Result<u64, yesquel_client::Error>, count: u64) -> Result<Range<u64>, Error> {
    match first {
        Ok(first) => Ok(first..first.checked_add(count).ok_or(Error::NoRowIds)?),
        Err(yesquel_client::Error::Refused(Refusal::Unfit(_))) => Err(Error::NoRowIds),
        Err(error) => Err(error.into()),
    }
}
