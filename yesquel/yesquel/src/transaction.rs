//! Transactions and cursors, for threads that wait.

use crate::{Database, Error, Map, any_transport::AnyTransport, range::range_of};
use std::ops::RangeBounds;
use yesquel_client::CommitError;
use yesquel_model::{Key, KeyRange, Refusal, Timestamp};
use yesquel_transport::block_on;
use yesquel_tree::{Tree, TreeError};

pub use yesquel_tree::{Proof, Savepoint};

/// A key and its value.
pub type Entry = (Key, Box<[u8]>);

/// A transaction: snapshot isolation, and guards for what must be more.
///
/// What it reads is all of one moment, that of its first read, and its own
/// writes. What it writes is gathered here and sent by
/// [`commit`](Self::commit); dropping it rolls it back.
#[derive(Debug)]
pub struct Transaction<'a> {
    database: &'a Database,
    /// What an operation was refused for, if one was after which only a new
    /// transaction can be committed.
    pub(crate) lost_to: Option<Refusal>,
    /// It was to write to a map of another store, and could not say so.
    is_misused: bool,
    pub(crate) inner: yesquel_tree::Transaction<'a, AnyTransport>,
}

impl Database {
    /// Begins a transaction. Nothing is asked of a server.
    pub fn begin(&self) -> Transaction<'_> {
        Transaction::new(self)
    }
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(database: &'a Database) -> Transaction<'a> {
        Transaction { database, lost_to: None, is_misused: false, inner: database.trees().begin() }
    }

    /// What an operation has told.
    fn told<T>(&mut self, outcome: Result<T, TreeError>) -> Result<T, Error> {
        let outcome = self.database.told(outcome);
        self.lost_to = self.lost_to.or(outcome.as_ref().err().and_then(Error::lost_to));
        outcome
    }

    fn tree_of(&self, map: Map) -> Result<Tree, Error> {
        self.database.store().tree_of(map)
    }

    /// The moment that it reads, once it has read something.
    pub fn snapshot(&self) -> Option<Timestamp> {
        self.inner.snapshot()
    }

    /// The value under a key. One round trip, none if the transaction has
    /// written the key or read its neighbourhood.
    pub fn get(&mut self, map: Map, key: &[u8]) -> Result<Option<Box<[u8]>>, Error> {
        let tree = self.tree_of(map)?;
        let outcome = block_on(self.inner.get(tree, key));
        self.told(outcome)
    }

    /// The same for one who will ask for its neighbours too: they are read with
    /// it, and cost no round trip then.
    pub fn get_near(&mut self, map: Map, key: &[u8]) -> Result<Option<Box<[u8]>>, Error> {
        let tree = self.tree_of(map)?;
        let outcome = block_on(self.inner.get_near(tree, key));
        self.told(outcome)
    }

    /// Of what it reads it keeps so many bytes for its next reads, and never fewer
    /// than 16 MiB. Beyond that all goes, and it gathers anew.
    pub fn keep_up_to(&mut self, bytes: usize) {
        self.inner.keep_up_to(bytes);
    }

    /// How often it has read what it had not read before.
    pub fn asked(&self) -> u64 {
        self.inner.asked()
    }

    /// Writes a value under a key, whatever is there.
    pub fn put(&mut self, map: Map, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let tree = self.tree_of(map)?;
        let outcome = self.inner.put(tree, key, value);
        self.told(outcome)?;
        self.send_much()
    }

    /// Inserts a key that must not be there; that it is not is found out by
    /// the commit, if not before.
    pub fn insert(&mut self, map: Map, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let tree = self.tree_of(map)?;
        if self.inner.may_have_sent(tree, key) {
            let outcome = block_on(self.inner.get(tree, key));
            if self.told(outcome)?.is_some() {
                return Err(Error::Exists);
            }
        }
        let outcome = self.inner.insert(tree, key, value);
        self.told(outcome)?;
        self.send_much()
    }

    /// Sends ahead of the commit what was gathered for maps that it makes, if it
    /// is much.
    #[inline]
    fn send_much(&mut self) -> Result<(), Error> {
        if self.inner.is_much() { self.send_ahead() } else { Ok(()) }
    }

    #[cold]
    fn send_ahead(&mut self) -> Result<(), Error> {
        if self.inner.is_first() {
            // What others have left there is in the way of nobody, and taken away
            // by those who leave something there themselves.
            let _ = block_on(self.database.catalog().sweep());
        }
        let outcome = block_on(self.inner.send_ahead());
        self.told(outcome)
    }

    /// Deletes a key, if it is there.
    pub fn delete(&mut self, map: Map, key: &[u8]) -> Result<(), Error> {
        let tree = self.tree_of(map)?;
        let outcome = self.inner.delete(tree, key);
        self.told(outcome)?;
        self.send_much()
    }

    /// Deletes all keys of a range. Of a map of another store it deletes none,
    /// and the commit fails.
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, map: Map, range: impl RangeBounds<K>) {
        match self.tree_of(map) {
            Ok(tree) => self.inner.delete_range(tree, &range_of(&range)),
            Err(_) => self.is_misused = true,
        }
    }

    /// What was read in a range must still be so at the commit: whoever
    /// changes it meanwhile loses, or this transaction does. With a map of
    /// another store the commit fails.
    pub fn guard<K: AsRef<[u8]>>(&mut self, map: Map, range: impl RangeBounds<K>) {
        match self.tree_of(map) {
            Ok(tree) => self.inner.guard(tree, range_of(&range)),
            Err(_) => self.is_misused = true,
        }
    }

    /// What stands under a key, if it was told of with an entry that refers to it
    /// ([`Cursor::follow`]), and the transaction has not written there; nobody is
    /// asked.
    pub fn told_of(&self, map: Map, key: &[u8]) -> Option<Box<[u8]>> {
        self.inner.told_of(self.tree_of(map).ok()?, key)
    }

    /// Has it proved that a key of a map has a value; empty is also that there is
    /// none. It is asked beside what is read next, and costs no round trip. If it
    /// is not so, what is in `other` comes with the answer, if that is not much.
    pub fn prove(&mut self, map: Map, key: &[u8], value: &[u8], other: Map) -> Result<(), Error> {
        let (tree, other) = (self.tree_of(map)?, self.tree_of(other)?);
        self.inner.prove(tree, key, value, other);
        Ok(())
    }

    /// Asks for what is to be proved, if nothing was read since: a round trip.
    pub fn ask_proofs(&mut self) -> Result<(), Error> {
        let outcome = block_on(self.inner.ask_proofs(self.database.store().inner.server));
        self.told(outcome)
    }

    /// What has come of a proof, once, if it was asked; `other` is the map that was
    /// named.
    pub fn proof(&mut self, map: Map, other: Map) -> Result<Option<Proof>, Error> {
        if self.inner.holds(map.tree) {
            return Ok(Some(Proof::Holds));
        }
        let outcome = block_on(self.inner.proof(map.tree, other.tree));
        self.told(outcome)
    }

    /// A cursor, before the first key.
    pub fn cursor(&self, map: Map) -> Cursor {
        Cursor { inner: self.inner.cursor(map.tree), map }
    }

    /// The entries of a range, in order.
    pub fn range<K: AsRef<[u8]>>(&mut self, map: Map, range: impl RangeBounds<K>) -> Entries<'_, 'a> {
        let (range, cursor) = (range_of(&range), self.cursor(map));
        Entries { transaction: self, cursor, range, left: u64::MAX, is_begun: false, is_over: false }
    }

    /// Makes a map of a database, which is there for others when the
    /// transaction is committed; nobody else may be making one of the same name.
    /// The name may tell its number, see [`Map::tree`].
    ///
    /// Of what is written to such a map some megabytes are gathered; then it is
    /// sent ahead of the commit, so that a map of any size can be filled. Nobody sees
    /// it before the commit.
    pub fn create_map(
        &mut self,
        database: &Database,
        name: impl FnOnce(u64) -> String,
    ) -> Result<Map, Error> {
        self.tree_of(database.store().map_of(crate::host::catalog(database.store().inner.server)))?;
        let tree = block_on(database.catalog().create_in(&mut self.inner, database.name(), name))?;
        Ok(database.store().map_of(tree))
    }

    /// Takes a map of a database away, with all that is in it, when the
    /// transaction is committed; whether there is one of the name.
    pub fn drop_map(&mut self, database: &Database, name: &str) -> Result<bool, Error> {
        self.tree_of(database.store().map_of(crate::host::catalog(database.store().inner.server)))?;
        block_on(database.catalog().drop_in(&mut self.inner, database.name(), name))
    }

    /// Takes back all that was written, savepoints among it. What was read is
    /// still of its moment.
    pub fn rollback_all(&mut self) {
        self.inner.rollback_all();
    }

    /// A place to come back to, until it is released.
    pub fn savepoint(&self) -> Savepoint {
        self.inner.savepoint()
    }

    /// Forgets a savepoint and those after it.
    pub fn release(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        Ok(self.inner.release(savepoint)?)
    }

    /// Takes back what was written after a savepoint. One of another
    /// transaction, or one that was itself taken back, is refused with
    /// [`Error::Savepoint`], and nothing is changed.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        Ok(self.inner.rollback_to(savepoint)?)
    }

    /// Ends it without a trace.
    ///
    /// What it has [sent ahead](Self::create_map) is taken away, for which a server
    /// is asked; if it is dropped instead, others take that away later.
    pub fn rollback(mut self) {
        self.settle(false);
    }

    /// It has ended. Maps that were filled ahead of it have their names, or are
    /// nobody's. What is not done here is done by whoever finds them.
    fn settle(&mut self, is_committed: bool) {
        if self.inner.is_first() {
            return;
        }
        let _ = block_on(self.inner.settle(is_committed));
    }

    /// What was sent ahead is complete, and then there is the commit.
    fn commit_by(
        &mut self,
        commit: impl AsyncFnOnce(&yesquel_tree::Transaction<'a, AnyTransport>) -> Result<Timestamp, TreeError>,
    ) -> Result<Timestamp, Error> {
        if self.is_misused {
            return Err(Error::OtherStore);
        }
        let outcome = block_on(async {
            self.inner.send_rest().await?;
            commit(&self.inner).await
        });
        match &outcome {
            Ok(_) => self.settle(true),
            Err(
                TreeError::Commit(CommitError::Refused { .. } | CommitError::Failed(_))
                | TreeError::Exists
                | TreeError::NoTree(_),
            ) => {}
            // It may be committed: what was sent ahead is not this one's to take
            // away.
            Err(_) => self.inner.leave_ahead(),
        }
        self.database.told(outcome)
    }

    /// Commits it. Returns when it happened.
    pub fn commit(mut self) -> Result<Timestamp, Error> {
        let outcome = self.try_commit();
        if outcome.is_err() {
            self.settle(false);
        }
        outcome
    }

    /// The same, and after [`Error::Leased`] it may be tried again: nothing was
    /// done. Otherwise there is nothing more to be done with it than to drop it.
    pub fn try_commit(&mut self) -> Result<Timestamp, Error> {
        self.commit_by(async |inner| inner.try_commit().await)
    }

    /// The same for one that has read nothing, but knows what an earlier
    /// transaction at this store has read, of that one's snapshot: what it guards
    /// must be as it was then. If it fails by [`Error::Conflict`] or
    /// [`Error::SnapshotTooOld`] nothing was done, and it may be committed the
    /// other way.
    pub fn try_commit_since(&mut self, since: Timestamp) -> Result<Timestamp, Error> {
        self.commit_by(async move |inner| inner.try_commit_since(Some(since)).await)
    }
}

/// A place in a map. It stands on a key, before the first, or after the last;
/// what it stands on may be deleted, and the next step goes on from there.
#[derive(Debug, Clone)]
pub struct Cursor {
    map: Map,
    inner: yesquel_tree::Cursor,
}

impl Cursor {
    /// The key that it stands on.
    pub fn key(&self) -> Option<&[u8]> {
        self.inner.key()
    }

    /// Says that from now on no more than so many entries are wanted: so many
    /// are fetched from a leaf, and not all of it. It may be moved further, by a
    /// round trip more.
    pub fn limit(&mut self, entries: u64) {
        self.inner.limit(entries);
    }

    /// Says that what its entries refer to in another map is wanted too: their
    /// values begin with the length of a key of it, one byte, and the key. It comes
    /// with them, and [`get`](Transaction::get) costs no round trip.
    pub fn follow(&mut self, map: Option<Map>) {
        self.inner.follow(map.map(|map| map.tree));
    }

    /// Stands on a key from now on, whether it is there or not. Nothing is
    /// asked.
    pub fn place(&mut self, key: &[u8]) {
        self.inner.place(key);
    }

    /// Goes to a key, or to the next one if it is not there.
    pub fn seek(&mut self, transaction: &mut Transaction<'_>, key: &[u8]) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.seek(&mut transaction.inner, key));
        transaction.told(outcome)
    }

    /// Goes to a key, or to the one before it if it is not there.
    pub fn seek_back(
        &mut self,
        transaction: &mut Transaction<'_>,
        key: &[u8],
    ) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.seek_back(&mut transaction.inner, key));
        transaction.told(outcome)
    }

    /// Goes to the least key.
    pub fn first(&mut self, transaction: &mut Transaction<'_>) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.first(&mut transaction.inner));
        transaction.told(outcome)
    }

    /// Goes to the greatest key.
    pub fn last(&mut self, transaction: &mut Transaction<'_>) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.last(&mut transaction.inner));
        transaction.told(outcome)
    }

    /// Goes to the next key.
    pub fn next(&mut self, transaction: &mut Transaction<'_>) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.next(&mut transaction.inner));
        transaction.told(outcome)
    }

    /// Goes to the key before.
    pub fn previous(&mut self, transaction: &mut Transaction<'_>) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.previous(&mut transaction.inner));
        transaction.told(outcome)
    }
}

/// The entries of a range. After an error there are no more.
#[derive(Debug)]
pub struct Entries<'t, 'a> {
    transaction: &'t mut Transaction<'a>,
    cursor: Cursor,
    range: KeyRange,
    left: u64,
    is_begun: bool,
    is_over: bool,
}

impl Entries<'_, '_> {
    /// No more than so many of them. Unlike [`Iterator::take`] it says so to the
    /// server, which then sends so many and not whole leaves.
    #[must_use]
    pub fn limit(mut self, entries: u64) -> Self {
        self.left = self.left.min(entries);
        self.cursor.limit(self.left);
        self
    }
}

impl Iterator for Entries<'_, '_> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over || self.left == 0 {
            return None;
        }
        self.left -= 1;
        let next = if self.is_begun {
            self.cursor.next(self.transaction)
        } else {
            self.is_begun = true;
            self.cursor.seek(self.transaction, &self.range.low)
        };
        let next = next.map(|entry| entry.filter(|(key, _)| self.range.is_above(key))).transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}
