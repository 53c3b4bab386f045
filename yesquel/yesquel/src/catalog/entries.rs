//! Entries of the catalog: keys and values.

use crate::{Error, directory_entries};
use yesquel_model::{Key, NodeId, ServerId};
use yesquel_tree::{Tree, UnfinishedLoad};

pub(crate) const DATABASE: u8 = b'd';
pub(super) const MAP: u8 = b'm';
pub(super) const BULK_LOAD: u8 = b'w';

pub(super) fn database_key(name: &str) -> Vec<u8> {
    [&[DATABASE], name.as_bytes()].concat()
}

pub(super) fn map_key(database: u64, name: &str) -> Vec<u8> {
    [&[MAP], &database.to_be_bytes()[..], name.as_bytes()].concat()
}

/// Key under which a bulk-loaded map is registered before its commit.
pub(super) fn bulk_load_key(map_key: &[u8]) -> Vec<u8> {
    [&[BULK_LOAD], map_key.get(1..).unwrap_or_default()].concat()
}

pub(super) fn damaged() -> Error {
    Error::Internal("the tree of names is damaged".to_owned())
}

pub(super) fn root(value: &[u8]) -> Result<Tree, Error> {
    let bits = value.try_into().map(u128::from_be_bytes).map_err(|_| damaged())?;
    Ok(Tree::at(NodeId::from_bits(bits)))
}

/// Entry of a database's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatabaseEntry {
    pub(super) number: u64,
    /// The groups at which its maps are created, at least one. Groups join, and none leaves.
    pub(super) groups: Vec<ServerId>,
}

impl DatabaseEntry {
    pub(super) fn decode(value: &[u8], home: ServerId) -> Result<DatabaseEntry, Error> {
        let (number, groups) = value.split_first_chunk().ok_or_else(damaged)?;
        let (groups, []) = groups.as_chunks() else { return Err(damaged()) };
        let groups: Vec<ServerId> = groups.iter().map(|group| ServerId(u16::from_be_bytes(*group))).collect();
        let groups = if groups.is_empty() { vec![home] } else { groups };
        Ok(DatabaseEntry { number: u64::from_be_bytes(*number), groups })
    }

    pub(super) fn encode(&self, home: ServerId) -> Vec<u8> {
        let mut value = self.number.to_be_bytes().to_vec();
        // Earlier releases know databases at the home group only, and read these as before. They
        // refuse one with several groups as damaged.
        if self.groups != [home] {
            value.extend(self.groups.iter().flat_map(|group| group.0.to_be_bytes()));
        }
        value
    }
}

/// Entry of the catalog, for checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CatalogEntry {
    Database {
        name: String,
        number: u64,
    },
    Map {
        database: u64,
        name: String,
        tree: Tree,
    },
    /// A map that is being bulk loaded.
    Load {
        tree: Tree,
    },
    /// An entry of the directory.
    Directory,
    /// Neither of them: its key.
    Unreadable(Key),
}

impl CatalogEntry {
    pub(super) fn decode(key: &[u8], value: &[u8], home: ServerId) -> Option<CatalogEntry> {
        let (sort, rest) = key.split_first()?;
        let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        match *sort {
            DATABASE => {
                let DatabaseEntry { number, .. } = DatabaseEntry::decode(value, home).ok()?;
                Some(CatalogEntry::Database { name: name(rest)?, number })
            }
            MAP => {
                let (database, map) = rest.split_first_chunk()?;
                let (database, tree) = (u64::from_be_bytes(*database), root(value).ok()?);
                Some(CatalogEntry::Map { database, name: name(map)?, tree })
            }
            BULK_LOAD => Some(CatalogEntry::Load { tree: UnfinishedLoad::decode(value)?.tree }),
            _ if directory_entries::is_key(key) => Some(CatalogEntry::Directory),
            _ => None,
        }
    }
}
