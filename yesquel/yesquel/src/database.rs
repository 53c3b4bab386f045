//! Databases, their maps, and transactions over them.

use crate::{
    Error, Transaction, any::Any, catalog::Catalog, identity::Identity, lease::writing, store::Store,
};
use std::{
    collections::HashMap,
    fmt,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use yesquel_model::{LocalId, NodeId, Refusal, Timestamp, TreeId};
use yesquel_transport::block_on;
use yesquel_tree::{Tree, Trees};

/// An ordered map: bytes by bytes, in the order of bytes. It is a name for
/// one, and costs nothing to copy. It is good for the [`Store`] that it was got
/// from and others by way of the same [`Host`](crate::Host) or at the same
/// address; with another one operations fail with [`Error::OtherStore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Map {
    pub(crate) tree: Tree,
    pub(crate) store: Identity,
}

impl Map {
    /// The number of its tree, by which a server's status tells of it.
    pub fn tree(&self) -> u64 {
        self.tree.root().tree.number()
    }
}

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

/// Times that [`Database::run`] begins again.
const RUNS_MAX: usize = 100;

impl Database {
    pub(crate) fn new(store: Store, name: &str) -> Database {
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

    pub(crate) fn trees(&self) -> &Trees<Any> {
        &self.store.inner.trees
    }

    pub(crate) fn catalog(&self) -> Catalog<'_> {
        Catalog { trees: self.trees(), server: self.store.inner.server }
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

    /// Begins a transaction. Nothing is asked of a server.
    pub fn begin(&self) -> Transaction<'_> {
        Transaction::new(self)
    }

    /// Runs what a transaction does and commits it; begins again, up to 100
    /// times, when another transaction was first, and waits up to five seconds
    /// for [leases](crate::Lease). Returns what it returned. An error rolls it
    /// back.
    pub fn run<T>(&self, mut act: impl FnMut(&mut Transaction<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.try_run(|transaction| {
            act(transaction).inspect_err(|error| {
                // It may have been told so by another transaction.
                transaction.lost_to = transaction.lost_to.or(error.lost_to());
            })
        })
    }

    /// The same for what fails with errors of its own, which roll it back.
    ///
    /// It begins again after the commit or an operation has said that another
    /// transaction was first, whatever the closure has made of that.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// #[derive(Debug, PartialEq)]
    /// enum Failure {
    ///     NotEnough { there: u8 },
    ///     Yesquel(String),
    /// }
    ///
    /// impl From<yesquel::Error> for Failure {
    ///     fn from(error: yesquel::Error) -> Failure {
    ///         Failure::Yesquel(error.to_string())
    ///     }
    /// }
    ///
    /// let database = yesquel::Store::in_memory()?.create_database("shop")?;
    /// let (stock, orders) = (database.map("stock")?, database.map("orders")?);
    /// database.put(stock, b"apples", &[3])?;
    /// let order = |count: u8| {
    ///     database.try_run(|transaction| {
    ///         transaction.put(orders, b"apples", &[count])?;
    ///         let there = transaction.get(stock, b"apples")?.map_or(0, |value| value[0]);
    ///         // What was written above is taken back.
    ///         let rest = there.checked_sub(count).ok_or(Failure::NotEnough { there })?;
    ///         transaction.put(stock, b"apples", &[rest])?;
    ///         Ok(rest)
    ///     })
    /// };
    /// assert_eq!(order(7), Err(Failure::NotEnough { there: 3 }));
    /// assert_eq!(database.get(orders, b"apples")?, None);
    /// assert_eq!(order(2), Ok(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_run<T, E: From<Error>>(
        &self,
        mut act: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut attempts = 0;
        loop {
            // The outer result says whether to begin again, and how.
            let outcome = writing(|| {
                let mut transaction = self.begin();
                let own = match act(&mut transaction) {
                    Ok(result) => return transaction.commit().map(|_| Ok(result)),
                    Err(own) => own,
                };
                let lost_to = transaction.lost_to;
                transaction.rollback();
                lost_to.map_or(Ok(Err(own)), |refusal| Err(refusal.into()))
            });
            match outcome {
                Ok(done) => return done,
                Err(error) if error.is_retryable() && attempts < RUNS_MAX => attempts += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The value under a key, in a transaction of its own.
    pub fn get(&self, map: Map, key: &[u8]) -> Result<Option<Box<[u8]>>, Error> {
        self.told(block_on(self.trees().get(self.store.tree_of(map)?, key)))
    }

    /// Writes a value under a key, in a transaction of its own. Returns when
    /// it happened. Waits up to five seconds for [leases](crate::Lease).
    pub fn put(&self, map: Map, key: &[u8], value: &[u8]) -> Result<Timestamp, Error> {
        writing(|| {
            let mut transaction = self.begin();
            transaction.put(map, key, value)?;
            transaction.commit()
        })
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
