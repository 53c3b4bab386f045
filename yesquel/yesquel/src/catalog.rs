//! Catalog: the names of the cluster's databases and of their maps. It is the tree with number zero
//! at the home group.
//!
//! ```text
//! d NAME               -> number of the database, 8 bytes, big-endian; its groups, 2 bytes each,
//!                         unless that is the home group alone
//! m NUMBER NAME        -> id of the map's root, 16 bytes
//! w NUMBER NAME        -> map that is being bulk loaded, before its commit
//! ```
//!
//! The tree with number zero at the first group of each other machine has a [copy](copies) of `d` and `m`.

mod copies;
mod entries;
mod more_groups;

use crate::{
    Error,
    any_transport::AnyTransport,
    directory_entries::{GroupEntry, GroupState, decode, group_key},
    least_used,
};
use copies::COPY;
pub(crate) use copies::CopiedNames;
use entries::{BULK_LOAD, DatabaseEntry, MAP, bulk_load_key, damaged, database_key, map_key, root};
pub(crate) use entries::{CatalogEntry, DATABASE};
pub use more_groups::AddedGroups;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use yesquel_model::{KeyRange, NodeId, ServerId, Timestamp, TreeId};
use yesquel_tree::{LoadRegistration, Tree, TreeError, TreeTransaction, Trees, UnfinishedLoad};

/// Maximum length of a name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Counter that numbers databases. Counters below it belong to the trees.
const DATABASES: u16 = 16;

/// Maximum number of attempts for a map that other clients create and drop.
const ATTEMPTS_MAX: usize = 100;

/// Returns the catalog's tree at a group. Every group has one.
pub(crate) fn catalog_tree(server: ServerId) -> Tree {
    Tree::at(NodeId::root(TreeId::default(), server))
}

/// Checks a name: text without control characters.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let invalid = |what| Err(Error::Name { name: name.to_owned(), what });
    match name {
        "" => invalid("it is empty"),
        name if name.len() > NAME_BYTES_MAX => invalid("it is longer than 255 bytes"),
        name if name.chars().any(char::is_control) => invalid("it has control characters"),
        _ => Ok(()),
    }
}

/// Catalog of a cluster, at its home group, or a copy of it, which is only read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Catalog<'a> {
    pub(crate) trees: &'a Trees<AnyTransport>,
    /// The home group.
    pub(crate) group: ServerId,
    /// The group with the copy; `None`: the catalog itself.
    copy: Option<ServerId>,
    /// Time of the last change that this process has made, for the choice of copies.
    changed: Option<&'a AtomicU64>,
}

/// A database's groups, and maps of it.
pub(crate) struct OpenedDatabase<const N: usize> {
    pub(crate) groups: Vec<ServerId>,
    /// The maps that the caller has asked for, as far as they exist.
    pub(crate) maps: [Option<Tree>; N],
    /// All maps, if there are several groups.
    pub(crate) all: Vec<(String, Tree)>,
}

/// Entry of a map's name.
struct MapEntry {
    database: DatabaseEntry,
    key: Vec<u8>,
    /// Tree of the map, if it exists.
    tree: Option<Tree>,
}

/// Where a new map is created.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MapPlace {
    /// At the groups of its database.
    Any,
    /// Likewise, with its root at this group.
    RootAt(ServerId),
    /// At this group only.
    At(ServerId),
}

impl<'a> Catalog<'a> {
    /// Creates the catalog at a home group.
    pub(crate) fn new(trees: &'a Trees<AnyTransport>, group: ServerId) -> Catalog<'a> {
        Catalog { trees, group, copy: None, changed: None }
    }

    /// Notes the times of changes there.
    pub(crate) fn noting_changes(self, changed: &'a AtomicU64) -> Catalog<'a> {
        Catalog { changed: Some(changed), ..self }
    }

    /// Notes a change of names that has committed.
    pub(crate) fn note_change(&self, at: Timestamp) {
        if let Some(changed) = self.changed {
            changed.fetch_max(at.0, Relaxed);
        }
    }

    /// Returns the key of an entry at this catalog or copy.
    fn key(&self, key: Vec<u8>) -> Vec<u8> {
        match self.copy {
            None => key,
            Some(_) => [&[COPY], &key[..]].concat(),
        }
    }

    /// Names the error of a request to the home group that was not answered, if the database may be at
    /// other machines. Other errors are the group's answers.
    fn at_home<T>(&self, outcome: Result<T, impl Into<Error>>) -> Result<T, Error> {
        outcome.map_err(|error| match error.into() {
            Error::Unavailable(why) | Error::Disconnected(why)
                if self.copy.is_none() && self.trees.client().transport().has_others(self.group) =>
            {
                Error::HomeGroupUnreachable(why)
            }
            error => error,
        })
    }

    /// Takes a number of a tree, which the home group issues.
    async fn new_tree(&self, group: ServerId) -> Result<Tree, Error> {
        self.at_home(self.trees.new_tree(group).await)
    }

    /// Returns all entries, as a transaction sees them.
    pub(crate) async fn entries(
        &self,
        transaction: &mut TreeTransaction<'a, AnyTransport>,
    ) -> Result<Vec<CatalogEntry>, Error> {
        let (mut all, mut cursor) = (Vec::new(), transaction.cursor(self.tree()));
        let mut next = cursor.seek(transaction, &[]).await?;
        while let Some((key, value)) = next {
            let entry = CatalogEntry::decode(&key, &value, self.group);
            all.push(entry.unwrap_or(CatalogEntry::Unreadable(key)));
            next = cursor.next(transaction).await?;
        }
        Ok(all)
    }

    /// Returns whether a map of a database, by its number, has this tree, as a transaction sees it.
    pub(crate) async fn is_tree_of(
        &self,
        transaction: &mut TreeTransaction<'a, AnyTransport>,
        (database, map): (u64, &str),
        tree: Tree,
    ) -> Result<bool, Error> {
        let found = transaction.get(self.tree(), &map_key(database, map)).await?;
        Ok(found.is_some_and(|value| root(&value).is_ok_and(|found| found == tree)))
    }

    pub(crate) fn tree(&self) -> Tree {
        catalog_tree(self.copy.unwrap_or(self.group))
    }

    /// Returns the entries whose keys begin with a prefix, without the prefix.
    async fn list(
        &self,
        transaction: &mut TreeTransaction<'a, AnyTransport>,
        prefix: &[u8],
    ) -> Result<Vec<(String, Box<[u8]>)>, Error> {
        let prefix = &self.key(prefix.to_vec())[..];
        let (mut all, mut cursor) = (Vec::new(), transaction.cursor(self.tree()));
        let mut next = self.at_home(cursor.seek(transaction, prefix).await)?;
        while let Some((key, value)) = next {
            let Some(name) = key.strip_prefix(prefix) else { break };
            all.push((String::from_utf8_lossy(name).into_owned(), value));
            next = self.at_home(cursor.next(transaction).await)?;
        }
        Ok(all)
    }

    /// Returns the value of a key.
    async fn get(
        &self,
        transaction: &mut TreeTransaction<'_, AnyTransport>,
        key: Vec<u8>,
    ) -> Result<Option<Box<[u8]>>, Error> {
        self.at_home(transaction.get(self.tree(), &self.key(key)).await)
    }

    /// Likewise, and prefetches its neighbors.
    async fn get_near(
        &self,
        transaction: &mut TreeTransaction<'_, AnyTransport>,
        key: Vec<u8>,
    ) -> Result<Option<Box<[u8]>>, Error> {
        self.at_home(transaction.get_near(self.tree(), &self.key(key)).await)
    }

    /// Returns the names of the databases.
    pub(crate) async fn databases(&self) -> Result<Vec<String>, Error> {
        let all = self.list(&mut self.trees.begin(), &[DATABASE]).await?;
        Ok(all.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns the entry of a database. Its number changes when the database is dropped and created
    /// again, so it is read in the transaction that needs it, and never cached.
    async fn entry(
        &self,
        transaction: &mut TreeTransaction<'_, AnyTransport>,
        name: &str,
    ) -> Result<DatabaseEntry, Error> {
        check_name(name)?;
        let found = self.get(transaction, database_key(name)).await?;
        found.map_or_else(
            || Err(Error::NoDatabase(name.to_owned())),
            |value| DatabaseEntry::decode(&value, self.group),
        )
    }

    /// Returns the number of databases at each group that has any.
    pub(crate) async fn databases_by_group(&self) -> Result<BTreeMap<ServerId, usize>, Error> {
        let mut counts = BTreeMap::new();
        for (_, value) in self.list(&mut self.trees.begin(), &[DATABASE]).await? {
            for group in DatabaseEntry::decode(&value, self.group)?.groups {
                *counts.entry(group).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// Returns the names of the databases that have a group.
    pub(crate) async fn databases_at(
        &self,
        transaction: &mut TreeTransaction<'a, AnyTransport>,
        group: ServerId,
    ) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for (name, value) in self.list(transaction, &[DATABASE]).await? {
            if DatabaseEntry::decode(&value, self.group)?.groups.contains(&group) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Checks that groups are not retired, and that none of them retires before the commit.
    pub(crate) async fn guard_groups(
        &self,
        transaction: &mut TreeTransaction<'a, AnyTransport>,
        groups: &[ServerId],
    ) -> Result<(), Error> {
        for group in groups.iter().filter(|group| **group != self.group) {
            let key = group_key(*group);
            let entry = self.get_near(transaction, key.clone()).await?;
            let entry: Option<GroupEntry> = entry.map(|value| decode(&value)).transpose()?;
            if entry.is_some_and(|entry| entry.state == GroupState::Retired) {
                return Err(Error::NoGroup(group.0));
            }
            transaction.guard(self.tree(), KeyRange::single(&key));
        }
        Ok(())
    }

    /// Returns the groups of a database, which must exist.
    pub(crate) async fn groups(&self, name: &str) -> Result<Vec<ServerId>, Error> {
        Ok(self.entry(&mut self.trees.begin(), name).await?.groups)
    }

    /// Returns maps of a database, as far as they exist. Keys that are near each other, as these
    /// mostly are, cost one round trip together.
    pub(crate) async fn open<const N: usize>(
        &self,
        database: &str,
        names: [&str; N],
    ) -> Result<OpenedDatabase<N>, Error> {
        check_name(database)?;
        let mut transaction = self.trees.begin();
        transaction.use_watched(true);
        self.get_near(&mut transaction, database_key(database)).await?;
        let DatabaseEntry { number, groups } = self.entry(&mut transaction, database).await?;
        let mut maps = [None; N];
        for (map, name) in maps.iter_mut().zip(names) {
            let found = self.get_near(&mut transaction, map_key(number, name)).await?;
            *map = found.map(|value| root(&value)).transpose()?;
        }
        // Root pages do not name the groups of their trees. These entries are near those above.
        let all = match groups.len() {
            1 => Vec::new(),
            _ => self.roots(&mut transaction, number).await?,
        };
        Ok(OpenedDatabase { groups, maps, all })
    }

    /// Returns the maps of a database, by name.
    async fn roots(
        &self,
        transaction: &mut TreeTransaction<'a, AnyTransport>,
        database: u64,
    ) -> Result<Vec<(String, Tree)>, Error> {
        let all = self.list(transaction, &map_key(database, "")).await?;
        all.into_iter().map(|(name, value)| Ok((name, root(&value)?))).collect()
    }

    /// Chooses the group of a new tree.
    async fn group_of_tree(
        &self,
        transaction: &mut TreeTransaction<'a, AnyTransport>,
        entry: &DatabaseEntry,
    ) -> Result<ServerId, Error> {
        if let [group] = *entry.groups {
            return Ok(group);
        }
        let all = self.roots(transaction, entry.number).await?;
        let counted = all.into_iter().filter(|(name, _)| !least_used::is_of_schema(name));
        let at = counted.map(|(_, tree)| tree.root().server);
        least_used::group_of_tree(&entry.groups, at).ok_or_else(damaged)
    }

    /// Creates a database, whose maps will be at these groups.
    pub(crate) async fn create_database(&self, name: &str, groups: Vec<ServerId>) -> Result<(), Error> {
        check_name(name)?;
        // DATABASE/MAP is split at the first `/`. Older versions allowed such names, which still
        // resolve.
        if name.contains('/') {
            let what = "it has a '/', behind which the name of a map begins";
            return Err(Error::Name { name: name.to_owned(), what });
        }
        let number = self.at_home(self.trees.number(DATABASES).await)?;
        let entry = DatabaseEntry { number, groups };
        let mut attempts = 0;
        loop {
            let mut transaction = self.trees.begin();
            self.guard_groups(&mut transaction, &entry.groups).await?;
            transaction.insert(self.tree(), &database_key(name), &entry.encode(self.group))?;
            match transaction.commit().await.map_err(Error::from) {
                Ok(at) => {
                    self.note_change(at);
                    return Ok(());
                }
                // The entry of a group has changed, or another client has just created the database.
                Err(Error::Conflict(_)) if entry.groups != [self.group] && attempts < ATTEMPTS_MAX => {
                    attempts += 1;
                }
                Err(Error::Exists | Error::Conflict(_)) => {
                    return Err(Error::DatabaseExists(name.to_owned()));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves the first database of another catalog to this one, in one transaction. Returns its name
    /// here: that of the group is added if there is a database of its name. `None`: there is none to
    /// move.
    pub(crate) async fn adopt_first(&self, from: &Catalog<'a>) -> Result<Option<String>, Error> {
        from.sweep().await?;
        let mut transaction = self.trees.begin();
        let databases = from.list(&mut transaction, &[DATABASE]).await?;
        let Some((name, value)) = databases.into_iter().next() else { return Ok(None) };
        let DatabaseEntry { number: number_before, groups } = DatabaseEntry::decode(&value, from.group)?;
        let is_taken = transaction.get(self.tree(), &database_key(&name)).await?.is_some();
        let new_name = if is_taken { format!("{name}@{}", from.group.0) } else { name.clone() };
        let entry = DatabaseEntry { number: self.trees.number(DATABASES).await?, groups };
        // Its machine is not removed meanwhile.
        self.guard_groups(&mut transaction, &entry.groups).await?;
        transaction.insert(self.tree(), &database_key(&new_name), &entry.encode(self.group))?;
        let prefix = map_key(number_before, "");
        for (map, root) in from.list(&mut transaction, &prefix).await? {
            transaction.insert(self.tree(), &map_key(entry.number, &map), &root)?;
        }
        transaction.delete_range(from.tree(), &KeyRange::prefix(&prefix));
        transaction.delete(from.tree(), &database_key(&name))?;
        transaction.commit().await?;
        Ok(Some(new_name))
    }

    /// Drops a database with all its maps.
    pub(crate) async fn drop_database(&self, name: &str) -> Result<(), Error> {
        let mut transaction = self.trees.begin();
        let DatabaseEntry { number, groups } = self.entry(&mut transaction, name).await?;
        let prefix = map_key(number, "");
        for (_, value) in self.list(&mut transaction, &prefix).await? {
            transaction.drop_tree(root(&value)?, &groups);
        }
        transaction.delete_range(self.tree(), &KeyRange::prefix(&prefix));
        // A client that creates a map meanwhile writes below the prefix, which the range deletion
        // guards.
        transaction.delete(self.tree(), &database_key(name))?;
        self.note_change(transaction.commit().await?);
        // Bulk loads of maps in it cannot commit any more. If this fails, a later sweep removes
        // their trees.
        let _ = self.sweep_below(&bulk_load_key(&prefix), true).await;
        Ok(())
    }

    /// Removes bulk-loaded maps whose transaction can no longer commit. Returns their number.
    pub(crate) async fn sweep(&self) -> Result<usize, Error> {
        self.sweep_below(&[BULK_LOAD], false).await
    }

    async fn sweep_below(&self, prefix: &[u8], is_dropped: bool) -> Result<usize, Error> {
        let mut transaction = self.trees.begin();
        let (mut found, mut cursor) = (Vec::new(), transaction.cursor(self.tree()));
        let mut next = cursor.seek(&mut transaction, prefix).await?;
        while let Some((key, value)) = next.filter(|(key, _)| key.starts_with(prefix)) {
            found.push((key, UnfinishedLoad::decode(&value).ok_or_else(damaged)?));
            next = cursor.next(&mut transaction).await?;
        }
        drop(transaction);
        let mut swept = 0;
        for (key, entry) in found {
            if is_dropped || !self.trees.is_snapshot_readable(self.tree(), entry.snapshot).await? {
                swept += usize::from(self.unregister(&key, entry.tree).await?);
            }
        }
        Ok(swept)
    }

    /// Removes the registration of a map whose transaction has ended. A map without a name is
    /// dropped; returns whether it was.
    async fn unregister(&self, key: &[u8], tree: Tree) -> Result<bool, Error> {
        let name = [&[MAP], key.get(1..).unwrap_or_default()].concat();
        let mut transaction = self.trees.begin();
        let has_name = transaction.get(self.tree(), &name).await?.is_some();
        transaction.delete(self.tree(), key)?;
        if !has_name {
            match self.trees.groups(tree).await {
                Ok(groups) => transaction.drop_tree(tree, &groups),
                Err(TreeError::NoTree(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match transaction.commit().await {
            Ok(_) => Ok(!has_name),
            // The map had its name, and was dropped.
            Err(TreeError::NoTree(_)) => {
                let mut transaction = self.trees.begin();
                transaction.delete(self.tree(), key)?;
                transaction.commit().await?;
                Ok(false)
            }
            // Another client does the same.
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the maps of a database, by name, as a transaction sees them.
    pub(crate) async fn maps_in(
        &self,
        transaction: &mut TreeTransaction<'a, AnyTransport>,
        database: &str,
    ) -> Result<Vec<(String, Tree)>, Error> {
        let number = self.entry(transaction, database).await?.number;
        self.roots(transaction, number).await
    }

    /// Returns the maps of a database, by name.
    pub(crate) async fn maps(&self, database: &str) -> Result<Vec<(String, Tree)>, Error> {
        self.maps_in(&mut self.trees.begin(), database).await
    }

    /// Returns the entry of a map's name.
    async fn find(
        &self,
        transaction: &mut TreeTransaction<'_, AnyTransport>,
        database: &str,
        name: &str,
    ) -> Result<MapEntry, Error> {
        check_name(name)?;
        let database = self.entry(transaction, database).await?;
        let key = map_key(database.number, name);
        let found = self.get(transaction, key.clone()).await?;
        Ok(MapEntry { database, key, tree: found.map(|value| root(&value)).transpose()? })
    }

    /// Returns the map of a name, if it exists.
    pub(crate) async fn map(&self, database: &str, name: &str) -> Result<Option<Tree>, Error> {
        Ok(self.find(&mut self.trees.begin(), database, name).await?.tree)
    }

    /// Returns the map of a name; creates it if it does not exist.
    pub(crate) async fn create_map(&self, database: &str, name: &str) -> Result<Tree, Error> {
        self.create_maps(database, None, &[(name, None)]).await?.pop().ok_or_else(damaged)
    }

    /// Returns the maps of some names, which differ. Creates those that do not exist in one
    /// transaction, at the given groups. Fails if the database has other groups than those
    /// `expected`: it was dropped and created again.
    pub(crate) async fn create_maps(
        &self,
        name_of: &str,
        expected: Option<&[ServerId]>,
        maps: &[(&str, Option<ServerId>)],
    ) -> Result<Vec<Tree>, Error> {
        let (mut fresh, mut attempts) = (vec![None; maps.len()], 0);
        loop {
            let mut transaction = self.trees.begin();
            let (mut trees, mut creates) = (Vec::with_capacity(maps.len()), false);
            for ((name, group), fresh) in maps.iter().zip(&mut fresh) {
                let MapEntry { database, key, tree } = self.find(&mut transaction, name_of, name).await?;
                if expected.is_some_and(|expected| expected != database.groups) {
                    return Err(Error::NoDatabase(name_of.to_owned()));
                }
                if let Some(tree) = tree {
                    trees.push(tree);
                    continue;
                }
                // The tree of a failed attempt is unused.
                let tree = match fresh {
                    Some(tree) => *tree,
                    None => {
                        let group = match group {
                            Some(group) => *group,
                            None => self.group_of_tree(&mut transaction, &database).await?,
                        };
                        *fresh.insert(self.new_tree(group).await?)
                    }
                };
                // Those at a given group stay there. Tree and name are created together, so that no
                // tree is left without a name.
                let groups = if group.is_some() { &[][..] } else { &*database.groups };
                transaction.create_tree(tree, groups);
                transaction.insert(self.tree(), &key, &tree.root().to_bits().to_be_bytes())?;
                trees.push(tree);
                creates = true;
            }
            if !creates {
                return Ok(trees);
            }
            // Conflicts with a concurrent drop of the database.
            transaction.guard(self.tree(), KeyRange::single(&database_key(name_of)));
            match transaction.commit().await.map_err(Error::from) {
                Ok(at) => {
                    self.note_change(at);
                    return Ok(trees);
                }
                // Another client has just created a map, or dropped the database.
                Err(Error::Exists | Error::Conflict(_)) if attempts < ATTEMPTS_MAX => attempts += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates a map within a transaction. The name may contain the map's number.
    pub(crate) async fn create_in(
        &self,
        transaction: &mut TreeTransaction<'a, AnyTransport>,
        database: &str,
        place: MapPlace,
        name: impl FnOnce(u64) -> String,
    ) -> Result<Tree, Error> {
        let is_spread = !matches!(place, MapPlace::At(_));
        let entry = self.entry(transaction, database).await?;
        let group = match place {
            MapPlace::At(group) | MapPlace::RootAt(group) => group,
            MapPlace::Any => self.group_of_tree(transaction, &entry).await?,
        };
        let tree = self.new_tree(group).await?;
        let name = name(tree.root().tree.number());
        check_name(&name)?;
        let key = map_key(entry.number, &name);
        let under_way = LoadRegistration { list: self.tree(), key: bulk_load_key(&key).into() };
        let groups = if is_spread { &*entry.groups } else { &[] };
        transaction.create_bulk_loaded_tree(tree, groups, under_way);
        transaction.insert(self.tree(), &key, &tree.root().to_bits().to_be_bytes())?;
        transaction.guard(self.tree(), KeyRange::single(&database_key(database)));
        Ok(tree)
    }

    /// Drops a map within a transaction. Returns whether it existed.
    pub(crate) async fn drop_in(
        &self,
        transaction: &mut TreeTransaction<'_, AnyTransport>,
        database: &str,
        name: &str,
    ) -> Result<bool, Error> {
        let entry = self.find(transaction, database, name).await?;
        let MapEntry { key, tree: Some(tree), database } = entry else { return Ok(false) };
        transaction.drop_tree(tree, &database.groups);
        transaction.delete(self.tree(), &key)?;
        Ok(true)
    }

    /// Drops a map. Returns whether it existed.
    pub(crate) async fn drop_map(&self, database: &str, name: &str) -> Result<bool, Error> {
        let mut transaction = self.trees.begin();
        let is_there = self.drop_in(&mut transaction, database, name).await?;
        if is_there {
            self.note_change(transaction.commit().await?);
        }
        Ok(is_there)
    }
}
