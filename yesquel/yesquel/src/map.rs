//! Maps, by which applications name trees.

use std::sync::Arc;
use yesquel_model::{ClusterId, NodeId, ServerId, TreeId};
use yesquel_tree::Tree;

/// Handle of an ordered map of bytes to bytes, in byte order. It is cheap to copy. It is valid for
/// the [`Store`](crate::Store) that returned it and for others of the same cluster, by whatever
/// address; with any other one operations fail with
/// [`Error::OtherStore`](crate::Error::OtherStore).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Map {
    pub(crate) tree: Tree,
    pub(crate) cluster: ClusterId,
}

impl Map {
    /// Returns the number of its tree, as the server's status shows it.
    pub fn tree(&self) -> u64 {
        self.tree.root().tree.number()
    }

    /// Returns the group where its tree begins.
    pub fn group(&self) -> ServerId {
        self.tree.root().server
    }

    /// Returns the map of the same group with a number that [`tree`](Self::tree) has returned, here
    /// or in another process, without asking a server. If there is no such map, operations on it
    /// fail.
    #[must_use]
    pub fn with_number(&self, number: u64) -> Option<Map> {
        let tree = TreeId::new(number)?;
        Some(Map { tree: Tree::at(NodeId::root(tree, self.group())), cluster: self.cluster })
    }
}

/// Small maps at different groups that have the same content at every snapshot: a transaction that
/// changes one changes all of them. So any of them proves what all contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapCopies {
    maps: Arc<[Map]>,
    pub(crate) roots: Arc<[NodeId]>,
}

impl MapCopies {
    /// Returns these maps as copies. The first one identifies them; the others are in any order.
    pub fn new(first: Map, others: impl IntoIterator<Item = Map>) -> MapCopies {
        let maps: Arc<[Map]> = std::iter::once(first).chain(others).collect();
        let roots = maps.iter().map(|map| map.tree.root()).collect();
        MapCopies { maps, roots }
    }

    /// Returns the map that identifies the copies.
    pub fn first(&self) -> Map {
        self.maps[0]
    }

    /// Returns all copies.
    pub fn all(&self) -> &[Map] {
        &self.maps
    }

    /// Returns the copy at a group; the first one if there is none.
    pub fn at(&self, group: ServerId) -> Map {
        self.maps.iter().copied().find(|map| map.group() == group).unwrap_or_else(|| self.first())
    }
}
