//! The names of databases and of their maps: a tree of its own, with number
//! zero.
//!
//! ```text
//! d NAME               -> number of the database, 8 bytes, big-endian
//! m NUMBER NAME        -> id of the map's root, 16 bytes
//! w NUMBER NAME        -> a map that a transaction fills ahead of its commit
//! ```

use crate::{Error, any_transport::AnyTransport, host::catalog};
use yesquel_model::{KeyRange, NodeId, ServerId};
use yesquel_tree::{Transaction, Tree, TreeError, Trees, UnderWay, UnderWayEntry};

/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;
/// The counter that numbers databases; trees have those below.
const DATABASES: u16 = 16;

/// Times that a map is looked for again which others make and drop.
const ATTEMPTS_MAX: usize = 100;

const DATABASE: u8 = b'd';
const MAP: u8 = b'm';
const UNDER_WAY: u8 = b'w';

/// What can be a name: text without control characters.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let wrong = |what| Err(Error::Name { name: name.to_owned(), what });
    match name {
        "" => wrong("it is empty"),
        name if name.len() > NAME_BYTES_MAX => wrong("it is longer than 255 bytes"),
        name if name.chars().any(char::is_control) => wrong("it has control characters"),
        _ => Ok(()),
    }
}

fn database_key(name: &str) -> Vec<u8> {
    [&[DATABASE], name.as_bytes()].concat()
}

fn map_key(database: u64, name: &str) -> Vec<u8> {
    [&[MAP], &database.to_be_bytes()[..], name.as_bytes()].concat()
}

/// Where a map is entered before it has its name.
fn under_way_key(map_key: &[u8]) -> Vec<u8> {
    [&[UNDER_WAY], map_key.get(1..).unwrap_or_default()].concat()
}

fn damaged() -> Error {
    Error::Internal("the tree of names is damaged".to_owned())
}

fn number(value: &[u8]) -> Result<u64, Error> {
    value.try_into().map(u64::from_be_bytes).map_err(|_| damaged())
}

fn root(value: &[u8]) -> Result<Tree, Error> {
    let bits = value.try_into().map(u128::from_be_bytes).map_err(|_| damaged())?;
    Ok(Tree::at(NodeId::from_bits(bits)))
}

/// The names of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Catalog<'a> {
    pub(crate) trees: &'a Trees<AnyTransport>,
    pub(crate) server: ServerId,
}

/// A map's name in the catalog.
struct MapEntry {
    key: Vec<u8>,
    /// The map's tree, if there is one.
    tree: Option<Tree>,
}

impl<'a> Catalog<'a> {
    fn tree(&self) -> Tree {
        catalog(self.server)
    }

    /// What stands under names that begin with a prefix, each without it.
    async fn list(
        &self,
        transaction: &mut Transaction<'a, AnyTransport>,
        prefix: &[u8],
    ) -> Result<Vec<(String, Box<[u8]>)>, Error> {
        let (mut all, mut cursor) = (Vec::new(), transaction.cursor(self.tree()));
        let mut next = cursor.seek(transaction, prefix).await?;
        while let Some((key, value)) = next {
            let Some(name) = key.strip_prefix(prefix) else { break };
            all.push((String::from_utf8_lossy(name).into_owned(), value));
            next = cursor.next(transaction).await?;
        }
        Ok(all)
    }

    /// The names of the databases.
    pub(crate) async fn databases(&self) -> Result<Vec<String>, Error> {
        let all = self.list(&mut self.trees.begin(), &[DATABASE]).await?;
        Ok(all.into_iter().map(|(name, _)| name).collect())
    }

    /// The number of a database, which is another one after it was dropped and
    /// made anew: it is looked up with what is asked for, and never kept.
    async fn number(
        &self,
        transaction: &mut Transaction<'_, AnyTransport>,
        name: &str,
    ) -> Result<u64, Error> {
        check_name(name)?;
        let found = transaction.get(self.tree(), &database_key(name)).await?;
        found.map_or_else(|| Err(Error::NoDatabase(name.to_owned())), |value| number(&value))
    }

    /// Fails if there is no such database.
    pub(crate) async fn database(&self, name: &str) -> Result<(), Error> {
        self.number(&mut self.trees.begin(), name).await.map(|_| ())
    }

    /// Makes a database.
    pub(crate) async fn create_database(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        // DATABASE/MAP is cut at the first one. Older versions have made such
        // names, so that they can still be asked for.
        if name.contains('/') {
            let what = "it has a '/', behind which the name of a map begins";
            return Err(Error::Name { name: name.to_owned(), what });
        }
        let made = self.trees.number(self.server, DATABASES).await?;
        let mut transaction = self.trees.begin();
        transaction.insert(self.tree(), &database_key(name), &made.to_be_bytes())?;
        match transaction.commit().await.map_err(Error::from) {
            Ok(_) => Ok(()),
            // Another one made it a moment ago.
            Err(Error::Exists | Error::Conflict(_)) => Err(Error::DatabaseExists(name.to_owned())),
            Err(error) => Err(error),
        }
    }

    /// Takes a database away, with all its maps.
    pub(crate) async fn drop_database(&self, name: &str) -> Result<(), Error> {
        let mut transaction = self.trees.begin();
        let number = self.number(&mut transaction, name).await?;
        let prefix = map_key(number, "");
        for (_, value) in self.list(&mut transaction, &prefix).await? {
            transaction.drop_tree(root(&value)?);
        }
        transaction.delete_range(self.tree(), &KeyRange::prefix(&prefix));
        // Whoever makes a map meanwhile writes below the prefix, which is
        // guarded by its deletion.
        transaction.delete(self.tree(), &database_key(name))?;
        transaction.commit().await?;
        // Whoever was filling maps of it cannot commit any more. What is left of
        // them is found by others, if not now.
        let _ = self.sweep_below(&under_way_key(&prefix), true).await;
        Ok(())
    }

    /// Takes away what transactions that never ended have left: maps that were
    /// filled ahead of a commit which cannot come any more. Returns how many.
    pub(crate) async fn sweep(&self) -> Result<usize, Error> {
        self.sweep_below(&[UNDER_WAY], false).await
    }

    async fn sweep_below(&self, prefix: &[u8], is_dropped: bool) -> Result<usize, Error> {
        let mut transaction = self.trees.begin();
        let (mut found, mut cursor) = (Vec::new(), transaction.cursor(self.tree()));
        let mut next = cursor.seek(&mut transaction, prefix).await?;
        while let Some((key, value)) = next.filter(|(key, _)| key.starts_with(prefix)) {
            found.push((key, UnderWayEntry::decode(&value).ok_or_else(damaged)?));
            next = cursor.next(&mut transaction).await?;
        }
        drop(transaction);
        let mut swept = 0;
        for (key, entry) in found {
            if is_dropped || !self.trees.is_kept(self.tree(), entry.snapshot).await? {
                swept += usize::from(self.strike(&key, entry.tree).await?);
            }
        }
        Ok(swept)
    }

    /// Strikes a map off those under way, whose transaction has ended; without a
    /// name it is dropped, which is told.
    async fn strike(&self, key: &[u8], tree: Tree) -> Result<bool, Error> {
        let name = [&[MAP], key.get(1..).unwrap_or_default()].concat();
        let mut transaction = self.trees.begin();
        let has_name = transaction.get(self.tree(), &name).await?.is_some();
        transaction.delete(self.tree(), key)?;
        if !has_name {
            transaction.drop_tree(tree);
        }
        match transaction.commit().await {
            Ok(_) => Ok(!has_name),
            // It had its name, and was dropped.
            Err(TreeError::NoTree(_)) => {
                let mut transaction = self.trees.begin();
                transaction.delete(self.tree(), key)?;
                transaction.commit().await?;
                Ok(false)
            }
            // Somebody else does it.
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The maps of a database, by name.
    pub(crate) async fn maps(&self, database: &str) -> Result<Vec<(String, Tree)>, Error> {
        let mut transaction = self.trees.begin();
        let prefix = map_key(self.number(&mut transaction, database).await?, "");
        let all = self.list(&mut transaction, &prefix).await?;
        all.into_iter().map(|(name, value)| Ok((name, root(&value)?))).collect()
    }

    /// The entry of a map's name.
    async fn find(
        &self,
        transaction: &mut Transaction<'_, AnyTransport>,
        database: &str,
        name: &str,
    ) -> Result<MapEntry, Error> {
        check_name(name)?;
        let key = map_key(self.number(transaction, database).await?, name);
        let found = transaction.get(self.tree(), &key).await?;
        Ok(MapEntry { key, tree: found.map(|value| root(&value)).transpose()? })
    }

    /// The map of a name, if it is there.
    pub(crate) async fn map(&self, database: &str, name: &str) -> Result<Option<Tree>, Error> {
        Ok(self.find(&mut self.trees.begin(), database, name).await?.tree)
    }

    /// The map of a name, which is made if it is not there.
    pub(crate) async fn create_map(&self, database: &str, name: &str) -> Result<Tree, Error> {
        let (mut fresh, mut attempts) = (None, 0);
        loop {
            let mut transaction = self.trees.begin();
            let MapEntry { key, tree } = self.find(&mut transaction, database, name).await?;
            if let Some(tree) = tree {
                return Ok(tree);
            }
            // That of an attempt before is nobody's yet.
            let tree = match fresh {
                Some(tree) => tree,
                None => *fresh.insert(self.trees.fresh(self.server).await?),
            };
            // With its name or not at all: nobody finds a tree that has none.
            transaction.create_tree(tree);
            transaction.insert(self.tree(), &key, &tree.root().to_bits().to_be_bytes())?;
            // Not into a database that is dropped meanwhile.
            transaction.guard(self.tree(), KeyRange::single(&database_key(database)));
            match transaction.commit().await.map_err(Error::from) {
                Ok(_) => return Ok(tree),
                // Another one made it a moment ago, or dropped the database.
                Err(Error::Exists | Error::Conflict(_)) if attempts < ATTEMPTS_MAX => attempts += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a map as part of a transaction, with a name that may tell its
    /// number.
    pub(crate) async fn create_in(
        &self,
        transaction: &mut Transaction<'_, AnyTransport>,
        database: &str,
        name: impl FnOnce(u64) -> String,
    ) -> Result<Tree, Error> {
        let number = self.number(transaction, database).await?;
        let tree = self.trees.fresh(self.server).await?;
        let name = name(tree.root().tree.number());
        check_name(&name)?;
        let key = map_key(number, &name);
        let under_way = UnderWay { list: self.tree(), key: under_way_key(&key).into() };
        transaction.create_tree_ahead(tree, under_way);
        transaction.insert(self.tree(), &key, &tree.root().to_bits().to_be_bytes())?;
        transaction.guard(self.tree(), KeyRange::single(&database_key(database)));
        Ok(tree)
    }

    /// Takes a map away as part of a transaction; whether it was there.
    pub(crate) async fn drop_in(
        &self,
        transaction: &mut Transaction<'_, AnyTransport>,
        database: &str,
        name: &str,
    ) -> Result<bool, Error> {
        let entry = self.find(transaction, database, name).await?;
        let MapEntry { key, tree: Some(tree) } = entry else { return Ok(false) };
        transaction.drop_tree(tree);
        transaction.delete(self.tree(), &key)?;
        Ok(true)
    }

    /// Takes a map away; whether it was there.
    pub(crate) async fn drop_map(&self, database: &str, name: &str) -> Result<bool, Error> {
        let mut transaction = self.trees.begin();
        let is_there = self.drop_in(&mut transaction, database, name).await?;
        if is_there {
            transaction.commit().await?;
        }
        Ok(is_there)
    }
}
