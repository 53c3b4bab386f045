//! Transactions and cursors, with blocking calls.

use crate::{
    AddedGroups, Database, Error, Map, MapCopies, Placement, any_transport::AnyTransport, catalog::MapPlace,
    range::range_of,
};
use std::ops::RangeBounds;
use yesquel_client::CommitError;
use yesquel_model::{Key, KeyRange, Refusal, ServerId, Timestamp};
use yesquel_transport::block_on;
use yesquel_tree::{Tree, TreeError};

pub use yesquel_tree::{Proof, Savepoint};

/// Key and value.
pub type Entry = (Key, Box<[u8]>);

/// Transaction with snapshot isolation. Guards make it stricter where needed, and
/// [`serializable`](Self::serializable) everywhere.
///
/// It reads one snapshot, that of its first read, and its own writes. Writes are buffered and sent
/// by [`commit`](Self::commit). Dropping it rolls it back.
#[derive(Debug)]
pub struct Transaction<'a> {
    database: &'a Database,
    /// Refusal of an operation after which only a new transaction can commit.
    pub(crate) lost_to: Option<Refusal>,
    /// An operation without a result got a map of another store.
    is_misused: bool,
    /// Whether it changes names of maps or databases.
    changes_names: bool,
    pub(crate) inner: yesquel_tree::TreeTransaction<'a, AnyTransport>,
}

impl Database {
    /// Begins a transaction, without contacting a server.
    pub fn begin(&self) -> Transaction<'_> {
        Transaction::new(self)
    }
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(database: &'a Database) -> Transaction<'a> {
        let inner = database.trees().begin();
        Transaction { database, lost_to: None, is_misused: false, changes_names: false, inner }
    }

    /// Converts the result of an operation.
    fn checked<T>(&mut self, outcome: Result<T, TreeError>) -> Result<T, Error> {
        let outcome = self.database.checked(outcome);
        self.lost_to = self.lost_to.or(outcome.as_ref().err().and_then(Error::lost_to));
        outcome
    }

    fn tree_of(&self, map: Map) -> Result<Tree, Error> {
        self.database.store().tree_of(map)
    }

    /// Fails if a database is of another cluster.
    fn check_store(&self, database: &Database) -> Result<(), Error> {
        let [own, other] = [self.database, database].map(|database| database.store().cluster());
        if own == other { Ok(()) } else { Err(Error::OtherStore) }
    }

    /// Returns the snapshot, once something was read.
    pub fn snapshot(&self) -> Option<Timestamp> {
        self.inner.snapshot()
    }

    /// Returns the value of a key. Costs one round trip, or none if the transaction has written the
    /// key or read its leaf.
    pub fn get(&mut self, map: Map, key: &[u8]) -> Result<Option<Box<[u8]>>, Error> {
        let tree = self.tree_of(map)?;
        let outcome = block_on(self.inner.get(tree, key));
        self.checked(outcome)
    }

    /// Like [`get`](Self::get), and prefetches the key's neighbors, whose reads cost no round trip
    /// then.
    pub fn get_near(&mut self, map: Map, key: &[u8]) -> Result<Option<Box<[u8]>>, Error> {
        let tree = self.tree_of(map)?;
        let outcome = block_on(self.inner.get_near(tree, key));
        self.checked(outcome)
    }

    /// Returns the values of keys of any maps, in their order. All servers are asked in parallel:
    /// mostly one round trip, however many keys there are.
    pub fn get_many(&mut self, keys: &[(Map, &[u8])]) -> Result<Vec<Option<Box<[u8]>>>, Error> {
        let keys = self.keys_of(keys)?;
        let outcome = block_on(self.inner.get_many(&keys));
        self.checked(outcome)
    }

    /// Fetches keys of any maps with their neighbors in one round trip, so that reads and cursors
    /// there cost none.
    pub fn prefetch(&mut self, keys: &[(Map, &[u8])]) -> Result<(), Error> {
        let keys = self.keys_of(keys)?;
        let outcome = block_on(self.inner.prefetch(&keys));
        self.checked(outcome)
    }

    fn keys_of<'k>(&self, keys: &[(Map, &'k [u8])]) -> Result<Vec<(Tree, &'k [u8])>, Error> {
        keys.iter().map(|(map, key)| Ok((self.tree_of(*map)?, *key))).collect()
    }

    /// Raises the number of read bytes cached for later reads, by default 16 MiB. When the limit is
    /// exceeded, everything cached is dropped.
    pub fn keep_up_to(&mut self, bytes: usize) {
        self.inner.keep_up_to(bytes);
    }

    /// Returns whether a commit was sent to a server. Without writes and guards there is none, and
    /// no lease is [released](Self::releases).
    pub fn has_sent_commit(&self) -> bool {
        self.inner.has_sent_commit()
    }

    /// Lets servers collect the versions of the snapshot, while the transaction is not used.
    pub fn release_snapshot(&mut self) {
        self.inner.release_snapshot();
    }

    /// Keeps the versions of the snapshot again. Servers may have collected them if more than half a
    /// second has passed; reads then fail with [`Error::SnapshotTooOld`].
    pub fn hold_snapshot(&mut self) {
        self.inner.hold_snapshot();
    }

    /// Returns the number of reads that asked a server.
    pub fn asked(&self) -> u64 {
        self.inner.asked()
    }

    /// Writes a value under a key, present or not.
    pub fn put(&mut self, map: Map, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let tree = self.tree_of(map)?;
        let outcome = self.inner.put(tree, key, value);
        self.checked(outcome)?;
        self.flush_if_due()
    }

    /// Inserts a key that must be absent. The commit checks that, if no read did before.
    pub fn insert(&mut self, map: Map, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let tree = self.tree_of(map)?;
        if self.inner.may_be_flushed(tree, key) {
            let outcome = block_on(self.inner.get(tree, key));
            if self.checked(outcome)?.is_some() {
                return Err(Error::Exists);
            }
        }
        let outcome = self.inner.insert(tree, key, value);
        self.checked(outcome)?;
        self.flush_if_due()
    }

    /// Sends what was buffered for maps that the transaction creates, if it is enough.
    #[inline]
    fn flush_if_due(&mut self) -> Result<(), Error> {
        if self.inner.should_flush() { self.flush_bulk_loads() } else { Ok(()) }
    }

    #[cold]
    fn flush_bulk_loads(&mut self) -> Result<(), Error> {
        if self.inner.has_flushed_nothing() {
            // Bulk loads that others have abandoned do no harm; clients that may leave some
            // themselves remove them.
            let _ = block_on(self.database.catalog().sweep());
        }
        let outcome = block_on(self.inner.flush_bulk_loads());
        self.checked(outcome)
    }

    /// Deletes a key, if it is present.
    pub fn delete(&mut self, map: Map, key: &[u8]) -> Result<(), Error> {
        let tree = self.tree_of(map)?;
        let outcome = self.inner.delete(tree, key);
        self.checked(outcome)?;
        self.flush_if_due()
    }

    /// Deletes all keys of a range. With a map of another store, the commit fails.
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, map: Map, range: impl RangeBounds<K>) {
        match self.tree_of(map) {
            Ok(tree) => self.inner.delete_range(tree, &range_of(&range)),
            Err(_) => self.is_misused = true,
        }
    }

    /// Guards a range: if another transaction changes it between this one's reads and commit, one
    /// of the two fails. With a map of another store, the commit fails.
    pub fn guard<K: AsRef<[u8]>>(&mut self, map: Map, range: impl RangeBounds<K>) {
        match self.tree_of(map) {
            Ok(tree) => self.inner.guard(tree, range_of(&range)),
            Err(_) => self.is_misused = true,
        }
    }

    /// Guards a range of one of several copies of a map, each of which consists of one leaf, at a group
    /// where the transaction writes; of the copy `preferred` if it writes at none of their groups. A
    /// transaction that changes the range changes all copies, so that one of the two fails. With maps of
    /// another store, the commit fails.
    pub fn guard_at_any<K: AsRef<[u8]>>(
        &mut self,
        copies: &MapCopies,
        preferred: Map,
        range: impl RangeBounds<K>,
    ) {
        match (self.tree_of(preferred), self.tree_of(copies.first())) {
            (Ok(preferred), Ok(_)) => self.inner.guard_at_any(&copies.roots, preferred, range_of(&range)),
            _ => self.is_misused = true,
        }
    }

    /// Makes the transaction serializable: its commit guards all keys and ranges that it reads from
    /// now on, at all servers. If another transaction changes one of them between the read and the
    /// commit, one of the two fails with [`Error::Conflict`]. A transaction that writes nothing sends
    /// nothing and does not fail because of this. Costs no round trip; servers that were only read
    /// take part in the commit.
    pub fn serializable(&mut self) {
        self.inner.serializable();
    }

    /// Returns the value of a key if it came along with an entry that refers to it
    /// ([`Cursor::follow`]) and was not overwritten, without asking a server.
    pub fn get_cached(&mut self, map: Map, key: &[u8]) -> Option<Box<[u8]>> {
        self.inner.get_cached(self.tree_of(map).ok()?, key)
    }

    /// Requests a proof that a key of a map has `value`; empty stands for none. The request travels
    /// with the next read and costs no round trip. If the value differs, the content of `other`, if
    /// short, comes with the answer.
    pub fn prove(&mut self, map: Map, key: &[u8], value: &[u8], other: Map) -> Result<(), Error> {
        let (tree, other) = (self.tree_of(map)?, self.tree_of(other)?);
        let outcome = block_on(self.inner.prove(tree, key, value, other));
        self.checked(outcome)
    }

    /// Like [`prove`](Self::prove), at any one of several copies of a map, each of which consists of
    /// one leaf: the server that is read first proves it. [`MapCopies::first`] identifies the proof.
    pub fn prove_at_any(
        &mut self,
        copies: &MapCopies,
        key: &[u8],
        value: &[u8],
        other: Map,
    ) -> Result<(), Error> {
        let other = self.tree_of(other)?;
        self.tree_of(copies.first())?;
        self.inner.prove_at_any(&copies.roots, key, value, other);
        Ok(())
    }

    /// Lets the transaction use leaves that this process watches: the server says before it
    /// acknowledges a change to anyone that they change. What it reads there costs no round trip.
    /// `only_reads`: the transaction writes nothing.
    pub fn use_watched(&mut self, only_reads: bool) {
        self.inner.use_watched(only_reads);
    }

    /// Gives a transaction that was to write nothing a snapshot, before it writes.
    pub fn pin(&mut self) -> Result<(), Error> {
        let outcome = block_on(self.inner.pin());
        self.checked(outcome)
    }

    /// Requests the open proofs now: a round trip, unless a read has taken them along.
    pub fn ask_proofs(&mut self) -> Result<(), Error> {
        let outcome = block_on(self.inner.ask_proofs());
        self.checked(outcome)
    }

    /// Takes the outcome of a proof, if there is one; `other` is the map passed to
    /// [`prove`](Self::prove).
    pub fn proof(&mut self, map: Map, other: Map) -> Result<Option<Proof>, Error> {
        if self.inner.holds(map.tree) {
            return Ok(Some(Proof::Holds));
        }
        let outcome = block_on(self.inner.proof(map.tree, other.tree));
        self.checked(outcome)
    }

    /// Returns a cursor before the first key.
    pub fn cursor(&self, map: Map) -> Cursor {
        Cursor { inner: self.inner.cursor(map.tree), map }
    }

    /// Returns the entries of a range, in order.
    pub fn range<K: AsRef<[u8]>>(&mut self, map: Map, range: impl RangeBounds<K>) -> Entries<'_, 'a> {
        let (range, cursor) = (range_of(&range), self.cursor(map));
        Entries { transaction: self, cursor, range, left: u64::MAX, has_started: false, has_ended: false }
    }

    /// Creates a map in a database. Other clients see it after the commit; two transactions that
    /// create a map of the same name conflict. The name may contain the map's number, see
    /// [`Map::tree`].
    ///
    /// Some megabytes of writes to the map are buffered. What exceeds them is sent before the
    /// commit, so that a map of any size can be filled. No other client sees it before the commit.
    pub fn create_map(
        &mut self,
        database: &Database,
        name: impl FnOnce(u64) -> String,
    ) -> Result<Map, Error> {
        self.create_map_beside(database, None, name)
    }

    /// Like [`create_map`](Self::create_map), at the group of another map if one is given.
    pub fn create_map_beside(
        &mut self,
        database: &Database,
        beside: Option<Map>,
        name: impl FnOnce(u64) -> String,
    ) -> Result<Map, Error> {
        let beside = beside.map(|map| self.tree_of(map)).transpose()?;
        let place = beside.map_or(MapPlace::Any, |tree| MapPlace::RootAt(tree.root().server));
        self.create_map_in(database, place, name)
    }

    /// Like [`create_map`](Self::create_map), at this group of the database.
    pub fn create_map_at(&mut self, database: &Database, group: ServerId, name: &str) -> Result<Map, Error> {
        self.create_map_in(database, MapPlace::At(group), |_| name.to_owned())
    }

    fn create_map_in(
        &mut self,
        database: &Database,
        place: MapPlace,
        name: impl FnOnce(u64) -> String,
    ) -> Result<Map, Error> {
        self.check_store(database)?;
        // The catalog of this transaction's own database handle lives long enough.
        let catalog = self.database.catalog();
        let tree = block_on(catalog.create_in(&mut self.inner, database.name(), place, name))?;
        self.changes_names = true;
        Ok(database.store().map_of(tree))
    }

    /// Adds groups to a database, chosen by a placement. New maps may be created at them after the
    /// commit; existing ones stay where they are.
    ///
    /// Conflicts with all transactions that create maps of the database. A handle of the database
    /// that exists already keeps its [groups](Database::groups). A database with a SQL schema needs a
    /// copy of its cookies at each group: use `yesquel_sqlite::add_groups` for it.
    pub fn add_groups(&mut self, database: &Database, placement: &Placement) -> Result<AddedGroups, Error> {
        self.check_store(database)?;
        let groups = database.store().place(placement)?;
        let catalog = self.database.catalog();
        self.changes_names = true;
        block_on(catalog.add_groups(&mut self.inner, database.name(), &groups))
    }

    /// Returns the maps of a database, by name, as the transaction sees them.
    pub fn maps(&mut self, database: &Database) -> Result<Vec<(String, Map)>, Error> {
        self.check_store(database)?;
        let all = block_on(self.database.catalog().maps_in(&mut self.inner, database.name()))?;
        Ok(all.into_iter().map(|(name, tree)| (name, database.store().map_of(tree))).collect())
    }

    /// Drops a map of a database with its content at the commit. Returns whether it exists.
    pub fn drop_map(&mut self, database: &Database, name: &str) -> Result<bool, Error> {
        self.check_store(database)?;
        self.changes_names = true;
        block_on(database.catalog().drop_in(&mut self.inner, database.name(), name))
    }

    /// Rolls back all writes and savepoints. The snapshot stays.
    pub fn rollback_all(&mut self) {
        self.inner.rollback_all();
    }

    /// Sets a savepoint, valid until it is released.
    pub fn savepoint(&self) -> Savepoint {
        self.inner.savepoint()
    }

    /// Releases a savepoint and the later ones.
    pub fn release(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        Ok(self.inner.release(savepoint)?)
    }

    /// Rolls back the writes after a savepoint. Fails with [`Error::Savepoint`], without effect, if
    /// the savepoint belongs to another transaction or was itself rolled back.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        Ok(self.inner.rollback_to(savepoint)?)
    }

    /// Rolls the transaction back.
    ///
    /// [Bulk-loaded](Self::create_map) maps are dropped, which asks a server. If the transaction is
    /// dropped instead, other clients drop them later.
    pub fn rollback(mut self) {
        self.settle(false);
    }

    /// Cleans up after the end of the transaction: bulk-loaded maps have their names, or are
    /// dropped. If this fails, other clients do it.
    pub(crate) fn settle(&mut self, is_committed: bool) {
        if self.inner.has_flushed_nothing() {
            return;
        }
        let _ = block_on(self.inner.settle_bulk_loads(is_committed));
    }

    /// Flushes the bulk-loaded maps, then commits.
    fn commit_by(
        &mut self,
        commit: impl AsyncFnOnce(&yesquel_tree::TreeTransaction<'a, AnyTransport>) -> Result<Timestamp, TreeError>,
    ) -> Result<Timestamp, Error> {
        if self.is_misused {
            return Err(Error::OtherStore);
        }
        let outcome = block_on(async {
            self.inner.finish_bulk_loads().await?;
            commit(&self.inner).await
        });
        match &outcome {
            Ok(at) => {
                if self.changes_names {
                    self.database.catalog().note_change(*at);
                }
                self.settle(true);
            }
            Err(
                TreeError::Commit(CommitError::Refused { .. } | CommitError::Failed(_))
                | TreeError::Exists
                | TreeError::NoTree(_),
            ) => {}
            // The transaction may have committed: the bulk-loaded maps must not be dropped here.
            Err(_) => self.inner.abandon_bulk_loads(),
        }
        self.database.checked(outcome)
    }

    /// Commits the transaction. Returns the commit timestamp.
    pub fn commit(mut self) -> Result<Timestamp, Error> {
        let outcome = self.try_commit();
        if outcome.is_err() {
            self.settle(false);
        }
        outcome
    }

    /// Like [`commit`](Self::commit), and after [`Error::Leased`] it may be called again. After any
    /// other result the transaction must be dropped.
    pub fn try_commit(&mut self) -> Result<Timestamp, Error> {
        self.commit_by(async |inner| inner.try_commit().await)
    }

    /// Commits a transaction that has read nothing itself, but relies on reads of an earlier
    /// transaction at this store at snapshot `since`: its guarded ranges must be unchanged since
    /// then. After [`Error::Conflict`] or [`Error::SnapshotTooOld`], which have no effect, the
    /// caller may go on with [`try_commit`](Self::try_commit).
    pub fn try_commit_since(&mut self, since: Timestamp) -> Result<Timestamp, Error> {
        self.commit_by(async move |inner| inner.try_commit_since(Some(since)).await)
    }
}

/// Position in a map: on a key, before the first or after the last. If the key is deleted
/// meanwhile, the next step continues from its place.
#[derive(Debug, Clone)]
pub struct Cursor {
    map: Map,
    inner: yesquel_tree::TreeCursor,
}

impl Cursor {
    /// Returns the key at the cursor.
    pub fn key(&self) -> Option<&[u8]> {
        self.inner.key()
    }

    /// Announces that at most `entries` further entries are wanted, so that only so many are
    /// fetched instead of a whole leaf. The cursor may still move further, at the cost of another
    /// round trip.
    pub fn limit(&mut self, entries: u64) {
        self.inner.limit(entries);
    }

    /// Also reads the entries of another map that this map's values refer to: a value begins with a
    /// key of the other map, preceded by the key's length in one byte. [`get`](Transaction::get) of
    /// such a key then costs no round trip.
    pub fn follow(&mut self, map: Option<Map>) {
        self.inner.follow(map.map(|map| map.tree));
    }

    /// Positions the cursor on a key, present or not, without asking a server.
    pub fn place(&mut self, key: &[u8]) {
        self.inner.place(key);
    }

    /// Moves to a key, or to the next one if it is absent.
    pub fn seek(&mut self, transaction: &mut Transaction<'_>, key: &[u8]) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.seek(&mut transaction.inner, key));
        transaction.checked(outcome)
    }

    /// Moves to a key, or to the previous one if it is absent.
    pub fn seek_back(
        &mut self,
        transaction: &mut Transaction<'_>,
        key: &[u8],
    ) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.seek_back(&mut transaction.inner, key));
        transaction.checked(outcome)
    }

    /// Moves to the least key.
    pub fn first(&mut self, transaction: &mut Transaction<'_>) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.first(&mut transaction.inner));
        transaction.checked(outcome)
    }

    /// Moves to the greatest key.
    pub fn last(&mut self, transaction: &mut Transaction<'_>) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.last(&mut transaction.inner));
        transaction.checked(outcome)
    }

    /// Moves to the next key.
    pub fn next(&mut self, transaction: &mut Transaction<'_>) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.next(&mut transaction.inner));
        transaction.checked(outcome)
    }

    /// Moves to the previous key.
    pub fn previous(&mut self, transaction: &mut Transaction<'_>) -> Result<Option<Entry>, Error> {
        transaction.tree_of(self.map)?;
        let outcome = block_on(self.inner.previous(&mut transaction.inner));
        transaction.checked(outcome)
    }
}

/// Iterator over the entries of a range. It ends after an error.
#[derive(Debug)]
pub struct Entries<'t, 'a> {
    transaction: &'t mut Transaction<'a>,
    cursor: Cursor,
    range: KeyRange,
    left: u64,
    has_started: bool,
    has_ended: bool,
}

impl Entries<'_, '_> {
    /// Limits the number of entries. Unlike [`Iterator::take`] this tells the server, which then
    /// sends only so many instead of whole leaves.
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
        if self.has_ended || self.left == 0 {
            return None;
        }
        self.left -= 1;
        let next = if self.has_started {
            self.cursor.next(self.transaction)
        } else {
            self.has_started = true;
            self.cursor.seek(self.transaction, &self.range.low)
        };
        let next = next.map(|entry| entry.filter(|(key, _)| self.range.is_above(key))).transpose();
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}
